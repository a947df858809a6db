//! The crate's one error type. Every message says what is wrong, in which file, and what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::clock;

/// Why a certificate, a key, a CA or a pattern cannot be used; grouped by what has to be put right.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    Io {
        /// What was attempted: `read`, `create` and the like.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
    /// One file does not hold what it should.
    Content {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1, where one is to blame.
        line: Option<usize>,
        /// What is wrong.
        fault: ContentFault,
    },
    /// A certificate and a key do not make a pair.
    Pair {
        /// The file given for the certificate.
        cert: PathBuf,
        /// The file given for the key; the same where there is only one.
        key: PathBuf,
        /// What is wrong.
        fault: PairFault,
    },
    /// The local CA cannot be used.
    LocalCa {
        /// Its directory.
        dir: PathBuf,
        /// What is wrong.
        fault: CaFault,
    },
    /// A name is not one that a certificate can carry.
    Name {
        /// The name as given.
        name: String,
        /// What is wrong.
        fault: NameFault,
    },
    /// An `allow` pattern is not understood.
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// What is wrong.
        fault: PatternFault,
    },
}

/// What is wrong with the content of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentFault {
    /// A directory, device or pipe.
    NotAFile,
    /// Larger than any file of its kind, which has at most so many bytes.
    TooLarge {
        /// The bound.
        most: u64,
    },
    /// Nothing in it.
    Empty,
    /// A certificate in DER.
    DerCertificate,
    /// A key in DER.
    DerKey,
    /// A PKCS#12 container (`.p12`, `.pfx`).
    Pkcs12,
    /// A PKCS#7 container (`.p7b`), in DER or in PEM.
    Pkcs7 {
        /// Set where the file is in DER.
        der: bool,
    },
    /// A key in the format of OpenSSH.
    OpenSshKey,
    /// A request for a certificate.
    Request,
    /// PEM saved as UTF-16.
    Utf16,
    /// No PEM block.
    NotPem,
    /// A PEM block that is damaged, and how.
    BadPem(&'static str),
    /// A certificate that cannot be read, and why.
    BadCertificate(String),
    /// A key that is encrypted.
    EncryptedKey,
    /// A key of a kind, size or encoding that cannot be used.
    UnsupportedKey,
    /// No revocation list; the labels of what there is instead.
    NoRevocationList(Vec<String>),
    /// A revocation list that cannot be read, and why.
    BadRevocationList(String),
    /// No certificate; the labels of what there is instead.
    NoCertificate(Vec<String>),
    /// An authority's certificate that is not for this name, which was asked for.
    NotFor(String),
    /// An authority's certificate that has expired.
    Expired(SystemTime),
}

/// Why a certificate and a key do not make a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PairFault {
    /// No certificate in either file.
    NoCertificate,
    /// No key in either file.
    NoKey,
    /// More than one key; where each is.
    SeveralKeys(Vec<(PathBuf, usize)>),
    /// The key belongs to none of the certificates, whose subjects are listed.
    Mismatch(Vec<String>),
}

/// What is wrong with the local CA.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaFault {
    /// One of the two files is missing.
    Half {
        /// The file that is there.
        present: PathBuf,
        /// The file that is not.
        missing: PathBuf,
    },
    /// A file of it is damaged or cannot be read.
    Damaged(Box<Error>),
    /// The certificate may not sign others (`basicConstraints` without `CA:TRUE`, RFC 5280 §4.2.1.9).
    NotACa,
    /// Its life is over.
    Expired {
        /// When that was.
        not_after: SystemTime,
    },
    /// Another process held its lock for too long.
    Locked,
    /// A signature or an encoding failed.
    Mint(String),
}

/// Why a name cannot be in a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameFault {
    /// Nothing given.
    Empty,
    /// More than 253 characters, or a label of none or more than 63 (RFC 1035 §2.3.4).
    Length,
    /// A character that host names do not have.
    Character(char),
    /// A `*` that is not the whole first label (RFC 9525 §6.3).
    Wildcard,
    /// An IP address where a DNS name is wanted.
    Address,
    /// More names than one certificate should have.
    TooMany,
}

