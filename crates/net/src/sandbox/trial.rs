//! Verifies the restrictions by trying forbidden operations. An operation that succeeds does no harm.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr::null;

use nix::libc::{self, c_long};
use rustix::net::{AddressFamily, SendFlags, SocketType};

/// An operation that was tried.
#[derive(Debug)]
pub struct TriedOperation {
    /// Name of the operation or system call.
    pub name: &'static str,
    /// Result of the system call.
    pub outcome: io::Result<()>,
}

impl TriedOperation {
    /// Returns true for an operation that was denied, as opposed to one that failed on its own.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let code = self.outcome.as_ref().err().and_then(io::Error::raw_os_error);
        matches!(code, Some(libc::EPERM | libc::EACCES))
    }
}

/// Objects outside the bounds of the process.
#[derive(Debug)]
pub struct Outside {
    folder: PathBuf,
    port: u16,
    /// Abstract socket that the process has listened on since before the restriction.
    abstract_socket: SocketAddr,
    _listener: UnixListener,
}

impl Outside {
    /// Creates a file in a folder, and an abstract socket. Nothing listens on `port`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn prepare(folder: PathBuf, port: u16) -> io::Result<Self> {
        fs::write(folder.join(FILE), "text")?;
        let abstract_socket =
            SocketAddr::from_abstract_name(format!("offramp-trial-{}", std::process::id()))?;
        let listener = UnixListener::bind_addr(&abstract_socket)?;
        Ok(Self { folder, port, abstract_socket, _listener: listener })
    }
}

/// Name of the file in the folder.
const FILE: &str = "file";

/// Tries every forbidden operation.
#[must_use]
pub fn attempts(outside: &Outside) -> Vec<TriedOperation> {
    let local = (Ipv4Addr::LOCALHOST, outside.port);
    let mut attempts = Vec::new();
    let mut attempt = |name, outcome: io::Result<()>| attempts.push(TriedOperation { name, outcome });
    attempt("read /etc/shadow", File::open("/etc/shadow").map(drop));
    attempt("read the directory /root", fs::read_dir("/root").map(drop));
    for (name, outcome) in with_files(&outside.folder) {
        attempt(name, outcome);
    }
    attempt("make a file in /dev/shm", make_file("/dev/shm".into()));
    attempt("connect to a port that is not named", TcpStream::connect(local).map(drop));
    attempt("listen on a port that is not named", TcpListener::bind(local).map(drop));
    attempt("connect by fast open", connect_by_fast_open(outside.port));
    attempt("connect to an abstract socket", UnixStream::connect_addr(&outside.abstract_socket).map(drop));
    attempt("start a program", Command::new("/bin/true").stdin(Stdio::inherit()).status().map(drop));
    attempt("signal the parent process", signal_parent());
    for (name, call, arguments) in calls() {
        attempt(name, raw(call, arguments));
    }
    attempts
}

/// Operations on the file and its folder. Each is undone, except the removal of the file.
fn with_files(folder: &Path) -> Vec<(&'static str, io::Result<()>)> {
    let (file, other) = (folder.join(FILE), folder.join("other"));
    let undone = |outcome: io::Result<()>| outcome.and_then(|()| fs::remove_file(&other));
    let open = |options: &mut OpenOptions| options.open(&file).map(drop);
    vec![
        ("read a file", open(OpenOptions::new().read(true))),
        ("list a directory", fs::read_dir(folder).map(drop)),
        ("write a file", open(OpenOptions::new().write(true))),
        ("append to a file", open(OpenOptions::new().append(true))),
        ("truncate a file", open(OpenOptions::new().write(true).truncate(true))),
        ("make a file", undone(File::create_new(&other).map(drop))),
        ("link a file", undone(fs::hard_link(&file, &other))),
        ("make a symbolic link", undone(symlink(&file, &other))),
        ("make a socket", undone(UnixListener::bind(&other).map(drop))),
        ("make a set-uid file", set_mode(&file, 0o4755).and_then(|()| set_mode(&file, 0o644))),
        ("make a directory", fs::create_dir(&other).and_then(|()| fs::remove_dir(&other))),
        ("rename a file", fs::rename(&file, &other).and_then(|()| fs::rename(&other, &file))),
        ("remove a file", fs::remove_file(&file)),
    ]
}

