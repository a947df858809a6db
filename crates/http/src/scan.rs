//! Search for bytes of a class.
//!
//! Eight bytes at a time are tested in a register, which yields the position of the first match. Short inputs
//! use a table.

/// Index, at `from` or later, of the first control byte other than TAB: NUL to US, and DEL.
#[inline(always)]
pub(crate) fn control(bytes: &[u8], mut from: usize) -> Option<usize> {
    while let Some(block) = bytes.get(from..).and_then(<[u8]>::first_chunk::<16>) {
        let block = u128::from_le_bytes(*block);
        if (suspects(block as u64) | suspects((block >> 64) as u64)) & (ONES << 7) == 0 {
            from += 16;
            continue;
        }
        from += first_control(block);
        // A byte beyond ASCII is a suspect, but no control byte.
        let found = *bytes.get(from)?;
        if !found.is_ascii_control() {
            continue;
        }
        if found != b'\t' {
            return Some(from);
        }
        from += 1;
    }
    control_near_end(bytes, from)
}

/// Bit 7 of every control byte, and of every byte beyond ASCII. Borrows corrupt the result behind the first
/// control byte, and carries only behind 0xff.
#[inline(always)]
fn suspects(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) | word.wrapping_add(ONES) | word
}

/// Variant of [`control`] for fewer than sixteen remaining bytes. The bytes before them that fill the block
/// are shifted out.
fn control_near_end(bytes: &[u8], mut from: usize) -> Option<usize> {
    let Some(block) = bytes.last_chunk::<16>().filter(|_| from < bytes.len()) else {
        let rest = bytes.get(from..)?;
        return rest.iter().position(|&byte| CLASS[usize::from(byte)] & CONTROL != 0).map(|at| from + at);
    };
    let block = u128::from_le_bytes(*block);
    while from < bytes.len() {
        let left = bytes.len() - from;
        from += first_control(block >> (8 * (16 - left))).min(left);
        match bytes.get(from) {
            Some(b'\t') => from += 1,
            found => return found.map(|_| from),
        }
    }
    None
}

/// Index of the first byte that is no token character (RFC 9110 §5.6.2), or the length.
#[inline]
pub(crate) fn token(bytes: &[u8], mut from: usize) -> usize {
    while let Some(word) = bytes.get(from..).and_then(<[u8]>::first_chunk::<8>) {
        let odd = unlike_words(u64::from_le_bytes(*word));
        if odd != 0 {
            from += odd.trailing_zeros() as usize / 8;
            if !is_token(bytes[from]) {
                return from;
            }
            break;
        }
        from += 8;
    }
    until_not(bytes, from, TOKEN)
}

/// Index of the first byte that is not permitted in a target, or the length. See [`target`](crate::target);
/// some of these bytes are permitted in queries only.
#[inline]
pub(crate) fn target(bytes: &[u8], mut from: usize) -> usize {
    while let Some(block) = bytes.get(from..).and_then(<[u8]>::first_chunk::<16>) {
        // `"` and `#` differ in one bit, `<` and `>` too.
        let odd = |byte: u8| (byte <= b' ') | (byte >= 0x7f) | (byte | 1 == b'#') | (byte | 2 == b'>');
        if block.iter().fold(false, |any, &byte| any | odd(byte)) {
            break;
        }
        from += 16;
    }
    until_not(bytes, from, TARGET)
}

#[inline]
fn until_not(bytes: &[u8], from: usize, class: u8) -> usize {
    let Some(rest) = bytes.get(from..) else { return from };
    rest.iter().position(|&byte| CLASS[usize::from(byte)] & class == 0).map_or(bytes.len(), |at| from + at)
}

/// Position of the first control byte, including TAB, in a block; 16 if there is none.
#[inline]
fn first_control(block: u128) -> usize {
    let low = controls(block as u64);
    let found = if low == 0 { u128::from(controls((block >> 64) as u64)) << 64 } else { u128::from(low) };
    found.trailing_zeros() as usize / 8
}

/// Bit 7 of every control byte. Borrows corrupt the result behind the first one, which is not used.
#[inline]
fn controls(word: u64) -> u64 {
    let below = word.wrapping_sub(ONES * 0x20) & !word;
    let other = word ^ (ONES * 0x7f);
    let delete = other.wrapping_sub(ONES) & !other;
    (below | delete) & (ONES << 7)
}

/// Bit 7 of every byte that is neither letter, digit nor hyphen, of which nearly all names consist.
#[inline]
fn unlike_words(word: u64) -> u64 {
    let low = word & (ONES * 0x7f);
    // Bit 7 of each sum tells if the byte is at least the bound; no carries, since both are below 128.
    let at_least = |bytes: u64, bound: u8| bytes + ONES * u64::from(0x80 - bound);
    let folded = low | (ONES * 0x20);
    let letters = at_least(folded, b'a') & !at_least(folded, b'z' + 1);
    let digits = at_least(low, b'0') & !at_least(low, b'9' + 1);
    let hyphens = !at_least(low ^ (ONES * u64::from(b'-')), 1);
    (!(letters | digits | hyphens) | word) & (ONES << 7)
}

const ONES: u64 = u64::from_le_bytes([1; 8]);

/// Returns true for token characters (RFC 9110 §5.6.2).
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    CLASS[usize::from(byte)] & TOKEN != 0
}

const CONTROL: u8 = 1;
const TOKEN: u8 = 2;
const TARGET: u8 = 4;

/// Classes of every byte.
static CLASS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let value = byte as u8;
        let mut class = 0;
        if value.is_ascii_control() && value != b'\t' {
            class |= CONTROL;
        }
        if value.is_ascii_alphanumeric()
            || matches!(value, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
        {
            class |= TOKEN;
        }
        if value.is_ascii_graphic() && !matches!(value, b'"' | b'#' | b'<' | b'>') {
            class |= TARGET;
        }
        table[byte] = class;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::{CLASS, CONTROL, TARGET, TOKEN, control, target, token};

    #[test]
    fn scans_agree_with_the_table() {
        // Ends at every position of a block, and buffers shorter than one.
        for length in [1, 7, 8, 15, 16, 17, 31, 33, 48] {
            for value in 0..=255_u8 {
                for at in 0..length {
                    stops(value, at, length);
                }
            }
        }
    }

    fn stops(value: u8, at: usize, length: usize) {
        let class = CLASS[usize::from(value)];
        let mut bytes = vec![b'a'; length];
        // Bytes behind the first match do not matter, and stop the scan at the latest.
        bytes[at..].fill(0);
        bytes[at] = value;
        let next = (at + 1 < length).then_some(at + 1);
        let found = |member: bool| if member { Some(at) } else { next };
        for from in [0, at / 2, at] {
            let case = format!("{value} at {at} of {length} from {from}");
            assert_eq!(control(&bytes, from), found(class & CONTROL != 0), "{case}");
            assert_eq!(token(&bytes, from), found(class & TOKEN == 0).unwrap_or(length), "{case}");
            assert_eq!(target(&bytes, from), found(class & TARGET == 0).unwrap_or(length), "{case}");
        }
        assert_eq!(control(&bytes, length), None);
        assert_eq!(token(&bytes, length + 1), length + 1);
    }

    #[test]
    fn tokens_are_those_of_the_grammar() {
        let tokens: Vec<u8> = (0..=255).filter(|&byte| super::is_token(byte)).collect();
        let grammar = b"!#$%&'*+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ^_`abcdefghijklmnopqrstuvwxyz|~";
        assert_eq!(tokens, grammar);
    }
}
