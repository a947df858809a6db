//! The start, stage by stage. Sockets and keys come first, so that whoever waits is told at once. What can fail for reasons of the configuration fails together, before
//! anything is given away; the user is switched once, between the keys and the threads.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use offramp_config::Config;
use offramp_config::model::{Size, Workers};
use offramp_net::notify::Notifier;
use offramp_net::{Address, cores, process};
use offramp_observe::prometheus::Build;
use offramp_observe::{Counters, Exposition, Flusher, FlusherSettings, Log};
use offramp_proxy::credentials::Logins;
use offramp_proxy::{
    Admission, Challenges, ClientTable, Current, Demand, Held, Lateness, Pressure, Refusals, Shared,
    Snapshot, Worker,
};
use offramp_record::aead::Library;
use offramp_record::{Choice, measure};
use offramp_tls::TicketKeys;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::Receiver;

use super::given::Given;
use super::{Desk, Server, Start};
use crate::acme::{Acme, Orders, Seams, Want};
use crate::build::{Built, Inputs, build};
use crate::certificates::Sources;
use crate::connections::Closer;
use crate::descriptors;
use crate::error::{Error, Finding, none_or_refused};
use crate::event_store::OpenStore;
use crate::figures::{self, Counted, Reloads};
use crate::history::History;
use crate::inherited::Inherited;
use crate::jwks::{Fetchers, Fetches, fetch_new};
use crate::listeners::{self, Fresh, Listening, Opening, wanted};
use crate::metrics::{self, Endpoint};
use crate::outputs::{self, Terminals};
use crate::phases::Phases;
use crate::plan::{Plan, Wanted};
use crate::privileges;
use crate::push::{Pushers, Spans};
use crate::reload::{rotation, settle_servers};
use crate::resolve::{Names, Resolver};
use crate::running::{Crew, Ground, Running, Source, tell};
use crate::sandbox;
use crate::servers;
use crate::signals::Signals;
use crate::supervise;
use crate::upgrade::State;
use crate::upkeep::Calendar;
use crate::view::View;
use crate::watchdog;

/// Threads that may wait for DNS at once.
const LOOK_UPS: usize = 4;

