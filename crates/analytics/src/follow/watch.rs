//! Waits until a file may have changed: by inotify, and by periodic looks.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init, remove_watch};

use crate::ingest::{StopSignal, Waited};

use super::rotation::{NamePattern, is_archive_name, name};

/// Watches files, and the directory in which they are renamed and copied.
///
/// Events only trigger a look; their content is not trusted. So lost events lose no lines.
#[derive(Debug)]
pub(super) struct LogWatch {
    log: PathBuf,
    /// `None` without inotify (its instances are limited per user), or where it sees nothing. Names and
    /// contents have an instance each, so that one can wait for names alone.
    inotify: Option<(OwnedFd, OwnedFd)>,
    files: Vec<i32>,
    copies: RefCell<Copies>,
}

/// Files created under names of the log's past: possible copies of the log.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Their paths, once per creation.
    pub(super) made: Vec<PathBuf>,
    /// Set if the list is incomplete: the kernel dropped events, or the bound was reached.
    pub(super) more: bool,
}

/// The reason for the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// A file of the log was created or renamed: a rotation is in progress.
    Names,
    /// A file was, or may have been, written to.
    Content,
    /// A stop was requested.
    Stopped,
}

impl LogWatch {
    /// Watches the directory of `log`.
    pub(super) fn new(log: &Path) -> Self {
        let directory = directory(log);
        let watched = || -> rustix::io::Result<Option<(OwnedFd, OwnedFd)>> {
            if is_remote(directory)? {
                return Ok(None);
            }
            let names = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let events = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
            add_watch(&names, directory, events | WatchFlags::ONLYDIR)?;
            Ok(Some((names, init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?)))
        };
        Self {
            log: log.to_owned(),
            inotify: watched().unwrap_or(None),
            files: Vec::new(),
            copies: RefCell::default(),
        }
    }

    /// Watches these files in place of the previous ones.
    pub(super) fn files<'a>(&mut self, files: impl Iterator<Item = &'a File>) {
        let Some((_, content)) = &self.inotify else { return };
        let old = std::mem::take(&mut self.files);
        for file in files {
            // By descriptor: the path may refer to another file by now.
            match add_watch(content, format!("/proc/self/fd/{}", file.as_raw_fd()), WatchFlags::MODIFY) {
                Ok(watch) => self.files.push(watch),
                // The user's watches are exhausted: fall back to periodic looks.
                Err(_) => {
                    self.inotify = None;
                    return;
                }
            }
        }
        for watch in old.iter().filter(|watch| !self.files.contains(watch)) {
            // Fails if the file is gone, and its watch with it.
            let _ = remove_watch(content, *watch);
        }
    }

    /// Waits until something may have changed, up to `limit`.
    pub(super) fn wait(&self, stop: &StopSignal, limit: Duration) -> io::Result<Woken> {
        let Some((names, content)) = &self.inotify else {
            return Ok(match stop.wait(None, Some(limit.min(LOOK_OFTEN)))? {
                Waited::Stopped => Woken::Stopped,
                Waited::Ready | Waited::TimedOut => Woken::Content,
            });
        };
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match stop.wait_for(&[names.as_fd(), content.as_fd()], Some(left))? {
                Waited::Stopped => return Ok(Woken::Stopped),
                Waited::Ready if self.is_renamed() => return Ok(Woken::Names),
                Waited::Ready if drain(content) => return Ok(Woken::Content),
                Waited::Ready => {}
                Waited::TimedOut => return Ok(Woken::Content),
            }
        }
    }

    /// Copies since the last call.
    pub(super) fn take_copies(&self) -> Copies {
        self.copies.take()
    }

    /// Waits for a rotation up to `limit`, whatever is written in the meantime.
    pub(super) fn wait_for_names(&self, stop: &StopSignal, limit: Duration) -> io::Result<Woken> {
        let deadline = Instant::now() + limit;
        let names = self.inotify.as_ref().map(|(names, _)| names.as_fd());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match stop.wait(names, Some(left))? {
                Waited::Stopped => return Ok(Woken::Stopped),
                Waited::Ready if self.is_renamed() => return Ok(Woken::Names),
                Waited::Ready => {}
                Waited::TimedOut => return Ok(Woken::Content),
            }
        }
    }

    /// Drains the events of the directory; returns `true` if one concerns the log. The caller looks at all
    /// files afterwards.
    fn is_renamed(&self) -> bool {
        let Some((names, _)) = &self.inotify else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(names, &mut buffer);
        let mut found = false;
        while let Ok(event) = reader.next() {
            let path = event.file_name().map(|name| Path::new(OsStr::from_bytes(name.to_bytes())));
            let is_past = path.is_some_and(|path| name(&self.log, path) != NamePattern::Other);
            let is_log = path.is_some_and(|path| Some(path.as_os_str()) == self.log.file_name());
            // Servers that open the log for each line close it as often.
            let is_closed = event.events() == ReadFlags::CLOSE_WRITE;
            let mut copies = self.copies.borrow_mut();
            // A renamed file is not a new one.
            let is_made = event.events().contains(ReadFlags::CREATE);
            let copied = path.filter(|path| is_made && is_past && !is_archive_name(path));
            let is_counted = copies.made.len() < MOST_COPIES;
            copies.more |=
                event.events().contains(ReadFlags::QUEUE_OVERFLOW) || (copied.is_some() && !is_counted);
            let paths = copied.filter(|_| is_counted).map(|name| directory(&self.log).join(name));
            copies.made.extend(paths);
            found |= is_past || (is_log && !is_closed) || event.events().contains(ReadFlags::QUEUE_OVERFLOW);
        }
        found
    }
}

/// Drains pending events; returns `true` if there were any.
fn drain(inotify: &OwnedFd) -> bool {
    let mut events = [0; 4096];
    let mut found = false;
    while rustix::io::read(inotify, &mut events).is_ok() {
        found = true;
    }
    found
}

/// The directory of a path.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns `true` for file systems where other hosts may write without this kernel's knowledge.
fn is_remote(directory: &Path) -> rustix::io::Result<bool> {
    // The constants have the width of a C long on some platforms; the magic numbers have 32 bits.
    let kind = rustix::fs::statfs(directory)?.f_type as u32;
    Ok(REMOTE.contains(&kind))
}

/// The bound on copies recorded between two looks.
const MOST_COPIES: usize = 1024;
/// NFS, CIFS, SMB2, FUSE, 9P, Ceph, AFS: see statfs(2).
const REMOTE: &[u32] =
    &[0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x5346_414f];
/// The interval of looks beside inotify, for events that it drops.
pub(super) const LOOK_RARELY: Duration = Duration::from_secs(60);
/// The interval of looks without inotify.
const LOOK_OFTEN: Duration = Duration::from_secs(1);
