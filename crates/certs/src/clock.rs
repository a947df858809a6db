//! Conversions between ASN.1 times, system times, and dates in messages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::time::ASN1Time;

/// The instant of a validity field.
pub(crate) fn from_asn1(time: ASN1Time) -> SystemTime {
    let seconds = time.timestamp();
    let distance = Duration::from_secs(seconds.unsigned_abs());
    // RFC 5280 §4.1.2.5 allows the years 0 to 9999, all of which SystemTime can express.
    if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// The date in UTC, such as `2026-11-21`.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
    };
    match ASN1Time::from_timestamp(seconds) {
        Ok(time) => {
            let time = time.to_datetime();
            format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
        }
        Err(_) => "a date beyond the year 9999".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_in_utc() {
        assert_eq!(date(UNIX_EPOCH), "1970-01-01");
        assert_eq!(date(UNIX_EPOCH + Duration::from_secs(1_795_219_200)), "2026-11-21");
        assert_eq!(date(UNIX_EPOCH - Duration::from_secs(1)), "1969-12-31");
        assert_eq!(date(UNIX_EPOCH + Duration::from_secs(1 << 50)), "a date beyond the year 9999");
    }
}
