//! How long most took: nearest-rank percentiles of durations that have three digits, so that each is right to half a
//! percent, in memory for as many different durations as there are of three digits.

/// How many requests took how long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durations {
    /// Sorted by duration.
    counts: Vec<(i64, i64)>,
    pub(crate) total: i64,
}

impl Durations {
    /// Adds requests; says whether their duration is a new one.
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

    /// The time that was spent in all.
    pub(crate) fn sum(&self) -> i64 {
        self.counts
            .iter()
            .fold(0, |sum, (duration, requests)| sum.saturating_add(duration.saturating_mul(*requests)))
    }

    /// How many different durations there are.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// The shortest duration that at least this share of the requests, in percent, did not exceed.
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
