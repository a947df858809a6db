//! A connected stream socket, TCP or Unix, driven by readiness.
//!
//! tokio's own streams need a second read to learn that a socket is empty; here a short read or
//! write says so, which halves the system calls of a request. Vectored calls go straight to the
//! kernel. What is refused: nothing is buffered, nothing is copied.
//!
//! How a socket is watched:
//!
//! - A TCP socket is watched for both directions from the start, by one registration. The kernel reports that it is
//!   writable only after a write that it refused.
//! - A Unix socket is watched for reading alone. It reports that it is writable each time its peer has read
//!   something, and each report would wake a worker for nothing. From a write on that had to wait, a duplicate of
//!   the descriptor is watched for writing, until there is nothing to write ([`Socket::pause_writing`]).
//! - A socket whose bytes nobody can take is not watched at all ([`Socket::pause_reading`]).
//!
//! If the kernel cannot watch a socket, because descriptors or memory have run out, it is tried again by a timer.
//! That costs time, but no connection fails of it.

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
use crate::pace::{Allowance, Pace, Side, Way};

/// How long a socket that cannot be watched waits before it is tried again.
const RETRY: Duration = Duration::from_millis(20);

/// A connected, non-blocking stream socket, registered with the current runtime.
pub struct Socket {
    // Watches end before the descriptor is closed: fields are dropped in this order.
    /// The registration; none while reading is paused.
    watch: RefCell<Option<AsyncFd<Number>>>,
    /// What few sockets need; none until then.
    rare: RefCell<Option<Box<Rare>>>,
    writing: Cell<Writing>,
    /// Whether there is a pace among what is rare.
    paced: Cell<bool>,
    kind: Kind,
    fd: OwnedFd,
}

/// What few sockets need: those whose writes had to wait, those that the kernel cannot watch, and those with a pace. It stays until the
/// socket is dropped.
#[derive(Default)]
struct Rare {
    // The watch ends before the descriptor is closed: fields are dropped in this order.
    /// The registration of a Unix socket for writing.
    writable: Option<AsyncFd<Number>>,
    /// The duplicate that is registered for that. A descriptor can be registered once.
    duplicate: Option<OwnedFd>,
    /// Runs while the kernel cannot watch the socket.
    retry: Option<Pin<Box<Sleep>>>,
    /// How fast bytes may pass.
    pace: Option<Pace>,
}

/// The number of a descriptor that its [`Socket`] owns: the socket, or its duplicate.
struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Unix,
}

/// What is known of the room for writing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// No write had to wait yet: they are just tried.
    Untold,
    /// Readiness says whether there is room.
    Told,
    /// The last write waits for room.
    Waits,
}

