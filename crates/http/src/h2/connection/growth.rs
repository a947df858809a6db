//! Growth of receive windows with the bandwidth-delay product of the path (RFC 9113 §6.9), while the peer is
//! limited by a window and the caller consumes data at once. The SETTINGS at the start of a connection serve
//! as the first measurement, as they announce larger windows than the RFC's initial ones.
//!
//! The connection's window, which streams share ([`Config::shared_window`](super::Config::shared_window)),
//! grows with that of a stream, so that a stream that is not read any more does not block others. A granted
//! window cannot be taken back (a peer may use it at any time): what is not needed any more is a surplus,
//! which incoming data uses up. The owner of the connection is asked for memory first, and counts
//! [`Connection::claimed`].
//!
//! Where the connection's window is not shared (client), the caller sets the windows of streams and is told
//! what the path needs ([`Event::Stalled`]).

use super::streams::Stream;
use super::{Connection, Event, FIRST_WINDOW, Handler};
use crate::h2::Kind;
use crate::h2::probe::{Probe, RoundTrips, Stall};

/// Payloads of the PINGs sent along with WINDOW_UPDATE of a stream, and of the connection.
const OF_STREAM: &[u8; 8] = b"stream->";
const OF_ALL: &[u8; 8] = b"->window";
/// Maximum age of the last data when a window is opened, for a caller that counts as consuming at once, in
/// milliseconds.
const AT_ONCE: u64 = 20;

/// Growth of the windows beyond those of the configuration.
#[derive(Debug)]
pub(super) struct Growth {
    /// Growth of the connection's window, and the part of it that no single stream caused.
    extra: u32,
    own: u32,
    /// Growth that was granted to the peer and is not wanted any more.
    surplus: u32,
    /// Maximum growth of one stream while content arrives on several.
    share: u32,
    /// Largest stream window that the path was found to need.
    path: u32,
    stream: Probe,
    all: Probe,
    /// The current time, and the time of the last data, in milliseconds.
    now: u64,
    came: u64,
    /// Time when the connection began, in milliseconds, and the round trips since.
    begun: u64,
    rounds: RoundTrips,
}

impl Growth {
    /// No growth yet, at `now` in milliseconds; windows may grow by `most` bytes in total.
    pub(super) fn new(most: u32, now: u64) -> Self {
        let (stream, all) = Default::default();
        Self {
            extra: 0,
            own: 0,
            surplus: 0,
            share: most,
            path: 0,
            stream,
            all,
            now,
            came: now,
            begun: now,
            rounds: RoundTrips::NONE,
        }
    }

    /// Starts the first measurement: content arrives before the peer has acknowledged our settings.
    #[cold]
    pub(super) fn came_early(&mut self, id: u32) {
        self.stream.begin_first(id, FIRST_WINDOW.into(), self.begun, self.now);
    }

    /// Records the first round trip: the peer has acknowledged our settings. Returns the stream whose initial
    /// window limited the peer if `measured` is set; no other measurement has begun before.
    pub(super) fn agree(&mut self, measured: bool) -> Option<Stall> {
        let first = if measured { self.stream.end(self.now, &mut self.rounds) } else { None };
        if self.rounds.is_empty() {
            self.rounds.add(self.now.saturating_sub(self.begun));
        }
        first
    }

    /// Records `n` bytes of data on a stream; returns the current time.
    #[inline]
    pub(super) fn came(&mut self, id: u32, n: usize) -> u64 {
        if n > 0 {
            self.came = self.now;
        }
        self.stream.came(id, n, self.now);
        self.all.came(id, n, self.now);
        self.now
    }

    /// Maximum growth of one stream's window.
    pub(super) fn share(&self) -> u32 {
        self.share
    }

    /// Bytes by which the connection's window exceeds the configured one.
    pub(super) fn credit(&self) -> u32 {
        self.extra + self.surplus
    }

    /// Uses up the surplus with `n` consumed bytes; returns the bytes that the peer may send again.
    pub(super) fn absorb(&mut self, n: u32) -> u32 {
        let less = n.min(self.surplus);
        self.surplus -= less;
        n - less
    }

