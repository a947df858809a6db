//! Figures and spans that are pushed: figures to Graphite, figures and spans to a collector of
//! OpenTelemetry (with the feature `otlp`).
//!
//! A push runs on the control thread and reads counters; no worker notices. It is bounded in everything: one
//! page is made at a time, and connecting and writing must be done before the next is due. Figures that could
//! not be delivered are not sent later; the next ones are as they are then. The log says when pushing
//! begins to fail and when it works again, not each time.

mod graphite;
#[cfg(feature = "otlp")]
mod otlp;

use std::io;
use std::time::Duration;

use offramp_config::Config;
use offramp_config::model;
#[cfg(feature = "otlp")]
use offramp_config::model::Anonymize;
use offramp_config::model::ServerAddress;
use offramp_observe::{Exposition, Log, Sampled, Tap};
use offramp_process::supervise;
use tokio::task::AbortHandle;

use graphite::Graphite;
#[cfg(feature = "otlp")]
use otlp::Collector;

/// The longest that a push may take, however long the interval is.
const PATIENCE: Duration = Duration::from_secs(10);

/// The tasks that push; they end when dropped.
#[derive(Default)]
pub(crate) struct Pushers {
    graphite: Option<(Graphite, Task)>,
    #[cfg(feature = "otlp")]
    collector: Option<(Collector, Task)>,
}

/// A task that ends when dropped.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The servers that figures and spans are pushed to.
pub(crate) struct PushTargets {
    graphite: Option<Graphite>,
    #[cfg(feature = "otlp")]
    collector: Option<Collector>,
}

impl PushTargets {
    /// The servers of a configuration.
    pub(crate) fn of(metrics: &model::Metrics, tracing: &model::TracingConfig) -> Self {
        #[cfg(not(feature = "otlp"))]
        let _ = tracing;
        Self {
            graphite: Graphite::of(metrics),
            #[cfg(feature = "otlp")]
            collector: Collector::of(tracing),
        }
    }
}

impl Pushers {
    /// Pushes to these servers from now on; must be called within a tokio runtime. A push to the same server goes on
    /// undisturbed.
    pub(crate) fn change(&mut self, targets: PushTargets, page: &Exposition, spans: &Spans, log: &Log) {
        replace(&mut self.graphite, targets.graphite, |graphite| {
            let (page, task_log) = (page.clone(), log.clone());
            Task(supervise::spawn("graphite", log, move || {
                graphite.clone().run(page.clone(), task_log.clone())
            }))
        });
        #[cfg(feature = "otlp")]
        replace(&mut self.collector, targets.collector, |collector| {
            let (page, spans, task_log) = (page.clone(), spans.0.clone(), log.clone());
            Task(supervise::spawn("otlp", log, move || {
                collector.clone().run(page.clone(), spans.clone(), task_log.clone())
            }))
        });
        #[cfg(not(feature = "otlp"))]
        let Spans = spans;
    }
}

/// Has run what is wanted, unless it runs already.
fn replace<T: Clone + PartialEq>(
    running: &mut Option<(T, Task)>,
    wanted: Option<T>,
    run: impl FnOnce(T) -> Task,
) {
    if running.as_ref().map(|(what, _)| what) != wanted.as_ref() {
        // The old one ends before the new one begins.
        *running = None;
        *running = wanted.map(|what| (what.clone(), run(what)));
    }
}

/// The spans of sampled requests on their way to the collector. Without the feature `otlp` there are none.
#[cfg(feature = "otlp")]
#[derive(Clone)]
pub(crate) struct Spans(offramp_observe::otlp::SpanQueue);

/// The spans of sampled requests on their way to the collector. Without the feature `otlp` there are none.
#[cfg(not(feature = "otlp"))]
#[derive(Clone)]
pub(crate) struct Spans;

#[cfg(feature = "otlp")]
impl Spans {
    /// A queue without a span.
    pub(crate) fn none_yet() -> Self {
        Self(offramp_observe::otlp::SpanQueue::default())
    }

    /// The tap that takes spans out of the events, if `config` wants them.
    pub(crate) fn tap(&self, config: &Config) -> Option<Box<dyn Tap>> {
        config.telemetry.tracing.otlp.as_ref()?;
        let anonymize = config.telemetry.access_log.anonymize == Anonymize::Ip;
        Some(Box::new(offramp_observe::otlp::SpanTap::new(self.0.clone(), anonymize)))
    }

    /// The fates of spans.
    pub(crate) fn figures(&self) -> Vec<Sampled> {
        let tally = self.0.tally();
        let outcomes = [("exported", tally.exported), ("dropped", tally.dropped), ("refused", tally.refused)];
        let figure = |(outcome, count): (&str, u64)| Sampled {
            metric: &offramp_observe::names::SPANS,
            labels: vec![outcome.into()],
            value: count as f64,
        };
        outcomes.map(figure).into()
    }
}

#[cfg(not(feature = "otlp"))]
impl Spans {
    /// Nothing.
    pub(crate) const fn none_yet() -> Self {
        Self
    }

    /// Takes no spans: there is no collector.
    pub(crate) fn tap(&self, _: &Config) -> Option<Box<dyn Tap>> {
        None
    }

    /// There are none.
    pub(crate) fn figures(&self) -> Vec<Sampled> {
        Vec::new()
    }
}

/// Tells the log of changes between working and failing.
struct Teller {
    what: &'static str,
    server: String,
    failing: bool,
    log: Log,
}

impl Teller {
    fn new(what: &'static str, server: &ServerAddress, log: Log) -> Self {
        Self { what, server: server.to_string(), failing: false, log }
    }

    /// Tells of the outcome of a push if it differs from the one before.
    fn tell(&mut self, outcome: &io::Result<()>) {
        let mut fields = vec![("to", self.what.into()), ("server", (&self.server).into())];
        match outcome {
            Err(error) if !self.failing => {
                fields.push(("reason", error.into()));
                self.log.warn("cannot push figures; will try again", &fields);
            }
            Ok(()) if self.failing => self.log.info("figures are pushed again", &fields),
            _ => {}
        }
        self.failing = outcome.is_err();
    }
}
