//! Being let onto a server: the choice, the count of requests, and the wait while all are full.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Instant;

use offramp_net::clock::coarse_ms;
use offramp_tls::client::Connector;

use crate::backend::Backend;
use crate::connect::Reason;
use crate::health::ServerHealth;
use crate::per_worker::{Loads, PerWorker};
use crate::pick::{Picked, Question, Standing, Tried, key};
use crate::queue::{Place, ServerId};

/// A request or connection that counts on its server, until this is dropped.
#[derive(Debug)]
pub struct Permit(Counted);

/// Who counts it. The place of the server has the size that leaves room for the rest: permits are part of each request.
#[derive(Debug)]
enum Counted {
    /// All workers together, because a bound or the policy depends on it.
    Together { backend: Arc<Backend>, server: u32 },
    /// Its worker, for those who want to know.
    Alone { loads: Rc<Loads>, server: u32 },
}

impl Permit {
    /// The server's place in its backend.
    #[must_use]
    pub fn server(&self) -> usize {
        match self.0 {
            Counted::Together { server, .. } | Counted::Alone { server, .. } => server as usize,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        match &self.0 {
            Counted::Alone { loads, server } => loads.leave(*server),
            Counted::Together { backend, server } => {
                let server = *server as usize;
                backend.health[server].leave();
                if backend.limits.max_connections.is_some() {
                    backend.queue.freed(backend.id(server));
                }
            }
        }
    }
}

/// Why a request is let onto no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Every server that may be tried was.
    Exhausted,
    /// Every server is down or leaving.
    NoServerAlive,
    /// All servers are full, and as many wait as may wait.
    QueueFull,
}

impl Denied {
    /// What is told of it; `None`: how the last attempt failed says more.
    pub(crate) fn reason(self) -> Option<Reason> {
        match self {
            Self::Exhausted => None,
            Self::NoServerAlive => Some(Reason::NoServerAlive),
            Self::QueueFull => Some(Reason::QueueFull),
        }
    }
}

/// Whom a request may go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'w> {
    /// What it is known by, for consistent hashing.
    pub(crate) key: Option<u64>,
    /// The server that it is tied to, while that one is alive.
    pub(crate) tied: Option<usize>,
    /// Who was tried already.
    pub(crate) tried: &'w Tried,
}

/// A server, and the TLS that it is spoken to in: their addresses.
pub(crate) type PoolId = (ServerId, usize);

/// Keeps the addresses of a server and of its TLS from others, though not what is there: as long as somebody has it, no
/// other server gets the same [`PoolId`].
pub(crate) struct Owner {
    health: Weak<ServerHealth>,
    connector: Option<Weak<Connector>>,
}

impl Owner {
    /// Whether a snapshot has the server, and the rule of TLS, or a request that is under way.
    pub(crate) fn is_there(&self) -> bool {
        let connector = self.connector.as_ref();
        self.health.strong_count() > 0 && connector.is_none_or(|connector| connector.strong_count() > 0)
    }

    /// What nobody else gets.
    #[cfg(test)]
    pub(crate) fn id(&self) -> PoolId {
        let connector = self.connector.as_ref().map_or(0, |connector| connector.as_ptr() as usize);
        (self.health.as_ptr() as ServerId, connector)
    }
}

impl Backend {
    /// Whether all workers count the requests on its servers together: such a count is a cache line that all of them
    /// write, so it is kept only where a bound or the policy depends on it. Otherwise each worker counts its own.
    #[must_use]
    pub fn counts_together(&self) -> bool {
        self.limits.max_connections.is_some() || self.policy.needs_load()
    }

    pub(crate) fn id(&self, server: usize) -> ServerId {
        Arc::as_ptr(&self.health[server]) as ServerId
    }

    /// What the connections to a server are kept by: no other rule of TLS may use them.
    pub(crate) fn pool_id(&self, server: usize) -> PoolId {
        (self.id(server), self.connector(server).map_or(0, |connector| Arc::as_ptr(connector) as usize))
    }

    /// What its id is made of.
    pub(crate) fn owner(&self, server: usize) -> Owner {
        let connector = self.connector(server).map(Arc::downgrade);
        Owner { health: Arc::downgrade(&self.health[server]), connector }
    }

