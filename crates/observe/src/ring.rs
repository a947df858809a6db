//! Rings from the workers to the flusher: one per worker, bounded, never blocking, with a count of drops.
//!
//! A ring has one producer, its worker, and one consumer, the flusher. It holds pointers: an empty ring takes
//! 32 KiB, a full one the events in it. Sending costs one store, one fence and one load of a cache line that
//! all workers share but that is written only when the flusher falls asleep or wakes; waking it is the only
//! system call.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::event::Event;

/// The sending end of a ring. Not `Clone`: a ring has one producer.
pub struct EventSender {
    ring: Producer<Event>,
    lane: Arc<LaneTally>,
    shared: Arc<RingShared>,
}

/// The outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// In the ring, on its way to the flusher.
    Queued,
    /// The ring was full; the event is dropped and counted.
    Dropped,
    /// No consumer: there is no output, or the flusher was stopped.
    Unwanted,
}

impl EventSender {
    /// Sends the record of a finished connection or request. Never blocks.
    pub fn send(&mut self, event: impl Into<Event>) -> SendOutcome {
        if !self.shared.wanted.load(Ordering::Relaxed) {
            return SendOutcome::Unwanted;
        }
        if self.ring.push(event.into()).is_err() {
            self.lane.queue_full.add(1);
            return SendOutcome::Dropped;
        }
        self.lane.queued.add(1);
        self.shared.wakeup.notify();
        SendOutcome::Queued
    }
}

impl std::fmt::Debug for EventSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSender").finish_non_exhaustive()
    }
}

/// Reports the delivery of events. Cheap to clone.
#[derive(Clone)]
pub struct EventMonitor {
    lanes: Arc<[Arc<LaneTally>]>,
    shared: Arc<RingShared>,
}

impl EventMonitor {
    /// The counts so far.
    #[must_use]
    pub fn tally(&self) -> EventTally {
        // Exits are read before entries, so that the difference is never negative.
        let written = self.shared.written.get();
        let output_failed = self.shared.output_failed.get();
        EventTally {
            queued: self.lanes.iter().map(|lane| lane.queued.get()).sum(),
            queue_full: self.lanes.iter().map(|lane| lane.queue_full.get()).sum(),
            written,
            output_failed,
        }
    }
}

impl std::fmt::Debug for EventMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EventMonitor").field(&self.tally()).finish()
    }
}

/// Delivery counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTally {
    /// Events that entered a ring.
    pub queued: u64,
    /// Events dropped because their ring was full.
    pub queue_full: u64,
    /// Events that the output took.
    pub written: u64,
    /// Events that left a ring and were lost because the output failed.
    pub output_failed: u64,
}

impl EventTally {
    /// Events lost for either reason.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.queue_full + self.output_failed
    }

    /// Events still in a ring.
    #[must_use]
    pub const fn pending(&self) -> u64 {
        self.queued.saturating_sub(self.written + self.output_failed)
    }
}

/// The receiving ends of all rings.
pub(crate) struct Rings {
    consumers: Vec<Consumer<Event>>,
    /// Events of each ring that are for the next [`Rings::drain`].
    marked: Vec<usize>,
    capacity: usize,
}

impl Rings {
    /// Creates one ring of `capacity` events per worker.
    pub(crate) fn new(workers: usize, capacity: usize) -> (Self, Vec<EventSender>, EventMonitor) {
        let shared = Arc::new(RingShared::new());
        let lanes: Arc<[Arc<LaneTally>]> = (0..workers).map(|_| Arc::new(LaneTally::default())).collect();
        let (mut consumers, mut senders) = (Vec::new(), Vec::new());
        for lane in lanes.iter() {
            let (producer, consumer) = RingBuffer::new(capacity);
            consumers.push(consumer);
            senders.push(EventSender { ring: producer, lane: lane.clone(), shared: shared.clone() });
        }
        let marked = vec![0; workers];
        (Self { consumers, marked, capacity }, senders, EventMonitor { lanes, shared })
    }

    /// Marks the events that are there. A reader that looks for commands between this and [`Rings::drain`] has read every
    /// command that was given before one of these events was sent.
    pub(crate) fn mark(&mut self) {
        for (ring, marked) in self.consumers.iter().zip(&mut self.marked) {
            *marked = ring.slots();
        }
    }

    /// Passes on the marked events, one ring after the other, until there are no more or `each` breaks.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&Event) -> ControlFlow<()>) -> DrainExtent {
        // One event per ring and round: a busy worker cannot starve the others.
        loop {
            let mut found = false;
            for (ring, marked) in self.consumers.iter_mut().zip(&mut self.marked) {
                if *marked > 0
                    && let Ok(event) = ring.pop()
                {
                    *marked -= 1;
                    found = true;
                    if each(&event).is_break() {
                        return DrainExtent::InPart;
                    }
                }
            }
            if !found {
                return DrainExtent::Whole;
            }
        }
    }

    pub(crate) fn are_empty(&self) -> bool {
        self.consumers.iter().all(Consumer::is_empty)
    }

    /// Returns `true` if a ring is half full, so that a larger batch must not be waited for.
    pub(crate) fn are_pressing(&self) -> bool {
        self.consumers.iter().any(|ring| ring.slots() * 2 > self.capacity)
    }
}

/// The extent of a [`Rings::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainExtent {
    /// All marked events were passed on.
    Whole,
    /// Stopped by the callback.
    InPart,
}

