//! The order of a chain, starting from the certificate of a key.
//!
//! RFC 8446 §4.4.2 wants the leaf first and each certificate signed by the next. Files are not always in that
//! order: the leaf is found by its public key, the others by issuer names and key identifiers.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;

use crate::facts::CertificateFacts;

/// A certificate and its parsed facts.
pub(crate) struct ChainLink {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) facts: CertificateFacts,
}

/// An ordered chain, and unused certificates.
pub(crate) struct OrderedChain {
    /// The leaf, followed by its issuers as far as present. Never empty.
    pub(crate) links: Vec<ChainLink>,
    pub(crate) unused: Vec<ChainLink>,
}

impl OrderedChain {
    /// Orders `pool` into the chain of the certificate with this `public_key` (SubjectPublicKeyInfo). Returns
    /// the pool if there is no such certificate.
    pub(crate) fn order(
        mut pool: Vec<ChainLink>,
        public_key: &[u8],
        now: SystemTime,
    ) -> Result<Self, Vec<ChainLink>> {
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
        Ok(OrderedChain { links, unused: pool })
    }

    pub(crate) fn leaf(&self) -> &ChainLink {
        &self.links[0]
    }
}

/// Finds the leaf. Among several certificates of one key, such as the old and the renewed one in a file, a
/// valid one is preferred, then the one that lasts longest.
fn leaf_of(pool: &[ChainLink], public_key: &[u8], now: SystemTime) -> Option<usize> {
    let candidates = pool.iter().enumerate().filter(|(_, link)| link.facts.public_key == public_key);
    let rank = |link: &ChainLink| {
        let valid = link.facts.not_before <= now && now < link.facts.not_after;
        (valid, link.facts.not_after)
    };
    // The first of equals in the file: `max_by_key` would return the last.
    candidates.rev().max_by_key(|(_, link)| rank(link)).map(|(index, _)| index)
}
