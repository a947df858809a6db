//! A connected stream socket, TCP or Unix, driven by readiness.
//!
//! tokio's own streams need a second read to learn that a socket is empty; here a short read or write says
//! so, which halves the system calls of a request. Vectored calls go straight to the kernel. Nothing is
//! buffered and nothing is copied.
//!
//! Registration with the runtime (epoll):
//!
//! - A TCP socket is registered once, for both directions, from the start. The kernel reports it writable
//!   only after a write that it refused.
//! - A Unix socket is registered for reading alone. The kernel reports it writable each time its peer has
//!   read something, and each report would wake a worker for nothing. After a write that had to wait, a
//!   duplicate of the descriptor is registered for writing, until there is nothing to write
//!   ([`Socket::pause_writing`]).
//! - A socket whose bytes cannot be passed on is not registered at all ([`Socket::pause_reading`]).
//!
//! If a registration fails because descriptors or memory have run out, a timer retries it. That costs time,
//! but no connection fails because of it.

#[cfg(test)]
mod tests;

use std::cell::{Cell, Ref, RefCell};
use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Sleep, sleep};

use crate::address::canonical;
use crate::pace::{Allowance, BandwidthLimiter, ConnectionSide, TransferDirection};

/// Interval at which a socket without registration is retried.
const RETRY: Duration = Duration::from_millis(20);

/// A connected, non-blocking stream socket, registered with the current runtime.
pub struct Socket {
    // Registrations must end before the descriptor is closed: fields are dropped in this order.
    /// The registration; `None` while reading is paused.
    watch: RefCell<Option<AsyncFd<Number>>>,
    /// Rarely needed state, allocated on demand.
    rare: RefCell<Option<Box<Rare>>>,
    writing: Cell<Writing>,
    /// Set if `rare` holds a pace.
    paced: Cell<bool>,
    kind: SocketFamily,
    fd: OwnedFd,
}

/// State of sockets with blocked writes, without registration, or with a pace. Once
/// allocated, it stays until the socket is dropped.
#[derive(Default)]
struct Rare {
    // Registrations must end before the descriptor is closed: fields are dropped in this order.
    /// Registration of a Unix socket for writing.
    writable: Option<AsyncFd<Number>>,
    /// Duplicate for that registration. A descriptor can be registered only once.
    duplicate: Option<OwnedFd>,
    /// Runs while the socket cannot be registered.
    retry: Option<Pin<Box<Sleep>>>,
    /// Bandwidth limit of the socket.
    pace: Option<BandwidthLimiter>,
}

/// Number of a descriptor that its [`Socket`] owns: the socket, or its duplicate.
struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketFamily {
    Tcp,
    Unix,
}

/// Knowledge about space in the send buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// No write had to wait yet: writes are simply tried.
    Untested,
    /// Readiness tells if there is space.
    Tracked,
    /// The last write waits for space.
    Blocked,
}

