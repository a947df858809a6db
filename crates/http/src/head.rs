//! The head of a message: the bytes as they came, and an index over them.
//!
//! Whoever reads a head, the [`Guard`](crate::h1::Guard) for one, finds every field anyway, and keeps what it found: a
//! [`FieldLine`] of twelve bytes per field. A [`FieldSection`] does so with what HPACK decodes. [`Fields`] are those lines with the bytes that they point into. A look-up
//! compares numbers of well-known names. A change edits the index: a field that is dropped leaves it, and one that is
//! replaced or appended is written behind all bytes. Writing copies each run of lines that lie side by side at once, so
//! a head that nobody has changed is one copy.
//!
//! **Form of the bytes.** Each line of the index is `name: value` and CRLF, with the name in lower case, as HTTP/2 wants
//! it and as servers have always got it from here. A line that came in another form is written anew when it is taken
//! in. Names are tokens, and values have no control bytes but TAB: that is for whoever puts them in.
//!
//! The memory of a head is used again for the next one. It refuses to judge what fields mean; see
//! [`semantics`](crate::semantics).

mod convert;
mod kind;
mod known;
mod request;
mod response;
mod section;

use std::ops::Range;

pub use kind::Kind;
pub use known::{Known, KnownSet};
pub use request::Request;
pub use response::Response;
pub use section::{ControlData, FieldSection, Unserved};

use crate::h1;

/// Where a field stands among the bytes of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLine {
    /// Where the name begins.
    start: u32,
    /// The length of the value, without the whitespace around it.
    value: u32,
    /// The length of the name.
    name: u16,
    known: Known,
    /// Whether the line is `name: value` and CRLF, and nothing else.
    plain: bool,
}

const _: () = assert!(size_of::<FieldLine>() == 12);

/// What stands between name and value, and behind the value.
const COLON: usize = 2;
const END: usize = 2;

impl FieldLine {
    /// The field whose name is at `start..name_end` of `section` and whose value at `value`, on a line whose text ends at
    /// `end`, and ends in CRLF if `crlf`. `None` where the name is longer than any can be, 65,535 bytes.
    #[must_use]
    #[inline]
    pub(crate) fn new(
        section: &[u8],
        start: usize,
        name_end: usize,
        value: Range<usize>,
        (end, crlf): (usize, bool),
        known: Known,
    ) -> Option<Self> {
        Some(Self {
            // Heads have at most a few MiB.
            start: start as u32,
            value: value.len() as u32,
            name: u16::try_from(name_end - start).ok()?,
            known,
            plain: crlf
                && value.start == name_end + COLON
                && section[name_end + 1] == b' '
                && value.end == end,
        })
    }

    /// Where the name stands.
    #[must_use]
    #[inline]
    pub fn name(&self) -> Range<usize> {
        self.start as usize..self.start as usize + usize::from(self.name)
    }

    #[inline]
    fn value(&self) -> Range<usize> {
        let at = self.name().end + COLON;
        at..at + self.value as usize
    }

    /// Where the value stands in `section`, whatever the form of the line.
    #[must_use]
    pub fn value_in(&self, section: &[u8]) -> Range<usize> {
        let blanks =
            |from: usize| section[from..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        // Servers may write whitespace before the colon, too.
        let name = self.name().end;
        let colon = name + blanks(name);
        let at = colon + 1 + blanks(colon + 1);
        at..at + self.value as usize
    }

    /// The whole line, with its end.
    #[inline]
    fn line(&self) -> Range<usize> {
        self.start as usize..self.value().end + END
    }
}

/// A place among the bytes of a head.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of(range: &Range<usize>) -> Self {
        // Heads have at most a few MiB.
        Self { start: range.start as u32, end: range.end as u32 }
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// The fields of a head, in their order.
#[derive(Debug, Default, Clone)]
pub struct Fields {
    bytes: Vec<u8>,
    index: Vec<FieldLine>,
    /// The well-known names that were put in; some may be gone by now.
    have: KnownSet,
}

impl Fields {
    /// No fields, without memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), index: Vec::new(), have: KnownSet::of(&[]) }
    }

