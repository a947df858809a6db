//! An HTTP/2 connection to a server, shared by the requests of a worker.
//!
//! The protocol is [`offramp_http::h2::Connection`]. Here is the asynchronous part: a task per connection
//! moves bytes ([`driver`]), and requests write their frames and find their events in an [`inbox`]
//! ([`exchange`]). All of them run on one thread.

mod driver;
mod exchange;
mod inbox;
mod window;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::Waker;

use offramp_http::h2::{Code, Config, Connection, Reset, Violation};
use offramp_net::clock::coarse_ms;
use tokio::task::spawn_local;

pub(crate) use exchange::{ExchangeError, FinalHead, StreamExchange};
use inbox::Inbox;
pub use window::SentAhead;

use super::line::FIRST_READ;
use crate::fault::{self, UpstreamFault};
use crate::link::ServerStream;

/// Limits for the server.
///
/// The initial window of a stream is no more than the first read of an HTTP/1 response; it grows when there
/// is more to come and its receiver has memory for it ([`window`]). All streams together have no bound of
/// their own: with one, clients that do not read their responses would block those of others. A server may
/// send the sum of what the receivers have memory for. Until it has announced its maximum of streams, at most
/// a hundred are opened, or as many as it permitted before. Heads are bounded like those of HTTP/1.
pub(crate) const CONFIG: Config = Config {
    stream_window: FIRST_READ as u32,
    connection_window: (1 << 31) - 1,
    shared_window: false,
    growth: (1 << 31) - 1,
    max_streams: 100,
    max_head: 128 * 1024,
};

/// A connection to a server.
pub(crate) struct Http2Connection {
    shared: Rc<ConnectionState>,
}

/// State shared by requests and the task of the connection.
struct ConnectionState {
    connection: RefCell<Connection<Inbox>>,
    /// Set for connections over TLS.
    secure: bool,
    /// Number of streams in use, including those not opened yet.
    taken: Cell<usize>,
    /// Set if no more may be opened: the connection is closed, closing or suspect.
    retired: Cell<bool>,
    /// Time since which no stream is in use.
    idle_since: Cell<u64>,
    /// Set if a stream was opened before.
    reused: Cell<bool>,
    /// Set if no more streams will be opened.
    abandoned: Cell<bool>,
    /// Reason of the end, if it has ended.
    ended: RefCell<Option<ConnectionEndCause>>,
    driver: Cell<Option<Waker>>,
}

/// Reason for which a connection ended.
#[derive(Debug)]
pub(crate) enum ConnectionEndCause {
    /// The server closed it.
    Closed,
    /// The connection failed while reading or writing.
    Io(io::Error),
    /// The server violated the protocol.
    Violation(Violation),
}

/// Reason for which a stream has ended.
#[derive(Debug)]
pub(crate) enum StreamEndCause {
    /// The stream was reset.
    Reset(Reset),
    /// The connection has ended.
    Ended(ConnectionEndCause),
}

/// A stream, counted until it is dropped. It keeps the connection alive.
pub(crate) struct Http2Stream {
    connection: Rc<Http2Connection>,
    /// Number of the stream; 0 until it is opened.
    id: u32,
    reused: bool,
    /// Set if it was opened before the server had announced its maximum.
    early: bool,
}

impl Http2Connection {
    /// Takes over a connection, on the thread of a worker. Until the server has announced its maximum, at
    /// most `streams` streams are opened.
    pub(crate) fn open(link: ServerStream, streams: u32) -> Rc<Self> {
        let now = coarse_ms();
        let config = Config { max_streams: streams, ..CONFIG };
        let shared = Rc::new(ConnectionState {
            connection: RefCell::new(Connection::client(config, now)),
            secure: matches!(link, ServerStream::Tls(_)),
            taken: Cell::new(0),
            retired: Cell::new(false),
            idle_since: Cell::new(now),
            reused: Cell::new(false),
            abandoned: Cell::new(false),
            ended: RefCell::default(),
            driver: Cell::default(),
        });
        spawn_local(driver::drive(Rc::clone(&shared), link));
        Rc::new(Self { shared })
    }

    /// A stream, unless the connection is over or at the server's maximum.
    pub(crate) fn stream(self: &Rc<Self>) -> Option<Http2Stream> {
        let shared = &self.shared;
        let taken = shared.taken.get();
        if !self.is_alive() || taken >= shared.connection.borrow().max_streams() {
            return None;
        }
        shared.taken.set(taken + 1);
        let reused = shared.reused.replace(true);
        Some(Http2Stream { connection: Rc::clone(self), id: 0, reused, early: false })
    }

