//! The key schedule compared with that of rustls.

use std::sync::Arc;

use offramp_record::aead::Library;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::ConnectionState;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, SupportedCipherSuite};

use super::*;
use crate::secrets::Catch;

const CHOICE: LibraryChoice = LibraryChoice::always(Library::Ring);

fn ends(suite: SupportedCipherSuite) -> (UnbufferedServerConnection, ClientConnection) {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![suite];
    let provider: Arc<CryptoProvider> = provider.into();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let versions: &[_] = &[&rustls::version::TLS13, &rustls::version::TLS12];
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    server.enable_secret_extraction = true;
    server.key_log = Arc::new(Catch);
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (
        UnbufferedServerConnection::new(Arc::new(server)).unwrap(),
        ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap(),
    )
}

/// A handshake in memory; returns the server's end and its secrets.
fn handshake(suite: SupportedCipherSuite) -> (UnbufferedServerConnection, Secrets) {
    let (mut server, mut client) = ends(suite);
    let (mut secrets, mut arrived, mut out) = (Secrets::default(), Vec::new(), vec![0; 1 << 16]);
    loop {
        client.write_tls(&mut arrived).unwrap();
        let mut done = false;
        let rustls::unbuffered::UnbufferedStatus { state, discard, .. } =
            server.process_tls_records(&mut arrived);
        secrets.catch();
        match state.unwrap() {
            ConnectionState::EncodeTlsData(mut data) => {
                let length = data.encode(&mut out).unwrap();
                client.read_tls(&mut &out[..length]).unwrap();
                client.process_new_packets().unwrap();
            }
            ConnectionState::TransmitTlsData(transmit) => transmit.done(),
            ConnectionState::WriteTraffic(_) => done = true,
            _ => {}
        }
        arrived.drain(..discard);
        if done && !server.is_handshaking() {
            return (server, secrets);
        }
    }
}

/// Distinguishes keys by the records that they seal.
fn sealed(material: &KeyMaterial) -> Vec<u8> {
    let mut out = Vec::new();
    Sealer::new(material, &CHOICE).seal_message(ContentType::Alert, &[1, 0], &mut out);
    out
}

#[test]
fn every_suite_gets_the_keys_of_rustls() {
    let mut compared = 0;
    for suite in aws_lc_rs::ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_some()) {
        let (server, caught) = handshake(*suite);
        let (first, mut kernel) = server.dangerous_into_kernel_connection().unwrap();
        let mut session = TlsSession::new(&first, &caught, Version::Tls13, &CHOICE).unwrap();
        let NextKeys::Server(ours) = &mut session.keys else { panic!() };
        let rustls = |(sequence, keys): &(u64, ConnectionTrafficSecrets)| {
            sealed(&material(Version::Tls13, *sequence, keys).unwrap())
        };
        // Sent tickets count, so only the receiving side begins with sequence number 0.
        assert_eq!(sealed(&ours.receiving.keys()), rustls(&first.rx));
        for _ in 0..4 {
            assert_eq!(sealed(&ours.receiving.update()), rustls(&kernel.update_rx_secret().unwrap()));
            assert_eq!(sealed(&ours.sending.update()), rustls(&kernel.update_tx_secret().unwrap()));
            compared += 2;
        }
    }
    assert_eq!(compared, 3 * 8);
}

#[test]
fn tls12_has_no_secrets_and_no_updates() {
    let suite = aws_lc_rs::ALL_CIPHER_SUITES.iter().find(|suite| suite.tls13().is_none());
    let suite = *suite.unwrap();
    assert!(matches!(suite.suite(), rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384));
    let (server, caught) = handshake(suite);
    let (first, _) = server.dangerous_into_kernel_connection().unwrap();
    let mut session = TlsSession::new(&first, &caught, Version::Tls12, &CHOICE).unwrap();
    assert!(session.update_receiving().is_err() && session.update_sending(&mut Vec::new()).is_err());
    // A TLS 1.3 connection without secrets is rejected at once, instead of failing at the first update.
    let (server, _) = handshake(rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256);
    let (first, _) = server.dangerous_into_kernel_connection().unwrap();
    assert!(TlsSession::new(&first, &Secrets::default(), Version::Tls13, &CHOICE).is_err());
}

#[test]
fn a_session_is_small() {
    assert!(size_of::<TlsSession>() <= 320, "{} bytes", size_of::<TlsSession>());
}
