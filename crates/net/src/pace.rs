//! Bandwidth limits: an [`Allowance`] that connections share, and the share that one connection has reserved.
//!
//! A connection with data to move reserves a grain at a time, sleeps until the grain is due, and returns what
//! it did not use at once. So connections that share an allowance take turns, idle ones reserve nothing,
//! workers need no coordination, and nothing is locked. Waiting connections poll for time that
//! others have returned, ten times a second near the front of the queue.

mod allowance;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::clock::monotonic;
use allowance::Reservation;
pub use allowance::{Allowance, BURST};

/// A grain is the amount of a twentieth of a second, within these bounds.
const GRAINS_PER_SECOND: u64 = 20;
const LEAST_GRAIN: usize = 1024;
const MOST_GRAIN: usize = 64 * 1024;

/// Direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferDirection {
    /// Bytes read from the socket.
    In,
    /// Bytes written to the socket.
    Out,
}

/// The end at which bytes are counted: bytes read from a client are written to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSide {
    /// The connection to the client.
    Client,
    /// The connection to the server.
    Server,
}

impl ConnectionSide {
    /// Translates a direction of this end to that of the client's connection.
    fn of_client(self, way: TransferDirection) -> TransferDirection {
        match (self, way) {
            (Self::Client, way) => way,
            (Self::Server, TransferDirection::In) => TransferDirection::Out,
            (Self::Server, TransferDirection::Out) => TransferDirection::In,
        }
    }
}

/// Rate limiter of one connection or body.
pub struct BandwidthLimiter {
    allowance: Arc<Allowance>,
    rate: NonZeroU64,
    side: ConnectionSide,
    ways: [Drawn; 2],
    /// Time until which transfers were held back, in milliseconds of the monotonic clock; 0: never.
    waited_until: Cell<u64>,
}

/// Reservation of one direction.
#[derive(Default)]
struct Drawn {
    left: Cell<usize>,
    place: Cell<Reservation>,
    /// Runs until the reservation is due, or until the next poll for returned time.
    wait: RefCell<Option<Pin<Box<Sleep>>>>,
}

impl BandwidthLimiter {
    /// Creates a limiter with `rate` bytes per second. `side` is the end at which the bytes are counted.
    #[must_use]
    pub fn new(allowance: Arc<Allowance>, rate: NonZeroU64, side: ConnectionSide) -> Self {
        Self { allowance, rate, side, ways: Default::default(), waited_until: Cell::new(0) }
    }

    fn grain(&self) -> usize {
        let grain = self.rate.get() / GRAINS_PER_SECOND;
        usize::try_from(grain).unwrap_or(MOST_GRAIN).clamp(LEAST_GRAIN, MOST_GRAIN)
    }

    fn draw(&self, way: TransferDirection, bytes: usize, now: Duration) -> Reservation {
        self.allowance.draw(self.side.of_client(way), bytes, self.rate, now)
    }

    /// Reserves a grain for `wanted` bytes and returns the time until it is due or polled again; `None` if it may pass.
    fn begin(&self, way: TransferDirection, wanted: usize, now: Duration) -> Option<Duration> {
        let (drawn, grain) = (&self.ways[way as usize], wanted.clamp(1, self.grain()));
        drawn.place.set(self.draw(way, grain, now));
        drawn.left.set(grain);
        self.wait(way, false, now)
    }

    /// Time until the reservation of a direction is due or polled again; `None` if it may pass.
    fn wait(&self, way: TransferDirection, looks: bool, now: Duration) -> Option<Duration> {
        let drawn = &self.ways[way as usize];
        let mut place = drawn.place.get();
        let wait = self.allowance.wait(self.side.of_client(way), &mut place, now, looks);
        drawn.place.set(place);
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(0);
        let waits = wait.map_or(0, |wait| milliseconds(wait) + 1);
        if waits > 0 || looks {
            // The other direction may be held back for longer.
            self.waited_until.set(self.waited_until.get().max(milliseconds(now) + waits));
        }
        wait
    }

    /// Returns how many of `wanted` bytes, which are ready to be moved, may pass now; waits until at least
    /// one may. Call [`BandwidthLimiter::spend`] after the transfer.
    pub fn poll_room(&self, cx: &mut Context<'_>, way: TransferDirection, wanted: usize) -> Poll<usize> {
        let drawn = &self.ways[way as usize];
        let mut timer = drawn.wait.borrow_mut();
        if drawn.left.get() == 0 {
            *timer = self.begin(way, wanted, monotonic()).map(|wait| Box::pin(sleep(wait)));
        }
        while let Some(running) = &mut *timer {
            ready!(running.as_mut().poll(cx));
            match self.wait(way, true, monotonic()) {
                Some(wait) => running.as_mut().reset(Instant::now() + wait),
                None => *timer = None,
            }
        }
        Poll::Ready(drawn.left.get().min(wanted))
    }

    /// Accounts `bytes` transferred bytes, which may exceed the permitted ones, and returns the rest of the
    /// reservation.
    pub fn spend(&self, way: TransferDirection, bytes: usize) {
        let left = self.ways[way as usize].left.take();
        let side = self.side.of_client(way);
        match bytes.checked_sub(left) {
            Some(0) => {}
            // The excess delays the next reservation.
            Some(more) => _ = self.draw(way, more, monotonic()),
            None => self.allowance.give_back(side, left - bytes, self.rate),
        }
        if bytes > 0 {
            self.allowance.pass(side, bytes, self.rate, monotonic());
        }
    }

    /// Time until which a transfer was held back, in milliseconds of the monotonic clock, which the coarse one follows by
    /// [`COARSE_MS`](crate::clock::COARSE_MS): 0 if none was; for a transfer that still waits, the time of its next poll,
    /// which is seconds away at most. An abandoned transfer counts until then only.
    #[must_use]
    pub fn waited_until(&self) -> u64 {
        self.waited_until.get()
    }
}

impl Drop for BandwidthLimiter {
    fn drop(&mut self) {
        self.spend(TransferDirection::In, 0);
        self.spend(TransferDirection::Out, 0);
    }
}

impl fmt::Debug for BandwidthLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("rate", &self.rate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
