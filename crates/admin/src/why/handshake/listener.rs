//! The listeners that a client of a host and port reaches: the kernel chooses by the address of the connection.

use std::net::{IpAddr, SocketAddr};

use offramp_config::model::{Config, ListenAddress, ListenerConfig};

use super::question::HandshakeQuestion;

/// The listeners that may answer a hello.
pub(crate) struct FoundListeners<'c> {
    /// One, unless the addresses of the host are not known and several are possible; none without TLS anywhere.
    pub(crate) listeners: Vec<ReachedListener<'c>>,
    /// Unset if no listener has the port that was asked for.
    pub(super) by_port: bool,
    /// Listeners of the same port that other addresses lead to.
    pub(super) others: Vec<ReachedListener<'c>>,
}

/// A listener, and the address of it that clients reach.
#[derive(Clone, Copy)]
pub(crate) struct ReachedListener<'c> {
    pub(crate) listener: &'c ListenerConfig,
    /// `None` if it was chosen without a port.
    pub(super) at: Option<SocketAddr>,
}

impl HandshakeQuestion {
    /// The listeners with the port of the question, as far as the address decides; without that port, the first one with
    /// TLS. `bound` has the addresses of listeners by their names, as the kernel has chosen the ports where the configuration says 0.
    pub(crate) fn listeners<'c>(
        &self,
        config: &'c Config,
        bound: &[(String, SocketAddr)],
        resolved: &[IpAddr],
    ) -> FoundListeners<'c> {
        let all = self.port.map_or_else(Vec::new, |port| of_port(config, bound, port));
        if all.is_empty() {
            let first = config.listeners.iter().find(|listener| listener.tls);
            let listeners = first.map(|listener| ReachedListener { listener, at: None });
            let by_port = self.port.is_none();
            return FoundListeners {
                listeners: listeners.into_iter().collect(),
                by_port,
                others: Vec::new(),
            };
        }
        let own = self.ip();
        let addresses = own.as_ref().map_or(resolved, std::slice::from_ref);
        // An address that none has may be translated to any of them, but for those of loopback, where no client gets through.
        let reached = addresses.iter().map(|address| (address, reached(*address, &all)));
        let reached: Option<Vec<SocketAddr>> = reached
            .filter(|(address, at)| at.is_some() || !address.to_canonical().is_loopback())
            .map(|(_, at)| at)
            .collect();
        let reached = reached.unwrap_or_default();
        let is_reached =
            |one: &ReachedListener<'_>| reached.is_empty() || one.at.is_some_and(|at| reached.contains(&at));
        let (listeners, others) = all.into_iter().partition(is_reached);
        FoundListeners { listeners: once(listeners), by_port: true, others }
    }

    /// Returns true if the addresses of the host decide among listeners.
    pub(crate) fn needs_addresses(&self, config: &Config, bound: &[(String, SocketAddr)]) -> bool {
        let all = self.port.map_or_else(Vec::new, |port| of_port(config, bound, port));
        self.name().is_some() && once(all).len() > 1
    }
}

/// The listeners of a port, with each address that has it.
fn of_port<'c>(config: &'c Config, bound: &[(String, SocketAddr)], port: u16) -> Vec<ReachedListener<'c>> {
    let mut found = Vec::<ReachedListener<'c>>::new();
    for listener in &config.listeners {
        let written = listener.addresses.iter().filter_map(|address| match address {
            ListenAddress::Ip(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        });
        let bound = bound.iter().filter(|(name, _)| name == listener.name.as_str()).map(|(_, at)| *at);
        for at in written.chain(bound).filter(|at| at.port() == port) {
            if !found.iter().any(|one| one.at == Some(at)) {
                found.push(ReachedListener { listener, at: Some(at) });
            }
        }
    }
    found
}

/// The socket that a connection to `address` comes to: one for this address goes before one for the family, and that before
/// one for both (inet(7), ipv6(7)).
fn reached(address: IpAddr, all: &[ReachedListener<'_>]) -> Option<SocketAddr> {
    let address = address.to_canonical();
    let rank = |at: &SocketAddr| match at.ip() {
        ip if ip.to_canonical() == address => 3,
        ip if ip.is_unspecified() && ip.is_ipv4() == address.is_ipv4() => 2,
        ip if ip.is_unspecified() && ip.is_ipv6() => 1,
        _ => 0,
    };
    let best = all.iter().filter_map(|one| one.at).max_by_key(rank)?;
    (rank(&best) > 0).then_some(best)
}

/// Each listener once, with its first address.
fn once(all: Vec<ReachedListener<'_>>) -> Vec<ReachedListener<'_>> {
    let mut found = Vec::<ReachedListener<'_>>::new();
    for one in all {
        if !found.iter().any(|known| std::ptr::eq(known.listener, one.listener)) {
            found.push(one);
        }
    }
    found
}
