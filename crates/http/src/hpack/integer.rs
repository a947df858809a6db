//! Integers with a prefix (RFC 7541 §5.1).

use super::HpackFault;

/// Maximum number of bytes behind a prefix, which keeps integers below 2²⁸ plus a prefix. No valid index,
/// size or length is larger.
const MOST: u32 = 4;

/// Reads the integer with a prefix of `bits` bits (1 to 8) at the end of the byte at `at`, and moves `at` behind it.
#[inline]
pub(super) fn decode(block: &[u8], at: &mut usize, bits: u32) -> Result<usize, HpackFault> {
    let mask = 0xff_u8 >> (8 - bits);
    let prefix = *block.get(*at).ok_or(HpackFault::Truncated)? & mask;
    *at += 1;
    if prefix < mask {
        return Ok(usize::from(prefix));
    }
    behind(block, at).map(|more| usize::from(mask) + more)
}

/// Reads the bytes behind a full prefix. Redundant zeros are rejected: no encoder needs them, and they would
/// give an integer more than one form.
fn behind(block: &[u8], at: &mut usize) -> Result<usize, HpackFault> {
    let mut value = 0;
    for count in 0..MOST {
        let byte = *block.get(*at).ok_or(HpackFault::Truncated)?;
        *at += 1;
        value |= usize::from(byte & 0x7f) << (7 * count);
        if byte < 0x80 {
            return if byte == 0 && count > 0 { Err(HpackFault::Integer) } else { Ok(value) };
        }
    }
    Err(HpackFault::Integer)
}

/// Writes `value` with a prefix of `bits` bits behind the bits of `first`.
#[inline]
pub(super) fn encode(value: usize, bits: u32, first: u8, out: &mut Vec<u8>) {
    let mask = 0xff_u8 >> (8 - bits);
    if value < usize::from(mask) {
        out.push(first | value as u8);
        return;
    }
    out.push(first | mask);
    let mut rest = value - usize::from(mask);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Examples of RFC 7541 §C.1, and the limits of the range.
    const FORMS: [(usize, u32, &[u8]); 10] = [
        (10, 5, &[0b01010]),
        (1337, 5, &[0b11111, 0b1001_1010, 0b0000_1010]),
        (42, 8, &[0b0010_1010]),
        (30, 5, &[30]),
        (31, 5, &[31, 0]),
        (127, 7, &[127, 0]),
        (31 + 127, 5, &[31, 127]),
        (31 + 128, 5, &[31, 0x80, 1]),
        (255, 8, &[255, 0]),
        (127 + (1 << 28) - 1, 7, &[127, 0xff, 0xff, 0xff, 0x7f]),
    ];

    #[test]
    fn integers_have_one_form() {
        for (value, bits, form) in FORMS {
            let mut out = Vec::new();
            encode(value, bits, 0, &mut out);
            assert_eq!(out, form, "{value}");
            let mut at = 0;
            assert_eq!(decode(form, &mut at, bits), Ok(value));
            assert_eq!(at, form.len());
            for end in 0..form.len() {
                assert_eq!(decode(&form[..end], &mut 0, bits), Err(HpackFault::Truncated), "{value} {end}");
            }
        }
    }

    #[test]
    fn bits_before_the_prefix_are_left_alone() {
        let mut out = Vec::new();
        encode(2, 4, 0xf0, &mut out);
        encode(15, 4, 0xa0, &mut out);
        assert_eq!(out, [0xf2, 0xaf, 0]);
        assert_eq!(decode(&out, &mut 0, 4), Ok(2));
        assert_eq!(decode(&out, &mut 1, 4), Ok(15));
    }

    #[test]
    fn other_forms_are_rejected() {
        let forms: [&[u8]; 4] = [
            &[31, 0x80, 0],
            &[31, 0xff, 0x80, 0x80, 0],
            &[31, 0x80, 0x80, 0x80, 0x80, 1],
            &[31, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ];
        for form in forms {
            assert_eq!(decode(form, &mut 0, 5), Err(HpackFault::Integer), "{form:?}");
        }
    }
}
