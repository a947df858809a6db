//! From fields to header blocks.

use super::sent::{Field, Sent};
use super::{INITIAL, hash, huffman, integer, tables};

/// Encodes the header blocks of one direction of a connection (RFC 7541 §3).
///
/// A block is [`begin`](Self::begin), then [`status`](Self::status) or pseudo-header fields, then
/// [`field`](Self::field) per field. Blocks are sent in the order in which they were encoded.
#[derive(Debug)]
pub struct Encoder {
    sent: Sent,
    /// Limits that the peer has set and was not told about: the smallest and the last.
    pending: Option<(usize, usize)>,
}

/// Whether a field may be put into the dynamic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Indexing {
    /// Into the dynamic table, for fields that come again.
    Yes,
    /// Without indexing: a value that does not come again.
    No,
    /// Never indexed, here and by whoever passes it on: a value that nobody may guess by watching sizes (RFC
    /// 7541 §7.1.3).
    Never,
}

/// The index of the name `:status` (RFC 7541 Appendix A).
const STATUS: usize = 8;

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder whose dynamic table is empty and holds at most 4096 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self { sent: Sent::new(), pending: None }
    }

    /// The peer's SETTINGS_HEADER_TABLE_SIZE: the table uses the lesser of it and 4096. The change is told at
    /// the front of the next block; if there were several between two blocks, the smallest and the last (RFC
    /// 7541 §4.2).
    pub fn limit(&mut self, peers: usize) {
        let limit = peers.min(INITIAL);
        let smallest = self.pending.map_or(limit, |(smallest, _)| smallest.min(limit));
        self.pending = Some((smallest, limit));
    }

    /// Begins a block: writes the sizes of the table that the peer was not told (RFC 7541 §6.3).
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

    /// Writes `:status`, of three digits. It is an index, or a literal that is not Huffman coded.
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

    /// Writes a field. Its name is not looked at: in HTTP/2 it has no uppercase letters (RFC 9113 §8.2).
    ///
    /// A field that stands in a table is written as its index, one of [`Indexing::Never`] always as a
    /// literal. A field that is larger than the dynamic table does not go there: that would empty it (RFC
    /// 7541 §4.4).
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

    /// Writes the kind of a literal and the index of its name, or 0, and puts the field into the table if it is
    /// to be there (RFC 7541 §6.2).
    fn literal(&mut self, field: &Field<'_>, index: usize, indexing: Indexing, out: &mut Vec<u8>) {
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

fn hashed<'f>(name: &'f [u8], value: &'f [u8], name_hash: u64) -> Field<'f> {
    let field_hash = hash::bytes(name_hash, value) as u32;
    Field { name, value, name_hash: name_hash as u32, field_hash }
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
