//! The streams of a connection (RFC 9113 §5.1).

mod flow;

use std::collections::VecDeque;

use super::state::{Closure, StreamState};
use super::{Event, Handler};
use crate::h2::{Priority, Rank};
pub(super) use flow::{Blocked, InitialWindows, StreamFlow};

/// Minimum number of reset streams that are remembered: frames under way for them are no violation.
const RESET: usize = 128;
/// Number of slots that are kept while there are no streams.
const KEPT: usize = 16;
/// Number of cached slot indices, which save a search by stream number.
const HINTS: usize = 64;

/// A stream that was opened and not forgotten.
#[derive(Debug)]
pub(super) struct Stream<T> {
    pub(super) id: u32,
    pub(super) user: T,
    /// Changed by [`Stream::advance`], which keeps the count of open streams.
    state: StreamState,
    /// Set once the final head of the response was sent (server) or received (client).
    pub(super) responded: bool,
    /// Set once the caller has forgotten the stream while the request goes on (server).
    pub(super) lingers: bool,
    /// Set if the response has no content whatever its fields declare: the request was HEAD.
    pub(super) bodiless: bool,
    /// Priority of the response (server).
    pub(super) priority: Priority,
    /// Number of interim responses received.
    pub(super) interim: u16,
    /// Remaining bytes of a declared content length.
    pub(super) length: Option<u64>,
    pub(super) flow: StreamFlow,
    /// Offset of its head in the output.
    pub(super) begin: u64,
}

/// All known streams of a connection.
#[derive(Debug)]
pub(super) struct Streams<T> {
    /// Slots by stream number, which only grows.
    ids: Vec<(u32, usize)>,
    slots: Vec<Option<Stream<T>>>,
    free: Vec<usize>,
    /// Cached slots by the last digits of stream numbers; entries may be stale.
    hints: [u8; HINTS],
    /// Number of streams that are not closed.
    pub(super) active: usize,
    /// Highest stream number opened.
    pub(super) highest: u32,
    /// Streams that we have reset, the latest last.
    ours: VecDeque<u32>,
    /// Maximum length of that list.
    remembered: usize,
    /// The stream that has written last: those behind it come first.
    pub(super) turn: u32,
    /// Set once any stream had a priority of its own.
    prioritized: bool,
    /// Set while streams wait for space in the output, or for the connection's window.
    output_awaited: bool,
    pub(super) window_awaited: bool,
    /// Set when a lingering stream is over.
    pub(super) swept_for: bool,
}

impl<T> Stream<T> {
    #[inline]
    fn new(id: u32, user: T, state: StreamState, windows: InitialWindows, begin: u64) -> Self {
        Self {
            id,
            user,
            state,
            responded: false,
            lingers: false,
            bodiless: false,
            priority: Priority::default(),
            interim: 0,
            length: None,
            flow: StreamFlow::new(windows),
            begin,
        }
    }

    /// State of the stream (RFC 9113 §5.1).
    #[inline]
    pub(super) fn state(&self) -> StreamState {
        self.state
    }

    /// Moves the stream to its next state; `active` is the number of streams that are not closed.
    #[inline]
    pub(super) fn advance(&mut self, next: StreamState, active: &mut usize) {
        *active -= usize::from(next.is_closed() && !self.state.is_closed());
        self.state = next;
    }

    /// Returns true while content is outstanding whose predecessors the caller takes before half of the
    /// window is full.
    pub(super) fn keeps_up(&self) -> bool {
        let flow = &self.flow;
        self.state.receives() && flow.dropped.is_none() && flow.held <= flow.target / 2
    }
}

impl<T> Streams<T> {
    /// No streams yet. About `most` concurrent ones are expected.
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

    /// Adds a stream with the highest number so far. `begin` is the offset of its head in the
    /// output.
    pub(super) fn insert(
        &mut self,
        id: u32,
        user: T,
        state: StreamState,
        windows: InitialWindows,
        begin: u64,
    ) -> &mut Stream<T> {
        debug_assert!(!state.is_closed() && state != StreamState::Idle, "a new stream is {state:?}");
        debug_assert!(self.ids.last().is_none_or(|(last, _)| *last < id), "numbers of streams only grow");
        self.active += 1;
        self.highest = id;
        let place = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.ids.push((id, place));
        // A truncated index is detected by the stream number in its slot.
        self.hints[hint(id)] = place as u8;
        self.slots[place].insert(Stream::new(id, user, state, windows, begin))
    }

    /// Slot of a stream.
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

    /// A stream on which we may send, and the number of streams that are not closed.
    #[inline]
    pub(super) fn sending(&mut self, id: u32) -> Option<(&mut Stream<T>, &mut usize)> {
        let place = self.find(id)?;
        let stream = self.slots[place].as_mut().filter(|stream| stream.state.sends())?;
        Some((stream, &mut self.active))
    }

    /// A stream on which the peer may send.
    #[inline]
    pub(super) fn receiving(&mut self, id: u32) -> Option<&mut Stream<T>> {
        self.get(id).filter(|stream| stream.state.receives())
    }

    /// Shared reference to a stream, unless it is forgotten.
    #[inline]
    pub(super) fn peek(&self, id: u32) -> Option<&Stream<T>> {
        self.slots[self.find(id)?].as_ref()
    }

    /// A stream that neither side has aborted.
    #[inline]
    pub(super) fn live(&mut self, id: u32) -> Option<&mut Stream<T>> {
        self.get(id).filter(|stream| !stream.state.is_aborted())
    }