impl EventMonitor {
    pub(crate) fn shared(&self) -> &RingShared {
        &self.shared
    }
}

/// State shared by workers and flusher.
pub(crate) struct RingShared {
    pub(crate) wakeup: WakeSignal,
    pub(crate) wanted: AtomicBool,
    pub(crate) written: Tally,
    pub(crate) output_failed: Tally,
}

impl RingShared {
    fn new() -> Self {
        Self {
            wakeup: WakeSignal::default(),
            wanted: AtomicBool::new(true),
            written: Tally::default(),
            output_failed: Tally::default(),
        }
    }
}

/// Counts of one worker, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct LaneTally {
    queued: Tally,
    queue_full: Tally,
}

/// A counter with one writer.
#[derive(Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// Wakes one sleeping thread, at the cost of a fence and a load while it is awake.
///
/// Sleeper: set `asleep`, fence, check for work, park. Notifier: publish work, fence, check `asleep`. At
/// least one of them sees the other's write, so no work is missed (Dekker's algorithm, which needs the
/// sequentially consistent fence on both sides).
#[derive(Default)]
pub(crate) struct WakeSignal {
    asleep: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl WakeSignal {
    /// Registers the calling thread as the sleeper; once, before its first sleep.
    pub(crate) fn adopt_current_thread(&self) {
        let _ = self.sleeper.set(std::thread::current());
    }

    /// Wakes the sleeper if it sleeps. The work must be visible already.
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        // Only the first of many notifiers pays for the system call.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the sleeper even from a [`pause`](Self::pause).
    pub(crate) fn wake(&self) {
        // A sleeper that has not registered yet sees the work before its first sleep.
        fence(Ordering::SeqCst);
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    /// Sleeps until notified, or for `limit`; not at all if there `is_work`. May return early.
    pub(crate) fn sleep(&self, limit: Option<Duration>, is_work: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !is_work() {
            match limit {
                Some(limit) => std::thread::park_timeout(limit),
                None => std::thread::park(),
            }
        }
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Sleeps for `time` without asking for notification, so that senders need no system call.
    /// [`wake`](Self::wake) ends it.
    pub(crate) fn pause(time: Duration) {
        std::thread::park_timeout(time);
    }
}

#[cfg(test)]
mod tests {
    use super::{DrainExtent, Rings, SendOutcome};
    use crate::event::Event;
    use crate::facts::{ConnectionFacts, ConnectionId, EndpointAddress, IdSource};
    use std::ops::ControlFlow;
    use std::time::UNIX_EPOCH;

    fn facts(ids: &mut IdSource) -> Box<ConnectionFacts> {
        let id = ids.next(UNIX_EPOCH);
        Box::new(ConnectionFacts::new(id, 0, "test".into(), UNIX_EPOCH, EndpointAddress::Unix(None)))
    }

    fn id(event: &Event) -> ConnectionId {
        match event {
            Event::Connection(facts) => facts.id,
            Event::Request(facts) => facts.connection.id,
        }
    }

    #[test]
    fn a_full_ring_counts_exactly_what_it_drops() {
        let mut ids = IdSource::new(0, 0);
        let (mut rings, mut senders, monitor) = Rings::new(2, 8);
        let sent: Vec<_> = (0..11).map(|_| senders[0].send(facts(&mut ids))).collect();
        assert_eq!(sent.iter().filter(|&&sent| sent == SendOutcome::Queued).count(), 8);
        assert_eq!(senders[1].send(facts(&mut ids)), SendOutcome::Queued);
        assert!(rings.are_pressing());
        let mut seen = Vec::new();
        rings.mark();
        let drained = rings.drain(|event| {
            seen.push(id(event));
            ControlFlow::Continue(())
        });
        assert_eq!(drained, DrainExtent::Whole);
        assert_eq!(seen.len(), 9);
        let tally = monitor.tally();
        assert_eq!((tally.queued, tally.queue_full, tally.lost(), tally.pending()), (9, 3, 3, 9));
        assert!(rings.are_empty() && !rings.are_pressing());
    }

    #[test]
    fn draining_takes_turns_and_stops_on_break() {
        let mut ids = [IdSource::new(0, 0), IdSource::new(1, 0)];
        let (mut rings, mut senders, _) = Rings::new(2, 8);
        let mut first = Vec::new();
        for (sender, ids) in senders.iter_mut().zip(&mut ids) {
            let facts = facts(ids);
            first.push(facts.id);
            sender.send(facts);
            sender.send(self::facts(ids));
        }
        let mut seen = Vec::new();
        rings.mark();
        let drained = rings.drain(|event| {
            seen.push(id(event));
            if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(drained, DrainExtent::InPart);
        assert_eq!(seen, first);
        assert!(!rings.are_empty());
    }

    #[test]
    fn an_event_that_is_sent_behind_the_mark_waits_for_the_next() {
        let mut ids = IdSource::new(0, 0);
        let (mut rings, mut senders, _) = Rings::new(1, 8);
        for sent in 1..=2 {
            senders[0].send(facts(&mut ids));
            rings.mark();
            senders[0].send(facts(&mut ids));
            let mut seen = 0;
            let drained = rings.drain(|_| {
                seen += 1;
                ControlFlow::Continue(())
            });
            assert_eq!((drained, seen), (DrainExtent::Whole, sent));
        }
    }
}
