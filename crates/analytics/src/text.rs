//! From bytes that may be anything to text that any database and terminal takes.

use std::borrow::Cow;
use std::fmt::Write;

/// Texts are cut at this many bytes; [`CUT`] then follows. Long enough for what people link to, and short enough
/// that a flood of made-up queries cannot fill a disk quickly.
pub(crate) const LONGEST: usize = 2048;

/// What is appended to a text that was cut.
pub(crate) const CUT: char = '…';

/// The text of some bytes: what is no UTF-8, and control characters (NUL among them, which PostgreSQL does not
/// take), become `\xNN`; more than [`LONGEST`] bytes are cut.
pub(crate) fn clean(bytes: &[u8]) -> Cow<'_, str> {
    if bytes.len() <= LONGEST
        && let Ok(text) = std::str::from_utf8(bytes)
        && !text.chars().any(char::is_control)
    {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len().min(LONGEST) + 8);
    let mut cut = false;
    'chunks: for chunk in bytes[..bytes.len().min(LONGEST + 4)].utf8_chunks() {
        for character in chunk.valid().chars() {
            if text.len() + 4 > LONGEST {
                cut = true;
                break 'chunks;
            }
            if character.is_control() {
                let mut bytes = [0; 4];
                character.encode_utf8(&mut bytes).bytes().for_each(|byte| escape(&mut text, byte));
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            if text.len() + 4 > LONGEST {
                cut = true;
                break 'chunks;
            }
            escape(&mut text, *byte);
        }
    }
    if cut || bytes.len() > LONGEST + 4 {
        text.push(CUT);
    }
    Cow::Owned(text)
}

fn escape(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text_stays() {
        for text in ["", "/a?b=c", "/grüße/→"] {
            assert!(matches!(clean(text.as_bytes()), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn what_is_none_is_escaped() {
        assert_eq!(clean(b"a\xffb\0c\n"), "a\\xffb\\x00c\\x0a");
        assert_eq!(clean(b"\xe2\x82"), "\\xe2\\x82");
    }

    #[test]
    fn what_is_long_is_cut() {
        for (byte, length) in [(b'a', LONGEST + 1), (b'a', 1 << 20), (0xff, 1 << 20), (0xff, 1000)] {
            let text = clean(&vec![byte; length]).into_owned();
            assert!(text.len() <= LONGEST + 4 && text.ends_with(CUT), "{byte} {length}: {}", text.len());
        }
        assert!(!clean(&vec![b'a'; LONGEST]).ends_with(CUT));
        assert!(clean("ü".repeat(2000).as_bytes()).len() <= LONGEST + 3);
    }
}
