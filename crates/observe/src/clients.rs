//! Usage per client: connections, requests and bytes of the heaviest clients, and the TLS that they
//! negotiate.
//!
//! Memory is bounded by the number of clients to show, however many connect; counts carry a known [error
//! bound](crate::sketch). A client is an IPv4 address, or the /64 of an IPv6 address, since one host may use
//! all of it. With anonymisation it is the /24 or the /48, and nothing more precise is kept.
//!
//! Each worker has its own sketch behind a lock that only readers contend for. The TLS of pairs of client and
//! name is kept once per process, because its counts restart when a pair is evicted and so cannot be summed
//! over workers; it is touched once per connection. **Workers do not wait for these locks**: where one is
//! taken, the worker keeps the update and applies it with the next. Only a worker with `MOST_PENDING` pending
//! updates waits, for the microseconds that a reader needs for a copy.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use foldhash::fast::RandomState;

use crate::facts::{ByteCounts, ConnectionFacts, EndpointAddress};
use crate::sketch::Sketch;
use crate::tls_mix::TlsMix;

/// The number and precision of the clients that are counted individually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The number of clients to show; 0 turns counting off. Each costs up to some 700 bytes per worker and
    /// 500 bytes per process; each of the first 333 costs four times that, since as many more are watched.
    pub top: usize,
    /// Set to keep networks instead of addresses.
    pub anonymize: bool,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self { top: 100, anonymize: false }
    }
}

impl ClientSettings {
    /// The number of keys to watch so that `top` are reported well: telling the heaviest apart from the long
    /// tail needs spare places.
    const fn capacity(self) -> usize {
        let spare = self.top.saturating_mul(3);
        self.top.saturating_add(if spare < 1000 { spare } else { 1000 })
    }
}

/// The figures kept per client, in the order of the arrays below.
pub const FIGURES: [&str; 4] = ["connections", "requests", "bytes_from_client", "bytes_to_client"];

/// A client: an IPv4 address, an IPv6 network, or all clients of Unix sockets together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientKey(u128);

/// All clients of Unix sockets. No network has its last bit set, and no IPv4 address maps to it.
const LOCAL: u128 = 1;

impl ClientKey {
    pub(crate) const fn new(address: &EndpointAddress) -> Self {
        match address {
            EndpointAddress::Unix(_) => Self(LOCAL),
            EndpointAddress::Ip(address) => match address.ip().to_canonical() {
                IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().to_bits()),
                IpAddr::V6(v6) => Self(v6.to_bits() & (u128::MAX << 64)),
            },
        }
    }

    /// The network of this client if `anonymize` is set, else the client itself.
    pub(crate) const fn anonymized(self, anonymize: bool) -> Self {
        match Ipv6Addr::from_bits(self.0).to_ipv4_mapped() {
            _ if !anonymize || self.0 == LOCAL => self,
            Some(_) => Self(self.0 & (u128::MAX << 8)),
            None => Self(self.0 & (u128::MAX << 80)),
        }
    }

    /// The text in metrics and logs: an address, a network, or `unix`.
    #[must_use]
    pub fn show(self, anonymized: bool) -> String {
        if self.0 == LOCAL {
            return "unix".to_owned();
        }
        let address = Ipv6Addr::from_bits(self.0);
        match (address.to_ipv4_mapped(), anonymized) {
            (Some(v4), false) => v4.to_string(),
            (Some(v4), true) => format!("{v4}/24"),
            (None, false) => format!("{address}/64"),
            (None, true) => format!("{address}/48"),
        }
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show(false))
    }
}

impl Hash for ClientKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.0);
    }
}

/// A client and its SNI name; empty without SNI.
type Pair = (ClientKey, Box<str>);

/// State shared by readers and workers.
pub(crate) struct ClientStats {
    settings: Mutex<ClientSettings>,
    /// Set while `settings.top` is above 0: a copy for workers, which must not take the lock of the settings.
    watching: AtomicBool,
    anonymize: AtomicBool,
    workers: Box<[WorkerSketch]>,
    base: Mutex<InheritedFloors>,
    tls: Mutex<TlsTable>,
}

/// The sketch of one worker, alone on its cache lines.
#[repr(align(128))]
struct WorkerSketch(Mutex<Sketch<ClientKey, 4>>);