pub(super) fn begin(start: Start) -> Result<Server, Error> {
    let Start { config, origin, environment, log, build, notify_socket, open_store, signals, .. } = start;
    let mut phases = Phases::since(Instant::now());
    let (journal, terminals, program) = (start.journal, start.terminals, start.program);
    let mut source = Source { origin, environment, journal, terminals, program, helper: None, grants: None };
    sandbox::hide_memory(&config, start.helper.as_ref(), start.heir.as_ref(), &log)?;
    let given = Given::take(config, start.heir, start.activated, (&source, &start.also), &log)?;
    let Given { config, file, unwritten, before, state, mut inherited } = given;
    let open_store = store_opener(&config, open_store)?;
    let identity = privileges::find(config.user.as_ref(), &source.origin, &log)?;
    descriptors::raise(&log);
    let runtime = runtime()?;
    let entered = runtime.enter();
    let signals = listen_to_signals(signals)?;
    phases.end("process_ms");
    let cores = Cores::of(&config);
    let mut ready = Ready::make(&config, cores.workers, &state, &mut inherited, &log)?;
    phases.end("sockets_and_keys_ms");
    if let Some(bound) = start.bound {
        bound(&ready.addresses());
    }
    let choice = choose_aeads(&log);
    phases.end("aeads_ms");
    ready.built.snapshot.choose(choice);
    tell(&log, "certificate", &ready.built.warnings);
    let who = identity.clone().unwrap_or_else(process::Identity::current);
    tell(&log, "configuration", &servers::look_here(&config, &who));
    if let Some(identity) = &identity {
        privileges::assume(identity, &config, &source.origin)?;
        tell(&log, "privileges", &privileges::unreadable(&config, &source.origin));
    }
    let file = file.as_ref().unwrap_or(&config);
    sandbox::enter(file, start.helper, &mut source, &start.also, identity.as_ref(), &log)?;
    phases.end("sandbox_ms");
    // From here on there are threads, which are restricted as this one is.
    let fetches = Arc::<Fetches>::default();
    runtime.block_on(async {
        let keys = fetch_new(ready.built.sources.access.providers(), &fetches, &log);
        tokio::join!(ready.built.names.look_up_new(&log), keys)
    });
    phases.end("names_ms");
    let Ready { built, tickets, plan, wanted, fresh, metrics } = ready;
    let Built { mut snapshot, store, sources, names, contents, wants, warnings } = built;
    let mut listening = Listening::default();
    listening.assign(&plan, &wanted, &fresh, &mut snapshot);
    settle_servers(&config, &snapshot);
    let generation = snapshot.generation;
    let events = open_store(&config, &log)?;
    phases.end("log_store_ms");
    let figures = events.as_ref().map(|store| store.figures());
    let orders = Arc::<Orders>::default();
    let counted = Counted::of(figures, &orders, &fetches, start.panics);
    let (crew, demanded) = crew(&config, source.terminals, &cores, snapshot, &log, (build, counted))?;
    let crew = Crew { store: events, ..crew };
    state.recall_clients(&crew.page.counters);
    crew.tap(&config);
    // Beside those of the process before, which closes what is not wanted any more. Not earlier: who comes waits here from
    // now on, and what fails must fail before.
    fresh.iter().for_each(|fresh| fresh.begin(&log));
    listening.serve(&plan, &wanted, fresh, &crew.workers);
    phases.end("workers_ms");
    let metrics = serve_metrics(metrics, &crew, &log)?;
    let pushers = Pushers::start(&config, &crew.page, &crew.spans, &log);
    let mut calendar = Calendar::new(rotation(&config), &store, &sources);
    state.rotate_in().into_iter().for_each(|left| calendar.rotate_within(left));
    let seams = Seams::of(&crew.shared, demanded, source.helper.clone());
    let acme = obtaining(Acme::new(&config, seams, orders, log.clone()), &config, &wants, before.is_some());
    let fetchers = fetching(fetches, &sources, &log);
    phases.end("outputs_ms");
    phases.tell(&log, "the start took");
    let notifier = || Notifier::new(notify_socket.as_deref());
    let watchdog = start.watchdog.map(|limit| watchdog::start(notifier(), limit, &crew.workers, &log));
    let config = Arc::new(config);
    let history = History::of(&config);
    let view = View::new(&config, &crew, &history, &source.origin);
    let closer = Closer::of(&view, &history, &log);
    let running = Running {
        config,
        source,
        notifier: notifier(),
        crew,
        listening,
        carried: Vec::new(),
        endings: Vec::new(),
        watchdog,
        metrics,
        pushers,
        resolver: Resolver::start(&names, &log),
        ground: Ground { choice, tickets, store, sources, names, contents, warnings, generation },
        acme,
        fetchers,
        history,
        confirmation: None,
        phases: RefCell::new(phases),
        unwritten,
        view,
        calendar,
        log,
    };
    running.publish();
    running.announce();
    drop(entered);
    let (desk, handle) = Desk::new(signals, closer);
    Ok(Server { runtime, running, desk, handle, inherited, before })
}

impl Running {
    /// Says where connections are accepted that were not `before`: the kernel may have picked a port.
    pub(crate) fn announce_listening(&self, before: &[(String, Address)]) {
        for (listener, address) in self.listening.addresses() {
            if !before.iter().any(|(_, known)| *known == address) {
                let fields = [("listener", (&listener).into()), ("address", (&address).into())];
                self.log.info("listening", &fields);
            }
        }
    }

    fn announce(&self) {
        self.announce_listening(&[]);
        if let Some(metrics) = &self.metrics {
            self.log.info("metrics", &[("address", metrics.address().into())]);
        }
        let fields = [
            ("version", self.crew.page.build.version.into()),
            ("workers", self.crew.workers.len().into()),
            ("certificates", self.ground.store.certificates().count().into()),
        ];
        self.log.info("started", &fields);
    }
}

