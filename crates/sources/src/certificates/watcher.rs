//! When to look at the sources of certificates: soon after a file has changed.
//!
//! The kernel tells of changes; a moment later, when nothing has changed any more, all of them are looked at together,
//! for a certificate and its key are two files. Where the kernel cannot tell (no inotify, a file system of the
//! network, a folder that is not there) the files are looked at each minute. Two seconds after the files were read a
//! look makes up for what changed before they were watched, or twice within a tick of the file system's clock.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use offramp_net::watch::{DirectoryWatch, WatchedFiles};
use offramp_observe::Log;
use tokio::time::{Instant, sleep_until};

use super::{Again, Refreshed, Sources};

/// The time without a change before a look.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// The longest series of changes that is waited for.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);
/// The interval between looks at files that the kernel does not watch, and at those with faults.
pub(crate) const POLL: Duration = Duration::from_secs(60);
/// The time from a look with a new fault to the next.
const SOON: Duration = Duration::from_secs(1);
/// The time from the first look at files to one more. More than
/// [`Stamp::is_settled`](offramp_certs::Stamp::is_settled) needs.
const RECHECK: Duration = Duration::from_millis(2500);

/// Waits until the sources of certificates should be looked at.
#[derive(Debug, Default)]
pub struct Watcher {
    watch: Option<DirectoryWatch>,
    /// The generation of the snapshot that supplies the watched sources.
    generation: Option<u64>,
    /// The beginning of the series of changes that is under way.
    begun: Option<Instant>,
    /// The time of a look because of changes.
    quiet_at: Option<Instant>,
    /// The time of the next look in any case.
    look_at: Option<Instant>,
    /// Set while some files are not watched, or none.
    blind: bool,
    /// Folders that cannot be watched, kept so that each is reported once.
    reported: HashSet<PathBuf>,
}

impl Watcher {
    /// Watches what was read for the snapshot of this generation. Must be called within a tokio runtime.
    pub fn follow(&mut self, generation: u64, sources: &Sources, log: &Log) {
        if self.generation.replace(generation) == Some(generation) {
            return;
        }
        let directories = directories(sources);
        self.blind = false;
        // It watches on until its successor does: what changes in between must not wait for the next look.
        let before = self.watch.take();
        if directories.is_empty() {
            self.look_at = None;
            return;
        }
        match DirectoryWatch::new(&directories) {
            Ok((watch, blind)) => {
                self.watch = Some(watch);
                self.blind = !blind.is_empty();
                if before.is_some_and(|before| before.has_changed()) {
                    self.changed(Instant::now());
                }
                for directory in blind.into_iter().filter(|directory| self.reported.insert(directory.clone()))
                {
                    let shown = directory.display().to_string();
                    let message = "changes of certificates in this folder are looked for each minute";
                    log.debug(message, &[("folder", (&shown).into())]);
                }
            }
            Err(error) => self.lost(&error, log),
        }
        let recheck = Instant::now() + RECHECK;
        self.look_at = Some(self.look_at.map_or(recheck, |at| at.min(recheck)));
    }

    /// Waits until it is time to look. May be dropped and called again.
    pub async fn due(&mut self, log: &Log) {
        loop {
            let at = self.next();
            tokio::select! {
                changed = changed(self.watch.as_ref()) => match changed {
                    Ok(()) => self.changed(Instant::now()),
                    Err(error) => {
                        self.lost(&error, log);
                        self.look_at = Some(Instant::now() + POLL);
                    }
                },
                () = until(at) => return,
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        [self.quiet_at, self.look_at].into_iter().flatten().min()
    }

    /// The sources were looked at `now`.
    pub fn looked(&mut self, outcome: &Refreshed, again: Again, now: Instant) {
        if self.begun.take().is_some() || matches!(outcome, Refreshed::Changed { .. }) {
            // Links may lead elsewhere now, and there may be new folders: `follow` begins anew.
            self.generation = None;
        }
        self.quiet_at = None;
        let wait = match (outcome, again) {
            (_, Again::Soon) => Some(SOON),
            (Refreshed::Refused, _) | (_, Again::Later) => Some(POLL),
            (_, Again::Never) => self.blind.then_some(POLL),
        };
        self.look_at = wait.map(|wait| now + wait);
    }

    /// A file has changed at `now`.
    fn changed(&mut self, now: Instant) {
        let begun = *self.begun.get_or_insert(now);
        self.quiet_at = Some((now + QUIET).min(begun + LONGEST));
    }

    fn lost(&mut self, error: &std::io::Error, log: &Log) {
        (self.watch, self.blind) = (None, true);
        if self.reported.insert(PathBuf::new()) {
            let fields = [("reason", error.into())];
            log.warn(
                "changes of certificates are looked for each minute: the kernel cannot tell of them",
                &fields,
            );
        }
    }
}

/// The next change of what is watched, if something is.
pub(crate) async fn changed(watch: Option<&DirectoryWatch>) -> std::io::Result<()> {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Waits until `at`, if there is such a time.
pub(crate) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The folders in which something can happen that gives one of the files another content.
fn directories(sources: &Sources) -> BTreeMap<PathBuf, WatchedFiles> {
    let mut directories = BTreeMap::new();
    let mut followed = HashSet::new();
    for file in sources.files() {
        // Of the many files of one folder the way to it is followed once.
        match (file.parent(), file.file_name()) {
            (Some(parent), Some(name)) if followed.contains(parent) && !file.is_symlink() => {
                add(&mut directories, parent, name);
            }
            (parent, _) => {
                followed.extend(parent.map(Path::to_owned));
                add_file(&mut directories, &file);
            }
        }
    }
    for directory in sources.directories() {
        add_file(&mut directories, directory);
        directories.insert(directory.clone(), WatchedFiles::All);
        // One level below, as certbot has it.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                directories.insert(path, WatchedFiles::All);
            }
        }
    }
    directories
}

/// Adds every folder that the way to `path` depends on: the one that it is in, and those of the symbolic links on the
/// way, with the names in them.
pub(crate) fn add_file(directories: &mut BTreeMap<PathBuf, WatchedFiles>, path: &Path) {
    add_links(directories, path, MOST_LINKS);
}

fn add_links(directories: &mut BTreeMap<PathBuf, WatchedFiles>, path: &Path, links: usize) {
    let mut so_far = PathBuf::new();
    let last = path.components().count();
    for (index, component) in path.components().enumerate() {
        let parent = so_far.clone();
        so_far.push(component);
        let Component::Normal(name) = component else { continue };
        let link = std::fs::read_link(&so_far).ok();
        if link.is_some() || index + 1 == last {
            add(directories, &parent, name);
        }
        if let Some(target) = link.filter(|_| links > 0) {
            let rest: PathBuf = path.components().skip(index + 1).collect();
            let through = parent.join(target);
            let through = if rest.as_os_str().is_empty() { through } else { through.join(rest) };
            return add_links(directories, &through, links - 1);
        }
    }
}

fn add(directories: &mut BTreeMap<PathBuf, WatchedFiles>, directory: &Path, name: &OsStr) {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    directories.entry(directory.to_owned()).or_insert_with(|| WatchedFiles::Named(HashSet::new())).add(name);
}

/// As many symbolic links as the kernel follows.
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn named(names: &[&str]) -> WatchedFiles {
        WatchedFiles::Named(names.iter().map(Into::into).collect())
    }

