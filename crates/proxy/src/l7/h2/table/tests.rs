//! Whatever a client and the tasks of its streams do, in whatever order: windows add up, and nothing is left over.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use offramp_http::h2::connection::{LEFT_OVER, MOST_WAITING, STILL};
use offramp_http::h2::{Ends, FrameHeader, Kind, PREFACE, Setting, Violation, flag, write_settings};
use offramp_http::head::{ControlData, Fields, Request};
use offramp_net::turn::Turn;
use offramp_upstream::FIRST_READ;
use proptest::prelude::*;

use super::slot::RequestSide;
use super::{CONNECTION_WINDOW, Requests, Shared, StreamTable};
use crate::l7::h2::handle::{Incoming, Respond};
use crate::l7::h2::memory::{
    AHEAD, Account, FIELDS, FIRST_READS, LEAST_SHARE, LITTLE, Memory, PACED, PACED_READS, PIECE, PIECES,
    SMALL_PIECE, STREAM,
};

mod bandwidth;
mod held;
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
    Pace { at: usize },
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
        1 => at.clone().prop_map(|at| TableStep::Pace { at }),
        1 => at.prop_map(|at| TableStep::DropWriter { at }),
        1 => (1..12_u32, 0..8_u8, any::<bool>())
            .prop_map(|(id, urgency, incremental)| TableStep::Prioritize { id, urgency, incremental }),
        2 => Just(TableStep::Sent),
        1 => Just(TableStep::Later),
        1 => Just(TableStep::Part),
    ]
}

/// The windows of both sides before anything is said (RFC 9113 §6.9.2).
const FIRST_WINDOW: u32 = 65_535;
/// The fields of the smallest request here, and as what its stream counts.
const LEAST: usize = 167;
const UNIT: usize = STREAM + LEAST;
/// The largest frame.
const MOST_FRAME: usize = 1 << 14;

/// Requests that have come, and whether they have ended.
#[derive(Default)]
struct Came(Vec<(u32, bool)>);

impl Requests for Came {
    fn serve(&mut self, id: u32, _: Box<Request>, _: ControlData, end: bool) {
        self.0.push((id, end));
    }
}

/// A connection on which the client has said its preface.
fn table(streams: u32, account: Account) -> Shared {
    let table = StreamTable::new(streams, 1 << 20, 8 << 20, account);
    receive(&table, &[&PREFACE[..], &frame(Kind::Settings, 0, 0, &[])].concat()).unwrap();
    drain(&table);
    table
}

/// Gives what a client says to a connection.
fn receive(table: &Shared, bytes: &[u8]) -> Result<Came, Violation> {
    let (mut rest, mut came) = (bytes, Came::default());
    while !rest.is_empty() {
        let used = table.borrow_mut().receive(rest, &mut Turn::default(), &mut came)?;
        rest = &rest[used..];
    }
    Ok(came)
}

/// Has all that was written leave.
fn drain(table: &Shared) {
    let n = table.borrow().connection.output().len();
    table.borrow_mut().sent(n);
}

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let head = FrameHeader { length: payload.len(), kind, flags, stream };
    [&head.bytes()[..], payload].concat()
}

fn settings(all: &[Setting]) -> Vec<u8> {
    let mut payload = Vec::new();
    write_settings(all, &mut payload);
    frame(Kind::Settings, 0, 0, &payload)
}

fn window(stream: u32, more: u32) -> Vec<u8> {
    frame(Kind::WindowUpdate, 0, stream, &more.to_be_bytes())
}

fn priority_update(id: u32, value: &str) -> Vec<u8> {
    frame(Kind::PriorityUpdate, 0, 0, &[&id.to_be_bytes()[..], value.as_bytes()].concat())
}

/// HEADERS, and CONTINUATION where it takes them: `begin` or nothing, these fields, and one that fills them up to `size`.
fn headers(id: u32, flags: u8, begin: &[u8], fields: &[(&str, String)], size: usize) -> Vec<u8> {
    let mut block = begin.to_vec();
    let mut have = if begin.is_empty() { 0 } else { LEAST };
    for (name, value) in fields {
        literal(name, value, &mut block);
        have += name.len() + value.len() + 32;
    }
    if let Some(left) = size.checked_sub(have + 33) {
        literal("a", &"x".repeat(left), &mut block);
    }
    let parts = block.chunks(MOST_FRAME);
    let last = parts.len() - 1;
    let each = parts.enumerate().map(|(at, part)| {
        let (kind, flags) = if at == 0 { (Kind::Headers, flags) } else { (Kind::Continuation, 0) };
        frame(kind, flags | if at == last { flag::END_HEADERS } else { 0 }, id, part)
    });
    each.collect::<Vec<_>>().concat()
}

