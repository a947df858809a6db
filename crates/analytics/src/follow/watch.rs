//! Waiting until a file may have changed: by inotify, and by looking now and then.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init, remove_watch};

use crate::ingest::{Stop, Waited};

/// Watches one file and the directory in which its successors appear.
///
/// Only that something happened is taken from the kernel, never what: whoever wakes up looks for himself. So nothing
/// is lost when events are.
#[derive(Debug)]
pub(super) struct Watch {
    /// `None` where there is no inotify (its instances are limited per user), or where it sees nothing.
    inotify: Option<OwnedFd>,
    file: Option<i32>,
}

impl Watch {
    /// Watches the directory of `path`.
    pub(super) fn new(path: &Path) -> Self {
        let directory = directory(path);
        let watched = || -> rustix::io::Result<Option<OwnedFd>> {
            if is_remote(directory)? {
                return Ok(None);
            }
            let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            add_watch(&inotify, directory, WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR)?;
            Ok(Some(inotify))
        };
        Self { inotify: watched().unwrap_or(None), file: None }
    }

    /// Watches this file instead of the one before.
    pub(super) fn file(&mut self, file: &File) {
        let Some(inotify) = &self.inotify else { return };
        if let Some(old) = self.file.take() {
            // It fails if the file is gone, and its watch with it.
            let _ = remove_watch(inotify, old);
        }
        // By descriptor: the name may mean another file by now.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        match add_watch(inotify, path, WatchFlags::MODIFY) {
            Ok(watch) => self.file = Some(watch),
            // The user's watches are used up: looking often does it too.
            Err(_) => self.inotify = None,
        }
    }

    /// Waits until something may have changed, at most until `limit` where there is one.
    pub(super) fn wait(&self, stop: &Stop, limit: Option<Duration>) -> io::Result<Waited> {
        let look = if self.inotify.is_some() { LOOK_RARELY } else { LOOK_OFTEN };
        let timeout = limit.map_or(look, |limit| limit.min(look));
        stop.wait(self.inotify.as_ref().map(AsFd::as_fd), Some(timeout))
    }

    /// Forgets what happened: whoever calls this looks at everything afterwards.
    pub(super) fn forget(&self) {
        let mut events = [0; 4096];
        while self.inotify.as_ref().is_some_and(|inotify| rustix::io::read(inotify, &mut events).is_ok()) {}
    }
}

/// The directory of a path.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether others may write there without this kernel knowing.
fn is_remote(directory: &Path) -> rustix::io::Result<bool> {
    // The constants have the width of a C long on some platforms; the magic numbers have 32 bits.
    let kind = rustix::fs::statfs(directory)?.f_type as u32;
    Ok(REMOTE.contains(&kind))
}

/// NFS, CIFS, SMB2, FUSE, 9P, Ceph, AFS: see statfs(2).
const REMOTE: &[u32] =
    &[0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x5346_414f];
/// How often to look where the kernel tells of changes: it is for what it forgot.
const LOOK_RARELY: Duration = Duration::from_secs(60);
/// How often to look where it does not.
const LOOK_OFTEN: Duration = Duration::from_secs(1);
