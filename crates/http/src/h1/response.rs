//! Heads of responses, without I/O: accepted if they have a single reading.
//!
//! Servers vary and are often old, so lines may end in LF alone, the reason may be missing, empty lines may
//! come first, whitespace may precede a colon, and a length may be repeated with one value: none of these
//! changes where a message ends, and none is forwarded. What could is rejected: two lengths, a length with a
//! transfer coding, a coding other than `chunked`, folded lines, bare CR, control bytes.

use std::fmt;
use std::ops::Range;

use super::field::{self, ParsedField};
use super::framing::{self, ConnectionOptions, MAX_LENGTH};
use super::lines::{HeadLine, Lines};
use super::{HeadLimits, Http1Version};
use crate::fault::Http1Fault;
use crate::field::{FieldLine, Known};

/// Parses the heads of the responses on one connection, one after the other.
///
/// Keep the received bytes and call [`ResponseReader::read`] with all of them until it returns a head, which
/// occupies [`ResponseHead::length`] of them; then [`ResponseReader::fields`] has its fields. Call
/// [`ResponseReader::clear`] before the next head. No byte of a line is searched twice, and bytes that were
/// read must not change. The memory for fields is reused.
#[derive(Debug, Default)]
pub struct ResponseReader {
    lines: Lines,
    status: Option<StatusLine>,
    fields: Vec<FieldLine>,
    length: Option<u64>,
    /// Set if the length is repeated or not in canonical form.
    odd_length: bool,
    chunked: bool,
    connection: ConnectionOptions,
}

/// Kind of the request, which determines the content of its response (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// HEAD: the response has no content.
    Head,
    /// CONNECT: a 2xx response starts a tunnel.
    Connect,
    /// Any method without rules of its own.
    Other,
}

/// A complete and accepted head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code, from 100 to 999.
    pub status: u16,
    /// Version of the response.
    pub version: Http1Version,
    /// Range of the reason phrase; it may be empty.
    pub reason: Range<usize>,
    /// Delimitation of the content.
    pub framing: ResponseFraming,
    /// Set if another response may follow on the connection (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// Value of a length that is repeated, a list, or has leading zeros; forward it in canonical form
    /// instead.
    pub odd_length: Option<u64>,
    /// Length of the head including its final empty line, and empty lines before it.
    pub length: usize,
}

/// Delimitation of the content of a response (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseFraming {
    /// An interim response: another head follows (RFC 9110 §15.2).
    Interim,
    /// No content follows, whatever the fields declare.
    None,
    /// Content of this many bytes.
    Length(u64),
    /// Chunks, and optional trailers.
    Chunked,
    /// All bytes until the connection ends.
    UntilClose,
    /// No content; another protocol follows (101, or CONNECT with 2xx).
    Switched,
}

/// Reason for rejecting the head of a response: an error of the server. The connection cannot be used
/// afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseFault {
    /// The first line is not `HTTP/` version, status and reason (RFC 9112 §4).
    StatusLine,
    /// A version other than 1.0 and 1.1 (RFC 9112 §2.3).
    Version,
    /// A fault that requests can have, too.
    Head(Http1Fault),
}

#[derive(Debug, Clone)]
struct StatusLine {
    version: Http1Version,
    status: u16,
    reason: Range<usize>,
}

