//! Points in time as RFC 3339 text in UTC.
//!
//! Written by hand because it is twenty lines of arithmetic on the hot side of the flusher, and a calendar
//! crate would bring time zones, parsing and formatting languages that nobody here asks for. It refuses to
//! know about leap seconds, as Unix time does.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// How finely a timestamp is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// `2026-11-21T20:51:00Z`
    Seconds,
    /// `2026-11-21T20:51:00.123456Z`
    Micros,
}

/// Appends `time` to `out`. Years outside of 0000–9999 cannot be written in RFC 3339; such times become the
/// nearest one that can.
pub fn write_rfc3339(out: &mut Vec<u8>, time: SystemTime, precision: Precision) {
    let micros = unix_micros(time).clamp(MIN_MICROS, MAX_MICROS);
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second_of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    // Writing into a Vec cannot fail.
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if precision == Precision::Micros {
        let _ = write!(out, ".{fraction:06}");
    }
    out.push(b'Z');
}

/// Microseconds since 1970, negative before; saturating.
fn unix_micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            // Rounded down, towards the past, like the times after 1970.
            let nanos = i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX);
            i64::try_from((-nanos).div_euclid(1000)).unwrap_or(i64::MIN)
        }
    }
}

/// Days since 1970-01-01 to year, month and day of the proleptic Gregorian calendar. Years are counted from
/// March, so that the leap day is the last of its year; an era is 400 years.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + DAYS_0000_03_01_TO_1970;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

const DAYS_PER_ERA: i64 = 146_097;
const DAYS_0000_03_01_TO_1970: i64 = 719_468;
/// 0000-01-01T00:00:00Z.
const MIN_MICROS: i64 = -62_167_219_200_000_000;
/// 9999-12-31T23:59:59.999999Z.
const MAX_MICROS: i64 = 253_402_300_799_999_999;

#[cfg(test)]
mod tests {
    use super::{Precision, civil_from_days, write_rfc3339};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    fn text(time: SystemTime, precision: Precision) -> String {
        let mut out = Vec::new();
        write_rfc3339(&mut out, time, precision);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_times() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(text(UNIX_EPOCH, Precision::Seconds), "1970-01-01T00:00:00Z");
        assert_eq!(text(at(951_782_399), Precision::Seconds), "2000-02-28T23:59:59Z");
        assert_eq!(text(at(951_782_400), Precision::Seconds), "2000-02-29T00:00:00Z");
        assert_eq!(text(at(1_795_294_260), Precision::Seconds), "2026-11-21T20:51:00Z");
        let fine = at(1_795_294_260) + Duration::from_nanos(1_234_999);
        assert_eq!(text(fine, Precision::Micros), "2026-11-21T20:51:00.001234Z");
    }

    #[test]
    fn times_outside_of_the_calendar_are_clamped() {
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(text(before, Precision::Micros), "1969-12-31T23:59:59.999999Z");
        let late = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(text(late, Precision::Micros), "9999-12-31T23:59:59.999999Z");
        let early = UNIX_EPOCH - Duration::from_secs(1 << 40);
        assert_eq!(text(early, Precision::Seconds), "0000-01-01T00:00:00Z");
    }

    #[test]
    fn every_day_follows_its_eve() {
        let (mut year, mut month, mut day) = civil_from_days(-800_000);
        for days in -799_999..800_000 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + i64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
            assert_eq!(civil_from_days(days), (year, month, day));
        }
    }
}
