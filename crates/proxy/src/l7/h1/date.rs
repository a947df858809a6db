//! The field `date` (RFC 9110 §6.6.1), written once a second at the most.

use std::cell::{Cell, RefCell};
use std::time::{SystemTime, UNIX_EPOCH};

use offramp_net::clock::coarse_ms;

/// The time of day as responses tell it.
pub(crate) struct Date {
    text: RefCell<[u8; LENGTH]>,
    /// From when on it is another, in milliseconds of the coarse clock.
    until: Cell<u64>,
}

const LENGTH: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Default for Date {
    fn default() -> Self {
        Self { text: RefCell::new([b' '; LENGTH]), until: Cell::new(0) }
    }
}

impl Date {
    /// Appends the date.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let now = coarse_ms();
        if now >= self.until.get() {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            *self.text.borrow_mut() = text(since.as_secs());
            self.until.set(now + 1000 - u64::from(since.subsec_millis()));
        }
        out.extend_from_slice(&*self.text.borrow());
    }
}

/// A moment, in seconds since 1970, as an IMF-fixdate (RFC 9110 §5.6.7).
fn text(seconds: u64) -> [u8; LENGTH] {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    // Each remainder is an index of its table.
    text[..3].copy_from_slice(DAYS[(days % 7) as usize].as_bytes());
    text[8..11].copy_from_slice(MONTHS[(month - 1) as usize].as_bytes());
    let mut put = |at: usize, number: u64| {
        text[at] = b'0' + (number / 10 % 10) as u8;
        text[at + 1] = b'0' + (number % 10) as u8;
    };
    put(5, day);
    put(12, year / 100);
    put(14, year % 100);
    put(17, second / 3600);
    put(20, second / 60 % 60);
    put(23, second % 60);
    text
}

/// Year, month and day of the Gregorian calendar. Counted in years that begin in March, so that a leap day is
/// the last one of its year; 400 of them always have the same number of days.
fn civil(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // From the first of March of the year 0.
    let days = days + 719_468;
    let of_era = days % ERA;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (days / ERA * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written() {
        let of = |seconds| String::from_utf8(text(seconds).to_vec()).unwrap();
        assert_eq!(of(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(of(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(of(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(of(1_709_251_199), "Thu, 29 Feb 2024 23:59:59 GMT");
        assert_eq!(of(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(of(1_798_761_599), "Thu, 31 Dec 2026 23:59:59 GMT");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..150_000 {
            assert_eq!(civil(days), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = lengths[month as usize - 1] + u64::from(leap && month == 2);
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn it_is_now() {
        let (date, mut out) = (Date::default(), Vec::new());
        let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let before = seconds();
        date.write(&mut out);
        let after = seconds();
        assert!((before..=after).any(|moment| text(moment)[..] == out[..]), "{}", out.escape_ascii());
    }
}