/// A field that goes into no table (RFC 7541 §6.2.3).
fn literal(name: &str, value: &str, block: &mut Vec<u8>) {
    block.extend_from_slice(&[0x10, name.len() as u8]);
    block.extend_from_slice(name.as_bytes());
    block.push(value.len().min(127) as u8);
    if let Some(mut n) = value.len().checked_sub(127) {
        while n >= 128 {
            block.push((n % 128) as u8 | 128);
            n /= 128;
        }
        block.push(n as u8);
    }
    block.extend_from_slice(value.as_bytes());
}

/// `GET https://a/`.
const GET: &[u8] = &[0x82, 0x87, 0x84, 0x01, 1, b'a'];

/// A request whose fields have so many bytes, or [`LEAST`]; who answers it, and who reads its content.
fn asked(table: &Shared, id: u32, end: bool, fields: usize) -> Option<(Respond, Option<Incoming>)> {
    let flags = if end { flag::END_STREAM } else { 0 };
    let came = receive(table, &headers(id, flags, GET, &[], fields)).unwrap();
    came.0.first().map(|_| (Respond::new(table, id), (!end).then(|| Incoming::new(table, id))))
}

fn opened(table: &Shared, id: u32, fields: usize) -> Option<Respond> {
    asked(table, id, true, fields).map(|(respond, _)| respond)
}

fn ends(end: bool) -> Ends<'static> {
    Ends { end, length: None, date: Some(b"Mon, 01 Jan 2024 00:00:00 GMT") }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A connection as its client and tasks have it.
