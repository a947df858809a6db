//! The heads of responses, without I/O: what a server sent, as far as it has one reading.
//!
//! Servers are many and often old, so lines may end in LF alone, the reason may be missing, empty lines may come
//! first, whitespace may stand before a colon, and a length may be said several times with one value: none of that
//! changes where a message ends, and none is passed on.
//! What could is refused: two lengths, a length beside a transfer coding, a coding other than `chunked`,
//! folded lines, bare CR, control bytes.

use std::fmt;
use std::ops::Range;

use super::field::{self, Field};
use super::framing::{self, Connection, MAX_LENGTH};
use super::lines::{HeadLine, Lines};
use super::{Http1Fault, Limits, Version};
use crate::head::{FieldLine, Known};

/// Reads the heads of the responses on one connection, one after the other.
///
/// Keep the bytes that have come and call [`ResponseReader::read`] with all of them until it gives a head, which
/// [`ResponseHead::length`] of them are; then [`ResponseReader::fields`] has its fields. Call
/// [`ResponseReader::clear`] before the next head. No byte of a line is searched twice, and bytes that were
/// shown must not change. The memory for fields is used again.
#[derive(Debug, Default)]
pub struct ResponseReader {
    lines: Lines,
    status: Option<StatusLine>,
    fields: Vec<FieldLine>,
    length: Option<u64>,
    /// Whether the length is said in more or other words than needed.
    odd_length: bool,
    chunked: bool,
    connection: Connection,
}

/// What was asked for, as far as it decides whether content follows (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Asked {
    /// HEAD.
    Head,
    /// CONNECT.
    Connect,
    /// Anything else.
    Other,
}

/// A head that is complete and accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status, from 100 to 999.
    pub status: u16,
    /// The version.
    pub version: Version,
    /// Where the reason stands; it may be empty.
    pub reason: Range<usize>,
    /// How the content is delimited.
    pub framing: ResponseFraming,
    /// Whether another response may follow on the connection (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// A length that is said in several fields, as a list or with zeros before it; whoever passes the head on says
    /// it once instead.
    pub odd_length: Option<u64>,
    /// The length of the head with its empty line, and with the empty lines before it.
    pub length: usize,
}

/// How the content of a response is delimited (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseFraming {
    /// It is an interim response: the head of another one follows (RFC 9110 §15.2).
    Interim,
    /// There is none.
    None,
    /// That many bytes.
    Length(u64),
    /// Chunks, and trailers perhaps.
    Chunked,
    /// All bytes until the connection ends.
    UntilClose,
    /// None; another protocol follows (101, or CONNECT with 2xx).
    Switched,
}

/// Why the head of a response was refused. Always the fault of the server; nobody can say where the next
/// response begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseFault {
    /// The first line is not `HTTP/` version, status and reason (RFC 9112 §4).
    StatusLine,
    /// A version other than 1.0 and 1.1 (RFC 9112 §2.3).
    Version,
    /// A fault that requests can have too.
    Head(Http1Fault),
}

#[derive(Debug, Clone)]
struct StatusLine {
    version: Version,
    status: u16,
    reason: Range<usize>,
}

