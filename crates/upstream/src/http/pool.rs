//! Connections of a worker to one server: idle ones, and shared ones.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use offramp_net::clock::coarse_ms;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::h2::{CONFIG, Http2Connection, Http2Stream};
use super::line::{Http1Connection, ReadBuffers, RequestBody};
use super::watch::after;
use crate::admission::Owner;
use crate::backend::PoolLimits;
use crate::fault::ConnectFault;
use crate::link::ServerStream;

/// Connections to one server.
pub(crate) struct ServerPool<B: RequestBody> {
    /// Owner of the server's address, reserved while connections exist.
    pub(super) owner: Owner,
    /// The worker's memory for first reads.
    buffers: Rc<ReadBuffers>,
    idle: RefCell<Vec<Idle<B>>>,
    shared: RefCell<Vec<Rc<Http2Connection>>>,
    /// Bounds of the newest snapshot.
    most: Cell<u32>,
    timeout: Cell<Duration>,
    /// Number of backends, over all snapshots, with the server.
    backends: Cell<u32>,
    /// Set once its server has left the configuration: nothing is kept any more.
    closed: Cell<bool>,
    /// Last known maximum of streams per connection.
    streams: Cell<u32>,
    /// Set while a shared connection is being made.
    connecting: Cell<bool>,
    connected: Notify,
    failed: RefCell<FailedConnect>,
    /// Set if the server last chose HTTP/1.1 when both were offered: requests then do not wait for a shared
    /// connection.
    lines: Cell<bool>,
}

/// A connection that was just made.
pub(crate) enum NewConnection<B: RequestBody> {
    Http1(Box<Http1Connection<B>>),
    Http2(Rc<Http2Connection>),
}

/// A connection for one request.
pub(crate) enum PooledConnection<B: RequestBody> {
    Http1(Box<Http1Connection<B>>),
    Http2(Http2Stream),
}

struct Idle<B: RequestBody> {
    line: Box<Http1Connection<B>>,
    since: u64,
}

impl<B: RequestBody> ServerPool<B> {
    pub(crate) fn new(buffers: &Rc<ReadBuffers>, owner: Owner) -> Rc<Self> {
        Rc::new(ServerPool {
            owner,
            buffers: Rc::clone(buffers),
            idle: RefCell::default(),
            shared: RefCell::default(),
            most: Cell::new(0),
            timeout: Cell::new(Duration::ZERO),
            backends: Cell::new(0),
            closed: Cell::new(false),
            streams: Cell::new(CONFIG.max_streams),
            connecting: Cell::new(false),
            connected: Notify::new(),
            failed: RefCell::new(FailedConnect {
                count: 0,
                reason: ConnectFault::NoAddress,
                patience: Duration::ZERO,
            }),
            lines: Cell::new(false),
        })
    }

    /// Creates an HTTP/1.1 connection on `link`.
    pub(crate) fn line(&self, link: ServerStream) -> Box<Http1Connection<B>> {
        Box::new(Http1Connection::new(link, Rc::clone(&self.buffers)))
    }

    /// Applies `limits` from now on.
    pub(crate) fn limit(&self, limits: &PoolLimits) {
        self.most.set(limits.idle);
        self.timeout.set(limits.idle_timeout);
    }

    /// Adds a backend with the server.
    pub(crate) fn enter(&self) {
        self.backends.set(self.backends.get() + 1);
    }

    /// Removes a backend with the server.
    pub(crate) fn leave(&self) {
        self.backends.set(self.backends.get() - 1);
    }

    /// Returns true if any backend has the server.
    pub(crate) fn is_used(&self) -> bool {
        self.backends.get() > 0
    }

