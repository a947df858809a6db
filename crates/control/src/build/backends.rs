//! The backends of a configuration. A server that is written in a route is a backend of one, which is
//! named by its address; routes to the same address share it. What was learnt of servers that stay is
//! carried over from the snapshot before.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use offramp_config::model::{self, ServerAddress};
use offramp_config::{At, Config};
use offramp_net::Address;
use offramp_sources::certificates::Sources;
use offramp_sources::resolve::Names;
use offramp_upstream::{
    Backend, BalancePolicy, Candidate, CheckKind, Ejection, HashSource, PoolLimits, ProbeSettings, Server,
    ServerProtocol, Sticky, StickyKey, UpstreamAddress,
};
use offramp_wire::proxy::encode_local_v2;

use super::server_tls::Connectors;
use super::{Findings, Inputs, ties};

/// Backends as they are collected: the named ones, then those of one server.
pub(super) struct Backends<'a> {
    list: Vec<Arc<Backend>>,
    named: HashMap<&'a str, usize>,
    /// By address, and whether TLS is spoken there.
    inline: HashMap<(ServerAddress, bool), usize>,
    connectors: Connectors<'a>,
    names: Names,
    known: &'a Names,
    /// The backends of the snapshot before, by name.
    previous: HashMap<&'a str, &'a Backend>,
    limits: &'a model::Limits,
    routes: &'a [model::RouteConfig],
    ties: StickyKey,
}

impl<'a> Backends<'a> {
    /// The named backends.
    pub(super) fn of(
        config: &'a Config,
        inputs: &Inputs<'a>,
        sources: &'a Sources,
        report: &mut Findings,
    ) -> Self {
        let mut this = Self {
            list: Vec::new(),
            named: HashMap::new(),
            inline: HashMap::new(),
            names: Names::default(),
            connectors: Connectors::new(&config.tls, sources, inputs.choice),
            known: inputs.names,
            previous: inputs.backends.iter().map(|backend| (&*backend.name, &**backend)).collect(),
            limits: &config.limits,
            routes: &config.routes,
            ties: ties::key(config, inputs.mint, report),
        };
        for backend in &config.backends {
            let place = {
                let policy = policy(backend, report);
                this.add(backend.name.as_str(), backend, policy, report)
            };
            this.named.insert(backend.name.as_str(), place);
        }
        this
    }

    /// The place of a named backend.
    pub(super) fn named(&self, name: &model::Name) -> Option<usize> {
        self.named.get(name.as_str()).copied()
    }

    /// The place of the backend of this server alone, which is spoken to in plain text.
    pub(super) fn inline(&mut self, address: &ServerAddress, report: &mut Findings) -> usize {
        self.alone(address, None, report)
    }

    /// The place of the backend of this server alone, which speaks TLS; `at` is where that is written.
    pub(super) fn inline_tls(&mut self, address: &ServerAddress, at: &At, report: &mut Findings) -> usize {
        let tls = model::ServerTls { at: at.clone(), ..model::ServerTls::default() };
        self.alone(address, Some(tls), report)
    }

    fn alone(
        &mut self,
        address: &ServerAddress,
        tls: Option<model::ServerTls>,
        report: &mut Findings,
    ) -> usize {
        let key = (address.clone(), tls.is_some());
        if let Some(place) = self.inline.get(&key) {
            return *place;
        }
        // The name of an address is none that a section could have.
        let name = format!("{}{address}", if tls.is_some() { "tls://" } else { "" });
        let servers = vec![model::BackendServer::new(address.clone())];
        let alone =
            model::BackendConfig { tls, ..model::BackendConfig::new(model::Name::default(), servers) };
        let place = self.add(&name, &alone, BalancePolicy::RoundRobin, report);
        self.inline.insert(key, place);
        place
    }

    /// The cookie of this name.
    pub(super) fn sticky(&self, name: &str) -> Sticky {
        Sticky { cookie: name.into(), key: self.ties.clone() }
    }

    /// All of them, and the host names in them.
    pub(super) fn finish(self) -> (Vec<Arc<Backend>>, Names) {
        (self.list, self.names)
    }

