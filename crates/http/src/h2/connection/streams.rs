//! The streams of a connection (RFC 9113 §5.1).

use std::collections::VecDeque;

use super::Event;
use crate::h2::Priority;

/// How many of the streams that we reset are remembered at the least: what was under way for them is no fault.
const RESET: usize = 128;
/// How much memory for streams is kept while there are none.
const KEPT: usize = 16;

/// A stream that was opened and not forgotten.
#[derive(Debug)]
pub(super) struct Stream<T> {
    pub(super) id: u32,
    pub(super) user: T,
    /// What is to come of the peer.
    pub(super) remote: Remote,
    /// Whether our end was sent, and whether the stream was ended at once by either side.
    pub(super) sent_all: bool,
    pub(super) reset: bool,
    /// Whether our final head was sent (server).
    pub(super) answered: bool,
    /// Whether it counts as open.
    counted: bool,
    /// Whether the response has no content whatever its fields say: the request was HEAD.
    pub(super) bodiless: bool,
    /// What goes before others (server).
    pub(super) priority: Priority,
    /// How many interim responses came.
    pub(super) interim: u16,
    /// What is left of a length that was said.
    pub(super) length: Option<u64>,
    pub(super) flow: StreamFlow,
    /// Where its head begins in the output.
    pub(super) begin: u64,
}

/// The windows of a stream.
#[derive(Debug)]
pub(super) struct StreamFlow {
    /// What we may send.
    pub(super) window: i64,
    /// What the peer may send.
    pub(super) room: i64,
    /// What the user has and did not release, and what it released and the peer was not told.
    pub(super) held: u32,
    pub(super) owed: u32,
    /// What these three and what is said come to: how much of the peer's data there may be at a time.
    pub(super) target: u32,
    /// Whether the user waits until more may be sent.
    pub(super) blocked: bool,
}

/// What is to come of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remote {
    /// The final head.
    Head,
    /// Content, or its end.
    Content,
    /// Nothing.
    Ended,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Streams<T> {
    /// Their places, by their numbers, which only grow.
    ids: Vec<(u32, usize)>,
    slots: Vec<Option<Stream<T>>>,
    free: Vec<usize>,
    /// How many are open for one side or both.
    pub(super) active: usize,
    /// The highest that was opened.
    pub(super) highest: u32,
    /// Those that we have reset, the latest last.
    ours: VecDeque<u32>,
    /// How many of those are remembered.
    remembered: usize,
    /// The stream that has written last: those behind it are called first.
    pub(super) turn: u32,
    /// Whether a stream ever had a priority of its own.
    prioritized: bool,
}

impl<T> Stream<T> {
    pub(super) fn new(id: u32, user: T, (window, room, target): (i64, i64, u32), begin: u64) -> Self {
        Self {
            id,
            user,
            remote: Remote::Head,
            sent_all: false,
            reset: false,
            answered: false,
            counted: true,
            bodiless: false,
            priority: Priority::default(),
            interim: 0,
            length: None,
            flow: StreamFlow { window, room, held: 0, owed: 0, target, blocked: false },
            begin,
        }
    }

    /// Whether neither side has ended it at once.
    pub(super) fn is_live(&self) -> bool {
        !self.reset
    }
}

impl<T> Streams<T> {
    /// None yet. About `most` at a time are expected.
    pub(super) fn new(most: usize) -> Self {
        Self {
            ids: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            active: 0,
            highest: 0,
            ours: VecDeque::new(),
            remembered: most.clamp(RESET, 8 * RESET),
            turn: 0,
            prioritized: false,
        }
    }

    /// Adds a stream, whose number is higher than all before.
    pub(super) fn insert(&mut self, stream: Stream<T>) -> &mut Stream<T> {
        debug_assert!(stream.id > self.highest, "numbers of streams only grow");
        self.active += 1;
        self.highest = stream.id;
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.ids.push((stream.id, place));
        self.slots[place].insert(stream)
    }