    /// All streams, in no particular order.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Stream<T>> {
        // The order of slots is cheaper than that of stream numbers.
        self.slots.iter_mut().flatten()
    }

    /// All streams, and the number of those that are not closed.
    pub(super) fn all_counted(&mut self) -> (impl Iterator<Item = &mut Stream<T>>, &mut usize) {
        (self.slots.iter_mut().flatten(), &mut self.active)
    }

    /// Shared references to all streams, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream<T>> {
        self.slots.iter().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Number of known streams, including ended ones.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Moves a stream to its next state.
    pub(super) fn advance(&mut self, id: u32, next: impl FnOnce(StreamState) -> StreamState) {
        let Some(place) = self.find(id) else { return };
        if let Some(stream) = &mut self.slots[place] {
            stream.advance(next(stream.state), &mut self.active);
            self.swept_for |= stream.lingers && stream.state.is_closed();
        }
    }

    /// State of a stream, as far as its number is remembered.
    pub(super) fn state(&self, id: u32) -> StreamState {
        match self.peek(id) {
            Some(stream) => stream.state,
            // The numbers of clients are odd (RFC 9113 §5.1.1), and servers open no streams.
            None if id.is_multiple_of(2) || id > self.highest => StreamState::Idle,
            None if self.ours.contains(&id) => StreamState::Closed(Closure::ResetByUs),
            None => StreamState::Closed(Closure::Forgotten),
        }
    }

    /// Forgets a stream, after a last call of `look`.
    pub(super) fn remove<R>(&mut self, id: u32, look: impl FnOnce(&Stream<T>) -> R) -> Option<R> {
        let place = self.find(id)?;
        let at = match self.ids.first() {
            Some((first, _)) if *first == id => 0,
            _ => self.ids.binary_search_by_key(&id, |(id, _)| *id).ok()?,
        };
        self.ids.remove(at);
        self.free.push(place);
        let stream = self.slots[place].as_ref()?;
        self.active -= usize::from(!stream.state.is_closed());
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

    /// Records that a stream waits for windows or for space in the output.
    pub(super) fn await_output(&mut self, id: u32) {
        if let Some(stream) = self.get(id) {
            stream.flow.blocked = Blocked::Output;
            self.output_awaited = true;
        }
    }

    /// Reports to waiting streams that more may be sent, with the connection's window at `window`: in the
    /// order of their priorities and, among equals, in turns.
    pub(super) fn call<H: Handler<T> + ?Sized>(&mut self, window: i64, on: &mut H) {
        if !(self.output_awaited || self.window_awaited && window > 0) {
            return;
        }
        (self.output_awaited, self.window_awaited) = (false, false);
        let next = self.ids.partition_point(|(id, _)| *id <= self.turn);
        let turns = (next..self.ids.len()).chain(0..next);
        if !self.prioritized {
            return turns.for_each(|at| {
                let (id, place) = self.ids[at];
                self.window_awaited |= !call_one(id, place, &mut self.slots, window, on);
            });
        }
        let rank = |(id, place): (u32, usize)| {
            let stream = self.slots[place].as_ref()?;
            Some((stream.priority.rank(id, false, on.waits(&stream.user)), (id, place)))
        };
        let mut all: Vec<_> = turns.filter_map(|at| rank(self.ids[at])).collect();
        all.sort_by_key(|(rank, _)| *rank);
        for (_, (id, place)) in all {
            self.window_awaited |= !call_one(id, place, &mut self.slots, window, on);
        }
    }

    /// Rank of a stream among those that have waited for `waits` milliseconds; `None` if no stream has a
    /// priority.
    pub(super) fn rank(&self, id: u32, waits: u64) -> Option<Rank> {
        let stream = self.peek(id).filter(|_| self.prioritized)?;
        Some(stream.priority.rank(id, false, waits))
    }

    /// Returns true if a less urgent stream waits to send.
    pub(super) fn goes_before_others(&self, id: u32) -> bool {
        let waits = |flow: &StreamFlow| flow.blocked != Blocked::No && flow.window > 0;
        self.prioritized
            && self.peek(id).is_some_and(|stream| {
                let urgency = stream.priority.urgency;
                self.iter().any(|other| waits(&other.flow) && other.priority.urgency > urgency)
            })
    }

    /// Changes the priority of a stream.
    pub(super) fn prioritize(&mut self, id: u32, other: impl FnOnce(Priority) -> Priority) {
        if let Some(stream) = self.get(id) {
            stream.priority = other(stream.priority);
            self.prioritized = true;
        }
    }

    /// Releases memory while there are no streams; `keep` preserves [`KEPT`] slots.
    pub(super) fn rest(&mut self, keep: bool) {
        if self.ids.is_empty() && (self.slots.len() > KEPT || !keep) {
            (self.ids, self.slots, self.free) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    /// Allocated memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Stream<T>>>()
            + self.ids.capacity() * size_of::<(u32, usize)>()
            + (self.free.capacity() + self.ours.capacity()) * size_of::<usize>()
    }
}

/// Reports to a stream that more may be sent, if it waits and the connection's window is open; returns true
/// if it need not be reported again.
fn call_one<T, H: Handler<T> + ?Sized>(
    id: u32,
    place: usize,
    slots: &mut [Option<Stream<T>>],
    window: i64,
    on: &mut H,
) -> bool {
    let Some(stream) = &mut slots[place] else { return true };
    match stream.flow.blocked {
        Blocked::No => return true,
        // Reported when its own window opens.
        Blocked::Windows if stream.flow.window <= 0 => return true,
        Blocked::Windows if window <= 0 => return false,
        Blocked::Windows | Blocked::Output => {}
    }
    stream.flow.blocked = Blocked::No;
    on.event(id, &mut stream.user, Event::Writable);
    true
}

/// Index of a stream's cached slot. The numbers of a peer's streams are all odd.
const fn hint(id: u32) -> usize {
    (id >> 1) as usize % HINTS
}
