//! CPU budget of handshakes, so that many of them at once do not block the other connections of a worker.
//!
//! An RSA-4096 signature takes 2 to 4 ms, and tokio runs up to 61 ready tasks before it checks sockets again:
//! a fifth of a second. So the handshakes of a worker share a budget of CPU time ([`BUDGET`]). When it is
//! used up, the next handshakes wait in a [`mod@line`]. The chosen one makes the event loop check readiness; then
//! the budget is renewed.
//!
//! The line is at most as long as the number of handshakes, which `limits.connections` bounds. A handshake
//! that waits for too long leaves it by `handshake_timeout`; one that cannot finish in time does not enter
//! it.

mod line;
#[cfg(test)]
mod tests;
mod usage;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use line::{HandshakeBacklog, TurnRequest};
use offramp_net::turn;

/// CPU time of a worker's handshakes between two readiness checks: one or two with P-256, plus one step that
/// exceeds the rest, which may be an RSA-4096 signature. A check costs 2 µs. In a flood, the budget is most
/// of what a request on an open connection waits for.
const BUDGET: Duration = Duration::from_micros(250);

/// Queue of one worker's handshakes for CPU time.
#[derive(Debug)]
pub struct HandshakeQueue {
    spent: Cell<Duration>,
    /// Count of event loop sleeps when the budget was last found used up.
    wakes: Cell<u64>,
    line: RefCell<HandshakeBacklog<Waker>>,
    begun: Instant,
}

/// A handshake and its client, as a user of the queue.
pub struct HandshakeRequest<'a> {
    queue: &'a HandshakeQueue,
    client: IpAddr,
    deadline: Option<Instant>,
    /// Returns true if the client resumes a session; called at most once per wait.
    resumes: &'a dyn Fn() -> bool,
    /// Set while it waits.
    waits: Cell<bool>,
    /// Set if it was queued as a resumption.
    resumed: Cell<bool>,
    /// Nanoseconds charged in advance for the next step.
    charged: Cell<u64>,
}

/// Rejection of a handshake that cannot finish in time: too many others wait, and the client has used more
/// than they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed;

impl<'a> HandshakeRequest<'a> {
    /// A handshake of `client`, with all its addresses as one, to be finished by `deadline`. `resumes`
    /// says if it presents one of our tickets; it is called only if the handshake has to wait.
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

    /// A handshake without fairness between clients.
    #[must_use]
    pub fn anyone(queue: &'a HandshakeQueue) -> Self {
        Self::new(queue, Ipv6Addr::UNSPECIFIED.into(), None, &|| false)
    }

    /// Returns true if it waits for its turn, or did so when it was dropped.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.waits.get()
    }

    /// Returns true if the current step had to wait.
    pub(crate) fn waited(&self) -> bool {
        self.charged.get() > 0
    }

    /// Waits until the next step of a handshake may run. Ready at once while there is budget and the queue is
    /// empty.
    ///
    /// `signed` is set once its signature is made. The rest costs little, and the work done would be lost if
    /// it waited behind newcomers: after a restart with thousands of clients none would finish in time. So it
    /// only makes the event loop check readiness first.
    ///
    /// # Errors
    /// It cannot finish in time.
    pub(crate) async fn enter(&self, signed: bool) -> Result<(), Shed> {
        let queue = self.queue;
        if queue.spent.get() < BUDGET && (signed || queue.is_empty()) {
            return Ok(());
        }
        if queue.is_empty() && queue.has_slept() {
            // All CPU time was spent before the sleep: no task has waited for it.
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
        let mut place = QueuedHandshake { caller: self, number: None, rested: false, served: false };
        poll_fn(|cx| place.poll(cx)).await
    }

    /// Accounts the duration of a step.
    pub(crate) fn spend(&self, time: Duration) {
        let queue = self.queue;
        queue.spent.set(queue.spent.get().saturating_add(time));
        if !queue.is_empty() {
            let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let charged = self.charged.take();
            queue.line.borrow_mut().charge(self.client, self.resumed.get(), charged, nanos);
        }
    }

    fn request(&self, now: Instant) -> TurnRequest {
        let patience = self.deadline.map(|deadline| nanos(deadline.saturating_duration_since(now)));
        self.resumed.set((self.resumes)());
        TurnRequest { client: self.client, resumes: self.resumed.get(), patience }
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
    /// Number of waiting handshakes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.line.borrow().len()
    }

    /// Returns true without waiting handshakes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.borrow().is_empty()
    }

    /// Returns true if the event loop has slept since the last call.
    fn has_slept(&self) -> bool {
        let wakes = turn::wakes();
        self.wakes.replace(wakes) != wakes
    }

    /// Nanoseconds since the queue was created.
    fn time(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.begun))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A waiting handshake. Dropping it leaves the queue.
struct QueuedHandshake<'q> {
    caller: &'q HandshakeRequest<'q>,
    number: Option<u64>,
    /// Set once the event loop was asked to check readiness for this one.
    rested: bool,
    served: bool,
}

impl QueuedHandshake<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Shed>> {
        let queue = self.caller.queue;
        let number = match self.number {
            Some(number) => number,
            None => {
                let now = Instant::now();
                let request = self.caller.request(now);
                let entered = queue.line.borrow_mut().enter(request, queue.time(now), cx.waker().clone());
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

impl Drop for QueuedHandshake<'_> {
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