    /// Takes the most recently used live connection, so that the others may time out.
    pub(crate) fn take(&self) -> Option<Box<Http1Connection<B>>> {
        loop {
            // The pool is not borrowed while a connection is checked or dropped.
            let mut idle = self.idle.borrow_mut().pop()?;
            if idle.line.is_alive() {
                return Some(idle.line);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put(&self, mut line: Box<Http1Connection<B>>) {
        let full = self.idle.borrow().len() >= self.most.get() as usize;
        if self.closed.get() || full {
            return line.part();
        }
        self.idle.borrow_mut().push(Idle { line, since: coarse_ms() });
    }

    /// Closes connections that have been idle for too long, or that the server has closed.
    pub(crate) fn sweep(&self, now: u64) {
        let timeout = self.timeout.get();
        let all = self.idle.take();
        let kept = all.into_iter().filter_map(|mut idle| {
            // The check also drops the socket's waker, which would retain a finished task.
            let alive = idle.line.is_alive();
            if alive && after(idle.since, timeout) > now {
                idle.line.rest();
                return Some(idle);
            }
            if alive {
                idle.line.part();
            }
            None
        });
        let kept: Vec<_> = kept.collect();
        // Dropping the others has added nothing.
        *self.idle.borrow_mut() = kept;
        let over = |shared: &Rc<Http2Connection>| {
            shared.idle_since().is_some_and(|since| after(since, timeout) <= now)
        };
        self.shared.borrow_mut().retain(|shared| shared.is_alive() && !over(shared));
    }

    /// Number of idle and shared connections.
    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len() + self.shared.borrow().len()
    }

    /// Returns true without connections.
    pub(crate) fn is_empty(&self) -> bool {
        self.idle.borrow().is_empty() && self.shared.borrow().is_empty()
    }

    /// Closes idle connections, and keeps none from now on. Requests under way are finished.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        // The pool is not borrowed while they are closed.
        let idle = self.idle.take();
        idle.into_iter().for_each(|mut idle| idle.line.part());
        self.shared.take();
    }

    /// Returns true once nothing is kept any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// A stream on one of the shared connections.
    pub(crate) fn stream(&self) -> Option<Http2Stream> {
        self.shared.borrow().iter().find_map(Http2Connection::stream)
    }

    /// Assumed maximum of streams on a new connection, until the server announces it.
    pub(crate) fn streams_allowed(&self) -> u32 {
        if let Some(allowed) = self.shared.borrow().iter().rev().find_map(|shared| shared.allowed()) {
            let most = CONFIG.max_streams;
            self.streams.set(u32::try_from(allowed).map_or(most, |allowed| allowed.clamp(1, most)));
        }
        self.streams.get()
    }

    /// Returns a stream; if all connections are full, `make` makes another one, one at a time, for which other requests
    /// wait up to their own `patience`. It may turn out to be HTTP/1.1, if the server chooses.
    pub(crate) async fn stream_or(
        &self,
        patience: Duration,
        make: impl AsyncFn() -> Result<NewConnection<B>, ConnectFault>,
    ) -> Result<PooledConnection<B>, ConnectFault> {
        loop {
            if let Some(stream) = self.stream() {
                return Ok(PooledConnection::Http2(stream));
            }
            let alone = self.lines.get();
            if alone || !self.connecting.replace(true) {
                let _connecting = (!alone).then(|| Connecting(self));
                let shared = match make().await.inspect_err(|reason| self.note(reason, patience))? {
                    NewConnection::Http1(line) => {
                        self.lines.set(true);
                        return Ok(PooledConnection::Http1(line));
                    }
                    NewConnection::Http2(connection) => connection,
                };
                self.lines.set(false);
                // A server that permits no streams would cause endless connecting.
                let stream =
                    shared.stream().ok_or(ConnectFault::Io(io::ErrorKind::ConnectionAborted.into()))?;
                if !self.closed.get() {
                    self.shared.borrow_mut().push(shared);
                }
                return Ok(PooledConnection::Http2(stream));
            }
            let before = self.failed.borrow().count;
            if timeout(patience, self.connected.notified()).await.is_err() {
                return Err(ConnectFault::Timeout);
            }
            let failed = self.failed.borrow();
            // A timeout with less patience proves nothing.
            let is_proof = !matches!(failed.reason, ConnectFault::Timeout) || failed.patience >= patience;
            if failed.count != before && is_proof {
                // Separate retries of every waiting request would only take longer.
                return Err(failed.reason.again());
            }
        }
    }

    fn note(&self, reason: &ConnectFault, patience: Duration) {
        let mut failed = self.failed.borrow_mut();
        *failed = FailedConnect { count: failed.count + 1, reason: reason.again(), patience };
    }
}

/// Latest failure to make a connection, for the requests that waited for it.
struct FailedConnect {
    /// Number of failures so far.
    count: u64,
    reason: ConnectFault,
    /// Timeout of the attempt.
    patience: Duration,
}

/// Ends the making of a connection, also when its future is dropped.
struct Connecting<'s, B: RequestBody>(&'s ServerPool<B>);

impl<B: RequestBody> Drop for Connecting<'_, B> {
    fn drop(&mut self) {
        self.0.connecting.set(false);
        self.0.connected.notify_waiters();
    }
}