    fn add(
        &mut self,
        name: &str,
        backend: &model::BackendConfig,
        policy: BalancePolicy,
        report: &mut Findings,
    ) -> usize {
        let candidate = |server: &model::BackendServer| Candidate {
            // A weight is at least 1.
            weight: NonZeroU16::new(server.weight.get()).unwrap_or(NonZeroU16::MIN),
            backup: server.backup,
        };
        let servers = backend.servers.iter().map(|server| {
            let target = self.target(&server.address);
            (Server { name: server.address.to_string().into(), target }, candidate(server))
        });
        let mut built = Backend::new(name, servers);
        built.policy = policy;
        built.protocol = match backend.protocol {
            model::Protocol::H1 => ServerProtocol::Http1,
            model::Protocol::H2 => ServerProtocol::Http2,
            model::Protocol::Auto => ServerProtocol::Either,
        };
        let previous = self.previous.get(&*built.name).copied();
        // What cannot be made is reported, and there will be no snapshot.
        built.tls = backend.tls.as_ref().and_then(|tls| self.connectors.of(tls, backend, previous, report));
        built.limits = limits(&backend.pool, self.limits);
        built.sticky = backend.sticky_cookie.as_ref().map(|name| self.sticky(name.as_str()));
        built.check = backend.health.as_ref().map(|health| {
            let mut check = check(health, backend);
            check.prologue = prologue(self.routes, &backend.name);
            check
        });
        built.ejection = backend.eject.as_ref().map(ejection);
        built.slow_return = backend.eject.as_ref().map(|eject| eject.slow_start).unwrap_or_default();
        if let Some(previous) = previous {
            built.carry_over(previous);
        }
        self.list.push(Arc::new(built));
        self.list.len() - 1
    }

    fn target(&mut self, address: &ServerAddress) -> UpstreamAddress {
        match address {
            ServerAddress::Unix(path) => UpstreamAddress::Fixed(Address::Unix(path.clone())),
            ServerAddress::Ip(address) => UpstreamAddress::Fixed(Address::Tcp(*address)),
            ServerAddress::Name { host, port } => {
                UpstreamAddress::Resolved(self.names.cell(self.known, host, *port))
            }
        }
    }
}

fn policy(backend: &model::BackendConfig, report: &mut Findings) -> BalancePolicy {
    match &backend.balance {
        model::Balance::RoundRobin => BalancePolicy::RoundRobin,
        model::Balance::LeastConn => BalancePolicy::LeastConn,
        model::Balance::TwoChoices => BalancePolicy::TwoChoices,
        model::Balance::Hash(model::HashKey::Client) => BalancePolicy::Hash(HashSource::Client),
        model::Balance::Hash(model::HashKey::Cookie(name)) => {
            BalancePolicy::Hash(HashSource::Cookie(name.as_str().into()))
        }
        model::Balance::Hash(model::HashKey::Header(name)) => match name.as_str().parse() {
            Ok(name) => BalancePolicy::Hash(HashSource::Header(name)),
            Err(error) => {
                report.error(&backend.at, format!("balance: `{name}`: {error}"));
                BalancePolicy::RoundRobin
            }
        },
    }
}

fn limits(pool: &model::Pool, limits: &model::Limits) -> PoolLimits {
    PoolLimits {
        max_connections: pool.max_connections,
        idle: pool.idle_connections,
        idle_timeout: pool.idle_timeout,
        queue: pool.queue,
        queue_timeout: pool.queue_timeout,
        connect_timeout: pool.connect_timeout.unwrap_or(limits.connect_timeout),
        response_timeout: limits.http.response_timeout,
        body_timeout: limits.idle_timeout,
    }
}

fn check(health: &model::Health, backend: &model::BackendConfig) -> ProbeSettings {
    let kind = match &health.probe {
        model::Probe::Connect => CheckKind::Tcp,
        model::Probe::Http(probe) => CheckKind::Http {
            path: probe.path.as_str().into(),
            host: probe.host.clone().unwrap_or_else(|| host(backend)).into(),
            status: probe.status.iter().map(|range| range.first()..=range.last()).collect(),
        },
    };
    ProbeSettings {
        kind,
        interval: health.interval,
        timeout: health.timeout,
        rise: health.rise,
        fall: health.fall,
        ..ProbeSettings::default()
    }
}

/// The header of a health check where the routes of a backend send a PROXY header: one that says that
/// no client is behind it. Of two versions the servers understand both.
fn prologue(routes: &[model::RouteConfig], backend: &model::Name) -> Box<[u8]> {
    let sent = routes.iter().filter_map(|route| match &route.target {
        model::RouteTarget::Relay(model::RelayConfig { to, send_proxy, .. })
            if to.backends().contains(&backend) =>
        {
            *send_proxy
        }
        _ => None,
    });
    let mut header = Vec::new();
    match sent.min_by_key(|version| matches!(version, model::ProxyProtocolHeader::V1)) {
        None => {}
        Some(model::ProxyProtocolHeader::V1) => header.extend_from_slice(b"PROXY UNKNOWN\r\n"),
        Some(model::ProxyProtocolHeader::V2(_)) => encode_local_v2(&mut header),
    }
    header.into()
}

/// The host of a check that names none: that of the first server, or `localhost` for a Unix socket.
fn host(backend: &model::BackendConfig) -> String {
    match backend.servers.first().map(|server| &server.address) {
        None | Some(ServerAddress::Unix(_)) => "localhost".to_owned(),
        Some(address) => address.to_string(),
    }
}

fn ejection(eject: &model::Eject) -> Ejection {
    Ejection { failures: eject.failures, time: eject.duration, limit: LONGEST_EJECTION.max(eject.duration) }
}

/// A server that fails again and again is tried at least this often.
const LONGEST_EJECTION: Duration = Duration::from_secs(300);
