//! Being let onto a server: the choice, the count of requests, and the wait while all are full.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use offramp_net::clock::coarse_ms;

use crate::backend::Backend;
use crate::connect::Reason;
use crate::pick::{Chooser, Picked, Question, Standing, Tried, key};
use crate::queue::{Place, ServerId};

/// A request or connection that counts on its server, until this is dropped.
#[derive(Debug)]
pub struct Permit {
    /// Absent where nobody needs the count.
    counted: Option<Arc<Backend>>,
    server: usize,
}

impl Permit {
    /// The server's place in its backend.
    #[must_use]
    pub fn server(&self) -> usize {
        self.server
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(backend) = &self.counted {
            backend.health[self.server].leave();
            if backend.limits.max_connections.is_some() {
                backend.queue.freed(backend.id(self.server));
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

impl Backend {
    /// Whether requests on its servers are counted: a count is a cache line that all workers write, so
    /// it is kept only where something depends on it.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.limits.max_connections.is_some() || self.policy.needs_load()
    }

    pub(crate) fn id(&self, server: usize) -> ServerId {
        Arc::as_ptr(&self.health[server]) as ServerId
    }

    /// What the connections to a server are kept by: no other rule of TLS may use them.
    pub(crate) fn pool_id(&self, server: usize) -> (ServerId, usize) {
        (self.id(server), self.connector(server).map_or(0, |connector| Arc::as_ptr(connector) as usize))
    }

    fn standing(&self, server: usize, now: u64) -> Standing {
        self.health[server].standing(now, self.slow_return, self.limits.max_connections)
    }

    fn permit(self: &Arc<Self>, server: usize) -> Option<Permit> {
        if !self.counts() {
            return Some(Permit { counted: None, server });
        }
        let entered = self.health[server].enter(self.limits.max_connections);
        entered.then(|| Permit { counted: Some(Arc::clone(self)), server })
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
fn look(
    backend: &Arc<Backend>,
    chooser: &RefCell<Chooser>,
    wish: Wish<'_>,
) -> Result<Option<Permit>, Denied> {
    if let Some(tied) = wish.tied {
        return Ok(backend.permit(tied));
    }
    let now_ms = coarse_ms();
    loop {
        let mut chooser = chooser.borrow_mut();
        // The exact time matters to back-offs alone.
        let now = if chooser.is_calm() { chooser.since() } else { Instant::now() };
        let question = Question { policy: &backend.policy, key: wish.key, tried: wish.tried, now };
        let picked = chooser.next(question, |server| backend.standing(server, now_ms));
        drop(chooser);
        match picked {
            Picked::Server(server) => {
                if let Some(permit) = backend.permit(server) {
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
    chooser: &RefCell<Chooser>,
    mut wish: Wish<'_>,
) -> Result<Option<Permit>, Denied> {
    wish.tied = still_tied(backend, wish);
    if backend.limits.max_connections.is_some() && backend.queue.waiting() > 0 {
        return Ok(None);
    }
    look(backend, chooser, wish)
}

/// Waits for a permit behind those who wait already. The caller bounds the wait.
pub(crate) async fn permit_later(
    backend: &Arc<Backend>,
    chooser: &RefCell<Chooser>,
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
        let looked = look(backend, chooser, wish).inspect_err(|_| {
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
    fn full() -> (Arc<Backend>, RefCell<Chooser>, [Permit; 2]) {
        let server = |index| {
            let path = format!("/nowhere/{index}").into();
            (Server::at(offramp_net::Address::Unix(path)), Candidate::default())
        };
        let mut backend = Backend::new("test", (0..2).map(server));
        backend.limits.max_connections = Some(1);
        backend.check = Some(Check { rise: 1, fall: 1, ..Check::default() });
        backend.ejection = Some(Ejection { failures: 1, ..Ejection::default() });
        let backend = Arc::new(backend);
        let chooser = RefCell::new(Chooser::new(Arc::clone(&backend.picker), 0, Instant::now()));
        let permits = [0, 1].map(|server| backend.permit(server).unwrap());
        (backend, chooser, permits)
    }

    /// Has a request wait that is tied to the first server, has `lost` take that one away, then frees the second.
    fn waits_for_another(lost: impl FnOnce(&Backend)) {
        let (backend, chooser, permits) = full();
        let [_first, second] = permits;
        let tried = Tried::default();
        let wish = Wish { key: None, tied: Some(0), tried: &tried };
        let mut waits = pin!(permit_later(&backend, &chooser, wish));
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
}
