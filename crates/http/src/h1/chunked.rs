//! Chunked content (RFC 9112 §7.1), by the letter.
//!
//! Lines of sizes and the trailers are passed whole or not at all; data passes as it comes. The guard asks how
//! much passes, `Chunks` asks where the data lies: both take the same steps.

use super::field;
use super::framing::MAX_LENGTH;
use super::lines::{HeadLine, Lines};
use super::{Http1Fault, Limits, MAX_CHUNK_LINE, MAX_EXTENSIONS, scan};
use crate::head::{Known, KnownSet};

/// Where in the content we are.
#[derive(Debug)]
pub(super) struct Chunked {
    part: Part,
    /// The bytes of extensions in this message so far.
    extensions: u32,
    /// Whether a client sent it, and is held to the letter.
    strict: bool,
}

#[derive(Debug)]
enum Part {
    Size,
    Data(u64),
    DataEnd,
    Trailers { lines: Lines, fields: u16 },
}

/// How reading went; in all cases so many bytes from the front are in order.
pub(super) enum Progress {
    Wait(usize),
    End(usize),
    Fault(usize, Http1Fault),
}

/// What the bytes begin with.
pub(super) enum ChunkStep {
    /// Nothing whole.
    Wait,
    /// So many bytes of framing.
    Framing(usize),
    /// So many bytes of data, at least one.
    Data(usize),
    /// Trailer lines of that length, and the empty line behind them; both together are `length` bytes.
    End { trailers: usize, length: usize },
}

impl Chunked {
    pub(super) fn new() -> Self {
        Self { part: Part::Size, extensions: 0, strict: true }
    }

    /// The same for what a server sent: whitespace behind a size, extensions of any form, and trailers of any
    /// name are let pass. None of them changes where a chunk ends.
    pub(super) fn of_server() -> Self {
        Self { strict: false, ..Self::new() }
    }

    /// Reads on in `bytes`, which begin behind what was passed before.
    pub(super) fn read(&mut self, bytes: &[u8], limits: &Limits) -> Progress {
        let mut at = 0;
        loop {
            match self.step(&bytes[at..], limits) {
                Ok(ChunkStep::Framing(length) | ChunkStep::Data(length)) => at += length,
                Ok(ChunkStep::Wait) => return Progress::Wait(at),
                Ok(ChunkStep::End { length, .. }) => return Progress::End(at + length),
                Err(fault) => return Progress::Fault(at, fault),
            }
        }
    }

    /// What `bytes` begin with, which begin behind the step before.
    #[inline]
    pub(super) fn step(&mut self, bytes: &[u8], limits: &Limits) -> Result<ChunkStep, Http1Fault> {
        match &mut self.part {
            Part::Size => {
                let Some((size, length)) = self.size(bytes)? else { return Ok(ChunkStep::Wait) };
                self.part = match size {
                    0 => Part::Trailers { lines: Lines::default(), fields: 0 },
                    size => Part::Data(size),
                };
                Ok(ChunkStep::Framing(length))
            }
            Part::Data(_) if bytes.is_empty() => Ok(ChunkStep::Wait),
            Part::Data(left) => {
                let now = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= now as u64;
                if *left == 0 {
                    self.part = Part::DataEnd;
                }
                Ok(ChunkStep::Data(now))
            }
            Part::DataEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.part = Part::Size;
                    Ok(ChunkStep::Framing(2))
                }
                [] | [b'\r'] => Ok(ChunkStep::Wait),
                _ => Err(Http1Fault::ChunkEnd),
            },
            Part::Trailers { lines, fields } => {
                let end = trailers(lines, fields, bytes, limits, self.strict)?;
                Ok(end.map_or(ChunkStep::Wait, |trailers| ChunkStep::End { trailers, length: trailers + 2 }))
            }
        }
    }

    /// A line with a size: the size, and the length of the line.
    fn size(&mut self, bytes: &[u8]) -> Result<Option<(u64, usize)>, Http1Fault> {
        let mut size: u64 = 0;
        let mut digits = 0;
        while let Some(digit) = bytes.get(digits).and_then(|&byte| (byte as char).to_digit(16)) {
            if digits == 16 {
                return Err(Http1Fault::ChunkSizeTooLarge);
            }
            size = size << 4 | u64::from(digit);
            digits += 1;
        }
        if size > MAX_LENGTH {
            return Err(Http1Fault::ChunkSizeTooLarge);
        }
        let Some(&behind) = bytes.get(digits) else { return Ok(None) };
        let end = match behind {
            b'\r' if digits > 0 => digits,
            b';' | b' ' | b'\t' if digits > 0 && !self.strict => match padded_end(bytes, digits)? {
                Some(end) => end,
                None => return Ok(None),
            },
            b';' if digits > 0 => match self.extensions(bytes, digits)? {
                Some(end) => end,
                None => return Ok(None),
            },
            b' ' | b'\t' => return Err(Http1Fault::ChunkSizeSpace),
            b'\n' => return Err(Http1Fault::BareLineFeed),
            _ => return Err(Http1Fault::ChunkSize),
        };
        match bytes.get(end + 1) {
            Some(b'\n') => {
                if self.strict {
                    self.extensions += (end - digits) as u32;
                }
                Ok(Some((size, end + 2)))
            }
            Some(_) => Err(Http1Fault::BareCarriageReturn),
            None => Ok(None),
        }
    }

    /// The place of the CR behind the extensions that begin at `from`.
    fn extensions(&self, bytes: &[u8], from: usize) -> Result<Option<usize>, Http1Fault> {
        // With the CR.
        let most = MAX_CHUNK_LINE.min(from + (MAX_EXTENSIONS - self.extensions) as usize) + 1;
        let window = &bytes[..bytes.len().min(most)];
        match extensions_end(window, from)? {
            None if window.len() == most => Err(Http1Fault::ChunkExtensionTooLong),
            end => Ok(end),
        }
    }
}

