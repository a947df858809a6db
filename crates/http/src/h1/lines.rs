//! Lines that end in CRLF (RFC 9112 §2.2), without looking at a byte twice.
//!
//! Heads and trailers are read through it. It refuses control bytes wherever they stand.

use std::ops::Range;

use super::field::{self, Field};
use super::{Http1Fault, scan};

/// How far a section of lines has been read. Places count from the front of the section.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lines {
    /// Where the line that is not complete begins.
    line: usize,
    /// Up to where it has been searched for its end.
    seen: usize,
}

/// What the next line is.
pub(super) enum HeadLine {
    /// A line stands at this place, without its CRLF.
    Whole(Range<usize>),
    /// Its end has not come.
    Partial,
    /// It cannot be one.
    Fault(Http1Fault),
}

impl Lines {
    /// Starts behind `offset` bytes.
    pub(super) fn new(offset: usize) -> Self {
        Self { line: offset, seen: offset }
    }

    /// Where the next line begins.
    #[inline]
    pub(super) fn at(&self) -> usize {
        self.line
    }

    /// Up to where there are neither ends nor control bytes in the next line.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Reads the next line as that of a field, with the place of the line without its CRLF, if all of it is there and
    /// nothing is odd about it. Else nothing has happened.
    #[inline(always)]
    pub(super) fn next_field<'s>(&mut self, section: &'s [u8]) -> Option<(Field<'s>, Range<usize>)> {
        if self.seen != self.line {
            return None;
        }
        let (field, end) = field::plain(section, self.line)?;
        let line = self.line..end;
        self.line = end + 2;
        self.seen = self.line;
        Some((field, line))
    }

    /// Finds the end of the next line in the whole section so far.
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

    /// The same for what a server sent, whose lines may end in LF alone (RFC 9112 §2.2).
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
