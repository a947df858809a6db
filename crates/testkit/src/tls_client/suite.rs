//! The cipher suites that the client speaks, and the primitives of `ring` behind each.

use ring::{aead, digest, hmac};

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// An AEAD, with the hash that its suites have in both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// AES-128-GCM with SHA-256.
    Aes128Gcm,
    /// AES-256-GCM with SHA-384.
    Aes256Gcm,
    /// ChaCha20-Poly1305 with SHA-256.
    ChaCha20Poly1305,
}

/// One version and one cipher: what the client offers, alone, so that the server has no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    /// The version of TLS.
    pub version: Version,
    /// The AEAD and hash.
    pub cipher: Cipher,
}

impl Suite {
    /// Every suite of the client.
    pub const ALL: [Self; 6] = [
        Self::new(Version::Tls13, Cipher::Aes128Gcm),
        Self::new(Version::Tls13, Cipher::Aes256Gcm),
        Self::new(Version::Tls13, Cipher::ChaCha20Poly1305),
        Self::new(Version::Tls12, Cipher::Aes128Gcm),
        Self::new(Version::Tls12, Cipher::Aes256Gcm),
        Self::new(Version::Tls12, Cipher::ChaCha20Poly1305),
    ];

    /// The suite of this version and cipher.
    #[must_use]
    pub const fn new(version: Version, cipher: Cipher) -> Self {
        Self { version, cipher }
    }

    /// The name that OpenSSL's `-ciphersuites` (TLS 1.3) or `-cipher` (TLS 1.2, ECDSA) takes.
    #[must_use]
    pub const fn openssl_name(self) -> &'static str {
        match (self.version, self.cipher) {
            (Version::Tls13, Cipher::Aes128Gcm) => "TLS_AES_128_GCM_SHA256",
            (Version::Tls13, Cipher::Aes256Gcm) => "TLS_AES_256_GCM_SHA384",
            (Version::Tls13, Cipher::ChaCha20Poly1305) => "TLS_CHACHA20_POLY1305_SHA256",
            (Version::Tls12, Cipher::Aes128Gcm) => "ECDHE-ECDSA-AES128-GCM-SHA256",
            (Version::Tls12, Cipher::Aes256Gcm) => "ECDHE-ECDSA-AES256-GCM-SHA384",
            (Version::Tls12, Cipher::ChaCha20Poly1305) => "ECDHE-ECDSA-CHACHA20-POLY1305",
        }
    }

    /// The registered numbers; TLS 1.2 has one for ECDSA and one for RSA certificates.
    #[must_use]
    pub const fn ids(self) -> &'static [u16] {
        match (self.version, self.cipher) {
            (Version::Tls13, Cipher::Aes128Gcm) => &[0x1301],
            (Version::Tls13, Cipher::Aes256Gcm) => &[0x1302],
            (Version::Tls13, Cipher::ChaCha20Poly1305) => &[0x1303],
            (Version::Tls12, Cipher::Aes128Gcm) => &[0xc02b, 0xc02f],
            (Version::Tls12, Cipher::Aes256Gcm) => &[0xc02c, 0xc030],
            (Version::Tls12, Cipher::ChaCha20Poly1305) => &[0xcca9, 0xcca8],
        }
    }

    /// Whether each record carries eight bytes of its nonce in the open (TLS 1.2 with GCM, RFC 5288 §3).
    #[must_use]
    pub const fn explicit_nonce(self) -> bool {
        matches!(self.version, Version::Tls12) && !matches!(self.cipher, Cipher::ChaCha20Poly1305)
    }

    pub(crate) fn aead(self) -> &'static aead::Algorithm {
        match self.cipher {
            Cipher::Aes128Gcm => &aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }

    pub(crate) fn hmac(self) -> hmac::Algorithm {
        match self.cipher {
            Cipher::Aes256Gcm => hmac::HMAC_SHA384,
            _ => hmac::HMAC_SHA256,
        }
    }

    pub(crate) fn digest(self, data: &[u8]) -> Vec<u8> {
        let algorithm = match self.cipher {
            Cipher::Aes256Gcm => &digest::SHA384,
            _ => &digest::SHA256,
        };
        digest::digest(algorithm, data).as_ref().to_vec()
    }

    /// Bytes of the hash.
    pub(crate) fn hash_len(self) -> usize {
        self.hmac().digest_algorithm().output_len()
    }
}
