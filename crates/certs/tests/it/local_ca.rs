//! The local CA: minted once, kept, never replaced by accident, and trusted by real clients.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_certs::local_ca::{CA_LIFE, LEAF_LIFE, LocalCa};
use offramp_certs::{CaFault, Certificate, CertificateOrigin, Concern, Error, KeyKind, NameFault};
use rustls::pki_types::{ServerName, UnixTime};

use crate::fixtures::{Authority, DAY, Dir, Leaf, chmod, mode, present, self_signed};

const NAMES: &[&str] = &["localhost", "*.home.arpa", "127.0.0.1", "::1"];

fn ca_fault(result: Result<LocalCa, Error>) -> (CaFault, String) {
    let error = result.unwrap_err();
    let message = error.to_string();
    match error {
        Error::LocalCa { fault, .. } => (fault, message),
        other => panic!("{other}"),
    }
}

fn leaf(certificate: &Certificate) -> &[u8] {
    &certificate.certified_key.cert[0]
}

#[test]
fn minting_leaves_private_files_that_openssl_verifies() {
    let dir = Dir::new();
    let now = SystemTime::now();
    let state = dir.path().join("new/state");
    let ca = LocalCa::open_or_create(&state, now).unwrap();
    let home = state.join("ca");
    assert_eq!(ca.certificate_path(), home.join("ca.pem"));
    assert_eq!(ca.warnings(), []);
    let certificate = ca.issue(NAMES, now).unwrap();
    let CertificateOrigin::LocalCa { path } = &certificate.source else { panic!("{:?}", certificate.source) };
    assert_eq!(path.parent(), Some(home.join("issued").as_path()));
    for (path, expected) in [
        (home.clone(), 0o700),
        (home.join("issued"), 0o700),
        (home.join("ca.pem"), 0o644),
        (home.join("ca.key"), 0o600),
        (path.clone(), 0o600),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
    let shown = |path: &std::path::Path| path.display().to_string();
    let (authority, issued) = (shown(&home.join("ca.pem")), shown(path));
    for name in ["localhost", "printer.home.arpa"] {
        let purpose = "-x509_strict -purpose sslserver";
        dir.openssl(&format!("verify {purpose} -verify_hostname {name} -CAfile {authority} {issued}"));
    }
    dir.openssl(&format!("verify -x509_strict -verify_ip ::1 -CAfile {authority} {issued}"));
    let text = dir.openssl(&format!("x509 -noout -text -in {authority}"));
    assert!(text.contains("Subject: CN = Offramp Local CA "), "{text}");
    assert!(text.contains("CA:TRUE, pathlen:0") && text.contains("Certificate Sign"), "{text}");
    let text = dir.openssl(&format!("x509 -noout -text -in {issued}"));
    assert!(text.contains("TLS Web Server Authentication") && text.contains("CA:FALSE"), "{text}");
}

#[test]
fn what_is_issued_has_the_names_and_the_life_asked_for() {
    let dir = Dir::new();
    let ca = LocalCa::open_or_create(dir.path(), present()).unwrap();
    assert_eq!(ca.not_after(), present() + CA_LIFE);
    let certificate = ca.issue(NAMES, present()).unwrap();
    let names: Vec<String> = certificate.names.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["*.home.arpa", "localhost"]);
    assert_eq!(certificate.addresses.len(), 2);
    assert_eq!(certificate.kind, KeyKind::Ecdsa);
    assert_eq!(certificate.not_before, present() - Duration::from_secs(3600));
    assert_eq!(certificate.not_after, present() + LEAF_LIFE);
    assert_eq!(certificate.certified_key.cert.len(), 1);
    certificate.certified_key.keys_match().unwrap();
}

