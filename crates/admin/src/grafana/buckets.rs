//! How a range of time is divided into intervals. Intervals begin at multiples of their length since 1970 (UTC),
//! as those of the log store do, so that reloading a dashboard a second later does not change every figure.

use std::time::{Duration, SystemTime};

use crate::grafana::time::system;
use crate::refusal::Refusal;

/// Lengths that people think in, in seconds. From an hour on the store answers from roll-ups.
const LENGTHS: [i64; 22] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800,
    604_800, 2_592_000, 31_536_000,
];

/// No series has more points, whatever is asked for; Prometheus has the same limit.
pub(crate) const MOST: usize = 11_000;

/// From when to when, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Intervals without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    /// When the first begins, in milliseconds since 1970.
    first: i64,
    /// How long each is, in milliseconds.
    width: i64,
    pub(crate) count: usize,
}

impl Buckets {
    /// Divides a span: into intervals of `wanted` milliseconds if that is given, or else into such that are no
    /// shorter than `least` milliseconds, and of which there are at most `most`.
    pub(crate) fn of(span: Span, wanted: Option<i64>, least: i64, most: usize) -> Result<Self, Refusal> {
        let most = most.clamp(1, MOST);
        if let Some(width) = wanted {
            let buckets = Self::by(span, width);
            if buckets.count > MOST {
                return Err(Refusal::wrong(format!(
                    "the interval is too short for the time range: {} points would be more than {MOST}",
                    buckets.count
                )));
            }
            return Ok(buckets);
        }
        // A span that is not aligned touches one interval more than its length has.
        let fits = |width: i64| width >= least && Self::by(span, width).count <= most.max(2);
        let width = LENGTHS.map(|seconds| seconds * 1000).into_iter().find(|width| fits(*width));
        let longest = LENGTHS[LENGTHS.len() - 1] * 1000;
        Ok(Self::by(span, width.unwrap_or_else(|| longest.max(span.to - span.from + 1))))
    }

    fn by(span: Span, width: i64) -> Self {
        let first = span.from.div_euclid(width);
        // What ends a span is not in it.
        let last = (span.to - 1).max(span.from).div_euclid(width);
        let count = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
        Self { first: first * width, width, count }
    }

    pub(crate) fn width(&self) -> Duration {
        Duration::from_millis(self.width.unsigned_abs())
    }

    /// When an interval begins, in milliseconds since 1970.
    pub(crate) fn begins(&self, index: usize) -> i64 {
        self.first + self.width * i64::try_from(index).unwrap_or(i64::MAX / self.width / 2)
    }

    pub(crate) fn since(&self) -> SystemTime {
        system(self.first)
    }

    /// When the last one ends: intervals are shown as a whole.
    pub(crate) fn until(&self) -> SystemTime {
        system(self.begins(self.count))
    }

    /// The interval that a time is in.
    pub(crate) fn index(&self, time: i64) -> Option<usize> {
        let index = usize::try_from((time - self.first).div_euclid(self.width)).ok()?;
        (index < self.count).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::{Buckets, Span};

    const HOUR: i64 = 3_600_000;

    #[test]
    fn lengths_are_rounded_up_to_what_people_think_in() {
        let six_hours = Span { from: 1_477_895_624_866, to: 1_477_895_624_866 + 6 * HOUR };
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
    fn what_is_asked_for_is_kept_if_it_can_be() {
        let day = Span { from: 24 * HOUR, to: 48 * HOUR };
        let buckets = Buckets::of(day, Some(7 * 60_000), 30_000, 10).unwrap();
        assert_eq!((buckets.width, buckets.count), (420_000, 207));
        assert!(Buckets::of(day, Some(1000), 0, 550).is_err());
        assert_eq!(Buckets::of(day, Some(HOUR), 0, 550).unwrap().count, 24);
        let instant = Span { from: 5, to: 5 };
        assert_eq!(Buckets::of(instant, None, 0, 550).unwrap().count, 1);
    }

    #[test]
    fn long_spans_have_few_intervals() {
        let all = Span { from: 0, to: 32_503_679_999_999 };
        let buckets = Buckets::of(all, None, 0, 550).unwrap();
        assert!(buckets.count <= 2, "{buckets:?}");
    }
}
