//! One setup or undo of a tree at a time.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, OFlags, flock};

use super::{Root, SystemAction};

/// Place of the lock in a tree. It is a file that others cannot open: who can open a file can lock it.
const PLACE: &str = "/var/lib/offramp-setup.lock";

/// A lock of a tree (flock(2)), which ends with the process. The file goes with it.
#[derive(Debug)]
pub(crate) struct SetupLock {
    path: PathBuf,
    /// Directories that were created for the file, the deepest first.
    folders: Vec<PathBuf>,
    _file: File,
}

/// A lock that cannot be had.
#[derive(Debug)]
pub(crate) enum LockRefusal {
    /// Another process has it.
    Held(String),
    /// The file cannot be created.
    Failed(String),
}

impl SetupLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// Another process has it, or the file cannot be created.
    pub(crate) fn take(root: &Root) -> Result<Self, LockRefusal> {
        let path = root.place(PLACE).map_err(LockRefusal::Failed)?;
        let shown = path.display();
        let failed = |error: io::Error| {
            LockRefusal::Failed(format!("cannot lock {shown}: {error}{}", super::advice(&error)))
        };
        let folder = path.parent().map(ToOwned::to_owned).unwrap_or_default();
        let missing = folder.ancestors().take_while(|folder| folder.symlink_metadata().is_err());
        let folders: Vec<PathBuf> = missing.map(ToOwned::to_owned).collect();
        SystemAction::Folder { path: folder }.perform().map_err(LockRefusal::Failed)?;
        loop {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
            let file = options.open(&path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let why = format!("another `offramp setup` is at work here ({shown}); wait for its end");
                    return Err(LockRefusal::Held(why));
                }
                Err(error) => return Err(failed(error.into())),
            }
            // The holder before removes the file at its end.
            let own = file.metadata().map_err(failed)?;
            if path.symlink_metadata().is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
            {
                return Ok(Self { path, folders, _file: file });
            }
        }
    }
}

impl Drop for SetupLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        for folder in &self.folders {
            // One that holds the record by now stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path().canonicalize().unwrap());
        let lock = SetupLock::take(&root).unwrap();
        assert!(matches!(SetupLock::take(&root), Err(LockRefusal::Held(_))));
        drop(lock);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        drop(SetupLock::take(&root).unwrap());
    }
}
