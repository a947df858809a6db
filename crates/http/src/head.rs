//! The head of a message: its bytes as received, and an index over them.
//!
//! A parser of heads, such as the [`Guard`](crate::h1::Guard), finds every field anyway and keeps its
//! position: a [`FieldLine`] of twelve bytes per field. A [`FieldSection`] does so with fields decoded by
//! HPACK. [`Fields`] combines these lines with the bytes that they refer to. A lookup compares numbers of
//! well-known names. An edit changes the index: a removed field leaves it, and a replaced or appended one is
//! written behind all bytes. Writing copies each run of adjacent lines at once, so an unchanged head is a
//! single copy.
//!
//! **Form of the bytes.** Each line of the index is `name: value` and CRLF, with the name in lower case, as
//! HTTP/2 requires and as servers have always received it from Offramp. A line received in another form is
//! rewritten when the head is loaded. Names are tokens, and values have no control bytes except TAB; the code
//! that adds fields ensures both.
//!
//! The memory of a head is reused for the next one. The meaning of fields is the subject of
//! [`semantics`](crate::semantics).

mod convert;
mod request;
mod response;
mod section;

use std::ops::Range;

pub use crate::field::{Known, KnownSet};
pub use request::Request;
pub use response::Response;
pub use section::{ControlData, FieldSection, Unserved};

use crate::field::{COLON, END, FieldLine};
use crate::h1;

/// A range of the bytes of a head.
#[derive(Debug, Clone, Copy)]
struct HeadRange {
    start: u32,
    end: u32,
}

impl HeadRange {
    fn of(range: &Range<usize>) -> Self {
        // Heads have at most a few MiB.
        Self { start: range.start as u32, end: range.end as u32 }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The fields of a head, in order.
#[derive(Debug, Default, Clone)]
pub struct Fields {
    bytes: Vec<u8>,
    index: Vec<FieldLine>,
    /// Well-known names that were added; some may be removed by now.
    have: KnownSet,
}

impl Fields {
    /// No fields, without allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), index: Vec::new(), have: KnownSet::of(&[]) }
    }

    /// Removes all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.index.clear();
        self.have = KnownSet::default();
    }

