//! The read model: what a worker knows of the configuration. It belongs to its reader; `control`
//! fills it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use offramp_certs::client_auth::AllowList;
use offramp_certs::store::CertificateStore;
use offramp_net::Socket;
use offramp_net::pace::{Allowance, BandwidthLimiter, ConnectionSide};
use offramp_observe::facts::TlsOffer;
use offramp_record::{LibraryChoice, RecordSize};
use offramp_tls::Configs;
use offramp_upstream::Backend;

use crate::limit::Quota;
use crate::networks::AddressRules;
use crate::route::{Ja4List, RouteTable};

mod current;
pub mod http;
mod name;
pub mod pages;

pub use self::current::Current;
use self::http::{Http, HttpTls};
pub(crate) use self::name::RouteId;
pub use self::name::{AcceptorId, RouteName};

/// One validated configuration, as workers use it.
pub struct Snapshot {
    /// Rises with every snapshot of the process.
    pub generation: u64,
    /// Listeners by name.
    pub listeners: HashMap<Arc<str>, Arc<Listener>>,
    /// Listeners of the open sockets: an address can move from listener to listener while it is open.
    pub sockets: HashMap<AcceptorId, Arc<Listener>>,
    /// Backends; routes name them by their place here.
    pub backends: Vec<Arc<Backend>>,
    /// Bounds on the use of the machine.
    pub limits: ClientLimits,
    /// The size of the records that clients get.
    pub record_size: RecordSize,
    /// The AEAD library for each suite.
    pub choice: LibraryChoice,
    /// Bandwidths of routes with a bound, by the names of the routes and of their listeners.
    pub bandwidths: Bandwidths,
    /// The part that requests take in distributed traces; `None`: none, and `traceparent` passes as it came.
    pub tracing: Option<Tracing>,
}

impl Snapshot {
    /// Listener of a socket; for one that is closed or not known here, the listener of this name.
    #[must_use]
    pub fn listener(&self, socket: AcceptorId, name: &str) -> Option<&Arc<Listener>> {
        self.sockets.get(&socket).or_else(|| self.listeners.get(name))
    }

    /// The name of a route. It is looked for among all: for reports once a minute.
    pub(crate) fn route(&self, id: RouteId) -> Option<Arc<str>> {
        self.listeners.values().find_map(|listener| {
            let requests = listener.http.iter().flat_map(|http| http.routes.iter()).map(|route| &route.name);
            let mut names = listener.routes.iter().map(|route| &route.name).chain(requests);
            names.find(|name| name.id() == id).map(|name| Arc::clone(name))
        })
    }

    /// Uses these AEAD libraries, towards servers as well. For a snapshot that is not in use yet.
    pub fn choose(&mut self, choice: LibraryChoice) {
        self.choice = choice;
        for backend in &mut self.backends {
            let mut changed = Backend::clone(backend);
            changed.map_connectors(|connector| connector.with_choice(choice));
            *backend = Arc::new(changed);
        }
    }
}

/// Distributed traces (W3C Trace Context, level 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// Of so many requests that came without a trace one begins one.
    pub sample_one_in: NonZeroU32,
}

/// Bounds on what clients may use. Every wait has one.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections at a time over all workers.
    pub connections: u32,
    /// Connections at a time from one client; loopback and proxies are counted and not refused.
    pub connections_per_client: u32,
    /// Handshakes from one client, if they are limited.
    pub handshakes_per_client: Option<Quota>,
    /// Bytes per second in each direction that one client may move, if they are limited; proxies are not.
    pub bandwidth_per_client: Option<NonZeroU64>,
    /// From accept to the end of the handshake, PROXY header included.
    pub handshake_timeout: Duration,
    /// The time for which a connection may move no byte in either direction.
    pub idle_timeout: Duration,
    /// The greatest age of a client's connection, if there is one.
    pub max_age: Option<Duration>,
    /// Grace for requests and tunnels once their connection has its greatest age.
    pub max_age_grace: Duration,
}

/// The rules for the connections of one listener.
pub struct Listener {
    /// Name in the configuration.
    pub name: Arc<str>,
    /// Networks that must send a PROXY header, which is believed.
    pub accept_proxy: Vec<Network>,
    /// Networks of its clients; `None`: any.
    pub addresses: Option<Arc<AddressRules>>,
    /// TLS, or plain text where this is absent.
    pub tls: Option<ListenerTls>,
    /// Destinations of connections. In mode `http` these routes are chosen by the server name alone, before TLS
    /// ends: each is [`Target::Passthrough`] or [`Target::Http`], with at least one for any name.
    pub routes: RouteTable<Route>,
    /// Mode `http`: where the requests of [`Target::Http`] go.
    pub http: Option<Http>,
}

impl Listener {
    /// Returns true if the address is one of those that are said to be proxies.
    pub(crate) fn is_proxy(&self, address: IpAddr) -> bool {
        let trusted = self.http.as_ref().map_or(&[][..], |http| &http.trusted_proxies);
        self.accept_proxy.iter().chain(trusted).any(|network| network.contains(address))
    }
}

/// Way in which clients ask for TLS in the protocol that it protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preamble {
    /// As those of PostgreSQL do. They may begin with TLS too, and then have to offer its protocol by ALPN.
    Postgres {
        /// A CancelRequest in clear is passed on.
        clear_cancel: bool,
    },
}

