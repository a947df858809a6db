//! One connection, from accept to close.
//!
//! A [`Worker`] is one thread with one event loop, which owns each connection that it accepted until the connection ends.
//! The loop takes [`WorkerCommand`]s. Its connections follow a [`Snapshot`]: one validated, immutable
//! configuration, which `control` builds and swaps whole by [`Current`]. A worker reads the current one when
//! it accepts. A relayed connection keeps the one with which it began; an HTTP connection looks at the
//! current one for each request.
//!
//! The modules stand above each other, and no two import each other:
//!
//! - `worker`: the thread, its event loop, acceptors and the drain
//! - `conn`: the steps of one connection: limits, PROXY header, ClientHello, route, handshake, server
//! - `l4` and `l7`: the relay of bytes, and requests
//! - `closing` and `resources`: the end of a connection, and what all connections of a worker use
//! - [`live`], [`late`], [`limit`] and others: the table of connections, the watch over loops, the limits
//! - `hello`, the rules for a ClientHello, which connections and `rehearsal` apply; the latter for questions
//! - [`snapshot`] and [`route`]: the read model
//!
//! Facts are built once, at the end of a connection or a request, and leave by a bounded ring.

pub mod challenges;
mod closing;
mod command;
mod conn;
mod connections;
pub mod credentials;
pub mod demand;
mod failure;
mod fair_permits;
mod fair_queue;
mod greeting;
mod hello;
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
mod rehearsal;
mod resources;
pub mod route;
mod slots;
pub mod snapshot;
pub mod split;
mod worker;

pub use challenges::Challenges;
pub use command::WorkerCommand;
pub use connections::{CloseReport, ConnectionPage, Connections, Cursor, StuckWorker};
pub use demand::{Demand, DemandOutcome, DemandRefusal, DemandRule, DemandStanding};
pub use late::Lateness;
pub use limit::{ClientTable, ConnectionLimit, StreamMemory};
pub use media::media_type;
pub use networks::{AddressRules, NetworkSet};
pub use pressure::Pressure;
pub use refusals::Refusals;
pub use rehearsal::{HelloTrial, HelloVerdict, rehearse};
pub use resources::SharedResources;
pub use route::{Ja4List, Match, PathMatch, PathRules, Paths, RedirectMap, RouteRule, RouteTable, Template};
pub use snapshot::http::{
    Access, Action, AuthClass, BasicAuth, ClosedPaths, Coding, Compress, Detours, FieldTemplate, FieldValue,
    FieldVariable, Files, ForwardAuth, HeaderPolicy, HeaderRules, Http, HttpRoute, HttpTls, Maintenance,
    Mirror, PathHandling, Proxy, Redirect, RequestLimits, Respond, Rewrite, TemplatePiece,
};
pub use snapshot::pages::{ErrorPage, ErrorPages};
pub use snapshot::{
    AcceptorId, Bandwidth, Bandwidths, ClientLimits, Current, Destination, Listener, Network, Relay, Route,
    RouteName, SendProxy, Snapshot, Target, Tracing,
};
pub use split::{RouteBackends, Share, Split};
pub use worker::{Commander, StartingWorker, Worker, WorkerHandle};
