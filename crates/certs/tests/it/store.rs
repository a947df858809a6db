//! The choice of a certificate, against a naive oracle and by example.

use std::sync::Arc;
use std::time::SystemTime;

use offramp_certs::store::{CertificateStore, MatchKind, Pick, StoreEntry};
use offramp_certs::{Certificate, KeyKind};
use proptest::prelude::*;
use rustls::SignatureScheme;

use crate::fixtures::{DAY, Dir, Leaf, present, self_signed};

const ECDSA: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
const ED25519: SignatureScheme = SignatureScheme::ED25519;
const RSA: SignatureScheme = SignatureScheme::RSA_PSS_SHA256;

fn certificate(leaf: &Leaf<'_>) -> Arc<Certificate> {
    let dir = Dir::new();
    let pair = self_signed(leaf);
    let loaded = offramp_certs::file::load(&dir.file("a.pem", pair.cert + &pair.key), None, present());
    Arc::new(loaded.unwrap().certificate)
}

fn of_kind(kind: KeyKind, names: &[&str]) -> Arc<Certificate> {
    let algorithm = match kind {
        KeyKind::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
        KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        KeyKind::Rsa => &rcgen::PKCS_RSA_SHA256,
    };
    certificate(&Leaf { names, algorithm, ..Leaf::default() })
}

fn store(certificates: &[(&Arc<Certificate>, bool)]) -> CertificateStore {
    let entries =
        certificates.iter().map(|(c, default)| StoreEntry { certificate: Arc::clone(c), default: *default });
    CertificateStore::new(entries, present())
}

fn picked(
    store: &CertificateStore,
    name: Option<&str>,
    schemes: &[SignatureScheme],
) -> Option<(Arc<Certificate>, MatchKind)> {
    match store.pick(name, schemes) {
        Pick::Found { certificate, by } => Some((Arc::clone(certificate), by)),
        Pick::NoneForName => None,
    }
}

#[track_caller]
fn assert_picked(
    store: &CertificateStore,
    name: Option<&str>,
    schemes: &[SignatureScheme],
    expected: &Arc<Certificate>,
    how: MatchKind,
) {
    let (found, by) = picked(store, name, schemes).expect("a certificate");
    assert!(Arc::ptr_eq(&found, expected), "{name:?} got {:?}", found.names);
    assert_eq!(by, how);
}

#[test]
fn exact_before_wildcard_before_default() {
    let exact = of_kind(KeyKind::Ecdsa, &["git.example.org"]);
    let wildcard = of_kind(KeyKind::Ecdsa, &["*.example.org"]);
    let default = of_kind(KeyKind::Ecdsa, &["example.net"]);
    let some = store(&[(&wildcard, false), (&default, true), (&exact, false)]);
    assert_picked(&some, Some("git.example.org"), &[ECDSA], &exact, MatchKind::Exact);
    assert_picked(&some, Some("GIT.Example.Org."), &[ECDSA], &exact, MatchKind::Exact);
    assert_picked(&some, Some("www.example.org"), &[ECDSA], &wildcard, MatchKind::Wildcard);
    assert_picked(&some, Some("WWW.EXAMPLE.ORG"), &[ECDSA], &wildcard, MatchKind::Wildcard);
    let long = "a".repeat(64) + &".a".repeat(200);
    for name in
        ["example.org", "a.b.example.org", ".example.org", "*.example.org", "", ".", "192.0.2.1", "é", &long]
    {
        assert_picked(&some, Some(name), &[ECDSA], &default, MatchKind::Default);
    }
    assert_picked(&some, Some("example.net"), &[ECDSA], &default, MatchKind::Exact);
    assert_picked(&some, None, &[ECDSA], &default, MatchKind::Default);
    assert_eq!(some.certificates().count(), 3);

    let none = store(&[(&wildcard, false), (&exact, false)]);
    assert!(picked(&none, None, &[ECDSA]).is_none());
    assert!(picked(&none, Some("example.net"), &[ECDSA]).is_none());
    assert!(!none.has_default() && !none.is_empty());
    assert!(picked(&CertificateStore::default(), Some("a"), &[ECDSA]).is_none());
}

