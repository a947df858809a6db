//! Accounting of an allowance that several connections share. Pure, except for [`Allowance::owes`], which
//! reads the clock.
//!
//! Each direction keeps two times. `end`, the end of the queue, is when everything reserved is worked off at
//! the rate; a new reservation is placed there. `passed` is when everything transferred is worked off; it may
//! be up to [`BURST`] ahead of the clock, and that is the bound (the generic cell rate algorithm). The two
//! differ after a waiting connection has left the queue: its time is free, and those behind it may take it.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::TransferDirection;
use crate::clock::monotonic;

/// Burst after a pause: the amount of this time.
pub const BURST: Duration = Duration::from_secs(1);
/// Poll interval of the first [`NEAR`] waiting connections: ten times a second, a delay that users do not
/// notice.
const LOOK: Duration = Duration::from_millis(100);
/// Each further `NEAR` places in the queue add one [`LOOK`] to the poll interval. Each poll wakes a task:
/// 10,000 waiting connections cause some 6,000 a second instead of 100,000.
const NEAR: u64 = 64;
/// Maximum poll interval: connections that want little overestimate the number of those ahead.
const LONGEST_LOOK: Duration = Duration::from_secs(4);
/// Free time of this length goes to whichever connection polls first. Timers fire with less delay than this,
/// so that no connection is overtaken once it is due.
const FREE: Duration = Duration::from_millis(50);
/// Minimum wait, the resolution of timers.
const TICK: Duration = Duration::from_millis(1);

/// Bandwidth that several connections share, for each direction separately. [`TransferDirection::In`] is the
/// direction from clients.
#[derive(Debug, Default)]
pub struct Allowance {
    ways: [DirectionQueue; 2],
}

/// Queue of one direction, in nanoseconds of the monotonic clock.
#[derive(Debug, Default)]
struct DirectionQueue {
    /// Time when everything reserved is worked off.
    end: AtomicU64,
    /// Time when everything transferred is worked off.
    passed: AtomicU64,
}

/// A reservation in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reservation {
    /// Time when it is worked off, together with everything reserved before it.
    end: u64,
    /// Duration of its own transfer at the rate.
    cost: u64,
}

/// Duration of a transfer of `bytes` bytes, in nanoseconds.
fn cost(bytes: usize, rate: NonZeroU64) -> u64 {
    (bytes as u64).saturating_mul(1_000_000_000) / rate
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Allowance {
    /// Reserves `bytes` bytes at `rate` bytes per second.
    pub(super) fn draw(
        &self,
        way: TransferDirection,
        bytes: usize,
        rate: NonZeroU64,
        now: Duration,
    ) -> Reservation {
        let (line, cost) = (&self.ways[way as usize], cost(bytes, rate));
        let least = line.passed.load(Ordering::Relaxed).max(nanos(now));
        Reservation { end: push(&line.end, least, cost), cost }
    }

    /// Time until the reservation is due or should be polled again; `None` if it may pass. `looks` is set
    /// after a first wait: from then on it may take free time.
    pub(super) fn wait(
        &self,
        way: TransferDirection,
        place: &mut Reservation,
        now: Duration,
        looks: bool,
    ) -> Option<Duration> {
        let (line, now, burst) = (&self.ways[way as usize], nanos(now), nanos(BURST));
        // The queue has become shorter than this place: connections ahead have left.
        place.end = place.end.min(line.end.load(Ordering::Relaxed));
        let due = place.end.saturating_sub(burst);
        // A reservation longer than the burst may pass once nothing else is owed.
        let room =
            line.passed.load(Ordering::Relaxed).saturating_add(place.cost.min(burst)).saturating_sub(burst);
        let free = looks && room.saturating_add(nanos(FREE)) <= now;
        let next = due.max(room);
        (next > now && !free).then(|| {
            let wait = next - now;
            Duration::from_nanos(wait).clamp(TICK, poll_interval(wait, place.cost))
        })
    }

    /// Accounts `bytes` transferred bytes.
    pub(super) fn pass(&self, way: TransferDirection, bytes: usize, rate: NonZeroU64, now: Duration) {
        push(&self.ways[way as usize].passed, nanos(now), cost(bytes, rate));
    }

    /// Returns reserved bytes that were not used.
    pub(super) fn give_back(&self, way: TransferDirection, bytes: usize, rate: NonZeroU64) {
        let cost = cost(bytes, rate);
        let before = |end: u64| Some(end.saturating_sub(cost));
        let _ = self.ways[way as usize].end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, before);
    }

    /// Returns true while reservations or transfers are ahead of the clock.
    #[must_use]
    pub fn owes(&self) -> bool {
        let now = nanos(monotonic());
        let owes = |time: &AtomicU64| time.load(Ordering::Relaxed) > now;
        self.ways.iter().any(|line| owes(&line.end) || owes(&line.passed))
    }

    /// Time when everything reserved of a direction is worked off.
    #[cfg(test)]
    pub(super) fn end(&self, way: TransferDirection) -> u64 {
        self.ways[way as usize].end.load(Ordering::Relaxed)
    }
}

/// Poll interval of a connection that has to wait for `wait`, with a grain that takes `cost`.
fn poll_interval(wait: u64, cost: u64) -> Duration {
    let ahead = wait / NEAR.saturating_mul(cost.max(1));
    let times = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
    LOOK.saturating_mul(times).min(LONGEST_LOOK)
}

/// Advances a time by `cost`, from `least` or its current value, whichever is later; returns the result.
fn push(time: &AtomicU64, least: u64, cost: u64) -> u64 {
    let next = |before: u64| before.max(least).saturating_add(cost);
    let before = time.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(next(before)));
    // The closure never returns `None`.
    next(before.unwrap_or(least))
}

#[cfg(test)]
mod tests;
