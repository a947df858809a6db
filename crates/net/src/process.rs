//! Process-wide settings: descriptor limit, capabilities, memory, user.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Group, Uid, User, fchownat, getgroups, setgid, setgroups, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Raises the limit of open descriptors to the hard limit and returns the new limit.
///
/// # Errors
/// Errors of setrlimit(2); the limit is unchanged then.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Name of this machine, as uname(2) has it.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Limit of open descriptors; `None` if there is none.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Disables core dumps of this process, which would contain keys, and denies other processes of the same user
/// access to its memory. exec(2) resets this.
///
/// # Errors
/// Errors of prctl(2).
pub fn forbid_core_dumps() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// Returns true if the kernel would write a core dump of this process.
#[must_use]
pub fn is_dumpable() -> bool {
    // If the kernel cannot be asked, the default is assumed.
    rustix::process::dumpable_behavior()
        .is_ok_and(|how| how != rustix::process::DumpableBehavior::NotDumpable)
}

/// Undoes [`forbid_core_dumps`].
///
/// # Errors
/// Errors of prctl(2).
pub fn allow_core_dumps() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?)
}

/// Drops the capabilities (capabilities(7)) that Offramp does not need, for this thread and all threads that
/// it starts later. Kept are ports below 1024 and, for root, access to files regardless of permissions; with
/// `owners` also the right to give files to other users. Returns true if any capability is left.
///
/// # Errors
/// Errors of capset(2).
pub fn drop_capabilities(owners: bool) -> io::Result<bool> {
    let needed = if owners { NEEDED | CapabilitySet::CHOWN } else { NEEDED };
    let held = capabilities(None)?;
    let kept = CapabilitySets {
        effective: held.effective & needed,
        permitted: held.permitted & needed,
        inheritable: held.inheritable & needed,
    };
    // A filter around this process may deny the call, so it is made only if it changes something.
    if kept != held {
        set_capabilities(None, kept)?;
    }
    Ok(!kept.permitted.is_empty())
}

/// Capabilities that are kept: for ports below 1024 that a reload adds, and for logs, keys, certificates and
/// application sockets of other users with modes that exclude root.
const NEEDED: CapabilitySet =
    CapabilitySet::NET_BIND_SERVICE.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::DAC_READ_SEARCH);

/// Sets `no_new_privs` for this thread and its descendants: running a program grants no rights.
///
/// # Errors
/// Errors of prctl(2).
pub fn forbid_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

/// Returns memory that the C library keeps for reuse to the kernel. It locks one heap after the other
/// meanwhile, so call it rarely.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: any thread may call it at any time; it moves no memory in use.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// Makes blocks of `LARGE_BLOCK` bytes or more return to the kernel when they are freed. By default glibc
/// raises that threshold to the largest such block freed so far, up to 32 MiB (mallopt(3),
/// `M_MMAP_THRESHOLD`): from then on blocks of that size stay in the heaps of the threads that used them.
/// Call it before the first thread starts. musl has a fixed threshold of 128 KiB already.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes two numbers and locks the heap; no allocated memory moves.
    unsafe {
        nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, LARGE_BLOCK);
        // The value that glibc itself derives from that threshold.
        nix::libc::mallopt(nix::libc::M_TRIM_THRESHOLD, 2 * LARGE_BLOCK);
    }
}

/// Larger than every buffer that workers allocate repeatedly (a batch of records has at most 1 MiB), so that
/// none of those costs a system call.
#[cfg(target_env = "gnu")]
const LARGE_BLOCK: nix::libc::c_int = 2 << 20;

