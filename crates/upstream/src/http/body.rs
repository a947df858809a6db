//! Response bodies. A body drives its connection and returns it to the pool at the end.

use std::fmt;
use std::io::IoSliceMut;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use offramp_http::body::Frame;
use offramp_net::clock::coarse_ms;

use super::h2::{SentAhead, StreamExchange};
use super::line::{Http1Connection, RequestBody, ResponseLease};
use super::watch::{Deadline, after};
use crate::admission::Permit;
use crate::fault::UpstreamFault;

/// Body of a response, with its trailers. Dropped before its end, it closes its connection or resets its
/// stream, without waiting for the rest.
pub struct ServerBody<B: RequestBody> {
    origin: BodySource<B>,
    /// Memory retained by the last frame of an HTTP/1.1 connection, at most, in bytes.
    frame_memory: usize,
}

/// Source of a body, held until its end.
enum BodySource<B: RequestBody> {
    /// The end was reached, or an error occurred.
    Over,
    Line(Box<Http1Connection<B>>),
    Stream(Box<StreamSource<B>>),
}

/// An HTTP/2 stream as the source of a body.
struct StreamSource<B> {
    exchange: StreamExchange<B>,
    /// Count on the server, until the body has ended.
    _permit: Permit,
    deadline: Deadline,
    /// Maximum pause of the body.
    patience: Duration,
    /// Time of the last data of the response.
    moved: u64,
}

impl<B: RequestBody> ServerBody<B> {
    /// A body on `line`, which is returned to the pool in `held`.
    pub(crate) fn of_line(mut line: Box<Http1Connection<B>>, held: ResponseLease<B>) -> Self {
        line.hold(held);
        let mut this = ServerBody { origin: BodySource::Line(line), frame_memory: 0 };
        this.check_end();
        this
    }

    /// A body on a stream.
    pub(crate) fn of_stream(
        exchange: StreamExchange<B>,
        permit: Permit,
        deadline: Deadline,
        patience: Duration,
    ) -> Self {
        let source = StreamSource { exchange, _permit: permit, deadline, patience, moved: coarse_ms() };
        let mut this = ServerBody { origin: BodySource::Stream(Box::new(source)), frame_memory: 0 };
        this.check_end();
        this
    }

    /// The body of a response without content.
    pub(crate) fn empty() -> Self {
        ServerBody { origin: BodySource::Over, frame_memory: 0 }
    }

    /// Number of bytes that [`ServerBody::poll_into`] can read now; 0 if the next frame has to be polled.
    #[must_use]
    pub fn direct(&self) -> u64 {
        match &self.origin {
            BodySource::Line(line) => line.direct(),
            BodySource::Over | BodySource::Stream(_) => 0,
        }
    }

    /// Memory held for data that was read and not returned yet, in bytes. Empty buffers are released if
    /// content `waits` for its receiver, or if they are large.
    pub fn held_memory(&mut self, waits: bool) -> usize {
        match &mut self.origin {
            BodySource::Line(line) => line.held_memory(waits),
            _ => 0,
        }
    }

    /// Memory retained by the last frame, at most, in bytes, if it exceeds the frame.
    #[must_use]
    pub fn frame_memory(&self) -> usize {
        self.frame_memory
    }

    /// Limits the bytes that an HTTP/2 server may send ahead of what was read, to at least [`FIRST_READ`] and
    /// at most what its path needs; 256 KiB by default.
    ///
    /// [`FIRST_READ`]: crate::FIRST_READ
    pub fn set_ahead(&mut self, most: usize) {
        if let BodySource::Stream(source) = &mut self.origin {
            source.exchange.set_most(most);
        }
    }

    /// Bytes that an HTTP/2 server may send ahead, and needs; `None` for HTTP/1, if no more than the first read
    /// is needed, and after the end of the body.
    #[must_use]
    pub fn ahead(&self) -> Option<SentAhead> {
        match &self.origin {
            BodySource::Stream(source) => source.exchange.ahead(),
            BodySource::Over | BodySource::Line(_) => None,
        }
    }

    /// Limits the size of the next frames to about `most` bytes. HTTP/2 frames keep their size.
    pub fn limit(&mut self, most: usize) {
        if let BodySource::Line(line) = &mut self.origin {
            line.limit(most);
        }
    }

    /// Reads data into `slots`, in order, and returns the number of bytes. The slots have room for 1 to
    /// [`ServerBody::direct`] bytes.
    ///
    /// # Errors
    /// As those of a frame.
    ///
    /// # Panics
    /// If the slots have more room, or none.
    pub fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        slots: &mut [IoSliceMut<'_>],
    ) -> Poll<Result<usize, UpstreamFault>> {
        let BodySource::Line(line) = &mut self.origin else { panic!("there is nothing to read from") };
        let read = ready!(line.poll_into(cx, slots));
        match &read {
            Ok(_) => self.check_end(),
            Err(_) => self.origin = BodySource::Over,
        }
        Poll::Ready(read)
    }

    /// Returns the connection to the pool if the body has ended.
    fn check_end(&mut self) {
        let ended = match &mut self.origin {
            BodySource::Over => false,
            BodySource::Line(line) => line.has_ended(),
            BodySource::Stream(source) => source.exchange.has_ended(),
        };
        if ended {
            self.end();
        }
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.origin, BodySource::Over) {
            BodySource::Over => {}
            BodySource::Line(line) => line.give_back(),
            BodySource::Stream(source) => source.exchange.finish(),
        }
    }
}

impl<B: RequestBody> StreamSource<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, UpstreamFault>>> {
        match self.exchange.poll_frame(cx) {
            Poll::Ready(frame) => {
                self.moved = coarse_ms();
                Poll::Ready(frame)
            }
            Poll::Pending => {
                // While the client has not sent its part, the pause is its own.
                let Some(since) = self.exchange.progress().since() else { return Poll::Pending };
                if self.deadline.wait(after(self.moved.max(since), self.patience), cx.waker()) {
                    return Poll::Ready(Some(Err(UpstreamFault::Stalled)));
                }
                Poll::Pending
            }
        }
    }
}

impl<B: RequestBody> ServerBody<B> {
    /// Returns the next part; `None` behind the last.
    ///
    /// # Errors
    /// The response was aborted.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, UpstreamFault>>> {
        let frame = match &mut self.origin {
            BodySource::Over => None,
            BodySource::Line(line) => {
                let frame = ready!(line.poll_frame(cx));
                self.frame_memory = line.frame_memory();
                frame
            }
            BodySource::Stream(source) => ready!(source.poll_frame(cx)),
        };
        match &frame {
            Some(Ok(_)) => self.check_end(),
            Some(Err(_)) => self.origin = BodySource::Over,
            None => self.end(),
        }
        Poll::Ready(frame)
    }

    /// Returns true if the body is known to have ended.
    #[must_use]
    pub fn is_end_stream(&self) -> bool {
        matches!(self.origin, BodySource::Over)
    }

    /// Remaining bytes of data, if known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.origin {
            BodySource::Over => Some(0),
            BodySource::Line(line) => line.length(),
            BodySource::Stream(source) => source.exchange.length(),
        }
    }
}

impl<B: RequestBody> fmt::Debug for ServerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBody").field("over", &self.is_end_stream()).finish_non_exhaustive()
    }
}
