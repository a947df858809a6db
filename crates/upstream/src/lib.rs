//! Choosing and reaching a server.
//!
//! [`pick`] decides, without sockets or clocks, which server is tried first and which after;
//! [`health`] decides, as purely, which are alive. [`connect()`] opens a connection for a relay.
//! A [`Backend`] is a part of a snapshot and never changes.

mod admission;
mod backend;
mod connect;
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
pub use backend::{Backend, PoolLimits, Protocol, Server, Target};
pub use connect::{Connected, Progress, Reason, Unreachable, connect};
pub use fault::{Breach, Failure, Fault, Violation};
pub use health::{Check, CheckKind, Duty, Ejection, ServerHealth};
pub use http::{
    Affinity, Answer, FIRST_READ, InterimListener, Lent, MOST_PARTS, PieceWriter, Pools, PrivateConnections,
    RequestBody, ServerBody, ServerRequest, Timeouts, Tunnel, connection_memory,
};
pub use link::Link;
pub use per_worker::PerWorker;
pub use pick::{Candidate, Chooser, HashKey, Picker, Policy};
pub use sticky::{Sticky, StickyKey};
