//! How long one key may be used, and what has to happen before it is used up.

use crate::suite::{Suite, Version};

/// The sequence number may never wrap (RFC 8446 §5.3, RFC 5246 §6.1); this leaves room for an alert.
const SEQUENCE_LIMIT: u64 = u64::MAX - 0xffff;

/// Records kept back for the KeyUpdate itself, alerts, and a batch that is already laid out.
const RESERVE: u64 = 1024;

/// What the use so far of a sending key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// The key is good for another batch.
    None,
    /// TLS 1.3: send a KeyUpdate and change keys before the next batch.
    UpdateKey,
    /// TLS 1.2 has no key update: finish with close_notify before the next batch.
    Close,
}

/// The pressure on a key that has protected `sequence` records.
pub(crate) fn pressure(version: Version, suite: Suite, sequence: u64) -> Pressure {
    let limit = suite.confidentiality_limit().min(SEQUENCE_LIMIT);
    match version {
        _ if sequence < limit - RESERVE => Pressure::None,
        Version::Tls13 => Pressure::UpdateKey,
        Version::Tls12 => Pressure::Close,
    }
}

/// Whether a receiving key has seen so many records that the next could wrap the sequence number.
pub(crate) fn exhausted(sequence: u64) -> bool {
    sequence >= SEQUENCE_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_changed_before_the_limit() {
        let limit = 1 << 24;
        for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm] {
            assert_eq!(pressure(Version::Tls13, suite, limit - RESERVE - 1), Pressure::None);
            assert_eq!(pressure(Version::Tls13, suite, limit - RESERVE), Pressure::UpdateKey);
            assert_eq!(pressure(Version::Tls12, suite, limit - RESERVE), Pressure::Close);
        }
        assert_eq!(pressure(Version::Tls13, Suite::Chacha20Poly1305, limit), Pressure::None);
        assert_eq!(pressure(Version::Tls12, Suite::Chacha20Poly1305, u64::MAX - 0xffff), Pressure::Close);
        assert!(exhausted(u64::MAX - 10) && !exhausted(limit));
    }
}
