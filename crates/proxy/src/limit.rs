//! Admission: connections in all, connections and handshakes per client.
//!
//! These limits hold for the process, not for a worker: a limit of 10 lets 10 in. So this is the one
//! thing that workers share on a connection's way. It is touched when a connection begins and ends,
//! never while it is relayed: connections in all are one atomic count; clients are
//! spread over many small tables, each behind a lock that is held for a few dozen nanoseconds.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use offramp_net::pace::Allowance;
use tokio::sync::Notify;

/// A number of events per time; as many may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Number of events in the time.
    pub count: u32,
    /// Time in which they may happen.
    pub per: Duration,
}

/// Connections in all: places that are taken before a connection is accepted, and given back when it has ended.
///
/// It is one count for all workers. With a count per worker that others add up, two that ask at once would both get
/// the last place, or neither.
pub struct ConnectionLimit {
    open: AtomicU32,
    /// Number of acceptors that wait for a place.
    waiting: AtomicU32,
    free: Notify,
}

impl ConnectionLimit {
    /// All places are free.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { open: AtomicU32::new(0), waiting: AtomicU32::new(0), free: Notify::new() })
    }

    /// Number of places that are taken.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Wakes all waiters, because the limit may have changed.
    pub fn limit_changed(&self) {
        self.free.notify_waiters();
    }

    /// Takes a place, unless `limit` are taken.
    pub(crate) fn enter(self: &Arc<Self>, limit: u32) -> Option<Admitted> {
        let more = |open| (open < limit).then(|| open + 1);
        // SeqCst, as in `drop` and `wait`: see there.
        self.open.fetch_update(Ordering::SeqCst, Ordering::Relaxed, more).ok()?;
        Some(Admitted(Arc::clone(self)))
    }

    /// Waits for a place; calls `limit` each time that one may be free. May be dropped at any time.
    pub(crate) async fn wait(self: &Arc<Self>, limit: impl Fn() -> u32) -> Admitted {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = WaitingAcceptor(self);
        loop {
            let mut free = pin!(self.free.notified());
            // From here on a place that is given back wakes us: either we see it free below, or its giver sees that
            // we wait.
            free.as_mut().enable();
            if let Some(place) = self.enter(limit()) {
                return place;
            }
            free.await;
        }
    }
}

struct WaitingAcceptor<'a>(&'a ConnectionLimit);

impl Drop for WaitingAcceptor<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A place among the connections; given back when dropped.
pub(crate) struct Admitted(Arc<ConnectionLimit>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        if self.0.waiting.load(Ordering::SeqCst) > 0 {
            self.0.free.notify_one();
        }
    }
}

/// Number of bytes that each worker holds for requests over HTTP/2, for readers of the metrics.
#[derive(Debug, Default)]
pub struct StreamMemory(Mutex<Vec<Arc<AtomicUsize>>>);

impl StreamMemory {
    /// No worker has begun.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Another worker begins, which writes there what it holds.
    pub(crate) fn add(&self, worker: Arc<AtomicUsize>) {
        self.workers().push(worker);
    }

    /// Number of bytes of the worker that holds the most.
    #[must_use]
    pub fn most(&self) -> usize {
        self.workers().iter().map(|held| held.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, Vec<Arc<AtomicUsize>>> {
        // Nothing in here panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of tables: many more than workers, so that they rarely meet at one.
const SHARDS: usize = 256;

/// Clients a table remembers before it forgets those that owe nothing.
const SWEEP_AT: usize = 64;

/// The clients that are connected or were a moment ago.
pub struct ClientTable {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    begun: Instant,
}

#[derive(Default)]
struct Shard {
    clients: HashMap<IpAddr, ClientUsage>,
    sweep_at: usize,
}

#[derive(Default)]
struct ClientUsage {
    open: u32,
    /// Time at which the handshakes so far would have ended at the permitted rate, in nanoseconds since the table
    /// was made: the theoretical arrival time of the generic cell rate algorithm.
    arrival: u64,
    /// The same of requests.
    requests: u64,
    /// Allowance of bytes, if there is a bound.
    allowance: Option<Arc<Allowance>>,
}

/// The limits of one client; without one, connections are counted and let in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientBounds {
    pub(crate) connections: Option<u32>,
    pub(crate) handshakes: Option<Quota>,
}

/// Reason for which a client is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// Too many connections at a time.
    Connections,
    /// Too many handshakes in too short a time.
    Handshakes,
}

impl ClientTable {
    /// An empty table; `now` is where its time begins.
    #[must_use]
    pub fn new(now: Instant) -> Arc<Self> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Arc::new(Self { shards, hasher: RandomState::new(), begun: now })
    }

    /// Lets one connection of `address` in, unless it has as many open as `bounds` allow or begins handshakes
    /// faster. IPv6 clients are known by their /64, which one host may use as it likes.
    pub(crate) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        bounds: ClientBounds,
        now: Instant,
    ) -> Result<ClientEntry, LimitExceeded> {
        let key = client_key(address);
        let now = self.nanos(now);
        let mut shard = self.shard(key);
        let client = shard.client(key, now);
        if bounds.connections.is_some_and(|most| client.open >= most) {
            return Err(LimitExceeded::Connections);
        }
        if let Some(rate) = bounds.handshakes {
            client.arrival = arrive(client.arrival, rate, now).map_err(|_| LimitExceeded::Handshakes)?;
        }
        client.open += 1;
        Ok(ClientEntry { table: Arc::clone(self), key })
    }

