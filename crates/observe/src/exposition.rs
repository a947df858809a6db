//! Every figure at one moment, in one walk: what all formats of the metrics have in common.
//!
//! Whoever writes a format is a `Reader`: it is told each metric once, then all of its samples. The walk runs
//! wherever somebody asks, never on a worker; it copies what it shows, and no worker waits for it.

use std::fmt;
use std::sync::Arc;

use crate::counters::{Compression, Counters, Direction, Histogram, Mirrored, PauseReason, Totals};
use crate::facts::{Cause, Fault, Handshake, HttpVersion, TlsVersion};
use crate::names::{self, Metric};
use crate::process::ProcessFigures;
use crate::ring::EventMonitor;

mod clients;
mod routes;

/// Everything that the metrics show.
#[derive(Clone, Debug)]
pub struct Exposition {
    /// What the workers count.
    pub counters: Counters,
    /// What became of the events; absent where there is no access log.
    pub events: Option<EventMonitor>,
    /// What is known only elsewhere, such as the health of servers.
    pub sampler: Option<Sampler>,
    /// What runs.
    pub build: Build,
}

/// The running version.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version, as `0.1.0`.
    pub version: &'static str,
    /// The commit it was built from; empty if unknown.
    pub commit: &'static str,
}

/// Provides figures that this crate does not count itself. It is called for each read of the metrics,
/// on the reader's thread.
#[derive(Clone)]
pub struct Sampler(Arc<dyn Fn() -> Vec<Sampled> + Send + Sync>);

impl Sampler {
    /// A sampler that calls `sample`, which must not block.
    pub fn new(sample: impl Fn() -> Vec<Sampled> + Send + Sync + 'static) -> Self {
        Self(Arc::new(sample))
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}

/// One figure from a [`Sampler`].
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Which metric: one of those in [`names`] that no worker counts.
    pub metric: &'static Metric,
    /// The values of its labels, in their order.
    pub labels: Vec<Arc<str>>,
    /// The figure.
    pub value: f64,
}

/// Who writes figures down.
pub(crate) trait Reader {
    /// A metric begins: all of its samples follow, and no other metric's between them.
    fn family(&mut self, metric: &Metric);
    /// A figure, with the values of its labels in their order.
    fn sample(&mut self, metric: &Metric, labels: &[&str], value: Value);
    /// A histogram, with the values of its labels in their order.
    fn histogram(&mut self, metric: &Metric, labels: &[&str], distribution: &Distribution);
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// A histogram of durations, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Distribution {
    /// Upper bounds, ascending, and how many durations are within them, smaller buckets included. The last
    /// bucket, without a bound, has them all.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// How many there are.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) sum: f64,
}

impl From<Histogram<'_>> for Distribution {
    fn from(histogram: Histogram<'_>) -> Self {
        let bounded = histogram.cumulative().filter_map(|(bound, count)| Some((seconds(bound?), count)));
        Self { buckets: bounded.collect(), count: histogram.count(), sum: seconds(histogram.sum_micros()) }
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1_000_000.0
}

/// What samplers give of reloads.
const RELOADS: [&Metric; 3] = [&names::LAST_RELOAD, &names::CONFIG_LOADED, &names::RELOADS];
/// What samplers give of limits and certificates.
const LIMITS: [&Metric; 12] = [
    &names::WORKER_LATE,
    &names::WORKER_LATE_TIME,
    &names::PANICS,
    &names::LIMIT,
    &names::LIMIT_USED,
    &names::ROUTE_BANDWIDTH,
    &names::LIMIT_REFUSALS,
    &names::CERTIFICATE_EXPIRY,
    &names::ACME_ORDERS,
    &names::JWKS_FETCHES,
    &names::ACME_ON_DEMAND,
    &names::CERTIFICATE_LEFT,
];
/// What samplers give of servers.
const SERVERS: [&Metric; 4] =
    [&names::SERVER_UP, &names::SERVER_EJECTED, &names::SERVER_DRAINING, &names::SERVER_ACTIVE];

/// What samplers give of the log store.
const LOG_STORE: [&Metric; 4] =
    [&names::LOG_STORE_UP, &names::LOG_STORE_EVENTS, &names::LOG_STORE_SPOOL, &names::LOG_STORE_SPOOL_LIMIT];

