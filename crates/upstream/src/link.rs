//! A connection to a server: plain, or within TLS.
//!
//! Plain connections cost one look at what they are. Within TLS plaintext is copied once in each direction, as the
//! buffers are the caller's; the relay of `tcp` routes works on records itself and does not use this.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use offramp_net::Socket;
use offramp_tls::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

/// A connection to a server.
pub enum Link {
    /// Bytes as they are.
    Plain(Socket),
    /// Within TLS.
    Tls(Box<Stream>),
}

impl Link {
    /// The socket of it.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Reads; 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// What the kernel says, or how TLS was broken off.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read(cx, buffer),
            Self::Tls(stream) => {
                let mut at = 0;
                stream.poll_parts(cx, buffer.len(), |part| {
                    buffer[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                })
            }
        }
    }

    /// Reads behind what is in `buffer`, `room` bytes at the most.
    pub(crate) fn poll_read_behind(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read_behind(cx, buffer, room),
            Self::Tls(stream) => stream.poll_parts(cx, room.max(1), |part| buffer.extend_from_slice(part)),
        }
    }

    /// Reads into several buffers.
    pub(crate) fn poll_readv(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_readv(cx, buffers),
            Self::Tls(stream) => {
                let room = buffers.iter().map(|buffer| buffer.len()).sum();
                let mut slots = buffers.iter_mut().map(|buffer| &mut buffer[..]);
                let mut slot: &mut [u8] = &mut [];
                stream.poll_parts(cx, room, |mut part| {
                    while !part.is_empty() {
                        if slot.is_empty() {
                            // Not more comes than there is room for.
                            let Some(next) = slots.next() else { return };
                            slot = next;
                        }
                        let n = part.len().min(slot.len());
                        let (filled, rest) = std::mem::take(&mut slot).split_at_mut(n);
                        filled.copy_from_slice(&part[..n]);
                        (slot, part) = (rest, &part[n..]);
                    }
                })
            }
        }
    }

    /// Writes. Within TLS it may be taken before it has left; see [`Link::poll_flush`].
    ///
    /// # Errors
    /// As [`Link::poll_read`].
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    /// Writes from several buffers.
    pub(crate) fn poll_writev(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_writev(cx, parts),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, parts),
        }
    }

    /// Waits until what was written has left. A read does the same by the way, where it waits.
    ///
    /// # Errors
    /// As [`Link::poll_read`].
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    /// Says that nothing is to be written for now: when the server reads what was written last, that is no news.
    pub(crate) fn pause_writing(&self) {
        self.socket().pause_writing();
    }

    /// Ends the direction to the server.
    ///
    /// # Errors
    /// As [`Link::poll_read`].
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Poll::Ready(socket.shutdown_write()),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }

    /// Ends an idle connection in order: within TLS by close_notify, as far as there is room for it now.
    pub(crate) fn part(&mut self) {
        if let Self::Tls(stream) = self {
            // One that is gone already needs not be told.
            let _ = Pin::new(&mut **stream).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Whether the server has neither closed it, as far as is known, nor sent anything unasked but what belongs to
    /// TLS.
    pub(crate) fn is_quiet(&mut self) -> bool {
        // A task that has used up its budget would be told that nothing is ready, which is not silence.
        let look = unconstrained(poll_fn(|cx| match self {
            Self::Plain(socket) => socket.poll_read(cx, &mut [0]).map(drop),
            Self::Tls(stream) => match stream.is_quiet() {
                true => Poll::Pending,
                false => Poll::Ready(()),
            },
        }));
        pin!(look).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Whether everything that was written has left.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(stream) => stream.is_flushed(),
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => AsyncRead::poll_read(Pin::new(socket), cx, buffer),
            Self::Tls(stream) => {
                let room = buffer.remaining();
                ready!(stream.poll_parts(cx, room, |part| buffer.put_slice(part)))?;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Link::poll_write(self.get_mut(), cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => AsyncWrite::poll_write_vectored(Pin::new(socket), cx, parts),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Link::poll_flush(self.get_mut(), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Link::poll_shutdown(self.get_mut(), cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::coop::poll_proceed;
    use tokio::task::yield_now;

    use super::*;

    /// A task that has done much before asks as well as any other.
    #[test]
    fn a_task_without_budget_hears_what_was_said() {
        let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            for (said, spent) in [(false, false), (false, true), (true, false), (true, true)] {
                let (near, mut far) = UnixStream::pair().unwrap();
                near.set_nonblocking(true).unwrap();
                let mut link = Link::Plain(Socket::unix(near.into()).unwrap());
                if said {
                    far.write_all(b"HTTP/1.1 408 Request Timeout\r\n").unwrap();
                }
                // The event loop learns of it.
                yield_now().await;
                let quiet = poll_fn(|cx| {
                    while spent && let Poll::Ready(piece) = poll_proceed(cx) {
                        piece.made_progress();
                    }
                    Poll::Ready(link.is_quiet())
                });
                assert_eq!(quiet.await, !said, "{said} {spent}");
            }
        });
    }
}
