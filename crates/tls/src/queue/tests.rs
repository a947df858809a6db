use std::net::Ipv4Addr;
use std::rc::Rc;

use offramp_net::turn;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::{JoinHandle, spawn_local};

use super::*;

const RSA_4096: Duration = Duration::from_millis(3);
const P256: Duration = Duration::from_micros(100);

fn run<F: Future>(test: F) -> F::Output {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap().block_on(test)
}

/// Numbers of handshakes in the order of their steps, with the event loop turn of each.
type Steps = Rc<RefCell<Vec<(usize, u64)>>>;

/// A handshake of a single step.
fn handshake(
    queue: &Rc<HandshakeQueue>,
    number: usize,
    cost: Duration,
    steps: &Steps,
    turn: &Rc<Cell<u64>>,
) -> JoinHandle<()> {
    let (queue, steps, turn) = (Rc::clone(queue), Rc::clone(steps), Rc::clone(turn));
    spawn_local(async move {
        let caller = HandshakeRequest::anyone(&queue);
        caller.enter(false).await.unwrap();
        steps.borrow_mut().push((number, turn.get()));
        caller.spend(cost);
    })
}

/// Runs `count` handshakes that are all ready at once; returns the largest number within a turn of the event
/// loop.
async fn most_in_a_turn(count: usize, cost: Duration) -> usize {
    let (queue, steps, turn) = (Rc::new(HandshakeQueue::default()), Steps::default(), Rc::new(Cell::new(0)));
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
    assert!((3..=7).contains(&most), "{most}");
}

#[test]
fn signed_handshakes_do_not_wait_behind_newcomers() {
    run(async {
        let queue = Rc::new(HandshakeQueue::default());
        let (order, count) = (Rc::new(RefCell::new(Vec::new())), 50);
        let tasks: Vec<_> = (0..count)
            .map(|number| {
                let (queue, order) = (Rc::clone(&queue), Rc::clone(&order));
                spawn_local(async move {
                    for signed in [false, true, true] {
                        let caller = HandshakeRequest::anyone(&queue);
                        caller.enter(signed).await.unwrap();
                        caller.spend(if signed { Duration::ZERO } else { RSA_4096 });
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
fn leaving_the_line_does_not_block_others() {
    run(async {
        let (queue, steps, turn) = (Rc::new(HandshakeQueue::default()), Steps::default(), Rc::default());
        HandshakeRequest::anyone(&queue).spend(BUDGET);
        let tasks: Vec<_> = (0..5).map(|number| handshake(&queue, number, RSA_4096, &steps, &turn)).collect();
        tokio::task::yield_now().await;
        assert!(queue.len() >= 3, "{}", queue.len());
        // The first one that waits, and one in the middle.
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

#[test]
fn waiting_is_reported_and_late_handshakes_are_rejected() {
    run(async {
        let queue = HandshakeQueue::default();
        let client = Ipv4Addr::LOCALHOST.into();
        let resumes = || false;
        let caller = || HandshakeRequest::new(&queue, client, Some(Instant::now()), &resumes);
        let (first, second) = (caller(), caller());
        first.enter(false).await.unwrap();
        assert!(!first.waits(), "there is time left");
        first.spend(BUDGET);
        let mut waiting = Box::pin(second.enter(false));
        assert!(poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await);
        assert!(second.waits());
        // The first one waits beyond [`line::PATIENCE`]; the deadline of the next is over.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let third = caller();
        assert_eq!((third.enter(false).await, third.waits()), (Err(Shed), false));
        drop(waiting);
        assert!(second.waits(), "it waited when it was given up");
        assert!(queue.is_empty());
    });
}
