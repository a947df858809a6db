//! The dynamic table of a decoder (RFC 7541 §2.3.2).
//!
//! The lines of the entries stand one behind the other, the oldest first, so that an entry costs no allocation of its own.
//! Bytes of evicted entries stay at the front until they are half of all.

use std::collections::VecDeque;

use super::decode::Field;
use crate::head::Kind;

/// The entries of the table.
#[derive(Debug)]
pub(super) struct Received {
    /// The oldest first.
    entries: VecDeque<Entry>,
    /// Their lines, behind `gone` bytes of those that were evicted.
    lines: Vec<u8>,
    gone: usize,
    size: usize,
    /// The size that the peer has chosen.
    limit: usize,
}

/// The lengths of an entry's line and its name, where the line begins, and what the field is.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// How many bytes were put in before it, modulo 2³².
    at: u32,
    line: u32,
    name: u32,
    kind: Kind,
}

impl Received {
    /// No entries, of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), lines: Vec::new(), gone: 0, size: 0, limit }
    }

    /// Bytes of all entries, as RFC 7541 §4.1 counts.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Sets the most bytes that the entries may have, and evicts what is above.
    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit;
        self.evict(limit);
    }

    /// The entry that was put in before `age` others.
    #[inline]
    pub(super) fn get(&self, age: usize) -> Option<Field<'_>> {
        let at = self.entries.len().checked_sub(age + 1)?;
        Some(self.field(self.entries[at]))
    }

    #[inline]
    fn field(&self, entry: Entry) -> Field<'_> {
        let first = self.entries.front().map_or(0, |first| first.at);
        let from = self.gone + entry.at.wrapping_sub(first) as usize;
        Field::new(&self.lines[from..][..entry.line as usize], entry.name as usize, entry.kind)
    }

    /// Puts an entry in front of the others. One that is larger than the table empties it and is not kept (RFC
    /// 7541 §4.4).
    pub(super) fn insert(&mut self, field: &Field<'_>) {
        self.evict(self.limit.saturating_sub(field.size()));
        if field.size() > self.limit {
            return;
        }
        let at = self.entries.back().map_or(0, |last| last.at.wrapping_add(last.line));
        // No longer than the table.
        let (line, name) = (field.line().len() as u32, field.name().len() as u32);
        self.entries.push_back(Entry { at, line, name, kind: field.kind() });
        self.lines.extend_from_slice(field.line());
        self.size += field.size();
    }

    /// Drops the oldest entries until the others have at most `size` bytes.
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

    /// The memory of a table stays within twice what its entries may have, whatever comes and goes.
    #[test]
    fn bytes_of_evicted_entries_do_not_pile_up() {
        let mut table = Received::new(4096);
        for turn in 0..10_000_usize {
            let line = [&b"x: "[..], &vec![b'v'; turn * 7 % 900], b"\r\n"].concat();
            table.insert(&Field::new(&line, 1, Kind::Plain(crate::head::Known::Other)));
            assert_eq!(table.get(0).unwrap().line(), line);
            let sizes: usize = (0..).map_while(|age| table.get(age)).map(|field| field.size()).sum();
            assert_eq!(sizes, table.size());
            assert!(table.size() <= 4096 && table.lines.len() <= 2 * 4096, "{}", table.lines.len());
        }
        table.resize(0);
        assert!(table.lines.is_empty() && table.get(0).is_none());
    }
}
