//! Files with keys: private directories, atomic writes, one writer at a time.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use crate::error::{CaFault, Error};

/// Attempts to take a lock, and the pause between them: ten seconds in total, where minting takes
/// milliseconds.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

/// Returns `true` if `path` exists; a failure to find out is an error.
pub(crate) fn exists(path: &Path) -> Result<bool, Error> {
    match path.try_exists() {
        // A state directory that is not a directory is reported when it is created.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        other => other.map_err(|error| Error::io("look for", path, error)),
    }
}

/// Creates `dir` with access for its owner only, and its parents with default permissions. An existing one
/// stays as it is.
pub(crate) fn create_private_dir(dir: &Path) -> Result<(), Error> {
    let create = || {
        refuse_link_of_others(dir)?;
        if let Some(parent) = dir.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            other => other,
        }
    };
    create().map_err(|error| Error::io("create the directory", dir, error))
}

/// Refuses `dir` if it is a symbolic link of a user other than root and this one: its parent may belong to
/// that user, and this process may be root.
fn refuse_link_of_others(dir: &Path) -> io::Result<()> {
    let trusted = |found: &Metadata| found.uid() == 0 || found.uid() == geteuid().as_raw();
    match dir.symlink_metadata() {
        Ok(found) if found.is_symlink() && !trusted(&found) => Err(io::Error::other(
            "it is a symbolic link of another user than the one that Offramp runs as; remove it, or make the link as root",
        )),
        _ => Ok(()),
    }
}

/// The exclusive right to mint in a directory; released on drop and when the process dies.
#[derive(Debug)]
pub(crate) struct MintLock {
    _file: File,
}

impl MintLock {
    /// Takes the lock of `dir`, waiting up to ten seconds.
    pub(crate) fn take(dir: &Path) -> Result<Self, Error> {
        for _ in 0..TRIES {
            match Self::try_take(dir)? {
                Some(lock) => return Ok(lock),
                None => std::thread::sleep(PAUSE),
            }
        }
        Err(Error::LocalCa { dir: dir.to_owned(), fault: CaFault::Locked })
    }

    /// Takes the lock of `dir`, or returns `None` if it is taken.
    pub(crate) fn try_take(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(".lock");
        let refused = |error| Error::io("lock", &path, error);
        refuse_link_of_others(dir).map_err(refused)?;
        // Root may work here in a directory of another user, who may have put a link or a FIFO there.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = options.open(&path).map_err(refused)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(MintLock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(refused(error.into())),
        }
    }
}

/// Writes `bytes` to `path` with permissions `mode`, atomically: after a crash there is the old file or the
/// new one. The lock of the directory must be held, since the name of the temporary file is fixed.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = Path::new(&new);
    let result = write_new(new, bytes, mode).and_then(|()| replace(new, path));
    result.map_err(|error| {
        // Half a file on a full disk is useless.
        let _ = std::fs::remove_file(new);
        Error::io("write", path, error)
    })
}

/// Replaces `path` with the file `new`, durably.
pub(crate) fn replace(new: &Path, path: &Path) -> io::Result<()> {
    std::fs::rename(new, path)?;
    match path.parent() {
        Some(dir) => File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

fn write_new(new: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    // A leftover of a crash: with the lock held there is no other writer.
    match std::fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(bytes)?;
    // Set after creation, where the umask does not apply.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    #[test]
    fn no_lock_is_made_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        symlink(&other, folder.path().join(".lock")).unwrap();
        let refused = MintLock::try_take(folder.path()).unwrap_err().to_string();
        assert!(refused.contains(".lock") && !other.exists(), "{refused}");
    }

    #[test]
    fn links_of_other_users_are_not_followed_to_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (other, link) = (folder.path().join("other"), folder.path().join("ca"));
        std::fs::create_dir(&other).unwrap();
        symlink(&other, &link).unwrap();
        create_private_dir(&link).unwrap();
        assert!(MintLock::try_take(&link).unwrap().is_some());
        // Only root can change the owner of a link.
        if lchown(&link, Some(65534), Some(65534)).is_ok() {
            for refused in [create_private_dir(&link).unwrap_err(), MintLock::try_take(&link).unwrap_err()] {
                assert!(refused.to_string().contains("symbolic link of another user"), "{refused}");
            }
        }
    }
}
