//! Chunked content (RFC 9112 §7.1), parsed strictly.
//!
//! Chunk-size lines and trailers pass as a whole or not at all; data passes as it arrives. The guard asks how
//! many bytes pass, `Chunks` where the data is: both take the same steps.

use super::field;
use super::framing::MAX_LENGTH;
use super::lines::{HeadLine, Lines};
use super::{HeadLimits, MAX_CHUNK_LINE, MAX_EXTENSIONS};
use crate::fault::Http1Fault;
use crate::field::{Known, KnownSet};
use crate::scan;

/// Parser state within chunked content.
#[derive(Debug)]
pub(super) struct ChunkedReader {
    part: ChunkPart,
    /// Bytes of extensions in this message so far.
    extensions: u32,
    /// Set for messages of clients, which are held to the grammar.
    strict: bool,
}

#[derive(Debug)]
enum ChunkPart {
    Size,
    Data(u64),
    DataEnd,
    Trailers { lines: Lines, fields: u16 },
}

/// Result of reading, with the number of valid bytes at the front.
pub(super) enum ChunkProgress {
    Wait(usize),
    End(usize),
    Fault(usize, Http1Fault),
}

/// Element at the front of the bytes.
pub(super) enum ChunkStep {
    /// The element is incomplete.
    Wait,
    /// Framing of this many bytes.
    Framing(usize),
    /// Data of this many bytes, at least one.
    Data(usize),
    /// Trailer lines of `trailers` bytes, and the empty line behind them, `length` bytes in all.
    End { trailers: usize, length: usize },
}

impl ChunkedReader {
    pub(super) fn new() -> Self {
        Self { part: ChunkPart::Size, extensions: 0, strict: true }
    }

    /// State for a message of a server: whitespace behind a size, extensions of any form and trailers of any
    /// name are accepted. None of them changes where a chunk ends.
    pub(super) fn of_server() -> Self {
        Self { strict: false, ..Self::new() }
    }

    /// Reads `bytes`, which begin behind those that passed before.
    pub(super) fn read(&mut self, bytes: &[u8], limits: &HeadLimits) -> ChunkProgress {
        let mut at = 0;
        loop {
            match self.step(&bytes[at..], limits) {
                Ok(ChunkStep::Framing(length) | ChunkStep::Data(length)) => at += length,
                Ok(ChunkStep::Wait) => return ChunkProgress::Wait(at),
                Ok(ChunkStep::End { length, .. }) => return ChunkProgress::End(at + length),
                Err(fault) => return ChunkProgress::Fault(at, fault),
            }
        }
    }

    /// Parses one step of `bytes`, which begin behind the previous step.
    #[inline]
    pub(super) fn step(&mut self, bytes: &[u8], limits: &HeadLimits) -> Result<ChunkStep, Http1Fault> {
        match &mut self.part {
            ChunkPart::Size => {
                let Some((size, length)) = self.size(bytes)? else { return Ok(ChunkStep::Wait) };
                self.part = match size {
                    0 => ChunkPart::Trailers { lines: Lines::default(), fields: 0 },
                    size => ChunkPart::Data(size),
                };
                Ok(ChunkStep::Framing(length))
            }
            ChunkPart::Data(_) if bytes.is_empty() => Ok(ChunkStep::Wait),
            ChunkPart::Data(left) => {
                let now = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= now as u64;
                if *left == 0 {
                    self.part = ChunkPart::DataEnd;
                }
                Ok(ChunkStep::Data(now))
            }
            ChunkPart::DataEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    self.part = ChunkPart::Size;
                    Ok(ChunkStep::Framing(2))
                }
                [] | [b'\r'] => Ok(ChunkStep::Wait),
                _ => Err(Http1Fault::ChunkEnd),
            },
            ChunkPart::Trailers { lines, fields } => {
                let end = trailers(lines, fields, bytes, limits, self.strict)?;
                Ok(end.map_or(ChunkStep::Wait, |trailers| ChunkStep::End { trailers, length: trailers + 2 }))
            }
        }
    }

    /// Parses a chunk-size line: the size, and the length of the line.
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

    /// Position of the CR behind the extensions that begin at `from`.
    fn extensions(&self, bytes: &[u8], from: usize) -> Result<Option<usize>, Http1Fault> {
        // Including the CR.
        let most = MAX_CHUNK_LINE.min(from + (MAX_EXTENSIONS - self.extensions) as usize) + 1;
        let window = &bytes[..bytes.len().min(most)];
        match extensions_end(window, from)? {
            None if window.len() == most => Err(Http1Fault::ChunkExtensionTooLong),
            end => Ok(end),
        }
    }
}

/// Position of the CR behind a server's chunk size and the whitespace or extensions of any form at `from`.
fn padded_end(bytes: &[u8], from: usize) -> Result<Option<usize>, Http1Fault> {
    // Including the CR.
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

/// Parses `*( ";" name [ "=" ( token / quoted-string ) ] )` up to a CR, without the whitespace that the
/// grammar calls bad. `None`: the line continues beyond `line`.
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

/// Position behind the closing quote of a quoted-string (RFC 9110 §5.6.4).
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

/// Parses the trailers at the front of `bytes`: the length of their lines, without the empty line that ends
/// them.
fn trailers(
    lines: &mut Lines,
    fields: &mut u16,
    bytes: &[u8],
    limits: &HeadLimits,
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

/// Fields that frame or route a message or concern its connection, which trailers must not contain (RFC 9110
/// §6.5.1).
const FORBIDDEN: KnownSet = KnownSet::of(&[
    Known::Host,
    Known::ContentLength,
    Known::TransferEncoding,
    Known::Connection,
    Known::Upgrade,
    Known::Expect,
]);
