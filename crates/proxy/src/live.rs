//! The open connections: a description of each, and the order to close some.
//!
//! Each worker has a table of its connections (`live::table`). An entry is 48 bytes, and what it shows is the facts that
//! a connection has anyway. A relay writes how much it has moved once a turn, and a request once, at its end; nothing is
//! done per record.
//!
//! Others ask by message ([`Connections`](crate::Connections)). One message has a worker look at 1,000 entries at most, so that no query
//! keeps it from its connections for long; the caller goes on from where that ended. An entry keeps its place as long
//! as the connection is open: a walk through the table finds each connection that stays exactly once, whatever comes
//! and goes meanwhile.

mod filter;
pub(crate) mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_observe::ConnectionId;
use offramp_observe::facts::{ByteCounts, EndpointAddress, PathFacts, TlsVersion};

pub use filter::{Filter, Touched};
pub use table::{ConnectionQuery, QueryAction, QueryReply};

/// The description of an open connection.
#[derive(Clone, Debug)]
pub struct LiveConnection {
    /// Its id, as in its event.
    pub id: ConnectionId,
    /// The worker that serves it.
    pub worker: u16,
    /// The listener that it came by.
    pub listener: Arc<str>,
    /// The client: from a believed PROXY header where there is one, else the peer of the socket.
    pub client: EndpointAddress,
    /// The peer of the socket, if a PROXY header named another client.
    pub peer: Option<EndpointAddress>,
    /// The server name that the client asked for in its handshake. Of HTTP without one, the host of the latest request:
    /// while no request is under way it is known where the route has one host and no other.
    pub name: Option<Box<str>>,
    /// The protocol on it.
    pub protocol: ConnectionProtocol,
    /// The version of TLS towards the client, where Offramp terminates it.
    pub tls: Option<TlsVersion>,
    /// The route, the backend and the server; of an HTTP connection those of the latest request.
    pub path: PathFacts,
    /// The time at which it was accepted.
    pub accepted: SystemTime,
    /// The time since then.
    pub age: Duration,
    /// Bytes that it has moved, as its event counts them: of an HTTP connection, bodies of requests and responses.
    pub traffic: ByteCounts,
    /// Requests that have begun on it.
    pub requests: u64,
    /// Requests that are under way.
    pub requests_open: usize,
}

impl LiveConnection {
    /// The client's IP address; `None` for Unix sockets.
    #[must_use]
    pub fn client_ip(&self) -> Option<IpAddr> {
        ip(&self.client)
    }
}

fn ip(address: &EndpointAddress) -> Option<IpAddr> {
    match address {
        EndpointAddress::Ip(address) => Some(address.ip().to_canonical()),
        EndpointAddress::Unix(_) => None,
    }
}

/// The protocol on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionProtocol {
    /// Not known yet: the handshake is under way, or a server is connected to.
    #[default]
    Opening,
    /// Bytes of a `tcp` route.
    Tcp,
    /// Bytes of a passthrough route, without TLS of Offramp's own.
    Passthrough,
    /// HTTP/1.0 or HTTP/1.1, or what has followed an upgrade from it.
    Http1,
    /// HTTP/2 with its streams.
    H2,
}

impl ConnectionProtocol {
    /// Stable name for commands and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Tcp => "tcp",
            Self::Passthrough => "passthrough",
            Self::Http1 => "http/1.1",
            Self::H2 => "h2",
        }
    }

    const fn is_http(self) -> bool {
        matches!(self, Self::Http1 | Self::H2)
    }
}
