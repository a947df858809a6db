//! Whatever a client and the tasks of its streams do, in whatever order: windows add up, and nothing is left over.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use offramp_http::h2::{Code, FrameHeader, Framed, Kind, Priority, Setting, flag, write_settings};
use offramp_http::head::Fields;
use offramp_upstream::FIRST_READ;
use proptest::prelude::*;

use super::{CONNECTION_WINDOW, FIRST_WINDOW, Opened, STREAM_WINDOW, Shared, StreamTable};
use crate::l7::date::Date;
use crate::l7::h2::fields::Ends;
use crate::l7::h2::handle::{Incoming, Respond};
use crate::l7::h2::memory::{
    AHEAD, Account, FIELDS, FIRST_READS, LEAST_SHARE, LITTLE, Memory, PIECE, PIECES, SMALL_PIECE, STREAM,
};

mod turns;

/// What may happen. A stream is named by its place among all.
#[derive(Clone, Debug)]
enum TableStep {
    Open { over: bool, length: Option<u64>, fields: usize },
    Data { at: usize, size: usize, padding: u8, cut: usize, last: bool },
    Trailers { at: usize, good: bool },
    Reset { at: usize },
    Grow { at: Option<usize>, more: u32 },
    Windows { size: u32 },
    Read { at: usize },
    DropReader { at: usize },
    Answer { at: usize, over: bool },
    Write { at: usize, size: usize, over: bool },
    Hold { at: usize, size: usize },
    DropWriter { at: usize },
    Prioritize { id: u32, urgency: u8, incremental: bool },
    Sent,
    Later,
    Part,
}

fn steps() -> impl Strategy<Value = TableStep> {
    let at = 0..6_usize;
    prop_oneof![
        3 => (any::<bool>(), proptest::option::of(0..9000_u64), 0..FIELDS)
            .prop_map(|(over, length, fields)| TableStep::Open { over, length, fields }),
        4 => (at.clone(), 0..9000_usize, any::<u8>(), any::<usize>(), any::<bool>())
            .prop_map(|(at, size, padding, cut, last)| TableStep::Data { at, size, padding, cut, last }),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, good)| TableStep::Trailers { at, good }),
        1 => at.clone().prop_map(|at| TableStep::Reset { at }),
        2 => (proptest::option::of(at.clone()), 0..200_000_u32).prop_map(|(at, more)| TableStep::Grow { at, more }),
        1 => (0..100_000_u32).prop_map(|size| TableStep::Windows { size }),
        3 => at.clone().prop_map(|at| TableStep::Read { at }),
        1 => at.clone().prop_map(|at| TableStep::DropReader { at }),
        2 => (at.clone(), any::<bool>()).prop_map(|(at, over)| TableStep::Answer { at, over }),
        4 => (at.clone(), 1..40_000_usize, any::<bool>())
            .prop_map(|(at, size, over)| TableStep::Write { at, size, over }),
        1 => (at.clone(), 0..PIECES).prop_map(|(at, size)| TableStep::Hold { at, size }),
        1 => at.prop_map(|at| TableStep::DropWriter { at }),
        1 => (0..12_u32, 0..8_u8, any::<bool>())
            .prop_map(|(id, urgency, incremental)| TableStep::Prioritize { id, urgency, incremental }),
        2 => Just(TableStep::Sent),
        1 => Just(TableStep::Later),
        1 => Just(TableStep::Part),
    ]
}

/// A connection as its client and tasks have it.
struct World {
    table: Shared,
    streams: Vec<(u32, Option<Respond>, Option<Incoming>)>,
    /// What may still be sent on each of them, and what on one that begins.
    windows: Vec<i64>,
    first: i64,
    date: Date,
    /// What the client has allowed on the connection, and was sent.
    allowed: i64,
    sent: i64,
    now: u64,
}

