//! The routes of each listener, the preferred ones first.
//!
//! The order is the one that `config` documents: a route that names the listener, then an exact host,
//! a wildcard, none, then the longest path, then one with `alpn`, then the first in the file. A route with
//! hosts of both kinds becomes two rules. What listeners of HTTP add is in [`super::http`].

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use offramp_certs::client_auth::AllowList;
use offramp_config::At;
use offramp_config::model::{self, AlpnId, HostPattern, Listeners, Mode, PreambleProtocol, RelayTarget};
use offramp_proxy::{
    AddressRules, Bandwidth, Destination, Ja4List, Match, Relay, Route, RouteName, RouteRule, SendProxy,
    Target,
};

use super::backends::Backends;
use super::tls::{self, Terms};
use super::{Assembly, Findings, bandwidths};

/// The rules of each listener of connections of `config`, in the order of the listeners; none for listeners of
/// HTTP.
pub(super) fn tables(parts: &mut Assembly<'_>) -> Vec<Vec<RouteRule<Route>>> {
    let config = parts.config;
    let of = |is: fn(&model::ListenerConfig) -> bool| -> HashSet<*const model::RouteConfig> {
        let listeners = config.listeners.iter().filter(|listener| listener.mode == Mode::Tcp && is(listener));
        listeners.flat_map(|listener| config.routes_of(listener)).map(std::ptr::from_ref).collect()
    };
    let relayed = of(|_| true);
    let terminated = of(|listener| listener.tls && listener.preamble.is_none());
    let postgres = of(|listener| listener.preamble == Some(PreambleProtocol::Postgres));
    let mut prepared = HashMap::new();
    for route in &config.routes {
        let key = std::ptr::from_ref(route);
        if !relayed.contains(&key) {
            continue;
        }
        let ends = Ends { tls: terminated.contains(&key), postgres: postgres.contains(&key) };
        // What cannot be prepared is reported, and there will be no snapshot.
        if let Some(ready) = Prepared::new(route, ends, parts) {
            prepared.insert(key, ready);
        }
    }
    let mut tables = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        let mut rules = Vec::new();
        for route in config.routes_of(listener).filter(|_| listener.mode == Mode::Tcp) {
            let Some(prepared) = prepared.get(&std::ptr::from_ref(route)) else { continue };
            rules.extend(split(route).into_iter().map(|(preference, matches)| {
                (preference, RouteRule { matches, to: prepared.route(listener) })
            }));
        }
        // The sort is stable, which keeps the order of the file among equals.
        rules.sort_by_key(|(preference, _)| *preference);
        tables.push(rules.into_iter().map(|(_, rule)| rule).collect());
    }
    tables
}

/// The preferred sorts first: by listener, host, length of the path, protocol.
pub(super) type Preference = (bool, HostKind, Reverse<usize>, bool);

/// The precision of a route's hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostKind {
    Exact,
    Wildcard,
    Any,
}

/// The conditions of a route, one for each kind of host.
pub(super) fn split(route: &model::RouteConfig) -> Vec<(Preference, Match)> {
    let alpn: Vec<Vec<u8>> = route.alpn.iter().map(|id| id.as_bytes().to_vec()).collect();
    let path = Reverse(route.path.as_str().len());
    let preference = |kind| (route.listeners == Listeners::All, kind, path, alpn.is_empty());
    if route.hosts.is_empty() {
        return vec![(preference(HostKind::Any), Match { hosts: Vec::new(), alpn: alpn.clone() })];
    }
    let mut rules = Vec::new();
    for kind in [HostKind::Exact, HostKind::Wildcard] {
        let is_of_kind =
            |host: &&HostPattern| matches!(host, HostPattern::Wildcard(_)) == (kind == HostKind::Wildcard);
        let hosts: Vec<String> = route.hosts.iter().filter(is_of_kind).map(ToString::to_string).collect();
        if !hosts.is_empty() {
            rules.push((preference(kind), Match { hosts, alpn: alpn.clone() }));
        }
    }
    rules
}

/// A route with its parts looked up, for each listener.
struct Prepared {
    name: RouteName,
    to: Destination,
    end: PreparedEnd,
    deny_ja4: Arc<Ja4List>,
    addresses: Option<Arc<AddressRules>>,
    log_one_in: NonZeroU32,
    bandwidth: Option<Bandwidth>,
}

/// Set if TLS ends here.
enum PreparedEnd {
    Passthrough,
    Relay(PreparedRelay),
}

/// The termination of a route's TLS by listeners.
#[derive(Clone, Copy)]
struct Ends {
    tls: bool,
    postgres: bool,
}

struct PreparedRelay {
    terms: Option<Terms>,
    /// On listeners of PostgreSQL.
    postgres: Option<Terms>,
    allow: Option<AllowList>,
}

