//! Failing handshakes: each ends with its error and its alert, none hangs, none panics.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use offramp_net::Buffer;
use offramp_tls::{
    Configs, Established, HandshakeError, HandshakeFault, HandshakeQueue, HandshakeRequest, handshake,
};
use rustls::{AlertDescription, CipherSuite, ClientConfig};

use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS12_RSA, TLS13, client, pki};
use crate::rig::{CHOICE, Client, Refused, accept, accept_stream, alert, connect, meet, run};

/// Sends `bytes` and nothing more; returns the server's verdict and its reply.
pub(crate) fn send(configs: &Configs, bytes: &[u8]) -> (Result<Established, HandshakeError>, Vec<u8>) {
    let server = async |socket| accept(&socket, configs, &CHOICE).await.0;
    run(server, |mut socket: UnixStream| {
        // The server may be gone before it has read everything.
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        answer
    })
}

pub(crate) fn hello(suites: &[CipherSuite]) -> Vec<u8> {
    let (_, unused) = UnixStream::pair().unwrap();
    Client::new(&Arc::new(client(suites)), NAME, unused).flight()
}

/// A handshake record with `content`.
pub(crate) fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u16).to_be_bytes();
    [&[22, 3, 1][..], &length, content].concat()
}

#[test]
fn invalid_hellos_are_rejected_with_a_plaintext_alert() {
    let configs = Setup::default().configs();
    let hello = hello(&[]);
    let message = &hello[5..];
    let mut old = message.to_vec();
    old[4..6].copy_from_slice(&[3, 0]);
    let mut wrong_length = message.to_vec();
    wrong_length[3] ^= 1;
    let cases: [(&str, Vec<u8>, AlertDescription); 12] = [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(), AlertDescription::DecodeError),
        ("zeros", vec![0; 100], AlertDescription::DecodeError),
        ("ones", vec![0xff; 100], AlertDescription::DecodeError),
        ("SSH", b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n".to_vec(), AlertDescription::DecodeError),
        (
            "an SSL 2 hello",
            [&[0x80, 0x2e, 1, 3, 1, 0, 21, 0, 0, 0, 16][..], &[7; 37]].concat(),
            AlertDescription::DecodeError,
        ),
        ("an oversized record", vec![22, 3, 1, 0xff, 0xff, 1], AlertDescription::DecodeError),
        ("an empty record", vec![22, 3, 1, 0, 0], AlertDescription::DecodeError),
        (
            "application data",
            [&[23, 3, 3, 0, 30][..], &[7; 30]].concat(),
            AlertDescription::UnexpectedMessage,
        ),
        ("another message", record(&[20, 0, 0, 2, 1, 2]), AlertDescription::UnexpectedMessage),
        ("an unknown message", record(&[77, 0, 0, 2, 1, 2]), AlertDescription::UnexpectedMessage),
        ("an empty hello", record(&[1, 0, 0, 0]), AlertDescription::DecodeError),
        (
            "two hellos in one record",
            record(&[message, message].concat()),
            AlertDescription::UnexpectedMessage,
        ),
    ];
    for (name, bytes, expected) in cases {
        let (outcome, answer) = send(&configs, &bytes);
        let error = outcome.err().unwrap_or_else(|| panic!("{name}: accepted"));
        assert!(matches!(error.fault, HandshakeFault::Tls(_)), "{name}: {error:?}");
        let [.., 21, 3, _, 0, 2, 2, alert] = answer[..] else { panic!("{name}: {error:?}, {answer:?}") };
        assert_eq!(error.alert.map(|sent| sent.0), Some(alert), "{name}");
        assert_eq!(AlertDescription::from(alert), expected, "{name}: {error:?}");
    }
}

#[test]
fn an_alert_in_place_of_a_hello_is_not_answered() {
    let (outcome, answer) = send(&Setup::default().configs(), &[21, 3, 1, 0, 2, 2, 40]);
    let error = outcome.err().unwrap();
    assert!(matches!(
        error.fault,
        HandshakeFault::Tls(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure))
    ));
    assert_eq!((error.alert, answer), (None, Vec::new()));
}

