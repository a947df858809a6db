//! Failed validations by name: authorities limit them per name, across certificates.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::schedule::FAILURES_PER_HOUR;

const HOUR: Duration = Duration::from_secs(3600);

/// The maximum number of names; beyond it the first in alphabetical order are dropped.
const MOST: usize = 10_000;

/// Failed validations in the last hour. Kept on disk, so that they survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validations {
    /// By authority and name: times in seconds of Unix time.
    failed: BTreeMap<String, Vec<u64>>,
}

impl Validations {
    /// Records that the authority with this directory URL failed to validate `name`.
    pub fn note(&mut self, directory: &str, name: &str, now: SystemTime) {
        self.failed.retain(|_, times| {
            times.retain(|time| within_the_last_hour(at(*time), now));
            !times.is_empty()
        });
        let times = self.failed.entry(key(directory, name)).or_default();
        times.push(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        let surplus = times.len().saturating_sub(FAILURES_PER_HOUR);
        times.drain(..surplus);
        while self.failed.len() > MOST {
            self.failed.pop_first();
        }
    }

    /// The time before which the authority must not be asked for these names again.
    pub fn earliest<'a>(
        &self,
        directory: &str,
        names: impl Iterator<Item = &'a str>,
        now: SystemTime,
    ) -> SystemTime {
        let barred = |name: &str| {
            let times = self.failed.get(&key(directory, name))?;
            let mut recent = times.iter().copied().map(at).filter(|time| within_the_last_hour(*time, now));
            let first = recent.next()?;
            // The oldest of the failures that count.
            (recent.count() + 1 >= FAILURES_PER_HOUR).then_some(first + HOUR)
        };
        names.filter_map(barred).max().unwrap_or(now).max(now)
    }
}

/// Ignores failures in the future: they were recorded before the clock was set back.
fn within_the_last_hour(time: SystemTime, now: SystemTime) -> bool {
    now.duration_since(time).is_ok_and(|since| since < HOUR)
}

/// Numbers that are not times count as long ago.
fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}

fn key(directory: &str, name: &str) -> String {
    // A wildcard is validated by its base name.
    let name = name.strip_prefix("*.").unwrap_or(name);
    format!("{directory} {}", name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CA: &str = "https://a.test/dir";

    fn earliest(validations: &Validations, name: &str, now: SystemTime) -> SystemTime {
        validations.earliest(CA, [name].into_iter(), now)
    }

    proptest! {
        #[test]
        fn no_hour_has_more_failures_of_a_name_than_authorities_allow(
            attempts in proptest::collection::vec((0..3usize, 0..1500u64), 1..80),
        ) {
            // Three certificates that share one name.
            let sets = [["a.test", "x.test"], ["a.test", "y.test"], ["*.a.test", "z.test"]];
            let mut validations = Validations::default();
            let mut now = at(1_800_000_000);
            let mut times = Vec::new();
            for (set, later) in attempts {
                now += Duration::from_secs(later);
                now = validations.earliest(CA, sets[set].into_iter(), now);
                validations.note(CA, sets[set][0], now);
                times.push(now);
            }
            for window in times.windows(FAILURES_PER_HOUR + 1) {
                prop_assert!(window[FAILURES_PER_HOUR].duration_since(window[0]).unwrap() >= HOUR);
            }
        }
    }

    #[test]
    fn other_names_and_authorities_are_not_limited() {
        let mut validations = Validations::default();
        let now = at(1_800_000_000);
        (0..9).for_each(|_| validations.note(CA, "a.test", now));
        assert_eq!(earliest(&validations, "A.test", now), now + HOUR);
        assert_eq!(earliest(&validations, "b.test", now), now);
        assert_eq!(validations.earliest("https://b.test/dir", ["a.test"].into_iter(), now), now);
        assert_eq!(earliest(&validations, "a.test", now + HOUR), now + HOUR);
    }

    #[test]
    fn a_clock_that_jumps_delays_no_order_and_memory_is_bounded() {
        let mut validations = Validations::default();
        let (now, year) = (at(1_800_000_000), Duration::from_secs(365 * 24 * 3600));
        (0..9).for_each(|_| validations.note(CA, "a.test", now + year));
        assert_eq!(earliest(&validations, "a.test", now), now);
        validations.note(CA, "a.test", now);
        assert_eq!(earliest(&validations, "a.test", now + year), now + year);
        (0..MOST + 50)
            .for_each(|number| validations.failed.extend([(number.to_string(), vec![1_800_000_000])]));
        validations.note(CA, "a.test", now);
        assert_eq!(validations.failed.len(), MOST);
        validations.note(CA, "b.test", now + year);
        assert_eq!(validations.failed.len(), 1);
    }
}
