//! The client's end of a tunnel on a stream of HTTP/2 (RFC 8441): DATA frames as a stream of bytes.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::{Reason, RecvStream, SendStream};

use super::stream::poll_room;
use crate::l7::tunnel::End;

/// The most that is reserved of the windows at a time: more would be taken from the other streams.
const MOST: usize = 16 * 1024;

/// Both directions of a stream.
pub(super) struct StreamEnd {
    send: SendStream<Bytes>,
    recv: RecvStream,
    /// What has come and was not read yet.
    unread: Bytes,
    shut: bool,
}

impl StreamEnd {
    pub(super) fn new(send: SendStream<Bytes>, recv: RecvStream) -> Self {
        Self { send, recv, unread: Bytes::new(), shut: false }
    }
}

impl End for StreamEnd {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.unread.is_empty() {
            match ready!(self.recv.poll_data(cx)) {
                Some(Ok(bytes)) => self.unread = bytes,
                // A client that has no more to say, or nothing more at all.
                None => return Poll::Ready(Ok(0)),
                Some(Err(error)) if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) => {
                    return Poll::Ready(Ok(0));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let n = self.unread.len().min(buffer.len());
        self.unread.copy_to_slice(&mut buffer[..n]);
        // Only a stream that is gone has no window to be opened.
        let _ = self.recv.flow_control().release_capacity(n);
        Poll::Ready(Ok(n))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(MOST)];
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.send.reserve_capacity(bytes.len());
        ready!(poll_room(cx, &mut self.send));
        let n = self.send.capacity().min(bytes.len());
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.send.send_data(Bytes::copy_from_slice(&bytes[..n]), false).map_err(io::Error::other)?;
        Poll::Ready(Ok(n))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.shut, true) {
            self.send.send_data(Bytes::new(), true).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}
