//! Times for people and programs, and the division of time into steps: in a time zone, by the Gregorian
//! calendar, with weeks that begin on Monday (ISO 8601).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Span, Timestamp};

use crate::error::Error;

/// A time zone, which decides at which instants days begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl From<TimeZone> for Zone {
    /// Zones that have been at UTC since 1970 become UTC, whatever their name (`Etc/UTC`, `UTC0`).
    fn from(zone: TimeZone) -> Self {
        let epoch = Timestamp::UNIX_EPOCH;
        let is_utc = zone.to_offset(epoch) == Offset::UTC && zone.following(epoch).next().is_none();
        Self(if is_utc { TimeZone::UTC } else { zone })
    }
}

/// The division of time into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeStep {
    /// Intervals of this length, at least a second. They begin at multiples of it since 1970 on the clocks of
    /// the time zone: steps of six hours begin at midnight.
    Every(Duration),
    /// Days, from midnight to midnight.
    Day,
    /// Weeks, from Monday to Monday.
    Week,
    /// Months of the calendar.
    Month,
}

impl From<Duration> for TimeStep {
    fn from(length: Duration) -> Self {
        Self::Every(length)
    }
}

impl fmt::Display for TimeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(length) => write!(f, "{length:?}"),
            Self::Day => f.write_str("day"),
            Self::Week => f.write_str("week"),
            Self::Month => f.write_str("month"),
        }
    }
}

/// The shortest interval of a step.
const SHORTEST: Duration = Duration::from_secs(1);

/// An hour and a day, in microseconds.
const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;

/// All zones have been ahead of UTC by multiples of this since 1972, so each such slice lies in one step.
const SLICE_US: i64 = HOUR_US / 4;

impl TimeStep {
    /// A step that divides a range of time into ten to thirty parts.
    #[must_use]
    pub fn for_range(range: Duration) -> Self {
        const MINUTE: u64 = 60;
        let fits = |seconds: u64| range.as_secs() <= seconds.saturating_mul(MOST_STEPS);
        match [MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE, 6 * 60 * MINUTE].into_iter().find(|s| fits(*s)) {
            Some(seconds) => Self::Every(Duration::from_secs(seconds)),
            None if fits(86_400) => Self::Day,
            None if fits(7 * 86_400) => Self::Week,
            None => Self::Month,
        }
    }

    /// Returns `true` if steps are at least an hour long, so that most hours lie in one of them.
    pub(crate) const fn is_long(self) -> bool {
        match self {
            Self::Every(length) => length.as_micros() >= HOUR_US as u128,
            Self::Day | Self::Week | Self::Month => true,
        }
    }
}

/// The number of steps that a table shows at a glance.
const MOST_STEPS: u64 = 31;

/// Maps times to steps. Times are in microseconds since 1970.
#[derive(Clone, Debug)]
pub(crate) struct TimeSteps {
    zone: Zone,
    step: TimeStep,
    /// The length of slices that lie in one step each, counted from 1970.
    slice: i64,
    /// The last slice looked up, and the start of its step.
    last: Option<(i64, i64)>,
}

impl TimeSteps {
    pub(crate) fn new(step: TimeStep, zone: &Zone) -> Result<Self, Error> {
        let slice = match step {
            TimeStep::Every(length) if length < SHORTEST => {
                return Err(Error::Question("an interval is at least a second".into()));
            }
            TimeStep::Every(length) => {
                let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
                if zone.0 == TimeZone::UTC { length } else { divisor(length, SLICE_US) }
            }
            _ if zone.0 == TimeZone::UTC => DAY_US,
            _ => SLICE_US,
        };
        Ok(Self { zone: zone.clone(), step, slice, last: None })
    }

    /// The length of the slices, each of which lies in one step.
    pub(crate) const fn slice(&self) -> i64 {
        self.slice
    }

    /// The start of the step of a time.
    pub(crate) fn of(&mut self, time_us: i64) -> i64 {
        let slice = time_us.div_euclid(self.slice);
        match self.last {
            Some((last, begins)) if last == slice => begins,
            _ => {
                let begins = self.zone.begins(time_us, self.step);
                self.last = Some((slice, begins));
                begins
            }
        }
    }

