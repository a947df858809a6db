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
pub struct Seat {
    /// Absent where nobody needs the count.
    counted: Option<Arc<Backend>>,
    server: usize,
}

impl Seat {
    /// The server's place in its backend.
    #[must_use]
    pub fn server(&self) -> usize {
        self.server
    }
}

impl Drop for Seat {
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

    fn standing(&self, server: usize, now: u64) -> Standing {
        self.health[server].standing(now, self.slow_return, self.limits.max_connections)
    }

    fn seat(self: &Arc<Self>, server: usize) -> Option<Seat> {
        if !self.counts() {
            return Some(Seat { counted: None, server });
        }
        let entered = self.health[server].enter(self.limits.max_connections);
        entered.then(|| Seat { counted: Some(Arc::clone(self)), server })
    }
}

/// The key of a client.
pub(crate) fn client_key(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => key(&address.octets()),
        IpAddr::V6(address) => key(&address.octets()),
    }
}

/// Looks once for a seat; `Ok(None)`: all are full.
fn look(backend: &Arc<Backend>, chooser: &RefCell<Chooser>, wish: Wish<'_>) -> Result<Option<Seat>, Denied> {
    if let Some(tied) = wish.tied {
        return Ok(backend.seat(tied));
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
                if let Some(seat) = backend.seat(server) {
                    return Ok(Some(seat));
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
            && !health.is_draining()
            && !health.is_ejected(coarse_ms())
            && !wish.tried.contains(*server)
    };
    wish.tied.filter(usable)
}

/// A seat on a server at once, if there is one and nobody waits for it already; `Ok(None)`: wait.
pub(crate) fn seat_now(
    backend: &Arc<Backend>,
    chooser: &RefCell<Chooser>,
    mut wish: Wish<'_>,
) -> Result<Option<Seat>, Denied> {
    wish.tied = still_tied(backend, wish);
    if backend.limits.max_connections.is_some() && backend.queue.waiting() > 0 {
        return Ok(None);
    }
    look(backend, chooser, wish)
}

/// Waits for a seat behind those who wait already. The caller bounds the wait.
pub(crate) async fn seat_later(
    backend: &Arc<Backend>,
    chooser: &RefCell<Chooser>,
    mut wish: Wish<'_>,
) -> Result<Seat, Denied> {
    let mut place: Option<Place> = None;
    let asked = wish.tied;
    poll_fn(|cx| {
        wish.tied = asked;
        wish.tied = still_tied(backend, wish);
        let called = match &place {
            Some(place) => place.is_called(cx.waker()),
            None => {
                let (joined, first) = join(backend, wish.tied, cx.waker())?;
                place = Some(joined);
                first
            }
        };
        if !called {
            return Poll::Pending;
        }
        match look(backend, chooser, wish)? {
            None => Poll::Pending,
            Some(seat) => {
                if let Some(place) = place.take() {
                    place.served();
                }
                Poll::Ready(Ok(seat))
            }
        }
    })
    .await
}

fn join(backend: &Arc<Backend>, tied: Option<usize>, waker: &Waker) -> Result<(Place, bool), Denied> {
    let wants = tied.map(|server| backend.id(server));
    backend.queue.join(wants, backend.limits.queue, waker).ok_or(Denied::QueueFull)
}
