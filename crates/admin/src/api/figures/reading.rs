//! One reading of all counters.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use offramp_control::View;
use offramp_observe::counters::{Direction, Totals};
use offramp_observe::facts::{Handshake, HttpVersion, TlsVersion};
use offramp_observe::process::thread_cpu_times;
use offramp_observe::series::{CODES, METHODS, SetTotals};
use offramp_observe::{Cause, DurationCounts, Fault};

use super::Between;

/// The age up to which a reading is as good as a new one.
const FRESH: Duration = Duration::from_millis(200);

/// The readings that streams share.
#[derive(Clone, Default)]
pub(crate) struct FigureSource(Arc<Mutex<Option<Arc<FigureReading>>>>);

impl FigureSource {
    /// A reading of now, or one of a moment ago.
    pub(super) fn read(&self, view: &View) -> Arc<FigureReading> {
        self.read_if(view, |latest| latest.instant.elapsed() < FRESH)
    }

    /// A reading that is at least `every` younger than `before`; a moment ago may be too early for that.
    pub(super) fn read_after(
        &self,
        before: &FigureReading,
        every: Duration,
        view: &View,
    ) -> Arc<FigureReading> {
        self.read_if(view, |latest| latest.instant >= before.instant + every)
    }

    /// The latest reading if it will do, or a new one.
    fn read_if(&self, view: &View, will_do: impl Fn(&FigureReading) -> bool) -> Arc<FigureReading> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some(reading) if will_do(reading) => Arc::clone(reading),
            _ => Arc::clone(latest.insert(Arc::new(FigureReading::of(view)))),
        }
    }
}

/// The counters at one moment.
pub(super) struct FigureReading {
    pub(super) at: SystemTime,
    pub(super) instant: Instant,
    pub(super) sums: Sums,
    /// Connections and requests that a fault has ended.
    pub(super) causes: BTreeMap<(CauseName, &'static str), u64>,
    pub(super) refusals: Vec<(&'static str, u64)>,
    pub(super) workers: Vec<WorkerReading>,
    /// By route, backend and server.
    pub(super) sets: Vec<SetTotals>,
    pub(super) clients: HashMap<String, ClientReading>,
}

/// The name of a cause.
pub(super) type CauseName = &'static str;

/// Sums over all workers.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) requests: u64,
    pub(super) requests_open: u64,
    pub(super) accepted: u64,
    pub(super) open: u64,
    pub(super) full: u64,
    pub(super) resumed: u64,
    pub(super) failed: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

pub(super) struct WorkerReading {
    pub(super) open: u64,
    pub(super) cpu: Option<Duration>,
}

/// The figures of one of the heaviest clients.
#[derive(Clone, Copy, Default)]
pub(super) struct ClientReading {
    pub(super) connections: u64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

impl FigureReading {
    fn of(view: &View) -> Self {
        let counters = &view.figures().counters;
        let totals = counters.totals();
        let mut cpu = thread_cpu_times();
        let workers = (0..counters.workers()).map(|worker| WorkerReading {
            open: counters.totals_of(worker).active(),
            // The name that `proxy` gives the thread of a worker.
            cpu: cpu.remove(&format!("offramp-{worker}")),
        });
        Self {
            at: SystemTime::now(),
            instant: Instant::now(),
            sums: Sums::of(&totals),
            causes: causes(&totals),
            refusals: view.limit_refusals(),
            workers: workers.collect(),
            sets: counters.sets(),
            clients: clients(view),
        }
    }

    /// The sets that `of` gives a key, added up by it.
    pub(super) fn by<'a, 'k>(
        &'a self,
        of: impl Fn(&'a SetTotals) -> Option<&'k str>,
    ) -> HashMap<&'k str, SetSums> {
        let mut sums: HashMap<&str, SetSums> = HashMap::new();
        for set in &self.sets {
            if let Some(key) = of(set) {
                sums.entry(key).or_default().add(set);
            }
        }
        sums
    }
}

/// Figures of some sets together.
#[derive(Clone, Debug, Default)]
pub(super) struct SetSums {
    pub(super) requests: u64,
    /// Responses with a status of 500 and more, and requests without a response.
    pub(super) errors: u64,
    pub(super) bytes_out: u64,
    pub(super) durations: DurationCounts,
}

impl SetSums {
    pub(super) fn add(&mut self, set: &SetTotals) {
        self.requests += set.all_requests();
        self.errors += with_code(set, "none") + with_code(set, "5xx");
        self.bytes_out += set.traffic().to_client;
        self.durations.add(&set.durations());
    }
}

/// The requests of a set whose response had a status of this class.
pub(super) fn with_code(set: &SetTotals, class: &str) -> u64 {
    let code = CODES.iter().position(|code| *code == class).unwrap_or(CODES.len());
    (0..METHODS.len()).map(|method| set.requests(method, code)).sum()
}

impl Between<'_> {
    /// The durations of the requests that ended between the readings.
    pub(super) fn durations(self) -> Option<DurationCounts> {
        let all = |reading: &FigureReading| {
            let mut sum = DurationCounts::default();
            reading.sets.iter().for_each(|set| sum.add(&set.durations()));
            sum
        };
        Some(all(self.now).since(&all(self.before?)))
    }
}

impl Sums {
    fn of(totals: &Totals) -> Self {
        let handshakes =
            |kind| TlsVersion::ALL.into_iter().map(|version| totals.handshakes(version, kind)).sum();
        Self {
            requests: HttpVersion::ALL.into_iter().map(|version| totals.requests(version)).sum(),
            requests_open: totals.requests_active(),
            accepted: totals.accepted(),
            open: totals.active(),
            full: handshakes(Handshake::Full),
            resumed: handshakes(Handshake::Resumed),
            failed: totals.handshakes_failed(),
            bytes_in: totals.bytes_relayed(Direction::ClientToServer),
            bytes_out: totals.bytes_relayed(Direction::ServerToClient),
        }
    }
}

fn causes(totals: &Totals) -> BTreeMap<(CauseName, &'static str), u64> {
    let faults = || Fault::ALL.into_iter().filter(|fault| *fault != Fault::Nobody);
    let ends = Cause::ALL.into_iter().flat_map(|cause| faults().map(move |fault| (cause, fault)));
    let counted = ends.map(|(cause, fault)| {
        let count = totals.closed(cause, fault) + totals.requests_ended(cause, fault);
        ((cause.name(), fault.name()), count)
    });
    counted.filter(|(_, count)| *count > 0).collect()
}

fn clients(view: &View) -> HashMap<String, ClientReading> {
    let totals = view.figures().counters.clients();
    let mut clients: HashMap<String, ClientReading> = HashMap::new();
    // Connections, requests, and bytes in both directions.
    for (figure, heaviest) in totals.heaviest.iter().enumerate() {
        for (client, count) in heaviest {
            let reading = clients.entry(client.show(totals.anonymized)).or_default();
            match figure {
                0 => reading.connections = *count,
                1 => reading.requests = *count,
                _ => reading.bytes += count,
            }
        }
    }
    clients
}
