//! Client certificates: trusted CAs, revocation lists, and the names that are admitted.
//!
//! rustls verifies a certificate against the roots; [`AllowList`] then checks its names.

mod allow;
pub mod forwarded;
mod identity;
mod parts;

pub use allow::{AllowList, Pattern};
pub use identity::identity;
pub use parts::CertificateParts;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateRevocationListDer, Der, TrustAnchor};

use crate::anchors::{Anchors, Exact};
use crate::clock;
use crate::error::{ContentFault, Error};
use crate::facts::{AlternativeNames, CertificateFacts};
use crate::pem::{PemFile, PemItem, read_bytes};
use crate::warning::{Concern, Warning};
use crate::x509;

/// The certificates of a CA bundle, with warnings.
#[derive(Debug)]
pub struct LoadedRoots {
    /// The trust anchors; at least one.
    pub anchors: Anchors,
    /// Problems that do not prevent the use of the bundle.
    pub warnings: Vec<Warning>,
}

/// Loads every certificate of a PEM bundle as a trust anchor, both as an issuer and as a certificate that a
/// peer may present.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, has no certificate, or has a malformed one,
/// given with its line.
pub fn load_roots(path: &Path, now: SystemTime) -> Result<LoadedRoots, Error> {
    let file = PemFile::read(path)?;
    let (mut roots, mut warnings) = (RootCertStore::empty(), Vec::new());
    let mut seen = Vec::new();
    for block in &file.blocks {
        match &block.item {
            PemItem::Certificate(der) if seen.contains(der) => {}
            PemItem::Certificate(der) => {
                let bad = |why| Error::content(path, Some(block.line), ContentFault::BadCertificate(why));
                let facts = CertificateFacts::read(der).map_err(bad)?;
                roots.add(der.clone()).map_err(|error| bad(error.to_string()))?;
                if facts.not_after <= now {
                    let concern =
                        Concern::CaExpired { subject: facts.subject_text, not_after: facts.not_after };
                    warnings.push(Warning::new(path, concern));
                }
                seen.push(der.clone());
            }
            PemItem::Key(_) => warnings.push(Warning::new(path, Concern::KeyInBundle)),
            PemItem::EncryptedKey | PemItem::RevocationList(_) | PemItem::Other(_) => {}
        }
    }
    if roots.is_empty() {
        return Err(file.no_certificate());
    }
    let anchors = Anchors { exact: Exact::new(seen), ..Anchors::from(roots) };
    Ok(LoadedRoots { anchors, warnings })
}

/// The parameters for the verification of peers.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The authorities that may issue certificates.
    pub roots: Arc<RootCertStore>,
    /// The certificates trusted without an authority.
    pub exact: Exact,
    /// The certificate revocation lists, newest last.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
    /// The SPIFFE trust domains. If there are any, a certificate must have a SPIFFE ID, and an issuer among
    /// the authorities of its trust domain. All of these are in `roots` too.
    pub domains: Vec<TrustDomain>,
    /// The patterns of [`AllowList`] as written: verification does not use them, but they are part of the
    /// context of a session.
    pub allowed: Vec<String>,
}

/// A SPIFFE trust domain.
#[derive(Clone, Debug)]
pub struct TrustDomain {
    /// The name of the trust domain.
    pub name: String,
    /// The authorities of the trust domain.
    pub roots: Arc<RootCertStore>,
}

impl Trust {
    /// Encodes everything that decides about admission: equal bytes for equal rules. Lists are prefixed with
    /// their length, so that the encoding is unambiguous.
    #[must_use]
    pub fn context(&self) -> Vec<u8> {
        let mut context = Vec::new();
        let mut add = |part: &[u8]| {
            context.extend_from_slice(&part.len().to_be_bytes());
            context.extend_from_slice(part);
        };
        let stores = std::iter::once(("", &self.roots));
        let domains = self.domains.iter().map(|domain| (domain.name.as_str(), &domain.roots));
        for (name, store) in stores.chain(domains) {
            add(name.as_bytes());
            add(&store.len().to_be_bytes());
            for root in &store.roots {
                add(&root.subject);
                add(&root.subject_public_key_info);
                add(root.name_constraints.as_deref().unwrap_or_default());
            }
        }
        add(&self.revoked.len().to_be_bytes());
        self.revoked.iter().for_each(|list| add(list));
        add(&self.exact.certificates().len().to_be_bytes());
        self.exact.certificates().iter().for_each(|one| add(one));
        add(&self.allowed.len().to_be_bytes());
        self.allowed.iter().for_each(|pattern| add(pattern.as_bytes()));
        context
    }
}

