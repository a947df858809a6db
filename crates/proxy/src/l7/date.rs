//! The `Date` of responses (RFC 9110 §6.6.1), written once a second.

use std::cell::{Cell, RefCell};
use std::time::{Duration, SystemTime};

use http::HeaderValue;
use httpdate::HttpDate;

/// The time of day as responses say it. Belongs to one worker.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// The second since the epoch that `text` says.
    second: Cell<u64>,
    text: RefCell<HeaderValue>,
}

impl Default for Calendar {
    fn default() -> Self {
        Self { second: Cell::new(0), text: RefCell::new(written(0)) }
    }
}

impl Calendar {
    /// The time `now`, to the second.
    pub(crate) fn date(&self, now: SystemTime) -> HeaderValue {
        let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.second.replace(second) != second {
            *self.text.borrow_mut() = written(second);
        }
        self.text.borrow().clone()
    }
}

fn written(second: u64) -> HeaderValue {
    let date = HttpDate::from(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).to_string();
    // A date is printable.
    HeaderValue::try_from(date).unwrap_or_else(|_| HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_change_with_the_second() {
        let calendar = Calendar::default();
        let at = |millis| calendar.date(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(at(784_111_778_000), "Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(at(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT", "clocks may be set back");
    }
}
