//! Usage limits of a key, and the action that each requires.

use crate::suite::{Suite, Version};

/// The sequence number must not wrap (RFC 8446 §5.3, RFC 5246 §6.1); this leaves room for an alert.
const SEQUENCE_LIMIT: u64 = u64::MAX - 0xffff;

/// Records reserved for the KeyUpdate itself, alerts, and a batch that is already laid out.
const RESERVE: u64 = 1024;

/// Action required by the use of a sending key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDemand {
    /// None: the key can protect another batch.
    None,
    /// TLS 1.3: send a KeyUpdate and change keys before the next batch.
    UpdateKey,
    /// TLS 1.2 has no key update: finish with close_notify before the next batch.
    Close,
}

/// Action for a key that has protected `sequence` records.
pub(crate) fn pressure(version: Version, suite: Suite, sequence: u64) -> KeyDemand {
    let limit = suite.confidentiality_limit().min(SEQUENCE_LIMIT);
    match version {
        _ if sequence < limit - RESERVE => KeyDemand::None,
        Version::Tls13 => KeyDemand::UpdateKey,
        Version::Tls12 => KeyDemand::Close,
    }
}

/// Returns true for a receiving key that the next record could exhaust.
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
            assert_eq!(pressure(Version::Tls13, suite, limit - RESERVE - 1), KeyDemand::None);
            assert_eq!(pressure(Version::Tls13, suite, limit - RESERVE), KeyDemand::UpdateKey);
            assert_eq!(pressure(Version::Tls12, suite, limit - RESERVE), KeyDemand::Close);
        }
        assert_eq!(pressure(Version::Tls13, Suite::Chacha20Poly1305, limit), KeyDemand::None);
        assert_eq!(pressure(Version::Tls12, Suite::Chacha20Poly1305, u64::MAX - 0xffff), KeyDemand::Close);
        assert!(exhausted(u64::MAX - 10) && !exhausted(limit));
    }
}
