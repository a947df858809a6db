//! Handshakes take turns, so that many of them at once do not keep a worker from its other connections.
//!
//! A signature with RSA-4096 takes 2 to 4 ms, and tokio runs up to 61 ready tasks before it looks at sockets again:
//! that would be a fifth of a second. So the handshakes of a worker have a budget of CPU time ([`BUDGET`]). When it is
//! used up, the next handshakes wait in a [`line`]. The one that is chosen has the event loop look at
//! readiness; then the budget begins anew.
//!
//! The line is at most as long as there are handshakes, which `limits.connections` bounds. A handshake that waits for
//! too long leaves it by `handshake_timeout`; one that cannot be in time does not enter it.

mod line;
#[cfg(test)]
mod tests;
mod usage;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use line::{Line, Wish};
use offramp_net::turn;

/// How much CPU time the handshakes of a worker have before its event loop looks at readiness: one or two with
/// P-256, and one more step than fits, which may be an RSA-4096 signature. Looking costs 2 µs. In a flood, this is
/// most of what a request of an open connection waits for.
const BUDGET: Duration = Duration::from_micros(250);

/// The handshakes of one worker that want CPU time.
#[derive(Debug)]
pub struct HandshakeQueue {
    spent: Cell<Duration>,
    /// How often the event loop had slept when the budget was last found used up.
    wakes: Cell<u64>,
    line: RefCell<Line<Waker>>,
    begun: Instant,
}

/// Whose handshake it is, for the time that it takes.
pub struct Caller<'a> {
    queue: &'a HandshakeQueue,
    client: IpAddr,
    deadline: Option<Instant>,
    /// Whether the client resumes a session; asked at most once for each time that it waits.
    resumes: &'a dyn Fn() -> bool,
    /// Whether it waits now.
    waits: Cell<bool>,
    /// Whether it was in the line as one that resumes.
    resumed: Cell<bool>,
    /// The nanoseconds that were charged in advance for the next step.
    charged: Cell<u64>,
}

/// The handshake cannot be done in time: too many others wait, and the client has used more than they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed;

impl<'a> Caller<'a> {
    /// A handshake of `client`, all of whose addresses count as one, that has to be done by `deadline`. `resumes` says
    /// whether a ticket of ours came with it; it is only asked where the handshake has to wait.
    #[must_use]
    pub fn new(
        queue: &'a HandshakeQueue,
        client: IpAddr,
        deadline: Option<Instant>,
        resumes: &'a dyn Fn() -> bool,
    ) -> Self {
        let (waits, resumed, charged) = Default::default();
        Self { queue, client, deadline, resumes, waits, resumed, charged }
    }

    /// A handshake in a queue in which all are alike.
    #[must_use]
    pub fn anyone(queue: &'a HandshakeQueue) -> Self {
        Self::new(queue, Ipv6Addr::UNSPECIFIED.into(), None, &|| false)
    }

    /// Whether it waits for its turn, or did so when it was given up.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.get()
    }

    /// Whether the step that may be taken now was waited for.
    pub(crate) fn waited(&self) -> bool {
        self.charged.get() > 0
    }

    /// Waits until the next step of a handshake may be taken. Ready at once while there is budget and nobody waits.
    ///
    /// `signed`: its signature is made. What is left of it costs little, and would be lost work if it waited behind
    /// newcomers: after a restart with thousands of clients nobody would be done in time. So it only has the event
    /// loop look at readiness first.
    ///
    /// # Errors
    /// Where it cannot be in time.
    pub(crate) async fn enter(&self, signed: bool) -> Result<(), Shed> {
        let queue = self.queue;
        if queue.spent.get() < BUDGET && (signed || queue.is_empty()) {
            return Ok(());
        }
        if queue.is_empty() && queue.has_slept() {
            // All that was spent was spent before: nobody waits for it.
            queue.spent.set(Duration::ZERO);
            return Ok(());
        }
        if signed {
            turn::next().await;
            if queue.is_empty() {
                queue.spent.set(Duration::ZERO);
            }
            return Ok(());
        }
        let mut place = Place { caller: self, number: None, rested: false, served: false };
        poll_fn(|cx| place.poll(cx)).await
    }

    /// Notes that a step took this long.
    pub(crate) fn spend(&self, time: Duration) {
        let queue = self.queue;
        queue.spent.set(queue.spent.get().saturating_add(time));
        if !queue.is_empty() {
            let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let charged = self.charged.take();
            queue.line.borrow_mut().charge(self.client, self.resumed.get(), charged, nanos);
        }
    }

    fn wish(&self, now: Instant) -> Wish {
        let patience = self.deadline.map(|deadline| nanos(deadline.saturating_duration_since(now)));
        self.resumed.set((self.resumes)());
        Wish { client: self.client, resumes: self.resumed.get(), patience }
    }
}

impl Default for HandshakeQueue {
    fn default() -> Self {
        Self {
            spent: Cell::default(),
            wakes: Cell::default(),
            line: RefCell::default(),
            begun: Instant::now(),
        }
    }
}

impl HandshakeQueue {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.line.borrow().len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.borrow().is_empty()
    }

    /// Whether the event loop has slept since this was asked last.
    fn has_slept(&self) -> bool {
        let wakes = turn::wakes();
        self.wakes.replace(wakes) != wakes
    }

    /// Nanoseconds since the queue was made.
    fn time(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.begun))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A handshake that waits. Dropped, it leaves the queue.
struct Place<'q> {
    caller: &'q Caller<'q>,
    number: Option<u64>,
    /// Whether the event loop was asked to look at readiness for this one.
    rested: bool,
    served: bool,
}

impl Place<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Shed>> {
        let queue = self.caller.queue;
        let number = match self.number {
            Some(number) => number,
            None => {
                let now = Instant::now();
                let wish = self.caller.wish(now);
                let entered = queue.line.borrow_mut().enter(wish, queue.time(now), cx.waker().clone());
                let Some(number) = entered else { return Poll::Ready(Err(Shed)) };
                self.caller.waits.set(true);
                *self.number.insert(number)
            }
        };
        let mut line = queue.line.borrow_mut();
        if line.chosen() == Some(number) {
            let used_up = queue.spent.get() >= BUDGET;
            if !used_up || self.rested {
                if used_up {
                    queue.spent.set(Duration::ZERO);
                }
                self.served = true;
                self.caller.charged.set(line.cost(number));
                return Poll::Ready(Ok(()));
            }
            self.rested = true;
            turn::poll_next(cx);
        }
        if let Some(waker) = line.token(number) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let queue = self.caller.queue;
        if self.served {
            self.caller.waits.set(false);
        }
        let mut line = queue.line.borrow_mut();
        let now = queue.time(Instant::now());
        if let Some(next) = line.leave(number, self.served, now) {
            next.wake_by_ref();
        }
    }
}