/// The TLS of a listener.
pub struct ListenerTls {
    /// Store that certificates are picked from.
    pub store: Arc<CertificateStore>,
    /// The configurations for what no ClientHello can be read from: rustls refuses it.
    pub fallback: Configs,
    /// Set if events have the JA4 fingerprints of clients.
    pub ja4: bool,
    /// Way in which clients ask for TLS; `None`: they begin with it.
    pub preamble: Option<Preamble>,
    /// The clients that no default certificate is for.
    pub strangers: Strangers,
}

/// The clients that are refused before a handshake with a default certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// Those that name no host.
    pub without_name: bool,
    /// Those that name a host for which there is no certificate.
    pub unknown_name: bool,
}

/// The bandwidths of routes, by what each route is called and to which listeners it applies. What their clients have moved
/// goes on from snapshot to snapshot.
pub type Bandwidths = BTreeMap<(Box<str>, Box<str>), Bandwidth>;

/// Bytes that all clients of a route may send, and that they may receive.
#[derive(Clone, Debug)]
pub struct Bandwidth {
    /// Bytes per second in each direction.
    pub rate: NonZeroU64,
    /// Allowance that they share.
    pub allowance: Arc<Allowance>,
}

impl Bandwidth {
    /// Bounds what is relayed to and from a server.
    pub(crate) fn bound(&self, server: &Socket) {
        server.set_pace(Arc::clone(&self.allowance), self.rate, ConnectionSide::Server);
    }

    /// Bounds the body of one message.
    pub(crate) fn pace(&self) -> BandwidthLimiter {
        BandwidthLimiter::new(Arc::clone(&self.allowance), self.rate, ConnectionSide::Client)
    }
}

/// Destination of connections, and its rules.
pub struct Route {
    /// Name in events.
    pub name: RouteName,
    /// Action for a connection.
    pub target: Target,
    /// Clients that are refused by their JA4 fingerprint.
    pub deny_ja4: Arc<Ja4List>,
    /// Networks of its clients; `None`: any. It is not for [`Target::Http`], which refuses requests by their own
    /// routes.
    pub addresses: Option<Arc<AddressRules>>,
    /// One of so many connections that went well has an event; those that failed always have. It is not for
    /// [`Target::Http`], which has events of requests by their own routes.
    pub log_one_in: NonZeroU32,
    /// Bandwidth of its clients; `None`: any. It is not for [`Target::Http`], which has the bandwidths of its own
    /// routes.
    pub bandwidth: Option<Bandwidth>,
}

/// The target of the connections of a route.
pub enum Target {
    /// TLS ends here, the plain bytes go to a backend.
    Relay(Relay),
    /// The client's TLS goes to a backend as it came.
    Passthrough(Destination),
    /// TLS ends here, and each request goes its own way by the listener's [`Listener::http`].
    Http(HttpTls),
}

impl Target {
    /// The configurations of its handshakes; `None` where TLS does not end here.
    pub(crate) fn tls(&self) -> Option<&Configs> {
        match self {
            Self::Relay(relay) => relay.tls.as_ref(),
            Self::Http(http) => http.tls.as_ref(),
            Self::Passthrough(_) => None,
        }
    }
}

/// The servers of relayed connections, and how they are reached.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// The place of the backend in [`Snapshot::backends`].
    pub backend: usize,
    /// The PROXY header that servers get first.
    pub send_proxy: Option<SendProxy>,
    /// The limit of one attempt to connect, in place of the backend's.
    pub connect_timeout: Option<Duration>,
}

impl Destination {
    /// The limit of one attempt to connect.
    pub(crate) fn connect_timeout(&self, snapshot: &Snapshot) -> Duration {
        self.connect_timeout.unwrap_or(snapshot.backends[self.backend].limits.connect_timeout)
    }
}

/// A relay of plain bytes.
pub struct Relay {
    /// Servers of the route.
    pub to: Destination,
    /// TLS towards the client; absent on listeners without.
    pub tls: Option<Configs>,
    /// Clients with a verified certificate that are admitted; `None` if no certificate is requested.
    pub allow: Option<AllowList>,
    /// Protocols and ciphers on offer, for the event of a handshake that found nothing in common.
    pub configured: Arc<TlsOffer>,
}

/// The version of an outgoing PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendProxy {
    /// The line of text.
    V1,
    /// The binary block of PROXY v2.
    V2 {
        /// With the facts of TLS, the protocol and the server name.
        tls: bool,
        /// The header has a checksum.
        crc32c: bool,
        /// With the client's certificate.
        client_certificate: bool,
    },
}

/// A range of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// The addresses that share their first `prefix` bits with `address`; a prefix that is too long
    /// for the family is cut to it.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Self {
        // Only a length that is too long is refused.
        Self(IpNet::new(address, prefix).unwrap_or_else(|_| address.into()))
    }

    /// Returns true if `address` is in the range. Families are never mixed.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let contains = |network: &str, prefix, address: &str| {
            Network::new(network.parse().unwrap(), prefix).contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.0", 8, "10.255.0.1"));
        assert!(!contains("10.0.0.0", 8, "11.0.0.1"));
        assert!(contains("0.0.0.0", 0, "1.2.3.4"));
        assert!(!contains("0.0.0.0", 0, "::1"));
        assert!(contains("192.0.2.7", 32, "192.0.2.7"));
        assert!(!contains("192.0.2.7", 40, "192.0.2.6"));
        assert!(contains("2001:db8::", 32, "2001:db8:1::1"));
        assert!(contains("::", 0, "2001:db8:1::1"));
        assert!(!contains("::1", 128, "::2"));
    }
}
