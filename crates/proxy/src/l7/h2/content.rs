//! The body of a request on a stream of HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::handle::Incoming;
use crate::l7::body::BodyError;

/// A body that comes in DATA frames, and trailers perhaps. The connection holds it to its length (RFC 9113
/// §8.1.1). What has gone to the server may be sent again by the client: its window grows with that.
pub(crate) struct StreamContent {
    incoming: Incoming,
    /// What is left of a length that was told.
    left: Option<u64>,
    data_done: bool,
    /// How much of what was taken is on its way to the server: the client may send as much again when it has left.
    under_way: usize,
}

impl StreamContent {
    /// The content of a request that told this length.
    pub(super) fn new(incoming: Incoming, length: Option<u64>) -> Self {
        Self { incoming, left: length, data_done: false, under_way: 0 }
    }

    /// Whether the stream is reset already: its content looks like an empty one, which is another request.
    pub(crate) fn was_reset(&self) -> bool {
        self.incoming.is_broken()
    }

    /// The client may send again what is no longer under way.
    fn release(&mut self) {
        if self.under_way > 0 {
            self.incoming.release(std::mem::take(&mut self.under_way));
        }
    }
}

impl Drop for StreamContent {
    fn drop(&mut self) {
        self.release();
    }
}

impl Body for StreamContent {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        // Whoever asks for more has done with what came before.
        this.release();
        let outcome = if this.data_done { None } else { ready!(this.incoming.poll_data(cx)) };
        Poll::Ready(match outcome {
            Some(Ok(bytes)) => {
                this.under_way = bytes.len();
                if this.incoming.is_over() {
                    // Perhaps nobody asks for more, and the stream can send none.
                    this.release();
                }
                this.left = this.left.map(|left| left.saturating_sub(bytes.len() as u64));
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(broken)) => Some(Err(broken.into())),
            None => {
                this.data_done = true;
                this.incoming.take_trailers().map(|trailers| Ok(Frame::trailers(trailers.to_map())))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
