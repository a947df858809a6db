//! The worker threads, and what they share with the control thread.

use std::collections::hash_map::RandomState;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Instant, SystemTime};

use offramp_config::Config;
use offramp_config::model::Workers;
use offramp_net::cores;
use offramp_observe::prometheus::Build;
use offramp_observe::{Counters, Exposition, Flusher, FlusherSettings, Log};
use offramp_process::{Error, supervise};
use offramp_proxy::credentials::Logins;
use offramp_proxy::{
    Challenges, ClientTable, ConnectionLimit, Current, Demand, Lateness, Pressure, Refusals, SharedResources,
    Snapshot, StreamMemory, Worker, WorkerHandle,
};
use tokio::sync::mpsc::Receiver;

use crate::figures::{self, Counted, Reloads};
use crate::metrics;
use crate::outputs::{self, Terminals};
use crate::push::Spans;

/// The worker threads, and what they share with the control thread.
pub(crate) struct DataPlane {
    pub(crate) workers: Vec<WorkerHandle>,
    pub(crate) shared: SharedResources,
    /// Writes the events of the workers.
    pub(crate) flusher: Flusher,
    /// Every figure of the process.
    pub(crate) page: Exposition,
    pub(crate) spans: Spans,
    pub(crate) reloads: Arc<Reloads>,
}

/// The number of workers, and their cores.
pub(crate) struct Cores {
    pub(crate) workers: usize,
    /// A core for each worker, or none: workers are tied to cores only where each gets its own.
    pins: Vec<usize>,
}

impl Cores {
    pub(crate) fn of(config: &Config) -> Self {
        let usable = cores::usable();
        let workers = match config.process.workers {
            Workers::Auto => usable.len(),
            Workers::Count(count) => count.get().into(),
        };
        Self { workers, pins: if workers == usable.len() { usable } else { Vec::new() } }
    }
}

/// Makes what workers share, with a snapshot that serves nothing. Starts no thread. Gives the names, too, that clients
/// ask for.
pub(crate) fn share(nothing: Snapshot, log: &Log) -> (SharedResources, Receiver<Box<str>>) {
    let (demand, demanded) = Demand::new();
    let shared = SharedResources {
        current: Current::new(nothing),
        admission: ConnectionLimit::new(),
        clients: ClientTable::new(Instant::now()),
        held: StreamMemory::new(),
        pressure: Pressure::new(),
        late: Lateness::new(),
        refusals: Refusals::new(log.clone()),
        challenges: Challenges::none(),
        demand,
        logins: Logins::new(),
        log: log.clone(),
    };
    (shared, demanded)
}

/// The parts that the data plane is started with.
pub(crate) struct Parts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) cores: &'a Cores,
    pub(crate) terminals: Terminals,
    pub(crate) shared: SharedResources,
    pub(crate) spans: Spans,
    /// The program, for the metrics.
    pub(crate) build: Build,
    /// The figures that no worker counts.
    pub(crate) counted: Counted,
}

impl DataPlane {
    /// Opens the access log and starts the threads. To be called within the runtime.
    ///
    /// # Errors
    /// The access log cannot be opened, or a thread cannot be started.
    pub(crate) fn start(parts: Parts<'_>) -> Result<Self, Error> {
        let Parts { config, cores, terminals, shared, spans, build, counted } = parts;
        let log = shared.log.clone();
        let (output, style) = outputs::access_log(&config.into(), terminals)?;
        let settings = FlusherSettings::new(cores.workers, output, style, log.clone());
        let (flusher, senders) = Flusher::start(settings).map_err(|error| {
            Error::one(format!("access log: {error}; the user that Offramp runs as must be able to write it"))
        })?;
        let (counters, own) = Counters::new(cores.workers);
        counters.watch_clients(metrics::clients(config));
        watch_limits(&shared, &log);
        shared.late.watch(shared.current.clone(), log.clone(), Arc::clone(&shared.refusals)).map_err(
            |error| Error::one(format!("cannot start the thread that watches the workers: {error}")),
        )?;
        let seed = RandomState::new().build_hasher().finish();
        let mut starting = Vec::with_capacity(cores.workers);
        let refused = |index, error| Error::one(format!("cannot start worker {index}: {error}"));
        for (index, (counters, events)) in own.into_iter().zip(senders).enumerate() {
            let core = cores.pins.get(index).copied();
            let worker = Worker { index, core, counters, events, shared: shared.clone(), seed }.spawn();
            starting.push(worker.map_err(|error| refused(index, error))?);
        }
        // All of them begin at once: cores where another process serves give each its turn late.
        let started = starting.into_iter().enumerate();
        let started = started.map(|(index, worker)| worker.started().map_err(|error| refused(index, error)));
        let workers = started.collect::<Result<Vec<_>, _>>()?;
        let reloads = Reloads::new(SystemTime::now());
        let sampler = figures::sampler(shared.clone(), spans.clone(), Arc::clone(&reloads), counted);
        let page = Exposition {
            events: Some(flusher.monitor()),
            sampler: Some(sampler),
            ..Exposition::new(counters, build)
        };
        Ok(Self { workers, shared, flusher, page, spans, reloads })
    }

    /// Waits until the thread of a worker has ended without an order to stop.
    pub(crate) async fn worker_lost(&mut self) {
        let mut waiting: Vec<_> = self.workers.iter_mut().map(|worker| Box::pin(worker.ended())).collect();
        poll_fn(|cx| {
            let ended = waiting.iter_mut().any(|worker| worker.as_mut().poll(cx).is_ready());
            if ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Spawns what looks at the memory of the process, and what logs refusals.
fn watch_limits(shared: &SharedResources, log: &Log) {
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