impl Socket {
    /// Registers a non-blocking TCP socket with the current tokio runtime.
    ///
    /// # Errors
    /// The kernel cannot watch the descriptor (out of memory or watches).
    pub fn tcp(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, SocketFamily::Tcp)
    }

    /// Registers a non-blocking Unix socket with the current tokio runtime.
    ///
    /// # Errors
    /// As [`Socket::tcp`].
    pub fn unix(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, SocketFamily::Unix)
    }

    fn new(fd: OwnedFd, kind: SocketFamily) -> io::Result<Self> {
        let socket = Self {
            watch: RefCell::new(None),
            rare: RefCell::new(None),
            writing: Cell::new(Writing::Untested),
            paced: Cell::new(false),
            kind,
            fd,
        };
        socket.watched().map(drop)?;
        Ok(socket)
    }

    /// Limits the bandwidth from now on: `rate` bytes per second in each direction, together with all other
    /// users of the `allowance`. Excess bytes wait in the kernel or with the sender. `side` is the end that
    /// this socket connects to.
    pub fn set_pace(&self, allowance: Arc<Allowance>, rate: NonZeroU64, side: ConnectionSide) {
        self.rare.borrow_mut().get_or_insert_default().pace =
            Some(BandwidthLimiter::new(allowance, rate, side));
        self.paced.set(true);
    }

    /// Calls `ask` with the pace, if there is one.
    fn with_pace<T>(&self, ask: impl FnOnce(&BandwidthLimiter) -> T) -> Option<T> {
        self.rare.borrow().as_ref().and_then(|rare| rare.pace.as_ref()).map(ask)
    }

    /// Time until which transfers were held back by the pace; see [`BandwidthLimiter::waited_until`].
    #[must_use]
    pub fn waited_for_pace_until(&self) -> u64 {
        if self.paced.get() { self.with_pace(BandwidthLimiter::waited_until).unwrap_or_default() } else { 0 }
    }

    /// Number of the `wanted` bytes that the pace permits now. Reserves nothing for a read that would find
    /// nothing.
    #[cold]
    fn poll_pace(&self, cx: &mut Context<'_>, way: TransferDirection, wanted: usize) -> Poll<usize> {
        if way == TransferDirection::In
            && let Some(watch) = &*self.watch.borrow()
            && watch.poll_read_ready(cx).is_pending()
        {
            return Poll::Pending;
        }
        self.with_pace(|pace| pace.poll_room(cx, way, wanted)).unwrap_or(Poll::Ready(wanted))
    }

    /// Accounts a finished transfer, possibly of zero bytes.
    #[cold]
    fn account(&self, way: TransferDirection, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let n = if let Poll::Ready(Ok(n)) = &outcome { *n } else { 0 };
        self.with_pace(|pace| pace.spend(way, n));
        outcome
    }

    /// Number of the `wanted` bytes that may pass now.
    pub(crate) fn poll_room(
        &self,
        cx: &mut Context<'_>,
        way: TransferDirection,
        wanted: usize,
    ) -> Poll<usize> {
        if self.paced.get() { self.poll_pace(cx, way, wanted) } else { Poll::Ready(wanted) }
    }

    /// Waits until a connection in progress is established.
    ///
    /// # Errors
    /// The error of the connection attempt.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        let wait = |cx: &mut Context<'_>| {
            let watch = self.watched()?;
            watch.poll_write_ready(cx).map(|guard| guard.map(|guard| guard.ready()))
        };
        let ready = std::future::poll_fn(wait).await?;
        // A failed connect reports a hang-up along with readiness (poll(2)), so that a successful one costs
        // no call for its error.
        if ready.is_write_closed() || ready.is_error() {
            sockopt::socket_error(&self.fd)?.map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// The registration, made on demand.
    fn watched(&self) -> io::Result<Ref<'_, AsyncFd<Number>>> {
        if self.watch.borrow().is_none() {
            let interest = match self.kind {
                SocketFamily::Tcp => Interest::READABLE | Interest::WRITABLE,
                SocketFamily::Unix => Interest::READABLE,
            };
            let number = Number(self.fd.as_raw_fd());
            // SAFETY: the descriptor is `self.fd`, which stays open until `self` is dropped, and `self.watch`
            // is dropped before it.
            let watch = unsafe { AsyncFd::register_with_interest(number, interest) }?;
            *self.watch.borrow_mut() = Some(watch);
        }
        // Registered before, or just now.
        Ok(Ref::map(self.watch.borrow(), |watch| watch.as_ref().expect("the socket is watched")))
    }

    /// Ends the registration until a read would block: for a receiver that cannot pass bytes on. Otherwise
    /// each arriving packet would wake the worker for nothing. Reads continue to work, and the first that
    /// would block registers the socket again. Does nothing while a write waits on the same registration.
    ///
    /// Only for a socket that a single task reads and writes: the waker of a second task would be lost.
    pub fn pause_reading(&self) {
        if self.kind == SocketFamily::Unix {
            self.watch.take();
        } else if self.writing.get() != Writing::Blocked {
            self.watch.take();
            // The next write is tried without readiness.
            self.writing.set(Writing::Untested);
        }
    }

    /// Ends the registration for writing: for a sender that has nothing to send. Otherwise a Unix socket
    /// would wake the worker each time its peer reads. Does nothing while a write waits.
    pub fn pause_writing(&self) {
        if self.kind == SocketFamily::Unix && self.writing.get() == Writing::Tracked {
            if let Some(rare) = &mut *self.rare.borrow_mut() {
                rare.writable = None;
            }
            // The next write is tried without readiness.
            self.writing.set(Writing::Untested);
        }
    }

    /// Reads into several buffers with one system call; 0 bytes mean the end of the stream.
    ///
    /// # Errors
    /// Errors of the system call, except `WouldBlock` and `Interrupted`.
    pub fn poll_readv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        // recv(2) is cheaper than a vectored read.
        if let [only] = buffers {
            return self.poll_read(cx, only);
        }
        if self.paced.get()
            && let Some(first) = buffers.iter_mut().find(|buffer| !buffer.is_empty())
        {
            return self.poll_read(cx, first);
        }
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.poll_with_read(cx, wanted, |fd| rustix::io::readv(fd, buffers))
    }

    /// Reads into one buffer.
    ///
    /// # Errors
    /// As [`Socket::poll_readv`].
    pub fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let room = ready!(self.poll_room(cx, TransferDirection::In, buffer.len()));
        let buffer = &mut buffer[..room];
        self.poll_with_read(cx, room, |fd| recv(fd, &mut *buffer, RecvFlags::empty()).map(|(n, _)| n))
    }

    /// Calls `read` when the socket may be readable; fewer bytes than `wanted` mean that it is empty now. An
    /// end of the stream stays readable.
    pub(crate) fn poll_with_read(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.poll_with_room(cx, |fd| read(fd).map(|n| (n, wanted)))
    }

    /// Like [`Socket::poll_with_read`], for a `read` that allocates its buffer when it is called and returns
    /// the size with the number of bytes.
    pub(crate) fn poll_with_room(
        &self,
        cx: &mut Context<'_>,
        read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        if self.paced.get() {
            ready!(self.poll_pace(cx, TransferDirection::In, usize::MAX));
            return self.account(TransferDirection::In, self.poll_unpaced_read(cx, read));
        }
        self.poll_unpaced_read(cx, read)
    }

    fn poll_unpaced_read(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        if self.watch.borrow().is_none() {
            // Reading is paused, but bytes may have arrived.
            if let Some(outcome) = attempt(|| read(self.fd.as_fd())) {
                return Poll::Ready(outcome.map(|(n, _)| n));
            }
        }
        let Ok(watch) = self.watched() else {
            return self.poll_later(cx);
        };
        loop {
            let mut ready = ready!(watch.poll_read_ready(cx))?;
            match attempt(|| read(self.fd.as_fd())) {
                Some(Ok((n, wanted))) => {
                    if n < wanted && n > 0 {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => ready.clear_ready(),
            }
        }
    }

    /// Writes from several buffers with one system call.
    ///
    /// # Errors
    /// Errors of the system call, except `WouldBlock` and `Interrupted`.
    pub fn poll_writev(&self, cx: &mut Context<'_>, buffers: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.paced.get()
            && let Some(first) = buffers.iter().find(|buffer| !buffer.is_empty())
        {
            return self.poll_write(cx, first);
        }
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.poll_with_write(cx, wanted, |fd| rustix::io::writev(fd, buffers))
    }

    /// Writes from one buffer.
    ///
    /// # Errors
    /// As [`Socket::poll_writev`].
    pub fn poll_write(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        // send(2) and recv(2) are cheaper than write(2) and read(2): no file position, no iterator over
        // buffers, no lock on the descriptor.
        let buffer = &buffer[..ready!(self.poll_room(cx, TransferDirection::Out, buffer.len()))];
        self.poll_with_write(cx, buffer.len(), |fd| send(fd, buffer, SendFlags::NOSIGNAL))
    }

    /// Writes from one buffer, with more to follow at once: the kernel may hold back a partial packet until
    /// more is written, or [`Socket::push`] is called (MSG_MORE).
    ///
    /// # Errors
    /// As [`Socket::poll_writev`].
    pub fn poll_write_more(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let buffer = &buffer[..ready!(self.poll_room(cx, TransferDirection::Out, buffer.len()))];
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        self.poll_with_write(cx, buffer.len(), |fd| send(fd, buffer, flags))
    }

    /// Sends bytes that the kernel holds back after [`Socket::poll_write_more`].
    pub fn push(&self) {
        self.set_nodelay();
    }

    /// Calls `write` when the socket may be writable; fewer bytes than `wanted` mean that it is full.
    pub(crate) fn poll_with_write(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.paced.get() {
            ready!(self.poll_pace(cx, TransferDirection::Out, wanted));
            return self.account(TransferDirection::Out, self.poll_unpaced_write(cx, wanted, write));
        }
        self.poll_unpaced_write(cx, wanted, write)
    }

    fn poll_unpaced_write(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.writing.get() == Writing::Untested {
            // A remainder is written at once and finds the socket full.
            if let Some(outcome) = attempt(|| write(self.fd.as_fd())) {
                return Poll::Ready(outcome);
            }
            // Readiness noted before this refusal is outdated.
            if self.kind == SocketFamily::Tcp
                && let Ok(watch) = self.watched()
                && let Poll::Ready(Ok(mut noted)) = watch.poll_write_ready(cx)
            {
                noted.clear_ready();
            }
        }
        if self.is_unwatched() {
            ready!(self.poll_retry(cx));
        }
        let outcome = match self.kind {
            SocketFamily::Tcp => match self.watched() {
                Ok(watch) => self.poll_watched_write(cx, &watch, wanted, &mut write),
                Err(_) => self.poll_unwatched_write(cx, &mut write),
            },
            SocketFamily::Unix => match self.watched_for_writing() {
                Ok(watch) => self.poll_watched_write(cx, &watch, wanted, &mut write),
                Err(_) => self.poll_unwatched_write(cx, &mut write),
            },
        };
        self.writing.set(if outcome.is_pending() { Writing::Blocked } else { Writing::Tracked });
        outcome
    }

    /// Registration of a Unix socket for writing, made on demand.
    fn watched_for_writing(&self) -> io::Result<Ref<'_, AsyncFd<Number>>> {
        {
            let mut rare = self.rare.borrow_mut();
            let rare = rare.get_or_insert_default();
            if rare.writable.is_none() {
                let duplicate = match rare.duplicate.take() {
                    Some(duplicate) => duplicate,
                    None => self.fd.try_clone()?,
                };
                let number = Number(rare.duplicate.insert(duplicate).as_raw_fd());
                // SAFETY: the descriptor is `duplicate` of `rare`, which is never replaced and stays open
                // until `self` is dropped, and `writable` is dropped before it.
                rare.writable = Some(unsafe { AsyncFd::register_with_interest(number, Interest::WRITABLE) }?);
            }
        }
        // Registered before, or just now.
        Ok(Ref::map(self.rare.borrow(), |rare| {
            rare.as_ref().and_then(|rare| rare.writable.as_ref()).expect("the socket is watched")
        }))
    }

    /// Returns true while a timer replaces the registration.
    fn is_unwatched(&self) -> bool {
        self.rare.borrow().as_ref().is_some_and(|rare| rare.retry.is_some())
    }

    fn poll_watched_write(
        &self,
        cx: &mut Context<'_>,
        watch: &AsyncFd<impl AsRawFd>,
        wanted: usize,
        write: &mut impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(watch.poll_write_ready(cx))?;
            match attempt(|| write(self.fd.as_fd())) {
                Some(Ok(n)) => {
                    if n < wanted {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => ready.clear_ready(),
            }
        }
    }

    /// Tries to write, and retries by the timer if there is no space.
    fn poll_unwatched_write(
        &self,
        cx: &mut Context<'_>,
        write: &mut impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        match attempt(|| write(self.fd.as_fd())) {
            Some(outcome) => Poll::Ready(outcome),
            None => self.poll_later(cx),
        }
    }

    /// Wakes the task when the retry timer fires.
    fn poll_later<T>(&self, cx: &mut Context<'_>) -> Poll<T> {
        while self.poll_retry(cx).is_ready() {}
        Poll::Pending
    }

    /// Starts the retry timer on demand; ready when it has fired.
    fn poll_retry(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut rare = self.rare.borrow_mut();
        let retry = &mut rare.get_or_insert_default().retry;
        ready!(retry.get_or_insert_with(|| Box::pin(sleep(RETRY))).as_mut().poll(cx));
        *retry = None;
        Poll::Ready(())
    }

    /// Returns true if the peer has reset the connection, or has closed its direction and no unread bytes are
    /// left. Costs a system call. A reset is not reported again.
    #[must_use]
    pub fn peer_left(&self) -> bool {
        let peeked = attempt(|| recv(&self.fd, &mut [0; 1], RecvFlags::PEEK).map(|(length, _)| length));
        matches!(peeked, Some(Ok(0) | Err(_)))
    }

    /// Reads available bytes; waits for at least one byte or the end of the stream.
    ///
    /// # Errors
    /// Errors of the system call.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes all of `buffer`.
    ///
    /// # Errors
    /// Errors of the system call.
    pub async fn write_all(&self, mut buffer: &[u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let n = std::future::poll_fn(|cx| self.poll_write(cx, buffer)).await?;
            buffer = &buffer[n..];
        }
        Ok(())
    }

    /// Ends the stream to the peer (FIN).
    ///
    /// # Errors
    /// Errors of shutdown(2), except that the peer is gone already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match rustix::net::shutdown(&self.fd, Shutdown::Write) {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Disables Nagle's algorithm: TLS records and relayed requests leave at once. Does nothing for Unix
    /// sockets.
    pub fn set_nodelay(&self) {
        let _ = sockopt::set_tcp_nodelay(&self.fd, true);
    }

    /// Makes the coming close a reset, so that the peer learns that the stream was cut off.
    pub fn reset_on_close(&self) {
        let _ = sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO));
    }

    /// Local address; `None` for Unix sockets.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        let address = rustix::net::getsockname(&self.fd).ok()?;
        SocketAddr::try_from(address).ok().map(canonical)
    }
}

/// Repeats a system call while signals interrupt it; `None` if it would block.
fn attempt<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Option<io::Result<T>> {
    loop {
        match call() {
            Ok(value) => return Some(Ok(value)),
            Err(rustix::io::Errno::AGAIN) => return None,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Some(Err(error.into())),
        }
    }
}

/// Registers a descriptor with the current tokio runtime.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor until it is dropped, and `AsyncFd` deregisters
    // before it drops its content.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
