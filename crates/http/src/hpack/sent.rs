//! The encoder's copy of the peer's dynamic table (RFC 7541 §2.3.2).
//!
//! Entries are in the order of addition, the oldest first, and their bytes are contiguous, so that adding
//! allocates nothing once the memory exists. Evicted entries stay at the front until enough have accumulated
//! to move the others.
//!
//! Every entry has a number, counted modulo 256, and links to the previous entry of its hash bucket. So a
//! bucket needs only the newest number, and evictions need no update: a number that is not in the table ends
//! the search, since all behind it are older. There are at most 128 entries. A stale number in a bucket may
//! belong to a newer entry; the search then visits fields of other buckets, which differ, and never returns
//! to newer ones.

use super::{INITIAL, OVERHEAD, STATIC};

/// Entries of the peer's table.
#[derive(Debug)]
pub(super) struct EncoderTable {
    /// Entries, behind `gone` evicted ones.
    entries: Vec<EncoderEntry>,
    /// Names and values of the entries.
    bytes: Vec<u8>,
    /// Number of the newest entry per hash bucket.
    newest: [u8; BUCKETS],
    /// Number of the next entry.
    next: u8,
    gone: usize,
    size: usize,
    limit: usize,
}

/// Position of an entry's name and value, which are contiguous, and its hashes.
#[derive(Debug, Clone, Copy)]
struct EncoderEntry {
    at: u32,
    name: u16,
    value: u16,
    name_hash: u32,
    field_hash: u32,
    /// Number of the previous entry in its bucket.
    before: u8,
}

/// A field with its hashes.
#[derive(Debug, Clone, Copy)]
pub(super) struct HashedField<'f> {
    pub(super) name: &'f [u8],
    pub(super) value: &'f [u8],
    pub(super) name_hash: u32,
    pub(super) field_hash: u32,
}

/// Number of hash buckets: a few entries each in a full table of usual fields.
const BUCKETS: usize = 64;

/// Maximum number of evicted entries at the front; their bytes are fewer than the table may hold.
const GONE: usize = 32;

impl HashedField<'_> {
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + OVERHEAD
    }

    fn bucket(&self) -> usize {
        self.field_hash as usize % BUCKETS
    }
}

impl EncoderEntry {
    fn size(self) -> usize {
        usize::from(self.name) + usize::from(self.value) + OVERHEAD
    }
}

impl EncoderTable {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            bytes: Vec::new(),
            newest: [0; BUCKETS],
            next: 0,
            gone: 0,
            size: 0,
            limit: INITIAL,
        }
    }

    /// Maximum size of the table.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the maximum size, at most [`INITIAL`], and evicts entries above it.
    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit.min(INITIAL);
        self.evict(self.limit);
    }

    /// Index of a field, if it is in the table.
    #[inline]
    pub(super) fn field(&self, field: &HashedField<'_>) -> Option<usize> {
        let live = &self.entries[self.gone..];
        let (mut number, mut least) = (self.newest[field.bucket()], 0);
        loop {
            let age = usize::from(self.next.wrapping_sub(number).wrapping_sub(1));
            if age < least || age >= live.len() {
                return None;
            }
            let span = live[live.len() - 1 - age];
            if span.field_hash == field.field_hash && self.text(span) == (field.name, field.value) {
                return Some(STATIC.len() + 1 + age);
            }
            (number, least) = (span.before, age + 1);
        }
    }

    /// Index of a field with this name. Called only before writing a literal; few names are in no table.
    pub(super) fn name(&self, field: &HashedField<'_>) -> Option<usize> {
        let is = |span: &EncoderEntry| span.name_hash == field.name_hash && self.text(*span).0 == field.name;
        let age = self.entries[self.gone..].iter().rev().position(is)?;
        Some(STATIC.len() + 1 + age)
    }

    /// Returns true for a field that is no larger than the table.
    pub(super) fn fits(&self, field: &HashedField<'_>) -> bool {
        field.size() <= self.limit
    }

    /// Adds a field that fits, evicting others.
    pub(super) fn add(&mut self, field: &HashedField<'_>) {
        self.evict(self.limit - field.size());
        let newest = &mut self.newest[field.bucket()];
        // Bounded by the table: its bytes are moved before they are twice as many.
        self.entries.push(EncoderEntry {
            at: self.bytes.len() as u32,
            name: field.name.len() as u16,
            value: field.value.len() as u16,
            name_hash: field.name_hash,
            field_hash: field.field_hash,
            before: *newest,
        });
        *newest = self.next;
        self.next = self.next.wrapping_add(1);
        self.size += field.size();
        self.bytes.extend_from_slice(field.name);
        self.bytes.extend_from_slice(field.value);
    }

    #[inline]
    fn text(&self, span: EncoderEntry) -> (&[u8], &[u8]) {
        let text = &self.bytes[span.at as usize..][..usize::from(span.name) + usize::from(span.value)];
        text.split_at(usize::from(span.name))
    }

    /// Evicts the oldest entries until the others have at most `size` bytes.
    fn evict(&mut self, size: usize) {
        while self.size > size {
            self.size -= self.entries[self.gone].size();
            self.gone += 1;
        }
        let front = self.entries.get(self.gone).map_or(self.bytes.len(), |span| span.at as usize);
        if self.gone >= GONE || front >= INITIAL || self.gone == self.entries.len() {
            self.compact(front);
        }
    }

    /// Removes evicted entries, and their `front` bytes, from the front.
    fn compact(&mut self, front: usize) {
        self.bytes.drain(..front);
        self.entries.drain(..self.gone);
        for span in &mut self.entries {
            span.at -= front as u32;
        }
        self.gone = 0;
    }
}