struct World {
    table: Shared,
    streams: Vec<(u32, Option<Respond>, Option<Incoming>)>,
    last: u32,
    /// What may still be sent on each of them, and what on one that begins.
    windows: Vec<i64>,
    first: i64,
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
                let flags = if good { flag::END_STREAM } else { 0 };
                let trailers = headers(stream, flags, &[], &[], FIELDS / 5);
                return stream > self.last || receive(&self.table, &trailers).is_ok();
            }
            TableStep::Reset { at } => {
                return receive(&self.table, &frame(Kind::ResetStream, 0, id(at, self), &[0, 0, 0, 8]))
                    .is_ok();
            }
            TableStep::Grow { at, more } => {
                let stream = at.map_or(0, |at| id(at, self));
                if receive(&self.table, &window(stream, more)).is_err() {
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
                let both = [Setting::InitialWindowSize(1 << 20), Setting::InitialWindowSize(size)];
                return receive(&self.table, &settings(&both)).is_ok();
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
                    let _ = respond.head(StatusCode::OK, &Fields::new(), ends(over));
                }
            }
            TableStep::Write { at, size, over } => self.write(at, id(at, self), size, over),
            TableStep::Hold { at, size } => {
                if let Some((_, Some(respond), _)) = self.streams.get(at) {
                    respond.holds(size);
                }
            }
            TableStep::Pace { at } => {
                if let Some((_, Some(respond), _)) = self.streams.get(at) {
                    respond.pace();
                }
            }
            TableStep::DropWriter { at } => {
                if let Some(stream) = self.streams.get_mut(at) {
                    stream.1 = None;
                }
            }
            TableStep::Prioritize { id, urgency, incremental } => {
                let value = format!("u={urgency}, i=?{}", u8::from(incremental));
                return receive(&self.table, &priority_update(id, &value)).is_ok();
            }
            TableStep::Sent => drain(&self.table),
            TableStep::Later => {
                self.now += 10_000;
                self.table.borrow_mut().drop_blocked(self.now, 5000);
                self.table.borrow_mut().end_lingering(self.now);
            }
            TableStep::Part => self.table.borrow_mut().stop(),
        }
        true
    }

    fn open(&mut self, over: bool, length: Option<u64>, fields: usize) -> bool {
        self.last += 2 - (self.last + 1) % 2;
        let (id, flags) = (self.last, if over { flag::END_STREAM } else { 0 });
        let length: Vec<_> =
            length.map(|length| ("content-length", length.to_string())).into_iter().collect();
        let Ok(came) = receive(&self.table, &headers(id, flags, GET, &length, fields)) else { return false };
        for (id, end) in came.0 {
            let incoming = (!end).then(|| Incoming::new(&self.table, id));
            self.streams.push((id, Some(Respond::new(&self.table, id)), incoming));
            self.windows.push(self.first);
        }
        true
    }

    fn data(&mut self, stream: u32, (size, padding): (usize, u8), cut: usize, end: u8) -> bool {
        let payload = [&[padding][..], &vec![1; size], &vec![0; padding.into()]].concat();
        let bytes = frame(Kind::Data, flag::PADDED | end, stream, &payload);
        let (begin, rest) = bytes.split_at(cut % (bytes.len() + 1));
        receive(&self.table, begin).is_ok() && receive(&self.table, rest).is_ok()
    }

    fn write(&mut self, at: usize, id: u32, size: usize, over: bool) {
        // Nobody writes behind the end.
        let ended = self.table.borrow().connection.has_sent_all(id);
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
        let table = &mut *self.table.borrow_mut();
        let (mut unread, mut held) = (0, 0);
        for (_, slot) in table.connection.streams() {
            let content = match &slot.request {
                RequestSide::Read(all) => {
                    let behind = all.behind.iter().flat_map(|behind| behind.iter());
                    all.content.len() + behind.map(BytesMut::len).sum::<usize>()
                }
                RequestSide::Dropped | RequestSide::Over => 0,
            };
            unread += content;
            held += STREAM + (slot.budget.fields + slot.budget.piece) as usize + content;
        }
        assert_eq!(table.connection.unreleased(), unread, "each byte that came is given back once");
        assert_eq!(table.account.used(), held, "what is held is counted");
        assert_eq!(table.connection.connection_window(), self.allowed - self.sent);
        for (id, window, _) in table.connection.windows() {
            let at = self.streams.iter().position(|stream| stream.0 == id).unwrap();
            let right = table.connection.has_sent_all(id) || window == self.windows[at];
            assert!(right, "{id}: {window} and {}", self.windows[at]);
        }
        assert!(table.connection.open_streams() <= table.connection.known_streams());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn windows_add_up_and_nothing_is_left_over(steps in proptest::collection::vec(steps(), 1..120)) {
        let table = table(4, Account::new(&Rc::default(), 1 << 30));
        let allowed = i64::from(FIRST_WINDOW);
        let (streams, windows, first) = (Vec::new(), Vec::new(), allowed);
        let mut world = World { table, streams, last: 0, windows, first, allowed, sent: 0, now: 1 << 40 };
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
        drain(&world.table);
        for later in [0, STILL] {
            world.table.borrow_mut().end_lingering(world.now + later);
        }
        let table = world.table.borrow();
        prop_assert!(table.is_empty() && table.read_queue.is_empty());
        prop_assert_eq!(table.connection.open_streams(), 0);
        // What a frame that broke a rule brought is forgotten with the connection.
        prop_assert!(!in_order || table.account.used() == 0);
    }
}

