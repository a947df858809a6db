//! Tries what the process should have forbidden itself. Whatever is not forbidden does no harm.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::ptr::null;

use nix::libc::{self, c_long};

/// One thing that was tried.
#[derive(Debug)]
pub struct Attempt {
    /// What it is.
    pub name: &'static str,
    /// What the kernel answered.
    pub outcome: io::Result<()>,
}

impl Attempt {
    /// Whether it was forbidden, and did not fail by itself.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let code = self.outcome.as_ref().err().and_then(io::Error::raw_os_error);
        matches!(code, Some(libc::EPERM | libc::EACCES))
    }
}

/// Tries everything. `port`: nothing listens there, and nothing should be able to.
#[must_use]
pub fn attempts(port: u16) -> Vec<Attempt> {
    let local = (Ipv4Addr::LOCALHOST, port);
    let mut attempts = Vec::new();
    let mut attempt = |name, outcome: io::Result<()>| attempts.push(Attempt { name, outcome });
    attempt("read /etc/shadow", File::open("/etc/shadow").map(drop));
    attempt("read the directory /root", std::fs::read_dir("/root").map(drop));
    attempt("make a file in /var/tmp", make_file("/var/tmp".into()));
    attempt("make a file in /dev/shm", make_file("/dev/shm".into()));
    attempt("connect to a port that is not named", TcpStream::connect(local).map(drop));
    attempt("listen on a port that is not named", TcpListener::bind(local).map(drop));
    attempt("start a program", Command::new("/bin/true").stdin(Stdio::inherit()).status().map(drop));
    attempt("signal the parent process", signal_parent());
    for (name, call, arguments) in calls() {
        attempt(name, raw(call, arguments));
    }
    attempts
}

/// Calls that do nothing where they are not refused: their arguments are none that the kernel takes, or only ask.
fn calls() -> Vec<(&'static str, c_long, [usize; 6])> {
    let nowhere = null::<u8>() as usize;
    let path = c"/nonexistent/offramp-trial".as_ptr() as usize;
    let raw = libc::SOCK_RAW as usize;
    let socket =
        |family: libc::c_int, kind: usize, protocol: usize| [family as usize, kind, protocol, 0, 0, 0];
    vec![
        ("execve", libc::SYS_execve, [path, nowhere, nowhere, 0, 0, 0]),
        ("execveat", libc::SYS_execveat, [usize::MAX, path, nowhere, nowhere, 0, 0]),
        ("fork", libc::SYS_clone, [NO_SUCH_FLAGS, 0, 0, 0, 0, 0]),
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_PEEKDATA as usize, 0, 0, 0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [0, nowhere, 0, nowhere, 0, 1]),
        ("mount", libc::SYS_mount, [path, path, nowhere, 0, 0, 0]),
        ("umount", libc::SYS_umount2, [path, 0, 0, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [path, 0, 0, 0, 0, 0]),
        ("unshare", libc::SYS_unshare, [usize::MAX, 0, 0, 0, 0, 0]),
        ("setns", libc::SYS_setns, [usize::MAX, 0, 0, 0, 0, 0]),
        ("socket(AF_PACKET)", libc::SYS_socket, socket(libc::AF_PACKET, raw, 0)),
        ("socket(AF_NETLINK)", libc::SYS_socket, socket(libc::AF_NETLINK, raw, 0)),
        ("socket(SOCK_RAW)", libc::SYS_socket, socket(libc::AF_INET, raw, libc::IPPROTO_ICMP as usize)),
        ("bpf", libc::SYS_bpf, [usize::MAX, nowhere, 0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [usize::MAX, 0, 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [nowhere, 0, 0, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0, nowhere, 0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [usize::MAX, 0, 0, 0, 0, 0]),
        ("setuid", libc::SYS_setuid, [usize::MAX, 0, 0, 0, 0, 0]),
        ("seccomp", libc::SYS_seccomp, [usize::MAX, 0, 0, 0, 0, 0]),
        ("prctl(PR_SET_DUMPABLE)", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as usize, 7, 0, 0, 0, 0]),
        ("memory to be written and executed", libc::SYS_mmap, [0, 4096, 7, 0, usize::MAX, 0]),
    ]
}

/// Exit signal 255 and a namespace that excludes another flag: the kernel refuses it as nonsense.
const NO_SUCH_FLAGS: usize = (libc::CLONE_NEWNS | libc::CLONE_FS) as usize;

fn raw(call: c_long, arguments: [usize; 6]) -> io::Result<()> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: only what `calls` lists, and what does nothing there where it is not refused: no memory of the process is
    // read or written that is not a constant, and a descriptor that may come is closed at once.
    let result = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if call == libc::SYS_socket
        && let Ok(fd) = i32::try_from(result)
    {
        // SAFETY: it came just now, and nobody else knows it.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

fn make_file(mut path: PathBuf) -> io::Result<()> {
    path.push(format!("offramp-trial-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)
}

/// Signal 0 is none: the kernel only says whether it would be allowed.
fn signal_parent() -> io::Result<()> {
    // SAFETY: neither call touches memory.
    match unsafe { libc::kill(libc::getppid(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the kernel would write a core dump of the process.
#[must_use]
pub fn is_dumpable() -> bool {
    // SAFETY: it only asks.
    unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_nothing_does_nothing() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let attempts = attempts(port);
        let of = |name: &str| attempts.iter().find(|attempt| attempt.name == name).unwrap();
        assert!(of("start a program").outcome.is_ok() && !of("start a program").is_refused());
        assert!(!of("execve").is_refused() && of("execve").outcome.is_err());
        assert!(!of("connect to a port that is not named").is_refused());
        assert!(!of("make a file in /var/tmp").is_refused());
    }
}
