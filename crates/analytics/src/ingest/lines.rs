//! Splits blocks of bytes into lines in place.
//!
//! ```text
//!  buffer: | taken | incomplete line | room |
//!          0     start              end   len      start <= scanned <= end
//! ```
//! A line longer than [`MAX_LINE`] is reported once and dropped as it arrives. The bytes of whole lines are
//! counted apart from the bytes read, so that reading can resume after the last whole line.

use std::io::{self, Read};
use std::ops::{Index, Range};

use crate::store::files::DIGESTED;

/// The buffer between reading and parsing.
#[derive(Debug)]
pub(crate) struct LineBuffer {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    /// Bytes of whole lines.
    passed: u64,
    /// Bytes dropped of an overlong line that has not ended.
    dropped: Option<u64>,
    /// The last bytes of whole lines that have left the buffer.
    behind: Vec<u8>,
}

/// The next element of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextLine {
    /// A line without its line feed, as a range that is valid until the next call.
    Line(Range<usize>),
    /// The start of an overlong line.
    TooLong(Range<usize>),
    /// No whole line is left.
    More,
}

impl LineBuffer {
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

    /// Starts in the middle of a line, the rest of which is dropped.
    pub(crate) fn within_a_line() -> Self {
        Self { dropped: Some(0), ..Self::new() }
    }

    /// Takes the next whole line.
    pub(crate) fn next(&mut self) -> NextLine {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]) else {
                self.scanned = self.end;
                return self.overlong();
            };
            let (start, feed) = (self.start, self.scanned + found);
            (self.start, self.scanned) = (feed + 1, feed + 1);
            self.passed += (feed + 1 - start) as u64;
            match self.dropped.take() {
                // The end of a line that was reported already.
                Some(dropped) => {
                    self.passed += dropped;
                    self.behind.clear();
                }
                None if feed - start > MAX_LINE => return NextLine::TooLong(start..start + SHOWN),
                None => return NextLine::Line(start..feed),
            }
        }
    }

    /// Drops the buffered part of an overlong line.
    fn overlong(&mut self) -> NextLine {
        let (start, length) = (self.start, self.end - self.start);
        if let Some(dropped) = &mut self.dropped {
            *dropped += length as u64;
        } else if length > MAX_LINE {
            self.behind = self.ending();
            self.dropped = Some(length as u64);
        } else {
            return NextLine::More;
        }
        let is_new = length > MAX_LINE && self.dropped == Some(length as u64);
        self.start = self.end;
        if is_new { NextLine::TooLong(start..start + SHOWN) } else { NextLine::More }
    }

    /// Reads once and returns the number of bytes, 0 at the end. All whole lines must have been taken.
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
            // Bounded: at most MAX_LINE bytes wait here.
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

    /// Takes the incomplete last line, if there is one, as if it were complete.
    pub(crate) fn rest(&mut self) -> Option<&[u8]> {
        let (start, end) = (self.start, self.end);
        self.passed += (end - start) as u64 + self.dropped.unwrap_or(0);
        let was_reported = self.dropped.take().is_some();
        if was_reported {
            self.behind.clear();
        }
        (self.start, self.scanned) = (end, end);
        (!was_reported && end > start).then(|| &self.buffer[start..end])
    }

    /// Bytes of whole lines since the start, line feeds included.
    pub(crate) const fn passed(&self) -> u64 {
        self.passed
    }

    /// The last bytes of whole lines, at most [`DIGESTED`].
    pub(crate) fn ending(&self) -> Vec<u8> {
        if self.dropped.is_some() {
            return self.behind.clone();
        }
        let here = &self.buffer[self.start.saturating_sub(DIGESTED)..self.start];
        let before = &self.behind[self.behind.len().saturating_sub(DIGESTED - here.len())..];
        [before, here].concat()
    }

    /// The bytes read and not taken.
    pub(crate) fn incomplete(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Undoes the last read, of which no line was taken.
    pub(crate) fn unread(&mut self, bytes: u64) {
        self.end = self.end.saturating_sub(bytes as usize).max(self.start);
        self.scanned = self.scanned.min(self.end);
    }

    /// Bytes of the incomplete line.
    pub(crate) fn waiting(&self) -> u64 {
        (self.end - self.start) as u64 + self.dropped.unwrap_or(0)
    }
}

impl Index<Range<usize>> for LineBuffer {
    type Output = [u8];

    fn index(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }
}

/// The longest line that is parsed, in bytes without its line feed.
pub const MAX_LINE: usize = 1 << 20;
/// The size of a read: amortises the system call, and fits the second-level cache.
const BLOCK: usize = 256 << 10;
/// The bytes of an overlong line kept for display.
const SHOWN: usize = 256;
