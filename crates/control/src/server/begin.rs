//! The start, stage by stage: the first change, made to services that serve nothing.
//!
//! Sockets and keys come first, so that an operator learns at once of what is wrong. What can fail for reasons of the
//! configuration fails together, before anything is given away; the user is switched once, between the keys and the
//! threads.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use offramp_config::{Config, model};
use offramp_net::notify::Notifier;
use offramp_net::process;
use offramp_observe::prometheus::Build;
use offramp_observe::{Log, Panics};
use offramp_process::inherited::Inherited;
use offramp_process::sandbox::{self, Confinement, Scope};
use offramp_process::signals::Signals;
use offramp_process::{Error, Helper, Source, descriptors, log_warnings, privileges, watchdog};
use offramp_proxy::SharedResources;
use offramp_record::{LibraryChoice, measure};
use offramp_sources::certificates::{OnFault, Sources};
use offramp_sources::jwks::Fetches;
use offramp_sources::{access, contents};
use tokio::runtime::Runtime;

use super::given::{Arrivals, Given};
use super::{Server, Start, StartFrom};
use crate::acme::Orders;
use crate::autosave::Autosave;
use crate::build::{Material, nothing};
use crate::commit::{Sockets, commit};
use crate::connections::Closer;
use crate::data_plane::{Cores, DataPlane, Parts, share};
use crate::event_store::{EventStore, OpenStore};
use crate::figures::Counted;
use crate::heartbeat::Heartbeat;
use crate::ledger::Ledger;
use crate::outputs::Streams;
use crate::phases::Phases;
use crate::plan::{Plan, Proposal};
use crate::push::Spans;
use crate::request::RequestQueue;
use crate::running::Running;
use crate::servers;
use crate::services::{Beginning, Services};
use crate::upgrade::{Heir, State};
use crate::view::View;

/// Threads that may wait for DNS at once.
const LOOK_UPS: usize = 4;

pub(super) fn begin(start: Start) -> Result<Server, Error> {
    let (log, mut phases) = (start.log, Phases::since(Instant::now()));
    let source = Source { origin: start.origin, environment: start.environment };
    let scope = Scope { source: &source, program: start.program.as_ref(), also: &start.also };
    sandbox::hide_memory(&start.config, start.helper.as_ref(), || show_memory(&start.from), &log)?;
    let Start { config, from, .. } = start;
    let arrivals = Arrivals { file: config, from, activated: start.manager.activated };
    let mut given = Given::take(arrivals, scope, &log)?;
    let open_store = store_opener(&given.file.config, start.open_store)?;
    let identity = privileges::find(given.file.config.process.user.as_ref(), &source.origin, &log)?;
    let (runtime, signals) = runtime(start.signals, &log)?;
    let entered = runtime.enter();
    phases.end("process_ms");
    let mut ready = Ready::of(&mut given, start.streams, &log)?;
    let Given { running, resumption, file, log: opened, before, state, inherited, .. } = given;
    let config = Arc::clone(&running.config);
    let first = First { config: &config, opened: &opened, streams: start.streams, log: &log };
    phases.end("sockets_and_keys_ms");
    start.bound.into_iter().for_each(|bound| bound(&ready.plan.steps.listeners.opened()));
    ready.services.snapshot.choose(choose_aeads(&log), &mut ready.plan.steps.snapshot);
    phases.end("aeads_ms");
    let confinement = ready.confine(first, &file.config, identity.as_ref(), start.helper, scope)?;
    phases.end("sandbox_ms");
    // From here on there are threads, which are restricted as this one is.
    runtime.block_on(ready.plan.fetch(&ready.fetches, &log));
    phases.end("names_ms");
    let store = open_store(&config, &log)?;
    phases.end("log_store_ms");
    let facts = Facts { build: start.build, panics: start.panics, is_heir: before.is_some() };
    let (services, plane) = ready.serve(first, &state, facts, store, &runtime)?;
    phases.end("workers_and_outputs_ms");
    phases.tell(&log, "the start took");
    let notifier = || Notifier::new(start.manager.notify_socket.as_deref());
    let heartbeat = Heartbeat::of(&plane.workers);
    let answered = move || heartbeat.clone().answered();
    let watchdog = start.manager.watchdog.map(|limit| watchdog::start(notifier(), limit, &log, answered));
    let autosave = Autosave::of(&config, &source.origin, resumption.succeed(&log));
    let ledger = Ledger::new(running, file);
    let view = View::new(
        ledger.config(),
        &plane,
        ledger.history(),
        &source.origin,
        services.senders.notify.registry(),
        services.acme.desk(),
    );
    let closer = Closer::of(&view, ledger.history(), &log);
    let (program, notifier, phases) = (start.program, notifier(), RefCell::new(phases));
    let running = Running {
        ledger,
        services,
        plane,
        source,
        confinement,
        program,
        notifier,
        autosave,
        watchdog,
        view,
        phases,
        log,
    };
    running.publish();
    if let Some(address) = running.services.metrics.address() {
        running.log.info("metrics", &[("address", address.into())]);
    }
    drop(entered);
    let (queue, handle) = RequestQueue::new(signals, closer);
    Ok(Server { runtime, running, queue, handle, inherited, before })
}

