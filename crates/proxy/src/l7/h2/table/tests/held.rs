//! What a connection can hold.

use super::*;

/// The most that a client can have pinned with the limits that are set where none are, besides what its own window
/// lets it send.
#[test]
fn what_a_connection_can_hold_is_known() {
    let (streams, header) = (100, 32 * 1024);
    // Those that may be open, and those whose tasks still end.
    let all = streams + LEFT_OVER;
    // What is written may be the rest of pieces, and keep the whole of them.
    let written = MOST_WAITING + MOST_FRAME + PIECES;
    let (state, fields, last) = (all * STREAM, FIELDS.max(header), last_pieces(all));
    let first_reads = FIRST_READS + all * LITTLE;
    let held = state + fields + first_reads + PIECES + written + last;
    println!(
        "state {state}, fields {fields}, first reads {first_reads}, pieces {PIECES}, written {written}, \
         last pieces {last}: {held}"
    );
    assert!(held <= MOST, "{held}");
    assert!(held + CONNECTION_WINDOW as usize <= MOST_WITH_WINDOW);
    // Of responses on routes with a bandwidth: what waits for it, and rests that keep the whole of a piece. Little ones are
    // counted as first reads already, and what is left of them is copied.
    assert!(held + 2 * PACED <= MOST_PACED);
}

/// The figure in docs/reference/http.md and in the table of docs/inside/http.md.
const MOST: usize = 1900 * 1024;
const MOST_WITH_WINDOW: usize = 2924 * 1024;
const MOST_PACED: usize = 2284 * 1024;

/// Servers of HTTP/2 may send so much ahead for all streams of a connection together, which counts as held.
#[test]
fn servers_send_ahead_for_a_connection_and_not_for_each_stream() {
    let memory = Rc::default();
    let table = table(100, Account::new(&memory, 1 << 30));
    let (first, second) = (opened(&table, 1, 0).unwrap(), opened(&table, 3, 0).unwrap());
    assert_eq!((first.has_ahead(0), second.has_ahead(0)), (AHEAD, AHEAD));
    assert_eq!(first.has_ahead(AHEAD - 1000), AHEAD, "what it has, it may keep");
    assert_eq!((second.has_ahead(0), second.has_ahead(1000)), (1000, 1000));
    assert_eq!(table.borrow().account.used(), 2 * UNIT + AHEAD);
    drop(first);
    assert_eq!(second.has_ahead(1000), AHEAD);
    table.borrow().account.limit(UNIT + 3000);
    assert_eq!(second.has_ahead(1000), 3000, "the worker has no more");
    drop(second);
    assert_eq!(table.borrow().account.used(), 0);
}

/// First reads are whole while few of them wait; then little is read of each response, but always something.
#[test]
fn little_is_read_where_many_responses_wait() {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    let streams: Vec<_> = (0..100).map(|n| opened(&table, 1 + 2 * n, 0).unwrap()).collect();
    let mut waiting = 0;
    for stream in &streams {
        let read = match table.borrow().first_read() {
            LITTLE => LITTLE,
            most => most.min(FIRST_READ),
        };
        stream.holds(read);
        waiting += read;
    }
    assert_eq!(waiting, FIRST_READS + (100 - FIRST_READS / FIRST_READ) * LITTLE);
    assert_eq!(table.borrow().account.used(), 100 * UNIT + waiting);
    assert_eq!(table.borrow().account.read_budget(1), Some(PIECE), "large pieces have a bound of their own");
    streams.iter().for_each(|stream| stream.holds(0));
    assert_eq!(table.borrow().first_read(), usize::MAX);
    table.borrow().account.limit(100 * UNIT + FIRST_READ - 1);
    assert_eq!(table.borrow().first_read(), LITTLE, "the worker has no more");
}

/// What windows have grown by is held, whether it is used or not, and takes no more than half of what there is.
#[test]
fn windows_grow_as_far_as_there_is_memory() {
    const WINDOW: usize = super::super::STREAM_WINDOW as usize;
    const ROUND: usize = WINDOW / MOST_FRAME;
    let upload = |table: &Shared, incoming: &Incoming, id: u32| {
        for _ in 0..ROUND {
            receive(table, &frame(Kind::Data, 0, id, &[1; MOST_FRAME])).unwrap();
            let cx = &mut Context::from_waker(Waker::noop());
            let Poll::Ready(Some(Ok(data))) = incoming.poll_data(cx) else { panic!("nothing came") };
            incoming.release(data.len());
        }
    };
    let used = |table: &Shared| table.borrow().account.used();
    for (limit, wanted) in [(64 << 20, WINDOW..=8 << 20), (2 * WINDOW, 1..=WINDOW - UNIT), (2 * UNIT, 0..=0)]
    {
        let memory = Rc::default();
        let table = table(100, Account::new(&memory, limit));
        let (respond, incoming) = asked(&table, 1, false, 0).unwrap();
        let incoming = incoming.unwrap();
        // All that may be sent before the client hears of more comes, and the answer to the PING that went along. A machine
        // that has other work may make that look slow.
        for _ in 0..10 {
            upload(&table, &incoming, 1);
            // The client is far away.
            std::thread::sleep(std::time::Duration::from_millis(30));
            receive(&table, &frame(Kind::Ping, flag::ACK, 0, b"stream->")).unwrap();
            if used(&table) > UNIT {
                break;
            }
        }
        let grown = used(&table) - UNIT;
        assert!(wanted.contains(&grown), "{limit}: {grown}");
        drop((respond, incoming));
        assert_eq!(used(&table), grown, "the client may still send as much");
        // What it sends then is not given again.
        for n in 0..40 {
            let (_respond, incoming) = asked(&table, 3 + 2 * n, false, 0).unwrap();
            upload(&table, &incoming.unwrap(), 3 + 2 * n);
        }
        assert_eq!(used(&table), 0);
    }
}
