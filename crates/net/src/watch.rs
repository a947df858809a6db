//! Watching directories for changes of the files in them (inotify).
//!
//! Directories are watched and not files: a file that is renamed over another, or a symbolic link that is
//! switched, is a new file, of which a watch of the old one would say nothing.

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

/// The files of a directory whose changes matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// All of them.
    All,
    /// Those of these names.
    Named(HashSet<OsString>),
}

impl Files {
    /// Adds the file of this name.
    pub fn add(&mut self, name: &OsStr) {
        if let Files::Named(names) = self {
            names.insert(name.to_owned());
        }
    }

    fn merge(&mut self, other: &Files) {
        match (&mut *self, other) {
            (Files::Named(names), Files::Named(more)) => names.extend(more.iter().cloned()),
            _ => *self = Files::All,
        }
    }

    fn has(&self, name: &OsStr) -> bool {
        match self {
            Files::All => true,
            Files::Named(names) => names.contains(name),
        }
    }
}

/// Directories that are watched.
#[derive(Debug)]
pub struct Watch {
    inotify: AsyncFd<OwnedFd>,
    /// By the kernel's number of the watch.
    watched: HashMap<i32, Files>,
}

impl Watch {
    /// Watches `directories` from now on; must be called within a tokio runtime. Those that cannot be watched, or
    /// whose file system does not tell of what other machines change, come back.
    ///
    /// # Errors
    /// The kernel has no inotify, or no descriptor for it.
    pub fn new(directories: &BTreeMap<PathBuf, Files>) -> io::Result<(Self, Vec<PathBuf>)> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut watched: HashMap<i32, Files> = HashMap::new();
        let mut blind = Vec::new();
        for (directory, files) in directories {
            match inotify::add_watch(&inotify, directory, EVENTS) {
                // Two paths of one directory have one watch.
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
        Ok((Self { inotify: crate::socket::watch(inotify, Interest::READABLE)?, watched }, blind))
    }

    /// Waits until a file has changed that matters. May be dropped and called again without losing a change.
    ///
    /// # Errors
    /// What the kernel says; this watch is of no more use then.
    pub async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let drained = self.drain()?;
            if drained.is_empty {
                // Not before: the kernel says only once that there is something to read.
                ready.clear_ready();
            }
            if drained.matters {
                return Ok(());
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }

    /// Whether a file has changed that matters since the last change that [`Watch::changed`] told of. It does not wait. A
    /// watch that is of no use, and more events than are read at a time, are taken for a change.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.drain().map_or(true, |drained| drained.matters || !drained.is_empty)
    }

    /// Reads events, as many as are read at a time.
    fn drain(&self) -> io::Result<Drained> {
        let mut buffer = [MaybeUninit::uninit(); ROOM];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut drained = Drained { matters: false, is_empty: false };
        // Bounded, as another process could make changes without end. What was read into the buffer is looked at all the
        // same: the kernel gives it once.
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
                        // The directory itself, or events that were lost.
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

/// What was read.
struct Drained {
    /// Whether a change matters.
    matters: bool,
    /// Whether there is nothing left to read.
    is_empty: bool,
}

/// What may give a file another content. Not each write: only when the writer closes the file is it whole.
const EVENTS: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Room for a few dozen events; one has at most 272 bytes.
const ROOM: usize = 4096;

/// The most events that are read at a time.
const MOST_EVENTS: usize = 10_000;

/// Whether files may change without this kernel: the file systems of networks, and those of user space.
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
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Longer than any scheduling delay: only a change that is not seen waits so long.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn named(names: &[&str]) -> Files {
        Files::Named(names.iter().map(Into::into).collect())
    }

    async fn seen(watch: &Watch) {
        timeout(PATIENCE, watch.changed()).await.expect("the change is seen").unwrap();
        while watch.drain().unwrap().matters {}
    }

    #[tokio::test]
    async fn a_change_behind_many_that_do_not_matter_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem"]))]);
        let (watch, _) = Watch::new(&directories).unwrap();
        // Two events each: more than are read at a time, and fewer than the kernel keeps.
        for number in 0..MOST_EVENTS * 3 / 4 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        fs::write(folder.path().join("a.pem"), "").unwrap();
        seen(&watch).await;
    }

    #[tokio::test]
    async fn whatever_gives_a_file_another_content_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.pem"), "old").unwrap();
        std::os::unix::fs::symlink("a.pem", at("link")).unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem", "link"]))]);
        let (watch, blind) = Watch::new(&directories).unwrap();
        assert_eq!(blind, Vec::<PathBuf>::new());
        // Written in place.
        fs::write(at("a.pem"), "new").unwrap();
        seen(&watch).await;
        // Renamed over.
        fs::write(at("b.pem"), "newer").unwrap();
        fs::rename(at("b.pem"), at("a.pem")).unwrap();
        seen(&watch).await;
        // A link that is switched.
        std::os::unix::fs::symlink("c.pem", at("new-link")).unwrap();
        fs::rename(at("new-link"), at("link")).unwrap();
        seen(&watch).await;
        fs::remove_file(at("a.pem")).unwrap();
        seen(&watch).await;
    }

    #[tokio::test]
    async fn other_files_wake_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem"]))]);
        let (watch, _) = Watch::new(&directories).unwrap();
        fs::write(folder.path().join("log"), "a line").unwrap();
        assert!(!watch.drain().unwrap().matters);
        fs::write(folder.path().join("a.pem"), "new").unwrap();
        assert!(watch.drain().unwrap().matters);
    }

    #[tokio::test]
    async fn a_change_is_seen_that_was_read_with_the_last_of_many() {
        let folder = tempfile::tempdir().unwrap();
        let directories = BTreeMap::from([(folder.path().to_owned(), named(&["a.pem"]))]);
        let (watch, _) = Watch::new(&directories).unwrap();
        // Each makes three events.
        for _ in 0..=MOST_EVENTS / 3 {
            fs::write(folder.path().join("log"), "a line").unwrap();
            fs::remove_file(folder.path().join("log")).unwrap();
        }
        fs::write(folder.path().join("a.pem"), "new").unwrap();
        seen(&watch).await;
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_comes_back() {
        let absent = PathBuf::from("/nowhere/at/all");
        let (_, blind) = Watch::new(&BTreeMap::from([(absent.clone(), Files::All)])).unwrap();
        assert_eq!(blind, [absent]);
    }

    #[tokio::test]
    async fn two_paths_of_one_directory_are_both_heard() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        let directories = BTreeMap::from([(real.clone(), named(&["a"])), (link.clone(), named(&["b"]))]);
        let (watch, _) = Watch::new(&directories).unwrap();
        for name in ["a", "b"] {
            fs::write(real.join(name), "x").unwrap();
            seen(&watch).await;
        }
    }
}
