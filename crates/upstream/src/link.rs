//! A connection to a server: plain, or within TLS.
//!
//! Plain connections cost one check of the variant. Within TLS, plaintext is copied once in each direction,
//! as the buffers are the caller's; the relay of `tcp` routes works on records itself and does not use this.

use std::future::{Future as _, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use offramp_net::Socket;
use offramp_tls::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::unconstrained;

/// A connection to a server.
pub enum ServerStream {
    /// Plain text over a socket.
    Plain(Socket),
    /// Plaintext within a TLS session.
    Tls(Box<TlsStream>),
}

impl ServerStream {
    /// The socket of the connection.
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
    /// Errors of the system call or of TLS.
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

    /// Appends to `buffer`, at most `room` bytes.
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
                            // At most the requested bytes arrive.
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

    /// Writes. Within TLS, accepted bytes may not be sent yet; see [`ServerStream::poll_flush`].
    ///
    /// # Errors
    /// As [`ServerStream::poll_read`].
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

    /// Waits until everything written was sent. A read that waits does the same in passing.
    ///
    /// # Errors
    /// As [`ServerStream::poll_read`].
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    /// Announces that nothing is to be written for now, so that the server's reads do not wake the task.
    pub(crate) fn pause_writing(&self) {
        self.socket().pause_writing();
    }

    /// Ends the direction to the server.
    ///
    /// # Errors
    /// As [`ServerStream::poll_read`].
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Poll::Ready(socket.shutdown_write()),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }

    /// Ends an idle connection in order: within TLS by close_notify, if there is space for it now.
    pub(crate) fn part(&mut self) {
        if let Self::Tls(stream) = self {
            // Errors are irrelevant if the peer is gone already.
            let _ = Pin::new(&mut **stream).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Returns true if the server has neither closed the connection, as far as is known, nor sent unsolicited
    /// data, except TLS messages.
    pub(crate) fn is_quiet(&mut self) -> bool {
        // Without tokio's task budget: an exhausted one would look like silence.
        let look = unconstrained(poll_fn(|cx| match self {
            Self::Plain(socket) => socket.poll_read(cx, &mut [0]).map(drop),
            Self::Tls(stream) => match stream.is_quiet() {
                true => Poll::Pending,
                false => Poll::Ready(()),
            },
        }));
        pin!(look).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Returns true if everything written was sent.
    pub(crate) fn is_flushed(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Tls(stream) => stream.is_flushed(),
        }
    }
}

impl AsyncRead for ServerStream {
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

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ServerStream::poll_write(self.get_mut(), cx, bytes)
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
        ServerStream::poll_flush(self.get_mut(), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ServerStream::poll_shutdown(self.get_mut(), cx)
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

    /// An exhausted task budget does not hide received data.
    #[test]
    fn a_task_without_budget_sees_received_data() {
        let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            for (said, spent) in [(false, false), (false, true), (true, false), (true, true)] {
                let (near, mut far) = UnixStream::pair().unwrap();
                near.set_nonblocking(true).unwrap();
                let mut link = ServerStream::Plain(Socket::unix(near.into()).unwrap());
                if said {
                    far.write_all(b"HTTP/1.1 408 Request Timeout\r\n").unwrap();
                }
                // The event loop checks readiness.
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
