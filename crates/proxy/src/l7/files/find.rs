//! Which file a request asks for, and the roots that a worker has open.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_http::semantics::accept_encoding::Coding;
use offramp_net::clock::coarse_ms;
use offramp_net::file::{self, File, Kind, Stamp, Wait};

use tokio::task::spawn_local;

use super::cache::{Asked, Cache, KEPT};
use super::coded::{self, Wishes};
use super::lists::DirectoryLists;
use super::ready::Ready;
use crate::snapshot::http::Files;

/// Permission denied.
const EACCES: i32 = 13;
/// The path leads out of the root.
const EXDEV: i32 = 18;
/// Symbolic links in a circle.
const ELOOP: i32 = 40;
/// There is no such file: ENOENT, ENXIO (a socket), ENODEV, ENOTDIR, EINVAL, ENAMETOOLONG.
const NAMES: [i32; 6] = [2, 6, 19, 20, 22, 36];
/// How long an open root is taken for the directory at its path, in milliseconds: then another one may have its place.
const FRESH: u64 = 1000;
/// How many roots of a worker are open.
const MOST_ROOTS: usize = 64;

/// What was found.
pub(crate) enum Found {
    /// A file, its path below the root, and the content coding that the file has beyond what the path says.
    File(File, String, Option<Coding>),
    /// A directory that was asked for without the slash at its end.
    Directory,
    /// A directory that has nothing to be served for it, and is to be listed; the state that it is in.
    Bare(Stamp),
    /// Nothing, or nothing that is served.
    Nothing,
    /// Something that this process may not read.
    Denied,
}

/// What is looked for.
pub(crate) struct Search {
    pub(crate) files: Arc<Files>,
    /// The path below the root that the request names.
    pub(crate) name: String,
    /// The content codings in which a file may be served.
    pub(super) wishes: Wishes,
}

/// The roots that a worker has open.
#[derive(Default)]
pub(crate) struct Roots {
    open: RefCell<Vec<Open>>,
    /// The files that are kept.
    pub(super) cache: Rc<RefCell<Cache>>,
    pub(super) lists: Rc<DirectoryLists>,
}

struct Open {
    of: Arc<Files>,
    root: Arc<OwnedFd>,
    since: u64,
}

impl Roots {
    /// Searches without a wait.
    pub(crate) fn search(&self, search: &Search) -> io::Result<Found> {
        let root = self.root(&search.files)?;
        search.run(Some(root.as_fd()), Wait::Never)
    }

    /// Makes a response of a file that was found, and keeps it where there is room for it among `most` bytes. `old` is what
    /// was kept for the same request.
    pub(super) fn ready(
        &self,
        asked: Asked<'_>,
        (file, name, coding): (File, String, Option<Coding>),
        old: Option<Rc<Ready>>,
        most: usize,
    ) -> Rc<Ready> {
        let same = old.filter(|old| old.is(&file, &name, coding) && old.is_as_said());
        let (ready, settled) = match same {
            Some(same) => (same, true),
            None => {
                let mut ready = Ready::new(asked.files, file, name, coding);
                let settled = most > 0 && ready.settle(seconds());
                (Rc::new(ready), settled)
            }
        };
        if most > 0 && settled {
            let mut cache = self.cache.borrow_mut();
            cache.keep(asked, &ready, coarse_ms(), most);
            if !std::mem::replace(&mut cache.is_swept, true) {
                spawn_local(sweep(Rc::clone(&self.cache)));
            }
        }
        ready
    }

    fn root(&self, files: &Arc<Files>) -> io::Result<Arc<OwnedFd>> {
        let now = coarse_ms();
        let mut open = self.open.borrow_mut();
        if let Some(known) = open.iter().find(|known| Arc::ptr_eq(&known.of, files))
            && now.saturating_sub(known.since) < FRESH
        {
            return Ok(Arc::clone(&known.root));
        }
        // Those of configurations that are gone, too.
        open.retain(|known| now.saturating_sub(known.since) < FRESH && !Arc::ptr_eq(&known.of, files));
        let root = Arc::new(file::root(&files.root, Wait::Never)?);
        if open.len() < MOST_ROOTS {
            open.push(Open { of: Arc::clone(files), root: Arc::clone(&root), since: now });
        }
        Ok(root)
    }
}

/// Drops what nobody asks for, until nothing is left.
async fn sweep(cache: Rc<RefCell<Cache>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(KEPT / 4)).await;
        let mut cache = cache.borrow_mut();
        if !cache.sweep(coarse_ms()) {
            cache.is_swept = false;
            return;
        }
    }
}

