//! The error type of this crate. Every message states the fault, the file, and the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::clock;

/// The reason for which a certificate, key, CA or pattern is unusable, grouped by remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the operating system.
    Io {
        /// The attempted operation: `read`, `create` and the like.
        doing: &'static str,
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file with the wrong content.
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The faulty line, counted from 1, if there is one.
        line: Option<usize>,
        /// The kind of fault.
        fault: ContentFault,
    },
    /// A certificate and a key that do not make a pair.
    Pair {
        /// The path configured for the certificate.
        cert: PathBuf,
        /// The path configured for the key; the same if there is only one.
        key: PathBuf,
        /// The kind of fault.
        fault: PairFault,
    },
    /// The local CA is unusable.
    LocalCa {
        /// The directory of the local CA.
        dir: PathBuf,
        /// The kind of fault.
        fault: CaFault,
    },
    /// A name that a certificate cannot carry.
    Name {
        /// The name as given.
        name: String,
        /// The kind of fault.
        fault: NameFault,
    },
    /// An invalid `allow` pattern.
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// The kind of fault.
        fault: PatternFault,
    },
}

/// A fault in the content of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentFault {
    /// A directory, device or pipe.
    NotAFile,
    /// A file larger than this kind of file may be.
    TooLarge {
        /// The maximum size in bytes.
        most: u64,
    },
    /// A file without any content.
    Empty,
    /// A certificate in DER instead of PEM.
    DerCertificate,
    /// A key in DER instead of PEM.
    DerKey,
    /// A PKCS#12 container (`.p12`, `.pfx`).
    Pkcs12,
    /// A PKCS#7 container (`.p7b`), in DER or in PEM.
    Pkcs7 {
        /// Set if the file is in DER.
        der: bool,
    },
    /// A key in OpenSSH's format.
    OpenSshKey,
    /// A certificate signing request.
    Request,
    /// PEM saved as UTF-16.
    Utf16,
    /// A file without PEM blocks.
    NotPem,
    /// A damaged PEM block, with the damage.
    BadPem(&'static str),
    /// A malformed certificate, with the reason.
    BadCertificate(String),
    /// An encrypted private key.
    EncryptedKey,
    /// A key of an unsupported kind, size or encoding.
    UnsupportedKey,
    /// No revocation list; the labels of the blocks found.
    NoRevocationList(Vec<String>),
    /// A malformed revocation list, with the reason.
    BadRevocationList(String),
    /// No certificate; the labels of the blocks found.
    NoCertificate(Vec<String>),
    /// A certificate of an authority that lacks this requested name.
    NotFor(String),
    /// A certificate of an authority that has expired.
    Expired(SystemTime),
}

/// The reason for which a certificate and a key do not make a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PairFault {
    /// Neither file has a certificate.
    NoCertificate,
    /// Neither file has a key.
    NoKey,
    /// More than one key, at these places.
    SeveralKeys(Vec<(PathBuf, usize)>),
    /// The key matches none of the certificates with these subjects.
    Mismatch(Vec<String>),
}

/// A fault of the local CA.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaFault {
    /// One of the two files is missing.
    Half {
        /// The file that exists.
        present: PathBuf,
        /// The file that is missing.
        missing: PathBuf,
    },
    /// A file is damaged or unreadable.
    Damaged(Box<Error>),
    /// The certificate may not sign others (`basicConstraints` without `CA:TRUE`, RFC 5280 §4.2.1.9).
    NotACa,
    /// The certificate has expired.
    Expired {
        /// The end of its validity period.
        not_after: SystemTime,
    },
    /// Another process held the lock for too long.
    Locked,
    /// A signature or an encoding failed.
    Mint(String),
}

/// The reason for which a certificate cannot have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameFault {
    /// A name without any characters.
    Empty,
    /// More than 253 characters, or a label that is empty or longer than 63 (RFC 1035 §2.3.4).
    Length,
    /// A character that is invalid in host names.
    Character(char),
    /// A `*` that is not the whole first label (RFC 9525 §6.3).
    Wildcard,
    /// An IP address in the place of a DNS name.
    Address,
    /// More names than one certificate should have.
    TooMany,
}

/// The reason for which an `allow` pattern is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternFault {
    /// An unknown kind of pattern.
    Kind,
    /// Nothing after the colon.
    Empty,
    /// Not a DNS name or wildcard after `dns:`.
    Name(NameFault),
    /// Not an address or network after `ip:`.
    Address,
    /// Not `sha256/` and the base64 of 32 bytes after `pin:`.
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

    /// The path of the file or directory at fault, if there is one.
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
            Self::NoRevocationList(labels) => missing(f, "revocation list", labels, "an `X509 CRL` block"),
            Self::BadRevocationList(why) => write!(
                f,
                "the revocation list cannot be read ({why}); see what `openssl crl -text -in {path}` says"
            ),
            Self::NoCertificate(labels) => missing(f, "certificate", labels, "a `CERTIFICATE` block"),
        }
    }
}

/// Explains that a file lacks what it is read for: it has blocks of these labels alone. `remedy` is the block to add.
fn missing(f: &mut fmt::Formatter<'_>, what: &str, labels: &[String], remedy: &str) -> fmt::Result {
    write!(f, "there is no {what} in this file")?;
    if !labels.is_empty() {
        write!(f, ", only {}", labels.join(", "))?;
    }
    write!(f, "; add {remedy}")
}

impl PairFault {
    fn explain(&self, cert: &Path, key: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = DistinctPaths(cert, key);
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

/// Writes one path, or two if they differ.
struct DistinctPaths<'a>(&'a Path, &'a Path);

impl fmt::Display for DistinctPaths<'_> {
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
