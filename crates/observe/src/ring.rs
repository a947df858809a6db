//! Worker → flusher: one bounded ring per worker, which never blocks and counts what it drops.
//!
//! A ring has one producer, its worker, and one consumer, the flusher. It holds pointers: an empty ring costs
//! 32 KiB, a full one the events in it. Sending costs one store, one fence and one load of a line that all
//! workers share but that is written only when the flusher falls asleep or is woken; a system call is made
//! only to wake it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::event::Event;

/// A worker's end. It is not `Clone`: a ring has one producer.
pub struct EventSender {
    ring: Producer<Event>,
    lane: Arc<LaneTally>,
    shared: Arc<Shared>,
}

/// What became of an event that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Queued,
    /// The ring was full; it is gone and counted.
    Dropped,
    /// Nobody wants events: there is no output, or the flusher was stopped.
    Unwanted,
}

impl EventSender {
    /// Sends the facts of a finished connection or request. Never blocks.
    pub fn send(&mut self, event: impl Into<Event>) -> Sent {
        if !self.shared.wanted.load(Ordering::Relaxed) {
            return Sent::Unwanted;
        }
        if self.ring.push(event.into()).is_err() {
            self.lane.queue_full.add(1);
            return Sent::Dropped;
        }
        self.lane.queued.add(1);
        self.shared.bell.ring();
        Sent::Queued
    }
}

impl std::fmt::Debug for EventSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventSender").finish_non_exhaustive()
    }
}

/// Reads what became of the events. Cheap to clone.
#[derive(Clone)]
pub struct EventMonitor {
    lanes: Arc<[Arc<LaneTally>]>,
    shared: Arc<Shared>,
}

impl EventMonitor {
    /// The figures so far.
    #[must_use]
    pub fn tally(&self) -> EventTally {
        // What left a ring is read before what entered it, so that the difference is never negative.
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

/// What became of the events at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTally {
    /// Events that entered a ring.
    pub queued: u64,
    /// Events that found their ring full, and are lost.
    pub queue_full: u64,
    /// Events written.
    pub written: u64,
    /// Events that left a ring and could not be written, and are lost.
    pub output_failed: u64,
}

impl EventTally {
    /// Events that were lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.queue_full + self.output_failed
    }

    /// Events that are still on their way.
    #[must_use]
    pub const fn pending(&self) -> u64 {
        self.queued.saturating_sub(self.written + self.output_failed)
    }
}

/// The flusher's ends of all rings.
pub(crate) struct Rings {
    consumers: Vec<Consumer<Event>>,
    capacity: usize,
}

impl Rings {
    /// One ring of `capacity` events per worker.
    pub(crate) fn new(workers: usize, capacity: usize) -> (Self, Vec<EventSender>, EventMonitor) {
        let shared = Arc::new(Shared::new());
        let lanes: Arc<[Arc<LaneTally>]> = (0..workers).map(|_| Arc::new(LaneTally::default())).collect();
        let (mut consumers, mut senders) = (Vec::new(), Vec::new());
        for lane in lanes.iter() {
            let (producer, consumer) = RingBuffer::new(capacity);
            consumers.push(consumer);
            senders.push(EventSender { ring: producer, lane: lane.clone(), shared: shared.clone() });
        }
        (Self { consumers, capacity }, senders, EventMonitor { lanes, shared })
    }

    /// Hands out events, ring by ring in turn, until all are empty or `each` breaks.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&Event) -> ControlFlow<()>) -> Drained {
        // One event of each ring per turn: a busy worker does not keep the others waiting.
        loop {
            let mut found = false;
            for ring in &mut self.consumers {
                if let Ok(event) = ring.pop() {
                    found = true;
                    if each(&event).is_break() {
                        return Drained::InPart;
                    }
                }
            }
            if !found {
                return Drained::Whole;
            }
        }
    }

    pub(crate) fn are_empty(&self) -> bool {
        self.consumers.iter().all(Consumer::is_empty)
    }

    /// Whether one of them is half full: no time to wait for a larger batch.
    pub(crate) fn are_pressing(&self) -> bool {
        self.consumers.iter().any(|ring| ring.slots() * 2 > self.capacity)
    }
}

