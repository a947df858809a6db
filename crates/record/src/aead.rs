//! Seam to the cryptographic libraries: a small trait implemented over `ring` and `aws-lc-rs`.
//!
//! Which of the two is faster depends on the CPU: one gains by AVX2 and VAES, the other by AVX-512.
//! [`crate::measure()`] compares them at start, and its caller passes the choice as a [`Library`].

use crate::keys::MAX_KEY;
use crate::suite::Suite;

/// Length of the authentication tag of every supported AEAD, in bytes.
pub const TAG: usize = 16;

/// The ciphertext did not authenticate under this key, nonce and associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// An AEAD key, expanded for use.
pub trait Aead: Send + Sync {
    /// Encrypts `data` in place and returns its tag.
    ///
    /// # Panics
    /// Never for the sizes of a TLS record; the libraries reject only data above 2^36 bytes.
    fn seal(&self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; TAG];

    /// Decrypts `data`, whose last [`TAG`] bytes are the tag, in place; the plaintext is then at the front of
    /// `data`.
    ///
    /// # Errors
    /// [`Forged`] if the tag does not match; the content of `data` is then undefined.
    fn open(&self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> Result<(), Forged>;
}

/// A cryptographic library that can protect records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The implementation of the `ring` crate.
    Ring,
    /// The implementation of the `aws-lc-rs` crate.
    AwsLc,
}

impl Library {
    /// Every library; on a tie in speed the first is chosen.
    pub const ALL: [Self; 2] = [Self::Ring, Self::AwsLc];

    /// Name of the crate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::AwsLc => "aws-lc-rs",
        }
    }

    /// Expands the key at the front of `bytes` with this library.
    pub(crate) fn expand(self, suite: Suite, bytes: &[u8; MAX_KEY]) -> Box<dyn Aead> {
        let key = &bytes[..suite.key_len()];
        match self {
            Self::Ring => Box::new(RingKey::new(suite, key)),
            Self::AwsLc => Box::new(AwsLcKey::new(suite, key)),
        }
    }
}

/// Implements [`Aead`] over a library's `LessSafeKey`; aws-lc-rs mirrors ring's interface.
macro_rules! library_key {
    ($name:ident, $library:ident) => {
        struct $name($library::aead::LessSafeKey);

        impl $name {
            fn new(suite: Suite, key: &[u8]) -> Self {
                let algorithm = match suite {
                    Suite::Aes128Gcm => &$library::aead::AES_128_GCM,
                    Suite::Aes256Gcm => &$library::aead::AES_256_GCM,
                    Suite::Chacha20Poly1305 => &$library::aead::CHACHA20_POLY1305,
                };
                // `Library::expand` cuts the key to its length, the only thing checked here.
                let key = $library::aead::UnboundKey::new(algorithm, key).expect("the key has its length");
                Self($library::aead::LessSafeKey::new(key))
            }
        }

        impl Aead for $name {
            #[inline]
            fn seal(&self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; TAG] {
                let nonce = $library::aead::Nonce::assume_unique_for_key(nonce);
                let tag = self
                    .0
                    .seal_in_place_separate_tag(nonce, $library::aead::Aad::from(aad), data)
                    // A record has at most 2^14 + 1 bytes, far below the AEAD's own limit.
                    .expect("a record is short enough");
                let mut out = [0; TAG];
                out.copy_from_slice(tag.as_ref());
                out
            }

            #[inline]
            fn open(&self, nonce: [u8; 12], aad: &[u8], data: &mut [u8]) -> Result<(), Forged> {
                let nonce = $library::aead::Nonce::assume_unique_for_key(nonce);
                self.0
                    .open_in_place(nonce, $library::aead::Aad::from(aad), data)
                    .map(|_| ())
                    .map_err(|_| Forged)
            }
        }
    };
}

library_key!(RingKey, ring);
library_key!(AwsLcKey, aws_lc_rs);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_agree() {
        for suite in Suite::ALL {
            let [ring, aws] = Library::ALL.map(|library| library.expand(suite, &[7; MAX_KEY]));
            let mut sealed = *b"the quick brown fox................";
            let plain = sealed;
            let tag = ring.seal([1; 12], b"aad", &mut sealed);
            let mut whole = [&sealed[..], &tag[..]].concat();
            aws.open([1; 12], b"aad", &mut whole).unwrap();
            assert_eq!(&whole[..plain.len()], plain);
            whole[0] ^= 1;
            assert_eq!(ring.open([1; 12], b"aad", &mut whole), Err(Forged));
        }
    }
}
