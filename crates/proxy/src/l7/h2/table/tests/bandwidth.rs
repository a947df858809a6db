//! Streams of routes with a bandwidth, and the others of their connection.

use super::*;

/// As much as is read at a time of a response on a route with a bandwidth.
const READ: usize = 16 * 1024;

/// A connection whose client gives every stream a window of 1 MiB, and such streams, on which something was said.
fn streams(count: u32) -> (Shared, Vec<Respond>) {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    let windows = [settings(&[Setting::InitialWindowSize(1 << 20)]), window(0, 1 << 30)].concat();
    receive(&table, &windows).unwrap();
    let streams: Vec<_> = (0..count).map(|n| opened(&table, 1 + 2 * n, 0).unwrap()).collect();
    streams.iter().for_each(|stream| stream.data(Bytes::from_static(b"begin"), false).unwrap());
    drain(&table);
    (table, streams)
}

fn read_budget(stream: &Respond) -> Poll<usize> {
    stream.poll_read_budget(&mut Context::from_waker(Waker::noop()), true)
}

/// Whatever waits for a bandwidth, others read large pieces as if it were not there.
#[test]
fn what_waits_for_bandwidth_takes_no_turns() {
    let (table, streams) = streams(14);
    let (slow, fast) = streams.split_at(12);
    slow.iter().for_each(Respond::pace);
    slow.iter().for_each(|stream| stream.holds(READ));
    assert_eq!((read_budget(&fast[0]), read_budget(&fast[1])), (Poll::Ready(PIECE), Poll::Ready(PIECE)));
    fast[0].holds(PIECES);
    assert!(read_budget(&fast[1]).is_pending(), "its turn comes behind another of the others");
    // And those that wait take no turn themselves.
    assert_eq!(read_budget(&slow[0]), Poll::Ready(LITTLE));
    assert_eq!(table.borrow().first_read(), LITTLE);
    slow[1..].iter().for_each(|stream| stream.holds(0));
    assert_eq!(read_budget(&slow[1]), Poll::Ready(PACED_READS / 14));
    assert_eq!(table.borrow().first_read(), usize::MAX);
    // Nobody waits for a piece that leaves when its time comes.
    receive(&table, &frame(Kind::ResetStream, 0, 25, &[0, 0, 0, 8])).unwrap();
    assert_eq!(table.borrow().account.used(), 14 * UNIT + READ + PIECES);
    let mut streams = streams;
    drop(streams.remove(12));
    assert_eq!(read_budget(&streams[12]), Poll::Ready(PIECE));
    drop(streams);
    assert_eq!(table.borrow().account.used(), 0);
}

/// However many wait, and however they come, what they hold is bounded, and each has something.
#[test]
fn what_waits_for_bandwidth_is_bounded() {
    let (table, streams) = streams(100);
    streams.iter().for_each(Respond::pace);
    let mut held = 0;
    for (at, stream) in streams.iter().enumerate() {
        let first = table.borrow().first_read().min(FIRST_READ);
        let Poll::Ready(most) = read_budget(stream) else { panic!("{at} waits") };
        // Some begin with a first read, and some have servers that were slow to give it.
        let read = if at % 2 == 0 { first } else { most };
        assert!((LITTLE..=READ).contains(&read));
        stream.holds(read);
        held += read;
    }
    assert!(held <= PACED + 100 * LITTLE, "{held}");
    assert_eq!(table.borrow().account.used(), 100 * UNIT + held);
    // In the long run all have the same.
    streams.iter().for_each(|stream| stream.holds(0));
    for stream in &streams {
        assert_eq!(read_budget(stream), Poll::Ready(PACED_READS / 100));
        stream.holds(PACED_READS / 100);
    }
}

/// Uploads that wait for long and found no memory hold others up only until there is some.
#[test]
fn uploads_are_set_apart_as_soon_as_there_is_memory() {
    let memory = Rc::default();
    let table = table(100, Account::new(&memory, 1 << 30));
    let (_respond, upload) = asked(&table, 1, false, 0).unwrap();
    let upload = upload.unwrap();
    table.borrow().account.limit(0);
    let content = frame(Kind::Data, 0, 1, &[1; MOST_FRAME]);
    receive(&table, &content).unwrap();
    upload.set_apart();
    let lendable = || table.borrow().connection.lendable();
    assert_eq!(lendable(), MOST_FRAME, "there is no memory");
    upload.release(10);
    assert_eq!(lendable(), MOST_FRAME - 10);
    table.borrow().account.limit(1 << 30);
    upload.release(10);
    assert_eq!(lendable(), 0);
}
