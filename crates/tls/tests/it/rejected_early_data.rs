//! 0-RTT data is never accepted, but clients may send it with a ticket of another server at the same address.
//! It is skipped, up to the limit of rustls, and the client sends it again.

use std::io::{self, Read, Write};
use std::sync::Arc;

use offramp_record::RecordSize;
use offramp_tls::{Established, HandshakeError, HandshakeFault, Negotiated, TlsStream};
use rustls::{
    AlertDescription, CipherSuite, ClientConfig, ClientConnection, NamedGroup, ServerConfig, ServerConnection,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::{NAME, Setup, TLS13, client_of, pki, provider};
use crate::rig::{CHOICE, Client, accept, alert, meet, run};

/// Record bytes that rustls skips, without headers.
const MOST: usize = 16_384;
/// Overhead of protection per record, without its header.
const OVERHEAD: usize = 1 + 16;

/// A client with a ticket for early data from a plain rustls server of the same name.
fn client_with_stale_ticket(suite: CipherSuite, groups: &[NamedGroup], fragment: usize) -> Arc<ClientConfig> {
    let server = ServerConfig::builder_with_provider(Arc::new(provider(&[suite], groups)))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(pki().server.chain.clone(), pki().server.key());
    let mut server = server.unwrap();
    server.max_early_data_size = 1 << 20;
    let mut config = client_of(provider(&[suite], groups), None);
    config.enable_early_data = true;
    config.max_fragment_size = Some(fragment + 5);
    let config = Arc::new(config);
    let mut client = ClientConnection::new(Arc::clone(&config), NAME.try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    let mut wire = Vec::new();
    while client.wants_write() || server.wants_write() {
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        feed(&mut wire, |bytes| {
            server.read_tls(bytes).unwrap();
            server.process_new_packets().unwrap();
        });
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        feed(&mut wire, |bytes| {
            client.read_tls(bytes).unwrap();
            client.process_new_packets().unwrap();
        });
    }
    assert!(client.tls13_tickets_received() > 0);
    config
}

fn feed(wire: &mut Vec<u8>, mut take: impl FnMut(&mut &[u8])) {
    let mut rest = &wire[..];
    while !rest.is_empty() {
        take(&mut rest);
    }
    wire.clear();
}

/// Sends `early` as early data, then again as data; the server echoes.
fn attempt(
    config: &Arc<ClientConfig>,
    setup: &Setup,
    early: &[u8],
) -> (Result<Negotiated, HandshakeError>, io::Result<Vec<u8>>) {
    let configs = setup.configs();
    let server = async |socket| {
        let (outcome, buffer) = accept(&socket, &configs, &CHOICE).await;
        let Established { session, negotiated, tickets, .. } = outcome?;
        let mut stream = TlsStream::new(socket, session, tickets, buffer, RecordSize::Adaptive);
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        stream.write_all(&got).await.unwrap();
        stream.shutdown().await.unwrap();
        Ok(negotiated)
    };
    run(server, |socket| {
        let mut client = Client::new(config, NAME, socket);
        client.tls.early_data().expect("the ticket allows early data").write_all(early).unwrap();
        let sent = client.handshake().and_then(|()| {
            assert!(!client.tls.is_early_data_accepted());
            client.tls.set_buffer_limit(None);
            client.tls.writer().write_all(early)?;
            client.tls.send_close_notify();
            let flight = client.flight();
            client.socket.write_all(&flight)
        });
        match sent {
            Ok(()) => {}
            Err(error) if alert(&error).is_some() => return Err(error),
            // The server has closed; its last bytes are still readable.
            Err(_) => loop {
                client.read_more()?;
            },
        }
        let mut got = Vec::new();
        client.stream().read_to_end(&mut got)?;
        Ok(got)
    })
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 3 + i / 256) as u8).collect()
}

/// Maximum plaintext that is skipped in records of `fragment` bytes.
fn most(fragment: usize) -> usize {
    let (full, rest) = (MOST / (fragment + OVERHEAD), MOST % (fragment + OVERHEAD));
    full * fragment + rest.saturating_sub(OVERHEAD)
}

#[test]
fn early_data_is_skipped_and_sent_again() {
    for suite in TLS13 {
        for (fragment, size) in [
            (16_384, 1),
            (16_384, most(16_384)),
            (1000, 100),
            (1000, 1000),
            (1000, 5000),
            (1000, most(1000)),
            (8000, most(8000)),
            (100, most(100)),
        ] {
            let config = client_with_stale_ticket(suite, &[], fragment);
            let (server, client) = attempt(&config, &Setup::default(), &pattern(size));
            let server = server.unwrap_or_else(|error| panic!("{suite:?} {fragment} {size}: {error:?}"));
            assert!(!server.resumed);
            assert_eq!(server.suite, suite);
            assert!(client.unwrap() == pattern(size));
        }
    }
}

#[test]
fn more_than_the_limit_ends_the_connection_with_an_alert() {
    for suite in TLS13 {
        for (fragment, size) in [(16_384, most(16_384) + 1), (1000, most(1000) + 1), (16_384, 60_000)] {
            let config = client_with_stale_ticket(suite, &[], fragment);
            let (server, client) = attempt(&config, &Setup::default(), &pattern(size));
            let error = server.expect_err("too much early data");
            assert!(matches!(error.fault, HandshakeFault::Tls(_)), "{error:?}");
            let seen = client.expect_err("the connection has failed");
            assert_eq!(alert(&seen), Some(AlertDescription::BadRecordMac), "{seen:?}");
        }
    }
}

#[test]
fn early_data_before_a_hello_retry_request_is_skipped_too() {
    let groups = [NamedGroup::X25519MLKEM768, NamedGroup::secp256r1];
    let mut setup = Setup::default();
    setup.policy.post_quantum = false;
    for (fragment, size) in [(16_384, 10), (1000, 9000), (100, most(100))] {
        let config = client_with_stale_ticket(TLS13[0], &groups, fragment);
        let (server, client) = attempt(&config, &setup, &pattern(size));
        assert_eq!(server.unwrap().group, Some(NamedGroup::secp256r1));
        assert!(client.unwrap() == pattern(size));
    }
}

#[test]
fn our_own_tickets_never_allow_early_data() {
    let setup = Setup::default();
    let mut config = client_of(provider(&TLS13, &[]), None);
    config.enable_early_data = true;
    let config = Arc::new(config);
    meet(&setup, &config);
    let mut next = ClientConnection::new(Arc::clone(&config), NAME.try_into().unwrap()).unwrap();
    assert!(next.early_data().is_none());
}