    /// Allocated memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.index.capacity() * size_of::<FieldLine>()
    }

    /// Number of field lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true without fields.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The fields of an accepted section of lines with their ends: the trailers of
    /// [`Chunk::End`](crate::h1::Chunk::End).
    #[must_use]
    pub fn of_section(section: &[u8]) -> Self {
        let mut fields = Self { bytes: Vec::with_capacity(section.len()), ..Self::new() };
        for (name, value) in h1::fields(section).filter(|(name, _)| u16::try_from(name.len()).is_ok()) {
            let field = fields.line(Known::of(name), name, value);
            lower(&mut fields.bytes[field.name()]);
            fields.index.push(field);
        }
        fields
    }

    /// Loads a parsed head: its bytes, and the positions of its fields.
    pub(crate) fn load(&mut self, bytes: &[u8], index: &[FieldLine]) {
        self.clear();
        self.bytes.extend_from_slice(bytes);
        self.index.extend_from_slice(index);
        for at in 0..self.index.len() {
            let field = self.index[at];
            self.have.insert(field.known());
            lower(&mut self.bytes[field.name()]);
            if !field.is_plain() {
                self.index[at] = self.rewrite(field);
            }
        }
    }

    /// Rewrites a line that was received in another form.
    #[cold]
    fn rewrite(&mut self, field: FieldLine) -> FieldLine {
        let start = self.bytes.len();
        let value = field.value_in(&self.bytes);
        self.bytes.extend_from_within(field.name());
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_within(value);
        self.bytes.extend_from_slice(b"\r\n");
        field.rewritten(start)
    }

    /// Writes a line behind all bytes. The name has at most 65,535 bytes and is in lower case.
    fn line(&mut self, known: Known, name: &[u8], value: &[u8]) -> FieldLine {
        self.have.insert(known);
        let start = self.bytes.len();
        self.bytes.reserve(name.len() + value.len() + COLON + END);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        FieldLine::written(start, name.len(), value.len(), known)
    }

    /// Appends text that is not a field.
    fn push(&mut self, text: &[u8]) -> HeadRange {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        HeadRange::of(&(start..self.bytes.len()))
    }

    /// First value of a well-known field.
    #[must_use]
    #[inline]
    pub fn get(&self, known: Known) -> Option<&[u8]> {
        self.all(known).next()
    }

    /// Range of the first value of a well-known field.
    fn place(&self, known: Known) -> Option<Range<usize>> {
        self.index.iter().find(|line| line.known() == known).map(FieldLine::value)
    }

    /// Returns true if a well-known field is present.
    #[must_use]
    #[inline]
    pub fn contains(&self, known: Known) -> bool {
        self.get(known).is_some()
    }

    /// Returns false only if none of these fields is present.
    #[must_use]
    #[inline]
    pub fn may_have(&self, names: KnownSet) -> bool {
        self.have.meets(names)
    }

    /// All values of a well-known field, in order.
    #[inline]
    pub fn all(&self, known: Known) -> impl DoubleEndedIterator<Item = &[u8]> {
        let index = if self.have.has(known) { &self.index[..] } else { &[] };
        index.iter().filter(move |field| field.known() == known).map(|field| &self.bytes[field.value()])
    }

    /// All values of a field by name, which is in lower case.
    pub fn named<'f>(&'f self, name: &'f [u8]) -> impl Iterator<Item = &'f [u8]> {
        self.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.index.iter().map(|field| (&self.bytes[field.name()], &self.bytes[field.value()]))
    }

    /// Appends a field. The name is a token in lower case.
    ///
    /// # Panics
    /// In debug builds, if the name is not in lower case or longer than 65,535 bytes.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        debug_assert!(name.len() <= usize::from(u16::MAX) && !name.iter().any(u8::is_ascii_uppercase));
        let field = self.line(Known::of(name), name, value);
        self.index.push(field);
    }

    /// Appends a well-known field.
    pub fn append_known(&mut self, known: Known, value: &[u8]) {
        let field = self.line(known, known.name().as_bytes(), value);
        self.index.push(field);
    }

    /// Appends all fields of `other`.
    pub fn append_all(&mut self, other: &Self) {
        let shift = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&other.bytes);
        self.index.extend(other.index.iter().map(|field| field.shifted(shift)));
        self.have = KnownSet::union(self.have, other.have);
    }

    /// Replaces all fields of this name by one, in the position of the first; appends it if there was none.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.set_as(Known::of(name), name, value);
    }

    fn set_as(&mut self, known: Known, name: &[u8], value: &[u8]) {
        let same = |bytes: &[u8], field: &FieldLine| match known {
            Known::Other => field.known() == Known::Other && bytes[field.name()] == *name,
            _ => field.known() == known,
        };
        let mut place = None;
        if known == Known::Other || self.have.has(known) {
            place = self.index.iter().position(|field| same(&self.bytes, field));
        }
        let line = self.line(known, name, value);
        let Some(place) = place else { return self.index.push(line) };
        self.index[place] = line;
        let (mut at, bytes) = (0, &self.bytes);
        self.index.retain(|field| {
            at += 1;
            at - 1 <= place || !same(bytes, field)
        });
    }

    /// Replaces all fields of a well-known name by one, like [`Fields::set`].
    pub fn set_known(&mut self, known: Known, value: &[u8]) {
        self.set_as(known, known.name().as_bytes(), value);
    }

    /// Replaces all `Host` fields by one; puts it first if there was none (RFC 9110 §7.2).
    pub fn set_host(&mut self, value: &[u8]) {
        if self.contains(Known::Host) {
            return self.set_known(Known::Host, value);
        }
        let line = self.line(Known::Host, b"host", value);
        self.index.insert(0, line);
    }

    /// Removes all fields of a well-known name.
    pub fn remove(&mut self, known: Known) {
        self.remove_all(KnownSet::of(&[known]));
    }

    /// Removes all fields of these well-known names.
    pub fn remove_all(&mut self, names: KnownSet) {
        if self.have.meets(names) {
            self.index.retain(|field| !names.has(field.known()));
            self.have = KnownSet::without(self.have, names);
        }
    }

    /// Removes all fields of this name, which is in lower case.
    pub fn remove_named(&mut self, name: &[u8]) {
        self.retain(|_, known| known != name);
    }

    /// Keeps the fields for which `keep` returns true, given number and name.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(Known, &[u8]) -> bool) {
        let bytes = &self.bytes;
        let mut kept = 0;
        // A single call of `keep`, so that it is inlined. Usually all fields stay, and nothing is moved.
        for at in 0..self.index.len() {
            let field = self.index[at];
            if keep(field.known(), &bytes[field.name()]) {
                if kept != at {
                    self.index[kept] = field;
                }
                kept += 1;
            }
        }
        self.index.truncate(kept);
    }

    /// Merges all fields of a well-known name and `value` into one list: not every recipient reads more than
    /// one field.
    pub fn extend_list(&mut self, known: Known, value: &[u8]) {
        let mut all = Vec::new();
        for one in self.all(known).filter(|one| !one.is_empty()).chain([value]) {
            if !all.is_empty() {
                all.extend_from_slice(b", ");
            }
            all.extend_from_slice(one);
        }
        self.set_known(known, &all);
    }

    /// Appends the lines to `out`, except those of the names in `without`.
    #[inline]
    pub fn write(&self, without: KnownSet, out: &mut Vec<u8>) {
        self.write_from(0..0, without, out);
    }

    /// Appends the bytes at `first` and the lines, in one run if they are adjacent.
    fn write_from(&self, first: Range<usize>, without: KnownSet, out: &mut Vec<u8>) {
        let mut run = first;
        for field in &self.index {
            if without.has(field.known()) {
                continue;
            }
            let line = field.line();
            if line.start == run.end {
                run.end = line.end;
            } else {
                out.extend_from_slice(&self.bytes[run]);
                run = line;
            }
        }
        out.extend_from_slice(&self.bytes[run]);
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut all = Self::new();
        for (name, value) in fields {
            all.append(name.as_ref(), value.as_ref());
        }
        all
    }
}

