//! What is kept, for how long, and how much of it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use offramp_net::file::{self, Wait};
use tempfile::TempDir;

use super::*;
use crate::snapshot::http::ClosedPaths;

fn files(root: &Path) -> Arc<Files> {
    Arc::new(Files {
        root: root.into(),
        closed: ClosedPaths::default(),
        strip: 0,
        index: Vec::new(),
        tries: Vec::new(),
        fallback: None,
        listing: false,
        precompressed: false,
        hidden: false,
        cache_control: Vec::new(),
    })
}

struct Rig {
    folder: TempDir,
    root: OwnedFd,
    files: Arc<Files>,
    cache: Cache,
}

/// After everything that a test writes, in seconds since 1970.
const LATER: i64 = 1 << 40;
const PLENTY: usize = 1 << 30;

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = file::root(folder.path(), Wait::Allowed).unwrap();
        let files = files(folder.path());
        Self { folder, root, files, cache: Cache::default() }
    }

    fn write(&self, name: &str, size: usize) {
        fs::write(self.folder.path().join(name), vec![b'x'; size]).unwrap();
    }

    fn ready(&self, name: &str, now: i64) -> Option<ReadyFile> {
        let file = file::open(&self.root, name, Wait::Allowed).unwrap();
        let mut ready = ReadyFile::new(&self.files, file, name.to_owned(), None);
        ready.settle(now).then_some(ready)
    }

    fn keep(&mut self, name: &str, now: u64, most: usize) {
        let ready = Rc::new(self.ready(name, LATER).unwrap());
        let files = Arc::clone(&self.files);
        self.cache.keep(asked(&files, name), &ready, now, most);
    }

    fn get(&mut self, name: &str, now: u64) -> CacheState {
        let files = Arc::clone(&self.files);
        self.cache.get(asked(&files, name), now)
    }

    fn is_kept(&mut self, name: &str) -> bool {
        !matches!(self.get(name, 0), CacheState::Unknown)
    }
}

fn asked<'a>(files: &'a Arc<Files>, path: &'a str) -> FileQuery<'a> {
    FileQuery { files, wishes: Wishes::default(), path }
}

#[test]
fn a_small_file_is_kept_in_memory_and_looked_up_after_a_second() {
    let mut rig = Rig::new();
    rig.write("a", 10);
    rig.write("empty", 0);
    rig.write("large", 64 * 1024 + 1);
    for name in ["a", "empty", "large"] {
        rig.keep(name, 5000, PLENTY);
        assert!(matches!(rig.get(name, 5000 + FRESH - 1), CacheState::Fresh(_)), "{name}");
        let CacheState::Old(ready) = rig.get(name, 5000 + FRESH) else { panic!("{name} is not looked up") };
        assert_eq!(matches!(ready.content, ContentLocation::Memory(_)), name != "large", "{name}");
        // It is the same file: it is good for another second.
        let files = Arc::clone(&rig.files);
        rig.cache.keep(asked(&files, name), &ready, 7000, PLENTY);
        assert!(matches!(rig.get(name, 7000 + FRESH - 1), CacheState::Fresh(_)), "{name}");
    }
    // Another route, path or wish is another thing.
    let other = files(rig.folder.path());
    assert!(matches!(rig.cache.get(asked(&other, "a"), 7000), CacheState::Unknown));
    assert!(matches!(rig.get("b", 7000), CacheState::Unknown));
    let fields = [("accept-encoding", "gzip")].into_iter().collect();
    let files = Arc::clone(&rig.files);
    let wishing = FileQuery { wishes: Wishes::of(&fields), ..asked(&files, "a") };
    assert!(matches!(rig.cache.get(wishing, 7000), CacheState::Unknown));
}

