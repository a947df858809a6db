//! The task of a connection: it reads what the server sends, and sends what requests have written.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use offramp_http::h2::{Code, Event};
use offramp_net::clock::coarse_ms;
use offramp_net::turn::{Turn, Work};

use super::inbox::Inbox;
use super::{Ended, Shared};
use crate::link::Link;

/// The room for a read at the begin, and at the most: reads grow while they take all that they can.
const FIRST_READ: usize = 16 * 1024;
const READ_MOST: usize = 64 * 1024;
/// A read from this size on may be kept by those who get its data, rather than copied.
const LARGE: usize = 8 * 1024;
/// How much may wait to be sent before nothing more is read: a server that takes nothing gets no answers.
const MOST_WAITING: usize = 128 * 1024;
/// The most parts of one write.
const PARTS: usize = 16;

struct Driver {
    shared: Rc<Shared>,
    link: Link,
    buffer: BytesMut,
    /// The room for the next read.
    room: usize,
    /// Whether reading waits for what is to be sent.
    held: bool,
    /// Why nothing can be sent any more: what the server has said may still come.
    unwritable: Option<io::Error>,
    turn: Turn,
}

/// Runs a connection until it ends.
pub(super) async fn drive(shared: Rc<Shared>, link: Link) {
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
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        self.note(cx);
        loop {
            // What has come is read first: whether the server has closed the connection is known before a request is sent.
            let read = self.poll_read(cx);
            if let Poll::Ready(ended) = read {
                if matches!(ended, Ended::Violation(_)) {
                    // As far as there is room for it, the server is told why.
                    let _ = self.poll_write(cx);
                    self.link.part();
                }
                return Poll::Ready(match (ended, self.unwritable.take()) {
                    // A connection that broke while it was written to: that says more than its end.
                    (Ended::Closed, Some(error)) => Ended::Io(error),
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
                return Poll::Ready(Ended::Closed);
            }
            if !self.held || connection.output().len() > MOST_WAITING {
                return Poll::Pending;
            }
            self.held = false;
        }
    }

    /// Notes whom requests wake.
    fn note(&self, cx: &Context<'_>) {
        let known = self.shared.driver.take().filter(|known| known.will_wake(cx.waker()));
        self.shared.driver.set(Some(known.unwrap_or_else(|| cx.waker().clone())));
    }

    /// Reads what has come; ready where nothing more comes.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            ready!(self.turn.poll_rest(cx));
            if self.shared.connection.borrow().output().len() > MOST_WAITING {
                // Where nothing can be sent any more, there is nothing to wait for.
                if let Some(error) = self.unwritable.take() {
                    return Poll::Ready(Ended::Io(error));
                }
                self.held = true;
                return Poll::Pending;
            }
            let n = match self.link.poll_read_behind(cx, &mut self.buffer, self.room) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ended::Closed),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return Poll::Ready(Ended::Io(error)),
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
                Err(violation) => return Poll::Ready(Ended::Violation(violation)),
            }
            self.buffer.clear();
            self.room = match n {
                full if full >= self.room => (self.room * 2).min(READ_MOST),
                little if little < self.room / 4 => FIRST_READ,
                _ => self.room,
            };
        }
    }

    /// Sends what waits; ready where all of it has left, or nothing can be sent any more. Then no requests are to come,
    /// and reading finds out how the connection ends.
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
