//! Whatever a client and the tasks of its streams do, in whatever order: windows add up, and nothing is left over.

use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use offramp_wire::http2::{Code, Framed, Head, Kind, Setting, flag};
use proptest::prelude::*;

use super::{Book, CONNECTION_WINDOW, FIRST_WINDOW, Opened, Shared};
use crate::l7::date::Date;
use crate::l7::h2::fields::Ends;
use crate::l7::h2::handle::{Incoming, Respond};

/// What may happen. A stream is named by its place among all.
#[derive(Clone, Debug)]
enum Step {
    Open { over: bool, length: Option<u64> },
    Data { at: usize, size: usize, padding: u8, cut: usize, last: bool },
    Trailers { at: usize, good: bool },
    Reset { at: usize },
    Grow { at: Option<usize>, more: u32 },
    Windows { size: u32 },
    Read { at: usize },
    DropReader { at: usize },
    Answer { at: usize, over: bool },
    Write { at: usize, size: usize, over: bool },
    DropWriter { at: usize },
    Sent,
    Later,
    Part,
}

fn steps() -> impl Strategy<Value = Step> {
    let at = 0..6_usize;
    prop_oneof![
        3 => (any::<bool>(), proptest::option::of(0..9000_u64)).prop_map(|(over, length)| Step::Open { over, length }),
        4 => (at.clone(), 0..9000_usize, any::<u8>(), any::<usize>(), any::<bool>())
            .prop_map(|(at, size, padding, cut, last)| Step::Data { at, size, padding, cut, last }),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, good)| Step::Trailers { at, good }),
        1 => at.clone().prop_map(|at| Step::Reset { at }),
        2 => (proptest::option::of(at.clone()), 0..200_000_u32).prop_map(|(at, more)| Step::Grow { at, more }),
        1 => (0..100_000_u32).prop_map(|size| Step::Windows { size }),
        3 => at.clone().prop_map(|at| Step::Read { at }),
        1 => at.clone().prop_map(|at| Step::DropReader { at }),
        2 => (at.clone(), any::<bool>()).prop_map(|(at, over)| Step::Answer { at, over }),
        4 => (at.clone(), 1..40_000_usize, any::<bool>())
            .prop_map(|(at, size, over)| Step::Write { at, size, over }),
        1 => at.prop_map(|at| Step::DropWriter { at }),
        2 => Just(Step::Sent),
        1 => Just(Step::Later),
        1 => Just(Step::Part),
    ]
}

/// A connection as its client and tasks have it.
struct World {
    book: Shared,
    streams: Vec<(u32, Option<Respond>, Option<Incoming>)>,
    date: Date,
    /// What the client has allowed on the connection, and was sent.
    allowed: i64,
    sent: i64,
    now: u64,
}

