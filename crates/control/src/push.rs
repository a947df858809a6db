//! What is pushed to those who do not come and ask: figures to Graphite, figures and spans to a collector of
//! OpenTelemetry (with the feature `otlp`).
//!
//! A push runs on the control thread and reads counters; no worker notices. It is bounded in everything: one
//! page is made at a time, and connecting and writing must be done before the next is due. Figures that could
//! not be delivered are not sent later; the next ones are as they are then. The log is told when pushing
//! begins to fail and when it works again, not each time.

mod graphite;
#[cfg(feature = "otlp")]
mod otlp;

use std::io;
use std::time::Duration;

use offramp_config::Config;
#[cfg(feature = "otlp")]
use offramp_config::model::Anonymize;
use offramp_config::model::ServerAddress;
use offramp_observe::{Exposition, Log, Sampled, Tap};
use tokio::task::AbortHandle;

use crate::supervise;
use graphite::Graphite;
#[cfg(feature = "otlp")]
use otlp::Collector;

/// The longest that a push may take, however long the interval is.
const PATIENCE: Duration = Duration::from_secs(10);

/// What pushes; it ends when dropped.
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

impl Pushers {
    /// Starts what `config` wants; must be called within a tokio runtime.
    pub(crate) fn start(config: &Config, page: &Exposition, spans: &Spans, log: &Log) -> Self {
        let mut pushers = Self::default();
        pushers.change(config, page, spans, log);
        pushers
    }

    /// Changes to what `config` wants. What is wanted as before goes on undisturbed.
    pub(crate) fn change(&mut self, config: &Config, page: &Exposition, spans: &Spans, log: &Log) {
        replace(&mut self.graphite, Graphite::of(&config.metrics), |graphite| {
            let (page, task_log) = (page.clone(), log.clone());
            Task(supervise::spawn("graphite", log, move || {
                graphite.clone().run(page.clone(), task_log.clone())
            }))
        });
        #[cfg(feature = "otlp")]
        replace(&mut self.collector, Collector::of(&config.tracing), |collector| {
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
    /// An empty queue.
    pub(crate) fn none_yet() -> Self {
        Self(offramp_observe::otlp::SpanQueue::default())
    }

    /// What takes spans out of the events, if `config` wants them.
    pub(crate) fn tap(&self, config: &Config) -> Option<Box<dyn Tap>> {
        config.tracing.otlp.as_ref()?;
        let anonymize = config.access_log.anonymize == Anonymize::Ip;
        Some(Box::new(offramp_observe::otlp::SpanTap::new(self.0.clone(), anonymize)))
    }

    /// What became of them.
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

    /// Nothing takes spans.
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
