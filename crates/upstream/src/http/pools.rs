//! What a worker has of connections to servers, and the one task that looks after them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::RandomState;
use offramp_net::clock::coarse_ms;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::line::RequestBody;
use super::outgoing::KeptBytes;
use super::shelf::Shelf;
use super::watch::{TICK, Watch, after};
use crate::backend::Backend;
use crate::health;
use crate::pick::Chooser;
use crate::queue::ServerId;

/// A server, and the TLS that it is spoken to in.
type PoolId = (ServerId, usize);

/// How often idle connections are looked at.
const SWEEP: Duration = Duration::from_secs(1);

/// How long connections outlive the last snapshot with their backend: the next one may have the same servers, which is
/// known when its first request comes.
const LINGER: Duration = Duration::from_secs(5);

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
    /// By the address of the backend, which is kept alive here.
    houses: RefCell<HashMap<usize, Rc<House<B>>, RandomState>>,
    shelves: RefCell<HashMap<PoolId, Rc<Shelf<B>>, RandomState>>,
    /// Those that clients have for themselves: they are swept like the others.
    private: RefCell<Vec<(PoolId, Weak<Shelf<B>>)>>,
    watch: Rc<Watch>,
    /// What is kept of bodies that may have to be sent again.
    bodies: Rc<KeptBytes>,
    /// Whether the task that keeps deadlines and pools runs.
    kept: Cell<bool>,
}

/// What a worker has of one backend of one snapshot.
pub(crate) struct House<B: RequestBody> {
    backend: Arc<Backend>,
    pub(crate) chooser: RefCell<Chooser>,
    /// By the server's place in the backend.
    pub(crate) shelves: Box<[Rc<Shelf<B>>]>,
    /// When it was first seen that nobody else has the backend, if that is so.
    left: Cell<Option<u64>>,
}

impl<B: RequestBody> House<B> {
    /// Whether a snapshot has the backend, or a request that is under way, or did a moment ago.
    fn is_wanted(self: &Rc<Self>, now: u64) -> bool {
        if Arc::strong_count(&self.backend) > 1 || Rc::strong_count(self) > 1 {
            self.left.set(None);
            return true;
        }
        let left = self.left.get().unwrap_or(now);
        self.left.set(Some(left));
        after(left, LINGER) > now
    }
}

/// The connections that one client connection has for itself, because each begins with a header that
/// names it. To be kept as long as the client's connection.
pub struct PrivateConnections<B: RequestBody> {
    prologue: Bytes,
    shelves: RefCell<Vec<(PoolId, Rc<Shelf<B>>)>>,
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
            houses: RefCell::default(),
            shelves: RefCell::default(),
            private: RefCell::default(),
            watch: Rc::default(),
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

    /// What there is of `backend`.
    pub(crate) fn house(&self, backend: &Arc<Backend>) -> Rc<House<B>> {
        let key = Arc::as_ptr(backend) as usize;
        if let Some(house) = self.inner.houses.borrow().get(&key) {
            return Rc::clone(house);
        }
        let mut shelves = self.inner.shelves.borrow_mut();
        let shelves = (0..backend.servers.len()).map(|server| {
            let shelf = shelves.entry(backend.pool_id(server)).or_insert_with(Shelf::new);
            shelf.limit(&backend.limits);
            Rc::clone(shelf)
        });
        let chooser = Chooser::new(Arc::clone(&backend.picker), self.inner.worker, Instant::now());
        let house = Rc::new(House {
            backend: Arc::clone(backend),
            chooser: RefCell::new(chooser),
            shelves: shelves.collect(),
            left: Cell::new(None),
        });
        self.inner.houses.borrow_mut().insert(key, Rc::clone(&house));
        house
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
        self.inner.shelves.borrow().values().map(|shelf| shelf.len()).sum()
    }
}