impl World {
    /// Takes a step; `false` where the connection would end.
    fn step(&mut self, step: &TableStep) -> bool {
        let waker = Waker::noop();
        let cx = &mut Context::from_waker(waker);
        let id = |at: usize, world: &Self| world.streams.get(at).map_or(1, |stream| stream.0);
        match *step {
            TableStep::Open { over, length, fields } => return self.open(over, length, fields),
            TableStep::Data { at, size, padding, cut, last } => {
                let end = if last { flag::END_STREAM } else { 0 };
                return self.data(id(at, self), (size, padding), cut, end);
            }
            TableStep::Trailers { at, good } => {
                let stream = id(at, self);
                let mut table = self.table.borrow_mut();
                if stream > table.last {
                    return true;
                }
                match table.is_to_have_trailers(stream, good) {
                    Ok(true) => table.trailers(stream, Some(Fields::new()), FIELDS / 5),
                    Ok(false) => {}
                    Err(_) => return false,
                }
            }
            TableStep::Reset { at } => {
                let stream = id(at, self);
                return self.table.borrow_mut().reset_by_client(stream, Code::CANCEL).is_ok();
            }
            TableStep::Grow { at, more } => {
                let stream = at.map_or(0, |at| id(at, self));
                if self.table.borrow_mut().window_grows(stream, more).is_err() {
                    return false;
                }
                if stream == 0 {
                    self.allowed += i64::from(more);
                }
                if let Some(at) = self.streams.iter().position(|(id, ..)| *id == stream) {
                    self.windows[at] += i64::from(more);
                }
            }
            TableStep::Windows { size } => {
                let more = i64::from(size) - std::mem::replace(&mut self.first, size.into());
                self.windows.iter_mut().for_each(|window| *window += more);
                // What comes before the last value is as if it had not come.
                let mut payload = Vec::new();
                write_settings(
                    &[Setting::InitialWindowSize(1 << 20), Setting::InitialWindowSize(size)],
                    &mut payload,
                );
                return self.table.borrow_mut().apply_settings(&payload).is_ok();
            }
            TableStep::Read { at } => {
                if let Some((_, _, Some(incoming))) = self.streams.get(at)
                    && let Poll::Ready(Some(Ok(data))) = incoming.poll_data(cx)
                {
                    incoming.release(data.len());
                }
            }
            TableStep::DropReader { at } => {
                if let Some(stream) = self.streams.get_mut(at) {
                    stream.2 = None;
                }
            }
            TableStep::Answer { at, over } => {
                if let Some((_, Some(respond), _)) = self.streams.get(at) {
                    let ends = Ends { over, length: None, date: &self.date };
                    let _ = respond.head(StatusCode::OK, &Fields::new(), ends);
                }
            }
            TableStep::Write { at, size, over } => self.write(at, id(at, self), size, over),
            TableStep::Hold { at, size } => {
                if let Some((_, Some(respond), _)) = self.streams.get(at) {
                    respond.holds(size);
                }
            }
            TableStep::DropWriter { at } => {
                if let Some(stream) = self.streams.get_mut(at) {
                    stream.1 = None;
                }
            }
            TableStep::Prioritize { id, urgency, incremental } => {
                self.table.borrow_mut().update_priority(id, Priority { urgency, incremental });
            }
            TableStep::Sent => {
                let table = &mut self.table.borrow_mut();
                table.out = super::Output::default();
                table.call();
            }
            TableStep::Later => {
                self.now += 10_000;
                self.table.borrow_mut().drop_blocked(self.now, 5000);
            }
            TableStep::Part => self.table.borrow_mut().part(Code::NO_ERROR),
        }
        true
    }

    fn open(&mut self, over: bool, length: Option<u64>, fields: usize) -> bool {
        let mut table = self.table.borrow_mut();
        let id = table.last + 2 - (table.last + 1) % 2;
        table.last = id;
        let Ok(opened) = table.open(id, over, length, fields) else { return false };
        drop(table);
        if let Opened::Stream(key) = opened {
            let incoming = (!over).then(|| Incoming::new(&self.table, key));
            self.streams.push((id, Some(Respond::new(&self.table, key)), incoming));
            self.windows.push(self.first);
        }
        true
    }

