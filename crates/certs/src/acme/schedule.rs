//! Renewal times of certificates, and pauses after failed orders.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The maximum number of failed orders per hour for a set of names. Let's Encrypt refuses the sixth failed
/// validation of a name.
pub const FAILURES_PER_HOUR: usize = 5;

const HOUR: Duration = Duration::from_secs(3600);

/// Pauses after failed orders: five attempts in the first hour, then fewer and fewer.
const PAUSES: [Duration; 8] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(30 * 60),
    HOUR,
    Duration::from_secs(2 * 3600),
    Duration::from_secs(4 * 3600),
    Duration::from_secs(6 * 3600),
];

/// The longest wait that an authority can impose.
pub const LONGEST_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The renewal time of a certificate without a suggestion of its authority: after two thirds of its lifetime,
/// plus up to a twentieth of it, so that certificates of one day are not all renewed on one day. `random` may
/// be any number.
pub fn renewal(not_before: SystemTime, not_after: SystemTime, random: u64) -> SystemTime {
    let life = not_after.duration_since(not_before).unwrap_or_default();
    not_before + life / 3 * 2 + fraction(life / 20, random)
}

/// The earliest replacement of a certificate obtained at `obtained`, whatever its dates or its authority say:
/// after a third of its remaining lifetime at that time, at most 36 hours. Prevents endless orders under a
/// clock that is wrong by months, or an authority that suggests immediate renewal of everything.
pub fn not_sooner(obtained: SystemTime, not_after: SystemTime, now: SystemTime) -> SystemTime {
    if obtained > now {
        // The clock was set back, so the time of issuance is unknown.
        return now;
    }
    let left = not_after.duration_since(obtained).unwrap_or_default();
    obtained + (left / 3).clamp(LEAST_SPACING, SPACING)
}

/// The spacing of certificates for the same names: Let's Encrypt issues five a week.
const SPACING: Duration = Duration::from_secs(36 * 3600);
/// The spacing of certificates that last minutes, or have expired.
const LEAST_SPACING: Duration = Duration::from_secs(20);

/// The renewal time within a window suggested by the authority (RFC 9773 §4.2).
pub fn in_window(start: SystemTime, end: SystemTime, random: u64) -> SystemTime {
    start + fraction(end.duration_since(start).unwrap_or_default(), random)
}

/// The latest renewal time, whatever the authority suggests: a tenth of the lifetime is left, so that a
/// failed order can be repeated before the certificate expires.
pub fn latest(not_before: SystemTime, not_after: SystemTime) -> SystemTime {
    not_after - not_after.duration_since(not_before).unwrap_or_default() / 10
}

fn fraction(of: Duration, random: u64) -> Duration {
    // The upper 32 bits as a fraction of one.
    of.mul_f64((random >> 32) as f64 / f64::from(u32::MAX))
}

/// Failed orders since the last success. Kept on disk, so that they survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// The number of failures in a row.
    pub count: u32,
    /// The last failures in seconds of Unix time; at most [`FAILURES_PER_HOUR`].
    last: Vec<u64>,
    /// The time in seconds of Unix time before which the authority asked for no further order.
    #[serde(default)]
    barred: u64,
    /// The words of the authorities at the last failure.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The reason for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Its scheduled time has come.
    Due,
    /// A start or reload of the program, perhaps after the operator corrected a mistake.
    Prompted,
}

impl Failures {
    /// Records a failed order, and the authority's `Retry-After`.
    pub fn note(&mut self, now: SystemTime, retry_after: Option<Duration>) {
        self.count = self.count.saturating_add(1);
        self.last.push(seconds(now));
        let surplus = self.last.len().saturating_sub(FAILURES_PER_HOUR);
        self.last.drain(..surplus);
        self.barred = retry_after.map_or(0, |wait| seconds(now + wait.min(LONGEST_WAIT)));
    }

