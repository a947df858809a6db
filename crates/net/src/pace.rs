//! How fast bytes may pass: an [`Allowance`] that connections share, and the part of it that one of them has drawn.
//!
//! The allowance of each direction is one number: the time at which everything that was drawn is worked off at the rate
//! (the generic cell rate algorithm). It may be up to [`BURST`] ahead of the clock. Who has something to move draws a
//! grain of it at a time, waits by a timer until the grain is due, and gives back at once what it did not use. So those
//! that share an allowance take turns, who has nothing to move holds nothing, each worker works for itself, and
//! nothing is locked.

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

use crate::clock::{coarse_ms, monotonic};

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

/// Which end of a connection or a request bytes are counted at: what comes in from a client goes out to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

impl Side {
    /// A direction of this side as the client's side has it.
    fn of_client(self, way: Way) -> Way {
        match (self, way) {
            (Self::Client, way) => way,
            (Self::Server, Way::In) => Way::Out,
            (Self::Server, Way::Out) => Way::In,
        }
    }
}

/// What several may move together, in each direction for itself. [`Way::In`] is what comes from clients.
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

/// The pace of one connection, or of one body.
pub struct Pace {
    allowance: Arc<Allowance>,
    rate: NonZeroU64,
    side: Side,
    ways: [Drawn; 2],
    /// When a wait last ended, in milliseconds of the coarse clock; 0: never.
    waited_until: Cell<u64>,
}

/// What one direction has drawn.
#[derive(Default)]
struct Drawn {
    left: Cell<usize>,
    /// Runs until that is due.
    wait: RefCell<Option<Pin<Box<Sleep>>>>,
}

impl Pace {
    /// `rate` is in bytes per second. `side` is where the bytes are counted.
    #[must_use]
    pub fn new(allowance: Arc<Allowance>, rate: NonZeroU64, side: Side) -> Self {
        Self { allowance, rate, side, ways: Default::default(), waited_until: Cell::new(0) }
    }

    fn grain(&self) -> usize {
        let grain = self.rate.get() / GRAINS_PER_SECOND;
        usize::try_from(grain).unwrap_or(MOST_GRAIN).clamp(LEAST_GRAIN, MOST_GRAIN)
    }

    fn draw(&self, way: Way, bytes: usize) -> Duration {
        self.allowance.draw(self.side.of_client(way), bytes, self.rate, monotonic())
    }

    /// How many of `wanted` bytes may pass now, which are there to be moved; waits until some may. At least one, where
    /// one is wanted. [`Pace::spend`] follows.
    pub fn poll_room(&self, cx: &mut Context<'_>, way: Way, wanted: usize) -> Poll<usize> {
        let drawn = &self.ways[way as usize];
        let mut wait = drawn.wait.borrow_mut();
        if drawn.left.get() == 0 {
            let grain = wanted.clamp(1, self.grain());
            let pause = self.draw(way, grain);
            drawn.left.set(grain);
            if !pause.is_zero() {
                *wait = Some(Box::pin(sleep(pause)));
            }
        }
        if let Some(timer) = &mut *wait {
            ready!(timer.as_mut().poll(cx));
            *wait = None;
            self.waited_until.set(coarse_ms());
        }
        Poll::Ready(drawn.left.get().min(wanted))
    }

    /// So many bytes have passed, which may be more than there was room for. What is left of the room is given back.
    pub fn spend(&self, way: Way, bytes: usize) {
        let left = self.ways[way as usize].left.take();
        match bytes.checked_sub(left) {
            Some(0) => {}
            // Whoever draws next waits for it.
            Some(more) => drop(self.draw(way, more)),
            None => self.allowance.give_back(self.side.of_client(way), left - bytes, self.rate),
        }
    }

