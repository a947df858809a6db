//! Decoding of log escapes into reused memory; unescaped texts are not copied.

/// The escape syntax of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escapes {
    /// A backslash: `\xNN` (nginx, Apache), `\"`, `\\`, and JSON's escapes.
    Backslash,
    /// A hash sign: `#NN` (HAProxy).
    Hash,
    /// No escapes: nginx's `escape=none`.
    None,
}

impl Escapes {
    /// The byte that starts an escape.
    pub(super) const fn mark(self) -> Option<u8> {
        match self {
            Self::Backslash => Some(b'\\'),
            Self::Hash => Some(b'#'),
            Self::None => None,
        }
    }
}

/// The decoded texts of one line.
pub(super) struct Changed<'a> {
    room: &'a mut [u8],
    escapes: Escapes,
}

impl<'a> Changed<'a> {
    /// `need` is the total length of all texts that may be passed to it.
    pub(super) fn new(scratch: &'a mut Vec<u8>, need: usize, escapes: Escapes) -> Self {
        if scratch.len() < need {
            scratch.resize(need, 0);
        }
        Self { room: scratch, escapes }
    }

    /// Decodes the escapes of a text.
    pub(super) fn plain(&mut self, text: &'a [u8]) -> &'a [u8] {
        match self.escapes.mark() {
            Some(mark) if memchr::memchr(mark, text).is_some() => self.copy(text, false),
            _ => text,
        }
    }

    /// Decodes the escapes of a text and lowers its case.
    pub(super) fn lower(&mut self, text: &'a [u8]) -> &'a [u8] {
        let escaped = self.escapes.mark().is_some_and(|mark| memchr::memchr(mark, text).is_some());
        if escaped || text.iter().any(u8::is_ascii_uppercase) { self.copy(text, true) } else { text }
    }

    fn copy(&mut self, text: &'a [u8], lower: bool) -> &'a [u8] {
        let room = std::mem::take(&mut self.room);
        if room.len() < text.len() {
            return text;
        }
        let length = undo(text, room, self.escapes);
        let (used, rest) = room.split_at_mut(length);
        self.room = rest;
        if lower {
            used.make_ascii_lowercase();
        }
        used
    }
}

/// Decodes `text` into `out`, which is at least as long; returns the length. Invalid escapes stay.
fn undo(text: &[u8], out: &mut [u8], escapes: Escapes) -> usize {
    let Some(mark) = escapes.mark() else {
        out[..text.len()].copy_from_slice(text);
        return text.len();
    };
    let (mut from, mut to) = (0, 0);
    while from < text.len() {
        let plain = memchr::memchr(mark, &text[from..]).unwrap_or(text.len() - from);
        out[to..to + plain].copy_from_slice(&text[from..from + plain]);
        (from, to) = (from + plain, to + plain);
        if from == text.len() {
            break;
        }
        let (used, written) = if escapes == Escapes::Hash {
            let byte = hex(&text[from + 1..], 2);
            out[to] = byte.map_or(mark, low_byte);
            (byte.map_or(1, |_| 3), 1)
        } else {
            backslash(&text[from..], &mut out[to..])
        };
        (from, to) = (from + used, to + written);
    }
    to
}

/// Decodes one escape at the front of `text`; returns the bytes read and written.
fn backslash(text: &[u8], out: &mut [u8]) -> (usize, usize) {
    let plain = match text.get(1) {
        Some(b'x' | b'X') => match hex(&text[2..], 2) {
            Some(value) => {
                out[0] = low_byte(value);
                return (4, 1);
            }
            None => None,
        },
        Some(b'u') => return unicode(text, out),
        Some(b'n') => Some(b'\n'),
        Some(b't') => Some(b'\t'),
        Some(b'r') => Some(b'\r'),
        Some(b'b') => Some(8),
        Some(b'f') => Some(12),
        Some(b'v') => Some(11),
        Some(&byte @ (b'"' | b'\\' | b'/' | b'\'')) => Some(byte),
        _ => None,
    };
    out[0] = plain.unwrap_or(b'\\');
    (if plain.is_some() { 2 } else { 1 }, 1)
}

/// Decodes `\uXXXX`, a pair of them beyond the first plane (RFC 8259 §7). Twelve bytes yield at most four
/// bytes of UTF-8, six at most three.
fn unicode(text: &[u8], out: &mut [u8]) -> (usize, usize) {
    let Some(first) = hex(&text[2..], 4) else {
        out[0] = b'\\';
        return (1, 1);
    };
    let second = text[6..].strip_prefix(b"\\u").and_then(|rest| hex(rest, 4));
    let (character, used) = match (first, second) {
        (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
            (char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00)), 12)
        }
        _ => (char::from_u32(first), 6),
    };
    let written = character.unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(out).len();
    (used, written)
}

fn hex(text: &[u8], digits: usize) -> Option<u32> {
    text.get(..digits)?.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

const fn low_byte(value: u32) -> u8 {
    (value & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::{Changed, Escapes};

    fn plain(text: &[u8], escapes: Escapes) -> Vec<u8> {
        Changed::new(&mut Vec::new(), text.len(), escapes).plain(text).to_vec()
    }

    #[test]
    fn undoes_what_was_escaped_and_nothing_else() {
        for (escaped, bytes) in [
            (&br"a\x22b\x5C\x5c"[..], &br#"a"b\\"#[..]),
            (br#"\"\\\/\n\t"#, b"\"\\/\n\t"),
            (br"caf\u00e9 \ud83d\ude00", "café 😀".as_bytes()),
            (br"\ud83d", "\u{fffd}".as_bytes()),
            (br"\xZZ \x4 \u12 \q \", br"\xZZ \x4 \u12 \q \"),
            (b"\\x00\\xff", b"\x00\xff"),
            (b"", b""),
        ] {
            assert_eq!(plain(escaped, Escapes::Backslash), bytes, "{:?}", escaped.escape_ascii().to_string());
        }
        assert_eq!(plain(b"/a#22#7c#", Escapes::Hash), b"/a\"|#");
        assert_eq!(plain(br"\x22#22", Escapes::None), br"\x22#22");
    }

    #[test]
    fn gives_several_texts_of_one_memory() {
        let mut scratch = Vec::new();
        let mut changed = Changed::new(&mut scratch, 12, Escapes::Backslash);
        let (one, two, host) = (changed.plain(br"\x41b"), changed.plain(b"plain"), changed.lower(b"ExA"));
        assert_eq!((one, two, host), (&b"Ab"[..], &b"plain"[..], &b"exa"[..]));
    }
}
