//! What a worker has of connections to servers, and the one task that looks after them.

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
use super::watch::{TICK, Watch, after};
use crate::admission::PoolId;
use crate::backend::Backend;
use crate::health;
use crate::per_worker::PerWorker;

/// How often idle connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// How long connections outlive the last snapshot with their backend: the next one may have the same servers, which is
/// known when its first request comes.
const LINGER: Duration = Duration::from_secs(5);

/// How many backends, and how many servers, are looked at or let go before others have their turn: a snapshot may have
/// thousands, each with connections that are closed.
const PART: usize = 64;

/// The connections of a worker to the servers of all backends. Cheap to clone. Belongs to the thread
/// on which it was made, which must run a tokio runtime that can spawn local tasks.
///
/// Backends need not be announced: the first request makes one known, and when the last snapshot with
/// it is gone, its idle connections are closed a few seconds later, unless another snapshot has the same servers.
pub struct Pools<B: RequestBody> {
    inner: Rc<Inner<B>>,
}

pub(crate) struct Inner<B: RequestBody> {
    worker: usize,
    /// By the address of the backend, which no other has as long as its state is here.
    states: RefCell<HashMap<usize, Rc<BackendState<B>>, RandomState>>,
    server_pools: RefCell<HashMap<PoolId, Rc<ServerPool<B>>, RandomState>>,
    /// Those that clients have for themselves: they are swept like the others.
    private: RefCell<Vec<(PoolId, Weak<ServerPool<B>>)>>,
    watch: Rc<Watch>,
    /// The memory for first reads of responses.
    buffers: Rc<ReadBuffers>,
    /// What is kept of bodies that may have to be sent again.
    bodies: Rc<KeptBytes>,
    /// Whether the task that keeps deadlines and pools runs.
    kept: Cell<bool>,
}

/// The state that a worker keeps of one backend of one snapshot.
pub(crate) struct BackendState<B: RequestBody> {
    /// Snapshots have the backend, and who uses it. No worker does for others: all would keep it for each other, for ever.
    backend: sync::Weak<Backend>,
    /// Whether its servers are left alone when they fail.
    ejects: bool,
    pub(crate) own: PerWorker,
    /// By the server's place in the backend.
    pub(crate) server_pools: Box<[Rc<ServerPool<B>>]>,
    /// When it was first seen that nobody else has the backend, if that is so.
    left: Cell<Option<u64>>,
}

