//! Deadlines of requests, without a timer each.
//!
//! A waiting task registers its deadline and its waker here; one timer per worker checks every [`TICK`] for
//! those that are due. A deadline thus has a resolution of a tenth of a second, and costs a slot in a table.
//! An idle worker has no timer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use offramp_net::clock::{COARSE_MS, coarse_ms};
use tokio::sync::Notify;

/// Interval at which deadlines are checked while there are any.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// Deadlines of a worker.
#[derive(Debug, Default)]
pub(crate) struct DeadlineTable {
    slots: RefCell<Vec<Option<DeadlineSlot>>>,
    free: RefCell<Vec<usize>>,
    /// Number of calls of [`DeadlineTable::call`].
    calls: Cell<u64>,
    /// Set while the timer runs.
    awake: Cell<bool>,
    wanted: Rc<Notify>,
}

#[derive(Debug)]
struct DeadlineSlot {
    due: u64,
    waker: Waker,
}

/// A deadline that is registered while its task waits.
#[derive(Debug)]
pub(crate) struct Deadline {
    watch: Rc<DeadlineTable>,
    slot: Option<usize>,
}

impl DeadlineTable {
    /// Wakes the tasks with a passed deadline.
    pub(crate) fn tick(&self, now: u64) {
        for slot in self.slots.borrow().iter().flatten() {
            if slot.due <= now {
                slot.waker.wake_by_ref();
            }
        }
    }

    /// Number of registered deadlines.
    pub(crate) fn len(&self) -> usize {
        self.slots.borrow().len() - self.free.borrow().len()
    }

    /// Announces a task with deadlines: the timer must run.
    pub(crate) fn call(&self) {
        self.calls.set(self.calls.get() + 1);
        if !self.awake.replace(true) {
            self.wanted.notify_one();
        }
    }

    /// Number of calls of [`DeadlineTable::call`].
    pub(crate) fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Stops the timer until the next call; returns the notification of it.
    pub(crate) fn sleep(&self) -> Rc<Notify> {
        self.awake.set(false);
        Rc::clone(&self.wanted)
    }

    /// Creates an unregistered deadline.
    pub(crate) fn deadline(self: &Rc<Self>) -> Deadline {
        Deadline { watch: Rc::clone(self), slot: None }
    }
}

impl Deadline {
    /// Registers `waker` for `due`; returns true if that has passed. The start of the period may have been
    /// later than the coarse clock showed, so it passes only when it certainly has: no wait is shorter than
    /// requested.
    pub(crate) fn wait(&mut self, due: u64, waker: &Waker) -> bool {
        let due = due.saturating_add(COARSE_MS);
        if due <= coarse_ms() {
            return true;
        }
        let mut slots = self.watch.slots.borrow_mut();
        if let Some(slot) = self.slot.and_then(|at| slots[at].as_mut()) {
            slot.due = due;
            if !slot.waker.will_wake(waker) {
                slot.waker = waker.clone();
            }
            return false;
        }
        self.watch.call();
        let slot = Some(DeadlineSlot { due, waker: waker.clone() });
        let at = match self.watch.free.borrow_mut().pop() {
            Some(at) => {
                slots[at] = slot;
                at
            }
            None => {
                slots.push(slot);
                slots.len() - 1
            }
        };
        self.slot = Some(at);
        false
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(at) = self.slot {
            self.watch.slots.borrow_mut()[at] = None;
            self.watch.free.borrow_mut().push(at);
        }
    }
}

/// The time `duration` after `from`, in milliseconds of the coarse clock.
pub(crate) fn after(from: u64, duration: Duration) -> u64 {
    from.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn no_wait_is_short() {
        let watch = Rc::new(DeadlineTable::default());
        let wait = Duration::from_millis(25);
        for _ in 0..20 {
            // Started anywhere within a tick of the coarse clock.
            let begun = Instant::now();
            let due = after(coarse_ms(), wait);
            while !watch.deadline().wait(due, Waker::noop()) {
                std::hint::spin_loop();
            }
            let waited = begun.elapsed();
            assert!(waited >= wait, "{waited:?}");
        }
    }

    #[test]
    fn slots_are_used_again() {
        let watch = Rc::new(DeadlineTable::default());
        let far = after(coarse_ms(), Duration::from_secs(3600));
        let mut first = watch.deadline();
        let mut second = watch.deadline();
        assert!(!first.wait(far, Waker::noop()) && !second.wait(far, Waker::noop()));
        assert!(!first.wait(far + 1, Waker::noop()));
        assert_eq!((watch.len(), watch.calls()), (2, 2));
        drop(first);
        assert_eq!(watch.len(), 1);
        let mut third = watch.deadline();
        assert!(!third.wait(far, Waker::noop()));
        assert_eq!((watch.len(), watch.slots.borrow().len()), (2, 2));
        assert!(third.wait(0, Waker::noop()), "that is over");
    }
}
