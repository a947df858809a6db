//! A process beside this one, forked before there are threads and keys: it can do later what this one forbids itself.
//!
//! What the two say to each other is not decided here.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::libc;

use crate::handover::Channel;
use crate::process::{forbid_core_dumps, threads};

/// The name of the process in lists (`ps -e`).
const NAME: &std::ffi::CStr = c"offramp-helper";
/// What ends a process of a terminal or a service, and what Offramp takes as orders. The other process ends when this
/// one does, and not before: an order to all of them at once must not leave this one without it.
const LEFT_TO_THE_OTHER: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The process, as this one sees it.
#[derive(Debug)]
pub struct Apart {
    /// The conversation with it.
    pub channel: Channel,
    id: rustix::process::Pid,
}

impl Apart {
    /// Ends the conversation, and waits until the other process has noticed.
    pub fn dismiss(self) {
        drop(self.channel);
        // One that was waited for already has ended, too.
        let _ = rustix::process::waitpid(Some(self.id), rustix::process::WaitOptions::empty());
    }
}

/// Forks. The new process runs `serve` with its end of a conversation, and ends; the other end is returned here.
///
/// The new process keeps standard output, standard error, the working directory and the environment. Every other
/// descriptor is closed there, and standard input is `/dev/null`. It cannot be traced, and leaves no core dump. What it
/// starts begins with the signals as they are usually.
///
/// # Errors
/// There are threads already (a fork has none of them, and may find their locks taken for ever), or the kernel has no
/// process or descriptor to give.
pub fn fork(serve: impl FnOnce(Channel)) -> io::Result<Apart> {
    if threads() != 1 {
        return Err(io::Error::other("there are threads already"));
    }
    let (own, its) = Channel::pair()?;
    // SAFETY: there is one thread, as was just seen, so the new process is a whole copy: no lock is taken for ever.
    match unsafe { libc::fork() } {
        0 => {
            let served = catch_unwind(AssertUnwindSafe(|| {
                if settle(&its).is_ok() {
                    serve(its);
                }
            }));
            // SAFETY: nothing of this process is needed any more; what the other one has still to write or to do at
            // its exit is not done here a second time.
            unsafe { libc::_exit(i32::from(served.is_err())) }
        }
        id => match rustix::process::Pid::from_raw(id.max(0)) {
            Some(id) => Ok(Apart { channel: own, id }),
            None => Err(io::Error::last_os_error()),
        },
    }
}

/// Makes the new process one of its own.
fn settle(channel: &Channel) -> io::Result<()> {
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    close_all_but(channel.as_fd().as_raw_fd());
    // A handler that does nothing, and not SIG_IGN: the programs that are started begin without it.
    for signal in LEFT_TO_THE_OTHER {
        // SAFETY: the structure is filled before it is used, and the handler, which does nothing, may run at any time.
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
    // Only for who looks at a list of processes.
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
        // SAFETY: these numbers belong to the other process's objects, of which this process uses none.
        let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if closed != 0 {
            // Before Linux 5.9. There are few at the start of a program.
            for fd in first..=last.min(MOST_AT_START) {
                // SAFETY: as above.
                unsafe { libc::close(fd.cast_signed()) };
            }
        }
    }
}

/// The highest descriptor that is looked for where the kernel cannot close a range.
const MOST_AT_START: libc::c_uint = 1023;
