//! Negotiation of suite, group, protocol and certificate.

use std::sync::Arc;

use offramp_record::{Alert, Version};
use offramp_tls::HandshakeFault;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, DigitallySignedStruct, Error, NamedGroup, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::fixtures::{NAME, OTHER, Setup, TLS12_ECDSA, TLS12_RSA, TLS13, client, client_of, pki, provider};
use crate::rig::{Refused, alert, connect, meet};

fn suite(setup: &Setup, suites: &[CipherSuite]) -> CipherSuite {
    let met = meet(setup, &Arc::new(client(suites)));
    let version = if TLS13.contains(&met.server.suite) { Version::Tls13 } else { Version::Tls12 };
    assert_eq!(met.server.version, version);
    met.server.suite
}

#[test]
fn every_suite_can_be_agreed_on() {
    for name in TLS13.into_iter().chain(TLS12_ECDSA).chain(TLS12_RSA) {
        assert_eq!(suite(&Setup::default(), &[name]), name);
    }
}

#[test]
fn the_server_orders_the_suites_unless_the_client_lists_chacha20_first() {
    for [aes128, aes256, chacha] in [TLS13, TLS12_ECDSA, TLS12_RSA] {
        for (offered, agreed) in [
            ([aes256, aes128, chacha], aes128),
            ([aes256, chacha, aes128], aes128),
            ([aes128, chacha, aes256], aes128),
            ([chacha, aes256, aes128], chacha),
            ([chacha, aes128, aes256], chacha),
        ] {
            assert_eq!(suite(&Setup::default(), &offered), agreed, "{offered:?}");
        }
        assert_eq!(suite(&Setup::default(), &[aes256, chacha]), chacha, "AES-256 is the last resort");
    }
}

#[test]
fn tls13_goes_before_tls12() {
    let [aes128, _, chacha] = TLS12_ECDSA;
    assert_eq!(suite(&Setup::default(), &[aes128, TLS13[1]]), TLS13[1]);
    assert_eq!(suite(&Setup::default(), &[chacha, TLS13[0], TLS13[2]]), TLS13[2]);
}

#[test]
fn the_group_is_post_quantum_where_both_can() {
    let group = |post_quantum, groups: &[NamedGroup]| {
        let mut setup = Setup::default();
        setup.policy.post_quantum = post_quantum;
        let config = client_of(provider(&TLS13, groups), None);
        meet(&setup, &Arc::new(config)).server.group
    };
    let (hybrid, classic, p256) = (NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::secp256r1);
    assert_eq!(group(true, &[]), Some(hybrid));
    assert_eq!(group(false, &[]), Some(classic));
    assert_eq!(group(true, &[classic, hybrid]), Some(classic), "not at the price of a round trip");
    assert_eq!(group(true, &[classic, p256]), Some(classic));
    assert_eq!(group(true, &[p256]), Some(p256));
    assert_eq!(group(false, &[hybrid, p256]), Some(p256), "by a HelloRetryRequest");
}

#[test]
fn the_protocol_is_chosen_in_the_servers_order() {
    let alpn = |server: &[&str], offered: &[&str]| {
        let setup = Setup { alpn: bytes(server), ..Setup::default() };
        let mut config = client(&[]);
        config.alpn_protocols = bytes(offered);
        let met = meet(&setup, &Arc::new(config));
        assert_eq!(met.server.alpn.as_deref(), met.alpn.as_deref());
        met.alpn.map(|name| String::from_utf8(name).unwrap())
    };
    assert_eq!(alpn(&["h2", "http/1.1"], &["http/1.1", "h2"]).as_deref(), Some("h2"));
    assert_eq!(alpn(&["http/1.1", "h2"], &["h2", "http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(alpn(&["h2", "http/1.1"], &["http/1.1"]).as_deref(), Some("http/1.1"));
    assert_eq!(alpn(&["h2"], &[]), None);
    assert_eq!(alpn(&[], &["h2"]), None);
}

#[test]
fn no_protocol_in_common_is_refused() {
    let setup = Setup { alpn: bytes(&["h2"]), ..Setup::default() };
    let mut config = client(&[]);
    config.alpn_protocols = bytes(&["redis"]);
    let refused = connect(&setup, &Arc::new(config), NAME).unwrap_err();
    assert_eq!(alert(&refused.client), Some(AlertDescription::NoApplicationProtocol));
    assert_eq!(refused.server.alert, Some(Alert::NO_APPLICATION_PROTOCOL));
}

#[test]
fn the_certificate_is_chosen_by_name() {
    let certificates = vec![Arc::clone(&pki().rsa), Arc::clone(&pki().other), Arc::clone(&pki().ecdsa)];
    let setup = Setup { certificates, default: false, ..Setup::default() };
    let leaf = |name| connect(&setup, &Arc::new(client(&[])), name).unwrap().leaf;
    assert_eq!(leaf(NAME), *pki().ecdsa.certified_key.cert[0], "ECDSA is preferred");
    assert_eq!(leaf(OTHER), *pki().other.certified_key.cert[0]);
}

#[test]
fn a_client_that_only_verifies_rsa_gets_rsa() {
    for suites in [&TLS13[..], &TLS12_RSA, &[]] {
        let provider = Arc::new(provider(suites, &[]));
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&pki().roots), provider);
        let mut config = client(suites);
        config.dangerous().set_certificate_verifier(Arc::new(OnlyRsa(verifier.build().unwrap())));
        let met = meet(&Setup::default(), &Arc::new(config));
        assert_eq!(met.leaf, *pki().rsa.certified_key.cert[0]);
    }
}

#[test]
fn an_unknown_name_is_refused_where_there_is_no_default() {
    let setup = Setup { default: false, ..Setup::default() };
    for suites in [&TLS13[..], &TLS12_ECDSA] {
        let config: Arc<ClientConfig> = Arc::new(client(suites));
        let Refused { server, client } = *connect(&setup, &config, OTHER).unwrap_err();
        let alert = alert(&client).expect("an alert");
        assert_eq!(server.alert.map(|sent| sent.0), Some(alert.into()));
        assert!(matches!(server.fault, HandshakeFault::Tls(_)), "{server:?}");
    }
}

fn bytes(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

/// A verifier that supports RSA signatures only.
#[derive(Debug)]
struct OnlyRsa(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for OnlyRsa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let rsa = |scheme: &SignatureScheme| {
            matches!(
                scheme,
                SignatureScheme::RSA_PSS_SHA256
                    | SignatureScheme::RSA_PSS_SHA384
                    | SignatureScheme::RSA_PSS_SHA512
                    | SignatureScheme::RSA_PKCS1_SHA256
            )
        };
        self.0.supported_verify_schemes().into_iter().filter(rsa).collect()
    }
}
