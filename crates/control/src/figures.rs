//! Figures for the metrics that no worker counts: the health of servers, certificates, limits, reloads, spans, the
//! log store.
//!
//! They are gathered when the metrics are read, from what is in force at that moment.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_certs::Certificate;
use offramp_certs::store::CertificateStore;
use offramp_net::clock::coarse_ms;
use offramp_observe::names::{self, Metric};
use offramp_observe::{Panics, Sampled, Sampler};
use offramp_proxy::limit::Quota;
use offramp_proxy::{SharedResources, Snapshot};
use offramp_sources::jwks::Fetches;
use offramp_upstream::Duty;

use crate::acme::Orders;
use crate::event_store::StoreFigures;
use crate::notify::NotifyRegistry;
use crate::push::Spans;

/// The most certificates that are shown, those first that end first: each is a series.
const CERTIFICATES: usize = 200;
/// The same of routes with a bandwidth.
const ROUTES: usize = 200;

/// The outcomes of changes.
#[derive(Debug)]
pub(crate) struct Reloads {
    succeeded: AtomicU64,
    refused: AtomicU64,
    last_succeeded: AtomicBool,
    /// The time at which the configuration in force was loaded, in milliseconds of Unix time.
    loaded: AtomicU64,
    /// Failures to save the configuration in force.
    unsaved: AtomicU64,
}

impl Reloads {
    /// The configuration of the start is in force.
    pub(crate) fn new(now: SystemTime) -> Arc<Self> {
        Arc::new(Self {
            succeeded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            last_succeeded: AtomicBool::new(true),
            loaded: AtomicU64::new(millis(now)),
            unsaved: AtomicU64::new(0),
        })
    }

    /// A reload has ended.
    pub(crate) fn note(&self, succeeded: bool, now: SystemTime) {
        self.last_succeeded.store(succeeded, Ordering::Relaxed);
        if succeeded {
            self.loaded.store(millis(now), Ordering::Relaxed);
        }
        let count = if succeeded { &self.succeeded } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failure to save the configuration in force.
    pub(crate) fn note_unsaved(&self) {
        self.unsaved.fetch_add(1, Ordering::Relaxed);
    }

    /// The failures to save it.
    #[cfg(test)]
    pub(crate) fn unsaved(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed)
    }

    fn figures(&self) -> [Sampled; 5] {
        let count = |outcome: &str, count: &AtomicU64| {
            figure(&names::RELOADS, &[outcome], count.load(Ordering::Relaxed) as f64)
        };
        let loaded = self.loaded.load(Ordering::Relaxed) as f64 / 1000.0;
        [
            figure(&names::LAST_RELOAD, &[], f64::from(self.last_succeeded.load(Ordering::Relaxed))),
            figure(&names::CONFIG_LOADED, &[], loaded),
            count("success", &self.succeeded),
            count("refused", &self.refused),
            figure(&names::AUTOSAVE_FAILURES, &[], self.unsaved.load(Ordering::Relaxed) as f64),
        ]
    }
}

/// Figures that other parts count.
pub(crate) struct Counted {
    /// The log store, if there is one.
    pub(crate) store: Option<StoreFigures>,
    /// The orders of certificates.
    pub(crate) orders: Arc<Orders>,
    /// The fetches of keys of tokens.
    pub(crate) fetches: Arc<Fetches>,
    /// The panics of the process.
    pub(crate) panics: Panics,
    /// The receivers of notifications.
    pub(crate) registry: Arc<NotifyRegistry>,
}

impl Counted {
    /// Figures of these counters.
    pub(crate) fn of(
        store: Option<StoreFigures>,
        orders: &Arc<Orders>,
        fetches: &Arc<Fetches>,
        panics: Panics,
        registry: &Arc<NotifyRegistry>,
    ) -> Self {
        let (orders, fetches, registry) = (Arc::clone(orders), Arc::clone(fetches), Arc::clone(registry));
        Self { store, orders, fetches, panics, registry }
    }
}

/// Samples every figure of this module.
pub(crate) fn sampler(
    shared: SharedResources,
    spans: Spans,
    reloads: Arc<Reloads>,
    Counted { store, orders, fetches, panics, registry }: Counted,
) -> Sampler {
    Sampler::new(move || {
        let snapshot = shared.current.load();
        let mut all: Vec<Sampled> = reloads.figures().into();
        all.extend(certificates(&snapshot));
        all.extend(
            orders.totals().map(|(outcome, count)| figure(&names::ACME_ORDERS, &[outcome], count as f64)),
        );
        let fetched = fetches.totals();
        all.extend(fetched.map(|(outcome, count)| figure(&names::JWKS_FETCHES, &[outcome], count as f64)));
        let demanded = shared.demand.totals();
        all.extend(
            demanded
                .map(|(outcome, count)| figure(&names::ACME_ON_DEMAND, &[outcome.as_str()], count as f64)),
        );
        all.extend(limits(&snapshot, &shared));
        all.extend(bandwidths(&snapshot));
        let (late, time) = shared.late.totals();
        all.push(figure(&names::WORKER_LATE, &[], late as f64));
        all.push(figure(&names::WORKER_LATE_TIME, &[], time.as_secs_f64()));
        all.push(figure(&names::PANICS, &[], panics.total() as f64));
        all.extend(servers(&snapshot));
        all.extend(spans.figures());
        all.extend(registry.figures());
        all.extend(store.iter().flat_map(|figures| figures()));
        all
    })
}

