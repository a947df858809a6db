//! From header blocks to fields.

use std::sync::LazyLock;

use super::received::Received;
use super::tables::STATIC;
use super::{HpackFault, INITIAL, OVERHEAD, huffman, integer};
use crate::head::Kind;

/// A field of a block: its line as a head has it, `name: value` and CRLF, and what it is.
///
/// Nothing is judged by the decoder but by [`Kind`]: any byte may stand in a name or a value.
#[derive(Debug, Clone, Copy)]
pub struct Field<'b> {
    line: &'b [u8],
    name: usize,
    kind: Kind,
}

impl<'b> Field<'b> {
    pub(super) fn new(line: &'b [u8], name: usize, kind: Kind) -> Self {
        Self { line, name, kind }
    }

    /// The name.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &'b [u8] {
        &self.line[..self.name]
    }

    /// The value.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &'b [u8] {
        &self.line[self.name + COLON.len()..self.line.len() - END.len()]
    }

    /// The line: the name, a colon and a space, the value, CRLF.
    #[must_use]
    #[inline]
    pub fn line(&self) -> &'b [u8] {
        self.line
    }

    /// What it is, and whether it may be one.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What it counts in sizes of tables and of lists: the lengths of its name and value, and 32 (RFC 9113 §6.5.2, RFC
    /// 7541 §4.1).
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.line.len() - COLON.len() - END.len() + OVERHEAD
    }
}

/// What stands between name and value, and behind the value.
const COLON: &[u8] = b": ";
const END: &[u8] = b"\r\n";

/// Decodes the header blocks of one direction of a connection (RFC 7541 §3).
///
/// Whether a field may be one is found out when it comes as a literal; the table keeps the outcome with its line, so that
/// a field that comes again is one copy of its line.
#[derive(Debug)]
pub struct Decoder {
    table: Received,
    /// The size of the table that the peer may choose.
    most: usize,
    /// Where the line of a literal is put together.
    scratch: Vec<u8>,
}

/// A line of the static table.
struct StaticLine {
    line: Box<[u8]>,
    name: usize,
    kind: Kind,
}

static LINES: LazyLock<Vec<StaticLine>> = LazyLock::new(|| {
    let line = |(name, value): &(&str, &str)| StaticLine {
        line: [name.as_bytes(), COLON, value.as_bytes(), END].concat().into(),
        name: name.len(),
        kind: Kind::of(name.as_bytes(), value.as_bytes()),
    };
    STATIC.iter().map(line).collect()
});

/// The most bytes of room for lines that stay from block to block: more than the fields of most blocks need, and little
/// enough for connections that are quiet.
const KEPT: usize = 2048;

impl Decoder {
    /// A decoder whose table is empty. `most` is what SETTINGS_HEADER_TABLE_SIZE says to the peer, in bytes.
    ///
    /// The table begins with 4096 bytes, or with `most` if that is less; a peer that wants more says so at the
    /// front of a block. One that has not yet read a `most` below 4096 may use more than is held here, which
    /// ends in a fault.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { table: Received::new(most.min(INITIAL)), most, scratch: Vec::new() }
    }

    /// Decodes one whole header block: what HEADERS and CONTINUATION carried, put together. `take` is called
    /// per field, in order.
    ///
    /// # Errors
    /// The first fault. The fields before it were taken; the decoder is of no use any more.
    pub fn decode(&mut self, block: &[u8], mut take: impl FnMut(Field<'_>)) -> Result<(), HpackFault> {
        let mut at = 0;
        while block.get(at).is_some_and(|byte| byte & 0xe0 == 0x20) {
            let limit = integer::decode(block, &mut at, 5)?;
            if limit > self.most {
                return Err(HpackFault::SizeUpdateTooLarge);
            }
            self.table.resize(limit);
        }
        while let Some(&byte) = block.get(at) {
            if byte >= 0x80 {
                let index = integer::decode(block, &mut at, 7)?;
                take(self.indexed(index)?);
            } else if byte >= 0x40 {
                let (end, name, kind) = self.literal(block, &mut at, 6)?;
                let field = Field::new(&self.scratch[..end], name, kind);
                take(field);
                self.table.insert(&field);
            } else if byte < 0x20 {
                let (end, name, kind) = self.literal(block, &mut at, 4)?;
                take(Field::new(&self.scratch[..end], name, kind));
            } else {
                return Err(HpackFault::SizeUpdateLate);
            }
        }
        if self.scratch.len() > KEPT {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Bytes that the dynamic table holds, as RFC 7541 §4.1 counts.
    #[must_use]
    pub fn size(&self) -> usize {
        self.table.size()
    }

    #[inline]
    fn indexed(&self, index: usize) -> Result<Field<'_>, HpackFault> {
        match index.checked_sub(1) {
            None => Err(HpackFault::IndexZero),
            Some(at) => match LINES.get(at) {
                Some(entry) => Ok(Field::new(&entry.line, entry.name, entry.kind)),
                None => self.table.get(at - STATIC.len()).ok_or(HpackFault::IndexTooLarge),
            },
        }
    }

    /// Puts the line of a literal together whose index of a name has a prefix of `bits` bits (RFC 7541 §6.2): where the
    /// line and its name end, and what it is.
    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        bits: u32,
    ) -> Result<(usize, usize, Kind), HpackFault> {
        let index = integer::decode(block, at, bits)?;
        let (name, kind) = if index == 0 {
            (self.text(block, at, 0)?, None)
        } else {
            // The scratch is not there while the table is looked at.
            let mut scratch = std::mem::take(&mut self.scratch);
            let named = self.indexed(index).map(|field| {
                put(&mut scratch, 0, field.name());
                (field.name().len(), Some(field.kind()))
            });
            self.scratch = scratch;
            named?
        };
        put(&mut self.scratch, name, COLON);
        let from = name + COLON.len();
        let end = self.text(block, at, from)?;
        put(&mut self.scratch, end, END);
        let (name_text, value) = (&self.scratch[..name], &self.scratch[from..end]);
        let kind = kind.map_or_else(|| Kind::of(name_text, value), |kind| kind.with_value(name_text, value));
        Ok((end + END.len(), name, kind))
    }

    /// Reads a string (RFC 7541 §5.2) into the scratch, behind its first `from` bytes, and gives where it ends there.
    #[inline]
    fn text(&mut self, block: &[u8], at: &mut usize, from: usize) -> Result<usize, HpackFault> {
        let coded = block.get(*at).is_some_and(|byte| byte & 0x80 != 0);
        let length = integer::decode(block, at, 7)?;
        let begin = *at;
        let bytes = block[begin..].get(..length).ok_or(HpackFault::StringTooLong)?;
        *at = begin + length;
        if !coded {
            put(&mut self.scratch, from, bytes);
            return Ok(from + length);
        }
        room(&mut self.scratch, from + huffman::room(length));
        Ok(from + huffman::decode(bytes, &mut self.scratch[from..])?)
    }
}

/// Has `scratch` so many bytes at the least.
#[inline]
fn room(scratch: &mut Vec<u8>, length: usize) {
    if scratch.len() < length {
        scratch.resize(length.next_power_of_two().max(256), 0);
    }
}

/// Puts `text` into `scratch` at `from`.
#[inline]
fn put(scratch: &mut Vec<u8>, from: usize, text: &[u8]) {
    let end = from + text.len();
    room(scratch, end);
    scratch[from..end].copy_from_slice(text);
}
