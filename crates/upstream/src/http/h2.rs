//! One HTTP/2 connection to a server, shared by the requests of a worker.
//!
//! The protocol is [`offramp_http::h2::Connection`]. Here is what awaits: a task per connection moves bytes
//! ([`driver`]), and requests write their frames and find what came for them in their [`inbox`] ([`exchange`]). All of
//! them are of one thread.

mod driver;
mod exchange;
mod inbox;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::Waker;

use offramp_http::h2::{Code, Config, Connection, Reset, Violation};
use offramp_net::clock::coarse_ms;
use tokio::task::spawn_local;

pub(crate) use exchange::{Broken, Exchange, Head};
use inbox::Inbox;

use super::line::FIRST_READ;
use crate::fault::{self, Fault};
use crate::link::Link;

/// What a server may send.
///
/// A stream begins with a window that is no more than the first read of a response over HTTP/1, and gets a larger one
/// when there is more to come and its user has room for it ([`Exchange::set_window`]). All streams together have no bound of
/// their own: with one, clients that take nothing of their responses would hold up those of all others. Before a server
/// has said how many streams it allows, a hundred are opened at the most, or as many as it allowed before. Heads are bounded as those of HTTP/1.
pub(crate) const CONFIG: Config = Config {
    stream_window: FIRST_READ as u32,
    connection_window: (1 << 31) - 1,
    shared_window: false,
    growth: 0,
    max_streams: 100,
    max_head: 128 * 1024,
};

/// The largest window of a stream.
pub(crate) const MOST_WINDOW: u32 = 256 * 1024;

/// A connection.
pub(crate) struct Http2Connection {
    shared: Rc<Shared>,
}

/// What requests and the task of the connection share.
struct Shared {
    connection: RefCell<Connection<Inbox>>,
    /// Whether it is within TLS.
    secure: bool,
    /// How many streams somebody has, those that were not opened yet with them.
    taken: Cell<usize>,
    /// Whether no more may be opened: it is closed, closing or suspect.
    retired: Cell<bool>,
    /// Since when nobody has a stream.
    idle_since: Cell<u64>,
    /// Whether a stream was opened before.
    reused: Cell<bool>,
    /// Whether nobody will open a stream any more.
    abandoned: Cell<bool>,
    /// How it ended.
    ended: RefCell<Option<Ended>>,
    driver: Cell<Option<Waker>>,
}

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The server closed it.
    Closed,
    /// It failed.
    Io(io::Error),
    /// The server broke a rule.
    Violation(Violation),
}

/// Why nothing more comes on a stream.
#[derive(Debug)]
pub(crate) enum Cause {
    /// The stream has ended at once.
    Reset(Reset),
    /// The connection has ended.
    Ended(Ended),
}

/// A stream; counted until it is dropped. It keeps the connection.
pub(crate) struct Http2Stream {
    connection: Rc<Http2Connection>,
    /// Its number; 0 until it is opened.
    id: u32,
    reused: bool,
    /// Whether it was opened before the server had said how many there may be.
    early: bool,
}

impl Http2Connection {
    /// Takes over a connection, on the thread of a worker. Until the server has said how many streams it allows, `streams`
    /// are opened at the most.
    pub(crate) fn open(link: Link, streams: u32) -> Rc<Self> {
        let now = coarse_ms();
        let config = Config { max_streams: streams, ..CONFIG };
        let shared = Rc::new(Shared {
            connection: RefCell::new(Connection::client(config, now)),
            secure: matches!(link, Link::Tls(_)),
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

    /// A stream, unless the connection is over or has as many as the server allows.
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

    /// How many streams the server allows, once it has said so.
    pub(crate) fn allowed(&self) -> Option<usize> {
        let connection = self.shared.connection.borrow();
        connection.is_greeted().then(|| connection.max_streams())
    }

    /// Whether streams can be opened, now or when others have ended.
    pub(crate) fn is_alive(&self) -> bool {
        !self.shared.retired.get() && self.shared.connection.borrow().takes_streams()
    }

    /// Since when nobody has a stream, in milliseconds of the coarse clock.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        (self.shared.taken.get() == 0).then(|| self.shared.idle_since.get())
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        // No stream is left. The task says goodbye and ends.
        self.shared.abandoned.set(true);
        self.shared.wake();
    }
}

impl Shared {
    /// Has what was written sent.
    fn wake(&self) {
        // Nothing is woken while the waker is not here.
        if let Some(driver) = self.driver.take() {
            driver.wake_by_ref();
            self.driver.set(Some(driver));
        }
    }

    /// The connection has ended: everybody who has a stream learns of it.
    fn end(&self, ended: Ended) {
        self.retired.set(true);
        self.ended.borrow_mut().get_or_insert(ended);
        for (_, inbox) in self.connection.borrow_mut().streams() {
            inbox.wake();
        }
    }

    /// How it ended, if it has.
    fn ended(&self) -> Option<Ended> {
        self.ended.borrow().as_ref().map(Ended::again)
    }
}

impl Http2Stream {
    /// Whether the connection has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Whether it was one too many for the server, which had not said yet how many it allows.
    pub(crate) fn was_too_many(&self) -> bool {
        // A client's streams have odd numbers.
        let place = self.id.div_ceil(2) as usize;
        self.early && self.connection.allowed().is_some_and(|allowed| place > allowed)
    }

    /// Has no further streams opened beside this one.
    pub(crate) fn retire(&self) {
        self.shared().retired.set(true);
    }

    fn shared(&self) -> &Shared {
        &self.connection.shared
    }

    /// Ends the stream at once.
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
            // It is called for RST_STREAM and WINDOW_UPDATE, and where the connection waits for its last stream.
            if !connection.output().is_empty() || connection.is_over() {
                shared.wake();
            }
        }
    }
}

impl Ended {
    /// The same once more, for another request.
    fn again(&self) -> Self {
        match self {
            Self::Closed => Self::Closed,
            Self::Io(error) => Self::Io(fault::again(error)),
            Self::Violation(violation) => Self::Violation(violation.clone()),
        }
    }
}

impl Cause {
    /// Whether the server says that it has done nothing with the request, so that it may be sent again whatever it asks
    /// for (RFC 9113 §8.7): its stream was refused, or is above the last one of a GOAWAY. A stream below that fails, if
    /// at all, with its connection.
    pub(crate) fn refuses(&self) -> bool {
        matches!(self, Self::Reset(Reset::GoAway(_) | Reset::Peer(Code::REFUSED_STREAM)))
    }

    /// Whether the server may be taken to have done nothing with the request, if no byte of its response came: the
    /// connection was closed, or the server refused it unseen.
    pub(crate) fn spares(&self) -> bool {
        self.refuses() || matches!(self, Self::Ended(Ended::Closed | Ended::Io(_)))
    }
}

impl From<Cause> for Fault {
    fn from(cause: Cause) -> Self {
        use crate::fault::{Breach, Violation as Broken};
        match cause {
            Cause::Reset(Reset::Violation(violation)) | Cause::Ended(Ended::Violation(violation)) => {
                Self::BadResponse(Broken::Http2(violation))
            }
            Cause::Reset(reset) => Self::Aborted(Breach::Http2(reset)),
            Cause::Ended(Ended::Closed) => Self::Aborted(Breach::Closed),
            Cause::Ended(Ended::Io(error)) => Self::Aborted(Breach::Io(error)),
        }
    }
}

impl fmt::Debug for Http2Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Stream").field("id", &self.id).finish_non_exhaustive()
    }
}
