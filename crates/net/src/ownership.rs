//! Giving files to another user, and writing files where another user may have placed links.
//!
//! That user may own the folders of the files already, and may swap a file during the check: for a symbolic
//! link to `/etc`, or a hard link to `/etc/shadow`. So everything is opened first, never through a symbolic
//! link, and the opened descriptor is what is checked, entered and given away.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{
    CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, flock, fstat, openat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;

/// Maximum depth of folders that are entered.
const DEEPEST: u32 = 32;

/// Calls `own` for `dir` and everything in it that belongs to the user of this process, except symbolic
/// links, files with several names, and anything that is neither file nor folder. A missing path, or one that
/// is no folder, is no error. Links on the way are followed as by [`append`].
///
/// # Errors
/// Errors of `own` or of the system calls, or the rule that the path breaks.
pub fn give(dir: &Path, own: &impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    match find(dir)? {
        Some((file, found)) if is_dir(&found) => enter(&file, &found, own, DEEPEST),
        _ => Ok(()),
    }
}

/// Calls `own` for a file, under the rules of [`give`].
///
/// # Errors
/// Errors of `own` or of the system calls, or the rule that the path breaks.
pub fn give_file(path: &Path, own: &impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    match find(path)? {
        Some((file, found)) if is_only_ours(&found) => own(file.as_fd()),
        _ => Ok(()),
    }
}

/// Opens the file at a path, without following a final symbolic link; `None` if it is missing.
fn find(path: &Path) -> io::Result<Option<(OwnedFd, Stat)>> {
    match open_parent(path) {
        Ok(way) => open(way.folder.as_fd(), way.name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file to append to it, and creates it with `mode` if it is missing; for a process of root that
/// becomes another user later.
///
/// Symbolic links, on the way and at the end, are followed only in folders that root alone can write to;
/// elsewhere a user could point them at any file of the system. For the same reason, files with several names
/// are rejected there. A named pipe without a reader is an error.
///
/// # Errors
/// Errors of the system calls, or the rule that the path breaks.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let ParentFolder { folder, name, only_root_writes } = open_parent(path)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file =
        openat(&folder, name, flags | OFlags::CLOEXEC | follow(only_root_writes), Mode::from_raw_mode(mode));
    let file = file.map_err(|error| explain(error, only_root_writes))?;
    let found = fstat(&file)?;
    if !only_root_writes
        && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        && found.st_nlink > 1
    {
        return Err(io::Error::other("the file has several names (hard links)"));
    }
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file.into())
}

/// Takes the lock of a file (flock(2)) without waiting, for as long as it is open; false if another process has it.
///
/// # Errors
/// Errors of flock(2).
pub fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A file, and whose it is.
#[derive(Debug)]
pub struct OwnedFile {
    /// The content of the file.
    pub bytes: Vec<u8>,
    /// Set if root reads what another user may have written or put there.
    pub is_of_other: bool,
}

/// Reads a file that this process or the owner of its folder has written: a regular file of at most `most` bytes, which
/// others cannot write. A symbolic link in its place is not followed; root follows links on the way as [`append`] does.
///
/// # Errors
/// Errors of the system calls, or the rule that the file breaks.
pub fn read_private(path: &Path, most: u64) -> io::Result<OwnedFile> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let is_root = geteuid().is_root();
    let (file, folder, only_root_writes) = if is_root {
        let ParentFolder { folder, name, only_root_writes } = open_parent(path)?;
        (openat(&folder, name, flags, Mode::empty()), fstat(&folder)?, only_root_writes)
    } else {
        let folder = openat(CWD, path.parent().unwrap_or(Path::new("/")), FOLDER, Mode::empty())?;
        (openat(CWD, path, flags, Mode::empty()), fstat(&folder)?, false)
    };
    let file = file.map_err(|error| match error {
        Errno::LOOP => io::Error::other("it is a symbolic link, which is not followed"),
        error => error.into(),
    })?;
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is no regular file"));
    }
    let owners = [0, geteuid().as_raw(), folder.st_uid];
    if !owners.contains(&found.st_uid) || found.st_mode & 0o022 != 0 {
        return Err(io::Error::other("others than its owner may have written it"));
    }
    let mut bytes = Vec::new();
    File::from(file).take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other("it is too large"));
    }
    // In a folder of another user, or a sticky one, a file of root may have got its name by that user.
    let is_roots = found.st_uid == 0 && only_root_writes && folder.st_mode & 0o022 == 0;
    Ok(OwnedFile { bytes, is_of_other: is_root && !is_roots })
}

