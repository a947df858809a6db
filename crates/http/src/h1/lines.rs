//! Lines that end in CRLF (RFC 9112 §2.2), searched once per byte.
//!
//! Used for heads and trailers. Control bytes are rejected wherever they are.

use std::ops::Range;

use super::field::{self, ParsedField};
use crate::fault::Http1Fault;
use crate::scan;

/// Progress within a section of lines. Offsets count from the front of the section.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lines {
    /// Start of the incomplete line.
    line: usize,
    /// Offset up to which its end has been searched.
    seen: usize,
}

/// Result of searching the next line.
pub(super) enum HeadLine {
    /// Range of a complete line, without its CRLF.
    Whole(Range<usize>),
    /// The line end has not arrived.
    Partial,
    /// The line contains a control byte.
    Fault(Http1Fault),
}

impl Lines {
    /// Starts behind `offset` bytes.
    pub(super) fn new(offset: usize) -> Self {
        Self { line: offset, seen: offset }
    }

    /// Start of the next line.
    #[inline]
    pub(super) fn at(&self) -> usize {
        self.line
    }

    /// Offset up to which the next line has neither line ends nor control bytes.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Fast path: parses the next line as a field, with the range of the line without its CRLF, if it is
    /// complete and ordinary. Otherwise the state does not change.
    #[inline(always)]
    pub(super) fn next_field<'s>(&mut self, section: &'s [u8]) -> Option<(ParsedField<'s>, Range<usize>)> {
        if self.seen != self.line {
            return None;
        }
        let (field, end) = field::plain(section, self.line)?;
        let line = self.line..end;
        self.line = end + 2;
        self.seen = self.line;
        Some((field, line))
    }

    /// Finds the end of the next line in the section received so far.
    #[inline(always)]
    pub(super) fn next(&mut self, section: &[u8]) -> HeadLine {
        let Some(at) = scan::control(section, self.seen) else {
            self.seen = section.len();
            return HeadLine::Partial;
        };
        self.seen = at;
        match (section[at], section.get(at + 1)) {
            (b'\r', Some(b'\n')) => {
                let line = self.line..at;
                self.line = at + 2;
                self.seen = self.line;
                HeadLine::Whole(line)
            }
            (b'\r', None) => HeadLine::Partial,
            (b'\r', Some(_)) => HeadLine::Fault(Http1Fault::BareCarriageReturn),
            (b'\n', _) => HeadLine::Fault(Http1Fault::BareLineFeed),
            _ => HeadLine::Fault(Http1Fault::ControlByte),
        }
    }

    /// Finds the end of a server's line, which may be LF alone (RFC 9112 §2.2).
    #[inline(always)]
    pub(super) fn next_of_server(&mut self, section: &[u8]) -> HeadLine {
        match self.next(section) {
            HeadLine::Fault(Http1Fault::BareLineFeed) => {
                let line = self.line..self.seen;
                self.line = self.seen + 1;
                self.seen = self.line;
                HeadLine::Whole(line)
            }
            line => line,
        }
    }
}
