//! Passive ejection: a server gets no requests for a while after repeated failures.

use std::time::Duration;

/// Configuration of passive ejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Consecutive failures that eject a server; at least 1.
    pub failures: u32,
    /// Duration of the first ejection. Each that follows soon doubles it.
    pub time: Duration,
    /// Maximum duration of an ejection.
    pub limit: Duration,
}

impl Default for Ejection {
    fn default() -> Self {
        Ejection { failures: 5, time: Duration::from_secs(10), limit: Duration::from_secs(300) }
    }
}

/// Record of a server's failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureRecord {
    in_a_row: u32,
    /// Duration and end of the latest ejection, in milliseconds.
    latest: Option<(u64, u64)>,
}

impl FailureRecord {
    pub(super) const fn of(in_a_row: u32, latest: Option<(u64, u64)>) -> Self {
        FailureRecord { in_a_row, latest }
    }

    pub(super) const fn parts(&self) -> (u32, Option<(u64, u64)>) {
        (self.in_a_row, self.latest)
    }

    /// Records a failure at `now`; returns the end of the ejection that it causes, if any. `spared` is set if
    /// no other server of the backend is available: an ejection would not help.
    ///
    /// Failures during an ejection belong to requests under way and are not counted.
    pub fn failed(&mut self, terms: &Ejection, now: u64, spared: bool) -> Option<u64> {
        if self.latest.is_some_and(|(_, end)| now < end) {
            return None;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if spared || self.in_a_row < terms.failures {
            return None;
        }
        let limit = millis(terms.limit);
        let length = match self.latest {
            // An equally long time without failures resets the duration.
            Some((length, end)) if now < end.saturating_add(length.max(millis(terms.time))) => {
                length.saturating_mul(2)
            }
            _ => millis(terms.time),
        };
        let length = length.min(limit).max(1);
        *self = FailureRecord { in_a_row: 0, latest: Some((length, now.saturating_add(length))) };
        self.latest.map(|(_, end)| end)
    }

    /// Records a successful request.
    pub fn succeeded(&mut self) {
        self.in_a_row = 0;
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms() -> Ejection {
        Ejection { failures: 3, time: Duration::from_secs(10), limit: Duration::from_secs(60) }
    }

    fn fail(record: &mut FailureRecord, times: u32, now: u64) -> Option<u64> {
        (0..times).filter_map(|_| record.failed(&terms(), now, false)).last()
    }

    #[test]
    fn ejections_double_up_to_their_limit() {
        let mut record = FailureRecord::default();
        let mut now = 1000;
        for seconds in [10, 20, 40, 60, 60] {
            assert_eq!(fail(&mut record, 2, now), None);
            let end = fail(&mut record, 1, now).unwrap();
            assert_eq!(end - now, seconds * 1000);
            // Stragglers neither prolong it nor count for the next.
            assert_eq!(fail(&mut record, 9, end - 1), None);
            now = end;
        }
        // After a long time without failures, the first duration applies again.
        now += 60_000;
        assert_eq!(fail(&mut record, 3, now), Some(now + 10_000));
    }

    #[test]
    fn a_success_breaks_the_row() {
        let mut record = FailureRecord::default();
        for _ in 0..9 {
            assert_eq!(fail(&mut record, 2, 0), None);
            record.succeeded();
        }
    }

    #[test]
    fn the_last_one_is_spared_until_it_is_not_the_last() {
        let mut record = FailureRecord::default();
        assert!((0..9).all(|_| record.failed(&terms(), 5, true).is_none()));
        assert_eq!(record.failed(&terms(), 6, false), Some(10_006));
    }

    proptest! {
        /// After any sequence of events an ejection is within its bounds, and begins only after enough
        /// consecutive failures.
        #[test]
        fn bounds_hold(steps in prop::collection::vec((0u64..30_000, 0u8..4), 0..200)) {
            let (mut record, mut now, mut row, mut end) = (FailureRecord::default(), 0, 0, 0);
            for (later, what) in steps {
                now += later;
                if what == 0 { record.succeeded(); row = 0; continue; }
                let spared = what == 1;
                let ejected = record.failed(&terms(), now, spared);
                if now < end { prop_assert_eq!(ejected, None); continue; }
                row += 1;
                prop_assert_eq!(ejected.is_some(), row >= 3 && !spared);
                if let Some(until) = ejected {
                    prop_assert!((10_000..=60_000).contains(&(until - now)));
                    (row, end) = (0, until);
                }
            }
        }
    }
}
