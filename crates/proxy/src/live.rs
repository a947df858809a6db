//! The connections that are open: what each tells of itself, and the order to close some.
//!
//! Each worker has a table of its connections (`live::table`). An entry is 40 bytes, and what it shows is the facts that
//! a connection has anyway. A relay writes how much it has moved once a turn, and a request once, at its end; nothing is
//! done per record.
//!
//! Others ask by message ([`Connections`]). One message has a worker look at 1,000 entries at most, so that no question
//! keeps it from its connections for long; whoever asks goes on from where that ended. An entry keeps its place as long
//! as the connection is open: a walk through the table finds each connection that stays exactly once, whatever comes
//! and goes meanwhile.

mod ask;
mod filter;
pub(crate) mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_observe::ConnectionId;
use offramp_observe::facts::{Address, TlsVersion, Traffic};

pub use ask::{Closing, Connections, Cursor, Page, Unanswered};
pub use filter::{Filter, Touched};
pub use table::{Piece, Question, Wish};

/// What an open connection tells of itself.
#[derive(Clone, Debug)]
pub struct LiveConnection {
    /// Its id, as in its event.
    pub id: ConnectionId,
    /// The worker that serves it.
    pub worker: u16,
    /// The listener that it came by.
    pub listener: Arc<str>,
    /// The client: from a believed PROXY header where there is one, else the peer of the socket.
    pub client: Address,
    /// The peer of the socket, if a PROXY header named another client.
    pub peer: Option<Address>,
    /// The server name that the client asked for in its handshake. Of HTTP without one, the host of the latest request:
    /// while no request is under way it is known where the route has one host and no other.
    pub name: Option<Box<str>>,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// The version of TLS towards the client, where Offramp terminates it.
    pub tls: Option<TlsVersion>,
    /// The route; of an HTTP connection that of the latest request.
    pub route: Option<Arc<str>>,
    /// The backend, likewise.
    pub backend: Option<Arc<str>>,
    /// The server, likewise.
    pub server: Option<Arc<str>>,
    /// When it was accepted.
    pub accepted: SystemTime,
    /// How long ago that is.
    pub age: Duration,
    /// How much it has moved, as its event counts it: of an HTTP connection, bodies of requests and responses.
    pub traffic: Traffic,
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

fn ip(address: &Address) -> Option<IpAddr> {
    match address {
        Address::Ip(address) => Some(address.ip().to_canonical()),
        Address::Unix(_) => None,
    }
}

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Not known yet: the handshake is under way, or a server is connected to.
    #[default]
    Opening,
    /// Bytes of a `tcp` route.
    Tcp,
    /// Bytes of a passthrough route, whose TLS is not Offramp's.
    Passthrough,
    /// HTTP/1.0 or HTTP/1.1, or what has followed an upgrade from it.
    Http1,
    /// HTTP/2.
    H2,
}

impl Protocol {
    /// The stable name.
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
