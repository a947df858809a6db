//! Parser for PEM files (RFC 7468), tolerant where it is safe.
//!
//! Accepted: any order, CRLF, uniform indentation, a byte order mark, `openssl`'s headers, and any text
//! between blocks, as in OpenSSL. Refused with the reason: truncated and damaged blocks, and files without
//! PEM. The base64 is decoded by `rustls-pki-types`, in constant time for keys, and every copy of a key made
//! here is wiped.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::error::{ContentFault, Error};
use crate::x509;

/// The maximum size of a file, in bytes: a hundred times the largest chain in use.
pub const MAX_FILE_SIZE: u64 = 1 << 20;

/// The blocks of one file.
#[derive(Debug)]
pub(crate) struct PemFile {
    pub(crate) path: PathBuf,
    /// The permission bits of the file.
    pub(crate) mode: u32,
    pub(crate) blocks: Vec<PemBlock>,
}

#[derive(Debug)]
pub(crate) struct PemBlock {
    /// The line of its `BEGIN`, counted from 1.
    pub(crate) line: usize,
    pub(crate) item: PemItem,
}

/// The content of a block.
#[derive(Debug)]
pub(crate) enum PemItem {
    Certificate(CertificateDer<'static>),
    Key(Zeroizing<PrivateKeyDer<'static>>),
    EncryptedKey,
    /// A certificate revocation list.
    RevocationList(Vec<u8>),
    /// Another kind of block, by its label.
    Other(String),
}

impl PemItem {
    /// The fault of a file with this block in the place of a certificate or key, if there is a remedy.
    pub(crate) fn foreign(&self) -> Option<ContentFault> {
        let Self::Other(label) = self else { return None };
        match label.as_str() {
            "PKCS7" | "CMS" | "PKCS #7 SIGNED DATA" => Some(ContentFault::Pkcs7 { der: false }),
            "OPENSSH PRIVATE KEY" => Some(ContentFault::OpenSshKey),
            "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => Some(ContentFault::Request),
            "DSA PRIVATE KEY" => Some(ContentFault::UnsupportedKey),
            _ => None,
        }
    }
}

impl PemFile {
    /// Reads a file of at most [`MAX_FILE_SIZE`] bytes. Blocks of other kinds are kept by label.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let (bytes, mode) = read_bytes(path, MAX_FILE_SIZE)?;
        let blocks = blocks_of(path, &bytes)?;
        Ok(PemFile { path: path.to_owned(), mode, blocks })
    }

    /// Parses the content of a file.
    pub(crate) fn of(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        Ok(PemFile { path: path.to_owned(), mode: 0, blocks: blocks_of(path, bytes)? })
    }

    /// The error for a file without a certificate.
    pub(crate) fn no_certificate(&self) -> Error {
        let foreign = self.blocks.iter().find_map(|block| Some((block.line, block.item.foreign()?)));
        match foreign {
            Some((line, fault)) => Error::content(&self.path, Some(line), fault),
            None => Error::content(&self.path, None, ContentFault::NoCertificate(self.other_labels())),
        }
    }

    /// The labels of blocks that are not certificates, each once, for a message.
    pub(crate) fn other_labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for block in &self.blocks {
            let label = match &block.item {
                PemItem::Certificate(_) => continue,
                PemItem::Key(_) | PemItem::EncryptedKey => "PRIVATE KEY",
                PemItem::RevocationList(_) => REVOCATION_LIST,
                PemItem::Other(label) => label,
            };
            if !labels.iter().any(|known| known == label) {
                labels.push(label.to_owned());
            }
        }
        labels
    }
}

/// Reads a file of at most `most` bytes, and its permission bits.
pub(crate) fn read_bytes(path: &Path, most: u64) -> Result<(Zeroizing<Vec<u8>>, u32), Error> {
    // Checked before opening, since opening a pipe would wait for its writer.
    let metadata = std::fs::metadata(path).map_err(|error| Error::io("read", path, error))?;
    if !metadata.is_file() {
        return Err(Error::content(path, None, ContentFault::NotAFile));
    }
    let file = File::open(path).map_err(|error| Error::io("read", path, error))?;
    let metadata = file.metadata().map_err(|error| Error::io("read", path, error))?;
    if metadata.len() > most {
        return Err(Error::content(path, None, ContentFault::TooLarge { most }));
    }
    // Allocated at once: a growing vector would leave copies of keys behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::io("read", path, error))?;
    if bytes.len() as u64 > most {
        return Err(Error::content(path, None, ContentFault::TooLarge { most }));
    }
    Ok((bytes, metadata.permissions().mode() & 0o7777))
}

