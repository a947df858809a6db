//! Which streams read and write before others.

use std::sync::Mutex;

use super::*;

/// Whoever would read while large pieces of others wait reads when one of them has left, one after the other. A new
/// response begins all the same, and nobody waits for a stream that its client does not let go on.
#[test]
fn large_pieces_wait_for_each_other() {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    // What is said on streams is all of their windows, and of the connection's but for the last 100,000.
    const WINDOW: u32 = 1 << 20;
    let more = 20 + 2 * WINDOW + 100_000 - FIRST_WINDOW;
    let say_windows = [settings(&[Setting::InitialWindowSize(WINDOW)]), window(0, more)].concat();
    receive(&table, &say_windows).unwrap();
    let streams: Vec<_> = (0..5).map(|n| opened(&table, 1 + 2 * n, 0).unwrap()).collect();
    let woken: [Arc<Woken>; 5] = std::array::from_fn(|_| Arc::default());
    let sized = std::cell::Cell::new(false);
    let read_budget = |at: usize| {
        let waker = Waker::from(Arc::clone(&woken[at]));
        streams[at].poll_read_budget(&mut Context::from_waker(&waker), sized.get())
    };
    let since = |at: usize| woken[at].0.swap(0, Relaxed);
    let say = |at: usize, n: usize| {
        streams[at].data(Bytes::from(vec![1; n]), false).unwrap();
        drain(&table);
    };
    (0..4).for_each(|at| say(at, 10));
    for (holder, piece) in [(0, PIECE), (1, 2 * SMALL_PIECE)] {
        assert_eq!(
            read_budget(holder),
            Poll::Ready(piece),
            "there is room for a smaller one beside the largest"
        );
        streams[holder].holds(piece);
    }
    assert!(read_budget(2).is_pending() && read_budget(3).is_pending());
    assert_eq!(read_budget(4), Poll::Ready(16_384), "it begins");
    // One leaves: the first that waits goes on, and then the second, as the first finds nothing to read.
    streams[0].holds(0);
    assert_eq!((since(2), since(3)), (1, 0));
    assert_eq!(read_budget(2), Poll::Ready(PIECE));
    streams[2].holds(0);
    assert_eq!(since(3), 1);
    assert_eq!(read_budget(3), Poll::Ready(PIECE));
    streams[3].holds(PIECE);
    // The client lets neither of those go on that have pieces: others are not to wait for them.
    assert!(read_budget(2).is_pending());
    for holder in [1, 3] {
        assert_eq!(since(2), 0);
        say(holder, WINDOW as usize - 10);
    }
    assert_eq!(since(2), 1);
    assert_eq!(read_budget(2), Poll::Ready(16_384));
    // Without a window of the connection only those read that may be at their end.
    say(0, 100_000);
    assert_eq!(read_budget(2), Poll::Ready(1));
    sized.set(true);
    assert!(read_budget(2).is_pending());
    streams[4].let_others_read();
    assert_eq!(since(2), 0);
    receive(&table, &window(0, WINDOW)).unwrap();
    assert_eq!(since(2), 1);
    assert_eq!(read_budget(2), Poll::Ready(16_384));
    // A stream that ends makes room, too.
    drop(streams);
    assert!(table.borrow().read_queue.is_empty());
    assert_eq!(table.borrow().account.used(), 0);
}

/// Notes that it was woken.
struct Order(u32, Arc<Mutex<Vec<u32>>>);

impl std::task::Wake for Order {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// Streams that wait go on in the order of their priorities: as their requests, an update, or a response has it.
#[test]
fn the_urgent_are_called_first() {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    receive(&table, &priority_update(11, "u=0")).unwrap();
    let said = ["", "u=7", "u=5", "u=1", "u=6", "u=3, i"];
    let woken = Arc::new(Mutex::new(Vec::new()));
    let first = opened(&table, 1, 0).unwrap();
    first.data(Bytes::from(vec![1; FIRST_WINDOW as usize]), false).unwrap();
    drain(&table);
    let streams: Vec<_> = (3..)
        .step_by(2)
        .zip(said)
        .map(|(id, said)| {
            let priority = [("priority", said.to_owned())];
            let fields = if said.is_empty() { &[] } else { &priority[..] };
            receive(&table, &headers(id, flag::END_STREAM, GET, fields, 0)).unwrap();
            let respond = Respond::new(&table, id);
            let waker = Waker::from(Arc::new(Order(id, Arc::clone(&woken))));
            assert!(respond.poll_room(&mut Context::from_waker(&waker)).is_pending());
            respond
        })
        .collect();
    streams[2].head(StatusCode::OK, &[("priority", "u=0")].into_iter().collect(), ends(false)).unwrap();
    receive(&table, &priority_update(9, "u=2, i")).unwrap();
    receive(&table, &window(0, 1 << 20)).unwrap();
    assert_eq!(*woken.lock().unwrap(), [7, 11, 9, 3, 13, 5]);
    drop(streams);
}
