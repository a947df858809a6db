//! The queue of a backend with all servers at `max_connections`.
//!
//! First come, first served, over all workers: a finished request wakes the first waiter that can use the
//! freed slot, on any worker. While the queue is empty it costs one load if slots are counted, and nothing
//! otherwise. The queue decides nothing: a woken waiter tries again itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use crate::health::locked;

/// Requests that wait for a server of a backend. Carried over reloads.
#[derive(Debug, Default)]
pub struct BackendQueue {
    /// Number of waiters, readable without the lock.
    waiting: AtomicU32,
    tickets: AtomicU64,
    waiters: Mutex<VecDeque<QueuedRequest>>,
    decision: Mutex<()>,
}

/// Identifies a server across reloads: the address of its health.
pub(crate) type ServerId = usize;

#[derive(Debug)]
struct QueuedRequest {
    ticket: u64,
    /// The only server that it can use, if it is tied to one.
    wants: Option<ServerId>,
    waker: Waker,
    /// Set if a slot was freed for it and it has not tried yet.
    woken: bool,
}

/// A position in the queue, given up when dropped.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    queue: Arc<BackendQueue>,
    ticket: u64,
}

impl BackendQueue {
    /// Number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Appends a waiter, unless `bound` wait already. The flag is set if none ahead waits for the same, so
    /// that the newcomer has to try once more: a slot may have become free just before.
    pub(crate) fn join(
        self: &Arc<Self>,
        wants: Option<ServerId>,
        bound: u32,
        waker: &Waker,
    ) -> Option<(QueueTicket, bool)> {
        let mut waiters = locked(&self.waiters);
        if waiters.len() >= bound as usize {
            return None;
        }
        let first = !waiters.iter().any(|ahead| ahead.wants.is_none() || ahead.wants == wants);
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        waiters.push_back(QueuedRequest { ticket, wants, waker: waker.clone(), woken: false });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Some((QueueTicket { queue: Arc::clone(self), ticket }, first))
    }

    /// Reports a free slot on `server`.
    pub(crate) fn freed(&self, server: ServerId) {
        if self.waiting() > 0 {
            self.wake(|wants| wants.is_none_or(|wanted| wanted == server));
        }
    }

    /// Wakes all waiters after a server came or went.
    pub(crate) fn stir(&self) {
        for waiter in locked(&self.waiters).iter_mut() {
            waiter.woken = true;
            waiter.waker.wake_by_ref();
        }
    }

    /// Lock for decisions on ejections.
    pub(crate) fn deciding(&self) -> MutexGuard<'_, ()> {
        locked(&self.decision)
    }

    fn wake(&self, serves: impl Fn(Option<ServerId>) -> bool) {
        let mut waiters = locked(&self.waiters);
        if let Some(waiter) = waiters.iter_mut().find(|waiter| !waiter.woken && serves(waiter.wants)) {
            waiter.woken = true;
            waiter.waker.wake_by_ref();
        }
    }
}

impl QueueTicket {
    /// Returns true if this waiter should try for a server; otherwise `waker` is woken then. `wants` is the
    /// only server that it can use now: a request tied to a server that went down waits for any, and vice
    /// versa.
    pub(crate) fn is_called(&self, wants: Option<ServerId>, waker: &Waker) -> bool {
        let mut waiters = locked(&self.queue.waiters);
        let Some(waiter) = waiters.iter_mut().find(|waiter| waiter.ticket == self.ticket) else {
            return true;
        };
        if !waiter.waker.will_wake(waker) {
            waiter.waker = waker.clone();
        }
        // A slot that was freed before may not suit this request.
        let others = std::mem::replace(&mut waiter.wants, wants) != wants;
        std::mem::take(&mut waiter.woken) || others
    }

    /// Keeps waiting, and passes a slot that it cannot use to those behind.
    pub(crate) fn pass(&self) {
        let mut waiters = locked(&self.queue.waiters);
        // Never those ahead: two waiters that cannot use it would wake each other forever.
        let behind = waiters.iter_mut().skip_while(|waiter| waiter.ticket != self.ticket).skip(1);
        if let Some(waiter) = behind.into_iter().find(|waiter| !waiter.woken) {
            waiter.woken = true;
            waiter.waker.wake_by_ref();
        }
    }