fn figure(metric: &'static Metric, labels: &[&str], value: f64) -> Sampled {
    Sampled { metric, labels: labels.iter().map(|label| (*label).into()).collect(), value }
}

/// The health of servers.
fn servers(snapshot: &Snapshot) -> impl Iterator<Item = Sampled> {
    let now = coarse_ms();
    let servers = snapshot
        .backends
        .iter()
        .flat_map(|backend| backend.health.iter().map(move |health| (Arc::clone(&backend.name), health)));
    servers.flat_map(move |(backend, health)| {
        let labels = [backend, Arc::clone(health.name())];
        let figure = move |metric, value| Sampled { metric, labels: labels.to_vec(), value };
        [
            figure(&names::SERVER_UP, f64::from(!health.is_down())),
            figure(&names::SERVER_EJECTED, f64::from(health.is_ejected(now))),
            figure(&names::SERVER_DRAINING, f64::from(health.duty() == Duty::Drains)),
            figure(&names::SERVER_ACTIVE, f64::from(health.in_flight())),
        ]
    })
}

/// The ends of certificates. Several of one name and kind are one figure: that of the first to end.
fn certificates(snapshot: &Snapshot) -> Vec<Sampled> {
    // All listeners have the same store.
    let store = snapshot.listeners.values().find_map(|listener| listener.tls.as_ref()).map(|tls| &tls.store);
    store.map_or_else(Vec::new, |store| {
        let mut all = expiries(store);
        all.extend(left(store, SystemTime::now()));
        all
    })
}

fn expiries(store: &CertificateStore) -> Vec<Sampled> {
    let mut ends: BTreeMap<(String, &str), SystemTime> = BTreeMap::new();
    for certificate in store.certificates() {
        let end = ends.entry((name(certificate), certificate.kind.as_str())).or_insert(certificate.not_after);
        *end = certificate.not_after.min(*end);
    }
    let mut ends: Vec<_> = ends.into_iter().collect();
    ends.sort_by_key(|(_, end)| *end);
    ends.truncate(CERTIFICATES);
    let shown = |((name, kind), end): ((String, &str), SystemTime)| {
        figure(&names::CERTIFICATE_EXPIRY, &[&name, kind], unix(end).as_secs() as f64)
    };
    ends.into_iter().map(shown).collect()
}

/// The time that certificates have left, by their source; of several of one name and source the first to end.
fn left(store: &CertificateStore, now: SystemTime) -> Vec<Sampled> {
    let mut ends: BTreeMap<(String, &str), SystemTime> = BTreeMap::new();
    for certificate in store.certificates() {
        let key = (name(certificate), certificate.source.kind());
        let end = ends.entry(key).or_insert(certificate.not_after);
        *end = certificate.not_after.min(*end);
    }
    let mut ends: Vec<_> = ends.into_iter().collect();
    ends.sort_by_key(|(_, end)| *end);
    ends.truncate(CERTIFICATES);
    let seconds = |end: SystemTime| match end.duration_since(now) {
        Ok(left) => left.as_secs_f64().floor(),
        Err(since) => -since.duration().as_secs_f64().ceil(),
    };
    let shown = |((name, source), end): ((String, &str), SystemTime)| {
        figure(&names::CERTIFICATE_LEFT, &[&name, source], seconds(end))
    };
    ends.into_iter().map(shown).collect()
}

/// The name of a certificate for operators.
fn name(certificate: &Certificate) -> String {
    match (certificate.names.first(), certificate.addresses.first()) {
        (Some(name), _) => name.to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "unnamed".to_owned(),
    }
}

/// The bandwidths of routes, where they are bounded.
fn bandwidths(snapshot: &Snapshot) -> Vec<Sampled> {
    let mut rates = BTreeMap::new();
    for ((route, _), bandwidth) in &snapshot.bandwidths {
        let least = rates.entry(&**route).or_insert(bandwidth.rate);
        *least = bandwidth.rate.min(*least);
    }
    let shown =
        |(route, rate): (&str, NonZeroU64)| figure(&names::ROUTE_BANDWIDTH, &[route], rate.get() as f64);
    rates.into_iter().take(ROUTES).map(shown).collect()
}