    #[test]
    fn every_folder_on_the_way_through_links_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        // As Kubernetes mounts secrets: tls.crt -> ..data/tls.crt, ..data -> ..2026.
        fs::create_dir(root.join("..2026")).unwrap();
        fs::write(root.join("..2026/tls.crt"), "").unwrap();
        symlink("..2026", root.join("..data")).unwrap();
        symlink("..data/tls.crt", root.join("tls.crt")).unwrap();
        let mut directories = BTreeMap::new();
        add_file(&mut directories, &root.join("tls.crt"));
        assert_eq!(directories[&root], named(&["tls.crt", "..data"]));
        assert_eq!(directories[&root.join("..2026")], named(&["tls.crt"]));
        // A link to itself ends.
        symlink("loop", root.join("loop")).unwrap();
        add_file(&mut BTreeMap::new(), &root.join("loop/a"));
        // What is not there is waited for where it should be.
        let mut directories = BTreeMap::new();
        add_file(&mut directories, &root.join("absent.pem"));
        assert_eq!(directories[&root], named(&["absent.pem"]));
    }

    #[test]
    fn changes_are_taken_together_and_not_waited_for_without_end() {
        let mut watcher = Watcher::default();
        let begun = Instant::now();
        watcher.changed(begun);
        assert_eq!(watcher.next(), Some(begun + QUIET));
        // One change after the other, without a pause.
        for step in 0..100 {
            watcher.changed(begun + Duration::from_millis(100) * step);
        }
        assert_eq!(watcher.next(), Some(begun + LONGEST));
        // The next series begins anew, and links may lead elsewhere.
        watcher.generation = Some(1);
        watcher.looked(&Refreshed::Unchanged, Again::Never, begun);
        assert_eq!((watcher.next(), watcher.generation), (None, None));
        watcher.changed(begun + LONGEST * 2);
        assert_eq!(watcher.next(), Some(begun + LONGEST * 2 + QUIET));
    }

    #[test]
    fn faults_are_looked_at_again_and_without_any_nothing_wakes() {
        let mut watcher = Watcher { generation: Some(1), ..Watcher::default() };
        let now = Instant::now();
        for (again, wait) in [(Again::Soon, Some(SOON)), (Again::Later, Some(POLL)), (Again::Never, None)] {
            watcher.looked(&Refreshed::Unchanged, again, now);
            assert_eq!(watcher.next(), wait.map(|wait| now + wait));
        }
        watcher.looked(&Refreshed::Refused, Again::Never, now);
        assert_eq!(watcher.next(), Some(now + POLL));
        // A kernel without inotify, or with all its watches used up.
        watcher.lost(&std::io::Error::other("no inotify"), &Log::silent());
        watcher.looked(&Refreshed::Unchanged, Again::Never, now);
        assert_eq!(watcher.next(), Some(now + POLL));
        assert_eq!(watcher.generation, Some(1), "nothing has changed");
    }

    /// What changes while one watch takes the place of another.
    #[tokio::test]
    async fn no_change_falls_between_two_watches() {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources { directories: vec![folder.path().to_owned()], ..Sources::default() };
        let mut watcher = Watcher::default();
        watcher.follow(1, &sources, &Log::silent());
        watcher.follow(2, &sources, &Log::silent());
        assert_eq!(watcher.quiet_at, None);
        fs::write(folder.path().join("a.pem"), "").unwrap();
        watcher.follow(3, &sources, &Log::silent());
        assert!(watcher.quiet_at.is_some());
    }

    #[tokio::test]
    async fn what_is_read_is_looked_at_once_more() {
        let mut watcher = Watcher::default();
        watcher.follow(1, &Sources::default(), &Log::silent());
        assert_eq!(watcher.next(), None, "there are no files");
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources { directories: vec![folder.path().to_owned()], ..Sources::default() };
        watcher.follow(2, &sources, &Log::silent());
        let first = watcher.next().unwrap();
        watcher.follow(2, &sources, &Log::silent());
        assert_eq!(watcher.next(), Some(first));
    }
}
