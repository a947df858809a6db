//! The drain of a worker, as its connections see it: first the request to end when nothing is under way, then the order to
//! end at once.
//!
//! The table of connections wakes the task of each connection ([`Resources`](super::Resources)); other tasks subscribe.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The time that a kept connection has for one more request when a drain begins: the request may be on its way, and a client
/// that loses it cannot know if it was served.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The state of the drain, and the tasks beside those of connections to wake when it changes.
#[derive(Default)]
pub(crate) struct DrainSignal {
    /// Set while the worker drains: the time that a kept connection of HTTP/1 has to begin its last request.
    grace: Cell<Option<Duration>>,
    cut: Cell<bool>,
    wakers: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
}

impl DrainSignal {
    /// Connections must end as soon as they can.
    pub(crate) fn is_draining(&self) -> bool {
        self.grace.get().is_some()
    }

    /// While the worker drains: the time that a client has to begin its last request.
    pub(crate) fn grace(&self) -> Option<Duration> {
        self.grace.get()
    }

    /// Connections must end now: the drain has reached its limit.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Begins the drain, which takes up to `limit`, and wakes every subscriber.
    pub(super) fn begin(&self, limit: Duration) {
        self.grace.set(Some(GRACE.min(limit / 2)));
        self.wake_all();
    }

    /// Ends every connection at once.
    pub(super) fn cut_all(&self) {
        self.cut.set(true);
        self.wake_all();
    }

    /// Wakes `waker` at every change; [`DrainSignal::unsubscribe`] takes the number.
    pub(crate) fn subscribe(&self, waker: &Waker) -> usize {
        let mut wakers = self.wakers.borrow_mut();
        if let Some(slot) = self.free.borrow_mut().pop() {
            wakers[slot] = Some(waker.clone());
            return slot;
        }
        wakers.push(Some(waker.clone()));
        wakers.len() - 1
    }

    pub(crate) fn unsubscribe(&self, slot: usize) {
        self.wakers.borrow_mut()[slot] = None;
        self.free.borrow_mut().push(slot);
    }

    /// Waits until connections must end.
    pub(crate) async fn cut(&self) {
        let mut subscription = Subscription { signal: self, slot: None };
        poll_fn(|cx| {
            if self.is_cut() {
                return Poll::Ready(());
            }
            subscription.slot.get_or_insert_with(|| self.subscribe(cx.waker()));
            Poll::Pending
        })
        .await;
    }

    fn wake_all(&self) {
        for waker in self.wakers.borrow().iter().flatten() {
            waker.wake_by_ref();
        }
    }
}

/// A subscription that ends when it is dropped.
struct Subscription<'a> {
    signal: &'a DrainSignal,
    slot: Option<usize>,
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.signal.unsubscribe(slot);
        }
    }
}
