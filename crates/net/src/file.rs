//! Files below a root: paths cannot escape it, and reads do not block where the kernel allows it.
//!
//! `openat2` with `RESOLVE_BENEATH` makes the kernel reject every step out of the root, whether by `..`, an
//! absolute symbolic link or a race. [`Wait::Never`] uses only what the kernel has cached: names by
//! `RESOLVE_CACHED`, content by `preadv2` with `RWF_NOWAIT`. Anything else fails with
//! [`io::ErrorKind::WouldBlock`]; the caller repeats the call on a thread that may block.

mod links;

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat, fstat, fstatfs, openat2, statat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

pub use links::{open_direct, resolve};

/// Permission to block on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Fail with [`io::ErrorKind::WouldBlock`] instead of blocking.
    Never,
    /// Block as long as the disk needs.
    Allowed,
}

/// An open file with its metadata.
#[derive(Debug)]
pub struct OpenFile {
    /// Descriptor of the file.
    pub fd: OwnedFd,
    /// Type of the file.
    pub kind: FileKind,
    /// Version of the file when it was opened.
    pub stamp: FileVersion,
}

/// Fingerprint of a file's version. It differs after every change, except for changes within one tick of the
/// file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    /// Size of the content, in bytes.
    pub size: u64,
    /// Modification time: seconds and nanoseconds since 1970.
    pub modified: (i64, u64),
    /// Status change time (ctime), which users cannot set: seconds and nanoseconds since 1970.
    pub changed: (i64, u64),
    /// Device number of the file system.
    pub device: u64,
    /// Inode number within the file system.
    pub inode: u64,
}

impl FileVersion {
    fn of(found: &Stat) -> Self {
        // The libc that Miri runs with has nanoseconds as `i64`.
        #[allow(clippy::unnecessary_cast, reason = "the type depends on the backend of rustix")]
        let (modified, changed) = (found.st_mtime_nsec as u64, found.st_ctime_nsec as u64);
        Self {
            size: u64::try_from(found.st_size).unwrap_or_default(),
            modified: (found.st_mtime, modified),
            changed: (found.st_ctime, changed),
            device: found.st_dev,
            inode: found.st_ino,
        }
    }
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file, with content.
    Regular,
    /// A directory, which can be listed.
    Directory,
    /// A device, a FIFO or a socket.
    Special,
}

/// Content of a directory.
#[derive(Debug)]
pub struct Directory {
    /// Files and directories, unsorted.
    pub entries: Vec<DirectoryEntry>,
    /// Set if the bound on entries cut the list short.
    pub is_cut: bool,
}

/// A file or directory within a listed directory.
#[derive(Debug)]
pub struct DirectoryEntry {
    /// Name within the directory.
    pub name: String,
    /// Type, with symbolic links followed.
    pub kind: FileKind,
    /// Size of the content, in bytes.
    pub size: u64,
    /// Modification time, in seconds since 1970.
    pub modified: i64,
    /// Set for symbolic links.
    pub is_link: bool,
}

/// Maximum attempts to open a path while another process renames parts of it.
const LOOKS: usize = 16;

/// Opens a directory as a root. Symbolic links on the way to it are followed.
///
/// # Errors
/// Errors of the system call; [`io::ErrorKind::WouldBlock`] if it would block and `wait` forbids that.
pub fn root(path: &Path, wait: Wait) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), cached(wait)).map_err(|error| cold(error, wait))?)
}

/// Opens the file at a path below a root. Does not wait for the other end of a FIFO.
///
/// # Errors
/// Errors of the system call: `EXDEV` if the path leads out of the root. [`io::ErrorKind::WouldBlock`] if it
/// would block and `wait` forbids that.
pub fn open(root: impl AsFd, path: &str, wait: Wait) -> io::Result<OpenFile> {
    opened(root.as_fd(), path, WITHIN, wait)
}

fn opened(root: BorrowedFd<'_>, path: &str, resolve: ResolveFlags, wait: Wait) -> io::Result<OpenFile> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = resolve | cached(wait);
    let mut looks = 0;
    let fd = loop {
        looks += 1;
        match openat2(root, path, flags, Mode::empty(), resolve) {
            // A component was renamed during the lookup.
            Err(Errno::AGAIN) if wait == Wait::Allowed && looks < LOOKS => {}
            outcome => break outcome.map_err(|error| cold(error, wait))?,
        }
    };
    let found = fstat(&fd)?;
    Ok(OpenFile { fd, kind: kind(&found), stamp: FileVersion::of(&found) })
}

