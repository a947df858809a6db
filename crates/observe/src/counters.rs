//! Per-worker counters: written only by their worker, read by anyone, summed by the reader.
//!
//! What has a fixed place is here: connections, handshakes, records, requests. What is counted by route,
//! backend and server is in [`series`](crate::series), what is counted by client in
//! [`clients`](crate::clients); a worker reaches all three through its [`WorkerCounters`].
//!
//! Each worker owns a block of cells on cache lines of its own. A cell is an atomic only so that others may
//! read it; its worker adds with a plain load and store, because nobody else writes. There is no lock, no
//! read-modify-write instruction and no cache line shared between workers on the data path.
//!
//! The sums are consistent cell by cell, not across cells: a reader may see a connection closed whose accept
//! it does not see yet. Whatever is derived from two cells allows for that.

mod totals;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub use totals::{Histogram, Totals};

use crate::clients::{ClientSettings, ClientTotals, Clients, KnownClients, WorkerClients};
use crate::facts::{Cause, ConnectionFacts, Fault, Handshake, HttpVersion, RequestFacts, TlsVersion};
use crate::series::{Series, SetTotals, WorkerSeries};

/// The reader's side: sums what all workers counted. Cheap to clone.
#[derive(Clone)]
pub struct Counters {
    workers: Arc<[Arc<Block>]>,
    series: Arc<Series>,
    clients: Arc<Clients>,
    began: SystemTime,
}

impl Counters {
    /// Counters for `workers` workers, and each worker's own side.
    #[must_use]
    pub fn new(workers: usize) -> (Self, Vec<WorkerCounters>) {
        let blocks: Arc<[Arc<Block>]> = (0..workers).map(|_| Arc::new(Block::new())).collect();
        let (series, clients) = (Series::new(workers), Clients::new(workers));
        let own = blocks.iter().enumerate().map(|(index, block)| WorkerCounters {
            block: block.clone(),
            series: WorkerSeries::new(Arc::clone(&series), index),
            clients: WorkerClients::new(Arc::clone(&clients), index),
            not_sync: PhantomData,
        });
        let own = own.collect();
        (Self { workers: blocks, series, clients, began: SystemTime::now() }, own)
    }

    /// Since when everything is counted.
    #[must_use]
    pub const fn began(&self) -> SystemTime {
        self.began
    }

    /// Keeps the heaviest clients in another way; if it differs, their counts restart.
    pub fn watch_clients(&self, settings: ClientSettings) {
        self.clients.set(settings);
    }

    /// What is counted by route, backend and server, in the order of their names.
    #[must_use]
    pub fn sets(&self) -> Vec<SetTotals> {
        self.series.read()
    }

    /// What is counted by client.
    #[must_use]
    pub fn clients(&self) -> ClientTotals {
        self.clients.read()
    }

    /// The heaviest clients, for the process that takes the place of this one.
    #[must_use]
    pub fn known_clients(&self) -> KnownClients {
        self.clients.known()
    }

    /// Goes on with those of the process before, if they fit what is kept here. To be called before anybody counts.
    pub fn recall_clients(&self, known: &KnownClients) {
        self.clients.recall(known);
    }

    /// How many workers there are.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// What one worker counted so far; nothing, where there is none of that number.
    #[must_use]
    pub fn totals_of(&self, worker: usize) -> Totals {
        let block = self.workers.get(worker);
        let cell = |at: usize| block.map_or(0, |block| block.0[at].load(Ordering::Relaxed));
        Totals::new(std::array::from_fn(cell))
    }

    /// What all workers counted so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut cells = [0_u64; CELLS];
        for block in self.workers.iter() {
            for (sum, cell) in cells.iter_mut().zip(&block.0) {
                *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
            }
        }
        Totals::new(cells)
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

/// One worker's side. It is neither `Clone` nor `Sync`, because its cells have one writer; a worker shares it
/// among its connections by reference or `Rc`.
pub struct WorkerCounters {
    block: Arc<Block>,
    series: WorkerSeries,
    clients: WorkerClients,
    not_sync: PhantomData<std::cell::Cell<()>>,
}

impl WorkerCounters {
    /// A connection was accepted. Each one ends in [`connection_ended`](Self::connection_ended).
    pub fn connection_accepted(&self) {
        self.add(ACCEPTED, 1);
    }

