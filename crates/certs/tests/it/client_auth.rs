//! Client certificates: trust anchors, and who is let in.

use offramp_certs::client_auth::{AllowList, load_roots};
use offramp_certs::describe::Description;
use offramp_certs::{Concern, ContentFault, Error};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::fixtures::{Authority, DAY, Dir, Leaf, present, self_signed};

fn client(common_name: &str, names: &[&str]) -> CertificateDer<'static> {
    let pair = self_signed(&Leaf { common_name, names, ..Leaf::default() });
    CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()
}

fn allow(patterns: &[&str]) -> AllowList {
    AllowList::new(patterns.iter().map(|pattern| pattern.parse().unwrap()).collect())
}

#[test]
fn patterns_admit_whom_they_name() {
    let spiffe = "uri:spiffe://example.org/ns/a/sa/b";
    let cases: [(&str, &str, &[&str], bool); 20] = [
        ("dns:a.svc.example.org", "x", &["a.svc.example.org"], true),
        ("dns:a.svc.example.org", "x", &["A.SVC.example.org"], true),
        ("dns:*.svc.example.org", "x", &["other.example.org", "a.svc.example.org"], true),
        ("dns:*.svc.example.org", "x", &["a.b.svc.example.org"], false),
        ("dns:*.svc.example.org", "x", &["svc.example.org"], false),
        ("dns:*.svc.example.org", "x", &["*.svc.example.org"], false),
        ("dns:a.svc.example.org", "x", &["*.svc.example.org"], false),
        ("dns:a.svc.example.org", "a.svc.example.org", &[], false),
        ("uri:spiffe://example.org/*", "x", &[spiffe], true),
        ("uri:spiffe://example.org/ns/*/sa/b", "x", &[spiffe], true),
        ("uri:spiffe://example.org/ns/a/sa/b", "x", &[spiffe], true),
        ("uri:spiffe://example.com/*", "x", &[spiffe], false),
        ("uri:SPIFFE://example.org/*", "x", &[spiffe], false),
        ("uri:spiffe://example.org/", "x", &[spiffe], false),
        ("cn:backup", "backup", &[], true),
        ("cn:backup", "backups", &["backup"], false),
        ("cn:backup-*", "backup-7", &["a.b"], true),
        ("cn:*", "anyone", &[], true),
        ("cn:*", "", &["a.b"], false),
        ("cn:Backup", "backup", &[], false),
    ];
    for (pattern, common_name, names, admitted) in cases {
        let found = allow(&[pattern]).matches(&client(common_name, names));
        assert_eq!(found, admitted, "{pattern} {common_name} {names:?}");
    }
    let any = allow(&["dns:a.b", "cn:backup"]);
    assert!(any.matches(&client("backup", &[])));
    assert!(!any.matches(&client("other", &["b.a"])));
}

#[test]
fn an_empty_list_admits_and_garbage_is_not_admitted() {
    assert!(AllowList::default().matches(&client("x", &[])));
    let der = client("backup", &[]);
    let list = allow(&["cn:*", "dns:*.a", "uri:*"]);
    for end in 0..der.len() {
        assert!(!list.matches(&der[..end]));
    }
    let mut longer = der.to_vec();
    longer.push(0);
    assert!(!list.matches(&longer));
    assert!(list.matches(&der));
}

#[test]
fn a_client_is_described_for_the_proxy_protocol() {
    let description = Description::of(&client("b\u{fc}cherei", &[])).unwrap();
    assert_eq!(description.common_name.as_deref(), Some("b\u{fc}cherei"));
    assert_eq!(description.signature_algorithm, "ecdsa-with-SHA256");
    assert_eq!(description.key_algorithm, "EC256");
    assert_eq!(Description::of(&client("", &["a.b"])).unwrap().common_name, None);
}

#[test]
fn of_several_common_names_the_first_counts() {
    let dir = Dir::new();
    dir.openssl("req -x509 -newkey ed25519 -nodes -subj /CN=first/O=x/CN=second -keyout k -out a.pem");
    let pem = std::fs::read(dir.path().join("a.pem")).unwrap();
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    assert_eq!(Description::of(&der).unwrap().common_name.as_deref(), Some("first"));
    assert!(allow(&["cn:first"]).matches(&der));
    assert!(!allow(&["cn:second"]).matches(&der));
}

#[test]
fn a_bundle_becomes_trust_anchors() {
    let dir = Dir::new();
    let (one, two) = (Authority::root("one"), Authority::root("two"));
    let bundle = format!("# clients\n{}\n{}{}", one.cert, two.cert, one.cert);
    let loaded = load_roots(&dir.file("clients.pem", bundle), present()).unwrap();
    assert_eq!(loaded.anchors.store.len(), 2);
    assert_eq!(loaded.warnings, []);
    let loaded = load_roots(&dir.file("clients.pem", &one.cert), present() + 2000 * DAY).unwrap();
    assert!(matches!(&loaded.warnings[0].concern, Concern::CaExpired { subject, .. } if subject == "CN=one"));
    let key = self_signed(&Leaf::default()).key;
    let loaded = load_roots(&dir.file("clients.pem", one.cert.clone() + &key), present()).unwrap();
    assert_eq!(loaded.warnings[0].concern, Concern::KeyInBundle);

    let error = load_roots(&dir.file("clients.pem", key), present()).unwrap_err();
    assert!(error.to_string().contains("only PRIVATE KEY"), "{error}");
    let broken = one.cert.clone() + "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    match load_roots(&dir.file("clients.pem", broken), present()).unwrap_err() {
        Error::Content { line, fault: ContentFault::BadCertificate(_), .. } => {
            assert_eq!(line, Some(one.cert.lines().count() + 1));
        }
        other => panic!("{other}"),
    }
}
