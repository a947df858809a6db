//! The body of a request as it comes from a client, whatever version brings it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::body::BodyError;
use super::h2::Content;

/// The body of a request that a client sends.
pub(crate) enum Inbound {
    /// There is none.
    Empty,
    /// What comes on an HTTP/1 connection.
    Http1(Incoming),
    /// What comes on a stream of HTTP/2.
    Http2(Content),
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http1(incoming) => {
                Pin::new(incoming).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Http2(content) => Pin::new(content).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(incoming) => incoming.is_end_stream(),
            Self::Http2(content) => content.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(incoming) => incoming.size_hint(),
            Self::Http2(content) => content.size_hint(),
        }
    }
}
