//! Sending: heads, content, trailers, resets and window updates.

use bytes::Bytes;
use http::{Method, StatusCode};

use super::encode::{self, Ends};
use super::state::{Closure, StreamState};
use super::streams::{Blocked, Stream};
use super::{Connection, LAST, MOST_WAITING, ROOM, Role, Unopened};
use crate::h2::reader::MOST;
use crate::h2::{Code, Output};
use crate::head::{Fields, Known, Request};
use crate::hpack::HpackEncoder;

/// Output length from which no stream is opened, in bytes.
const MOST_OUTPUT: usize = 4 * ROOM;
/// DATA below this size that exhausts a window is short because of the window.
const SMALL: usize = 512;

/// Frames and header blocks of ours, as the peer wants them encoded.
#[derive(Debug)]
pub(super) struct SendSide {
    pub(super) encoder: HpackEncoder,
    pub(super) output: Output,
    /// SETTINGS_MAX_FRAME_SIZE of the peer, at most [`MOST`].
    pub(super) max_frame: usize,
}

impl Default for SendSide {
    fn default() -> Self {
        Self { encoder: HpackEncoder::new(), output: Output::default(), max_frame: MOST }
    }
}

impl SendSide {
    /// Appends a header block, which `write` encodes.
    #[inline]
    fn fields(&mut self, id: u32, end: bool, write: impl FnOnce(&mut HpackEncoder, &mut Vec<u8>)) {
        let encoder = &mut self.encoder;
        self.output.fields(id, end, self.max_frame, |block| write(encoder, block));
    }
}

impl<T> Connection<T> {
    /// Returns true if another stream can be opened (client): the peer permits one more, and the connection
    /// is not shutting down.
    #[must_use]
    pub fn can_open(&self) -> bool {
        self.takes_streams() && self.streams.active < self.peer.max_streams
    }

    /// Returns true if streams can be opened, now or after others have ended (client).
    #[must_use]
    pub fn takes_streams(&self) -> bool {
        let closing = &self.closing;
        let ends = closing.over || closing.goaway_sent.is_some() || closing.goaway_received.is_some();
        !ends && self.outgoing.output.len() < MOST_OUTPUT && self.streams.highest < LAST - 1
    }