    fn data(&mut self, stream: u32, (size, padding): (usize, u8), cut: usize, end: u8) -> bool {
        let around = usize::from(padding) + 1;
        let head = FrameHeader { length: size + around, kind: Kind::Data, flags: flag::PADDED | end, stream };
        let mut table = self.table.borrow_mut();
        if table.data_begins(&head, Framed { before: 1, length: size }).is_err() {
            return false;
        }
        let (data, cut) = (vec![1; size], cut % (size + 1));
        table.data(&head, &data[..cut], false);
        table.data(&head, &data[cut..], true);
        true
    }

    fn write(&mut self, at: usize, id: u32, size: usize, over: bool) {
        // Nobody writes behind the end.
        let ended = {
            let table = self.table.borrow();
            table.find(id).is_some_and(|key| table.slots[key.0].sent_all)
        };
        let cx = &mut Context::from_waker(Waker::noop());
        if !ended
            && let Some((_, Some(respond), _)) = self.streams.get(at)
            && let Poll::Ready(room @ 1..) = respond.poll_room(cx)
        {
            let size = size.min(room);
            assert!(respond.data(Bytes::from(vec![2; size]), over).is_ok());
            self.sent += size as i64;
            assert!(self.sent <= self.allowed, "more than the window of the connection");
            self.windows[at] -= size as i64;
            assert!(self.windows[at] >= 0, "more than the window of the stream");
        }
    }