impl From<Arc<RootCertStore>> for Trust {
    fn from(roots: Arc<RootCertStore>) -> Self {
        let exact = Exact::default();
        Trust { roots, exact, revoked: Vec::new(), domains: Vec::new(), allowed: Vec::new() }
    }
}

impl From<&Anchors> for Trust {
    fn from(anchors: &Anchors) -> Self {
        Trust { exact: anchors.exact.clone(), ..Trust::from(Arc::clone(&anchors.store)) }
    }
}

/// The revocation lists of a file, with warnings.
#[derive(Debug)]
pub struct LoadedLists {
    /// The lists; at least one.
    pub lists: Vec<CertificateRevocationListDer<'static>>,
    /// Problems that do not prevent the use of the lists.
    pub warnings: Vec<Warning>,
}

/// The maximum size of a file of revocation lists, in bytes: some public authorities have lists of several
/// MiB.
pub const MAX_LISTS_SIZE: u64 = 32 << 20;

/// Loads the revocation lists of a file: one in DER, or any number in PEM.
///
/// An overdue list is used all the same, with a warning: the certificates in it stay revoked.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, has no list, or has a malformed one.
pub fn load_revocation_lists(path: &Path, now: SystemTime) -> Result<LoadedLists, Error> {
    let (bytes, _) = read_bytes(path, MAX_LISTS_SIZE)?;
    let (mut lists, mut warnings) = (Vec::new(), Vec::new());
    // DER starts with the tag of a SEQUENCE, which no PEM file starts with.
    if bytes.first() == Some(&0x30) {
        add_list(path, None, bytes.to_vec(), now, &mut lists, &mut warnings)?;
        return Ok(LoadedLists { lists, warnings });
    }
    let file = PemFile::of(path, &bytes)?;
    let labels = file.other_labels();
    for block in file.blocks {
        if let PemItem::RevocationList(der) = block.item {
            add_list(path, Some(block.line), der, now, &mut lists, &mut warnings)?;
        }
    }
    if lists.is_empty() {
        return Err(Error::content(path, None, ContentFault::NoRevocationList(labels)));
    }
    Ok(LoadedLists { lists, warnings })
}

/// The end of validity of a certificate in DER. `None` if it cannot be parsed.
#[must_use]
pub fn valid_until(der: &[u8]) -> Option<SystemTime> {
    Some(clock::from_asn1(x509::parse(der).ok()?.validity().not_after))
}

/// The trust domain of the SPIFFE ID in a certificate in DER. `None` without one: an X.509-SVID has exactly
/// one URI, of the form `spiffe://DOMAIN/PATH`.
#[must_use]
pub fn trust_domain(der: &[u8]) -> Option<String> {
    let names = AlternativeNames::read(&x509::parse(der).ok()?).ok()?;
    let [id] = &names.uris[..] else { return None };
    let (domain, path) = id.strip_prefix("spiffe://")?.split_once('/')?;
    (!domain.is_empty() && !path.is_empty()).then(|| domain.to_owned())
}

/// The issuer's name of a certificate in DER, itself in DER. `None` if it cannot be parsed.
#[must_use]
pub fn certificate_issuer(der: &[u8]) -> Option<Vec<u8>> {
    Some(x509::parse(der).ok()?.issuer().as_raw().to_vec())
}

/// The issuer's name of a revocation list in DER, itself in DER. `None` if it cannot be parsed.
#[must_use]
pub fn list_issuer(der: &[u8]) -> Option<Vec<u8>> {
    x509::list_issuer(der)
}