/// The heaviest clients of a process, handed over to its successor. Bounds survive the hand-over: a figure of
/// a client is at most its number here plus the floor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownClients {
    /// Set if clients are networks.
    pub anonymized: bool,
    /// For each of [`FIGURES`]: an upper bound for clients that are absent here, and the error of those
    /// present.
    pub floors: [u64; FIGURES.len()],
    /// Clients as numbers, each with its counts above the floors.
    pub above: Vec<(u128, [u64; FIGURES.len()])>,
}

/// Clients handed over per figure: the heaviest.
const HANDED_OVER: usize = 10_000;

/// Floors inherited from the previous process, added to those of the workers.
#[derive(Clone, Copy, Debug, Default)]
struct InheritedFloors([u64; FIGURES.len()]);

struct TlsTable {
    pairs: Sketch<Pair, 1, TlsMix>,
    all: TlsMix,
}

impl ClientStats {
    pub(crate) fn new(workers: usize) -> Arc<Self> {
        let settings = ClientSettings::default();
        let capacity = settings.capacity();
        Arc::new(Self {
            settings: Mutex::new(settings),
            watching: AtomicBool::new(settings.top > 0),
            anonymize: AtomicBool::new(settings.anonymize),
            workers: (0..workers).map(|_| WorkerSketch(Mutex::new(Sketch::new(capacity)))).collect(),
            base: Mutex::default(),
            tls: Mutex::new(TlsTable { pairs: Sketch::new(capacity), all: TlsMix::default() }),
        })
    }

    /// Applies new settings; a change forgets all clients.
    pub(crate) fn set(&self, settings: ClientSettings) {
        let mut current = lock(&self.settings);
        if *current == settings {
            return;
        }
        *current = settings;
        self.anonymize.store(settings.anonymize, Ordering::Relaxed);
        for WorkerSketch(sketch) in &self.workers {
            *lock(sketch) = Sketch::new(settings.capacity());
        }
        *lock(&self.base) = InheritedFloors::default();
        lock(&self.tls).pairs = Sketch::new(settings.capacity());
        self.watching.store(settings.top > 0, Ordering::Relaxed);
    }

    /// Sums the heaviest clients over all workers.
    pub(crate) fn read(&self) -> ClientTotals {
        let settings = *lock(&self.settings);
        let (above, floors) = self.sums();
        let heaviest = std::array::from_fn(|figure| {
            let counted = above.iter().filter(|(_, sums)| sums[figure] > 0);
            let counts = counted.map(|(client, sums)| (*client, sums[figure] + floors[figure]));
            top(counts.collect(), settings.top)
        });
        let (pairs, all) = {
            let table = lock(&self.tls);
            (table.pairs.clone(), table.all.clone())
        };
        let mut tls: Vec<_> = pairs.iter().map(|(pair, [figure], mix)| (pair, figure.count, mix)).collect();
        tls.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        tls.truncate(settings.top);
        let tls = tls.into_iter().map(|(pair, _, mix)| (pair.clone(), mix.clone())).collect();
        ClientTotals { anonymized: settings.anonymize, heaviest, floors, tls, all }
    }

    /// The counts of each watched client above the sum of all floors, and these floors.
    fn sums(&self) -> (HashMap<ClientKey, [u64; FIGURES.len()], RandomState>, [u64; FIGURES.len()]) {
        let InheritedFloors(mut floors) = *lock(&self.base);
        let mut above: HashMap<ClientKey, [u64; FIGURES.len()], RandomState> = HashMap::default();
        for WorkerSketch(sketch) in &self.workers {
            let sketch = lock(sketch).clone();
            let own: [u64; FIGURES.len()] = std::array::from_fn(|figure| sketch.floor(figure));
            for (client, figures, ()) in sketch.iter() {
                let sums = above.entry(*client).or_default();
                for ((sum, figure), floor) in sums.iter_mut().zip(figures).zip(own) {
                    // A worker that does not watch this client may have counted it up to its floor, so the
                    // sum starts there.
                    *sum += figure.count.saturating_sub(floor);
                }
            }
            floors.iter_mut().zip(own).for_each(|(sum, floor)| *sum += floor);
        }
        (above, floors)
    }

