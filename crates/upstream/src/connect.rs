//! Connecting to a server of a backend, with failover to others.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_net::clock::coarse_ms;
use offramp_net::connect::connect_to;
use offramp_net::{Address, Socket};
use offramp_tls::client::{Alpn, Secured};
use tokio::time::timeout;

use crate::admission::{AdmissionError, Permit, PermitRequest, client_key, permit_later, permit_now};
use crate::backend::{Backend, UpstreamAddress};
use crate::ejection;
use crate::fault::ConnectFault;
use crate::health::ServerOutcome;
use crate::link::ServerStream;
use crate::per_worker::PerWorker;
use crate::pick::{BalancePolicy, HashSource, Tried};

/// A connection to a server.
pub struct Connected {
    /// Socket of the connection.
    pub socket: Socket,
    /// TLS session on the socket, if the server uses TLS.
    pub secured: Option<Box<Secured>>,
    /// Index of the server in its backend.
    pub server: usize,
    /// Number of attempts made.
    pub tries: u16,
    /// Count on the server; keep it as long as the connection.
    pub permit: Permit,
}

/// Error after no server of a backend could be reached.
#[derive(Debug)]
pub struct Unreachable {
    /// Server that was tried last; `None` if none was.
    pub server: Option<usize>,
    /// Number of attempts made.
    pub tries: u16,
    /// Error of the last attempt.
    pub reason: ConnectFault,
}

/// Events on the way to a server.
#[derive(Clone, Copy, Debug)]
pub enum ConnectEvent<'p> {
    /// This server was picked, in place of the previous one.
    Picked(&'p Arc<str>),
    /// A connection was attempted.
    Attempted {
        /// Set if the attempt succeeded.
        succeeded: bool,
    },
}

/// Prologue and protocols of a connection to a server.
#[derive(Clone, Copy)]
pub(crate) struct ConnectParams<'a> {
    /// Bytes before everything else, including TLS: a PROXY header.
    pub(crate) prologue: &'a [u8],
    /// Application protocols offered to servers with TLS.
    pub(crate) alpn: Alpn,
}

/// A connection to one server.
pub(crate) struct Reached {
    socket: Socket,
    secured: Option<Box<Secured>>,
}

impl Reached {
    /// Returns true if HTTP/2 was negotiated.
    pub(crate) fn is_http2(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.is_http2())
    }

    /// Converts it to a byte stream.
    pub(crate) fn into_link(self) -> ServerStream {
        match self.secured {
            Some(secured) => ServerStream::Tls(Box::new(secured.into_stream(self.socket))),
            None => ServerStream::Plain(self.socket),
        }
    }
}