/// Number of threads of the process; 1 if the kernel does not show it.
#[must_use]
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Ends the process at once: standard output is flushed, and no exit handler runs, as threads still use what the
/// handlers of C libraries free. That of aws-lc frees the generator of random numbers, and a thread that asks it
/// later aborts the process, which then seems to have crashed.
pub fn end(code: u8) -> ! {
    // The reader may be gone, which changes nothing any more.
    let _ = std::io::Write::flush(&mut std::io::stdout());
    // SAFETY: `_exit` neither returns nor uses memory of this process.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Kills a process group by its leader, a child of this process. Call it only before the leader is waited
/// for: afterwards its number may belong to another process.
pub fn kill_group(leader: u32) {
    let leader = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(leader) = leader {
        // A group that has ended already is fine.
        let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
}

/// Returns true if the process runs as root.
#[must_use]
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// A user to switch to, looked up in advance.
#[derive(Clone, Debug)]
pub struct UserIdentity {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// A permission that keeps a user from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDenied {
    /// The file, or the directory on the way to it.
    pub path: PathBuf,
    /// Permission bits of that path.
    pub mode: u32,
    /// Its owner, by name if there is one.
    pub owner: String,
    /// Its group, by name if there is one.
    pub group: String,
}

impl UserIdentity {
    /// Looks up `name` or `user:group`.
    ///
    /// # Errors
    /// A sentence that names the missing user or group.
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
        // `assume` drops all other groups.
        Ok(Self { uid: found.uid, gid, groups: Vec::new() })
    }

    /// The user and group with these numbers, without supplementary groups.
    #[must_use]
    pub fn of_numbers(user: u32, group: u32) -> Self {
        Self { uid: Uid::from_raw(user), gid: Gid::from_raw(group), groups: Vec::new() }
    }

    /// Numbers of the user and the group.
    #[must_use]
    pub fn numbers(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// The user that the process runs as.
    #[must_use]
    pub fn current() -> Self {
        Self { uid: Uid::effective(), gid: Gid::effective(), groups: getgroups().unwrap_or_default() }
    }

    /// Name of the user; its number if it has none.
    #[must_use]
    pub fn name(&self) -> String {
        user_name(self.uid)
    }

    /// Checks that the permission bits let this user connect to a Unix socket: search every directory on the
    /// way, and write to the socket (unix(7)). Paths that the calling process cannot see count as permitted;
    /// access control lists are not evaluated.
    ///
    /// # Errors
    /// The first path that denies access.
    pub fn may_connect(&self, socket: &Path) -> Result<(), AccessDenied> {
        self.may_reach(socket, WRITE)
    }

    /// Checks that the permission bits let this user read a directory and its content, with the limits of
    /// [`UserIdentity::may_connect`].
    ///
    /// # Errors
    /// The first path that denies access.
    pub fn may_read(&self, directory: &Path) -> Result<(), AccessDenied> {
        self.may_reach(directory, READ | SEARCH)
    }

    fn may_reach(&self, end: &Path, needed_there: u32) -> Result<(), AccessDenied> {
        let end = match std::fs::canonicalize(end) {
            Ok(end) => end,
            // A directory is closed to this process, too; the path is checked as it is written.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => end.to_owned(),
            Err(_) => return Ok(()),
        };
        let mut way: Vec<&Path> = end.ancestors().collect();
        way.reverse();
        for path in way {
            let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
            let needed = if path == end { needed_there } else { SEARCH };
            if !self.may(&found, needed) {
                return Err(AccessDenied {
                    path: path.to_owned(),
                    mode: found.mode() & 0o7777,
                    owner: user_name(Uid::from_raw(found.uid())),
                    group: group_name(Gid::from_raw(found.gid())),
                });
            }
        }
        Ok(())
    }

    /// Checks `needed`, given as permission bits of others, against the class that applies to the user.
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

    /// Returns true if the process already runs as this user.
    #[must_use]
    pub fn is_current(&self) -> bool {
        Uid::effective() == self.uid
    }

    /// Gives an open file or directory to this user.
    ///
    /// # Errors
    /// Errors of fchownat(2).
    pub fn own(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        Ok(fchownat(file, "", Some(self.uid), Some(self.gid), AtFlags::AT_EMPTY_PATH)?)
    }

    /// Switches the whole process to this user, for good: supplementary groups, group, user.
    ///
    /// # Errors
    /// Errors of the system calls; the process must not go on then.
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

    /// Runs in a thread of its own: the drop cannot be undone.
    #[test]
    fn unneeded_capabilities_are_dropped_and_the_rest_is_kept() {
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

    /// Without the threshold, the second block stays in the heap.
    #[cfg(target_env = "gnu")]
    #[test]
    fn freed_large_blocks_return_to_the_kernel() {
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
            // Other tests of this process allocate meanwhile, but no block of this size.
            assert!(resident() + BLOCK / 2 < held);
        }
    }

    #[test]
    fn an_unknown_user_is_named() {
        assert!(UserIdentity::find("nobody").is_ok());
        assert!(UserIdentity::find("no-such-user").unwrap_err().contains("`no-such-user`"));
        assert!(UserIdentity::find("nobody:no-such-group").unwrap_err().contains("`no-such-group`"));
    }

    #[test]
    fn directory_permissions_are_checked() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("www");
        std::fs::create_dir(&root).unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let me =
            UserIdentity { uid: Uid::from_raw(4_000_001), gid: Gid::from_raw(4_000_001), groups: Vec::new() };
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
    fn socket_permissions_are_checked() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let socket = folder.path().join("app.sock");
        let _app = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let me =
            UserIdentity { uid: Uid::from_raw(4_000_001), gid: Gid::from_raw(4_000_001), groups: Vec::new() };
        let found = std::fs::metadata(&socket).unwrap();
        let owner = UserIdentity { uid: Uid::from_raw(found.uid().max(1)), ..me.clone() };
        let group = UserIdentity { groups: vec![Gid::from_raw(found.gid())], ..me.clone() };
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
            assert!(UserIdentity::current().may_connect(&socket).is_ok(), "root may everything");
        } else {
            assert!(owner.may_connect(&socket).is_ok());
        }
        assert!(me.may_connect(&folder.path().join("later.sock")).is_ok(), "it is not there yet");
    }
}