/// The first configuration, and the outputs of the process.
#[derive(Clone, Copy)]
struct First<'a> {
    config: &'a Arc<Config>,
    /// The settings that the log was opened with.
    opened: &'a model::LogConfig,
    streams: Streams,
    log: &'a Log,
}

/// Facts about the process, for its metrics and its right to order certificates.
struct Facts {
    build: Build,
    panics: Panics,
    /// Set while the process before still serves.
    is_heir: bool,
}

/// Everything that is ready before there are threads.
struct Ready {
    services: Services,
    plan: Plan,
    shared: SharedResources,
    cores: Cores,
    spans: Spans,
    orders: Arc<Orders>,
    fetches: Arc<Fetches>,
}

impl Ready {
    /// Plans the first change to what is given. Where the saved configuration cannot be put in force, because its port is
    /// taken, for example, that of the file is used.
    ///
    /// # Errors
    /// Everything that stands in the way of sockets and keys.
    fn of(given: &mut Given, streams: Streams, log: &Log) -> Result<Self, Error> {
        let Given { running, fallback, resumption, log: opened, state, inherited, .. } = given;
        let Some(base) = fallback.take() else {
            return Self::make(First { config: &running.config, opened, streams, log }, state, inherited);
        };
        let spare = inherited.try_clone().map_err(|error| Error::one(error.to_string()))?;
        resumption.try_saved(log);
        match Self::make(First { config: &running.config, opened, streams, log }, state, inherited) {
            Ok(ready) => Ok(ready),
            Err(error) => {
                resumption.fall_back(&error, log);
                (*running, *inherited) = (base, spare);
                Self::make(First { config: &running.config, opened, streams, log }, state, inherited)
            }
        }
    }

    /// Plans the first change: from nothing to the configuration, with the sockets that another process hands over.
    ///
    /// # Errors
    /// Everything that stands in the way of sockets and keys.
    fn make(first: First<'_>, state: &State, inherited: &mut Inherited) -> Result<Self, Error> {
        let First { config, opened, streams, log } = first;
        let cores = Cores::of(config);
        let (shared, demanded) = share(nothing(), log);
        let (orders, fetches, spans) =
            (Arc::<Orders>::default(), Arc::<Fetches>::default(), Spans::none_yet());
        let services = Services::nothing(Beginning {
            config,
            opened,
            streams,
            log: log.clone(),
            shared: &shared,
            demanded,
            spans: spans.clone(),
            orders: Arc::clone(&orders),
            registry: Arc::default(),
            fetches: Arc::clone(&fetches),
            tickets: state.ticket_keys(config, log)?,
            workers: cores.workers,
        });
        let (now, mint) = (SystemTime::now(), true);
        let material = Material::read(config, &Sources::default(), now, OnFault::Refuse, mint);
        let proposal = Proposal {
            config: Arc::clone(config),
            needs_restart: Vec::new(),
            diff: None,
            denied: Vec::new(),
            material,
            now,
            mint,
            kept: None,
        };
        let plan = Plan::between(&services, proposal, inherited)?;
        let built = &plan.steps.snapshot.built;
        state.recall(&built.snapshot, &built.names, &built.sources.access);
        Ok(Self { services, plan, shared, cores, spans, orders, fetches })
    }

