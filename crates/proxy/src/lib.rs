//! One connection, from accept to close.
//!
//! A [`Worker`] is one thread with one event loop; it owns the connections that it accepted. What it
//! does with them follows a [`Snapshot`]: one validated, immutable configuration that somebody else
//! builds and swaps in whole. A worker reads the current one when it accepts; connections that are
//! already relayed keep what they were begun with.
//!
//! The way of a connection is `conn`: limits, PROXY header, ClientHello, route, handshake, server,
//! relay, end. Facts are built once, at the end, and leave by a bounded ring.

pub mod challenges;
mod closing;
mod conn;
pub mod credentials;
pub mod demand;
mod failure;
mod fair_permits;
mod fair_queue;
mod greeting;
mod l4;
mod l7;
pub mod late;
pub mod limit;
pub mod live;
mod media;
mod networks;
pub mod pressure;
mod proxy_header;
pub mod refusals;
pub mod route;
mod slots;
pub mod snapshot;
pub mod split;
mod worker;

pub use challenges::Challenges;
pub use demand::{Demand, DemandOutcome, DemandRule};
pub use late::Lateness;
pub use limit::{Admission, ClientTable, Held};
pub use live::Connections;
pub use media::media_type;
pub use networks::{AddressRules, NetworkSet};
pub use pressure::Pressure;
pub use refusals::Refusals;
pub use route::{Ja4List, Match, PathMatch, PathRules, Paths, RedirectMap, Rule, Table, Template};
pub use snapshot::http::{
    Access, Action, AuthClass, BasicAuth, ClosedPaths, Coding, Compress, FieldTemplate, FieldValue,
    FieldVariable, Files, ForwardAuth, HeaderPolicy, HeaderRules, Http, HttpLimits, HttpRoute, HttpTls,
    Maintenance, Mirror, PathHandling, Proxy, Redirect, Respond, Rewrite, RouteLimits, TemplatePiece, To,
};
pub use snapshot::pages::{ErrorPage, ErrorPages};
pub use snapshot::{
    Bandwidth, Bandwidths, Current, Limits, Listener, Network, Relay, Route, RouteName, SendProxy, Snapshot,
    Target, Tracing,
};
pub use split::{Share, Split};
pub use worker::{AcceptorId, Command, Commander, Shared, StartingWorker, Worker, WorkerHandle};