    /// The server's maximum of streams, once it is known.
    pub(crate) fn allowed(&self) -> Option<usize> {
        let connection = self.shared.connection.borrow();
        connection.is_greeted().then(|| connection.max_streams())
    }

    /// Returns true if streams can be opened, now or when others have ended.
    pub(crate) fn is_alive(&self) -> bool {
        !self.shared.retired.get() && self.shared.connection.borrow().takes_streams()
    }

    /// Time since which no stream is in use, in milliseconds of the coarse clock.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        (self.shared.taken.get() == 0).then(|| self.shared.idle_since.get())
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        // No stream is left. The task sends GOAWAY and ends.
        self.shared.abandoned.set(true);
        self.shared.wake();
    }
}

impl ConnectionState {
    /// Wakes the task to send what was written.
    fn wake(&self) {
        // No wake-up is needed while the task runs.
        if let Some(driver) = self.driver.take() {
            driver.wake_by_ref();
            self.driver.set(Some(driver));
        }
    }

    /// Ends the connection, and wakes all its streams.
    fn end(&self, ended: ConnectionEndCause) {
        self.retired.set(true);
        self.ended.borrow_mut().get_or_insert(ended);
        for (_, inbox) in self.connection.borrow_mut().streams() {
            inbox.wake();
        }
    }

    /// Reason of the end, if it has ended.
    fn ended(&self) -> Option<ConnectionEndCause> {
        self.ended.borrow().as_ref().map(ConnectionEndCause::again)
    }
}

impl Http2Stream {
    /// Returns true if the connection has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Returns true if the stream exceeded the server's maximum, which was not known when it was opened.
    pub(crate) fn was_too_many(&self) -> bool {
        // A client's streams have odd numbers.
        let place = self.id.div_ceil(2) as usize;
        self.early && self.connection.allowed().is_some_and(|allowed| place > allowed)
    }

    /// Opens no further streams on the connection.
    pub(crate) fn retire(&self) {
        self.shared().retired.set(true);
    }

    fn shared(&self) -> &ConnectionState {
        &self.connection.shared
    }

    /// Resets the stream with `code`.
    fn reset(&self, code: Code) {
        let shared = self.shared();
        shared.connection.borrow_mut().reset(self.id, code);
        shared.wake();
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        let shared = self.shared();
        shared.taken.set(shared.taken.get() - 1);
        shared.idle_since.set(coarse_ms());
        if self.id > 0 {
            let connection = &mut *shared.connection.borrow_mut();
            connection.forget(self.id, Code::CANCEL);
            // The task must send RST_STREAM and WINDOW_UPDATE, and may wait for the last stream.
            if !connection.output().is_empty() || connection.is_over() {
                shared.wake();
            }
        }
    }
}

impl ConnectionEndCause {
    /// Copies the reason, for another request.
    fn again(&self) -> Self {
        match self {
            Self::Closed => Self::Closed,
            Self::Io(error) => Self::Io(fault::again(error)),
            Self::Violation(violation) => Self::Violation(violation.clone()),
        }
    }
}

impl StreamEndCause {
    /// Returns true if the server says that it has not processed the request, which may then be sent again
    /// whatever its method (RFC 9113 §8.7): its stream was refused, or is above the last one of a GOAWAY. A
    /// lower stream fails, if at all, with its connection.
    pub(crate) fn refuses(&self) -> bool {
        matches!(self, Self::Reset(Reset::GoAway(_) | Reset::Peer(Code::REFUSED_STREAM)))
    }

    /// Returns true if the server has probably not processed the request, provided that no byte of its
    /// response came: the connection was closed, or the server refused it unseen.
    pub(crate) fn spares(&self) -> bool {
        self.refuses() || matches!(self, Self::Ended(ConnectionEndCause::Closed | ConnectionEndCause::Io(_)))
    }
}

impl From<StreamEndCause> for UpstreamFault {
    fn from(cause: StreamEndCause) -> Self {
        use crate::fault::{Breach, ResponseViolation};
        match cause {
            StreamEndCause::Reset(Reset::Violation(violation))
            | StreamEndCause::Ended(ConnectionEndCause::Violation(violation)) => {
                Self::BadResponse(ResponseViolation::Http2(violation))
            }
            StreamEndCause::Reset(reset) => Self::Aborted(Breach::Http2(reset)),
            StreamEndCause::Ended(ConnectionEndCause::Closed) => Self::Aborted(Breach::Closed),
            StreamEndCause::Ended(ConnectionEndCause::Io(error)) => Self::Aborted(Breach::Io(error)),
        }
    }
}

impl fmt::Debug for Http2Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Stream").field("id", &self.id).finish_non_exhaustive()
    }
}
