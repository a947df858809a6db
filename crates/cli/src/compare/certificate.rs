//! Differences of the TLS that two sides offer for a name, pure. Keys, serial numbers and dates of two certificates differ
//! anyway and are not compared.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use offramp_certs::explain::{TlsPeer, tls_error};
use offramp_certs::inspect::{self, CertificateFields};

use super::client::OfferedTls;
use super::difference::{AnswerDifference, DifferenceKind};
use super::redact::printable;
use super::side::SeenChain;

/// Compares what is offered.
pub(super) fn differences(old: &OfferedTls, new: &OfferedTls, now: SystemTime) -> Vec<AnswerDifference> {
    let mut found = Vec::new();
    let mut differ = |kind, name: &str, old: String, new: String| {
        if old != new {
            found.push(AnswerDifference::new(kind, name, printable(&old), printable(&new)));
        }
    };
    let trust = |of: &OfferedTls| match of.seen.as_ref().and_then(|seen| seen.fault.as_ref()) {
        Some(fault) => format!("not trusted: {}", tls_error(fault, TlsPeer::Server)),
        None => "trusted".to_owned(),
    };
    differ(DifferenceKind::Certificate, "trust", trust(old), trust(new));
    if let (Some(a), Some(b)) = (leaf(old.seen.as_ref()), leaf(new.seen.as_ref())) {
        differ(DifferenceKind::Certificate, "names", names(&a), names(&b));
        differ(DifferenceKind::Certificate, "expiry", expiry(&a, now), expiry(&b, now));
        differ(DifferenceKind::Tls, "issuer of the certificate", a.issuer, b.issuer);
    }
    differ(DifferenceKind::Tls, "version", old.version.clone(), new.version.clone());
    differ(DifferenceKind::Tls, "protocol (ALPN)", old.protocol.clone(), new.protocol.clone());
    found
}

fn leaf(seen: Option<&SeenChain>) -> Option<CertificateFields> {
    inspect::read(seen?.chain.first()?).ok()
}

fn names(of: &CertificateFields) -> String {
    of.names
        .iter()
        .map(|name| name.to_ascii_lowercase())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(", ")
}

fn expiry(of: &CertificateFields, now: SystemTime) -> String {
    match of.not_after.duration_since(now) {
        Err(_) => "expired".to_owned(),
        Ok(left) if left < SOON => format!("ends within {} days", SOON.as_secs() / 86_400),
        Ok(_) => "later".to_owned(),
    }
}

/// The end of a certificate that is near enough to be looked at before a move.
const SOON: Duration = Duration::from_secs(7 * 86_400);

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::CertificateError;

    use super::*;

    fn offered(names: &[&str], version: &str, is_trusted: bool) -> OfferedTls {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = CertificateParams::new(names).unwrap().self_signed(&KeyPair::generate().unwrap()).unwrap();
        let fault = (!is_trusted).then(|| CertificateError::UnknownIssuer.into());
        let seen = Some(SeenChain { chain: vec![made.der().clone()], fault });
        OfferedTls { version: version.to_owned(), protocol: "h2".to_owned(), seen }
    }

    #[test]
    fn names_trust_and_versions_are_compared_and_keys_are_not() {
        let now = SystemTime::now();
        let parts = |old: &OfferedTls, new: &OfferedTls| -> Vec<String> {
            differences(old, new, now).into_iter().map(|one| one.part.name).collect()
        };
        let one = offered(&["a.test", "b.test"], "TLSv1_3", true);
        assert_eq!(parts(&one, &offered(&["B.test", "a.test"], "TLSv1_3", true)), [""; 0]);
        assert_eq!(parts(&one, &offered(&["a.test"], "TLSv1_3", true)), ["names"]);
        assert_eq!(parts(&one, &offered(&["a.test", "b.test"], "TLSv1_2", false)), ["trust", "version"]);
    }
}
