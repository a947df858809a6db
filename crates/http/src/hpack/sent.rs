//! What the encoder has put into the peer's dynamic table (RFC 7541 §2.3.2).
//!
//! Entries stand in the order in which they were added, the oldest first, and their bytes one behind the other,
//! so that adding allocates nothing once the room is there. Evicted entries stay at the front until enough have
//! come together to move the others.
//!
//! Every entry has a number, counted modulo 256, and knows the number of the entry before it whose field has a
//! hash of the same bucket. So a bucket needs only the newest number, and nothing is to be done when entries
//! leave: a number that is no longer in the table ends the search, since all behind it are older. There are at
//! most 128 entries. A number that was left in a bucket may be given again to another entry; that leads the
//! search to fields of other buckets, which differ, and never back to newer ones.

use super::{INITIAL, OVERHEAD, STATIC};

/// The entries of the table.
#[derive(Debug)]
pub(super) struct Sent {
    /// The entries, behind `gone` evicted ones.
    entries: Vec<Span>,
    /// Their names and values.
    bytes: Vec<u8>,
    /// Per bucket of hashes: the number of the newest entry.
    newest: [u8; BUCKETS],
    /// The number of the next entry.
    next: u8,
    gone: usize,
    size: usize,
    limit: usize,
}

/// Where an entry's name and, behind it, its value stand, and what they are found by.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: u32,
    name: u16,
    value: u16,
    name_hash: u32,
    field_hash: u32,
    /// The number of the entry before this one in its bucket.
    before: u8,
}

/// A field with its hashes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'f> {
    pub(super) name: &'f [u8],
    pub(super) value: &'f [u8],
    pub(super) name_hash: u32,
    pub(super) field_hash: u32,
}

/// Buckets of hashes: a few entries each when the table is full of usual fields.
const BUCKETS: usize = 64;

/// How many evicted entries may stand at the front; their bytes are fewer than the table may hold.
const GONE: usize = 32;

impl Field<'_> {
    fn size(&self) -> usize {
        self.name.len() + self.value.len() + OVERHEAD
    }

    fn bucket(&self) -> usize {
        self.field_hash as usize % BUCKETS
    }
}

impl Span {
    fn size(self) -> usize {
        usize::from(self.name) + usize::from(self.value) + OVERHEAD
    }
}

impl Sent {
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

    /// The most bytes that the table may hold.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the most bytes that the table may hold, at most [`INITIAL`], and evicts what is above.
    pub(super) fn resize(&mut self, limit: usize) {
        self.limit = limit.min(INITIAL);
        self.evict(self.limit);
    }

    /// The index of a field.
    #[inline]
    pub(super) fn field(&self, field: &Field<'_>) -> Option<usize> {
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

    /// The index of a field with this name. Names that are in no table are few, and looked for only when a
    /// literal is to be written.
    pub(super) fn name(&self, field: &Field<'_>) -> Option<usize> {
        let is = |span: &Span| span.name_hash == field.name_hash && self.text(*span).0 == field.name;
        let age = self.entries[self.gone..].iter().rev().position(is)?;
        Some(STATIC.len() + 1 + age)
    }

    /// Whether a field is no larger than the table.
    pub(super) fn fits(&self, field: &Field<'_>) -> bool {
        field.size() <= self.limit
    }

    /// Adds a field that fits, and evicts others for it.
    pub(super) fn add(&mut self, field: &Field<'_>) {
        self.evict(self.limit - field.size());
        let newest = &mut self.newest[field.bucket()];
        // None is longer than the table, which moves its bytes before they are twice as many.
        self.entries.push(Span {
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
    fn text(&self, span: Span) -> (&[u8], &[u8]) {
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

    /// Moves the entries to the front, in place of those that are gone, and of their `front` bytes.
    fn compact(&mut self, front: usize) {
        self.bytes.drain(..front);
        self.entries.drain(..self.gone);
        for span in &mut self.entries {
            span.at -= front as u32;
        }
        self.gone = 0;
    }
}
