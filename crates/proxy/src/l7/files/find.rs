//! Which file a request asks for, and the roots that a worker has open.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use offramp_http::semantics::accept_encoding::Coding;
use offramp_net::clock::coarse_ms;
use offramp_net::file::{self, FileKind, FileVersion, OpenFile, Wait};

use tokio::task::spawn_local;

use super::cache::{Cache, FileQuery, KEPT};
use super::coded::{self, Wishes};
use super::lists::DirectoryLists;
use super::ready::ReadyFile;
use crate::snapshot::http::Files;

/// Error number of a denied permission.
const EACCES: i32 = 13;
/// The path leads out of the root.
const EXDEV: i32 = 18;
/// Symbolic links in a circle.
const ELOOP: i32 = 40;
/// There is no such file: ENOENT, ENXIO (a socket), ENODEV, ENOTDIR, EINVAL, ENAMETOOLONG.
const NAMES: [i32; 6] = [2, 6, 19, 20, 22, 36];
/// Time for which an open root is taken for the directory at its path, in milliseconds: then another one may have
/// its place.
const FRESH: u64 = 1000;
/// Open roots of a worker.
const MOST_ROOTS: usize = 64;

/// A file that was found.
pub(crate) struct FoundFile {
    pub(crate) file: OpenFile,
    /// Its path below the root.
    pub(crate) name: String,
    /// The content coding that it has beyond what the path says.
    pub(crate) coding: Option<Coding>,
}

/// The outcome of a search.
pub(crate) enum SearchResult {
    File(FoundFile),
    /// A directory that was asked for without the slash at its end.
    Directory,
    /// A directory that has nothing to be served for it, and is to be listed; the state that it is in.
    Bare(FileVersion),
    /// Nothing, or nothing that is served.
    Nothing,
    /// Something that another route of the host guards.
    Guarded,
    /// Something that this process may not read.
    Denied,
}

/// A file to search for.
pub(crate) struct FileSearch {
    pub(crate) files: Arc<Files>,
    /// The path below the root that the request names.
    pub(crate) name: String,
    /// The content codings in which a file may be served.
    pub(super) wishes: Wishes,
}

/// The roots that a worker has open.
#[derive(Default)]
pub(crate) struct Roots {
    open: RefCell<Vec<OpenRoot>>,
    /// The files that are kept.
    pub(super) cache: Rc<RefCell<Cache>>,
    pub(super) lists: Rc<DirectoryLists>,
}

struct OpenRoot {
    of: Arc<Files>,
    root: Arc<OwnedFd>,
    since: u64,
}

impl Roots {
    /// Searches without a wait.
    pub(crate) fn search(&self, search: &FileSearch) -> io::Result<SearchResult> {
        let root = self.root(&search.files)?;
        search.run(Some(root.as_fd()), Wait::Never)
    }

    /// Makes a response of a file that was found, and keeps it where there is room for it among `most` bytes. `old` is what
    /// was kept for the same request.
    pub(super) fn ready(
        &self,
        asked: FileQuery<'_>,
        FoundFile { file, name, coding }: FoundFile,
        old: Option<Rc<ReadyFile>>,
        most: usize,
    ) -> Rc<ReadyFile> {
        let same = old.filter(|old| old.is(&file, &name, coding) && old.is_as_said());
        let (ready, settled) = match same {
            Some(same) => (same, true),
            None => {
                let mut ready = ReadyFile::new(asked.files, file, name, coding);
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
            open.push(OpenRoot { of: Arc::clone(files), root: Arc::clone(&root), since: now });
        }
        Ok(root)
    }
}

/// Drops files that are not asked for, until nothing is left.
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

impl FileSearch {
    /// Searches below `root`, or else below the directory that is at its path now.
    ///
    /// # Errors
    /// An error of the kernel that no other result stands for.
    pub(crate) fn run(&self, root: Option<BorrowedFd<'_>>, wait: Wait) -> io::Result<SearchResult> {
        let own;
        let root = match root {
            Some(root) => root,
            None => {
                own = file::root(&self.files.root, wait)?;
                own.as_fd()
            }
        };
        let (mut directory, mut guarded) = (false, false);
        for pattern in &self.files.tries {
            let name = self.candidate(pattern);
            match self.look(root, name, wait)? {
                SearchResult::Nothing => {}
                SearchResult::Guarded => guarded = true,
                // The redirect is for what was asked for.
                SearchResult::Directory => directory |= &**pattern == PATH,
                SearchResult::File(FoundFile { file, name, .. }) => {
                    return self.coded(root, file, name, wait);
                }
                found => return Ok(found),
            }
        }
        if directory {
            return Ok(SearchResult::Directory);
        }
        let (bare, hidden) = match self.bare_directory(root, wait)? {
            SearchResult::Nothing => (false, false),
            SearchResult::Guarded => (false, true),
            _ => (true, false),
        };
        guarded |= hidden;
        if bare && self.files.listing {
            let name = if self.name.is_empty() { "." } else { &*self.name };
            return match file::open(root, name, wait) {
                Ok(directory) => Ok(SearchResult::Bare(directory.stamp)),
                Err(error) if error.raw_os_error() == Some(EACCES) => Ok(SearchResult::Denied),
                Err(error) => Err(error),
            };
        }
        if let Some(fallback) = &self.files.fallback {
            match self.look(root, fallback.to_string(), wait)? {
                SearchResult::Nothing | SearchResult::Directory | SearchResult::Guarded => {}
                SearchResult::File(FoundFile { file, name, .. }) => {
                    return self.coded(root, file, name, wait);
                }
                found => return Ok(found),
            }
        }
        Ok(match (bare, guarded) {
            (true, _) => SearchResult::Denied,
            (false, true) => SearchResult::Guarded,
            (false, false) => SearchResult::Nothing,
        })
    }