/// Current version of an open file.
///
/// # Errors
/// Errors of fstat(2).
pub fn stamp(fd: impl AsFd) -> io::Result<FileVersion> {
    Ok(FileVersion::of(&fstat(fd)?))
}

/// Lists the directory at a path below a root; the path is empty or ends with `/`. Considers at most `most`
/// names and returns those that pass `wanted` and lead to a file or a directory within the root. Names that
/// are not UTF-8 are skipped. May block on a disk.
///
/// # Errors
/// Errors of the system calls, and the first error of `wanted`, which ends the list.
pub fn list(
    root: impl AsFd,
    path: &str,
    most: usize,
    wanted: impl Fn(&str) -> io::Result<bool>,
) -> io::Result<Directory> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let itself = if path.is_empty() { "." } else { path };
    let directory = openat2(&root, itself, flags, Mode::empty(), WITHIN)?;
    let mut memory = Vec::with_capacity(NAMES);
    let mut names = RawDir::new(&directory, memory.spare_capacity_mut());
    let mut found = Directory { entries: Vec::new(), is_cut: false };
    let mut looked = 0;
    while let Some(next) = names.next() {
        let next = next?;
        let Ok(name) = next.file_name().to_str() else { continue };
        if matches!(name, "." | "..") {
            continue;
        }
        looked += 1;
        if looked > most {
            found.is_cut = true;
            break;
        }
        // Entries that vanished meanwhile or lead out of the root are omitted.
        if wanted(name)?
            && let Ok((stat, is_link)) = within(root.as_fd(), directory.as_fd(), path, name)
            && kind(&stat) != FileKind::Special
        {
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            let (kind, modified) = (kind(&stat), stat.st_mtime);
            found.entries.push(DirectoryEntry { name: name.to_owned(), kind, size, modified, is_link });
        }
    }
    Ok(found)
}

/// Follows a name of a directory within the root; the flag is set for a symbolic link.
fn within(
    root: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    path: &str,
    name: &str,
) -> io::Result<(Stat, bool)> {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
        return Ok((found, false));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok((fstat(openat2(root, format!("{path}{name}"), flags, Mode::empty(), WITHIN)?)?, true))
}

fn kind(found: &Stat) -> FileKind {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Special,
    }
}

/// Every step must stay below the root.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// Size of the buffer for one getdents64(2), in bytes.
const NAMES: usize = 32 * 1024;

fn cached(wait: Wait) -> ResolveFlags {
    if wait == Wait::Never { ResolveFlags::CACHED } else { ResolveFlags::empty() }
}

/// Maps the `EINVAL` of kernels before 5.12, which lack `RESOLVE_CACHED`, to "would block".
fn cold(error: Errno, wait: Wait) -> Errno {
    if wait == Wait::Never && error == Errno::INVAL { Errno::AGAIN } else { error }
}

/// Reads from `offset` into `slots`, in order, and returns the number of bytes; 0 is the end of the file.
///
/// # Errors
/// Errors of preadv2(2); [`io::ErrorKind::WouldBlock`] if it would block and `wait` forbids that.
pub fn read(fd: impl AsFd, slots: &mut [IoSliceMut<'_>], offset: u64, wait: Wait) -> io::Result<usize> {
    let mut flags = if wait == Wait::Never { ReadWriteFlags::NOWAIT } else { ReadWriteFlags::empty() };
    loop {
        match preadv2(&fd, slots, offset, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) if flags == ReadWriteFlags::NOWAIT && is_memory(&fd) => {
                flags = ReadWriteFlags::empty();
            }
            // Some file systems lack RWF_NOWAIT; and Linux 5.9 and 5.10 report an end of file where there is
            // none.
            Err(Errno::OPNOTSUPP) | Ok(0) if wait == Wait::Never => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            outcome => return Ok(outcome?),
        }
    }
}

