//! Queries of the log store, and the form of their answers.

mod filter;

pub use crate::question::filter::{Bots, Filter, Order, Source, StatusRange};
pub use crate::store::Value;
use crate::time::TimeStep;

/// The host of traffic whose own host has no name in the store.
pub const OTHER_HOSTS: &str = crate::writer::shape::OTHER;

/// What a list is of: the heaviest of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Top {
    /// Paths, by host.
    Pages,
    /// Pages that led here, as `Referer` says.
    Referrers,
    /// Requested hosts.
    Hosts,
    /// Addresses of clients.
    Clients,
    /// Statuses of answers.
    Status,
    /// Programs of clients, by their `User-Agent`.
    Agents,
    /// Networks of clients: /24 in IPv4, /48 in IPv6.
    Networks,
    /// Countries of clients; needs a GeoIP file.
    Countries,
    /// Cities of clients; needs a GeoIP file of cities.
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

/// How slow requests are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// Pages, by host.
    #[default]
    Page,
    /// Servers that answered.
    Server,
}

/// Requests and bytes that belong to rows of an answer, or to a row that it lacks, and that nothing attributes to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Requests without a name, at most.
    pub requests: i64,
    /// Bytes of their responses, at most.
    pub bytes: i64,
}

/// Rows of named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The names of the columns, the named thing first.
    pub columns: Vec<String>,
    /// One value per column in each row.
    pub rows: Vec<Vec<Value>>,
    /// What a reader must know of the answer: what it was made from, and what is missing from it. One sentence each.
    pub notes: Vec<String>,
    /// The most that any row may be above what it says, where counts are lower bounds.
    pub missing: Option<Shortfall>,
    /// How long the intervals are whose beginnings the column `time` has, if it has those.
    pub step: Option<TimeStep>,
    /// The column that the answer is about, for bars beside it.
    pub measured: Option<&'static str>,
}

impl Answer {
    /// An answer without rows.
    pub(crate) fn of(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|&column| column.to_owned()).collect(), ..Self::default() }
    }
}