    /// Turns `n` bytes of growth into surplus.
    pub(super) fn withdraw(&mut self, n: u32) {
        self.extra -= n;
        self.surplus += n;
    }

    /// Returns true if the caller consumes data at once.
    fn is_prompt(&self) -> bool {
        self.now.saturating_sub(self.came) <= AT_ONCE
    }
}

impl<T> Connection<T> {
    /// Sets the time, in milliseconds; call it before releasing data outside of [`Connection::receive`].
    pub fn set_time(&mut self, now: u64) {
        self.growth.now = now;
    }

    /// Memory that the peer's content has or may claim: the growth of the windows, and at least
    /// [`Connection::unreleased`].
    #[must_use]
    pub fn claimed(&self) -> usize {
        self.unreleased().max(self.growth.credit() as usize)
    }

    /// Gives up the growth, as memory is short. The peer may still use what was granted.
    pub fn shrink(&mut self) {
        let own = std::mem::take(&mut self.growth.own);
        self.growth.path = 0;
        self.growth.withdraw(own);
        let least = self.config.stream_window;
        let mut less = 0;
        for stream in self.streams.all() {
            less += stream.flow.narrow(least);
        }
        self.growth.withdraw(less);
    }

    /// Starts a measurement as a stream's window is reopened, with `ahead` bytes left in it.
    pub(super) fn probe_stream(&mut self, id: u32, ahead: i64) {
        if self.growth.is_prompt() {
            self.measure_stream(id, ahead);
        }
    }

    fn measure_stream(&mut self, id: u32, ahead: i64) {
        let most = self.config.growth;
        if most == 0 || !self.growth.rounds.may_be_long() {
            return;
        }
        let least = self.config.stream_window;
        let Some(stream) = self.streams.get(id) else { return };
        let flow = &mut stream.flow;
        let more = stream.length.is_none_or(|left| left > flow.target.into());
        let may_grow =
            flow.dropped.is_none() && more && flow.target.saturating_sub(least) < self.growth.share;
        if may_grow
            && flow.held <= flow.target / 2
            && self.growth.stream.begin(id, flow.target.into(), ahead.max(0) as u64, self.growth.now)
        {
            self.outgoing.output.frame(Kind::Ping, 0, 0, OF_STREAM);
        }
    }

    /// Starts a measurement as the connection's window is reopened, with `ahead` bytes left in it.
    pub(super) fn probe_all(&mut self, ahead: i64) {
        let window = self.config.connection_window + self.growth.extra;
        let may_grow = self.config.shared_window && self.growth.extra < self.config.growth;
        if may_grow
            && self.growth.rounds.may_be_long()
            && self.unreleased() <= window as usize / 2
            && self.growth.is_prompt()
            && self.growth.all.begin(0, window.into(), ahead.max(0) as u64, self.growth.now)
        {
            self.outgoing.output.frame(Kind::Ping, 0, 0, OF_ALL);
        }
    }

    /// Handles the reply to a PING.
    pub(super) fn pong<H: Handler<T> + ?Sized>(&mut self, payload: &[u8], on: &mut H) {
        let now = self.growth.now;
        let stall = if payload == OF_STREAM {
            self.growth.stream.end(now, &mut self.growth.rounds)
        } else if payload == OF_ALL {
            self.growth.all.end(now, &mut self.growth.rounds)
        } else {
            None
        };
        match stall {
            Some(Stall { id: 0, window }) => self.grow_all(window, on),
            Some(Stall { id, window }) => self.grow_stream(id, window, on),
            None => {}
        }
    }

    /// Grows a stream's window after the first measurement: the RFC's initial window limited the peer.
    pub(super) fn grow_first<H: Handler<T> + ?Sized>(&mut self, stall: Stall, on: &mut H) {
        let target = self.streams.peek(stall.id).map_or(u32::MAX, |stream| stream.flow.target);
        if self.config.shared_window && self.config.growth > 0 && stall.window > target {
            self.grow_stream(stall.id, stall.window, on);
        }
    }

