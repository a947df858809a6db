//! Windows that grow with the path (RFC 9113 §6.9): as long as the peer stands still for want of a window, and the user
//! takes what comes at once.
//!
//! The window of the connection, which streams share ([`Config::shared_window`](super::Config::shared_window)), grows by as
//! much as that of a stream does, so that one that is read no more holds up no others. What was given cannot be taken
//! back (a peer may use its window at any time): what is not needed any more is a surplus, which data that comes uses up.
//! Who uses the connection is asked first, and counts [`Connection::claimed`].

use super::streams::Remote;
use super::{Connection, Handler};
use crate::h2::Kind;
use crate::h2::probe::{Probe, Stall};

/// What PINGs say that go along with WINDOW_UPDATE of a stream, and of the connection.
const OF_STREAM: &[u8; 8] = b"stream->";
const OF_ALL: &[u8; 8] = b"->window";
/// For how long what came last may be there when a window is given, for a user who takes what comes at once, in
/// milliseconds.
const AT_ONCE: u64 = 20;

/// What the windows are larger by than those of the configuration.
#[derive(Debug)]
pub(super) struct Growth {
    /// Of all streams, and of the connection for many small ones.
    extra: u32,
    own: u32,
    /// What is given to the peer and not wanted any more.
    surplus: u32,
    stream: Probe,
    all: Probe,
    /// The time, and when data last came, in milliseconds.
    now: u64,
    came: u64,
    /// When the connection began, and the shortest round trip since.
    begun: u64,
    round: u64,
}

impl Growth {
    /// None yet, at `now` in milliseconds.
    pub(super) fn new(now: u64) -> Self {
        let (stream, all) = Default::default();
        Self { extra: 0, own: 0, surplus: 0, stream, all, now, came: now, begun: now, round: u64::MAX }
    }

    /// The peer has answered what was said at the begin.
    pub(super) fn agree(&mut self) {
        self.round = self.round.min(self.now.saturating_sub(self.begun));
    }

    /// Data came on a stream.
    #[inline]
    pub(super) fn came(&mut self, id: u32, n: usize) {
        self.came = self.now;
        self.stream.came(id, n, self.now);
        self.all.came(id, n, self.now);
    }

    /// What the window of the connection is larger by.
    pub(super) fn credit(&self) -> u32 {
        self.extra + self.surplus
    }

    /// Of `n` bytes that the user has done with, those that the peer may send again.
    pub(super) fn absorb(&mut self, n: u32) -> u32 {
        let less = n.min(self.surplus);
        self.surplus -= less;
        n - less
    }

    /// So much is not wanted any more.
    pub(super) fn withdraw(&mut self, n: u32) {
        self.extra -= n;
        self.surplus += n;
    }

    /// Whether the user takes what comes at once.
    fn is_prompt(&self) -> bool {
        self.now.saturating_sub(self.came) <= AT_ONCE
    }
}

impl<T> Connection<T> {
    /// The time, in milliseconds: to be said before something is released outside of [`Connection::receive`].
    pub fn set_time(&mut self, now: u64) {
        self.growth.now = now;
    }

    /// What the peer's content may need of memory beyond the first window of the connection, or has: what the windows are
    /// larger by, and at least [`Connection::unreleased`].
    #[must_use]
    pub fn claimed(&self) -> usize {
        self.unreleased().max(self.growth.credit() as usize)
    }

    /// Wants no more than the first windows, as memory is short. What was given the peer may still use.
    pub fn shrink(&mut self) {
        let own = std::mem::take(&mut self.growth.own);
        self.growth.withdraw(own);
        let least = self.config.stream_window;
        let mut less = 0;
        for stream in self.streams.all() {
            less += stream.flow.narrow(least);
        }
        self.growth.withdraw(less);
    }

    /// The window of a stream is opened, of which `ahead` bytes were left.
    pub(super) fn probe_stream(&mut self, id: u32, ahead: i64) {
        let most = self.config.growth;
        if most == 0 || !self.config.shared_window {
            return;
        }
        let least = self.config.stream_window;
        let Some(stream) = self.streams.get(id) else { return };
        let flow = &mut stream.flow;
        let more = stream.length.is_none_or(|left| left > flow.target.into());
        let may_grow = flow.wanted && more && flow.target.saturating_sub(least) < most;
        if may_grow
            && flow.held <= flow.target / 2
            && self.growth.is_prompt()
            && self.growth.stream.begin(id, ahead.max(0) as u64, self.growth.now)
        {
            self.output.frame(Kind::Ping, 0, 0, OF_STREAM);
        }
    }

    /// The window of the connection is opened, of which `ahead` bytes were left.
    pub(super) fn probe_all(&mut self, ahead: i64) {
        let window = self.config.connection_window + self.growth.extra;
        let may_grow = self.config.shared_window && self.growth.extra < self.config.growth;
        if may_grow
            && self.unreleased() <= window as usize / 2
            && self.growth.is_prompt()
            && self.growth.all.begin(0, ahead.max(0) as u64, self.growth.now)
        {
            self.output.frame(Kind::Ping, 0, 0, OF_ALL);
        }
    }

    /// The peer has answered a PING.
    pub(super) fn pong<H: Handler<T> + ?Sized>(&mut self, payload: &[u8], on: &mut H) {
        let now = self.growth.now;
        let stall = if payload == OF_STREAM {
            self.growth.stream.end(now, &mut self.growth.round)
        } else if payload == OF_ALL {
            self.growth.all.end(now, &mut self.growth.round)
        } else {
            None
        };
        match stall {
            Some(Stall { id: 0, times }) => self.grow_all(times, on),
            Some(Stall { id, times }) => self.grow_stream(id, times, on),
            None => {}
        }
    }

    fn grow_stream<H: Handler<T> + ?Sized>(&mut self, id: u32, times: u32, on: &mut H) {
        let Some(stream) = self.streams.live(id) else { return };
        if stream.remote == Remote::Ended || !stream.flow.wanted || stream.flow.held > stream.flow.target / 2
        {
            return;
        }
        let more = stream.flow.target.saturating_mul(times - 1);
        let left = stream.length.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX));
        let wanted = more.min(left.saturating_sub(stream.flow.target));
        let more = self.grant(wanted, on);
        if let Some(stream) = self.streams.live(id).filter(|_| more > 0) {
            stream.flow.target += more;
            stream.flow.grown += more;
            stream.flow.room += i64::from(more);
            let ahead = stream.flow.room - i64::from(more);
            self.output.window(id, more);
            self.probe_stream(id, ahead);
        }
    }

    fn grow_all<H: Handler<T> + ?Sized>(&mut self, times: u32, on: &mut H) {
        let window = self.config.connection_window + self.growth.extra;
        if self.unreleased() <= window as usize / 2 {
            self.growth.own += self.grant(window.saturating_mul(times - 1), on);
        }
    }

    /// Lets the peer send so much more on the connection, as far as there is room for it; gives how much that is.
    fn grant<H: Handler<T> + ?Sized>(&mut self, wanted: u32, on: &mut H) -> u32 {
        let growth = &mut self.growth;
        let wanted = wanted.min(self.config.growth.saturating_sub(growth.extra));
        // What the peer may send anyway was counted before.
        let again = growth.surplus.min(wanted);
        let fresh = on.grow((wanted - again) as usize).min((wanted - again) as usize) as u32;
        growth.surplus -= again;
        growth.extra += again + fresh;
        if fresh > 0 {
            self.flow.room += i64::from(fresh);
            self.output.window(0, fresh);
        }
        again + fresh
    }
}
