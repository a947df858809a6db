//! The routes of each listener, the preferred ones first.
//!
//! The order is the one that `config` documents: a route that names the listener, then an exact host,
//! a wildcard, none, then one with `alpn`, then the first in the file. A route with hosts of both
//! kinds becomes two rules.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use offramp_certs::client_auth::Allow;
use offramp_config::Config;
use offramp_config::model::{self, HostPattern, Listeners, RelayTarget};
use offramp_proxy::{Match, Relay, Route, Rule, SendProxy, Target};

use super::Report;
use super::backends::Backends;
use super::tls::{self, Termination, Terms};

/// The rules of each listener of `config`, in the order of the listeners.
pub(super) fn tables(
    config: &Config,
    backends: &mut Backends<'_>,
    termination: &mut Termination<'_>,
    report: &mut Report,
) -> Vec<Vec<Rule<Route>>> {
    let with_tls = config.listeners.iter().filter(|listener| listener.tls);
    let terminated: HashSet<*const model::Route> =
        with_tls.flat_map(|listener| config.routes_of(listener)).map(std::ptr::from_ref).collect();
    let mut prepared = HashMap::new();
    for route in &config.routes {
        let key = std::ptr::from_ref(route);
        let has_tls = terminated.contains(&key);
        // What cannot be prepared is reported, and there will be no snapshot.
        if let Some(ready) = Prepared::new(route, has_tls, backends, termination, report) {
            prepared.insert(key, ready);
        }
    }
    let mut tables = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        let mut rules = Vec::new();
        for route in config.routes_of(listener) {
            let Some(prepared) = prepared.get(&std::ptr::from_ref(route)) else { continue };
            rules.extend(split(route).into_iter().map(|(preference, matches)| {
                (preference, Rule { matches, to: prepared.route(listener.tls) })
            }));
        }
        // The sort is stable, which keeps the order of the file among equals.
        rules.sort_by_key(|(preference, _)| *preference);
        tables.push(rules.into_iter().map(|(_, rule)| rule).collect());
    }
    tables
}

/// What is preferred sorts first.
type Preference = (bool, HostKind, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum HostKind {
    Exact,
    Wildcard,
    Any,
}

/// What a route matches, one for each kind of host.
fn split(route: &model::Route) -> Vec<(Preference, Match)> {
    let alpn: Vec<Vec<u8>> = route.alpn.iter().map(|id| id.as_bytes().to_vec()).collect();
    let preference = |kind| (route.listeners == Listeners::All, kind, alpn.is_empty());
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

/// A route whose parts were looked up, to be given to each listener.
struct Prepared {
    name: Arc<str>,
    backend: usize,
    relay: Option<PreparedRelay>,
}

struct PreparedRelay {
    terms: Option<Terms>,
    allow: Option<Allow>,
    send_proxy: Option<SendProxy>,
}

impl Prepared {
    fn new(
        route: &model::Route,
        has_tls: bool,
        backends: &mut Backends<'_>,
        termination: &mut Termination<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let name = name(route).into();
        let relay = match &route.target {
            model::Target::Passthrough(server) => {
                return Some(Self { name, backend: backends.inline(server), relay: None });
            }
            model::Target::Relay(relay) => relay,
        };
        let backend = match &relay.to {
            RelayTarget::Server(server) => backends.inline(server),
            RelayTarget::Backend(name) => {
                let place = backends.named(name);
                if place.is_none() {
                    report.error(&route.at, format!("there is no backend `{name}`; add [backend.{name}]"));
                }
                place?
            }
        };
        let auth = relay.client_auth.as_ref();
        let terms = has_tls.then(|| termination.terms(&route.alpn, auth, &route.at, report));
        let allow = auth.map(|auth| tls::allow(auth, &route.at, report));
        let terms = match terms {
            None => None,
            Some(terms) => Some(terms?),
        };
        let relay = PreparedRelay { terms, allow, send_proxy: relay.send_proxy.map(send_proxy) };
        Some(Self { name, backend, relay: Some(relay) })
    }

    fn route(&self, tls: bool) -> Route {
        let backend = self.backend;
        let target = match &self.relay {
            None => Target::Passthrough { backend },
            Some(PreparedRelay { terms, allow, send_proxy }) => {
                let terms = terms.as_ref().filter(|_| tls);
                Target::Relay(Relay {
                    backend,
                    tls: terms.map(|terms| terms.configs.clone()),
                    allow: allow.clone(),
                    send_proxy: *send_proxy,
                    configured: terms.map(|terms| Arc::clone(&terms.offer)).unwrap_or_default(),
                })
            }
        };
        Route { name: Arc::clone(&self.name), target }
    }
}

/// What events call a route: what it matches, or `default`.
fn name(route: &model::Route) -> String {
    let hosts: Vec<String> = route.hosts.iter().map(ToString::to_string).collect();
    let alpn: Vec<&str> = route.alpn.iter().map(model::AlpnId::as_str).collect();
    match (hosts.is_empty(), alpn.is_empty()) {
        (true, true) => "default".to_owned(),
        (false, true) => hosts.join(","),
        (true, false) => format!("alpn={}", alpn.join(",")),
        (false, false) => format!("{} alpn={}", hosts.join(","), alpn.join(",")),
    }
}

fn send_proxy(version: model::SendProxy) -> SendProxy {
    match version {
        model::SendProxy::V1 => SendProxy::V1,
        model::SendProxy::V2(options) => {
            SendProxy::V2 { crc32c: options.crc32c, client_certificate: options.client_certificate }
        }
    }
}
