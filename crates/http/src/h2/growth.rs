//! The path between a peer and us: whether windows hold the peer up on it.
//!
//! A PING goes along with a WINDOW_UPDATE. Until the peer has received that, it can send no more than it was allowed
//! before. If all of this has come by the time of the answer, the peer had to wait, or was about to. The time that it took
//! to come, and the round trip, say how much larger the window should be.

/// The least and the most that a window grows by at a time.
const LEAST_TIMES: u64 = 2;
const MOST_TIMES: u64 = 16;
/// What the clock may be wrong by, in milliseconds.
const BLUR: u64 = 10;
/// The most WINDOW_UPDATE without a PING between two measurements: they become rarer where they find nothing.
const MOST_PAUSE: u32 = 64;

/// Measures one path, again and again.
#[derive(Debug, Default)]
pub struct Probe {
    measure: Option<Measure>,
    /// How many WINDOW_UPDATE go without a PING, and how many of those are left.
    pause: u32,
    left: u32,
}

/// A measurement under way.
#[derive(Clone, Copy, Debug)]
struct Measure {
    id: u32,
    /// What the peer may send before it hears of the WINDOW_UPDATE, and how much has come since.
    ahead: u64,
    came: u64,
    /// When it began, and when all of that had come, in milliseconds.
    begun: u64,
    used: Option<u64>,
}

/// A window that holds the peer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Its stream; 0: the connection.
    pub id: u32,
    /// How many times as large it should be.
    pub times: u32,
}

impl Probe {
    /// A WINDOW_UPDATE is sent at `now`; the peer may send `ahead` bytes before it hears of it. Gives whether a PING is to
    /// go along.
    pub fn begin(&mut self, id: u32, ahead: u64, now: u64) -> bool {
        if self.measure.is_some() {
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        let used = (ahead == 0).then_some(now);
        self.measure = Some(Measure { id, ahead, came: 0, begun: now, used });
        true
    }

    /// Content has come on a stream.
    #[inline]
    pub fn came(&mut self, id: u32, n: usize, now: u64) {
        if let Some(measure) = &mut self.measure
            && (measure.id == id || measure.id == 0)
        {
            measure.came += n as u64;
            if measure.used.is_none() && measure.came >= measure.ahead {
                measure.used = Some(now);
            }
        }
    }

    /// The answer to the PING has come.
    pub fn end(&mut self, now: u64) -> Option<Stall> {
        let Measure { id, begun, used, .. } = self.measure.take()?;
        let Some(used) = used else {
            self.pause = (self.pause * 2).clamp(1, MOST_PAUSE);
            self.left = self.pause;
            return None;
        };
        self.pause = 0;
        let (round, took) = (now.saturating_sub(begun), used.saturating_sub(begun).max(BLUR));
        // In one round trip as many times as much could have come.
        let times = (round / took).clamp(LEAST_TIMES, MOST_TIMES) as u32;
        Some(Stall { id, times })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender with so many bytes per millisecond at a distance, who fills its window; gives the window after each answer.
    /// The receiver says at half of a window that it may be filled again.
    fn windows(rate: u64, round: u64, first: u64, most: u64) -> Vec<u64> {
        let (mut probe, mut window, mut now, mut all) = (Probe::default(), first, 0, vec![first]);
        for _ in 0..40 {
            // Half of the window is under way, or leaves its sender, when the WINDOW_UPDATE does.
            if !probe.begin(1, window / 2, now) {
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
            if let Some(stall) = probe.end(now) {
                window = (window * u64::from(stall.times)).min(most);
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
            // 1 Gbit/s and 100 Mbit/s over 50 ms, 10 Mbit/s over 200 ms, 1 Gbit/s over 2 ms.
            (125_000, 50, 8 * 1024 * KIB..=8 * 1024 * KIB),
            (12_500, 50, 1250 * KIB..=5000 * KIB),
            (1250, 200, 500 * KIB..=2000 * KIB),
            (125_000, 2, 512 * KIB..=1024 * KIB),
            // 10 Mbit/s over 20 ms need no more than there is.
            (1250, 20, 256 * KIB..=256 * KIB),
        ] {
            let all = windows(rate, round, 256 * KIB, 8 * 1024 * KIB);
            assert!(last.contains(all.last().unwrap()), "{rate} {round}: {all:?}");
            // A few round trips do.
            assert!(all.len() <= 5, "{rate} {round}: {all:?}");
        }
    }

    #[test]
    fn measurements_that_find_nothing_become_rare() {
        let (mut probe, mut pings) = (Probe::default(), 0);
        for now in 0..1000 {
            if probe.begin(1, 1000, now) {
                pings += 1;
                probe.came(1, 999, now);
                // What comes on other streams does not count.
                probe.came(3, 999, now);
                assert_eq!(probe.end(now + 50), None);
            }
        }
        assert!((7..=22).contains(&pings), "{pings}");
        while !probe.begin(0, 1000, 5000) {}
        assert!(!probe.begin(0, 0, 5001), "one at a time");
        probe.came(1, 500, 5020);
        probe.came(3, 500, 5025);
        assert_eq!(probe.end(5100), Some(Stall { id: 0, times: 4 }));
        assert!(probe.begin(1, 0, 5200), "one that has found something is soon followed by another");
        assert_eq!(probe.end(5300), Some(Stall { id: 1, times: 10 }));
        assert_eq!(probe.end(5300), None);
    }
}