/// The time, in seconds since 1970.
fn seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Search {
    /// Searches below `root`, or else below the directory that is at its path now.
    ///
    /// # Errors
    /// What the kernel says, but for what [`Found`] tells.
    pub(crate) fn run(&self, root: Option<BorrowedFd<'_>>, wait: Wait) -> io::Result<Found> {
        let own;
        let root = match root {
            Some(root) => root,
            None => {
                own = file::root(&self.files.root, wait)?;
                own.as_fd()
            }
        };
        let mut directory = false;
        for pattern in &self.files.tries {
            let name = self.candidate(pattern);
            match self.look(root, name, wait)? {
                Found::Nothing => {}
                // The redirect is for what was asked for.
                Found::Directory => directory |= &**pattern == PATH,
                Found::File(file, name, _) => return self.coded(root, file, name, wait),
                found => return Ok(found),
            }
        }
        if directory {
            return Ok(Found::Directory);
        }
        let bare = self.is_bare_directory(root, wait)?;
        if bare && self.files.listing {
            let name = if self.name.is_empty() { "." } else { &*self.name };
            return match file::open(root, name, wait) {
                Ok(directory) => Ok(Found::Bare(directory.stamp)),
                Err(error) if error.raw_os_error() == Some(EACCES) => Ok(Found::Denied),
                Err(error) => Err(error),
            };
        }
        if let Some(fallback) = &self.files.fallback {
            match self.look(root, fallback.to_string(), wait)? {
                Found::Nothing | Found::Directory => {}
                Found::File(file, name, _) => return self.coded(root, file, name, wait),
                found => return Ok(found),
            }
        }
        Ok(if bare { Found::Denied } else { Found::Nothing })
    }

    /// A file, or the one beside it that has its content in a coding that the client prefers.
    fn coded(&self, root: BorrowedFd<'_>, file: File, name: String, wait: Wait) -> io::Result<Found> {
        for coding in self.wishes.iter() {
            match self.open(root, &format!("{name}{}", coded::ending(coding)), wait) {
                Ok(Some(other)) if other.kind == Kind::Regular && coded::belongs(&other, &file) => {
                    return Ok(Found::File(other, name, Some(coding)));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // Whatever is wrong with it: the file itself is there.
                _ => {}
            }
        }
        Ok(Found::File(file, name, None))
    }

    /// Whether the request names a directory, with its slash. No file was found for it.
    fn is_bare_directory(&self, root: BorrowedFd<'_>, wait: Wait) -> io::Result<bool> {
        let name = match &*self.name {
            "" => ".",
            name if name.ends_with('/') => name,
            _ => return Ok(false),
        };
        Ok(!matches!(self.find(root, name.to_owned(), wait)?, Found::Nothing))
    }

    fn candidate(&self, pattern: &str) -> String {
        // A name that goes on is not that of something in the directory.
        let goes_on = !pattern.ends_with(PATH);
        let name = if goes_on { self.name.trim_end_matches('/') } else { &self.name };
        pattern.replacen(PATH, name, 1)
    }

    fn look(&self, root: BorrowedFd<'_>, name: String, wait: Wait) -> io::Result<Found> {
        if !name.is_empty() && !name.ends_with('/') {
            return self.find(root, name, wait);
        }
        for index in &self.files.index {
            match self.find(root, format!("{name}{index}"), wait)? {
                Found::Nothing | Found::Directory => {}
                found => return Ok(found),
            }
        }
        Ok(Found::Nothing)
    }

    fn find(&self, root: BorrowedFd<'_>, name: String, wait: Wait) -> io::Result<Found> {
        match self.open(root, &name, wait) {
            Ok(None) => Ok(Found::Nothing),
            Ok(Some(file)) => Ok(match file.kind {
                Kind::Regular => Found::File(file, name, None),
                Kind::Directory => Found::Directory,
                Kind::Special => Found::Nothing,
            }),
            Err(error) => match error.raw_os_error() {
                Some(EXDEV | ELOOP) => Ok(Found::Nothing),
                Some(EACCES) => Ok(Found::Denied),
                Some(number) if NAMES.contains(&number) => Ok(Found::Nothing),
                _ => Err(error),
            },
        }
    }

    /// Opens what is at a path below the root; `None` where that belongs to another route, whatever links lead there.
    fn open(&self, root: BorrowedFd<'_>, name: &str, wait: Wait) -> io::Result<Option<File>> {
        let closed = &self.files.closed;
        if closed.is_empty() {
            return file::open(root, name, wait).map(Some);
        }
        if closed.covers(name) {
            return Ok(None);
        }
        match file::open_direct(root, name, wait) {
            Err(error) if error.raw_os_error() == Some(ELOOP) => {}
            outcome => return outcome.map(Some),
        }
        let place = file::resolve(root, name, wait)?;
        if closed.covers(&place) {
            return Ok(None);
        }
        let place = match &*place {
            "" => ".".to_owned(),
            _ if name.ends_with('/') => format!("{place}/"),
            _ => place,
        };
        file::open_direct(root, &place, wait).map(Some)
    }
}

/// What stands for the path of the request.
const PATH: &str = "{path}";