    /// The hand-over record for the successor of this process.
    pub(crate) fn known(&self) -> KnownClients {
        let anonymized = lock(&self.settings).anonymize;
        let (sums, mut floors) = self.sums();
        let mut cuts = [0_u64; FIGURES.len()];
        for (figure, cut) in cuts.iter_mut().enumerate() {
            let counts = sums.iter().map(|(client, sums)| (*client, sums[figure])).collect();
            // A client at or below the first one left out reports that one's count.
            *cut = top(counts, HANDED_OVER + 1).get(HANDED_OVER).map_or(0, |(_, count)| *count);
        }
        floors.iter_mut().zip(cuts).for_each(|(floor, cut)| *floor += cut);
        let above = sums.into_iter().filter_map(|(ClientKey(client), sums)| {
            let rest: [u64; FIGURES.len()] =
                std::array::from_fn(|figure| sums[figure].saturating_sub(cuts[figure]));
            (rest != [0; FIGURES.len()]).then_some((client, rest))
        });
        KnownClients { anonymized, floors, above: above.collect() }
    }

    /// Restores the record of the previous process, unless it is empty or less anonymous than the settings
    /// allow. Must run before any worker counts.
    pub(crate) fn recall(&self, known: &KnownClients) {
        let settings = *lock(&self.settings);
        // Networks cannot be split into addresses again.
        let unfit = known.anonymized && !settings.anonymize;
        let (Some(WorkerSketch(sketch)), false) = (self.workers.first(), unfit || settings.top == 0) else {
            return;
        };
        let mut sketch = lock(sketch);
        for (client, figures) in &known.above {
            sketch.add(&ClientKey(*client).anonymized(settings.anonymize), *figures);
        }
        *lock(&self.base) = InheritedFloors(known.floors);
    }
}

/// The `most` heaviest in descending order.
fn top(mut counts: Vec<(ClientKey, u64)>, most: usize) -> Vec<(ClientKey, u64)> {
    counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    counts.truncate(most);
    counts
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock, unless it is contended and fewer than [`MOST_PENDING`] updates are `pending`.
fn lock_unless_taken<T>(mutex: &Mutex<T>, pending: usize) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) if pending < MOST_PENDING => None,
        Err(TryLockError::WouldBlock) => Some(lock(mutex)),
    }
}

/// Updates that a worker keeps at most while a reader copies: some hundredths of a second of full load.
const MOST_PENDING: usize = 1024;

/// The counting side of one worker.
pub(crate) struct WorkerClients {
    clients: Arc<ClientStats>,
    worker: usize,
    pending: RefCell<Vec<(ClientKey, [u64; FIGURES.len()])>>,
    pending_tls: RefCell<Vec<(Pair, ConnectionFacts)>>,
}

impl WorkerClients {
    pub(crate) fn new(clients: Arc<ClientStats>, worker: usize) -> Self {
        Self { clients, worker, pending: RefCell::default(), pending_tls: RefCell::default() }
    }

    pub(crate) fn request_ended(&self, client: &EndpointAddress, traffic: ByteCounts) {
        self.touch(client, [0, 1, traffic.from_client, traffic.to_client]);
    }

    pub(crate) fn connection_ended(&self, facts: &ConnectionFacts) {
        let ByteCounts { from_client, to_client } = facts.traffic;
        self.touch(&facts.client.address, [1, 0, from_client, to_client]);
        if facts.times.handshake.is_some() {
            self.tls(facts);
        }
    }

    fn touch(&self, address: &EndpointAddress, weights: [u64; FIGURES.len()]) {
        if !self.clients.watching.load(Ordering::Relaxed) {
            return;
        }
        let client = ClientKey::new(address);
        let mut pending = self.pending.borrow_mut();
        let Some(mut sketch) = lock_unless_taken(&self.clients.workers[self.worker].0, pending.len()) else {
            pending.push((client, weights));
            return;
        };
        // Read under the lock, so that nothing counted under old settings survives a change of them.
        let anonymize = self.clients.anonymize.load(Ordering::Relaxed);
        if !pending.is_empty() {
            for (client, weights) in pending.drain(..) {
                sketch.add(&client.anonymized(anonymize), weights);
            }
        }
        sketch.add(&client.anonymized(anonymize), weights);
    }

    fn tls(&self, facts: &ConnectionFacts) {
        let client = ClientKey::new(&facts.client.address);
        let name = facts.tls.sni.as_deref().unwrap_or_default().to_ascii_lowercase();
        let pair = (client, name.into_boxed_str());
        let mut pending = self.pending_tls.borrow_mut();
        let Some(mut table) = lock_unless_taken(&self.clients.tls, pending.len()) else {
            // Rare: only while a reader or another worker holds the lock, so a copy is acceptable.
            pending.push((pair, facts.clone()));
            return;
        };
        let anonymize = self.clients.anonymize.load(Ordering::Relaxed);
        for ((client, name), facts) in pending.drain(..) {
            table.count(&(client.anonymized(anonymize), name), &facts);
        }
        table.count(&(pair.0.anonymized(anonymize), pair.1), facts);
    }
}