/// What all connections of a worker hold is bounded; each may have one request all the same.
#[test]
fn a_worker_that_holds_too_much_refuses_streams() {
    let memory: Rc<Memory> = Rc::default();
    let books: Vec<_> = (0..10).map(|_| table(100, Account::new(&memory, 60 * UNIT))).collect();
    let mut streams = Vec::new();
    for (at, table) in books.iter().enumerate() {
        let mut count = 0;
        for n in 0..100 {
            let stream = opened(table, 1 + 2 * n, 0);
            count += usize::from(stream.is_some());
            streams.extend(stream);
        }
        // Whoever came first has it all; the others still have the least share.
        assert_eq!(count, if at == 0 { 60 } else { LEAST_SHARE / UNIT }, "{at}");
        assert_eq!(table.borrow().connection.faults().count, 0, "nobody is to blame");
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
    let books: Vec<_> = (0..2).map(|_| table(100, Account::new(&memory, 30 * UNIT))).collect();
    let open = |from: u32| -> Vec<Respond> {
        (from..from + 100).map_while(|n| opened(&books[0], 1 + 2 * n, 0)).collect()
    };
    let first = open(0);
    assert_eq!((first.len(), shown.load(std::sync::atomic::Ordering::Relaxed)), (30, 30 * UNIT));
    assert!(books[1].borrow().account.limit(50 * UNIT) && !books[0].borrow().account.limit(50 * UNIT));
    let second = open(200);
    assert_eq!(second.len(), 20);
    assert!(books[1].borrow().account.limit(30 * UNIT));
    assert!(open(400).is_empty());
    drop((first, second));
    assert_eq!(open(600).len(), 30);
    assert_eq!(shown.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// Trailers are held as fields are, and bounded with them.
#[test]
fn trailers_count_as_fields() {
    const SIZE: usize = 32 * 1024;
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    let all: Vec<_> = (0..100).map(|n| asked(&table, 1 + 2 * n, false, 0).unwrap()).collect();
    for n in 0..100 {
        receive(&table, &headers(1 + 2 * n, flag::END_STREAM, &[], &[], SIZE)).unwrap();
    }
    let most = (FIELDS - 100 * LEAST) / SIZE;
    assert_eq!(table.borrow().account.used(), 100 * UNIT + most * SIZE);
    let kept =
        all.iter().filter(|(_, incoming)| incoming.as_ref().unwrap().take_trailers().is_some()).count();
    assert_eq!(kept, most);
    drop(all);
    assert_eq!(table.borrow().account.used(), 0);
}

/// Who takes nothing has no more heads of responses read for it than fit; the window says nothing of them.
#[test]
fn heads_that_nobody_takes_do_not_pile_up() {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    let streams: Vec<_> = (0..100).map(|n| opened(&table, 1 + 2 * n, 0).unwrap()).collect();
    // Nothing is left of the window of the connection.
    streams[0].data(Bytes::from(vec![1; FIRST_WINDOW as usize]), false).unwrap();
    drain(&table);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let cx = &mut Context::from_waker(&waker);
    let large = vec![b'x'; 30_000];
    let mut answer = |at: usize| {
        let begins = streams[at].poll_writable(cx).is_ready();
        if begins {
            let fields = [("etag", &large)].into_iter().collect();
            streams[at].head(StatusCode::OK, &fields, ends(true)).unwrap();
        }
        begins
    };
    let begun = (1..100).filter(|at| answer(*at)).count();
    assert!(begun < 20, "{begun} heads");
    assert!(table.borrow().connection.output().len() < MOST_WAITING + 40_000);
    // When it has taken them the others are called, and nobody stays behind.
    assert_eq!(woken.0.load(Relaxed), 0);
    drain(&table);
    assert_eq!(woken.0.load(Relaxed), 99 - begun);
    assert!(answer(99));
}

/// The fields of the requests of one connection are bounded together, but not those of a single one.
#[test]
fn large_requests_have_no_company() {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    let first = opened(&table, 1, FIELDS + 1);
    assert!(first.is_some() && opened(&table, 3, 1).is_none());
    drop(first);
    let streams: Vec<_> = (0..100).filter_map(|n| opened(&table, 5 + 2 * n, FIELDS / 40)).collect();
    assert_eq!(streams.len(), 40);
}

/// The last pieces of requests whose clients may send as much again are bounded together.
#[test]
fn the_last_piece_of_content_is_small() {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    let post = |id: u32, size: usize| {
        let (respond, incoming) = asked(&table, id, false, 0).unwrap();
        receive(&table, &frame(Kind::Data, flag::END_STREAM, id, &vec![1; size])).unwrap();
        (respond, incoming.unwrap())
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

/// The fields of a request count until its response begins; its trailers until the stream ends.
#[test]
fn the_head_of_a_request_counts_until_the_response_begins() {
    let table = table(100, Account::new(&Rc::default(), 1 << 30));
    let (respond, incoming) = asked(&table, 1, false, FIELDS).unwrap();
    assert!(opened(&table, 3, 1).is_none(), "there is room for no other");
    receive(&table, &headers(1, flag::END_STREAM, &[], &[], 100)).unwrap();
    respond.head(StatusCode::OK, &Fields::new(), ends(false)).unwrap();
    assert_eq!(table.borrow().account.used(), STREAM + 100);
    let other = opened(&table, 5, FIELDS - 100);
    assert!(other.is_some());
    drop((respond, incoming, other));
    assert_eq!(table.borrow().account.used(), 0);
}
