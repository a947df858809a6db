//! Client certificates: which CAs are trusted, who is revoked, and which of their certificates are let in.
//!
//! That a certificate is genuine is verified by rustls against the roots; [`Allow`] then asks who it
//! names.

mod allow;
pub mod forwarded;
mod identity;

pub use allow::{Allow, Pattern};
pub use identity::identity;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls_pki_types::CertificateRevocationListDer;

use crate::clock;
use crate::error::{ContentFault, Error};
use crate::pem::{Item, PemFile, read_bytes};
use crate::warning::{Concern, Warning};
use crate::x509::{self, Facts};

/// The CAs of a bundle, and what to know about them.
#[derive(Debug)]
pub struct LoadedRoots {
    /// The trust anchors; at least one.
    pub roots: RootCertStore,
    /// What does not keep them from being used.
    pub warnings: Vec<Warning>,
}

/// Loads every certificate of a PEM bundle as a trust anchor.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, holds no certificate, or holds one
/// that is broken, with its line.
pub fn load_roots(path: &Path, now: SystemTime) -> Result<LoadedRoots, Error> {
    let file = PemFile::read(path)?;
    let (mut roots, mut warnings) = (RootCertStore::empty(), Vec::new());
    let mut seen = Vec::new();
    for block in &file.blocks {
        match &block.item {
            Item::Certificate(der) if seen.contains(&der) => {}
            Item::Certificate(der) => {
                let bad = |why| Error::content(path, Some(block.line), ContentFault::BadCertificate(why));
                let facts = Facts::read(der).map_err(bad)?;
                roots.add(der.clone()).map_err(|error| bad(error.to_string()))?;
                if facts.not_after <= now {
                    let concern =
                        Concern::CaExpired { subject: facts.subject_text, not_after: facts.not_after };
                    warnings.push(Warning::new(path, concern));
                }
                seen.push(der);
            }
            Item::Key(_) => warnings.push(Warning::new(path, Concern::KeyInBundle)),
            Item::EncryptedKey | Item::RevocationList(_) | Item::Other(_) => {}
        }
    }
    if roots.is_empty() {
        return Err(Error::content(path, None, ContentFault::NoCertificate(file.other_labels())));
    }
    Ok(LoadedRoots { roots, warnings })
}

/// Whom to believe about clients.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The authorities.
    pub roots: Arc<RootCertStore>,
    /// The lists of certificates that are revoked, newest last.
    pub revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl From<Arc<RootCertStore>> for Trust {
    fn from(roots: Arc<RootCertStore>) -> Self {
        Trust { roots, revoked: Vec::new() }
    }
}

/// The revocation lists of a file, and what to know about them.
#[derive(Debug)]
pub struct LoadedLists {
    /// The lists; at least one.
    pub lists: Vec<CertificateRevocationListDer<'static>>,
    /// What does not keep them from being used.
    pub warnings: Vec<Warning>,
}

/// The largest file of revocation lists, in bytes: some public authorities have lists of several MiB.
pub const MAX_LISTS_SIZE: u64 = 32 << 20;

/// Loads the revocation lists of a file: one in DER, or any number in PEM.
///
/// A list for which there should be a newer one at `now` is used all the same, with a warning: whom it names stays
/// refused.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, holds no list, or one that is broken.
pub fn load_revocation_lists(path: &Path, now: SystemTime) -> Result<LoadedLists, Error> {
    let (bytes, _) = read_bytes(path, MAX_LISTS_SIZE)?;
    let (mut lists, mut warnings) = (Vec::new(), Vec::new());
    // DER begins with a SEQUENCE, which is no letter of PEM.
    if bytes.first() == Some(&0x30) {
        add_list(path, None, bytes.to_vec(), now, &mut lists, &mut warnings)?;
        return Ok(LoadedLists { lists, warnings });
    }
    let file = PemFile::of(path, &bytes)?;
    let labels = file.other_labels();
    for block in file.blocks {
        if let Item::RevocationList(der) = block.item {
            add_list(path, Some(block.line), der, now, &mut lists, &mut warnings)?;
        }
    }
    if lists.is_empty() {
        return Err(Error::content(path, None, ContentFault::NoRevocationList(labels)));
    }
    Ok(LoadedLists { lists, warnings })
}

/// Until when a certificate in DER is valid. `None` where it cannot be parsed.
#[must_use]
pub fn valid_until(der: &[u8]) -> Option<SystemTime> {
    Some(clock::from_asn1(x509::parse(der).ok()?.validity().not_after))
}

/// The issuer's name in a certificate in DER, as DER. `None` where it cannot be parsed.
#[must_use]
pub fn certificate_issuer(der: &[u8]) -> Option<Vec<u8>> {
    Some(x509::parse(der).ok()?.issuer().as_raw().to_vec())
}

/// The issuer's name in a revocation list in DER, as DER. `None` where it cannot be parsed.
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
    if let Some(next_update) = next_update.filter(|next| *next <= now) {
        warnings.push(Warning::new(path, Concern::RevocationListExpired { issuer, next_update }));
    }
    lists.push(der.into());
    Ok(())
}