    /// The most connections that one client has open now.
    #[must_use]
    pub fn most_open(&self) -> u32 {
        let shards = self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner));
        shards.filter_map(|shard| shard.clients.values().map(|client| client.open).max()).max().unwrap_or(0)
    }

    /// Lets a request of `address` in, unless it sends them faster than `rate`: then it says after how
    /// long there is room for one again.
    pub(crate) fn request(&self, address: IpAddr, rate: Quota, now: Instant) -> Result<(), Duration> {
        let key = client_key(address);
        let now = self.nanos(now);
        let mut shard = self.shard(key);
        let client = shard.client(key, now);
        client.requests = arrive(client.requests, rate, now)?;
        Ok(())
    }

    fn shard(&self, key: IpAddr) -> std::sync::MutexGuard<'_, Shard> {
        let place = self.hasher.hash_one(key) as usize % SHARDS;
        // Nothing in here panics with the lock held; if it did, the counts would still be usable.
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nanos(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Shard {
    fn client(&mut self, key: IpAddr, now: u64) -> &mut ClientUsage {
        if self.clients.len() >= self.sweep_at.max(SWEEP_AT) {
            let owes = |client: &ClientUsage| {
                let moves = client.allowance.as_ref().is_some_and(|allowance| allowance.owes());
                client.open > 0 || client.arrival > now || client.requests > now || moves
            };
            self.clients.retain(|_, client| owes(client));
            self.sweep_at = self.clients.len() * 2;
        }
        self.clients.entry(key).or_default()
    }
}

/// The arrival time after one more event at `now`, all in nanoseconds; or how long it is too early.
fn arrive(arrival: u64, rate: Quota, now: u64) -> Result<u64, Duration> {
    let period = u64::try_from(rate.per.as_nanos()).unwrap_or(u64::MAX);
    let interval = period / u64::from(rate.count.max(1));
    let next = arrival.max(now).saturating_add(interval);
    match next.saturating_sub(now.saturating_add(period)) {
        0 => Ok(next),
        early => Err(Duration::from_nanos(early)),
    }
}

/// A client's open connection; given back when dropped.
pub(crate) struct ClientEntry {
    table: Arc<ClientTable>,
    key: IpAddr,
}

impl ClientEntry {
    /// The allowance of the client, for all of its connections.
    pub(crate) fn allowance(&self) -> Arc<Allowance> {
        let mut shard = self.table.shard(self.key);
        // It is there as long as a connection of the client is open.
        let client = shard.clients.entry(self.key).or_default();
        Arc::clone(client.allowance.get_or_insert_default())
    }
}

impl Drop for ClientEntry {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.key);
        if let Some(client) = shard.clients.get_mut(&self.key) {
            client.open = client.open.saturating_sub(1);
        }
    }
}

