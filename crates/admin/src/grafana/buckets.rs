//! Division of a range of time into intervals. Intervals begin at multiples of their length since 1970 (UTC),
//! like those of the log store, so that reloading a dashboard a second later does not change every figure.

use std::time::{Duration, SystemTime};

use crate::grafana::time::system;
use crate::refusal::PlainRefusal;

/// Human-friendly lengths in seconds. From an hour on the store answers from roll-ups.
const LENGTHS: [i64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800,
    604_800, 2_592_000, 31_536_000,
];

/// The maximum number of points in a series; Prometheus has the same limit.
pub(crate) const MOST: usize = 11_000;

/// A range of time in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSpan {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Consecutive intervals of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// The start of the first interval in milliseconds since 1970.
    first: i64,
    /// The length of each interval in milliseconds.
    width: i64,
    pub(crate) count: usize,
}

impl Buckets {
    /// Divides a span into intervals of `wanted` milliseconds, or else into intervals of at least `least`
    /// milliseconds, of which there are at most `most`.
    pub(crate) fn of(
        span: TimeSpan,
        wanted: Option<i64>,
        least: i64,
        most: usize,
    ) -> Result<Self, PlainRefusal> {
        let most = most.clamp(1, MOST);
        if let Some(width) = wanted {
            let buckets = Self::by(span, width);
            if buckets.count > MOST {
                return Err(PlainRefusal::wrong(format!(
                    "the interval is too short for the time range: {} points would be more than {MOST}",
                    buckets.count
                )));
            }
            return Ok(buckets);
        }
        // An unaligned span touches one interval more than its length has.
        let fits = |width: i64| width >= least && Self::by(span, width).count <= most.max(2);
        let width = LENGTHS.map(|seconds| seconds * 1000).into_iter().find(|width| fits(*width));
        let longest = LENGTHS[LENGTHS.len() - 1] * 1000;
        Ok(Self::by(span, width.unwrap_or_else(|| longest.max(span.to - span.from + 1))))
    }

    fn by(span: TimeSpan, width: i64) -> Self {
        let first = span.from.div_euclid(width);
        // The end of a span is exclusive.
        let last = (span.to - 1).max(span.from).div_euclid(width);
        let count = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
        Self { first: first * width, width, count }
    }

    pub(crate) fn width(&self) -> Duration {
        Duration::from_millis(self.width.unsigned_abs())
    }

    /// The start of an interval in milliseconds since 1970.
    pub(crate) fn begins(&self, index: usize) -> i64 {
        self.first + self.width * i64::try_from(index).unwrap_or(i64::MAX / self.width / 2)
    }

    pub(crate) fn since(&self) -> SystemTime {
        system(self.first)
    }

    /// The end of the last interval: intervals are shown as a whole.
    pub(crate) fn until(&self) -> SystemTime {
        system(self.begins(self.count))
    }

    /// The interval of a time.
    pub(crate) fn index(&self, time: i64) -> Option<usize> {
        let index = usize::try_from((time - self.first).div_euclid(self.width)).ok()?;
        (index < self.count).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::{Buckets, TimeSpan};

    const HOUR: i64 = 3_600_000;

    #[test]
    fn lengths_are_rounded_up_to_human_friendly_ones() {
        let six_hours = TimeSpan { from: 1_477_895_624_866, to: 1_477_895_624_866 + 6 * HOUR };
        for (least, most, width, count) in [
            (30_000, 550, 60_000, 361),
            (30_000, 1000, 30_000, 721),
            (1, 11_000, 2000, 10_801),
            (400_000, 550, 600_000, 37),
            (0, 7, HOUR, 7),
            (0, 1, 6 * HOUR, 2),
            (0, 0, 6 * HOUR, 2),
        ] {
            let buckets = Buckets::of(six_hours, None, least, most).unwrap();
            assert_eq!((buckets.width, buckets.count), (width, count), "{least} {most}");
            assert_eq!(buckets.first % width, 0);
            assert!(buckets.first <= six_hours.from && buckets.begins(count) >= six_hours.to);
            assert_eq!(buckets.index(six_hours.from), Some(0));
            assert_eq!(buckets.index(six_hours.to - 1), Some(count - 1));
            assert_eq!(buckets.index(buckets.begins(count)), None);
            assert_eq!(buckets.index(buckets.first - 1), None);
        }
    }

    #[test]
    fn a_wanted_length_is_kept_if_possible() {
        let day = TimeSpan { from: 24 * HOUR, to: 48 * HOUR };
        let buckets = Buckets::of(day, Some(7 * 60_000), 30_000, 10).unwrap();
        assert_eq!((buckets.width, buckets.count), (420_000, 207));
        assert!(Buckets::of(day, Some(1000), 0, 550).is_err());
        assert_eq!(Buckets::of(day, Some(HOUR), 0, 550).unwrap().count, 24);
        let instant = TimeSpan { from: 5, to: 5 };
        assert_eq!(Buckets::of(instant, None, 0, 550).unwrap().count, 1);
    }

    #[test]
    fn long_spans_have_few_intervals() {
        let all = TimeSpan { from: 0, to: 32_503_679_999_999 };
        let buckets = Buckets::of(all, None, 0, 550).unwrap();
        assert!(buckets.count <= 2, "{buckets:?}");
    }
}