impl ResponseReader {
    /// Reads on in `bytes`, which begin where the head or the empty lines before it begin; `None`: more bytes are
    /// needed. Of `limits`, [`Limits::head`] and [`Limits::fields`] count.
    ///
    /// # Errors
    /// Why it is no response that can be passed on.
    pub fn read(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        asked: Asked,
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

    /// The fields of the head that was read last, in their order.
    #[must_use]
    pub fn fields(&self) -> &[FieldLine] {
        &self.fields
    }

    /// Makes ready for the next head.
    pub fn clear(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }

    /// Steps over empty lines; whether the line behind them may be that of a status. So whoever speaks another
    /// protocol is found out with its first bytes, whether a line of them ends or not.
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

    /// The end of a line is missing, and perhaps can no longer come.
    fn partial(&self, window: &[u8], limits: &Limits) -> Result<Option<ResponseHead>, ResponseFault> {
        if window.len() >= limits.head as usize {
            return Err(ResponseFault::Head(Http1Fault::HeadTooLong));
        }
        Ok(None)
    }

    /// Whether one field more may come.
    #[inline]
    fn room(&self, limits: &Limits) -> Result<(), Http1Fault> {
        if self.fields.len() == usize::from(limits.fields) { Err(Http1Fault::TooManyFields) } else { Ok(()) }
    }

    /// A line that is not plainly a field.
    #[cold]
    fn odd_field(&mut self, window: &[u8], line: &Range<usize>, limits: &Limits) -> Result<(), Http1Fault> {
        self.room(limits)?;
        let field = field::read_of_server(window, line.start, line.end, self.fields.is_empty())?;
        self.field(window, line, &field)
    }

    #[inline]
    fn field(&mut self, window: &[u8], line: &Range<usize>, field: &Field<'_>) -> Result<(), Http1Fault> {
        match field.name {
            Known::ContentLength => self.length(field.value)?,
            Known::TransferEncoding => {
                if self.version() == Version::Http10 {
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
        let line = FieldLine::new(window, line.start, field.name_end, value, (line.end, crlf), field.name);
        self.fields.push(line.ok_or(Http1Fault::Name)?);
        Ok(())
    }

    /// Reads a Content-Length, which may be a list of equal numbers (RFC 9112 §6.3).
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

    fn version(&self) -> Version {
        self.status.as_ref().map_or(Version::Http11, |line| line.version)
    }

    /// The head is complete: judges it as a whole.
    fn finish(&mut self, asked: Asked) -> Result<ResponseHead, ResponseFault> {
        let StatusLine { version, status, reason } = self.status.take().ok_or(ResponseFault::StatusLine)?;
        let framing = match (status, asked) {
            (101, _) | (200..=299, Asked::Connect) => ResponseFraming::Switched,
            (100..=199, _) => ResponseFraming::Interim,
            (204 | 304, _) | (_, Asked::Head) => ResponseFraming::None,
            _ if self.chunked => ResponseFraming::Chunked,
            _ => self.length.map_or(ResponseFraming::UntilClose, ResponseFraming::Length),
        };
        let Connection { close, keep_alive, .. } = self.connection;
        let lasts = !matches!(framing, ResponseFraming::UntilClose | ResponseFraming::Switched);
        Ok(ResponseHead {
            status,
            version,
            reason,
            framing,
            keep_alive: lasts && !close && (version == Version::Http11 || keep_alive),
            odd_length: self.length.filter(|_| self.odd_length),
            length: self.lines.at(),
        })
    }
}

/// Reads `HTTP/1.1 200 OK`, of which all behind the three digits may be missing; begins with `HTTP/1.`.
fn status_line(window: &[u8], line: Range<usize>) -> Result<StatusLine, ResponseFault> {
    let text = &window[line.clone()];
    let (version, rest) = match text.split_at_checked(8) {
        Some((b"HTTP/1.1", rest)) => (Version::Http11, rest),
        Some((b"HTTP/1.0", rest)) => (Version::Http10, rest),
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

/// Reads digits with zeros before them.
fn digits(text: &[u8]) -> Result<u64, Http1Fault> {
    let length = text.iter().fold(0_u64, |length, &byte| {
        length.saturating_mul(10).saturating_add(u64::from(byte.saturating_sub(b'0')))
    });
    if length > MAX_LENGTH { Err(Http1Fault::ContentLengthTooLarge) } else { Ok(length) }
}

impl fmt::Display for ResponseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StatusLine => f.write_str("it does not begin with the line of a status"),
            Self::Version => f.write_str("the version is neither HTTP/1.0 nor HTTP/1.1"),
            Self::Head(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for ResponseFault {}
