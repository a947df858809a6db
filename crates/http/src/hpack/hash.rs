//! Hash of short byte strings, for finding fields in the encoder's table.
//!
//! It needs no secret: fields made to collide cost one comparison per entry of a table of at most 128.

/// Initial value of the hash of a name.
pub(super) const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// Continues the hash `seed` with all of `bytes`.
#[inline]
pub(super) const fn bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed ^ bytes.len() as u64;
    let mut rest = bytes;
    while let Some((chunk, behind)) = rest.split_first_chunk::<8>() {
        hash = mix(hash, u64::from_le_bytes(*chunk));
        rest = behind;
    }
    if rest.is_empty() {
        return hash;
    }
    mix(hash, last(bytes, rest))
}

/// Packs `rest`, the last bytes of `bytes` and fewer than 8, into a number. Some bytes may be in it twice;
/// together with the length, strings still differ.
#[inline]
const fn last(bytes: &[u8], rest: &[u8]) -> u64 {
    if let Some(chunk) = bytes.last_chunk::<8>() {
        return u64::from_le_bytes(*chunk);
    }
    if let (Some(front), Some(back)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        return (u32::from_le_bytes(*front) as u64) << 32 | u32::from_le_bytes(*back) as u64;
    }
    let (front, middle, back) = (rest[0], rest[rest.len() / 2], rest[rest.len() - 1]);
    (front as u64) << 16 | (middle as u64) << 8 | back as u64
}

/// Multiplies and folds: every bit of the word affects every bit of the hash.
#[inline]
const fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word) as u128 * FACTOR as u128;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_differ_in_every_byte() {
        let text: Vec<u8> = (0..40).collect();
        for length in 0..text.len() {
            let whole = bytes(SEED, &text[..length]);
            assert_ne!(whole, bytes(SEED, &text[..=length]));
            for at in 0..length {
                let mut other = text[..length].to_vec();
                other[at] ^= 0x20;
                assert_ne!(whole, bytes(SEED, &other), "{length} {at}");
            }
        }
    }
}