impl Prepared {
    fn new<'c>(route: &'c model::RouteConfig, ends: Ends, parts: &mut Assembly<'c>) -> Option<Self> {
        let Assembly { backends, access, bandwidths, termination, report, .. } = parts;
        let (addresses, bandwidth) = (access.rules(&route.networks), bandwidths::of(bandwidths, route));
        let name = name(route).into();
        let log_one_in = route.log_one_in;
        let deny_ja4 = Arc::new(ja4_list(route));
        let relay = match &route.target {
            model::RouteTarget::Passthrough(passthrough) => {
                let (to, end) = (sealed(passthrough, backends, report), PreparedEnd::Passthrough);
                return Some(Self { name, to, end, deny_ja4, addresses, log_one_in, bandwidth });
            }
            model::RouteTarget::Relay(relay) => relay,
            // Only listeners of HTTP have them.
            model::RouteTarget::Redirect(_)
            | model::RouteTarget::Respond(_)
            | model::RouteTarget::Files(_) => return None,
        };
        let backend = place(&relay.to, &route.at, backends, report)?;
        let auth = route.client_auth.as_ref();
        let terms = ends.tls.then(|| termination.terms(&route.tls, &route.alpn, auth, &route.at, report));
        let alpn = if route.alpn.is_empty() { &[AlpnId::of_postgres()] } else { &route.alpn[..] };
        let postgres = ends.postgres.then(|| termination.terms(&route.tls, alpn, auth, &route.at, report));
        let allow = auth.map(|auth| tls::allow(auth, &route.at, report));
        // What cannot be made was reported.
        let made = |terms: Option<Option<Terms>>| match terms {
            None => Some(None),
            Some(terms) => terms.map(Some),
        };
        let (terms, postgres) = (made(terms)?, made(postgres)?);
        let (send_proxy, connect_timeout) = (relay.send_proxy.map(send_proxy), relay.connect_timeout);
        let to = Destination { backend, send_proxy, connect_timeout };
        let end = PreparedEnd::Relay(PreparedRelay { terms, postgres, allow });
        Some(Self { name, to, end, deny_ja4, addresses, log_one_in, bandwidth })
    }

    fn route(&self, listener: &model::ListenerConfig) -> Route {
        let target = match &self.end {
            PreparedEnd::Passthrough => Target::Passthrough(self.to),
            PreparedEnd::Relay(PreparedRelay { terms, postgres, allow }) => {
                let terms = match listener.preamble {
                    Some(PreambleProtocol::Postgres) => postgres.as_ref(),
                    None => terms.as_ref().filter(|_| listener.tls),
                };
                Target::Relay(Relay {
                    to: self.to,
                    tls: terms.map(|terms| terms.configs.clone()),
                    allow: allow.clone(),
                    configured: terms.map(|terms| Arc::clone(&terms.offer)).unwrap_or_default(),
                })
            }
        };
        let (deny_ja4, addresses) = (Arc::clone(&self.deny_ja4), self.addresses.clone());
        Route {
            name: self.name.clone(),
            target,
            deny_ja4,
            addresses,
            log_one_in: self.log_one_in,
            bandwidth: self.bandwidth.clone(),
        }
    }
}

/// The server of a passthrough.
pub(super) fn sealed(
    passthrough: &model::Passthrough,
    backends: &mut Backends<'_>,
    report: &mut Findings,
) -> Destination {
    Destination {
        backend: backends.inline(&passthrough.server, report),
        send_proxy: passthrough.send_proxy.map(send_proxy),
        connect_timeout: passthrough.connect_timeout,
    }
}

/// The place of the backend that a route leads to; `None` where there is none, as is reported.
pub(super) fn place(
    to: &RelayTarget,
    at: &At,
    backends: &mut Backends<'_>,
    report: &mut Findings,
) -> Option<usize> {
    match to {
        RelayTarget::Server(server) => Some(backends.inline(server, report)),
        RelayTarget::TlsServer(server) => Some(backends.inline_tls(server, at, report)),
        RelayTarget::Backend(name) => {
            let place = backends.named(name);
            if place.is_none() {
                report.error(at, format!("there is no backend `{name}`; add [backend.{name}]"));
            }
            place
        }
        RelayTarget::Split(_) => {
            report.error(at, "split: only requests of HTTP can be shared");
            None
        }
    }
}

/// The name of a route in events: its conditions, such as `a.example,b.example/api`, or `default`.
pub(crate) fn name(route: &model::RouteConfig) -> String {
    route.name()
}

/// The fingerprints that a route refuses.
pub(super) fn ja4_list(route: &model::RouteConfig) -> Ja4List {
    Ja4List::new(route.deny_ja4.iter().map(model::Ja4Pattern::as_str))
}

pub(super) fn send_proxy(version: model::ProxyProtocolHeader) -> SendProxy {
    match version {
        model::ProxyProtocolHeader::V1 => SendProxy::V1,
        model::ProxyProtocolHeader::V2(options) => {
            let model::ProxyV2 { tls, crc32c, client_certificate } = options;
            SendProxy::V2 { tls, crc32c, client_certificate }
        }
    }
}