    /// The time of the last failure, and what the authorities said.
    pub fn latest(&self) -> Option<(SystemTime, Option<String>)> {
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(*self.last.last()?))?;
        Some((at, self.reason.clone()))
    }

    /// The time of the next attempt.
    pub fn earliest(&self, now: SystemTime, occasion: Occasion, random: u64) -> SystemTime {
        // Ignores numbers that are not times.
        let at = |seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
        // Ignores failures in the future: they were recorded before the clock was set back.
        let past: Vec<SystemTime> = self.last.iter().copied().map(at).filter(|time| *time <= now).collect();
        let Some(last) = past.last() else { return now };
        let full = past.len() >= FAILURES_PER_HOUR;
        let allowed = if full { past[past.len() - FAILURES_PER_HOUR] + HOUR } else { now };
        let barred = at(self.barred);
        let barred = if barred <= *last + LONGEST_WAIT { barred } else { now };
        let pause = match occasion {
            Occasion::Prompted => Duration::ZERO,
            Occasion::Due => {
                let index = (self.count.max(1) as usize - 1).min(PAUSES.len() - 1);
                PAUSES[index] + fraction(PAUSES[index] / 10, random)
            }
        };
        (*last + pause).max(allowed).max(barred).max(now)
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 24 * 3600;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    proptest! {
        #[test]
        fn every_life_is_renewed_in_its_last_third(start in 0..1u64 << 33, life in 60..400 * DAY, random: u64) {
            let due = renewal(at(start), at(start + life), random);
            let after = due.duration_since(at(start)).unwrap().as_secs_f64() / life as f64;
            prop_assert!((0.66..0.72).contains(&after), "{after}");
        }

        #[test]
        fn a_window_is_kept(start in 0..1u64 << 33, length in 0..100 * DAY, random: u64) {
            let due = in_window(at(start), at(start + length), random);
            prop_assert!(due >= at(start) && due <= at(start + length));
        }

        #[test]
        fn some_time_is_left_after_the_latest_renewal(start in 0..1u64 << 33, life in 60..400 * DAY, random: u64) {
            let (begun, end) = (at(start), at(start + life));
            prop_assert!(latest(begun, end) < end && renewal(begun, end, random) < latest(begun, end));
            prop_assert!(not_sooner(begun, end, begun) < latest(begun, end));
        }

        #[test]
        fn no_hour_has_more_failures_than_authorities_allow(
            prompts in proptest::collection::vec((any::<bool>(), 0..5000u64, any::<u64>()), 1..60),
        ) {
            let mut failures = Failures::default();
            let mut now = at(1_800_000_000);
            let mut times = Vec::new();
            for (prompted, later, random) in prompts {
                let occasion = if prompted { Occasion::Prompted } else { Occasion::Due };
                now = failures.earliest(now, occasion, random).max(now) + Duration::from_secs(later);
                times.push(now);
                failures.note(now, None);
            }
            for window in times.windows(FAILURES_PER_HOUR + 1) {
                let first = window[0];
                prop_assert!(window[FAILURES_PER_HOUR].duration_since(first).unwrap() >= HOUR);
            }
        }

        #[test]
        fn an_authority_that_asks_for_peace_gets_it(wait in 0..20 * DAY, prompted: bool) {
            let mut failures = Failures::default();
            let now = at(1_800_000_000);
            failures.note(now, Some(Duration::from_secs(wait)));
            let occasion = if prompted { Occasion::Prompted } else { Occasion::Due };
            let earliest = failures.earliest(now, occasion, 0);
            prop_assert!(earliest >= now + Duration::from_secs(wait).min(LONGEST_WAIT));
            prop_assert!(earliest <= now + LONGEST_WAIT);
        }
    }

    #[test]
    fn successful_orders_do_not_follow_each_other_without_end() {
        let year = Duration::from_secs(365 * DAY);
        // A clock that is a year ahead, an authority whose certificates have expired already, and one whose window is
        // always over: each new certificate is due at once.
        for not_after in [at(1_800_000_000) - year, at(1_800_000_000), at(1_800_000_000) + year] {
            let (mut now, mut orders) = (at(1_800_000_000), 0);
            let end = now + Duration::from_secs(7 * DAY);
            let life = not_after.duration_since(now).unwrap_or_default();
            while now < end && orders < 1_000_000 {
                let next = not_sooner(now, now + life, now);
                assert!(next >= now + LEAST_SPACING);
                (now, orders) = (next, orders + 1);
            }
            assert!(life.is_zero() || orders <= 5, "{orders} in a week");
        }
        // An ordinary renewal is never delayed by it.
        for life in [90 * DAY, 6 * DAY, 300, 60] {
            let due = renewal(at(0), at(life), 0);
            assert!(not_sooner(at(0), at(life), at(life)) <= due, "{life}");
        }
        assert_eq!(not_sooner(at(9), at(100), at(5)), at(5), "the clock was set back");
    }

    #[test]
    fn short_lives_are_spread_as_long_ones_are() {
        // 90 days, 6 days, 5 minutes: two thirds, and at most a twentieth more.
        for life in [90 * DAY, 6 * DAY, 300] {
            let earliest = renewal(at(0), at(life), 0).duration_since(at(0)).unwrap().as_secs();
            let latest = renewal(at(0), at(life), u64::MAX).duration_since(at(0)).unwrap().as_secs();
            assert_eq!(earliest, life / 3 * 2);
            assert!(latest > earliest && latest <= life * 3 / 4, "{life}");
        }
    }

    /// The times of attempts at an authority that fails until `end`, with prompts at some moments.
    fn attempts(until: SystemTime, prompts: &[u64]) -> Vec<SystemTime> {
        let (begun, mut failures) = (at(1_800_000_000), Failures::default());
        let (mut now, mut times) = (begun, Vec::new());
        let mut prompts = prompts.iter().map(|seconds| begun + Duration::from_secs(*seconds)).peekable();
        while now < until {
            let due = failures.earliest(now, Occasion::Due, 7);
            let prompted = prompts.next_if(|prompt| *prompt <= due);
            now = match prompted {
                Some(prompt) => failures.earliest(prompt.max(now), Occasion::Prompted, 0),
                None => due,
            };
            times.push(now);
            failures.note(now, None);
        }
        times
    }

    #[test]
    fn an_authority_that_is_down_for_a_week_is_asked_rarely_and_soon_after_it_is_back() {
        let (begun, week) = (at(1_800_000_000), Duration::from_secs(7 * DAY));
        let times = attempts(begun + week, &[]);
        // Five in two hours, and one per six hours from then on.
        assert!((28..=36).contains(&times.len()), "{}", times.len());
        let first = times.last().unwrap();
        assert!(first.duration_since(begun + week).unwrap_or_default() <= PAUSES[7] + PAUSES[7] / 10);
        // Reloads every minute of the week cause five attempts an hour and no more.
        let impatient: Vec<u64> = (0..7 * DAY / 60).map(|minute| minute * 60).collect();
        let times = attempts(begun + week, &impatient);
        assert!(times.len() <= 7 * 24 * FAILURES_PER_HOUR + FAILURES_PER_HOUR, "{}", times.len());
        for window in times.windows(FAILURES_PER_HOUR + 1) {
            assert!(window[FAILURES_PER_HOUR].duration_since(window[0]).unwrap() >= HOUR);
        }
    }

    #[test]
    fn two_hundred_certificates_of_one_night_are_renewed_over_days() {
        use std::hash::{BuildHasher, RandomState};
        let night = at(1_800_000_000);
        for life in [90 * DAY, 6 * DAY] {
            let random = RandomState::new();
            let issued = |number: u64| night + Duration::from_secs(number * 18);
            let due = |number| {
                let begun = issued(number);
                renewal(begun, begun + Duration::from_secs(life), random.hash_one(("name", number, begun)))
            };
            let mut hours = std::collections::BTreeMap::new();
            for number in 0..200 {
                let hour = due(number).duration_since(night).unwrap().as_secs() / 3600;
                *hours.entry(hour).or_insert(0u32) += 1;
            }
            // A twentieth of the lifetime: four days and a half, or seven hours.
            let span = life / 20 / 3600;
            let fullest = hours.values().max().copied().unwrap();
            assert!(hours.len() as u64 > span.min(200) / 2, "{life}: {hours:?}");
            assert!(u64::from(fullest) <= 200 / span + 30, "{life}: {hours:?}");
        }
    }

    #[test]
    fn a_clock_that_jumps_by_a_year_and_back_changes_no_more_than_the_moment() {
        let (now, year) = (at(1_800_000_000), Duration::from_secs(365 * DAY));
        let (begun, end) = (now - Duration::from_secs(DAY), now + Duration::from_secs(89 * DAY));
        let due = renewal(begun, end, 7);
        assert!(due > now);
        // A year ahead the certificate has expired and is due: orders fail, as what is issued has expired too
        // by this clock.
        assert!(due < now + year);
        let mut failures = Failures::default();
        for _ in 0..20 {
            let at = failures.earliest(now + year, Occasion::Due, 7);
            failures.note(at, None);
        }
        // Back again nothing is due, and failures recorded ahead delay nothing.
        assert_eq!(renewal(begun, end, 7), due);
        assert_eq!(failures.earliest(now, Occasion::Due, 7), now);
        // A year behind it is not valid yet, and not due.
        assert!(due > now - year && failures.earliest(now - year, Occasion::Due, 7) == now - year);
    }

    #[test]
    fn pauses_grow_and_end_with_success() {
        let mut failures = Failures::default();
        let mut now = at(1_800_000_000);
        assert_eq!(failures.earliest(now, Occasion::Due, 0), now);
        let mut before = Duration::ZERO;
        for _ in 0..20 {
            failures.note(now, None);
            let next = failures.earliest(now, Occasion::Due, 0);
            let pause = next.duration_since(now).unwrap();
            assert!(pause >= before && pause <= PAUSES[7]);
            (before, now) = (pause, next);
        }
        assert_eq!(before, PAUSES[7]);
    }

    #[test]
    fn a_clock_that_jumps_delays_no_order() {
        let mut failures = Failures::default();
        let (now, year) = (at(1_800_000_000), Duration::from_secs(365 * DAY));
        (0..9).for_each(|_| failures.note(now + year, Some(HOUR)));
        assert_eq!(failures.earliest(now, Occasion::Due, 0), now);
        failures.note(now, None);
        assert!(failures.earliest(now, Occasion::Due, 0) <= now + PAUSES[7]);
    }
}