    /// A connection ended. Its traffic is what no request tells: that of a `tcp` listener, or none.
    pub fn connection_ended(&self, facts: &ConnectionFacts) {
        self.add(by_end(CLOSED, facts.close.cause, facts.close.fault), 1);
        self.observe(CONNECTION_TIME, &CONNECTION_BOUNDS, facts.times.total);
        if facts.path.route.is_some() {
            self.series.connection_ended(&facts.path, facts.traffic);
        }
        self.clients.connection_ended(facts);
    }

    /// A connection of an `http` listener begins to speak this version.
    pub fn http_connection(&self, version: HttpVersion) {
        self.add(HTTP_CONNECTIONS + version as usize, 1);
    }

    /// The head of a request was read. Each request ends in [`request_ended`](Self::request_ended).
    pub fn request_begun(&self) {
        self.add(REQUESTS_BEGUN, 1);
    }

    /// A request ended, in whatever way.
    pub fn request_ended(&self, facts: &RequestFacts) {
        self.add(by_end(REQUESTS_ENDED, facts.close.cause, facts.close.fault), 1);
        self.add(REQUESTS_BY_VERSION + facts.request.version as usize, 1);
        self.series.request_ended(facts);
        self.clients.request_ended(&facts.client(), facts.traffic);
    }

    /// A handshake was completed, `took` after its first byte.
    pub fn handshake_done(&self, version: TlsVersion, kind: Handshake, took: Duration) {
        self.add(handshake_cell(version, kind), 1);
        self.observe(HANDSHAKE_TIME, &HANDSHAKE_BOUNDS, took);
    }

    /// A handshake was begun and not completed.
    pub fn handshake_failed(&self) {
        self.add(HANDSHAKES_FAILED, 1);
    }

    /// `bytes` of plaintext went one way.
    pub fn bytes_relayed(&self, direction: Direction, bytes: u64) {
        self.add(BYTES + direction as usize, bytes);
    }

    /// `records` of application data were opened (client to server) or sealed (server to client).
    pub fn records(&self, direction: Direction, records: u64) {
        self.add(RECORDS + direction as usize, records);
    }

    /// A key update was received (client to server) or sent (server to client).
    pub fn key_update(&self, direction: Direction) {
        self.add(KEY_UPDATES + direction as usize, 1);
    }

    /// The worker stopped accepting for a while.
    pub fn accept_paused(&self, reason: PauseReason) {
        self.add(ACCEPT_PAUSES + reason as usize, 1);
    }

    /// A relayed connection has its turn.
    pub fn turn(&self) {
        self.add(TURNS, 1);
    }

    /// A connection let others go first, though it had more to do.
    pub fn yielded(&self) {
        self.add(YIELDS, 1);
    }

    /// A connection to a server was attempted.
    pub fn connect_attempted(&self) {
        self.add(CONNECT_ATTEMPTS, 1);
    }

    /// An attempt to connect to a server failed or timed out.
    pub fn connect_failed(&self) {
        self.add(CONNECT_FAILURES, 1);
    }

    /// A response was compressed, or was not for want of memory.
    pub fn compression(&self, compression: Compression) {
        self.add(COMPRESSIONS + compression as usize, 1);
    }

    /// A request of a route with a mirror was copied, or was not.
    pub fn mirrored(&self, mirrored: Mirrored) {
        self.add(MIRRORED + mirrored as usize, 1);
    }

    fn observe<const N: usize>(&self, first: usize, bounds: &[u64; N], took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = bounds.iter().position(|&bound| micros <= bound).unwrap_or(N);
        self.add(first + bucket, 1);
        self.add(first + N + 1, micros);
    }

    fn add(&self, cell: usize, amount: u64) {
        let cell = &self.block.0[cell];
        // No other thread stores here, so nothing is lost between the load and the store.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

impl fmt::Debug for WorkerCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCounters").finish_non_exhaustive()
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received, opened, and written to the server.
    ClientToServer,
    /// Read from the server, sealed, and sent.
    ServerToClient,
}

impl Direction {
    /// Both directions, in the order of the discriminants.
    pub const ALL: [Self; 2] = [Self::ClientToServer, Self::ServerToClient];
}

/// Why a worker stopped accepting for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// No file descriptor was left (`EMFILE`, `ENFILE`).
    Descriptors,
    /// No memory was left (`ENOMEM`, `ENOBUFS`).
    Memory,
    /// The limit of connections was reached.
    Connections,
    /// The kernel denied it (`EPERM`, `EACCES`, `EOPNOTSUPP`): a security module or a seccomp filter.
    Denied,
    /// The process holds as much memory as it may.
    ProcessMemory,
}

impl PauseReason {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Self; 5] =
        [Self::Descriptors, Self::Memory, Self::Connections, Self::Denied, Self::ProcessMemory];

