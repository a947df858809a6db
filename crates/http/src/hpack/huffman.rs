//! Huffman code of strings (RFC 7541 §5.2, Appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and
//! follow those of the next shorter length. So the lengths define it, and all tables are computed from them
//! at compile time.

use super::HpackFault;

/// Number of symbols: the bytes, and the end of a string.
const SYMBOLS: usize = 257;

/// The EOS symbol, which no string may contain.
const END: u16 = 256;

/// Length of every symbol's code, in bits (RFC 7541 Appendix B).
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const SHORTEST: usize = 5;
const LONGEST: usize = 30;

/// Tables of the code for both directions.
struct HuffmanCode {
    /// Code of every symbol, in the lowest bits.
    codes: [u32; SYMBOLS],
    /// Symbols in the order of their codes.
    order: [u16; SYMBOLS],
    /// Per length from [`SHORTEST`] on: the first longer code, as the highest bits of a word. The longest
    /// length has none.
    ends: [u32; LONGEST - SHORTEST],
    /// Per length: number of symbols with a shorter code.
    shorter: [u16; LONGEST + 1],
}

static CODE: HuffmanCode = code();

const fn code() -> HuffmanCode {
    let mut code = HuffmanCode {
        codes: [0; SYMBOLS],
        order: [0; SYMBOLS],
        ends: [0; LONGEST - SHORTEST],
        shorter: [0; LONGEST + 1],
    };
    let (mut next, mut count, mut length) = (0, 0, SHORTEST);
    while length <= LONGEST {
        code.shorter[length] = count as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                code.codes[symbol] = next;
                code.order[count] = symbol as u16;
                next += 1;
                count += 1;
            }
            symbol += 1;
        }
        if length < LONGEST {
            code.ends[length - SHORTEST] = next << (u32::BITS as usize - length);
        }
        next <<= 1;
        length += 1;
    }
    code
}

/// Number of bits per table lookup: two of the most frequent symbols, in a table that leaves space in the
/// first-level cache.
const LOOK: u32 = 11;

/// Decoding of the next bits: one or two symbols, their number, and the sum of their lengths, from the lowest
/// byte on; 0 if the first code is longer than [`LOOK`].
static PAIRS: [u32; 1 << LOOK] = pairs();

const fn pairs() -> [u32; 1 << LOOK] {
    let code = code();
    let mut pairs = [0; 1 << LOOK];
    let mut first = 0;
    while first < SYMBOLS && LENGTHS[code.order[first] as usize] as u32 <= LOOK {
        let one = code.order[first] as usize;
        let left = LOOK - LENGTHS[one] as u32;
        let from = code.codes[one] << left;
        let mut at = 0;
        while at < 1 << left {
            pairs[(from + at) as usize] = one as u32 | 1 << 16 | (LENGTHS[one] as u32) << 24;
            at += 1;
        }
        let mut second = 0;
        while LENGTHS[code.order[second] as usize] as u32 <= left {
            let two = code.order[second] as usize;
            let bits = (LENGTHS[one] + LENGTHS[two]) as u32;
            let free = LOOK - bits;
            let from = from + (code.codes[two] << free);
            let mut at = 0;
            while at < 1 << free {
                pairs[(from + at) as usize] = one as u32 | (two as u32) << 8 | 2 << 16 | bits << 24;
                at += 1;
            }
            second += 1;
        }
        first += 1;
    }
    pairs
}

/// Buffer size that [`decode`] needs for a string of `coded` bytes: no code is shorter than 5 bits, and the
/// last symbol may be written with another behind it.
pub(super) fn room(coded: usize) -> usize {
    coded * 8 / SHORTEST + 2
}

