//! Detection of windows that limit the peer.
//!
//! A PING accompanies a WINDOW_UPDATE. Until the peer has received that, it can send no more than was
//! permitted before. If all of this, or most of the window, has arrived by the time of the reply, the peer
//! had to wait, or was about to. The time that it took to arrive, and the round trip, determine how much could
//! have arrived meanwhile. The window should be twice that.

/// Minimum and maximum factor by which a window grows at a time.
const LEAST_TIMES: u64 = 2;
const MOST_TIMES: u64 = 16;
/// Shortest time that counts, in milliseconds: clocks are coarse.
const BLUR: u64 = 5;
/// Round trip below which the initial windows suffice, in milliseconds.
const LEAST_ROUND: u64 = 4;
/// Sum of round trips, each counted as the shortest one, that shows a path to be long, in milliseconds. A late
/// wake-up, or a clock of 4 ms, makes a single short round trip look longer; the same is rare several times in
/// a row. One measurement suffices for a long path, and a shorter one takes no more time for its several.
const SURE: u64 = 32;
/// Maximum number of WINDOW_UPDATE without a PING between two measurements, which become rarer while they
/// find nothing.
const MOST_PAUSE: u32 = 64;

/// Round trips of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundTrips {
    /// The shortest one, in milliseconds: longer ones include other delays.
    shortest: u64,
    count: u32,
}

impl RoundTrips {
    pub(super) const NONE: Self = Self { shortest: u64::MAX, count: 0 };

    /// Records a round trip, in milliseconds.
    pub(super) fn add(&mut self, round: u64) {
        self.shortest = round.min(self.shortest);
        self.count = self.count.saturating_add(1);
    }

    pub(super) fn shortest(&self) -> u64 {
        self.shortest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns false once the path is known to be so short that the initial windows limit no peer.
    pub(super) fn may_be_long(&self) -> bool {
        self.shortest >= LEAST_ROUND
    }

    /// Returns true if no accident can have made the path look longer than [`LEAST_ROUND`].
    fn are_surely_long(&self) -> bool {
        self.may_be_long() && self.shortest.saturating_mul(self.count.into()) >= SURE
    }
}

/// Repeated measurements of one path.
#[derive(Debug, Default)]
pub(super) struct Probe {
    measure: Option<Measure>,
    /// Number of WINDOW_UPDATE of a stream without a PING, and how many of those are left.
    pause: u32,
    left: u32,
    last: u32,
}

/// A measurement under way.
#[derive(Clone, Copy, Debug)]
struct Measure {
    id: u32,
    /// Size of the window, in bytes.
    window: u64,
    /// Bytes that the peer may send before it sees the WINDOW_UPDATE, and those received since. Counted up to
    /// [`most_of`] the window: earlier WINDOW_UPDATE may still be under way.
    ahead: u64,
    came: u64,
    /// Start time, the time from which incoming bytes count, and the time when all of these had arrived, in
    /// milliseconds.
    begun: u64,
    since: u64,
    used: Option<u64>,
}

/// A window that limits the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stall {
    /// Stream of the window; 0: the connection.
    pub(super) id: u32,
    /// Size that it should have, in bytes.
    pub(super) window: u32,
}