    /// The place of a stream.
    fn find(&self, id: u32) -> Option<usize> {
        match self.ids.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Some(self.ids[at].1),
            Err(_) => None,
        }
    }

    /// A stream, unless it is forgotten.
    #[inline]
    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream<T>> {
        // Often there is one, or the latest is meant.
        let place = match self.ids.last() {
            Some((last, place)) if *last == id => *place,
            _ => self.find(id)?,
        };
        self.slots[place].as_mut()
    }

    /// A stream that was not ended at once.
    #[inline]
    pub(super) fn live(&mut self, id: u32) -> Option<&mut Stream<T>> {
        self.get(id).filter(|stream| stream.is_live())
    }

    /// All of them, in their order.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Stream<T>> {
        // The order of places is that of no use to anybody but the one of numbers costs more.
        self.slots.iter_mut().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// How many are known, those that have ended with them.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Counts a stream out that is over for both sides.
    pub(super) fn settle(&mut self, id: u32) {
        let Some(stream) = self.get(id) else { return };
        let over = stream.reset || stream.sent_all && stream.remote == Remote::Ended;
        if over && std::mem::replace(&mut stream.counted, false) {
            self.active -= 1;
        }
    }

    /// Forgets a stream.
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream<T>> {
        let at = self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        let (_, place) = self.ids.remove(at);
        self.free.push(place);
        let stream = self.slots[place].take()?;
        self.active -= usize::from(stream.counted);
        Some(stream)
    }

    /// Remembers that we have reset a stream.
    pub(super) fn remember(&mut self, id: u32) {
        if self.ours.len() >= self.remembered {
            self.ours.pop_front();
        }
        self.ours.push_back(id);
    }

    /// Whether we have reset a stream, not long ago.
    pub(super) fn is_ours(&self, id: u32) -> bool {
        self.ours.contains(&id)
    }

    /// Tells the streams that wait that more may be sent: in the order of their priorities, and among equals those first
    /// whose turn it is.
    pub(super) fn call(&mut self, on: &mut dyn FnMut(u32, &mut T, Event<'_>)) {
        let next = self.ids.partition_point(|(id, _)| *id <= self.turn);
        let turns = (next..self.ids.len()).chain(0..next);
        if !self.prioritized {
            return turns.for_each(|at| call_one(self.ids[at], &mut self.slots, on));
        }
        let rank = |(id, place): (u32, usize)| {
            let stream = self.slots[place].as_ref()?;
            Some((stream.priority.rank(id, false, 0), (id, place)))
        };
        let mut all: Vec<_> = turns.filter_map(|at| rank(self.ids[at])).collect();
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().for_each(|(_, one)| call_one(one, &mut self.slots, on));
    }

    /// A stream gets another priority than it had.
    pub(super) fn prioritize(&mut self, id: u32, other: impl FnOnce(Priority) -> Priority) {
        if let Some(stream) = self.get(id) {
            stream.priority = other(stream.priority);
            self.prioritized = true;
        }
    }

    /// Gives memory back where there are no streams.
    pub(super) fn rest(&mut self) {
        if self.ids.is_empty() && self.slots.len() > KEPT {
            (self.ids, self.slots, self.free) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    /// How much memory it has, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Stream<T>>>()
            + self.ids.capacity() * size_of::<(u32, usize)>()
            + (self.free.capacity() + self.ours.capacity()) * size_of::<usize>()
    }
}

/// Tells a stream that more may be sent, if it waits for that.
fn call_one<T>(
    (id, place): (u32, usize),
    slots: &mut [Option<Stream<T>>],
    on: &mut dyn FnMut(u32, &mut T, Event<'_>),
) {
    let Some(stream) = &mut slots[place] else { return };
    if stream.flow.blocked && stream.flow.window > 0 {
        stream.flow.blocked = false;
        on(id, &mut stream.user, Event::Writable);
    }
}