    /// Logs the warnings, becomes the configured user, and enters the sandbox of the file.
    ///
    /// # Errors
    /// The user cannot be switched, or a part of the sandbox that is required cannot be had.
    fn confine(
        &mut self,
        first: First<'_>,
        file: &Config,
        identity: Option<&process::UserIdentity>,
        helper: Option<Helper>,
        scope: Scope<'_>,
    ) -> Result<Confinement, Error> {
        let First { config, log, .. } = first;
        log_first_warnings(&self.plan, identity, log);
        if let Some(identity) = identity {
            privileges::assume(identity, config, &scope.source.origin)?;
            let further = access::files(config).into_iter().chain(contents::files(config));
            let unreadable = privileges::unreadable(config, &scope.source.origin, further);
            log_warnings(log, "privileges", &unreadable);
        }
        let confinement = sandbox::enter(file, helper, scope, identity, log)?;
        self.services.helped_by(confinement.helper.clone());
        Ok(confinement)
    }

    /// Starts the threads, and commits the plan: connections are accepted from then on.
    ///
    /// # Errors
    /// The access log cannot be opened, or a thread cannot be started.
    fn serve(
        self,
        first: First<'_>,
        state: &State,
        facts: Facts,
        store: Option<Box<dyn EventStore>>,
        runtime: &Runtime,
    ) -> Result<(Services, DataPlane), Error> {
        let Self { mut services, plan, shared, cores, spans, orders, fetches } = self;
        let figures = store.as_ref().map(|store| store.figures());
        services.store.store_in(store);
        let plane = DataPlane::start(Parts {
            config: first.config,
            cores: &cores,
            terminals: first.streams.terminals,
            shared,
            spans,
            build: facts.build,
            counted: Counted::of(
                figures,
                &orders,
                &fetches,
                facts.panics,
                services.senders.notify.registry(),
            ),
        })?;
        state.recall_clients(&plane.page.counters);
        state.recall_receivers(services.senders.notify.registry());
        if facts.is_heir {
            // The process before may be ordering certificates still.
            services.acme.hold();
            services.senders.notify.registry().inherit();
        }
        // Beside the sockets of the process before, which closes what is not wanted any more. Not earlier: clients wait in
        // the queues from now on, and what fails must fail before.
        runtime.block_on(commit(&mut services, &plane, plan.steps, Sockets::Close));
        state.rotate_in().into_iter().for_each(|left| services.tickets.rotate_within(left));
        Ok((services, plane))
    }
}

/// Logs the warnings of a start; `identity` is the user that the process becomes.
fn log_first_warnings(plan: &Plan, identity: Option<&process::UserIdentity>, log: &Log) {
    log_warnings(log, "certificate", &plan.steps.snapshot.built.warnings);
    let own = process::UserIdentity::current();
    log_warnings(log, "configuration", &servers::look_here(&plan.config, identity.unwrap_or(&own)));
    descriptors::tell(&plan.config, log);
}

/// The opener of the log store, if the configuration has one.
fn store_opener(config: &Config, opener: Option<OpenStore>) -> Result<OpenStore, Error> {
    match opener {
        _ if config.telemetry.log_store.url.is_none() => Ok(Box::new(|_, _| Ok(None))),
        Some(opener) => Ok(opener),
        None => Err(Error::one("this build has no log store; remove [log_store]")),
    }
}

/// Shows the memory again that an heir has hidden before it knew its configuration.
fn show_memory(from: &StartFrom) -> io::Result<()> {
    from.heir().map_or(Ok(()), Heir::show_memory)
}

/// Raises the limit of descriptors, and makes the event loop, which receives signals where they are wanted.
fn runtime(signals: bool, log: &Log) -> Result<(Runtime, Option<Signals>), Error> {
    descriptors::raise(log);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(LOOK_UPS).thread_name("offramp-dns");
    let runtime =
        builder.build().map_err(|error| Error::one(format!("cannot make the control loop: {error}")))?;
    let entered = runtime.enter();
    let signals = signals.then(Signals::listen).transpose();
    let signals = signals.map_err(|error| Error::one(format!("cannot listen to signals: {error}")))?;
    drop(entered);
    Ok((runtime, signals))
}

/// The faster AEAD library for each suite, with what was measured in GB/s.
fn choose_aeads(log: &Log) -> LibraryChoice {
    let begun = Instant::now();
    let (choice, measured) = measure(|| begun.elapsed());
    for pair in measured.chunks_exact(2) {
        let speed = |at: usize| format!("{:.2}", pair[at].bytes_per_second / 1e9);
        let (first, second) = (speed(0), speed(1));
        let chosen = choice.library(pair[0].suite).name();
        let fields = [
            ("suite", pair[0].suite.name().into()),
            ("chosen", chosen.into()),
            ("ring_gb_per_s", (&first).into()),
            ("aws_lc_rs_gb_per_s", (&second).into()),
        ];
        log.debug("AEAD", &fields);
    }
    choice
}
