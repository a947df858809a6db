//! What a snapshot says about backends: names, addresses, weights. No state of any connection.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use offramp_net::Address;

use crate::pick::Picker;

/// A named group of servers.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The name in the configuration, or the address of an inline server.
    pub name: Arc<str>,
    /// The servers, in the order of the configuration.
    pub servers: Vec<Server>,
    /// Their weights, in the same order.
    pub picker: Arc<Picker>,
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
