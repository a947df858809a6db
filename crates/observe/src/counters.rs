//! Per-worker counters: written by their worker only, read by any thread, summed by the reader.
//!
//! This module holds the counters with a fixed place: connections, handshakes, records, requests. Counts by
//! route, backend and server are in [`series`](crate::series), counts by client in
//! [`clients`](crate::clients); a worker reaches all three through its [`WorkerCounters`].
//!
//! Each worker owns a block of cells on cache lines of its own. A cell is an atomic only so that other
//! threads may read it; the worker adds with a plain load and store, since it is the only writer. The data
//! path has no lock, no read-modify-write instruction and no cache line shared between workers.
//!
//! Sums are consistent per cell, not across cells: a reader may see a connection closed whose accept it does
//! not see yet. Values derived from two cells allow for that.

mod totals;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub use totals::{Histogram, Totals};

use crate::clients::{ClientSettings, ClientStats, ClientTotals, KnownClients, WorkerClients};
use crate::facts::{Cause, ConnectionFacts, Fault, Handshake, HttpVersion, RequestFacts, TlsVersion};
use crate::series::{Series, SetTotals, WorkerSeries};

/// The reader's side: sums the counters of all workers. Cheap to clone.
#[derive(Clone)]
pub struct Counters {
    workers: Arc<[Arc<WorkerCells>]>,
    series: Arc<Series>,
    clients: Arc<ClientStats>,
    began: SystemTime,
}

impl Counters {
    /// Creates the counters of `workers` workers, and the writing side of each.
    #[must_use]
    pub fn new(workers: usize) -> (Self, Vec<WorkerCounters>) {
        let blocks: Arc<[Arc<WorkerCells>]> = (0..workers).map(|_| Arc::new(WorkerCells::new())).collect();
        let (series, clients) = (Series::new(workers), ClientStats::new(workers));
        let own = blocks.iter().enumerate().map(|(index, block)| WorkerCounters {
            block: block.clone(),
            series: WorkerSeries::new(Arc::clone(&series), index),
            clients: WorkerClients::new(Arc::clone(&clients), index),
            not_sync: PhantomData,
        });
        let own = own.collect();
        (Self { workers: blocks, series, clients, began: SystemTime::now() }, own)
    }

    /// The time at which counting began.
    #[must_use]
    pub const fn began(&self) -> SystemTime {
        self.began
    }

    /// Changes how clients are counted; a change restarts their counts.
    pub fn watch_clients(&self, settings: ClientSettings) {
        self.clients.set(settings);
    }

    /// Totals by route, backend and server, ordered by name.
    #[must_use]
    pub fn sets(&self) -> Vec<SetTotals> {
        self.series.read()
    }

    /// Totals by client, summed over all workers.
    #[must_use]
    pub fn clients(&self) -> ClientTotals {
        self.clients.read()
    }

    /// The heaviest clients, for hand-over to the next process.
    #[must_use]
    pub fn known_clients(&self) -> KnownClients {
        self.clients.known()
    }