/// An opened parent folder, and the name of the file in it.
struct ParentFolder<'p> {
    folder: OwnedFd,
    name: &'p OsStr,
    /// Set if root alone can write to the folder and to every folder above it.
    only_root_writes: bool,
}

/// Opens the parent folder of a file, component by component.
fn open_parent(path: &Path) -> io::Result<ParentFolder<'_>> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut folder = openat(CWD, if path.is_absolute() { c"/" } else { c"." }, FOLDER, Mode::empty())?;
    let mut only_root_writes = is_writable_by_root_only(&fstat(&folder)?);
    for component in above.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
    {
        let opened = openat(&folder, component.as_os_str(), FOLDER | follow(only_root_writes), Mode::empty());
        folder = opened.map_err(|error| explain(error, only_root_writes))?;
        only_root_writes &= is_writable_by_root_only(&fstat(&folder)?);
    }
    Ok(ParentFolder { folder, name, only_root_writes })
}

fn follow(only_root_writes: bool) -> OFlags {
    if only_root_writes { OFlags::empty() } else { OFlags::NOFOLLOW }
}

/// Returns true for folders that only root can write to. Sticky folders such as `/tmp` count: the kernel
/// guards their links and names (`fs.protected_symlinks`).
fn is_writable_by_root_only(folder: &Stat) -> bool {
    folder.st_uid == 0 && (folder.st_mode & 0o022 == 0 || folder.st_mode & 0o1000 != 0)
}

/// Explains the error for a link that is not followed: the kernel reports ELOOP or ENOTDIR.
fn explain(error: Errno, only_root_writes: bool) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR if !only_root_writes => io::Error::other(
            "there is a symbolic link in a folder where others than root can write, which root does not follow; give the \
             folder to root alone, or name the file that the link leads to",
        ),
        _ => error.into(),
    }
}

/// Flags for a folder on the way to a file.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn enter(
    dir: &OwnedFd,
    found: &Stat,
    own: &impl Fn(BorrowedFd<'_>) -> io::Result<()>,
    depth: u32,
) -> io::Result<()> {
    let readable = openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in Dir::new(readable)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match open(dir.as_fd(), name)? {
            Some((inner, found)) if is_dir(&found) && depth > 0 => enter(&inner, &found, own, depth - 1)?,
            Some((inner, found)) if is_only_ours(&found) => own(inner.as_fd())?,
            _ => {}
        }
    }
    if found.st_uid == geteuid().as_raw() { own(dir.as_fd()) } else { Ok(()) }
}

