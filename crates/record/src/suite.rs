//! Protocol versions and AEAD algorithms of record protection.

use crate::block::Overhead;

/// A protocol version with supported records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// TLS 1.2, RFC 5246; AEAD suites only.
    Tls12,
    /// TLS 1.3, RFC 8446; every suite.
    Tls13,
}

/// The AEAD of a cipher suite; the suite's hash matters for key updates only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// AES-128-GCM: RFC 5116 §5.1, in TLS 1.2 with the nonces of RFC 5288.
    Aes128Gcm,
    /// AES-256-GCM: RFC 5116 §5.2, in TLS 1.2 with the nonces of RFC 5288.
    Aes256Gcm,
    /// ChaCha20-Poly1305: RFC 8439, in TLS 1.2 as RFC 7905.
    Chacha20Poly1305,
}

impl Suite {
    /// Every suite, in the order of [`Suite::index`].
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::Chacha20Poly1305];

    /// Position in [`Suite::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Length of the key in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }

    /// Length of the hash of the TLS 1.3 cipher suite with this AEAD, in bytes (RFC 8446 §B.4).
    #[must_use]
    pub const fn hash_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => 32,
            Self::Aes256Gcm => 48,
        }
    }

    /// Name of the AEAD as in RFC 5116 and RFC 8439.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::Chacha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    /// Number of records that one key may protect before the success probability of an attack on
    /// confidentiality exceeds 2^-57: 2^24.5 full records for AES-GCM (RFC 8446 §5.5), rounded down as in
    /// rustls; ChaCha20-Poly1305 is bounded by the sequence number alone.
    #[must_use]
    pub const fn confidentiality_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 24,
            Self::Chacha20Poly1305 => u64::MAX,
        }
    }
}

/// Wire format of a record, determined by version and suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 8446 §5.2: inner content type behind the content, nonce from the sequence number.
    Tls13,
    /// RFC 5288 §3: eight bytes of explicit nonce in front of the ciphertext.
    Tls12Explicit,
    /// RFC 7905 §2: nonce from the sequence number, none on the wire.
    Tls12Implicit,
}

impl Format {
    pub(crate) const fn of(version: Version, suite: Suite) -> Self {
        match (version, suite) {
            (Version::Tls13, _) => Self::Tls13,
            (Version::Tls12, Suite::Chacha20Poly1305) => Self::Tls12Implicit,
            (Version::Tls12, _) => Self::Tls12Explicit,
        }
    }

    pub(crate) const fn overhead(self) -> Overhead {
        match self {
            Self::Tls13 => Overhead { head: 5, tail: 1 + 16 },
            Self::Tls12Explicit => Overhead { head: 5 + 8, tail: 16 },
            Self::Tls12Implicit => Overhead { head: 5, tail: 16 },
        }
    }
}
