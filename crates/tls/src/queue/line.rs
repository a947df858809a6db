//! The order in which handshakes that wait are served. It has no clock and no tasks: time is an argument.
//!
//! While the first of them has waited for at most [`PATIENCE`], they are served first come, first served. Then there
//! is too much to do, and who waits depends on what the others want:
//!
//! - Handshakes that resume a session go first: they cost a third, and their clients were here before. One
//!   step in [`SHARE`] belongs to the others, so that replayed tickets do not keep them out.
//! - Among those that resume, and among the others, clients are served by what they have used: start-time fair queueing
//!   (Goyal, Vin, Cheng 1996). A handshake gets the virtual time at which its client has worked off the handshakes
//!   before it, and the earliest goes first. So a client with one handshake goes before the second of everybody else.
//! - Who would be served after its deadline is refused at once. It may be wrong about a client that has
//!   used more than others, and never about one that has used nothing.
//!
//! What clients have used is forgotten when nobody waits. All operations take time logarithmic in the number that
//! wait, which need about 200 bytes each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::usage::Usage;

/// How long the first may wait before the order changes, in nanoseconds.
const PATIENCE: u64 = 50_000_000;
/// One step in so many belongs to full handshakes while others resume.
const SHARE: u32 = 4;
/// What a step is taken to cost before one was measured, in nanoseconds: full, resumed.
const COSTS: [u64; 2] = [300_000, 100_000];
/// How much a new measurement counts: one part in so many.
const SMOOTH: u64 = 8;

/// Those that wait. `T` is what wakes one of them.
#[derive(Debug)]
pub(super) struct Line<T> {
    /// By number, in the order of their arrival.
    waiting: BTreeMap<u64, Waiter<T>>,
    /// Full handshakes, and those that resume.
    classes: [Class; 2],
    next: u64,
    chosen: Option<u64>,
    /// How many in a row were resumed while others waited.
    resumed: u32,
    /// When the last was chosen, and how long it takes from one to the next.
    chosen_at: Option<u64>,
    pace: u64,
}

#[derive(Debug)]
struct Waiter<T> {
    token: T,
    /// When it came.
    since: u64,
    /// Its virtual time.
    start: u64,
    client: IpAddr,
    resumes: bool,
    /// What was charged in advance.
    cost: u64,
}

/// Full handshakes, or those that resume.
#[derive(Debug)]
struct Class {
    /// By virtual time, then by number.
    order: BTreeSet<(u64, u64)>,
    usage: Usage,
    /// The virtual time of the last that was chosen.
    now: u64,
    /// The mean cost of a step.
    cost: u64,
}

/// What a handshake wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) client: IpAddr,
    pub(super) resumes: bool,
    /// How long it may wait, in nanoseconds.
    pub(super) patience: Option<u64>,
}

impl<T> Default for Line<T> {
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

impl<T> Line<T> {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Enters the line at `now`; gives the number of the place, or `None` if it would not be served in time.
    pub(super) fn enter(&mut self, wish: Wish, now: u64, token: T) -> Option<u64> {
        let Wish { client, resumes, patience } = wish;
        let late = self.is_late(now);
        let (pace, waiting) = (self.pace, self.waiting.len() as u64);
        let class = &mut self.classes[usize::from(resumes)];
        let cost = class.cost;
        let start = class.usage.start(client, class.now, cost);
        // What the client has to work off, with as much of each of the others.
        let own = start.saturating_sub(class.now) / cost.max(1);
        let ahead = own.saturating_mul(class.usage.len() as u64).min(waiting);
        if late && patience.is_some_and(|patience| ahead.saturating_mul(pace) > patience) {
            class.usage.correct(client, cost, 0);
            return None;
        }
        let number = self.next;
        self.next += 1;
        class.order.insert((start, number));
        self.waiting.insert(number, Waiter { token, since: now, start, client, resumes, cost });
        if self.chosen.is_none() {
            self.choose(now);
        }
        Some(number)
    }

    /// Whose turn it is. There is one as long as anybody waits.
    pub(super) fn chosen(&self) -> Option<u64> {
        self.chosen
    }

    /// What was charged in advance for a place.
    pub(super) fn cost(&self, number: u64) -> u64 {
        self.waiting.get(&number).map_or(0, |waiter| waiter.cost)
    }

    /// What wakes the one with this number.
    pub(super) fn token(&mut self, number: u64) -> Option<&mut T> {
        self.waiting.get_mut(&number).map(|waiter| &mut waiter.token)
    }

    /// Leaves the line, `served` or not. Where it was its turn, it is that of another one now, which is given.
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

    /// A step of `client` took `used` nanoseconds, for which it was charged `charged` in advance, or nothing.
    pub(super) fn charge(&mut self, client: IpAddr, resumes: bool, charged: u64, used: u64) {
        let class = &mut self.classes[usize::from(resumes)];
        class.usage.correct(client, charged, used);
        if charged > 0 {
            class.cost = smooth(class.cost, used).max(1);
        }
    }

    /// Nobody waits any more.
    fn rest(&mut self) {
        (self.chosen, self.chosen_at, self.resumed) = (None, None, 0);
        for class in &mut self.classes {
            class.usage.clear();
            class.now = 0;
        }
    }

    /// Whether the first has waited for too long.
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

    /// Whose turn it is by what clients have used.
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

/// The mean, after another value.
fn smooth(mean: u64, value: u64) -> u64 {
    mean - mean / SMOOTH + value / SMOOTH
}

#[cfg(test)]
mod tests;
