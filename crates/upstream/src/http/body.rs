//! The body of a response. It drives its connection and gives it back when it has ended.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use offramp_net::clock::coarse_ms;

use super::line::{Line, RequestBody};
use super::mux::Stream;
use super::outgoing::Progress;
use super::shelf::Shelf;
use super::watch::{Deadline, after};
use crate::admission::Seat;
use crate::fault::Fault;

/// The body of a response, with its trailers. Dropped before its end it closes its connection, or
/// resets its stream: the rest is not waited for.
pub struct ServerBody<B: RequestBody> {
    incoming: Incoming,
    source: Option<Box<Source<B>>>,
    /// Set once the end was seen or something failed.
    over: bool,
}

/// Where a body comes from: held until it has ended.
pub(crate) struct Source<B: RequestBody> {
    pub(crate) carrier: Carrier<B>,
    /// The count on the server, until the body has ended.
    pub(crate) _seat: Seat,
    pub(crate) deadline: Deadline,
    /// How long nothing may move.
    pub(crate) patience: Duration,
    /// When something of the response last came.
    pub(crate) moved: u64,
}

/// A connection, or a part of one.
pub(crate) enum Carrier<B: RequestBody> {
    Line(Box<Line<B>>, Rc<Shelf<B>>),
    Stream(Stream<B>),
}

impl<B: RequestBody> Carrier<B> {
    /// Gives the connection back to where it can be used again.
    pub(crate) fn give_back(self) {
        if let Self::Line(mut line, shelf) = self
            && line.settle()
        {
            shelf.put(line);
        }
    }

    /// Whether the connection has carried a request before.
    pub(crate) fn is_reused(&self) -> bool {
        match self {
            Self::Line(line, _) => line.is_reused(),
            Self::Stream(stream) => stream.is_reused(),
        }
    }

    /// Whether a byte of the response may have come.
    pub(crate) fn has_heard(&self) -> bool {
        match self {
            Self::Line(line, _) => line.has_heard(),
            // What came is not told; that the request was not looked at is told by the error.
            Self::Stream(_) => false,
        }
    }

    /// Has the connection take no further requests.
    pub(crate) fn retire(&self) {
        if let Self::Stream(stream) = self {
            // Who does not answer one request may answer none.
            stream.retire();
        }
    }

    /// Gives the socket to whoever asked hyper for the upgrade; what is left has to be kept meanwhile.
    pub(crate) async fn hand_over(self) -> Option<Self> {
        match self {
            Self::Line(line, _) => {
                line.hand_over().await;
                None
            }
            stream @ Self::Stream(_) => Some(stream),
        }
    }

    /// How the request comes along.
    pub(crate) fn progress(&self) -> &Rc<Progress> {
        match self {
            Self::Line(line, _) => line.progress(),
            Self::Stream(stream) => stream.progress(),
        }
    }
}

impl<B: RequestBody> Source<B> {
    fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let frame = match &mut self.carrier {
            Carrier::Line(line, _) => line.poll_body(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx)),
            Carrier::Stream(_) => Pin::new(incoming).poll_frame(cx),
        };
        match frame {
            Poll::Ready(Some(Ok(frame))) => {
                self.moved = coarse_ms();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                // The driver knows better than the body what happened.
                let cause = match &mut self.carrier {
                    Carrier::Line(line, _) => line.take_error(),
                    Carrier::Stream(_) => None,
                };
                Poll::Ready(Some(Err(Fault::of(cause.unwrap_or(error)))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                // While the client has more to send, and does not, the silence is its own.
                let progress = self.carrier.progress();
                let Some(_) = progress.since() else { return Poll::Pending };
                let due = after(self.moved.max(progress.moved()), self.patience);
                if self.deadline.wait(due, cx.waker()) {
                    return Poll::Ready(Some(Err(Fault::Stalled)));
                }
                Poll::Pending
            }
        }
    }
}

impl<B: RequestBody> ServerBody<B> {
    /// A body that comes from `source`.
    pub(crate) fn new(incoming: Incoming, source: Source<B>) -> Self {
        let mut this = ServerBody { incoming, source: None, over: false };
        if this.incoming.is_end_stream() {
            source.carrier.give_back();
        } else {
            this.source = Some(Box::new(source));
        }
        this
    }

    /// The body of a response that has none, or whose connection has been handed over.
    pub(crate) fn empty(incoming: Incoming) -> Self {
        ServerBody { incoming, source: None, over: false }
    }

    /// The end was seen: the connection can be used again.
    fn end(&mut self) {
        self.over = true;
        if let Some(source) = self.source.take() {
            source.carrier.give_back();
        }
    }
}

impl<B: RequestBody> Body for ServerBody<B> {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = self.get_mut();
        let Some(source) = &mut this.source else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(source.poll_frame(&mut this.incoming, cx));
        match &frame {
            Some(Ok(_)) => {
                if this.incoming.is_end_stream() {
                    this.end();
                }
            }
            Some(Err(_)) => {
                this.over = true;
                this.source = None;
            }
            None => this.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl<B: RequestBody> fmt::Debug for ServerBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBody").field("over", &self.over).finish_non_exhaustive()
    }
}