    fn standing(&self, server: usize, now: u64) -> Standing {
        self.health[server].standing(now, self.slow_return, self.limits.max_connections)
    }

    fn permit(self: &Arc<Self>, own: &PerWorker, server: usize) -> Option<Permit> {
        // Nobody can write so many servers down.
        let place = server as u32;
        if !self.counts_together() {
            own.loads.enter(place);
            return Some(Permit(Counted::Alone { loads: Rc::clone(&own.loads), server: place }));
        }
        let entered = self.health[server].enter(self.limits.max_connections);
        entered.then(|| Permit(Counted::Together { backend: Arc::clone(self), server: place }))
    }
}

/// The key of a client.
pub(crate) fn client_key(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => key(&address.octets()),
        IpAddr::V6(address) => key(&address.octets()),
    }
}

/// Looks once for a permit; `Ok(None)`: all are full.
fn look(backend: &Arc<Backend>, own: &PerWorker, wish: Wish<'_>) -> Result<Option<Permit>, Denied> {
    if let Some(tied) = wish.tied {
        return Ok(backend.permit(own, tied));
    }
    let now_ms = coarse_ms();
    loop {
        let mut chooser = own.chooser.borrow_mut();
        // The exact time matters to back-offs alone.
        let now = if chooser.is_calm() { chooser.since() } else { Instant::now() };
        let question = Question { policy: &backend.policy, key: wish.key, tried: wish.tried, now };
        let picked = chooser.next(question, |server| backend.standing(server, now_ms));
        drop(chooser);
        match picked {
            Picked::Server(server) => {
                if let Some(permit) = backend.permit(own, server) {
                    return Ok(Some(permit));
                }
                // Another worker was faster; it is full now, which the next look will see.
            }
            Picked::Full => return Ok(None),
            Picked::Exhausted => return Err(Denied::Exhausted),
            Picked::NoneAlive => return Err(Denied::NoServerAlive),
        }
    }
}

/// Whom a tied request is tied to at the moment: nobody where its server is down, leaving or was tried.
fn still_tied(backend: &Backend, wish: Wish<'_>) -> Option<usize> {
    let usable = |server: &usize| {
        let health = &backend.health[*server];
        !health.is_down()
            && !health.is_leaving()
            && !health.is_ejected(coarse_ms())
            && !wish.tried.contains(*server)
    };
    wish.tied.filter(usable)
}

/// A permit on a server at once, if there is one and nobody waits for it already; `Ok(None)`: wait.
pub(crate) fn permit_now(
    backend: &Arc<Backend>,
    own: &PerWorker,
    mut wish: Wish<'_>,
) -> Result<Option<Permit>, Denied> {
    wish.tied = still_tied(backend, wish);
    if backend.limits.max_connections.is_some() && backend.queue.waiting() > 0 {
        return Ok(None);
    }
    look(backend, own, wish)
}

/// Waits for a permit behind those who wait already. The caller bounds the wait.
pub(crate) async fn permit_later(
    backend: &Arc<Backend>,
    own: &PerWorker,
    mut wish: Wish<'_>,
) -> Result<Permit, Denied> {
    let mut place: Option<Place> = None;
    let asked = wish.tied;
    poll_fn(|cx| {
        wish.tied = asked;
        wish.tied = still_tied(backend, wish);
        let called = match &place {
            Some(place) => place.is_called(wish.tied.map(|server| backend.id(server)), cx.waker()),
            None => {
                let (joined, first) = join(backend, wish.tied, cx.waker())?;
                place = Some(joined);
                first
            }
        };
        if !called {
            return Poll::Pending;
        }
        let looked = look(backend, own, wish).inspect_err(|_| {
            // It was called for a place that others behind it can use.
            if let Some(place) = &place {
                place.pass();
            }
        });
        match looked? {
            None => {
                // The place that was freed may be on a server that this one may not have.
                if let Some(place) = place.as_ref().filter(|_| wish.tied.is_some() || !wish.tried.is_empty())
                {
                    place.pass();
                }
                Poll::Pending
            }
            Some(permit) => {
                if let Some(place) = place.take() {
                    place.served();
                }
                Poll::Ready(Ok(permit))
            }
        }
    })
    .await
}

