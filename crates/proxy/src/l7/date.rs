//! The field `date` (RFC 9110 §6.6.1), written once a second at the most.

use std::cell::{Cell, RefCell};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use httpdate::HttpDate;
use offramp_net::clock::coarse_ms;

/// The time of day as responses tell it. Belongs to one worker.
pub(crate) struct Date {
    text: RefCell<HeaderValue>,
    /// From when on it is another, in milliseconds of the coarse clock.
    until: Cell<u64>,
}

impl Default for Date {
    fn default() -> Self {
        Self { text: RefCell::new(text(0)), until: Cell::new(0) }
    }
}

impl Date {
    /// The date, to the second.
    pub(crate) fn now(&self) -> HeaderValue {
        self.refresh();
        self.text.borrow().clone()
    }

    /// Appends the date as a field value.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.refresh();
        out.extend_from_slice(self.text.borrow().as_bytes());
    }

    fn refresh(&self) {
        let now = coarse_ms();
        if now >= self.until.get() {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            *self.text.borrow_mut() = text(since.as_secs());
            self.until.set(now + 1000 - u64::from(since.subsec_millis()));
        }
    }
}

/// A moment, in seconds since 1970, as an IMF-fixdate (RFC 9110 §5.6.7).
fn text(seconds: u64) -> HeaderValue {
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
    // A date is printable.
    HeaderValue::try_from(date).unwrap_or_else(|_| HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_now() {
        let date = Date::default();
        let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let before = seconds();
        let (value, mut out) = (date.now(), Vec::new());
        date.write(&mut out);
        let after = seconds();
        assert!((before..=after).any(|moment| text(moment) == value), "{value:?}");
        assert!((before..=after).any(|moment| text(moment).as_bytes() == out), "{}", out.escape_ascii());
    }

    #[test]
    fn moments_have_the_one_form() {
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(1_709_251_199), "Thu, 29 Feb 2024 23:59:59 GMT");
    }
}
