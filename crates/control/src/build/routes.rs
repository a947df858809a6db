//! The routes of each listener, the preferred ones first.
//!
//! The order is the one that `config` documents: a route that names the listener, then an exact host,
//! a wildcard, none, then the longest path, then one with `alpn`, then the first in the file. A route with
//! hosts of both kinds becomes two rules. What listeners of HTTP add is in [`super::http`].

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use offramp_certs::client_auth::Allow;
use offramp_config::model::{self, AlpnId, HostPattern, Listeners, Mode, Preamble, RelayTarget};
use offramp_config::{At, Config};
use offramp_proxy::{
    AddressRules, Bandwidth, Bandwidths, Ja4List, Match, Relay, Route, RouteName, Rule, SendProxy, Target,
};

use super::backends::Backends;
use super::tls::{self, Termination, Terms};
use super::{Report, bandwidths};
use crate::access::RuleSets;

/// The rules of each listener of connections of `config`, in the order of the listeners; none for listeners of
/// HTTP.
pub(super) fn tables<'c>(
    config: &'c Config,
    (backends, access): (&mut Backends<'_>, &mut RuleSets<'c>),
    bandwidths: &Bandwidths,
    termination: &mut Termination<'_>,
    report: &mut Report,
) -> Vec<Vec<Rule<Route>>> {
    let of = |is: fn(&model::Listener) -> bool| -> HashSet<*const model::Route> {
        let listeners = config.listeners.iter().filter(|listener| listener.mode == Mode::Tcp && is(listener));
        listeners.flat_map(|listener| config.routes_of(listener)).map(std::ptr::from_ref).collect()
    };
    let relayed = of(|_| true);
    let terminated = of(|listener| listener.tls && listener.preamble.is_none());
    let postgres = of(|listener| listener.preamble == Some(Preamble::Postgres));
    let mut prepared = HashMap::new();
    for route in &config.routes {
        let key = std::ptr::from_ref(route);
        if !relayed.contains(&key) {
            continue;
        }
        let ends = Ends { tls: terminated.contains(&key), postgres: postgres.contains(&key) };
        // What cannot be prepared is reported, and there will be no snapshot.
        if let Some(ready) =
            Prepared::new(route, ends, (backends, access.rules(&route.networks)), termination, report)
        {
            let ready = Prepared { bandwidth: bandwidths::of(bandwidths, route), ..ready };
            prepared.insert(key, ready);
        }
    }
    let mut tables = Vec::with_capacity(config.listeners.len());
    for listener in &config.listeners {
        let mut rules = Vec::new();
        for route in config.routes_of(listener).filter(|_| listener.mode == Mode::Tcp) {
            let Some(prepared) = prepared.get(&std::ptr::from_ref(route)) else { continue };
            rules.extend(
                split(route).into_iter().map(|(preference, matches)| {
                    (preference, Rule { matches, to: prepared.route(listener) })
                }),
            );
        }
        // The sort is stable, which keeps the order of the file among equals.
        rules.sort_by_key(|(preference, _)| *preference);
        tables.push(rules.into_iter().map(|(_, rule)| rule).collect());
    }
    tables
}

/// What is preferred sorts first: by listener, host, length of the path, protocol.
pub(super) type Preference = (bool, HostKind, Reverse<usize>, bool);

/// How closely a route matches hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostKind {
    Exact,
    Wildcard,
    Any,
}

/// What a route matches, one for each kind of host.
pub(super) fn split(route: &model::Route) -> Vec<(Preference, Match)> {
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

/// A route whose parts were looked up, to be given to each listener.
struct Prepared {
    name: RouteName,
    backend: usize,
    end: PreparedEnd,
    deny_ja4: Arc<Ja4List>,
    addresses: Option<Arc<AddressRules>>,
    log_one_in: NonZeroU32,
    bandwidth: Option<Bandwidth>,
}

/// Whether TLS ends here.
enum PreparedEnd {
    Passthrough(Option<SendProxy>),
    Relay(PreparedRelay),
}

/// How listeners end the TLS of a route.
#[derive(Clone, Copy)]
struct Ends {
    tls: bool,
    postgres: bool,
}

struct PreparedRelay {
    terms: Option<Terms>,
    /// On listeners of PostgreSQL.
    postgres: Option<Terms>,
    allow: Option<Allow>,
    send_proxy: Option<SendProxy>,
}

impl Prepared {
    fn new(
        route: &model::Route,
        ends: Ends,
        (backends, addresses): (&mut Backends<'_>, Option<Arc<AddressRules>>),
        termination: &mut Termination<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let name = name(route).into();
        let log_one_in = route.log_one_in;
        let deny_ja4 = Arc::new(ja4_list(route));
        let relay = match &route.target {
            model::Target::Passthrough(passthrough) => {
                let end = PreparedEnd::Passthrough(passthrough.send_proxy.map(send_proxy));
                let backend = backends.inline(&passthrough.server, report);
                return Some(Self { name, backend, end, deny_ja4, addresses, log_one_in, bandwidth: None });
            }
            model::Target::Relay(relay) => relay,
            // Only listeners of HTTP have them.
            model::Target::Redirect(_) | model::Target::Respond(_) | model::Target::Files(_) => return None,
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
        let relay = PreparedRelay { terms, postgres, allow, send_proxy: relay.send_proxy.map(send_proxy) };
        Some(Self {
            name,
            backend,
            end: PreparedEnd::Relay(relay),
            deny_ja4,
            addresses,
            log_one_in,
            bandwidth: None,
        })
    }

    fn route(&self, listener: &model::Listener) -> Route {
        let backend = self.backend;
        let target = match &self.end {
            PreparedEnd::Passthrough(send_proxy) => Target::Passthrough { backend, send_proxy: *send_proxy },
            PreparedEnd::Relay(PreparedRelay { terms, postgres, allow, send_proxy }) => {
                let terms = match listener.preamble {
                    Some(Preamble::Postgres) => postgres.as_ref(),
                    None => terms.as_ref().filter(|_| listener.tls),
                };
                Target::Relay(Relay {
                    backend,
                    tls: terms.map(|terms| terms.configs.clone()),
                    allow: allow.clone(),
                    send_proxy: *send_proxy,
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

/// The place of the backend that a route leads to; `None` where there is none, as is reported.
pub(super) fn place(
    to: &RelayTarget,
    at: &At,
    backends: &mut Backends<'_>,
    report: &mut Report,
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

/// What events call a route: what it matches, such as `a.example,b.example/api`, or `default`.
pub(crate) fn name(route: &model::Route) -> String {
    route.name()
}

/// The fingerprints that a route refuses.
pub(super) fn ja4_list(route: &model::Route) -> Ja4List {
    Ja4List::new(route.deny_ja4.iter().map(model::Ja4Pattern::as_str))
}

pub(super) fn send_proxy(version: model::SendProxy) -> SendProxy {
    match version {
        model::SendProxy::V1 => SendProxy::V1,
        model::SendProxy::V2(options) => {
            let model::ProxyV2 { tls, crc32c, client_certificate } = options;
            SendProxy::V2 { tls, crc32c, client_certificate }
        }
    }
}
