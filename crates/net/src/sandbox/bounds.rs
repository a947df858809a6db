//! Files and ports (landlock(7)): where this process may write, and in its strict form what it may read and which TCP
//! ports it may use. Nothing may be executed.
//!
//! A rule belongs to what lies at its path when it is made: a folder with everything below it, or one file. What takes
//! the place of that file or folder later is another one, without a rule. Descriptors that are open stay as they are.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, NetPort,
    PathBeneath, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus,
    make_bitflags,
};
use rustix::fs::{FileType, Mode, OFlags};

/// What may be done below a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read files and list folders. It counts only where reading is restricted.
    pub read: bool,
    /// Make, write, rename and remove files.
    pub files: bool,
    /// Make Unix sockets and remove files.
    pub sockets: bool,
    /// Make and remove folders.
    pub folders: bool,
}

impl Rights {
    /// Only to read.
    pub const READ: Self = Self { read: true, files: false, sockets: false, folders: false };
    /// Files, and not to read them.
    pub const FILES: Self = Self { read: false, files: true, sockets: false, folders: false };
    /// Sockets.
    pub const SOCKETS: Self = Self { read: false, files: false, sockets: true, folders: false };
    /// Files, and to read them.
    pub const KEEP: Self = Self { read: true, files: true, sockets: false, folders: false };
    /// Everything but to execute.
    pub const ALL: Self = Self { read: true, files: true, sockets: true, folders: true };

    /// These and `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            read: self.read || other.read,
            files: self.files || other.files,
            sockets: self.sockets || other.sockets,
            folders: self.folders || other.folders,
        }
    }

    /// Whether all of `wanted` is among them.
    #[must_use]
    pub fn include(self, wanted: Self) -> bool {
        (self.read || !wanted.read)
            && (self.files || !wanted.files)
            && (self.sockets || !wanted.sockets)
            && (self.folders || !wanted.folders)
    }

    fn flags(self) -> BitFlags<AccessFs> {
        let mut flags = BitFlags::empty();
        if self.read {
            flags |= make_bitflags!(AccessFs::{ReadFile | ReadDir});
        }
        if self.files {
            flags |= make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | RemoveFile});
        }
        if self.sockets {
            flags |= make_bitflags!(AccessFs::{MakeSock | RemoveFile});
        }
        if self.folders {
            flags |= make_bitflags!(AccessFs::{MakeDir | RemoveDir});
        }
        flags
    }
}

/// A path, and what may be done there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A folder with all that is below it, or a file.
    pub path: PathBuf,
    /// What may be done.
    pub rights: Rights,
}

/// The TCP ports that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Those that may be listened on; 0: any that the kernel picks.
    pub listen: BTreeSet<u16>,
    /// Those that may be connected.
    pub connect: BTreeSet<u16>,
}

/// What a process may do with files and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Where it may write, and read where that is restricted. A place that does not exist gets no rule.
    pub places: Vec<Place>,
    /// Whether reading is restricted.
    pub reading: bool,
    /// The TCP ports; `None`: any.
    pub ports: Option<Ports>,
}

/// That a thread is restricted.
#[derive(Debug)]
pub struct Restricted {
    /// The version of Landlock's interface that the kernel and this program share, from 1.
    pub version: u32,
    /// Rules in `/proc` last as long as these are open: what the kernel forgets there, and finds again, is another file.
    _held: Vec<OwnedFd>,
}

/// Restricts this thread, and all that it starts, to `bounds`. `no_new_privs` must be set.
///
/// With `required` the kernel must know all that the bounds are for, else what it knows is enough: before Linux 6.7 no
/// ports, before 6.2 not that a file is truncated.
///
/// # Errors
/// Why nothing is restricted.
pub fn restrict(bounds: &Bounds, required: bool) -> Result<Restricted, String> {
    let handled = handled(bounds);
    let why = |error: RulesetError| error.to_string();
    let level = if required { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    // What the kernel must know. The rest is welcome.
    let least = match bounds.reading || bounds.ports.is_some() {
        true => handled & AccessFs::from_all(ABI::V4),
        false => handled & AccessFs::from_all(ABI::V1),
    };
    let mut ruleset = Ruleset::default().set_compatibility(level).handle_access(least).map_err(why)?;
    if bounds.ports.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4)).map_err(why)?;
    }
    ruleset = ruleset.set_compatibility(CompatLevel::BestEffort).handle_access(handled).map_err(why)?;
    let mut created = ruleset.create().map_err(why)?;
    let mut held = Vec::new();
    for place in &bounds.places {
        let Some((fd, rights)) = open(place) else { continue };
        let rights = rights & handled;
        if rights.is_empty() {
            continue;
        }
        if place.path.starts_with("/proc") {
            held.extend(fd.try_clone());
        }
        created = created.add_rule(PathBeneath::new(fd, rights)).map_err(why)?;
    }
    for (ports, access) in bounds
        .ports
        .iter()
        .flat_map(|ports| [(&ports.listen, AccessNet::BindTcp), (&ports.connect, AccessNet::ConnectTcp)])
    {
        for port in ports {
            created = created.add_rule(NetPort::new(*port, access)).map_err(why)?;
        }
    }
    let status = created.restrict_self().map_err(why)?;
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if status.ruleset != RulesetStatus::NotEnforced => {
            Ok(Restricted { version: effective_abi as u32, _held: held })
        }
        LandlockStatus::NotEnabled => Err("Landlock is not enabled (see `lsm=` of the kernel)".to_owned()),
        _ => Err("the kernel has no Landlock".to_owned()),
    }
}

