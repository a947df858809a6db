//! `AsyncRead` and `AsyncWrite` for [`Socket`], and reads into a buffer with shareable parts.
//!
//! Bytes go straight into the caller's buffer, which need not be initialised. Writes are not buffered, so
//! flushing does nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Socket;

impl Socket {
    /// Appends to `buffer` up to `room` bytes; memory is allocated only when there is something to read. 0
    /// bytes mean the end of the stream.
    ///
    /// # Errors
    /// As [`Socket::poll_readv`].
    pub fn poll_read_behind(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let n = ready!(self.poll_with_room(cx, |fd| {
            let wanted = room.max(1);
            buffer.reserve(wanted);
            let spare = &mut buffer.spare_capacity_mut()[..wanted];
            recv(fd, spare, RecvFlags::empty()).map(|((filled, _), _)| (filled.len(), wanted))
        }))?;
        // SAFETY: `recv` has initialised the first `n` bytes of the spare capacity.
        unsafe { buffer.set_len(buffer.len() + n) };
        Poll::Ready(Ok(n))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: no initialised byte becomes uninitialised: the kernel only writes into the slice.
        let room = unsafe { buffer.unfilled_mut() };
        let wanted = room.len();
        let read = self.poll_with_read(cx, wanted, |fd| {
            recv(fd, &mut *room, RecvFlags::empty()).map(|((filled, _), _)| filled.len())
        });
        let n = ready!(read)?;
        // SAFETY: `recv` has initialised the first `n` bytes of `room`.
        unsafe { buffer.assume_init(n) };
        buffer.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Socket::poll_write(&self, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = parts.iter().filter(|part| !part.is_empty());
        match (filled.next(), filled.next()) {
            // send(2) is cheaper than a vectored write.
            (Some(only), None) => Socket::poll_write(&self, cx, only),
            _ => self.poll_writev(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_write())
    }
}