    /// Restores the clients of the previous process, if they fit the settings. Must run before any worker
    /// counts.
    pub fn recall_clients(&self, known: &KnownClients) {
        self.clients.recall(known);
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The totals of one worker; zero for an unknown worker.
    #[must_use]
    pub fn totals_of(&self, worker: usize) -> Totals {
        let block = self.workers.get(worker);
        let cell = |at: usize| block.map_or(0, |block| block.0[at].load(Ordering::Relaxed));
        Totals::new(std::array::from_fn(cell))
    }

    /// The totals of all workers.
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

/// The writing side of one worker. Neither `Clone` nor `Sync`, because each cell has one writer; a worker
/// shares it among its connections by reference or `Rc`.
pub struct WorkerCounters {
    block: Arc<WorkerCells>,
    series: WorkerSeries,
    clients: WorkerClients,
    not_sync: PhantomData<std::cell::Cell<()>>,
}

impl WorkerCounters {
    /// Counts an accepted connection. Each one ends in [`connection_ended`](Self::connection_ended).
    pub fn connection_accepted(&self) {
        self.add(ACCEPTED, 1);
    }

    /// Counts a closed connection. Its traffic is that outside of requests: all of it on a `tcp` listener,
    /// else none.
    pub fn connection_ended(&self, facts: &ConnectionFacts) {
        self.add(by_end(CLOSED, facts.close.cause, facts.close.fault), 1);
        self.observe(CONNECTION_TIME, &CONNECTION_BOUNDS, facts.times.total);
        if facts.path.route.is_some() {
            self.series.connection_ended(&facts.path, facts.traffic);
        }
        self.clients.connection_ended(facts);
    }

    /// Counts a connection of an `http` listener by the version that it starts with.
    pub fn http_connection(&self, version: HttpVersion) {
        self.add(HTTP_CONNECTIONS + version as usize, 1);
    }

    /// Counts a request with a complete head. Each one ends in [`request_ended`](Self::request_ended).
    pub fn request_begun(&self) {
        self.add(REQUESTS_BEGUN, 1);
    }

    /// Counts a finished request, successful or not.
    pub fn request_ended(&self, facts: &RequestFacts) {
        self.add(by_end(REQUESTS_ENDED, facts.close.cause, facts.close.fault), 1);
        self.add(REQUESTS_BY_VERSION + facts.request.version as usize, 1);
        self.series.request_ended(facts);
        self.clients.request_ended(&facts.client(), facts.traffic);
    }

    /// Counts a completed handshake that `took` this long from its first byte.
    pub fn handshake_done(&self, version: TlsVersion, kind: Handshake, took: Duration) {
        self.add(handshake_cell(version, kind), 1);
        self.observe(HANDSHAKE_TIME, &HANDSHAKE_BOUNDS, took);
    }

    /// Counts a handshake that failed or was abandoned.
    pub fn handshake_failed(&self) {
        self.add(HANDSHAKES_FAILED, 1);
    }

    /// Counts `bytes` of plaintext relayed in one direction.
    pub fn bytes_relayed(&self, direction: Direction, bytes: u64) {
        self.add(BYTES + direction as usize, bytes);
    }

    /// Counts records of application data opened (client to server) or sealed (server to client).
    pub fn records(&self, direction: Direction, records: u64) {
        self.add(RECORDS + direction as usize, records);
    }

    /// Counts a key update received (client to server) or sent (server to client).
    pub fn key_update(&self, direction: Direction) {
        self.add(KEY_UPDATES + direction as usize, 1);
    }

    /// Counts a pause in accepting.
    pub fn accept_paused(&self, reason: PauseReason) {
        self.add(ACCEPT_PAUSES + reason as usize, 1);
    }

    /// Counts a poll of a relayed connection.
    pub fn turn(&self) {
        self.add(TURNS, 1);
    }

    /// Counts a poll of a connection that used up its budget and yielded with more to do.
    pub fn yielded(&self) {
        self.add(YIELDS, 1);
    }

    /// Counts a connection attempt to a server.
    pub fn connect_attempted(&self) {
        self.add(CONNECT_ATTEMPTS, 1);
    }

    /// Counts a connection attempt that failed or timed out.
    pub fn connect_failed(&self) {
        self.add(CONNECT_FAILURES, 1);
    }

    /// Counts a response eligible for compression, by its outcome.
    pub fn compression(&self, compression: Compression) {
        self.add(COMPRESSIONS + compression as usize, 1);
    }

    /// Counts a request of a route with a mirror, by the outcome of its copy.
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
        // This worker is the only writer, so nothing is lost between load and store.
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

impl fmt::Debug for WorkerCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCounters").finish_non_exhaustive()
    }
}

/// The direction of a relay.
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

/// The reason for a pause in accepting.
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

/// The coding of a response that was worth compressing, for a client that accepts compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Zstandard, `zstd` of RFC 8878.
    Zstd,
    /// Brotli, `br` of RFC 7932.
    Brotli,
    /// gzip, as defined in RFC 1952.
    Gzip,
    /// Sent uncompressed: the worker's memory for encoders was in use.
    None,
}

impl Compression {
    /// Every coding, in the order of the discriminants.
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

/// The outcome of mirroring one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirrored {
    /// The mirror answered, with any status.
    Answered,
    /// The mirror could not be reached or did not answer.
    Failed,
    /// Skipped: too many copies were in flight.
    Busy,
    /// Skipped: the body was larger than a copy may be.
    TooLarge,
    /// Cut short: the client sent an incomplete request, or the primary server did not read all of it.
    Incomplete,
}

impl Mirrored {
    /// Every outcome, in the order of the discriminants.
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

/// The cells of one worker. Aligned to 128 bytes: two cache lines, because CPUs prefetch lines in pairs.
#[repr(align(128))]
struct WorkerCells([AtomicU64; CELLS]);

impl WorkerCells {
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

/// Upper bounds in microseconds, 100 µs to 10 s. A full handshake costs some 250 µs of CPU; more than a
/// second means a slow client or network.
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

// The layout of a block: the first cell of each counter. Cells that every relayed batch touches share the
// first cache line.
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
        Cause, ClientScheme, Close, ConnectionBrief, ConnectionFacts, Fault, IdSource, RequestFacts,
        RequestSummary,
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
        let line = RequestSummary {
            method: "GET".into(),
            scheme: ClientScheme::Https,
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
        // One each, except for the buckets and sums of histograms and the cells that every end touches.
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
