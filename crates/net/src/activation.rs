//! Sockets that a service manager has opened for this process (`sd_listen_fds(3)`).

use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// More are not passed.
const MOST: usize = 4096;

/// Takes the sockets that were passed, in their order. `None` stands for a descriptor that is no socket; it stays as it
/// is. Call it with `count` as the service manager has it (`LISTEN_FDS`), and only if that meant this process
/// (`LISTEN_PID`). A second call gives nothing.
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
    // SAFETY: by the protocol the descriptor belongs to this process and to none of its other parts, and this is called
    // once for each. One that is not open, or is something else, is only looked at and never closed here.
    let fd = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    let found = fstat(&*fd).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return None;
    }
    fcntl_setfd(&*fd, FdFlags::CLOEXEC).ok()?;
    Some(ManuallyDrop::into_inner(fd))
}
