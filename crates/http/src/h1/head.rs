//! Assembles a request head from its lines, into a [`RequestHead`] or a fault.

use std::ops::Range;

use super::field::{self, ParsedField};
use super::framing::{self, ConnectionOptions};
use super::lines::{HeadLine, Lines};
use super::request_line::{self, RequestLine};
use super::{HeadLimits, Http1Version, RequestFraming, RequestHead, TargetForm};
use crate::fault::Http1Fault;
use crate::field::{FieldLine, Known};
use crate::host::Authority;

/// A partially received head.
#[derive(Debug, Default)]
pub(super) struct PartialHead {
    lines: Lines,
    line: Option<RequestLine>,
    /// Positions of the fields. Callers read it when the head is complete; its memory is reused for the next
    /// one.
    index: Vec<FieldLine>,
    host: Option<Range<usize>>,
    length: Option<u64>,
    chunked: bool,
    connection: ConnectionOptions,
    upgrade: bool,
    expects: bool,
}

/// Result of reading a head.
pub(super) enum Drafted {
    Partial,
    Whole { head: RequestHead, length: usize },
    Http2,
    Fault(Http1Fault),
}

impl PartialHead {
    /// Positions of the fields of the last complete head.
    pub(super) fn index(&self) -> &[FieldLine] {
        &self.index
    }

    /// Releases the memory of the index.
    pub(super) fn rest(&mut self) {
        self.index = Vec::new();
    }

    /// Resets the state for the next head. The index stays valid until that is read.
    fn reset(&mut self) {
        *self = Self { index: std::mem::take(&mut self.index), ..Self::default() };
    }

    /// Returns true if `bytes` contain a byte of the head itself; an empty line before it does not count.
    pub(super) fn has_begun(bytes: &[u8]) -> bool {
        !matches!(bytes, [] | b"\r" | b"\r\n")
    }

