//! Filters: the requests that a query covers.

use std::str::FromStr;
use std::time::SystemTime;

use crate::error::Error;
use crate::network::AddressRange;
use crate::time::Zone;

/// The treatment of bots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bots {
    /// Bots count like people.
    #[default]
    Included,
    /// Only bots count, people do not.
    Only,
    /// Bots do not count.
    Excluded,
}

impl Bots {
    /// Returns `true` if a request with this mark counts.
    pub(crate) const fn admits(self, bot: bool) -> bool {
        match self {
            Self::Included => true,
            Self::Only => bot,
            Self::Excluded => !bot,
        }
    }
}

/// The sort order of lists, heaviest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// By number of requests.
    #[default]
    Requests,
    /// By bytes of responses sent.
    Bytes,
}

/// The data that an answer is computed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataSource {
    /// Requests if they are few or exactness needs them, else roll-ups.
    #[default]
    Either,
    /// Requests only: exact, as far back as they are kept.
    Requests,
    /// Roll-ups if they are up to date and can answer, with requests for the hours not yet in them.
    Rollups,
}

/// A range of statuses: `404`, `5xx`, `400-499`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusFilter {
    low: i64,
    high: i64,
}

impl StatusFilter {
    /// Returns `true` for statuses in the range.
    pub(crate) const fn contains(self, status: i64) -> bool {
        self.low <= status && status <= self.high
    }
}

impl FromStr for StatusFilter {
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

/// The requests that a query covers. A `*` in hosts, paths and referrers stands for any text.
#[derive(Clone, Debug, Default)]
pub struct RequestFilter {
    /// Only these hosts; empty for all.
    pub hosts: Vec<String>,
    /// Only these statuses; empty for all.
    pub statuses: Vec<StatusFilter>,
    /// Only these methods, ignoring case; empty for all.
    pub methods: Vec<String>,
    /// Only these paths; empty for all.
    pub paths: Vec<String>,
    /// Only these client addresses and networks; empty for all.
    pub clients: Vec<AddressRange>,
    /// Only these referrers; empty for all. A host name covers its pages and those of its subdomains.
    pub referrers: Vec<String>,
    /// Only from this time on.
    pub since: Option<SystemTime>,
    /// Only before this time.
    pub until: Option<SystemTime>,
    /// Excluded client addresses and networks.
    pub exclude: Vec<AddressRange>,
    /// The treatment of bots.
    pub bots: Bots,
    /// The maximum number of rows; by default 20 for lists, 100 for searches, unlimited by time.
    pub limit: Option<usize>,
    /// The sort order of lists.
    pub order: SortOrder,
    /// The data that the answer is computed from.
    pub source: DataSource,
    /// The time zone of days, weeks and months, and of times in the answer.
    pub zone: Zone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_one_a_class_or_a_range() {
        let range = |text: &str| text.parse::<StatusFilter>().unwrap();
        assert!(range("404").contains(404) && !range("404").contains(405));
        assert!(range("5xx").contains(500) && range("5XX").contains(599) && !range("5xx").contains(499));
        assert!(range("400-403").contains(403) && !range("400-403").contains(404));
        assert!(range("0").contains(0));
        for text in ["", "x", "xx", "55xx", "1000", "-1", "404-", "500-400", "+44", "4x", "40 4"] {
            assert!(text.parse::<StatusFilter>().is_err(), "{text}");
        }
    }
}