impl Exposition {
    /// The figures of these counters, and nothing else.
    #[must_use]
    pub const fn new(counters: Counters, build: Build) -> Self {
        Self { counters, events: None, sampler: None, build }
    }

    /// Tells every figure to `reader`.
    pub(crate) fn walk(&self, reader: &mut impl Reader) {
        let totals = self.counters.totals();
        let sets = self.counters.sets();
        let sampled = self.sampler.as_ref().map(|Sampler(sample)| sample()).unwrap_or_default();
        let mut tell = Teller(reader);
        tell.table(&names::BUILD, [([self.build.version, self.build.commit], 1_u64)]);
        tell.single(&names::WORKERS, self.counters.workers() as u64);
        for metric in RELOADS {
            tell.sampled(metric, &sampled);
        }
        connections(&mut tell, &totals);
        let clients = self.counters.clients();
        handshakes(&mut tell, &totals);
        clients::all_tls(&mut tell, &clients);
        traffic(&mut tell, &totals);
        for metric in LIMITS {
            tell.sampled(metric, &sampled);
        }
        requests(&mut tell, &totals);
        routes::tell(&mut tell, &sets);
        for metric in SERVERS {
            tell.sampled(metric, &sampled);
        }
        clients::tell(&mut tell, &clients);
        tell.single(&names::CONNECT_ATTEMPTS, totals.connect_attempts());
        tell.single(&names::CONNECT_FAILURES, totals.connect_failures());
        if let Some(events) = &self.events {
            let tally = events.tally();
            tell.single(&names::EVENTS_WRITTEN, tally.written);
            let lost = [(["queue_full"], tally.queue_full), (["output_failed"], tally.output_failed)];
            tell.table(&names::EVENTS_DROPPED, lost);
        }
        tell.sampled(&names::SPANS, &sampled);
        for metric in LOG_STORE {
            tell.sampled(metric, &sampled);
        }
        process(&mut tell, &ProcessFigures::read());
    }
}

/// Tells metrics to a reader, and none that has no samples.
struct Teller<'a, R>(&'a mut R);

