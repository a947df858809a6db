//! Durations by size, in buckets that double: 2⁻¹³ s (122 µs), 2⁻¹² s, … 2⁷ s (128 s).
//!
//! Every bound is a power of two in seconds, so the buckets are those of a native histogram of schema 0: a
//! collector that turns classic histograms into native ones loses nothing, and histograms of any two routes,
//! workers or machines add up. Finding a bucket is arithmetic, not a search.

use std::time::Duration;

/// The bounded buckets; one more has everything above.
pub(crate) const BOUNDS: usize = 21;
/// The cells of one histogram: the buckets, the one above all, and the sum in microseconds.
pub(crate) const CELLS: usize = BOUNDS + 2;
/// Where the sum is.
pub(crate) const SUM: usize = BOUNDS + 1;
/// The smallest bound is two to this power, in seconds.
const FIRST: i32 = -13;
/// Durations are compared in units of 2⁻³² s, a quarter of a nanosecond, in which every bound is whole.
const FRACTION: i32 = 32;

/// The bucket of a duration; a bound belongs to the bucket below it.
pub(crate) fn bucket(took: Duration) -> usize {
    const SMALLEST: u64 = 1 << (FRACTION + FIRST);
    // A duration of 136 years and more is in the last bucket like any above 128 s.
    let seconds = took.as_secs().min(u64::from(u32::MAX));
    let ticks = (seconds << FRACTION) | ((u64::from(took.subsec_nanos()) << FRACTION) / 1_000_000_000);
    if ticks <= SMALLEST {
        return 0;
    }
    // The power of two that is not below it, counted from the smallest.
    let power = u64::BITS - (ticks - 1).leading_zeros();
    (power as usize - (FRACTION + FIRST) as usize).min(BOUNDS)
}

/// A duration as it is summed: in microseconds, which suffice for half a million years.
pub(crate) fn micros(took: Duration) -> u64 {
    took.as_secs().wrapping_mul(1_000_000).wrapping_add(u64::from(took.subsec_micros()))
}

/// The upper bounds in seconds, ascending, without the last, which is infinity.
pub(crate) fn bounds() -> impl Iterator<Item = f64> {
    (0..BOUNDS as i32).map(|index| f64::powi(2.0, FIRST + index))
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, bounds, bucket, micros};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn bounds_belong_to_the_bucket_below() {
        assert_eq!(bounds().next(), Some(0.000_122_070_312_5));
        assert_eq!(bounds().last(), Some(128.0));
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::MAX), BOUNDS);
        for (index, bound) in bounds().enumerate() {
            // Bounds of less than 2⁻⁹ s lie between two nanoseconds.
            let below = Duration::from_nanos((bound * 1e9).floor() as u64);
            assert_eq!(bucket(below), index, "{bound}");
            assert_eq!(bucket(below + Duration::from_nanos(1)), index + 1, "{bound}");
        }
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
