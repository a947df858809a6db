//! The task of a connection: reads from the server, and sends what requests have written.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use offramp_http::h2::{Code, Event};
use offramp_net::clock::coarse_ms;
use offramp_net::turn::{Turn, Work};

use super::inbox::Inbox;
use super::{ConnectionEndCause, ConnectionState};
use crate::link::ServerStream;

/// Initial and maximum size of a read: reads grow while they are filled.
const FIRST_READ: usize = 16 * 1024;
const READ_MOST: usize = 64 * 1024;
/// Reads from this size on may be retained by the receivers of their data, instead of being copied.
const LARGE: usize = 8 * 1024;
/// Output length from which nothing more is read, in bytes: a server that does not read gets no replies.
const MOST_WAITING: usize = 128 * 1024;
/// Maximum number of slices per write.
const PARTS: usize = 16;

struct Driver {
    shared: Rc<ConnectionState>,
    link: ServerStream,
    buffer: BytesMut,
    /// Buffer space of the next read.
    room: usize,
    /// Set while reading waits for output to be sent.
    held: bool,
    /// Error of the last write; data from the server may still arrive.
    unwritable: Option<io::Error>,
    turn: Turn,
}

/// Runs a connection until it ends.
pub(super) async fn drive(shared: Rc<ConnectionState>, link: ServerStream) {
    let mut driver = Driver {
        shared,
        link,
        buffer: BytesMut::new(),
        room: FIRST_READ,
        held: false,
        unwritable: None,
        turn: Turn::default(),
    };
    let ended = poll_fn(|cx| driver.poll(cx)).await;
    driver.shared.driver.set(None);
    driver.shared.end(ended);
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEndCause> {
        self.note(cx);
        loop {
            // Reads come first: a closed connection is detected before a request is sent.
            let read = self.poll_read(cx);
            if let Poll::Ready(ended) = read {
                if matches!(ended, ConnectionEndCause::Violation(_)) {
                    // Sends the reason to the server, as far as there is space.
                    let _ = self.poll_write(cx);
                    self.link.part();
                }
                return Poll::Ready(match (ended, self.unwritable.take()) {
                    // An error while writing says more than the end of the stream.
                    (ConnectionEndCause::Closed, Some(error)) => ConnectionEndCause::Io(error),
                    (ended, _) => ended,
                });
            }
            if self.shared.abandoned.get() {
                self.shared.connection.borrow_mut().close(Code::NO_ERROR);
            }
            let written = self.poll_write(cx);
            let connection = self.shared.connection.borrow();
            if self.shared.abandoned.get() || connection.is_over() && written.is_ready() {
                self.link.part();
                return Poll::Ready(ConnectionEndCause::Closed);
            }
            if !self.held || connection.output().len() > MOST_WAITING {
                return Poll::Pending;
            }
            self.held = false;
        }
    }

    /// Registers the waker that requests use.
    fn note(&self, cx: &Context<'_>) {
        let known = self.shared.driver.take().filter(|known| known.will_wake(cx.waker()));
        self.shared.driver.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
    }

    /// Reads received data; ready when no more can come.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEndCause> {
        loop {
            ready!(self.turn.poll_rest(cx));
            if self.shared.connection.borrow().output().len() > MOST_WAITING {
                // If nothing can be sent, waiting for output is pointless.
                if let Some(error) = self.unwritable.take() {
                    return Poll::Ready(ConnectionEndCause::Io(error));
                }
                self.held = true;
                return Poll::Pending;
            }
            let n = match self.link.poll_read_behind(cx, &mut self.buffer, self.room) {
                Poll::Ready(Ok(0)) => return Poll::Ready(ConnectionEndCause::Closed),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return Poll::Ready(ConnectionEndCause::Io(error)),
                Poll::Pending => {
                    if self.shared.taken.get() == 0 {
                        self.buffer = BytesMut::new();
                        self.shared.connection.borrow_mut().rest();
                    }
                    return Poll::Pending;
                }
            };
            self.turn.spend(Work::Bytes(n));
            let chunk = (n >= LARGE).then(|| self.buffer.split().freeze());
            let connection = &mut *self.shared.connection.borrow_mut();
            let bytes = chunk.as_deref().unwrap_or(&self.buffer);
            let put = &mut |_, inbox: &mut Inbox, event: Event<'_>| {
                inbox.put(event, chunk.as_ref());
            };
            match connection.receive(bytes, coarse_ms(), put) {
                Ok(frames) => self.turn.spend(Work::Pieces(frames)),
                Err(violation) => return Poll::Ready(ConnectionEndCause::Violation(violation)),
            }
            self.buffer.clear();
            self.room = match n {
                full if full >= self.room => (self.room * 2).min(READ_MOST),
                little if little < self.room / 4 => FIRST_READ,
                _ => self.room,
            };
        }
    }

    /// Sends the output; ready when all of it was sent, or nothing can be sent any more. In the latter case
    /// no requests will come, and reading finds the reason of the end.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unwritable.is_some() {
            return Poll::Ready(());
        }
        match ready!(self.poll_send(cx)) {
            Ok(()) => self.link.pause_writing(),
            Err(error) => {
                self.shared.retired.set(true);
                self.unwritable = Some(error);
            }
        }
        Poll::Ready(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let connection = &mut *self.shared.connection.borrow_mut();
        while !connection.output().is_empty() {
            let mut parts = [IoSlice::new(&[]); PARTS];
            let count = connection.output().slices(&mut parts);
            let n = ready!(self.link.poll_writev(cx, &parts[..count]))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.turn.spend(Work::Bytes(n));
            connection.output_moved(n, &mut |_, inbox, event| inbox.put(event, None));
        }
        self.link.poll_flush(cx)
    }
}