/// How much [`Rings::drain`] took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// All rings were seen empty.
    Whole,
    /// It has an order to stop.
    InPart,
}

impl EventMonitor {
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// What the workers and the flusher share.
pub(crate) struct Shared {
    pub(crate) bell: Bell,
    pub(crate) wanted: AtomicBool,
    pub(crate) written: Tally,
    pub(crate) output_failed: Tally,
}

impl Shared {
    fn new() -> Self {
        Self {
            bell: Bell::default(),
            wanted: AtomicBool::new(true),
            written: Tally::default(),
            output_failed: Tally::default(),
        }
    }
}

/// One worker's figures, on lines that no other worker writes.
#[derive(Default)]
#[repr(align(128))]
struct LaneTally {
    queued: Tally,
    queue_full: Tally,
}

/// A number with one writer.
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

/// Wakes one sleeping thread, at the price of a fence and a load while it is awake.
///
/// Sleeper: say asleep, fence, look for work, park. Ringer: make work, fence, look for the sleeper. Of two
/// such sequences at least one sees the other, so no work is slept over (the pattern of Dekker's algorithm,
/// which needs the sequentially consistent fence on both sides).
#[derive(Default)]
pub(crate) struct Bell {
    asleep: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Bell {
    /// Names the calling thread as the one that sleeps; once, before its first sleep.
    pub(crate) fn adopt_current_thread(&self) {
        let _ = self.sleeper.set(std::thread::current());
    }

    /// Wakes the sleeper if it sleeps. What it was woken for must be visible already.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        // Only the first of many ringers pays for the system call.
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Wakes the sleeper even out of a [`pause`](Self::pause).
    pub(crate) fn wake(&self) {
        // A sleeper that is not adopted yet sees the work before its first sleep.
        fence(Ordering::SeqCst);
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    /// Sleeps until rung, or for `limit` if there is one; not at all if there `is_work`. It may return early.
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

    /// Sleeps for `time`, and lets ringers pass without a system call. [`wake`](Self::wake) ends it.
    pub(crate) fn pause(time: Duration) {
        std::thread::park_timeout(time);
    }
}

#[cfg(test)]
mod tests {
    use super::{Drained, Rings, Sent};
    use crate::event::Event;
    use crate::facts::{Address, ConnectionFacts, ConnectionId, IdSource};
    use std::ops::ControlFlow;
    use std::time::UNIX_EPOCH;

    fn facts(ids: &mut IdSource) -> Box<ConnectionFacts> {
        let id = ids.next(UNIX_EPOCH);
        Box::new(ConnectionFacts::new(id, 0, "test".into(), UNIX_EPOCH, Address::Unix(None)))
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
        assert_eq!(sent.iter().filter(|&&sent| sent == Sent::Queued).count(), 8);
        assert_eq!(senders[1].send(facts(&mut ids)), Sent::Queued);
        assert!(rings.are_pressing());
        let mut seen = Vec::new();
        let drained = rings.drain(|event| {
            seen.push(id(event));
            ControlFlow::Continue(())
        });
        assert_eq!(drained, Drained::Whole);
        assert_eq!(seen.len(), 9);
        let tally = monitor.tally();
        assert_eq!((tally.queued, tally.queue_full, tally.lost(), tally.pending()), (9, 3, 3, 9));
        assert!(rings.are_empty() && !rings.are_pressing());
    }

    #[test]
    fn draining_takes_turns_and_stops_when_told() {
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
        let drained = rings.drain(|event| {
            seen.push(id(event));
            if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(drained, Drained::InPart);
        assert_eq!(seen, first);
        assert!(!rings.are_empty());
    }
}