impl<B: RequestBody> BackendState<B> {
    /// Whether a snapshot has the backend, or a request that is under way, or did a moment ago.
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

/// A look at everything, part by part: the servers that are to be looked at yet.
struct Round<B: RequestBody>(Option<Vec<(PoolId, Rc<ServerPool<B>>)>>);

/// The connections that one client connection has for itself, because each begins with a header that
/// names it. To be kept as long as the client's connection.
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
    /// The pools of worker `worker`, counted from 0.
    #[must_use]
    pub fn new(worker: usize) -> Self {
        let inner = Inner {
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

    pub(crate) fn watch(&self) -> &Rc<Watch> {
        &self.inner.watch
    }

    pub(crate) fn kept_bodies(&self) -> &Rc<KeptBytes> {
        &self.inner.bodies
    }

    /// The state of `backend`, made where there is none.
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

    /// Makes sure that somebody looks after deadlines from now on.
    pub(crate) fn attend(&self) {
        self.inner.watch.call();
        if !self.inner.kept.replace(true) {
            spawn_local(keep(Rc::downgrade(&self.inner)));
        }
    }

    /// How many connections lie idle or are shared, over all servers.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.inner.server_pools.borrow().values().map(|pool| pool.len()).sum()
    }
}

impl<B: RequestBody> Inner<B> {
    /// The next part of a look at everything; whether it was the last.
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
            // A backend of a new snapshot may have no request yet; its servers are those of before.
            if pool.is_used() || pool.owner.is_there() {
                pool.sweep(now);
            } else {
                // The server has left the configuration. What is under way is finished.
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

    /// Calls those who wait for a server where one's ejection ended between two looks: nobody else knows of it.
    fn note_returns(&self, (before, now): (u64, u64)) {
        for state in self.states.borrow().values().filter(|state| state.ejects) {
            if let Some(backend) = state.backend.upgrade() {
                health::note_returns(&backend, before, now);
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

impl<B: RequestBody> Drop for Inner<B> {
    fn drop(&mut self) {
        // The keeper finds nothing to keep.
        self.watch.sleep().notify_one();
    }
}

/// Looks after deadlines and idle connections for as long as there are pools.
async fn keep<B: RequestBody>(inner: Weak<Inner<B>>) {
    let (mut seen, mut swept, mut ticked) = (0, coarse_ms(), coarse_ms());
    loop {
        let Some(pools) = inner.upgrade() else { return };
        let now = coarse_ms();
        pools.watch.tick(now);
        pools.note_returns((ticked, now));
        ticked = now;
        if after(swept, SWEEP) <= now {
            let mut round = Round(None);
            while !pools.sweep(now, &mut round) {
                yield_now().await;
            }
            swept = now;
        }
        // Requests that come and go between two looks count as well.
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
    /// None yet; each will begin with `prologue`.
    #[must_use]
    pub fn new(prologue: impl Into<Bytes>) -> Self {
        PrivateConnections { prologue: prologue.into(), server_pools: RefCell::default() }
    }

    pub(crate) fn prologue(&self) -> &[u8] {
        &self.prologue
    }

    /// Those to one server; `pools` look after what lies idle there.
    pub(crate) fn pool(&self, pools: &Pools<B>, backend: &Backend, server: usize) -> Rc<ServerPool<B>> {
        let id = backend.pool_id(server);
        let mut server_pools = self.server_pools.borrow_mut();
        if let Some((_, pool)) = server_pools.iter().find(|(known, pool)| *known == id && !pool.is_closed()) {
            // A reload may have changed them.
            pool.limit(&backend.limits);
            return Rc::clone(pool);
        }
        // Those of servers, or of rules of TLS, that a reload has taken away.
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
    use offramp_net::clock::thread_cpu;

    use super::*;
    use crate::backend::Server;

    /// A whole look, and the CPU time of its longest part.
    fn look(pools: &Pools<String>, now: u64) -> Duration {
        let (mut round, mut longest, mut ended) = (Round(None), Duration::ZERO, false);
        while !ended {
            let begun = thread_cpu();
            ended = pools.inner.sweep(now, &mut round);
            longest = longest.max(thread_cpu() - begun);
        }
        longest
    }

    /// A reload takes the old backend away before a request makes the new one known.
    #[test]
    fn connections_outlive_the_gap_between_two_snapshots() {
        let backend = || Backend::new("app", [Server::at(Address::Unix("/app.sock".into())).into()]);
        let pools: Pools<String> = Pools::new(0);
        let (old, mut new) = (Arc::new(backend()), backend());
        new.carry_over(&old);
        let new = Arc::new(new);
        let pool = Rc::downgrade(&pools.state(&old).server_pools[0]);
        let linger = u64::try_from(LINGER.as_millis()).unwrap();
        look(&pools, 1_000);
        drop(old);
        look(&pools, 2_000);
        look(&pools, 2_000 + linger - 1);
        assert!(
            Weak::ptr_eq(&pool, &Rc::downgrade(&pools.state(&new).server_pools[0])),
            "the servers are the same"
        );
        look(&pools, 2_000 + linger);
        assert!(pool.upgrade().is_some());
        // And no longer than that.
        drop(new);
        look(&pools, 10_000);
        look(&pools, 10_000 + linger);
        assert!(pool.upgrade().is_none() && pools.inner.states.borrow().is_empty());
    }

    /// A reload changes nothing for a server that stays, though no request comes for long.
    #[test]
    fn a_quiet_server_keeps_its_connections_over_a_reload() {
        let backend = || Backend::new("app", [Server::at(Address::Unix("/app.sock".into())).into()]);
        let pools: Pools<String> = Pools::new(0);
        let (old, mut new) = (Arc::new(backend()), backend());
        new.carry_over(&old);
        let pool = Rc::clone(&pools.state(&old).server_pools[0]);
        drop(old);
        for now in [1_000, 20_000, 40_000] {
            look(&pools, now);
        }
        assert!(pools.inner.states.borrow().is_empty() && !pool.is_closed());
        assert!(Rc::ptr_eq(&pool, &pools.state(&Arc::new(new)).server_pools[0]));
        // The state and the backend are gone after this.
        for now in [60_000, 80_000] {
            look(&pools, now);
        }
        assert!(pool.is_closed() && pools.inner.server_pools.borrow().is_empty());
    }

    /// Each worker has a state of the backend, and none keeps it for the others.
    #[test]
    fn workers_do_not_keep_a_backend_for_each_other() {
        let backend = Arc::new(Backend::new("app", [Server::at(Address::Unix("/app.sock".into())).into()]));
        let health = Arc::downgrade(&backend.health[0]);
        let workers: [Pools<String>; 2] = [0, 1].map(Pools::new);
        workers.iter().for_each(|pools| drop(pools.state(&backend)));
        let look_at_all = |now| {
            for pools in &workers {
                look(pools, now);
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

    /// A look has parts, between which requests go on: the state of a backend is gone, and the connections to its servers are
    /// not yet. A server that a snapshot brings meanwhile does not find them.
    #[test]
    fn no_server_gets_the_connections_of_one_that_is_gone() {
        let backend =
            || Arc::new(Backend::new("app", [Server::at(Address::Tcp(([127, 0, 0, 1], 9).into())).into()]));
        let pools: Pools<String> = Pools::new(0);
        let private = PrivateConnections::new(Bytes::from_static(b"PROXY UNKNOWN\r\n"));
        let old = backend();
        drop((pools.state(&old), private.pool(&pools, &old, 0)));
        drop(old);
        look(&pools, 1_000);
        assert!(!pools.inner.sweep(20_000, &mut Round(None)));
        assert!(pools.inner.states.borrow().is_empty() && pools.inner.server_pools.borrow().len() == 1);
        let known = private.server_pools.borrow();
        let known = known.iter().map(|(id, pool)| (*id, pool));
        for (id, pool) in pools.inner.server_pools.borrow().iter().map(|(id, pool)| (*id, pool)).chain(known)
        {
            assert_eq!(pool.owner.id(), id, "the address is kept");
        }
    }

    /// By CPU time, the best of some tries: it does not grow where the machine has no time.
    #[test]
    fn no_part_of_a_look_at_a_thousand_backends_is_long() {
        let looks = || {
            let pools: Pools<String> = Pools::new(0);
            let server = |port| Server::at(Address::Tcp(([127, 0, 0, 1], port).into())).into();
            let backend = |number| Backend::new(format!("b{number}"), [server(number), server(number + 1)]);
            let all: Vec<_> = (0..1000).map(|number| Arc::new(backend(number))).collect();
            all.iter().for_each(|backend| drop(pools.state(backend)));
            let stays = look(&pools, 1_000);
            assert_eq!(pools.inner.server_pools.borrow().len(), 2000);
            drop(all);
            let lingers = look(&pools, 2_000);
            assert_eq!(pools.inner.states.borrow().len(), 1000);
            let goes = look(&pools, 20_000);
            assert!(pools.inner.states.borrow().is_empty() && pools.inner.server_pools.borrow().is_empty());
            stays.max(lingers).max(goes)
        };
        let all: Vec<_> = (0..10).map(|_| looks()).collect();
        println!("the longest parts: {all:?}");
        assert!(all.iter().min() < Some(&Duration::from_millis(1)), "{all:?}");
    }

    /// Each reload has other connectors to servers with TLS. A client that stays has nothing of the old ones, and what
    /// was closed is used no more.
    #[test]
    fn connections_of_a_client_to_what_is_gone_are_forgotten() {
        let pools: Pools<String> = Pools::new(0);
        let server = || Server::at(Address::Tcp(([127, 0, 0, 1], 9).into()));
        let private = PrivateConnections::new(Bytes::from_static(b"PROXY UNKNOWN\r\n"));
        // All of them live, so that each has an address of its own.
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
