//! Times and durations in the forms that people type.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::time::TimeStep;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A duration before now.
    Ago(Duration),
    /// Midnight, this many days before today.
    DaysAgo(i64),
    /// A local date and time.
    Local(DateTime),
    /// An instant with an offset.
    At(Timestamp),
}

impl When {
    /// Resolves the point in time for a current time and a time zone; 1970 at the earliest.
    #[must_use]
    pub fn time(self, now: SystemTime, zone: &TimeZone) -> SystemTime {
        let local = |local: DateTime| zone.to_ambiguous_timestamp(local).compatible().ok();
        let time = match self {
            When::Ago(duration) => return now.checked_sub(duration).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH),
            When::DaysAgo(days) => Timestamp::try_from(now).ok().and_then(|now| {
                let today = zone.to_datetime(now).date();
                local(today.checked_sub(Span::new().days(days)).ok()?.at(0, 0, 0, 0))
            }),
            When::Local(time) => local(time),
            When::At(time) => Some(time),
        };
        time.map_or(UNIX_EPOCH, SystemTime::from).max(UNIX_EPOCH)
    }
}

/// Parses a duration (before now), `today`, `yesterday`, a date (midnight), or a date and a time of day (RFC
/// 3339; local without an offset; seconds are optional). Dates start in 1970.
///
/// # Errors
/// The text is none of these: the forms that it may have.
pub fn parse(text: &str) -> Result<When, String> {
    if let Ok(duration) = duration(text) {
        return Ok(When::Ago(duration));
    }
    at(text).ok_or_else(|| {
        "write how long ago (90m, 24h, 7d), a date (today, yesterday, 2026-11-22), or a time \
         (2026-11-22T10:00, 2026-11-22T10:00:00Z)"
            .to_owned()
    })
}

fn at(text: &str) -> Option<When> {
    match text {
        "today" => return Some(When::DaysAgo(0)),
        "yesterday" => return Some(When::DaysAgo(1)),
        _ => {}
    }
    // The parser accepts more forms; only dates with hyphens are admitted.
    let date: Date =
        text.get(..10).filter(|date| date.bytes().filter(|b| *b == b'-').count() == 2)?.parse().ok()?;
    if date.year() < 1970 {
        return None;
    }
    match text.len() {
        10 => Some(When::Local(date.at(0, 0, 0, 0))),
        _ => text
            .parse::<Timestamp>()
            .map(When::At)
            .or_else(|_| text.parse::<DateTime>().map(When::Local))
            .ok(),
    }
}

/// Parses the length of an interval: a duration, or `hour`, `day`, `week`, `month`. Days, weeks and months
/// are those of the calendar.
///
/// # Errors
/// The text is none of these: the forms that it may have.
pub fn step(text: &str) -> Result<TimeStep, String> {
    match text {
        "hour" => Ok(TimeStep::Every(Duration::from_secs(3600))),
        "day" | "1d" => Ok(TimeStep::Day),
        "week" | "1w" | "7d" => Ok(TimeStep::Week),
        "month" | "1mo" => Ok(TimeStep::Month),
        text => duration(text)
            .map(TimeStep::Every)
            .map_err(|_| "write a length (5m, 1h, 1d) or hour, day, week or month".to_owned()),
    }
}

/// Parses a whole number and its unit: `s`, `m`, `h`, `d`, `w`, or `ms`.
///
/// # Errors
/// The text is something else, or more than a century.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a whole number and a unit: 500ms, 30s, 5m, 24h, 7d, 2w".to_owned();
    let end = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).filter(|seconds| *seconds <= CENTURY).map(Duration::from_secs).ok_or_else(wrong)
}

/// Parses an offset from UTC, in seconds: `+01:00`, `-0330`, `Z`.
///
/// # Errors
/// The text is no offset.
pub fn offset(text: &str) -> Result<i32, String> {
    let wrong = || "write an offset from UTC: +01:00, -03:30 or Z".to_owned();
    if text == "Z" || text == "z" {
        return Ok(0);
    }
    let (sign, rest) = match text.as_bytes().first() {
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        _ => return Err(wrong()),
    };
    let digits = rest.replacen(':', "", 1);
    let figures = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse::<i32>() {
        Ok(number) if figures && number / 100 < 24 && number % 100 < 60 => {
            Ok(sign * (number / 100 * 3600 + number % 100 * 60))
        }
        _ => Err(wrong()),
    }
}

/// Bound in seconds; longer durations are typing mistakes.
const CENTURY: u64 = 100 * 366 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str, zone: &TimeZone) -> Option<u64> {
        match parse(text) {
            Ok(When::Ago(_)) | Err(_) => None,
            Ok(when) => {
                // 2026-11-22T23:30:00Z
                let now = UNIX_EPOCH + Duration::from_secs(1_795_390_200);
                Some(when.time(now, zone).duration_since(UNIX_EPOCH).unwrap().as_secs())
            }
        }
    }

    #[test]
    fn durations_are_ago() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(parse("24h").unwrap().time(now, &TimeZone::UTC), now - Duration::from_secs(86_400));
        assert_eq!(parse("90w").unwrap().time(now, &TimeZone::UTC), UNIX_EPOCH);
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "h", "24", "1.5h", "-1h", "1y", "99999999999999999999s", "9999999w"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dates_and_times_are_those_of_the_time_zone_unless_they_say_otherwise() {
        // Compared with `date -u -d … +%s`.
        let utc = |text: &str| seconds(text, &TimeZone::UTC);
        assert_eq!(utc("1970-01-01"), Some(0));
        assert_eq!(utc("2000-02-29"), Some(951_782_400));
        assert_eq!(utc("2026-11-22T10:00:00Z"), Some(1_795_341_600));
        assert_eq!(utc("2026-11-22 10:00"), Some(1_795_341_600));
        assert_eq!(utc("2026-11-22T11:30:00+01:30"), Some(1_795_341_600));
        assert_eq!((utc("today"), utc("yesterday")), (Some(1_795_305_600), Some(1_795_219_200)));
        let berlin = TimeZone::get("Europe/Berlin").expect("the Debian package tzdata brings it");
        let local = |text: &str| seconds(text, &berlin);
        assert_eq!(local("2026-11-22T11:00"), Some(1_795_341_600));
        assert_eq!(local("2026-11-22T10:00:00Z"), Some(1_795_341_600));
        assert_eq!(local("2026-11-22"), Some(1_795_302_000));
        // There it is the next day already.
        assert_eq!((local("today"), local("yesterday")), (Some(1_795_388_400), Some(1_795_302_000)));
        for text in [
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-11-22T24:00",
            "2026-11-22T1:00",
            "26-11-22",
            "2026-11-22T10:00:00:00",
            "1969-12-31",
            "2026-11-22x",
            "20261122",
        ] {
            assert_eq!(utc(text), None, "{text}");
        }
    }

    #[test]
    fn steps_are_durations_or_of_the_calendar() {
        assert_eq!(step("5m"), Ok(TimeStep::Every(Duration::from_secs(300))));
        assert_eq!(
            (step("1d"), step("week"), step("1mo")),
            (Ok(TimeStep::Day), Ok(TimeStep::Week), Ok(TimeStep::Month))
        );
        assert!(step("fortnight").is_err());
    }

    #[test]
    fn offsets() {
        assert_eq!((offset("+01:00"), offset("-0330"), offset("Z")), (Ok(3600), Ok(-12_600), Ok(0)));
        for text in ["", "1", "+1:00", "+25:00", "+01:60", "01:00", "+0100x"] {
            assert!(offset(text).is_err(), "{text}");
        }
    }
}
