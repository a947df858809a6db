//! Clients: one connection with rustls, and a crowd that asks without pause and forgives nothing.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::support::instance::PATIENCE;

/// An open TLS connection.
pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

/// A client that trusts one CA, whose certificate is at `ca`.
pub(crate) fn trusting(ca: &Path) -> Arc<ClientConfig> {
    Arc::new(builder(ca).with_no_client_auth())
}

/// The same with a certificate of its own.
pub(crate) fn with_certificate(ca: &Path, chain: &Path, key: &Path) -> Arc<ClientConfig> {
    let chain = CertificateDer::pem_file_iter(chain).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    Arc::new(builder(ca).with_client_auth_cert(chain, key).unwrap())
}

/// The same for one that offers these protocols.
pub(crate) fn offering(config: &Arc<ClientConfig>, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

fn builder(ca: &Path) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(roots)
}

/// A TCP connection that waits for nothing longer than [`PATIENCE`].
pub(crate) fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // One that was reset already says so at the first read.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A TLS connection for `name` whose handshake is done.
pub(crate) fn connect(config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> io::Result<Tls> {
    secure(config, tcp(address)?, name)
}

/// The handshake over a connection that is there.
pub(crate) fn secure(config: &Arc<ClientConfig>, stream: TcpStream, name: &str) -> io::Result<Tls> {
    shake(config, stream, name).map_err(|refusal| refusal.error)
}

/// A handshake that did not come about.
struct Refusal {
    error: io::Error,
    /// Whether the other side had said anything before.
    heard: bool,
}

fn shake(config: &Arc<ClientConfig>, mut stream: TcpStream, name: &str) -> Result<Tls, Refusal> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut heard = false;
    while client.is_handshaking() || client.wants_write() {
        while client.wants_write() {
            client.write_tls(&mut stream).map_err(|error| Refusal { error, heard })?;
        }
        if !client.is_handshaking() {
            break;
        }
        match client.read_tls(&mut stream) {
            Ok(0) => return Err(Refusal { error: io::ErrorKind::UnexpectedEof.into(), heard }),
            Ok(_) => heard = true,
            Err(error) => return Err(Refusal { error, heard }),
        }
        if let Err(error) = client.process_new_packets() {
            // What the client has against it is told to the other side.
            while client.wants_write() && client.write_tls(&mut stream).is_ok() {}
            return Err(Refusal { error: io::Error::other(error), heard });
        }
    }
    Ok(StreamOwned::new(client, stream))
}

/// One HTTP/1.1 request on a kept connection, and the body of its answer, which must have a length.
pub(crate) fn get(stream: &mut (impl Read + Write), path: &str) -> io::Result<String> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(usize::MAX);
            if body.len() >= length {
                return Ok(body.to_owned());
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => answer.extend_from_slice(&chunk[..n]),
        }
    }
}

/// Sends `text` to an echo and reads it back.
pub(crate) fn echo(stream: &mut (impl Read + Write), text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back)?;
    if back == text.as_bytes() { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Says goodbye and waits for the other side's.
pub(crate) fn close(mut tls: Tls) -> io::Result<()> {
    tls.conn.send_close_notify();
    tls.flush()?;
    io::copy(&mut tls, &mut io::sink()).map(drop)
}

/// Polls until `look` finds something.
#[track_caller]
pub(crate) fn until<T>(what: impl Debug, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what:?} did not come true within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a crowd has lived through.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Requests that were answered as they should be.
    pub(crate) answered: usize,
    /// Connections whose handshake was completed.
    pub(crate) connections: usize,
    /// Connections that were refused or reset before the other side had said a byte.
    pub(crate) turned_away: usize,
    /// Everything else.
    pub(crate) failures: Vec<String>,
}

/// Clients that ask an HTTP application without pause, some on kept connections, some on new ones.
pub(crate) struct Crowd {
    state: Arc<State>,
    threads: Vec<JoinHandle<Tally>>,
}

