//! The body of a response. It drives its connection and gives it back when it has ended.

use std::fmt;
use std::io::IoSliceMut;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use offramp_http::body::Frame;
use offramp_net::clock::coarse_ms;

use super::h2::Exchange;
use super::line::{Held, Http1Connection, RequestBody};
use super::watch::{Deadline, after};
use crate::admission::Permit;
use crate::fault::Fault;

/// The body of a response, with its trailers. Dropped before its end it closes its connection, or
/// resets its stream: the rest is not waited for.
pub struct ServerBody<B: RequestBody> {
    origin: Origin<B>,
    /// How much memory the frame that came last keeps at the most, where it came on a connection of HTTP/1.1.
    frame_memory: usize,
}

/// Where a body comes from: held until it has ended.
enum Origin<B: RequestBody> {
    /// The end was seen or something failed.
    Over,
    Line(Box<Http1Connection<B>>),
    Stream(Box<Source<B>>),
}

/// A stream of HTTP/2.
struct Source<B> {
    exchange: Exchange<B>,
    /// The count on the server, until the body has ended.
    _permit: Permit,
    deadline: Deadline,
    /// How long nothing may move.
    patience: Duration,
    /// When something of the response last came.
    moved: u64,
}

impl<B: RequestBody> ServerBody<B> {
    /// A body that comes on `line`, which goes back where `held` says.
    pub(crate) fn of_line(mut line: Box<Http1Connection<B>>, held: Held<B>) -> Self {
        line.hold(held);
        let mut this = ServerBody { origin: Origin::Line(line), frame_memory: 0 };
        this.look();
        this
    }

    /// A body that comes on a stream.
    pub(crate) fn of_stream(
        exchange: Exchange<B>,
        permit: Permit,
        deadline: Deadline,
        patience: Duration,
    ) -> Self {
        let source = Source { exchange, _permit: permit, deadline, patience, moved: coarse_ms() };
        let mut this = ServerBody { origin: Origin::Stream(Box::new(source)), frame_memory: 0 };
        this.look();
        this
    }

    /// The body of a response that has none.
    pub(crate) fn empty() -> Self {
        ServerBody { origin: Origin::Over, frame_memory: 0 }
    }

    /// How many bytes can be read with [`ServerBody::poll_into`] now; 0 where the next frame has to be asked for.
    #[must_use]
    pub fn direct(&self) -> u64 {
        match &self.origin {
            Origin::Line(line) => line.direct(),
            Origin::Over | Origin::Stream(_) => 0,
        }
    }

    /// How much memory is held for what was read and did not come out yet, in bytes. What is empty is given back where
    /// content `waits` for its receiver, or is large.
    pub fn held_memory(&mut self, waits: bool) -> usize {
        match &mut self.origin {
            Origin::Line(line) => line.held_memory(waits),
            _ => 0,
        }
    }

    /// How much memory the frame that came last keeps at the most, in bytes, where it is more than the frame.
    #[must_use]
    pub fn frame_memory(&self) -> usize {
        self.frame_memory
    }

    /// Has a server that speaks HTTP/2 send at most so many bytes ahead of what was read, but at least [`FIRST_READ`];
    /// 256 KiB where nothing is said.
    ///
    /// [`FIRST_READ`]: crate::FIRST_READ
    pub fn set_ahead(&mut self, most: usize) {
        if let Origin::Stream(source) = &mut self.origin {
            source.exchange.set_most(most);
        }
    }

    /// How many bytes a server that speaks HTTP/2 may have sent ahead of what was read, beyond [`FIRST_READ`]; nothing for
    /// another server, where no more is needed, and when the body has ended.
    ///
    /// [`FIRST_READ`]: crate::FIRST_READ
    #[must_use]
    pub fn ahead(&self) -> Option<usize> {
        match &self.origin {
            Origin::Stream(source) => source.exchange.ahead(),
            Origin::Over | Origin::Line(_) => None,
        }
    }

    /// Has the next frames read in pieces of about so many bytes at the most. Those of HTTP/2 come as they come.
    pub fn limit(&mut self, most: usize) {
        if let Origin::Line(line) = &mut self.origin {
            line.limit(most);
        }
    }

    /// Reads data straight into `slots`, in order, and tells how much. They have room for 1 to
    /// [`ServerBody::direct`] bytes.
    ///
    /// # Errors
    /// As those of a frame.
    ///
    /// # Panics
    /// Where the slots have more room, or none.
    pub fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<Result<usize, Fault>> {
        let Origin::Line(line) = &mut self.origin else { panic!("there is nothing to read from") };
        let read = ready!(line.poll_into(cx, slots));
        match &read {
            Ok(_) => self.look(),
            Err(_) => self.origin = Origin::Over,
        }
        Poll::Ready(read)
    }

    /// Where the end has come, the connection can be used again.
    fn look(&mut self) {
        let ended = match &mut self.origin {
            Origin::Over => false,
            Origin::Line(line) => line.has_ended(),
            Origin::Stream(source) => source.exchange.has_ended(),
        };
        if ended {
            self.end();
        }
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.origin, Origin::Over) {
            Origin::Over => {}
            Origin::Line(line) => line.give_back(),
            Origin::Stream(source) => source.exchange.finish(),
        }
    }
}

impl<B: RequestBody> Source<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        match self.exchange.poll_frame(cx) {
            Poll::Ready(frame) => {
                self.moved = coarse_ms();
                Poll::Ready(frame)
            }
            Poll::Pending => {
                // While the client has more to send, and does not, the silence is its own.
                let Some(since) = self.exchange.progress().since() else { return Poll::Pending };
                if self.deadline.wait(after(self.moved.max(since), self.patience), cx.waker()) {
                    return Poll::Ready(Some(Err(Fault::Stalled)));
                }
                Poll::Pending
            }
        }
    }
}

impl<B: RequestBody> ServerBody<B> {
    /// The next part; none behind the last.
    ///
    /// # Errors
    /// The response breaks off, and why.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let frame = match &mut self.origin {
            Origin::Over => None,
            Origin::Line(line) => {
                let frame = ready!(line.poll_frame(cx));
                self.frame_memory = line.frame_memory();
                frame
            }
            Origin::Stream(source) => ready!(source.poll_frame(cx)),
        };
        match &frame {
            Some(Ok(_)) => self.look(),
            Some(Err(_)) => self.origin = Origin::Over,
            None => self.end(),
        }
        Poll::Ready(frame)
    }

    /// Whether nothing is to come, as far as that is known.
    #[must_use]
    pub fn is_end_stream(&self) -> bool {
        matches!(self.origin, Origin::Over)
    }

    /// How many bytes of data are to come, where that is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.origin {
            Origin::Over => Some(0),
            Origin::Line(line) => line.length(),
            Origin::Stream(source) => source.exchange.length(),
        }
    }
}

impl<B: RequestBody> fmt::Debug for ServerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBody").field("over", &self.is_end_stream()).finish_non_exhaustive()
    }
}
