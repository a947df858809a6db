//! A log with its writer and its reader, for the tests of following.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::super::{FollowFailure, Follower, StartAt};
use crate::ingest::tests::{Memory, ingest, line};

/// A folder with a log, its writer, and what has been stored of it.
pub(super) struct Rig {
    pub(super) folder: TempDir,
    pub(super) log: PathBuf,
    pub(super) store: Memory,
    pub(super) gaps: u64,
    pub(super) rejected: u64,
    pub(super) written: u64,
    /// The end of a line of which the beginning has been written.
    pub(super) rest: String,
    pub(super) clock: SystemTime,
}

impl Rig {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("access.log");
        let clock = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        Self {
            folder,
            log,
            store: Memory::default(),
            gaps: 0,
            rejected: 0,
            written: 0,
            rest: String::new(),
            clock,
        }
    }

    /// The writer appends, as all servers do; every write has a time of its own.
    pub(super) fn append(&mut self, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.log).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        self.clock += Duration::from_secs(1);
        file.set_modified(self.clock).unwrap();
    }

    pub(super) fn lines(&mut self, count: u64) {
        let mut text = std::mem::take(&mut self.rest);
        for number in self.written..self.written + count {
            text += &line(number);
        }
        self.written += count;
        self.append(&text);
    }

    pub(super) fn half_a_line(&mut self) {
        if self.rest.is_empty() {
            let line = line(self.written);
            self.written += 1;
            let (now, later) = line.split_at(20);
            self.rest = later.to_owned();
            self.append(now);
        } else {
            self.lines(0);
        }
    }

    pub(super) fn past(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("access.log.{number}"))
    }

    /// Whether this file is there, and no other of the past was written to later.
    pub(super) fn is_youngest(&self, number: u64) -> bool {
        let modified = |number| fs::metadata(self.past(number)).and_then(|found| found.modified()).ok();
        modified(number).is_some_and(|this| (1..20).filter_map(modified).all(|other| other <= this))
    }

    /// Makes room for `access.log.1`.
    pub(super) fn shift(&self) {
        for number in (1..20).rev() {
            for end in ["", ".gz"] {
                let from = self.folder.path().join(format!("access.log.{number}{end}"));
                let to = self.folder.path().join(format!("access.log.{}{end}", number + 1));
                if from.exists() {
                    fs::rename(from, to).unwrap();
                }
            }
        }
    }

    pub(super) fn rename(&mut self) {
        if !self.rest.is_empty() {
            self.lines(0);
        }
        if self.log.exists() {
            self.shift();
            fs::rename(&self.log, self.past(1)).unwrap();
        }
    }

    pub(super) fn copy_and_truncate(&mut self) {
        if !self.rest.is_empty() {
            self.lines(0);
        }
        if self.log.exists() {
            self.shift();
            fs::copy(&self.log, self.past(1)).unwrap();
            self.clock += Duration::from_secs(1);
            File::options().append(true).open(self.past(1)).unwrap().set_modified(self.clock).unwrap();
            let log = File::options().write(true).truncate(true).open(&self.log).unwrap();
            self.clock += Duration::from_secs(1);
            log.set_modified(self.clock).unwrap();
        }
    }

    /// As `gzip` does: the time is kept, the inode is not.
    pub(super) fn compress(&self, number: u64) {
        let path = self.past(number);
        if !path.exists() {
            return;
        }
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&fs::read(&path).unwrap()).unwrap();
        let to = path.with_extension(format!("{number}.gz"));
        fs::write(&to, encoder.finish().unwrap()).unwrap();
        File::options().append(true).open(&to).unwrap().set_modified(modified).unwrap();
        fs::remove_file(path).unwrap();
    }

    /// Starts a reader, lets it look so many times, and kills it. `false` if its store failed.
    pub(super) fn read(&mut self, passes: usize) -> bool {
        let mut ingest = ingest(std::mem::take(&mut self.store));
        let mut follower = Follower::new(&mut ingest, &self.log).unwrap();
        follower.quiet = Duration::ZERO;
        let mut run = || {
            follower.resume(StartAt::Beginning)?;
            (0..passes).try_for_each(|_| follower.pass())
        };
        let outcome: Result<(), FollowFailure> = run();
        let (store, report, _) = ingest.finish();
        self.store = Memory { pending: Vec::new(), commits: 0, fails_at: None, ..store };
        self.gaps += report.gaps;
        self.rejected += report.rejected;
        match outcome {
            Ok(()) => true,
            Err(FollowFailure::Sink(_)) => false,
            Err(FollowFailure::Read(error)) => panic!("{error}"),
        }
    }

    /// The numbers of the lines that are stored, in order.
    pub(super) fn stored(&self) -> Vec<u64> {
        self.store.committed.iter().map(|(_, _, number)| *number).collect()
    }

    /// The same, in any order: what is written to older files comes late.
    pub(super) fn assert_sorted(&self) {
        let mut stored = self.stored();
        stored.sort_unstable();
        assert_eq!(stored, (0..self.written).collect::<Vec<_>>());
        assert_eq!((self.gaps, self.rejected), (0, 0));
    }

    /// How many lines are stored more than once, and how many not at all.
    pub(super) fn doubled_and_lost(&self) -> (usize, u64) {
        let stored = self.stored();
        let once: std::collections::BTreeSet<u64> = stored.iter().copied().collect();
        (stored.len() - once.len(), self.written - once.len() as u64)
    }

    pub(super) fn assert_complete(&self) {
        assert_eq!(self.stored(), (0..self.written).collect::<Vec<_>>());
        assert_eq!((self.gaps, self.rejected), (0, 0));
    }
}

/// Appends to a file that is not the log any more.
pub(super) fn late(rig: &mut Rig, path: &Path, count: u64) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    for number in rig.written..rig.written + count {
        file.write_all(line(number).as_bytes()).unwrap();
    }
    rig.written += count;
    rig.clock += Duration::from_secs(1);
    file.set_modified(rig.clock).unwrap();
}
