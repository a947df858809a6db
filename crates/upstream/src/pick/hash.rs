//! Consistent hashing: weighted rendezvous.
//!
//! Every server draws a number for the key, by its name and the key alone, and the smallest number by weight
//! wins. A removed server gives its keys to those that were second for them, and no other key moves; a new
//! one takes its share from all the others. Nothing is precomputed, so that a growing share (a slow return)
//! moves keys one by one. The cost is one draw per server and request.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// Hash key of `bytes`: the same in every process, worker and version.
#[must_use]
pub fn key(bytes: &[u8]) -> u64 {
    // Constant: machines of a fleet, and a process and its successor, must agree.
    let mut hasher = SipHasher13::new_with_keys(0x6f66_6672_616d_7021, 0x6861_7368_6b65_7901);
    hasher.write(bytes);
    hasher.finish()
}

/// The number that the server of `seed` draws for `key`: exponentially distributed with the rate `weight`, so
/// that each server draws the smallest in proportion to its weight.
pub(super) fn draw(key: u64, seed: u64, weight: u64) -> f64 {
    let bits = mix(key ^ seed.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15);
    // In (0, 1]: 53 bits plus one, so that the logarithm is finite.
    let uniform = ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -uniform.ln() / weight as f64
}

/// Finalizer of SplitMix64: every input bit affects half of the output bits.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
