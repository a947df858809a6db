//! The connections of a worker to one server: those that lie idle, and those that are shared.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use offramp_net::clock::coarse_ms;
use tokio::sync::Notify;

use super::h2::{CONFIG, Http2Connection, Http2Stream};
use super::line::{Http1Connection, ReadBuffers, RequestBody};
use super::watch::after;
use crate::admission::Owner;
use crate::backend::PoolLimits;
use crate::connect::Reason;
use crate::link::Link;

/// The connections to one server.
pub(crate) struct ServerPool<B: RequestBody> {
    /// Whose connections they are: nobody else's as long as they are here.
    pub(super) owner: Owner,
    /// The memory for first reads, of the worker.
    buffers: Rc<ReadBuffers>,
    idle: RefCell<Vec<Idle<B>>>,
    shared: RefCell<Vec<Rc<Http2Connection>>>,
    /// The bounds of the newest snapshot.
    most: Cell<u32>,
    timeout: Cell<Duration>,
    /// How many backends of snapshots have the server.
    backends: Cell<u32>,
    /// Nothing is kept any more: its server has left the configuration.
    closed: Cell<bool>,
    /// How many streams the server allowed last on a connection.
    streams: Cell<u32>,
    /// Whether a shared connection is being made.
    connecting: Cell<bool>,
    connected: Notify,
    /// The latest failure to make one, counted.
    failed: RefCell<(u64, Reason)>,
    /// Whether the server last agreed on HTTP/1.1 where both were offered: then nobody waits for a shared connection.
    lines: Cell<bool>,
}

/// A connection that was made.
pub(crate) enum NewConnection<B: RequestBody> {
    Http1(Box<Http1Connection<B>>),
    Http2(Rc<Http2Connection>),
}

/// A connection that can be used.
pub(crate) enum Pooled<B: RequestBody> {
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
            failed: RefCell::new((0, Reason::NoAddress)),
            lines: Cell::new(false),
        })
    }

    /// A connection of HTTP/1.1 on `link`.
    pub(crate) fn line(&self, link: Link) -> Box<Http1Connection<B>> {
        Box::new(Http1Connection::new(link, Rc::clone(&self.buffers)))
    }

    /// Keeps to `limits` from now on.
    pub(crate) fn limit(&self, limits: &PoolLimits) {
        self.most.set(limits.idle);
        self.timeout.set(limits.idle_timeout);
    }

    /// A backend begins to have the server.
    pub(crate) fn enter(&self) {
        self.backends.set(self.backends.get() + 1);
    }

    /// One has it no more.
    pub(crate) fn leave(&self) {
        self.backends.set(self.backends.get() - 1);
    }

    /// Whether any has it.
    pub(crate) fn is_used(&self) -> bool {
        self.backends.get() > 0
    }

    /// The connection that was put here last and is still good: the others may time out.
    pub(crate) fn take(&self) -> Option<Box<Http1Connection<B>>> {
        loop {
            // Not borrowed while it is looked at or dropped.
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

    /// Closes what has been idle for too long, and what the server has closed.
    pub(crate) fn sweep(&self, now: u64) {
        let timeout = self.timeout.get();
        let all = self.idle.take();
        let kept = all.into_iter().filter_map(|mut idle| {
            // Looking also forgets whom the socket would wake: a task that has ended is kept by it.
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
        // Dropping the others has put nothing here.
        *self.idle.borrow_mut() = kept;
        let over = |shared: &Rc<Http2Connection>| {
            shared.idle_since().is_some_and(|since| after(since, timeout) <= now)
        };
        self.shared.borrow_mut().retain(|shared| shared.is_alive() && !over(shared));
    }

    /// How many connections lie here.
    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len() + self.shared.borrow().len()
    }

    /// Whether anything lies here.
    pub(crate) fn is_empty(&self) -> bool {
        self.idle.borrow().is_empty() && self.shared.borrow().is_empty()
    }

    /// Closes what is idle, and keeps nothing from now on. What is in use is finished.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        // Not borrowed while they are closed.
        let idle = self.idle.take();
        idle.into_iter().for_each(|mut idle| idle.line.part());
        self.shared.take();
    }

    /// Whether nothing is kept any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// A stream on one of the shared connections.
    pub(crate) fn stream(&self) -> Option<Http2Stream> {
        self.shared.borrow().iter().find_map(Http2Connection::stream)
    }

    /// How many streams the server is taken to allow on a new connection, until it says so.
    pub(crate) fn streams_allowed(&self) -> u32 {
        if let Some(allowed) = self.shared.borrow().iter().rev().find_map(|shared| shared.allowed()) {
            let most = CONFIG.max_streams;
            self.streams.set(u32::try_from(allowed).map_or(most, |allowed| allowed.clamp(1, most)));
        }
        self.streams.get()
    }

    /// A stream; where all connections are full `make` makes another one, one at a time. It may turn out to be one of
    /// HTTP/1.1, where the server chooses.
    pub(crate) async fn stream_or(
        &self,
        make: impl AsyncFn() -> Result<NewConnection<B>, Reason>,
    ) -> Result<Pooled<B>, Reason> {
        loop {
            if let Some(stream) = self.stream() {
                return Ok(Pooled::Http2(stream));
            }
            let alone = self.lines.get();
            if alone || !self.connecting.replace(true) {
                let _connecting = (!alone).then(|| Connecting(self));
                let shared = match make().await.inspect_err(|reason| self.note(reason))? {
                    NewConnection::Http1(line) => {
                        self.lines.set(true);
                        return Ok(Pooled::Http1(line));
                    }
                    NewConnection::Http2(connection) => connection,
                };
                self.lines.set(false);
                // A server that allows no streams would have us connect for ever.
                let stream = shared.stream().ok_or(Reason::Io(io::ErrorKind::ConnectionAborted.into()))?;
                if !self.closed.get() {
                    self.shared.borrow_mut().push(shared);
                }
                return Ok(Pooled::Http2(stream));
            }
            let before = self.failed.borrow().0;
            self.connected.notified().await;
            let failed = self.failed.borrow();
            if failed.0 != before {
                // Trying once more, each for itself, would only take longer.
                return Err(failed.1.again());
            }
        }
    }

    fn note(&self, reason: &Reason) {
        let mut failed = self.failed.borrow_mut();
        *failed = (failed.0 + 1, reason.again());
    }
}

/// Ends the making of a connection, also where whoever made it has gone.
struct Connecting<'s, B: RequestBody>(&'s ServerPool<B>);

impl<B: RequestBody> Drop for Connecting<'_, B> {
    fn drop(&mut self) {
        self.0.connecting.set(false);
        self.0.connected.notify_waiters();
    }
}