/// Why an `allow` pattern is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternFault {
    /// It starts with none of the known kinds.
    Kind,
    /// Nothing follows the colon.
    Empty,
    /// What follows `dns:` is no DNS name or wildcard.
    Name(NameFault),
    /// What follows `ip:` is no address or network.
    Address,
    /// What follows `pin:` is not `sha256/` and the base64 of 32 bytes.
    Pin,
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io { doing, path: path.to_owned(), source }
    }

    pub(crate) fn content(path: &Path, line: Option<usize>, fault: ContentFault) -> Self {
        Error::Content { path: path.to_owned(), line, fault }
    }

    pub(crate) fn name(name: &str, fault: NameFault) -> Self {
        Error::Name { name: name.to_owned(), fault }
    }

    /// The file or directory to look at, where there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Error::Io { path, .. } | Error::Content { path, .. } => Some(path),
            Error::Pair { cert, .. } => Some(cert),
            Error::LocalCa { dir, .. } => Some(dir),
            Error::Name { .. } | Error::Pattern { .. } => None,
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            Error::LocalCa { fault: CaFault::Damaged(inner), .. } => Some(inner),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())?;
                match source.kind() {
                    io::ErrorKind::PermissionDenied => f.write_str(
                        "; give the user that Offramp starts as access to it and to every directory above it",
                    ),
                    io::ErrorKind::NotFound => f.write_str("; check the path"),
                    _ => Ok(()),
                }
            }
            Error::Content { path, line, fault } => {
                write!(f, "{}", path.display())?;
                if let Some(line) = line {
                    write!(f, ", line {line}")?;
                }
                f.write_str(": ")?;
                fault.explain(path, f)
            }
            Error::Pair { cert, key, fault } => fault.explain(cert, key, f),
            Error::LocalCa { dir, fault } => {
                write!(f, "the local CA in {} cannot be used: ", dir.display())?;
                fault.explain(dir, f)
            }
            Error::Name { name, fault } => write!(f, "`{name}` cannot be in a certificate: {fault}"),
            Error::Pattern { pattern, fault } => write!(f, "`{pattern}` is not a pattern: {fault}"),
        }
    }
}

impl ContentFault {
    fn explain(&self, path: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = path.display();
        match self {
            Self::NotAFile => f.write_str("this is not a regular file; name the PEM file itself"),
            Self::TooLarge { most } => {
                write!(f, "this is larger than {} MiB, which no file of this kind is; check the path", most >> 20)
            }
            Self::Empty => f.write_str("the file is empty; it should hold PEM (`-----BEGIN …-----`)"),
            Self::DerCertificate => write!(
                f,
                "this is a certificate in DER, not PEM; convert it: openssl x509 -inform der -in {path} -out {path}.pem"
            ),
            Self::DerKey => write!(
                f,
                "this is a key in DER, not PEM; convert it: openssl pkey -inform der -in {path} -out {path}.pem"
            ),
            Self::Pkcs12 => write!(
                f,
                "this is a PKCS#12 container, not PEM; convert it: openssl pkcs12 -in {path} -nodes -out {path}.pem"
            ),
            Self::Pkcs7 { der } => write!(
                f,
                "this is a PKCS#7 container; take the certificates out of it: openssl pkcs7 -print_certs {}-in {path} -out {path}.pem",
                if *der { "-inform der " } else { "" }
            ),
            Self::OpenSshKey => write!(
                f,
                "this is a key in the format of OpenSSH; convert a copy of it, if it is RSA or ECDSA: cp {path} {path}.pem && \
                 ssh-keygen -p -N '' -m PKCS8 -f {path}.pem; or make another: openssl genpkey -algorithm ed25519"
            ),
            Self::Request => f.write_str(
                "this is a request for a certificate (CSR); name the file with the certificate that the authority has issued for it",
            ),
            Self::Utf16 => f.write_str("the file is saved as UTF-16; save it as ASCII or UTF-8"),
            Self::NotPem => f.write_str(
                "there is no PEM block (`-----BEGIN …-----`) in this file; check that it is a certificate or a key",
            ),
            Self::BadPem(how) => write!(f, "{how}; copy the file again from where it was made"),
            Self::BadCertificate(why) => write!(
                f,
                "the certificate cannot be read ({why}); see what `openssl x509 -text -in {path}` says, or have it issued again"
            ),
            Self::EncryptedKey => write!(
                f,
                "the key is encrypted, and Offramp does not ask for pass phrases; decrypt it: openssl pkey -in {path} -out {path}.plain && chmod 600 {path}.plain"
            ),
            Self::UnsupportedKey => f.write_str(
                "the key cannot be used; make one that is ECDSA (P-256, P-384, P-521), Ed25519 or RSA (2048 to 8192 bits), in PKCS#8, SEC1 or PKCS#1",
            ),
            Self::NotFor(name) => write!(f, "the certificate is not for {name}"),
            Self::Expired(when) => write!(f, "the certificate expired on {}", clock::date(*when)),
            Self::NoRevocationList(labels) if labels.is_empty() => {
                f.write_str("there is no revocation list in this file; add an `X509 CRL` block")
            }
            Self::NoRevocationList(labels) => {
                write!(f, "there is no revocation list in this file, only {}; add an `X509 CRL` block", labels.join(", "))
            }
            Self::BadRevocationList(why) => write!(
                f,
                "the revocation list cannot be read ({why}); see what `openssl crl -text -in {path}` says"
            ),
            Self::NoCertificate(labels) if labels.is_empty() => {
                f.write_str("there is no certificate in this file; add a `CERTIFICATE` block")
            }
            Self::NoCertificate(labels) => {
                write!(f, "there is no certificate in this file, only {}; add a `CERTIFICATE` block", labels.join(", "))
            }
        }
    }
}

