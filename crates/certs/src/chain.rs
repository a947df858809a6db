//! Which certificate a key belongs to, and the order in which the chain is sent.
//!
//! RFC 8446 §4.4.2 wants the leaf first and each certificate signed by the next. Files do not always
//! have them so: the leaf is found by its public key, the rest by issuer names and key identifiers.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;

use crate::x509::Facts;

/// A certificate and what it says.
pub(crate) struct Link {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) facts: Facts,
}

/// A chain in order, and what was left over.
pub(crate) struct Chain {
    /// The leaf, then its issuers as far as they are there. Not empty.
    pub(crate) links: Vec<Link>,
    pub(crate) unused: Vec<Link>,
}

impl Chain {
    /// Orders `pool` into the chain of the certificate whose key is `public_key`
    /// (SubjectPublicKeyInfo). The pool comes back if there is no such certificate.
    pub(crate) fn order(mut pool: Vec<Link>, public_key: &[u8], now: SystemTime) -> Result<Self, Vec<Link>> {
        let Some(leaf) = leaf_of(&pool, public_key, now) else { return Err(pool) };
        let mut links = vec![pool.remove(leaf)];
        loop {
            let last = &links[links.len() - 1].facts;
            if last.self_issued() {
                break;
            }
            match pool.iter().position(|link| last.names_as_issuer(&link.facts)) {
                Some(issuer) => links.push(pool.remove(issuer)),
                None => break,
            }
        }
        Ok(Chain { links, unused: pool })
    }

    pub(crate) fn leaf(&self) -> &Link {
        &self.links[0]
    }
}

/// Among several certificates of one key, such as the old and the renewed in one file, the one that
/// is valid, and of several such the one that lasts longest.
fn leaf_of(pool: &[Link], public_key: &[u8], now: SystemTime) -> Option<usize> {
    let candidates = pool.iter().enumerate().filter(|(_, link)| link.facts.public_key == public_key);
    let rank = |link: &Link| {
        let valid = link.facts.not_before <= now && now < link.facts.not_after;
        (valid, link.facts.not_after)
    };
    // Of equals the first in the file: `max_by_key` would take the last.
    candidates.rev().max_by_key(|(_, link)| rank(link)).map(|(index, _)| index)
}
