//! How fast bytes may pass: an [`Allowance`] that connections share, and the part of it that one socket has drawn.
//!
//! The allowance of each direction is one number: the time at which everything that was drawn is worked off at the rate
//! (the generic cell rate algorithm). It may be up to [`BURST`] ahead of the clock. A socket draws a grain at a
//! time and waits by a timer until the grain is due, so that sockets that share an allowance take turns, each worker
//! works for itself, and nothing is locked.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::clock::monotonic;

/// What may pass at once after a pause: as much as in this time.
pub const BURST: Duration = Duration::from_secs(1);
/// A grain is what passes in a twentieth of a second, within these bounds.
const GRAINS_PER_SECOND: u64 = 20;
const LEAST_GRAIN: usize = 1024;
const MOST_GRAIN: usize = 64 * 1024;

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What is read from it.
    In,
    /// What is written to it.
    Out,
}

/// What several sockets may move together, in each direction for itself.
#[derive(Debug, Default)]
pub struct Allowance {
    /// When what was drawn is worked off, in nanoseconds of the monotonic clock.
    due: [AtomicU64; 2],
}

impl Allowance {
    /// Draws so many bytes at `rate` bytes per second; after how long they may pass.
    fn draw(&self, way: Way, bytes: usize, rate: NonZeroU64, now: Duration) -> Duration {
        let now = nanos(now);
        let cost = (bytes as u64).saturating_mul(1_000_000_000) / rate;
        let next = |due: u64| Some(due.max(now).saturating_add(cost));
        let drawn = self.due[way as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // The function always gives a value.
        let due = drawn.unwrap_or(now).max(now).saturating_add(cost);
        Duration::from_nanos(due - now).saturating_sub(BURST)
    }

    /// Gives back what was drawn and not used.
    fn give_back(&self, way: Way, bytes: usize, rate: NonZeroU64) {
        let cost = (bytes as u64).saturating_mul(1_000_000_000) / rate;
        let before = |due: u64| Some(due.saturating_sub(cost));
        let _ = self.due[way as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, before);
    }

    /// Whether more was drawn than is worked off by now.
    #[must_use]
    pub fn owes(&self) -> bool {
        let now = nanos(monotonic());
        self.due.iter().any(|due| due.load(Ordering::Relaxed) > now)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The pace of one socket.
pub(crate) struct Pace {
    allowance: Arc<Allowance>,
    rate: NonZeroU64,
    ways: [Drawn; 2],
}

/// What one direction has drawn.
#[derive(Default)]
struct Drawn {
    left: Cell<usize>,
    /// Runs until the next grain is due.
    wait: RefCell<Option<Pin<Box<Sleep>>>>,
}

impl Pace {
    /// `rate` is in bytes per second.
    pub(crate) fn new(allowance: Arc<Allowance>, rate: NonZeroU64) -> Self {
        Self { allowance, rate, ways: Default::default() }
    }

    fn grain(&self) -> usize {
        let grain = self.rate.get() / GRAINS_PER_SECOND;
        usize::try_from(grain).unwrap_or(MOST_GRAIN).clamp(LEAST_GRAIN, MOST_GRAIN)
    }

    /// How many bytes may pass now, at least one; waits for the next grain if it must.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, way: Way) -> Poll<usize> {
        let drawn = &self.ways[way as usize];
        if drawn.left.get() == 0 {
            let mut wait = drawn.wait.borrow_mut();
            if wait.is_none() {
                let pause = self.allowance.draw(way, self.grain(), self.rate, monotonic());
                if !pause.is_zero() {
                    *wait = Some(Box::pin(sleep(pause)));
                }
            }
            if let Some(timer) = &mut *wait {
                ready!(timer.as_mut().poll(cx));
            }
            *wait = None;
            drawn.left.set(self.grain());
        }
        Poll::Ready(drawn.left.get())
    }

    /// So many bytes have passed, which may be more than there was room for.
    pub(crate) fn spend(&self, way: Way, bytes: usize) {
        let left = &self.ways[way as usize].left;
        let more = bytes.saturating_sub(left.get());
        left.set(left.get().saturating_sub(bytes));
        if more > 0 {
            // Whoever draws next waits for it.
            self.allowance.draw(way, more, self.rate, monotonic());
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        for way in [Way::In, Way::Out] {
            let drawn = &self.ways[way as usize];
            let waiting = if drawn.wait.borrow().is_some() { self.grain() } else { 0 };
            self.allowance.give_back(way, drawn.left.get() + waiting, self.rate);
        }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("rate", &self.rate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: NonZeroU64 = NonZeroU64::new(1_000_000).unwrap();
    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_second_may_pass_at_once_and_the_rest_when_it_is_due() {
        let allowance = Allowance::default();
        let draw = |bytes, at| allowance.draw(Way::Out, bytes, RATE, at);
        let begin = ms(5000);
        assert!((0..10).all(|_| draw(100_000, begin).is_zero()));
        // Whoever comes now waits behind those who came before.
        assert_eq!(draw(100_000, begin), ms(100));
        assert_eq!(draw(100_000, begin), ms(200));
        assert_eq!(draw(100_000, begin + ms(300)), Duration::ZERO);
        // The other direction is another matter.
        assert_eq!(allowance.draw(Way::In, 1_000_000, RATE, begin), Duration::ZERO);
        // A pause of any length saves up for a second.
        let later = begin + ms(100_000);
        assert_eq!((draw(1_000_000, later), draw(1000, later)), (Duration::ZERO, ms(1)));
        allowance.give_back(Way::Out, 1000, RATE);
        assert_eq!(draw(1000, later), ms(1));
    }

    #[test]
    fn grains_are_neither_tiny_nor_huge() {
        for (rate, grain) in [(1, 1024), (200_000, 10_000), (u64::MAX, 64 * 1024)] {
            let pace = Pace::new(Arc::default(), NonZeroU64::new(rate).unwrap());
            assert_eq!(pace.grain(), grain);
        }
    }

    #[tokio::test]
    async fn two_that_share_get_half_each() {
        let allowance = Arc::new(Allowance::default());
        let rate = NonZeroU64::new(1 << 20).unwrap();
        allowance.draw(Way::Out, 1 << 20, rate, monotonic());
        let passed = |pace: Pace| async move {
            let mut total = 0;
            for _ in 0..6 {
                let room = std::future::poll_fn(|cx| pace.poll_room(cx, Way::Out)).await;
                pace.spend(Way::Out, room);
                total += room;
            }
            total
        };
        let pace = || Pace::new(Arc::clone(&allowance), rate);
        let begun = tokio::time::Instant::now();
        let (first, second) = tokio::join!(passed(pace()), passed(pace()));
        assert_eq!(first, second);
        let least = (first + second) as f64 / (1 << 20) as f64;
        let took = begun.elapsed().as_secs_f64();
        assert!(took >= least - 0.05, "{took} s for {least}");
    }

    #[test]
    fn what_was_too_much_is_owed_and_what_was_not_used_is_given_back() {
        let allowance = Arc::new(Allowance::default());
        let pace = Pace::new(Arc::clone(&allowance), RATE);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(pace.poll_room(&mut cx, Way::In), Poll::Ready(50_000));
        pace.spend(Way::In, 60_000);
        let due = || {
            allowance.due[0].load(Ordering::Relaxed)
                - nanos(monotonic()).min(allowance.due[0].load(Ordering::Relaxed))
        };
        assert!(due() <= 60_000_000 && allowance.owes());
        let before = allowance.due[0].load(Ordering::Relaxed);
        assert_eq!(pace.poll_room(&mut cx, Way::In), Poll::Ready(50_000));
        drop(pace);
        assert!(allowance.due[0].load(Ordering::Relaxed) <= before + 1_000_000);
    }
}
