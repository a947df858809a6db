//! Turns: the amount of work of one task before the event loop of its worker serves the others.
//!
//! A task with more to do ends its turn with [`next`] or [`poll_next`]. Do not use `cx.waker().wake_by_ref()`
//! for that: it puts the task back into the run queue, and tokio polls up to 61 tasks of that queue before it
//! checks sockets again. A task alone in the queue is polled 61 times in a row. The functions here hand the
//! waker to the event loop, which first asks the kernel for readiness (one `epoll_wait` that does not block),
//! then runs the tasks that became ready, then this one.
//!
//! [`Turn`] counts the work of a turn. It does not read a clock: work has a fixed cost, so that tests can
//! count. In a loop:
//!
//! ```no_run
//! # use offramp_net::turn::{Turn, Work};
//! # async fn frame() -> Option<usize> { None }
//! # async fn serve() {
//! let mut turn = Turn::default();
//! while let Some(length) = frame().await {
//!     turn.spend(Work::Pieces(1));
//!     turn.spend(Work::Bytes(length));
//!     // Does nothing while the turn has work left.
//!     turn.rest().await;
//! }
//! # }
//! ```

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Work per turn in the units of [`Work`]: about half a millisecond.
///
/// With 40 tasks that always have more to do, another one waits for 20 ms. At the end of a turn the event
/// loop makes one system call of less than a microsecond, a few thousandths of the turn.
pub const TURN: u32 = 500_000;

/// Units of work. The cost approximates nanoseconds, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bytes that were read, sealed or opened, and written.
    Bytes(usize),
    /// Records, frames, fields, list entries: anything of which a peer can send many in few bytes.
    Pieces(usize),
    /// System calls that move bytes.
    Calls(usize),
    /// New keys for the peer's direction of a connection, and for ours, with a record of its own, if
    /// `answered`.
    KeyUpdate {
        /// Set if the peer requested an update that was not under way already.
        answered: bool,
    },
}

impl Work {
    /// Handling of a record or a frame apart from its bytes.
    const PIECE: usize = 300;
    /// A send(2) that wakes its receiver.
    const CALL: usize = 3000;
    /// Three calls of HKDF-Expand-Label and a key schedule.
    const UPDATE: usize = 6000;

    fn cost(self) -> u32 {
        let cost = match self {
            Self::Bytes(count) => count,
            Self::Pieces(count) => count.saturating_mul(Self::PIECE),
            Self::Calls(count) => count.saturating_mul(Self::CALL),
            Self::KeyUpdate { answered: false } => Self::UPDATE,
            Self::KeyUpdate { answered: true } => 2 * Self::UPDATE + Self::CALL,
        };
        u32::try_from(cost).unwrap_or(u32::MAX)
    }
}

/// Remaining work of a task's turn.
///
/// A task may keep one for its life: waiting for a socket does not renew it, so that a turn may end early,
/// which costs one `epoll_wait` per half millisecond of work.
///
/// A finished turn stays finished until the event loop has checked readiness. So a caller that takes the
/// `Pending` of [`Turn::poll_rest`] for a lack of data, flushes, and asks again does not get a second turn.
#[derive(Debug)]
pub struct Turn {
    /// The remaining work, or, with [`RESTS`], the readiness check after which a rest began. One word,
    /// because every connection has a few turns.
    state: u32,
}

/// Flag of a finished turn that waits for the event loop.
const RESTS: u32 = 1 << 31;
const _: () = assert!(TURN < RESTS);

impl Default for Turn {
    fn default() -> Self {
        Self { state: TURN }
    }
}

impl Turn {
    /// Subtracts completed work from the turn.
    #[inline]
    pub fn spend(&mut self, work: Work) {
        if self.state < RESTS {
            self.state = self.state.saturating_sub(work.cost());
        }
    }

    /// Returns true if the task should yield.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.wrapping_sub(1) >= TURN
    }

    /// Yields if the turn is over, and begins the next one after the event loop has checked readiness.
    pub async fn rest(&mut self) {
        poll_fn(|cx| self.poll_rest(cx)).await;
    }

    /// Poll form of [`Turn::rest`]. On `Pending`, the caller returns `Pending` and resumes where it was when
    /// it is polled again: the next turn has begun by then.
    pub fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_over() {
            return Poll::Ready(());
        }
        self.poll_over(cx)
    }

    #[cold]
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let rest = RESTS | CHECKS.get();
        if self.state != 0 && self.state != rest {
            *self = Self::default();
            return Poll::Ready(());
        }
        self.state = rest;
        poll_next(cx);
        Poll::Pending
    }
}

/// Ends the turn of this task, which resumes after the event loop has checked readiness.
pub async fn next() {
    tokio::task::yield_now().await;
}

