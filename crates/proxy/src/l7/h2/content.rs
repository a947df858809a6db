//! The body of a request on a stream of HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use hyper::body::{Body, Frame, SizeHint};

use crate::l7::body::BodyError;
use crate::l7::inbound::Inbound;

/// A body that comes in DATA frames, and trailers perhaps. The library holds it to its length (RFC 9113
/// §8.1.1). What is taken out of it may be sent again by the client: its window grows with that.
pub(crate) struct Content {
    recv: RecvStream,
    /// What is left of a length that was told.
    left: Option<u64>,
    data_done: bool,
}

impl Content {
    /// The content of a request that told this length.
    pub(super) fn new(recv: RecvStream, length: Option<u64>) -> Self {
        Self { recv, left: length, data_done: false }
    }

    /// Whether the stream is reset already: its content looks like an empty one, which is another request.
    pub(crate) fn was_reset(&mut self, cx: &mut Context<'_>) -> bool {
        self.recv.is_end_stream() && matches!(self.recv.poll_data(cx), Poll::Ready(Some(Err(_))))
    }
}

impl From<Content> for Inbound {
    /// Most requests have no content, and then every question about it would be asked of the library.
    fn from(mut content: Content) -> Self {
        let over = content.recv.is_end_stream();
        // Nobody is to be woken: whoever waits for the content asks again.
        if over && !content.was_reset(&mut Context::from_waker(Waker::noop())) {
            return Self::Empty;
        }
        Self::Stream(content)
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let outcome = if this.data_done { None } else { ready!(this.recv.poll_data(cx)) };
        let frame = match outcome {
            Some(Ok(bytes)) => {
                // Only a stream that is gone has no window to be opened.
                let _ = this.recv.flow_control().release_capacity(bytes.len());
                this.left = this.left.map(|left| left.saturating_sub(bytes.len() as u64));
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Some(Err(error)) => Err(error),
            None => {
                this.data_done = true;
                ready!(this.recv.poll_trailers(cx))
            }
        };
        Poll::Ready(match frame {
            Ok(trailers) => trailers.map(Frame::trailers).map(Ok),
            // A client that wants no more of the answer has not broken off its question (RFC 9113 §8.1).
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            Err(error) => Some(Err(error.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.recv.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
