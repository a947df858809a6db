//! What a panel can ask for, by name. Names are in users' dashboards: one may be added, none changes.

use offramp_analytics::Top;

use crate::grafana::parameters::Key;
use crate::refusal::Refusal;

/// What a panel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Requests of people, bots left out unless asked for.
    BlogHits,
    /// Requests by site.
    Sites,
    /// Bytes that left.
    OutboundData,
    /// Requests and bytes.
    Traffic,
    /// The heaviest of something.
    List(Top),
    /// Requests that have a text.
    Search,
    /// Answers that say that a server failed.
    Errors,
}

/// Every target.
pub(crate) const ALL: [Target; 15] = [
    Target::BlogHits,
    Target::Sites,
    Target::OutboundData,
    Target::Traffic,
    Target::List(Top::Pages),
    Target::List(Top::Referrers),
    Target::List(Top::Hosts),
    Target::List(Top::Clients),
    Target::List(Top::Status),
    Target::List(Top::Agents),
    Target::List(Top::Networks),
    Target::List(Top::Countries),
    Target::List(Top::Cities),
    Target::Search,
    Target::Errors,
];

/// How an answer is shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Series,
    Table,
}

impl Target {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BlogHits => "blog_hits",
            Self::Sites => "sites",
            Self::OutboundData => "outbound_data",
            Self::Traffic => "traffic",
            Self::List(top) => top.name(),
            Self::Search => "search",
            Self::Errors => "errors",
        }
    }

    /// What people read in menus.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::BlogHits => "Hits by people",
            Self::Sites => "Requests by site",
            Self::OutboundData => "Bytes sent",
            Self::Traffic => "Requests and bytes",
            Self::List(Top::Pages) => "Pages",
            Self::List(Top::Referrers) => "Referrers",
            Self::List(Top::Hosts) => "Hosts",
            Self::List(Top::Clients) => "Clients",
            Self::List(Top::Status) => "Statuses",
            Self::List(Top::Agents) => "Agents",
            Self::List(Top::Networks) => "Networks",
            Self::List(Top::Countries) => "Countries",
            Self::List(Top::Cities) => "Cities",
            Self::Search => "Search",
            Self::Errors => "Errors of servers (5xx)",
        }
    }

    /// # Errors
    /// There is none of this name; the text has those that there are.
    pub(crate) fn of(name: &str) -> Result<Self, Refusal> {
        ALL.into_iter().find(|target| target.name() == name).ok_or_else(|| {
            let names = ALL.map(Self::name).join(", ");
            Refusal::wrong(format!("there is no target `{name}`; there are {names}"))
        })
    }

    /// Whether it needs a GeoIP file.
    pub(crate) const fn needs_places(self) -> bool {
        matches!(self, Self::List(Top::Countries | Top::Cities))
    }

    /// What it is where neither the panel nor its parameters say.
    pub(crate) const fn usual_shape(self) -> Shape {
        match self {
            Self::List(_) | Self::Search => Shape::Table,
            _ => Shape::Series,
        }
    }

    /// What can be said about it.
    pub(crate) fn keys(self) -> Vec<Key> {
        let mut keys = vec![Key::Host, Key::Exclude, Key::Bots, Key::Interval, Key::Format];
        keys.extend(match self {
            Self::BlogHits | Self::Sites | Self::List(_) => [Key::Limit, Key::By].as_slice(),
            Self::OutboundData => &[Key::Limit],
            Self::Traffic => &[Key::By],
            Self::Search => &[Key::Limit, Key::Text],
            Self::Errors => &[Key::Share, Key::Least],
        });
        keys
    }
}