#[test]
fn what_changes_is_another_file() {
    let rig = Rig::new();
    rig.write("small", 10);
    rig.write("large", 100_000);
    for name in ["small", "large"] {
        let ready = rig.ready(name, LATER).unwrap();
        let again = || file::open(&rig.root, name, Wait::Allowed).unwrap();
        assert!(ready.is(&again(), name, None) && ready.is_as_said());
        assert!(!ready.is(&again(), "other", None));
        // In its place.
        rig.write(name, 11);
        assert!(!ready.is(&again(), name, None));
        // What is in memory is as it was said; what is read would not be.
        assert_eq!(ready.is_as_said(), name == "small");
        // By another file.
        let ready = rig.ready(name, LATER).unwrap();
        rig.write("new", 11);
        fs::rename(rig.folder.path().join("new"), rig.folder.path().join(name)).unwrap();
        assert!(!ready.is(&again(), name, None));
    }
}

#[test]
fn what_changed_a_moment_ago_is_not_kept() {
    let rig = Rig::new();
    rig.write("a", 10);
    let file = file::open(&rig.root, "a", Wait::Allowed).unwrap();
    let changed = file.stamp.changed.0;
    assert!(rig.ready("a", changed).is_none() && rig.ready("a", changed + 1).is_none());
    assert!(rig.ready("a", changed + 2).is_some());
    // A clock that is behind is no reason to keep it.
    assert!(rig.ready("a", 0).is_none() && rig.ready("a", i64::MIN).is_none());
}

#[test]
fn memory_has_a_bound_and_what_is_used_stays() {
    let mut rig = Rig::new();
    for at in 0..100 {
        rig.write(&format!("{at}"), 1000);
    }
    const MOST: usize = 40_000;
    for at in 0..100 {
        rig.keep(&format!("{at}"), 0, MOST);
        assert!(rig.cache.small.held <= MOST);
        // This one is always in use.
        assert!(rig.is_kept("0"), "{at}");
    }
    let kept = rig.cache.small.slots.len();
    assert!((10..40).contains(&kept) && rig.is_kept("99") && !rig.is_kept("50"), "{kept}");
    let held: usize = rig.cache.small.slots.iter().map(|slot| slot.cost).sum();
    assert_eq!(held, rig.cache.small.held);
    // A reload may make the bound smaller, even so small that nothing fits.
    rig.keep("1", 0, 5000);
    assert!(rig.cache.small.held <= 5000);
    rig.keep("2", 0, 10);
    assert_eq!((rig.cache.small.held, rig.cache.small.slots.len()), (0, 0));
}

#[test]
fn descriptors_have_a_bound_of_their_own() {
    let mut rig = Rig::new();
    rig.write("small", 10);
    rig.write("large", 70_000);
    rig.keep("small", 0, PLENTY);
    let large = Rc::new(rig.ready("large", LATER).unwrap());
    let files = Arc::clone(&rig.files);
    for at in 0..2 * MOST_OPEN {
        rig.cache.keep(asked(&files, &format!("large{at}")), &large, 0, PLENTY);
    }
    assert_eq!(rig.cache.open.slots.len(), MOST_OPEN);
    assert!(rig.is_kept("small"));
}

#[test]
fn what_nobody_asks_for_goes() {
    let mut rig = Rig::new();
    rig.write("a", 10);
    rig.write("large", 70_000);
    rig.keep("a", 0, PLENTY);
    rig.keep("large", 30_000, PLENTY);
    assert!(rig.cache.sweep(KEPT - 1) && rig.is_kept("a"));
    assert!(rig.cache.sweep(KEPT) && !rig.is_kept("a") && rig.is_kept("large"));
    assert!(!rig.cache.sweep(30_000 + KEPT));
    assert_eq!((rig.cache.small.held, rig.cache.open.held), (0, 0));
}

#[test]
fn a_file_that_takes_the_place_of_another_is_kept_instead() {
    let mut rig = Rig::new();
    rig.write("a", 10);
    rig.keep("a", 0, PLENTY);
    rig.write("a", 70_000);
    rig.keep("a", 0, PLENTY);
    assert_eq!((rig.cache.small.slots.len(), rig.cache.open.slots.len()), (0, 1));
    rig.write("a", 20);
    rig.keep("a", 0, PLENTY);
    assert_eq!((rig.cache.small.slots.len(), rig.cache.open.slots.len()), (1, 0));
    let CacheState::Fresh(ready) = rig.get("a", 0) else { panic!("it is not kept") };
    assert_eq!(ready.size(), 20);
}
