//! Requests to stop a waiting reader, from another thread or a signal handler's task.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// A request to stop, shared by all clones; it cannot be withdrawn.
#[derive(Clone, Debug)]
pub struct StopSignal {
    shared: Arc<StopState>,
}

#[derive(Debug)]
struct StopState {
    requested: AtomicBool,
    event: OwnedFd,
}

/// The reason for the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The descriptor is readable.
    Ready,
    /// A stop was requested.
    Stopped,
    /// The timeout has passed.
    TimedOut,
}

impl StopSignal {
    /// Creates a request that is not made yet.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { shared: Arc::new(StopState { requested: AtomicBool::new(false), event }) })
    }

    /// Requests the stop and wakes all waiters.
    pub fn request(&self) {
        self.shared.requested.store(true, Ordering::Release);
        // Fails only if the counter is full, and then every waiter is awake.
        let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
    }

    /// Returns `true` once the stop was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.shared.requested.load(Ordering::Acquire)
    }

    /// Sleeps for `limit` or until a stop is requested; returns `true` for the latter.
    ///
    /// # Errors
    /// The kernel cannot wait.
    pub fn rest(&self, limit: Duration) -> io::Result<bool> {
        self.wait(None, Some(limit)).map(|waited| waited == Waited::Stopped)
    }

    /// Waits until `other` is readable, a stop is requested, or the timeout has passed.
    pub(crate) fn wait(
        &self,
        other: Option<BorrowedFd<'_>>,
        timeout: Option<Duration>,
    ) -> io::Result<Waited> {
        match other {
            Some(other) => self.wait_for(&[other], timeout),
            None => self.wait_for(&[], timeout),
        }
    }

    /// Waits until one of at most two descriptors is readable, a stop is requested, or the timeout has
    /// passed.
    pub(crate) fn wait_for(
        &self,
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> io::Result<Waited> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if self.is_requested() {
                return Ok(Waited::Stopped);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Caps timeouts of centuries.
            let left =
                left.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1 << 30, tv_nsec: 0 }));
            let watched = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let event = self.shared.event.as_fd();
            let mut all = [event; 3].map(watched);
            for (slot, other) in all[1..].iter_mut().zip(others) {
                *slot = watched(*other);
            }
            let all = &mut all[..=others.len().min(2)];
            let ready = poll(all, left.as_ref());
            let ready = ready.map(|_| all[1..].iter().any(|other| !other.revents().is_empty()));
            match ready {
                Ok(true) => return Ok(Waited::Ready),
                Ok(false) if self.is_requested() => return Ok(Waited::Stopped),
                Ok(false) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    return Ok(Waited::TimedOut);
                }
                Ok(false) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
