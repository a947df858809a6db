//! Which requests count.

use std::str::FromStr;
use std::time::SystemTime;

use crate::error::Error;
use crate::network::Network;
use crate::time::Zone;

/// Whether bots count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bots {
    /// Like everybody.
    #[default]
    Included,
    /// Only they.
    Only,
    /// They do not.
    Excluded,
}

impl Bots {
    /// Whether a request counts.
    pub(crate) const fn admits(self, bot: bool) -> bool {
        match self {
            Self::Included => true,
            Self::Only => bot,
            Self::Excluded => !bot,
        }
    }
}

/// What lists are sorted by, heaviest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The number of requests.
    #[default]
    Requests,
    /// The bytes that were sent.
    Bytes,
}

/// What an answer is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Requests where they are few or are needed to be exact, roll-ups otherwise.
    #[default]
    Either,
    /// Requests alone: exact, as far back as they are kept.
    Requests,
    /// Roll-ups where they are up to date and can answer; requests for what is not in them yet.
    Rollups,
}

/// Statuses from one to another: `404`, `5xx`, `400-499`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    low: i64,
    high: i64,
}

impl StatusRange {
    /// Whether a status is in it.
    pub(crate) const fn contains(self, status: i64) -> bool {
        self.low <= status && status <= self.high
    }
}

impl FromStr for StatusRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Question(format!("`{text}` is not a status: write 404, 5xx or 400-499"));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<i64>().ok().filter(|_| digits).ok_or_else(wrong)
        };
        if let Some(class) = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX")) {
            let class = number(class).ok().filter(|class| *class < 10).ok_or_else(wrong)?;
            return Ok(Self { low: class * 100, high: class * 100 + 99 });
        }
        let (low, high) = match text.split_once('-') {
            Some((low, high)) => (number(low)?, number(high)?),
            None => (number(text)?, number(text)?),
        };
        if low <= high { Ok(Self { low, high }) } else { Err(wrong()) }
    }
}

/// Which requests count. In hosts, paths and referrers a `*` stands for any text.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these hosts; none: all.
    pub hosts: Vec<String>,
    /// Only these statuses; none: all.
    pub statuses: Vec<StatusRange>,
    /// Only these methods, whatever their case; none: all.
    pub methods: Vec<String>,
    /// Only these paths; none: all.
    pub paths: Vec<String>,
    /// Only from these addresses and networks; none: all.
    pub clients: Vec<Network>,
    /// Only from these referrers; none: all. A name of a host stands for its pages and those of its subdomains.
    pub referrers: Vec<String>,
    /// Only from this time on.
    pub since: Option<SystemTime>,
    /// Only before this time.
    pub until: Option<SystemTime>,
    /// Not from these addresses and networks.
    pub exclude: Vec<Network>,
    /// Whether bots count.
    pub bots: Bots,
    /// No more rows than this; `None`: 20 for lists, 100 for searches, all for what is by time.
    pub limit: Option<usize>,
    /// What lists are sorted by.
    pub order: Order,
    /// What the answer is made from.
    pub source: Source,
    /// The time zone of days, weeks and months, and of times in the answer.
    pub zone: Zone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_one_a_class_or_a_range() {
        let range = |text: &str| text.parse::<StatusRange>().unwrap();
        assert!(range("404").contains(404) && !range("404").contains(405));
        assert!(range("5xx").contains(500) && range("5XX").contains(599) && !range("5xx").contains(499));
        assert!(range("400-403").contains(403) && !range("400-403").contains(404));
        assert!(range("0").contains(0));
        for text in ["", "x", "xx", "55xx", "1000", "-1", "404-", "500-400", "+44", "4x", "40 4"] {
            assert!(text.parse::<StatusRange>().is_err(), "{text}");
        }
    }
}