/// It ends the handshake, instead of waiting for the deadline.
#[test]
fn close_notify_ends_a_handshake_at_once() {
    let configs = Setup::default().configs();
    for suites in [None, Some(TLS13), Some(TLS12_ECDSA)] {
        let server = async |socket| accept(&socket, &configs, &CHOICE).await.0;
        let config = Arc::new(client(suites.as_ref().map_or(&[], |suites| &suites[..])));
        let (outcome, ()) = run(server, |mut socket: UnixStream| {
            if suites.is_some() {
                let mut client = Client::new(&config, NAME, socket.try_clone().unwrap());
                client.read_answer().unwrap();
            }
            // In place of the hello, or of the second flight.
            socket.write_all(&[21, 3, 3, 0, 2, 1, 0]).unwrap();
            // Open until the server has closed.
            let _ = socket.read_to_end(&mut Vec::new());
        });
        let error = outcome.err().unwrap();
        // With TLS 1.3 it would have to be sealed by then.
        let ended = matches!(error.fault, HandshakeFault::Closed)
            || suites == Some(TLS13) && matches!(error.fault, HandshakeFault::Tls(_));
        assert!(ended, "{suites:?}: {error:?}");
    }
}

/// An endless message, in records of 8 bytes.
#[test]
fn too_large_messages_are_reported_to_the_client() {
    let first = record(&[1, 0, 0xff, 0xff, 3, 3, 0, 0]);
    let bytes = [first, record(&[7; 8]).repeat(8000)].concat();
    let (outcome, answer) = send(&Setup::default().configs(), &bytes);
    let error = outcome.err().unwrap();
    assert!(matches!(error.fault, HandshakeFault::TooLarge), "{error:?}");
    assert_eq!(error.alert.map(|alert| alert.0), Some(u8::from(AlertDescription::DecodeError)));
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 50]);
}

#[test]
fn endless_garbage_that_looks_like_a_hello_is_bounded() {
    // A message of 16 MiB, announced and begun.
    let mut content = vec![1, 0xff, 0xff, 0xff];
    content.resize(16_000, 7);
    let bytes = [record(&content), record(&[7; 16_000]).repeat(20)].concat();
    let (outcome, _) = send(&Setup::default().configs(), &bytes);
    let error = outcome.err().unwrap();
    assert!(matches!(error.fault, HandshakeFault::Tls(_) | HandshakeFault::TooLarge), "{error:?}");
}

#[test]
fn a_hello_that_ends_anywhere_is_a_closed_connection() {
    let configs = Setup::default().configs();
    let hello = hello(&[]);
    for at in (0..64).chain((64..hello.len()).step_by(13)).chain([hello.len() - 1]) {
        let (outcome, answer) = send(&configs, &hello[..at]);
        let error = outcome.err().unwrap();
        assert!(matches!(error.fault, HandshakeFault::Closed), "{at}: {error:?}");
        assert_eq!((error.alert, answer), (None, Vec::new()), "{at}");
    }
}

#[test]
fn a_client_that_leaves_in_its_second_flight_is_a_closed_connection() {
    let configs = Setup::default().configs();
    for suites in [TLS13, TLS12_ECDSA] {
        let config = Arc::new(client(&suites));
        let mut at = 0;
        loop {
            let server = async |socket| accept(&socket, &configs, &CHOICE).await.0;
            let (outcome, length) = run(server, |socket| {
                let mut client = Client::new(&config, NAME, socket);
                client.read_answer().unwrap();
                let flight = client.flight();
                client.socket.write_all(&flight[..at]).unwrap();
                flight.len()
            });
            let error = outcome.err().unwrap();
            let gone = matches!(error.fault, HandshakeFault::Closed | HandshakeFault::Io(_));
            assert!(gone && error.alert.is_none(), "{suites:?} {at}: {error:?}");
            at += 5;
            if at >= length {
                break;
            }
        }
    }
}

