//! What a connection and the tasks of its streams share: the streams, their windows, and what is to be sent.
//!
//! A stream's task writes its frames here at once, within the windows of the client; the connection sends what has
//! gathered. What the connection reads for a stream lies here until the stream's task takes it.

mod faults;
mod receive;
mod send;
mod slot;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use offramp_http::h2::flood::Traffic;
use offramp_http::h2::{Code, Output, Priority, Rank, Updates};
use offramp_http::hpack::Encoder;

use super::memory::Account;
pub(super) use send::ROOM;
use slot::Slot;
#[cfg(test)]
pub(super) const SLOT: usize = size_of::<Slot>();
pub(super) use faults::ClientFaults;

/// The window of a stream: what a client may send of a body before the server has taken it.
pub(super) const STREAM_WINDOW: u32 = 256 * 1024;
/// The window of a connection.
pub(super) const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// The windows of both before anything is said (RFC 9113 §6.9.2).
pub(super) const FIRST_WINDOW: u32 = 65_535;
/// The highest number of a stream (RFC 9113 §5.1.1).
pub(super) const LAST: u32 = (1 << 31) - 1;
/// How large a window may become (RFC 9113 §6.9.1).
const MOST_WINDOW: i64 = (1 << 31) - 1;
/// How many of the streams that we reset are remembered at the least: what was under way for them is no fault.
const RESET: usize = 128;

/// The streams table of a connection, as its streams have it.
pub(super) type Shared = Rc<RefCell<StreamTable>>;

/// Names a stream that somebody still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(usize);

/// What becomes of a request that has come.
pub(super) enum Opened {
    /// It is to be served.
    Stream(Key),
    /// It was refused, or comes too late.
    Not,
    /// It was refused because too much is held already.
    Full,
}

/// The streams of one connection.
pub(super) struct StreamTable {
    /// Streams that somebody has, by their number, which only grows.
    ids: Vec<(u32, Key)>,
    slots: Vec<Slot>,
    free: Vec<Key>,
    /// How many streams are open for one side or both.
    active: usize,
    /// How many may be.
    most: usize,
    /// The highest stream that the client has opened.
    pub(super) last: u32,
    /// The last stream that is served, where it was said.
    pub(super) goodbye: Option<u32>,
    /// Streams that we reset, the latest last.
    ours: VecDeque<u32>,
    /// What the client may still send on the connection, and how much of what it sent was taken since the last WINDOW_UPDATE.
    room: i64,
    owed: u32,
    /// What may be sent on the connection, on a stream at its begin, and in a frame.
    window: i64,
    first_window: i64,
    frame: usize,
    encoder: Encoder,
    pub(super) out: Output,
    /// Whether a priority was ever said, and those of streams to come.
    prioritized: bool,
    updates: Updates,
    /// Whether the client knows how many streams may be open.
    pub(super) agreed: bool,
    /// Streams that were turned away before it could know.
    pub(super) turned_away: u32,
    /// Streams that wait for the window of the connection, or for what was written to leave.
    waiting: Vec<(u32, Key)>,
    /// Whether there are some among them that only wait for what was written to leave.
    heads_wait: bool,
    /// Streams that read nothing more until a piece of another response has left, in the order of their turns.
    hungry: VecDeque<(u32, Key)>,
    /// Who sends.
    pub(super) driver: Option<Waker>,
    /// The connection has ended.
    dead: bool,
    pub(super) client_faults: ClientFaults,
    /// What has gone over the connection since its frames were last counted.
    pub(super) traffic: Traffic,
    /// What is held.
    account: Account,
    /// How often a stream was looked at because of SETTINGS.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl StreamTable {
    /// Nothing has come; at most `most` streams at a time may be open. What is held is counted in `account`.
    pub(super) fn new(most: u32, account: Account) -> Shared {
        Rc::new(RefCell::new(Self {
            ids: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            active: 0,
            most: most as usize,
            last: 0,
            goodbye: None,
            ours: VecDeque::new(),
            room: i64::from(CONNECTION_WINDOW),
            owed: 0,
            window: i64::from(FIRST_WINDOW),
            first_window: i64::from(FIRST_WINDOW),
            frame: offramp_http::h2::reader::MOST,
            encoder: Encoder::new(),
            out: Output::default(),
            prioritized: false,
            updates: Updates::default(),
            agreed: false,
            turned_away: 0,
            waiting: Vec::new(),
            heads_wait: false,
            hungry: VecDeque::new(),
            driver: None,
            dead: false,
            client_faults: ClientFaults::default(),
            traffic: Traffic::default(),
            account,
            #[cfg(test)]
            looks: std::cell::Cell::default(),
        }))
    }

    /// Whether nobody has a stream.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// How many streams somebody has.
    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    /// Gives memory back while the client is quiet.
    pub(super) fn rest(&mut self) {
        self.out.rest();
        if self.ids.is_empty() {
            (self.slots, self.free, self.waiting) = (Vec::new(), Vec::new(), Vec::new());
            self.ids = Vec::new();
        }
    }

    /// Says which stream is the last that is served (RFC 9113 §6.8).
    pub(super) fn part(&mut self, code: Code) {
        if self.goodbye.is_none_or(|last| last > self.last) {
            self.goodbye = Some(self.last);
            self.out.goaway(self.last, code);
            self.wake();
        }
    }

    /// Has what was written sent.
    fn wake(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    fn find(&self, id: u32) -> Option<Key> {
        // Mostly the latest.
        match self.ids.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Some(self.ids[at].1),
            Err(_) => None,
        }
    }