#[test]
fn a_rustls_client_that_trusts_the_ca_accepts_what_it_issues() {
    let dir = Dir::new();
    let ca = LocalCa::open_or_create(dir.path(), present()).unwrap();
    let certificate = ca.issue(NAMES, present()).unwrap();
    let roots =
        offramp_certs::client_auth::load_roots(&ca.certificate_path(), present()).unwrap().anchors.store;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(roots, provider).build().unwrap();
    let now = UnixTime::since_unix_epoch(present().duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let leaf = &certificate.certified_key.cert[0];
    let verify = |name: &'static str| {
        let name = ServerName::try_from(name).unwrap();
        rustls::client::danger::ServerCertVerifier::verify_server_cert(&*verifier, leaf, &[], &name, &[], now)
    };
    for name in ["localhost", "printer.home.arpa", "127.0.0.1", "::1"] {
        verify(name).unwrap();
    }
    for name in ["home.arpa", "a.b.home.arpa", "127.0.0.2"] {
        verify(name).unwrap_err();
    }
}

#[test]
fn what_is_issued_serves_until_a_third_of_its_life_is_left() {
    let dir = Dir::new();
    let first = LocalCa::open_or_create(dir.path(), present()).unwrap().issue(NAMES, present()).unwrap();
    let again = |names: &[&str], now| {
        let ca = LocalCa::open_or_create(dir.path(), now).unwrap();
        ca.issue(names, now).unwrap()
    };
    let renew_at = first.renew_at();
    let other_order = ["::1", "LOCALHOST", "127.0.0.1", "*.home.arpa", "localhost"];
    for certificate in [again(NAMES, present()), again(NAMES, renew_at - Duration::from_secs(1))] {
        assert_eq!(leaf(&certificate), leaf(&first));
        assert_eq!(certificate.source, first.source);
    }
    let reordered = again(&other_order, present());
    assert_eq!(reordered.names, first.names);
    assert_ne!(leaf(&again(&["localhost"], present())), leaf(&first));
    let renewed = again(NAMES, renew_at);
    assert_ne!(leaf(&renewed), leaf(&first));
    assert_eq!(renewed.not_after, renew_at + LEAF_LIFE);
    assert_eq!(leaf(&again(NAMES, renew_at)), leaf(&renewed));
    // A clock that was set back: what is not valid yet does not serve.
    assert_ne!(leaf(&again(NAMES, renew_at - DAY)), leaf(&renewed));
}

#[test]
fn what_was_issued_and_does_not_fit_is_minted_anew() {
    let dir = Dir::new();
    let ca = LocalCa::open_or_create(dir.path(), present()).unwrap();
    let first = ca.issue(NAMES, present()).unwrap();
    let CertificateOrigin::LocalCa { path } = &first.source else { panic!("{:?}", first.source) };
    let whole = std::fs::read_to_string(path).unwrap();
    let foreign = Authority::root("foreign").issue(&Leaf { names: NAMES, ..Leaf::default() });
    for content in [String::new(), whole[..whole.len() / 2].to_owned(), foreign.cert + &foreign.key] {
        std::fs::write(path, content).unwrap();
        // Left by a crash in the middle of minting.
        std::fs::write(path.with_extension("pem.new"), "half").unwrap();
        let next = ca.issue(NAMES, present()).unwrap();
        assert_ne!(leaf(&next), leaf(&first));
        assert_eq!(leaf(&ca.issue(NAMES, present()).unwrap()), leaf(&next));
        assert!(!path.with_extension("pem.new").exists());
    }
}

