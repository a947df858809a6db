//! Resolution of symbolic links below a root, step by step.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat};
use rustix::io::Errno;

use super::{OpenFile, WITHIN, Wait, cached, cold, opened};

/// Maximum number of links on the way to a file, as in the kernel.
const MOST: usize = 40;

/// Opens the file at a path below a root that contains no symbolic links. Does not wait for the other end of
/// a FIFO.
///
/// # Errors
/// Errors of the system call: `ELOOP` if a component is a link; [`io::ErrorKind::WouldBlock`] if it would
/// block and `wait` forbids that.
pub fn open_direct(root: impl AsFd, path: &str, wait: Wait) -> io::Result<OpenFile> {
    opened(root.as_fd(), path, WITHIN | ResolveFlags::NO_SYMLINKS, wait)
}

/// Resolves all symbolic links of a path below a root; the result is empty for the root itself.
///
/// # Errors
/// Errors of the system calls: `EXDEV` if a link leads out of the root, `ELOOP` for too many links.
/// [`io::ErrorKind::WouldBlock`] if it would block and `wait` forbids that.
pub fn resolve(root: impl AsFd, path: &str, wait: Wait) -> io::Result<String> {
    let root = root.as_fd();
    let mut place: Vec<String> = Vec::new();
    let mut rest: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
    let mut links = 0;
    while let Some(segment) = rest.pop() {
        match &*segment {
            "" | "." => {}
            ".." => drop(place.pop().ok_or(Errno::XDEV)?),
            _ => {
                place.push(segment);
                let Some(target) = target(root, &place.join("/"), wait)? else { continue };
                links += 1;
                if links > MOST {
                    return Err(Errno::LOOP.into());
                }
                if target.starts_with('/') {
                    return Err(Errno::XDEV.into());
                }
                place.pop();
                rest.extend(target.rsplit('/').map(str::to_owned));
            }
        }
    }
    Ok(place.join("/"))
}

/// Target of the last segment of a path, if that is a link. The segments before it are not links.
fn target(root: BorrowedFd<'_>, path: &str, wait: Wait) -> io::Result<Option<String>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = WITHIN | ResolveFlags::NO_SYMLINKS | cached(wait);
    let fd: OwnedFd =
        openat2(root, path, flags, Mode::empty(), resolve).map_err(|error| cold(error, wait))?;
    if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    let target = readlinkat(&fd, c"", Vec::new())?.into_string();
    // Served paths are UTF-8, so a target that is not UTF-8 cannot be served.
    target.map(Some).map_err(|_| Errno::NOENT.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::root;
    use super::*;

    #[test]
    fn links_are_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("private/sub")).unwrap();
        fs::write(path.join("private/sub/s"), "s").unwrap();
        for (name, to) in [
            ("link", "private"),
            ("twice", "link/sub"),
            ("file", "./twice/../sub//s"),
            ("private/up", "../link"),
            ("out", "../x"),
            ("absolute", "/etc"),
            ("circle", "circle"),
        ] {
            symlink(to, path.join(name)).unwrap();
        }
        let root = root(path, Wait::Allowed).unwrap();
        let place = |name: &str| resolve(&root, name, Wait::Allowed);
        for (name, expected) in [
            ("", ""),
            (".", ""),
            ("private/", "private"),
            ("private/sub/s", "private/sub/s"),
            ("link/sub/s", "private/sub/s"),
            ("twice/", "private/sub"),
            ("file", "private/sub/s"),
            ("private/up/up/sub", "private/sub"),
        ] {
            assert_eq!(place(name).unwrap(), expected, "{name}");
            let links = name != expected && !matches!(name, "." | "private/");
            let direct = open_direct(&root, if name.is_empty() { "." } else { name }, Wait::Allowed);
            assert_eq!(direct.is_err_and(|error| error.raw_os_error() == Some(40)), links, "{name}");
        }
        for (name, error) in [("out", 18), ("absolute/x", 18), ("..", 18), ("circle", 40), ("none", 2)] {
            assert_eq!(place(name).unwrap_err().raw_os_error(), Some(error), "{name}");
        }
    }
}
