//! Queries of the log store, and the form of their answers.

mod filter;

pub use crate::question::filter::{Bots, DataSource, RequestFilter, SortOrder, StatusFilter};
pub use crate::store::SqlValue;
use crate::time::TimeStep;

/// The host that stands for hosts without a name in the store.
pub const OTHER_HOSTS: &str = crate::store::schema::OTHER_HOSTS;

/// The subject of a list of heaviest items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Top {
    /// Requested paths, by host.
    Pages,
    /// Referring pages, from `Referer`.
    Referrers,
    /// Hosts that were requested.
    Hosts,
    /// Clients by IP address.
    Clients,
    /// Responses by status code.
    Status,
    /// Programs of clients, from `User-Agent`.
    Agents,
    /// Networks of clients: /24 in IPv4, /48 in IPv6.
    Networks,
    /// Countries of clients; needs a GeoIP file.
    Countries,
    /// Cities of clients; needs a GeoIP file of cities.
    Cities,
}

impl Top {
    /// Every list in the order of the discriminants.
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

    /// The name of the list, as in `offramp logs top pages`.
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

    /// The name of one row, which is that of the answer's first column.
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

/// The grouping of slow requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowBy {
    /// By page and host.
    #[default]
    Page,
    /// By the server that answered.
    Server,
}

/// Requests and bytes that belong to rows of an answer, or to a row that it lacks, but cannot be attributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// The upper bound on requests.
    pub requests: i64,
    /// The upper bound on bytes of responses.
    pub bytes: i64,
}

/// The result of a query: rows of named columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryResult {
    /// The names of the columns, starting with that of the item.
    pub columns: Vec<String>,
    /// The rows, each with one value per column.
    pub rows: Vec<Vec<SqlValue>>,
    /// Remarks on sources and gaps of the answer, one sentence each.
    pub notes: Vec<String>,
    /// The most that any row may lack, if counts are lower bounds.
    pub missing: Option<Shortfall>,
    /// The length of the intervals that column `time` has the starts of.
    pub step: Option<TimeStep>,
    /// The column that matters most, for bars beside it.
    pub measured: Option<&'static str>,
}

impl QueryResult {
    /// An answer without rows.
    pub(crate) fn of(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|&column| column.to_owned()).collect(), ..Self::default() }
    }
}