#[test]
fn a_damaged_ca_is_an_error_and_never_replaced() {
    let dir = Dir::new();
    LocalCa::open_or_create(dir.path(), present()).unwrap();
    let (pem, key) = (dir.path().join("ca/ca.pem"), dir.path().join("ca/ca.key"));
    let (good_pem, good_key) = (std::fs::read(&pem).unwrap(), std::fs::read(&key).unwrap());
    let open = || ca_fault(LocalCa::open_or_create(dir.path(), present()));
    let advised = |message: &str| assert!(message.contains("from a backup, or move"), "{message}");

    for (kept, lost) in [(&pem, &key), (&key, &pem)] {
        let content = std::fs::read(lost).unwrap();
        std::fs::remove_file(lost).unwrap();
        let (fault, message) = open();
        advised(&message);
        assert!(matches!(fault, CaFault::Half { present, missing } if present == *kept && missing == *lost));
        assert!(!lost.exists());
        std::fs::write(lost, content).unwrap();
    }
    for (path, content) in [(&pem, &good_pem), (&key, &good_key)] {
        for damaged in [&content[..0], &content[..content.len() / 2]] {
            std::fs::write(path, damaged).unwrap();
            let (fault, message) = open();
            advised(&message);
            assert!(matches!(fault, CaFault::Damaged(_)), "{message}");
            assert!(message.contains(&path.display().to_string()), "{message}");
            assert_eq!(std::fs::read(path).unwrap(), damaged);
        }
        std::fs::write(path, content).unwrap();
    }
    let foreign = self_signed(&Leaf::default());
    std::fs::write(&key, &foreign.key).unwrap();
    assert!(matches!(open().0, CaFault::Damaged(_)));
    std::fs::write(&pem, &foreign.cert).unwrap();
    let (fault, message) = open();
    advised(&message);
    assert!(matches!(fault, CaFault::NotACa), "{message}");

    std::fs::write(&pem, &good_pem).unwrap();
    std::fs::write(&key, &good_key).unwrap();
    LocalCa::open_or_create(dir.path(), present()).unwrap();
    let (fault, message) = ca_fault(LocalCa::open_or_create(dir.path(), present() + CA_LIFE));
    advised(&message);
    assert!(matches!(fault, CaFault::Expired { .. }), "{message}");
}

#[test]
fn nothing_outlives_the_ca() {
    let dir = Dir::new();
    let end = present() + CA_LIFE;
    LocalCa::open_or_create(dir.path(), present()).unwrap();
    let ca = LocalCa::open_or_create(dir.path(), end - DAY).unwrap();
    assert!(matches!(ca.warnings()[0].concern, Concern::ExpiresSoon { not_after } if not_after == end));
    assert_eq!(ca.issue(NAMES, end - DAY).unwrap().not_after, end);
    assert!(matches!(
        ca.issue(&["other"], end).unwrap_err(),
        Error::LocalCa { fault: CaFault::Expired { .. }, .. }
    ));
}

#[test]
fn a_key_of_the_ca_open_to_others_is_warned_about() {
    let dir = Dir::new();
    LocalCa::open_or_create(dir.path(), present()).unwrap();
    chmod(&dir.path().join("ca/ca.key"), 0o644);
    let ca = LocalCa::open_or_create(dir.path(), present()).unwrap();
    assert_eq!(ca.warnings().len(), 1);
    assert_eq!(ca.warnings()[0].concern, Concern::KeyReadable { mode: 0o644 });
}

#[test]
fn names_that_no_certificate_can_have_are_refused() {
    let dir = Dir::new();
    let ca = LocalCa::open_or_create(dir.path(), present()).unwrap();
    let many: Vec<String> = (0..101).map(|number| format!("n{number}.test")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = "a.".repeat(40) + "test";
    for (names, expected) in [
        (&[][..], NameFault::Empty),
        (&["localhost", ""], NameFault::Empty),
        (&["../../etc"], NameFault::Length),
        (&["a/b"], NameFault::Character('/')),
        (&["b\u{fc}cher.test"], NameFault::Character('\u{fc}')),
        (&["a.*.test"], NameFault::Wildcard),
        (&many, NameFault::TooMany),
    ] {
        match ca.issue(names, present()).unwrap_err() {
            Error::Name { fault, .. } => assert_eq!(fault, expected),
            other => panic!("{other}"),
        }
    }
    ca.issue(&many[..100], present()).unwrap();
    ca.issue(&[&long], present()).unwrap();
    assert_eq!(
        ca.issue(&["_sip.Host_Name.test."], present()).unwrap().names[0].host(),
        "_sip.host_name.test"
    );
}

#[test]
fn all_who_start_at_once_get_the_same_ca_and_certificate() {
    for _ in 0..10 {
        let dir = Dir::new();
        let barrier = std::sync::Barrier::new(8);
        let minted: Vec<(Vec<u8>, Vec<u8>)> = std::thread::scope(|scope| {
            let start = || {
                barrier.wait();
                let ca = LocalCa::open_or_create(dir.path(), present()).unwrap();
                (ca.certificate().to_vec(), leaf(&ca.issue(NAMES, present()).unwrap()).to_vec())
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(minted.iter().all(|both| *both == minted[0]));
    }
}
