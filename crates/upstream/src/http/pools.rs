//! A worker's connections to servers, and the task that maintains them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::RandomState;
use offramp_net::clock::coarse_ms;
use tokio::task::{spawn_local, yield_now};
use tokio::time::{sleep, timeout};

use super::line::{ReadBuffers, RequestBody};
use super::outgoing::KeptBytes;
use super::pool::ServerPool;
use super::watch::{DeadlineTable, TICK, after};
use crate::admission::PoolId;
use crate::backend::Backend;
use crate::ejection;
use crate::per_worker::PerWorker;

/// Interval at which idle connections are checked.
const SWEEP: Duration = Duration::from_secs(1);

/// Time that connections outlive the last snapshot with their backend: the next one may have the same
/// servers, which is known at its first request.
const LINGER: Duration = Duration::from_secs(5);

/// Number of backends, and of servers, that are checked or released before other tasks run: a snapshot may
/// have thousands, each with connections to be closed.
const PART: usize = 64;

/// Connections of a worker to the servers of all backends. Cheap to clone. Belongs to the thread that created
/// it, which must run a tokio runtime that can spawn local tasks.
///
/// Backends need not be registered: the first request does that, and after the last snapshot with a backend
/// is gone, its idle connections are closed a few seconds later, unless another snapshot has the same
/// servers.
pub struct Pools<B: RequestBody> {
    inner: Rc<PoolsInner<B>>,
}

pub(crate) struct PoolsInner<B: RequestBody> {
    worker: usize,
    /// By the address of the backend, which is unique while its state exists.
    states: RefCell<HashMap<usize, Rc<BackendState<B>>, RandomState>>,
    server_pools: RefCell<HashMap<PoolId, Rc<ServerPool<B>>, RandomState>>,
    /// Pools of single client connections, which are swept like the others.
    private: RefCell<Vec<(PoolId, Weak<ServerPool<B>>)>>,
    watch: Rc<DeadlineTable>,
    /// Memory for first reads of responses.
    buffers: Rc<ReadBuffers>,
    /// Bytes kept of bodies that may have to be sent again.
    bodies: Rc<KeptBytes>,
    /// Set while the maintenance task runs.
    kept: Cell<bool>,
}

/// A worker's state of one backend of one snapshot.
pub(crate) struct BackendState<B: RequestBody> {
    /// Weak, since snapshots and requests own the backend: with strong references the workers would keep it
    /// alive for each other.
    backend: sync::Weak<Backend>,
    /// Set if the backend ejects failing servers.
    ejects: bool,
    pub(crate) own: PerWorker,
    /// By the server's index in the backend.
    pub(crate) server_pools: Box<[Rc<ServerPool<B>>]>,
    /// Time when the backend was first seen without other owners, if it has none.
    left: Cell<Option<u64>>,
}

impl<B: RequestBody> BackendState<B> {
    /// Returns true if a snapshot or a request has the backend, or had it a moment ago.
    fn is_wanted(self: &Rc<Self>, now: u64) -> bool {
        if self.backend.strong_count() > 0 || Rc::strong_count(self) > 1 {
            self.left.set(None);
            return true;
        }
        let left = self.left.get().unwrap_or(now);
        self.left.set(Some(left));
        after(left, LINGER) > now
    }
}

impl<B: RequestBody> Drop for BackendState<B> {
    fn drop(&mut self) {
        self.server_pools.iter().for_each(|pool| pool.leave());
    }
}

/// A sweep in parts: the servers that are not checked yet.
struct Round<B: RequestBody>(Option<Vec<(PoolId, Rc<ServerPool<B>>)>>);

/// Connections reserved for one client connection, because each begins with a header that names the client.
/// Keep it as long as the client's connection.
pub struct PrivateConnections<B: RequestBody> {
    prologue: Bytes,
    server_pools: RefCell<Vec<(PoolId, Rc<ServerPool<B>>)>>,
}

impl<B: RequestBody> Clone for Pools<B> {
    fn clone(&self) -> Self {
        Pools { inner: Rc::clone(&self.inner) }
    }
}

impl<B: RequestBody> Pools<B> {
    /// Creates the pools of worker `worker`, counted from 0.
    #[must_use]
    pub fn new(worker: usize) -> Self {
        let inner = PoolsInner {
            worker,
            states: RefCell::default(),
            server_pools: RefCell::default(),
            private: RefCell::default(),
            watch: Rc::default(),
            buffers: Rc::default(),
            bodies: Rc::default(),
            kept: Cell::new(false),
        };
        Pools { inner: Rc::new(inner) }
    }