/// Reads a short secret text, such as a key in base64, without surrounding white space.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, is not a regular file, or is too large.
pub fn read_secret(path: &Path) -> Result<Zeroizing<String>, Error> {
    const MOST: u64 = 64 << 10;
    let (bytes, _) = read_bytes(path, MOST)?;
    Ok(Zeroizing::new(String::from_utf8_lossy(bytes.trim_ascii()).into_owned()))
}

/// A block of which the end was not seen yet.
struct OpenBlock {
    line: usize,
    label: String,
    /// The start of the line after `BEGIN`.
    start: usize,
}

/// The indentation of lines that may begin a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Margin {
    /// None, as in OpenSSL: indented lines are text.
    None,
    /// Any, for a file copied from within another.
    Any,
}

fn blocks_of(path: &Path, bytes: &[u8]) -> Result<Vec<PemBlock>, Error> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if text.trim_ascii().is_empty() {
        return Err(Error::content(path, None, ContentFault::Empty));
    }
    for margin in [Margin::None, Margin::Any] {
        let blocks = blocks_at(path, text, margin)?;
        if !blocks.is_empty() {
            return Ok(blocks);
        }
    }
    Err(match torn(text) {
        Some((line, how)) => Error::content(path, Some(line), ContentFault::BadPem(how)),
        None => Error::content(path, None, no_pem(bytes)),
    })
}

/// Parses the blocks of a text. Anything may be between them, even an END without a BEGIN or a truncated
/// BEGIN.
fn blocks_at(path: &Path, text: &[u8], margin: Margin) -> Result<Vec<PemBlock>, Error> {
    let bad = |line, how| Error::content(path, Some(line), ContentFault::BadPem(how));
    let mut blocks = Vec::new();
    let mut open: Option<OpenBlock> = None;
    let mut next = 0;
    for (index, raw) in text.split(|byte| *byte == b'\n').enumerate() {
        let (number, start, line) = (index + 1, next, raw.trim_ascii());
        next += raw.len() + 1;
        let Some(block) = open.take() else {
            let at_margin = margin == Margin::Any || raw.first() == line.first();
            open = line
                .strip_prefix(BEGIN)
                .filter(|_| at_margin)
                .and_then(|rest| rest.strip_suffix(DASHES))
                .map(|label| OpenBlock {
                    line: number,
                    label: String::from_utf8_lossy(label).into_owned(),
                    start: next,
                });
            continue;
        };
        if line.starts_with(BEGIN) {
            return Err(bad(block.line, "this PEM block has no END line"));
        }
        let Some(rest) = line.strip_prefix(END) else {
            open = Some(block);
            continue;
        };
        if rest.strip_suffix(DASHES) != Some(block.label.as_bytes()) {
            return Err(bad(number, "this END line does not fit the BEGIN line before it"));
        }
        let body = &text[block.start..start];
        blocks.push(block.close(path, body)?);
    }
    match open {
        Some(open) => Err(bad(open.line, "this PEM block is cut off: it has no END line")),
        None => Ok(blocks),
    }
}

/// The first fragment in a text without a whole block: its line, and its fault.
fn torn(text: &[u8]) -> Option<(usize, &'static str)> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    lines.into_iter().find_map(|(index, line)| {
        let how = if line.starts_with(BEGIN) {
            "this BEGIN line is damaged"
        } else if line.starts_with(END) {
            "this END line has no BEGIN line before it"
        } else {
            return None;
        };
        Some((index + 1, how))
    })
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
const REVOCATION_LIST: &str = "X509 CRL";

/// Returns `true` for headers of RFC 1421, which `openssl` still writes.
fn is_header(line: &[u8]) -> bool {
    line.contains(&b':')
}

impl OpenBlock {
    fn close(self, path: &Path, body: &[u8]) -> Result<PemBlock, Error> {
        let item = match self.label.as_str() {
            "ENCRYPTED PRIVATE KEY" => PemItem::EncryptedKey,
            label if label.ends_with("PRIVATE KEY") && is_encrypted(body) => PemItem::EncryptedKey,
            REVOCATION_LIST => PemItem::RevocationList(self.decode(path, REVOCATION_LIST, body)?),
            "CERTIFICATE" | "X509 CERTIFICATE" => {
                PemItem::Certificate(self.decode(path, "CERTIFICATE", body)?.into())
            }
            "PRIVATE KEY" => {
                PemItem::Key(PrivateKeyDer::Pkcs8(self.decode(path, &self.label, body)?.into()).into())
            }
            "RSA PRIVATE KEY" => {
                PemItem::Key(PrivateKeyDer::Pkcs1(self.decode(path, &self.label, body)?.into()).into())
            }
            "EC PRIVATE KEY" => {
                PemItem::Key(PrivateKeyDer::Sec1(self.decode(path, &self.label, body)?.into()).into())
            }
            "TRUSTED CERTIFICATE" => PemItem::Certificate(self.trusted(path, body)?.into()),
            label => PemItem::Other(label.to_owned()),
        };
        Ok(PemBlock { line: self.line, item })
    }

