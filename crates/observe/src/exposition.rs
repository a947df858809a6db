//! All figures at one moment, in one walk that every metrics format shares.
//!
//! A format is a `MetricVisitor`: it gets each metric once, followed by all of its samples. The walk runs
//! on the thread of the caller, never on a worker; it copies what it reports, and no worker waits for it.

use std::fmt;
use std::sync::Arc;

use crate::counters::{Compression, Counters, Direction, Histogram, Mirrored, PauseReason, Totals};
use crate::facts::{Cause, Fault, Handshake, HttpVersion, TlsVersion};
use crate::names::{self, Metric};
use crate::process::ProcessFigures;
use crate::ring::EventMonitor;

mod clients;
mod routes;

/// Everything that the metrics report.
#[derive(Clone, Debug)]
pub struct Exposition {
    /// The counters of the workers.
    pub counters: Counters,
    /// Delivery of the events; absent without an access log.
    pub events: Option<EventMonitor>,
    /// Figures of other crates, such as the health of servers.
    pub sampler: Option<Sampler>,
    /// Version and commit of the program.
    pub build: Build,
}

/// The version of the running program.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The semantic version, such as `0.1.0`.
    pub version: &'static str,
    /// The commit of the build; empty if unknown.
    pub commit: &'static str,
}

/// A source of figures that this crate does not count itself. Called once per read of the metrics, on the
/// thread of the reader.
#[derive(Clone)]
pub struct Sampler(Arc<dyn Fn() -> Vec<Sampled> + Send + Sync>);

impl Sampler {
    /// A sampler that calls `sample`, which must not block.
    pub fn new(sample: impl Fn() -> Vec<Sampled> + Send + Sync + 'static) -> Self {
        Self(Arc::new(sample))
    }

    /// The figures of now.
    #[must_use]
    pub fn sample(&self) -> Vec<Sampled> {
        (self.0)()
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
    /// The metric: one of those in [`names`] that no worker counts.
    pub metric: &'static Metric,
    /// The values of its labels, in the metric's order.
    pub labels: Vec<Arc<str>>,
    /// The figure itself, in the metric's base unit.
    pub value: f64,
}

/// A format under construction: receives the figures in order.
pub(crate) trait MetricVisitor {
    /// Starts a metric. All of its samples follow before the next metric starts.
    fn family(&mut self, metric: &Metric);
    /// Adds one sample, with label values in the metric's order.
    fn sample(&mut self, metric: &Metric, labels: &[&str], value: SampleValue);
    /// Adds one histogram, with label values in the metric's order.
    fn histogram(&mut self, metric: &Metric, labels: &[&str], distribution: &Distribution);
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SampleValue {
    Whole(u64),
    Real(f64),
}

impl From<u64> for SampleValue {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for SampleValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

/// A histogram of durations, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Distribution {
    /// Ascending upper bounds, each with the cumulative count up to it. The last bucket, without a bound,
    /// counts all.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// The number of durations.
    pub(crate) count: u64,
    /// The sum of the durations, in seconds.
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

/// Sampled metrics of reloads.
const RELOADS: [&Metric; 4] =
    [&names::LAST_RELOAD, &names::CONFIG_LOADED, &names::RELOADS, &names::AUTOSAVE_FAILURES];
/// Sampled metrics of limits and certificates.
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
/// Sampled metrics of servers.
const SERVERS: [&Metric; 4] =
    [&names::SERVER_UP, &names::SERVER_EJECTED, &names::SERVER_DRAINING, &names::SERVER_ACTIVE];

/// Sampled metrics of the log store.
const LOG_STORE: [&Metric; 4] =
    [&names::LOG_STORE_UP, &names::LOG_STORE_EVENTS, &names::LOG_STORE_SPOOL, &names::LOG_STORE_SPOOL_LIMIT];

impl Exposition {
    /// An exposition of these counters alone.
    #[must_use]
    pub const fn new(counters: Counters, build: Build) -> Self {
        Self { counters, events: None, sampler: None, build }
    }

    /// Presents every figure to `reader`.
    pub(crate) fn walk(&self, reader: &mut impl MetricVisitor) {
        let totals = self.counters.totals();
        let sets = self.counters.sets();
        let sampled = self.sampler.as_ref().map(|Sampler(sample)| sample()).unwrap_or_default();
        let mut families = FamilyWriter(reader);
        families.table(&names::BUILD, [([self.build.version, self.build.commit], 1_u64)]);
        families.single(&names::WORKERS, self.counters.workers() as u64);
        for metric in RELOADS {
            families.sampled(metric, &sampled);
        }
        connections(&mut families, &totals);
        let clients = self.counters.clients();
        handshakes(&mut families, &totals);
        clients::all_tls(&mut families, &clients);
        traffic(&mut families, &totals);
        for metric in LIMITS {
            families.sampled(metric, &sampled);
        }
        requests(&mut families, &totals);
        routes::write(&mut families, &sets);
        for metric in SERVERS {
            families.sampled(metric, &sampled);
        }
        clients::write(&mut families, &clients);
        families.single(&names::CONNECT_ATTEMPTS, totals.connect_attempts());
        families.single(&names::CONNECT_FAILURES, totals.connect_failures());
        if let Some(events) = &self.events {
            let tally = events.tally();
            families.single(&names::EVENTS_WRITTEN, tally.written);
            let lost = [(["queue_full"], tally.queue_full), (["output_failed"], tally.output_failed)];
            families.table(&names::EVENTS_DROPPED, lost);
        }
        families.sampled(&names::SPANS, &sampled);
        families.sampled(&names::NOTIFICATIONS, &sampled);
        for metric in LOG_STORE {
            families.sampled(metric, &sampled);
        }
        process(&mut families, &ProcessFigures::read());
    }
}

/// Writes metric families to a visitor, omitting those without samples.
struct FamilyWriter<'a, R>(&'a mut R);

impl<R: MetricVisitor> FamilyWriter<'_, R> {
    /// Writes a metric without labels.
    fn single(&mut self, metric: &Metric, value: impl Into<SampleValue>) {
        self.table(metric, [([], value)]);
    }

