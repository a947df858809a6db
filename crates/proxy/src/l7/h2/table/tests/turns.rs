//! Which streams read and write before others.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::*;

/// Whoever would read while large pieces of others wait reads when one of them has left, one after the other. A new
/// response begins all the same, and nobody waits for a stream that its client does not let go on.
#[test]
fn large_pieces_wait_for_each_other() {
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    table.borrow_mut().apply_settings(&[0, 4, 0, 16, 0, 0]).unwrap();
    table.borrow_mut().window_grows(0, 1 << 30).unwrap();
    let streams: Vec<_> = (0..5).map(|n| opened(&table, 1 + 2 * n, 0).unwrap()).collect();
    let woken: [Arc<Woken>; 5] = std::array::from_fn(|_| Arc::default());
    let sized = std::cell::Cell::new(false);
    let appetite = |at: usize| {
        let waker = Waker::from(Arc::clone(&woken[at]));
        streams[at].poll_appetite(&mut Context::from_waker(&waker), sized.get())
    };
    let since = |at: usize| woken[at].0.swap(0, Relaxed);
    let say = |at: usize, n: usize| {
        streams[at].data(Bytes::from(vec![1; n]), false).unwrap();
        table.borrow_mut().out = offramp_http::h2::Output::default();
    };
    (0..4).for_each(|at| say(at, 10));
    for (holder, piece) in [(0, PIECE), (1, 2 * SMALL_PIECE)] {
        assert_eq!(
            appetite(holder),
            Poll::Ready(piece),
            "there is room for a smaller one beside the largest"
        );
        streams[holder].holds(piece);
    }
    assert!(appetite(2).is_pending() && appetite(3).is_pending());
    assert_eq!(appetite(4), Poll::Ready(16_384), "it begins");
    // One leaves: the first that waits goes on, and then the second, as the first finds nothing to read.
    streams[0].holds(0);
    assert_eq!((since(2), since(3)), (1, 0));
    assert_eq!(appetite(2), Poll::Ready(PIECE));
    streams[2].holds(0);
    assert_eq!(since(3), 1);
    assert_eq!(appetite(3), Poll::Ready(PIECE));
    streams[3].holds(PIECE);
    // The client lets neither of those go on that have pieces: others are not to wait for them.
    assert!(appetite(2).is_pending());
    for holder in [1, 3] {
        assert_eq!(since(2), 0);
        table.borrow_mut().slots[holder].window = 10;
        say(holder, 10);
    }
    assert_eq!(since(2), 1);
    assert_eq!(appetite(2), Poll::Ready(16_384));
    // Without a window of the connection only those read that may be at their end.
    table.borrow_mut().window = 0;
    assert_eq!(appetite(2), Poll::Ready(1));
    sized.set(true);
    assert!(appetite(2).is_pending());
    streams[4].let_others_read();
    assert_eq!(since(2), 0);
    table.borrow_mut().window_grows(0, 1 << 20).unwrap();
    assert_eq!(since(2), 1);
    assert_eq!(appetite(2), Poll::Ready(16_384));
    // A stream that ends makes room, too.
    drop(streams);
    assert!(table.borrow().hungry.is_empty());
    assert_eq!(table.borrow().account.used(), 0);
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
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
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    table.borrow_mut().update_priority(9, Priority { urgency: 0, incremental: false });
    let said: [Option<&[u8]>; 6] =
        [None, Some(b"u=7"), Some(b"u=5"), Some(b"u=1"), Some(b"u=6"), Some(b"u=3, i")];
    let woken = Arc::new(Mutex::new(Vec::new()));
    table.borrow_mut().window = 0;
    let streams: Vec<_> = (1..)
        .step_by(2)
        .zip(said)
        .map(|(id, said)| {
            let respond = opened(&table, id, 0).unwrap();
            let key = table.borrow().find(id).unwrap();
            table.borrow_mut().begin_priority(key, said);
            let waker = Waker::from(Arc::new(Order(id, Arc::clone(&woken))));
            assert!(respond.poll_room(&mut Context::from_waker(&waker)).is_pending());
            respond
        })
        .collect();
    let date = Date::default();
    let ends = Ends { over: false, length: None, date: &date };
    streams[2].head(StatusCode::OK, &[("priority", "u=0")].into_iter().collect(), ends).unwrap();
    table.borrow_mut().update_priority(7, Priority { urgency: 2, incremental: true });
    table.borrow_mut().window_grows(0, 1 << 20).unwrap();
    assert_eq!(*woken.lock().unwrap(), [5, 9, 7, 1, 11, 3]);
    assert!(table.borrow().waiting.is_empty());
    drop(streams);
}