pub(crate) fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Quota = Quota { count: 1_000_000, per: Duration::from_secs(1) };

    const fn bounds(connections: u32, handshakes: Quota) -> ClientBounds {
        ClientBounds { connections: Some(connections), handshakes: Some(handshakes) }
    }

    #[test]
    fn as_many_connections_as_the_limit() {
        let admission = ConnectionLimit::new();
        let held: Vec<_> = (0..5).map(|_| admission.enter(5)).collect();
        assert!(held.iter().all(Option::is_some) && admission.enter(5).is_none());
        assert_eq!(admission.taken(), 5);
        drop(held);
        assert!(admission.enter(1).is_some());
    }

    /// Threads that are acceptors and connections at once: never one too many, and nobody waits for ever.
    #[test]
    fn many_who_wait_get_every_place_and_no_more() {
        const LIMIT: u32 = 3;
        let admission = ConnectionLimit::new();
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    for _ in 0..500 {
                        let place = runtime.block_on(async { admission.wait(|| LIMIT).await });
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                    }
                });
            }
        });
        assert!(most.into_inner() <= LIMIT);
        assert_eq!((admission.taken(), admission.waiting.load(Ordering::SeqCst)), (0, 0));
    }

    #[tokio::test]
    async fn who_waits_hears_of_a_new_limit_and_a_place_that_nobody_takes_goes_on() {
        let admission = ConnectionLimit::new();
        let held = admission.enter(1).unwrap();
        let limit = AtomicU32::new(1);
        let mut first = Box::pin(admission.wait(|| limit.load(Ordering::SeqCst)));
        let mut second = Box::pin(admission.wait(|| limit.load(Ordering::SeqCst)));
        assert!(is_pending(first.as_mut()) && is_pending(second.as_mut()));
        limit.store(2, Ordering::SeqCst);
        admission.limit_changed();
        let place = first.as_mut().await;
        assert!(is_pending(second.as_mut()));
        // Who was woken goes away before it takes the place: the next one hears of it.
        let mut third = Box::pin(admission.wait(|| limit.load(Ordering::SeqCst)));
        assert!(is_pending(third.as_mut()));
        drop(place);
        drop(second);
        let place = third.as_mut().await;
        assert_eq!(admission.taken(), 2);
        drop((held, place, first, third));
        assert_eq!((admission.taken(), admission.waiting.load(Ordering::SeqCst)), (0, 0));
    }

    fn is_pending(future: std::pin::Pin<&mut impl Future>) -> bool {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending()
    }

    #[test]
    fn as_many_connections_per_client_as_the_limit() {
        let now = Instant::now();
        let table = ClientTable::new(now);
        let enter = |address: &str| table.enter(address.parse().unwrap(), bounds(2, FAST), now);
        let (first, second) = (enter("192.0.2.1").unwrap(), enter("::ffff:192.0.2.1").unwrap());
        assert_eq!(enter("192.0.2.1").err(), Some(LimitExceeded::Connections));
        assert!(enter("192.0.2.2").is_ok());
        assert_eq!(table.most_open(), 2);
        drop(first);
        assert!(enter("192.0.2.1").is_ok());
        drop(second);
        let _held = (enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap());
        assert_eq!(enter("2001:db8::3").err(), Some(LimitExceeded::Connections));
        assert!(enter("2001:db8:0:1::3").is_ok());
    }

    #[test]
    fn without_bounds_connections_are_counted_and_let_in() {
        let now = Instant::now();
        let table = ClientTable::new(now);
        let without = ClientBounds { connections: None, handshakes: None };
        let enter = |bounds| table.enter("192.0.2.1".parse().unwrap(), bounds, now);
        let held: Vec<_> = (0..5000).map(|_| enter(without).unwrap()).collect();
        assert_eq!(table.most_open(), 5000);
        assert_eq!(enter(bounds(5000, FAST)).err(), Some(LimitExceeded::Connections));
        drop(held);
        assert_eq!(table.most_open(), 0);
    }

    #[test]
    fn connections_of_a_client_share_what_it_may_move() {
        let now = Instant::now();
        let table = ClientTable::new(now);
        let enter = |address: &str| table.enter(address.parse().unwrap(), bounds(9, FAST), now).unwrap();
        let (one, other, third) = (enter("2001:db8::1"), enter("2001:db8::2"), enter("192.0.2.1"));
        assert!(Arc::ptr_eq(&one.allowance(), &other.allowance()));
        assert!(!Arc::ptr_eq(&one.allowance(), &third.allowance()));
    }

    #[test]
    fn handshakes_come_back_at_the_rate() {
        let start = Instant::now();
        let table = ClientTable::new(start);
        let rate = Quota { count: 10, per: Duration::from_secs(1) };
        let enter = |millis| {
            let now = start + Duration::from_millis(millis);
            table.enter("192.0.2.1".parse().unwrap(), bounds(1000, rate), now).map(drop)
        };
        assert!((0..10).all(|_| enter(0).is_ok()));
        assert_eq!(enter(0), Err(LimitExceeded::Handshakes));
        assert_eq!(enter(99), Err(LimitExceeded::Handshakes));
        assert_eq!(enter(100), Ok(()));
        assert_eq!(enter(101), Err(LimitExceeded::Handshakes));
        assert!((0..10).all(|_| enter(5000).is_ok()));
        assert_eq!(enter(5000), Err(LimitExceeded::Handshakes));
    }

    #[test]
    fn requests_are_told_when_to_come_again() {
        let start = Instant::now();
        let table = ClientTable::new(start);
        let rate = Quota { count: 2, per: Duration::from_secs(1) };
        let ask =
            |millis| table.request("192.0.2.1".parse().unwrap(), rate, start + Duration::from_millis(millis));
        assert_eq!((ask(0), ask(0)), (Ok(()), Ok(())));
        assert_eq!(ask(0), Err(Duration::from_millis(500)));
        assert_eq!(ask(400), Err(Duration::from_millis(100)));
        assert_eq!(ask(500), Ok(()));
    }

    #[test]
    fn clients_that_owe_nothing_are_forgotten() {
        let start = Instant::now();
        let table = ClientTable::new(start);
        for i in 0..200_000_u32 {
            let now = start + Duration::from_millis(u64::from(i));
            drop(table.enter(IpAddr::V4(i.into()), bounds(10, FAST), now));
        }
        let known: usize = table.shards.iter().map(|shard| shard.lock().unwrap().clients.len()).sum();
        assert!(known <= SHARDS * SWEEP_AT * 2, "{known} clients are remembered");
    }
}
