//! Conversion of arbitrary bytes to text that any database and terminal accepts.

use std::borrow::Cow;
use std::fmt::Write;

use offramp_observe::turns_text;

/// The maximum length of a text in bytes, after which [`CUT`] is appended. Long enough for real URLs, and
/// short enough that a flood of made-up queries cannot fill a disk quickly.
pub(crate) const LONGEST: usize = 2048;

/// The mark at the end of a cut text.
pub(crate) const CUT: char = '…';

/// Converts bytes to text: invalid UTF-8, control characters (NUL among them, which PostgreSQL refuses)
/// and characters that turn the direction of text (UAX #9) become `\xNN`; anything beyond [`LONGEST`] bytes is cut.
pub(crate) fn clean(bytes: &[u8]) -> Cow<'_, str> {
    if bytes.len() <= LONGEST
        && let Ok(text) = std::str::from_utf8(bytes)
        && !text.chars().any(is_harmful)
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
            if is_harmful(character) {
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

fn is_harmful(c: char) -> bool {
    c.is_control() || turns_text(c)
}

fn escape(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_unchanged() {
        for text in ["", "/a?b=c", "/grüße/→"] {
            assert!(matches!(clean(text.as_bytes()), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn other_bytes_are_escaped() {
        assert_eq!(clean(b"a\xffb\0c\n"), "a\\xffb\\x00c\\x0a");
        assert_eq!(clean(b"\xe2\x82"), "\\xe2\\x82");
        assert_eq!(clean("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
    }

    #[test]
    fn long_texts_are_cut() {
        for (byte, length) in [(b'a', LONGEST + 1), (b'a', 1 << 20), (0xff, 1 << 20), (0xff, 1000)] {
            let text = clean(&vec![byte; length]).into_owned();
            assert!(text.len() <= LONGEST + 4 && text.ends_with(CUT), "{byte} {length}: {}", text.len());
        }
        assert!(!clean(&vec![b'a'; LONGEST]).ends_with(CUT));
        assert!(clean("ü".repeat(2000).as_bytes()).len() <= LONGEST + 3);
    }
}
