//! Certificates from PEM files, in any order and combination.
//!
//! The blocks of the certificate's file and of the key's are pooled; the leaf is the certificate that belongs
//! to the key, and the chain is ordered after it. Two different keys are refused rather than guessed between.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::{CertifiedKey, SigningKey};

use crate::certificate::{Certificate, CertificateOrigin, abilities, soon_at};
use crate::chain::{ChainLink, OrderedChain};
use crate::error::{ContentFault, Error, PairFault};
use crate::facts::CertificateFacts;
use crate::name::DnsPattern;
use crate::pem::{PemFile, PemItem, read_bytes};
use crate::staple::{self, Staple};
use crate::warning::{Concern, Warning};
use crate::x509;

/// A certificate with warnings.
#[derive(Debug)]
pub struct Loaded {
    /// The certificate, ready for use.
    pub certificate: Certificate,
    /// Problems that do not prevent the use of the certificate.
    pub warnings: Vec<Warning>,
}

/// Loads a chain and its key from `cert`, and from `key` if the key is in another file.
///
/// A certificate that is expired or not yet valid at `now` loads all the same, with a warning. So does one
/// beside an OCSP response (see [`staple::places`]) that cannot be stapled.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`] for a file that cannot be read or has the wrong content,
/// [`Error::Pair`] if there is no key, more than one, or none that matches a certificate.
pub fn load(cert: &Path, key: Option<&Path>, now: SystemTime) -> Result<Loaded, Error> {
    let beside = staple::places(cert).into_iter().find(|path| path.exists());
    load_stapled(cert, key, beside.as_deref(), now)
}

/// Like [`load`], with the OCSP response in the file `staple`. If it is absent or cannot be stapled, the
/// certificate loads all the same, with a warning.
///
/// # Errors
/// Those of [`load`].
pub fn load_stapled(
    cert: &Path,
    key: Option<&Path>,
    staple: Option<&Path>,
    now: SystemTime,
) -> Result<Loaded, Error> {
    let mut files = vec![PemFile::read(cert)?];
    if let Some(key) = key.filter(|key| *key != cert) {
        files.push(PemFile::read(key)?);
    }
    let paths = PathPair { cert: cert.to_owned(), key: key.unwrap_or(cert).to_owned() };
    let (pool, keys) = classify_blocks(files)?;
    if let Some((path, line, fault)) = keys.missing(pool.is_empty()) {
        return Err(Error::content(path, Some(*line), fault.clone()));
    }
    let key = keys.only(&paths)?;
    if pool.is_empty() {
        return Err(paths.error(PairFault::NoCertificate));
    }
    let chain = OrderedChain::order(pool, &key.public, now).map_err(|pool| {
        paths.error(PairFault::Mismatch(pool.into_iter().map(|link| link.facts.subject_text).collect()))
    })?;
    let mut warnings = Vec::new();
    if key.mode & 0o077 != 0 {
        warnings.push(Warning::new(&key.path, Concern::KeyReadable { mode: key.mode }));
    }
    let names = names_of(&chain.leaf().facts, cert, &mut warnings);
    warn(&chain, cert, now, &mut warnings);
    let staple = staple.and_then(|path| staple_of(&chain, path, now, &mut warnings));
    let source = CertificateOrigin::Files { cert: paths.cert, key: (paths.key != cert).then_some(paths.key) };
    let mut certificate = assemble(chain, key, names, source)?;
    if let Some(staple) = staple {
        certificate.staple_until = staple.until;
        let chained = (*certificate.certified_key).clone();
        certificate.certified_key = Arc::new(CertifiedKey { ocsp: Some(staple.der), ..chained });
    }
    Ok(Loaded { certificate, warnings })
}

/// The paths of one certificate, for messages.
struct PathPair {
    cert: PathBuf,
    key: PathBuf,
}

impl PathPair {
    fn error(&self, fault: PairFault) -> Error {
        Error::Pair { cert: self.cert.clone(), key: self.key.clone(), fault }
    }
}

/// A private key and its place.
struct PrivateKey {
    path: PathBuf,
    line: usize,
    mode: u32,
    signing: Arc<dyn SigningKey>,
    /// The public key as SubjectPublicKeyInfo.
    public: Vec<u8>,
}

/// The keys of all files: usable ones, and the places of encrypted ones.
#[derive(Default)]
struct FoundKeys {
    plain: Vec<PrivateKey>,
    encrypted: Option<(PathBuf, usize)>,
    /// Blocks in unsupported formats: the place, and the fault with its remedy.
    foreign: Vec<(PathBuf, usize, ContentFault)>,
}

impl FoundKeys {
    /// The unsupported block that takes the place of a missing certificate or key.
    fn missing(&self, certificate: bool) -> Option<&(PathBuf, usize, ContentFault)> {
        let key = self.plain.is_empty() && self.encrypted.is_none();
        let is_key =
            |fault: &ContentFault| matches!(fault, ContentFault::OpenSshKey | ContentFault::UnsupportedKey);
        self.foreign.iter().find(|(_, _, fault)| if is_key(fault) { key } else { certificate })
    }

    /// Returns the only key. The same key twice counts once.
    fn only(mut self, paths: &PathPair) -> Result<PrivateKey, Error> {
        let Some(first) = self.plain.first() else {
            return Err(match self.encrypted {
                Some((path, line)) => Error::content(&path, Some(line), ContentFault::EncryptedKey),
                None => paths.error(PairFault::NoKey),
            });
        };
        if self.plain.iter().any(|key| key.public != first.public) {
            let places = self.plain.into_iter().map(|key| (key.path, key.line)).collect();
            return Err(paths.error(PairFault::SeveralKeys(places)));
        }
        // Of several copies the one with the loosest permissions matters.
        let loosest = (0..self.plain.len()).max_by_key(|index| self.plain[*index].mode & 0o077);
        Ok(self.plain.swap_remove(loosest.unwrap_or(0)))
    }
}