fn add_list(
    path: &Path,
    line: Option<usize>,
    der: Vec<u8>,
    now: SystemTime,
    lists: &mut Vec<CertificateRevocationListDer<'static>>,
    warnings: &mut Vec<Warning>,
) -> Result<(), Error> {
    let (issuer, next_update) = x509::revocation_list(&der)
        .map_err(|why| Error::content(path, line, ContentFault::BadRevocationList(why)))?;
    let der = CertificateRevocationListDer::from(der);
    usable(&der).map_err(|why| Error::content(path, line, ContentFault::BadRevocationList(why)))?;
    if let Some(next_update) = next_update.filter(|next| *next <= now) {
        warnings.push(Warning::new(path, Concern::RevocationListExpired { issuer, next_update }));
    }
    lists.push(der);
    Ok(())
}

/// The warning about a list with a next update before `now`.
pub fn overdue(path: &Path, list: &CertificateRevocationListDer<'_>, now: SystemTime) -> Option<Warning> {
    let (issuer, next_update) = x509::revocation_list(list).ok()?;
    let next_update = next_update.filter(|next| *next <= now)?;
    Some(Warning::new(path, Concern::RevocationListExpired { issuer, next_update }))
}

/// The time of the next update, if the list has one.
pub fn next_update(list: &CertificateRevocationListDer<'_>) -> Option<SystemTime> {
    x509::revocation_list(list).ok()?.1
}

/// Checks that rustls can use the list: here file and line are known, and one bad list does not affect the
/// others.
fn usable(list: &CertificateRevocationListDer<'static>) -> Result<(), String> {
    // Lists are only parsed with some authority; this one has issued nothing.
    let no_issuer = TrustAnchor {
        subject: Der::from_slice(&[]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    };
    let roots = Arc::new(RootCertStore { roots: vec![no_issuer] });
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).with_crls([list.clone()]);
    verifier.build().map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut der = vec![tag, content.len() as u8];
        der.extend_from_slice(content);
        der
    }

    /// An empty list; one of version 1 has neither a version number nor extensions.
    fn list(version: Option<u8>) -> Vec<u8> {
        const SEQUENCE: u8 = 0x30;
        // The OIDs ecdsa-with-SHA256 and commonName.
        let algorithm = element(SEQUENCE, &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
        let name = [&[6, 3, 0x55, 4, 3][..], &element(0x0c, b"CA")].concat();
        let name = element(SEQUENCE, &element(0x31, &element(SEQUENCE, &name)));
        let times = [element(0x17, b"260101000000Z"), element(0x17, b"400101000000Z")].concat();
        let version_2 = version.map(|version| vec![2, 1, version]).unwrap_or_default();
        // The extension cRLNumber with the value 1.
        let number = element(SEQUENCE, &[&[6, 3, 0x55, 0x1d, 0x14][..], &element(4, &[2, 1, 1])].concat());
        let extensions = version.map(|_| element(0xa0, &element(SEQUENCE, &number))).unwrap_or_default();
        let content = [version_2, algorithm.clone(), name, times, extensions].concat();
        let signature = element(3, &[0, 0x30, 6, 2, 1, 1, 2, 1, 1]);
        element(SEQUENCE, &[element(SEQUENCE, &content), algorithm, signature].concat())
    }

    #[test]
    fn a_list_that_no_handshake_can_use_is_refused_where_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.crl");
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
        std::fs::write(&path, list(Some(1))).unwrap();
        let loaded = load_revocation_lists(&path, now).unwrap();
        let end = next_update(&loaded.lists[0]).unwrap();
        assert!(end > now && overdue(&path, &loaded.lists[0], now).is_none());
        let warning = overdue(&path, &loaded.lists[0], end).unwrap().to_string();
        assert!(warning.contains("list.crl") && warning.contains("2040-01-01"), "{warning}");
        std::fs::write(&path, list(None)).unwrap();
        let error = load_revocation_lists(&path, now).unwrap_err().to_string();
        assert!(error.contains("list.crl") && error.contains("version 1"), "{error}");
    }
}