    pub(crate) fn watch(&self) -> &Rc<DeadlineTable> {
        &self.inner.watch
    }

    pub(crate) fn kept_bodies(&self) -> &Rc<KeptBytes> {
        &self.inner.bodies
    }

    /// The state of `backend`, created on demand.
    pub(crate) fn state(&self, backend: &Arc<Backend>) -> Rc<BackendState<B>> {
        let key = Arc::as_ptr(backend) as usize;
        if let Some(state) = self.inner.states.borrow().get(&key) {
            return Rc::clone(state);
        }
        let mut server_pools = self.inner.server_pools.borrow_mut();
        let server_pools = (0..backend.servers.len()).map(|server| {
            let pool = server_pools
                .entry(backend.pool_id(server))
                .or_insert_with(|| ServerPool::new(&self.inner.buffers, backend.owner(server)));
            pool.limit(&backend.limits);
            pool.enter();
            Rc::clone(pool)
        });
        let state = Rc::new(BackendState {
            backend: Arc::downgrade(backend),
            ejects: backend.ejection.is_some(),
            own: PerWorker::new(backend, self.inner.worker, Instant::now()),
            server_pools: server_pools.collect(),
            left: Cell::new(None),
        });
        self.inner.states.borrow_mut().insert(key, Rc::clone(&state));
        state
    }

    /// Makes sure that the maintenance task runs.
    pub(crate) fn attend(&self) {
        self.inner.watch.call();
        if !self.inner.kept.replace(true) {
            spawn_local(keep(Rc::downgrade(&self.inner)));
        }
    }

    /// Number of idle and shared connections, over all servers.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.inner.server_pools.borrow().values().map(|pool| pool.len()).sum()
    }
}

impl<B: RequestBody> PoolsInner<B> {
    /// Performs the next part of a sweep; returns true after the last one.
    fn sweep(&self, now: u64, Round(servers): &mut Round<B>) -> bool {
        let Some(left) = servers else {
            let mut gone = 0;
            self.states.borrow_mut().retain(|_, state| {
                let wanted = state.is_wanted(now);
                gone += usize::from(!wanted);
                wanted || gone > PART
            });
            if gone <= PART {
                let all = self.server_pools.borrow();
                *servers = Some(all.iter().map(|(id, pool)| (*id, Rc::clone(pool))).collect());
            }
            return false;
        };
        for (id, pool) in left.drain(left.len().saturating_sub(PART)..) {
            // A backend of a new snapshot may have had no request yet; its servers are those of the previous
            // one.
            if pool.is_used() || pool.owner.is_there() {
                pool.sweep(now);
            } else {
                // The server has left the configuration. Requests under way are finished.
                pool.close();
                self.server_pools.borrow_mut().remove(&id);
            }
        }
        if !left.is_empty() {
            return false;
        }
        self.private.borrow_mut().retain(|(_, pool)| pool.strong_count() > 0);
        let private: Vec<_> = self.private.borrow().clone();
        for (id, pool) in private {
            let Some(pool) = pool.upgrade() else { continue };
            if self.server_pools.borrow().contains_key(&id) {
                pool.sweep(now);
            } else {
                pool.close();
            }
        }
        true
    }

    /// Wakes requests that wait for a server whose ejection ended between two ticks; nothing else reports
    /// that.
    fn note_returns(&self, before: u64, now: u64) {
        for state in self.states.borrow().values().filter(|state| state.ejects) {
            if let Some(backend) = state.backend.upgrade() {
                ejection::note_returns(&backend, before, now);
            }
        }
    }

    fn has_idle(&self) -> bool {
        let private = || {
            self.private.borrow().iter().any(|(_, pool)| pool.upgrade().is_some_and(|pool| !pool.is_empty()))
        };
        self.server_pools.borrow().values().any(|pool| !pool.is_empty()) || private()
    }
}

impl<B: RequestBody> Drop for PoolsInner<B> {
    fn drop(&mut self) {
        // The maintenance task finds the pools gone and ends.
        self.watch.sleep().notify_one();
    }
}

/// Maintains deadlines and idle connections while the pools exist.
async fn keep<B: RequestBody>(inner: Weak<PoolsInner<B>>) {
    let (mut seen, mut swept, mut ticked) = (0, coarse_ms(), coarse_ms());
    loop {
        let Some(pools) = inner.upgrade() else { return };
        let now = coarse_ms();
        pools.watch.tick(now);
        pools.note_returns(ticked, now);
        ticked = now;
        if after(swept, SWEEP) <= now {
            let mut round = Round(None);
            while !pools.sweep(now, &mut round) {
                yield_now().await;
            }
            swept = now;
        }
        // Requests that begin and end between two ticks count, too.
        let busy = pools.watch.len() > 0 || pools.watch.calls() != seen;
        seen = pools.watch.calls();
        if busy {
            drop(pools);
            sleep(TICK).await;
            continue;
        }
        let (wanted, idle) = (pools.watch.sleep(), pools.has_idle());
        drop(pools);
        if idle {
            let _ = timeout(SWEEP, wanted.notified()).await;
        } else {
            wanted.notified().await;
        }
    }
}