/// Opens a path without following a final symbolic link; `None` if it is missing.
fn open(dir: BorrowedFd<'_>, path: impl Arg) -> io::Result<Option<(OwnedFd, Stat)>> {
    match openat(dir, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => {
            let found = fstat(&file)?;
            Ok(Some((file, found)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_dir(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::Directory
}

/// Returns true for a regular file with a single name that belongs to the user of this process.
fn is_only_ours(found: &Stat) -> bool {
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    is_file && found.st_uid == geteuid().as_raw() && found.st_nlink == 1
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn inode(path: &Path) -> u64 {
        fs::symlink_metadata(path).unwrap().ino()
    }

    /// Inodes of the files given away, with `act` called after each.
    fn given(dir: &Path, act: impl Fn()) -> Vec<u64> {
        let given = RefCell::new(Vec::new());
        let own = |file: BorrowedFd<'_>| {
            given.borrow_mut().push(fstat(file)?.st_ino);
            act();
            Ok(())
        };
        give(dir, &own).unwrap();
        given.into_inner()
    }

    #[test]
    fn files_and_folders_are_given_and_links_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, outside) = (parent.path().join("state"), parent.path().join("outside"));
        fs::create_dir_all(dir.join("ca")).unwrap();
        fs::write(&outside, "").unwrap();
        fs::write(dir.join("ca/ca.key"), "").unwrap();
        symlink(&outside, dir.join("ca/link")).unwrap();
        symlink(parent.path(), dir.join("folder")).unwrap();
        fs::hard_link(&outside, dir.join("ca/name")).unwrap();
        let expected = ["ca/ca.key", "ca", ""].map(|name| inode(&dir.join(name)));
        assert_eq!(given(&dir, || {}), expected);
        for nothing in [dir.join("absent"), dir.join("folder"), dir.join("ca/ca.key")] {
            assert_eq!(given(&nothing, || {}), [0; 0], "{}", nothing.display());
        }
        let own = |_: BorrowedFd<'_>| -> io::Result<()> { panic!("it is a link") };
        give_file(&dir.join("ca/link"), &own).unwrap();
        give_file(&dir.join("ca/name"), &own).unwrap();
        give_file(&dir.join("absent"), &own).unwrap();
    }

    #[test]
    fn a_file_is_appended_to_and_links_of_others_are_not_followed() {
        if !geteuid().is_root() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let (root, of_user) = (parent.path().join("root"), parent.path().join("user"));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::create_dir_all(of_user.join("own")).unwrap();
        let (log, mode) = (root.join("log"), 0o640);
        for _ in 0..2 {
            std::io::Write::write_all(&mut append(&log, mode).unwrap(), b"line\n").unwrap();
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "line\nline\n");
        for (to, link) in [("log", "link"), ("later", "dangling"), ("sub", "folder")] {
            symlink(root.join(to), of_user.join(link)).unwrap();
            symlink(root.join(to), root.join(format!("own-{link}"))).unwrap();
        }
        fs::hard_link(&log, of_user.join("name")).unwrap();
        // A folder of root that a group may write to is not safe either.
        let shared = parent.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o775)).unwrap();
        symlink(root.join("later"), shared.join("link")).unwrap();
        symlink(&root, shared.join("folder")).unwrap();
        for refused in ["link", "folder/log"] {
            assert!(append(&shared.join(refused), mode).is_err(), "{refused}");
        }
        append(&shared.join("own"), mode).unwrap();
        let own = |_: BorrowedFd<'_>| -> io::Result<()> { panic!("a link leads there") };
        assert!(give_file(&shared.join("folder/log"), &own).is_err());
        assert!(give(&shared.join("folder/sub"), &own).is_err());
        give_file(&shared.join("none/log"), &own).unwrap();
        for folder in [&of_user, &of_user.join("own")] {
            std::os::unix::fs::chown(folder, Some(65534), Some(65534)).unwrap();
        }
        for refused in ["link", "dangling", "folder/log", "name"] {
            assert!(append(&of_user.join(refused), mode).is_err(), "{refused}");
        }
        assert!(!root.join("later").exists() && !root.join("sub/log").exists());
        // Links placed by root, and files in folders of the user.
        for made in [root.join("own-link"), root.join("own-folder/log"), of_user.join("own/log")] {
            append(&made, mode).unwrap();
        }
    }

    /// The receiving user swaps a folder for a link during the walk.
    #[test]
    fn a_folder_swapped_for_a_link_is_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, outside) = (parent.path().join("state"), parent.path().join("outside"));
        for folder in [&dir.join("acme"), &outside] {
            fs::create_dir_all(folder).unwrap();
            (0..3).for_each(|number| fs::write(folder.join(number.to_string()), "").unwrap());
        }
        let mut expected: Vec<u64> =
            (0..3).map(|number| inode(&dir.join(format!("acme/{number}")))).collect();
        expected.extend([inode(&dir.join("acme")), inode(&dir)]);
        let swap = || {
            if fs::rename(dir.join("acme"), parent.path().join("away")).is_ok() {
                symlink(&outside, dir.join("acme")).unwrap();
            }
        };
        let mut given = given(&dir, swap);
        given[..3].sort_unstable();
        expected[..3].sort_unstable();
        assert_eq!(given, expected);
    }
}