impl World {
    /// Takes a step; `false` where the connection would end.
    fn step(&mut self, step: &Step) -> bool {
        let waker = Waker::noop();
        let cx = &mut Context::from_waker(waker);
        let id = |at: usize, world: &Self| world.streams.get(at).map_or(1, |stream| stream.0);
        match *step {
            Step::Open { over, length } => {
                let mut book = self.book.borrow_mut();
                let id = book.last + 2 - (book.last + 1) % 2;
                book.last = id;
                let Ok(opened) = book.open(id, over, length) else { return false };
                drop(book);
                if let Opened::Stream(key) = opened {
                    let incoming = (!over).then(|| Incoming::new(&self.book, key));
                    self.streams.push((id, Some(Respond::new(&self.book, key)), incoming));
                }
            }
            Step::Data { at, size, padding, cut, last } => {
                let stream = id(at, self);
                let around = usize::from(padding) + 1;
                let flags = flag::PADDED | if last { flag::END_STREAM } else { 0 };
                let head = Head { length: size + around, kind: Kind::Data, flags, stream };
                let mut book = self.book.borrow_mut();
                if book.data_begins(&head, Framed { before: 1, length: size }).is_err() {
                    return false;
                }
                let (data, cut) = (vec![1; size], cut % (size + 1));
                book.data(&head, &data[..cut], false);
                book.data(&head, &data[cut..], true);
            }
            Step::Trailers { at, good } => {
                let stream = id(at, self);
                let mut book = self.book.borrow_mut();
                if stream > book.last {
                    return true;
                }
                match book.is_to_have_trailers(stream, good) {
                    Ok(true) => book.trailers(stream, Some(HeaderMap::new())),
                    Ok(false) => {}
                    Err(_) => return false,
                }
            }
            Step::Reset { at } => {
                let stream = id(at, self);
                return self.book.borrow_mut().reset_by_client(stream, Code::CANCEL).is_ok();
            }
            Step::Grow { at, more } => {
                let stream = at.map_or(0, |at| id(at, self));
                if self.book.borrow_mut().window_grows(stream, more).is_err() {
                    return false;
                }
                self.allowed += if stream == 0 { i64::from(more) } else { 0 };
            }
            Step::Windows { size } => {
                return self.book.borrow_mut().heed(Setting::InitialWindowSize(size)).is_ok();
            }
            Step::Read { at } => {
                if let Some((_, _, Some(incoming))) = self.streams.get(at)
                    && let Poll::Ready(Some(Ok(data))) = incoming.poll_data(cx)
                {
                    incoming.release(data.len());
                }
            }
            Step::DropReader { at } => {
                if let Some(stream) = self.streams.get_mut(at) {
                    stream.2 = None;
                }
            }
            Step::Answer { at, over } => {
                if let Some((_, Some(respond), _)) = self.streams.get(at) {
                    let ends = Ends { over, length: None, date: &self.date };
                    let _ = respond.head(StatusCode::OK, HeaderMap::new(), ends);
                }
            }
            Step::Write { at, size, over } => {
                if let Some((_, Some(respond), _)) = self.streams.get(at)
                    && let Poll::Ready(room @ 1..) = respond.poll_room(cx)
                {
                    let size = size.min(room);
                    assert!(respond.data(Bytes::from(vec![2; size]), over).is_ok());
                    self.sent += size as i64;
                    assert!(self.sent <= self.allowed, "more than the window of the connection");
                }
            }
            Step::DropWriter { at } => {
                if let Some(stream) = self.streams.get_mut(at) {
                    stream.1 = None;
                }
            }
            Step::Sent => {
                let book = &mut self.book.borrow_mut();
                book.out = super::Out::default();
                book.call();
            }
            Step::Later => {
                self.now += 10_000;
                self.book.borrow_mut().drop_blocked(self.now, 5000);
            }
            Step::Part => self.book.borrow_mut().part(Code::NO_ERROR),
        }
        true
    }

    /// What holds at all times.
    fn check(&self) {
        let book: &Book = &self.book.borrow();
        let unread: usize = book.slots.iter().map(|slot| slot.unread.len()).sum();
        assert_eq!(
            book.room + i64::from(book.owed) + unread as i64,
            i64::from(CONNECTION_WINDOW),
            "each byte that came is given back once"
        );
        assert_eq!(book.window, self.allowed - self.sent);
        assert_eq!(book.active, book.slots.iter().filter(|slot| slot.counted).count());
        assert_eq!(book.ids.len() + book.free.len(), book.slots.len());
        assert!(book.ids.is_sorted_by_key(|(id, _)| *id));
        assert!(book.waiting.len() <= book.ids.len(), "whoever is gone waits no longer");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn windows_add_up_and_nothing_is_left_over(steps in proptest::collection::vec(steps(), 1..120)) {
        let book = Book::new(4);
        let allowed = i64::from(FIRST_WINDOW);
        let mut world = World { book, streams: Vec::new(), date: Date::default(), allowed, sent: 0, now: 1 << 40 };
        for step in steps {
            if !world.step(&step) {
                world.book.borrow_mut().die();
                break;
            }
            world.check();
        }
        world.streams.clear();
        let book = world.book.borrow();
        prop_assert!(book.ids.is_empty() && book.waiting.is_empty());
        prop_assert_eq!(book.active, 0);
    }
}
