//! Watches directories for changes of their files (inotify).
//!
//! Directories are watched instead of files: a file that is renamed over another, or a symbolic link that is
//! switched, is a new file, which a watch of the old one would not report.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::statfs;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Files of a directory to be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedFiles {
    /// Every file of the directory.
    All,
    /// Files of these names.
    Named(HashSet<OsString>),
}

impl WatchedFiles {
    /// Adds a file name.
    pub fn add(&mut self, name: &OsStr) {
        if let WatchedFiles::Named(names) = self {
            names.insert(name.to_owned());
        }
    }

    fn merge(&mut self, other: &WatchedFiles) {
        match (&mut *self, other) {
            (WatchedFiles::Named(names), WatchedFiles::Named(more)) => names.extend(more.iter().cloned()),
            _ => *self = WatchedFiles::All,
        }
    }

    fn has(&self, name: &OsStr) -> bool {
        match self {
            WatchedFiles::All => true,
            WatchedFiles::Named(names) => names.contains(name),
        }
    }
}

/// A watch on several directories.
#[derive(Debug)]
pub struct DirectoryWatch {
    inotify: Inotify,
    /// Watched files by the kernel's number of the watch.
    watched: HashMap<i32, WatchedFiles>,
}

/// An inotify instance, closed by a thread of its own: close(2) waits until the kernel has freed the watches, which
/// takes milliseconds, and many seconds where its worker threads get no time.
#[derive(Debug)]
struct Inotify(Option<AsyncFd<OwnedFd>>);

impl Inotify {
    fn get(&self) -> &AsyncFd<OwnedFd> {
        self.0.as_ref().expect("taken by drop alone")
    }
}

impl Drop for Inotify {
    fn drop(&mut self) {
        let descriptor = self.0.take().map(AsyncFd::into_inner);
        // Without a thread, it is closed here.
        let _ = std::thread::Builder::new().name("offramp-close".into()).spawn(move || drop(descriptor));
    }
}

impl DirectoryWatch {
    /// Starts watching `directories`; must be called within a tokio runtime. Also returns the directories
    /// that cannot be watched, or whose file system does not report changes made by other machines.
    ///
    /// # Errors
    /// The kernel lacks inotify or has no descriptor for it.
    pub fn new(directories: &BTreeMap<PathBuf, WatchedFiles>) -> io::Result<(Self, Vec<PathBuf>)> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut watched: HashMap<i32, WatchedFiles> = HashMap::new();
        let mut blind = Vec::new();
        for (directory, files) in directories {
            match inotify::add_watch(&inotify, directory, EVENTS) {
                // Two paths of one directory share a watch.
                Ok(number) => watched
                    .entry(number)
                    .and_modify(|known| known.merge(files))
                    .or_insert_with(|| files.clone()),
                Err(_) => {
                    blind.push(directory.clone());
                    continue;
                }
            };
            if is_remote(directory) {
                blind.push(directory.clone());
            }
        }
        let inotify = Inotify(Some(crate::socket::watch(inotify, Interest::READABLE)?));
        Ok((Self { inotify, watched }, blind))
    }

    /// Waits until a watched file has changed. Cancel safe: dropping the future loses no change.
    ///
    /// # Errors
    /// Errors of the system call; the watch is unusable then.
    pub async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.get().readable().await?;
            let drained = self.drain()?;
            if drained.is_empty {
                // Cleared only once the queue is empty: the kernel reports readiness once.
                ready.clear_ready();
            }
            if drained.matters {
                return Ok(());
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }

    /// Returns true if a watched file has changed since the last return of [`DirectoryWatch::changed`]. Does
    /// not wait. A broken watch, and more events than one call reads, count as a change.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.drain().map_or(true, |drained| drained.matters || !drained.is_empty)
    }

    /// Reads a bounded number of events.
    fn drain(&self) -> io::Result<InotifyEvents> {
        let mut buffer = [MaybeUninit::uninit(); ROOM];
        let mut reader = inotify::Reader::new(self.inotify.get().get_ref(), &mut buffer);
        let mut drained = InotifyEvents { matters: false, is_empty: false };
        // Bounded, because another process could cause events without end. Events in the buffer are still
        // examined: the kernel delivers them once.
        for count in 0.. {
            if count >= MOST_EVENTS && reader.is_buffer_empty() {
                break;
            }
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    let files = self.watched.get(&event.wd());
                    drained.matters |= match (name, files) {
                        (Some(name), Some(files)) => files.has(name),
                        // An event of the directory itself, or a queue overflow.
                        (None, _) => !event.events().contains(ReadFlags::IGNORED),
                        (Some(_), None) => false,
                    };
                }
                Err(Errno::WOULDBLOCK) => {
                    drained.is_empty = true;
                    break;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(drained)
    }
}

/// Result of reading events.
struct InotifyEvents {
    /// Set if a watched file has changed.
    matters: bool,
    /// Set if no events are left.
    is_empty: bool,
}

