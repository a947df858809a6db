//! Giving files to another user, and writing files where another user may have put links.
//!
//! Whoever gets them may have the folders already in which they lie, and may put something else in their place while
//! they are looked at: a symbolic link to `/etc`, a second name of `/etc/shadow`. So everything is opened first, never
//! through a symbolic link, and what is looked at, entered and given away is what was opened.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, openat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;

/// Folders in folders that are entered at most.
const DEEPEST: u32 = 32;

/// Calls `own` for `dir` and everything in it that belongs to the user that this process runs as, symbolic links, files
/// with several names and what is neither file nor folder excepted. That it is not there, or is no folder, is no error. On
/// the way there links are followed as by [`append`].
///
/// # Errors
/// What `own` or the kernel says, or which rule the path breaks.
pub fn give(dir: &Path, own: &impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    match find(dir)? {
        Some((file, found)) if is_dir(&found) => enter(&file, &found, own, DEEPEST),
        _ => Ok(()),
    }
}

/// Calls `own` for a file under the same rules.
///
/// # Errors
/// What `own` or the kernel says, or which rule the path breaks.
pub fn give_file(path: &Path, own: &impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    match find(path)? {
        Some((file, found)) if is_only_ours(&found) => own(file.as_fd()),
        _ => Ok(()),
    }
}

/// What lies at a path, a symbolic link as itself; `None` where nothing does.
fn find(path: &Path) -> io::Result<Option<(OwnedFd, Stat)>> {
    match way_to(path) {
        Ok(way) => open(way.folder.as_fd(), way.name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a file to append to it, and makes it with `mode` where there is none, for a process of root that becomes another
/// user later. On the way, and at its end, no symbolic link is followed that is in a folder where others than root can
/// put one, and there no file is opened that has several names: they could have it be any file of the system.
///
/// A named pipe that nobody reads is an error.
///
/// # Errors
/// What the kernel says, or which rule the path breaks.
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    let Way { folder, name, is_roots } = way_to(path)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(&folder, name, flags | OFlags::CLOEXEC | follow(is_roots), Mode::from_raw_mode(mode));
    let file = file.map_err(|error| explain(error, is_roots))?;
    let found = fstat(&file)?;
    if !is_roots && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_nlink > 1 {
        return Err(io::Error::other("the file has several names (hard links)"));
    }
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file.into())
}

/// A file's folder, which was opened, and its name there.
struct Way<'p> {
    folder: OwnedFd,
    name: &'p OsStr,
    /// Whether root alone can put anything into the folder, and could into all above it.
    is_roots: bool,
}

/// Opens the folder of a file, component by component.
fn way_to(path: &Path) -> io::Result<Way<'_>> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut folder = openat(CWD, if path.is_absolute() { c"/" } else { c"." }, FOLDER, Mode::empty())?;
    let mut is_roots = is_of_root_alone(&fstat(&folder)?);
    for component in above.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
    {
        let opened = openat(&folder, component.as_os_str(), FOLDER | follow(is_roots), Mode::empty());
        folder = opened.map_err(|error| explain(error, is_roots))?;
        is_roots &= is_of_root_alone(&fstat(&folder)?);
    }
    Ok(Way { folder, name, is_roots })
}

fn follow(is_roots: bool) -> OFlags {
    if is_roots { OFlags::empty() } else { OFlags::NOFOLLOW }
}

/// Whether nobody else can put anything into the folder. Where it is sticky, as `/tmp` is, the kernel guards its links and
/// names (`fs.protected_symlinks`).
fn is_of_root_alone(folder: &Stat) -> bool {
    folder.st_uid == 0 && (folder.st_mode & 0o022 == 0 || folder.st_mode & 0o1000 != 0)
}

/// What the kernel says of a link that is not followed: one of both.
fn explain(error: Errno, is_roots: bool) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR if !is_roots => io::Error::other(
            "there is a symbolic link in a folder where others than root can write, which root does not follow; give the \
             folder to root alone, or name the file that the link leads to",
        ),
        _ => error.into(),
    }
}

/// A folder on the way to a file.
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

/// What lies there, a symbolic link as itself; `None` where nothing does.
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

/// Whether it is a file that has one name, and that this process itself may have made.
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

    /// The inodes of what is given, each after `act` was called.
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
        // One of root's in which a group may write is no better.
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
        // What root links, and what is the user's own.
        for made in [root.join("own-link"), root.join("own-folder/log"), of_user.join("own/log")] {
            append(&made, mode).unwrap();
        }
    }

    /// The user that gets the files swaps their folder for a link while they are given.
    #[test]
    fn a_folder_that_becomes_a_link_leads_nowhere_else() {
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