impl ResponseReader {
    /// Reads `bytes`, which begin at the head or at empty lines before it; `None` if more bytes are needed.
    /// Of `limits`, [`HeadLimits::head`] and [`HeadLimits::fields`] apply.
    ///
    /// # Errors
    /// The reason for which the response cannot be forwarded.
    pub fn read(
        &mut self,
        bytes: &[u8],
        limits: &HeadLimits,
        asked: RequestKind,
    ) -> Result<Option<ResponseHead>, ResponseFault> {
        let window = &bytes[..bytes.len().min(limits.head as usize)];
        if self.status.is_none() && !self.has_begun(window)? {
            return self.partial(window, limits);
        }
        loop {
            if self.status.is_some()
                && let Some((field, line)) = self.lines.next_field(window)
            {
                let taken = self.room(limits).and_then(|()| self.field(window, &line, &field));
                taken.map_err(ResponseFault::Head)?;
                continue;
            }
            let line = match self.lines.next_of_server(window) {
                HeadLine::Whole(line) => line,
                HeadLine::Partial => return self.partial(window, limits),
                HeadLine::Fault(fault) => return Err(ResponseFault::Head(fault)),
            };
            if self.status.is_none() {
                self.status = Some(status_line(window, line)?);
            } else if line.is_empty() {
                return self.finish(asked).map(Some);
            } else {
                self.odd_field(window, &line, limits).map_err(ResponseFault::Head)?;
            }
        }
    }

    /// Fields of the last head, in order.
    #[must_use]
    pub fn fields(&self) -> &[FieldLine] {
        &self.fields
    }

    /// Resets the state for the next head.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }

    /// Skips empty lines and checks the prefix of the status line. So a server of another protocol is
    /// detected by its first bytes, even if no line end arrives.
    fn has_begun(&mut self, window: &[u8]) -> Result<bool, ResponseFault> {
        loop {
            let at = self.lines.at();
            let rest = &window[at..];
            match rest {
                [b'\r', b'\n', ..] => self.lines = Lines::new(at + 2),
                [b'\n', ..] => self.lines = Lines::new(at + 1),
                [] | [b'\r'] => return Ok(false),
                _ => {
                    let (protocol, version) = rest.split_at(rest.len().min(5));
                    if !b"HTTP/".starts_with(protocol) {
                        return Err(ResponseFault::StatusLine);
                    }
                    return match version {
                        [] | [b'1'] | [b'1', b'.', ..] => Ok(true),
                        _ => Err(ResponseFault::Version),
                    };
                }
            }
        }
    }

    /// Handles a line without its end, which may be impossible within the bounds.
    fn partial(&self, window: &[u8], limits: &HeadLimits) -> Result<Option<ResponseHead>, ResponseFault> {
        if window.len() >= limits.head as usize {
            return Err(ResponseFault::Head(Http1Fault::HeadTooLong));
        }
        Ok(None)
    }

    /// Fails at the maximum number of fields.
    #[inline]
    fn room(&self, limits: &HeadLimits) -> Result<(), Http1Fault> {
        if self.fields.len() == usize::from(limits.fields) { Err(Http1Fault::TooManyFields) } else { Ok(()) }
    }

    /// Handles a line that the fast path does not accept.
    #[cold]
    fn odd_field(
        &mut self,
        window: &[u8],
        line: &Range<usize>,
        limits: &HeadLimits,
    ) -> Result<(), Http1Fault> {
        self.room(limits)?;
        let field = field::read_of_server(window, line.start, line.end, self.fields.is_empty())?;
        self.field(window, line, &field)
    }

    #[inline]
    fn field(
        &mut self,
        window: &[u8],
        line: &Range<usize>,
        field: &ParsedField<'_>,
    ) -> Result<(), Http1Fault> {
        match field.name {
            Known::ContentLength => self.length(field.value)?,
            Known::TransferEncoding => {
                if self.version() == Http1Version::Http10 {
                    return Err(Http1Fault::TransferEncodingInHttp10);
                }
                if self.chunked {
                    return Err(Http1Fault::TransferEncodingRepeated);
                }
                framing::transfer_encoding(field.value)?;
                self.chunked = true;
            }
            Known::Connection => self.connection.read(field.value)?,
            _ => {}
        }
        if self.chunked && self.length.is_some() {
            return Err(Http1Fault::BothLengths);
        }
        let value = field.at..field.at + field.value.len();
        let crlf = window.get(line.end) == Some(&b'\r');
        let line =
            FieldLine::new(window, line.start, field.name_end, value, crlf.then_some(line.end), field.name);
        self.fields.push(line.ok_or(Http1Fault::Name)?);
        Ok(())
    }

