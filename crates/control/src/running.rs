//! The state of the running process: start creates it, reload and upkeep change it, drain ends it.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Instant;

use offramp_certs::store::Store;
use offramp_config::{Config, Environment};
use offramp_net::notify::Notifier;
use offramp_observe::{Exposition, Flusher, Log};
use offramp_proxy::{Shared, WorkerHandle};
use offramp_record::Choice;
use offramp_tls::TicketKeys;
use tokio::task::AbortHandle;

use crate::acme::Acme;
use crate::build::Contents;
use crate::certificates::Sources;
use crate::change::Confirmation;
use crate::error::Finding;
use crate::event_store::EventStore;
use crate::figures::Reloads;
use crate::helper::Helper;
use crate::history::History;
use crate::jwks::Fetchers;
use crate::listeners::Listening;
use crate::metrics::Endpoint;
use crate::outputs::Terminals;
use crate::phases::Phases;
use crate::push::{Pushers, Spans};
use crate::resolve::{Names, Resolver};
use crate::sandbox::Grants;
use crate::server::Origin;
use crate::unwritten::Unwritten;
use crate::upgrade::{Carried, Program};
use crate::upkeep::Calendar;
use crate::view::View;

/// The running process.
pub(crate) struct Running {
    /// The current configuration.
    pub(crate) config: Arc<Config>,
    /// The source of the next configuration.
    pub(crate) source: Source,
    /// The log of the program itself.
    pub(crate) log: Log,
    /// Tells the service manager (systemd) about the state.
    pub(crate) notifier: Notifier,
    /// The workers and what they share.
    pub(crate) crew: Crew,
    /// The open listeners.
    pub(crate) listening: Listening,
    /// What else listens on sockets of its own.
    pub(crate) carried: Vec<Box<dyn Carried>>,
    /// The threads of those that have ended, which may still answer somebody.
    pub(crate) endings: Vec<JoinHandle<()>>,
    /// What tells the service manager that this process lives.
    pub(crate) watchdog: Option<AbortHandle>,
    /// The metrics page for Prometheus.
    pub(crate) metrics: Option<Endpoint>,
    /// The exporters of figures: Graphite, OpenTelemetry.
    pub(crate) pushers: Pushers,
    /// The parts that the next snapshot reuses.
    pub(crate) ground: Ground,
    /// Resolves the host names of servers.
    pub(crate) resolver: Resolver,
    /// Obtains certificates from authorities.
    pub(crate) acme: Acme,
    /// Keeps the keys of tokens fresh.
    pub(crate) fetchers: Fetchers,
    /// The latest changes of the configuration.
    pub(crate) history: History,
    /// The change that is taken back unless it is confirmed.
    pub(crate) confirmation: Option<Confirmation>,
    /// How long the parts of the change under way took.
    pub(crate) phases: RefCell<Phases>,
    /// What is in force and not in the file.
    pub(crate) unwritten: Unwritten,
    /// What others see of the process.
    pub(crate) view: View,
    /// The times of periodic work.
    pub(crate) calendar: Calendar,
}

/// The source of configurations, and the environment that gives absent keys their defaults.
pub(crate) struct Source {
    pub(crate) origin: Origin,
    pub(crate) environment: Environment,
    /// Whether journald reads the standard streams.
    pub(crate) journal: bool,
    /// Which standard streams are terminals.
    pub(crate) terminals: Terminals,
    /// What an upgrade starts.
    pub(crate) program: Option<Program>,
    /// Who starts it, and DNS hooks; without, this process does.
    pub(crate) helper: Option<Arc<Helper>>,
    /// What the sandbox lets it do with files and ports; `None`: anything.
    pub(crate) grants: Option<Grants>,
}

/// The worker threads, and what they share with this thread.
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
    /// Connects the consumers of events that `config` names.
    pub(crate) fn tap(&self, config: &Config) {
        let store = self.store.as_ref().map(|store| store.tap(config));
        self.flusher.set_taps(self.spans.tap(config).into_iter().chain(store).collect());
    }

    /// Waits until the thread of a worker has ended without an order to stop.
    pub(crate) async fn lost(&mut self) {
        let mut waiting: Vec<_> = self.workers.iter_mut().map(|worker| Box::pin(worker.ended())).collect();
        poll_fn(|cx| {
            let ended = waiting.iter_mut().any(|worker| worker.as_mut().poll(cx).is_ready());
            if ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The parts that outlive a snapshot and go into the next one.
pub(crate) struct Ground {
    pub(crate) choice: Choice,
    pub(crate) tickets: Arc<TicketKeys>,
    pub(crate) store: Arc<Store>,
    /// What was read from the sources of certificates.
    pub(crate) sources: Sources,
    pub(crate) names: Names,
    /// The files that routes answer with.
    pub(crate) contents: Contents,
    /// What was odd about it.
    pub(crate) warnings: Vec<Finding>,
    pub(crate) generation: u64,
}

impl Running {
    /// A change is under way, since then.
    pub(crate) fn begins(&self, then: Instant) {
        *self.phases.borrow_mut() = Phases::since(then);
    }

    /// A part of it has ended.
    pub(crate) fn ends(&self, part: &'static str) {
        self.phases.borrow_mut().end(part);
    }

    /// All of it has.
    pub(crate) fn tell_phases(&self) {
        self.phases.borrow().tell(&self.log, "a change took");
    }
}

/// Logs each warning with its position in the configuration.
pub(crate) fn tell(log: &Log, message: &str, warnings: &[Finding]) {
    for warning in warnings {
        let reason = ("reason", warning.text.as_str().into());
        match warning.place() {
            Some(place) => log.warn(message, &[("at", place.into()), reason]),
            None => log.warn(message, &[reason]),
        }
    }
}
