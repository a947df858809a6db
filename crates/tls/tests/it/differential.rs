//! Random operations of both ends, in memory, with a rustls client as the oracle: data written at one end is
//! read at the other, in any pieces, through any number of key updates, up to both ends' close_notify.
//!
//! A failure prints its seed; `PROPTEST_RNG_SEED=… cargo test -p offramp-tls differential` replays it.

use std::io::{Read, Write};
use std::sync::Arc;

use offramp_certs::Certificate;
use offramp_record::aead::Library;
use offramp_record::{Alert, LibraryChoice, PlaintextSpan, RecordEvent};
use offramp_tls::{Configs, TlsSession};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestRunner};
use rustls::{CipherSuite, ClientConnection, ProtocolVersion};

use crate::fixtures::{NAME, Setup, TLS12_ECDSA, TLS12_RSA, TLS13, client, pki};
use crate::rig::{Client, accept, run};

/// Cases per suite, certificate and library; about a thousand in all.
const CASES: u32 = 40;

/// Operation of one end, or of the wire.
#[derive(Clone, Debug)]
enum Act {
    ClientWrites(usize),
    ServerWrites {
        bytes: usize,
        slot: usize,
    },
    ClientUpdates,
    ServerUpdates,
    ClientCloses,
    ServerCloses,
    /// Delivers bytes of the client in pieces of this size.
    Upload(usize),
    Download(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let size = || prop_oneof![Just(0), 1..40usize, 1..2000usize, 16_000..17_000usize, 1..70_000usize];
    let slot = prop_oneof![1..64usize, 1000..2000usize, Just(16_384)];
    prop_oneof![
        6 => size().prop_map(Act::ClientWrites),
        6 => (size(), slot).prop_map(|(bytes, slot)| Act::ServerWrites { bytes, slot }),
        3 => Just(Act::ClientUpdates),
        3 => Just(Act::ServerUpdates),
        1 => Just(Act::ClientCloses),
        1 => Just(Act::ServerCloses),
        4 => (1..20_000usize).prop_map(Act::Upload),
        4 => (1..20_000usize).prop_map(Act::Download),
    ]
}

/// One direction as tracked by the test.
#[derive(Default)]
struct Direction {
    wire: Vec<u8>,
    sent: Vec<u8>,
    got: Vec<u8>,
    closed: bool,
    ended: bool,
}

impl Direction {
    /// Bytes that differ from all others nearby.
    fn next(&mut self, n: usize) -> Vec<u8> {
        let from = self.sent.len();
        let bytes: Vec<u8> = (from..from + n).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
        self.sent.extend_from_slice(&bytes);
        bytes
    }
}

struct Ends {
    client: ClientConnection,
    server: TlsSession,
    /// Bytes received by the server and not opened.
    incoming: Vec<u8>,
    up: Direction,
    down: Direction,
    /// Key updates that the server has sent, on its own or as a reply.
    updates: usize,
}

impl Ends {
    fn act(&mut self, act: &Act) {
        let tls13 = self.client.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        match *act {
            Act::ClientWrites(n) if !self.up.closed => {
                let bytes = self.up.next(n);
                self.client.writer().write_all(&bytes).unwrap();
            }
            Act::ServerWrites { bytes, slot } if !self.down.closed => self.server_writes(bytes, slot),
            Act::ClientUpdates if tls13 && !self.up.closed => self.client.refresh_traffic_keys().unwrap(),
            Act::ServerUpdates if tls13 && !self.down.closed => self.server_updates(),
            Act::ClientCloses if !self.up.closed => {
                self.client.send_close_notify();
                self.up.closed = true;
            }
            Act::ServerCloses if !self.down.closed => {
                self.server.alert(Alert::CLOSE_NOTIFY, &mut self.down.wire);
                self.down.closed = true;
            }
            Act::Upload(piece) => self.upload(piece),
            Act::Download(piece) => self.download(piece),
            _ => {}
        }
        // The client's records follow the order of its operations.
        while self.client.wants_write() {
            self.client.write_tls(&mut self.up.wire).unwrap();
        }
    }

    fn server_writes(&mut self, n: usize, slot: usize) {
        let bytes = self.down.next(n);
        let mut rest = &bytes[..];
        let mut block = vec![0xee; 40_000];
        loop {
            let layout = self.server.sealer.layout(slot, block.len(), 64);
            let filled = layout.fill(&mut block, [rest]);
            let sealed = self.server.sealer.seal(&layout, &mut block, filled);
            self.down.wire.extend_from_slice(&block[..sealed]);
            rest = &rest[filled..];
            if rest.is_empty() {
                break;
            }
        }
    }

    fn server_updates(&mut self) {
        self.server.update_sending(&mut self.down.wire).unwrap();
        self.updates += 1;
    }

    fn upload(&mut self, piece: usize) {
        let wire = std::mem::take(&mut self.up.wire);
        for piece in wire.chunks(piece) {
            self.incoming.extend_from_slice(piece);
            self.open();
        }
    }

