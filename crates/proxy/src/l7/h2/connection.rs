//! The two directions of a connection: a client's bytes on their way to where they are processed, ours on their way to it.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use offramp_http::h2::Code;
use offramp_http::h2::connection::MOST_WAITING;
use offramp_net::clock::coarse_ms;
use offramp_net::turn::{Turn, Work};

use super::Violation;
use super::memory::Account;
use super::receive::Intake;
use super::table::{Shared, StreamTable};
use crate::l7::session::Session;
use crate::l7::transport::Transport;
use crate::snapshot::http::RequestLimits;

/// The most parts of one write.
const PARTS: usize = 16;

/// One connection of a client that speaks HTTP/2.
pub(super) struct Connection {
    pub(super) transport: Transport,
    /// Bytes that came before the rest.
    early: Vec<u8>,
    session: Rc<Session>,
    /// Bounds another protocol on a stream.
    idle: Duration,
    table: Shared,
    /// Set once the client's direction has ended.
    pub(super) received_all: bool,
    /// Time when a byte last left, or nothing waited, in milliseconds of the coarse clock.
    moved: u64,
    /// Set while reading waits for the output.
    held: bool,
    /// Set while the client is quiet, so that no memory is kept for what it might send.
    quiet: bool,
    /// Work since others had their turn.
    turn: Turn,
    /// Since when the rest of a frame, or of a block of fields, is awaited, in milliseconds of the coarse clock; 0
    /// while none is. And how many had come whole by then.
    awaiting: u64,
    frames: u64,
}

/// Reason for which a connection ends.
pub(super) enum Fall {
    /// The client broke a rule, and got GOAWAY.
    Violation(Violation),
    /// An error of the transport.
    Io(io::Error),
}

impl From<Violation> for Fall {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl Connection {
    pub(super) fn new(
        session: Rc<Session>,
        mut transport: Transport,
        early: Vec<u8>,
        limits: &RequestLimits,
        idle: Duration,
    ) -> Self {
        transport.keep_buffer(true);
        let account = Account::new(&session.http.runners.memory, limits.memory);
        let table = StreamTable::new(limits.streams, limits.request_header_size, limits.max_window, account);
        let now = coarse_ms();
        Self {
            transport,
            early,
            session,
            idle,
            table,
            received_all: false,
            moved: now,
            held: false,
            quiet: false,
            turn: Turn::default(),
            awaiting: now.max(1),
            frames: 0,
        }
    }

    /// Table of the connection's streams.
    pub(super) fn table(&self) -> &Shared {
        &self.table
    }

    /// Gives memory back until the client says something, or takes that back.
    pub(super) fn rest(&mut self, quiet: bool) {
        self.quiet = quiet;
        if quiet {
            self.table.borrow_mut().connection.rest();
            self.transport.keep_buffer(false);
        }
    }

    /// Since when what waits to be sent has not moved, in milliseconds of the coarse clock; nothing where none does.
    pub(super) fn stuck_since(&self) -> Option<u64> {
        let waits = !self.table.borrow().connection.output().is_empty() || self.transport.waiting() > 0;
        waits.then_some(self.moved)
    }

    /// Returns true if memory was given back, and nothing has come since.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Since when the client owes the rest of a frame or of a block of fields, or its greeting, in milliseconds of the
    /// coarse clock. Content is not meant: it has bounds of its own.
    pub(super) fn awaiting_since(&self) -> Option<u64> {
        (self.awaiting > 0 && !self.held).then_some(self.awaiting)
    }

    /// Says that nothing more is processed.
    pub(super) fn hang_up(&mut self, code: Code) {
        self.table.borrow_mut().connection.close(code);
    }

    /// Takes no more streams, and ends when the last has ended.
    pub(super) fn leave(&mut self) {
        self.table.borrow_mut().connection.drain();
    }

    /// Takes no more streams from now on, whether the client has received that or not.
    pub(super) fn part(&mut self) {
        self.table.borrow_mut().stop();
    }

    /// Reads, writes, and has new streams served; ready when the connection is over.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fall>> {
        {
            let place = &mut self.table.borrow_mut().driver;
            if !place.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
                *place = Some(cx.waker().clone());
            }
        }
        let read = self.poll_read(cx);
        self.note_awaited();
        let sent = self.poll_send(cx);
        match read {
            Poll::Ready(Err(fall)) => return Poll::Ready(Err(fall)),
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            Poll::Pending => {}
        }
        if let Poll::Ready(Err(error)) = sent {
            return Poll::Ready(Err(Fall::Io(error)));
        }
        if sent.is_ready() && self.table.borrow().connection.is_over() {
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Sends what waits, and has streams write more.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let table = &mut *self.table.borrow_mut();
        let waiting = self.transport.waiting();
        let mut sent = 0;
        let outcome = send(cx, table, &mut self.transport, &mut sent);
        if sent > 0 || outcome.is_ready() || self.transport.waiting() < waiting {
            self.moved = coarse_ms();
        }
        if table.connection.output().len() <= MOST_WAITING && std::mem::take(&mut self.held) {
            cx.waker().wake_by_ref();
        }
        outcome
    }

    /// Notes since when the rest of something is awaited: anew where something has come whole meanwhile.
    fn note_awaited(&mut self) {
        let table = self.table.borrow();
        let (amid, frames) = (table.connection.is_amid(), table.connection.frames());
        if !amid {
            self.awaiting = 0;
        } else if self.awaiting == 0 || frames != self.frames || self.held {
            self.awaiting = coarse_ms().max(1);
        }
        self.frames = frames;
    }

    /// Reads what has come; ready at the end of the client's direction.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fall>> {
        let Self { transport, early, session, table, turn, .. } = self;
        let intake = &mut Intake { session, table, idle: self.idle };
        loop {
            ready!(turn.poll_rest(cx));
            if !early.is_empty() {
                let used = table.borrow_mut().receive(early, turn, intake)?;
                early.drain(..used);
                continue;
            }
            if table.borrow().connection.output().len() > MOST_WAITING {
                self.held = true;
                return Poll::Pending;
            }
            let Poll::Ready(filled) = transport.poll_fill(cx) else {
                transport.keep_buffer(!self.quiet);
                return Poll::Pending;
            };
            let bytes = match filled {
                Ok(bytes) => bytes,
                Err(error) => return Poll::Ready(Err(Fall::Io(error))),
            };
            if bytes.is_empty() {
                self.received_all = true;
                return Poll::Ready(Ok(()));
            }
            self.quiet = false;
            turn.spend(Work::Bytes(bytes.len()));
            let owed = session.requests.owed.take();
            if owed > 0 {
                table.borrow_mut().connection.charge(owed);
            }
            let used = table.borrow_mut().receive(bytes, turn, intake)?;
            transport.consume(used);
        }
    }
}

/// Sends what waits, until the kernel has it, and has streams write more. Adds to `sent` how much left in this call, of which nothing is lost where
/// it has to be called again.
fn send(
    cx: &mut Context<'_>,
    table: &mut StreamTable,
    transport: &mut Transport,
    sent: &mut usize,
) -> Poll<io::Result<()>> {
    while !table.connection.output().is_empty() {
        let mut parts = [IoSlice::new(&[]); PARTS];
        let count = table.connection.output().slices(&mut parts);
        let n = ready!(transport.poll_write_vectored(cx, &parts[..count]))?;
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *sent += n;
        table.sent(n);
    }
    transport.poll_flush(cx)
}
