//! One measurement of a scenario: what is set up for it, and how it is taken.

use crate::contestant::{Contestant, Peer, Setup};
use crate::metrics;
use crate::protocol::{Exchange, Service, Work};
use crate::scenario::apps::{Arrangement, Served};

/// The cases of the selection in which those take part, too, that no bound refers to.
pub(crate) const HEADLINES: &[&str] =
    &["relay-small", "handshake-full", "idle/1000", "start", "http1/10", "http1/idle"];

/// One measurement, repeated in rounds over all contestants.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) scenario: &'static str,
    /// Unique within the run.
    pub(crate) name: String,
    /// One sentence for the report.
    pub(crate) what: String,
    /// What one unit of work is.
    pub(crate) unit: &'static str,
    pub(crate) setup: Setup,
    pub(crate) service: Service,
    /// The application is on a Unix socket, whatever the run is told.
    pub(crate) unix: bool,
    /// The load has the application's core, whatever others there are.
    pub(crate) shared: bool,
    pub(crate) method: Method,
}

impl Case {
    /// How many take part: the proxies, or the arrangements of an application.
    pub(crate) fn entrants(&self, contestants: &[Contestant], everyone: bool) -> usize {
        match self.method {
            Method::Served(served) => served.arrangements.len(),
            _ => contestants.iter().filter(|c| self.takes(c.peer, everyone)).count(),
        }
    }

    /// Whether a proxy takes part: one that can, and unless `everyone` is wanted, not one that stands aside.
    pub(crate) fn takes(&self, peer: &Peer, everyone: bool) -> bool {
        let wanted = everyone || !peer.aside || HEADLINES.contains(&self.name.as_str());
        wanted && peer.config(self.setup.mode).is_some()
    }

    /// Rounds, unless the user gave a number.
    pub(crate) fn rounds(&self) -> usize {
        if self.method.hardly_varies() { 3 } else { 5 }
    }
}

/// How a case is measured.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// CPU time and latency of a load.
    Window(Work),
    /// The same at a share of the capacity of the slowest contestant, arrivals at fixed times.
    Paced { share: f64, connections: usize, size: usize },
    /// The same while other clients drip.
    BesideDrip { work: Work, drip: Work },
    /// Memory per idle connection, and CPU while idle.
    Idle { connections: usize, exchange: Exchange, seconds: f64 },
    /// Memory after the start.
    Start,
    /// System calls per unit.
    Syscalls(Work),
    /// CPU time and latency under HTTP load, perhaps while others drip.
    Web { load: Web, connections: usize, seconds: u32, drip: Option<Work> },
    /// An application under HTTP load, in several arrangements.
    Served(Served),
}

impl Method {
    /// The figure that this is all about.
    pub(crate) fn figure(&self) -> &'static str {
        match self {
            Self::Paced { .. } | Self::BesideDrip { .. } | Self::Web { drip: Some(_), .. } => "p99",
            Self::Window(_) | Self::Web { .. } => metrics::CPU,
            Self::Idle { .. } => metrics::CONNECTION_BYTES,
            Self::Start => metrics::START_RESIDENT,
            Self::Syscalls(_) => metrics::SYSCALLS,
            Self::Served(served) if served.traced => metrics::SYSCALLS,
            Self::Served(_) => metrics::CPU,
        }
    }

    /// How many units a second arrive, where that is fixed beforehand.
    pub(crate) fn arrivals(&self) -> Option<f64> {
        match *self {
            Self::Window(Work::Rate { rate, .. }) => Some(rate),
            Self::Window(Work::Handshake { concurrency, every, .. }) if every > 0.0 => {
                Some(concurrency as f64 / every)
            }
            Self::Web { load: Web::Rated { per_connection }, connections, .. } => {
                Some((per_connection * connections) as f64)
            }
            _ => None,
        }
    }

    /// Whether a few rounds tell the figure: memory and numbers of calls, which no clock blurs.
    fn hardly_varies(&self) -> bool {
        match self {
            Self::Idle { .. } | Self::Start | Self::Syscalls(_) => true,
            Self::Served(served) => served.traced,
            _ => false,
        }
    }

    /// The one that the others are compared with, where it is not Offramp alone.
    pub(crate) fn reference(&self) -> Option<&'static str> {
        matches!(self, Self::Served(_)).then(|| Arrangement::TlsOff.name())
    }
}

/// Who makes HTTP load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Web {
    /// wrk: HTTP/1.1, one request under way on each connection, with so many bytes of body.
    Wrk { body: usize },
    /// wrk: HTTP/1.1, one request under way on each connection, for files.
    Files(Asked),
    /// h2load: HTTP/2, so many requests under way on each connection.
    H2load { streams: usize },
    /// h2load: the same with unary calls of gRPC, each with a message of so many bytes.
    Grpc { streams: usize, message: usize },
    /// h2load: so many requests a second on each connection, by the version of the proxies' mode.
    Rated { per_connection: usize },
}

/// What is asked for of a server of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// [`Asked::PAGES`] pages, one after the other.
    Pages,
    /// One large file.
    Large,
    /// One document, with gzip.
    Compressed,
}

impl Asked {
    /// How many pages there are.
    pub(crate) const PAGES: usize = 1_000;

    /// The path, with the place of a number where there are several.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Pages => "/pages/%04d.html",
            Self::Large => "/large.bin",
            Self::Compressed => "/data.json",
        }
    }

    /// How many of them there are.
    pub(crate) fn count(self) -> usize {
        if self == Self::Pages { Self::PAGES } else { 1 }
    }

    /// What the client says that it understands, as `Accept-Encoding`.
    pub(crate) fn encoding(self) -> &'static str {
        if self == Self::Compressed { "gzip" } else { "" }
    }
}
