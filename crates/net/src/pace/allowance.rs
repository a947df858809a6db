//! What several share, and whose turn it is: pure, but for the clock that its user asks.
//!
//! Two times are kept for each direction. One is the end of the line: when everything that was drawn is worked off at the
//! rate. Who draws gets its place there. The other one is when everything that has passed is worked off; it may be up to
//! [`BURST`] ahead of the clock, and that is the bound (the generic cell rate algorithm). The two differ where somebody
//! has left the line: its time is free, and who comes behind it takes it.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Way;
use crate::clock::monotonic;

/// What may pass at once after a pause: as much as in this time.
pub const BURST: Duration = Duration::from_secs(1);
/// How often those that wait look whether others have left, if they are among the first [`NEAR`]: ten times a second, and a
/// user does not notice the rest.
const LOOK: Duration = Duration::from_millis(100);
/// As many places farther back, a look comes [`LOOK`] later. Each look wakes a task: with 10,000 that wait these are some
/// 6,000 a second, and not 100,000.
const NEAR: u64 = 64;
/// The longest time between two looks: who wants little takes those ahead for more than they are.
const LONGEST_LOOK: Duration = Duration::from_secs(4);
/// Time that nobody has used for so long is for whoever sees it first. Timers are late by less, so that nobody is overtaken
/// whose time has come.
const FREE: Duration = Duration::from_millis(50);
/// The least wait: timers are no finer.
const TICK: Duration = Duration::from_millis(1);

/// What several may move together, in each direction for itself. [`Way::In`] is what comes from clients.
#[derive(Debug, Default)]
pub struct Allowance {
    ways: [Line; 2],
}

/// One direction, in nanoseconds of the monotonic clock.
#[derive(Debug, Default)]
struct Line {
    /// When what was drawn is worked off.
    end: AtomicU64,
    /// When what has passed is.
    passed: AtomicU64,
}

/// What somebody has drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// When it is worked off, together with all that was drawn before.
    end: u64,
    /// How long it takes by itself.
    cost: u64,
}

/// How long so many bytes take, in nanoseconds.
fn cost(bytes: usize, rate: NonZeroU64) -> u64 {
    (bytes as u64).saturating_mul(1_000_000_000) / rate
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Allowance {
    /// Draws so many bytes at `rate` bytes per second.
    pub(super) fn draw(&self, way: Way, bytes: usize, rate: NonZeroU64, now: Duration) -> Place {
        let (line, cost) = (&self.ways[way as usize], cost(bytes, rate));
        let least = line.passed.load(Ordering::Relaxed).max(nanos(now));
        Place { end: push(&line.end, least, cost), cost }
    }

    /// For how long the owner of a place waits before it may pass or looks again; nothing where it may pass. `looks`: it
    /// has waited, and may take time that is free.
    pub(super) fn wait(&self, way: Way, place: &mut Place, now: Duration, looks: bool) -> Option<Duration> {
        let (line, now, burst) = (&self.ways[way as usize], nanos(now), nanos(BURST));
        // Nobody is behind the end of the line: those ahead have left.
        place.end = place.end.min(line.end.load(Ordering::Relaxed));
        let due = place.end.saturating_sub(burst);
        // What takes longer than a burst by itself passes when nothing else is owed.
        let room =
            line.passed.load(Ordering::Relaxed).saturating_add(place.cost.min(burst)).saturating_sub(burst);
        let free = looks && room.saturating_add(nanos(FREE)) <= now;
        let next = due.max(room);
        (next > now && !free).then(|| {
            let wait = next - now;
            Duration::from_nanos(wait).clamp(TICK, look(wait, place.cost))
        })
    }

    /// So many bytes have passed.
    pub(super) fn pass(&self, way: Way, bytes: usize, rate: NonZeroU64, now: Duration) {
        push(&self.ways[way as usize].passed, nanos(now), cost(bytes, rate));
    }

    /// Gives back what was drawn and not used.
    pub(super) fn give_back(&self, way: Way, bytes: usize, rate: NonZeroU64) {
        let cost = cost(bytes, rate);
        let before = |end: u64| Some(end.saturating_sub(cost));
        let _ = self.ways[way as usize].end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, before);
    }

    /// Whether more was drawn than is worked off by now.
    #[must_use]
    pub fn owes(&self) -> bool {
        let now = nanos(monotonic());
        let owes = |time: &AtomicU64| time.load(Ordering::Relaxed) > now;
        self.ways.iter().any(|line| owes(&line.end) || owes(&line.passed))
    }

    /// When what was drawn of a direction is worked off.
    #[cfg(test)]
    pub(super) fn end(&self, way: Way) -> u64 {
        self.ways[way as usize].end.load(Ordering::Relaxed)
    }
}

/// When who has so long to wait, and whose own grain takes `cost`, looks whether others have left.
fn look(wait: u64, cost: u64) -> Duration {
    let ahead = wait / NEAR.saturating_mul(cost.max(1));
    let times = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
    LOOK.saturating_mul(times).min(LONGEST_LOOK)
}

/// Moves a time on by `cost`, from `least` at the least; gives what it is then.
fn push(time: &AtomicU64, least: u64, cost: u64) -> u64 {
    let next = |before: u64| before.max(least).saturating_add(cost);
    let before = time.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(next(before)));
    // The function always gives a value.
    next(before.unwrap_or(least))
}

#[cfg(test)]
mod tests;