    /// Leaves with a server. More slots may be free: the next waiter tries.
    pub(crate) fn served(self) {
        self.queue.wake(|_| true);
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut waiters = locked(&self.queue.waiters);
        let Some(at) = waiters.iter().position(|waiter| waiter.ticket == self.ticket) else { return };
        let left = waiters.remove(at);
        drop(waiters);
        self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
        if let Some(left) = left.filter(|waiter| waiter.woken) {
            // A slot meant for this waiter must not be lost.
            self.queue.wake(|wants| left.wants.is_none() || wants.is_none() || wants == left.wants);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waker() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }

    fn wakes(count: &Count) -> usize {
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn first_come_first_served() {
        let queue = Arc::new(BackendQueue::default());
        let (first, waker_1) = waker();
        let (second, waker_2) = waker();
        let (place_1, alone) = queue.join(None, 2, &waker_1).unwrap();
        assert!(alone);
        let (place_2, alone) = queue.join(None, 2, &waker_2).unwrap();
        assert!(!alone);
        assert!(queue.join(None, 2, &waker_1).is_none(), "the bound is two");
        queue.freed(7);
        queue.freed(7);
        assert_eq!((wakes(&first), wakes(&second)), (1, 1), "one each");
        assert!(place_1.is_called(None, &waker_1) && place_2.is_called(None, &waker_2));
        assert!(!place_1.is_called(None, &waker_1));
        place_1.served();
        assert_eq!(wakes(&second), 2, "there may be more");
        drop(place_2);
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_leaving_waiter_passes_its_turn_on() {
        let queue = Arc::new(BackendQueue::default());
        let (_, waker_1) = waker();
        let (second, waker_2) = waker();
        let (place_1, _) = queue.join(None, 9, &waker_1).unwrap();
        let (place_2, _) = queue.join(None, 9, &waker_2).unwrap();
        queue.freed(7);
        assert_eq!(wakes(&second), 0);
        drop(place_1);
        assert!(wakes(&second) == 1 && place_2.is_called(None, &waker_2));
    }

    #[test]
    fn tied_requests_wait_for_their_server_only() {
        let queue = Arc::new(BackendQueue::default());
        let (tied, waker_1) = waker();
        let (free, waker_2) = waker();
        let (_place_1, _) = queue.join(Some(1), 9, &waker_1).unwrap();
        let (_place_2, alone) = queue.join(None, 9, &waker_2).unwrap();
        assert!(alone, "a waiter for another server is not ahead");
        queue.freed(2);
        assert_eq!((wakes(&tied), wakes(&free)), (0, 1));
        queue.freed(1);
        assert_eq!((wakes(&tied), wakes(&free)), (1, 1));
        queue.stir();
        assert_eq!((wakes(&tied), wakes(&free)), (2, 2));
    }

    #[test]
    fn a_changed_tie_is_obeyed() {
        let queue = Arc::new(BackendQueue::default());
        let (tied, waker_1) = waker();
        let (place, _) = queue.join(Some(1), 9, &waker_1).unwrap();
        assert!(!place.is_called(Some(1), &waker_1));
        assert!(place.is_called(None, &waker_1), "it has to look anew");
        assert!(!place.is_called(None, &waker_1));
        queue.freed(2);
        assert_eq!(wakes(&tied), 1);
        assert!(place.is_called(Some(1), &waker_1));
        queue.freed(2);
        assert_eq!(wakes(&tied), 1);
    }

    #[test]
    fn unusable_slots_are_passed_on() {
        let queue = Arc::new(BackendQueue::default());
        let (first, waker_1) = waker();
        let (second, waker_2) = waker();
        let (place_1, _) = queue.join(None, 9, &waker_1).unwrap();
        let (place_2, _) = queue.join(None, 9, &waker_2).unwrap();
        queue.freed(7);
        assert!(place_1.is_called(None, &waker_1));
        place_1.pass();
        assert!(wakes(&second) == 1 && place_2.is_called(None, &waker_2));
        place_2.pass();
        assert_eq!((wakes(&first), wakes(&second)), (1, 1), "nobody is behind");
    }
}
