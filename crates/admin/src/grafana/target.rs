//! Targets of panels, by name. Names are in users' dashboards: targets may be added, a name never changes.

use offramp_analytics::Top;

use crate::grafana::parameters::ParameterKey;
use crate::refusal::PlainRefusal;

/// The subject of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryTarget {
    /// Requests of people; bots are left out by default.
    BlogHits,
    /// Requests by site, which is a host.
    Sites,
    /// Bytes sent to clients.
    OutboundData,
    Traffic,
    /// The heaviest items of a list.
    List(Top),
    /// Requests with a text.
    Search,
    /// Responses that indicate a failed server.
    Errors,
}

/// Every target, in the order of menus.
pub(crate) const ALL: [QueryTarget; 15] = [
    QueryTarget::BlogHits,
    QueryTarget::Sites,
    QueryTarget::OutboundData,
    QueryTarget::Traffic,
    QueryTarget::List(Top::Pages),
    QueryTarget::List(Top::Referrers),
    QueryTarget::List(Top::Hosts),
    QueryTarget::List(Top::Clients),
    QueryTarget::List(Top::Status),
    QueryTarget::List(Top::Agents),
    QueryTarget::List(Top::Networks),
    QueryTarget::List(Top::Countries),
    QueryTarget::List(Top::Cities),
    QueryTarget::Search,
    QueryTarget::Errors,
];

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanelShape {
    Series,
    Table,
}

impl QueryTarget {
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

    /// The label in menus.
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
    /// Unknown name; the text lists the known ones.
    pub(crate) fn of(name: &str) -> Result<Self, PlainRefusal> {
        ALL.into_iter().find(|target| target.name() == name).ok_or_else(|| {
            let names = ALL.map(Self::name).join(", ");
            PlainRefusal::wrong(format!("there is no target `{name}`; there are {names}"))
        })
    }

    /// Returns `true` if the target needs a GeoIP file.
    pub(crate) const fn needs_places(self) -> bool {
        matches!(self, Self::List(Top::Countries | Top::Cities))
    }

    /// The default shape, without one from the panel or its parameters.
    pub(crate) const fn usual_shape(self) -> PanelShape {
        match self {
            Self::List(_) | Self::Search => PanelShape::Table,
            _ => PanelShape::Series,
        }
    }

    /// The parameters that the target takes.
    pub(crate) fn keys(self) -> Vec<ParameterKey> {
        let mut keys = vec![
            ParameterKey::Host,
            ParameterKey::Exclude,
            ParameterKey::Bots,
            ParameterKey::Interval,
            ParameterKey::Format,
        ];
        keys.extend(match self {
            Self::BlogHits | Self::Sites | Self::List(_) => {
                [ParameterKey::Limit, ParameterKey::By].as_slice()
            }
            Self::OutboundData => &[ParameterKey::Limit],
            Self::Traffic => &[ParameterKey::By],
            Self::Search => &[ParameterKey::Limit, ParameterKey::Text],
            Self::Errors => &[ParameterKey::Share, ParameterKey::Least],
        });
        keys
    }
}
