//! What can be asked, and what an answer looks like.

use std::time::SystemTime;

use crate::network::Network;
pub use crate::store::Value;

/// What a list is of: the heaviest of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Top {
    /// Paths, by host.
    Pages,
    /// Pages that led here, as `Referer` says.
    Referrers,
    /// Hosts that were asked for.
    Hosts,
    /// Addresses that asked.
    Clients,
    /// Statuses of answers.
    Status,
    /// Programs that asked, as `User-Agent` says.
    Agents,
    /// Networks that asked: /24 in IPv4, /48 in IPv6.
    Networks,
    /// Countries that asked; needs a GeoIP file.
    Countries,
    /// Cities that asked; needs a GeoIP file of cities.
    Cities,
}

impl Top {
    /// Every list.
    pub const ALL: [Self; 9] = [
        Self::Pages,
        Self::Referrers,
        Self::Hosts,
        Self::Clients,
        Self::Status,
        Self::Agents,
        Self::Networks,
        Self::Countries,
        Self::Cities,
    ];

    /// The list's name, as in `offramp logs top pages`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Referrers => "referrers",
            Self::Hosts => "hosts",
            Self::Clients => "clients",
            Self::Status => "status",
            Self::Agents => "agents",
            Self::Networks => "networks",
            Self::Countries => "countries",
            Self::Cities => "cities",
        }
    }

    /// What one row is called: the name of the answer's first column.
    #[must_use]
    pub const fn thing(self) -> &'static str {
        match self {
            Self::Pages => "page",
            Self::Referrers => "referrer",
            Self::Hosts => "host",
            Self::Clients => "client",
            Self::Status => "status",
            Self::Agents => "agent",
            Self::Networks => "network",
            Self::Countries => "country",
            Self::Cities => "city",
        }
    }
}

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

/// Which requests count.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these hosts; none: all.
    pub hosts: Vec<String>,
    /// Only from this time on.
    pub since: Option<SystemTime>,
    /// Only before this time.
    pub until: Option<SystemTime>,
    /// Not from these addresses and networks.
    pub exclude: Vec<Network>,
    /// Whether bots count.
    pub bots: Bots,
    /// No more rows than this; `None`: 20 for lists, 100 for searches, all for traffic.
    pub limit: Option<usize>,
    /// What lists are sorted by.
    pub order: Order,
    /// What the answer is made from.
    pub source: Source,
}

/// Rows of named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The names of the columns, the named thing first.
    pub columns: Vec<String>,
    /// One value per column in each row.
    pub rows: Vec<Vec<Value>>,
}