/// The limits, and their use.
fn limits(snapshot: &Snapshot, shared: &SharedResources) -> Vec<Sampled> {
    let limits = &snapshot.limits;
    let per_second = |rate: Quota| f64::from(rate.count) / rate.per.as_secs_f64();
    // The same for all listeners.
    let http = snapshot.listeners.values().find_map(|listener| listener.http.as_ref());
    let requests = http.and_then(|http| http.limits.requests_per_client);
    let limit = |name: &str, value| figure(&names::LIMIT, &[name], value);
    let used = |name: &str, value: u32| figure(&names::LIMIT_USED, &[name], value.into());
    let mut all = vec![
        limit("connections", limits.connections.into()),
        limit("connections_per_client", limits.connections_per_client.into()),
        used("connections", shared.admission.taken()),
        used("connections_per_client", shared.clients.most_open()),
    ];
    all.extend(
        limits.handshakes_per_client.map(|rate| limit("handshakes_per_client_per_second", per_second(rate))),
    );
    let bandwidth = limits.bandwidth_per_client;
    all.extend(bandwidth.map(|rate| limit("bandwidth_per_client", rate.get() as f64)));
    let memory = http.map(|http| http.limits.memory as f64);
    all.extend(memory.map(|memory| limit("memory", memory)));
    all.push(figure(&names::LIMIT_USED, &["memory"], shared.held.most() as f64));
    if let Some(bytes) = shared.pressure.most() {
        all.push(limit("process_memory", bytes as f64));
    }
    all.extend(requests.map(|rate| limit("requests_per_client_per_second", per_second(rate))));
    let refusals = shared.refusals.totals();
    all.extend(refusals.map(|(cause, count)| figure(&names::LIMIT_REFUSALS, &[cause.name()], count as f64)));
    all.push(figure(&names::LIMIT_REFUSALS, &["memory"], shared.refusals.for_memory() as f64));
    all
}

fn unix(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn millis(time: SystemTime) -> u64 {
    u64::try_from(unix(time).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use offramp_certs::store::StoreEntry;
    use offramp_testkit::ca::{Ca, Key, Leaf};

    use super::*;

    #[test]
    fn the_keys_that_move_limits_are_keys() {
        use offramp_observe::Cause;
        use offramp_observe::facts::Limit;
        let limits: Vec<Limit> = Cause::ALL.into_iter().filter_map(Cause::limit).collect();
        assert!(limits.len() >= 10);
        for limit in limits {
            let keys = match limit {
                Limit::Key(key) => vec![key],
                Limit::Keys(one, other) => vec![one, other],
                Limit::BuiltIn => vec![],
            };
            for key in keys {
                assert!(offramp_config::keys::find(key).is_some(), "there is no key {key}");
            }
        }
    }

    #[test]
    fn reloads_are_counted_and_the_last_one_is_told() {
        let begun = UNIX_EPOCH + Duration::from_secs(1000);
        let reloads = Reloads::new(begun);
        let figures = |reloads: &Reloads| reloads.figures().map(|sampled| sampled.value);
        assert_eq!(figures(&reloads), [1.0, 1000.0, 0.0, 0.0, 0.0]);
        reloads.note(false, begun + Duration::from_secs(1));
        assert_eq!(figures(&reloads), [0.0, 1000.0, 0.0, 1.0, 0.0]);
        reloads.note(true, begun + Duration::from_millis(2500));
        reloads.note_unsaved();
        assert_eq!(figures(&reloads), [1.0, 1002.5, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn certificates_are_bounded_and_those_that_end_first_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let ca = Ca::new(folder.path()).unwrap();
        let files = ca.issue("leaf", &Leaf::server(Key::P256, &["a.test"])).unwrap();
        let now = SystemTime::now();
        let loaded = offramp_certs::file::load(&files.chain, Some(&files.key), now).unwrap().certificate;
        let entry = |number: u32| {
            let mut certificate = loaded.clone();
            // Each name twice, the later one first.
            certificate.names.clear();
            certificate.addresses = vec![IpAddr::from(Ipv4Addr::from_bits(number / 2))];
            certificate.not_after = UNIX_EPOCH + Duration::from_secs(10_000 - u64::from(number));
            StoreEntry { certificate: Arc::new(certificate), default: false }
        };
        let store = CertificateStore::new((0..600).map(entry), now);
        let at = UNIX_EPOCH + Duration::from_secs(9501);
        let left = left(&store, at);
        let first = &left[0];
        assert_eq!((&*first.labels[0], &*first.labels[1], first.value), ("0.0.1.43", "file", -100.0));
        assert_eq!((left.len(), left.iter().any(|sampled| sampled.value > 0.0)), (CERTIFICATES, true));
        let shown = expiries(&store);
        assert_eq!(shown.len(), CERTIFICATES);
        let first = &shown[0];
        assert_eq!((&*first.labels[0], &*first.labels[1], first.value), ("0.0.1.43", "ecdsa", 9401.0));
        assert!(shown.is_sorted_by_key(|sampled| sampled.value as u64));
    }
}