impl PairFault {
    fn explain(&self, cert: &Path, key: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = Both(cert, key);
        match self {
            Self::NoCertificate => {
                write!(
                    f,
                    "{both}: there is no certificate, only a key; name the file of the certificate as well"
                )
            }
            Self::NoKey => {
                write!(
                    f,
                    "{both}: there is no private key; name its file in `key`, or append it to the certificate's"
                )
            }
            Self::SeveralKeys(places) => {
                write!(f, "{both}: there is more than one private key (")?;
                for (index, (path, line)) in places.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{} line {line}", path.display())?;
                }
                f.write_str(
                    "); keep the one that belongs to the certificate, one certificate and key per entry",
                )
            }
            Self::Mismatch(subjects) => write!(
                f,
                "{both}: the private key belongs to none of the certificates ({}); \
                 compare `openssl x509 -noout -pubkey -in {}` with `openssl pkey -pubout -in {}`",
                subjects.join("; "),
                cert.display(),
                key.display()
            ),
        }
    }
}

/// Names one file, or two if there are two.
struct Both<'a>(&'a Path, &'a Path);

impl fmt::Display for Both<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())?;
        if self.0 != self.1 {
            write!(f, " and {}", self.1.display())?;
        }
        Ok(())
    }
}

impl CaFault {
    fn explain(&self, dir: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = format!(
            "restore ca.pem and ca.key from a backup, or move {} away to have a new CA minted, which every client must then trust instead",
            dir.display()
        );
        match self {
            Self::Half { present, missing } => {
                write!(f, "there is {} but no {}; {remedy}", present.display(), missing.display())
            }
            Self::Damaged(inner) => write!(f, "{inner} (for the local CA: {remedy})"),
            Self::NotACa => write!(f, "ca.pem is no CA certificate (basicConstraints lacks CA:TRUE); {remedy}"),
            Self::Expired { not_after } => {
                write!(f, "it expired on {}; {remedy}", clock::date(*not_after))
            }
            Self::Locked => f.write_str(
                "another process has held its lock for ten seconds; find the process that has the file `.lock` there open, and end it",
            ),
            Self::Mint(why) => write!(f, "a certificate could not be made ({why})"),
        }
    }
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no name is given; give at least one, such as `localhost`"),
            Self::Length => {
                f.write_str("a name has at most 253 characters and its labels 1 to 63; shorten it")
            }
            Self::Character(found) if !found.is_ascii() => {
                write!(f, "`{found}` is not ASCII; write the name in its `xn--` form")
            }
            Self::Character(found) => {
                write!(f, "`{}` is not allowed in a host name; leave it out", found.escape_default())
            }
            Self::Wildcard => f.write_str("`*` stands for the whole first label; write `*.example.org`"),
            Self::Address => f.write_str("this is an IP address; a DNS name is wanted here"),
            Self::TooMany => {
                f.write_str("there are more than 100 names; spread them over several certificates")
            }
        }
    }
}

impl fmt::Display for PatternFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind => f.write_str(
                "start it with `dns:`, `uri:`, `ip:`, `cn:`, `ou:` or `pin:`, as in `dns:*.svc.example.org` or `uri:spiffe://example.org/*`",
            ),
            Self::Empty => f.write_str("write what to match after the colon; `*` matches anything in `uri:`, `cn:` and `ou:`"),
            Self::Address => f.write_str("write an address or a network, as in `ip:192.0.2.7` or `ip:10.0.0.0/8`"),
            Self::Pin => f.write_str(
                "write `pin:sha256/` and the base64 of the key's hash: openssl x509 -in client.pem -pubkey -noout | \
                 openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64",
            ),
            Self::Name(fault) => write!(f, "{fault}"),
        }
    }
}