    /// The certificate in a block of `openssl x509 -trustout`, which appends trust settings.
    fn trusted(&self, path: &Path, body: &[u8]) -> Result<Vec<u8>, Error> {
        let mut der = self.decode(path, "CERTIFICATE", body)?;
        let length = element(&der).ok_or_else(|| {
            let why = "it is no certificate".to_owned();
            Error::content(path, Some(self.line), ContentFault::BadCertificate(why))
        })?;
        der.truncate(length);
        Ok(der)
    }

    /// Decodes the base64 of a block with a label that `rustls-pki-types` knows.
    fn decode(&self, path: &Path, label: &str, body: &[u8]) -> Result<Vec<u8>, Error> {
        let bad = || {
            let how = "what is between the BEGIN and END lines is not base64";
            Error::content(path, Some(self.line), ContentFault::BadPem(how))
        };
        let mut text = Zeroizing::new(Vec::with_capacity(body.len() + 2 * label.len() + 40));
        text.extend_from_slice(format!("-----BEGIN {label}-----\n").as_bytes());
        for line in body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            if !is_header(line) {
                text.extend_from_slice(line);
                text.push(b'\n');
            }
        }
        text.extend_from_slice(format!("-----END {label}-----\n").as_bytes());
        let (_, der) = <(SectionKind, Vec<u8>)>::from_pem_slice(&text).map_err(|_| bad())?;
        if der.is_empty() { Err(bad()) } else { Ok(der) }
    }
}

/// Returns `true` for encrypted blocks (RFC 1421 §4.6.1.1), such as keys in the format before PKCS#8.
fn is_encrypted(body: &[u8]) -> bool {
    body.split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .any(|line| line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED"))
}

/// The fault of a file without PEM blocks.
fn no_pem(bytes: &[u8]) -> ContentFault {
    // With and without a byte order mark.
    let marks: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
    let dashes: [&[u8]; 2] = [b"-\0-\0-\0", b"\0-\0-\0-"];
    if marks.iter().any(|mark| bytes.starts_with(mark))
        || dashes.iter().any(|dashes| bytes.windows(dashes.len()).any(|part| part == *dashes))
    {
        return ContentFault::Utf16;
    }
    if x509::parse(bytes).is_ok() {
        return ContentFault::DerCertificate;
    }
    // PKCS#12, PKCS#8, PKCS#1 and SEC1 are each a SEQUENCE that begins with a version, which is 3 only in
    // PKCS#12 (RFC 7292 §4). An encrypted PKCS#8 begins with an AlgorithmIdentifier.
    match inside_sequence(bytes) {
        Some([0x02, 0x01, 0x03, ..]) => ContentFault::Pkcs12,
        Some([0x02, 0x01, 0x00 | 0x01, ..]) => ContentFault::DerKey,
        Some(inner) if inner.starts_with(SIGNED_DATA) => ContentFault::Pkcs7 { der: true },
        Some(inner) => match inside_sequence(inner) {
            Some([0x06, ..]) => ContentFault::DerKey,
            _ => ContentFault::NotPem,
        },
        None => ContentFault::NotPem,
    }
}

/// The content type of PKCS#7 containers with certificates (RFC 2315 §14).
const SIGNED_DATA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];

/// The length of the leading DER SEQUENCE, header included (X.690 §8.1).
fn element(der: &[u8]) -> Option<usize> {
    let header = der.len() - inside_sequence(der)?.len();
    let content = match &der[1..header] {
        [short] => usize::from(*short),
        [_, length @ ..] => length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        [] => return None,
    };
    header.checked_add(content).filter(|length| *length <= der.len())
}

/// The content of a DER SEQUENCE (X.690 §8.1); its length is not checked.
fn inside_sequence(der: &[u8]) -> Option<&[u8]> {
    match der {
        [0x30, 0x81, _, rest @ ..] | [0x30, 0x82, _, _, rest @ ..] | [0x30, 0x83, _, _, _, rest @ ..] => {
            Some(rest)
        }
        [0x30, length, rest @ ..] if *length < 0x80 => Some(rest),
        _ => None,
    }
}