#[test]
fn a_client_that_does_not_wait_for_the_answer_is_an_error_and_no_hang() {
    let configs = Setup::default().configs();
    for suites in [TLS13, TLS12_ECDSA] {
        let hello = hello(&suites);
        let server = async |socket| accept(&socket, &configs, &CHOICE).await.0;
        let (outcome, ()) = run(server, |mut socket: UnixStream| socket.write_all(&hello).unwrap());
        let error = outcome.err().unwrap();
        assert!(matches!(error.fault, HandshakeFault::Closed | HandshakeFault::Io(_)), "{error:?}");
    }
}

#[test]
fn a_hello_dripped_byte_by_byte_succeeds() {
    let configs = Setup::default().configs();
    for suites in [TLS13, TLS12_ECDSA] {
        let config = Arc::new(client(&suites));
        let ((), ()) = run(
            async |socket| drop(accept_stream(socket, &configs).await),
            |socket| {
                let mut client = Client::new(&config, NAME, socket);
                for byte in client.flight().chunks(1) {
                    client.socket.write_all(byte).unwrap();
                }
                client.handshake().unwrap();
            },
        );
    }
}

#[test]
fn a_hello_in_records_of_any_size_succeeds() {
    let configs = Setup::default().configs();
    let config = Arc::new(client(&TLS13));
    for size in [1, 2, 3, 5, 100, 1000] {
        let ((), ()) = run(
            async |socket| {
                let config = Arc::clone(configs.for_client(&[]));
                let mut buffer = Buffer::with_capacity(64);
                handshake(
                    &socket,
                    &mut buffer,
                    config,
                    false,
                    &CHOICE,
                    &HandshakeRequest::anyone(&HandshakeQueue::default()),
                )
                .await
                .unwrap();
            },
            |socket| {
                let mut client = Client::new(&config, NAME, socket);
                let hello = client.flight();
                let records: Vec<u8> = hello[5..].chunks(size).flat_map(record).collect();
                client.socket.write_all(&records).unwrap();
                client.handshake().unwrap();
            },
        );
    }
}

#[test]
fn client_and_log_agree_on_nothing_in_common() {
    let mut modern = Setup::default();
    modern.policy.tls12 = false;
    let ecdsa = Setup { certificates: vec![Arc::clone(&pki().ecdsa)], ..Setup::default() };
    for (setup, suites, expected) in [
        (&modern, &TLS12_ECDSA, AlertDescription::ProtocolVersion),
        (&ecdsa, &TLS12_RSA, AlertDescription::HandshakeFailure),
    ] {
        let config: Arc<ClientConfig> = Arc::new(client(suites));
        let Refused { server, client } = *connect(setup, &config, NAME).unwrap_err();
        assert_eq!(alert(&client), Some(expected), "{server:?}");
        assert_eq!(server.alert.map(|sent| sent.0), Some(expected.into()));
    }
    meet(&modern, &Arc::new(client(&[])));
}

#[test]
fn a_flipped_bit_in_the_second_flight_is_refused() {
    let configs = Setup::default().configs();
    for suites in [TLS13, TLS12_ECDSA] {
        let config = Arc::new(client(&suites));
        let server = async |socket| accept(&socket, &configs, &CHOICE).await.0;
        let (outcome, seen) = run(server, |socket| {
            let mut client = Client::new(&config, NAME, socket);
            client.read_answer().unwrap();
            let mut flight = client.flight();
            *flight.last_mut().unwrap() ^= 1;
            client.socket.write_all(&flight).unwrap();
            refusal(&mut client)
        });
        let error = outcome.err().unwrap();
        assert_eq!(seen, AlertDescription::BadRecordMac, "{error:?}");
        assert_matches_seen(&error, seen);
        assert!(matches!(error.fault, HandshakeFault::Tls(rustls::Error::DecryptError)), "{error:?}");
    }
}

/// Reads until the client receives an alert.
fn refusal(client: &mut Client) -> AlertDescription {
    loop {
        if let Err(error) = client.read_more() {
            return alert(&error).unwrap_or_else(|| panic!("no alert: {error}"));
        }
    }
}

/// A sealed alert may be unknown, but never another one.
pub(crate) fn assert_matches_seen(error: &HandshakeError, seen: AlertDescription) {
    assert!(error.alert.is_none_or(|alert| alert.0 == u8::from(seen)), "{seen:?}, {error:?}");
}
