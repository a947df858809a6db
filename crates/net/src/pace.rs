//! How fast bytes may pass: an [`Allowance`] that connections share, and the part of it that one of them has drawn.
//!
//! Who has something to move draws a grain of it at a time, waits by a timer until the grain is due, and gives back at once
//! what it did not use. So those that share an allowance take turns, who has nothing to move holds nothing, each worker
//! works for itself, and nothing is locked. Who waits looks ten times a second whether others have given theirs back.

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

use crate::clock::{coarse_ms, monotonic};
use allowance::Place;
pub use allowance::{Allowance, BURST};

/// A grain is what passes in a twentieth of a second, within these bounds.
const GRAINS_PER_SECOND: u64 = 20;
const LEAST_GRAIN: usize = 1024;
const MOST_GRAIN: usize = 64 * 1024;

/// A direction of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What is read from it.
    In,
    /// What is written to it.
    Out,
}

/// Which end of a connection or a request bytes are counted at: what comes in from a client goes out to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

impl Side {
    /// A direction of this side as the client's side has it.
    fn of_client(self, way: Way) -> Way {
        match (self, way) {
            (Self::Client, way) => way,
            (Self::Server, Way::In) => Way::Out,
            (Self::Server, Way::Out) => Way::In,
        }
    }
}

/// The pace of one connection, or of one body.
pub struct Pace {
    allowance: Arc<Allowance>,
    rate: NonZeroU64,
    side: Side,
    ways: [Drawn; 2],
    /// Until when something waits or has waited, in milliseconds of the coarse clock; 0: never.
    waited_until: Cell<u64>,
}

/// What one direction has drawn.
#[derive(Default)]
struct Drawn {
    left: Cell<usize>,
    place: Cell<Place>,
    /// Runs until that is due, or it is time to look whether others have left.
    wait: RefCell<Option<Pin<Box<Sleep>>>>,
}

impl Pace {
    /// `rate` is in bytes per second. `side` is where the bytes are counted.
    #[must_use]
    pub fn new(allowance: Arc<Allowance>, rate: NonZeroU64, side: Side) -> Self {
        Self { allowance, rate, side, ways: Default::default(), waited_until: Cell::new(0) }
    }

    fn grain(&self) -> usize {
        let grain = self.rate.get() / GRAINS_PER_SECOND;
        usize::try_from(grain).unwrap_or(MOST_GRAIN).clamp(LEAST_GRAIN, MOST_GRAIN)
    }

    fn draw(&self, way: Way, bytes: usize) -> Place {
        self.allowance.draw(self.side.of_client(way), bytes, self.rate, monotonic())
    }

    /// How long what was drawn of a direction waits, or until it looks again; nothing where it may pass.
    fn wait(&self, way: Way, looks: bool) -> Option<Duration> {
        let drawn = &self.ways[way as usize];
        let mut place = drawn.place.get();
        let wait = self.allowance.wait(self.side.of_client(way), &mut place, monotonic(), looks);
        drawn.place.set(place);
        let waits = wait.map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(0) + 1);
        if waits > 0 || looks {
            // The other direction may wait for longer.
            self.waited_until.set(self.waited_until.get().max(coarse_ms() + waits));
        }
        wait
    }

    /// How many of `wanted` bytes may pass now, which are there to be moved; waits until some may. At least one, where
    /// one is wanted. [`Pace::spend`] follows.
    pub fn poll_room(&self, cx: &mut Context<'_>, way: Way, wanted: usize) -> Poll<usize> {
        let drawn = &self.ways[way as usize];
        let mut timer = drawn.wait.borrow_mut();
        if drawn.left.get() == 0 {
            let grain = wanted.clamp(1, self.grain());
            drawn.place.set(self.draw(way, grain));
            drawn.left.set(grain);
            *timer = self.wait(way, false).map(|wait| Box::pin(sleep(wait)));
        }
        while let Some(running) = &mut *timer {
            ready!(running.as_mut().poll(cx));
            match self.wait(way, true) {
                Some(wait) => running.as_mut().reset(Instant::now() + wait),
                None => *timer = None,
            }
        }
        Poll::Ready(drawn.left.get().min(wanted))
    }

    /// So many bytes have passed, which may be more than there was room for. What is left of the room is given back.
    pub fn spend(&self, way: Way, bytes: usize) {
        let left = self.ways[way as usize].left.take();
        let side = self.side.of_client(way);
        match bytes.checked_sub(left) {
            Some(0) => {}
            // Whoever draws next waits for it.
            Some(more) => _ = self.draw(way, more),
            None => self.allowance.give_back(side, left - bytes, self.rate),
        }
        if bytes > 0 {
            self.allowance.pass(side, bytes, self.rate, monotonic());
        }
    }

    /// Until when something that was there to be moved has waited, in milliseconds of the coarse clock: where it still
    /// waits, until it looks again, at most a tenth of a second from now. 0: nothing has waited. What waits and is no longer
    /// asked for counts until then only.
    #[must_use]
    pub fn waited_until(&self) -> u64 {
        self.waited_until.get()
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.spend(Way::In, 0);
        self.spend(Way::Out, 0);
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("rate", &self.rate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
