//! Figures of now: rates over the time since the event before, with the heaviest hosts, routes, backends and clients.
//!
//! Nothing is computed without a listener. A reading of the counters is shared by all streams that want one at about
//! the same time; each stream takes the differences to its own reading before.

mod lists;
mod reading;

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use offramp_control::View;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio::time::{MissedTickBehavior, interval, sleep};

use reading::FigureReading;
pub(super) use reading::FigureSource;

use super::query::{Parameter, ParameterKind, QueryParameters};
use super::{stream, time};

/// The intervals that a client may choose from.
const INTERVALS: [(&str, Duration); 5] = [
    ("500ms", Duration::from_millis(500)),
    ("1s", Duration::from_secs(1)),
    ("2s", Duration::from_secs(2)),
    ("5s", Duration::from_secs(5)),
    ("10s", Duration::from_secs(10)),
];

/// The parameters of the operation.
pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "every",
        kind: ParameterKind::Words(&["500ms", "1s", "2s", "5s", "10s"]),
        doc: "The time between two events; by default 1s",
    },
    Parameter {
        name: "once",
        kind: ParameterKind::Flag,
        doc: "One object instead of a stream, after the time of `every`",
    },
];

pub(super) fn every(query: &QueryParameters) -> Duration {
    let chosen = INTERVALS.iter().find(|(name, _)| Some(*name) == query.text("every"));
    chosen.map_or(Duration::from_secs(1), |(_, every)| *every)
}

/// The figures of an interval that begins now, or a moment ago, and is at least as long as `every`.
pub(super) async fn once(view: &View, source: &FigureSource, every: Duration) -> Value {
    let before = source.read(view);
    sleep(every).await;
    figures(Some(&before), &source.read_after(&before, every, view), view)
}

/// Sends figures until the client has gone.
pub(super) async fn send(view: View, source: FigureSource, every: Duration, events: Sender<Bytes>) {
    let mut timer = interval(every);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<Arc<FigureReading>> = None;
    loop {
        timer.tick().await;
        let now = source.read(&view);
        let data = figures(before.as_deref(), &now, &view);
        if events.send(stream::event("figures", &data)).await.is_err() {
            return;
        }
        before = Some(now);
    }
}

/// The figures of the time between two readings; without the first one, totals alone.
fn figures(before: Option<&FigureReading>, now: &FigureReading, view: &View) -> Value {
    let between = Between { before, now };
    let totals = |reading: &FigureReading| reading.sums;
    let rate = |of: fn(&reading::Sums) -> u64| between.rate(|reading| of(&totals(reading)));
    let sums = &now.sums;
    let durations = between.durations();
    let quantile = |share| durations.as_ref().and_then(|all| all.quantile(share)).map(milliseconds);
    let latency =
        quantile(0.5).map(|p50| json!({ "p50": p50, "p95": quantile(0.95), "p99": quantile(0.99) }));
    json!({
        "at": time(now.at),
        "interval_s": between.seconds().map(rounded),
        "requests": {
            "per_second": rate(|sums| sums.requests), "by_class": lists::classes(between),
            "open": sums.requests_open, "total": sums.requests,
        },
        "connections": {
            "open": sums.open, "accepted_per_second": rate(|sums| sums.accepted), "accepted": sums.accepted,
        },
        "handshakes": {
            "full_per_second": rate(|sums| sums.full), "resumed_per_second": rate(|sums| sums.resumed),
            "failed_per_second": rate(|sums| sums.failed),
            "full": sums.full, "resumed": sums.resumed, "failed": sums.failed,
        },
        "bytes": {
            "in_per_second": rate(|sums| sums.bytes_in), "out_per_second": rate(|sums| sums.bytes_out),
            "in": sums.bytes_in, "out": sums.bytes_out,
        },
        "latency_ms": latency,
        "causes": lists::causes(between),
        "limits": lists::limits(between),
        "workers": lists::workers(between, view),
        "hosts": lists::hosts(between, view),
        "routes": lists::routes(between, view),
        "backends": lists::backends(between, view),
        "clients": lists::clients(between),
    })
}

/// Two readings of the same process, the first of which may be missing.
#[derive(Clone, Copy)]
struct Between<'a> {
    before: Option<&'a FigureReading>,
    now: &'a FigureReading,
}

impl Between<'_> {
    fn seconds(self) -> Option<f64> {
        let seconds = (self.now.instant - self.before?.instant).as_secs_f64();
        (seconds > 0.0).then_some(seconds)
    }

    /// The growth of a counter per second.
    fn rate(self, counter: impl Fn(&FigureReading) -> u64) -> Option<f64> {
        Some(rounded(self.growth(counter)? as f64 / self.seconds()?))
    }

    fn growth(self, counter: impl Fn(&FigureReading) -> u64) -> Option<u64> {
        Some(counter(self.now).saturating_sub(counter(self.before?)))
    }
}

/// Three digits behind the point.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn milliseconds(seconds: f64) -> f64 {
    rounded(seconds * 1000.0)
}
