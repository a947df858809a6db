//! A certificate chain with its key, ready for rustls, and the facts needed to choose it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustls::SignatureScheme;
use rustls::sign::{CertifiedKey, SigningKey};

use crate::describe::Description;
use crate::name::DnsPattern;

/// A certificate that the proxy can present.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The chain, leaf first, and its key, in the form for rustls resolvers.
    pub certified_key: Arc<CertifiedKey>,
    /// The DNS names; taken from the CN only without a subjectAltName.
    pub names: Vec<DnsPattern>,
    /// The IP addresses. Clients do not send them in SNI (RFC 6066 §3).
    pub addresses: Vec<IpAddr>,
    /// The kind of the key.
    pub kind: KeyKind,
    /// The start of the validity period.
    pub not_before: SystemTime,
    /// The end of the validity period.
    pub not_after: SystemTime,
    /// The end of validity of the stapled OCSP response; `None` without a response, or if it has no end.
    pub staple_until: Option<SystemTime>,
    /// The leaf's description for the PROXY protocol.
    pub description: Description,
    /// The origin of the certificate.
    pub source: CertificateOrigin,
    /// The flag that records uses, for a certificate that is renewed only while it is in use.
    pub used: Option<UseMark>,
    /// The signature schemes of the key.
    pub(crate) schemes: &'static [SignatureScheme],
}

/// The origin of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateOrigin {
    /// PEM files of the operator.
    Files {
        /// The path configured for the certificate.
        cert: PathBuf,
        /// The path configured for the key, if different.
        key: Option<PathBuf>,
    },
    /// An authority, by ACME.
    Acme {
        /// The path of the stored certificate and key.
        path: PathBuf,
    },
    /// The local CA of this installation.
    LocalCa {
        /// The path at which the local CA stores it.
        path: PathBuf,
    },
}

impl CertificateOrigin {
    /// `file`, `acme` or `local_ca`, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            CertificateOrigin::Files { .. } => "file",
            CertificateOrigin::Acme { .. } => "acme",
            CertificateOrigin::LocalCa { .. } => "local_ca",
        }
    }
}

/// A flag that a client got the certificate since it was last taken. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct UseMark(Arc<AtomicBool>);

impl UseMark {
    /// Sets the flag. Costs a load if it is set already.
    pub fn set(&self) {
        if !self.0.load(Ordering::Relaxed) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Clears the flag, and returns its value.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl PartialEq for UseMark {
    /// Compares identity: clones are equal.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for UseMark {}

/// The kind of a certificate's key, in order of preference: an ECDSA signature costs a twentieth of an RSA
/// one, and more clients support it than Ed25519.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// ECDSA on the curve P-256, P-384 or P-521.
    Ecdsa,
    /// Ed25519, as defined in RFC 8032.
    Ed25519,
    /// RSA with 2048 to 8192 bits.
    Rsa,
}

impl KeyKind {
    /// `ecdsa`, `ed25519` or `rsa`, for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyKind::Ecdsa => "ecdsa",
            KeyKind::Ed25519 => "ed25519",
            KeyKind::Rsa => "rsa",
        }
    }
}

impl Certificate {
    /// Returns `true` if the key can sign with one of `schemes`, the client's offer.
    pub fn suits(&self, schemes: &[SignatureScheme]) -> bool {
        self.schemes.iter().any(|scheme| schemes.contains(scheme))
    }

    /// Returns `true` within the validity period.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// The time of the first warning about expiry: 14 days before the end, or when a
    /// third of the lifetime is left if that is later.
    pub fn soon_at(&self) -> SystemTime {
        soon_at(self.not_before, self.not_after)
    }

    /// The time of renewal: when a third of the lifetime is left.
    pub fn renew_at(&self) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + life / 3 * 2
    }
}

/// The remaining lifetime below which a certificate is warned about, unless a third of its lifetime is less.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// The time of the first warning about the end of a lifetime.
pub(crate) fn soon_at(not_before: SystemTime, not_after: SystemTime) -> SystemTime {
    let life = not_after.duration_since(not_before).unwrap_or_default();
    not_after - SOON.min(life / 3)
}

const ECDSA_P256: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP256_SHA256];
const ECDSA_P384: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP384_SHA384];
const ECDSA_P521: &[SignatureScheme] = &[SignatureScheme::ECDSA_NISTP521_SHA512];
const ED25519: &[SignatureScheme] = &[SignatureScheme::ED25519];
const RSA: &[SignatureScheme] = &[
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

/// The kind and the signature schemes of a key; `None` for unsupported kinds.
pub(crate) fn abilities(key: &dyn SigningKey) -> Option<(KeyKind, &'static [SignatureScheme])> {
    [
        (KeyKind::Ecdsa, ECDSA_P256),
        (KeyKind::Ecdsa, ECDSA_P384),
        (KeyKind::Ecdsa, ECDSA_P521),
        (KeyKind::Ed25519, ED25519),
        (KeyKind::Rsa, RSA),
    ]
    .into_iter()
    .find(|(_, schemes)| key.choose_scheme(schemes).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_taken_once_and_clones_are_one() {
        let mark = UseMark::default();
        let other = mark.clone();
        assert!(!mark.take());
        other.set();
        other.set();
        assert!(mark.take() && !other.take());
        assert!(mark == other && mark != UseMark::default());
    }
}
