//! Forged second flights of TLS 1.3, sealed with the right keys.

use std::io::Write;
use std::net::Shutdown;
use std::sync::{Arc, Mutex};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use offramp_record::{ContentType, KeyMaterial, Sealer, Suite, Version};
use offramp_tls::{Established, HandshakeError};
use proptest::prelude::*;
use rustls::{AlertDescription, CipherSuite, KeyLog};

use crate::failures::{assert_matches_seen, hello, record, send};
use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS13, client};
use crate::rig::{CHOICE, Client, accept, alert, run};

/// Captures the secret of the client's handshake records.
#[derive(Debug, Default)]
struct Secrets(Mutex<Vec<u8>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "CLIENT_HANDSHAKE_TRAFFIC_SECRET" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label of RFC 8446 §7.1, with an empty context.
fn expand<const N: usize>(secret: &[u8], label: &str) -> [u8; N] {
    let label = format!("tls13 {label}");
    let info = [&[0, N as u8, label.len() as u8][..], label.as_bytes(), &[0]];
    let mut out = [0; N];
    let secret = Prk::new_less_safe(HKDF_SHA256, secret);
    secret.expand(&info, Length(N)).unwrap().fill(&mut out).unwrap();
    out
}

/// Writes the forged second flight, given the keys and the true Finished.
type Forge = fn(&mut Sealer, &[u8], &mut Vec<u8>);

/// Forges the second flight; returns the server's verdict and the alert received by the client.
fn forge(
    forge: impl FnOnce(&mut Sealer, &[u8], &mut Vec<u8>) + Send,
) -> (Result<Established, HandshakeError>, Option<AlertDescription>) {
    let configs = Setup::with_tickets(0).configs();
    let server = async |socket| accept(&socket, &configs, &CHOICE).await.0;
    run(server, |socket| {
        let secrets = Arc::new(Secrets::default());
        let mut config = client(&[CipherSuite::TLS13_AES_128_GCM_SHA256]);
        config.key_log = Arc::<Secrets>::clone(&secrets);
        let mut client = Client::new(&Arc::new(config), NAME, socket);
        client.read_answer().unwrap();
        let secret = secrets.0.lock().unwrap().clone();
        let (key, iv) = (expand::<16>(&secret, "key"), expand::<12>(&secret, "iv"));
        // change_cipher_spec, then the one record.
        let mut flight = client.flight();
        let finished = &mut flight[6..];
        let aad = Aad::from(<[u8; 5]>::try_from(&finished[..5]).unwrap());
        let opening = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let nonce = Nonce::assume_unique_for_key(iv);
        let finished = opening.open_in_place(nonce, aad, &mut finished[5..]).unwrap();
        let (content_type, finished) = finished.split_last().unwrap();
        assert_eq!((*content_type, &finished[..4]), (22, &[20, 0, 0, 32][..]));
        let keys = KeyMaterial::new(Version::Tls13, Suite::Aes128Gcm, &key, iv, 0).unwrap();
        let mut out = Vec::new();
        forge(&mut Sealer::new(&keys, &CHOICE), finished, &mut out);
        client.socket.write_all(&out).unwrap();
        client.socket.shutdown(Shutdown::Write).unwrap();
        loop {
            match client.read_more() {
                Ok(()) => {}
                Err(error) => break alert(&error),
            }
        }
    })
}

#[test]
fn a_true_finished_is_accepted_in_any_fragments() {
    let forgeries: [Forge; 3] = [
        |sealer, finished, out| sealer.seal_message(ContentType::Handshake, finished, out),
        |sealer, finished, out| {
            for part in finished.chunks(1) {
                sealer.seal_message(ContentType::Handshake, part, out);
            }
        },
        |sealer, finished, out| {
            out.extend_from_slice(&[20, 3, 3, 0, 1, 1]);
            sealer.seal_message(ContentType::Handshake, &finished[..3], out);
            sealer.seal_message(ContentType::Handshake, &finished[3..], out);
        },
    ];
    for (i, forgery) in forgeries.into_iter().enumerate() {
        let (outcome, seen) = forge(forgery);
        assert!(outcome.is_ok(), "{i}: {:?}", outcome.err());
        assert_eq!(seen, None, "{i}");
    }
}

#[test]
fn a_forged_second_flight_is_refused_with_the_right_alert() {
    let forgeries: [(&str, Forge, AlertDescription); 9] = [
        (
            "a wrong Finished (RFC 8446 §4.4.4)",
            |sealer, finished, out| {
                let mut wrong = finished.to_vec();
                wrong[35] ^= 1;
                sealer.seal_message(ContentType::Handshake, &wrong, out);
            },
            AlertDescription::DecryptError,
        ),
        (
            "a Finished that is cut short",
            |sealer, finished, out| {
                let short = [&[20, 0, 0, 31], &finished[4..35]].concat();
                sealer.seal_message(ContentType::Handshake, &short, out);
            },
            AlertDescription::DecryptError,
        ),
        (
            "a Finished that is padded",
            |sealer, finished, out| {
                let long = [&[20, 0, 0, 33], &finished[4..], &[0]].concat();
                sealer.seal_message(ContentType::Handshake, &long, out);
            },
            AlertDescription::DecryptError,
        ),
        (
            "a message behind Finished in its record (RFC 8446 §5.1)",
            |sealer, finished, out| {
                let more = [finished, &[24, 0, 0, 1, 0]].concat();
                sealer.seal_message(ContentType::Handshake, &more, out);
            },
            AlertDescription::UnexpectedMessage,
        ),
        (
            "data before Finished",
            |sealer, _, out| sealer.seal_message(ContentType::ApplicationData, b"early", out),
            AlertDescription::UnexpectedMessage,
        ),
        (
            "a KeyUpdate before Finished (RFC 8446 §4.6.3)",
            |sealer, _, out| sealer.seal_message(ContentType::Handshake, &[24, 0, 0, 1, 0], out),
            AlertDescription::UnexpectedMessage,
        ),
        (
            "a certificate that nobody asked for",
            |sealer, _, out| sealer.seal_message(ContentType::Handshake, &[11, 0, 0, 4, 0, 0, 0, 0], out),
            AlertDescription::UnexpectedMessage,
        ),
        (
            "a change_cipher_spec of another value (RFC 8446 §5)",
            |_, _, out| out.extend_from_slice(&[20, 3, 3, 0, 1, 2]),
            AlertDescription::UnexpectedMessage,
        ),
        (
            "a plaintext Finished",
            |_, finished, out| out.extend(record(finished)),
            AlertDescription::BadRecordMac,
        ),
    ];
    for (name, forgery, expected) in forgeries {
        let (outcome, seen) = forge(forgery);
        let error = outcome.err().unwrap_or_else(|| panic!("{name}: accepted"));
        assert_eq!(seen, Some(expected), "{name}: {error:?}");
        assert_matches_seen(&error, expected);
    }
}

/// A piece of a forged flight.
#[derive(Clone, Debug)]
enum Piece {
    /// A part of the true Finished.
    Finished {
        from: usize,
        to: usize,
    },
    Sealed(ContentType, Vec<u8>),
    /// Several messages in one record.
    Messages(Vec<(u8, Vec<u8>)>),
    Plain(Vec<u8>),
}

fn piece() -> impl Strategy<Value = Piece> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let types = [ContentType::Handshake, ContentType::Alert, ContentType::ApplicationData];
    let message = || (proptest::sample::select(vec![1u8, 11, 15, 20, 24, 77]), bytes());
    prop_oneof![
        3 => Just(Piece::Finished { from: 0, to: 36 }),
        2 => (0..=36usize, 0..=36usize)
            .prop_map(|(a, b)| Piece::Finished { from: a.min(b), to: a.max(b) }),
        2 => (proptest::sample::select(types.to_vec()), bytes())
            .prop_map(|(typ, content)| Piece::Sealed(typ, content)),
        2 => proptest::collection::vec(message(), 1..4).prop_map(Piece::Messages),
        1 => bytes().prop_map(|content| Piece::Plain(record(&content))),
        1 => bytes().prop_map(Piece::Plain),
        1 => Just(Piece::Plain(vec![20, 3, 3, 0, 1, 1])),
        1 => Just(Piece::Plain(vec![21, 3, 3, 0, 2, 2, 40])),
    ]
}

