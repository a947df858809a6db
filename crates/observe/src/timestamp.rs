//! Timestamps in UTC: RFC 3339 and the common log format.
//!
//! Hand-written: it is twenty lines of arithmetic on the hot side of the flusher, and a calendar crate would
//! bring time zones, parsing and format strings that are not needed here. Leap seconds do not exist, as in
//! Unix time.

use std::time::{SystemTime, UNIX_EPOCH};

/// The precision of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Without a fraction: `2026-11-21T20:51:00Z`
    Seconds,
    /// With six digits of the second: `2026-11-21T20:51:00.123456Z`
    Micros,
}

/// Appends `time` to `out`. Times outside the years 0000–9999, which RFC 3339 cannot express, are clamped.
pub fn write_rfc3339(out: &mut Vec<u8>, time: SystemTime, precision: Precision) {
    let mut text = rfc3339_micros(time);
    let end = match precision {
        Precision::Seconds => {
            text[19] = b'Z';
            20
        }
        Precision::Micros => text.len(),
    };
    out.extend_from_slice(&text[..end]);
}

/// `time` with microseconds, clamped like [`write_rfc3339`].
#[must_use]
pub fn rfc3339_micros(time: SystemTime) -> [u8; 27] {
    let civil = Civil::from(time);
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    digits(&mut text[0..4], civil.year);
    digits(&mut text[5..7], civil.month);
    digits(&mut text[8..10], civil.day);
    digits(&mut text[11..13], civil.second / 3600);
    digits(&mut text[14..16], civil.second / 60 % 60);
    digits(&mut text[17..19], civil.second % 60);
    digits(&mut text[20..26], civil.micro);
    text
}

/// `time` in UTC in the common log format: `21/Nov/2026:20:51:00 +0000`.
#[must_use]
pub fn common_log(time: SystemTime) -> [u8; 26] {
    let civil = Civil::from(time);
    let mut text = *b"00/Mon/0000:00:00:00 +0000";
    digits(&mut text[0..2], civil.day);
    // Months count from 1 to 12.
    text[3..6].copy_from_slice(MONTHS[civil.month as usize - 1].as_bytes());
    digits(&mut text[7..11], civil.year);
    digits(&mut text[12..14], civil.second / 3600);
    digits(&mut text[15..17], civil.second / 60 % 60);
    digits(&mut text[18..20], civil.second % 60);
    text
}

/// A point in time in UTC; a year has at most four digits.
struct Civil {
    year: u32,
    month: u32,
    day: u32,
    /// The second of the day.
    second: u32,
    /// The microsecond of the second.
    micro: u32,
}

impl From<SystemTime> for Civil {
    fn from(time: SystemTime) -> Self {
        let (seconds, micro) = match time.duration_since(UNIX_EPOCH) {
            Ok(after) if after.as_secs() <= MAX_SECONDS => {
                (after.as_secs().cast_signed(), after.subsec_micros())
            }
            // Before 1970, or beyond the year 9999.
            _ => {
                let micros = unix_micros(time).clamp(MIN_MICROS, MAX_MICROS);
                // The remainder of a division by a million fits.
                (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000) as u32)
            }
        };
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        // The remainder of a division by 86,400 fits, and so do the parts of a date within the bounds, none
        // of which is negative.
        let second = seconds.rem_euclid(86_400) as u32;
        Self { year: year as u32, month: month as u32, day: day as u32, second, micro }
    }
}

/// Writes the last decimal digits of `number`, as many as fit.
#[inline(always)]
fn digits(room: &mut [u8], number: u32) {
    let mut rest = number;
    // Every part has an even number of digits.
    for pair in room.as_chunks_mut::<2>().0.iter_mut().rev() {
        // Both digits are below ten.
        *pair = [b'0' + (rest % 100 / 10) as u8, b'0' + (rest % 10) as u8];
        rest /= 100;
    }
}

/// Microseconds since 1970, negative before; saturating.
fn unix_micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            // Rounds down, towards the past, like the times after 1970.
            let nanos = i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX);
            i64::try_from((-nanos).div_euclid(1000)).unwrap_or(i64::MIN)
        }
    }
}

/// Converts days since 1970-01-01 to year, month and day of the proleptic Gregorian calendar. Years start in
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

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS_PER_ERA: i64 = 146_097;
const DAYS_0000_03_01_TO_1970: i64 = 719_468;
/// The time 0000-01-01T00:00:00Z, the earliest.
const MIN_MICROS: i64 = -62_167_219_200_000_000;
/// The time 9999-12-31T23:59:59Z, the latest.
const MAX_SECONDS: u64 = 253_402_300_799;
/// The time 9999-12-31T23:59:59.999999Z, the latest.
const MAX_MICROS: i64 = 253_402_300_799_999_999;

#[cfg(test)]
mod tests {
    use super::{Precision, civil_from_days, common_log, write_rfc3339};
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
    fn the_common_log_format() {
        let time = UNIX_EPOCH + Duration::from_secs(1_795_294_260);
        assert_eq!(&common_log(time), b"21/Nov/2026:20:51:00 +0000");
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
