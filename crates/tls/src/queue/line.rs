//! The order in which waiting handshakes are served. Pure: it has neither a clock nor tasks; time is an
//! argument.
//!
//! While the first of them has waited for at most [`PATIENCE`], they are served in order of arrival. Beyond
//! that the worker is overloaded, and other rules apply:
//!
//! - Handshakes that resume a session go first: they cost a third, and their clients were here before. One
//!   step in [`SHARE`] is reserved for the others, so that replayed tickets do not lock them out.
//! - Within each class, clients are served by their past usage: start-time fair queueing (Goyal, Vin, Cheng
//!   1996). A handshake gets the virtual time at which its client has worked off its previous ones, and the
//!   earliest goes first. So a client with one handshake precedes the second one of every other client.
//! - A handshake that would be served after its deadline is rejected at once. The estimate may be wrong for a
//!   client that has used more than others, but never for one that has used nothing.
//!
//! Usage is forgotten when the line is empty. All operations take time logarithmic in the number of waiting
//! handshakes, each of which needs about 200 bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::usage::Usage;

/// Longest wait of the first handshake before the order changes, in nanoseconds.
const PATIENCE: u64 = 50_000_000;
/// One step of this many is reserved for full handshakes while others resume.
const SHARE: u32 = 4;
/// Assumed costs of a step before any was measured, in nanoseconds: full, resumed.
const COSTS: [u64; 2] = [300_000, 100_000];
/// Weight of a new measurement: one part in this many.
const SMOOTH: u64 = 8;

/// Waiting handshakes. `T` is the means to wake one.
#[derive(Debug)]
pub(super) struct HandshakeBacklog<T> {
    /// By number, in order of arrival.
    waiting: BTreeMap<u64, QueueEntry<T>>,
    /// Full handshakes, and resumptions.
    classes: [Class; 2],
    next: u64,
    chosen: Option<u64>,
    /// Number of consecutive resumptions while full handshakes waited.
    resumed: u32,
    /// Time of the last choice, and the mean time between choices.
    chosen_at: Option<u64>,
    pace: u64,
}

#[derive(Debug)]
struct QueueEntry<T> {
    token: T,
    /// Time of arrival, in nanoseconds.
    since: u64,
    /// Start in virtual time, in nanoseconds.
    start: u64,
    client: IpAddr,
    resumes: bool,
    /// Cost charged in advance.
    cost: u64,
}

/// Either full handshakes or resumptions.
#[derive(Debug)]
struct Class {
    /// By virtual time, then by number.
    order: BTreeSet<(u64, u64)>,
    usage: Usage,
    /// Virtual time of the last chosen handshake.
    now: u64,
    /// Mean cost of a step.
    cost: u64,
}

/// A handshake that asks for a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnRequest {
    pub(super) client: IpAddr,
    pub(super) resumes: bool,
    /// Longest acceptable wait, in nanoseconds.
    pub(super) patience: Option<u64>,
}

impl<T> Default for HandshakeBacklog<T> {
    fn default() -> Self {
        let class = |cost| Class { order: BTreeSet::new(), usage: Usage::default(), now: 0, cost };
        Self {
            waiting: BTreeMap::new(),
            classes: COSTS.map(class),
            next: 0,
            chosen: None,
            resumed: 0,
            chosen_at: None,
            pace: COSTS[0],
        }
    }
}

impl<T> HandshakeBacklog<T> {
    /// Number of waiting handshakes.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true without waiting handshakes.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Enters the line at `now`; returns its number, or `None` if it would not be served in time.
    pub(super) fn enter(&mut self, request: TurnRequest, now: u64, token: T) -> Option<u64> {
        let TurnRequest { client, resumes, patience } = request;
        let late = self.is_late(now);
        let (pace, waiting) = (self.pace, self.waiting.len() as u64);
        let class = &mut self.classes[usize::from(resumes)];
        let cost = class.cost;
        let start = class.usage.start(client, class.now, cost);
        // Time that the client has to work off, together with an equal share of every other client.
        let own = start.saturating_sub(class.now) / cost.max(1);
        let ahead = own.saturating_mul(class.usage.len() as u64).min(waiting);
        if late && patience.is_some_and(|patience| ahead.saturating_mul(pace) > patience) {
            class.usage.correct(client, cost, 0);
            return None;
        }
        let number = self.next;
        self.next += 1;
        class.order.insert((start, number));
        self.waiting.insert(number, QueueEntry { token, since: now, start, client, resumes, cost });
        if self.chosen.is_none() {
            self.choose(now);
        }
        Some(number)
    }

