//! Histograms of durations in buckets of powers of two: 2⁻¹³ s (122 µs), 2⁻¹² s, … 2⁷ s (128 s).
//!
//! The buckets are those of a native histogram of schema 0: collectors convert the classic histogram without
//! loss, and histograms of any two routes, workers or machines add up. The bucket is found by arithmetic, not
//! by a search.

use std::time::Duration;

/// The number of bounded buckets; one more counts everything above.
pub(crate) const BOUNDS: usize = 21;
/// The cells of one histogram: the buckets, the one above all, and the sum in microseconds.
pub(crate) const CELLS: usize = BOUNDS + 2;
/// The index of the sum.
pub(crate) const SUM: usize = BOUNDS + 1;
/// The exponent of the smallest bound in seconds.
const FIRST: i32 = -13;
/// Durations are compared in units of 2⁻³² s, a quarter of a nanosecond, of which every bound is a multiple.
const FRACTION: i32 = 32;

/// Counts of durations by bucket, without their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationCounts([u64; BOUNDS + 1]);

impl DurationCounts {
    /// The counts in the cells of one histogram.
    pub(crate) fn of(cells: &[u64]) -> Self {
        let mut counts = Self::default();
        counts.0.iter_mut().zip(cells).for_each(|(count, cell)| *count = *cell);
        counts
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count = count.saturating_add(more));
    }

    /// The durations that were counted after `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at])))
    }

    /// The duration in seconds that this share (0 to 1) of all durations does not exceed, interpolated within its bucket;
    /// `None` without durations. The last bucket has no upper bound: 128 s stands for all that is above.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let total: u64 = self.0.iter().sum();
        let rank = (share * total as f64).max(f64::MIN_POSITIVE);
        let (mut below, mut lower) = (0, 0.0);
        for (bound, count) in bounds().zip(self.0) {
            let reached = below + count;
            if count > 0 && reached as f64 >= rank {
                return Some(lower + (bound - lower) * (rank - below as f64) / count as f64);
            }
            (below, lower) = (reached, bound);
        }
        (total > 0).then_some(lower)
    }
}

/// The bucket of a duration. Bounds are inclusive.
pub(crate) fn bucket(took: Duration) -> usize {
    const SMALLEST: u64 = 1 << (FRACTION + FIRST);
    // 136 years and more fall into the last bucket, like anything above 128 s.
    let seconds = took.as_secs().min(u64::from(u32::MAX));
    let ticks = (seconds << FRACTION) | ((u64::from(took.subsec_nanos()) << FRACTION) / 1_000_000_000);
    if ticks <= SMALLEST {
        return 0;
    }
    // The exponent of the next power of two, counted from the smallest bound.
    let power = u64::BITS - (ticks - 1).leading_zeros();
    (power as usize - (FRACTION + FIRST) as usize).min(BOUNDS)
}

/// A duration in microseconds, the unit of sums; good for half a million years.
pub(crate) fn micros(took: Duration) -> u64 {
    took.as_secs().wrapping_mul(1_000_000).wrapping_add(u64::from(took.subsec_micros()))
}

/// The upper bounds in seconds, ascending, without +Inf.
pub(crate) fn bounds() -> impl Iterator<Item = f64> {
    (0..BOUNDS as i32).map(|index| f64::powi(2.0, FIRST + index))
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, CELLS, DurationCounts, bounds, bucket, micros};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn bounds_belong_to_the_bucket_below() {
        assert_eq!(bounds().next(), Some(0.000_122_070_312_5));
        assert_eq!(bounds().last(), Some(128.0));
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), BOUNDS);
        for (index, bound) in bounds().enumerate() {
            // Bounds of less than 2⁻⁹ s are not whole nanoseconds.
            let below = Duration::from_nanos((bound * 1e9).floor() as u64);
            assert_eq!(bucket(below), index, "{bound}");
            assert_eq!(bucket(below + Duration::from_nanos(1)), index + 1, "{bound}");
        }
    }

    #[test]
    fn quantiles_lie_in_their_bucket() {
        let counts = |durations: &[u64]| {
            let mut cells = [0; CELLS];
            durations.iter().for_each(|ms| cells[bucket(Duration::from_millis(*ms))] += 1);
            DurationCounts::of(&cells)
        };
        assert_eq!(DurationCounts::default().quantile(0.5), None);
        // 100 ms lies between 1/16 s and 1/8 s, 3 s between 2 s and 4 s.
        let both = counts(&[100, 100, 100, 3000]);
        assert!((0.0625..=0.125).contains(&both.quantile(0.5).unwrap()));
        assert!((2.0..=4.0).contains(&both.quantile(0.95).unwrap()));
        assert_eq!(both.quantile(0.75), Some(0.125));
        assert_eq!(counts(&[1_000_000]).quantile(0.5), Some(128.0));
        // Only what is new counts.
        let later = both.since(&counts(&[100, 100, 100]));
        assert!((2.0..=4.0).contains(&later.quantile(0.01).unwrap()));
        assert_eq!(both.since(&both).quantile(0.5), None);
        let mut sum = counts(&[100]);
        sum.add(&counts(&[100, 100, 3000]));
        assert_eq!(sum, both);
    }

    #[test]
    fn sums_are_whole_microseconds() {
        assert_eq!(micros(Duration::from_nanos(1_500_001_999)), 1_500_001);
    }

    proptest! {
        #[test]
        fn a_search_finds_the_same_bucket(nanos in 0_u64..400_000_000_000, shift in 0_u32..36) {
            let took = Duration::from_nanos(nanos >> shift);
            let searched = bounds().position(|bound| took.as_secs_f64() <= bound).unwrap_or(BOUNDS);
            prop_assert_eq!(bucket(took), searched);
        }
    }
}
