//! A connected stream socket, TCP or Unix, driven by readiness.
//!
//! tokio's own streams need a second read to learn that a socket is empty; here a short read or
//! write says so, which halves the system calls of a request. Vectored calls go straight to the
//! kernel. What is refused: nothing is buffered, nothing is copied.

use std::cell::OnceCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::address::canonical;

/// A connected, non-blocking stream socket, registered with the current runtime.
///
/// Only readability is watched at first. A Unix socket reports that it is writable each time its peer
/// has read something, and each such report would wake a worker for nothing; so writability is
/// watched, on a duplicate of the descriptor, from the first time on that a write had to wait.
pub struct Socket {
    fd: AsyncFd<OwnedFd>,
    writable: OnceCell<AsyncFd<OwnedFd>>,
}

impl Socket {
    /// Registers a non-blocking socket with the current tokio runtime.
    ///
    /// # Errors
    /// Where the kernel cannot watch the descriptor (out of memory or watches).
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { fd: watch(fd, Interest::READABLE)?, writable: OnceCell::new() })
    }

    /// Takes over a TCP socket that was watched, for both directions, while it connected.
    pub(crate) fn watched(fd: AsyncFd<OwnedFd>) -> Self {
        Self { fd, writable: OnceCell::new() }
    }

    /// Reads into several buffers with one system call; 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// What the kernel says; `WouldBlock` and `Interrupted` never come out.
    pub fn poll_readv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        // The call for one buffer is the cheaper one.
        if let [only] = buffers {
            return self.poll_read(cx, only);
        }
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.poll_with_read(cx, wanted, |fd| rustix::io::readv(fd, buffers))
    }

    /// Reads into one buffer.
    ///
    /// # Errors
    /// As [`Socket::poll_readv`].
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_with_read(cx, buffer.len(), |fd| recv(fd, &mut *buffer, RecvFlags::empty()).map(|(n, _)| n))
    }

    /// Calls `read` when the socket may have something; less than `wanted` means that it is empty
    /// now. An end of the stream stays readable.
    pub(crate) fn poll_with_read(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_with_room(cx, |fd| read(fd).map(|n| (n, wanted)))
    }

    /// The same for a `read` that makes room only when it is called, and tells how much.
    pub(crate) fn poll_with_room(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            match read(self.fd.as_fd()) {
                Ok((n, wanted)) => {
                    if n < wanted && n > 0 {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Writes from several buffers with one system call.
    ///
    /// # Errors
    /// What the kernel says; `WouldBlock` and `Interrupted` never come out.
    pub fn poll_writev(&self, cx: &mut Context<'_>, buffers: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.poll_with_write(cx, wanted, |fd| rustix::io::writev(fd, buffers))
    }

    /// Writes from one buffer.
    ///
    /// # Errors
    /// As [`Socket::poll_writev`].
    pub fn poll_write(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        // The calls that only sockets have are cheaper than read(2) and write(2): they need no
        // position, no iterator over several buffers, and no lock on the descriptor.
        self.poll_with_write(cx, buffer.len(), |fd| send(fd, buffer, SendFlags::NOSIGNAL))
    }

    /// The same where more follows at once: the kernel may keep back what does not fill a packet until more is
    /// written, or [`Socket::push`] is called.
    ///
    /// # Errors
    /// As [`Socket::poll_readv`].
    pub fn poll_write_more(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        self.poll_with_write(cx, buffer.len(), |fd| send(fd, buffer, flags))
    }

    /// Sends what the kernel keeps back because more was to follow.
    pub fn push(&self) {
        self.set_nodelay();
    }

    /// Calls `write` when the socket may take something; less than `wanted` means that it is full.
    fn poll_with_write(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if let Some(watched) = self.writable.get() {
            return self.poll_watched_write(cx, watched, wanted, &mut write);
        }
        loop {
            match write(self.fd.as_fd()) {
                // What is left over comes back at once and finds the socket full.
                Ok(n) => return Poll::Ready(Ok(n)),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        let duplicate = self.fd.get_ref().try_clone()?;
        let watched = watch(duplicate, Interest::WRITABLE)?;
        self.poll_watched_write(cx, self.writable.get_or_init(|| watched), wanted, &mut write)
    }

    fn poll_watched_write(
        &self,
        cx: &mut Context<'_>,
        watched: &AsyncFd<OwnedFd>,
        wanted: usize,
        write: &mut impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(watched.poll_write_ready(cx))?;
            match write(self.fd.as_fd()) {
                Ok(n) => {
                    if n < wanted {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Reads what is there, waiting for at least one byte or the end of the stream.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes all of `buffer`.
    ///
    /// # Errors
    /// What the kernel says.
    pub async fn write_all(&self, mut buffer: &[u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let n = std::future::poll_fn(|cx| self.poll_write(cx, buffer)).await?;
            buffer = &buffer[n..];
        }
        Ok(())
    }

    /// Tells the peer that nothing more will be sent.
    ///
    /// # Errors
    /// What the kernel says; a peer that is already gone is no error.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match rustix::net::shutdown(&self.fd, Shutdown::Write) {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Switches Nagle's algorithm off: TLS records and relayed requests leave at once. Does nothing
    /// for Unix sockets.
    pub fn set_nodelay(&self) {
        let _ = sockopt::set_tcp_nodelay(&self.fd, true);
    }

    /// Makes the coming close a reset, so that the peer learns that the stream did not end in order.
    pub fn reset_on_close(&self) {
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// The address of this end; `None` for Unix sockets.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        let address = rustix::net::getsockname(&self.fd).ok()?;
        SocketAddr::try_from(address).ok().map(canonical)
    }
}

/// Has the current tokio runtime watch a descriptor.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor from here until it is dropped, and
    // `AsyncFd` ends the watch before it drops what it owns.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
