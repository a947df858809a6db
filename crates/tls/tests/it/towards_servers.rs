//! Offramp as the client of a real rustls server: every suite, key updates, resumption, and (in
//! `certificates`) each kind of invalid certificate.

mod certificates;
mod setup;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use offramp_net::Socket;
use offramp_tls::client::{Alpn, Connector, ConnectorSettings, Secured, StartTlsProtocol};
use offramp_tls::{HandshakeError, HandshakeFault, PreambleFault, TlsStream};
use rustls::crypto::aws_lc_rs as provider_of;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, Error, HandshakeKind, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixtures::{TLS12_ECDSA, TLS13, pki};
use crate::rig::run;
use setup::{Authority, Served, greet, over, server, trusting};

const SUITES: [CipherSuite; 6] =
    [TLS13[0], TLS13[1], TLS13[2], TLS12_ECDSA[0], TLS12_ECDSA[1], TLS12_ECDSA[2]];

#[test]
fn every_suite_moves_bytes_both_ways() {
    let (authority, data) = (Authority::new(), pattern(2_000_000));
    let leaf = authority.issue(|_| ());
    for suite in SUITES {
        let connector = Connector::new(trusting(&authority)).unwrap();
        let data = &data;
        let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| {
            let stream = secured.unwrap().into_stream(socket);
            let (mut reader, mut writer) = tokio::io::split(stream);
            let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
            copied
        };
        let (copied, ()) =
            over(&connector, server(&leaf, &[suite], None), Alpn::Own, ours, |mut server, done| {
                done.unwrap();
                assert_eq!(server.tls.negotiated_cipher_suite().unwrap().suite(), suite);
                let mut back = vec![0; 60_000];
                for part in data.chunks(60_000) {
                    if suite == TLS13[0] || suite == TLS13[2] {
                        // Our side answers it, so that both directions change keys each time.
                        server.tls.refresh_traffic_keys().unwrap();
                    }
                    server.stream().write_all(part).unwrap();
                    server.stream().read_exact(&mut back[..part.len()]).unwrap();
                    assert!(back[..part.len()] == *part);
                }
                server.close();
                assert_eq!(server.stream().read(&mut back).unwrap(), 0);
            });
        assert_eq!(copied, data.len() as u64);
    }
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// Unsolicited data of a server is not silence, at any point of the stream's turn.
#[test]
fn unsolicited_data_is_not_silence() {
    const RECORD: usize = 16_384;
    let (authority, data) = (Authority::new(), pattern(RECORD));
    let leaf = authority.issue(|_| ());
    let connector = Connector::new(trusting(&authority)).unwrap();
    for records in 26..=34 {
        let (said, data) = (AtomicBool::new(false), &data);
        let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| {
            let mut stream = secured.unwrap().into_stream(socket);
            let mut left = records * RECORD;
            while left > 0 {
                left -= poll_fn(|cx| stream.poll_parts(cx, left, |_| ())).await.unwrap();
            }
            while !said.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            // The event loop checks readiness.
            tokio::task::yield_now().await;
            stream.is_quiet()
        };
        let theirs = |mut server: Served, done: std::io::Result<()>| {
            done.unwrap();
            for _ in 0..records {
                server.stream().write_all(data).unwrap();
            }
            server.stream().write_all(b"HTTP/1.1 408 Request Timeout").unwrap();
            server.close();
            said.store(true, Ordering::SeqCst);
        };
        let config = server(&leaf, &[TLS13[0]], None);
        let (quiet, ()) = over(&connector, config, Alpn::Own, ours, theirs);
        assert!(!quiet, "behind {records} records");
    }
}

/// The server's bytes arrive one by one: records, tickets and key updates in all fragments of a socket.
#[test]
fn a_server_may_dribble() {
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let authority = Authority::new();
        let leaf = authority.issue(|_| ());
        let connector = Connector::new(trusting(&authority)).unwrap();
        let config = Arc::new(server(&leaf, &[suite], None));
        let (got, ()) = run(
            async |socket| {
                let secured = connector.handshake(&socket, Alpn::Own).await.unwrap();
                let mut stream = secured.into_stream(socket);
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await.unwrap();
                got
            },
            |mut socket| {
                let mut tls = ServerConnection::new(config).unwrap();
                let dribble = |tls: &mut ServerConnection, socket: &mut UnixStream| {
                    let mut flight = Vec::new();
                    while tls.wants_write() {
                        tls.write_tls(&mut flight).unwrap();
                    }
                    flight.iter().for_each(|byte| socket.write_all(&[*byte]).unwrap());
                };
                while tls.is_handshaking() {
                    tls.read_tls(&mut socket).unwrap();
                    tls.process_new_packets().unwrap();
                    dribble(&mut tls, &mut socket);
                }
                tls.writer().write_all(&pattern(3000)).unwrap();
                tls.send_close_notify();
                dribble(&mut tls, &mut socket);
            },
        );
        assert!(got == pattern(3000), "{} bytes", got.len());
    }
}

