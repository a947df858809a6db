//! Position of a field among the bytes of a head.

use std::ops::Range;

use super::Known;

/// Position of a field among the bytes of a head, and the number of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldLine {
    /// Start of the name.
    start: u32,
    /// Length of the value, without surrounding whitespace.
    value: u32,
    /// Length of the name, at most 65,535 bytes.
    name: u16,
    known: Known,
    /// Set if the line is exactly `name: value` and CRLF.
    plain: bool,
}

const _: () = assert!(size_of::<FieldLine>() == 12);

/// Lengths of the separator behind a name and of the end of a line, in the plain form.
pub(crate) const COLON: usize = 2;
pub(crate) const END: usize = 2;

impl FieldLine {
    /// The field whose name is at `start..name_end` of `section` and whose value is at `value`. `line_end` is the end of
    /// the line's text, if CRLF follows. Returns `None` for a name above 65,535 bytes.
    #[must_use]
    #[inline]
    pub(crate) fn new(
        section: &[u8],
        start: usize,
        name_end: usize,
        value: Range<usize>,
        line_end: Option<usize>,
        known: Known,
    ) -> Option<Self> {
        Some(Self {
            // Heads have at most a few MiB.
            start: start as u32,
            value: value.len() as u32,
            name: u16::try_from(name_end - start).ok()?,
            known,
            plain: value.start == name_end + COLON
                && section[name_end + 1] == b' '
                && line_end == Some(value.end),
        })
    }

    /// A line of the plain form at `start`: `name: value` and CRLF. The name has at most 65,535 bytes.
    #[inline]
    pub(crate) fn written(start: usize, name: usize, value: usize, known: Known) -> Self {
        Self { start: start as u32, value: value as u32, name: name as u16, known, plain: true }
    }

    /// The field after its line was rewritten in the plain form at `start`.
    pub(crate) fn rewritten(self, start: usize) -> Self {
        Self { start: start as u32, plain: true, ..self }
    }

    /// The line after its bytes were appended to `by` others.
    pub(crate) fn shifted(self, by: u32) -> Self {
        Self { start: self.start + by, ..self }
    }

    /// Number of the name.
    #[inline]
    pub(crate) fn known(&self) -> Known {
        self.known
    }

    /// Returns true for a line of exactly `name: value` and CRLF.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Range of the name.
    #[must_use]
    #[inline]
    pub fn name(&self) -> Range<usize> {
        self.start as usize..self.start as usize + usize::from(self.name)
    }

    /// Range of the value, on a line of the plain form.
    #[inline]
    pub(crate) fn value(&self) -> Range<usize> {
        let at = self.name().end + COLON;
        at..at + self.value as usize
    }

    /// Range of the value in `section`, for any form of the line.
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

    /// Range of the whole line, including its end.
    #[inline]
    pub(crate) fn line(&self) -> Range<usize> {
        self.start as usize..self.value().end + END
    }
}