impl<B: RequestBody> Inner<B> {
    /// One look at everything.
    fn sweep(&self, now: u64) {
        self.houses.borrow_mut().retain(|_, house| house.is_wanted(now));
        let houses = self.houses.borrow();
        let used = |shelf: &Rc<Shelf<B>>| {
            houses.values().any(|house| house.shelves.iter().any(|other| Rc::ptr_eq(shelf, other)))
        };
        let shelves: Vec<_> =
            self.shelves.borrow().iter().map(|(id, shelf)| (*id, Rc::clone(shelf))).collect();
        for (id, shelf) in shelves {
            if used(&shelf) {
                shelf.sweep(now);
            } else {
                // The server has left the configuration. What is under way is finished.
                shelf.close();
                self.shelves.borrow_mut().remove(&id);
            }
        }
        self.private.borrow_mut().retain(|(_, shelf)| shelf.strong_count() > 0);
        let private: Vec<_> = self.private.borrow().clone();
        for (id, shelf) in private {
            let Some(shelf) = shelf.upgrade() else { continue };
            if self.shelves.borrow().contains_key(&id) {
                shelf.sweep(now);
            } else {
                shelf.close();
            }
        }
    }

    /// Calls those who wait for a server where one's ejection ended between two looks: nobody else knows of it.
    fn note_returns(&self, (before, now): (u64, u64)) {
        for house in self.houses.borrow().values() {
            health::note_returns(&house.backend, before, now);
        }
    }

    fn has_idle(&self) -> bool {
        let private = || {
            self.private
                .borrow()
                .iter()
                .any(|(_, shelf)| shelf.upgrade().is_some_and(|shelf| !shelf.is_empty()))
        };
        self.shelves.borrow().values().any(|shelf| !shelf.is_empty()) || private()
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
            pools.sweep(now);
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
        PrivateConnections { prologue: prologue.into(), shelves: RefCell::default() }
    }

    pub(crate) fn prologue(&self) -> &[u8] {
        &self.prologue
    }

    /// Those to one server; `pools` look after what lies idle there.
    pub(crate) fn shelf(&self, pools: &Pools<B>, backend: &Backend, server: usize) -> Rc<Shelf<B>> {
        let id = backend.pool_id(server);
        let mut shelves = self.shelves.borrow_mut();
        if let Some((_, shelf)) = shelves.iter().find(|(known, shelf)| *known == id && !shelf.is_closed()) {
            // A reload may have changed them.
            shelf.limit(&backend.limits);
            return Rc::clone(shelf);
        }
        // Those of servers, or of rules of TLS, that a reload has taken away.
        shelves.retain(|(_, shelf)| !shelf.is_closed());
        let shelf = Shelf::new();
        shelf.limit(&backend.limits);
        shelves.push((id, Rc::clone(&shelf)));
        pools.inner.private.borrow_mut().push((id, Rc::downgrade(&shelf)));
        shelf
    }
}

#[cfg(test)]
mod tests {
    use offramp_net::Address;

    use super::*;
    use crate::backend::Server;

    /// A reload takes the old backend away before a request makes the new one known.
    #[test]
    fn connections_outlive_the_gap_between_two_snapshots() {
        let backend = || Backend::new("app", [Server::at(Address::Unix("/app.sock".into())).into()]);
        let pools: Pools<String> = Pools::new(0);
        let (old, mut new) = (Arc::new(backend()), backend());
        new.carry_over(&old);
        let new = Arc::new(new);
        let shelf = Rc::downgrade(&pools.house(&old).shelves[0]);
        let linger = u64::try_from(LINGER.as_millis()).unwrap();
        pools.inner.sweep(1_000);
        drop(old);
        pools.inner.sweep(2_000);
        pools.inner.sweep(2_000 + linger - 1);
        assert!(
            Weak::ptr_eq(&shelf, &Rc::downgrade(&pools.house(&new).shelves[0])),
            "the servers are the same"
        );
        pools.inner.sweep(2_000 + linger);
        assert!(shelf.upgrade().is_some());
        // And no longer than that.
        drop(new);
        pools.inner.sweep(10_000);
        pools.inner.sweep(10_000 + linger);
        assert!(shelf.upgrade().is_none() && pools.inner.houses.borrow().is_empty());
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
            let shelf = private.shelf(&pools, &backend, 0);
            assert!(Rc::ptr_eq(&shelf, &private.shelf(&pools, &backend, 0)));
            assert_eq!(private.shelves.borrow().len(), 1);
            shelf.close();
            assert!(!Rc::ptr_eq(&shelf, &private.shelf(&pools, &backend, 0)));
            private.shelf(&pools, &backend, 0).close();
            all.push(backend);
        }
    }
}
