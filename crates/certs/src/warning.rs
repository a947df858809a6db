//! Warnings about certificates that are used all the same.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::certificate::Certificate;
use crate::clock;

/// A problem with a file that does not prevent its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The path of the file.
    pub path: PathBuf,
    /// The kind of problem.
    pub concern: Concern,
}

/// The kind of problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concern {
    /// The certificate has expired: clients will refuse it.
    Expired {
        /// The end of the validity period.
        not_after: SystemTime,
    },
    /// The certificate is not valid yet: clients will refuse it.
    NotYetValid {
        /// The start of the validity period.
        not_before: SystemTime,
    },
    /// The certificate expires soon: see [`Certificate::soon_at`].
    ExpiresSoon {
        /// The end of the validity period.
        not_after: SystemTime,
    },
    /// The key's file is accessible to its group or to all users.
    KeyReadable {
        /// The permission bits of the file.
        mode: u32,
    },
    /// The certificate of the leaf's issuer is missing.
    NoIssuer {
        /// The issuer's distinguished name.
        issuer: String,
    },
    /// The certificate is its own issuer.
    SelfSigned,
    /// The name is from the CN, without a subjectAltName; clients ignore the CN (RFC 9525 §6.2).
    CommonNameOnly {
        /// The name in the CN.
        name: String,
    },
    /// The certificate has no names: it can only be the default.
    NoNames,
    /// A name that no client can request.
    UnusableName {
        /// The name that cannot be used.
        name: String,
    },
    /// Certificates outside the leaf's chain, which are not sent.
    Unused {
        /// The subjects of these certificates.
        subjects: Vec<String>,
    },
    /// A certificate in a directory without its key.
    NoKeyBeside,
    /// A key in a directory without its certificate.
    NoCertificateBeside,
    /// A CA bundle with a private key in it.
    KeyInBundle,
    /// An OCSP response beside a certificate that cannot be stapled.
    UnusableStaple {
        /// The reason for which it cannot be stapled.
        why: String,
    },
    /// A revocation list with an overdue update.
    RevocationListExpired {
        /// The issuer of the list.
        issuer: String,
        /// The time at which the next list was due.
        next_update: SystemTime,
    },
    /// An expired CA in a bundle.
    CaExpired {
        /// The subject of the CA.
        subject: String,
        /// The end of its validity period.
        not_after: SystemTime,
    },
}

impl Warning {
    /// The warning about a certificate from `path` that is not valid at `now`.
    #[must_use]
    pub fn of_validity(path: &Path, certificate: &Certificate, now: SystemTime) -> Option<Self> {
        let Certificate { not_before, not_after, .. } = *certificate;
        let concern = if not_after <= now {
            Concern::Expired { not_after }
        } else if now < not_before {
            Concern::NotYetValid { not_before }
        } else {
            return None;
        };
        Some(Self::new(path, concern))
    }

    pub(crate) fn new(path: &Path, concern: Concern) -> Self {
        Warning { path: path.to_owned(), concern }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        self.concern.explain(&self.path, f)
    }
}

impl Concern {
    fn explain(&self, path: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Concern::Expired { not_after } => write!(
                f,
                "the certificate EXPIRED on {}; clients will refuse it until it is renewed",
                clock::date(*not_after)
            ),
            Concern::NotYetValid { not_before } => write!(
                f,
                "the certificate is not valid before {}; check the clock of this machine",
                clock::date(*not_before)
            ),
            Concern::ExpiresSoon { not_after } => {
                write!(f, "the certificate expires on {}; renew it", clock::date(*not_after))
            }
            Concern::KeyReadable { mode } => write!(
                f,
                "users other than its owner have access to the private key (mode {mode:04o}); chmod 600 {}",
                path.display()
            ),
            Concern::NoIssuer { issuer } => write!(
                f,
                "the chain ends at the leaf: append the certificate of its issuer ({issuer}), unless clients trust that issuer directly"
            ),
            Concern::SelfSigned => {
                f.write_str("the certificate is self-signed; clients must be configured to trust it")
            }
            Concern::CommonNameOnly { name } => write!(
                f,
                "the certificate has no subjectAltName, and current clients ignore its CN `{name}`; have it issued with one"
            ),
            Concern::NoNames => f.write_str(
                "the certificate contains no host name; it can only be the default, and clients will refuse it",
            ),
            Concern::UnusableName { name } => {
                write!(f, "the certificate's name `{}` can match no client", name.escape_default())
            }
            Concern::Unused { subjects } => {
                write!(f, "not part of the chain and not sent to clients: {}", subjects.join("; "))
            }
            Concern::NoKeyBeside => f.write_str(
                "not used: its key file is missing; put it into the same directory, with the same name and `.key`",
            ),
            Concern::NoCertificateBeside => f.write_str(
                "not used: its certificate file is missing; put it into the same directory, with the same name and `.pem`",
            ),
            Concern::KeyInBundle => {
                f.write_str("this CA bundle holds a private key, which does not belong there; take it out")
            }
            Concern::UnusableStaple { why } => write!(f, "this OCSP response is not stapled: {why}"),
            Concern::RevocationListExpired { issuer, next_update } => write!(
                f,
                "the revocation list of {issuer} expired on {}; the certificates in it are refused, but not those that were revoked since",
                clock::date(*next_update)
            ),
            Concern::CaExpired { subject, not_after } => {
                write!(f, "the CA {subject} expired on {}; replace it", clock::date(*not_after))
            }
        }
    }
}
