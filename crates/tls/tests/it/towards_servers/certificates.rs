//! Certificates of servers: each kind of invalid one, pins, and names.

use std::sync::Arc;

use offramp_record::Alert;
use offramp_tls::client::{Alpn, Connector, ConnectorSettings, ServerVerification};
use offramp_tls::{HandshakeError, HandshakeFault};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::crypto::aws_lc_rs as provider_of;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error};

use super::setup::{Authority, HOST, Leaf, greet, refused, server, settings, spki, trusting};
use crate::fixtures::{TLS12_ECDSA, TLS13};

fn fault(error: &HandshakeError) -> &CertificateError {
    match &error.fault {
        HandshakeFault::Tls(Error::InvalidCertificate(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bad_certificates_are_refused_by_their_names() {
    use CertificateError as C;
    let authority = Authority::new();
    let expired = authority.issue(|params| params.not_after = date_time_ymd(2020, 1, 1));
    let not_yet = authority.issue(|params| params.not_before = date_time_ymd(2200, 1, 1));
    let other_name = authority.issue(|params| {
        params.subject_alt_names =
            CertificateParams::new(["x.example".to_owned()]).unwrap().subject_alt_names;
    });
    let of_a_client = authority.issue(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let strange = Authority::named("strange").issue(|_| ());
    let impostor = Authority::new().issue(|_| ());
    let self_signed = {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([HOST.to_owned()]).unwrap().self_signed(&key).unwrap();
        Leaf { chain: vec![certificate.der().clone()], spki: spki(&key), key: key.serialize_der() }
    };
    type Is = fn(&CertificateError) -> bool;
    let rows: [(&str, &Leaf, Is, Alert); 7] = [
        ("expired", &expired, |why| matches!(why, C::ExpiredContext { .. }), Alert(45)),
        ("not yet", &not_yet, |why| matches!(why, C::NotValidYetContext { .. }), Alert(45)),
        ("wrong host", &other_name, |why| matches!(why, C::NotValidForNameContext { .. }), Alert(42)),
        ("wrong purpose", &of_a_client, |why| matches!(why, C::InvalidPurposeContext { .. }), Alert(43)),
        ("strange issuer", &strange, |why| *why == C::UnknownIssuer, Alert(48)),
        ("impostor", &impostor, |why| *why == C::BadSignature, Alert(51)),
        ("self-signed", &self_signed, |why| *why == C::UnknownIssuer, Alert(48)),
    ];
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        for (what, leaf, is, alert) in &rows {
            let connector = Connector::new(trusting(&authority)).unwrap();
            let (ours, theirs) = refused(&connector, server(leaf, &[suite], None));
            assert!(is(fault(&ours)), "{what}: {ours:?}");
            assert_eq!(ours.alert, Some(*alert), "{what}");
            let Some(Error::AlertReceived(received)) = theirs else { panic!("{what}: {theirs:?}") };
            assert_eq!(u8::from(received), alert.0, "{what}");
        }
    }
}

#[test]
fn a_chain_without_its_intermediate_is_refused() {
    let root = Authority::new();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "intermediate");
    let middle = params.signed_by(&key, &root.issuer).unwrap();
    let below = Authority { issuer: Issuer::new(params, key), roots: Arc::clone(&root.roots) };
    let mut leaf = below.issue(|_| ());
    let connector = Connector::new(trusting(&root)).unwrap();
    let (ours, _) = refused(&connector, server(&leaf, &TLS13, None));
    assert_eq!(*fault(&ours), CertificateError::UnknownIssuer);
    leaf.chain.push(middle.der().clone());
    assert!(!greet(&connector, server(&leaf, &TLS13, None), Alpn::Own).resumed);
}

#[test]
fn pins_stand_for_everything_else() {
    let authority = Authority::new();
    let leaf = authority.issue(|params| params.not_after = date_time_ymd(2020, 1, 1));
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let pinned = Connector::new(settings(ServerVerification::Pins(vec![[7; 32], leaf.spki]))).unwrap();
        assert!(!greet(&pinned, server(&leaf, &[suite], None), Alpn::Own).resumed);
        let wrong = Connector::new(settings(ServerVerification::Pins(vec![[7; 32]]))).unwrap();
        let (ours, _) = refused(&wrong, server(&leaf, &[suite], None));
        assert_eq!(*fault(&ours), CertificateError::ApplicationVerificationFailure);
        assert_eq!(ours.alert, Some(Alert::ACCESS_DENIED));
    }
}

/// The key in the certificate must have signed the handshake, even if nothing else is checked.
#[test]
fn a_pinned_certificate_without_its_key_is_refused() {
    let authority = Authority::new();
    let (leaf, thief) = (authority.issue(|_| ()), authority.issue(|_| ()));
    let stolen = Leaf { chain: leaf.chain.clone(), key: thief.key, spki: leaf.spki };
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let key =
            provider_of::sign::any_supported_type(&PrivateKeyDer::try_from(stolen.key.clone()).unwrap());
        let mut config = server(&leaf, &[suite], None);
        let certified = CertifiedKey::new(stolen.chain.clone(), key.unwrap());
        config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        let connector = Connector::new(settings(ServerVerification::Pins(vec![leaf.spki]))).unwrap();
        let (ours, _) = refused(&connector, config);
        assert_eq!(*fault(&ours), CertificateError::BadSignature);
    }
}

#[test]
fn the_name_is_verified_and_sni_is_sent() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    let name = |settings: ConnectorSettings| {
        greet(&Connector::new(settings).unwrap(), server(&leaf, &TLS13, None), Alpn::Own).name
    };
    assert_eq!(name(trusting(&authority)).as_deref(), Some(HOST));
    let sni = ServerName::try_from("front.example").unwrap();
    assert_eq!(
        name(ConnectorSettings { sni: Some(sni), ..trusting(&authority) }).as_deref(),
        Some("front.example")
    );
    let address = ServerName::try_from("127.0.0.1").unwrap();
    assert_eq!(name(ConnectorSettings { sni: Some(address), ..trusting(&authority) }), None);
}