impl Socket {
    /// Registers a non-blocking TCP socket with the current tokio runtime.
    ///
    /// # Errors
    /// Where the kernel cannot watch the descriptor (out of memory or watches).
    pub fn tcp(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Kind::Tcp)
    }

    /// Registers a non-blocking Unix socket with the current tokio runtime.
    ///
    /// # Errors
    /// As [`Socket::tcp`].
    pub fn unix(fd: OwnedFd) -> io::Result<Self> {
        Self::new(fd, Kind::Unix)
    }

    fn new(fd: OwnedFd, kind: Kind) -> io::Result<Self> {
        let socket = Self {
            watch: RefCell::new(None),
            rare: RefCell::new(None),
            writing: Cell::new(Writing::Untold),
            paced: Cell::new(false),
            kind,
            fd,
        };
        socket.watched().map(drop)?;
        Ok(socket)
    }

    /// Bounds how fast bytes pass from now on, in each direction: `rate` bytes per second, together with all others that
    /// share the `allowance`. Whatever exceeds it waits in the kernel, or with who wants to send it. `side`: whose socket
    /// it is.
    pub fn set_pace(&self, allowance: Arc<Allowance>, rate: NonZeroU64, side: Side) {
        self.rare.borrow_mut().get_or_insert_default().pace = Some(Pace::new(allowance, rate, side));
        self.paced.set(true);
    }

    /// What the pace says, if there is one.
    fn ask_pace<T>(&self, ask: impl FnOnce(&Pace) -> T) -> Option<T> {
        self.rare.borrow().as_ref().and_then(|rare| rare.pace.as_ref()).map(ask)
    }

    /// Until when bytes that could be moved wait or have waited for the pace; see [`Pace::waited_until`].
    #[must_use]
    pub fn waited_for_pace_until(&self) -> u64 {
        if self.paced.get() { self.ask_pace(Pace::waited_until).unwrap_or_default() } else { 0 }
    }

    /// How many of `wanted` bytes may pass now. Nothing is drawn for a read that would find nothing.
    #[cold]
    fn poll_pace(&self, cx: &mut Context<'_>, way: Way, wanted: usize) -> Poll<usize> {
        if way == Way::In
            && let Some(watch) = &*self.watch.borrow()
            && watch.poll_read_ready(cx).is_pending()
        {
            return Poll::Pending;
        }
        self.ask_pace(|pace| pace.poll_room(cx, way, wanted)).unwrap_or(Poll::Ready(wanted))
    }

    /// So many bytes have passed, or none.
    #[cold]
    fn passed(&self, way: Way, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let n = if let Poll::Ready(Ok(n)) = &outcome { *n } else { 0 };
        self.ask_pace(|pace| pace.spend(way, n));
        outcome
    }

    /// How many of `wanted` bytes may pass now.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>, way: Way, wanted: usize) -> Poll<usize> {
        if self.paced.get() { self.poll_pace(cx, way, wanted) } else { Poll::Ready(wanted) }
    }

    /// Waits until a connection in progress is made.
    ///
    /// # Errors
    /// Why it failed.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        let wait = |cx: &mut Context<'_>| {
            let watch = self.watched()?;
            watch.poll_write_ready(cx).map(|guard| guard.map(|guard| guard.ready()))
        };
        let ready = std::future::poll_fn(wait).await?;
        // A failed connect reports a hang-up beside the readiness (poll(2)), so that a good one needs not
        // be asked for its error.
        if ready.is_write_closed() || ready.is_error() {
            sockopt::socket_error(&self.fd)?.map_err(io::Error::from)?;
        }
        Ok(())
    }

    /// The registration; it is made where there is none.
    fn watched(&self) -> io::Result<Ref<'_, AsyncFd<Number>>> {
        if self.watch.borrow().is_none() {
            let interest = match self.kind {
                Kind::Tcp => Interest::READABLE | Interest::WRITABLE,
                Kind::Unix => Interest::READABLE,
            };
            let number = Number(self.fd.as_raw_fd());
            // SAFETY: the descriptor is `self.fd`, which stays open until `self` is dropped, and `self.watch` is
            // dropped before it.
            let watch = unsafe { AsyncFd::register_with_interest(number, interest) }?;
            *self.watch.borrow_mut() = Some(watch);
        }
        // It was there, or has been put there above.
        Ok(Ref::map(self.watch.borrow(), |watch| watch.as_ref().expect("the socket is watched")))
    }

    /// Stops watching until a read finds nothing: for a receiver that cannot pass on what comes. Otherwise each packet
    /// that arrives would wake the worker for nothing. Reads go on to work, and the first that finds nothing has the
    /// socket watched again. Nothing happens while a write waits that needs the same registration.
    ///
    /// Only for a socket that one task alone reads and writes: the waker of another would be forgotten.
    pub fn pause_reading(&self) {
        if self.kind == Kind::Unix {
            self.watch.take();
        } else if self.writing.get() != Writing::Waits {
            self.watch.take();
            // The next write finds out by itself whether there is room.
            self.writing.set(Writing::Untold);
        }
    }

    /// Stops watching for room: for a sender that has nothing to send. Otherwise a Unix socket would wake the worker
    /// each time its peer reads what was sent last. Nothing happens while a write waits.
    pub fn pause_writing(&self) {
        if self.kind == Kind::Unix && self.writing.get() == Writing::Told {
            if let Some(rare) = &mut *self.rare.borrow_mut() {
                rare.writable = None;
            }
            // The next write finds out by itself whether there is room.
            self.writing.set(Writing::Untold);
        }
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
        let room = ready!(self.poll_room(cx, Way::In, buffer.len()));
        let buffer = &mut buffer[..room];
        self.poll_with_read(cx, room, |fd| recv(fd, &mut *buffer, RecvFlags::empty()).map(|(n, _)| n))
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
        read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        if self.paced.get() {
            ready!(self.poll_pace(cx, Way::In, usize::MAX));
            return self.passed(Way::In, self.poll_unpaced_read(cx, read));
        }
        self.poll_unpaced_read(cx, read)
    }

    fn poll_unpaced_read(
        &self,
        cx: &mut Context<'_>,
        mut read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(usize, usize)>,
    ) -> Poll<io::Result<usize>> {
        if self.watch.borrow().is_none() {
            // Reading is paused, and there may be something.
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
    /// What the kernel says; `WouldBlock` and `Interrupted` never come out.
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
        // The calls that only sockets have are cheaper than read(2) and write(2): they need no
        // position, no iterator over several buffers, and no lock on the descriptor.
        let buffer = &buffer[..ready!(self.poll_room(cx, Way::Out, buffer.len()))];
        self.poll_with_write(cx, buffer.len(), |fd| send(fd, buffer, SendFlags::NOSIGNAL))
    }

    /// The same where more follows at once: the kernel may keep back what does not fill a packet until more is
    /// written, or [`Socket::push`] is called.
    ///
    /// # Errors
    /// As [`Socket::poll_readv`].
    pub fn poll_write_more(&self, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let buffer = &buffer[..ready!(self.poll_room(cx, Way::Out, buffer.len()))];
        let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
        self.poll_with_write(cx, buffer.len(), |fd| send(fd, buffer, flags))
    }

    /// Sends what the kernel keeps back because more was to follow.
    pub fn push(&self) {
        self.set_nodelay();
    }

    /// Calls `write` when the socket may take something; less than `wanted` means that it is full.
    pub(crate) fn poll_with_write(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.paced.get() {
            ready!(self.poll_pace(cx, Way::Out, wanted));
            return self.passed(Way::Out, self.poll_unpaced_write(cx, wanted, write));
        }
        self.poll_unpaced_write(cx, wanted, write)
    }

    fn poll_unpaced_write(
        &self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if self.writing.get() == Writing::Untold {
            // What is left over comes back at once and finds the socket full.
            if let Some(outcome) = attempt(|| write(self.fd.as_fd())) {
                return Poll::Ready(outcome);
            }
            // What was noted before this refusal says nothing any more.
            if self.kind == Kind::Tcp
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
            Kind::Tcp => match self.watched() {
                Ok(watch) => self.poll_watched_write(cx, &watch, wanted, &mut write),
                Err(_) => self.poll_unwatched_write(cx, &mut write),
            },
            Kind::Unix => match self.watched_for_writing() {
                Ok(watch) => self.poll_watched_write(cx, &watch, wanted, &mut write),
                Err(_) => self.poll_unwatched_write(cx, &mut write),
            },
        };
        self.writing.set(if outcome.is_pending() { Writing::Waits } else { Writing::Told });
        outcome
    }

    /// The registration of a Unix socket for writing; it is made where there is none.
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
                // SAFETY: the descriptor is `duplicate` of `rare`, which is never replaced by another and stays open
                // until `self` is dropped, and `writable` is dropped before it.
                rare.writable = Some(unsafe { AsyncFd::register_with_interest(number, Interest::WRITABLE) }?);
            }
        }
        // It was there, or has been put there above.
        Ok(Ref::map(self.rare.borrow(), |rare| {
            rare.as_ref().and_then(|rare| rare.writable.as_ref()).expect("the socket is watched")
        }))
    }

    /// Whether the kernel cannot watch the socket, and a timer replaces it.
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

    /// Tries to write, and again in a moment where there is no room.
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

    /// Has the task polled again in a moment.
    fn poll_later<T>(&self, cx: &mut Context<'_>) -> Poll<T> {
        while self.poll_retry(cx).is_ready() {}
        Poll::Pending
    }

    /// Ready when the timer, which is begun where none runs, has rung.
    fn poll_retry(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut rare = self.rare.borrow_mut();
        let retry = &mut rare.get_or_insert_default().retry;
        ready!(retry.get_or_insert_with(|| Box::pin(sleep(RETRY))).as_mut().poll(cx));
        *retry = None;
        Poll::Ready(())
    }

    /// Whether the peer has left: it has reset the connection, or closed its direction, and nothing else is to be read. It
    /// costs a system call. A reset is not reported again.
    #[must_use]
    pub fn peer_left(&self) -> bool {
        let peeked = attempt(|| recv(&self.fd, &mut [0; 1], RecvFlags::PEEK).map(|(length, _)| length));
        matches!(peeked, Some(Ok(0) | Err(_)))
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

/// One system call, again where a signal interrupted it; `None` where it would have to wait.
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