impl TlsTable {
    fn count(&mut self, pair: &Pair, facts: &ConnectionFacts) {
        self.all.count(facts);
        if let Some(mix) = self.pairs.add(pair, [1]) {
            mix.count(facts);
        }
    }
}

/// Client counts summed over all workers.
#[derive(Clone, Debug)]
pub struct ClientTotals {
    /// Set if clients are networks.
    pub anonymized: bool,
    /// For each of [`FIGURES`]: the heaviest clients in descending order. A count is never below the true
    /// value.
    pub heaviest: [Vec<(ClientKey, u64)>; FIGURES.len()],
    /// For each of [`FIGURES`]: the largest error of a count, and the largest true value of a client that is
    /// not watched.
    pub floors: [u64; FIGURES.len()],
    /// The TLS sessions of the heaviest pairs of client and SNI name, counted since each pair was last
    /// admitted.
    pub tls: Vec<(Pair, TlsMix)>,
    /// The TLS sessions of all clients.
    pub all: TlsMix,
}

#[cfg(test)]
mod tests {
    use super::{ClientKey, ClientSettings, ClientStats, HANDED_OVER, MOST_PENDING, WorkerClients};
    use crate::facts::{ByteCounts, EndpointAddress};
    use std::net::SocketAddr;
    use std::sync::Arc;

    fn address(text: &str) -> EndpointAddress {
        text.parse::<SocketAddr>().unwrap().into()
    }

    fn workers(clients: &Arc<ClientStats>) -> [WorkerClients; 2] {
        [0, 1].map(|index| WorkerClients::new(Arc::clone(clients), index))
    }

    const MOVED: ByteCounts = ByteCounts { from_client: 10, to_client: 1000 };

    #[test]
    fn clients_are_shown_as_what_they_are() {
        let cases = [
            ("192.0.2.77:1", "192.0.2.77", "192.0.2.0/24"),
            ("[::ffff:192.0.2.77]:1", "192.0.2.77", "192.0.2.0/24"),
            ("[2001:db8:1:2:3::4]:1", "2001:db8:1:2::/64", "2001:db8:1::/48"),
            ("[::1]:1", "::/64", "::/48"),
        ];
        for (text, exact, anonymous) in cases {
            let client = ClientKey::new(&address(text));
            assert_eq!(client.anonymized(false).show(false), exact);
            assert_eq!(client.anonymized(true).show(true), anonymous);
        }
        assert_eq!(ClientKey::new(&EndpointAddress::Unix(None)).anonymized(true).show(true), "unix");
    }

    #[test]
    fn workers_add_up_and_the_heaviest_come_first() {
        let clients = ClientStats::new(2);
        clients.set(ClientSettings { top: 2, anonymize: false });
        let workers = workers(&clients);
        for worker in &workers {
            for _ in 0..50 {
                worker.request_ended(&address("192.0.2.1:5"), MOVED);
            }
        }
        workers[0]
            .request_ended(&address("192.0.2.2:5"), ByteCounts { from_client: 0, to_client: 1_000_000 });
        for other in 0..200 {
            workers[1].request_ended(&address(&format!("198.51.100.{other}:5")), ByteCounts::default());
        }
        let totals = clients.read();
        let name = |index: usize, rank: usize| totals.heaviest[index][rank].0.show(false);
        assert!(totals.heaviest[0].is_empty(), "no connection has ended");
        assert_eq!(name(1, 0), "192.0.2.1");
        let (_, requests) = totals.heaviest[1][0];
        assert!((100..=100 + totals.floors[1]).contains(&requests), "{requests} {:?}", totals.floors);
        assert_eq!((name(3, 0), totals.heaviest[3][0].1), ("192.0.2.2".into(), 1_000_000));
        assert_eq!((name(3, 1), totals.heaviest[3][1].1), ("192.0.2.1".into(), 100_000));
        assert_eq!(totals.heaviest[3].len(), 2);
    }

    #[test]
    fn nothing_is_lost_while_a_reader_has_the_lock() {
        let clients = ClientStats::new(2);
        let workers = workers(&clients);
        let client = address("192.0.2.1:5");
        let held = clients.workers[0].0.lock().unwrap();
        for _ in 0..MOST_PENDING {
            workers[0].request_ended(&client, MOVED);
        }
        drop(held);
        workers[0].request_ended(&client, MOVED);
        assert_eq!(clients.read().heaviest[1][0].1, MOST_PENDING as u64 + 1);
    }