/// What a crowd and its test know of each other.
#[derive(Default)]
struct State {
    stop: AtomicBool,
    /// Answers on connections that are kept, on new ones, and connections that were turned away.
    kept: AtomicUsize,
    fresh: AtomicUsize,
    turned_away: AtomicUsize,
}

impl Crowd {
    /// Sends `clients` clients; every second one takes a new connection for each request, the others
    /// ask until they are stopped on the same.
    pub(crate) fn send(clients: usize, config: &Arc<ClientConfig>, address: SocketAddr, name: &str) -> Self {
        let state = Arc::new(State::default());
        let threads = (0..clients).map(|number| {
            let one = One {
                keeps: number % 2 == 0,
                config: Arc::clone(config),
                address,
                name: name.to_owned(),
                state: Arc::clone(&state),
            };
            thread::spawn(move || one.run())
        });
        Self { threads: threads.collect(), state }
    }

    /// Waits until there were `more` answers from now on, on kept connections and on new ones.
    #[track_caller]
    pub(crate) fn busy(&self, more: usize) {
        let counts = [&self.state.kept, &self.state.fresh];
        let goals = counts.map(|count| count.load(Ordering::SeqCst) + more);
        until("a crowd that is served", || {
            counts.iter().zip(goals).all(|(count, goal)| count.load(Ordering::SeqCst) >= goal).then_some(())
        });
    }

    /// Waits until somebody was turned away, and until `more` answers on kept connections from then on.
    #[track_caller]
    pub(crate) fn closed_to_others(&self, more: usize) {
        let turned_away = || (self.state.turned_away.load(Ordering::SeqCst) > 0).then_some(());
        until("a way in that is closed", turned_away);
        let goal = self.state.kept.load(Ordering::SeqCst) + more;
        let kept = || (self.state.kept.load(Ordering::SeqCst) >= goal).then_some(());
        until("a crowd that is served on kept connections", kept);
    }

    /// Lets everyone finish the request that is under way and say goodbye; gives the sum.
    pub(crate) fn stop(self) -> Tally {
        self.state.stop.store(true, Ordering::SeqCst);
        let mut sum = Tally::default();
        for thread in self.threads {
            let tally = thread.join().expect("a client does not panic");
            sum.answered += tally.answered;
            sum.connections += tally.connections;
            sum.turned_away += tally.turned_away;
            sum.failures.extend(tally.failures);
        }
        sum
    }
}

struct One {
    /// Whether it asks on one connection until it is stopped, or once on each.
    keeps: bool,
    config: Arc<ClientConfig>,
    address: SocketAddr,
    name: String,
    state: Arc<State>,
}

impl One {
    fn run(self) -> Tally {
        let mut tally = Tally::default();
        while !self.stopped() {
            let shaken = match tcp(self.address) {
                Ok(stream) => shake(&self.config, stream, &self.name),
                Err(error) => Err(Refusal { error, heard: false }),
            };
            match shaken {
                Ok(tls) => self.ask(tls, &mut tally),
                Err(refusal) if gone(&refusal.error) && !refusal.heard => {
                    tally.turned_away += 1;
                    self.state.turned_away.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(2));
                }
                Err(refusal) => tally.failures.push(format!("handshake: {}", refusal.error)),
            }
        }
        tally
    }

    fn ask(&self, mut tls: Tls, tally: &mut Tally) {
        tally.connections += 1;
        let mut asked = 0;
        while asked == 0 || (self.keeps && !self.stopped()) {
            asked += 1;
            match get(&mut tls, "/crowd") {
                Ok(body) if body == "hello /crowd\n" => {
                    tally.answered += 1;
                    let count = if self.keeps { &self.state.kept } else { &self.state.fresh };
                    count.fetch_add(1, Ordering::SeqCst);
                }
                Ok(body) => tally.failures.push(format!("request {asked}: the answer {body:?}")),
                Err(error) => return tally.failures.push(format!("request {asked}: {error}")),
            }
        }
        if let Err(error) = close(tls) {
            tally.failures.push(format!("goodbye after {asked} requests: {error}"));
        }
    }

    fn stopped(&self) -> bool {
        self.state.stop.load(Ordering::SeqCst)
    }
}

fn gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}