/// Connects to the server chosen by the policy, or to the next one that can be reached, on behalf of
/// `client`, introduced by `prologue`. Each attempt, including the handshake, may take `limit`. Failures are
/// recorded in `own` and in the health of the servers, so that a dead server is not tried first by everyone.
/// `on` receives the events.
///
/// # Errors
/// Every address of every server failed, none is alive or free, or this machine lacks descriptors or memory.
pub async fn connect(
    backend: &Arc<Backend>,
    own: &PerWorker,
    client: Option<IpAddr>,
    limit: Duration,
    prologue: &[u8],
    mut on: impl FnMut(ConnectEvent<'_>),
) -> Result<Connected, Unreachable> {
    let key = match backend.policy {
        BalancePolicy::Hash(HashSource::Client) => client.map(client_key),
        _ => None,
    };
    let mut tried = Tried::default();
    let mut failed = Unreachable { server: None, tries: 0, reason: ConnectFault::NoAddress };
    loop {
        let request = PermitRequest { key, tied: None, tried: &tried };
        let permit = match acquire(backend, own, request).await {
            Ok(permit) => permit,
            // The error of the last attempt says more than that there are no others.
            Err(None) => return Err(failed),
            Err(Some(reason)) => return Err(Unreachable { reason, ..failed }),
        };
        let server = permit.server();
        tried.insert(server);
        failed.server = Some(server);
        on(ConnectEvent::Picked(&backend.servers[server].name));
        match reach(backend, server, limit, ConnectParams { prologue, alpn: Alpn::Own }, |succeeded| {
            failed.tries = failed.tries.saturating_add(1);
            on(ConnectEvent::Attempted { succeeded });
        })
        .await
        {
            Ok(Reached { socket, secured }) => {
                own.chooser.borrow_mut().note_success(server);
                ejection::note(backend, server, ServerOutcome::Good, coarse_ms());
                return Ok(Connected { socket, secured, server, tries: failed.tries, permit });
            }
            // The next server would fail as well, and this one is not at fault.
            Err(reason) if reason.is_ours() => return Err(Unreachable { reason, ..failed }),
            Err(reason) => failed.reason = reason,
        }
        own.chooser.borrow_mut().note_failure(server, Instant::now());
        ejection::note(backend, server, ServerOutcome::Bad, coarse_ms());
    }
}

/// Gets a permit, after a wait if necessary; `Err(None)`: no server is left to try.
async fn acquire(
    backend: &Arc<Backend>,
    own: &PerWorker,
    request: PermitRequest<'_>,
) -> Result<Permit, Option<ConnectFault>> {
    if let Some(permit) = permit_now(backend, own, request).map_err(AdmissionError::reason)? {
        return Ok(permit);
    }
    match timeout(backend.limits.queue_timeout, permit_later(backend, own, request)).await {
        Ok(permit) => permit.map_err(AdmissionError::reason),
        Err(_) => Err(Some(ConnectFault::QueueTimeout)),
    }
}

/// Connects to one server by any of its addresses.
pub(crate) async fn reach(
    backend: &Backend,
    server: usize,
    limit: Duration,
    way: ConnectParams<'_>,
    mut attempted: impl FnMut(bool),
) -> Result<Reached, ConnectFault> {
    let mut failed = ConnectFault::NoAddress;
    let addresses = match &backend.servers[server].target {
        UpstreamAddress::Fixed(address) => AddressCandidates::One(Some(address.clone())),
        UpstreamAddress::Resolved(resolved) => AddressCandidates::Many(resolved.load_full(), 0),
    };
    for address in addresses {
        failed = match timeout(limit, open(backend, server, &address, way)).await {
            Ok(Ok(reached)) => {
                attempted(true);
                return Ok(reached);
            }
            Ok(Err(reason)) => reason,
            Err(_) => ConnectFault::Timeout,
        };
        attempted(false);
        if failed.is_ours() {
            break;
        }
    }
    Err(failed)
}

/// Number of addresses that [`reach`] may try.
pub(crate) fn addresses(backend: &Backend, server: usize) -> u32 {
    match &backend.servers[server].target {
        UpstreamAddress::Fixed(_) => 1,
        UpstreamAddress::Resolved(resolved) => {
            u32::try_from(resolved.load().len()).unwrap_or(u32::MAX).max(1)
        }
    }
}

/// Connects to one address, sends the prologue and performs the handshake.
async fn open(
    backend: &Backend,
    server: usize,
    address: &Address,
    way: ConnectParams<'_>,
) -> Result<Reached, ConnectFault> {
    let socket = connect_to(address).await.map_err(ConnectFault::Io)?;
    if !way.prologue.is_empty() {
        socket.write_all(way.prologue).await.map_err(ConnectFault::Io)?;
    }
    let Some(connector) = backend.connector(server) else {
        return Ok(Reached { socket, secured: None });
    };
    // Its state is large and short-lived, and plain servers need none.
    let secured = Box::pin(connector.handshake(&socket, way.alpn)).await;
    let secured = secured.map_err(|error| ConnectFault::Tls(Arc::new(error)))?;
    Ok(Reached { socket, secured: Some(Box::new(secured)) })
}

/// Iterator over the addresses of a server.
enum AddressCandidates {
    One(Option<Address>),
    Many(Arc<Vec<SocketAddr>>, usize),
}

impl Iterator for AddressCandidates {
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