/// Converts ASCII letters to lower case, eight at a time.
#[inline]
fn lower(text: &mut [u8]) {
    let (words, rest) = text.as_chunks_mut::<8>();
    let whole = !words.is_empty();
    for chunk in words {
        *chunk = lower_word(u64::from_le_bytes(*chunk)).to_le_bytes();
    }
    if rest.is_empty() {
        return;
    }
    if whole && let Some(chunk) = text.last_chunk_mut::<8>() {
        // Overlaps bytes that are converted already.
        *chunk = lower_word(u64::from_le_bytes(*chunk)).to_le_bytes();
    } else if let Some(chunk) = text.first_chunk_mut::<4>() {
        *chunk = lower_half(*chunk);
        if let Some(chunk) = text.last_chunk_mut::<4>() {
            *chunk = lower_half(*chunk);
        }
    } else {
        text.make_ascii_lowercase();
    }
}

#[inline(always)]
fn lower_word(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    // Bit 7 of each sum tells if the byte is at least the bound; no carries, as both are below 128.
    let low = word & (ONES * 0x7f);
    let at_least = low + ONES * u64::from(0x80 - b'A');
    let above = low + ONES * u64::from(0x80 - (b'Z' + 1));
    let upper = at_least & !above & !word & (ONES * 0x80);
    word | upper >> 2
}

#[inline(always)]
fn lower_half(half: [u8; 4]) -> [u8; 4] {
    // The upper half is zero and stays so.
    (lower_word(u64::from(u32::from_le_bytes(half))) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests;
