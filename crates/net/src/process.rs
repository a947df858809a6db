//! The process as a whole: descriptor limit, user, identity.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User, fchownat, getgroups, setgid, setgroups, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Raises the limit of open descriptors to the hard limit; returns what it is then.
///
/// # Errors
/// What the kernel says; the limit is then as it was.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// How many descriptors this process may have open; `None` where there is no bound.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Has the kernel write no core dump of this process, with the keys in its memory, and lets no other process of the same
/// user read that memory. A program that this process becomes (`exec`) begins without this.
///
/// # Errors
/// What the kernel says.
pub fn forbid_core_dumps() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Whether the kernel would write a core dump of this process.
#[must_use]
pub fn is_dumpable() -> bool {
    // What cannot be asked is as it usually is.
    rustix::process::dumpable_behavior()
        .is_ok_and(|how| how != rustix::process::DumpableBehavior::NotDumpable)
}

/// Undoes [`forbid_core_dumps`].
///
/// # Errors
/// What the kernel says.
pub fn allow_core_dumps() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?)
}

/// Gives up the capabilities (capabilities(7)) that Offramp does not need, in this thread and all that it starts later.
/// It keeps ports below 1024 and, as root, files whatever their permissions say; with `owners` the right to give files to
/// other users. Returns whether anything is left.
///
/// # Errors
/// What the kernel says.
pub fn drop_capabilities(owners: bool) -> io::Result<bool> {
    let needed = if owners { NEEDED | CapabilitySet::CHOWN } else { NEEDED };
    let held = capabilities(None)?;
    let kept = CapabilitySets {
        effective: held.effective & needed,
        permitted: held.permitted & needed,
        inheritable: held.inheritable & needed,
    };
    // A filter around this process may refuse the call; it is not made for nothing.
    if kept != held {
        set_capabilities(None, kept)?;
    }
    Ok(!kept.permitted.is_empty())
}

/// What stays: ports below 1024 that a reload adds, and logs, keys, certificates and sockets of applications that belong
/// to other users, with modes that leave root out.
const NEEDED: CapabilitySet =
    CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::DAC_READ_SEARCH);

/// Has this thread, and what it starts, gain no rights by running a program (`no_new_privs`).
///
/// # Errors
/// What the kernel says.
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Gives memory back to the kernel that the C library holds for later. It locks one heap after the other meanwhile: nothing to
/// be done often.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call it at any time; it moves nothing that is in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Has every block of `LARGE_BLOCK` bytes or more go back to the kernel when it is freed. By itself glibc raises that
/// threshold to the largest such block freed so far, up to 32 MiB (mallopt(3), `M_MMAP_THRESHOLD`): from then on blocks of
/// that size stay in the heaps of the threads that used them. Belongs before the first thread. musl has a fixed
/// threshold of 128 KiB already.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two numbers and locks the heap; nothing that is allocated moves.
    unsafe {
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGE_BLOCK);
        // What glibc itself chooses beside that threshold.
        nix::libc::mallopt(nix::libc::M_TRIM_THRESHOLD, 2 * LARGE_BLOCK);
    }
}

/// Larger than every buffer that workers allocate again and again (a batch of records has 1 MiB at most), so that none of
/// those costs a system call.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: nix::libc::c_int = 2 << 20;

/// How many threads the process has; 1 where the kernel does not show it.
#[must_use]
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Kills a process that was started as the leader of a process group, and all that it has started in that group. To be
/// called only while the leader was not waited for: afterwards its number may be another process's.
pub fn kill_group(leader: u32) {
    let leader = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(leader) = leader {
        // A group that has ended needs nothing more.
        let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
}

/// Whether the process runs as root.
#[must_use]
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// A user to switch to, looked up before it is needed.
#[derive(Clone, Debug)]
pub struct Identity {
    uid: Uid,
    gid: Gid,
    /// The other groups.
    groups: Vec<Gid>,
}

/// What keeps a user from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The file, or the directory on the way to it.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
    /// The user that has it, by name where it has one.
    pub owner: String,
    /// The group that has it, by name where it has one.
    pub group: String,
}

