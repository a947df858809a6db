//! Handshakes take turns, so that many of them at once do not keep a worker from its other connections.
//!
//! A signature with RSA-4096 takes 2 to 4 ms, and tokio runs up to 61 ready tasks before it looks at sockets again:
//! that would be a fifth of a second. So the handshakes of a worker have a budget of CPU time ([`BUDGET`]). When it is
//! used up, the next handshakes wait in a queue, first come, first served. The first of them has the event loop look at
//! readiness; then the budget begins anew.
//!
//! The queue is at most as long as there are handshakes, which `limits.connections` bounds. A handshake that waits for
//! too long leaves it by `handshake_timeout`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use offramp_net::turn;

/// How much CPU time the handshakes of a worker have before its event loop looks at readiness: some twenty with
/// P-256, and one more step than fits, which may be an RSA-4096 signature.
const BUDGET: Duration = Duration::from_millis(2);

/// The handshakes of one worker that want CPU time.
#[derive(Debug, Default)]
pub struct HandshakeQueue {
    spent: Cell<Duration>,
    waiting: RefCell<VecDeque<Ticket>>,
    next: Cell<u64>,
}

/// A place in line.
#[derive(Debug)]
struct Ticket {
    number: u64,
    waker: Waker,
}

impl HandshakeQueue {
    /// Waits until the next step of a handshake may be taken. Ready at once while there is budget and nobody waits.
    ///
    /// `signed`: its signature is made. What is left of it costs little, and would be lost work if it waited behind
    /// newcomers: after a restart with thousands of clients nobody would be done in time. So it only has the event
    /// loop look at readiness first.
    pub(crate) async fn enter(&self, signed: bool) {
        if self.spent.get() < BUDGET && (signed || self.waiting.borrow().is_empty()) {
            return;
        }
        if signed {
            turn::next().await;
            if self.waiting.borrow().is_empty() {
                self.spent.set(Duration::ZERO);
            }
            return;
        }
        let mut place = Place { queue: self, number: None, rested: false };
        poll_fn(|cx| place.poll(cx)).await;
    }

    /// Notes that a step took this long.
    pub(crate) fn spend(&self, time: Duration) {
        self.spent.set(self.spent.get().saturating_add(time));
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiting.borrow().front() {
            first.waker.wake_by_ref();
        }
    }
}

/// A handshake that waits. Dropped, it leaves the queue.
struct Place<'q> {
    queue: &'q HandshakeQueue,
    number: Option<u64>,
    /// Whether the event loop was asked to look at readiness for this one.
    rested: bool,
}

