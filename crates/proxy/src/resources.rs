//! The resources of one worker that its connections use, whichever protocol they speak.
//!
//! They belong to one thread: nothing here is shared with other workers but [`SharedResources`], which has
//! its reasons. The parts that only HTTP needs are in [`HttpResources`](crate::l7::HttpResources).

mod drain;
mod shared;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use offramp_net::clock::coarse_ms;
use offramp_net::splice::Pipes;
use offramp_observe::facts::EndpointAddress;
use offramp_observe::{Cause, ConnectionFacts, EventSender, IdSource, RequestFacts, WorkerCounters};
use offramp_tls::HandshakeQueue;
use offramp_upstream::{ConnectEvent, PerWorker};
use tokio::sync::Notify;

use crate::late::Pulse;
use crate::live::table::{Live, LiveSlotId};
use crate::slots::Scratch;
use crate::snapshot::{ClientLimits, Snapshot};

pub(crate) use drain::{DrainSignal, GRACE};
pub use shared::SharedResources;

/// The resources of one worker.
pub(crate) struct Resources {
    index: usize,
    pub(crate) counters: WorkerCounters,
    pub(crate) shared: SharedResources,
    /// The progress of the event loop, for the thread that watches it.
    pub(crate) pulse: Arc<Pulse>,
    /// Lent to a connection while it is polled.
    pub(crate) scratch: RefCell<Scratch>,
    /// Pipes that splice(2) needs.
    pub(crate) pipes: Pipes,
    pub(crate) drain: DrainSignal,
    /// Table of the open connections.
    pub(crate) live: Live,
    /// The handshakes that wait for CPU time.
    pub(crate) handshakes: HandshakeQueue,
    /// Refused clients that are waited for; see [`closing`](crate::closing).
    pub(crate) lingering: Cell<usize>,
    /// Connections that were accepted and have not ended.
    pub(crate) open: OpenConnections,
    events: RefCell<EventSender>,
    ids: RefCell<IdSource>,
    backends: RefCell<BackendStates>,
    random: Cell<u64>,
}

/// The number of open connections, and of those that a drain has cut.
#[derive(Default)]
pub(crate) struct OpenConnections {
    count: Cell<usize>,
    /// Notified when the last connection, or an acceptor, has ended.
    pub(crate) ended: Notify,
    /// Connections that were closed though they had not finished. Read after the worker has ended.
    cut_off: Rc<Cell<u64>>,
}

impl OpenConnections {
    /// A connection was accepted.
    pub(crate) fn begin(&self) {
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// The number of connections that were cut, which outlives the worker.
    pub(crate) fn cut_off(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.cut_off)
    }

    fn end(&self) {
        self.count.set(self.count.get() - 1);
        if self.count.get() == 0 {
            self.ended.notify_one();
        }
    }
}

/// The state of each backend of the newest snapshot in this worker: its turns, and failures of its servers.
struct BackendStates {
    generation: u64,
    /// Made for the first connection of each.
    states: Vec<Option<Rc<PerWorker>>>,
}

impl Resources {
    /// The resources of worker `index`. `seed` is random, and the same for all workers of the process.
    pub(crate) fn new(
        index: usize,
        counters: WorkerCounters,
        events: EventSender,
        shared: SharedResources,
        pulse: Arc<Pulse>,
        seed: u64,
    ) -> Rc<Self> {
        Rc::new(Self {
            index,
            counters,
            shared,
            pulse,
            scratch: RefCell::new(Scratch::new()),
            pipes: Pipes::default(),
            drain: DrainSignal::default(),
            live: Live::default(),
            handshakes: HandshakeQueue::default(),
            lingering: Cell::new(0),
            open: OpenConnections::default(),
            events: RefCell::new(events),
            ids: RefCell::new(IdSource::new(u16::try_from(index).unwrap_or(u16::MAX), seed)),
            backends: RefCell::new(BackendStates { generation: u64::MAX, states: Vec::new() }),
            // Never 0, which the generator does not leave.
            random: Cell::new((seed ^ (index as u64) << 48) | 1),
        })
    }

    /// The reason for which a connection must end now, if there is one.
    pub(crate) fn end_of(&self, place: LiveSlotId) -> Option<Cause> {
        if self.drain.is_cut() {
            return Some(Cause::Drain);
        }
        self.live.is_closing(place).then_some(Cause::ClosedByOperator)
    }