/// The place of the CR behind what a server wrote after a size at `from`: whitespace, or extensions of any form.
fn padded_end(bytes: &[u8], from: usize) -> Result<Option<usize>, Http1Fault> {
    // With the CR.
    let window = &bytes[..bytes.len().min(MAX_CHUNK_LINE + 1)];
    match window[from..].iter().find(|&&byte| !matches!(byte, b' ' | b'\t')) {
        Some(b'\r' | b';') | None => {}
        Some(b'\n') => return Err(Http1Fault::BareLineFeed),
        Some(_) => return Err(Http1Fault::ChunkSizeSpace),
    }
    match scan::control(window, from).map(|at| (at, window[at])) {
        Some((at, b'\r')) => Ok(Some(at)),
        Some((_, b'\n')) => Err(Http1Fault::BareLineFeed),
        Some(_) => Err(Http1Fault::ControlByte),
        None if window.len() > MAX_CHUNK_LINE => Err(Http1Fault::ChunkExtensionTooLong),
        None => Ok(None),
    }
}

/// Reads `*( ";" name [ "=" ( token / quoted-string ) ] )` without the whitespace that the grammar calls bad,
/// up to a CR. `None`: the line goes on behind `line`.
fn extensions_end(line: &[u8], mut at: usize) -> Result<Option<usize>, Http1Fault> {
    while line.get(at) == Some(&b';') {
        let name = at + 1;
        at = scan::token(line, name);
        if at == name && at < line.len() {
            return Err(misplaced(line[at]));
        }
        if line.get(at) != Some(&b'=') {
            continue;
        }
        let value = at + 1;
        at = match line.get(value) {
            Some(b'"') => match quoted_end(line, value + 1)? {
                Some(end) => end,
                None => return Ok(None),
            },
            _ => scan::token(line, value),
        };
        if at == value && at < line.len() {
            return Err(misplaced(line[at]));
        }
    }
    match line.get(at) {
        Some(b'\r') => Ok(Some(at)),
        Some(&byte) => Err(misplaced(byte)),
        None => Ok(None),
    }
}

/// The place behind the closing quote of a quoted-string (RFC 9110 §5.6.4).
fn quoted_end(line: &[u8], mut at: usize) -> Result<Option<usize>, Http1Fault> {
    let text = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
    loop {
        match line.get(at) {
            Some(b'"') => return Ok(Some(at + 1)),
            Some(b'\\') => {
                at += 2;
                match line.get(at - 1) {
                    Some(&byte) if text(byte) => {}
                    Some(&byte) => return Err(misplaced(byte)),
                    None => return Ok(None),
                }
            }
            Some(&byte) if text(byte) => at += 1,
            Some(&byte) => return Err(misplaced(byte)),
            None => return Ok(None),
        }
    }
}

#[cold]
fn misplaced(byte: u8) -> Http1Fault {
    match byte {
        b'\n' => Http1Fault::BareLineFeed,
        b'\r' | b' '..=b'~' | b'\t' | 0x80.. => Http1Fault::ChunkExtension,
        _ => Http1Fault::ControlByte,
    }
}

/// Reads the trailers, which `bytes` begin with: the length of their lines, without the empty line that ends
/// them.
fn trailers(
    lines: &mut Lines,
    fields: &mut u16,
    bytes: &[u8],
    limits: &Limits,
    strict: bool,
) -> Result<Option<usize>, Http1Fault> {
    let window = &bytes[..bytes.len().min(limits.head as usize)];
    loop {
        let line = match lines.next(window) {
            HeadLine::Whole(line) => line,
            HeadLine::Partial if window.len() == limits.head as usize => {
                return Err(Http1Fault::TrailersTooLong);
            }
            HeadLine::Partial => return Ok(None),
            HeadLine::Fault(fault) => return Err(fault),
        };
        if line.is_empty() {
            return Ok(Some(line.start));
        }
        if *fields == limits.fields {
            return Err(Http1Fault::TooManyTrailers);
        }
        let read = if strict { field::read } else { field::read_of_server };
        let field = read(window, line.start, line.end, *fields == 0)?;
        *fields += 1;
        if strict && FORBIDDEN.has(field.name) {
            return Err(Http1Fault::TrailerForbidden);
        }
        if strict && field::is_ambiguous(&window[line.start..field.name_end]) {
            return Err(Http1Fault::AmbiguousName);
        }
    }
}

/// What frames a message or is for its connection, and so cannot stand behind it.
const FORBIDDEN: KnownSet = KnownSet::of(&[
    Known::Host,
    Known::ContentLength,
    Known::TransferEncoding,
    Known::Connection,
    Known::Upgrade,
    Known::Expect,
]);