/// What obtains certificates, told what is wanted; it waits where the process before may be obtaining them still.
fn obtaining(mut acme: Acme, config: &Config, wants: &[Want], waits: bool) -> Acme {
    if waits {
        acme.hold();
    }
    acme.configure(config);
    acme.follow(wants);
    acme
}

/// What keeps the keys of tokens fresh.
fn fetching(fetches: Arc<Fetches>, sources: &Sources, log: &Log) -> Fetchers {
    let mut fetchers = Fetchers::new(fetches, log.clone());
    fetchers.follow(sources.access.providers());
    fetchers
}

fn listen_to_signals(wanted: bool) -> Result<Option<Signals>, Error> {
    let signals = wanted.then(Signals::listen).transpose();
    signals.map_err(|error| Error::one(format!("cannot listen to signals: {error}")))
}

fn serve_metrics(opened: Option<metrics::Opened>, crew: &Crew, log: &Log) -> Result<Option<Endpoint>, Error> {
    let serve = |opened| Endpoint::serve(opened, crew.page.clone(), log);
    opened.map(serve).transpose().map_err(|error| Error::one(format!("cannot serve metrics: {error}")))
}

/// What opens the store, if the configuration has one.
fn store_opener(config: &Config, opener: Option<OpenStore>) -> Result<OpenStore, Error> {
    match opener {
        _ if config.log_store.url.is_none() => Ok(Box::new(|_, _| Ok(None))),
        Some(opener) => Ok(opener),
        None => Err(Error::one("this build has no log store; remove [log_store]")),
    }
}

fn runtime() -> Result<Runtime, Error> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(LOOK_UPS).thread_name("offramp-dns");
    builder.build().map_err(|error| Error::one(format!("cannot make the control loop: {error}")))
}