/// Decodes a string into `out`, which has [`room`] for it, and returns its length.
pub(super) fn decode(coded: &[u8], out: &mut [u8]) -> Result<usize, HpackFault> {
    let mut rest = coded;
    // The next bits are highest. `have` of them are valid; below are bits of `rest`, or zeros.
    let (mut window, mut have, mut length) = (0_u64, 0_u32, 0);
    while let Some(chunk) = rest.first_chunk::<8>() {
        window |= u64::from_be_bytes(*chunk) >> have;
        let taken = (63 - have) / 8;
        rest = &rest[taken as usize..];
        have += taken * 8;
        while have >= LOOK {
            let pair = PAIRS[(window >> (u64::BITS - LOOK)) as usize];
            let bits = if pair == 0 {
                if (have as usize) < LONGEST {
                    break;
                }
                let (symbol, bits) = symbol(window);
                if symbol == END {
                    return Err(HpackFault::HuffmanEnd);
                }
                out[length] = symbol as u8;
                length += 1;
                bits
            } else {
                length += put(pair, &mut out[length..]);
                pair >> 24
            };
            window <<= bits;
            have -= bits;
        }
    }
    last(rest, window, have, out, length)
}

/// Writes the symbols of a pair; for a single symbol, another byte behind it, too.
#[inline]
fn put(pair: u32, out: &mut [u8]) -> usize {
    out[..2].copy_from_slice(&(pair as u16).to_le_bytes());
    (pair >> 16 & 0xff) as usize
}

/// Decodes the last bytes, fewer than 8, up to the padding.
fn last(
    mut rest: &[u8],
    mut window: u64,
    mut have: u32,
    out: &mut [u8],
    mut length: usize,
) -> Result<usize, HpackFault> {
    loop {
        while have < 56
            && let Some((&byte, behind)) = rest.split_first()
        {
            window |= u64::from(byte) << (56 - have);
            have += 8;
            rest = behind;
        }
        // Filled with ones behind the end, valid padding does not match a symbol.
        let padded = window | u64::MAX >> have;
        let pair = PAIRS[(padded >> (u64::BITS - LOOK)) as usize];
        if pair != 0 && pair >> 24 <= have {
            length += put(pair, &mut out[length..]);
            window <<= pair >> 24;
            have -= pair >> 24;
            continue;
        }
        let (symbol, bits) = symbol(padded);
        if bits > have {
            return padding(padded, have).map(|()| length);
        }
        if symbol == END {
            return Err(HpackFault::HuffmanEnd);
        }
        out[length] = symbol as u8;
        length += 1;
        window <<= bits;
        have -= bits;
    }
}

/// The symbol at the front of the window, and the length of its code.
#[inline]
fn symbol(window: u64) -> (u16, u32) {
    let word = (window >> 32) as u32;
    let beyond = CODE.ends.iter().map(|&end| u32::from(end <= word)).sum::<u32>() as usize;
    let begin = if beyond == 0 { 0 } else { CODE.ends[beyond - 1] };
    let length = SHORTEST + beyond;
    let at = usize::from(CODE.shorter[length]) + ((word - begin) >> (u32::BITS as usize - length)) as usize;
    (CODE.order[at], length as u32)
}

/// Validates that the last `have` bits, with ones behind them, are padding: fewer than 8 bits, all ones.
fn padding(padded: u64, have: u32) -> Result<(), HpackFault> {
    if have > 7 {
        return Err(HpackFault::HuffmanPaddingTooLong);
    }
    if padded != u64::MAX { Err(HpackFault::HuffmanPadding) } else { Ok(()) }
}

/// Length of `text` in coded bytes.
#[inline]
pub(super) fn length(text: &[u8]) -> usize {
    text.iter().map(|&byte| usize::from(LENGTHS[usize::from(byte)])).sum::<usize>().div_ceil(8)
}

/// Appends `text` in Huffman code.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    // Pending bits are lowest, at most 31 between symbols.
    let (mut bits, mut count) = (0_u64, 0_u32);
    for &byte in text {
        let symbol = usize::from(byte);
        bits = bits << LENGTHS[symbol] | u64::from(CODE.codes[symbol]);
        count += u32::from(LENGTHS[symbol]);
        if count >= 32 {
            count -= 32;
            out.extend_from_slice(&((bits >> count) as u32).to_be_bytes());
        }
    }
    let left = count.div_ceil(8);
    let padded = bits << (32 - count) | u64::from(u32::MAX >> count);
    out.extend_from_slice(&(padded as u32).to_be_bytes()[..left as usize]);
}

#[cfg(test)]
mod tests;