    /// A file, or the one beside it that has its content in a coding that the client prefers.
    fn coded(
        &self,
        root: BorrowedFd<'_>,
        file: OpenFile,
        name: String,
        wait: Wait,
    ) -> io::Result<SearchResult> {
        for coding in self.wishes.iter() {
            match self.open(root, &format!("{name}{}", coded::ending(coding)), wait) {
                Ok(Some(other)) if other.kind == FileKind::Regular && coded::belongs(&other, &file) => {
                    return Ok(SearchResult::File(FoundFile { file: other, name, coding: Some(coding) }));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                // Whatever is wrong with it: the file itself is there.
                _ => {}
            }
        }
        Ok(SearchResult::File(FoundFile { file, name, coding: None }))
    }

    /// Index, list or refusal for the path of a directory, with its slash. No file was found for it.
    fn bare_directory(&self, root: BorrowedFd<'_>, wait: Wait) -> io::Result<SearchResult> {
        let name = match &*self.name {
            "" => ".",
            name if name.ends_with('/') => name,
            _ => return Ok(SearchResult::Nothing),
        };
        self.find(root, name.to_owned(), wait)
    }

    fn candidate(&self, pattern: &str) -> String {
        // A name that goes on is not that of something in the directory.
        let goes_on = !pattern.ends_with(PATH);
        let name = if goes_on { self.name.trim_end_matches('/') } else { &self.name };
        pattern.replacen(PATH, name, 1)
    }

    fn look(&self, root: BorrowedFd<'_>, name: String, wait: Wait) -> io::Result<SearchResult> {
        if !name.is_empty() && !name.ends_with('/') {
            return self.find(root, name, wait);
        }
        let mut none = SearchResult::Nothing;
        for index in &self.files.index {
            match self.find(root, format!("{name}{index}"), wait)? {
                SearchResult::Nothing | SearchResult::Directory => {}
                SearchResult::Guarded => none = SearchResult::Guarded,
                found => return Ok(found),
            }
        }
        Ok(none)
    }

    fn find(&self, root: BorrowedFd<'_>, name: String, wait: Wait) -> io::Result<SearchResult> {
        match self.open(root, &name, wait) {
            Ok(None) => Ok(SearchResult::Guarded),
            Ok(Some(file)) => Ok(match file.kind {
                FileKind::Regular => SearchResult::File(FoundFile { file, name, coding: None }),
                FileKind::Directory => SearchResult::Directory,
                FileKind::Special => SearchResult::Nothing,
            }),
            Err(error) => match error.raw_os_error() {
                Some(EXDEV | ELOOP) => Ok(SearchResult::Nothing),
                Some(EACCES) => Ok(SearchResult::Denied),
                Some(number) if NAMES.contains(&number) => Ok(SearchResult::Nothing),
                _ => Err(error),
            },
        }
    }

    /// Opens what is at a path below the root; `None` where that belongs to another route, whatever links lead there.
    fn open(&self, root: BorrowedFd<'_>, name: &str, wait: Wait) -> io::Result<Option<OpenFile>> {
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

/// Placeholder for the path of the request.
const PATH: &str = "{path}";
