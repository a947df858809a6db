//! `openssl s_client` speaks TLS 1.2 and 1.3 with each suite, to a certificate of each kind of key.

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{CERTIFICATE, Home, LISTENER, cause, text};
use crate::support::openssl::echo;

/// OpenSSL's name of each suite, its IANA name in the event, and the kind of key that it needs.
const TLS12: [(&str, &str, &str); 6] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ecdsa_secp256r1_sha256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ecdsa_secp256r1_sha256"),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ecdsa_secp256r1_sha256",
    ),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "rsa_"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "rsa_"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "rsa_"),
];

const TLS13: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

#[test]
fn openssl_speaks_every_suite() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    home.ca.issue("rsa", &Leaf::server(Key::Rsa2048, &["localhost"])).unwrap();
    home.ca.issue("ed25519", &Leaf::server(Key::Ed25519, &["localhost"])).unwrap();
    let mut configuration = format!("{CERTIFICATE}{LISTENER}[[route]]\nserver = \"{}\"\n", app.address());
    for name in ["rsa", "ed25519"] {
        configuration += &format!("[[certificate]]\ncert = \"{name}.chain.pem\"\nkey = \"{name}.key\"\n");
    }
    let instance = home.run(&configuration);

    let mut expected = Vec::new();
    for (openssl, suite, scheme) in TLS12 {
        let said = echo(&instance, &["-tls1_2", "-cipher", openssl, "-verify_return_error"]);
        assert!(said.contains(&format!("New, TLSv1.2, Cipher is {openssl}")), "{said}");
        expected.push(("TLSv1.2", suite, scheme));
    }
    for suite in TLS13 {
        for (asked, scheme) in [
            ("ECDSA+SHA256", "ecdsa_secp256r1_sha256"),
            ("RSA-PSS+SHA256", "rsa_pss_rsae_sha256"),
            ("ed25519", "ed25519"),
        ] {
            let arguments = [
                "-tls1_3",
                "-ciphersuites",
                suite,
                "-sigalgs",
                asked,
                "-groups",
                "X25519",
                "-verify_return_error",
            ];
            let said = echo(&instance, &arguments);
            assert!(said.contains(&format!("New, TLSv1.3, Cipher is {suite}")), "{said}");
            expected.push(("TLSv1.3", suite, scheme));
        }
    }
    let events = instance.stop();
    assert_eq!(events.len(), expected.len());
    for (event, (version, suite, scheme)) in events.iter().zip(expected) {
        assert_eq!(text(event, "tls_version"), version, "{event}");
        assert_eq!(text(event, "tls_suite"), suite, "{event}");
        assert!(text(event, "tls_scheme").starts_with(scheme), "{event}");
        assert_eq!((text(event, "sni"), cause(event)), ("localhost", "client_closed"), "{event}");
        assert_eq!(
            (&event["bytes_from_client"], &event["bytes_to_client"]),
            (&20.into(), &20.into()),
            "{event}"
        );
    }
}

#[test]
fn openssl_agrees_on_each_group() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = crate::support::instance::Instance::before(app.address());
    for (version, asked, group) in [
        // In TLS 1.2 the list also says which curves a certificate may be on (RFC 8422 §5.1).
        ("-tls1_2", "X25519:P-256", "x25519"),
        ("-tls1_2", "P-256", "secp256r1"),
        ("-tls1_3", "X25519", "x25519"),
        ("-tls1_3", "P-256", "secp256r1"),
        ("-tls1_3", "P-384", "secp384r1"),
        // A first offer without a usable share: HelloRetryRequest.
        ("-tls1_3", "P-521:P-384", "secp384r1"),
    ] {
        echo(&instance, &[version, "-groups", asked]);
        let event = instance.event(group, |event| text(event, "tls_group") == group);
        assert_eq!(cause(&event), "client_closed", "{event}");
    }
    let groups: Vec<_> = instance.stop().iter().map(|event| text(event, "tls_group").to_owned()).collect();
    assert_eq!(groups, ["x25519", "secp256r1", "x25519", "secp256r1", "secp384r1", "secp384r1"]);
}
