//! Small applications on threads of the test, over TCP and Unix sockets: what a proxy has behind it.
//!
//! A [`Server`] accepts and hands each connection to a behaviour on a thread of its own: the correct ones
//! are in [`apps`], the broken ones in [`faults`], the one that remembers is a [`Recording`]. Dropping
//! the server stops the accepting; connections end when their peers end them, or after [`PATIENCE`].

pub mod apps;
pub mod faults;
mod pattern;
mod recording;
mod stream;

use std::fmt;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
pub use pattern::{Pattern, Sum};
pub use recording::Recording;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
pub use stream::Stream;

use crate::Error;

/// The longest that any behaviour waits for its peer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where to listen.
#[derive(Clone, Debug)]
pub enum Listen {
    /// A free port of `127.0.0.1`.
    Ipv4,
    /// A free port of `[::1]`.
    Ipv6,
    /// A Unix socket at this path, which must not exist.
    Unix(PathBuf),
}

/// Where a server listens; prints as the configuration language has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address and port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// The address and port.
    ///
    /// # Panics
    /// For a Unix socket.
    #[must_use]
    pub fn socket(&self) -> SocketAddr {
        match self {
            Self::Tcp(address) => *address,
            Self::Unix(path) => panic!("{} has no port", path.display()),
        }
    }

    /// Connects, with [`PATIENCE`] as the limit of every later read and write.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(&self) -> Result<Stream, Error> {
        let stream = match self {
            Self::Tcp(address) => Stream::Tcp(TcpStream::connect_timeout(address, PATIENCE)?),
            Self::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        stream.set_timeout(Some(PATIENCE))?;
        // A connection that the server has reset already cannot be tuned; its first read will tell.
        let _ = stream.send_at_once();
        Ok(stream)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn bind(listen: &Listen) -> Result<(Self, Address), Error> {
        let tcp = |address: &str| -> Result<(Self, Address), Error> {
            let listener = TcpListener::bind(address)?;
            let address = Address::Tcp(listener.local_addr()?);
            Ok((Self::Tcp(listener), address))
        };
        match listen {
            Listen::Ipv4 => tcp("127.0.0.1:0"),
            Listen::Ipv6 => tcp("[::1]:0"),
            Listen::Unix(path) => Ok((Self::Unix(UnixListener::bind(path)?), Address::Unix(path.clone()))),
        }
    }

    fn accept(&self) -> std::io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }
}

/// A running server.
pub struct Server {
    address: Address,
    stop: Arc<AtomicBool>,
    accepted: Arc<AtomicUsize>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Listens and gives each connection to `behaviour`, on a thread of its own.
    ///
    /// # Errors
    /// What binding says.
    pub fn start(listen: &Listen, behaviour: impl Fn(Stream) + Send + Sync + 'static) -> Result<Self, Error> {
        let (listener, address) = Listener::bind(listen)?;
        let (stop, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let behaviour = Arc::new(behaviour);
        let thread = thread::spawn({
            let (stop, accepted) = (Arc::clone(&stop), Arc::clone(&accepted));
            move || {
                while let Ok(stream) = listener.accept() {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    accepted.fetch_add(1, Ordering::SeqCst);
                    serve(stream, Arc::clone(&behaviour));
                }
            }
        });
        Ok(Self { address, stop, accepted, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept; if nobody can connect any more, the thread is past it already.
        let woken = self.address.connect().is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
        remove(&self.address);
    }
}

/// An address where every connection is refused for as long as this lives.
pub struct Refusing {
    address: Address,
    /// Holds the port, bound but not listening.
    _port: Option<socket2::Socket>,
}

impl Refusing {
    /// Reserves such an address.
    ///
    /// # Errors
    /// What binding says.
    pub fn new(listen: &Listen) -> Result<Self, Error> {
        let (bound, domain) = match listen {
            Listen::Ipv4 => (SocketAddr::from(([127, 0, 0, 1], 0)), socket2::Domain::IPV4),
            Listen::Ipv6 => (SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0)), socket2::Domain::IPV6),
            Listen::Unix(path) => {
                // The file of a socket that nobody listens on any more.
                drop(UnixListener::bind(path)?);
                return Ok(Self { address: Address::Unix(path.clone()), _port: None });
            }
        };
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.bind(&bound.into())?;
        let address = socket.local_addr()?.as_socket().ok_or_else(|| Error::setup("no address"))?;
        Ok(Self { address: Address::Tcp(address), _port: Some(socket) })
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        remove(&self.address);
    }
}

fn serve(stream: Stream, behaviour: Arc<impl Fn(Stream) + Send + Sync + 'static>) {
    let run = move || {
        if stream.set_timeout(Some(PATIENCE)).and_then(|()| stream.send_at_once()).is_ok() {
            behaviour(stream);
        }
    };
    // A small stack, so that thousands of idle connections fit. Where no thread can be had, the
    // connection is closed, which the test sees.
    let _ = thread::Builder::new().stack_size(STACK).spawn(run);
}

fn remove(address: &Address) {
    if let Address::Unix(path) = address {
        // The test's directory goes anyway; what is not there needs no removing.
        let _ = fs::remove_file(path);
    }
}

/// Bytes of a connection thread's stack; the behaviours keep their buffers on the heap.
const STACK: usize = 128 * 1024;

/// The value of `Sec-WebSocket-Accept` for the key in the head of a request (RFC 6455 §4.2.2).
pub fn websocket_accept(head: &str) -> String {
    let line = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.trim().to_owned())
    };
    let key = head.lines().find_map(line).unwrap_or_default();
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}