impl Identity {
    /// Looks up `name`, or `user:group`.
    ///
    /// # Errors
    /// A sentence that names what does not exist.
    pub fn find(name: &str) -> Result<Self, String> {
        let (user, group) = name.split_once(':').map_or((name, None), |(user, group)| (user, Some(group)));
        let found = User::from_name(user).map_err(|error| format!("looking up user `{user}`: {error}"))?;
        let found = found
            .ok_or_else(|| format!("there is no user `{user}`; create it with `useradd --system {user}`"))?;
        let gid = match group {
            None => found.gid,
            Some(group) => {
                Group::from_name(group)
                    .map_err(|error| format!("looking up group `{group}`: {error}"))?
                    .ok_or_else(|| format!("there is no group `{group}`"))?
                    .gid
            }
        };
        // All that `assume` leaves of groups.
        Ok(Self { uid: found.uid, gid, groups: Vec::new() })
    }

    /// The user and group with these numbers, and no other groups.
    #[must_use]
    pub fn of_numbers(user: u32, group: u32) -> Self {
        Self { uid: Uid::from_raw(user), gid: Gid::from_raw(group), groups: Vec::new() }
    }

    /// The numbers of the user and the group.
    #[must_use]
    pub fn numbers(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// The user that the process runs as.
    #[must_use]
    pub fn current() -> Self {
        Self { uid: Uid::effective(), gid: Gid::effective(), groups: getgroups().unwrap_or_default() }
    }

    /// The user's name; its number where it has none.
    #[must_use]
    pub fn name(&self) -> String {
        user_name(self.uid)
    }

    /// Whether the permissions let this user connect to a Unix socket: search every directory on the way, and
    /// write to the socket (unix(7)). What the process that asks cannot see is taken for open; lists beyond the
    /// permission bits are not looked at.
    ///
    /// # Errors
    /// The first that is closed.
    pub fn may_connect(&self, socket: &Path) -> Result<(), Closed> {
        self.may_reach(socket, WRITE)
    }

    /// Whether the permissions let this user read a directory and what is in it, as far as [`Identity::may_connect`] can tell.
    ///
    /// # Errors
    /// The first that is closed.
    pub fn may_read(&self, directory: &Path) -> Result<(), Closed> {
        self.may_reach(directory, READ | SEARCH)
    }

    fn may_reach(&self, end: &Path, needed_there: u32) -> Result<(), Closed> {
        let end = match std::fs::canonicalize(end) {
            Ok(end) => end,
            // Its directory is closed to this very process; the way there is looked at as it is written.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => end.to_owned(),
            Err(_) => return Ok(()),
        };
        let mut way: Vec<&Path> = end.ancestors().collect();
        way.reverse();
        for path in way {
            let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
            let needed = if path == end { needed_there } else { SEARCH };
            if !self.may(&found, needed) {
                return Err(Closed {
                    path: path.to_owned(),
                    mode: found.mode() & 0o7777,
                    owner: user_name(Uid::from_raw(found.uid())),
                    group: group_name(Gid::from_raw(found.gid())),
                });
            }
        }
        Ok(())
    }

    /// Whether the user has `needed` of the permissions of others.
    fn may(&self, file: &std::fs::Metadata, needed: u32) -> bool {
        let group = Gid::from_raw(file.gid());
        let shift = if self.uid.is_root() {
            return true;
        } else if file.uid() == self.uid.as_raw() {
            6
        } else if group == self.gid || self.groups.contains(&group) {
            3
        } else {
            0
        };
        file.mode() >> shift & needed == needed
    }

    /// Whether the process already runs as this user.
    #[must_use]
    pub fn is_current(&self) -> bool {
        Uid::effective() == self.uid
    }

    /// Gives an open file or directory to this user.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn own(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(fchownat(file, "", Some(self.uid), Some(self.gid), AtFlags::AT_EMPTY_PATH)?)
    }

    /// Switches the whole process to this user, for good: supplementary groups, group, user.
    ///
    /// # Errors
    /// What the kernel says; the process must then not go on.
    pub fn assume(&self) -> io::Result<()> {
        setgroups(&[self.gid])?;
        setgid(self.gid)?;
        setuid(self.uid)?;
        Ok(())
    }
}

