//! Times and durations as people type them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// So long before now.
    Ago(Duration),
    /// Then.
    At(SystemTime),
}

impl When {
    /// The time that is meant, if it is `now`; not before 1970.
    pub(crate) fn time(self, now: SystemTime) -> SystemTime {
        match self {
            When::Ago(duration) => now.checked_sub(duration).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH),
            When::At(time) => time,
        }
    }
}

/// A duration, which is then ago; a date, which begins at midnight UTC; or a date and a time of day (RFC 3339; UTC
/// unless it has an offset; seconds may be left out).
pub(crate) fn parse(text: &str) -> Result<When, String> {
    if let Ok(duration) = duration(text) {
        return Ok(When::Ago(duration));
    }
    at(text).map(When::At).ok_or_else(|| {
        "write how long ago (90m, 24h, 7d), a date (2026-11-22), or a time (2026-11-22T10:00:00Z)".to_owned()
    })
}

/// A whole number and its unit: `s`, `m`, `h`, `d` or `w`; `ms` below a second.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
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

/// An offset from UTC in seconds: `+01:00`, `-0330`, `Z`.
pub(crate) fn offset(text: &str) -> Result<i32, String> {
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

fn at(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let days = day(date)?;
    if rest.is_empty() {
        return seconds(days * 86_400);
    }
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let split = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(split);
    let mut parts = clock.split(':');
    let mut part = |below: i64| {
        let part = parts.next()?;
        let number: i64 = part.parse().ok()?;
        (part.len() == 2 && (0..below).contains(&number)).then_some(number)
    };
    let (hour, minute) = (part(24)?, part(60)?);
    let second = if clock.len() > 5 { part(60)? } else { 0 };
    if parts.next().is_some() {
        return None;
    }
    let ahead = if zone.is_empty() { 0 } else { i64::from(offset(zone).ok()?) };
    seconds(days * 86_400 + hour * 3600 + minute * 60 + second - ahead)
}

fn seconds(since_1970: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(since_1970).ok()?))
}

/// Days since 1970 of `YYYY-MM-DD`.
fn day(date: &str) -> Option<i64> {
    let mut parts = date.split('-');
    let mut part = |digits: usize| {
        let part = parts.next()?;
        (part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| part.parse::<i64>().ok())?
    };
    let (year, month, day) = (part(4)?, part(2)?, part(2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months = usize::try_from(month - 1).ok().filter(|month| *month < 12)?;
    if parts.next().is_some() || year < 1970 || !(1..=lengths[months]).contains(&day) {
        return None;
    }
    let before = year - 1;
    let years = before * 365 + before / 4 - before / 100 + before / 400 - BEFORE_1970;
    Some(years + lengths[..months].iter().sum::<i64>() + day - 1)
}

/// Days from the year 1 to 1970 in the Gregorian calendar.
const BEFORE_1970: i64 = 719_162;
/// Longer durations are typing mistakes.
const CENTURY: u64 = 100 * 366 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        match parse(text) {
            Ok(When::At(time)) => Some(time.duration_since(UNIX_EPOCH).unwrap().as_secs()),
            _ => None,
        }
    }

    #[test]
    fn durations_are_ago() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(parse("24h").unwrap().time(now), now - Duration::from_secs(86_400));
        assert_eq!(parse("90w").unwrap().time(now), UNIX_EPOCH);
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "h", "24", "1.5h", "-1h", "1y", "99999999999999999999s", "9999999w"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dates_and_times_are_utc_unless_they_say_otherwise() {
        // Compared with `date -u -d … +%s`.
        assert_eq!(seconds("1970-01-01"), Some(0));
        assert_eq!(seconds("2000-02-29"), Some(951_782_400));
        assert_eq!(seconds("2026-11-22T10:00:00Z"), Some(1_795_341_600));
        assert_eq!(seconds("2026-11-22 10:00"), Some(1_795_341_600));
        assert_eq!(seconds("2026-11-22T11:30:00+01:30"), Some(1_795_341_600));
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
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn offsets() {
        assert_eq!((offset("+01:00"), offset("-0330"), offset("Z")), (Ok(3600), Ok(-12_600), Ok(0)));
        for text in ["", "1", "+1:00", "+25:00", "+01:60", "01:00", "+0100x"] {
            assert!(offset(text).is_err(), "{text}");
        }
    }
}
