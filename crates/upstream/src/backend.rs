//! What a snapshot says about backends: servers, policy, limits. Never changes; what is learnt of a
//! server while it runs is in its [`ServerHealth`], which outlives a reload.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use offramp_net::Address;
use offramp_tls::client::Connector;

use crate::health::{Check, Duty, Ejection, ServerHealth};
use crate::pick::{Candidate, Picker, Policy};
use crate::queue::Queue;
use crate::sticky::Sticky;

/// A named group of servers.
#[derive(Clone, Debug, Default)]
pub struct Backend {
    /// The name in the configuration, or the address of an inline server.
    pub name: Arc<str>,
    /// The servers, in the order of the configuration.
    pub servers: Vec<Server>,
    /// Their weights, in the same order.
    pub picker: Arc<Picker>,
    /// Who is asked first.
    pub policy: Policy,
    /// What HTTP the servers speak.
    pub protocol: Protocol,
    /// The TLS of each server, in the same order; `None`: they are spoken to in plain text.
    pub tls: Option<Arc<[Arc<Connector>]>>,
    /// The bounds on its connections and waits.
    pub limits: PoolLimits,
    /// The cookie that ties a client to a server, if any.
    pub sticky: Option<Sticky>,
    /// How the servers fare, in the same order.
    pub health: Arc<[Arc<ServerHealth>]>,
    /// How servers are probed, if they are.
    pub check: Option<Check>,
    /// When a server that fails requests is left alone, if ever.
    pub ejection: Option<Ejection>,
    /// Over how long a server that returns gets its share back; zero: at once.
    pub slow_return: Duration,
    /// The requests that wait for a server below its `max_connections`.
    pub queue: Arc<Queue>,
}

/// One address of a backend.
#[derive(Clone, Debug)]
pub struct Server {
    /// The address as configured.
    pub name: Arc<str>,
    /// Where it is.
    pub target: Target,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Target {
    /// A fixed address.
    Fixed(Address),
    /// What a host name stands for at the moment; kept fresh by whoever built the snapshot, and
    /// empty while the name does not resolve.
    Resolved(Arc<ArcSwap<Vec<SocketAddr>>>),
}

/// What HTTP the servers of a backend speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1, one request at a time on a connection.
    #[default]
    Http1,
    /// HTTP/2 with prior knowledge (RFC 9113 §3.3), many requests on a connection.
    Http2,
    /// What the server agrees on within TLS (ALPN), HTTP/2 first; without TLS as HTTP/1.1.
    Either,
}

/// Bounds on the use of a backend's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    /// Requests at a time on one server, from all workers together; `None`: no bound.
    pub max_connections: Option<u32>,
    /// Idle connections that each worker keeps to one server.
    pub idle: u32,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Requests that may wait while all servers are at `max_connections`, from all workers together.
    pub queue: u32,
    /// How long a request may wait for that.
    pub queue_timeout: Duration,
    /// For one attempt to connect.
    pub connect_timeout: Duration,
    /// From the request's last byte, or its latest, to the head of the response.
    pub response_timeout: Duration,
    /// How long a body may stand still, in either direction, once the response has begun.
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
    /// A backend of `servers` with the defaults of everything else, nothing being known of them yet.
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

    /// The TLS of a server, if it speaks any.
    pub fn connector(&self, server: usize) -> Option<&Arc<Connector>> {
        self.tls.as_ref().map(|tls| &tls[server])
    }

    /// The TLS of the server that is called so, if it speaks any.
    pub fn connector_of(&self, name: &str) -> Option<&Arc<Connector>> {
        self.connector(self.servers.iter().position(|server| *server.name == *name)?)
    }

    /// Whether the servers are spoken to by the same connectors as those of `other`, which has the same servers: then
    /// its connections and sessions are as good as new ones.
    pub fn has_connectors_of(&self, other: &Backend) -> bool {
        let connectors = |backend: &Backend| -> Vec<*const Connector> {
            backend.tls.iter().flat_map(|tls| tls.iter()).map(Arc::as_ptr).collect()
        };
        self.name == other.name && connectors(self) == connectors(other)
    }

    /// Changes how its servers are spoken to.
    pub fn map_connectors(&mut self, change: impl Fn(&Connector) -> Connector) {
        if let Some(tls) = &mut self.tls {
            *tls = tls.iter().map(|connector| Arc::new(change(connector))).collect();
        }
    }

    /// Takes over what `previous`, the backend of the same name in the snapshot before, has learnt:
    /// a reload neither raises the dead nor forgets who is busy. `previous` stays as it is: this one may never be used.
    pub fn carry_over(&mut self, previous: &Backend) {
        self.queue = Arc::clone(&previous.queue);
        let known = |health: &Arc<ServerHealth>| {
            let same = previous.health.iter().find(|old| old.name() == health.name());
            Arc::clone(same.unwrap_or(health))
        };
        self.health = self.health.iter().map(known).collect();
    }

    /// Has its servers do what the configuration wants, by their names; to be called when it comes into use. Connections
    /// that keep an earlier snapshot obey too.
    pub fn settle(&self, duty: impl Fn(&str) -> Duty) {
        for health in self.health.iter() {
            let duty = duty(health.name());
            health.set_duty(duty);
            if self.check.is_none() || duty == Duty::Disabled {
                // Nobody would ever say that it is up again.
                health.forget_probes();
            }
        }
        // Those who wait for one server may go to another now.
        self.queue.stir();
    }
}

impl Server {
    /// A server at a fixed address, called by it.
    #[must_use]
    pub fn at(address: Address) -> Self {
        Server { name: address.to_string().into(), target: Target::Fixed(address) }
    }
}

impl From<Server> for (Server, Candidate) {
    /// A primary of weight 1.
    fn from(server: Server) -> Self {
        (server, Candidate { weight: NonZeroU16::MIN, backup: false })
    }
}
