//! Sockets opened by a service manager and passed to this process (`sd_listen_fds(3)`).

use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

/// First passed descriptor (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// Upper bound for `LISTEN_FDS`, against nonsense values.
const MOST: usize = 4096;

/// Takes the passed sockets in order. `None` stands for a descriptor that is not a socket; it is left open.
/// `count` is the value of `LISTEN_FDS`; call this only if `LISTEN_PID` names this process. A second call
/// returns nothing.
#[must_use]
pub fn take(count: usize) -> Vec<Option<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let numbers = (FIRST..).take(count.min(MOST));
    numbers.map(socket).collect()
}

fn socket(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: by the protocol the descriptor belongs to this process and no other part of it uses it, and
    // each number is visited once. A descriptor that is closed or is no socket is only inspected, never
    // closed here.
    let fd = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    let found = fstat(&*fd).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return None;
    }
    fcntl_setfd(&*fd, FdFlags::CLOEXEC).ok()?;
    Some(ManuallyDrop::into_inner(fd))
}
