//! Blocks of bytes into lines, which stay where they were read.
//!
//! ```text
//!  buffer: | taken | incomplete line | room |
//!          0     start              end   len      start <= scanned <= end
//! ```
//! A line longer than [`MAX_LINE`] is told once and dropped as it arrives. How many bytes whole lines have taken is
//! counted apart from what was read, so that a reader may begin again after the last whole line.

use std::io::{self, Read};
use std::ops::{Index, Range};

use crate::store::files::DIGESTED;

/// The bytes between reading and parsing.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    /// Bytes of whole lines.
    passed: u64,
    /// Bytes dropped of a line that is too long and has not ended.
    dropped: Option<u64>,
    /// The last bytes of whole lines that are no longer in the buffer.
    behind: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line without its line feed: index the lines with it, at once.
    Line(Range<usize>),
    /// A line that is too long: its beginning.
    TooLong(Range<usize>),
    /// No whole line is left.
    More,
}

impl Lines {
    pub(crate) fn new() -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            end: 0,
            passed: 0,
            dropped: None,
            behind: Vec::new(),
        }
    }

    /// From the middle of a line on: its rest is dropped.
    pub(crate) fn within_a_line() -> Self {
        Self { dropped: Some(0), ..Self::new() }
    }

    /// The next whole line.
    pub(crate) fn next(&mut self) -> Next {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]) else {
                self.scanned = self.end;
                return self.overlong();
            };
            let (start, feed) = (self.start, self.scanned + found);
            (self.start, self.scanned) = (feed + 1, feed + 1);
            self.passed += (feed + 1 - start) as u64;
            match self.dropped.take() {
                // The end of a line that was told already.
                Some(dropped) => {
                    self.passed += dropped;
                    self.behind.clear();
                }
                None if feed - start > MAX_LINE => return Next::TooLong(start..start + SHOWN),
                None => return Next::Line(start..feed),
            }
        }
    }

    /// Drops what is here of a line that is too long.
    fn overlong(&mut self) -> Next {
        let (start, length) = (self.start, self.end - self.start);
        if let Some(dropped) = &mut self.dropped {
            *dropped += length as u64;
        } else if length > MAX_LINE {
            self.behind = self.ending();
            self.dropped = Some(length as u64);
        } else {
            return Next::More;
        }
        let told = length > MAX_LINE && self.dropped == Some(length as u64);
        self.start = self.end;
        if told { Next::TooLong(start..start + SHOWN) } else { Next::More }
    }

    /// Reads once; how many bytes that were, 0 at the end. All whole lines must have been taken.
    pub(crate) fn fill(&mut self, reader: &mut impl Read) -> io::Result<u64> {
        if self.start > 0 {
            if self.dropped.is_none() {
                self.behind = self.ending();
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            (self.start, self.scanned) = (0, self.scanned - self.start);
        }
        if self.buffer.len() - self.end < BLOCK / 2 {
            // At most MAX_LINE bytes wait here, so this is bounded.
            self.buffer.resize(self.end + BLOCK, 0);
        } else if self.end == 0 && self.buffer.len() > BLOCK {
            self.buffer.truncate(BLOCK);
            self.buffer.shrink_to_fit();
        }
        loop {
            match reader.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The incomplete line at the end, if there is one, as if it were complete.
    pub(crate) fn rest(&mut self) -> Option<&[u8]> {
        let (start, end) = (self.start, self.end);
        self.passed += (end - start) as u64 + self.dropped.unwrap_or(0);
        let told = self.dropped.take().is_some();
        if told {
            self.behind.clear();
        }
        (self.start, self.scanned) = (end, end);
        (!told && end > start).then(|| &self.buffer[start..end])
    }

    /// Bytes of whole lines, line feeds included, since the beginning.
    pub(crate) const fn passed(&self) -> u64 {
        self.passed
    }

    /// The last bytes of whole lines, as far as they are known: [`DIGESTED`] at most.
    pub(crate) fn ending(&self) -> Vec<u8> {
        if self.dropped.is_some() {
            return self.behind.clone();
        }
        let here = &self.buffer[self.start.saturating_sub(DIGESTED)..self.start];
        let before = &self.behind[self.behind.len().saturating_sub(DIGESTED - here.len())..];
        [before, here].concat()
    }

    /// What was read and not taken.
    pub(crate) fn incomplete(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes back what was read last, of which no line was taken.
    pub(crate) fn unread(&mut self, bytes: u64) {
        self.end = self.end.saturating_sub(bytes as usize).max(self.start);
        self.scanned = self.scanned.min(self.end);
    }

    /// Bytes of the incomplete line.
    pub(crate) fn waiting(&self) -> u64 {
        (self.end - self.start) as u64 + self.dropped.unwrap_or(0)
    }
}

impl Index<Range<usize>> for Lines {
    type Output = [u8];

    fn index(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }
}

/// The longest line that is parsed, in bytes, its line feed not counted.
pub const MAX_LINE: usize = 1 << 20;
/// What is read at once: the cost of a system call vanishes, and it fits the second-level cache.
const BLOCK: usize = 256 << 10;
/// The part of a line that is too long which people may see.
const SHOWN: usize = 256;
