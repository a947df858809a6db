//! Counts of requests and connections by destination: route, backend and server.
//!
//! Each set of these three labels has cells in every worker that uses it. The worker is their only writer,
//! with a plain load and store as in [`counters`](crate::counters), and finds them by the addresses of the
//! names, which it keeps alive for that purpose: a request compares, hashes and copies no text. Locks are
//! taken when a worker sees a set for the first time, and by readers, which lock only the list of a worker's
//! sets.
//!
//! The number of sets over all workers is bounded by [`MOST_SETS`]; later ones are counted together as
//! [`OTHER`]. Names come from the configuration, so only many reloads reach the bound.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::facts::{ByteCounts, PathFacts, RequestFacts};
use crate::histogram::{self, DurationCounts};

/// The maximum number of label sets. Each takes some 800 bytes per worker and up to 60 lines of the page.
pub const MOST_SETS: usize = 1000;
/// The name of route, backend and server in the set for everything beyond [`MOST_SETS`].
pub const OTHER: &str = "other";

/// The destination of a request or connection. An empty text means none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels {
    /// The name of the matching route.
    pub route: Arc<str>,
    /// The backend of the route.
    pub backend: Arc<str>,
    /// The server that answered, or was tried last.
    pub server: Arc<str>,
}

impl Labels {
    fn of(path: &PathFacts) -> Self {
        let text = |name: &Option<Arc<str>>| name.clone().unwrap_or_default();
        Self { route: text(&path.route), backend: text(&path.backend), server: text(&path.server) }
    }

    fn other() -> Self {
        Self { route: OTHER.into(), backend: OTHER.into(), server: OTHER.into() }
    }
}

/// Methods with a count of their own; the last stands for all others.
pub const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "other"];

/// Classes of status codes; the first is for requests without a response.
pub const CODES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

fn method_index(method: &str) -> usize {
    match method.as_bytes() {
        b"GET" => 0,
        b"HEAD" => 1,
        b"POST" => 2,
        b"PUT" => 3,
        b"DELETE" => 4,
        b"PATCH" => 5,
        b"OPTIONS" => 6,
        _ => 7,
    }
}

const fn code_index(status: u16) -> usize {
    match status {
        100..=599 => (status / 100) as usize,
        _ => 0,
    }
}

/// The cells of one set in one worker.
#[repr(align(128))]
struct Cells([AtomicU64; CELLS]);

#[derive(Debug)]
struct LabelSet {
    labels: Labels,
    cells: Cells,
}

impl std::fmt::Debug for Cells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cells").finish_non_exhaustive()
    }
}

impl LabelSet {
    fn new(labels: Labels) -> Arc<Self> {
        Arc::new(Self { labels, cells: Cells(std::array::from_fn(|_| AtomicU64::new(0))) })
    }

    fn add(&self, cell: usize, amount: u64) {
        let cell = &self.cells.0[cell];
        // The worker that made the set is the only writer.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    fn observe(&self, first: usize, took: Duration) {
        self.add(first + histogram::bucket(took), 1);
        self.add(first + histogram::SUM, histogram::micros(took));
    }

    fn moved(&self, traffic: ByteCounts) {
        // Most requests have no body.
        if traffic.from_client > 0 {
            self.add(FROM_CLIENT, traffic.from_client);
        }
        self.add(TO_CLIENT, traffic.to_client);
    }

    fn request(&self, facts: &RequestFacts) {
        let method = method_index(&facts.request.method);
        self.add(REQUESTS + method * CODES.len() + code_index(facts.status), 1);
        self.moved(facts.traffic);
        let tries = u64::from(facts.path.tries);
        self.add(TRIES, tries);
        if tries > 1 {
            self.add(RETRIES, tries - 1);
        }
        if let Some(queue) = facts.times.queue {
            self.add(QUEUE, histogram::micros(queue));
        }
        self.observe(DURATION, facts.times.total);
        if let Some(first_byte) = facts.times.first_byte {
            self.observe(FIRST_BYTE, first_byte);
        }
    }
}

/// The sets of all workers: the reader's side.
#[derive(Debug)]
pub(crate) struct Series {
    register: Mutex<HashSet<Labels>>,
    workers: Box<[Mutex<Vec<Arc<LabelSet>>>]>,
}

