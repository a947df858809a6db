//! A helper process, forked before this process has threads and keys: it can later do what this process has
//! forbidden itself.
//!
//! The protocol between the two is defined by the caller.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::libc;

use crate::handover::Channel;
use crate::process::{forbid_core_dumps, threads};

/// Process name as shown by `ps -e`.
const NAME: &std::ffi::CStr = c"offramp-helper";
/// Signals that terminals and service managers send, or that Offramp handles as commands. The helper ignores
/// them and ends only when its parent does: a signal to the whole process group must not leave the parent
/// without it.
const LEFT_TO_THE_PARENT: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Handle of the parent to the helper process.
#[derive(Debug)]
pub struct Apart {
    /// The parent's end of the channel.
    pub channel: Channel,
    id: rustix::process::Pid,
}

impl Apart {
    /// Closes the channel, and waits until the helper has exited.
    pub fn dismiss(self) {
        drop(self.channel);
        // A process that was already waited for has exited, too.
        let _ = rustix::process::waitpid(Some(self.id), rustix::process::WaitOptions::empty());
    }
}

/// Forks. The child runs `serve` with its end of a channel and exits; the parent gets the other end.
///
/// The child keeps standard output, standard error, the working directory and the environment. Every other
/// descriptor is closed there, and standard input is `/dev/null`. It cannot be traced, and writes no core
/// dump. Programs that it starts begin with default signal dispositions.
///
/// # Errors
/// More than one thread exists (a fork copies only the calling thread, and locks held by others would stay
/// locked), or the kernel has no process or descriptor left.
pub fn fork(serve: impl FnOnce(Channel)) -> io::Result<Apart> {
    if threads() != 1 {
        return Err(io::Error::other("there are threads already"));
    }
    let (own, its) = Channel::pair()?;
    // SAFETY: this is the only thread, as checked above, so the child is a complete copy: no lock is held by
    // a thread that it lacks.
    match unsafe { libc::fork() } {
        0 => {
            let served = catch_unwind(AssertUnwindSafe(|| {
                if detach(&its).is_ok() {
                    serve(its);
                }
            }));
            // SAFETY: the child needs nothing of its state any more; `_exit` skips flushing and exit
            // handlers, which are the parent's to run.
            unsafe { libc::_exit(i32::from(served.is_err())) }
        }
        id => match rustix::process::Pid::from_raw(id.max(0)) {
            Some(id) => Ok(Apart { channel: own, id }),
            None => Err(io::Error::last_os_error()),
        },
    }
}

/// Detaches the child from the parent's terminal input, signals and core dumps.
fn detach(channel: &Channel) -> io::Result<()> {
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    close_all_but(channel.as_fd().as_raw_fd());
    // A handler that does nothing instead of SIG_IGN: exec resets handlers, but would keep SIG_IGN for
    // started programs.
    for signal in LEFT_TO_THE_PARENT {
        // SAFETY: the structure is filled before it is used, and the handler does nothing, so it may run at
        // any time.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    // Cosmetic: shown in process lists.
    let _ = rustix::thread::set_name(NAME);
    forbid_core_dumps()
}

extern "C" fn ignore(_: libc::c_int) {}

/// Closes every descriptor from 3 on, except `kept`. Nothing in this process uses them.
fn close_all_but(kept: RawFd) {
    let kept = kept.unsigned_abs();
    for (first, last) in [(3, kept.saturating_sub(1)), (kept.max(2) + 1, libc::c_uint::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: these descriptors belong to objects of the parent, of which this process uses none.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if closed != 0 {
            // Before Linux 5.9. Few descriptors are open at the start of a program.
            for fd in first..=last.min(MOST_AT_START) {
                // SAFETY: as above.
                unsafe { libc::close(fd.cast_signed()) };
            }
        }
    }
}

/// Highest descriptor that is closed where the kernel lacks close_range(2).
const MOST_AT_START: libc::c_uint = 1023;
