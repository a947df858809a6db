//! Parse errors: the offset at which a line deviates from its format, as data and as text for people.

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// The reason for rejecting one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The byte offset at which parsing stopped, at most the length of the line.
    pub at: usize,
    /// The expectation there, as a phrase after the word "expected".
    pub expected: Cow<'static, str>,
}

impl ParseError {
    /// `expected` was not found at the offset `at`.
    pub(crate) fn new(at: usize, expected: impl Into<Cow<'static, str>>) -> Self {
        Self { at, expected: expected.into() }
    }

    /// Moves the offset by `start`, the position of the parsed part in its line.
    pub(crate) fn moved(mut self, start: usize) -> Self {
        self.at += start;
        self
    }
}

impl Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "byte {}: expected {}", self.at + 1, self.expected)
    }
}

impl std::error::Error for ParseError {}

/// A rejected line for display: its number, the expectation, and a caret below the offset.
///
/// Long lines are cut to a window; everything but printable ASCII is escaped, so that no line can control a
/// terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The number of the line in its source, starting at 1.
    pub line: u64,
    /// The reason for the rejection.
    pub error: ParseError,
    /// The escaped part of the line around the offset.
    window: String,
    /// The column of the offset in the window.
    column: usize,
}

impl Rejection {
    /// Describes line number `line` of a source.
    #[must_use]
    pub fn new(line: u64, bytes: &[u8], error: ParseError) -> Self {
        let at = error.at.min(bytes.len());
        let (start, end) = (at.saturating_sub(BEFORE), bytes.len().min(at + AFTER));
        let mut window = String::with_capacity(WINDOW);
        if start > 0 {
            window.push('…');
        }
        escape(&bytes[start..at], &mut window);
        let column = window.chars().count();
        escape(&bytes[at..end], &mut window);
        if end < bytes.len() {
            window.push('…');
        }
        Self { line, error, window, column }
    }
}

impl Display for Rejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "line {}, {}", self.line, self.error)?;
        writeln!(out, "    {}", self.window)?;
        write!(out, "    {:width$}^", "", width = self.column)
    }
}

fn escape(bytes: &[u8], out: &mut String) {
    for &byte in bytes {
        match byte {
            b' '..=b'~' => out.push(char::from(byte)),
            b'\t' => out.push_str("\\t"),
            // Writing to a string cannot fail.
            _ => drop(write!(out, "\\x{byte:02x}")),
        }
    }
}

/// Bytes shown before and after the offset: together one line of a terminal.
const BEFORE: usize = 40;
const AFTER: usize = 36;
/// The capacity of a window without escapes.
const WINDOW: usize = BEFORE + AFTER + 6;

#[cfg(test)]
mod tests {
    use super::{ParseError, Rejection};

    #[test]
    fn points_at_the_place() {
        let line = b"192.0.2.1 - - [31/Feb/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"agent of some length\"";
        let text = Rejection::new(7, line, ParseError::new(15, "a day of February")).to_string();
        assert_eq!(
            text,
            "line 7, byte 16: expected a day of February\n    \
             192.0.2.1 - - [31/Feb/2026:00:00:00 +0000] \"GET / H…\n                   ^"
        );
    }

    #[test]
    fn shows_nothing_that_a_terminal_obeys() {
        let mut line = vec![b'a'; 100];
        line.extend_from_slice(b"\x1b[31m\t\xff\r");
        let text = Rejection::new(1, &line, ParseError::new(100, "something else")).to_string();
        assert!(text.bytes().all(|byte| byte >= b' ' || byte == b'\n'), "{text:?}");
        let shown: Vec<_> = text.lines().collect();
        assert!(shown[1].starts_with("    …aaa") && shown[1].ends_with("\\x1b[31m\\t\\xff\\x0d"), "{text}");
        assert_eq!(shown[2].find('^'), Some(4 + 1 + 40));
    }
}
