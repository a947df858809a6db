//! What a handshake yields for one direction: a key, an IV, and the sequence number reached.

use zeroize::Zeroize;

use crate::suite::{Suite, Version};

/// The longest key of any suite, in bytes.
pub(crate) const MAX_KEY: usize = 32;

/// The key material of one direction. It is wiped when dropped.
pub struct KeyMaterial {
    pub(crate) version: Version,
    pub(crate) suite: Suite,
    pub(crate) sequence: u64,
    pub(crate) iv: [u8; 12],
    key: [u8; MAX_KEY],
}

impl KeyMaterial {
    /// Takes a key and its IV.
    ///
    /// `iv` is the 12-byte write IV of TLS 1.3 and of ChaCha20-Poly1305 in TLS 1.2; for AES-GCM in
    /// TLS 1.2 its first four bytes are the salt and the other eight start the explicit nonces.
    /// `sequence` is the number of the next record.
    ///
    /// Returns `None` where `key` does not have the length that `suite` wants.
    #[must_use]
    pub fn new(version: Version, suite: Suite, key: &[u8], iv: [u8; 12], sequence: u64) -> Option<Self> {
        if key.len() != suite.key_len() {
            return None;
        }
        let mut own = [0; MAX_KEY];
        own[..key.len()].copy_from_slice(key);
        Some(Self { version, suite, sequence, iv, key: own })
    }

    /// The AEAD that the key is for.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// The raw key with zeros behind it.
    pub(crate) fn padded_key(&self) -> &[u8; MAX_KEY] {
        &self.key
    }

    /// The raw key, as long as the suite wants it.
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

/// The nonce of record `sequence`: the IV with the sequence number added by XOR into its last
/// eight bytes (RFC 8446 §5.3, RFC 7905 §2).
pub(crate) fn nonce(iv: &[u8; 12], sequence: u64) -> [u8; 12] {
    let mut nonce = *iv;
    for (byte, mask) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= mask;
    }
    nonce
}
