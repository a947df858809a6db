//! Inspection of certificates and chains for people.
//!
//! Nothing here decides about admission or trust.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;

use crate::certificate::soon_at;
use crate::clock;
use crate::error::Error;
use crate::facts::CertificateFacts;
use crate::name::DnsPattern;
use crate::pem::{PemFile, PemItem};
use crate::x509;

/// The fields of one certificate.
#[derive(Clone, Debug)]
pub struct CertificateFields {
    /// The subject's distinguished name.
    pub subject: String,
    /// The issuer's distinguished name.
    pub issuer: String,
    /// The serial number in hexadecimal.
    pub serial: String,
    /// The names of every kind.
    pub names: Vec<String>,
    /// The start of the validity period.
    pub not_before: SystemTime,
    /// The end of the validity period.
    pub not_after: SystemTime,
    /// The kind and size of the key, such as `EC256` or `RSA2048`.
    pub key: String,
    /// The algorithm of the issuer's signature.
    pub signature: String,
    /// Set if the certificate may sign others.
    pub is_ca: bool,
}

/// Parses one certificate.
///
/// # Errors
/// The reason of the parser.
pub fn read(der: &[u8]) -> Result<CertificateFields, String> {
    let facts = CertificateFacts::read(der)?;
    let names = &facts.alternative;
    let dns = names.dns.iter().map(|name| x509::printable(name));
    let addresses = names.addresses.iter().map(ToString::to_string);
    let uris = names.uris.iter().map(|uri| x509::printable(uri));
    Ok(CertificateFields {
        names: dns.chain(addresses).chain(uris).collect(),
        key: facts.description.key_algorithm.to_string(),
        signature: facts.description.signature_algorithm.to_string(),
        subject: facts.subject_text,
        issuer: facts.issuer_text,
        serial: facts.serial,
        not_before: facts.not_before,
        not_after: facts.not_after,
        is_ca: facts.is_ca,
    })
}

/// The certificates of a PEM file in order.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, or has no certificate.
pub fn chain_of_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let file = PemFile::read(path)?;
    let certificate = |item| match item {
        PemItem::Certificate(der) => Some(der),
        _ => None,
    };
    if !file.blocks.iter().any(|block| matches!(block.item, PemItem::Certificate(_))) {
        return Err(file.no_certificate());
    }
    Ok(file.blocks.into_iter().filter_map(|block| certificate(block.item)).collect())
}