impl<B: RequestBody> PrivateConnections<B> {
    /// Creates an empty set; each connection will begin with `prologue`.
    #[must_use]
    pub fn new(prologue: impl Into<Bytes>) -> Self {
        PrivateConnections { prologue: prologue.into(), server_pools: RefCell::default() }
    }

    pub(crate) fn prologue(&self) -> &[u8] {
        &self.prologue
    }

    /// The pool for one server; `pools` maintain its idle connections.
    pub(crate) fn pool(&self, pools: &Pools<B>, backend: &Backend, server: usize) -> Rc<ServerPool<B>> {
        let id = backend.pool_id(server);
        let mut server_pools = self.server_pools.borrow_mut();
        if let Some((_, pool)) = server_pools.iter().find(|(known, pool)| *known == id && !pool.is_closed()) {
            // A reload may have changed the limits.
            pool.limit(&backend.limits);
            return Rc::clone(pool);
        }
        // Pools of servers, or of TLS configurations, that a reload has removed.
        server_pools.retain(|(_, pool)| !pool.is_closed());
        let pool = ServerPool::new(&pools.inner.buffers, backend.owner(server));
        pool.limit(&backend.limits);
        server_pools.push((id, Rc::clone(&pool)));
        pools.inner.private.borrow_mut().push((id, Rc::downgrade(&pool)));
        pool
    }
}

#[cfg(test)]
mod tests {
    use offramp_net::Address;

    use super::*;
    use crate::backend::Server;

    /// A whole sweep; returns the largest number of backends that one of its parts has dropped, or of servers that it has
    /// checked.
    fn sweep_all(pools: &Pools<String>, now: u64) -> usize {
        let (mut round, mut largest, mut ended) = (Round(None), 0, false);
        let backends = || pools.inner.states.borrow().len();
        let servers = |Round(left): &Round<String>| left.as_ref().map_or(0, Vec::len);
        while !ended {
            let before = (backends(), servers(&round));
            ended = pools.inner.sweep(now, &mut round);
            largest = largest.max(before.0 - backends()).max(before.1.saturating_sub(servers(&round)));
        }
        largest
    }

    /// A reload removes the old backend before a request registers the new one.
    #[test]
    fn connections_outlive_the_gap_between_two_snapshots() {
        let backend = || Backend::new("app", [Server::at(Address::Unix("/app.sock".into())).into()]);
        let pools: Pools<String> = Pools::new(0);
        let (old, mut new) = (Arc::new(backend()), backend());
        new.carry_over(&old);
        let new = Arc::new(new);
        let pool = Rc::downgrade(&pools.state(&old).server_pools[0]);
        let linger = u64::try_from(LINGER.as_millis()).unwrap();
        sweep_all(&pools, 1_000);
        drop(old);
        sweep_all(&pools, 2_000);
        sweep_all(&pools, 2_000 + linger - 1);
        assert!(
            Weak::ptr_eq(&pool, &Rc::downgrade(&pools.state(&new).server_pools[0])),
            "the servers are the same"
        );
        sweep_all(&pools, 2_000 + linger);
        assert!(pool.upgrade().is_some());
        // They are closed after that time.
        drop(new);
        sweep_all(&pools, 10_000);
        sweep_all(&pools, 10_000 + linger);
        assert!(pool.upgrade().is_none() && pools.inner.states.borrow().is_empty());
    }

    /// A reload changes nothing for a server that stays, even without requests for a long time.
    #[test]
    fn a_quiet_server_keeps_its_connections_over_a_reload() {
        let backend = || Backend::new("app", [Server::at(Address::Unix("/app.sock".into())).into()]);
        let pools: Pools<String> = Pools::new(0);
        let (old, mut new) = (Arc::new(backend()), backend());
        new.carry_over(&old);
        let pool = Rc::clone(&pools.state(&old).server_pools[0]);
        drop(old);
        for now in [1_000, 20_000, 40_000] {
            sweep_all(&pools, now);
        }
        assert!(pools.inner.states.borrow().is_empty() && !pool.is_closed());
        assert!(Rc::ptr_eq(&pool, &pools.state(&Arc::new(new)).server_pools[0]));
        // The state and the backend are gone after this.
        for now in [60_000, 80_000] {
            sweep_all(&pools, now);
        }
        assert!(pool.is_closed() && pools.inner.server_pools.borrow().is_empty());
    }