impl Series {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let workers = (0..workers).map(|_| Mutex::default()).collect();
        Arc::new(Self { register: Mutex::default(), workers })
    }

    /// Sums over all workers, ordered by labels.
    pub(crate) fn read(&self) -> Vec<SetTotals> {
        let mut sums: BTreeMap<Labels, Box<[u64; CELLS]>> = BTreeMap::new();
        for sets in &self.workers {
            let sets = sets.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for set in sets {
                let sum = sums.entry(set.labels.clone()).or_insert_with(|| Box::new([0; CELLS]));
                for (sum, cell) in sum.iter_mut().zip(&set.cells.0) {
                    *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
                }
            }
        }
        sums.into_iter().map(|(labels, cells)| SetTotals { labels, cells }).collect()
    }

    /// Returns these labels if they are known or there is room for them, else [`OTHER`].
    fn admit(&self, labels: Labels) -> Labels {
        let mut register = self.register.lock().unwrap_or_else(PoisonError::into_inner);
        if register.contains(&labels) {
            return labels;
        }
        if register.len() >= MOST_SETS {
            return Labels::other();
        }
        register.insert(labels.clone());
        labels
    }
}

/// The counting side of one worker.
#[derive(Debug)]
pub(crate) struct WorkerSeries {
    series: Arc<Series>,
    worker: usize,
    known: RefCell<KnownSets>,
}

/// The sets that a worker knows.
#[derive(Debug, Default)]
struct KnownSets {
    by_name: HashMap<Labels, Arc<LabelSet>>,
    by_address: HashMap<NamePointers, (Arc<LabelSet>, Kept), RandomState>,
}

/// Keeps names alive, so that their addresses are not reused.
type Kept = [Option<Arc<str>>; 3];

/// The addresses of the three names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamePointers([u64; 3]);

impl NamePointers {
    fn of(path: &PathFacts) -> Self {
        let address = |name: &Option<Arc<str>>| name.as_ref().map_or(0, |name| name.as_ptr() as u64);
        Self([address(&path.route), address(&path.backend), address(&path.server)])
    }
}

impl Hash for NamePointers {
    /// Hashes one word, which is quicker than three. Addresses have 48 bits.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [route, backend, server] = self.0;
        state.write_u64(route ^ backend.rotate_left(16) ^ server.rotate_left(32));
    }
}

impl WorkerSeries {
    pub(crate) fn new(series: Arc<Series>, worker: usize) -> Self {
        Self { series, worker, known: RefCell::default() }
    }

    pub(crate) fn request_ended(&self, facts: &RequestFacts) {
        self.with(&facts.path, |set| set.request(facts));
    }

    pub(crate) fn connection_ended(&self, path: &PathFacts, traffic: ByteCounts) {
        self.with(path, |set| {
            set.add(CONNECTIONS, 1);
            set.moved(traffic);
        });
    }

    fn with(&self, path: &PathFacts, count: impl FnOnce(&LabelSet)) {
        let mut known = self.known.borrow_mut();
        let addresses = NamePointers::of(path);
        match known.by_address.get(&addresses) {
            Some((set, _)) => count(set),
            None => count(&self.learn(&mut known, addresses, path)),
        }
    }

    #[cold]
    fn learn(&self, known: &mut KnownSets, addresses: NamePointers, path: &PathFacts) -> Arc<LabelSet> {
        let labels = Labels::of(path);
        let set = known.by_name.get(&labels).cloned().unwrap_or_else(|| {
            let admitted = self.series.admit(labels);
            let set = known.by_name.entry(admitted).or_insert_with_key(|labels| {
                let set = LabelSet::new(labels.clone());
                let mut sets =
                    self.series.workers[self.worker].lock().unwrap_or_else(PoisonError::into_inner);
                sets.push(Arc::clone(&set));
                set
            });
            Arc::clone(set)
        });
        if known.by_address.len() >= MOST_ADDRESSES {
            known.by_address.clear();
        }
        let kept = [path.route.clone(), path.backend.clone(), path.server.clone()];
        known.by_address.insert(addresses, (Arc::clone(&set), kept));
        set
    }
}

/// The number of address triples cached per worker, those of past configurations included; beyond it the
/// cache is cleared.
const MOST_ADDRESSES: usize = 2 * MOST_SETS;

/// Counts of one set of labels, summed over all workers.
#[derive(Clone, Debug)]
pub struct SetTotals {
    /// The destination that these counts are for.
    pub labels: Labels,
    cells: Box<[u64; CELLS]>,
}

impl SetTotals {
    /// Requests by index into [`METHODS`] and [`CODES`]; zero for other indexes.
    #[must_use]
    pub fn requests(&self, method: usize, code: usize) -> u64 {
        if method < METHODS.len() && code < CODES.len() {
            self.cells[REQUESTS + method * CODES.len() + code]
        } else {
            0
        }
    }

    /// Requests of every method and status.
    #[must_use]
    pub fn all_requests(&self) -> u64 {
        self.cells[REQUESTS..REQUESTS + METHODS.len() * CODES.len()].iter().sum()
    }