    /// Writes a metric with `L` labels, one sample per row.
    fn table<'v, V: Into<SampleValue>, const L: usize>(
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

    /// Writes a histogram with `L` labels, one per row.
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

    /// Writes the samples of this metric from a [`Sampler`]. Samples with the wrong number of labels are
    /// skipped.
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

fn connections(families: &mut FamilyWriter<'_, impl MetricVisitor>, totals: &Totals) {
    families.single(&names::CONNECTIONS, totals.accepted());
    families.single(&names::CONNECTIONS_ACTIVE, totals.active());
    // Every cause is present from the start, with its usual fault, so that rates have a beginning; other
    // pairs of cause and fault appear when they occur.
    let ends = ends().map(|(cause, fault)| (cause, fault, totals.closed(cause, fault)));
    let ends = ends.filter(|&(cause, fault, count)| count > 0 || fault == cause.fault());
    families.table(
        &names::CONNECTIONS_CLOSED,
        ends.map(|(cause, fault, count)| ([cause.name(), fault.name()], count)),
    );
    families.histograms(&names::CONNECTION_DURATION, [([], totals.connection_time().into())]);
}

fn ends() -> impl Iterator<Item = (Cause, Fault)> {
    Cause::ALL.into_iter().flat_map(|cause| Fault::ALL.into_iter().map(move |fault| (cause, fault)))
}

fn handshakes(families: &mut FamilyWriter<'_, impl MetricVisitor>, totals: &Totals) {
    let kinds = TlsVersion::ALL
        .into_iter()
        .flat_map(|version| Handshake::ALL.into_iter().map(move |kind| (version, kind)));
    families.table(
        &names::HANDSHAKES,
        kinds.map(|(version, kind)| ([version.name(), kind.name()], totals.handshakes(version, kind))),
    );
    families.single(&names::HANDSHAKES_FAILED, totals.handshakes_failed());
    families.histograms(&names::HANDSHAKE_DURATION, [([], totals.handshake_time().into())]);
}

/// The label values of the two directions.
const WAYS: [(&str, Direction); 2] =
    [("client_to_server", Direction::ClientToServer), ("server_to_client", Direction::ServerToClient)];

fn traffic(families: &mut FamilyWriter<'_, impl MetricVisitor>, totals: &Totals) {
    const IN: Direction = Direction::ClientToServer;
    const OUT: Direction = Direction::ServerToClient;
    families.table(&names::RELAYED_BYTES, WAYS.map(|(name, way)| ([name], totals.bytes_relayed(way))));
    families.table(&names::RECORDS, [(["open"], totals.records(IN)), (["seal"], totals.records(OUT))]);
    let updates = [(["received"], totals.key_updates(IN)), (["sent"], totals.key_updates(OUT))];
    families.table(&names::KEY_UPDATES, updates);
    families.single(&names::TURNS, totals.turns());
    families.single(&names::YIELDS, totals.yields());
    families.table(
        &names::ACCEPT_PAUSES,
        PauseReason::ALL.map(|reason| ([reason.name()], totals.accept_pauses(reason))),
    );
}

fn requests(families: &mut FamilyWriter<'_, impl MetricVisitor>, totals: &Totals) {
    let versions = HttpVersion::ALL;
    families.table(&names::HTTP_CONNECTIONS, versions.map(|v| ([v.name()], totals.http_connections(v))));
    families.single(&names::REQUESTS_ACTIVE, totals.requests_active());
    families.table(&names::REQUESTS_BY_PROTOCOL, versions.map(|v| ([v.name()], totals.requests(v))));
    let ends =
        ends().map(|(cause, fault)| ([cause.name(), fault.name()], totals.requests_ended(cause, fault)));
    families.table(&names::REQUESTS_ENDED, ends.filter(|(_, count)| *count > 0));
    let codings = Compression::ALL.map(|coding| ([coding.name()], totals.compressions(coding)));
    families.table(&names::COMPRESSIONS, codings);
    let outcomes = Mirrored::ALL.map(|outcome| ([outcome.name()], totals.mirrored(outcome)));
    families.table(&names::MIRRORED, outcomes);
}

fn process(families: &mut FamilyWriter<'_, impl MetricVisitor>, figures: &ProcessFigures) {
    if let Some(cpu) = figures.cpu {
        families.single(&names::PROCESS_CPU, cpu.as_secs_f64());
    }
    if let Some(bytes) = figures.resident_bytes {
        families.single(&names::PROCESS_RESIDENT_MEMORY, bytes);
    }
    if let Some(open) = figures.open_fds {
        families.single(&names::PROCESS_OPEN_FDS, open);
    }
    if let Some(max) = figures.max_fds {
        families.single(&names::PROCESS_MAX_FDS, max);
    }
    if let Some(started) = figures.started {
        families.single(&names::PROCESS_START_TIME, started.as_secs_f64());
    }
}