    /// Returns `true` if a range lies in one step.
    pub(crate) fn is_one(&mut self, from_us: i64, to_us: i64) -> bool {
        self.of(from_us) == self.of(to_us - 1)
    }
}

fn divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl Zone {
    /// The start of the step of a time.
    fn begins(&self, time_us: i64, step: TimeStep) -> i64 {
        let Ok(time) = Timestamp::from_microsecond(time_us) else { return time_us };
        let local = self.0.to_datetime(time);
        let date = local.date();
        let first = match step {
            TimeStep::Every(length) => return self.multiple(time_us, local, length),
            TimeStep::Day => Some(date),
            TimeStep::Week => {
                let since_monday = i32::from(date.weekday().to_monday_zero_offset());
                date.checked_sub(Span::new().days(since_monday)).ok()
            }
            TimeStep::Month => Some(date.first_of_month()),
        };
        first.and_then(|date| self.midnight(date)).unwrap_or(time_us)
    }

    /// The start of a day; at a later hour where clocks are put forward at midnight.
    fn midnight(&self, date: Date) -> Option<i64> {
        self.time_of(date.at(0, 0, 0, 0))
    }

    fn time_of(&self, local: DateTime) -> Option<i64> {
        self.0.to_ambiguous_timestamp(local).compatible().ok().map(Timestamp::as_microsecond)
    }

    fn multiple(&self, time_us: i64, local: DateTime, length: Duration) -> i64 {
        let length = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
        if self.0 == TimeZone::UTC {
            return time_us.div_euclid(length) * length;
        }
        // The local time, read as if it were UTC.
        let Ok(shown) = TimeZone::UTC.to_timestamp(local).map(Timestamp::as_microsecond) else {
            return time_us;
        };
        let past = shown.rem_euclid(length);
        if length <= HOUR_US {
            return time_us - past;
        }
        // Across a change of the clocks a step is longer or shorter, and begins where they show it.
        let begins = local.checked_sub(SignedDuration::from_micros(past)).ok();
        begins.and_then(|begins| self.time_of(begins)).unwrap_or(time_us).min(time_us)
    }

    /// The RFC 3339 form of a time, without fractions if they are zero.
    pub(crate) fn text(&self, time_us: i64) -> String {
        let Ok(time) = Timestamp::from_microsecond(time_us) else { return String::new() };
        let digits = if time_us.rem_euclid(1_000_000) == 0 { 0 } else { 6 };
        if self.0 == TimeZone::UTC {
            return format!("{time:.digits$}");
        }
        format!("{:.digits$}", time.display_with_offset(self.0.to_offset(time)))
    }

    /// The form of a time in sentences.
    pub(crate) fn words(&self, time_us: i64) -> String {
        let Ok(time) = Timestamp::from_microsecond(time_us) else { return String::new() };
        let zone = if self.0 == TimeZone::UTC { " UTC" } else { "" };
        format!("{}{zone}", self.0.to_datetime(time).strftime("%Y-%m-%d %H:%M:%S"))
    }

    /// The start of the period before this one: it has as many months or days if both ends are midnights,
    /// else the same length.
    pub(crate) fn before(&self, since: SystemTime, until: SystemTime) -> i64 {
        let (from, to) = (micros(since), micros(until));
        let by_calendar = || {
            let midnight = |us: i64| {
                let local = self.0.to_datetime(Timestamp::from_microsecond(us).ok()?);
                (self.midnight(local.date()) == Some(us)).then_some(local.date())
            };
            let (first, last) = (midnight(from)?, midnight(to)?);
            let months = (i32::from(last.year()) - i32::from(first.year())) * 12
                + (i32::from(last.month()) - i32::from(first.month()));
            let span = if first.day() == 1 && last.day() == 1 {
                Span::new().months(months)
            } else {
                Span::new().days(first.until(last).ok()?.get_days())
            };
            self.midnight(first.checked_sub(span).ok()?)
        };
        by_calendar().filter(|before| *before < from).unwrap_or_else(|| from - (to - from)).max(0)
    }
}

/// Microseconds since 1970; 0 for earlier times.
pub(crate) fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
