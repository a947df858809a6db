//! Encoder of header blocks.

use super::sent::{EncoderTable, HashedField};
use super::{INITIAL, hash, huffman, integer, tables};

/// Encodes the header blocks of one direction of a connection (RFC 7541 §3).
///
/// A block is [`begin`](Self::begin), then [`status`](Self::status) or pseudo-header fields, then
/// [`field`](Self::field) per field. Blocks must be sent in the order in which they were encoded.
#[derive(Debug)]
pub struct HpackEncoder {
    sent: EncoderTable,
    /// Table sizes to be announced in the next block: the smallest and the last.
    pending: Option<(usize, usize)>,
}

/// Use of the dynamic table for a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Indexing {
    /// With indexing, for fields that repeat.
    Yes,
    /// Without indexing, for values that do not repeat.
    No,
    /// Never indexed, by this encoder or any intermediary: for secrets that could be guessed by the size of
    /// blocks (RFC 7541 §7.1.3).
    Never,
}

/// Index of the name `:status` (RFC 7541 Appendix A).
const STATUS: usize = 8;

impl Default for HpackEncoder {
    fn default() -> Self {
        Self::new()
    }
}

impl HpackEncoder {
    /// Creates an encoder with an empty dynamic table of at most 4096 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self { sent: EncoderTable::new(), pending: None }
    }

    /// Applies the peer's SETTINGS_HEADER_TABLE_SIZE: the table uses the lesser of it and 4096. The change is
    /// announced at the front of the next block; of several changes between two blocks, the smallest and the
    /// last (RFC 7541 §4.2).
    pub fn limit(&mut self, peers: usize) {
        let limit = peers.min(INITIAL);
        let smallest = self.pending.map_or(limit, |(smallest, _)| smallest.min(limit));
        self.pending = Some((smallest, limit));
    }

    /// Begins a block: writes pending changes of the table size (RFC 7541 §6.3).
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        let Some((smallest, last)) = self.pending.take() else {
            return;
        };
        if smallest < last {
            self.resize(smallest, out);
            self.resize(last, out);
        } else if last != self.sent.limit() {
            self.resize(last, out);
        }
    }

    /// Writes `:status`, of three digits: as an index, or as a literal without Huffman coding.
    pub fn status(&mut self, status: u16, out: &mut Vec<u8>) {
        let index = match status {
            200 => STATUS,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => return self.other_status(status, out),
        };
        integer::encode(index, 7, 0x80, out);
    }

    /// Writes a field. Its name is not validated: HTTP/2 forbids uppercase letters (RFC 9113 §8.2).
    ///
    /// A field that is in a table is written as its index, one of [`Indexing::Never`] always as a literal. A
    /// field larger than the dynamic table is not added, since that would empty it (RFC 7541 §4.4).
    pub fn field(&mut self, name: &[u8], value: &[u8], indexing: Indexing, out: &mut Vec<u8>) {
        let name_hash = hash::bytes(hash::SEED, name);
        let field = hashed(name, value, name_hash);
        if indexing != Indexing::Never
            && let Some(index) = self.sent.field(&field)
        {
            return integer::encode(index, 7, 0x80, out);
        }
        let first = tables::named(name_hash, name);
        if indexing != Indexing::Never
            && let Some(index) = first.and_then(|first| tables::exact(first, name, value))
        {
            return integer::encode(index, 7, 0x80, out);
        }
        let index = first.or_else(|| self.sent.name(&field)).unwrap_or(0);
        self.literal(&field, index, indexing, out);
        if index == 0 {
            text(name, out);
        }
        text(value, out);
    }

    /// Writes the type of a literal and the index of its name, or 0, and adds the field to the table if
    /// `indexing` says so (RFC 7541 §6.2).
    fn literal(&mut self, field: &HashedField<'_>, index: usize, indexing: Indexing, out: &mut Vec<u8>) {
        match indexing {
            Indexing::Yes if self.sent.fits(field) => {
                integer::encode(index, 6, 0x40, out);
                self.sent.add(field);
            }
            Indexing::Yes | Indexing::No => integer::encode(index, 4, 0x00, out),
            Indexing::Never => integer::encode(index, 4, 0x10, out),
        }
    }

    fn other_status(&mut self, status: u16, out: &mut Vec<u8>) {
        let name = b":status";
        let digits = [status / 100 % 10, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
        let field = hashed(name, &digits, hash::bytes(hash::SEED, name));
        if let Some(index) = self.sent.field(&field) {
            return integer::encode(index, 7, 0x80, out);
        }
        self.literal(&field, STATUS, Indexing::Yes, out);
        plain(&digits, out);
    }

    fn resize(&mut self, limit: usize, out: &mut Vec<u8>) {
        self.sent.resize(limit);
        integer::encode(limit, 5, 0x20, out);
    }
}

fn hashed<'f>(name: &'f [u8], value: &'f [u8], name_hash: u64) -> HashedField<'f> {
    let field_hash = hash::bytes(name_hash, value) as u32;
    HashedField { name, value, name_hash: name_hash as u32, field_hash }
}

/// Writes a string, Huffman coded if that is shorter (RFC 7541 §5.2).
fn text(text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::length(text);
    if coded < text.len() {
        integer::encode(coded, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        plain(text, out);
    }
}

fn plain(text: &[u8], out: &mut Vec<u8>) {
    integer::encode(text.len(), 7, 0, out);
    out.extend_from_slice(text);
}
