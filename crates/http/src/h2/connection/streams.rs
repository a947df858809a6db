//! The streams of a connection (RFC 9113 §5.1).

use std::collections::VecDeque;

use super::{Event, Handler, MOST_DROPPED};
use crate::h2::{Priority, Rank};

/// How many of the streams that we reset are remembered at the least: what was under way for them is no fault.
const RESET: usize = 128;
/// How much memory for streams is kept while there are none.
const KEPT: usize = 16;
/// How many places of streams are remembered, so that they need not be searched for.
const HINTS: usize = 64;

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
    /// Whether it was the peer that has ended it at once.
    pub(super) by_peer: bool,
    /// Whether our final head was sent (server).
    pub(super) answered: bool,
    /// Set once the user has forgotten it while the request goes on (server).
    pub(super) lingers: bool,
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
    /// How much of that the window of the connection is larger by.
    pub(super) grown: u32,
    /// What the user waits for to send more.
    pub(super) blocked: Blocked,
    /// Whether the user reads what comes, and how much was dropped since it does not.
    pub(super) wanted: bool,
    pub(super) dropped: u32,
    /// Whether what the user has may be taken out of the window of the connection.
    pub(super) apart: bool,
}

/// What a stream waits for to send more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// Nothing.
    No,
    /// That what was written leaves.
    Output,
    /// That, and windows.
    Windows,
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
    /// Places of streams by the last digits of their numbers, or of others.
    hints: [u8; HINTS],
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
    /// Whether some streams wait for what was written to leave, or for the window of the connection.
    output_awaited: bool,
    pub(super) window_awaited: bool,
    /// Set when a stream that lingers is over.
    pub(super) swept_for: bool,
}

impl StreamFlow {
    /// Whether the peer is to have a window: somebody reads what comes, or it may be dropped.
    pub(super) fn is_open(&self) -> bool {
        self.wanted || self.dropped < MOST_DROPPED
    }
}

impl StreamFlow {
    /// Wants less where the user is slower than the peer. Gives how much less the connection needs.
    pub(super) fn follow_user(&mut self) -> u32 {
        let keeps_up = self.grown == 0 || self.held <= self.target / 2;
        if keeps_up { 0 } else { self.narrow((self.target / 2).max(self.target - self.grown)) }
    }

    /// Wants no more than `target`, as far as the peer was not told of more. Gives how much less the connection needs.
    pub(super) fn narrow(&mut self, target: u32) -> u32 {
        let less = self.target.saturating_sub(target).min(self.owed);
        self.target -= less;
        self.owed -= less;
        let grown = less.min(self.grown);
        self.grown -= grown;
        grown
    }
}

impl<T> Stream<T> {
    #[inline]
    fn new(id: u32, user: T, (window, room, target): (i64, i64, u32), begin: u64) -> Self {
        Self {
            id,
            user,
            remote: Remote::Head,
            sent_all: false,
            reset: false,
            by_peer: false,
            answered: false,
            lingers: false,
            counted: true,
            bodiless: false,
            priority: Priority::default(),
            interim: 0,
            length: None,
            flow: StreamFlow {
                window,
                room,
                held: 0,
                owed: 0,
                target,
                grown: 0,
                blocked: Blocked::No,
                wanted: true,
                dropped: 0,
                apart: false,
            },
            begin,
        }
    }

    /// Counts it out if it is over for both sides.
    #[inline]
    pub(super) fn settle(&mut self, active: &mut usize) {
        let over = self.reset || self.has_ended();
        if over && std::mem::replace(&mut self.counted, false) {
            *active -= 1;
        }
    }

