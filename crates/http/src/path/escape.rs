//! Decoder and encoder of percent-escapes.

/// A character of a path, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A byte without an escape.
    Raw(u8),
    /// The byte of an escape `%XX`.
    Escaped(u8),
    /// A `%` that begins no escape.
    Percent,
}

/// Units of a path or a segment.
pub(super) fn units(mut rest: &[u8]) -> impl Iterator<Item = Unit> + '_ {
    std::iter::from_fn(move || {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        if byte != b'%' {
            return Some(Unit::Raw(byte));
        }
        let [high, low, after @ ..] = rest else { return Some(Unit::Percent) };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Some(Unit::Percent) };
        rest = after;
        // Two digits fit a byte.
        Some(Unit::Escaped((high * 16 + low) as u8))
    })
}

/// Bytes that need no escape in a segment (RFC 3986 §3.3, `pchar`).
pub(super) const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'!'
                | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
        )
}

/// Appends a byte as an escape.
pub(super) fn push_escaped(byte: u8, out: &mut String) {
    let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value & 15)]);
    out.extend(['%', digit(byte >> 4), digit(byte)]);
}

/// Decodes a normal form; `None` if the result is not UTF-8. A `%` that begins no escape is kept.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let byte = |unit| match unit {
        Unit::Raw(byte) | Unit::Escaped(byte) => byte,
        Unit::Percent => b'%',
    };
    // Overlong forms and surrogates are not UTF-8.
    String::from_utf8(units(text.as_bytes()).map(byte).collect()).ok()
}