#[test]
fn the_cheapest_kind_of_key_that_the_client_knows() {
    let names = &["example.org"];
    let rsa = of_kind(KeyKind::Rsa, names);
    let ed25519 = of_kind(KeyKind::Ed25519, names);
    let ecdsa = of_kind(KeyKind::Ecdsa, names);
    let store = store(&[(&rsa, true), (&ed25519, true), (&ecdsa, true)]);
    for (name, how) in [(Some("example.org"), MatchKind::Exact), (None, MatchKind::Default)] {
        assert_picked(&store, name, &[RSA, ED25519, ECDSA], &ecdsa, how);
        assert_picked(&store, name, &[RSA, ED25519], &ed25519, how);
        assert_picked(&store, name, &[SignatureScheme::RSA_PKCS1_SHA512], &rsa, how);
        // None suits: rustls is to say so with handshake_failure.
        assert_picked(&store, name, &[SignatureScheme::RSA_PKCS1_SHA1], &ecdsa, how);
        assert_picked(&store, name, &[], &ecdsa, how);
    }
}

#[test]
fn a_wildcard_that_suits_goes_before_an_exact_name_that_does_not() {
    let exact = of_kind(KeyKind::Ecdsa, &["a.example.org"]);
    let wildcard = of_kind(KeyKind::Rsa, &["*.example.org"]);
    let store = store(&[(&exact, false), (&wildcard, false)]);
    assert_picked(&store, Some("a.example.org"), &[ECDSA, RSA], &exact, MatchKind::Exact);
    assert_picked(&store, Some("a.example.org"), &[RSA], &wildcard, MatchKind::Wildcard);
    assert_picked(&store, Some("a.example.org"), &[ED25519], &exact, MatchKind::Exact);
}

#[test]
fn the_valid_before_the_expired_and_the_newer_before_the_older() {
    let expired = certificate(&Leaf { not_after: present() - DAY / 2, ..Leaf::default() });
    let older = certificate(&Leaf { not_before: present() - 2 * DAY, ..Leaf::default() });
    let newer = certificate(&Leaf::default());
    let rsa = of_kind(KeyKind::Rsa, &["example.org"]);
    let name = Some("example.org");
    let all = store(&[(&expired, false), (&older, false), (&rsa, false), (&newer, false)]);
    assert_picked(&all, name, &[ECDSA, RSA], &newer, MatchKind::Exact);
    let two = store(&[(&expired, false), (&rsa, false)]);
    assert_picked(&two, name, &[ECDSA, RSA], &rsa, MatchKind::Exact);
    let one = store(&[(&expired, false)]);
    assert_picked(&one, name, &[ECDSA, RSA], &expired, MatchKind::Exact);
    let later =
        CertificateStore::new([StoreEntry { certificate: newer, default: false }], SystemTime::UNIX_EPOCH);
    assert!(picked(&later, name, &[ECDSA]).is_some());
}

/// RFC 9525 §6.3 read literally, label by label.
fn naive_match(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let pattern: Vec<&str> = pattern.split('.').collect();
    let name: Vec<&str> = name.split('.').collect();
    let label = |(p, n): (&&str, &&str)| if *p == "*" { !n.is_empty() && *n != "*" } else { p == n };
    pattern.len() == name.len() && pattern.iter().zip(&name).all(label)
}

proptest! {
    #[test]
    fn names_are_found_as_a_naive_search_finds_them(
        patterns in prop::collection::vec("(\\*\\.)?[ab]{1,2}(\\.[ab]){0,2}", 1..6),
        name in "[abAB]{0,2}(\\.[abAB]){0,3}",
        default in any::<bool>(),
    ) {
        // One certificate carries the first half of the names, a second one the rest.
        let base = Certificate::clone(&BASE);
        let part = |patterns: &[String]| {
            let names = patterns.iter().map(|p| offramp_certs::DnsPattern::parse(p).unwrap()).collect();
            let mut certificate = base.clone();
            certificate.names = names;
            Arc::new(certificate)
        };
        let (first, second) = patterns.split_at(patterns.len() / 2);
        let store = CertificateStore::new(
            [
                StoreEntry { certificate: part(first), default: false },
                StoreEntry { certificate: part(second), default },
            ],
            present(),
        );
        let matching = |wild: bool| {
            let of_kind = move |p: &&String| p.starts_with('*') == wild;
            patterns.iter().filter(of_kind).any(|p| naive_match(p, &name))
        };
        let expected = if matching(false) {
            Some(MatchKind::Exact)
        } else if matching(true) {
            Some(MatchKind::Wildcard)
        } else if default {
            Some(MatchKind::Default)
        } else {
            None
        };
        let found = picked(&store, Some(&name), &[ECDSA]);
        prop_assert_eq!(found.as_ref().map(|(_, by)| *by), expected);
        if let Some((certificate, MatchKind::Exact | MatchKind::Wildcard)) = found {
            prop_assert!(certificate.names.iter().any(|pattern| pattern.matches(&name)));
        }
    }
}

static BASE: std::sync::LazyLock<Arc<Certificate>> =
    std::sync::LazyLock::new(|| of_kind(KeyKind::Ecdsa, &["base"]));