    /// Whether both sides have sent all.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.sent_all && self.remote == Remote::Ended
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
            hints: [0; HINTS],
            active: 0,
            highest: 0,
            ours: VecDeque::new(),
            remembered: most.clamp(RESET, 8 * RESET),
            turn: 0,
            prioritized: false,
            output_awaited: false,
            window_awaited: false,
            swept_for: false,
        }
    }

    /// Adds a stream, whose number is higher than all before. Its windows: what we may send, what the peer may send now, and
    /// what it may at a time. `begin`: where its head begins in the output.
    pub(super) fn insert(
        &mut self,
        id: u32,
        user: T,
        windows: (i64, i64, u32),
        begin: u64,
    ) -> &mut Stream<T> {
        debug_assert!(self.ids.last().is_none_or(|(last, _)| *last < id), "numbers of streams only grow");
        self.active += 1;
        self.highest = id;
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.ids.push((id, place));
        // One that is too large is found out by the number that stands there.
        self.hints[hint(id)] = place as u8;
        self.slots[place].insert(Stream::new(id, user, windows, begin))
    }

    /// The place of a stream.
    #[inline]
    fn find(&self, id: u32) -> Option<usize> {
        let place = usize::from(self.hints[hint(id)]);
        match self.slots.get(place) {
            Some(Some(stream)) if stream.id == id => Some(place),
            _ => self.search(id),
        }
    }

    #[cold]
    fn search(&self, id: u32) -> Option<usize> {
        match self.ids.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Some(self.ids[at].1),
            Err(_) => None,
        }
    }

    /// A stream, unless it is forgotten.
    #[inline]
    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream<T>> {
        let place = self.find(id)?;
        self.slots[place].as_mut()
    }

    /// A stream that was not ended at once, and the count of those that are open.
    #[inline]
    pub(super) fn live_counted(&mut self, id: u32) -> Option<(&mut Stream<T>, &mut usize)> {
        let place = self.find(id)?;
        let stream = self.slots[place].as_mut().filter(|stream| !stream.reset)?;
        Some((stream, &mut self.active))
    }

    /// A stream to look at, unless it is forgotten.
    #[inline]
    pub(super) fn peek(&self, id: u32) -> Option<&Stream<T>> {
        self.slots[self.find(id)?].as_ref()
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

    /// The same to look at.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream<T>> {
        self.slots.iter().flatten()
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
        let Some(place) = self.find(id) else { return };
        if let Some(stream) = &mut self.slots[place] {
            stream.settle(&mut self.active);
            self.swept_for |= stream.lingers;
        }
    }

    /// Forgets a stream, after a last look at it.
    pub(super) fn remove<R>(&mut self, id: u32, look: impl FnOnce(&Stream<T>) -> R) -> Option<R> {
        let place = self.find(id)?;
        let at = match self.ids.first() {
            Some((first, _)) if *first == id => 0,
            _ => self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?,
        };
        self.ids.remove(at);
        self.free.push(place);
        let stream = self.slots[place].as_ref()?;
        self.active -= usize::from(stream.counted);
        let seen = look(stream);
        self.slots[place] = None;
        Some(seen)
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

    /// Notes that a stream waits, for windows or for what was written to leave.
    pub(super) fn await_output(&mut self, id: u32) {
        if let Some(stream) = self.get(id) {
            stream.flow.blocked = Blocked::Output;
            self.output_awaited = true;
        }
    }

    /// Tells the streams that wait that more may be sent, where the window of the connection is `window`: in the order of
    /// their priorities, and among equals those first whose turn it is.
    pub(super) fn call<H: Handler<T> + ?Sized>(&mut self, window: i64, on: &mut H) {
        if !(self.output_awaited || self.window_awaited && window > 0) {
            return;
        }
        (self.output_awaited, self.window_awaited) = (false, false);
        let next = self.ids.partition_point(|(id, _)| *id <= self.turn);
        let turns = (next..self.ids.len()).chain(0..next);
        if !self.prioritized {
            return turns
                .for_each(|at| self.window_awaited |= !call_one(self.ids[at], &mut self.slots, window, on));
        }
        let rank = |(id, place): (u32, usize)| {
            let stream = self.slots[place].as_ref()?;
            Some((stream.priority.rank(id, false, on.waits(&stream.user)), (id, place)))
        };
        let mut all: Vec<_> = turns.filter_map(|at| rank(self.ids[at])).collect();
        all.sort_by_key(|(rank, _)| *rank);
        for (_, one) in all {
            self.window_awaited |= !call_one(one, &mut self.slots, window, on);
        }
    }

    /// The place of a stream among those that wait for so many milliseconds; none where there are no priorities.
    pub(super) fn rank(&self, id: u32, waits: u64) -> Option<Rank> {
        let stream = self.peek(id).filter(|_| self.prioritized)?;
        Some(stream.priority.rank(id, false, waits))
    }

    /// Whether a less urgent stream waits to send.
    pub(super) fn goes_before_others(&self, id: u32) -> bool {
        let waits = |flow: &StreamFlow| flow.blocked != Blocked::No && flow.window > 0;
        self.prioritized
            && self.peek(id).is_some_and(|stream| {
                let urgency = stream.priority.urgency;
                self.iter().any(|other| waits(&other.flow) && other.priority.urgency > urgency)
            })
    }

    /// A stream gets another priority than it had.
    pub(super) fn prioritize(&mut self, id: u32, other: impl FnOnce(Priority) -> Priority) {
        if let Some(stream) = self.get(id) {
            stream.priority = other(stream.priority);
            self.prioritized = true;
        }
    }

    /// Gives memory back where there are no streams, but for `keep`.
    pub(super) fn rest(&mut self, keep: bool) {
        if self.ids.is_empty() && (self.slots.len() > KEPT || !keep) {
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

/// Tells a stream that more may be sent, if it waits for that and the window of the connection is open; whether it need not
/// be told again.
fn call_one<T, H: Handler<T> + ?Sized>(
    (id, place): (u32, usize),
    slots: &mut [Option<Stream<T>>],
    window: i64,
    on: &mut H,
) -> bool {
    let Some(stream) = &mut slots[place] else { return true };
    match stream.flow.blocked {
        Blocked::No => return true,
        // It is called when its own window opens.
        Blocked::Windows if stream.flow.window <= 0 => return true,
        Blocked::Windows if window <= 0 => return false,
        Blocked::Windows | Blocked::Output => {}
    }
    stream.flow.blocked = Blocked::No;
    on.event(id, &mut stream.user, Event::Writable);
    true
}

/// Where the place of a stream is remembered. The numbers of a peer's streams are all odd.
const fn hint(id: u32) -> usize {
    (id >> 1) as usize % HINTS
}