    /// Forgets all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.index.clear();
        self.have = KnownSet::default();
    }

    /// How many bytes of memory it has.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.index.capacity() * size_of::<FieldLine>()
    }

    /// The number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The fields of a section that was accepted, each line with its end: trailers, as
    /// [`Chunk::End`](crate::h1::Chunk::End) tells of them.
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

    /// Takes in a head that was read: its bytes, and where its fields stand in them.
    pub(crate) fn load(&mut self, bytes: &[u8], index: &[FieldLine]) {
        self.clear();
        self.bytes.extend_from_slice(bytes);
        self.index.extend_from_slice(index);
        for at in 0..self.index.len() {
            let field = self.index[at];
            self.have.insert(field.known);
            lower(&mut self.bytes[field.name()]);
            if !field.plain {
                self.index[at] = self.rewrite(field);
            }
        }
    }

    /// Writes a line anew that came in another form.
    #[cold]
    fn rewrite(&mut self, field: FieldLine) -> FieldLine {
        let start = self.bytes.len();
        let value = field.value_in(&self.bytes);
        self.bytes.extend_from_within(field.name());
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_within(value);
        self.bytes.extend_from_slice(b"\r\n");
        FieldLine { start: start as u32, plain: true, ..field }
    }

    /// Writes a line behind all bytes. The name is at most 65,535 bytes long and in lower case.
    fn line(&mut self, known: Known, name: &[u8], value: &[u8]) -> FieldLine {
        self.have.insert(known);
        let start = self.bytes.len();
        self.bytes.reserve(name.len() + value.len() + COLON + END);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.bytes.extend_from_slice(b"\r\n");
        FieldLine {
            start: start as u32,
            value: value.len() as u32,
            // Bounded by whoever made the name.
            name: name.len() as u16,
            known,
            plain: true,
        }
    }

    /// Puts text behind all bytes, which is no field.
    fn push(&mut self, text: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        Span::of(&(start..self.bytes.len()))
    }

    /// The first value of a field with this well-known name.
    #[must_use]
    #[inline]
    pub fn get(&self, known: Known) -> Option<&[u8]> {
        self.all(known).next()
    }

    /// Where the value of the first field with this well-known name stands.
    fn place(&self, known: Known) -> Option<Range<usize>> {
        self.index.iter().find(|line| line.known == known).map(FieldLine::value)
    }

    /// Whether there is a field with this well-known name.
    #[must_use]
    #[inline]
    pub fn contains(&self, known: Known) -> bool {
        self.get(known).is_some()
    }

    /// Whether there may be a field with one of these names.
    #[must_use]
    #[inline]
    pub fn may_have(&self, names: KnownSet) -> bool {
        self.have.meets(names)
    }

    /// The values of all fields with this well-known name, in their order.
    #[inline]
    pub fn all(&self, known: Known) -> impl DoubleEndedIterator<Item = &[u8]> {
        let index = if self.have.has(known) { &self.index[..] } else { &[] };
        index.iter().filter(move |field| field.known == known).map(|field| &self.bytes[field.value()])
    }

    /// The values of all fields with this name, which is in lower case.
    pub fn named<'f>(&'f self, name: &'f [u8]) -> impl Iterator<Item = &'f [u8]> {
        self.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.index.iter().map(|field| (&self.bytes[field.name()], &self.bytes[field.value()]))
    }

    /// Puts a field behind all others. The name is a token in lower case.
    ///
    /// # Panics
    /// Never in release builds; in others if the name is not in lower case or longer than 65,535 bytes.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        debug_assert!(name.len() <= usize::from(u16::MAX) && !name.iter().any(u8::is_ascii_uppercase));
        let field = self.line(Known::of(name), name, value);
        self.index.push(field);
    }

    /// Puts a field with a well-known name behind all others.
    pub fn append_known(&mut self, known: Known, value: &[u8]) {
        let field = self.line(known, known.name().as_bytes(), value);
        self.index.push(field);
    }

    /// Puts all fields of `other` behind all others.
    pub fn append_all(&mut self, other: &Self) {
        let shift = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&other.bytes);
        self.index.extend(other.index.iter().map(|field| FieldLine { start: field.start + shift, ..*field }));
        self.have = KnownSet::union(self.have, other.have);
    }

    /// Has one field with this name, in the place of the first that there was, or else behind all others.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.set_as(Known::of(name), name, value);
    }

    fn set_as(&mut self, known: Known, name: &[u8], value: &[u8]) {
        let same = |bytes: &[u8], field: &FieldLine| match known {
            Known::Other => field.known == Known::Other && bytes[field.name()] == *name,
            _ => field.known == known,
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

    /// The same for a well-known name.
    pub fn set_known(&mut self, known: Known, value: &[u8]) {
        self.set_as(known, known.name().as_bytes(), value);
    }

    /// Has one `Host` of this value, which comes first where there was none (RFC 9110 §7.2).
    pub fn set_host(&mut self, value: &[u8]) {
        if self.contains(Known::Host) {
            return self.set_known(Known::Host, value);
        }
        let line = self.line(Known::Host, b"host", value);
        self.index.insert(0, line);
    }

    /// Drops all fields with this well-known name.
    pub fn remove(&mut self, known: Known) {
        self.remove_all(KnownSet::of(&[known]));
    }

    /// Drops all fields with these well-known names.
    pub fn remove_all(&mut self, names: KnownSet) {
        if self.have.meets(names) {
            self.index.retain(|field| !names.has(field.known));
            self.have = KnownSet::without(self.have, names);
        }
    }

    /// Drops all fields with this name, which is in lower case.
    pub fn remove_named(&mut self, name: &[u8]) {
        self.retain(|_, known| known != name);
    }

    /// Drops the fields that `keep` does not want, by number and name.
    #[inline]
    pub fn retain(&mut self, mut keep: impl FnMut(Known, &[u8]) -> bool) {
        let bytes = &self.bytes;
        let mut wanted = |field: &FieldLine| keep(field.known, &bytes[field.name()]);
        // Most of the time all of them stay, and nothing has to be moved.
        if let Some(first) = self.index.iter().position(|field| !wanted(field)) {
            let mut at = 0;
            self.index.retain(|field| {
                at += 1;
                at <= first || at > first + 1 && wanted(field)
            });
        }
    }

    /// Has one field with this well-known name, whose value is a list of those that there were and `value` behind
    /// them: not every recipient reads more than one field.
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

    /// Writes the lines behind `out`, but for those of the names in `without`.
    #[inline]
    pub fn write(&self, without: KnownSet, out: &mut Vec<u8>) {
        self.write_from(0..0, without, out);
    }

    /// The same behind the bytes at `first`, in one run with them where they lie side by side.
    fn write_from(&self, first: Range<usize>, without: KnownSet, out: &mut Vec<u8>) {
        let mut run = first;
        for field in &self.index {
            if without.has(field.known) {
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

/// Makes ASCII letters lower case, eight at a time.
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
        // Some of it is in lower case already.
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
    // Bit 7 of each sum says whether the byte is at least the bound; without carries, as both are below 128.
    let low = word & (ONES * 0x7f);
    let at_least = low + ONES * u64::from(0x80 - b'A');
    let above = low + ONES * u64::from(0x80 - (b'Z' + 1));
    let upper = at_least & !above & !word & (ONES * 0x80);
    word | upper >> 2
}

#[inline(always)]
fn lower_half(half: [u8; 4]) -> [u8; 4] {
    // The upper half is empty and stays so.
    (lower_word(u64::from(u32::from_le_bytes(half))) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests;
