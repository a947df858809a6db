//! Times as people and programs read them: RFC 3339, in UTC.

/// The text of microseconds since 1970; fractions of a second are left out where there are none.
pub(crate) fn text(time_us: i64) -> String {
    let (seconds, micros) = (time_us.div_euclid(1_000_000), time_us.rem_euclid(1_000_000));
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Year, month and day of a day since 1970 in the Gregorian calendar. Counted in eras of 400 years from the 1st of
/// March, so that leap days come last.
const fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        for (time, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00Z"),
            (1_795_305_599_000_001, "2026-11-21T23:59:59.000001Z"),
            (-1_000_000, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(text(time), expected);
        }
    }
}