    /// Grows a stream's window, which limits the peer, to `target`, or notifies the caller. Streams on which
    /// content arrives at the same time have equal shares.
    fn grow_stream<H: Handler<T> + ?Sized>(&mut self, id: u32, target: u32, on: &mut H) {
        let shared = self.config.shared_window;
        let Some(stream) = self.streams.get(id).filter(|stream| stream.keeps_up()) else { return };
        if !shared {
            return on.event(id, &mut stream.user, Event::Stalled(target));
        }
        let since = self.growth.now.saturating_sub(self.growth.rounds.shortest().saturating_mul(2));
        let busy = |stream: &&Stream<T>| stream.id != id && stream.flow.came >= since && stream.keeps_up();
        // The walk is bounded by the maximum number of streams.
        let others = self.streams.iter().filter(busy).count() as u32;
        self.growth.share = self.config.growth / (others + 1);
        let ahead = self.streams.peek(id).map_or(0, |stream| stream.flow.room);
        // Other busy streams are measured in turn.
        if self.widen(id, target, on) && others == 0 {
            self.measure_stream(id, ahead);
        }
    }

    /// Grows a stream's window towards `target`, as far as its share and memory permit; returns true if it
    /// grew.
    fn widen<H: Handler<T> + ?Sized>(&mut self, id: u32, target: u32, on: &mut H) -> bool {
        let share = self.growth.share;
        let Some(stream) = self.streams.receiving(id) else { return false };
        let flow = &stream.flow;
        let left = stream.length.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX));
        let wanted = target.min(left).saturating_sub(flow.target).min(share.saturating_sub(flow.grown));
        let more = self.grant(wanted, on);
        let Some(stream) = self.streams.receiving(id).filter(|_| more > 0) else { return false };
        stream.flow.target += more;
        stream.flow.grown += more;
        stream.flow.room += i64::from(more);
        self.growth.path = self.growth.path.max(stream.flow.target);
        self.outgoing.output.window(id, more);
        true
    }

    /// Grows a stream's window, before it is announced, by the surplus that other streams have left behind, up
    /// to the largest window that the path was found to need.
    pub(super) fn inherit(&mut self, id: u32) {
        let growth = &mut self.growth;
        if growth.surplus == 0 || !growth.is_prompt() {
            return;
        }
        let Some(stream) = self.streams.get(id).filter(|stream| stream.keeps_up()) else { return };
        let flow = &mut stream.flow;
        let left = stream.length.map_or(u32::MAX, |left| u32::try_from(left).unwrap_or(u32::MAX));
        let wanted = growth.path.min(left).saturating_sub(flow.target);
        let more = wanted.min(growth.share.saturating_sub(flow.grown)).min(growth.surplus);
        growth.surplus -= more;
        growth.extra += more;
        flow.target += more;
        flow.grown += more;
        flow.owed += more;
    }

    fn grow_all<H: Handler<T> + ?Sized>(&mut self, target: u32, on: &mut H) {
        let window = self.config.connection_window + self.growth.extra;
        if self.unreleased() <= window as usize / 2 {
            self.growth.own += self.grant(target.saturating_sub(window), on);
        }
    }

    /// Grows the connection's window by up to `wanted` bytes, as far as memory permits; returns the growth.
    fn grant<H: Handler<T> + ?Sized>(&mut self, wanted: u32, on: &mut H) -> u32 {
        let growth = &mut self.growth;
        let wanted = wanted.min(self.config.growth.saturating_sub(growth.extra));
        // The surplus was counted before.
        let again = growth.surplus.min(wanted);
        let fresh = on.grow((wanted - again) as usize).min((wanted - again) as usize) as u32;
        growth.surplus -= again;
        growth.extra += again + fresh;
        if fresh > 0 {
            self.flow.room += i64::from(fresh);
            self.outgoing.output.window(0, fresh);
        }
        again + fresh
    }
}