    /// What holds at all times.
    fn check(&self) {
        let table: &StreamTable = &self.table.borrow();
        let unread: usize = table.slots.iter().map(|slot| slot.unread.len()).sum();
        assert_eq!(
            table.room + i64::from(table.owed) + unread as i64,
            i64::from(CONNECTION_WINDOW),
            "each byte that came is given back once"
        );
        assert_eq!(table.window, self.allowed - self.sent);
        for ((id, _, _), window) in self.streams.iter().zip(&self.windows) {
            let Some(key) = table.find(*id) else { continue };
            let slot = &table.slots[key.0];
            if slot.over.is_some() {
                continue;
            }
            assert!(slot.sent_all || slot.window == *window, "{id}: {} and {window}", slot.window);
            let taken = i64::from(slot.owed) + slot.unread.len() as i64;
            assert!(!slot.wanted || slot.room + taken == i64::from(STREAM_WINDOW), "{id}: given back once");
        }
        let live = table.ids.iter().map(|(_, key)| &table.slots[key.0]);
        let held: usize = live.map(|slot| STREAM + slot.fields + slot.piece + slot.unread.len()).sum();
        assert_eq!(table.account.used(), held, "what is held is counted");
        assert_eq!(table.active, table.slots.iter().filter(|slot| slot.counted).count());
        assert_eq!(table.ids.len() + table.free.len(), table.slots.len());
        assert!(table.ids.is_sorted_by_key(|(id, _)| *id));
        assert!(table.waiting.len() <= table.ids.len(), "whoever is gone waits no longer");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn windows_add_up_and_nothing_is_left_over(steps in proptest::collection::vec(steps(), 1..120)) {
        let memory = Rc::default();
        let table = StreamTable::new(4, Account::new(&memory, 1 << 30));
        let allowed = i64::from(FIRST_WINDOW);
        let (streams, windows, first) = (Vec::new(), Vec::new(), allowed);
        let date = Date::default();
        let mut world = World { table, streams, windows, first, date, allowed, sent: 0, now: 1 << 40 };
        let mut in_order = true;
        for step in steps {
            in_order = world.step(&step);
            if !in_order {
                world.table.borrow_mut().die();
                break;
            }
            world.check();
        }
        world.streams.clear();
        let table = world.table.borrow();
        prop_assert!(table.ids.is_empty() && table.waiting.is_empty());
        prop_assert_eq!(table.active, 0);
        // What a frame that broke a rule brought is forgotten with the connection.
        prop_assert!(!in_order || table.account.used() == 0);
    }
}

fn opened(table: &Shared, id: u32, fields: usize) -> Option<Respond> {
    let opened = {
        let table = &mut *table.borrow_mut();
        table.last = id;
        table.open(id, true, None, fields).unwrap()
    };
    match opened {
        Opened::Stream(key) => Some(Respond::new(table, key)),
        Opened::Not | Opened::Full => None,
    }
}

/// 2,730 sizes of windows in one frame are one look at each stream.
#[test]
fn settings_look_at_each_stream_once() {
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    let _streams: Vec<_> = (0..99).map(|n| opened(&table, 1 + 2 * n, 0).unwrap()).collect();
    let mut payload = Vec::new();
    let all: Vec<_> = (0..2730).map(Setting::InitialWindowSize).collect();
    write_settings(&all, &mut payload);
    assert!(payload.len() <= offramp_http::h2::reader::MOST);
    table.borrow_mut().apply_settings(&payload).unwrap();
    assert_eq!(table.borrow().looks.get(), 99);
    assert_eq!(table.borrow().first_window, 2729);
}

/// What all connections of a worker hold is bounded; each may have one request all the same.
#[test]
fn a_worker_that_holds_too_much_refuses_streams() {
    let memory: Rc<Memory> = Rc::default();
    let books: Vec<_> = (0..10).map(|_| StreamTable::new(100, Account::new(&memory, 60 * STREAM))).collect();
    let mut streams = Vec::new();
    for (at, table) in books.iter().enumerate() {
        let mut count = 0;
        for n in 0..100 {
            let stream = opened(table, 1 + 2 * n, 0);
            count += usize::from(stream.is_some());
            streams.extend(stream);
        }
        // Whoever came first has it all; the others still have the least share.
        assert_eq!(count, if at == 0 { 60 } else { LEAST_SHARE / STREAM }, "{at}");
        assert_eq!(table.borrow_mut().turned_away, 0, "nobody is to blame");
    }
    // Where something ends there is room for others.
    drop(streams.split_off(1));
    assert!(opened(&books[5], 1001, 0).is_some() && opened(&books[5], 1003, 0).is_some());
    drop(streams);
}

/// A limit that a reload changes holds for connections that are open.
#[test]
fn another_limit_holds_for_who_is_there() {
    let memory: Rc<Memory> = Rc::default();
    let shown = memory.shown();
    let books: Vec<_> = (0..2).map(|_| StreamTable::new(100, Account::new(&memory, 30 * STREAM))).collect();
    let open = |from: u32| -> Vec<Respond> {
        (from..from + 100).map_while(|n| opened(&books[0], 1 + 2 * n, 0)).collect()
    };
    let first = open(0);
    assert_eq!((first.len(), shown.load(std::sync::atomic::Ordering::Relaxed)), (30, 30 * STREAM));
    assert!(books[1].borrow().limit_memory(50 * STREAM) && !books[0].borrow().limit_memory(50 * STREAM));
    let second = open(200);
    assert_eq!(second.len(), 20);
    assert!(books[1].borrow().limit_memory(30 * STREAM));
    assert!(open(400).is_empty());
    drop((first, second));
    assert_eq!(open(600).len(), 30);
    assert_eq!(shown.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// Trailers are held as fields are, and bounded with them.
#[test]
fn trailers_count_as_fields() {
    const SIZE: usize = 32 * 1024;
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    let streams: Vec<_> = (0..100).map(|n| 1 + 2 * n).collect();
    let all: Vec<_> = streams
        .iter()
        .map(|id| {
            table.borrow_mut().last = *id;
            let opened = table.borrow_mut().open(*id, false, None, 0).unwrap();
            let Opened::Stream(key) = opened else { panic!("{id} is not open") };
            (Respond::new(&table, key), Incoming::new(&table, key))
        })
        .collect();
    for id in &streams {
        assert!(table.borrow_mut().is_to_have_trailers(*id, true).unwrap());
        table.borrow_mut().trailers(*id, Some([("etag", "x")].into_iter().collect()), SIZE);
    }
    assert_eq!(table.borrow().account.used(), 100 * STREAM + FIELDS);
    let kept = all.iter().filter(|(_, incoming)| incoming.take_trailers().is_some()).count();
    assert_eq!(kept, FIELDS / SIZE);
    drop(all);
    assert_eq!(table.borrow().account.used(), 0);
}

/// Who takes nothing has no more heads of responses read for it than fit; the window says nothing of them.
#[test]
fn heads_that_nobody_takes_do_not_pile_up() {
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    let streams: Vec<_> = (0..100).map(|n| opened(&table, 1 + 2 * n, 0).unwrap()).collect();
    table.borrow_mut().window = 0;
    let date = Date::default();
    let cx = &mut Context::from_waker(Waker::noop());
    let large = vec![b'x'; 30_000];
    let mut answer = |at: usize| {
        let begins = streams[at].poll_calm(cx).is_ready();
        if begins {
            let fields = [("etag", &large)].into_iter().collect();
            let ends = Ends { over: true, length: None, date: &date };
            streams[at].head(StatusCode::OK, &fields, ends).unwrap();
        }
        begins
    };
    let begun = (0..100).filter(|at| answer(*at)).count();
    assert!(begun < 20, "{begun} heads");
    assert!(table.borrow().out.len() < crate::l7::h2::connection::MOST_WAITING + 40_000);
    // When it has taken them the others are called, and nobody stays behind.
    assert_eq!(table.borrow().waiting.len(), 100 - begun);
    table.borrow_mut().out = super::Output::default();
    table.borrow_mut().call();
    assert!(table.borrow().waiting.is_empty());
    assert!(answer(99));
}

/// The fields of the requests of one connection are bounded together, but not those of a single one.
#[test]
fn large_requests_have_no_company() {
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    let first = opened(&table, 1, FIELDS + 1);
    assert!(first.is_some() && opened(&table, 3, 1).is_none());
    drop(first);
    let streams: Vec<_> = (0..100).filter_map(|n| opened(&table, 5 + 2 * n, FIELDS / 40)).collect();
    assert_eq!(streams.len(), 40);
}

/// The last pieces of requests whose clients may send as much again are bounded together.
#[test]
fn the_last_piece_of_content_is_small() {
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    let post = |id: u32, size: usize| {
        table.borrow_mut().last = id;
        let opened = table.borrow_mut().open(id, false, None, 0).unwrap();
        let Opened::Stream(key) = opened else { panic!("{id} is not open") };
        let head = FrameHeader { length: size, kind: Kind::Data, flags: flag::END_STREAM, stream: id };
        table.borrow_mut().data_begins(&head, Framed { before: 0, length: size }).unwrap();
        table.borrow_mut().data(&head, &vec![1; size], true);
        (Respond::new(&table, key), Incoming::new(&table, key))
    };
    let (mut all, mut last) = (Vec::new(), 0);
    for n in 0..100 {
        let (respond, incoming) = post(1 + 2 * n, 10_000);
        let mut seen = 0;
        loop {
            let Poll::Ready(Some(Ok(data))) = incoming.poll_data(&mut Context::from_waker(Waker::noop()))
            else {
                panic!("content is missing")
            };
            seen += data.len();
            incoming.release(data.len());
            if incoming.is_over() {
                last += data.len();
                break;
            }
        }
        assert_eq!(seen, 10_000);
        all.push((respond, incoming));
    }
    assert!(last <= last_pieces(100), "{last}");
}

/// What last pieces may come to: each was taken among so many streams as there were then.
fn last_pieces(streams: usize) -> usize {
    (1..=streams).map(super::send::last_piece).sum()
}

/// The most that a client can have pinned with the limits that are set where none are, besides what its own window
/// lets it send.
#[test]
fn what_a_connection_can_hold_is_known() {
    let (streams, header) = (100, 32 * 1024);
    // Those that may be open, and those whose tasks still end.
    let all = streams + super::receive::LEFT_OVER;
    // What is written may be the rest of pieces, and keep the whole of them.
    let written = crate::l7::h2::connection::MOST_WAITING + offramp_http::h2::reader::MOST + PIECES;
    let (state, fields, last) = (all * STREAM, FIELDS.max(header), last_pieces(all));
    let first_reads = FIRST_READS + all * LITTLE;
    let held = state + fields + first_reads + PIECES + written + last;
    println!(
        "state {state}, fields {fields}, first reads {first_reads}, pieces {PIECES}, written {written}, \
         last pieces {last}: {held}"
    );
    assert!(held <= MOST, "{held}");
    assert!(held + CONNECTION_WINDOW as usize <= MOST_WITH_WINDOW);
}

/// What docs/http.md and the table of docs/http-internals.md say of it.
const MOST: usize = 1900 * 1024;
const MOST_WITH_WINDOW: usize = 2924 * 1024;

/// Servers of HTTP/2 may send so much ahead for all streams of a connection together, which counts as held.
#[test]
fn servers_send_ahead_for_a_connection_and_not_for_each_stream() {
    let memory = Rc::default();
    let table = StreamTable::new(100, Account::new(&memory, 1 << 30));
    let (first, second) = (opened(&table, 1, 0).unwrap(), opened(&table, 3, 0).unwrap());
    assert_eq!((first.ahead(0), second.ahead(0)), (AHEAD, AHEAD));
    assert_eq!(first.ahead(AHEAD - 1000), AHEAD, "what it has, it may keep");
    assert_eq!((second.ahead(0), second.ahead(1000)), (1000, 1000));
    assert_eq!(table.borrow().account.used(), 2 * STREAM + AHEAD);
    drop(first);
    assert_eq!(second.ahead(1000), AHEAD);
    table.borrow().limit_memory(STREAM + 3000);
    assert_eq!(second.ahead(1000), 3000, "the worker has no more");
    drop(second);
    assert_eq!(table.borrow().account.used(), 0);
}

/// First reads are whole while few of them wait; then little is read of each response, but always something.
#[test]
fn little_is_read_where_many_responses_wait() {
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
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
    assert_eq!(table.borrow().account.used(), 100 * STREAM + waiting);
    assert_eq!(table.borrow().account.appetite(1), Some(PIECE), "large pieces have a bound of their own");
    streams.iter().for_each(|stream| stream.holds(0));
    assert_eq!(table.borrow().first_read(), usize::MAX);
    table.borrow().limit_memory(100 * STREAM + FIRST_READ - 1);
    assert_eq!(table.borrow().first_read(), LITTLE, "the worker has no more");
}

/// The fields of a request count until its response begins; its trailers until the stream ends.
#[test]
fn the_head_of_a_request_counts_until_the_response_begins() {
    let table = StreamTable::new(100, Account::new(&Rc::default(), 1 << 30));
    table.borrow_mut().last = 1;
    let Opened::Stream(key) = table.borrow_mut().open(1, false, None, FIELDS).unwrap() else { panic!() };
    let (respond, incoming) = (Respond::new(&table, key), Incoming::new(&table, key));
    assert!(opened(&table, 3, 1).is_none(), "there is room for no other");
    assert!(table.borrow_mut().is_to_have_trailers(1, true).unwrap());
    table.borrow_mut().trailers(1, Some([("etag", "x")].into_iter().collect()), 100);
    let date = Date::default();
    let ends = Ends { over: false, length: None, date: &date };
    respond.head(StatusCode::OK, &Fields::new(), ends).unwrap();
    assert_eq!(table.borrow().account.used(), STREAM + 100);
    let other = opened(&table, 3, FIELDS - 100);
    assert!(other.is_some());
    drop((respond, incoming, other));
    assert_eq!(table.borrow().account.used(), 0);
}