/// Tickets of TLS 1.3 come behind the handshake, those of TLS 1.2 in it; each connector has its own.
#[test]
fn a_second_connection_resumes_the_first() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    for suite in [TLS13[0], TLS13[1], TLS12_ECDSA[0]] {
        let connector = Connector::new(trusting(&authority)).unwrap();
        let mut config = server(&leaf, &[suite], None);
        config.ticketer = provider_of::Ticketer::new().unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let kinds: Vec<_> = [Alpn::Either, Alpn::Http2, Alpn::Http1]
            .map(|alpn| greet(&connector, config.clone(), alpn))
            .into_iter()
            .map(|met| (met.resumed, met.kind == HandshakeKind::Resumed, met.alpn.unwrap()))
            .collect();
        let [h2, http1] = [&b"h2"[..], b"http/1.1"].map(Box::<[u8]>::from);
        assert_eq!(kinds, [(false, false, h2.clone()), (true, true, h2), (true, true, http1)], "{suite:?}");
        let other = Connector::new(trusting(&authority)).unwrap();
        assert!(!greet(&other, config, Alpn::Own).resumed);
    }
}

#[test]
fn a_server_that_asks_gets_the_certificate() {
    let (authority, identity) = (Authority::new(), &pki().client);
    let leaf = authority.issue(|_| ());
    let verifier = WebPkiClientVerifier::builder(Arc::clone(&pki().roots)).build().unwrap();
    let key = provider_of::sign::any_supported_type(&identity.key()).unwrap();
    let own = Arc::new(CertifiedKey::new(identity.chain.clone(), key));
    for suite in [TLS13[0], TLS12_ECDSA[0]] {
        let config = || server(&leaf, &[suite], Some(verifier.clone()));
        let with = ConnectorSettings { certificate: Some(Arc::clone(&own)), ..trusting(&authority) };
        let met = greet(&Connector::new(with).unwrap(), config(), Alpn::Own);
        assert_eq!(met.certificate.as_deref(), Some(identity.chain[0].as_ref()));
        // In TLS 1.3 the server says so after the handshake is complete for the client.
        let without = Connector::new(trusting(&authority)).unwrap();
        let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| match secured {
            Err(error) => format!("{:?}", error.fault),
            Ok(secured) => {
                let mut stream = secured.into_stream(socket);
                stream.read(&mut [0]).await.unwrap_err().to_string()
            }
        };
        let (error, done) = over(&without, config(), Alpn::Own, ours, |_, done| done);
        assert!(done.is_err());
        let said = if suite == TLS13[0] { "certificate_required" } else { "AlertReceived" };
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn invalid_servers_end_the_handshake() {
    let connector = Connector::new(trusting(&Authority::new())).unwrap();
    let ends = |bytes: &'static [u8]| {
        let (error, ()) = run(
            async |socket| connector.handshake(&socket, Alpn::Own).await.err().unwrap(),
            |mut far| {
                assert!(far.read(&mut [0; 4096]).unwrap() > 0);
                far.write_all(bytes).unwrap();
                far.shutdown(std::net::Shutdown::Write).unwrap();
                let _ = far.read_to_end(&mut Vec::new());
            },
        );
        error.fault
    };
    assert!(matches!(ends(b""), HandshakeFault::Closed));
    assert!(matches!(ends(&[22, 3, 3, 0, 200, 2]), HandshakeFault::Closed));
    assert!(matches!(ends(&[21, 3, 3, 0, 2, 1, 0]), HandshakeFault::Closed));
    assert!(matches!(ends(&[21, 3, 3, 0, 2, 2, 40]), HandshakeFault::Tls(Error::AlertReceived(_))));
    assert!(matches!(ends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), HandshakeFault::Tls(_)));
    assert!(matches!(ends(b"220 mail.example ESMTP\r\n"), HandshakeFault::Tls(_)));
}