/// Sorts the blocks of all files into certificates, each once, and keys.
fn classify_blocks(files: Vec<PemFile>) -> Result<(Vec<ChainLink>, FoundKeys), Error> {
    let (mut pool, mut keys) = (Vec::<ChainLink>::new(), FoundKeys::default());
    for PemFile { path, mode, blocks } in files {
        for block in blocks {
            let fault = |fault| Error::content(&path, Some(block.line), fault);
            match block.item {
                PemItem::Certificate(der) if pool.iter().any(|link| link.der == der) => {}
                PemItem::Certificate(der) => {
                    let facts = CertificateFacts::read(&der)
                        .map_err(|why| fault(ContentFault::BadCertificate(why)))?;
                    pool.push(ChainLink { der, facts });
                }
                PemItem::Key(der) => {
                    let signing =
                        any_supported_type(&der).map_err(|_| fault(ContentFault::UnsupportedKey))?;
                    let public = signing.public_key().map(|key| key.to_vec());
                    let public = public.ok_or_else(|| fault(ContentFault::UnsupportedKey))?;
                    keys.plain.push(PrivateKey {
                        path: path.clone(),
                        line: block.line,
                        mode,
                        signing,
                        public,
                    });
                }
                PemItem::EncryptedKey => keys.encrypted = Some((path.clone(), block.line)),
                PemItem::RevocationList(_) => {}
                other @ PemItem::Other(_) => {
                    let foreign = other.foreign().map(|fault| (path.clone(), block.line, fault));
                    keys.foreign.extend(foreign);
                }
            }
        }
    }
    Ok((pool, keys))
}

fn assemble(
    chain: OrderedChain,
    key: PrivateKey,
    names: Vec<DnsPattern>,
    source: CertificateOrigin,
) -> Result<Certificate, Error> {
    let unsupported = || Error::content(&key.path, Some(key.line), ContentFault::UnsupportedKey);
    let (kind, schemes) = abilities(&*key.signing).ok_or_else(unsupported)?;
    let leaf = chain.leaf().facts.clone();
    let chain = chain.links.into_iter().map(|link| link.der).collect();
    Ok(Certificate {
        certified_key: Arc::new(CertifiedKey::new(chain, key.signing)),
        names,
        addresses: leaf.alternative.addresses,
        kind,
        not_before: leaf.not_before,
        not_after: leaf.not_after,
        staple_until: None,
        description: leaf.description,
        source,
        used: None,
        schemes,
    })
}

/// Reads the OCSP response in a file, if it can be stapled.
fn staple_of(
    chain: &OrderedChain,
    path: &Path,
    now: SystemTime,
    warnings: &mut Vec<Warning>,
) -> Option<Staple> {
    let leaf = &chain.leaf().facts;
    // A self-issued leaf is its own issuer.
    let issuer = chain.links.get(1).map(|link| &link.facts).or_else(|| leaf.self_issued().then_some(leaf));
    let key = issuer.and_then(|issuer| x509::key_bits(&issuer.public_key));
    let subject = staple::OcspSubject { issuer: &leaf.issuer, issuer_key: key, serial: &leaf.serial_der };
    let read = match read_bytes(path, staple::MAX_SIZE) {
        Ok((bytes, _)) => staple::read(bytes.to_vec(), subject, now),
        Err(error) => Err(error.to_string()),
    };
    read.map_err(|why| warnings.push(Warning::new(path, Concern::UnusableStaple { why }))).ok()
}

/// The leaf's names, each once; unusable ones are left out with a warning.
fn names_of(leaf: &CertificateFacts, path: &Path, warnings: &mut Vec<Warning>) -> Vec<DnsPattern> {
    let mut names = Vec::new();
    let from_cn = if leaf.alternative.present { None } else { leaf.description.common_name.as_ref() };
    for text in leaf.alternative.dns.iter().chain(from_cn) {
        match DnsPattern::parse(text) {
            Ok(name) if names.contains(&name) => {}
            Ok(name) => names.push(name),
            // A CN is often a title such as `Example Corp`, not meant as a name.
            Err(_) if from_cn.is_some() => {}
            Err(_) => {
                warnings.push(Warning::new(path, Concern::UnusableName { name: text.clone() }));
            }
        }
    }
    match (from_cn, names.first()) {
        (Some(_), Some(name)) => {
            warnings.push(Warning::new(path, Concern::CommonNameOnly { name: name.to_string() }));
        }
        (_, None) if leaf.alternative.addresses.is_empty() => {
            warnings.push(Warning::new(path, Concern::NoNames));
        }
        _ => {}
    }
    names
}

/// Adds warnings about the leaf's validity and its chain.
fn warn(chain: &OrderedChain, path: &Path, now: SystemTime, warnings: &mut Vec<Warning>) {
    let leaf = &chain.leaf().facts;
    let (not_before, not_after) = (leaf.not_before, leaf.not_after);
    let mut add = |concern| warnings.push(Warning::new(path, concern));
    if not_after <= now {
        add(Concern::Expired { not_after });
    } else if now < not_before {
        add(Concern::NotYetValid { not_before });
    } else if soon_at(not_before, not_after) <= now {
        add(Concern::ExpiresSoon { not_after });
    }
    if leaf.self_issued() {
        add(Concern::SelfSigned);
    } else if chain.links.len() == 1 {
        add(Concern::NoIssuer { issuer: leaf.issuer_text.clone() });
    }
    if !chain.unused.is_empty() {
        let subjects = chain.unused.iter().map(|link| link.facts.subject_text.clone()).collect();
        add(Concern::Unused { subjects });
    }
}
