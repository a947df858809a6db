//! The load: TLS clients that cost less than the proxies they measure.
//!
//! Only what well-kept tools cannot do is done here: handshakes with a chosen group and with resumption,
//! kept connections over a bare byte stream, arrivals at a fixed rate, idle and slow clients. HTTP load is
//! left to `wrk`.

pub(crate) mod conn;
pub(crate) mod handshake;
pub(crate) mod held;
#[cfg(test)]
mod known;
pub(crate) mod rate;
pub(crate) mod relay;
pub(crate) mod tls;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::mpsc::Receiver;

use crate::error::{Error, Result};
use crate::protocol::{Event, LoadResult, LoadSpec, Work, order, say, words};

/// Runs the helper process: one order, one answer.
///
/// # Errors
/// When standard input or output fails; what fails in the work itself is told to the harness.
pub(crate) async fn main() -> Result<()> {
    let spec: LoadSpec = order()?;
    let mut gate = Gate { words: words() };
    match run(&spec, &mut gate).await {
        Ok(result) => say(&Event::Done(result)),
        Err(Error::Interrupted) => Ok(()),
        Err(error) => say(&Event::Failed(error.to_string())),
    }
}

async fn run(spec: &LoadSpec, gate: &mut Gate) -> Result<LoadResult> {
    match spec.work {
        Work::Relay { .. } => relay::run(spec, gate).await,
        Work::Handshake { .. } => handshake::run(spec, gate).await,
        Work::Idle { .. } => held::idle(spec, gate).await,
        Work::Drip { .. } => held::drip(spec, gate).await,
        Work::Rate { .. } => rate::run(spec, gate).await,
    }
}

/// The two moments at which the harness reads its clocks.
#[derive(Debug)]
pub(crate) struct Gate {
    words: Receiver<String>,
}

impl Gate {
    /// Says `ready` and waits for `go`.
    ///
    /// # Errors
    /// `Interrupted` when the harness has gone.
    pub(crate) async fn pass(&mut self) -> Result<()> {
        say(&Event::Ready)?;
        self.wait().await
    }

    /// Waits for the next word.
    ///
    /// # Errors
    /// `Interrupted` when the harness has gone.
    pub(crate) async fn wait(&mut self) -> Result<()> {
        self.words.recv().await.map(|_| ()).ok_or(Error::Interrupted)
    }
}

/// What tasks count, added up at the end.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) units: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) resumed: u64,
    latency: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { units: 0, errors: 0, first_error: None, resumed: 0, latency: histogram() }
    }

    /// Counts one success that took `time`.
    pub(crate) fn success(&mut self, time: Duration) {
        self.units += 1;
        self.latency.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one failure.
    pub(crate) fn failure(&mut self, error: &Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.to_string());
    }

    /// Adds what another task counted.
    pub(crate) fn add(&mut self, other: Self) {
        self.units += other.units;
        self.errors += other.errors;
        self.resumed += other.resumed;
        self.first_error = self.first_error.take().or(other.first_error);
        // Both have the same bounds, so that adding cannot fail.
        let _ = self.latency.add(other.latency);
    }

    /// The answer to the harness for a window that began at `start`.
    pub(crate) fn result(self, start: Instant) -> LoadResult {
        LoadResult {
            units: self.units,
            errors: self.errors,
            first_error: self.first_error,
            resumed: self.resumed,
            seconds: start.elapsed().as_secs_f64(),
            latency: percentiles(&self.latency),
        }
    }
}

/// One nanosecond to a minute with an error below one percent: 30 KB.
fn histogram() -> Histogram<u64> {
    // The bounds are constants within the library's limits.
    Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("valid bounds")
}

/// In microseconds; empty when nothing was recorded.
fn percentiles(histogram: &Histogram<u64>) -> BTreeMap<String, f64> {
    if histogram.is_empty() {
        return BTreeMap::new();
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    [
        ("mean", histogram.mean() / 1e3),
        ("stdev", histogram.stdev() / 1e3),
        ("p50", at(0.5)),
        ("p90", at(0.9)),
        ("p99", at(0.99)),
        ("p999", at(0.999)),
        ("max", histogram.max() as f64 / 1e3),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Joins tasks that each return a tally; a panic of one is a failure of the run.
///
/// # Errors
/// When a task panicked.
pub(crate) async fn join<T: 'static>(mut tasks: tokio::task::JoinSet<T>) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(tasks.len());
    while let Some(done) = tasks.join_next().await {
        results.push(done.map_err(|e| Error::Measure(format!("a task of the load failed: {e}")))?);
    }
    Ok(results)
}
