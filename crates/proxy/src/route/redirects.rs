//! Redirects by a map: many paths, each with where it leads. Pure.
//!
//! The map keeps the text that it was read from. A path is found by one look at a hash table over it, without an
//! allocation; whether it leads anywhere costs the same for one entry and for a million.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

use http::StatusCode;

mod read;

/// Paths and where they lead.
#[derive(Debug)]
pub struct RedirectMap {
    /// Paths and targets are parts of it.
    text: Box<str>,
    entries: Box<[RedirectEntry]>,
    /// One more than the place of an entry, by the hash of its path; 0: none. A power of two, and at least twice as many as
    /// there are entries, so that a search ends soon.
    slots: Box<[u32]>,
}

/// One redirect: where its parts stand in the text.
#[derive(Clone, Copy, Debug)]
struct RedirectEntry {
    from: u32,
    to: u32,
    from_length: u16,
    to_length: u16,
    status: u16,
}

/// The most bytes of a map's text.
pub const TEXT_MAX: usize = 16 << 20;
/// The most redirects of a map.
pub const ENTRIES_MAX: usize = 1_000_000;

/// A mistake in the text of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFault {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// Message for the operator.
    pub text: String,
}

impl fmt::Display for MapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.text)
    }
}

/// Every mistake in the text of a map, as far as they are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapFaults {
    /// The first ones, in the order of the text.
    pub listed: Vec<MapFault>,
    /// Number of further mistakes.
    pub more: usize,
}

impl RedirectMap {
    /// Reads a map: in each line a path, a comma, where it leads, and after another comma the status, if it is not 308.
    /// Blank lines, and lines that begin with `#`, are skipped. `below` is the path of the route, in which every path has to
    /// be.
    ///
    /// # Errors
    /// Every mistake, and what leads in a circle within the map.
    pub fn read(text: String, below: &str) -> Result<Self, MapFaults> {
        read::read(text, below)
    }

    /// Destination of a path, and its status.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<(StatusCode, &str)> {
        let entry = self.entries[self.place(path)?];
        let status = StatusCode::from_u16(entry.status).unwrap_or(StatusCode::PERMANENT_REDIRECT);
        Some((status, &self.text[entry.to()]))
    }

    /// Number of redirects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true without redirects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of bytes that the map holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.entries) + size_of_val(&*self.slots)
    }

    fn place(&self, path: &str) -> Option<usize> {
        self.slot(path).ok()
    }

    /// The place of the entry with this path, or the slot where it would be.
    fn slot(&self, path: &str) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut hasher = DefaultHasher::new();
        hasher.write(path.as_bytes());
        // What is above the mask is not needed.
        #[allow(clippy::cast_possible_truncation)]
        let mut slot = hasher.finish() as usize & mask;
        while let Some(place) = self.slots[slot].checked_sub(1) {
            let place = place as usize;
            if &self.text[self.entries[place].from()] == path {
                return Ok(place);
            }
            slot = (slot + 1) & mask;
        }
        Err(slot)
    }
}

impl RedirectEntry {
    fn from(self) -> Range<usize> {
        range(self.from, self.from_length)
    }

    fn to(self) -> Range<usize> {
        range(self.to, self.to_length)
    }
}

fn range(start: u32, length: u16) -> Range<usize> {
    start as usize..start as usize + usize::from(length)
}

/// Destination of a client that asked with this query: the query stays, unless the target has one.
#[must_use]
pub fn location(to: &str, query: Option<&str>) -> String {
    let (front, fragment) = to.split_at(to.find('#').unwrap_or(to.len()));
    match query {
        Some(query) if !front.contains('?') => format!("{front}?{query}{fragment}"),
        _ => to.to_owned(),
    }
}

#[cfg(test)]
mod tests;