/// Calls without effect if they are permitted: their arguments are invalid, or they only query.
fn calls() -> Vec<(&'static str, c_long, [usize; 6])> {
    let nowhere = null::<u8>() as usize;
    let path = c"/nonexistent/offramp-trial".as_ptr() as usize;
    let (raw, netfilter) = (libc::SOCK_RAW as usize, libc::NETLINK_NETFILTER as usize);
    let parent = std::os::unix::process::parent_id() as usize;
    let (create, set_uid) = (libc::O_WRONLY as usize | libc::O_CREAT as usize, 0o4755);
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
        ("socket(NETLINK_NETFILTER)", libc::SYS_socket, socket(libc::AF_NETLINK, raw, netfilter)),
        ("socket(SOCK_RAW)", libc::SYS_socket, socket(libc::AF_INET, raw, libc::IPPROTO_ICMP as usize)),
        ("bpf", libc::SYS_bpf, [usize::MAX, nowhere, 0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [usize::MAX, 0, 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [nowhere, 0, 0, 0, 0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, [0, nowhere, 0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [usize::MAX, 0, 0, 0, 0, 0]),
        // Signal 0 sends nothing: the kernel only checks the permission.
        ("tgkill", libc::SYS_tgkill, [parent, parent, 0, 0, 0, 0]),
        ("fcntl(F_SETOWN)", libc::SYS_fcntl, [usize::MAX, 8, parent, 0, 0, 0]),
        ("fcntl(F_SETSIG)", libc::SYS_fcntl, [usize::MAX, 10, 9, 0, 0, 0]),
        ("fcntl(F_SETOWN_EX)", libc::SYS_fcntl, [usize::MAX, 15, nowhere, 0, 0, 0]),
        ("fchmod(set-uid)", libc::SYS_fchmod, [usize::MAX, set_uid, 0, 0, 0, 0]),
        ("fchmodat(set-uid)", libc::SYS_fchmodat, [usize::MAX, path, set_uid, 0, 0, 0]),
        ("mkdirat(set-uid)", libc::SYS_mkdirat, [usize::MAX, path, set_uid, 0, 0, 0]),
        ("openat(set-uid)", libc::SYS_openat, [usize::MAX, path, create, set_uid, 0, 0]),
        ("setuid", libc::SYS_setuid, [usize::MAX, 0, 0, 0, 0, 0]),
        ("seccomp", libc::SYS_seccomp, [usize::MAX, 0, 0, 0, 0, 0]),
        ("prctl(PR_SET_DUMPABLE)", libc::SYS_prctl, [libc::PR_SET_DUMPABLE as usize, 7, 0, 0, 0, 0]),
        ("memory to be written and executed", libc::SYS_mmap, [0, 4096, 7, 0, usize::MAX, 0]),
    ]
}

/// Exit signal 255 and a namespace flag that excludes another flag: EINVAL if permitted.
const NO_SUCH_FLAGS: usize = (libc::CLONE_NEWNS | libc::CLONE_FS) as usize;

fn raw(call: c_long, arguments: [usize; 6]) -> io::Result<()> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: only the calls of `calls`, which have no effect if they are permitted: they access no memory of
    // the process except constants, and a returned descriptor is closed at once.
    let result = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if call == libc::SYS_socket
        && let Ok(fd) = i32::try_from(result)
    {
        // SAFETY: the descriptor was just returned and has no other owner.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

fn make_file(mut path: PathBuf) -> io::Result<()> {
    path.push(format!("offramp-trial-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&path)?;
    fs::remove_file(path)
}

fn set_mode(file: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(file, fs::Permissions::from_mode(mode))
}

/// Sends a byte to a local port through an unconnected socket (MSG_FASTOPEN).
fn connect_by_fast_open(port: u16) -> io::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let address = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    rustix::net::sendto(&socket, b"x", SendFlags::from_bits_retain(0x2000_0000), &address)?;
    Ok(())
}

/// Signal 0 sends nothing: the kernel only checks the permission.
fn signal_parent() -> io::Result<()> {
    // SAFETY: neither call accesses memory.
    match unsafe { libc::kill(libc::getppid(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permitted_calls_have_no_effect() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let attempts = attempts(&Outside::prepare(folder.path().to_owned(), port).unwrap());
        let of = |name: &str| attempts.iter().find(|attempt| attempt.name == name).unwrap();
        assert!(of("start a program").outcome.is_ok() && !of("start a program").is_refused());
        assert!(!of("execve").is_refused() && of("execve").outcome.is_err());
        for name in
            ["connect to a port that is not named", "connect by fast open", "tgkill", "fcntl(F_SETOWN)"]
        {
            assert!(!of(name).is_refused(), "{name}");
        }
        for name in [
            "write a file",
            "truncate a file",
            "make a socket",
            "make a set-uid file",
            "rename a file",
            "remove a file",
            "connect to an abstract socket",
        ] {
            assert!(of(name).outcome.is_ok(), "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "what was done is undone");
    }
}