impl Place<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let queue = self.queue;
        let mut waiting = queue.waiting.borrow_mut();
        let Some(number) = self.number else {
            let number = queue.next.replace(queue.next.get() + 1);
            waiting.push_back(Ticket { number, waker: cx.waker().clone() });
            self.number = Some(number);
            drop(waiting);
            // Nobody else would wake the first.
            return self.poll(cx);
        };
        match waiting.front_mut() {
            Some(first) if first.number == number => {
                if queue.spent.get() >= BUDGET && !self.rested {
                    self.rested = true;
                    first.waker.clone_from(cx.waker());
                    turn::poll_next(cx);
                    return Poll::Pending;
                }
                if queue.spent.get() >= BUDGET {
                    queue.spent.set(Duration::ZERO);
                }
                Poll::Ready(())
            }
            _ => {
                // Numbers ascend.
                if let Ok(at) = waiting.binary_search_by_key(&number, |ticket| ticket.number) {
                    waiting[at].waker.clone_from(cx.waker());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut waiting = self.queue.waiting.borrow_mut();
        let was_first = waiting.front().is_some_and(|first| first.number == number);
        if was_first {
            waiting.pop_front();
        } else if let Ok(at) = waiting.binary_search_by_key(&number, |ticket| ticket.number) {
            waiting.remove(at);
        }
        drop(waiting);
        if was_first {
            self.queue.wake_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use offramp_net::turn;
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::{JoinHandle, spawn_local};

    use super::*;

    const RSA_4096: Duration = Duration::from_millis(3);
    const P256: Duration = Duration::from_micros(100);

    fn run<F: Future>(test: F) -> F::Output {
        Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default())
            .unwrap()
            .block_on(test)
    }

    /// The numbers of the handshakes in the order of their steps, with the turn of the event loop of each.
    type Steps = Rc<RefCell<Vec<(usize, u64)>>>;

    /// One handshake of a single step.
    fn handshake(
        queue: &Rc<HandshakeQueue>,
        number: usize,
        cost: Duration,
        steps: &Steps,
        turn: &Rc<Cell<u64>>,
    ) -> JoinHandle<()> {
        let (queue, steps, turn) = (Rc::clone(queue), Rc::clone(steps), Rc::clone(turn));
        spawn_local(async move {
            queue.enter(false).await;
            steps.borrow_mut().push((number, turn.get()));
            queue.spend(cost);
        })
    }

    /// Runs so many handshakes that are all ready at once; the most of them within a turn of the event loop.
    async fn most_in_a_turn(count: usize, cost: Duration) -> usize {
        let (queue, steps, turn) =
            (Rc::new(HandshakeQueue::default()), Steps::default(), Rc::new(Cell::new(0)));
        let tasks: Vec<_> = (0..count).map(|number| handshake(&queue, number, cost, &steps, &turn)).collect();
        let counted = Rc::clone(&turn);
        let clock = spawn_local(async move {
            loop {
                turn::next().await;
                counted.set(counted.get() + 1);
            }
        });
        for task in tasks {
            task.await.unwrap();
        }
        clock.abort();
        assert!(queue.is_empty());
        let steps = steps.borrow();
        assert!(steps.iter().map(|(number, _)| *number).eq(0..count), "first come, first served: {steps:?}");
        (0..=turn.get()).map(|turn| steps.iter().filter(|step| step.1 == turn).count()).max().unwrap()
    }

    #[test]
    fn expensive_handshakes_go_one_by_one() {
        assert!(run(most_in_a_turn(60, RSA_4096)) <= 2);
    }

    #[test]
    fn cheap_handshakes_share_a_turn() {
        let most = run(most_in_a_turn(60, P256));
        assert!((20..=41).contains(&most), "{most}");
    }

    #[test]
    fn what_is_nearly_done_does_not_wait_behind_newcomers() {
        run(async {
            let queue = Rc::new(HandshakeQueue::default());
            let (order, count) = (Rc::new(RefCell::new(Vec::new())), 50);
            let tasks: Vec<_> = (0..count)
                .map(|number| {
                    let (queue, order) = (Rc::clone(&queue), Rc::clone(&order));
                    spawn_local(async move {
                        for signed in [false, true, true] {
                            queue.enter(signed).await;
                            queue.spend(if signed { Duration::ZERO } else { RSA_4096 });
                            order.borrow_mut().push((number, signed));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let order = order.borrow();
            let last_begins = order.iter().position(|step| *step == (count - 1, false)).unwrap();
            let done =
                (0..count).filter(|n| order[..last_begins].iter().filter(|step| step.0 == *n).count() == 3);
            assert!(done.count() >= count / 2, "{order:?}");
        });
    }

    #[test]
    fn whoever_leaves_the_line_holds_up_nobody() {
        run(async {
            let (queue, steps, turn) = (Rc::new(HandshakeQueue::default()), Steps::default(), Rc::default());
            queue.spend(BUDGET);
            let tasks: Vec<_> =
                (0..5).map(|number| handshake(&queue, number, RSA_4096, &steps, &turn)).collect();
            tokio::task::yield_now().await;
            assert!(queue.len() >= 3, "{}", queue.len());
            // The first of those that wait, and one in the middle.
            let first = 5 - queue.len();
            tasks[first].abort();
            tasks[first + 2].abort();
            let mut done = 0;
            for task in tasks {
                done += usize::from(task.await.is_ok());
            }
            assert_eq!((done, queue.len()), (3, 0));
        });
    }
}
