//! A response body of any length without allocation: one static text, repeated.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// Body with a number of bytes still to be sent.
pub(crate) struct Filler {
    left: u64,
}

impl Filler {
    /// Creates a body of `length` bytes.
    pub(crate) fn new(length: u64) -> Self {
        Filler { left: length }
    }
}

impl Body for Filler {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let length = usize::try_from(self.left).unwrap_or(usize::MAX).min(TEXT.len());
        self.left -= length as u64;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&TEXT[..length])))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

const LINE: &[u8; 32] = b"TLS is off from here to the app\n";

/// 64 KiB of [`LINE`], which fill four TLS records.
static TEXT: [u8; 64 << 10] = {
    let mut text = [0; 64 << 10];
    let mut at = 0;
    while at < text.len() {
        text[at] = LINE[at % LINE.len()];
        at += 1;
    }
    text
};
