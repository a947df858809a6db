//! The self-test of the load: every kind of it against a server whose behaviour is known, a plain rustls
//! server with a thread per connection that counts what it does.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use crate::error::Result;
use crate::load::{Gate, run};
use crate::pki::{KeyKind, identity};
use crate::protocol::{Exchange, Group, LoadResult, LoadSpec, Version, Work};

/// What the server has seen.
#[derive(Debug, Default)]
struct Seen {
    full: AtomicU64,
    resumed: AtomicU64,
    bytes: AtomicU64,
    answers: AtomicU64,
}

/// Answers each `request` bytes with `response` bytes after `delay`.
#[derive(Clone, Copy)]
struct Manner {
    request: usize,
    response: usize,
    delay: Duration,
}

struct Known {
    address: SocketAddr,
    seen: Arc<Seen>,
}

impl Known {
    fn start(manner: Manner) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = identity(dir.path(), KeyKind::P256).unwrap();
        let certs = vec![CertificateDer::from_pem_file(&files.cert).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(certs, key).unwrap();
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for tcp in listener.incoming().map_while(std::result::Result::ok) {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&shared));
                std::thread::spawn(move || serve(tcp, config, &seen, manner));
            }
        });
        Self { address, seen }
    }

    async fn load(&self, version: Version, group: Group, work: Work) -> Result<LoadResult> {
        let (words, gate) = tokio::sync::mpsc::channel(4);
        for _ in 0..2 {
            words.send("go".to_owned()).await.unwrap();
        }
        let spec = LoadSpec { target: self.address, version, group, client: None, work };
        run(&spec, &mut Gate { words: gate }).await
    }
}

fn serve(tcp: TcpStream, config: Arc<ServerConfig>, seen: &Seen, manner: Manner) {
    tcp.set_nodelay(true).unwrap();
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), tcp);
    let mut buffer = vec![0; 64 * 1024];
    let (mut got, mut counted) = (0, false);
    while let Ok(count) = stream.read(&mut buffer) {
        if !counted {
            counted = true;
            let kind = stream.conn.handshake_kind();
            let counter = if kind == Some(HandshakeKind::Resumed) { &seen.resumed } else { &seen.full };
            counter.fetch_add(1, Ordering::SeqCst);
        }
        if count == 0 {
            stream.conn.send_close_notify();
            let _ = stream.flush();
            return;
        }
        seen.bytes.fetch_add(count as u64, Ordering::SeqCst);
        got += count;
        while got >= manner.request {
            got -= manner.request;
            std::thread::sleep(manner.delay);
            seen.answers.fetch_add(1, Ordering::SeqCst);
            if stream.write_all(&vec![b'r'; manner.response]).is_err() {
                return;
            }
        }
    }
}

const PROMPT: Manner = Manner { request: 10, response: 10, delay: Duration::ZERO };

