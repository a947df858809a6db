//! Nearest-rank percentiles of durations with three digits, so that each is right to half a percent, in
//! memory proportional to the number of different durations.

/// A histogram of durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    /// Durations and their counts, sorted by duration.
    counts: Vec<(i64, i64)>,
    pub(crate) total: i64,
}

impl Durations {
    /// Adds requests; returns `true` if their duration is new.
    pub(crate) fn add(&mut self, duration_us: i64, requests: i64) -> bool {
        self.total += requests;
        match self.counts.binary_search_by_key(&duration_us, |(duration, _)| *duration) {
            Ok(at) => {
                self.counts[at].1 += requests;
                false
            }
            Err(at) => {
                self.counts.insert(at, (duration_us, requests));
                true
            }
        }
    }

    /// The sum of all durations, in microseconds.
    pub(crate) fn sum(&self) -> i64 {
        self.counts
            .iter()
            .fold(0, |sum, (duration, requests)| sum.saturating_add(duration.saturating_mul(*requests)))
    }

    /// The number of different durations.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// The shortest duration not exceeded by at least this percentage of the requests.
    pub(crate) fn percentile(&self, percent: i64) -> Option<i64> {
        let rank = (self.total * percent + 99) / 100;
        let mut seen = 0;
        self.counts
            .iter()
            .find(|(_, requests)| {
                seen += requests;
                seen >= rank
            })
            .map(|(duration, _)| *duration)
    }
}

#[cfg(test)]
mod tests {
    use super::Durations;

    #[test]
    fn percentiles_are_the_nearest_rank() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentile(50), None);
        for duration in (1..=100).rev() {
            durations.add(duration, 1);
        }
        for percent in [1, 50, 95, 99, 100] {
            assert_eq!(durations.percentile(percent), Some(percent));
        }
        durations.add(1000, 10_000);
        assert_eq!((durations.percentile(50), durations.percentile(1)), (Some(1000), Some(1000)));
        let mut one = Durations::default();
        one.add(7, 1);
        assert_eq!((one.percentile(50), one.percentile(99)), (Some(7), Some(7)));
    }
}
