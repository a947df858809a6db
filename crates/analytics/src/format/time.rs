//! Times in logs: the common log format, ISO 8601, and seconds or smaller units since 1970.
//!
//! Impossible dates are rejected with their offset. A text equal to the last one, as in lines of one second,
//! is not parsed again.

use crate::parse_error::ParseError;

/// A parser of times that caches the last one.
#[derive(Clone, Debug)]
pub(super) struct TimestampParser {
    last: [u8; REMEMBERED],
    length: usize,
    time_us: i64,
    /// The offset from UTC, in seconds, of times without one.
    assumed_offset: i64,
}

impl TimestampParser {
    pub(super) const fn new(assumed_offset: i64) -> Self {
        Self { last: [0; REMEMBERED], length: 0, time_us: 0, assumed_offset }
    }

    /// Parses a time in any notation into microseconds since 1970.
    pub(super) fn read(&mut self, text: &[u8]) -> Result<i64, ParseError> {
        if text == &self.last[..self.length] && self.length > 0 {
            return Ok(self.time_us);
        }
        let time_us = match text {
            [_, _, b'/', ..] => self.common(text)?,
            [_, _, _, _, b'-' | b'/', ..] => self.iso(text)?,
            _ => unix(text)?,
        };
        if text.len() <= REMEMBERED {
            self.last[..text.len()].copy_from_slice(text);
            (self.length, self.time_us) = (text.len(), time_us);
        }
        Ok(time_us)
    }

    /// Parses `22/Nov/2026:01:02:03 +0100`; HAProxy's has a fraction and no offset.
    fn common(&self, text: &[u8]) -> Result<i64, ParseError> {
        let mut at = TextCursor { text, at: 3 };
        let month = month(text.get(3..6)).ok_or_else(|| ParseError::new(3, "a month from Jan to Dec"))?;
        at.at = 6;
        at.one_of(b"/", "a slash before the year")?;
        let year = at.number(4, 1970, 9999, "a year from 1970 on")?;
        at.one_of(b":", "a colon before the hour")?;
        let day = TextCursor { text, at: 0 }.number(2, 1, days_in(year, month), "a day of that month")?;
        self.rest(at, days_from_civil(year, month, day))
    }

    /// Parses `2026-11-22T01:02:03.456+01:00`, also with a space or with slashes.
    fn iso(&self, text: &[u8]) -> Result<i64, ParseError> {
        let mut at = TextCursor { text, at: 0 };
        let year = at.number(4, 1970, 9999, "a year from 1970 on")?;
        at.at += 1;
        let month = at.number(2, 1, 12, "a month from 01 to 12")?;
        at.one_of(&text[4..5], "the separator before the day")?;
        let day = at.number(2, 1, days_in(year, month), "a day of that month")?;
        at.one_of(b"Tt ", "`T` before the hour")?;
        self.rest(at, days_from_civil(year, month, day))
    }

    /// Parses the part from the hour on.
    fn rest(&self, mut at: TextCursor<'_>, days: i64) -> Result<i64, ParseError> {
        let hour = at.number(2, 0, 23, "an hour from 00 to 23")?;
        at.one_of(b":", "a colon before the minute")?;
        let minute = at.number(2, 0, 59, "a minute from 00 to 59")?;
        at.one_of(b":", "a colon before the second")?;
        // A leap second counts as the first of the next minute, as in POSIX.
        let second = at.number(2, 0, 60, "a second from 00 to 60")?;
        let micros = at.fraction()?;
        let offset = at.offset(self.assumed_offset)?;
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset;
        Ok(seconds * 1_000_000 + micros)
    }
}