fn write(piece: &Piece, sealer: &mut Sealer, finished: &[u8], out: &mut Vec<u8>) {
    match piece {
        Piece::Finished { from, to } => {
            sealer.seal_message(ContentType::Handshake, &finished[*from..*to], out);
        }
        Piece::Sealed(typ, content) => sealer.seal_message(*typ, content, out),
        Piece::Messages(messages) => {
            let content: Vec<u8> = messages
                .iter()
                .flat_map(|(typ, body)| [&[*typ, 0, 0, body.len() as u8][..], body].concat())
                .collect();
            sealer.seal_message(ContentType::Handshake, &content, out);
        }
        Piece::Plain(bytes) => out.extend_from_slice(bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Neither panics nor hangs, and the log never names an alert that the client did not get.
    #[test]
    fn any_second_flight_terminates(pieces in proptest::collection::vec(piece(), 0..5)) {
        let (outcome, seen) = forge(|sealer, finished, out| {
            pieces.iter().for_each(|piece| write(piece, sealer, finished, out));
        });
        if let (Err(error), Some(seen)) = (outcome, seen) {
            assert_matches_seen(&error, seen);
        }
    }

    /// The same for a ClientHello with changed bytes, in records of any size.
    #[test]
    fn any_hello_terminates(
        tls13 in any::<bool>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        repeat in 1..3usize,
        size in prop_oneof![1..20usize, Just(300), Just(16_000)],
        header in proptest::option::weighted(0.2, (0..5usize, any::<u8>())),
    ) {
        let hello = hello(if tls13 { &TLS13 } else { &TLS12_ECDSA });
        let mut message = hello[5..].repeat(repeat);
        for (at, byte) in changes {
            let at = at.index(message.len());
            message[at] = byte;
        }
        let mut records: Vec<u8> = message.chunks(size).flat_map(record).collect();
        if let Some((at, byte)) = header {
            records[at] = byte;
        }
        let (outcome, answer) = send(&Setup::default().configs(), &records);
        let error = outcome.err().expect("half a handshake is none");
        if let [.., 21, 3, _, 0, 2, 2, alert] = answer[..] {
            prop_assert_eq!(error.alert.map(|sent| sent.0), Some(alert), "{:?}", error);
        } else {
            prop_assert_eq!(error.alert, None, "{:?}", error);
        }
    }
}
