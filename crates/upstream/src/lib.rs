//! Choice of a server, connections to servers, and requests over them.
//!
//! [`pick`] decides, without sockets or clocks, which server is tried first and which after; [`health`]
//! decides, just as purely, which are alive. A [`Backend`] is part of a snapshot and never changes; the
//! runtime state of its servers is in their [`ServerHealth`], which outlives a reload.
//!
//! The main types:
//!
//! - [`Backend`]: servers, policy, limits and checks of a backend;
//! - [`Pools`]: the connections of one worker to all servers; [`Pools::send`] sends a request, with a retry
//!   where that is safe, and returns an [`UpstreamResponse`]; its [`ServerBody`] drives the connection;
//! - [`connect()`]: a connection for a relay, with failover to the next server;
//! - [`FailedRequest`] and [`UpstreamFault`]: the reason for which a request got no response, and the party
//!   at fault.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use offramp_upstream::pick::{Chooser, Picked, ChoiceParams, ServerStanding, Tried};
//! use offramp_upstream::{Backend, BalancePolicy, Server};
//!
//! let servers = ["127.0.0.1:8001", "127.0.0.1:8002"]
//!     .map(|address| Server::at(offramp_net::Address::Tcp(address.parse().expect("an address"))).into());
//! let backend = Backend::new("app", servers);
//!
//! // Round robin; the second server is tried after the first has failed.
//! let now = Instant::now();
//! let mut chooser = Chooser::new(Arc::clone(&backend.picker), 0, now);
//! let mut tried = Tried::default();
//! for expected in [Picked::Server(0), Picked::Server(1), Picked::Exhausted] {
//!     let question = ChoiceParams { policy: &BalancePolicy::RoundRobin, key: None, tried: &tried, now };
//!     let picked = chooser.next(question, |_| ServerStanding::default());
//!     assert_eq!(picked, expected);
//!     if let Picked::Server(index) = picked {
//!         tried.insert(index);
//!     }
//! }
//! ```
//!
//! The modules:
//!
//! - `backend`: the servers of a snapshot
//! - [`pick`]: the order in which servers are tried: in turn, by load or by key; pure
//! - [`health`] (rise and fall, slow return; pure), `ejection` among the servers of a backend, and [`probe`]
//!   (the I/O of checks)
//! - [`queue`] and `admission`: limits on the requests of a server; `per_worker`, counts that each worker
//!   keeps for itself
//! - `connect`: connections for a relay
//! - `link`: a connection, plain or within TLS
//! - `http`: a worker's connections to servers
//!   - `line`: an HTTP/1.1 connection without a task, with its outgoing request and incoming response
//!   - `h2`: an HTTP/2 connection with a task, which the requests of a worker share
//!   - `pools` and `pool`: the connections that are kept
//!   - `send`, `again` and `outgoing`: the way of a request, and its retries
//!   - `watch`: deadlines without a timer each
//! - [`sticky`]: cookies that tie clients to servers; `fault`: failures and their cause

mod admission;
mod backend;
mod connect;
mod ejection;
mod fault;
pub mod health;
mod http;
mod link;
mod per_worker;
pub mod pick;
pub mod probe;
pub mod queue;
pub mod sticky;

pub use admission::Permit;
pub use backend::{Backend, PoolLimits, Server, ServerProtocol, UpstreamAddress};
pub use connect::{ConnectEvent, Connected, Unreachable, connect};
pub use fault::{Breach, ConnectFault, FailedRequest, ResponseViolation, UpstreamFault};
pub use health::{CheckKind, Duty, Ejection, ProbeSettings, ServerHealth};
pub use http::{
    Affinity, FIRST_READ, InterimListener, Lent, MOST_PARTS, PieceWriter, Pools, PrivateConnections,
    RequestBody, SentAhead, ServerBody, ServerRequest, Timeouts, Tunnel, UpstreamResponse, connection_memory,
};
pub use link::ServerStream;
pub use per_worker::PerWorker;
pub use pick::{BalancePolicy, Candidate, Chooser, HashSource, Picker};
pub use sticky::{Sticky, StickyKey};