    /// Opens a stream with the head of a request (client), and returns its number. `scheme` is `http` or
    /// `https`. `length` is the content length, if no field declares it. `end` is set without content.
    ///
    /// The caller obeys the peer's maximum of streams, by [`Connection::can_open`].
    ///
    /// # Errors
    /// The reason for which no stream was opened, and `user`.
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
        let windows = self.initial_windows();
        let state = if end { StreamState::HalfClosedLocal } else { StreamState::Open };
        let stream = self.streams.insert(id, user, state, windows, self.outgoing.output.end());
        stream.bodiless = request.method == Method::HEAD;
        self.outgoing.fields(id, end, |encoder, block| {
            encode::request(encoder, request, scheme, host, length, block);
        });
        self.counted.traffic.answer();
        Ok(id)
    }

    /// Sends an interim response (server). Does nothing if the stream is over.
    pub fn interim(&mut self, id: u32, status: StatusCode, fields: &Fields) {
        self.fields(id, false, |encoder, block| encode::interim(encoder, status, fields, block));
    }

    /// Sends the head of a response (server). Does nothing if the stream is over.
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
            stream.responded = true;
        }
    }

    /// Returns true if the head or the end of a response may be sent, which needs no window but space in the
    /// output (server). Otherwise, [`Event::Writable`] reports the change.
    ///
    /// [`Event::Writable`]: super::Event::Writable
    pub fn can_respond(&mut self, id: u32) -> bool {
        let has_space = self.outgoing.output.len() < MOST_WAITING;
        if !has_space {
            self.streams.await_output(id);
        }
        has_space
    }

    /// Number of content bytes that may be sent on a stream now. If it is 0, [`Event::Writable`] reports the
    /// change, unless the stream is over.
    ///
    /// [`Event::Writable`]: super::Event::Writable
    pub fn capacity(&mut self, id: u32) -> usize {
        let full = self.outgoing.output.len() >= ROOM;
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
        self.outgoing.max_frame.min(room as usize)
    }

    /// Sends content, at most [`Connection::capacity`] bytes of it; `end` is set for the last. Returns true
    /// if the stream still exists.
    ///
    /// # Panics
    /// In debug builds, if `data` exceeds the capacity.
    pub fn data(&mut self, id: u32, data: Bytes, end: bool) -> bool {
        let Some((stream, active)) = self.streams.sending(id) else { return false };
        // A frame has at most 2^24 - 1 bytes.
        let n = data.len() as i64;
        debug_assert!(n == 0 || n <= stream.flow.window.min(self.flow.window), "more than the window");
        self.flow.window -= n;
        stream.flow.window -= n;
        let blocked = stream.flow.window <= 0 || self.flow.window <= 0;
        match data.len() {
            0 => {}
            small @ ..SMALL if blocked && !(end && self.role == Role::Client) => {
                self.counted.traffic.dribble(small);
            }
            n => self.counted.traffic.data(n),
        }
        if end {
            stream.advance(stream.state().end_local(), active);
        }
        self.streams.turn = id;
        self.outgoing.output.data(id, data, end);
        true
    }

    /// Sends trailers, which end the stream in our direction.
    pub fn trailers<'f>(&mut self, id: u32, trailers: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        self.fields(id, true, |encoder, block| encode::trailers(encoder, trailers, block));
    }

    fn fields(
        &mut self,
        id: u32,
        end: bool,
        write: impl FnOnce(&mut HpackEncoder, &mut Vec<u8>),
    ) -> Option<&mut Stream<T>> {
        let (stream, active) = self.streams.sending(id)?;
        self.outgoing.fields(id, end, write);
        if end {
            stream.advance(stream.state().end_local(), active);
        }
        Some(stream)
    }

    /// Resets a stream. Does nothing if it is over.
    pub fn reset(&mut self, id: u32, code: Code) {
        if self.streams.get(id).is_none_or(|stream| stream.state().is_closed()) {
            return;
        }
        self.streams.advance(id, |_| StreamState::Closed(Closure::ResetByUs));
        self.streams.remember(id);
        self.discard(id);
        if !self.closing.over {
            self.outgoing.output.reset(id, code);
        }
    }

    /// Forgets a stream, and resets it with `code` unless it has ended; a server that has responded in full
    /// uses NO_ERROR (RFC 9113 §8.1). Returns true if the stream was known.
    pub(super) fn remove(&mut self, id: u32, code: Code) -> bool {
        let server = self.role == Role::Server;
        let look = |stream: &Stream<T>| {
            let code = if server && !stream.state().sends() { Code::NO_ERROR } else { code };
            let flow = &stream.flow;
            (flow.held, flow.apart, flow.grown, (!stream.state().is_closed()).then_some(code))
        };
        let Some((held, apart, grown, reset)) = self.streams.remove(id, look) else { return false };
        self.growth.withdraw(grown);
        if let Some(code) = reset {
            self.streams.remember(id);
            if !self.closing.over {
                self.outgoing.output.reset(id, code);
            }
        }
        self.release_held(held, apart);
        true
    }

    /// Drops the data that the caller holds of a stream, and all data to come: it is returned to the windows.
    /// Up to [`MOST_DROPPED`] bytes are dropped, so that a peer that waits for a window before it reads the
    /// response gets both.
    ///
    /// [`MOST_DROPPED`]: super::MOST_DROPPED
    pub fn discard(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        let n = std::mem::take(&mut stream.flow.held);
        stream.flow.dropped = Some(stream.flow.dropped.unwrap_or(0).saturating_add(n));
        stream.flow.owed += n;
        let apart = stream.flow.apart;
        self.announce_window(id);
        self.release_held(n, apart);
    }

    /// Returns `n` consumed bytes of a stream's data to the windows.
    pub fn release(&mut self, id: u32, n: usize) {
        let Some(stream) = self.streams.get(id) else { return };
        // At most the window that was granted.
        let n = (n as u32).min(stream.flow.held);
        stream.flow.held -= n;
        stream.flow.owed += n;
        let apart = stream.flow.apart;
        let less = stream.flow.follow_user(self.growth.share());
        self.growth.withdraw(less);
        self.announce_window(id);
        self.release_held(n, apart);
    }

    /// Lets [`Connection::lend`] take the data that the caller holds of a stream out of the connection's
    /// window: it will be held for long, and must not block other streams.
    pub fn set_apart(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        if !std::mem::replace(&mut stream.flow.apart, true) {
            self.flow.apart += stream.flow.held;
        }
    }

    /// Bytes held on streams set apart that are still within the connection's window.
    #[must_use]
    pub fn lendable(&self) -> usize {
        (self.flow.apart - self.flow.lent) as usize
    }

    /// Reopens the connection's window by up to `most` bytes that are held on streams set apart; they are not
    /// returned again when they are released. The windows of the streams bound the total.
    pub fn lend(&mut self, most: usize) {
        // At most what is held.
        let n = self.lendable().min(most) as u32;
        self.flow.lent += n;
        self.release_window(n);
    }

    /// Sets the maximum of a stream's data that is sent and not released: at least [`Config::stream_window`],
    /// the initial value. A larger window is announced at once, in one frame; a smaller one takes effect as
    /// data is released. Returns the current maximum. Nothing is measured before data of the larger window is
    /// released: a caller that takes nothing of it needs no larger one still.
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
        self.open_window(id);
        target
    }

    /// Sends WINDOW_UPDATE for a stream if the amount is worth a frame, and measures the path now and then.
    pub(super) fn announce_window(&mut self, id: u32) {
        if let Some(ahead) = self.open_window(id) {
            self.probe_stream(id, ahead);
        }
    }

    /// Sends WINDOW_UPDATE for a stream if the amount is worth a frame; returns the window that was left then.
    fn open_window(&mut self, id: u32) -> Option<i64> {
        let stream = self.streams.get(id)?;
        let open = stream.state().receives() && stream.flow.is_open();
        if stream.flow.owed < stream.flow.worth_announcing() || !open {
            return None;
        }
        self.inherit(id);
        let flow = &mut self.streams.get(id)?.flow;
        let (owed, ahead) = (std::mem::take(&mut flow.owed), flow.room);
        flow.room += i64::from(owed);
        self.outgoing.output.window(id, owed);
        Some(ahead)
    }

    /// Returns the unused window of a stream after the peer has sent everything.
    pub(super) fn close_window(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        self.growth.withdraw(std::mem::take(&mut stream.flow.grown));
        self.streams.advance(id, StreamState::end_remote);
    }

    /// Number of bytes that the windows permit on a stream now; may be negative.
    #[must_use]
    pub fn window(&self, id: u32) -> i64 {
        self.streams.peek(id).map_or(0, |stream| stream.flow.window.min(self.flow.window))
    }

    /// Send window of the connection.
    #[must_use]
    pub fn connection_window(&self) -> i64 {
        self.flow.window
    }

    /// Content bytes of a stream that the caller holds.
    #[must_use]
    pub fn unreleased_of(&self, id: u32) -> usize {
        self.streams.peek(id).map_or(0, |stream| stream.flow.held as usize)
    }

    /// Content bytes of the peer that the caller holds: received and not released.
    pub fn unreleased(&self) -> usize {
        let window = i64::from(self.config.connection_window) + i64::from(self.growth.credit());
        let left = window - self.flow.room - i64::from(self.flow.owed);
        // The window is never exceeded.
        left.max(0) as usize + self.flow.lent as usize
    }

    /// Accounts `n` released bytes of a stream, which may be set apart.
    fn release_held(&mut self, n: u32, apart: bool) {
        let mut lent = 0;
        if apart {
            self.flow.apart -= n;
            // Bytes that are gone are not lent any more, and were returned to the window before.
            lent = self.flow.lent.saturating_sub(self.flow.apart);
            self.flow.lent -= lent;
        }
        self.release_window(n - lent);
    }

    /// Accounts `n` released bytes in the connection's window.
    fn release_window(&mut self, n: u32) {
        if self.config.shared_window {
            self.give_back(n);
        }
    }

    /// Returns `n` bytes to the connection's receive window.
    pub(super) fn give_back(&mut self, n: u32) {
        let n = self.growth.absorb(n);
        let flow = &mut self.flow;
        flow.owed += n;
        if flow.owed >= self.config.connection_window / 2 && !self.closing.over {
            let ahead = flow.room;
            flow.room += i64::from(flow.owed);
            self.outgoing.output.window(0, std::mem::take(&mut flow.owed));
            self.probe_all(ahead);
        }
    }
}
