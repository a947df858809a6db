//! Reaching a server of a backend, trying others where one cannot be reached.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_net::clock::coarse_ms;
use offramp_net::connect::connect_to;
use offramp_net::{Address, Socket};
use offramp_tls::client::{Alpn, Secured};
use offramp_tls::{HandshakeError, HandshakeFault};
use tokio::time::timeout;

use crate::admission::{Denied, Permit, Wish, client_key, permit_later, permit_now};
use crate::backend::{Backend, Target};
use crate::health::{self, Outcome};
use crate::link::Link;
use crate::per_worker::PerWorker;
use crate::pick::{HashKey, Policy, Tried};

/// A connection to a server.
pub struct Connected {
    /// The socket.
    pub socket: Socket,
    /// The TLS on it, where the server speaks TLS.
    pub secured: Option<Box<Secured>>,
    /// The server's place in its backend.
    pub server: usize,
    /// How many attempts it took.
    pub tries: u16,
    /// Its count on the server: to be kept for as long as the connection.
    pub permit: Permit,
}

/// No server of a backend could be reached.
#[derive(Debug)]
pub struct Unreachable {
    /// The server that was tried last; `None` where none was.
    pub server: Option<usize>,
    /// How many attempts were made.
    pub tries: u16,
    /// How the last attempt failed.
    pub reason: Reason,
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum Reason {
    /// It took longer than the connect timeout.
    Timeout,
    /// The kernel said no.
    Io(io::Error),
    /// The TLS handshake failed.
    Tls(Arc<HandshakeError>),
    /// The server's host name does not resolve.
    NoAddress,
    /// Every server is down or leaving.
    NoServerAlive,
    /// All servers are at `max_connections`, and as many wait as may wait.
    QueueFull,
    /// All servers were at `max_connections` for as long as one may wait.
    QueueTimeout,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the connect timeout ran out"),
            Self::Io(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::NoAddress => f.write_str("the server's name does not resolve"),
            Self::NoServerAlive => f.write_str("every server is down"),
            Self::QueueFull => f.write_str("all servers are busy and the queue is full"),
            Self::QueueTimeout => f.write_str("all servers were busy for too long"),
        }
    }
}

impl Reason {
    /// Whether it lies with this machine, which has run out of something.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::Io(error) => is_ours(error),
            Self::Tls(error) => match &error.fault {
                HandshakeFault::Io(error) => is_ours(error),
                HandshakeFault::Internal(_) | HandshakeFault::Shed => true,
                HandshakeFault::Closed
                | HandshakeFault::Tls(_)
                | HandshakeFault::TooLarge
                | HandshakeFault::Preamble(_) => false,
            },
            _ => false,
        }
    }

    /// The same once more, for another who waited for the same connection.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Timeout => Self::Timeout,
            Self::Io(error) => Self::Io(match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => error.kind().into(),
            }),
            Self::Tls(error) => Self::Tls(Arc::clone(error)),
            Self::NoAddress => Self::NoAddress,
            Self::NoServerAlive => Self::NoServerAlive,
            Self::QueueFull => Self::QueueFull,
            Self::QueueTimeout => Self::QueueTimeout,
        }
    }
}

/// Whether an error of a socket lies with this machine, which has no descriptor, no memory or no watch left.
pub(crate) fn is_ours(error: &io::Error) -> bool {
    // ENOMEM, ENFILE, EMFILE, ENOSPC (by which epoll says that it may watch no more), ENOBUFS.
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 28 | 105))
}

/// What happens on the way to a server.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'p> {
    /// This server was picked; it takes the place of the one before.
    Picked(&'p Arc<str>),
    /// A connection was attempted.
    Attempted {
        /// Whether it was made.
        succeeded: bool,
    },
}

/// What comes first on a connection to a server.
#[derive(Clone, Copy)]
pub(crate) struct Way<'a> {
    /// What goes before everything, TLS included: a PROXY header.
    pub(crate) prologue: &'a [u8],
    /// The application protocols that are offered to servers with TLS.
    pub(crate) alpn: Alpn,
}

/// A connection to one server.
pub(crate) struct Reached {
    socket: Socket,
    secured: Option<Box<Secured>>,
}

impl Reached {
    /// Whether HTTP/2 was agreed on.
    pub(crate) fn is_http2(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.is_http2())
    }

    /// As a stream of bytes.
    pub(crate) fn into_link(self) -> Link {
        match self.secured {
            Some(secured) => Link::Tls(Box::new(secured.into_stream(self.socket))),
            None => Link::Plain(self.socket),
        }
    }
}