    /// Each worker has a state of the backend, and none keeps it alive for the others.
    #[test]
    fn workers_do_not_keep_a_backend_for_each_other() {
        let backend = Arc::new(Backend::new("app", [Server::at(Address::Unix("/app.sock".into())).into()]));
        let health = Arc::downgrade(&backend.health[0]);
        let workers: [Pools<String>; 2] = [0, 1].map(Pools::new);
        workers.iter().for_each(|pools| drop(pools.state(&backend)));
        let look_at_all = |now| {
            for pools in &workers {
                sweep_all(pools, now);
            }
        };
        look_at_all(1_000);
        assert!(workers.iter().all(|pools| pools.inner.states.borrow().len() == 1));
        drop(backend);
        assert!(health.upgrade().is_none());
        look_at_all(2_000);
        look_at_all(2_000 + u64::try_from(LINGER.as_millis()).unwrap());
        for Pools { inner } in &workers {
            assert!(inner.states.borrow().is_empty() && inner.server_pools.borrow().is_empty());
        }
    }

    /// Requests run between the parts of a sweep: the state of a backend is gone, and the connections to its
    /// servers are not yet. A server of a new snapshot must not find them.
    #[test]
    fn connections_of_a_removed_server_are_not_reused() {
        let backend =
            || Arc::new(Backend::new("app", [Server::at(Address::Tcp(([127, 0, 0, 1], 9).into())).into()]));
        let pools: Pools<String> = Pools::new(0);
        let private = PrivateConnections::new(Bytes::from_static(b"PROXY UNKNOWN\r\n"));
        let old = backend();
        drop((pools.state(&old), private.pool(&pools, &old, 0)));
        drop(old);
        sweep_all(&pools, 1_000);
        assert!(!pools.inner.sweep(20_000, &mut Round(None)));
        assert!(pools.inner.states.borrow().is_empty() && pools.inner.server_pools.borrow().len() == 1);
        let known = private.server_pools.borrow();
        let known = known.iter().map(|(id, pool)| (*id, pool));
        for (id, pool) in pools.inner.server_pools.borrow().iter().map(|(id, pool)| (*id, pool)).chain(known)
        {
            assert_eq!(pool.owner.id(), id, "the address is kept");
        }
    }

    #[test]
    fn every_part_of_a_sweep_of_a_thousand_backends_is_short() {
        let pools: Pools<String> = Pools::new(0);
        let server = |port| Server::at(Address::Tcp(([127, 0, 0, 1], port).into())).into();
        let backend = |number| Backend::new(format!("b{number}"), [server(number), server(number + 1)]);
        let all: Vec<_> = (0..1000).map(|number| Arc::new(backend(number))).collect();
        all.iter().for_each(|backend| drop(pools.state(backend)));
        assert_eq!(sweep_all(&pools, 1_000), PART, "they stay");
        assert_eq!(pools.inner.server_pools.borrow().len(), 2000);
        drop(all);
        assert_eq!(sweep_all(&pools, 2_000), PART, "they linger");
        assert_eq!(pools.inner.states.borrow().len(), 1000);
        assert_eq!(sweep_all(&pools, 20_000), PART, "they go");
        assert!(pools.inner.states.borrow().is_empty() && pools.inner.server_pools.borrow().is_empty());
    }

    /// Each reload has other connectors to servers with TLS. A long-lived client retains none of the old
    /// ones, and closed pools are not reused.
    #[test]
    fn connections_of_a_client_to_removed_servers_are_dropped() {
        let pools: Pools<String> = Pools::new(0);
        let server = || Server::at(Address::Tcp(([127, 0, 0, 1], 9).into()));
        let private = PrivateConnections::new(Bytes::from_static(b"PROXY UNKNOWN\r\n"));
        // All of them live, so that each has a unique address.
        let mut all = Vec::new();
        for _ in 0..5 {
            let backend = Backend::new("app", [server().into()]);
            let pool = private.pool(&pools, &backend, 0);
            assert!(Rc::ptr_eq(&pool, &private.pool(&pools, &backend, 0)));
            assert_eq!(private.server_pools.borrow().len(), 1);
            pool.close();
            assert!(!Rc::ptr_eq(&pool, &private.pool(&pools, &backend, 0)));
            private.pool(&pools, &backend, 0).close();
            all.push(backend);
        }
    }
}