/// The faster AEAD library for each suite, with what was measured in GB/s.
fn choose_aeads(log: &Log) -> Choice {
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

/// How many workers there are, and on which cores.
struct Cores {
    workers: usize,
    /// One for each worker, or empty: workers are tied to cores only where each gets its own.
    pins: Vec<usize>,
}

impl Cores {
    fn of(config: &Config) -> Self {
        let usable = cores::usable();
        let workers = match config.workers {
            Workers::Auto => usable.len(),
            Workers::Count(count) => count.get().into(),
        };
        Self { workers, pins: if workers == usable.len() { usable } else { Vec::new() } }
    }
}

/// What the sockets and the keys are in.
struct Ready {
    built: Built,
    tickets: Arc<TicketKeys>,
    plan: Plan,
    wanted: Vec<Wanted>,
    fresh: Vec<Fresh>,
    metrics: Option<metrics::Opened>,
}

impl Ready {
    /// Binds what did not come from the process before, builds, and reports everything that fails.
    fn make(
        config: &Config,
        workers: usize,
        state: &State,
        inherited: &mut Inherited,
        log: &Log,
    ) -> Result<Self, Error> {
        let tickets = Arc::new(state.ticket_keys(config, log)?);
        let mut findings: Vec<Finding> = Vec::new();
        let (wanted, places) = wanted(config);
        let mut fresh = Vec::new();
        let sets = inherited.for_listeners(&wanted);
        for ((want, at), set) in wanted.iter().zip(&places).zip(sets) {
            let opening = match set {
                Some(set) => Opening::Inherited(set),
                None if inherited.overlaps(&want.address) => Opening::BesideOwn,
                None => Opening::Alone,
            };
            match listeners::open(want, at, workers, opening) {
                Ok(opened) => fresh.push(opened),
                Err(finding) => findings.push(finding),
            }
        }
        let open = |endpoint| metrics::open(endpoint, inherited);
        let metrics = config.metrics.endpoint.as_ref().map(open).transpose();
        let metrics = metrics.unwrap_or_else(|finding| {
            findings.push(finding);
            None
        });
        let now = SystemTime::now();
        let inputs = Inputs {
            now,
            generation: 1,
            // Until it is measured.
            choice: Choice::always(Library::AwsLc),
            tickets: &tickets,
            names: &Names::default(),
            backends: &[],
            bandwidths: &offramp_proxy::Bandwidths::new(),
            sources: &Sources::default(),
            contents: None,
            mint: true,
        };
        let built = build(config, &inputs);
        if let Err(error) = &built {
            findings.extend_from_slice(error.findings());
        }
        if !findings.is_empty() {
            fresh.iter().for_each(Fresh::abandon);
        }
        none_or_refused(findings)?;
        let plan = Plan { open: (0..wanted.len()).collect(), ..Plan::default() };
        let built = built?;
        state.recall(&built.snapshot, &built.names, &built.sources.access);
        Ok(Self { built, tickets, plan, wanted, fresh, metrics })
    }

    /// Where connections are waiting from now on.
    fn addresses(&self) -> Vec<(String, Address)> {
        self.fresh.iter().map(Fresh::address).collect()
    }
}

/// Spawns what looks at the memory of the process, and what logs refusals.
fn watch_limits(shared: &Shared, log: &Log) {
    let (pressure, task_log) = (Arc::clone(&shared.pressure), log.clone());
    supervise::spawn("memory", log, move || {
        let (pressure, task_log) = (Arc::clone(&pressure), task_log.clone());
        async move { pressure.watch(&task_log).await }
    });
    let refusals = Arc::clone(&shared.refusals);
    supervise::spawn("refusals", log, move || {
        let refusals = Arc::clone(&refusals);
        async move { refusals.write().await }
    });
}

/// Opens the access log and starts the threads. Gives the names, too, that clients ask for.
fn crew(
    config: &Config,
    terminals: Terminals,
    cores: &Cores,
    snapshot: Snapshot,
    log: &Log,
    (build, counted): (Build, Counted),
) -> Result<(Crew, Receiver<Box<str>>), Error> {
    let (output, style) = outputs::access_log(config, terminals)?;
    let settings = FlusherSettings::new(cores.workers, output, style, log.clone());
    let (flusher, senders) = Flusher::start(settings).map_err(|error| {
        Error::one(format!("access log: {error}; the user that Offramp runs as must be able to write it"))
    })?;
    let (counters, own) = Counters::new(cores.workers);
    let (demand, demanded) = Demand::new();
    let shared = Shared {
        current: Current::new(snapshot),
        admission: Admission::new(),
        clients: ClientTable::new(Instant::now()),
        held: Held::new(),
        pressure: Pressure::new(),
        late: Lateness::new(),
        refusals: Refusals::new(log.clone()),
        challenges: Challenges::none(),
        demand,
        logins: Logins::new(),
        log: log.clone(),
    };
    shared.refusals.show(outputs::shown_clients(config));
    shared.pressure.bound(config.limits.process_memory.map(Size::bytes));
    watch_limits(&shared, log);
    shared
        .late
        .watch(shared.current.clone(), log.clone(), Arc::clone(&shared.refusals))
        .map_err(|error| Error::one(format!("cannot start the thread that watches the workers: {error}")))?;
    let seed = RandomState::new().build_hasher().finish();
    let mut starting = Vec::with_capacity(cores.workers);
    let refused = |index, error| Error::one(format!("cannot start worker {index}: {error}"));
    for (index, (counters, events)) in own.into_iter().zip(senders).enumerate() {
        let core = cores.pins.get(index).copied();
        let worker = Worker::spawn(index, core, counters, events, shared.clone(), seed);
        starting.push(worker.map_err(|error| refused(index, error))?);
    }
    // All of them begin at once: cores where another process serves give each its turn late.
    let started = starting.into_iter().enumerate();
    let started = started.map(|(index, worker)| worker.started().map_err(|error| refused(index, error)));
    let workers = started.collect::<Result<Vec<_>, _>>()?;
    counters.watch_clients(metrics::clients(config));
    let spans = Spans::none_yet();
    let reloads = Reloads::new(SystemTime::now());
    let page = Exposition {
        events: Some(flusher.monitor()),
        sampler: Some(figures::sampler(shared.clone(), spans.clone(), Arc::clone(&reloads), counted)),
        ..Exposition::new(counters, build)
    };
    Ok((Crew { workers, shared, flusher, page, spans, reloads, store: None }, demanded))
}
