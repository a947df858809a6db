//! Reading the PEM blocks of a file (RFC 7468), tolerantly where it is safe.
//!
//! Tolerated: any order, CRLF, a file that is indented as a whole, a byte order mark, `openssl`'s headers, and
//! between blocks any text, as OpenSSL has it. Refused, with the reason: what is cut off or damaged, and
//! what is not PEM at all. The base64 itself is decoded by `rustls-pki-types`, in constant time for keys, and every copy of a
//! key that is made here is wiped.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem::{PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::error::{ContentFault, Error};
use crate::file::MAX_FILE_SIZE;
use crate::x509;

/// The blocks of one file.
#[derive(Debug)]
pub(crate) struct PemFile {
    pub(crate) path: PathBuf,
    /// The file's permission bits.
    pub(crate) mode: u32,
    pub(crate) blocks: Vec<Block>,
}

/// One block.
#[derive(Debug)]
pub(crate) struct Block {
    /// The line of its `BEGIN`, counted from 1.
    pub(crate) line: usize,
    pub(crate) item: Item,
}

/// What a block holds.
#[derive(Debug)]
pub(crate) enum Item {
    Certificate(CertificateDer<'static>),
    Key(Zeroizing<PrivateKeyDer<'static>>),
    EncryptedKey,
    /// A certificate revocation list.
    RevocationList(Vec<u8>),
    /// Anything else, by its label.
    Other(String),
}

impl Item {
    /// The fault of a file that has this in the place of a certificate or a key, if there is a remedy.
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

    /// The blocks of a file that was read.
    pub(crate) fn of(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        Ok(PemFile { path: path.to_owned(), mode: 0, blocks: blocks_of(path, bytes)? })
    }

    /// The error of a file that has no certificate.
    pub(crate) fn no_certificate(&self) -> Error {
        let foreign = self.blocks.iter().find_map(|block| Some((block.line, block.item.foreign()?)));
        match foreign {
            Some((line, fault)) => Error::content(&self.path, Some(line), fault),
            None => Error::content(&self.path, None, ContentFault::NoCertificate(self.other_labels())),
        }
    }

    /// The labels of the blocks that are not certificates, each once, for a message.
    pub(crate) fn other_labels(&self) -> Vec<String> {
        let mut labels: Vec<String> = Vec::new();
        for block in &self.blocks {
            let label = match &block.item {
                Item::Certificate(_) => continue,
                Item::Key(_) | Item::EncryptedKey => "PRIVATE KEY",
                Item::RevocationList(_) => REVOCATION_LIST,
                Item::Other(label) => label,
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
    // Asked before opening, because opening a pipe would wait for its writer.
    let metadata = std::fs::metadata(path).map_err(|error| Error::io("read", path, error))?;
    if !metadata.is_file() {
        return Err(Error::content(path, None, ContentFault::NotAFile));
    }
    let file = File::open(path).map_err(|error| Error::io("read", path, error))?;
    let metadata = file.metadata().map_err(|error| Error::io("read", path, error))?;
    if metadata.len() > most {
        return Err(Error::content(path, None, ContentFault::TooLarge { most }));
    }
    // Room for all of it at once: a growing vector would leave copies of keys behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::io("read", path, error))?;
    if bytes.len() as u64 > most {
        return Err(Error::content(path, None, ContentFault::TooLarge { most }));
    }
    Ok((bytes, metadata.permissions().mode() & 0o7777))
}

/// Reads a short text that is a secret, such as a key in base64, without the white space around it.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, is none (opening a pipe would wait for its writer), or
/// is too large.
pub fn read_secret(path: &Path) -> Result<Zeroizing<String>, Error> {
    const MOST: u64 = 64 << 10;
    let (bytes, _) = read_bytes(path, MOST)?;
    Ok(Zeroizing::new(String::from_utf8_lossy(bytes.trim_ascii()).into_owned()))
}

/// A block whose end has not been seen yet.
struct Open {
    line: usize,
    label: String,
    /// Where the line after its `BEGIN` starts.
    start: usize,
}

/// Which lines may begin a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Margin {
    /// Those that begin at the margin, as OpenSSL has it: what is indented is text.
    None,
    /// Indented ones too: a file that was copied out of another.
    Any,
}

fn blocks_of(path: &Path, bytes: &[u8]) -> Result<Vec<Block>, Error> {
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

/// The blocks of a text. What is between them is anything, even lines that look like a part of a block: an END
/// without a BEGIN, a BEGIN that is cut off.
fn blocks_at(path: &Path, text: &[u8], margin: Margin) -> Result<Vec<Block>, Error> {
    let bad = |line, how| Error::content(path, Some(line), ContentFault::BadPem(how));
    let mut blocks = Vec::new();
    let mut open: Option<Open> = None;
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
                .map(|label| Open {
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

/// The first part of a block in a text without a whole one: its line, and what is wrong with it.
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

/// Whether a line is a header of the kind that RFC 1421 has and `openssl` still writes.
fn is_header(line: &[u8]) -> bool {
    line.contains(&b':')
}

impl Open {
    fn close(self, path: &Path, body: &[u8]) -> Result<Block, Error> {
        let item = match self.label.as_str() {
            "ENCRYPTED PRIVATE KEY" => Item::EncryptedKey,
            label if label.ends_with("PRIVATE KEY") && is_encrypted(body) => Item::EncryptedKey,
            REVOCATION_LIST => Item::RevocationList(self.decode(path, REVOCATION_LIST, body)?),
            "CERTIFICATE" | "X509 CERTIFICATE" => {
                Item::Certificate(self.decode(path, "CERTIFICATE", body)?.into())
            }
            "PRIVATE KEY" => {
                Item::Key(PrivateKeyDer::Pkcs8(self.decode(path, &self.label, body)?.into()).into())
            }
            "RSA PRIVATE KEY" => {
                Item::Key(PrivateKeyDer::Pkcs1(self.decode(path, &self.label, body)?.into()).into())
            }
            "EC PRIVATE KEY" => {
                Item::Key(PrivateKeyDer::Sec1(self.decode(path, &self.label, body)?.into()).into())
            }
            "TRUSTED CERTIFICATE" => Item::Certificate(self.trusted(path, body)?.into()),
            label => Item::Other(label.to_owned()),
        };
        Ok(Block { line: self.line, item })
    }

    /// The certificate of a block of `openssl x509 -trustout`, in which it is followed by what it is trusted for.
    fn trusted(&self, path: &Path, body: &[u8]) -> Result<Vec<u8>, Error> {
        let mut der = self.decode(path, "CERTIFICATE", body)?;
        let length = element(&der).ok_or_else(|| {
            let why = "it is no certificate".to_owned();
            Error::content(path, Some(self.line), ContentFault::BadCertificate(why))
        })?;
        der.truncate(length);
        Ok(der)
    }

    /// Decodes the base64 of the block under `label`, one that `rustls-pki-types` knows.
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

/// Whether a block says so of itself (RFC 1421 §4.6.1.1), as keys before PKCS#8 do.
fn is_encrypted(body: &[u8]) -> bool {
    body.split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .any(|line| line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED"))
}

/// What a file without PEM blocks holds instead.
fn no_pem(bytes: &[u8]) -> ContentFault {
    // With a byte order mark, and without.
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
    // PKCS#12, PKCS#8, PKCS#1 and SEC1 are each a SEQUENCE that begins with a version, of which
    // PKCS#12 alone has 3 (RFC 7292 §4). An encrypted PKCS#8 begins with an AlgorithmIdentifier.
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

/// The length of the DER SEQUENCE at the beginning, with its header (X.690 §8.1).
fn element(der: &[u8]) -> Option<usize> {
    let header = der.len() - inside_sequence(der)?.len();
    let content = match &der[1..header] {
        [short] => usize::from(*short),
        [_, length @ ..] => length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        [] => return None,
    };
    header.checked_add(content).filter(|length| *length <= der.len())
}

/// What follows the header of a DER SEQUENCE (X.690 §8.1); the length itself is not checked.
fn inside_sequence(der: &[u8]) -> Option<&[u8]> {
    match der {
        [0x30, 0x81, _, rest @ ..] | [0x30, 0x82, _, _, rest @ ..] | [0x30, 0x83, _, _, _, rest @ ..] => {
            Some(rest)
        }
        [0x30, length, rest @ ..] if *length < 0x80 => Some(rest),
        _ => None,
    }
}