#[tokio::test]
async fn relayed_requests_are_counted_as_the_server_counts_them() {
    let server = Known::start(PROMPT);
    let work = Work::Relay { connections: 3, request: 10, response: 10, seconds: 0.2, warmup: 0.0 };
    let result = server.load(Version::Tls13, Group::X25519, work).await.unwrap();
    assert_eq!((result.errors, result.first_error.as_deref()), (0, None));
    assert!(result.units > 0);
    assert_eq!(server.seen.answers.load(Ordering::SeqCst), result.units);
    assert_eq!(server.seen.full.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn bulk_goes_whole_in_both_directions() {
    const MIB: usize = 1 << 20;
    let server = Known::start(Manner { request: MIB, response: MIB, delay: Duration::ZERO });
    let work = Work::Relay { connections: 2, request: MIB, response: MIB, seconds: 0.2, warmup: 0.0 };
    let result = server.load(Version::Tls13, Group::X25519MlKem768, work).await.unwrap();
    assert_eq!((result.errors, result.first_error.as_deref()), (0, None));
    assert_eq!(server.seen.bytes.load(Ordering::SeqCst), result.units * MIB as u64);
}

#[tokio::test]
async fn full_handshakes_are_full_and_resumed_ones_are_resumed() {
    for version in [Version::Tls12, Version::Tls13] {
        for resumed in [false, true] {
            let server = Known::start(PROMPT);
            let work = Work::Handshake {
                concurrency: 2,
                resumed,
                exchange: None,
                every: 0.0,
                seconds: 0.2,
                warmup: 0.0,
            };
            let result = server.load(version, Group::X25519, work).await.unwrap();
            assert_eq!((result.errors, result.first_error.as_deref()), (0, None), "{version:?}");
            assert!(result.units > 0);
            let expected = if resumed { result.units } else { 0 };
            assert_eq!(result.resumed, expected, "{version:?}");
            // Those that filled the stock and warmed up were not counted by the load.
            let seen = server.seen.resumed.load(Ordering::SeqCst);
            assert!(seen >= result.resumed, "{version:?}: {seen} < {}", result.resumed);
        }
    }
}

#[tokio::test]
async fn a_connection_with_one_request_brings_one_answer() {
    let server = Known::start(PROMPT);
    let exchange = Some((10, 10));
    let work =
        Work::Handshake { concurrency: 1, resumed: false, exchange, every: 0.0, seconds: 0.1, warmup: 0.0 };
    let result = server.load(Version::Tls13, Group::X25519, work).await.unwrap();
    assert_eq!(result.errors, 0);
    let (full, answers) =
        (server.seen.full.load(Ordering::SeqCst), server.seen.answers.load(Ordering::SeqCst));
    assert_eq!(full, answers);
    assert!(answers >= result.units);
}

#[tokio::test]
async fn idle_connections_are_all_there_at_the_end() {
    let server = Known::start(PROMPT);
    let work = Work::Idle { connections: 5, exchange: Exchange::Bytes { request: 10, response: 10 } };
    let result = server.load(Version::Tls13, Group::X25519, work).await.unwrap();
    assert_eq!((result.units, result.errors), (5, 0));
    assert_eq!(server.seen.answers.load(Ordering::SeqCst), 10);
}

#[tokio::test]
async fn a_server_that_is_too_slow_shows_in_the_latency_of_requests_that_waited() {
    // 5 ms each on one connection is 200 a second; 400 arrive. After half a second the last one of 200
    // has waited half a second: a client that waits for answers before it asks again would see 5 ms.
    let server = Known::start(Manner { delay: Duration::from_millis(5), ..PROMPT });
    let work =
        Work::Rate { connections: 1, request: 10, response: 10, rate: 400.0, seconds: 0.5, warmup: 0.0 };
    let result = server.load(Version::Tls13, Group::X25519, work).await.unwrap();
    assert_eq!((result.units, result.errors), (200, 0));
    assert!(result.latency["p50"] > 150_000.0, "{:?}", result.latency);
    assert!(result.latency["max"] > 400_000.0, "{:?}", result.latency);
}

#[tokio::test]
async fn slow_clients_send_a_byte_at_a_time() {
    let server = Known::start(Manner { request: usize::MAX, ..PROMPT });
    let work = Work::Drip { connections: 4, interval: 0.01 };
    let result = server.load(Version::Tls13, Group::X25519, work).await.unwrap();
    assert_eq!(result.errors, 0);
}

#[tokio::test]
async fn a_wrong_answer_is_an_error_and_not_a_unit() {
    let server = Known::start(Manner { response: 11, ..PROMPT });
    let work = Work::Relay { connections: 1, request: 10, response: 10, seconds: 0.1, warmup: 0.0 };
    let result = server.load(Version::Tls13, Group::X25519, work).await.unwrap();
    assert_eq!((result.units, result.errors), (0, 1));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_that_says_so() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = Known { address, seen: Arc::default() };
    let work = Work::Idle { connections: 1, exchange: Exchange::Bytes { request: 10, response: 10 } };
    let error = gone.load(Version::Tls13, Group::X25519, work).await.unwrap_err();
    assert!(error.to_string().starts_with("connecting"), "{error}");
}