struct TextCursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl TextCursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn one_of(&mut self, set: &[u8], expected: &'static str) -> Result<(), ParseError> {
        if self.peek().is_some_and(|byte| set.contains(&byte)) {
            self.at += 1;
            return Ok(());
        }
        Err(ParseError::new(self.at.min(self.text.len()), expected))
    }

    /// Parses exactly `digits` digits as a number within `low..=high`.
    fn number(
        &mut self,
        digits: usize,
        low: i64,
        high: i64,
        expected: &'static str,
    ) -> Result<i64, ParseError> {
        let mut value = 0;
        for offset in 0..digits {
            match self.text.get(self.at + offset) {
                Some(digit @ b'0'..=b'9') => value = value * 10 + i64::from(digit - b'0'),
                _ => return Err(ParseError::new((self.at + offset).min(self.text.len()), expected)),
            }
        }
        if value < low || value > high {
            return Err(ParseError::new(self.at, expected));
        }
        self.at += digits;
        Ok(value)
    }

    /// Parses an optional fraction of a second into microseconds.
    fn fraction(&mut self) -> Result<i64, ParseError> {
        if !matches!(self.peek(), Some(b'.' | b',')) {
            return Ok(0);
        }
        self.at += 1;
        let (mut micros, mut unit, start) = (0, 100_000, self.at);
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            micros += i64::from(digit - b'0') * unit;
            unit /= 10;
            self.at += 1;
        }
        if self.at == start {
            return Err(ParseError::new(start, "digits of a second's fraction"));
        }
        Ok(micros)
    }

    /// Parses an optional offset from UTC into seconds: `Z`, `+01:00`, ` +0100`, `+01`.
    fn offset(&mut self, assumed: i64) -> Result<i64, ParseError> {
        if self.at == self.text.len() {
            return Ok(assumed);
        }
        if self.peek() == Some(b' ') {
            self.at += 1;
        }
        let sign = match self.peek() {
            Some(b'Z' | b'z') => {
                self.at += 1;
                return self.end(0);
            }
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => {
                return Err(ParseError::new(
                    self.at.min(self.text.len()),
                    "an offset from UTC such as +0100",
                ));
            }
        };
        self.at += 1;
        let hours = self.number(2, 0, 14, "an offset of at most 14 hours")?;
        if self.peek() == Some(b':') {
            self.at += 1;
        }
        let minutes =
            if self.at == self.text.len() { 0 } else { self.number(2, 0, 59, "minutes of an offset")? };
        self.end(sign * (hours * 3_600 + minutes * 60))
    }

    fn end(&self, value: i64) -> Result<i64, ParseError> {
        if self.at == self.text.len() {
            Ok(value)
        } else {
            Err(ParseError::new(self.at, "the end of the time"))
        }
    }
}

/// Parses seconds since 1970, with or without a fraction; whole numbers too large for seconds are smaller
/// units.
fn unix(text: &[u8]) -> Result<i64, ParseError> {
    let wrong =
        |at| ParseError::new(at, "a time, such as 22/Nov/2026:01:02:03 +0000 or 2026-11-22T01:02:03Z");
    if let Some(at) = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.') {
        let float = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        return match float {
            // In range, so the cast is exact: microseconds up to the year 9999 fit 64 bits.
            Some(float) if (0.0..=LAST_SECOND).contains(&float) => Ok((float * 1e6) as i64),
            _ => Err(wrong(at)),
        };
    }
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b""[..]),
    };
    if whole.is_empty() || whole.len() > 19 || memchr::memchr(b'.', fraction).is_some() {
        return Err(wrong(0));
    }
    let Some(number) = decimal(whole) else { return Err(wrong(0)) };
    let micros = fraction
        .iter()
        .chain(std::iter::repeat(&b'0'))
        .take(6)
        .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Ok(match number {
        0..100_000_000_000 => number * 1_000_000 + micros,
        100_000_000_000..100_000_000_000_000 => number * 1_000,
        100_000_000_000_000..100_000_000_000_000_000 => number,
        _ => number / 1_000,
    })
}

fn decimal(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0i64, |sum, digit| sum.checked_mul(10)?.checked_add(i64::from(digit - b'0')))
}