    /// The handshake that has its turn. There is one while any waits.
    pub(super) fn chosen(&self) -> Option<u64> {
        self.chosen
    }

    /// Cost charged in advance to a handshake.
    pub(super) fn cost(&self, number: u64) -> u64 {
        self.waiting.get(&number).map_or(0, |waiter| waiter.cost)
    }

    /// The means to wake a handshake.
    pub(super) fn token(&mut self, number: u64) -> Option<&mut T> {
        self.waiting.get_mut(&number).map(|waiter| &mut waiter.token)
    }

    /// Leaves the line, `served` or not. If it was its turn, the next one is chosen and returned.
    pub(super) fn leave(&mut self, number: u64, served: bool, now: u64) -> Option<&T> {
        let waiter = self.waiting.remove(&number)?;
        let class = &mut self.classes[usize::from(waiter.resumes)];
        class.order.remove(&(waiter.start, number));
        if !served {
            class.usage.correct(waiter.client, waiter.cost, 0);
        }
        if self.waiting.is_empty() {
            self.rest();
            return None;
        }
        if self.chosen != Some(number) {
            return None;
        }
        self.choose(now);
        let chosen = self.chosen?;
        self.waiting.get(&chosen).map(|waiter| &waiter.token)
    }

    /// Accounts a step of `client` that took `used` nanoseconds, for which `charged` was charged in advance.
    pub(super) fn charge(&mut self, client: IpAddr, resumes: bool, charged: u64, used: u64) {
        let class = &mut self.classes[usize::from(resumes)];
        class.usage.correct(client, charged, used);
        if charged > 0 {
            class.cost = smooth(class.cost, used).max(1);
        }
    }

    /// Resets the state of an empty line.
    fn rest(&mut self) {
        (self.chosen, self.chosen_at, self.resumed) = (None, None, 0);
        for class in &mut self.classes {
            class.usage.clear();
            class.now = 0;
        }
    }

    /// Returns true if the first handshake has waited for too long.
    fn is_late(&self, now: u64) -> bool {
        self.waiting.first_key_value().is_some_and(|(_, first)| now.saturating_sub(first.since) > PATIENCE)
    }

    fn choose(&mut self, now: u64) {
        if let Some(before) = self.chosen_at.replace(now) {
            self.pace = smooth(self.pace, now.saturating_sub(before));
        }
        let number = if self.is_late(now) { self.fairest() } else { None };
        self.chosen = number.or_else(|| self.waiting.keys().next().copied());
        if let Some(waiter) = self.chosen.and_then(|number| self.waiting.get(&number)) {
            let class = &mut self.classes[usize::from(waiter.resumes)];
            class.now = class.now.max(waiter.start);
        }
    }

    /// Chooses by past usage of the clients.
    fn fairest(&mut self) -> Option<u64> {
        let [full, resumed] =
            [0, 1].map(|class: usize| self.classes[class].order.first().map(|first| first.1));
        match (full, resumed) {
            (Some(full), Some(resumed)) => {
                self.resumed = (self.resumed + 1) % SHARE;
                Some(if self.resumed == 0 { full } else { resumed })
            }
            (full, resumed) => full.or(resumed),
        }
    }
}

/// Updates a mean by another value.
fn smooth(mean: u64, value: u64) -> u64 {
    mean - mean / SMOOTH + value / SMOOTH
}

#[cfg(test)]
mod tests;
