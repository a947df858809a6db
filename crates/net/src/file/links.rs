//! Symbolic links below a root, step by step.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat};
use rustix::io::Errno;

use super::{File, WITHIN, Wait, cached, cold, opened};

/// The most links on the way to a file, as in the kernel.
const MOST: usize = 40;

/// Opens the file at a path below a root on which there are no symbolic links. It does not wait for the other end of a
/// FIFO.
///
/// # Errors
/// What the kernel says: `ELOOP` where there is a link; [`io::ErrorKind::WouldBlock`] where it would have to wait and must
/// not.
pub fn open_direct(root: impl AsFd, path: &str, wait: Wait) -> io::Result<File> {
    opened(root.as_fd(), path, WITHIN | ResolveFlags::NO_SYMLINKS, wait)
}

/// The path without symbolic links that a path below a root leads to; empty for the root itself.
///
/// # Errors
/// What the kernel says: `EXDEV` where a link leads out of the root, `ELOOP` where there are too many.
/// [`io::ErrorKind::WouldBlock`] where it would have to wait and must not.
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

/// Where the last segment of a path leads, if it is a link; the others are none.
fn target(root: BorrowedFd<'_>, path: &str, wait: Wait) -> io::Result<Option<String>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = WITHIN | ResolveFlags::NO_SYMLINKS | cached(wait);
    let fd: OwnedFd =
        openat2(root, path, flags, Mode::empty(), resolve).map_err(|error| cold(error, wait))?;
    if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    let target = readlinkat(&fd, c"", Vec::new())?.into_string();
    // A name that is not UTF-8 is that of no file that is served.
    target.map(Some).map_err(|_| Errno::NOENT.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::root;
    use super::*;

    #[test]
    fn links_lead_to_their_places() {
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
