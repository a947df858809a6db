//! Dynamic table of a decoder (RFC 7541 §2.3.2).
//!
//! The lines of the entries are contiguous, the oldest first, so that an entry needs no allocation of its
//! own. Bytes of evicted entries stay at the front until they are half of all.

use std::collections::VecDeque;

use super::decode::DecodedField;
use crate::field::FieldClass;

/// Entries of the dynamic table.
#[derive(Debug)]
pub(super) struct DecoderTable {
    /// Entries, the oldest first.
    entries: VecDeque<DecoderEntry>,
    /// Lines of the entries, behind `gone` bytes of evicted ones.
    lines: Vec<u8>,
    gone: usize,
    size: usize,
    /// Size chosen by the peer.
    limit: usize,
}

/// An entry: the lengths of its line and name, the start of the line, and the class of the field.
#[derive(Debug, Clone, Copy)]
struct DecoderEntry {
    /// Number of bytes added before it, modulo 2³².
    at: u32,
    line: u32,
    name: u32,
    kind: FieldClass,
}

impl DecoderTable {
    /// An empty table of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), lines: Vec::new(), gone: 0, size: 0, limit }
    }

    /// Size of all entries, as counted by RFC 7541 §4.1.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Sets the maximum size, and evicts entries above it.
    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// The entry that was added before `age` others.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<DecodedField<'_>> {
        let at = self.entries.len().checked_sub(age + 1)?;
        Some(self.field(self.entries[at]))
    }

    #[inline]
    fn field(&self, entry: DecoderEntry) -> DecodedField<'_> {
        let first = self.entries.front().map_or(0, |first| first.at);
        let from = self.gone + entry.at.wrapping_sub(first) as usize;
        DecodedField::new(&self.lines[from..][..entry.line as usize], entry.name as usize, entry.kind)
    }

    /// Adds an entry. One that is larger than the table empties it and is not kept (RFC 7541 §4.4).
    pub(super) fn insert(&mut self, field: &DecodedField<'_>) {
        self.evict(self.limit.saturating_sub(field.size()));
        if field.size() > self.limit {
            return;
        }
        let at = self.entries.back().map_or(0, |last| last.at.wrapping_add(last.line));
        // At most the size of the table.
        let (line, name) = (field.line().len() as u32, field.name().len() as u32);
        self.entries.push_back(DecoderEntry { at, line, name, kind: field.kind() });
        self.lines.extend_from_slice(field.line());
        self.size += field.size();
    }

    /// Evicts the oldest entries until the others have at most `size` bytes.
    #[inline]
    fn evict(&mut self, size: usize) {
        while self.size > size
            && let Some(entry) = self.entries.front().copied()
        {
            self.size -= self.field(entry).size();
            self.entries.pop_front();
            self.gone += entry.line as usize;
        }
        if self.gone * 2 >= self.lines.len() && self.gone > 0 {
            self.lines.drain(..self.gone);
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a table stays within twice the maximum of its entries under any load.
    #[test]
    fn bytes_of_evicted_entries_do_not_pile_up() {
        let mut table = DecoderTable::new(4096);
        for turn in 0..10_000_usize {
            let line = [&b"x: "[..], &vec![b'v'; turn * 7 % 900], b"\r\n"].concat();
            table.insert(&DecodedField::new(&line, 1, FieldClass::Plain(crate::field::Known::Other)));
            assert_eq!(table.get(0).unwrap().line(), line);
            let sizes: usize = (0..).map_while(|age| table.get(age)).map(|field| field.size()).sum();
            assert_eq!(sizes, table.size());
            assert!(table.size() <= 4096 && table.lines.len() <= 2 * 4096, "{}", table.lines.len());
        }
        table.resize(0);
        assert!(table.lines.is_empty() && table.get(0).is_none());
    }
}
