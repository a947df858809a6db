//! Times and durations of Grafana and its users, in milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde_json::Value;

use crate::refusal::PlainRefusal;

/// Parses the time of a request: RFC 3339, or milliseconds since 1970.
pub(crate) fn of_json(value: &Value) -> Result<i64, PlainRefusal> {
    let time = match value {
        Value::String(text) => of_text(text),
        Value::Number(number) => number.as_i64().filter(|ms| (0..=LATEST).contains(ms)),
        _ => None,
    };
    time.ok_or_else(|| {
        PlainRefusal::wrong(format!("{value} is not a time like \"2016-10-31T06:33:44.866Z\""))
    })
}

/// The time 2999-12-31T23:59:59.999Z. The log store counts microseconds in 58 bits, and intervals may end
/// after ranges.
const LATEST: i64 = 32_503_679_999_999;

/// Parses RFC 3339 into milliseconds since 1970; finer fractions are cut off. Only from 1970 to 2999.
pub(crate) fn of_text(text: &str) -> Option<i64> {
    // The parser also accepts dates without hyphens, and names of time zones.
    let is_rfc3339 = text.get(4..5) == Some("-") && text.get(7..8) == Some("-") && !text.contains('[');
    let ms = text.parse::<Timestamp>().ok().filter(|_| is_rfc3339)?.as_millisecond();
    (0..=LATEST).contains(&ms).then_some(ms)
}

/// Parses a duration like `30s`, `5m`, `6h`, `1d`, `2w` into milliseconds: at least a second, at most 366
/// days.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    let seconds = number.parse::<i64>().ok()?.checked_mul(seconds)?;
    (1..=366 * 86_400).contains(&seconds).then_some(seconds * 1000)
}

/// Converts a time for the log store. Times here are from 1970 on.
pub(crate) fn system(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms.max(0).unsigned_abs())
}

/// Converts a time to milliseconds since 1970.
pub(crate) fn of_system(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(LATEST))
}

#[cfg(test)]
mod tests {
    use super::{duration, of_text};

    #[test]
    fn times() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2016-10-31T06:33:44.866Z", 1_477_895_624_866),
            ("2016-10-31T06:33:44.866123Z", 1_477_895_624_866),
            ("2016-10-31T07:33:44.8+01:00", 1_477_895_624_800),
            ("2000-02-29T12:00:00-00:30", 951_827_400_000),
            // A leap second counts as the second before it.
            ("2026-11-21 23:59:60z", 1_795_305_599_000),
        ] {
            assert_eq!(of_text(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "now",
            "2016-10-31",
            "2016-10-31T06:33:44",
            "2016-02-30T00:00:00Z",
            "2016-13-01T00:00:00Z",
            "2016-1-01T00:00:00Z",
            "2016-10-31T24:00:00Z",
            "2016-10-31T06:33:44.Z",
            "2016-10-31T06:33:44.866+1",
            "2016-10-31T06:33:44.866Zx",
            "1969-12-31T23:59:59Z",
            "3000-01-01T00:00:00Z",
            "äöü-10-31T06:33:44Z",
        ] {
            assert_eq!(of_text(text), None, "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, expected) in [
            ("1s", Some(1000)),
            ("5m", Some(300_000)),
            ("2w", Some(1_209_600_000)),
            ("366d", Some(31_622_400_000)),
        ] {
            assert_eq!(duration(text), expected, "{text}");
        }
        for text in ["", "5", "s", "0s", "-1s", "1y", "1.5h", "367d", "99999999999999999999s"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