    /// The stable name, in `snake_case`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Memory => "memory",
            Self::Connections => "connections",
            Self::Denied => "denied",
            Self::ProcessMemory => "process_memory",
        }
    }
}

/// The coding that a response got that gains by one, and whose client wants one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Zstandard (RFC 8878).
    Zstd,
    /// Brotli (RFC 7932).
    Brotli,
    /// gzip (RFC 1952).
    Gzip,
    /// None: the memory of all encoders of the worker was in use.
    None,
}

impl Compression {
    /// Every one, in the order of the discriminants.
    pub const ALL: [Self; 4] = [Self::Zstd, Self::Brotli, Self::Gzip, Self::None];

    /// The stable name, as in `Content-Encoding`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
            Self::None => "none",
        }
    }
}

/// What became of a request that was to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirrored {
    /// The copy was answered, however.
    Answered,
    /// No server answered the copy.
    Failed,
    /// There were too many copies under way.
    Busy,
    /// The body was too large.
    TooLarge,
    /// The request did not come whole, or its server did not want all of it.
    Incomplete,
}

impl Mirrored {
    /// Every one, in the order of the discriminants.
    pub const ALL: [Self; 5] = [Self::Answered, Self::Failed, Self::Busy, Self::TooLarge, Self::Incomplete];

    /// The stable name, in `snake_case`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Busy => "busy",
            Self::TooLarge => "too_large",
            Self::Incomplete => "incomplete",
        }
    }
}

/// One worker's cells. 128 bytes: two cache lines, because CPUs prefetch lines in pairs.
#[repr(align(128))]
struct Block([AtomicU64; CELLS]);

impl Block {
    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

const fn by_end(first: usize, cause: Cause, fault: Fault) -> usize {
    first + cause as usize * Fault::ALL.len() + fault as usize
}

const fn handshake_cell(version: TlsVersion, kind: Handshake) -> usize {
    HANDSHAKES + version as usize * Handshake::ALL.len() + kind as usize
}

/// Upper bounds in microseconds, 100 µs to 10 s. A full handshake costs some 250 µs of CPU; what is above a
/// second is a client or a network in trouble.
const HANDSHAKE_BOUNDS: [u64; BOUNDS] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];
/// Upper bounds in microseconds, 1 ms to one day: from a refused handshake to a database session.
const CONNECTION_BOUNDS: [u64; BOUNDS] = [
    1_000,
    5_000,
    10_000,
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    3_600_000_000,
    21_600_000_000,
    86_400_000_000,
];
const BOUNDS: usize = 16;
const HISTOGRAM_CELLS: usize = BOUNDS + 2;

// The layout of a block: the first cell of each counter. What every relayed batch touches comes first, on
// the first line.
const BYTES: usize = 0;
const RECORDS: usize = BYTES + Direction::ALL.len();
const KEY_UPDATES: usize = RECORDS + Direction::ALL.len();
const ACCEPTED: usize = KEY_UPDATES + Direction::ALL.len();
const HANDSHAKES: usize = ACCEPTED + 1;
const HANDSHAKES_FAILED: usize = HANDSHAKES + TlsVersion::ALL.len() * Handshake::ALL.len();
const CONNECT_ATTEMPTS: usize = HANDSHAKES_FAILED + 1;
const CONNECT_FAILURES: usize = CONNECT_ATTEMPTS + 1;
const TURNS: usize = CONNECT_FAILURES + 1;
const YIELDS: usize = TURNS + 1;
const ACCEPT_PAUSES: usize = YIELDS + 1;
const HANDSHAKE_TIME: usize = ACCEPT_PAUSES + PauseReason::ALL.len();
const CONNECTION_TIME: usize = HANDSHAKE_TIME + HISTOGRAM_CELLS;
const CLOSED: usize = CONNECTION_TIME + HISTOGRAM_CELLS;
const END_CELLS: usize = Cause::COUNT * Fault::ALL.len();
const HTTP_CONNECTIONS: usize = CLOSED + END_CELLS;
const REQUESTS_BEGUN: usize = HTTP_CONNECTIONS + HttpVersion::ALL.len();
const REQUESTS_BY_VERSION: usize = REQUESTS_BEGUN + 1;
const REQUESTS_ENDED: usize = REQUESTS_BY_VERSION + HttpVersion::ALL.len();
const COMPRESSIONS: usize = REQUESTS_ENDED + END_CELLS;
const MIRRORED: usize = COMPRESSIONS + Compression::ALL.len();
const CELLS: usize = MIRRORED + Mirrored::ALL.len();