/// The faults of a chain as a client receives it, leaf first, at `now`, for a server called `host` if known.
/// The client trusts the certificates of `trusted`. Each fault is a sentence with its remedy.
pub fn faults(
    chain: &[CertificateDer<'_>],
    host: Option<&str>,
    trusted: &[CertificateDer<'_>],
    now: SystemTime,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut links = Vec::new();
    for (index, der) in chain.iter().enumerate() {
        match CertificateFacts::read(der) {
            Ok(facts) => links.push(facts),
            Err(why) => {
                faults.push(format!("certificate {index} cannot be read ({why}); have it issued again"));
                return faults;
            }
        }
    }
    let Some(leaf) = links.first() else { return vec!["there is no certificate".to_owned()] };
    for (index, link) in links.iter().enumerate() {
        validity(index, link, now, &mut faults);
        weakness(index, link, &mut faults);
    }
    names(leaf, host, &mut faults);
    let is_trusted = trusted.contains(&chain[0]);
    if leaf.is_ca && !is_trusted {
        faults.push("the first certificate is that of an authority; send the server's own first".to_owned());
    }
    if x509::parse(&chain[0]).is_ok_and(|leaf| !is_for_servers(&leaf)) {
        faults.push("the certificate is not for servers (serverAuth); have it issued for them".to_owned());
    }
    order(&links, chain, &mut faults);
    if !is_trusted {
        end(&links, chain, trusted, &mut faults);
    }
    faults
}

fn validity(index: usize, link: &CertificateFacts, now: SystemTime, faults: &mut Vec<String>) {
    let whose = &link.subject_text;
    if link.not_after <= now {
        faults.push(format!(
            "certificate {index} ({whose}) EXPIRED on {}; renew it",
            clock::date(link.not_after)
        ));
    } else if now < link.not_before {
        let begins = clock::date(link.not_before);
        faults.push(format!("certificate {index} ({whose}) is not valid before {begins}; check the clock"));
    } else if index == 0 && soon_at(link.not_before, link.not_after) <= now {
        faults.push(format!("the certificate expires soon, on {}; renew it", clock::date(link.not_after)));
    }
}

fn weakness(index: usize, link: &CertificateFacts, faults: &mut Vec<String>) {
    let (key, signature) = (&link.description.key_algorithm, &link.description.signature_algorithm);
    if key.strip_prefix("RSA").and_then(|bits| bits.parse::<u32>().ok()).is_some_and(|bits| bits < 2048) {
        faults
            .push(format!("the key of certificate {index} is too short ({key}); use ECDSA P-256 or RSA2048"));
    }
    // The self-signature of a root is never checked.
    let old = ["RSA-SHA1", "RSA-MD5", "ecdsa-with-SHA1"].contains(&&**signature);
    if old && !link.self_issued() {
        faults.push(format!("certificate {index} is signed with {signature}, which clients refuse"));
    }
}

fn names(leaf: &CertificateFacts, host: Option<&str>, faults: &mut Vec<String>) {
    let names = &leaf.alternative;
    if names.dns.is_empty() && names.addresses.is_empty() {
        faults.push("the certificate has no DNS name and no address; clients ignore the CN".to_owned());
    }
    let Some(host) = host else { return };
    let covered = match host.parse() {
        Ok(address) => names.addresses.contains(&address),
        Err(_) => names.dns.iter().any(|name| DnsPattern::parse(name).is_ok_and(|name| name.matches(host))),
    };
    if !covered {
        let only = x509::printable(&names.dns.join(", "));
        faults.push(format!("the certificate is not for {host}, only for: {only}"));
    }
}

fn order(links: &[CertificateFacts], chain: &[CertificateDer<'_>], faults: &mut Vec<String>) {
    for (index, pair) in links.windows(2).enumerate() {
        let next = index + 1;
        if pair[0].self_issued() {
            faults.push(format!("certificate {next} is not part of the chain: {index} is its own issuer"));
        } else if !pair[0].names_as_issuer(&pair[1]) {
            faults.push(format!(
                "certificate {next} ({}) has not issued certificate {index}, whose issuer is {}; put the chain in order",
                pair[1].subject_text, pair[0].issuer_text
            ));
        } else if !x509::signed_by(&chain[index], &chain[next]) {
            faults.push(format!("certificate {next} has the name of the issuer of {index}, but another key"));
        }
    }
}

/// Checks the last certificate of a chain, unless it is trusted.
fn end(
    links: &[CertificateFacts],
    chain: &[CertificateDer<'_>],
    trusted: &[CertificateDer<'_>],
    faults: &mut Vec<String>,
) {
    let Some(last) = links.last() else { return };
    let has_issued_it = |der: &CertificateDer<'_>| {
        CertificateFacts::read(der).is_ok_and(|issuer| last.names_as_issuer(&issuer))
            && chain.last().is_some_and(|last| x509::signed_by(last, der))
    };
    if !last.self_issued() && trusted.iter().any(has_issued_it) {
        return;
    }
    match (links.len(), last.self_issued()) {
        (1, true) => faults.push("the certificate is self-signed; clients must be configured to trust it".to_owned()),
        (1, false) => faults.push(format!(
            "the chain ends at the certificate itself: send that of its issuer ({}) too, unless clients have it",
            last.issuer_text
        )),
        _ => {}
    }
}

fn is_for_servers(leaf: &x509_parser::certificate::X509Certificate<'_>) -> bool {
    match leaf.extended_key_usage() {
        Ok(Some(usage)) => usage.value.server_auth || usage.value.any,
        _ => true,
    }
}

/// The validity period at `now` in words: `valid for 61 more days`.
pub fn validity_in_words(not_before: SystemTime, not_after: SystemTime, now: SystemTime) -> String {
    let days = |time: Duration| time.as_secs() / (24 * 3600);
    match (now.duration_since(not_before), not_after.duration_since(now)) {
        (Err(early), _) => format!("not valid for {} more days", days(early.duration())),
        (_, Err(late)) => format!("expired {} days ago", days(late.duration())),
        (Ok(_), Ok(left)) => format!("valid for {} more days", days(left)),
    }
}

/// The date in UTC, such as `2026-11-21`.
pub fn date(time: SystemTime) -> String {
    clock::date(time)
}
