//! Giving files to another user.
//!
//! Whoever gets them may have the folders already in which they lie, and may put something else in their place while
//! they are looked at: a symbolic link to `/etc`, a second name of `/etc/shadow`. So everything is opened first, never
//! through a symbolic link, and what is looked at, entered and given away is what was opened.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;

/// Folders in folders that are entered at most.
const DEEPEST: u32 = 32;

/// Calls `own` for `dir` and everything in it that belongs to the user that this process runs as, symbolic links, files
/// with several names and what is neither file nor folder excepted. That it is not there, or is no folder, is no error.
///
/// # Errors
/// What `own` or the kernel says.
pub fn give(dir: &Path, own: &impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    match open(CWD, dir)? {
        Some((file, found)) if is_dir(&found) => enter(&file, &found, own, DEEPEST),
        _ => Ok(()),
    }
}

/// Calls `own` for a file under the same rule.
///
/// # Errors
/// What `own` or the kernel says.
pub fn give_file(path: &Path, own: &impl Fn(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
    match open(CWD, path)? {
        Some((file, found)) if is_only_ours(&found) => own(file.as_fd()),
        _ => Ok(()),
    }
}

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
    use std::os::unix::fs::{MetadataExt, symlink};

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