/// A PostgreSQL server is asked for TLS. Any reply except `S` ends the handshake, and plaintext behind an `S`
/// is never part of the connection.
#[test]
fn a_server_is_asked_for_tls_first() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    let settings = ConnectorSettings { preamble: Some(StartTlsProtocol::Postgres), ..trusting(&authority) };
    let connector = Connector::new(settings).unwrap();
    let answered = |answer: &'static [u8]| {
        let (outcome, ()) = run(
            async |socket| connector.handshake(&socket, Alpn::Own).await.map(|_| ()),
            |mut far| {
                let mut asked = [0; 8];
                far.read_exact(&mut asked).unwrap();
                assert_eq!(&asked, b"\0\0\0\x08\x04\xd2\x16\x2f");
                far.write_all(answer).unwrap();
                far.shutdown(std::net::Shutdown::Write).unwrap();
                let _ = far.read_to_end(&mut Vec::new());
            },
        );
        outcome.unwrap_err().fault
    };
    let preamble = |fault| match fault {
        HandshakeFault::Preamble(fault) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(preamble(answered(b"N")), PreambleFault::Declined);
    assert_eq!(preamble(answered(b"H")), PreambleFault::Unknown(b'H'));
    assert_eq!(preamble(answered(b"")), PreambleFault::Closed);
    let full = preamble(answered(b"E\0\0\0\x1fSFATAL\0C53300\0Msorry, full\0\0"));
    assert_eq!(full, PreambleFault::Error("sorry, full".to_owned()));
    assert!(matches!(answered(b"S"), HandshakeFault::Closed));
    assert!(matches!(answered(b"SR\0\0\0\x08\0\0\0\0"), HandshakeFault::Tls(_)));

    let config = Arc::new(server(&leaf, &TLS13, None));
    let (got, ()) = run(
        async |socket| {
            let secured = connector.handshake(&socket, Alpn::Own).await.unwrap();
            let mut stream = secured.into_stream(socket);
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            got
        },
        |mut far| {
            far.read_exact(&mut [0; 8]).unwrap();
            far.write_all(b"S").unwrap();
            let mut served = Served { tls: ServerConnection::new(config).unwrap(), socket: far };
            served.stream().write_all(b"within").unwrap();
            served.close();
        },
    );
    assert_eq!(got, b"within");
}

/// A server that sends an endless handshake message is abandoned at 96 KiB.
#[test]
fn an_endless_message_is_bounded() {
    let connector = Connector::new(trusting(&Authority::new())).unwrap();
    let (fault, sent) = run(
        async |socket| connector.handshake(&socket, Alpn::Own).await.err().unwrap().fault,
        |mut far| {
            assert!(far.read(&mut [0; 4096]).unwrap() > 0);
            let mut record = vec![22, 3, 3, 0x40, 0];
            record.extend([2, 0xff, 0xff, 0xff]);
            record.resize(5 + 16_384, 0);
            let sent = Mutex::new(0);
            while far.write_all(&record).is_ok() && *sent.lock().unwrap() < 1 << 24 {
                *sent.lock().unwrap() += record.len();
                record[5..].fill(0);
            }
            sent.into_inner().unwrap()
        },
    );
    assert!(matches!(fault, HandshakeFault::TooLarge | HandshakeFault::Tls(_)), "{fault:?}");
    assert!(sent < 1 << 20, "{sent}");
}

/// Data behind the server's handshake in the same packet is not lost, and truncation is an error.
#[test]
fn a_stream_that_is_cut_does_not_end_in_order() {
    let authority = Authority::new();
    let leaf = authority.issue(|_| ());
    let connector = Connector::new(trusting(&authority)).unwrap();
    let ours = async |socket: Socket, secured: Result<Secured, HandshakeError>| {
        let mut stream: TlsStream = secured.unwrap().into_stream(socket);
        let mut got = Vec::new();
        let error = stream.read_to_end(&mut got).await.unwrap_err();
        (got, error.kind())
    };
    let ((got, kind), ()) =
        over(&connector, server(&leaf, &TLS13, None), Alpn::Own, ours, |mut server, done| {
            done.unwrap();
            server.stream().write_all(b"half of it").unwrap();
        });
    assert_eq!((&got[..], kind), (&b"half of it"[..], std::io::ErrorKind::UnexpectedEof));
}