impl Probe {
    /// Starts a measurement with a WINDOW_UPDATE for a window of `window` bytes sent at `now`, before whose
    /// arrival the peer may send `ahead` bytes. Returns true if a PING is to be sent, too.
    pub(super) fn begin(&mut self, id: u32, window: u64, ahead: u64, now: u64) -> bool {
        if self.measure.is_some() {
            return false;
        }
        if self.last != id {
            (self.last, self.pause, self.left) = (id, 0, 0);
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        let used = (ahead == 0).then_some(now);
        let ahead = ahead.min(most_of(window));
        self.measure = Some(Measure { id, window, ahead, came: 0, begun: now, since: now, used });
        true
    }

    /// Starts the measurement of the SETTINGS sent at `begun`, as the first content arrives at `now`. Until
    /// the peer has received them, it may send `window` bytes.
    pub(super) fn begin_first(&mut self, id: u32, window: u64, begun: u64, now: u64) {
        let measure = Measure { id, window, ahead: window, came: 0, begun, since: now, used: None };
        self.measure.get_or_insert(measure);
    }

    /// Records `n` bytes of content on a stream.
    #[inline]
    pub(super) fn came(&mut self, id: u32, n: usize, now: u64) {
        if let Some(measure) = &mut self.measure
            && (measure.id == id || measure.id == 0)
        {
            measure.came += n as u64;
            if measure.used.is_none() && measure.came >= measure.ahead {
                measure.used = Some(now);
            }
        }
    }

    /// Evaluates the reply to the PING, and adds its round trip to those of the connection.
    pub(super) fn end(&mut self, now: u64, rounds: &mut RoundTrips) -> Option<Stall> {
        let Measure { id, window, ahead, begun, since, used, .. } = self.measure.take()?;
        rounds.add(now.saturating_sub(begun));
        let Some(used) = used.filter(|_| rounds.may_be_long()) else {
            self.pause = (self.pause * 2).clamp(1, MOST_PAUSE);
            self.left = self.pause;
            return None;
        };
        self.pause = 0;
        if !rounds.are_surely_long() {
            return None;
        }
        let took = used.saturating_sub(since).max(BLUR);
        // A peer that had nothing left shows no rate: half of its window was the last to arrive.
        let ahead = if ahead == 0 { window / 2 } else { ahead };
        let wanted = 2 * ahead * rounds.shortest() / took;
        let wanted = wanted.clamp(window * LEAST_TIMES, window * MOST_TIMES);
        Some(Stall { id, window: u32::try_from(wanted).unwrap_or(u32::MAX) })
    }
}

/// Part of a window whose arrival within a round trip counts as all of it.
fn most_of(window: u64) -> u64 {
    window * 2 / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a sender that fills its window at `rate` bytes per millisecond over a round trip of `round`;
    /// returns the window after each reply. The receiver reopens the window when half of it is used.
    fn windows(rate: u64, round: u64, first: u64, most: u64) -> Vec<u64> {
        let (mut probe, mut window, mut now, mut all) = (Probe::default(), first, 0, vec![first]);
        let mut rounds = RoundTrips::NONE;
        for _ in 0..40 {
            // Half of the window is under way when the WINDOW_UPDATE is sent.
            if !probe.begin(1, window, window / 2, now) {
                now += 1;
                continue;
            }
            let mut left = window / 2;
            for _ in 0..round {
                now += 1;
                let n = rate.min(left);
                left -= n;
                probe.came(1, n as usize, now);
            }
            if let Some(stall) = probe.end(now, &mut rounds) {
                window = u64::from(stall.window).min(most);
                all.push(window);
            }
            if window == most {
                break;
            }
        }
        all
    }

    #[test]
    fn windows_grow_with_the_path_and_no_further() {
        const KIB: u64 = 1024;
        for (rate, round, last) in [
            // 1 Gbit/s and 100 Mbit/s over 50 ms, 10 Mbit/s over 200 ms, 1 Gbit/s over 8 ms.
            (125_000, 50, 8 * 1024 * KIB..=8 * 1024 * KIB),
            (12_500, 50, 1250 * KIB..=5000 * KIB),
            (1250, 200, 500 * KIB..=2000 * KIB),
            (125_000, 8, 2048 * KIB..=4096 * KIB),
            // 10 Mbit/s over 20 ms and 1 Gbit/s over 1 ms need no growth.
            (125_000, 1, 256 * KIB..=256 * KIB),
            (1250, 20, 256 * KIB..=256 * KIB),
        ] {
            let all = windows(rate, round, 256 * KIB, 8 * 1024 * KIB);
            assert!(last.contains(all.last().unwrap()), "{rate} {round}: {all:?}");
            // A few round trips suffice.
            assert!(all.len() <= 5, "{rate} {round}: {all:?}");
        }
    }

    #[test]
    fn measurements_that_find_nothing_become_rare() {
        let (mut probe, mut pings, mut rounds) = (Probe::default(), 0, RoundTrips::NONE);
        for now in 0..1000 {
            if probe.begin(1, 2000, 1000, now) {
                pings += 1;
                probe.came(1, 999, now);
                // Content of other streams does not count.
                probe.came(3, 999, now);
                assert_eq!(probe.end(now + 50, &mut rounds), None);
            }
        }
        assert!((7..=22).contains(&pings), "{pings}");
        while !probe.begin(0, 2000, 1000, 5000) {}
        assert!(!probe.begin(0, 2000, 0, 5001), "one at a time");
        probe.came(1, 500, 5020);
        probe.came(3, 500, 5025);
        assert_eq!(
            (probe.end(5200, &mut rounds), rounds.shortest()),
            (Some(Stall { id: 0, window: 4000 }), 50)
        );
        assert!(probe.begin(1, 2000, 0, 5200), "one that has found something is soon followed by another");
        assert_eq!(probe.end(5300, &mut rounds), Some(Stall { id: 1, window: 20_000 }));
        assert_eq!(probe.end(5300, &mut rounds), None);
        // The delay was not caused by the path.
        assert!(probe.begin(1, 2000, 0, 5400));
        assert_eq!((probe.end(5402, &mut rounds), rounds.shortest()), (None, 2));
        // The rest of a large window shows the rate like half of a small one.
        let (mut probe, mut rounds) = (Probe::default(), RoundTrips { shortest: 50, count: 1 });
        assert!(probe.begin(1, 2000, 2000, 0));
        probe.came(1, 2000, 20);
        assert_eq!(probe.end(50, &mut rounds), Some(Stall { id: 1, window: 6665 }));
        // Content that starts late is not slow.
        probe.begin_first(1, 1000, 100, 125);
        probe.came(1, 1000, 130);
        assert_eq!(probe.end(150, &mut rounds), Some(Stall { id: 1, window: 16_000 }));
    }

    /// A short path whose first round trips look longer, as a process woke up late or a clock is coarse, grows no
    /// window; a long one does after as many round trips as fit into [`SURE`].
    #[test]
    fn a_late_reply_makes_no_path_long() {
        let growing = |rounds: &[u64]| {
            let (mut probe, mut trips, mut now) = (Probe::default(), RoundTrips::NONE, 0);
            rounds.iter().position(|round| {
                assert!(probe.begin(1, 2000, 0, now), "a measurement follows at once");
                now += round;
                probe.end(now, &mut trips).is_some()
            })
        };
        assert_eq!(growing(&[30]), None);
        assert_eq!(growing(&[30, 12, 8, 1]), None, "late");
        assert_eq!(growing(&[4, 4, 4, 4, 4, 4, 4, 0]), None, "seven ticks of a clock");
        for (round, at) in [(4, 7), (8, 3), (11, 2), (16, 1), (32, 0), (80, 0)] {
            assert_eq!(growing(&[round; 10]), Some(at), "{round}");
        }
        assert_eq!(growing(&[30, 12, 30]), Some(2));
    }
}
