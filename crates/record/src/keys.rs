//! Key material of one direction: key, IV and sequence number; and the nonce and additional data made from them.

use zeroize::Zeroize;

use crate::suite::{Suite, Version};

/// Longest key of any suite, in bytes.
pub(crate) const MAX_KEY: usize = 32;

/// Key material of one direction, wiped on drop.
pub struct KeyMaterial {
    pub(crate) version: Version,
    pub(crate) suite: Suite,
    pub(crate) sequence: u64,
    pub(crate) iv: [u8; 12],
    key: [u8; MAX_KEY],
}

impl KeyMaterial {
    /// Wraps a key and its IV.
    ///
    /// `iv` is the 12-byte write IV of TLS 1.3 and of ChaCha20-Poly1305 in TLS 1.2; for AES-GCM in TLS 1.2
    /// its first four bytes are the salt and the other eight the initial explicit nonce. `sequence` is the
    /// number of the next record.
    ///
    /// Returns `None` if `key` does not have the length of `suite`'s keys.
    #[must_use]
    pub fn new(version: Version, suite: Suite, key: &[u8], iv: [u8; 12], sequence: u64) -> Option<Self> {
        if key.len() != suite.key_len() {
            return None;
        }
        let mut own = [0; MAX_KEY];
        own[..key.len()].copy_from_slice(key);
        Some(Self { version, suite, sequence, iv, key: own })
    }

    /// The AEAD of the key.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// The raw key, padded with zeros.
    pub(crate) fn padded_key(&self) -> &[u8; MAX_KEY] {
        &self.key
    }

    /// The raw key in the length of its suite.
    #[cfg(test)]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key[..self.suite.key_len()]
    }
}

impl Drop for KeyMaterial {
    fn drop(&mut self) {
        self.key.zeroize();
        self.iv.zeroize();
    }
}

/// Nonce of record `sequence`: the IV with the sequence number XORed into its last eight bytes (RFC 8446
/// §5.3, RFC 7905 §2).
pub(crate) fn nonce(iv: &[u8; 12], sequence: u64) -> [u8; 12] {
    let mut nonce = *iv;
    for (byte, mask) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= mask;
    }
    nonce
}

/// Additional data of a TLS 1.2 record: sequence number, type, version, plaintext length (RFC 5246 §6.2.3.3).
#[inline]
pub(crate) fn tls12_additional_data(sequence: u64, typ_and_version: [u8; 3], plain: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    aad[8..11].copy_from_slice(&typ_and_version);
    aad[11..].copy_from_slice(&(plain as u16).to_be_bytes());
    aad
}