fn user_name(uid: Uid) -> String {
    User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

fn group_name(gid: Gid) -> String {
    Group::from_gid(gid).ok().flatten().map_or_else(|| gid.to_string(), |group| group.name)
}

/// Permission bits of others.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised() {
        let limit = raise_descriptor_limit().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, limit);
    }

    /// In a thread of its own: it cannot be taken back.
    #[test]
    fn what_is_not_needed_is_given_up_and_the_rest_stays() {
        let left = |owners| {
            let thread = std::thread::spawn(move || {
                let held = capabilities(None).unwrap().permitted;
                let any = drop_capabilities(owners).unwrap();
                let left = capabilities(None).unwrap();
                assert_eq!((left.effective, any), (left.permitted, !left.permitted.is_empty()));
                (held, left.permitted)
            });
            thread.join().unwrap()
        };
        let (held, kept) = left(false);
        assert_eq!(kept, held & NEEDED);
        assert!(!kept.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::FSETID | CapabilitySet::CHOWN));
        let (held, kept) = left(true);
        assert_eq!(kept, held & (NEEDED | CapabilitySet::CHOWN));
    }

    /// Without the threshold the second block stays in the heap.
    #[cfg(target_env = "gnu")]
    #[test]
    fn a_large_block_that_is_freed_leaves_the_process() {
        const BLOCK: usize = 24 << 20;
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        return_large_blocks();
        for _ in 0..3 {
            let block = std::hint::black_box(vec![1_u8; BLOCK]);
            let held = resident();
            drop(block);
            // Other tests of this process allocate meanwhile, but nothing as large.
            assert!(resident() + BLOCK / 2 < held);
        }
    }

    #[test]
    fn an_unknown_user_is_named() {
        assert!(Identity::find("nobody").is_ok());
        assert!(Identity::find("no-such-user").unwrap_err().contains("`no-such-user`"));
        assert!(Identity::find("nobody:no-such-group").unwrap_err().contains("`no-such-group`"));
    }

    #[test]
    fn permissions_say_who_may_read_a_directory() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("www");
        std::fs::create_dir(&root).unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let me =
            Identity { uid: Uid::from_raw(4_000_001), gid: Gid::from_raw(4_000_001), groups: Vec::new() };
        for (above, mode, may) in [
            (0o755, 0o755, true),
            (0o711, 0o755, true),
            (0o755, 0o750, false),
            (0o755, 0o754, false),
            (0o755, 0o711, false),
            (0o750, 0o755, false),
        ] {
            open(&root, mode);
            open(folder.path(), above);
            assert_eq!(me.may_read(&root).is_ok(), may, "{above:o} {mode:o}");
        }
        assert!(me.may_read(&folder.path().join("none")).is_ok(), "that is told otherwise");
    }

    #[test]
    fn permissions_say_who_may_connect() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let socket = folder.path().join("app.sock");
        let _app = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let me =
            Identity { uid: Uid::from_raw(4_000_001), gid: Gid::from_raw(4_000_001), groups: Vec::new() };
        let found = std::fs::metadata(&socket).unwrap();
        let owner = Identity { uid: Uid::from_raw(found.uid().max(1)), ..me.clone() };
        let group = Identity { groups: vec![Gid::from_raw(found.gid())], ..me.clone() };
        for (directory, mode, everybody, grouped) in [
            (0o755, 0o666, true, true),
            (0o755, 0o660, false, true),
            (0o755, 0o644, false, false),
            (0o700, 0o666, false, false),
            (0o750, 0o666, false, true),
        ] {
            open(&socket, mode);
            open(folder.path(), directory);
            assert_eq!(me.may_connect(&socket).is_ok(), everybody, "{directory:o} {mode:o}");
            assert_eq!(group.may_connect(&socket).is_ok(), grouped, "{directory:o} {mode:o}");
        }
        open(folder.path(), 0o700);
        let closed = me.may_connect(&socket).unwrap_err();
        assert_eq!((closed.path, closed.mode), (folder.path().canonicalize().unwrap(), 0o700));
        if found.uid() == 0 {
            assert!(Identity::current().may_connect(&socket).is_ok(), "root may everything");
        } else {
            assert!(owner.may_connect(&socket).is_ok());
        }
        assert!(me.may_connect(&folder.path().join("later.sock")).is_ok(), "it is not there yet");
    }
}
