//! The client's end of a tunnel on a stream of HTTP/2 (RFC 8441): DATA frames as a stream of bytes.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use offramp_http::h2::Code;

use super::handle::{Broken, Incoming, Respond};
use crate::l7::tunnel::TunnelEnd;

/// Both directions of a stream.
pub(super) struct StreamEnd {
    respond: Respond,
    incoming: Option<Incoming>,
    /// Data that was not read yet.
    unread: Bytes,
    shut: bool,
}

impl StreamEnd {
    /// `incoming`: nothing where the client has ended its direction with the request.
    pub(super) fn new(respond: Respond, incoming: Option<Incoming>) -> Self {
        Self { respond, incoming, unread: Bytes::new(), shut: false }
    }
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        // It will not be read; the client may send as much on other streams.
        if let Some(incoming) = &self.incoming {
            incoming.release(self.unread.len());
        }
    }
}

impl TunnelEnd for StreamEnd {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(incoming) = &self.incoming else { return Poll::Ready(Ok(0)) };
        while self.unread.is_empty() {
            match ready!(incoming.poll_data(cx)) {
                Some(Ok(bytes)) => self.unread = bytes,
                // A client that has no more to say, or nothing more at all.
                None | Some(Err(Broken::ByClient(Code::NO_ERROR | Code::CANCEL))) => {
                    return Poll::Ready(Ok(0));
                }
                Some(Err(broken)) => return Poll::Ready(Err(io::Error::other(broken))),
            }
        }
        let n = self.unread.len().min(buffer.len());
        self.unread.copy_to_slice(&mut buffer[..n]);
        incoming.release(n);
        Poll::Ready(Ok(n))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let n = ready!(self.respond.poll_room(cx)).min(bytes.len());
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        if n == 0 {
            return Poll::Ready(Err(gone()));
        }
        Poll::Ready(
            self.respond.data(Bytes::copy_from_slice(&bytes[..n]), false).map(|()| n).map_err(|_| gone()),
        )
    }

    /// Written data is on its way. Called while there is nothing to write: a client that is gone is noticed.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match self.respond.poll_gone(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::BrokenPipe.into()),
            Poll::Pending => Ok(()),
        })
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.shut, true) {
            self.respond.data(Bytes::new(), true).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        Poll::Ready(Ok(()))
    }
}
