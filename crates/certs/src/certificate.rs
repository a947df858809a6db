//! A certificate chain with its key, ready for rustls, and the facts that choosing needs.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::SignatureScheme;
use rustls::sign::{CertifiedKey, SigningKey};

use crate::acme::UseMark;
use crate::describe::Description;
use crate::file::SOON;
use crate::name::DnsPattern;

/// A certificate that the proxy can present.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The chain, leaf first, and its key: what a rustls resolver returns.
    pub certified_key: Arc<CertifiedKey>,
    /// The DNS names that it is good for; from the CN only if there is no subjectAltName.
    pub names: Vec<DnsPattern>,
    /// The IP addresses that it is good for. Clients do not send them in SNI (RFC 6066 §3).
    pub addresses: Vec<IpAddr>,
    /// The kind of its key.
    pub kind: KeyKind,
    /// The start of its life.
    pub not_before: SystemTime,
    /// The end of its life.
    pub not_after: SystemTime,
    /// Until when the OCSP response that is stapled to it is current; `None` where there is none, or no end.
    pub staple_until: Option<SystemTime>,
    /// The leaf in the words of the PROXY protocol.
    pub description: Description,
    /// Where it comes from.
    pub source: Source,
    /// Where it is noted that clients get it, for one that is renewed only while they do.
    pub used: Option<UseMark>,
    /// What its key can sign with; a function of the key.
    pub(crate) schemes: &'static [SignatureScheme],
}

/// Where a certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// PEM files of the operator's.
    Files {
        /// The file given for the certificate.
        cert: PathBuf,
        /// The file given for the key, if another.
        key: Option<PathBuf>,
    },
    /// An authority, over ACME.
    Acme {
        /// The file in which it is kept, with its key.
        path: PathBuf,
    },
    /// The local CA.
    LocalCa {
        /// The file in which the local CA keeps it.
        path: PathBuf,
    },
}

impl Source {
    /// `file`, `acme` or `local_ca`, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Files { .. } => "file",
            Source::Acme { .. } => "acme",
            Source::LocalCa { .. } => "local_ca",
        }
    }
}

/// The kind of a certificate's key, the one to prefer first: an ECDSA signature costs a twentieth of
/// an RSA one, and more clients know it than Ed25519.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// ECDSA on P-256, P-384 or P-521.
    Ecdsa,
    /// Ed25519.
    Ed25519,
    /// RSA of 2048 to 8192 bits.
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
    /// Whether its key can sign with one of `schemes`, those that a client offered.
    pub fn suits(&self, schemes: &[SignatureScheme]) -> bool {
        self.schemes.iter().any(|scheme| schemes.contains(scheme))
    }

    /// Whether `now` is within its life.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// From when on its end is soon: [`SOON`](crate::file::SOON) before it, or when a third of its life is left if that
    /// is later.
    pub fn soon_at(&self) -> SystemTime {
        soon_at(self.not_before, self.not_after)
    }

    /// When it should be renewed: when a third of its life is left.
    pub fn renew_at(&self) -> SystemTime {
        let life = self.not_after.duration_since(self.not_before).unwrap_or_default();
        self.not_before + life / 3 * 2
    }
}

/// From when on the end of this life is soon.
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

/// What a key can sign with, found by asking it; `None` for a kind that is not supported.
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
