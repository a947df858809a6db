//! What a connection and the tasks of its streams share: the protocol ([`offramp_http::h2::Connection`]), and what is
//! held for streams.
//!
//! A stream's task writes its frames here at once, within the windows of the client; the connection sends what has
//! gathered. What the connection reads for a stream lies here until the stream's task takes it.

mod receive;
mod send;
mod slot;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use offramp_http::h2::{Code, Config, Connection};
use offramp_net::clock::coarse_ms;

use super::memory::Account;
pub(super) use receive::Requests;
use slot::{ReadTurn, ResetBy, ResponseSide, Slot};

/// The window of a stream: what a client may send of a body before the server has taken it.
pub(super) const STREAM_WINDOW: u32 = 256 * 1024;
/// The window of a connection.
pub(super) const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Memory of a stream's state.
#[cfg(test)]
pub(super) const SLOT: usize = Connection::<Slot>::STREAM;

/// The streams table of a connection, as its streams have it.
pub(super) type Shared = Rc<RefCell<StreamTable>>;

/// The streams of one connection. A stream is known as long as a task has it.
pub(super) struct StreamTable {
    pub(super) connection: Connection<Slot>,
    /// Streams that read nothing more until a piece of another response has left, in the order of their turns.
    read_queue: VecDeque<u32>,
    /// Task that sends the output.
    pub(super) driver: Option<Waker>,
    /// The connection has ended.
    dead: bool,
    /// Memory that is held for the streams.
    account: Account,
}

impl StreamTable {
    /// Table without streams. At most `streams` may be open at a time, with fields of `header` bytes each; the window of
    /// one may grow to `window` bytes in either direction. Memory is counted in `account`.
    pub(super) fn new(streams: u32, header: u32, window: u32, mut account: Account) -> Shared {
        account.allow_far(window);
        let config = Config {
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
            shared_window: true,
            growth: window.saturating_sub(STREAM_WINDOW),
            max_streams: streams,
            max_head: header,
        };
        Rc::new(RefCell::new(Self {
            connection: Connection::server(config, coarse_ms()),
            read_queue: VecDeque::new(),
            driver: None,
            dead: false,
            account,
        }))
    }

    /// Returns true if no task has a stream.
    pub(super) fn is_empty(&self) -> bool {
        self.connection.known_streams() == 0
    }

    /// Takes no more streams from now on (RFC 9113 §6.8).
    pub(super) fn stop(&mut self) {
        self.change(Connection::stop);
    }

    /// Changes something, and has what is written for that sent.
    fn change<T>(&mut self, change: impl FnOnce(&mut Connection<Slot>) -> T) -> T {
        let before = self.connection.output().len();
        let outcome = change(&mut self.connection);
        if self.connection.output().len() > before {
            self.wake();
        }
        self.account.content(self.connection.claimed());
        outcome
    }

    /// The content of a stream that is here waits for long: as far as there is memory for it, it does not keep others of the
    /// connection from sending.
    pub(super) fn set_apart(&mut self, id: u32) {
        self.connection.set_apart(id);
        self.lend();
    }

    fn lend(&mut self) {
        let most = self.account.left();
        self.change(|connection| connection.lend(most));
    }

    /// Has what was written sent.
    fn wake(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    #[inline]
    fn slot(&mut self, id: u32) -> &mut Slot {
        // It is forgotten when no task has it any more.
        self.connection.stream(id).expect("somebody has the stream")
    }

    #[inline]
    fn peek(&self, id: u32) -> &Slot {
        // As above.
        self.connection.stream_ref(id).expect("somebody has the stream")
    }

    /// Ends a stream at once.
    fn end(&mut self, id: u32, code: Code) {
        self.change(|connection| connection.reset(id, code));
        self.slot(id).end(code, ResetBy::Proxy);
    }

    /// No task answers any more: what was counted for the response is given back.
    fn end_response(&mut self, id: u32) {
        self.count_piece(id, 0);
        let slot = self.slot(id);
        let ahead = std::mem::take(&mut slot.budget.ahead) as usize;
        let response = std::mem::take(&mut slot.response);
        if ahead > 0 {
            self.account.ahead(ahead, 0);
        }
        if matches!(response, ResponseSide::Answering(progress) if progress.turn == ReadTurn::Queued) {
            self.read_queue.retain(|queued| *queued != id);
        }
    }

    /// Forgets a stream that no task has any more. If its response is whole, the rest of the request is dropped for
    /// a while, and not needed (RFC 9113 §8.1).
    fn close(&mut self, id: u32) {
        let fields = self.slot(id).budget.fields as usize;
        self.account.end(fields);
        self.change(|connection| connection.forget(id, Code::CANCEL));
        self.feed();
        if self.is_empty() {
            // Perhaps the last one was waited for.
            self.wake();
        }
    }

    /// Resets the streams to which nothing could be written for so long, in milliseconds, and on which nothing came
    /// either.
    pub(super) fn drop_blocked(&mut self, now: u64, limit: u64) {
        let stuck = |slot: &Slot| {
            let since = slot.blocked_since().map(|since| since.max(slot.moved()));
            slot.reset.is_none() && since.is_some_and(|since| now.saturating_sub(since) >= limit)
        };
        let all: Vec<_> =
            self.connection.streams().filter(|(_, slot)| stuck(slot)).map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.end(id, Code::CANCEL));
    }

    /// Wants no more than the first windows while all connections hold what they may.
    pub(super) fn save_memory(&mut self) {
        if self.account.left() == 0 {
            self.connection.shrink();
        }
    }

    /// Resets the streams with requests that have gone on for long enough behind their responses, at `now` in
    /// milliseconds.
    pub(super) fn end_lingering(&mut self, now: u64) {
        self.change(|connection| connection.end_lingering(now));
    }

    /// Ends the connection, and wakes all tasks.
    pub(super) fn die(&mut self) {
        self.dead = true;
        self.connection.abandon();
        for (_, slot) in self.connection.streams() {
            slot.wake_reader();
            slot.wake_writer();
        }
    }
}
