//! The body of a request on a stream of HTTP/2.

use std::task::{Context, Poll, ready};

use offramp_http::body::Frame;

use super::handle::Incoming;
use crate::l7::body::BodyError;

/// A body that comes in DATA frames, and trailers perhaps. The connection holds it to its length (RFC 9113
/// §8.1.1). What has gone to the server may be sent again by the client: its window grows with that.
pub(crate) struct StreamContent {
    incoming: Incoming,
    /// Rest of the declared length.
    left: Option<u64>,
    data_done: bool,
    /// Bytes on their way to the server: the client may send as much again when they have left.
    under_way: usize,
}

impl StreamContent {
    /// The content of a request that declared this length.
    pub(super) fn new(incoming: Incoming, length: Option<u64>) -> Self {
        Self { incoming, left: length, data_done: false, under_way: 0 }
    }

    /// Sets the content apart, which waits for long: it is not to keep other streams from sending.
    pub(crate) fn set_apart(&self) {
        self.incoming.set_apart();
    }

    /// Waits until it is known if there is any data.
    pub(crate) fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.incoming.poll_begun(cx)
    }

    /// Returns true if the stream is reset already: its content looks like an empty one, which is another request.
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

impl StreamContent {
    /// The next part; none behind the last.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        // A caller that asks for more has done with what came before.
        self.release();
        let outcome = if self.data_done { None } else { ready!(self.incoming.poll_data(cx)) };
        Poll::Ready(match outcome {
            Some(Ok(bytes)) => {
                self.under_way = bytes.len();
                if self.incoming.is_over() {
                    // Perhaps the caller asks for no more, and the stream can send none.
                    self.release();
                }
                self.left = self.left.map(|left| left.saturating_sub(bytes.len() as u64));
                Some(Ok(Frame::Data(bytes)))
            }
            Some(Err(broken)) => Some(Err(broken.into())),
            None => {
                self.data_done = true;
                self.incoming.take_trailers().map(|trailers| Ok(Frame::Trailers(trailers)))
            }
        })
    }

    /// Returns true at the end of the content.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_over()
    }

    /// Number of bytes that are to come, if it is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.left
    }
}
