//! The running house: what start makes, reload changes, time wears and drain ends.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use offramp_certs::store::Store;
use offramp_config::{Config, Environment};
use offramp_net::notify::Notifier;
use offramp_observe::{Exposition, Flusher, Log};
use offramp_proxy::{Shared, WorkerHandle};
use offramp_record::Choice;
use offramp_tls::TicketKeys;

use crate::error::Finding;
use crate::event_store::EventStore;
use crate::figures::Reloads;
use crate::listeners::Listening;
use crate::metrics::Endpoint;
use crate::outputs::Terminals;
use crate::push::{Pushers, Spans};
use crate::resolve::{Names, Resolver};
use crate::server::Origin;
use crate::upkeep::Calendar;

/// Everything that runs.
pub(crate) struct House {
    /// The configuration in force.
    pub(crate) config: Config,
    /// Where the next one comes from.
    pub(crate) source: Source,
    /// What the program says about itself.
    pub(crate) log: Log,
    /// The service manager's ear.
    pub(crate) notifier: Notifier,
    /// Who does the work.
    pub(crate) crew: Crew,
    /// Where connections come in.
    pub(crate) listening: Listening,
    /// The page for Prometheus.
    pub(crate) metrics: Option<Endpoint>,
    /// Who sends figures elsewhere.
    pub(crate) pushers: Pushers,
    /// What snapshots are made of.
    pub(crate) ground: Ground,
    /// Keeps host names fresh.
    pub(crate) resolver: Resolver,
    /// What falls due when.
    pub(crate) calendar: Calendar,
}

/// Where configurations come from, and what their absent keys mean.
pub(crate) struct Source {
    pub(crate) origin: Origin,
    pub(crate) environment: Environment,
    /// Whether journald reads the standard streams.
    pub(crate) journal: bool,
    /// Which standard streams a person reads.
    pub(crate) terminals: Terminals,
}

/// The threads, and what they share with this one.
pub(crate) struct Crew {
    pub(crate) workers: Vec<WorkerHandle>,
    pub(crate) shared: Shared,
    pub(crate) flusher: Flusher,
    pub(crate) page: Exposition,
    pub(crate) spans: Spans,
    pub(crate) reloads: Arc<Reloads>,
    /// The log store, if there is one.
    pub(crate) store: Option<Box<dyn EventStore>>,
}

impl Crew {
    /// Has everybody take events whom `config` wants to.
    pub(crate) fn tap(&self, config: &Config) {
        let store = self.store.as_ref().map(|store| store.tap(config));
        self.flusher.set_taps(self.spans.tap(config).into_iter().chain(store).collect());
    }

    /// Waits until a worker's thread has ended though nobody told it to.
    pub(crate) async fn lost(&mut self) {
        let mut waiting: Vec<_> = self.workers.iter_mut().map(|worker| Box::pin(worker.ended())).collect();
        poll_fn(|cx| {
            let ended = waiting.iter_mut().any(|worker| worker.as_mut().poll(cx).is_ready());
            if ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// What outlives a snapshot and goes into the next.
pub(crate) struct Ground {
    pub(crate) choice: Choice,
    pub(crate) tickets: Arc<TicketKeys>,
    pub(crate) store: Arc<Store>,
    pub(crate) names: Names,
    pub(crate) generation: u64,
}

/// Writes what an operator should know, each with its place.
pub(crate) fn tell(log: &Log, message: &str, warnings: &[Finding]) {
    for warning in warnings {
        let reason = ("reason", warning.text.as_str().into());
        match warning.at.place() {
            Some(place) => log.warn(message, &[("at", place.into()), reason]),
            None => log.warn(message, &[reason]),
        }
    }
}