    /// Begins the drain, which takes up to `limit`: connections end when nothing is under way.
    pub(crate) fn begin_drain(&self, limit: Duration) {
        self.drain.begin(limit);
        self.live.wake_all();
    }

    /// Ends every connection at once.
    pub(crate) fn cut_connections(&self) {
        self.drain.cut_all();
        self.live.wake_all();
    }

    /// The state of a backend of `snapshot`, in which failures of its servers are remembered.
    pub(crate) fn backend_state(&self, snapshot: &Snapshot, backend: usize) -> Rc<PerWorker> {
        let mut known = self.backends.borrow_mut();
        if known.generation != snapshot.generation {
            let states = vec![None; snapshot.backends.len()];
            *known = BackendStates { generation: snapshot.generation, states };
        }
        let new = || Rc::new(PerWorker::new(&snapshot.backends[backend], self.index, Instant::now()));
        Rc::clone(known.states[backend].get_or_insert_with(new))
    }

    /// Counts an attempt to connect to a server.
    pub(crate) fn count_attempt(&self, progress: ConnectEvent<'_>) {
        if let ConnectEvent::Attempted { succeeded } = progress {
            self.counters.connect_attempted();
            if !succeeded {
                self.counters.connect_failed();
            }
        }
    }

    /// The facts of a connection that begins.
    pub(crate) fn new_facts(&self, listener: &Arc<str>, client: EndpointAddress) -> Box<ConnectionFacts> {
        let now = SystemTime::now();
        let id = self.ids.borrow_mut().next(now);
        self.counters.connection_accepted();
        let index = u16::try_from(self.index).unwrap_or(u16::MAX);
        Box::new(ConnectionFacts::new(id, index, Arc::clone(listener), now, client))
    }

    /// A random number that need not be secret (xorshift64*).
    pub(crate) fn random(&self) -> u64 {
        let mut state = self.random.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The time at which a connection that begins now has its greatest age, in milliseconds of the coarse clock;
    /// `u64::MAX` without a limit.
    pub(crate) fn old_at(&self, limits: &ClientLimits) -> u64 {
        let Some(age) = limits.max_age else { return u64::MAX };
        coarse_ms().saturating_add(spread(u64::try_from(age.as_millis()).unwrap_or(u64::MAX), self.random()))
    }

    /// Sends the event of a request.
    pub(crate) fn log_request(&self, facts: Box<RequestFacts>) {
        self.events.borrow_mut().send(facts);
    }

    /// Counts a request that has ended.
    pub(crate) fn count_request(&self, facts: &RequestFacts) {
        self.counters.request_ended(facts);
        self.shared.refusals.ended(facts.close.cause, &facts.client());
    }

    /// Counts a connection that has ended, and sends its event if it is `reported`. A connection that `left` had nothing to
    /// finish.
    pub(crate) fn end_connection(&self, facts: Box<ConnectionFacts>, reported: bool, left: bool) {
        self.counters.connection_ended(&facts);
        // These are causes of a request, which was counted already.
        if !matches!(facts.close.cause, Cause::HeadersTooLarge | Cause::TargetTooLong) {
            self.shared.refusals.ended(facts.close.cause, &facts.client.address);
        }
        if facts.close.cause == Cause::Drain && self.drain.is_cut() && !left {
            self.open.cut_off.set(self.open.cut_off.get() + 1);
        }
        if reported {
            self.events.borrow_mut().send(facts);
        }
        self.open.end();
    }
}

/// Spreads an age to 90 % to 110 %, so that connections that began together do not come again together.
fn spread(age: u64, random: u64) -> u64 {
    let tenth = age / 10;
    age - tenth + random % (2 * tenth + 1)
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn ages_are_spread_over_a_fifth() {
        for age in [1, 9, 1000, 30 * 24 * 3_600_000] {
            let tenth = age / 10;
            let reached = [0, tenth, 2 * tenth].map(|random| spread(age, random));
            assert_eq!(reached, [age - tenth, age, age + tenth]);
            assert!((age - tenth..=age + tenth).contains(&spread(age, u64::MAX)));
        }
    }
}
