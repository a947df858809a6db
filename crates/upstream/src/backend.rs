//! Backends of a snapshot: servers, policy, limits. Immutable; the runtime state of a server is its
//! [`ServerHealth`], which outlives a reload.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use offramp_net::Address;
use offramp_tls::client::Connector;

use crate::health::{Duty, Ejection, ProbeSettings, ServerHealth};
use crate::pick::{BalancePolicy, Candidate, Picker};
use crate::queue::BackendQueue;
use crate::sticky::Sticky;

/// A named group of servers.
#[derive(Clone, Debug, Default)]
pub struct Backend {
    /// Name in the configuration, or the address of an inline server.
    pub name: Arc<str>,
    /// Servers in the order of the configuration.
    pub servers: Vec<Server>,
    /// Weights of the servers, in the same order.
    pub picker: Arc<Picker>,
    /// Policy that chooses the first server.
    pub policy: BalancePolicy,
    /// Version of HTTP spoken to the servers.
    pub protocol: ServerProtocol,
    /// TLS connector of each server, in the same order; `None`: plain text.
    pub tls: Option<Arc<[Arc<Connector>]>>,
    /// Bounds on connections and waits.
    pub limits: PoolLimits,
    /// Cookie that ties a client to a server, if any.
    pub sticky: Option<Sticky>,
    /// Health of each server, in the same order.
    pub health: Arc<[Arc<ServerHealth>]>,
    /// Active health check, if configured.
    pub check: Option<ProbeSettings>,
    /// Passive ejection of failing servers, if configured.
    pub ejection: Option<Ejection>,
    /// Time over which a returning server gets its share back; zero: at once.
    pub slow_return: Duration,
    /// Requests that wait for a server below its `max_connections`.
    pub queue: Arc<BackendQueue>,
}

/// One address of a backend.
#[derive(Clone, Debug)]
pub struct Server {
    /// Address as written in the configuration.
    pub name: Arc<str>,
    /// Resolved or fixed address.
    pub target: UpstreamAddress,
}

/// Address of a server.
#[derive(Clone, Debug)]
pub enum UpstreamAddress {
    /// An address that never changes.
    Fixed(Address),
    /// Current addresses of a host name, kept up to date by the builder of the snapshot; empty while the name
    /// does not resolve.
    Resolved(Arc<ArcSwap<Vec<SocketAddr>>>),
}

/// Version of HTTP spoken to the servers of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerProtocol {
    /// HTTP/1.1, one request at a time on a connection.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge (RFC 9113 §3.3), many requests on a connection.
    Http2,
    /// Negotiated by ALPN, HTTP/2 preferred; HTTP/1.1 without TLS.
    Either,
}

/// Bounds on the use of a backend's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Concurrent requests per server, from all workers together; `None`: no bound.
    pub max_connections: Option<u32>,
    /// Idle connections per server and worker.
    pub idle: u32,
    /// Lifetime of an idle connection.
    pub idle_timeout: Duration,
    /// Requests that may wait while all servers are at `max_connections`, from all workers together.
    pub queue: u32,
    /// Maximum wait in that queue.
    pub queue_timeout: Duration,
    /// Timeout of one connection attempt.
    pub connect_timeout: Duration,
    /// Time from the last byte of the request sent so far to the head of the response.
    pub response_timeout: Duration,
    /// Maximum pause of a body, in either direction, once the response has begun.
    pub body_timeout: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        PoolLimits {
            max_connections: None,
            idle: 64,
            idle_timeout: Duration::from_secs(60),
            queue: 1000,
            queue_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(300),
        }
    }
}

impl Backend {
    /// Creates a backend of `servers` with defaults for everything else.
    pub fn new(name: impl Into<Arc<str>>, servers: impl IntoIterator<Item = (Server, Candidate)>) -> Self {
        let (servers, candidates): (Vec<Server>, Vec<Candidate>) = servers.into_iter().unzip();
        let names = servers.iter().map(|server| &*server.name);
        Backend {
            name: name.into(),
            picker: Arc::new(Picker::named(names.zip(candidates))),
            health: servers.iter().map(|server| Arc::new(ServerHealth::new(&server.name))).collect(),
            servers,
            ..Backend::default()
        }
    }

    /// TLS connector of a server, if it uses TLS.
    pub fn connector(&self, server: usize) -> Option<&Arc<Connector>> {
        self.tls.as_ref().map(|tls| &tls[server])
    }

    /// TLS connector of the server with this name, if it uses TLS.
    pub fn connector_of(&self, name: &str) -> Option<&Arc<Connector>> {
        self.connector(self.servers.iter().position(|server| *server.name == *name)?)
    }

    /// Returns true if both backends, which have the same servers, share the connectors, and so connections
    /// and sessions.
    pub fn has_connectors_of(&self, other: &Backend) -> bool {
        let connectors = |backend: &Backend| -> Vec<*const Connector> {
            backend.tls.iter().flat_map(|tls| tls.iter()).map(Arc::as_ptr).collect()
        };
        self.name == other.name && connectors(self) == connectors(other)
    }

    /// Replaces the TLS connector of each server.
    pub fn map_connectors(&mut self, change: impl Fn(&Connector) -> Connector) {
        if let Some(tls) = &mut self.tls {
            *tls = tls.iter().map(|connector| Arc::new(change(connector))).collect();
        }
    }

    /// Takes over the runtime state of `previous`, the backend of the same name in the last snapshot: a
    /// reload neither revives dead servers nor forgets load. `previous` does not change, because the new
    /// snapshot may never be used.
    pub fn carry_over(&mut self, previous: &Backend) {
        self.queue = Arc::clone(&previous.queue);
        let known = |health: &Arc<ServerHealth>| {
            let same = previous.health.iter().find(|old| old.name() == health.name());
            Arc::clone(same.unwrap_or(health))
        };
        self.health = self.health.iter().map(known).collect();
    }

    /// Sets the configured duty of each server, by name; call it when the snapshot comes into use.
    /// Connections of earlier snapshots obey, too.
    pub fn settle(&self, duty: impl Fn(&str) -> Duty) {
        for health in self.health.iter() {
            let duty = duty(health.name());
            health.set_duty(duty);
            if self.check.is_none() || duty == Duty::Disabled {
                // Without probes, the server would never be marked as up again.
                health.forget_probes();
            }
        }
        // Requests tied to a server may go to another one now.
        self.queue.stir();
    }
}

impl Server {
    /// A server at a fixed address, named by it.
    #[must_use]
    pub fn at(address: Address) -> Self {
        Server { name: address.to_string().into(), target: UpstreamAddress::Fixed(address) }
    }
}

impl From<Server> for (Server, Candidate) {
    /// A primary of weight 1.
    fn from(server: Server) -> Self {
        (server, Candidate { weight: NonZeroU16::MIN, backup: false })
    }
}