    #[test]
    fn nothing_is_lost_while_readers_and_workers_run_at_once() {
        const REQUESTS: u64 = 20_000;
        let clients = ClientStats::new(2);
        let client = address("192.0.2.1:5");
        let mut workers = workers(&clients);
        std::thread::scope(|scope| {
            let counting: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    let client = &client;
                    scope.spawn(move || {
                        for _ in 0..REQUESTS {
                            worker.request_ended(client, MOVED);
                        }
                    })
                })
                .collect();
            let mut before = 0;
            while !counting.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                let now = clients.read().heaviest[1].first().map_or(0, |(_, count)| *count);
                assert!(now >= before, "reported counts never fall");
                before = now;
            }
        });
        // Updates deferred by a reader are applied with the next one.
        workers.iter().for_each(|worker| worker.request_ended(&client, MOVED));
        assert_eq!(clients.read().heaviest[1][0].1, 2 * (REQUESTS + 1));
    }

    #[test]
    fn the_heaviest_clients_of_the_process_before_go_on() {
        let clients = ClientStats::new(2);
        clients.set(ClientSettings { top: 2, anonymize: false });
        let own = workers(&clients);
        for _ in 0..50 {
            own.iter().for_each(|worker| worker.request_ended(&address("192.0.2.1:5"), MOVED));
        }
        for other in 0..200 {
            own[1].request_ended(&address(&format!("198.51.100.{other}:5")), ByteCounts::default());
        }
        let (known, before) = (clients.known(), clients.read());
        assert!(known.floors[1] > 0, "so many clients leave a doubt");
        let next = ClientStats::new(3);
        next.set(ClientSettings { top: 2, anonymize: false });
        next.recall(&known);
        let after = next.read();
        assert_eq!((&after.heaviest[1][0], after.floors), (&before.heaviest[1][0], before.floors));
        let worker = WorkerClients::new(Arc::clone(&next), 2);
        worker.request_ended(&address("192.0.2.1:5"), MOVED);
        assert_eq!(next.read().heaviest[1][0].1, before.heaviest[1][0].1 + 1);
        // Addresses become networks, and networks never addresses.
        let networks = ClientStats::new(1);
        networks.set(ClientSettings { top: 2, anonymize: true });
        networks.recall(&known);
        assert_eq!(networks.read().heaviest[3][0].0.show(true), "192.0.2.0/24");
        next.set(ClientSettings { top: 3, anonymize: false });
        next.recall(&networks.known());
        let totals = next.read();
        assert!(totals.heaviest[1].is_empty() && totals.floors == [0; 4], "{totals:?}");
    }

    #[test]
    fn a_bounded_number_is_handed_over_and_no_figure_is_too_low() {
        let clients = ClientStats::new(1);
        clients.set(ClientSettings { top: 20_000, anonymize: false });
        let worker = WorkerClients::new(Arc::clone(&clients), 0);
        for other in 0..12_000_u32 {
            let client = std::net::Ipv4Addr::from(0x0a00_0000 + other);
            let traffic = ByteCounts { from_client: u64::from(other), to_client: 1 };
            worker.request_ended(&address(&format!("{client}:5")), traffic);
        }
        let known = clients.known();
        assert_eq!((known.above.len(), known.floors), (HANDED_OVER, [0, 1, 1999, 1]));
        let next = ClientStats::new(1);
        next.set(ClientSettings { top: 20_000, anonymize: false });
        next.recall(&known);
        let totals = next.read();
        assert_eq!(totals.heaviest[2][0].1, 11_999);
    }

    #[test]
    fn other_settings_begin_anew() {
        let clients = ClientStats::new(2);
        let workers = workers(&clients);
        workers[0].request_ended(&address("192.0.2.77:5"), MOVED);
        clients.set(ClientSettings::default());
        assert_eq!(clients.read().heaviest[1].len(), 1, "they are the same");
        clients.set(ClientSettings { top: 5, anonymize: true });
        assert!(clients.read().heaviest[1].is_empty());
        workers[0].request_ended(&address("192.0.2.77:5"), MOVED);
        let totals = clients.read();
        assert_eq!(totals.heaviest[1][0].0.show(totals.anonymized), "192.0.2.0/24");
        clients.set(ClientSettings { top: 0, anonymize: false });
        workers[0].request_ended(&address("192.0.2.77:5"), MOVED);
        assert!(clients.read().heaviest[1].is_empty());
    }
}