/// Returns true for file systems in memory, of which no read waits for a device. They lack `RWF_NOWAIT`.
fn is_memory(fd: impl AsFd) -> bool {
    // linux/magic.h: tmpfs, ramfs.
    const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];
    // A magic number has 32 bits, whatever the width of the field.
    fstatfs(fd).is_ok_and(|found| MEMORY.contains(&(found.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{MemfdFlags, memfd_create, mkfifoat};

    use super::*;

    #[test]
    fn paths_cannot_escape_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("www/sub")).unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        fs::write(path.join("www/a"), "hello").unwrap();
        symlink("../a", path.join("www/sub/inside")).unwrap();
        symlink("../../secret", path.join("www/sub/outside")).unwrap();
        symlink(path.join("www/a"), path.join("www/absolute")).unwrap();
        symlink("..", path.join("www/up")).unwrap();
        symlink("/proc/self/root", path.join("www/magic")).unwrap();
        let root = root(&path.join("www"), Wait::Allowed).unwrap();
        let open = |name: &str| open(&root, name, Wait::Allowed);
        for name in ["a", "sub/inside", "sub/../a"] {
            let file = open(name).unwrap();
            assert_eq!((file.kind, file.stamp.size), (FileKind::Regular, 5), "{name}");
        }
        assert_eq!(open("sub").unwrap().kind, FileKind::Directory);
        for name in ["../secret", "/etc/passwd", "sub/outside", "absolute", "up/secret", "magic/etc/passwd"] {
            assert_eq!(open(name).unwrap_err().raw_os_error(), Some(18), "{name}");
        }
        assert_eq!(open("a/").unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(open("b").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn opening_a_fifo_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let root = root(folder.path(), Wait::Allowed).unwrap();
        mkfifoat(&root, "fifo", Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(open(&root, "fifo", Wait::Allowed).unwrap().kind, FileKind::Special);
    }

    #[test]
    fn a_directory_is_listed_within_its_root_and_within_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("www/sub/deep")).unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        fs::write(path.join("www/a"), "hello").unwrap();
        for (name, to) in [("in", "../a"), ("out", "../../secret"), ("dangling", "b"), ("up", "..")] {
            symlink(to, path.join("www/sub").join(name)).unwrap();
        }
        let root = root(&path.join("www"), Wait::Allowed).unwrap();
        mkfifoat(&root, "sub/fifo", Mode::RUSR | Mode::WUSR).unwrap();
        let found = |path: &str, most| {
            let found = list(&root, path, most, |name| Ok(name != "deep")).unwrap();
            let mut entries: Vec<_> =
                found.entries.into_iter().map(|entry| (entry.name, entry.kind, entry.size)).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            (entries, found.is_cut)
        };
        let (entries, is_cut) = found("sub/", 100);
        assert!(!is_cut && entries.len() == 2, "{entries:?}");
        assert_eq!(entries[0], ("in".to_owned(), FileKind::Regular, 5));
        assert_eq!((&*entries[1].0, entries[1].1), ("up", FileKind::Directory));
        let (entries, is_cut) = found("", 100);
        assert!(!is_cut && entries.len() == 2, "{entries:?}");
        let (entries, is_cut) = found("", 1);
        assert!(is_cut && entries.len() == 1, "{entries:?}");
        assert!(!found("sub/", 6).1);
        assert_eq!(list(&root, "a", 1, |_| Ok(true)).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(list(&root, "../", 1, |_| Ok(true)).unwrap_err().raw_os_error(), Some(18));
    }

    #[test]
    fn a_change_changes_the_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "one").unwrap();
        let root = root(folder.path(), Wait::Allowed).unwrap();
        let file = open(&root, "a", Wait::Allowed).unwrap();
        assert_eq!(stamp(&file.fd).unwrap(), file.stamp);
        fs::write(&path, "other").unwrap();
        let now = stamp(&file.fd).unwrap();
        assert_eq!((now.size, now.inode), (5, file.stamp.inode));
        assert_ne!(now, file.stamp);
    }

    #[test]
    fn content_is_read_from_any_offset() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "0123456789").unwrap();
        let root = root(folder.path(), Wait::Allowed).unwrap();
        let file = open(&root, "a", Wait::Allowed).unwrap();
        let (mut one, mut two) = ([0; 2], [0; 9]);
        let mut slots = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        assert_eq!(read(&file.fd, &mut slots, 5, Wait::Allowed).unwrap(), 5);
        assert_eq!((&one, &two[..3]), (b"56", &b"789"[..]));
        assert_eq!(read(&file.fd, &mut [IoSliceMut::new(&mut one)], 10, Wait::Allowed).unwrap(), 0);
        // A non-blocking read does not report the end of the file.
        let end = read(&file.fd, &mut [IoSliceMut::new(&mut one)], 10, Wait::Never).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_file_in_memory_is_read_without_a_wait() {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&memory, b"0123456789", 0).unwrap();
        let mut part = [0; 4];
        assert_eq!(read(&memory, &mut [IoSliceMut::new(&mut part)], 3, Wait::Never).unwrap(), 4);
        assert_eq!(&part, b"3456");
    }
}