    /// Reads `bytes`, which begin at the head or at the empty line before it.
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8], limits: &HeadLimits, first: bool) -> Drafted {
        let skip = match empty_line(bytes) {
            Ok(Some(skip)) => skip,
            Ok(None) => return Drafted::Partial,
            Err(fault) => return Drafted::Fault(fault),
        };
        let most = skip + limits.head as usize;
        let window = &bytes[..bytes.len().min(most)];
        if self.lines.at() < skip {
            self.lines = Lines::new(skip);
        }
        loop {
            if self.line.is_some()
                && let Some((field, line)) = self.lines.next_field(window)
            {
                match self.room(limits).and_then(|()| self.field(window, &line, &field)) {
                    Ok(()) => continue,
                    Err(fault) => return Drafted::Fault(fault),
                }
            }
            let line = match self.lines.next(window) {
                HeadLine::Whole(line) => line,
                HeadLine::Partial => return self.partial(window, skip, limits),
                HeadLine::Fault(fault) => {
                    return Drafted::Fault(self.overlong(window, skip, limits).unwrap_or(fault));
                }
            };
            let done = if self.line.is_none() {
                if first && line.start == 0 && request_line::is_http2(&window[line.clone()]) {
                    return Drafted::Http2;
                }
                self.request_line(&window[line.clone()], line.start, limits)
            } else if line.is_empty() {
                return match self.finish(window) {
                    Ok(head) => {
                        self.reset();
                        Drafted::Whole { head, length: line.end + 2 }
                    }
                    Err(fault) => Drafted::Fault(fault),
                };
            } else {
                self.odd_field(window, &line, limits)
            };
            if let Err(fault) = done {
                return Drafted::Fault(fault);
            }
        }
    }

    /// Handles a line without its end, which may be impossible within the bounds.
    fn partial(&self, window: &[u8], skip: usize, limits: &HeadLimits) -> Drafted {
        match self.overlong(window, skip, limits) {
            Some(fault) => Drafted::Fault(fault),
            None if window.len() - skip >= limits.head as usize => Drafted::Fault(Http1Fault::HeadTooLong),
            None => Drafted::Partial,
        }
    }

    /// Checks the length of a request line that is incomplete or precedes a fault.
    fn overlong(&self, window: &[u8], skip: usize, limits: &HeadLimits) -> Option<Http1Fault> {
        let start = &window[skip..self.lines.seen()];
        self.line.is_none().then(|| request_line::too_long(start, limits)).flatten()
    }

    #[inline]
    fn request_line(&mut self, line: &[u8], start: usize, limits: &HeadLimits) -> Result<(), Http1Fault> {
        let mut read = request_line::read(line, limits)?;
        self.index.clear();
        read.method = start + read.method.start..start + read.method.end;
        read.target = start + read.target.start..start + read.target.end;
        self.line = Some(read);
        Ok(())
    }

    /// Fails at the maximum number of fields.
    #[inline]
    fn room(&self, limits: &HeadLimits) -> Result<(), Http1Fault> {
        if self.index.len() == usize::from(limits.fields) { Err(Http1Fault::TooManyFields) } else { Ok(()) }
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
        let field = field::read(window, line.start, line.end, self.index.is_empty())?;
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
            Known::Other if field::is_ambiguous(&window[line.start..field.name_end]) => {
                return Err(Http1Fault::AmbiguousName);
            }
            Known::Host if self.host.is_some() => return Err(Http1Fault::HostRepeated),
            Known::Host if !Authority::is_valid(field.value) => return Err(Http1Fault::HostMalformed),
            Known::Host => {
                self.host = Some(field.at..field.at + field.value.len());
            }
            Known::ContentLength => {
                let length = framing::content_length(field.value)?;
                match self.length.replace(length) {
                    Some(before) if before == length => return Err(Http1Fault::ContentLengthRepeated),
                    Some(_) => return Err(Http1Fault::ContentLengthConflict),
                    None => {}
                }
            }
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
            Known::Upgrade => self.upgrade = true,
            Known::Expect => self.expects |= field.value.eq_ignore_ascii_case(b"100-continue"),
            _ => {}
        }
        if self.chunked && self.length.is_some() {
            return Err(Http1Fault::BothLengths);
        }
        let value = field.at..field.at + field.value.len();
        let line = FieldLine::new(window, line.start, field.name_end, value, Some(line.end), field.name);
        self.index.push(line.ok_or(Http1Fault::Name)?);
        Ok(())
    }

    fn version(&self) -> Http1Version {
        self.line.as_ref().map_or(Http1Version::Http11, |line| line.version)
    }

    /// Validates the complete head as a whole.
    #[inline]
    fn finish(&mut self, window: &[u8]) -> Result<RequestHead, Http1Fault> {
        let line = self.line.take().ok_or(Http1Fault::RequestLine)?;
        let modern = line.version == Http1Version::Http11;
        if modern && self.host.is_none() {
            return Err(Http1Fault::HostMissing);
        }
        if line.form == TargetForm::Absolute {
            self.check_host_agrees(window, &line)?;
        }
        let framing = match (self.chunked, self.length) {
            (true, _) => RequestFraming::Chunked,
            (false, Some(length)) => RequestFraming::Length(length),
            (false, None) => RequestFraming::None,
        };
        let connects = line.form == TargetForm::Authority;
        if connects && framing != RequestFraming::None {
            return Err(Http1Fault::ConnectWithBody);
        }
        let ConnectionOptions { close, keep_alive, upgrade } = self.connection;
        Ok(RequestHead {
            method: line.method,
            target: line.target,
            form: line.form,
            query: line.query,
            version: line.version,
            host: self.host.take(),
            framing,
            keep_alive: !close && (modern || keep_alive),
            switches: connects || modern && upgrade && self.upgrade,
            expects_continue: modern && self.expects && !framing.is_empty(),
            fields: self.index.len() as u16,
        })
    }

    /// Requires an absolute target and Host to name the same host. RFC 9112 §3.2.2 gives the target
    /// precedence, but a server that prefers Host would choose another site.
    #[cold]
    fn check_host_agrees(&self, window: &[u8], line: &RequestLine) -> Result<(), Http1Fault> {
        let (target, port) =
            request_line::absolute(&window[line.target.clone()]).ok_or(Http1Fault::TargetForm)?;
        let Some(host) = self.host.clone() else { return Ok(()) };
        let host = Authority::parse(&window[host]).map_err(|_| Http1Fault::HostMalformed)?;
        if host.same(&target, port) { Ok(()) } else { Err(Http1Fault::HostContradicts) }
    }
}

/// Length of the empty line before a head, of which one is tolerated (RFC 9112 §2.2); `None` if it cannot be
/// determined yet.
#[inline]
fn empty_line(bytes: &[u8]) -> Result<Option<usize>, Http1Fault> {
    match bytes {
        [b'\r', b'\n', b'\r', b'\n', ..] => Err(Http1Fault::LeadingLines),
        [] | [b'\r'] | [b'\r', b'\n'] | [b'\r', b'\n', b'\r'] => Ok(None),
        [b'\r', b'\n', ..] => Ok(Some(2)),
        _ => Ok(Some(0)),
    }
}
