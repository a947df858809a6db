//! Escaping of hostile bytes: one rule for all formats.
//!
//! Invalid UTF-8 becomes U+FFFD, as by `String::from_utf8_lossy`. Control characters, line and paragraph
//! separators, and characters that are invisible or change the direction of text become `\uXXXX`.

use super::plain::HEX;

/// Appends `bytes` as a JSON string (RFC 8259 §7), quotes included.
pub(crate) fn json_string(out: &mut Vec<u8>, bytes: &[u8]) {
    if !is_json_text(bytes) {
        return escaped_json_string(out, bytes);
    }
    out.push(b'"');
    out.extend_from_slice(bytes);
    out.push(b'"');
}

/// Returns `true` if `bytes` need only quotes to be a JSON string.
pub(super) fn is_json_text(bytes: &[u8]) -> bool {
    is_all(bytes, is_harmless_in_quotes)
}

#[cold]
fn escaped_json_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        escape_where(out, chunk.valid(), |c| c == '"' || c == '\\' || is_hostile(c));
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

/// Appends `bytes` unquoted where logfmt allows it, else as a JSON string.
pub(crate) fn bare_or_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    if !bytes.is_empty() && is_all(bytes, is_harmless_bare) {
        return out.extend_from_slice(bytes);
    }
    if is_json_text(bytes) {
        return json_string(out, bytes);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.chars().any(needs_quotes) => out.extend_from_slice(bytes),
        _ => json_string(out, bytes),
    }
}

/// Appends `text` for people: escapes hostile characters only.
pub(crate) fn sentence(out: &mut Vec<u8>, text: &str) {
    escape_where(out, text, is_hostile);
}

fn needs_quotes(c: char) -> bool {
    matches!(c, ' ' | '=' | '"' | '\\' | '\u{fffd}') || c.is_whitespace() || is_hostile(c)
}

/// Returns `true` if every byte `is_harmless`. True for nearly all values, so most are checked 16 bytes at a
/// time (the compiler vectorises the inner loop) and copied whole.
#[inline]
pub(super) fn is_all(bytes: &[u8], is_harmless: impl Fn(u8) -> bool) -> bool {
    let are = |block: &[u8]| block.iter().fold(0, |bad, &byte| bad | u8::from(!is_harmless(byte))) == 0;
    // The remainder is checked as a block that overlaps the previous one.
    match (bytes.last_chunk::<16>(), bytes.last_chunk::<8>(), bytes.first_chunk::<8>()) {
        (Some(last), ..) => are(last) && bytes.as_chunks::<16>().0.iter().all(|block| are(block.as_slice())),
        (None, Some(last), Some(first)) => are(last) & are(first),
        _ => are(bytes),
    }
}

/// ASCII that a JSON string takes unescaped.
#[inline]
const fn is_harmless_in_quotes(byte: u8) -> bool {
    (byte >= b' ') & (byte <= b'~') & (byte != b'"') & (byte != b'\\')
}

/// ASCII that logfmt takes unquoted.
#[inline]
const fn is_harmless_bare(byte: u8) -> bool {
    (byte > b' ') & (byte <= b'~') & (byte != b'"') & (byte != b'\\') & (byte != b'=')
}

/// Escapes characters one by one, and copies harmless runs whole.
fn escape_where(out: &mut Vec<u8>, text: &str, must_escape: impl Fn(char) -> bool) {
    let mut copied = 0;
    for (at, c) in text.char_indices() {
        if must_escape(c) {
            out.extend_from_slice(&text.as_bytes()[copied..at]);
            escape_char(out, c);
            copied = at + c.len_utf8();
        }
    }
    out.extend_from_slice(&text.as_bytes()[copied..]);
}

fn escape_char(out: &mut Vec<u8>, c: char) {
    match c {
        '"' => out.extend_from_slice(br#"\""#),
        '\\' => out.extend_from_slice(br"\\"),
        '\n' => out.extend_from_slice(br"\n"),
        '\r' => out.extend_from_slice(br"\r"),
        '\t' => out.extend_from_slice(br"\t"),
        _ => {
            // JSON writes characters beyond the basic plane as a surrogate pair (RFC 8259 §7).
            for unit in c.encode_utf16(&mut [0; 2]) {
                let digit = |shift: u32| HEX[usize::from(*unit >> shift & 0xf)];
                out.extend_from_slice(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)]);
            }
        }
    }
}

/// Returns `true` for characters that must not reach a terminal or a line-based reader.
fn is_hostile(c: char) -> bool {
    match c {
        ' '..='~' => false,
        // Controls (C0, DEL, C1), soft hyphen, Arabic letter mark, zero width and direction marks, line
        // separators and direction overrides, invisible operators and isolates, byte-order mark, interlinear
        // marks, tags.
        c if c.is_control() => true,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{bare_or_quoted, json_string};

    fn quoted(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        json_string(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    fn bare(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        bare_or_quoted(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn hostile_bytes_are_escaped() {
        assert_eq!(quoted(b"plain.example"), r#""plain.example""#);
        assert_eq!(quoted(b"a\"b\\c\n\x1b[31m\x7f"), r#""a\"b\\c\n\u001b[31m\u007f""#);
        assert_eq!(
            quoted("ü\u{85}\u{202e}\u{2028}\u{e0041}".as_bytes()),
            r#""ü\u0085\u202e\u2028\udb40\udc41""#
        );
        assert_eq!(quoted(b"h2\xff\xfe"), "\"h2\u{fffd}\u{fffd}\"");
    }

    #[test]
    fn logfmt_quotes_only_what_needs_it() {
        assert_eq!(bare(b"example.org"), "example.org");
        assert_eq!(bare("bücher.example".as_bytes()), "bücher.example");
        for (value, expected) in [
            (&b""[..], r#""""#),
            (b"a b", r#""a b""#),
            (b"a=b", r#""a=b""#),
            (b"a\tb", r#""a\tb""#),
            (b"\\", r#""\\""#),
            (b"\xff", "\"\u{fffd}\""),
        ] {
            assert_eq!(bare(value), expected);
        }
    }
}