/// Connects to the server whose turn it is, or to the next that can be reached, for a connection of
/// `client`, which is to be introduced by `prologue`. Each attempt may take `limit`, handshake included. Failures are remembered in `own` and in the health of
/// the servers, so that one that is down is not everybody's first choice. `on` is told how it goes.
///
/// # Errors
/// Where every address of every server failed, where none is alive or free, or where descriptors or
/// memory have run out here.
pub async fn connect(
    backend: &Arc<Backend>,
    own: &PerWorker,
    client: Option<IpAddr>,
    limit: Duration,
    prologue: &[u8],
    mut on: impl FnMut(Progress<'_>),
) -> Result<Connected, Unreachable> {
    let key = match backend.policy {
        Policy::Hash(HashKey::Client) => client.map(client_key),
        _ => None,
    };
    let mut tried = Tried::default();
    let mut failed = Unreachable { server: None, tries: 0, reason: Reason::NoAddress };
    loop {
        let wish = Wish { key, tied: None, tried: &tried };
        let permit = match acquire(backend, own, wish).await {
            Ok(permit) => permit,
            // The last attempt says more than that there are no others.
            Err(None) => return Err(failed),
            Err(Some(reason)) => return Err(Unreachable { reason, ..failed }),
        };
        let server = permit.server();
        tried.insert(server);
        failed.server = Some(server);
        on(Progress::Picked(&backend.servers[server].name));
        match reach(backend, server, limit, Way { prologue, alpn: Alpn::Own }, |succeeded| {
            failed.tries = failed.tries.saturating_add(1);
            on(Progress::Attempted { succeeded });
        })
        .await
        {
            Ok(Reached { socket, secured }) => {
                own.chooser.borrow_mut().note_success(server);
                health::note(backend, server, Outcome::Good, coarse_ms());
                return Ok(Connected { socket, secured, server, tries: failed.tries, permit });
            }
            // The next server would fare no better, and this one did nothing wrong.
            Err(reason) if reason.is_ours() => return Err(Unreachable { reason, ..failed }),
            Err(reason) => failed.reason = reason,
        }
        own.chooser.borrow_mut().note_failure(server, Instant::now());
        health::note(backend, server, Outcome::Bad, coarse_ms());
    }
}

/// A permit, after a wait if need be; `Err(None)`: nobody is left to be tried.
async fn acquire(backend: &Arc<Backend>, own: &PerWorker, wish: Wish<'_>) -> Result<Permit, Option<Reason>> {
    if let Some(permit) = permit_now(backend, own, wish).map_err(Denied::reason)? {
        return Ok(permit);
    }
    match timeout(backend.limits.queue_timeout, permit_later(backend, own, wish)).await {
        Ok(permit) => permit.map_err(Denied::reason),
        Err(_) => Err(Some(Reason::QueueTimeout)),
    }
}

/// Connects to one server, whichever of its addresses answers.
pub(crate) async fn reach(
    backend: &Backend,
    server: usize,
    limit: Duration,
    way: Way<'_>,
    mut attempted: impl FnMut(bool),
) -> Result<Reached, Reason> {
    let mut failed = Reason::NoAddress;
    let addresses = match &backend.servers[server].target {
        Target::Fixed(address) => Addresses::One(Some(address.clone())),
        Target::Resolved(resolved) => Addresses::Many(resolved.load_full(), 0),
    };
    for address in addresses {
        failed = match timeout(limit, open(backend, server, &address, way)).await {
            Ok(Ok(reached)) => {
                attempted(true);
                return Ok(reached);
            }
            Ok(Err(reason)) => reason,
            Err(_) => Reason::Timeout,
        };
        attempted(false);
        if failed.is_ours() {
            break;
        }
    }
    Err(failed)
}

/// Connects to one address, and does what comes first there.
async fn open(backend: &Backend, server: usize, address: &Address, way: Way<'_>) -> Result<Reached, Reason> {
    let socket = connect_to(address).await.map_err(Reason::Io)?;
    if !way.prologue.is_empty() {
        socket.write_all(way.prologue).await.map_err(Reason::Io)?;
    }
    let Some(connector) = backend.connector(server) else {
        return Ok(Reached { socket, secured: None });
    };
    // Its state is large and short-lived, and plain servers need none.
    let secured = Box::pin(connector.handshake(&socket, way.alpn)).await;
    let secured = secured.map_err(|error| Reason::Tls(Arc::new(error)))?;
    Ok(Reached { socket, secured: Some(Box::new(secured)) })
}

/// The addresses of one server, one after the other.
enum Addresses {
    One(Option<Address>),
    Many(Arc<Vec<SocketAddr>>, usize),
}

impl Iterator for Addresses {
    type Item = Address;

    fn next(&mut self) -> Option<Address> {
        match self {
            Self::One(address) => address.take(),
            Self::Many(all, at) => {
                let address = all.get(*at).copied().map(Address::Tcp);
                *at += 1;
                address
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_failure_it_is() {
        let of = |code| Reason::Io(io::Error::from_raw_os_error(code));
        let within_tls = |code| {
            let fault = HandshakeFault::Io(io::Error::from_raw_os_error(code));
            Reason::Tls(Arc::new(HandshakeError { fault, alert: None, refused: None }))
        };
        for code in [12, 23, 24, 28, 105] {
            assert!(of(code).is_ours() && within_tls(code).is_ours(), "{code}");
        }
        assert!(!within_tls(104).is_ours());
        assert!(!of(111).is_ours() && !Reason::Timeout.is_ours() && !Reason::NoAddress.is_ours());
    }
}
