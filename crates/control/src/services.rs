//! The services of the process, each in a file of its own (`push` is a short one to start from: tasks that send at an
//! interval).
//!
//! A new one costs its file, a field of [`Services`] here, and a line each in [`plan`](crate::plan) and
//! [`commit`](crate::commit). One that sends, listens or holds a file also gets a line in [`Services::hand_over`], so that
//! one process has it at a time over an upgrade, and in [`drain`](crate::drain) where it must end in order. The sandbox needs to know its files and the
//! TCP ports that it connects to (`offramp_process::sandbox::needs`), and nothing of UDP. Its key: see "Add a
//! key" in `offramp_config`; one outside routes has a line in the table of the test in `config::diff::restart`, too.

mod access_log;
mod acme;
mod admin;
mod certificates;
mod jwks;
mod limits;
mod listeners;
mod log;
mod metrics;
mod notify;
mod probes;
mod push;
mod resolver;
mod snapshot;
mod store;
mod tickets;

use std::io;
use std::sync::Arc;

use offramp_config::{Config, model};
use offramp_observe::Log;
use offramp_process::Helper;
use offramp_process::inherited::{Offer, Unwanted};
use offramp_proxy::SharedResources;
use offramp_sources::jwks::{Fetchers, Fetches};
use offramp_sources::resolve::Resolver;
use offramp_tls::TicketKeys;
use tokio::sync::mpsc::Receiver;

use crate::acme::{Acme, Orders, Seams};
use crate::data_plane::DataPlane;
use crate::listeners::Listening;
use crate::notify::NotifyRegistry;
use crate::outputs::OpenAs;
use crate::outputs::Streams;
use crate::probes::Probes;
use crate::push::{Pushers, Spans};
use crate::service::Service;

pub(crate) use access_log::{AccessLogStep, EventOutput, EventsWanted};
pub(crate) use acme::{AcmeStep, AcmeWanted};
pub use admin::Carried;
pub(crate) use admin::CarriedServers;
pub(crate) use certificates::{CertificateChecks, InUse, are_due};
pub(crate) use limits::{LimitsStep, RuntimeLimits};
pub(crate) use listeners::{ListenersStep, ListenersWanted};
pub(crate) use log::ProgramLog;
pub(crate) use metrics::{MetricsEndpoint, MetricsStep, MetricsWanted};
pub(crate) use notify::Notifiers;
pub(crate) use snapshot::{SnapshotStep, SnapshotWanted, Snapshots, Swapped};
pub(crate) use store::EventTaps;
pub(crate) use tickets::{TicketRotation, TicketsStep};

/// Everything that follows the configuration.
pub(crate) struct Services {
    pub(crate) log: ProgramLog,
    pub(crate) access_log: EventOutput,
    pub(crate) store: EventTaps,
    pub(crate) tickets: TicketRotation,
    pub(crate) limits: RuntimeLimits,
    pub(crate) listeners: Listening,
    pub(crate) snapshot: Snapshots,
    pub(crate) certificates: CertificateChecks,
    pub(crate) probes: Probes,
    pub(crate) jwks: Fetchers,
    pub(crate) resolver: Resolver,
    pub(crate) metrics: MetricsEndpoint,
    pub(crate) senders: Senders,
    pub(crate) acme: Acme,
    pub(crate) admin: CarriedServers,
}

/// The services that send to servers of others.
pub(crate) struct Senders {
    pub(crate) push: Pushers,
    pub(crate) notify: Notifiers,
}

/// The parts that services begin with, before there are threads.
pub(crate) struct Beginning<'a> {
    /// The configuration of the start, for the outputs that are open already.
    pub(crate) config: &'a Config,
    /// The settings that the log is open with.
    pub(crate) opened: &'a model::LogConfig,
    pub(crate) streams: Streams,
    pub(crate) log: Log,
    pub(crate) shared: &'a SharedResources,
    /// The names of certificates on demand that clients ask for.
    pub(crate) demanded: Receiver<Box<str>>,
    pub(crate) spans: Spans,
    pub(crate) orders: Arc<Orders>,
    pub(crate) registry: Arc<NotifyRegistry>,
    pub(crate) fetches: Arc<Fetches>,
    pub(crate) tickets: TicketKeys,
    /// The number of workers.
    pub(crate) workers: usize,
}

impl Services {
    /// Services that serve nothing yet. To be called within the runtime.
    pub(crate) fn nothing(beginning: Beginning<'_>) -> Self {
        let Beginning { config, opened, streams, log, shared, demanded, spans, .. } = beginning;
        let Beginning { orders, registry, fetches, tickets, workers, .. } = beginning;
        let open_as = OpenAs::of(config);
        registry.keep_in(&config.process.state_dir);
        Self {
            log: ProgramLog::open(log.clone(), opened, streams.journal, open_as),
            access_log: EventOutput::open(config.into(), streams.terminals, log.clone(), open_as),
            store: EventTaps::none(spans),
            tickets: TicketRotation::of(tickets, config.tls.ticket_rotation, log.clone()),
            limits: RuntimeLimits,
            listeners: Listening::new(workers, log.clone()),
            snapshot: Snapshots::new(shared.current.clone()),
            certificates: CertificateChecks::new(log.clone()),
            probes: Probes::default(),
            jwks: Fetchers::new(fetches, log.clone()),
            resolver: Resolver::idle(),
            metrics: MetricsEndpoint::new(log.clone()),
            senders: Senders {
                push: Pushers::default(),
                notify: Notifiers::new(registry, Arc::clone(&orders), log.clone()),
            },
            acme: Acme::new(&config.process.state_dir, Seams::of(shared, demanded), orders, log),
            admin: CarriedServers::default(),
        }
    }

    /// Has the helper start the operator's programs from now on.
    pub(crate) fn helped_by(&mut self, helper: Option<Arc<Helper>>) {
        self.senders.notify.registry().helped_by(helper.clone());
        self.acme.helped_by(helper);
    }

    /// The sockets that another process takes over.
    ///
    /// # Errors
    /// They cannot be shared.
    pub(crate) fn offer(&self) -> io::Result<Offer> {
        let mut offer = Offer::default();
        self.listeners.offer(&mut offer)?;
        self.metrics.offer(&mut offer)?;
        self.admin.offer(&mut offer)?;
        Ok(offer)
    }

    /// Gives up what only one process can have, in the order of [`Self::offer`].
    pub(crate) async fn hand_over(&mut self, mut unwanted: Unwanted, plane: &DataPlane) {
        self.listeners.hand_over(&mut unwanted, plane).await;
        self.metrics.hand_over(&mut unwanted, plane).await;
        self.admin.hand_over(&mut unwanted, plane).await;
        self.senders.push.hand_over(&mut unwanted, plane).await;
        self.senders.notify.hand_over(&mut unwanted, plane).await;
        self.acme.hand_over(&mut unwanted, plane).await;
    }
}