/// Poll form of [`next`]: the task of `cx` is polled again after the event loop has checked readiness. The
/// caller returns `Pending`.
pub fn poll_next(cx: &mut Context<'_>) {
    CHECK_COUNTER.with(|counter| defer(&mut Context::from_waker(counter)));
    defer(cx);
}

/// Makes the event loop of this thread wake a task after its readiness check.
fn defer(cx: &mut Context<'_>) {
    // One poll hands the waker to the scheduler; nothing else is needed of the future.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

thread_local! {
    static WAKES: Cell<u64> = const { Cell::new(0) };
    /// Counts readiness checks of this thread's event loop that turns waited for, modulo [`RESTS`].
    static CHECKS: Cell<u32> = const { Cell::new(0) };
    static CHECK_COUNTER: Waker = Waker::from(Arc::new(CheckCounter(0)));
}

/// Waker that runs like a task after its turn: behind a readiness check.
///
/// Not empty: the waker of an empty type points behind an allocation, which leak detectors do not count as a
/// reference.
struct CheckCounter(#[allow(dead_code, reason = "only its size counts")] u8);

impl Wake for CheckCounter {
    fn wake(self: Arc<Self>) {
        CHECKS.set((CHECKS.get() + 1) % RESTS);
    }
}

/// Records that the event loop of this thread has slept: tasks that are ready now did not wait for the work
/// of others. Call it from the `on_thread_unpark` hook of the runtime.
pub fn woke() {
    WAKES.set(WAKES.get().wrapping_add(1));
}

/// Number of times the event loop of this thread has slept, counted by [`woke`].
#[must_use]
pub fn wakes() -> u64 {
    WAKES.get()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::spawn_local;

    use super::*;
    use crate::Socket;

    /// Number of turns a task that never waits gets before one that waits for a socket goes on.
    fn turns_before_a_reader(next: impl Fn(&mut Context<'_>) + 'static) -> usize {
        let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async move {
            let (near, mut far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let socket = Socket::unix(near.into()).unwrap();
            let (turns, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            let (counted, over) = (Rc::clone(&turns), Rc::clone(&done));
            let greedy = spawn_local(poll_fn(move |cx| {
                if over.get() {
                    return Poll::Ready(());
                }
                counted.set(counted.get() + 1);
                // The reader waits by now.
                if counted.get() == 10 {
                    far.write_all(b"x").unwrap();
                }
                next(cx);
                Poll::Pending
            }));
            let mut byte = [0];
            assert_eq!(socket.read(&mut byte).await.unwrap(), 1);
            done.set(true);
            greedy.await.unwrap();
            turns.get() - 10
        })
    }

    #[test]
    fn readiness_is_checked_between_two_turns() {
        assert!(turns_before_a_reader(poll_next) <= 2);
        // The behaviour that this module avoids.
        assert!(turns_before_a_reader(|cx| cx.waker().wake_by_ref()) > 20);
    }

    #[test]
    fn each_kind_of_work_ends_a_turn() {
        let works: [(Work, usize); 5] = [
            (Work::Bytes(16 * 1024), 40),
            (Work::Pieces(1), 2000),
            (Work::Calls(1), 200),
            (Work::KeyUpdate { answered: false }, 100),
            (Work::KeyUpdate { answered: true }, 40),
        ];
        for (work, most) in works {
            let mut turn = Turn::default();
            let count = (1..).find(|_| {
                turn.spend(work);
                turn.is_over()
            });
            assert!(count.is_some_and(|count| (10..=most).contains(&count)), "{work:?}: {count:?}");
        }
        let mut turn = Turn::default();
        turn.spend(Work::Pieces(usize::MAX));
        assert!(turn.is_over());
    }

    /// Polling again before the event loop has checked readiness does not start a new turn: callers may take
    /// the rest for a lack of data.
    #[test]
    fn a_turn_stays_over_until_readiness_was_checked() {
        let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
        // Deferred tasks of a finished runtime do not affect the next one.
        for _ in 0..2 {
            runtime.block_on(async {
                let mut turn = Turn::default();
                turn.spend(Work::Bytes(TURN as usize));
                let (mut polls, mut refused) = (0, 0);
                poll_fn(|cx| {
                    polls += 1;
                    for _ in 0..5 {
                        if turn.poll_rest(cx).is_ready() {
                            return Poll::Ready(());
                        }
                        refused += 1;
                    }
                    Poll::Pending
                })
                .await;
                assert_eq!((polls, refused), (2, 5));
            });
        }
    }

    #[test]
    fn a_turn_that_is_over_rests_once() {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let mut turn = Turn::default();
            let mut polls = 0;
            for step in [0, TURN as usize, 1] {
                turn.spend(Work::Bytes(step));
                let mut rest = pin!(turn.rest());
                poll_fn(|cx| {
                    polls += 1;
                    rest.as_mut().poll(cx)
                })
                .await;
            }
            assert_eq!(polls, 4);
        });
    }
}
