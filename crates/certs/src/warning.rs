//! What an operator should know about a certificate that is used all the same.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::certificate::Certificate;
use crate::clock;

/// Something wrong with a file that does not keep it from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file.
    pub path: PathBuf,
    /// What to know about it.
    pub concern: Concern,
}

/// What is the matter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concern {
    /// The certificate's life is over: clients will refuse it.
    Expired {
        /// When that was.
        not_after: SystemTime,
    },
    /// The certificate's life has not begun: clients will refuse it.
    NotYetValid {
        /// When it begins.
        not_before: SystemTime,
    },
    /// The certificate ends soon: see [`Certificate::soon_at`].
    ExpiresSoon {
        /// When that will be.
        not_after: SystemTime,
    },
    /// The key's file has permissions for its group or for everyone.
    KeyReadable {
        /// The permission bits of the file.
        mode: u32,
    },
    /// There is no certificate of the leaf's issuer beside it.
    NoIssuer {
        /// The issuer that is named.
        issuer: String,
    },
    /// The certificate is its own issuer.
    SelfSigned,
    /// No subjectAltName: the name is taken from the CN, which clients ignore (RFC 9525 §6.2).
    CommonNameOnly {
        /// That name.
        name: String,
    },
    /// No name of any kind: the certificate can only be the default.
    NoNames,
    /// A name that no client can request.
    UnusableName {
        /// That name.
        name: String,
    },
    /// Certificates that are no part of the leaf's chain, and that are not sent.
    Unused {
        /// Their subjects.
        subjects: Vec<String>,
    },
    /// A certificate in a directory without the file of its key.
    NoKeyBeside,
    /// A key in a directory without the file of its certificate.
    NoCertificateBeside,
    /// A CA bundle that holds a private key.
    KeyInBundle,
    /// An OCSP response beside a certificate that is not stapled to it.
    UnusableStaple {
        /// Why not.
        why: String,
    },
    /// A revocation list for which there should be a newer one.
    RevocationListExpired {
        /// Whose list it is.
        issuer: String,
        /// When the next one was due.
        next_update: SystemTime,
    },
    /// A CA of a bundle whose life is over.
    CaExpired {
        /// The CA's subject.
        subject: String,
        /// When that was.
        not_after: SystemTime,
    },
}

impl Warning {
    /// What is to be said of a certificate from `path` that is not valid at `now`.
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
        let path = self.path.display();
        write!(f, "{path}: ")?;
        match &self.concern {
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
            Concern::KeyReadable { mode } => {
                write!(
                    f,
                    "users other than its owner have access to the private key (mode {mode:04o}); chmod 600 {path}"
                )
            }
            Concern::NoIssuer { issuer } => write!(
                f,
                "the chain ends at the leaf: append the certificate of its issuer ({issuer}), unless clients trust that issuer directly"
            ),
            Concern::SelfSigned => {
                f.write_str("the certificate is self-signed; clients must be told to trust it")
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