fn join(backend: &Arc<Backend>, tied: Option<usize>, waker: &Waker) -> Result<(Place, bool), Denied> {
    let wants = tied.map(|server| backend.id(server));
    backend.queue.join(wants, backend.limits.queue, waker).ok_or(Denied::QueueFull)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;
    use crate::backend::Server;
    use crate::health::{Check, Ejection, Outcome, note};
    use crate::pick::Candidate;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Two servers that are full, one request each.
    fn full() -> (Arc<Backend>, PerWorker, [Permit; 2]) {
        let server = |index| {
            let path = format!("/nowhere/{index}").into();
            (Server::at(offramp_net::Address::Unix(path)), Candidate::default())
        };
        let mut backend = Backend::new("test", (0..2).map(server));
        backend.limits.max_connections = Some(1);
        backend.check = Some(Check { rise: 1, fall: 1, ..Check::default() });
        backend.ejection = Some(Ejection { failures: 1, ..Ejection::default() });
        let backend = Arc::new(backend);
        let own = PerWorker::new(&backend, 0, Instant::now());
        let permits = [0, 1].map(|server| backend.permit(&own, server).unwrap());
        (backend, own, permits)
    }

    /// Has a request wait that is tied to the first server, has `lost` take that one away, then frees the second.
    fn waits_for_another(lost: impl FnOnce(&Backend)) {
        let (backend, own, permits) = full();
        let [_first, second] = permits;
        let tried = Tried::default();
        let wish = Wish { key: None, tied: Some(0), tried: &tried };
        let mut waits = pin!(permit_later(&backend, &own, wish));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut poll = || waits.as_mut().poll(&mut Context::from_waker(&waker));
        let wakes = || woken.0.load(Ordering::Relaxed);
        assert!(poll().is_pending());
        lost(&backend);
        assert_eq!(wakes(), 1, "it is told that its server is gone");
        assert!(poll().is_pending(), "the other one is full");
        drop(second);
        assert_eq!(wakes(), 2, "it is told of a place on the other one");
        let Poll::Ready(Ok(permit)) = poll() else { panic!("there is a place") };
        assert_eq!(permit.server(), 1);
    }

    #[test]
    fn who_is_tied_to_a_server_that_went_down_gets_another() {
        waits_for_another(|backend| {
            let check = backend.check.as_ref().unwrap();
            assert!(backend.health[0].probe(false, check, coarse_ms()).is_some());
            // As the prober does.
            backend.queue.stir();
        });
    }

    #[test]
    fn who_is_tied_to_a_server_that_was_ejected_gets_another() {
        waits_for_another(|backend| assert!(note(backend, 0, Outcome::Bad, coarse_ms())));
    }

    #[test]
    fn workers_count_for_themselves_and_the_sum_is_told() {
        let server = |index| {
            let path = format!("/nowhere/{index}").into();
            (Server::at(offramp_net::Address::Unix(path)), Candidate::default())
        };
        let old = Arc::new(Backend::new("test", (0..2).map(server)));
        assert!(!old.counts_together());
        let counts = |backend: &Backend| [0, 1].map(|server| backend.health[server].in_flight());
        let workers = [0, 1].map(|worker| PerWorker::new(&old, worker, Instant::now()));
        let mut held: Vec<Permit> =
            workers.iter().flat_map(|own| [0, 1, 1].map(|server| old.permit(own, server).unwrap())).collect();
        assert_eq!(counts(&old), [2, 4]);
        // After a reload in which its place is another, and with a policy that counts together.
        let mut new = Backend::new("test", [server(1), server(0)]);
        new.policy = crate::pick::Policy::LeastConn;
        new.carry_over(&old);
        let new = Arc::new(new);
        let later = PerWorker::new(&new, 0, Instant::now());
        held.push(new.permit(&later, 1).unwrap());
        assert_eq!(counts(&new), [4, 3]);
        drop(workers);
        drop(held.remove(0));
        assert_eq!(counts(&new), [4, 2], "those that are left count on");
        drop(held);
        assert_eq!(counts(&new), [0, 0]);
    }

    /// Each stream of HTTP/2 has the room for one.
    #[test]
    fn a_permit_is_small() {
        assert_eq!((size_of::<Permit>(), size_of::<Option<Permit>>()), (16, 16));
    }
}