fn month(name: Option<&[u8]>) -> Option<i64> {
    Some(match name? {
        b"Jan" => 1,
        b"Feb" => 2,
        b"Mar" => 3,
        b"Apr" => 4,
        b"May" => 5,
        b"Jun" => 6,
        b"Jul" => 7,
        b"Aug" => 8,
        b"Sep" => 9,
        b"Oct" => 10,
        b"Nov" => 11,
        b"Dec" => 12,
        _ => return None,
    })
}

const fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar; years start in March, so that the leap day is
/// last.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The maximum length of a cached text.
const REMEMBERED: usize = 40;
/// The last second of the year 9999.
const LAST_SECOND: f64 = 253_402_300_799.0;

#[cfg(test)]
mod tests {
    use super::TimestampParser;

    #[test]
    fn reads_every_notation() {
        for (text, expected) in [
            ("22/Nov/2026:01:02:03 +0000", 1_795_309_323_000_000),
            ("22/Nov/2026:01:02:03 +0130", 1_795_303_923_000_000),
            ("21/Nov/2026:20:02:03 -0500", 1_795_309_323_000_000),
            ("29/Feb/2024:00:00:00 +0000", 1_709_164_800_000_000),
            ("06/Feb/2009:12:14:14.655", 1_233_922_454_655_000),
            ("31/Dec/2016:23:59:60 +0000", 1_483_228_800_000_000),
            ("2026-11-22T01:02:03Z", 1_795_309_323_000_000),
            ("2026-11-22T02:02:03.123456789+01:00", 1_795_309_323_123_456),
            ("2026-11-22 01:02:03,5", 1_795_309_323_500_000),
            ("2026/11/22 01:02:03", 1_795_309_323_000_000),
            ("1795309323", 1_795_309_323_000_000),
            ("1795309323.25", 1_795_309_323_250_000),
            ("1795309323250", 1_795_309_323_250_000),
            ("1795309323250000", 1_795_309_323_250_000),
            ("1795309323250000000", 1_795_309_323_250_000),
            ("1.79530932325e9", 1_795_309_323_250_000),
            ("0", 0),
        ] {
            let mut clock = TimestampParser::new(0);
            assert_eq!(clock.read(text.as_bytes()), Ok(expected), "{text}");
            assert_eq!(clock.read(text.as_bytes()), Ok(expected), "{text}, remembered");
        }
        assert_eq!(TimestampParser::new(3_600).read(b"06/Feb/2009:12:14:14.655"), Ok(1_233_918_854_655_000));
    }

    #[test]
    fn refuses_the_impossible_with_its_place() {
        for (text, at) in [
            ("29/Feb/2026:01:02:03 +0000", 0),
            ("31/Apr/2026:01:02:03 +0000", 0),
            ("00/Nov/2026:01:02:03 +0000", 0),
            ("22/Nix/2026:01:02:03 +0000", 3),
            ("22/Nov/1969:01:02:03 +0000", 7),
            ("22/Nov/2026:24:02:03 +0000", 12),
            ("22/Nov/2026:01:60:03 +0000", 15),
            ("22/Nov/2026:01:02:61 +0000", 18),
            ("22/Nov/2026:01:02:03 +1500", 22),
            ("22/Nov/2026:01:02:03 0000", 21),
            ("22/Nov/2026:01:02:03 +0000x", 26),
            ("22/Nov/2026:01:02", 17),
            ("22/N", 3),
            ("2026-13-01T00:00:00Z", 5),
            ("2026-11-31T00:00:00Z", 8),
            ("2026-11-22T00:00:00.Z", 20),
            ("yesterday", 0),
            ("99999999999999999999", 0),
            ("1.2.3", 0),
            ("-1", 0),
            ("", 0),
        ] {
            let error = TimestampParser::new(0).read(text.as_bytes()).expect_err(text);
            assert_eq!(error.at, at, "{text}: {error}");
        }
    }

    #[test]
    fn counts_days_like_a_calendar() {
        let mut expected = 0;
        for year in 1970..2200 {
            for month in 1..=12 {
                for day in 1..=super::days_in(year, month) {
                    assert_eq!(super::days_from_civil(year, month, day), expected);
                    expected += 1;
                }
            }
        }
    }
}
