//! Turns: how much one task does before the event loop of its worker looks at the others.
//!
//! A task that has more to do ends its turn with [`next`] or [`poll_next`]. Do not use
//! `cx.waker().wake_by_ref()` for that: it puts the task back into the run queue, and tokio polls up to 61 tasks
//! of that queue before it looks at sockets again. If the task is alone in the queue, it is polled 61 times in a
//! row. The functions here hand the waker over to the event loop, which asks the kernel for readiness first
//! (one `epoll_wait` that does not wait), then runs the tasks that became ready, then this one.
//!
//! [`Turn`] counts the work of a turn. It does not read a clock: work has a fixed cost, so that tests can count.
//! In a loop:
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

/// How much work a turn has, in the units of [`Work`]: about half a millisecond.
///
/// With 40 tasks that always have more to do, another one waits for 20 ms. At the end of a turn the event loop
/// makes one system call of less than a microsecond, which is a few thousandths of the turn.
pub const TURN: u32 = 500_000;

/// A piece of work. Its cost is about the nanoseconds that it takes, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bytes that were read, sealed or opened, and written.
    Bytes(usize),
    /// Records, frames, fields, entries of a list: whatever a peer can send many of in few bytes.
    Pieces(usize),
    /// System calls that move bytes.
    Calls(usize),
    /// New keys for the peer's direction of a connection, and for ours, with a record of its own, where that was
    /// `answered`.
    KeyUpdate {
        /// Set where the peer asked for an answer, and there was none on its way.
        answered: bool,
    },
}

impl Work {
    /// A record or a frame, with what is done for it around its bytes.
    const PIECE: usize = 300;
    /// A `send` that wakes its receiver.
    const CALL: usize = 3000;
    /// Three times HKDF-Expand-Label and a key schedule.
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

/// What is left of a task's turn.
///
/// A task may keep one for its life: a wait for a socket does not renew it, so that the turn may end early, which
/// costs one `epoll_wait` for half a millisecond of work.
///
/// A turn that is over stays so until the event loop has looked at readiness. A caller that takes the `Pending` of
/// [`Turn::poll_rest`] for a lack of data, passes on what it has, and asks again, thus gets no second turn.
#[derive(Debug)]
pub struct Turn {
    /// How much is left, or, with [`RESTS`], the look of the event loop behind which a rest began: every connection has a
    /// few turns.
    state: u32,
}

/// Set while a turn that is over waits for the event loop.
const RESTS: u32 = 1 << 31;
const _: () = assert!(TURN < RESTS);

impl Default for Turn {
    fn default() -> Self {
        Self { state: TURN }
    }
}

impl Turn {
    /// Counts work that was done.
    #[inline]
    pub fn spend(&mut self, work: Work) {
        if self.state < RESTS {
            self.state = self.state.saturating_sub(work.cost());
        }
    }

    /// Whether the task should let others go first.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state.wrapping_sub(1) >= TURN
    }

    /// If the turn is over: begins the next one after the event loop has looked at readiness. Else it is ready.
    pub async fn rest(&mut self) {
        poll_fn(|cx| self.poll_rest(cx)).await;
    }

    /// [`Turn::rest`] for hand-written futures. The caller returns `Pending` where this does, and goes on from
    /// where it was when it is polled again: the next turn has begun by then.
    pub fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_over() {
            return Poll::Ready(());
        }
        self.poll_over(cx)
    }

    #[cold]
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let rest = RESTS | LOOKS.get();
        if self.state != 0 && self.state != rest {
            *self = Self::default();
            return Poll::Ready(());
        }
        self.state = rest;
        poll_next(cx);
        Poll::Pending
    }
}

/// Ends the turn of this task: it goes on after the event loop has looked at readiness.
pub async fn next() {
    tokio::task::yield_now().await;
}

/// [`next`] for hand-written futures: has the task of `cx` polled again after the event loop has looked at
/// readiness. The caller returns `Pending`.
pub fn poll_next(cx: &mut Context<'_>) {
    LOOKER.with(|looker| defer(&mut Context::from_waker(looker)));
    defer(cx);
}

/// Has the event loop of this thread wake a task once it has looked at readiness.
fn defer(cx: &mut Context<'_>) {
    // Polled once, it has given the waker to the scheduler, which is all that is wanted of it.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

thread_local! {
    static WAKES: Cell<u64> = const { Cell::new(0) };
    /// Counts the looks of this thread's event loop at readiness behind which a turn begins, below [`RESTS`].
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    static LOOKER: Waker = Waker::from(Arc::new(Looker));
}

/// Is woken as tasks are whose turn has ended: by the event loop, once it has looked at readiness.
struct Looker;

impl Wake for Looker {
    fn wake(self: Arc<Self>) {
        LOOKS.set((LOOKS.get() + 1) % RESTS);
    }
}

/// The event loop of this thread has slept, and goes on: whoever is ready now has not waited for the work of tasks before.
/// To be called by the hook of the runtime (`on_thread_unpark`).
pub fn woke() {
    WAKES.set(WAKES.get().wrapping_add(1));
}

/// How often the event loop of this thread has slept, where [`woke`] is called.
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

    /// How many turns a task that never waits has before one that waits for a socket goes on.
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
    fn readiness_is_looked_at_between_two_turns() {
        assert!(turns_before_a_reader(poll_next) <= 2);
        // What this module is for.
        assert!(turns_before_a_reader(|cx| cx.waker().wake_by_ref()) > 20);
    }

    #[test]
    fn a_turn_ends_by_whatever_there_is_much_of() {
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

    /// A turn does not begin anew for who asks again before the event loop has looked, as callers do that take the rest
    /// for a lack of data.
    #[test]
    fn a_turn_stays_over_until_the_event_loop_has_looked() {
        let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
        // Deferred tasks of a runtime that has ended say nothing of the next one.
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
