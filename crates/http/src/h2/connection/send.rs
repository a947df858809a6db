//! What we send: heads, content, trailers, and the end of streams.

use bytes::Bytes;
use http::{Method, StatusCode};

use super::encode::{self, Ends};
use super::streams::{Blocked, Remote, Stream};
use super::{Connection, LAST, MOST_WAITING, ROOM, Role, Unopened};
use crate::h2::Code;
use crate::head::{Fields, Known, Request};
use crate::hpack::Encoder;

/// Heads beyond this much output wait for other connections.
const MOST_OUTPUT: usize = 4 * ROOM;
/// Data below this size that leaves no window is as small because the peer gave no more.
const SMALL: usize = 512;

impl<T> Connection<T> {
    /// Whether another stream can be opened (client): the peer allows one more, and the connection is not about to end.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.takes_streams() && self.streams.active < self.peer.max_streams
    }

    /// Whether streams can be opened, now or when others have ended (client).
    #[must_use]
    pub fn takes_streams(&self) -> bool {
        let closing = &self.closing;
        let ends = closing.over || closing.said.is_some() || closing.heard.is_some();
        !ends && self.output.len() < MOST_OUTPUT && self.streams.highest < LAST - 1
    }

    /// Opens a stream with the head of a request (client), and gives its number. `scheme` is `http` or `https`. `length`
    /// is said where no field says it. `end`: there is no content.
    ///
    /// How many streams the peer allows is for the caller to heed, with [`Connection::can_open`].
    ///
    /// # Errors
    /// Why none was opened, and `user` back.
    pub fn open(
        &mut self,
        user: T,
        request: &Request,
        scheme: &str,
        length: Option<u64>,
        end: bool,
    ) -> Result<u32, (Unopened, T)> {
        debug_assert!(self.role == Role::Client, "servers open no streams");
        if !self.takes_streams() {
            return Err((Unopened::Closed, user));
        }
        let Some(host) = request.host().filter(|host| encode::is_authority(host)) else {
            return Err((Unopened::NoAuthority, user));
        };
        let id = if self.streams.highest == 0 { 1 } else { self.streams.highest + 2 };
        let windows = (self.peer.stream_window, self.first_room(), self.config.stream_window);
        let stream = self.streams.insert(id, user, windows, self.output.end());
        (stream.sent_all, stream.bodiless) = (end, request.method == Method::HEAD);
        let encoder = &mut self.encoder;
        self.output.fields(id, end, self.peer.frame, |block| {
            encode::request(encoder, request, (scheme, host), length, block);
        });
        self.counted.traffic.answer();
        Ok(id)
    }

    /// Sends an interim response (server). Nothing happens where the stream is over.
    pub fn interim(&mut self, id: u32, status: StatusCode, fields: &Fields) {
        self.fields(id, false, |encoder, block| encode::interim(encoder, status, fields, block));
    }

    /// Sends the head of a response (server). Nothing happens where the stream is over.
    pub fn respond<'d>(&mut self, id: u32, status: StatusCode, fields: &Fields, ends: impl Into<Ends<'d>>) {
        let ends = ends.into();
        self.counted.traffic.answer();
        if let Some(said) = fields.get(Known::Priority) {
            self.streams.prioritize(id, |asked| asked.of_response(said));
        }
        let begun = self.fields(id, ends.end, |encoder, block| {
            encode::response(encoder, status, fields, ends, block);
        });
        if let Some(stream) = begun {
            stream.answered = true;
        }
    }

    /// Whether the head or the end of a response may be sent, which needs no window (server). Where it may not,
    /// [`Event::Writable`] says when that changes.
    ///
    /// [`Event::Writable`]: super::Event::Writable
    pub fn has_calm(&mut self, id: u32) -> bool {
        let calm = self.output.len() < MOST_WAITING;
        if !calm {
            self.streams.await_output(id);
        }
        calm
    }

    /// How many bytes of content may be sent on a stream now. Where it is 0, [`Event::Writable`] says when that changes,
    /// unless the stream is over.
    ///
    /// [`Event::Writable`]: super::Event::Writable
    pub fn capacity(&mut self, id: u32) -> usize {
        let full = self.output.len() >= ROOM;
        let window = self.flow.window;
        let Some(stream) = self.streams.live(id) else { return 0 };
        let room = stream.flow.window.min(window);
        if full || room <= 0 {
            stream.flow.blocked = Blocked::Windows;
            self.streams.window_awaited |= full || window <= 0;
            return 0;
        }
        stream.flow.blocked = Blocked::No;
        // Both are positive, and bounded by the size of a frame.
        self.peer.frame.min(room as usize)
    }

    /// Sends content, at most [`Connection::capacity`] bytes of it; `end`: it is the last. Gives whether the stream is
    /// still there.
    ///
    /// # Panics
    /// Never in release builds; in others if it is more than may be sent.
    pub fn data(&mut self, id: u32, data: Bytes, end: bool) -> bool {
        let live = self.streams.live_counted(id);
        let Some((stream, active)) = live.filter(|(stream, _)| !stream.sent_all) else { return false };
        // No frame is longer than 24 bits can say.
        let n = data.len() as i64;
        debug_assert!(n == 0 || n <= stream.flow.window.min(self.flow.window), "more than the window");
        self.flow.window -= n;
        stream.flow.window -= n;
        let blocked = stream.flow.window <= 0 || self.flow.window <= 0;
        stream.sent_all = end;
        match data.len() {
            0 => {}
            small @ ..SMALL if blocked && !(end && self.role == Role::Client) => {
                self.counted.traffic.dribble(small);
            }
            n => self.counted.traffic.data(n),
        }
        if end {
            stream.settle(active);
        }
        self.streams.turn = id;
        self.output.data(id, data, end);
        true
    }

    /// Sends trailers, which end our direction.
    pub fn trailers<'f>(&mut self, id: u32, trailers: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        self.fields(id, true, |encoder, block| encode::trailers(encoder, trailers, block));
    }

    fn fields(
        &mut self,
        id: u32,
        end: bool,
        write: impl FnOnce(&mut Encoder, &mut Vec<u8>),
    ) -> Option<&mut Stream<T>> {
        let (stream, active) = self.streams.live_counted(id).filter(|(stream, _)| !stream.sent_all)?;
        stream.sent_all = end;
        let encoder = &mut self.encoder;
        self.output.fields(id, end, self.peer.frame, |block| write(encoder, block));
        if end {
            stream.settle(active);
        }
        Some(stream)
    }

    /// Ends a stream at once. Nothing happens where it is over.
    pub fn reset(&mut self, id: u32, code: Code) {
        let Some(stream) = self.streams.live(id) else { return };
        if stream.has_ended() {
            return;
        }
        stream.reset = true;
        self.streams.settle(id);
        self.streams.remember(id);
        self.discard(id);
        if !self.closing.over {
            self.output.reset(id, code);
        }
    }

    /// Forgets a stream, and ends it at once with `code` if it has not ended; a server that has answered says so without an
    /// error (RFC 9113 §8.1). Gives whether it was known.
    pub(super) fn remove(&mut self, id: u32, code: Code) -> bool {
        let server = self.role == Role::Server;
        let look = |stream: &Stream<T>| {
            let code = if server && stream.sent_all { Code::NO_ERROR } else { code };
            let held = (stream.flow.held, stream.flow.apart);
            (held, stream.flow.grown, (stream.is_live() && !stream.has_ended()).then_some(code))
        };
        let Some((held, grown, reset)) = self.streams.remove(id, look) else { return false };
        self.growth.withdraw(grown);
        if let Some(code) = reset {
            self.streams.remember(id);
            if !self.closing.over {
                self.output.reset(id, code);
            }
        }
        self.used_of(held);
        true
    }

    /// The user reads nothing more of a stream, and has dropped what it had of its data: the peer may send as much again,
    /// here and on others. [`MOST_DROPPED`] bytes of a stream are dropped, so that a peer that waits for a window before it
    /// looks at the response gets both.
    ///
    /// [`MOST_DROPPED`]: super::MOST_DROPPED
    pub fn discard(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        stream.flow.wanted = false;
        let n = std::mem::take(&mut stream.flow.held);
        stream.flow.dropped = stream.flow.dropped.saturating_add(n);
        stream.flow.owed += n;
        let held = (n, stream.flow.apart);
        self.say_window(id);
        self.used_of(held);
    }

    /// The user has used `n` bytes of a stream's data: the peer may send as much again.
    pub fn release(&mut self, id: u32, n: usize) {
        let Some(stream) = self.streams.get(id) else { return };
        // No more than the window was given.
        let n = (n as u32).min(stream.flow.held);
        stream.flow.held -= n;
        stream.flow.owed += n;
        let used = (n, stream.flow.apart);
        let less = stream.flow.follow_user();
        self.growth.withdraw(less);
        self.say_window(id);
        self.used_of(used);
    }

    /// What the user has of a stream's data may be taken out of the window of the connection from now on, by
    /// [`Connection::lend`]: it has it for long, and other streams are not to wait for that.
    pub fn set_apart(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        if !std::mem::replace(&mut stream.flow.apart, true) {
            self.flow.apart += stream.flow.held;
        }
    }

    /// How many bytes of streams that are apart are within the window of the connection.
    #[must_use]
    pub fn lendable(&self) -> usize {
        (self.flow.apart - self.flow.lent) as usize
    }

    /// Lets the peer send as much again on the connection as there is of streams that are apart, `most` bytes at the most:
    /// they are not given back once more when they are released. The windows of the streams bound how much there can be.
    pub fn lend(&mut self, most: usize) {
        // Not more than there is.
        let n = self.lendable().min(most) as u32;
        self.flow.lent += n;
        self.used(n);
    }

    /// How much data of the peer's there may be on a stream at a time, sent and not released: at least
    /// [`Config::stream_window`], with which it begins. A larger window is said to the peer at once, in one frame for all
    /// of it; a smaller one takes effect as data is released. Gives what there may be now.
    ///
    /// [`Config::stream_window`]: super::Config::stream_window
    pub fn set_window(&mut self, id: u32, target: u32) -> u32 {
        let least = self.config.stream_window;
        let Some(stream) = self.streams.get(id) else { return least };
        let (flow, target) = (&mut stream.flow, target.clamp(least, LAST));
        if target < flow.target {
            let less = flow.narrow(target);
            self.growth.withdraw(less);
        } else {
            flow.owed += target - flow.target;
            flow.target = target;
        }
        let target = flow.target;
        self.say_window(id);
        target
    }

    /// Tells the peer of what it may send again on a stream, if that is worth a frame.
    pub(super) fn say_window(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        let half = stream.flow.target / 2;
        let open = stream.is_live() && stream.remote != Remote::Ended && stream.flow.is_open();
        if stream.flow.owed >= half && open {
            let owed = std::mem::take(&mut stream.flow.owed);
            let ahead = stream.flow.room;
            stream.flow.room += i64::from(owed);
            self.output.window(id, owed);
            self.probe_stream(id, ahead);
        }
    }

    /// The peer has sent all of a stream, which needs no window any more.
    pub(super) fn ended(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        stream.remote = Remote::Ended;
        self.growth.withdraw(std::mem::take(&mut stream.flow.grown));
        self.streams.settle(id);
    }

    /// What the windows let the user send on a stream now: nothing where it is not more than 0.
    #[must_use]
    pub fn window(&self, id: u32) -> i64 {
        self.streams.peek(id).map_or(0, |stream| stream.flow.window.min(self.flow.window))
    }

    /// The window of the connection for what we send.
    #[must_use]
    pub fn connection_window(&self) -> i64 {
        self.flow.window
    }

    /// How much of the peer's content the user has: it has come, and was not released.
    pub fn unreleased(&self) -> usize {
        let window = i64::from(self.config.connection_window) + i64::from(self.growth.credit());
        let left = window - self.flow.room - i64::from(self.flow.owed);
        // The window is never exceeded.
        left.max(0) as usize + self.flow.lent as usize
    }

    /// The user has used so many bytes of a stream, which may be apart.
    fn used_of(&mut self, (n, apart): (u32, bool)) {
        let mut lent = 0;
        if apart {
            self.flow.apart -= n;
            // What is not there any more is not lent any more, and was given back before.
            lent = self.flow.lent.saturating_sub(self.flow.apart);
            self.flow.lent -= lent;
        }
        self.used(n - lent);
    }

    /// The user has used `n` bytes of the connection's window.
    fn used(&mut self, n: u32) {
        if self.config.shared_window {
            self.give_back(n);
        }
    }

    /// The peer may send `n` bytes more on the connection.
    pub(super) fn give_back(&mut self, n: u32) {
        let n = self.growth.absorb(n);
        let flow = &mut self.flow;
        flow.owed += n;
        if flow.owed >= self.config.connection_window / 2 && !self.closing.over {
            let ahead = flow.room;
            flow.room += i64::from(flow.owed);
            self.output.window(0, std::mem::take(&mut flow.owed));
            self.probe_all(ahead);
        }
    }
}