/// Every right that is refused where no rule gives it.
fn handled(bounds: &Bounds) -> BitFlags<AccessFs> {
    // Later versions restrict more than files and TCP, such as connections to Unix sockets.
    let writing = AccessFs::from_write(ABI::V5) | AccessFs::Execute;
    if bounds.reading { writing | AccessFs::ReadFile | AccessFs::ReadDir } else { writing }
}

/// What lies at a place, and the rights that a rule for it can have; `None`: there is nothing.
fn open(place: &Place) -> Option<(OwnedFd, BitFlags<AccessFs>)> {
    let fd = rustix::fs::open(&place.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&fd).ok()?;
    let rights = place.rights.flags();
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Some((fd, rights)),
        _ => Some((fd, rights & AccessFs::from_file(ABI::V5))),
    }
}

/// The path without symbolic links, as far as it exists.
#[must_use]
pub fn real(path: &Path) -> PathBuf {
    match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => real(parent).join(name),
            _ => path.to_owned(),
        },
        Err(_) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, OpenOptions};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;
    use crate::process::forbid_new_privileges;

    /// Does `work` in a thread of its own, restricted: that cannot be taken back. It needs Linux 6.7.
    fn within<T: Send + 'static>(bounds: Bounds, work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(move || {
            forbid_new_privileges().unwrap();
            let restricted = restrict(&bounds, true).unwrap();
            assert!(restricted.version >= 4, "{restricted:?}");
            // As those that come later.
            std::thread::scope(|scope| scope.spawn(work).join().unwrap())
        });
        thread.join().unwrap()
    }

    fn place(path: &Path, rights: Rights) -> Place {
        Place { path: path.to_owned(), rights }
    }

    fn is_denied<T>(outcome: io::Result<T>) -> bool {
        outcome.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    #[test]
    fn rights_are_for_what_they_say() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        for name in ["files", "sockets", "all", "none"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("old"), "text").unwrap();
        }
        let rights = [("files", Rights::FILES), ("sockets", Rights::SOCKETS), ("all", Rights::ALL)];
        let places = rights.map(|(name, rights)| place(&root.join(name), rights)).into();
        let bounds = Bounds { places, ..Bounds::default() };
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
            // Elsewhere, from where there are rights to where there are none.
            assert!(fs::rename(root.join("all/old"), root.join("none/older")).is_err());
            assert!(fs::hard_link(root.join("none/old"), root.join("all/link")).is_err());
            assert!(is_denied(Command::new("/bin/true").status()), "executed");
            TcpListener::bind("127.0.0.1:0").unwrap();
        });
    }

    #[test]
    fn reading_and_ports_are_restricted_where_they_are_to_be() {
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
        let bounds = Bounds {
            places: vec![
                place(&root.join("read"), Rights::READ),
                place(Path::new("/proc/self"), Rights::READ),
            ],
            reading: true,
            ports: Some(Ports { listen: [0].into(), connect: [open_port].into() }),
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
            // The kernel picks one. A port that is written down is another matter.
            TcpListener::bind("127.0.0.1:0").unwrap();
            drop(closed);
            assert!(is_denied(TcpListener::bind(("127.0.0.1", closed_port))));
        });
    }

    #[test]
    fn paths_are_real_as_far_as_they_exist() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("a")).unwrap();
        std::os::unix::fs::symlink(root.join("a"), root.join("link")).unwrap();
        for (path, expected) in [("link", "a"), ("link/new", "a/new"), ("none/x/y", "none/x/y")] {
            assert_eq!(real(&root.join(path)), root.join(expected), "{path}");
        }
        assert_eq!(real(Path::new("none")), Path::new("none"));
    }
}
