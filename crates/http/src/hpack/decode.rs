//! Decoder of header blocks.

use std::sync::LazyLock;

use super::received::DecoderTable;
use super::tables::STATIC;
use super::{HpackFault, INITIAL, OVERHEAD, huffman, integer};
use crate::field::FieldClass;

/// A decoded field: its line in the form of a head, `name: value` and CRLF, and its class.
///
/// The decoder validates nothing except by [`FieldClass`]: any byte may occur in names and values.
#[derive(Debug, Clone, Copy)]
pub struct DecodedField<'b> {
    line: &'b [u8],
    name: usize,
    kind: FieldClass,
}

impl<'b> DecodedField<'b> {
    pub(super) fn new(line: &'b [u8], name: usize, kind: FieldClass) -> Self {
        Self { line, name, kind }
    }

    /// The name, not validated.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &'b [u8] {
        &self.line[..self.name]
    }

    /// The value, not validated.
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

    /// Class of the field, which includes its validity.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> FieldClass {
        self.kind
    }

    /// Size of the field in tables and lists: the lengths of its name and value, and 32 (RFC 9113 §6.5.2, RFC
    /// 7541 §4.1).
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.line.len() - COLON.len() - END.len() + OVERHEAD
    }
}

/// Separators behind name and value.
const COLON: &[u8] = b": ";
const END: &[u8] = b"\r\n";

/// Decodes the header blocks of one direction of a connection (RFC 7541 §3).
///
/// A field is classified when it arrives as a literal; the table keeps the class with its line, so that a
/// repeated field is one copy of its line.
#[derive(Debug)]
pub struct HpackDecoder {
    table: DecoderTable,
    /// Maximum size of the table that the peer may choose.
    most: usize,
    /// Buffer for the line of a literal.
    scratch: Vec<u8>,
}

/// An entry of the static table.
struct StaticLine {
    line: Box<[u8]>,
    name: usize,
    kind: FieldClass,
}

static LINES: LazyLock<Vec<StaticLine>> = LazyLock::new(|| {
    let line = |(name, value): &(&str, &str)| StaticLine {
        line: [name.as_bytes(), COLON, value.as_bytes(), END].concat().into(),
        name: name.len(),
        kind: FieldClass::of(name.as_bytes(), value.as_bytes()),
    };
    STATIC.iter().map(line).collect()
});

/// Buffer size that is kept from block to block, in bytes: more than the fields of most blocks need, and
/// little enough for idle connections.
const KEPT: usize = 2048;

impl HpackDecoder {
    /// Creates a decoder with an empty table. `most` is the SETTINGS_HEADER_TABLE_SIZE sent to the peer, in
    /// bytes.
    ///
    /// The initial table size is 4096 bytes, or `most` if that is less; a peer that wants more says so at the
    /// front of a block. A peer that has not seen a `most` below 4096 yet may exceed the table, which is a
    /// fault.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { table: DecoderTable::new(most.min(INITIAL)), most, scratch: Vec::new() }
    }

    /// Decodes a whole header block: the joined fragments of HEADERS and CONTINUATION. `take` is called per
    /// field, in order.
    ///
    /// # Errors
    /// The first fault. The fields before it were passed to `take`; the decoder is unusable afterwards.
    pub fn decode(&mut self, block: &[u8], mut take: impl FnMut(DecodedField<'_>)) -> Result<(), HpackFault> {
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
                let field = DecodedField::new(&self.scratch[..end], name, kind);
                take(field);
                self.table.insert(&field);
            } else if byte < 0x20 {
                let (end, name, kind) = self.literal(block, &mut at, 4)?;
                take(DecodedField::new(&self.scratch[..end], name, kind));
            } else {
                return Err(HpackFault::SizeUpdateLate);
            }
        }
        if self.scratch.len() > KEPT {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Size of the dynamic table, as counted by RFC 7541 §4.1.
    #[must_use]
    pub fn size(&self) -> usize {
        self.table.size()
    }

    #[inline]
    fn indexed(&self, index: usize) -> Result<DecodedField<'_>, HpackFault> {
        match index.checked_sub(1) {
            None => Err(HpackFault::IndexZero),
            Some(at) => match LINES.get(at) {
                Some(entry) => Ok(DecodedField::new(&entry.line, entry.name, entry.kind)),
                None => self.table.get(at - STATIC.len()).ok_or(HpackFault::IndexTooLarge),
            },
        }
    }

    /// Assembles the line of a literal with a name index of `bits` prefix bits (RFC 7541 §6.2): returns
    /// the ends of line and name, and the class.
    fn literal(
        &mut self,
        block: &[u8],
        at: &mut usize,
        bits: u32,
    ) -> Result<(usize, usize, FieldClass), HpackFault> {
        let index = integer::decode(block, at, bits)?;
        let (name, kind) = if index == 0 {
            (self.text(block, at, 0)?, None)
        } else {
            // The buffer is moved out while the table is borrowed.
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
        let kind =
            kind.map_or_else(|| FieldClass::of(name_text, value), |kind| kind.with_value(name_text, value));
        Ok((end + END.len(), name, kind))
    }

    /// Reads a string (RFC 7541 §5.2) into the buffer, behind its first `from` bytes, and returns its end
    /// there.
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

/// Grows `scratch` to at least `length` bytes.
#[inline]
fn room(scratch: &mut Vec<u8>, length: usize) {
    if scratch.len() < length {
        scratch.resize(length.next_power_of_two().max(256), 0);
    }
}

/// Copies `text` into `scratch` at `from`.
#[inline]
fn put(scratch: &mut Vec<u8>, from: usize, text: &[u8]) {
    let end = from + text.len();
    room(scratch, end);
    scratch[from..end].copy_from_slice(text);
}