    /// Closed connections of `tcp` listeners.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.cells[CONNECTIONS]
    }

    /// Bytes of relayed connections, and of the bodies of requests and responses.
    #[must_use]
    pub fn traffic(&self) -> ByteCounts {
        ByteCounts { from_client: self.cells[FROM_CLIENT], to_client: self.cells[TO_CLIENT] }
    }

    /// Attempts to reach a server for a request.
    #[must_use]
    pub fn tries(&self) -> u64 {
        self.cells[TRIES]
    }

    /// Attempts beyond the first of each request.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.cells[RETRIES]
    }

    /// Total time that requests were queued for a server, in microseconds.
    #[must_use]
    pub fn queue_micros(&self) -> u64 {
        self.cells[QUEUE]
    }

    /// The durations of finished requests.
    #[must_use]
    pub fn durations(&self) -> DurationCounts {
        DurationCounts::of(self.duration())
    }

    /// The cells of request durations; see [`histogram`].
    pub(crate) fn duration(&self) -> &[u64] {
        &self.cells[DURATION..DURATION + histogram::CELLS]
    }

    /// The cells of times to the first byte; see [`histogram`].
    pub(crate) fn first_byte(&self) -> &[u64] {
        &self.cells[FIRST_BYTE..FIRST_BYTE + histogram::CELLS]
    }
}

// The layout of a set: the first cell of each figure.
const FROM_CLIENT: usize = 0;
const TO_CLIENT: usize = FROM_CLIENT + 1;
const TRIES: usize = TO_CLIENT + 1;
const RETRIES: usize = TRIES + 1;
const QUEUE: usize = RETRIES + 1;
const CONNECTIONS: usize = QUEUE + 1;
const DURATION: usize = CONNECTIONS + 1;
const FIRST_BYTE: usize = DURATION + histogram::CELLS;
const REQUESTS: usize = FIRST_BYTE + histogram::CELLS;
const CELLS: usize = REQUESTS + METHODS.len() * CODES.len();

#[cfg(test)]
mod tests {
    use super::{Labels, MOST_SETS, OTHER, Series, WorkerSeries, code_index, method_index};
    use crate::facts::{ByteCounts, PathFacts};
    use std::sync::Arc;

    fn path(route: &str) -> PathFacts {
        let name = |text: &str| Some(Arc::from(text));
        PathFacts { route: name(route), backend: name("b"), server: name("s"), tries: 1 }
    }

    const MOVED: ByteCounts = ByteCounts { from_client: 1, to_client: 2 };

    #[test]
    fn the_same_names_are_one_set_wherever_they_lie() {
        let series = Series::new(2);
        let workers = [0, 1].map(|index| WorkerSeries::new(Arc::clone(&series), index));
        let first = path("r");
        for worker in &workers {
            worker.connection_ended(&first, MOVED);
            worker.connection_ended(&path("r"), MOVED);
        }
        workers[0].connection_ended(&PathFacts::default(), MOVED);
        let sums = series.read();
        assert_eq!(sums.len(), 2);
        assert_eq!((&*sums[0].labels.route, sums[0].connections()), ("", 1));
        assert_eq!((&*sums[1].labels.route, sums[1].connections()), ("r", 4));
        assert_eq!(sums[1].traffic(), ByteCounts { from_client: 4, to_client: 8 });
    }

    #[test]
    fn what_is_too_much_is_counted_together() {
        let series = Series::new(2);
        let workers = [0, 1].map(|index| WorkerSeries::new(Arc::clone(&series), index));
        for number in 0..2 * MOST_SETS + 100 {
            workers[number % 2].connection_ended(&path(&number.to_string()), MOVED);
        }
        // Sets that were admitted keep their cells.
        workers[1].connection_ended(&path("0"), MOVED);
        let sums = series.read();
        assert_eq!(sums.len(), MOST_SETS + 1);
        let of = |route: &str| sums.iter().find(|set| &*set.labels.route == route).unwrap();
        assert_eq!(of("0").connections(), 2);
        assert_eq!(of(OTHER).connections(), MOST_SETS as u64 + 100);
        assert_eq!(of(OTHER).labels, Labels::other());
        let known = workers[0].known.borrow();
        assert!(known.by_address.len() <= super::MOST_ADDRESSES && known.by_name.len() <= MOST_SETS + 1);
    }

    #[test]
    fn methods_and_codes_have_their_places() {
        for (index, method) in super::METHODS.iter().enumerate() {
            assert_eq!(method_index(method), index);
        }
        assert_eq!(method_index("get"), 7);
        let codes = [0, 99, 100, 204, 304, 404, 599, 600].map(|status| super::CODES[code_index(status)]);
        assert_eq!(codes, ["none", "none", "1xx", "2xx", "3xx", "4xx", "5xx", "none"]);
    }
}
