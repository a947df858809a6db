//! Iteration over the fields of an accepted head.

use std::ops::Range;

use super::RequestHead;
use crate::scan;

/// Position of a field. Ranges count from the front of the head's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldAt {
    /// Name, as it was spelled.
    pub name: Range<usize>,
    /// Value, without surrounding whitespace.
    pub value: Range<usize>,
}

/// Iterator over the fields of an accepted head, in order. Nothing is validated again: for other bytes the
/// result is meaningless, but safe.
#[derive(Debug, Clone)]
pub struct FieldIter<'h> {
    head: &'h [u8],
    at: usize,
}

/// Bytes between the target and the first field: a space, the version, and the line end.
const VERSION: usize = " HTTP/1.1\r\n".len();

impl RequestHead {
    /// Iterates over the fields of this head; `bytes` are those that were inspected.
    #[must_use]
    pub fn fields<'h>(&self, bytes: &'h [u8]) -> FieldIter<'h> {
        FieldIter { head: bytes, at: self.target.end + VERSION }
    }
}

impl Iterator for FieldIter<'_> {
    type Item = FieldAt;

    #[inline]
    fn next(&mut self) -> Option<FieldAt> {
        let Self { head, at } = *self;
        let colon = scan::token(head, at);
        if colon == at {
            return None;
        }
        let line = scan::control(head, colon)?;
        let value = head.get(colon + 1..line)?;
        let before = value.iter().take_while(|&&byte| is_space(byte)).count();
        let behind = value[before..].iter().rev().take_while(|&&byte| is_space(byte)).count();
        self.at = line + 2;
        Some(FieldAt { name: at..colon, value: colon + 1 + before..line - behind })
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::super::{Guard, GuardOutcome, HeadLimits};
    use super::*;

    fn read(head: &[u8]) -> Vec<(String, String)> {
        let GuardOutcome::Head(accepted) = Guard::new(HeadLimits::default()).inspect(head).outcome else {
            panic!("{}", head.escape_ascii());
        };
        let text = |range: Range<usize>| String::from_utf8(head[range].to_vec()).unwrap();
        let fields: Vec<_> =
            accepted.fields(head).map(|field| (text(field.name), text(field.value))).collect();
        assert_eq!(fields.len(), usize::from(accepted.fields));
        fields
    }

    #[test]
    fn fields_have_their_positions() {
        let fields = read(
            b"\r\nGET /x HTTP/1.1\r\nHost: a.test\r\nX-Empty:\r\nx-blank: \t \r\nx-Tab:a\tb \t\r\n\
              X-Colon: a:b\r\nx-long: 0123456789012345678901234567890123456789\r\n\r\nGET",
        );
        let expected = [
            ("Host", "a.test"),
            ("X-Empty", ""),
            ("x-blank", ""),
            ("x-Tab", "a\tb"),
            ("X-Colon", "a:b"),
            ("x-long", "0123456789012345678901234567890123456789"),
        ];
        assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(read(b"GET / HTTP/1.0\r\n\r\n"), []);
    }

    #[test]
    fn rejected_bytes_are_safe() {
        let head = RequestHead {
            method: 0..3,
            target: 4..5,
            form: super::super::TargetForm::Origin,
            query: crate::target::QueryForm::Encoded,
            version: super::super::Http1Version::Http11,
            host: None,
            framing: super::super::RequestFraming::None,
            keep_alive: true,
            switches: false,
            expects_continue: false,
            fields: 0,
        };
        for bytes in [&b""[..], b"GET / HTTP/1.1\r\nx", b"GET / HTTP/1.1\r\nx\r", b"GET / HTTP/1.1\r\n:\r\n"]
        {
            assert_eq!(head.fields(bytes).count(), 0, "{}", bytes.escape_ascii());
        }
    }
}
