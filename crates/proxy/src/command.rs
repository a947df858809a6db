//! The orders that a worker takes from other threads.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use offramp_net::listen::Reserve;
use tokio::sync::oneshot;

use crate::live::{ConnectionQuery, QueryReply};
use crate::snapshot::AcceptorId;

/// An order to a worker.
#[derive(Debug)]
pub enum WorkerCommand {
    /// Accept connections on this socket.
    Listen {
        /// The socket's number from now on.
        id: AcceptorId,
        /// The name of its listener, until [`Snapshot::sockets`](crate::Snapshot::sockets) has another.
        listener: Arc<str>,
        /// A listening, non-blocking socket.
        fd: OwnedFd,
    },
    /// Serve the clients in the queue of the socket, when there is room for them, then close it.
    Unlisten {
        /// Number of the acceptor.
        id: AcceptorId,
        /// The reserve that keeps the socket for a way back, and the number of this acceptor there. It learns when the worker
        /// has closed the socket.
        reserve: Option<(Arc<Reserve>, usize)>,
    },
    /// Close the socket and leave the clients in its queue to another process that has it, too.
    Leave {
        /// Number of the acceptor.
        id: AcceptorId,
    },
    /// Sends a reply, which shows that the worker's loop goes round.
    Beat {
        /// Dropped as soon as the worker has this order.
        alive: oneshot::Sender<()>,
    },
    /// Answer about open connections, or close some, as far as one turn goes.
    Connections {
        /// The connections, and what is done with them.
        query: ConnectionQuery,
        /// Channel for the reply.
        reply: oneshot::Sender<QueryReply>,
    },
    /// Accept nothing more, wait for the open connections up to `limit`, close the rest, and end. During a drain it
    /// sets a new limit, from now on.
    Drain {
        /// Maximum time until the rest is closed.
        limit: Duration,
    },
}