    /// Whether something that is there to be moved waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.ways.iter().any(|drawn| drawn.wait.borrow().is_some())
    }

    /// Until when something that was there to be moved has waited, in milliseconds of the coarse clock: until now, where it
    /// still does; 0: nothing has.
    #[must_use]
    pub fn waited_until(&self) -> u64 {
        if self.waits() { coarse_ms() } else { self.waited_until.get() }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.spend(Way::In, 0);
        self.spend(Way::Out, 0);
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

    fn pace(allowance: &Arc<Allowance>, rate: u64) -> Pace {
        Pace::new(Arc::clone(allowance), NonZeroU64::new(rate).unwrap(), Side::Client)
    }

    #[test]
    fn grains_are_neither_tiny_nor_huge() {
        for (rate, grain) in [(1, 1024), (200_000, 10_000), (u64::MAX, 64 * 1024)] {
            assert_eq!(pace(&Arc::default(), rate).grain(), grain);
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
                let room = std::future::poll_fn(|cx| pace.poll_room(cx, Way::Out, usize::MAX)).await;
                pace.spend(Way::Out, room);
                total += room;
            }
            assert!(!pace.waits() && pace.waited_until() > 0);
            total
        };
        let begun = tokio::time::Instant::now();
        let (first, second) =
            tokio::join!(passed(pace(&allowance, 1 << 20)), passed(pace(&allowance, 1 << 20)));
        assert_eq!(first, second);
        let least = (first + second) as f64 / (1 << 20) as f64;
        let took = begun.elapsed().as_secs_f64();
        assert!(took >= least - 0.05, "{took} s for {least}");
    }

    /// For how long what was drawn of a direction is not worked off.
    fn owed(allowance: &Allowance, way: Way) -> u64 {
        allowance.due[way as usize].load(Ordering::Relaxed).saturating_sub(nanos(monotonic()))
    }

    #[test]
    fn what_was_too_much_is_owed_and_what_was_not_used_is_given_back() {
        let allowance = Arc::new(Allowance::default());
        let pace = pace(&allowance, RATE.get());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(pace.poll_room(&mut cx, Way::In, usize::MAX), Poll::Ready(50_000));
        // Whoever asks once more before it has moved something draws nothing.
        assert_eq!(pace.poll_room(&mut cx, Way::In, 20_000), Poll::Ready(20_000));
        pace.spend(Way::In, 60_000);
        assert!(owed(&allowance, Way::In) <= 60_000_000 && allowance.owes());
        let before = allowance.due[0].load(Ordering::Relaxed);
        assert_eq!(pace.poll_room(&mut cx, Way::In, usize::MAX), Poll::Ready(50_000));
        pace.spend(Way::In, 1000);
        assert_eq!(allowance.due[0].load(Ordering::Relaxed), before + 1_000_000);
        // No more is drawn than there is to move, and nothing is kept by who is gone.
        assert_eq!(pace.poll_room(&mut cx, Way::In, 700), Poll::Ready(700));
        assert_eq!(allowance.due[0].load(Ordering::Relaxed), before + 1_700_000);
        drop(pace);
        assert_eq!(allowance.due[0].load(Ordering::Relaxed), before + 1_000_000);
    }

    #[test]
    fn what_goes_out_to_a_server_came_in_from_a_client() {
        let allowance = Arc::new(Allowance::default());
        let server = Pace::new(Arc::clone(&allowance), RATE, Side::Server);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(server.poll_room(&mut cx, Way::Out, 40_000), Poll::Ready(40_000));
        server.spend(Way::Out, 40_000);
        assert!(owed(&allowance, Way::In) > 0);
        assert_eq!(owed(&allowance, Way::Out), 0);
    }

    /// Those that were idle for long and find the allowance used up hold nothing of it once they have waited.
    #[tokio::test]
    async fn who_has_waited_for_nothing_keeps_nothing() {
        let allowance = Arc::new(Allowance::default());
        allowance.draw(Way::Out, 1_030_000, RATE, monotonic());
        let pace = pace(&allowance, RATE.get());
        let before = allowance.due[1].load(Ordering::Relaxed);
        let room = std::future::poll_fn(|cx| {
            let room = pace.poll_room(cx, Way::Out, 10_000);
            assert!(room.is_ready() || pace.waits());
            room
        });
        assert_eq!(room.await, 10_000);
        pace.spend(Way::Out, 0);
        assert_eq!(allowance.due[1].load(Ordering::Relaxed), before);
    }
}