    /// The response of a stream begins.
    pub(in crate::l7::h2) fn response_begins(&mut self, key: Key) {
        self.traffic.answer();
        let slot = self.slot(key);
        slot.answered = true;
        // Whoever serves the request has given its head back.
        let head = std::mem::take(&mut slot.head);
        slot.fields -= head;
        self.account.forget_fields(head);
    }

    /// Whether a stream is open whose response has not begun.
    pub(in crate::l7::h2) fn is_unanswered(&self, id: u32) -> bool {
        self.find(id).is_some_and(|key| {
            let slot = &self.slots[key.0];
            slot.over.is_none() && !slot.answered
        })
    }

    /// A stream was opened with the priority that its request says, or that was said before of it.
    pub(super) fn begin_priority(&mut self, key: Key, said: Option<&[u8]>) {
        let id = self.slots[key.0].id;
        let said = || said.map(Priority::of_request);
        if let Some(priority) = self.updates.take(id).or_else(said) {
            self.prioritize(key, priority);
        }
    }

    /// PRIORITY_UPDATE came.
    pub(super) fn update_priority(&mut self, id: u32, priority: Priority) {
        match self.find(id) {
            Some(key) => self.prioritize(key, priority),
            None if id > self.last => self.updates.put(id, priority),
            None => {}
        }
    }

    /// The server says something of its response.
    pub(super) fn respond_priority(&mut self, key: Key, said: &[u8]) {
        let priority = self.slots[key.0].priority.of_response(said);
        self.prioritize(key, priority);
    }

    fn prioritize(&mut self, key: Key, priority: Priority) {
        self.slots[key.0].priority = priority;
        self.prioritized = true;
    }

    /// The place of a stream among those that wait.
    fn rank(&self, key: Key, now: u64) -> Rank {
        let slot = &self.slots[key.0];
        let waits = if slot.blocked > 0 { now.saturating_sub(slot.blocked) } else { 0 };
        slot.priority.rank(slot.id, slot.wrote, waits)
    }

    fn slot(&mut self, key: Key) -> &mut Slot {
        &mut self.slots[key.0]
    }

    /// Resets a stream for a fault of the client's.
    fn fault(&mut self, key: Key, code: Code) {
        if self.slot(key).over.is_none() {
            self.client_faults.fault(code);
            self.end(key, code);
        }
    }

    /// Ends a stream at once.
    fn end(&mut self, key: Key, code: Code) {
        let id = self.over(key, code, false);
        self.remember(id);
        self.out.reset(id, code);
        self.wake();
    }

    fn remember(&mut self, id: u32) {
        if self.ours.len() >= RESET.max(self.most) {
            self.ours.pop_front();
        }
        self.ours.push_back(id);
    }

    /// A stream has ended at once. Gives its number.
    fn over(&mut self, key: Key, code: Code, by_client: bool) -> u32 {
        let slot = self.slot(key);
        (slot.over, slot.by_client) = (Some(code), by_client);
        slot.whole = slot.received_all && slot.unread.is_empty() && slot.trailers.is_none();
        slot.wake_reader();
        slot.wake_writer();
        let id = slot.id;
        self.forget_content(key);
        self.settle(key);
        id
    }

    /// Drops what nobody will read; the client may send as much on other streams.
    fn forget_content(&mut self, key: Key) {
        let slot = self.slot(key);
        let unread = std::mem::take(&mut slot.unread);
        slot.trailers = None;
        // Bounded by the stream's window.
        self.give_back(unread.len() as u32);
    }

    /// Counts a stream out that is over for both sides.
    fn settle(&mut self, key: Key) {
        let slot = self.slot(key);
        if slot.counted && (slot.over.is_some() || slot.received_all && slot.sent_all) {
            slot.counted = false;
            self.active -= 1;
        }
    }

    /// Nobody has the stream any more.
    fn close(&mut self, key: Key) {
        let dead = self.dead;
        let slot = self.slot(key);
        let id = slot.id;
        if slot.over.is_none() && !slot.received_all && !dead {
            // The answer is whole, the rest of the question is not needed (RFC 9113 §8.1).
            self.end(key, Code::NO_ERROR);
        }
        let slot = self.slot(key);
        let (counted, waits, hungry) = (slot.counted, slot.waits, slot.hungry);
        let (fields, piece, ahead) = (slot.fields, slot.piece, slot.ahead);
        slot.clear();
        self.account.end(fields);
        self.account.piece(piece, 0);
        self.account.ahead(ahead, 0);
        self.active -= usize::from(counted);
        if waits {
            self.waiting.retain(|(waits, _)| *waits != id);
        }
        if hungry {
            self.hungry.retain(|(hungry, _)| *hungry != id);
        }
        if let Ok(at) = self.ids.binary_search_by_key(&id, |(id, _)| *id) {
            self.ids.remove(at);
        }
        self.free.push(key);
        self.feed();
        if self.ids.is_empty() {
            // Perhaps the last one was waited for.
            self.wake();
        }
    }

    /// The client may send `n` bytes more on the connection.
    fn give_back(&mut self, n: u32) {
        self.account.give(n as usize);
        self.owed += n;
        if self.owed >= CONNECTION_WINDOW / 2 {
            self.room += i64::from(self.owed);
            self.out.window(0, std::mem::take(&mut self.owed));
            self.wake();
        }
    }

    /// The client may send `n` bytes more on a stream.
    fn owe(&mut self, key: Key, n: u32) {
        let slot = self.slot(key);
        slot.owed += n;
        if slot.owed >= STREAM_WINDOW / 2 && !slot.received_all && slot.over.is_none() && slot.wanted {
            slot.room += i64::from(slot.owed);
            let (id, owed) = (slot.id, std::mem::take(&mut slot.owed));
            self.out.window(id, owed);
            self.wake();
        }
    }
}