    /// Parses a Content-Length, which may be a list of equal numbers (RFC 9112 §6.3).
    fn length(&mut self, value: &[u8]) -> Result<(), Http1Fault> {
        for text in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            let length = match framing::content_length(text) {
                Err(Http1Fault::ContentLengthZeros) => {
                    self.odd_length = true;
                    digits(text)?
                }
                length => length?,
            };
            match self.length.replace(length) {
                Some(before) if before != length => return Err(Http1Fault::ContentLengthConflict),
                Some(_) => self.odd_length = true,
                None => {}
            }
        }
        Ok(())
    }

    fn version(&self) -> Http1Version {
        self.status.as_ref().map_or(Http1Version::Http11, |line| line.version)
    }

    /// Validates the complete head as a whole.
    fn finish(&mut self, asked: RequestKind) -> Result<ResponseHead, ResponseFault> {
        let StatusLine { version, status, reason } = self.status.take().ok_or(ResponseFault::StatusLine)?;
        let framing = match (status, asked) {
            (101, _) | (200..=299, RequestKind::Connect) => ResponseFraming::Switched,
            (100..=199, _) => ResponseFraming::Interim,
            (204 | 304, _) | (_, RequestKind::Head) => ResponseFraming::None,
            _ if self.chunked => ResponseFraming::Chunked,
            _ => self.length.map_or(ResponseFraming::UntilClose, ResponseFraming::Length),
        };
        let ConnectionOptions { close, keep_alive, .. } = self.connection;
        let lasts = !matches!(framing, ResponseFraming::UntilClose | ResponseFraming::Switched);
        Ok(ResponseHead {
            status,
            version,
            reason,
            framing,
            keep_alive: lasts && !close && (version == Http1Version::Http11 || keep_alive),
            odd_length: self.length.filter(|_| self.odd_length),
            length: self.lines.at(),
        })
    }
}

/// Parses `HTTP/1.1 200 OK`, of which everything behind the three digits is optional; the line begins with
/// `HTTP/1.`.
fn status_line(window: &[u8], line: Range<usize>) -> Result<StatusLine, ResponseFault> {
    let text = &window[line.clone()];
    let (version, rest) = match text.split_at_checked(8) {
        Some((b"HTTP/1.1", rest)) => (Http1Version::Http11, rest),
        Some((b"HTTP/1.0", rest)) => (Http1Version::Http10, rest),
        Some(([.., minor], _)) if minor.is_ascii_digit() => return Err(ResponseFault::Version),
        _ => return Err(ResponseFault::StatusLine),
    };
    let (status, reason) = match rest {
        [b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', reason @ ..] => {
            let digit = |byte: u8| u16::from(byte - b'0');
            (digit(*a) * 100 + digit(*b) * 10 + digit(*c), reason)
        }
        _ => return Err(ResponseFault::StatusLine),
    };
    let reason = match reason {
        [] => line.end..line.end,
        [b' ', ..] => line.end - reason.len() + 1..line.end,
        _ => return Err(ResponseFault::StatusLine),
    };
    Ok(StatusLine { version, status, reason })
}

/// Parses digits, which may have leading zeros.
fn digits(text: &[u8]) -> Result<u64, Http1Fault> {
    let length = text.iter().fold(0_u64, |length, &byte| {
        length.saturating_mul(10).saturating_add(u64::from(byte.saturating_sub(b'0')))
    });
    if length > MAX_LENGTH { Err(Http1Fault::ContentLengthTooLarge) } else { Ok(length) }
}

impl fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StatusLine => f.write_str("it does not begin with a status line"),
            Self::Version => f.write_str("the version is neither HTTP/1.0 nor HTTP/1.1"),
            Self::Head(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for ResponseFault {}
