//! Permitted and denied operations of a restricted thread.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Stdio};

use super::*;
use crate::process::forbid_new_privileges;

/// Runs `work` in a restricted thread of its own, as restrictions cannot be undone. Needs Linux 6.7.
fn within<T: Send + 'static>(bounds: SandboxRules, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        forbid_new_privileges().unwrap();
        let restricted = restrict(&bounds, true).unwrap();
        assert!(restricted.version >= 4, "{restricted:?}");
        // Threads started later inherit the restrictions.
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    });
    thread.join().unwrap()
}

fn place(path: &Path, rights: Rights) -> PathRule {
    PathRule { path: path.to_owned(), rights }
}

fn is_denied<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[test]
fn rights_permit_their_operations_only() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    for name in ["files", "sockets", "all", "none"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("old"), "text").unwrap();
    }
    let rights = [("files", Rights::FILES), ("sockets", Rights::SOCKETS), ("all", Rights::ALL)];
    let places = rights.map(|(name, rights)| place(&root.join(name), rights)).into();
    let bounds = SandboxRules { places, ..SandboxRules::default() };
    within(bounds, move || {
        let make = |name: &str| File::create_new(root.join(name).join("new")).map(drop);
        let write = |name: &str| OpenOptions::new().write(true).truncate(true).open(root.join(name));
        let socket = |name: &str| UnixListener::bind(root.join(name).join("socket")).map(drop);
        let directory = |name: &str| fs::create_dir(root.join(name).join("directory"));
        for name in ["files", "all"] {
            make(name).unwrap();
            write(&format!("{name}/old")).unwrap();
            fs::rename(root.join(name).join("new"), root.join(name).join("newer")).unwrap();
            fs::remove_file(root.join(name).join("newer")).unwrap();
        }
        for name in ["sockets", "all"] {
            socket(name).unwrap();
            fs::remove_file(root.join(name).join("socket")).unwrap();
        }
        directory("all").unwrap();
        fs::write(root.join("all/directory/file"), "below").unwrap();
        for name in ["sockets", "none"] {
            assert!(is_denied(make(name)) && is_denied(write(&format!("{name}/old"))), "{name}");
            assert_eq!(fs::read_to_string(root.join(name).join("old")).unwrap(), "text");
        }
        assert!(is_denied(socket("files")) && is_denied(socket("none")));
        assert!(is_denied(directory("files")) && is_denied(directory("none")));
        assert!(is_denied(fs::remove_file(root.join("none/old"))));
        // A rename from a place with rights to one without.
        assert!(fs::rename(root.join("all/old"), root.join("none/older")).is_err());
        assert!(fs::hard_link(root.join("none/old"), root.join("all/link")).is_err());
        assert!(is_denied(Command::new("/bin/true").status()), "executed");
        TcpListener::bind("127.0.0.1:0").unwrap();
    });
}

#[test]
fn reading_and_ports_are_restricted_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    for name in ["read", "none"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("file"), "text").unwrap();
    }
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let [open_port, closed_port] = [&open, &closed].map(|one| one.local_addr().unwrap().port());
    let own = std::process::id();
    let bounds = SandboxRules {
        places: vec![place(&root.join("read"), Rights::READ), place(Path::new("/proc/self"), Rights::READ)],
        reading: true,
        ports: Some(Ports { listen: [0].into(), connect: [open_port].into() }),
        abstract_sockets: false,
    };
    within(bounds, move || {
        assert_eq!(fs::read_to_string(root.join("read/file")).unwrap(), "text");
        assert_eq!(fs::read_dir(root.join("read")).unwrap().count(), 1);
        fs::read_to_string(format!("/proc/{own}/statm")).unwrap();
        fs::read_to_string("/proc/thread-self/stat").unwrap();
        assert!(is_denied(fs::read_to_string(root.join("none/file"))));
        assert!(is_denied(fs::read_dir(root.join("none"))));
        assert!(is_denied(fs::read_to_string("/etc/passwd")));
        assert!(is_denied(fs::write(root.join("read/file"), "other")));
        TcpStream::connect(("127.0.0.1", open_port)).unwrap();
        assert!(is_denied(TcpStream::connect(("127.0.0.1", closed_port))));
        // The kernel picks the port; port 0 permits no explicit port.
        TcpListener::bind("127.0.0.1:0").unwrap();
        drop(closed);
        assert!(is_denied(TcpListener::bind(("127.0.0.1", closed_port))));
    });
}

/// Standard output may be a pipe. The kernel takes no rule for it, and the other places must keep theirs.
#[test]
fn a_pipe_among_the_places_is_skipped() {
    let (reader, writer) = std::io::pipe().unwrap();
    let pipe = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let places = vec![place(&pipe, Rights::FILES), place(&root, Rights::FILES)];
    for reading in [false, true] {
        let (pipe, root) = (pipe.clone(), root.clone());
        let bounds = SandboxRules { places: places.clone(), reading, ..SandboxRules::default() };
        within(bounds, move || {
            assert!(is_denied(File::create_new("/dev/shm/offramp-bounds-of-a-pipe")));
            fs::write(root.join(reading.to_string()), "").unwrap();
            // A log is reopened like this.
            OpenOptions::new().append(true).create(true).open(&pipe).unwrap().write_all(b"line\n").unwrap();
        });
    }
    drop(writer);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "line\nline\n");
}

/// Needs Linux 6.12.
#[test]
fn signals_and_abstract_sockets_of_others_are_denied() {
    let name = format!("offramp-bounds-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    // `cat` exits with its input, however this test ends.
    let mut other = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
    let id = rustix::process::Pid::from_child(&other);
    for abstract_sockets in [true, false] {
        let (address, bounds) =
            (address.clone(), SandboxRules { abstract_sockets, ..SandboxRules::default() });
        within(bounds, move || {
            assert_eq!(UnixStream::connect_addr(&address).is_ok(), abstract_sockets);
            assert!(rustix::process::test_kill_process(id).is_err());
            // Signals within the process are permitted.
            rustix::process::test_kill_process(rustix::process::getpid()).unwrap();
        });
    }
    drop(other.stdin.take());
    other.wait().unwrap();
}

#[test]
fn existing_part_of_a_path_is_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir(root.join("a")).unwrap();
    std::os::unix::fs::symlink(root.join("a"), root.join("link")).unwrap();
    for (path, expected) in [("link", "a"), ("link/new", "a/new"), ("none/x/y", "none/x/y")] {
        assert_eq!(real(&root.join(path)), root.join(expected), "{path}");
    }
    assert_eq!(real(Path::new("none")), Path::new("none"));
}