#[cfg(test)]
mod tests {
    use super::{
        Compression, Counters, Direction, Handshake, HttpVersion, Mirrored, PauseReason, TlsVersion,
    };
    use crate::facts::{
        Cause, Close, ConnectionBrief, ConnectionFacts, Fault, IdSource, RequestFacts, RequestLine, Scheme,
    };
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    fn connection(close: Close) -> ConnectionFacts {
        let id = IdSource::new(0, 0).next(UNIX_EPOCH);
        let client: std::net::SocketAddr = "192.0.2.1:443".parse().unwrap();
        let mut facts = ConnectionFacts::new(id, 0, "web".into(), UNIX_EPOCH, client.into());
        facts.close = close;
        facts
    }

    fn request(version: HttpVersion, close: Close) -> RequestFacts {
        let line = RequestLine {
            method: "GET".into(),
            scheme: Scheme::Https,
            host: "example.org".into(),
            target: "/".into(),
            version,
            referer: None,
            user_agent: None,
            user: None,
        };
        let brief = ConnectionBrief::from(&connection(Cause::ClientClosed.into()));
        let mut facts = RequestFacts::new("id".into(), Arc::new(brief), UNIX_EPOCH, line);
        facts.close = close;
        facts
    }

    #[test]
    fn workers_add_up() {
        let (counters, workers) = Counters::new(3);
        std::thread::scope(|scope| {
            for worker in workers {
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        worker.connection_accepted();
                        worker.bytes_relayed(Direction::ServerToClient, 3);
                    }
                });
            }
        });
        let totals = counters.totals();
        assert_eq!((totals.accepted(), totals.active()), (30_000, 30_000));
        assert_eq!(totals.bytes_relayed(Direction::ServerToClient), 90_000);
        assert_eq!(totals.bytes_relayed(Direction::ClientToServer), 0);
    }

    #[test]
    fn every_counter_has_cells_of_its_own() {
        let (counters, workers) = Counters::new(1);
        let own = &workers[0];
        for direction in Direction::ALL {
            own.bytes_relayed(direction, 1);
            own.records(direction, 1);
            own.key_update(direction);
        }
        for reason in PauseReason::ALL {
            own.accept_paused(reason);
        }
        for cause in Cause::ALL {
            for fault in Fault::ALL {
                let close = Close::from(cause).with_fault(fault);
                own.connection_accepted();
                own.connection_ended(&connection(close.clone()));
                own.request_begun();
                own.request_ended(&request(HttpVersion::Http2, close));
            }
        }
        for version in TlsVersion::ALL {
            for kind in Handshake::ALL {
                own.handshake_done(version, kind, Duration::ZERO);
            }
        }
        for compression in Compression::ALL {
            own.compression(compression);
        }
        for mirrored in Mirrored::ALL {
            own.mirrored(mirrored);
        }
        own.handshake_failed();
        own.connect_attempted();
        own.connect_failed();
        own.turn();
        own.yielded();
        for version in HttpVersion::ALL {
            own.http_connection(version);
        }
        let totals = counters.totals();
        assert_eq!((totals.active(), totals.requests_active()), (0, 0));
        // One everywhere, but for the buckets and sums of the histograms, and what is counted at every end.
        let ends = (Cause::COUNT * Fault::ALL.len()) as u64;
        let others = totals.cells().iter().filter(|&&cell| cell != 1 && cell != 0).collect::<Vec<_>>();
        assert_eq!(others, [&ends, &4, &ends, &ends, &ends]);
        assert_eq!(totals.cells().iter().filter(|&&cell| cell == 0).count(), 34 + 2);
    }

    #[test]
    fn durations_fall_into_their_buckets() {
        let (counters, workers) = Counters::new(1);
        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            workers[0].handshake_done(TlsVersion::Tls13, Handshake::Full, Duration::from_micros(micros));
        }
        let totals = counters.totals();
        let histogram = totals.handshake_time();
        let buckets: Vec<_> = histogram.cumulative().collect();
        assert_eq!(buckets.len(), 17);
        assert_eq!(&buckets[..2], [(Some(100), 2), (Some(250), 3)]);
        assert_eq!(&buckets[15..], [(Some(10_000_000), 4), (None, 5)]);
        assert_eq!((histogram.count(), histogram.sum_micros()), (5, 20_000_202));
    }
}