    fn open(&mut self) {
        let mut spans = [PlaintextSpan::default(); 3];
        while !self.up.ended {
            let opened = self.server.opener.open(&mut self.incoming, &mut spans);
            for span in &spans[..opened.spans] {
                self.up.got.extend_from_slice(span.of(&self.incoming));
            }
            self.incoming.drain(..opened.consumed);
            match opened.event {
                RecordEvent::NeedMore(_) => break,
                RecordEvent::Full => {}
                RecordEvent::KeyUpdate { answer } => {
                    self.server.update_receiving().unwrap();
                    if answer && !self.down.closed {
                        self.server_updates();
                    }
                }
                RecordEvent::CloseNotify => self.up.ended = true,
                other => panic!("{other:?}"),
            }
        }
    }

    fn download(&mut self, piece: usize) {
        let wire = std::mem::take(&mut self.down.wire);
        for piece in wire.chunks(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                assert_ne!(self.client.read_tls(&mut rest).unwrap(), 0);
                let state = self.client.process_new_packets().unwrap();
                self.down.ended = state.peer_has_closed();
                let start = self.down.got.len();
                self.down.got.resize(start + state.plaintext_bytes_to_read(), 0);
                self.client.reader().read_exact(&mut self.down.got[start..]).unwrap();
            }
        }
    }

    /// Delivers everything, closes both ends, and checks the result.
    fn finish(mut self) {
        for act in [
            Act::Upload(4096),
            Act::Download(4096),
            Act::ClientCloses,
            Act::ServerCloses,
            Act::Upload(1),
            Act::Download(1),
        ] {
            self.act(&act);
        }
        for direction in [&self.up, &self.down] {
            assert!(direction.got == direction.sent, "got other bytes than were sent");
            assert!(direction.ended, "the end did not arrive");
        }
        assert!(self.incoming.is_empty());
        // The limit of rustls is 32 in a row.
        assert!(self.updates < 32, "too many updates for a meaningful test");
    }
}

/// A handshake; then both ends without their sockets.
fn establish(configs: &Configs, choice: &LibraryChoice, suite: CipherSuite, fragment: Option<usize>) -> Ends {
    let mut config = client(&[suite]);
    config.max_fragment_size = fragment;
    let config = Arc::new(config);
    let server = async |socket| {
        let (outcome, buffer) = accept(&socket, configs, choice).await;
        assert!(buffer.is_empty());
        (outcome.unwrap(), socket)
    };
    let ((server, near), client) = run(server, |socket| {
        let mut client = Client::new(&config, NAME, socket);
        client.handshake().unwrap();
        client
    });
    drop(near);
    assert_eq!(server.negotiated.suite, suite);
    let Client { mut tls, mut socket } = client;
    tls.set_buffer_limit(None);
    // The tickets; those of TLS 1.2 were sent.
    let mut down = Direction { wire: server.tickets, ..Direction::default() };
    socket.read_to_end(&mut down.wire).unwrap();
    let (incoming, up) = (Vec::new(), Direction::default());
    Ends { client: tls, server: server.session, incoming, up, down, updates: 0 }
}

fn differ(certificate: &Arc<Certificate>, suites: &[CipherSuite]) {
    let seed = match std::env::var("PROPTEST_RNG_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => rand_seed(),
    };
    println!("PROPTEST_RNG_SEED={seed}");
    let setup = Setup { certificates: vec![Arc::clone(certificate)], ..Setup::default() };
    let configs = setup.configs();
    for &suite in suites {
        for library in Library::ALL {
            println!("{suite:?} with {}", library.name());
            let mut runner = TestRunner::new(Config {
                cases: CASES,
                rng_seed: RngSeed::Fixed(seed),
                failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
                ..Config::default()
            });
            let fragments = proptest::option::of(prop_oneof![32..100usize, 1000..5000usize, Just(16_389)]);
            let acts = proptest::collection::vec(act(), 0..24);
            let outcome = runner.run(&(acts, fragments), |(acts, fragment)| {
                let mut ends = establish(&configs, &LibraryChoice::always(library), suite, fragment);
                acts.iter().for_each(|act| ends.act(act));
                ends.finish();
                Ok(())
            });
            if let Err(error) = outcome {
                panic!("{error}");
            }
        }
    }
}

/// Randomness from the standard library.
fn rand_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[test]
fn tls13_with_an_ecdsa_certificate() {
    differ(&pki().ecdsa, &TLS13);
}

#[test]
fn tls13_with_an_rsa_certificate() {
    differ(&pki().rsa, &TLS13);
}

#[test]
fn tls12_with_an_ecdsa_certificate() {
    differ(&pki().ecdsa, &TLS12_ECDSA);
}

#[test]
fn tls12_with_an_rsa_certificate() {
    differ(&pki().rsa, &TLS12_RSA);
}
