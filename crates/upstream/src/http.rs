//! HTTP requests to servers: connections, their pools, and retries.
//!
//! Everything here belongs to one worker. An HTTP/1 connection has no task of its own: the request that waits
//! for its response drives it, and in the pool it is idle. An HTTP/2 connection is shared and has a task.

mod again;
mod body;
mod h2;
mod line;
mod outgoing;
mod pool;
mod pools;
mod reach;
mod send;
mod watch;

pub use body::ServerBody;
pub(crate) use h2::CONFIG;
pub use h2::SentAhead;
pub use line::{FIRST_READ, InterimListener, Lent, MOST_PARTS, PieceWriter, RequestBody, connection_memory};
pub use pools::{Pools, PrivateConnections};
pub use send::{Affinity, ServerRequest, Timeouts, Tunnel, UpstreamResponse};
