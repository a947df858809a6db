//! Key schedule after a TLS 1.3 handshake: the keys of a traffic secret, and the next secret after a
//! KeyUpdate (RFC 8446 §7.1 to §7.3).

use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use zeroize::Zeroize;

use crate::keys::{KeyMaterial, MAX_KEY};
use crate::suite::{Suite, Version};

/// Longest hash of a cipher suite in bytes: SHA-384.
const MAX_SECRET: usize = 48;

/// Application traffic secret of one direction (RFC 8446 §7.1), wiped on drop.
#[derive(Clone)]
pub struct TrafficSecret {
    suite: Suite,
    bytes: [u8; MAX_SECRET],
}

impl TrafficSecret {
    /// Wraps a secret of a suite with this AEAD.
    ///
    /// Returns `None` if it does not have the length of the suite's hash (RFC 8446 §B.4).
    #[must_use]
    pub fn new(suite: Suite, secret: &[u8]) -> Option<Self> {
        if secret.len() != suite.hash_len() {
            return None;
        }
        let mut bytes = [0; MAX_SECRET];
        bytes[..secret.len()].copy_from_slice(secret);
        Some(Self { suite, bytes })
    }

    /// Advances to the secret that follows a KeyUpdate, and returns its keys (RFC 8446 §7.2).
    pub fn update(&mut self) -> KeyMaterial {
        let mut next = [0; MAX_SECRET];
        self.expand(b"traffic upd", &mut next[..self.suite.hash_len()]);
        self.bytes.copy_from_slice(&next);
        next.zeroize();
        self.keys()
    }

    /// The keys of this secret, with sequence number 0 (RFC 8446 §7.3).
    #[must_use]
    pub fn keys(&self) -> KeyMaterial {
        let (mut key, mut iv) = ([0; MAX_KEY], [0; 12]);
        let key_len = self.suite.key_len();
        self.expand(b"key", &mut key[..key_len]);
        self.expand(b"iv", &mut iv);
        // The key has the length of the suite.
        let material = KeyMaterial::new(Version::Tls13, self.suite, &key[..key_len], iv, 0)
            .expect("key length fits the suite");
        key.zeroize();
        material
    }

    /// HKDF-Expand-Label without a context (RFC 8446 §7.1).
    fn expand(&self, label: &[u8], out: &mut [u8]) {
        let algorithm = if self.suite.hash_len() == 48 { HKDF_SHA384 } else { HKDF_SHA256 };
        let prk = Prk::new_less_safe(algorithm, &self.bytes[..self.suite.hash_len()]);
        // Both are shorter than 256 bytes.
        let length = (out.len() as u16).to_be_bytes();
        let label_length = [(PREFIX.len() + label.len()) as u8];
        // HKDF yields up to 255 hashes; at most one is needed.
        prk.expand(&[&length, &label_length, PREFIX, label, &[0]], Length(out.len()))
            .and_then(|okm| okm.fill(out))
            .expect("no more than one hash is asked for");
    }
}

impl Drop for TrafficSecret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// Prefix of every label (RFC 8446 §7.1).
const PREFIX: &[u8] = b"tls13 ";

/// Output length of HKDF, in bytes.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let hex: Vec<_> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        core::array::from_fn(|i| {
            u8::from_str_radix(core::str::from_utf8(&hex[2 * i..2 * i + 2]).unwrap(), 16).unwrap()
        })
    }

    /// RFC 8448 §3, "Simple 1-RTT Handshake": the application traffic secrets and their keys.
    #[test]
    fn the_keys_of_rfc_8448() {
        let server: [u8; 32] = bytes(
            "a1 1a f9 f0 55 31 f8 56 ad 47 11 6b 45 a9 50 32 82 04 b4 f4 4b fb 6b 3a 4b 4f 1f 3f cb 63 16 43",
        );
        let keys = TrafficSecret::new(Suite::Aes128Gcm, &server).unwrap().keys();
        assert_eq!(keys.key(), bytes::<16>("9f 02 28 3b 6c 9c 07 ef c2 6b b9 f2 ac 92 e3 56"));
        assert_eq!(keys.iv, bytes("cf 78 2b 88 dd 83 54 9a ad f1 e9 84"));

        let client: [u8; 32] = bytes(
            "9e 40 64 6c e7 9a 7f 9d c0 5a f8 88 9b ce 65 52 87 5a fa 0b 06 df 00 87 f7 92 eb b7 c1 75 04 a5",
        );
        let keys = TrafficSecret::new(Suite::Aes128Gcm, &client).unwrap().keys();
        assert_eq!(keys.key(), bytes::<16>("17 42 2d da 59 6e d5 d9 ac d8 90 e3 c6 3f 50 51"));
        assert_eq!(keys.iv, bytes("5b 78 92 3d ee 08 57 90 33 e5 23 d9"));
        assert_eq!(keys.sequence, 0);
    }

    #[test]
    fn secrets_have_the_length_of_the_hash() {
        for suite in Suite::ALL {
            let right = if suite == Suite::Aes256Gcm { 48 } else { 32 };
            for length in [0, 16, 31, 32, 33, 47, 48, 49] {
                assert_eq!(
                    TrafficSecret::new(suite, &vec![1; length]).is_some(),
                    length == right,
                    "{suite:?}"
                );
            }
        }
    }

    #[test]
    fn every_update_yields_new_keys() {
        for suite in Suite::ALL {
            let mut secret = TrafficSecret::new(suite, &vec![5; suite.hash_len()]).unwrap();
            let mut seen = vec![secret.keys().key().to_vec()];
            for _ in 0..5 {
                let keys = secret.update();
                assert_eq!(keys.key(), secret.keys().key());
                assert!(!seen.contains(&keys.key().to_vec()), "{suite:?}");
                seen.push(keys.key().to_vec());
            }
        }
    }
}