/// Events that may give a file new content. Not IN_MODIFY: a file is whole only when its writer closes it.
const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Buffer for a few dozen events, in bytes; one has at most 272.
const ROOM: usize = 4096;

/// Maximum number of events per call.
const MOST_EVENTS: usize = 10_000;

/// Returns true for file systems that change without this kernel: network and user-space ones.
fn is_remote(directory: &Path) -> bool {
    // linux/magic.h: NFS, SMB, CIFS, SMB2, Ceph, AFS, 9P (of virtual machines), FUSE.
    const REMOTE: [u32; 8] =
        [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x5346_414f, 0x0102_1997, 0x6573_5546];
    // A magic number has 32 bits, whatever the width of the field.
    statfs(directory).is_ok_and(|found| REMOTE.contains(&(found.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Longer than any scheduling delay; only a missed change takes this long.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn named(names: &[&str]) -> WatchedFiles {
        WatchedFiles::Named(names.iter().map(Into::into).collect())
    }

    async fn seen(watch: &DirectoryWatch) {
        timeout(PATIENCE, watch.changed()).await.expect("the change is seen").unwrap();
        while watch.drain().unwrap().matters {}
    }

    #[tokio::test]
    async fn a_change_after_many_irrelevant_ones_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem"]))]);
        let (watch, _) = DirectoryWatch::new(&directories).unwrap();
        // Two events each: more than one call reads, and fewer than the kernel queues.
        for number in 0..MOST_EVENTS * 3 / 4 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        fs::write(folder.path().join("a.pem"), "").unwrap();
        seen(&watch).await;
    }

    /// proc_pid_fdinfo(5): a line for each watch, with the number of the inode.
    #[tokio::test]
    async fn a_dropped_watch_leaves_no_descriptor() {
        let folder = tempfile::tempdir().unwrap();
        let inode = format!(" ino:{:x} ", fs::metadata(folder.path()).unwrap().ino());
        let is_watched = || {
            let descriptors = fs::read_dir("/proc/self/fdinfo").unwrap();
            let mut infos = descriptors.map(|one| fs::read_to_string(one.unwrap().path()));
            infos.any(|info| info.is_ok_and(|info| info.contains(&inode)))
        };
        let directories = BTreeMap::from([(folder.path().to_owned(), WatchedFiles::All)]);
        let (watch, _) = DirectoryWatch::new(&directories).unwrap();
        assert!(is_watched());
        drop(watch);
        let closed = async {
            while is_watched() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, closed).await.expect("the descriptor is closed");
    }

    #[tokio::test]
    async fn every_way_to_replace_content_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.pem"), "old").unwrap();
        std::os::unix::fs::symlink("a.pem", at("link")).unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem", "link"]))]);
        let (watch, blind) = DirectoryWatch::new(&directories).unwrap();
        assert_eq!(blind, Vec::<PathBuf>::new());
        // Written in place.
        fs::write(at("a.pem"), "new").unwrap();
        seen(&watch).await;
        // Renamed over.
        fs::write(at("b.pem"), "newer").unwrap();
        fs::rename(at("b.pem"), at("a.pem")).unwrap();
        seen(&watch).await;
        // A switched link.
        std::os::unix::fs::symlink("c.pem", at("new-link")).unwrap();
        fs::rename(at("new-link"), at("link")).unwrap();
        seen(&watch).await;
        fs::remove_file(at("a.pem")).unwrap();
        seen(&watch).await;
    }

    #[tokio::test]
    async fn other_files_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem"]))]);
        let (watch, _) = DirectoryWatch::new(&directories).unwrap();
        fs::write(folder.path().join("log"), "a line").unwrap();
        assert!(!watch.drain().unwrap().matters);
        fs::write(folder.path().join("a.pem"), "new").unwrap();
        assert!(watch.drain().unwrap().matters);
    }

    #[tokio::test]
    async fn a_change_read_with_the_last_of_many_events_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem"]))]);
        let (watch, _) = DirectoryWatch::new(&directories).unwrap();
        // Each makes three events.
        for _ in 0..=MOST_EVENTS / 3 {
            fs::write(folder.path().join("log"), "a line").unwrap();
            fs::remove_file(folder.path().join("log")).unwrap();
        }
        fs::write(folder.path().join("a.pem"), "new").unwrap();
        seen(&watch).await;
    }

    #[tokio::test]
    async fn a_missing_directory_is_returned() {
        let absent = PathBuf::from("/nowhere/at/all");
        let (_, blind) = DirectoryWatch::new(&BTreeMap::from([(absent.clone(), WatchedFiles::All)])).unwrap();
        assert_eq!(blind, [absent]);
    }

    #[tokio::test]
    async fn two_paths_of_one_directory_share_a_watch() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        let directories = BTreeMap::from([(real.clone(), named(&["a"])), (link.clone(), named(&["b"]))]);
        let (watch, _) = DirectoryWatch::new(&directories).unwrap();
        for name in ["a", "b"] {
            fs::write(real.join(name), "x").unwrap();
            seen(&watch).await;
        }
    }
}
