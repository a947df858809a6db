//! A head in the making: lines go in, and a [`RequestHead`] or a refusal comes out.

use std::ops::Range;

use super::field::{self, Field};
use super::framing::{self, Connection};
use super::lines::{HeadLine, Lines};
use super::request_line::{self, RequestLine};
use super::{Form, Framing, Http1Fault, Limits, RequestHead, Version};
use crate::head::{FieldLine, Known};
use crate::host::Authority;

/// A head of which some lines have come.
#[derive(Debug, Default)]
pub(super) struct Draft {
    lines: Lines,
    line: Option<RequestLine>,
    /// Where the fields stand. It is read when the head is complete, and used again for the next.
    index: Vec<FieldLine>,
    host: Option<Range<usize>>,
    length: Option<u64>,
    chunked: bool,
    connection: Connection,
    upgrade: bool,
    expects: bool,
}

/// What became of a head.
pub(super) enum Drafted {
    Partial,
    Whole { head: RequestHead, length: usize },
    Http2,
    Fault(Http1Fault),
}

impl Draft {
    /// Where the fields of the head that was complete last stand.
    pub(super) fn index(&self) -> &[FieldLine] {
        &self.index
    }

    /// Gives back the memory of the index.
    pub(super) fn rest(&mut self) {
        self.index = Vec::new();
    }

    /// Makes ready for the next head. The index stays until then.
    fn renew(&mut self) {
        *self = Self { index: std::mem::take(&mut self.index), ..Self::default() };
    }

    /// Whether a byte of the head itself has come in `bytes`; an empty line before it does not count.
    pub(super) fn has_begun(bytes: &[u8]) -> bool {
        !matches!(bytes, [] | b"\r" | b"\r\n")
    }

    /// Reads on in `bytes`, which begin where the head or the empty line before it begins.
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8], limits: &Limits, first: bool) -> Drafted {
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
                        self.renew();
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

    /// The end of a line is missing, and perhaps can no longer come.
    fn partial(&self, window: &[u8], skip: usize, limits: &Limits) -> Drafted {
        match self.overlong(window, skip, limits) {
            Some(fault) => Drafted::Fault(fault),
            None if window.len() - skip >= limits.head as usize => Drafted::Fault(Http1Fault::HeadTooLong),
            None => Drafted::Partial,
        }
    }

    /// What has come of a request line without its end, or stands before a fault, may be too long already.
    fn overlong(&self, window: &[u8], skip: usize, limits: &Limits) -> Option<Http1Fault> {
        let start = &window[skip..self.lines.seen()];
        self.line.is_none().then(|| request_line::too_long(start, limits)).flatten()
    }

    #[inline]
    fn request_line(&mut self, line: &[u8], start: usize, limits: &Limits) -> Result<(), Http1Fault> {
        let mut read = request_line::read(line, limits)?;
        self.index.clear();
        read.method = start + read.method.start..start + read.method.end;
        read.target = start + read.target.start..start + read.target.end;
        self.line = Some(read);
        Ok(())
    }

    /// Whether one field more may come.
    #[inline]
    fn room(&self, limits: &Limits) -> Result<(), Http1Fault> {
        if self.index.len() == usize::from(limits.fields) { Err(Http1Fault::TooManyFields) } else { Ok(()) }
    }

    /// A line that is not plainly a field.
    #[cold]
    fn odd_field(&mut self, window: &[u8], line: &Range<usize>, limits: &Limits) -> Result<(), Http1Fault> {
        self.room(limits)?;
        let field = field::read(window, line.start, line.end, self.index.is_empty())?;
        self.field(window, line, &field)
    }

    #[inline]
    fn field(&mut self, window: &[u8], line: &Range<usize>, field: &Field<'_>) -> Result<(), Http1Fault> {
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
            Known::Upgrade => self.upgrade = true,
            Known::Expect => self.expects |= field.value.eq_ignore_ascii_case(b"100-continue"),
            _ => {}
        }
        if self.chunked && self.length.is_some() {
            return Err(Http1Fault::BothLengths);
        }
        let value = field.at..field.at + field.value.len();
        let line = FieldLine::new(window, line.start, field.name_end, value, (line.end, true), field.name);
        self.index.push(line.ok_or(Http1Fault::Name)?);
        Ok(())
    }

    fn version(&self) -> Version {
        self.line.as_ref().map_or(Version::Http11, |line| line.version)
    }

    /// The head is complete: judges it as a whole.
    #[inline]
    fn finish(&mut self, window: &[u8]) -> Result<RequestHead, Http1Fault> {
        let line = self.line.take().ok_or(Http1Fault::RequestLine)?;
        let modern = line.version == Version::Http11;
        if modern && self.host.is_none() {
            return Err(Http1Fault::HostMissing);
        }
        if line.form == Form::Absolute {
            self.agree(window, &line)?;
        }
        let framing = match (self.chunked, self.length) {
            (true, _) => Framing::Chunked,
            (false, Some(length)) => Framing::Length(length),
            (false, None) => Framing::None,
        };
        let connects = line.form == Form::Authority;
        if connects && framing != Framing::None {
            return Err(Http1Fault::ConnectWithBody);
        }
        let Connection { close, keep_alive, upgrade } = self.connection;
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

    /// An absolute target and Host must name the same host (RFC 9112 §3.2.2 lets the target win, and whoever
    /// lets Host win is then elsewhere).
    #[cold]
    fn agree(&self, window: &[u8], line: &RequestLine) -> Result<(), Http1Fault> {
        let (target, port) =
            request_line::absolute(&window[line.target.clone()]).ok_or(Http1Fault::TargetForm)?;
        let Some(host) = self.host.clone() else { return Ok(()) };
        let host = Authority::parse(&window[host]).map_err(|_| Http1Fault::HostMalformed)?;
        if host.same(&target, port) { Ok(()) } else { Err(Http1Fault::HostContradicts) }
    }
}

/// The length of the empty line before a head, of which one is tolerated (RFC 9112 §2.2); `None`: it is not
/// known yet.
#[inline]
fn empty_line(bytes: &[u8]) -> Result<Option<usize>, Http1Fault> {
    match bytes {
        [b'\r', b'\n', b'\r', b'\n', ..] => Err(Http1Fault::LeadingLines),
        [] | [b'\r'] | [b'\r', b'\n'] | [b'\r', b'\n', b'\r'] => Ok(None),
        [b'\r', b'\n', ..] => Ok(Some(2)),
        _ => Ok(Some(0)),
    }
}