impl<R: Reader> Teller<'_, R> {
    /// A metric without labels.
    fn single(&mut self, metric: &Metric, value: impl Into<Value>) {
        self.table(metric, [([], value)]);
    }

    /// A metric with the values of `L` labels.
    fn table<'v, V: Into<Value>, const L: usize>(
        &mut self,
        metric: &Metric,
        rows: impl IntoIterator<Item = ([&'v str; L], V)>,
    ) {
        debug_assert_eq!(metric.labels.len(), L, "{}", metric.name);
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_some() {
            self.0.family(metric);
        }
        for (labels, value) in rows {
            self.0.sample(metric, &labels, value.into());
        }
    }

    /// Histograms with the values of `L` labels.
    fn histograms<'v, const L: usize>(
        &mut self,
        metric: &Metric,
        rows: impl IntoIterator<Item = ([&'v str; L], Distribution)>,
    ) {
        debug_assert_eq!(metric.labels.len(), L, "{}", metric.name);
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_some() {
            self.0.family(metric);
        }
        for (labels, distribution) in rows {
            self.0.histogram(metric, &labels, &distribution);
        }
    }

    /// What a sampler gave of this metric. A sample that has not the metric's labels is left out.
    fn sampled(&mut self, metric: &Metric, sampled: &[Sampled]) {
        let fits = |s: &&Sampled| s.metric.name == metric.name && s.labels.len() == metric.labels.len();
        let mut rows = sampled.iter().filter(fits).peekable();
        if rows.peek().is_some() {
            self.0.family(metric);
        }
        for Sampled { labels, value, .. } in rows {
            let labels: Vec<&str> = labels.iter().map(|label| &**label).collect();
            self.0.sample(metric, &labels, (*value).into());
        }
    }
}

fn connections(tell: &mut Teller<'_, impl Reader>, totals: &Totals) {
    tell.single(&names::CONNECTIONS, totals.accepted());
    tell.single(&names::CONNECTIONS_ACTIVE, totals.active());
    // Every cause is there from the start, with its usual fault, so that rates have a beginning; other
    // pairs appear when they happen.
    let ends = ends().map(|(cause, fault)| (cause, fault, totals.closed(cause, fault)));
    let ends = ends.filter(|&(cause, fault, count)| count > 0 || fault == cause.fault());
    tell.table(
        &names::CONNECTIONS_CLOSED,
        ends.map(|(cause, fault, count)| ([cause.name(), fault.name()], count)),
    );
    tell.histograms(&names::CONNECTION_DURATION, [([], totals.connection_time().into())]);
}

fn ends() -> impl Iterator<Item = (Cause, Fault)> {
    Cause::ALL.into_iter().flat_map(|cause| Fault::ALL.into_iter().map(move |fault| (cause, fault)))
}

fn handshakes(tell: &mut Teller<'_, impl Reader>, totals: &Totals) {
    let kinds = TlsVersion::ALL
        .into_iter()
        .flat_map(|version| Handshake::ALL.into_iter().map(move |kind| (version, kind)));
    tell.table(
        &names::HANDSHAKES,
        kinds.map(|(version, kind)| ([version.name(), kind.name()], totals.handshakes(version, kind))),
    );
    tell.single(&names::HANDSHAKES_FAILED, totals.handshakes_failed());
    tell.histograms(&names::HANDSHAKE_DURATION, [([], totals.handshake_time().into())]);
}

/// The words for the two directions.
const WAYS: [(&str, Direction); 2] =
    [("client_to_server", Direction::ClientToServer), ("server_to_client", Direction::ServerToClient)];

fn traffic(tell: &mut Teller<'_, impl Reader>, totals: &Totals) {
    const IN: Direction = Direction::ClientToServer;
    const OUT: Direction = Direction::ServerToClient;
    tell.table(&names::RELAYED_BYTES, WAYS.map(|(name, way)| ([name], totals.bytes_relayed(way))));
    tell.table(&names::RECORDS, [(["open"], totals.records(IN)), (["seal"], totals.records(OUT))]);
    let updates = [(["received"], totals.key_updates(IN)), (["sent"], totals.key_updates(OUT))];
    tell.table(&names::KEY_UPDATES, updates);
    tell.single(&names::TURNS, totals.turns());
    tell.single(&names::YIELDS, totals.yields());
    tell.table(
        &names::ACCEPT_PAUSES,
        PauseReason::ALL.map(|reason| ([reason.name()], totals.accept_pauses(reason))),
    );
}

fn requests(tell: &mut Teller<'_, impl Reader>, totals: &Totals) {
    let versions = HttpVersion::ALL;
    tell.table(&names::HTTP_CONNECTIONS, versions.map(|v| ([v.name()], totals.http_connections(v))));
    tell.single(&names::REQUESTS_ACTIVE, totals.requests_active());
    tell.table(&names::REQUESTS_BY_PROTOCOL, versions.map(|v| ([v.name()], totals.requests(v))));
    let ends =
        ends().map(|(cause, fault)| ([cause.name(), fault.name()], totals.requests_ended(cause, fault)));
    tell.table(&names::REQUESTS_ENDED, ends.filter(|(_, count)| *count > 0));
    let codings = Compression::ALL.map(|coding| ([coding.name()], totals.compressions(coding)));
    tell.table(&names::COMPRESSIONS, codings);
    let outcomes = Mirrored::ALL.map(|outcome| ([outcome.name()], totals.mirrored(outcome)));
    tell.table(&names::MIRRORED, outcomes);
}

fn process(tell: &mut Teller<'_, impl Reader>, figures: &ProcessFigures) {
    if let Some(cpu) = figures.cpu {
        tell.single(&names::PROCESS_CPU, cpu.as_secs_f64());
    }
    if let Some(bytes) = figures.resident_bytes {
        tell.single(&names::PROCESS_RESIDENT_MEMORY, bytes);
    }
    if let Some(open) = figures.open_fds {
        tell.single(&names::PROCESS_OPEN_FDS, open);
    }
    if let Some(max) = figures.max_fds {
        tell.single(&names::PROCESS_MAX_FDS, max);
    }
    if let Some(started) = figures.started {
        tell.single(&names::PROCESS_START_TIME, started.as_secs_f64());
    }
}
