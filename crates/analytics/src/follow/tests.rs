//! What can happen to a log and to its reader, in every order: each line arrives once.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::{collection, prop_assert_eq};
use tempfile::TempDir;

use super::{Failure, Follower, Start, follow};
use crate::Error;
use crate::entry::Entry;
use crate::format::LogFormat;
use crate::ingest::tests::{Memory, ingest, line};
use crate::ingest::{FileRecord, FileState, Ingest, Mark, Rejects, Sink, Stop};
use crate::sink::StoreSink;
use crate::writer::Options;

/// A folder with a log, its writer, and what has been stored of it.
struct Rig {
    folder: TempDir,
    log: PathBuf,
    store: Memory,
    gaps: u64,
    rejected: u64,
    written: u64,
    /// The end of a line of which the beginning has been written.
    rest: String,
    clock: SystemTime,
}

impl Rig {
    fn new() -> Self {
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
    fn append(&mut self, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(&self.log).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        self.clock += Duration::from_secs(1);
        file.set_modified(self.clock).unwrap();
    }

    fn lines(&mut self, count: u64) {
        let mut text = std::mem::take(&mut self.rest);
        for number in self.written..self.written + count {
            text += &line(number);
        }
        self.written += count;
        self.append(&text);
    }

    fn half_a_line(&mut self) {
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

    fn past(&self, number: u64) -> PathBuf {
        self.folder.path().join(format!("access.log.{number}"))
    }

    /// Makes room for `access.log.1`.
    fn shift(&self) {
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

    fn rename(&mut self) {
        if !self.rest.is_empty() {
            self.lines(0);
        }
        if self.log.exists() {
            self.shift();
            fs::rename(&self.log, self.past(1)).unwrap();
        }
    }

    fn copy_and_truncate(&mut self) {
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
    fn compress(&self, number: u64) {
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
    fn read(&mut self, passes: usize) -> bool {
        let mut ingest = ingest(std::mem::take(&mut self.store));
        let mut follower = Follower::new(&mut ingest, &self.log).unwrap();
        follower.quiet = Duration::ZERO;
        let mut run = || {
            follower.resume(Start::Beginning)?;
            (0..passes).try_for_each(|_| follower.pass())
        };
        let outcome: Result<(), Failure> = run();
        let (store, report, _) = ingest.finish();
        self.store = Memory { pending: Vec::new(), commits: 0, fails_at: None, ..store };
        self.gaps += report.gaps;
        self.rejected += report.rejected;
        match outcome {
            Ok(()) => true,
            Err(Failure::Sink(_)) => false,
            Err(Failure::Read(error)) => panic!("{error}"),
        }
    }

    /// The numbers of the lines that are stored, in order.
    fn stored(&self) -> Vec<u64> {
        self.store.committed.iter().map(|(_, _, number)| *number).collect()
    }

    /// The same, in any order: what is written to older files comes late.
    fn assert_sorted(&self) {
        let mut stored = self.stored();
        stored.sort_unstable();
        assert_eq!(stored, (0..self.written).collect::<Vec<_>>());
        assert_eq!((self.gaps, self.rejected), (0, 0));
    }

    fn assert_complete(&self) {
        assert_eq!(self.stored(), (0..self.written).collect::<Vec<_>>());
        assert_eq!((self.gaps, self.rejected), (0, 0));
    }
}

#[test]
fn continues_where_it_was_killed() {
    for kill in 1..8 {
        let mut rig = Rig::new();
        rig.lines(25_000);
        rig.half_a_line();
        rig.store.fails_at = Some(kill);
        let survived = rig.read(2);
        assert_eq!(survived, kill > 4, "there are four commits: the beginning, two batches, the end");
        rig.lines(10);
        assert!(rig.read(1));
        rig.assert_complete();
    }
}

#[test]
fn an_incomplete_line_waits_for_its_end() {
    let mut rig = Rig::new();
    rig.lines(3);
    rig.half_a_line();
    assert!(rig.read(2));
    assert_eq!(rig.stored(), [0, 1, 2]);
    rig.lines(1);
    assert!(rig.read(1));
    rig.assert_complete();
}

#[test]
fn finishes_the_rotated_file_before_the_new_one() {
    let mut rig = Rig::new();
    rig.lines(5);
    assert!(rig.read(1));
    rig.lines(5);
    rig.rename();
    rig.lines(5);
    rig.rename();
    rig.lines(5);
    assert!(rig.read(3));
    rig.assert_complete();
}

#[test]
fn a_rename_without_a_new_file_is_only_a_rename() {
    let mut rig = Rig::new();
    rig.lines(5);
    assert!(rig.read(1));
    rig.rename();
    let mut old = OpenOptions::new().append(true).open(rig.past(1)).unwrap();
    old.write_all(line(5).as_bytes()).unwrap();
    rig.written += 1;
    assert!(rig.read(2));
    rig.assert_complete();
    rig.lines(4);
    assert!(rig.read(3));
    rig.assert_complete();
}

#[test]
fn the_last_line_of_a_finished_file_needs_no_line_feed() {
    let mut rig = Rig::new();
    rig.append(&(line(0) + line(1).trim_end()));
    rig.written = 2;
    assert!(rig.read(1));
    assert_eq!(rig.stored(), [0]);
    // It is finished when the log has been rotated again.
    rig.rename();
    rig.lines(2);
    rig.rename();
    rig.lines(1);
    assert!(rig.read(2));
    rig.assert_sorted();
}

#[test]
fn a_truncated_file_is_finished_in_its_copy() {
    let mut rig = Rig::new();
    rig.lines(20);
    assert!(rig.read(1));
    rig.lines(5);
    rig.copy_and_truncate();
    // It has grown beyond what had been read of the old one.
    rig.lines(100);
    rig.compress(1);
    assert!(rig.read(2));
    rig.assert_complete();
}

#[test]
fn a_file_that_vanished_is_a_gap() {
    let mut rig = Rig::new();
    rig.lines(5);
    assert!(rig.read(1));
    fs::remove_file(&rig.log).unwrap();
    assert!(rig.read(1), "nothing to read is no fault");
    rig.lines(5);
    assert!(rig.read(2));
    assert_eq!(rig.stored(), (0..10).collect::<Vec<_>>());
    assert!(rig.gaps > 0);
}

#[test]
fn from_the_end_on_leaves_out_what_is_there() {
    let mut rig = Rig::new();
    rig.lines(3);
    rig.half_a_line();
    let mut ingest = ingest(Memory::default());
    let mut follower = Follower::new(&mut ingest, &rig.log).unwrap();
    assert!(follower.resume(Start::End).is_ok());
    rig.lines(2);
    assert!(follower.pass().is_ok());
    rig.store = ingest.finish().0;
    assert_eq!(rig.stored(), [4, 5], "the half line was begun before");
}

/// Appends to a file that is not the log any more.
fn late(rig: &mut Rig, path: &Path, count: u64) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    for number in rig.written..rig.written + count {
        file.write_all(line(number).as_bytes()).unwrap();
    }
    rig.written += count;
    rig.clock += Duration::from_secs(1);
    file.set_modified(rig.clock).unwrap();
}

#[test]
fn what_is_written_to_the_renamed_file_later_arrives() {
    let mut rig = Rig::new();
    rig.lines(5);
    assert!(rig.read(1));
    rig.rename();
    rig.lines(5);
    assert!(rig.read(3), "the new file is read");
    let past = rig.past(1);
    late(&mut rig, &past, 3);
    assert!(rig.read(2));
    rig.lines(2);
    late(&mut rig, &past, 3);
    // Also what came between the last look and the next rotation.
    rig.rename();
    rig.lines(4);
    assert!(rig.read(3));
    rig.assert_sorted();
}

#[test]
fn a_file_in_the_making_is_not_preferred_to_the_whole_one() {
    for is_read in [true, false] {
        let mut rig = Rig::new();
        rig.lines(100);
        assert!(rig.read(2));
        rig.lines(20_000);
        if is_read {
            assert!(rig.read(1));
        }
        rig.copy_and_truncate();
        // gzip is in the middle of its work.
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&fs::read(rig.past(1)).unwrap()).unwrap();
        let whole = encoder.finish().unwrap();
        let making = rig.folder.path().join("access.log.1.gz");
        fs::write(&making, &whole[..whole.len() / 2]).unwrap();
        rig.lines(5);
        assert!(rig.read(3));
        rig.assert_complete();
        // It ends, and removes what it had been given.
        fs::write(&making, &whole).unwrap();
        fs::remove_file(rig.past(1)).unwrap();
        rig.lines(5);
        assert!(rig.read(3));
        rig.assert_complete();
    }
}

#[test]
fn a_copy_in_the_making_is_waited_for() {
    for (count, is_telling) in [(20_000, true), (20_000, false)] {
        let mut rig = Rig::new();
        rig.lines(100);
        assert!(rig.read(2));
        rig.lines(count);
        let content = fs::read(&rig.log).unwrap();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&content).unwrap();
        let whole = encoder.finish().unwrap();
        // Nothing but the beginning of the archive is there, with the time of now.
        let making = rig.folder.path().join("access.log.1.gz");
        fs::write(&making, &whole[..if is_telling { whole.len() / 2 } else { 12 }]).unwrap();
        File::create(&rig.log).unwrap();
        rig.lines(5);
        assert!(rig.read(3));
        assert_eq!(rig.gaps, 0, "it may yet be whole");
        fs::write(&making, &whole).unwrap();
        assert!(rig.read(3));
        rig.assert_sorted();
    }
}

#[test]
fn other_logs_are_not_the_past() {
    let mut rig = Rig::new();
    rig.lines(5);
    assert!(rig.read(2));
    for name in ["access-2.log", "access.2.log", "access-8080.log", "access-2.log.1"] {
        fs::write(rig.folder.path().join(name), (900..950).map(line).collect::<String>()).unwrap();
    }
    rig.rename();
    rig.lines(5);
    assert!(rig.read(3));
    fs::remove_file(rig.past(1)).unwrap();
    rig.rename();
    rig.lines(5);
    assert!(rig.read(3));
    assert_eq!(rig.stored(), (0..15).collect::<Vec<_>>());
}

#[test]
fn what_lay_there_before_is_not_read_even_if_it_is_touched() {
    let mut rig = Rig::new();
    for (number, name) in ["access.log.3.gz", "access.log.2", "access.log-20261101"].iter().enumerate() {
        let text: String = (900 + number as u64 * 10..910 + number as u64 * 10).map(line).collect();
        fs::write(rig.folder.path().join(name), text).unwrap();
    }
    rig.lines(5);
    assert!(rig.read(2));
    // They are compressed, and touched: other inodes, and younger than the log.
    let old = rig.folder.path().join("access.log.2");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&fs::read(&old).unwrap()).unwrap();
    fs::write(rig.folder.path().join("access.log.2.gz"), encoder.finish().unwrap()).unwrap();
    fs::remove_file(&old).unwrap();
    rig.lines(5);
    rig.rename();
    rig.lines(5);
    assert!(rig.read(3));
    rig.assert_complete();
}

#[test]
fn rotations_that_nobody_saw_are_caught_up_in_every_form() {
    let mut rig = Rig::new();
    rig.lines(10);
    assert!(rig.read(2));
    rig.lines(10);
    // The first by date and Zstandard, the second by number and gzip, the third as it is.
    rig.rename();
    let dated = rig.folder.path().join("access.log-20261122");
    fs::rename(rig.past(1), &dated).unwrap();
    let status = Command::new("zstd").args(["-q", "--rm"]).arg(&dated).status();
    assert!(status.expect("zstd is needed: apt-get install zstd").success());
    rig.lines(10);
    rig.rename();
    rig.compress(1);
    rig.lines(10);
    rig.rename();
    rig.lines(10);
    rig.rename();
    rig.lines(10);
    assert!(rig.read(4));
    rig.assert_sorted();
}

#[test]
fn copies_that_nobody_saw_are_caught_up_and_what_is_gone_is_told() {
    let mut rig = Rig::new();
    rig.lines(10);
    assert!(rig.read(2));
    for _ in 0..6 {
        rig.lines(10);
        rig.copy_and_truncate();
    }
    rig.lines(10);
    assert!(rig.read(3));
    rig.assert_sorted();
    // Now the oldest copies are removed before anybody looked.
    for _ in 0..3 {
        rig.lines(10);
        rig.copy_and_truncate();
    }
    fs::remove_file(rig.past(3)).unwrap();
    rig.lines(10);
    assert!(rig.read(3));
    assert!(rig.gaps > 0, "lines are missing: {}", rig.stored().len());
    let lost = rig.store.files.values().filter(|file| file.state == FileState::Lost).count();
    assert_eq!(lost as u64, rig.gaps, "it is marked");
}

#[test]
fn a_log_that_grew_beyond_the_old_one_with_the_same_beginning_is_another() {
    let mut rig = Rig::new();
    rig.lines(20);
    assert!(rig.read(2));
    // The same first lines, then others, of the same length.
    let text: String = (0..10).chain(30..60).map(line).collect();
    fs::write(&rig.log, text).unwrap();
    assert!(rig.read(2));
    assert_eq!(rig.gaps, 1);
    assert_eq!(rig.stored().len(), 60);
}

/// Tells how much is stored after each commit.
struct Telling(Memory, mpsc::Sender<usize>);

impl Sink for Telling {
    fn add(&mut self, entry: &Entry<'_>) -> Result<(), Error> {
        self.0.add(entry)
    }

    fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
        self.0.commit(mark)?;
        self.1.send(self.0.committed.len()).map_err(|error| Error::Store(error.to_string()))
    }

    fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error> {
        self.0.files(source)
    }

    fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
        self.0.files_with_head(head)
    }
}

#[test]
fn follows_by_itself_through_a_rotation() {
    let mut rig = Rig::new();
    let stop = Stop::new().unwrap();
    let (requested, log) = (stop.clone(), rig.log.clone());
    let (tell, told) = mpsc::channel();
    let following = std::thread::spawn(move || {
        let parser = LogFormat::named("combined").unwrap().parser(0);
        let mut ingest = Ingest::new(parser, Telling(Memory::default(), tell), Rejects::new(), stop);
        follow(&mut ingest, &log, Start::Beginning).map(|()| ingest.finish())
    });
    let until = |count: usize| loop {
        // It bounds only how long a failure takes.
        match told.recv_timeout(Duration::from_secs(30)) {
            Ok(stored) if stored >= count => break,
            Ok(_) => {}
            Err(error) => panic!("{count} lines did not arrive: {error}"),
        }
    };
    rig.lines(10);
    until(10);
    rig.half_a_line();
    rig.lines(10);
    until(21);
    rig.lines(5);
    rig.rename();
    rig.lines(10);
    until(36);
    requested.request();
    let (store, report, _) = following.join().unwrap().unwrap();
    (rig.store, rig.gaps) = (store.0, report.gaps);
    rig.assert_complete();
}

#[test]
fn the_store_keeps_rows_and_position_together() {
    let mut rig = Rig::new();
    let url = format!("sqlite:{}", rig.folder.path().join("access.db").display());
    let run = |rig: &Rig| {
        let store = StoreSink::open(&url, &Options::default(), Stop::new().unwrap()).unwrap();
        let parser = LogFormat::named("combined").unwrap().parser(0);
        let mut ingest = Ingest::new(parser, store, Rejects::new(), Stop::new().unwrap());
        let mut follower = Follower::new(&mut ingest, &rig.log).unwrap();
        follower.quiet = Duration::ZERO;
        assert!(follower.resume(Start::Beginning).and_then(|()| follower.pass()).is_ok());
        assert!(follower.pass().is_ok());
        ingest.finish().1.accepted
    };
    rig.lines(100);
    assert_eq!(run(&rig), 100);
    rig.lines(20);
    rig.rename();
    rig.lines(3);
    assert_eq!(run(&rig), 23);
    assert_eq!(run(&rig), 0);
}

#[derive(Clone, Debug)]
enum Deed {
    Lines(u64),
    Half,
    Rename,
    Late(u64),
    Copy,
    Compress,
    Read(usize),
    Kill(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0u64..50).prop_map(Deed::Lines),
        1 => Just(Deed::Half),
        2 => Just(Deed::Rename),
        1 => (1u64..9).prop_map(Deed::Late),
        1 => Just(Deed::Compress),
        3 => (1usize..4).prop_map(Deed::Read),
        1 => (1usize..4).prop_map(Deed::Kill),
    ];
    collection::vec(deed, 1..25)
}

/// Copies that are truncated, each read at least once in between: what has no telling beginning has no copy either.
fn deeds_with_copies() -> impl Strategy<Value = Vec<Deed>> {
    let round = (1u64..50, 0u64..50, 0usize..4).prop_map(|(before, after, kill)| {
        let read = if kill == 0 { Deed::Read(2) } else { Deed::Kill(kill) };
        vec![Deed::Lines(before), Deed::Read(1), Deed::Lines(after), Deed::Copy, read, Deed::Read(2)]
    });
    collection::vec(round, 1..5).prop_map(|rounds| rounds.concat())
}

fn do_all(deeds: &[Deed]) -> Rig {
    let mut rig = Rig::new();
    for deed in deeds {
        match deed {
            Deed::Lines(count) => rig.lines(*count),
            Deed::Half => rig.half_a_line(),
            Deed::Rename => rig.rename(),
            Deed::Late(count) if rig.past(1).exists() => {
                let path = rig.past(1);
                late(&mut rig, &path, *count);
            }
            Deed::Late(_) => {}
            Deed::Copy => rig.copy_and_truncate(),
            Deed::Compress => rig.compress(1),
            Deed::Read(passes) => assert!(rig.read(*passes)),
            Deed::Kill(commit) => {
                rig.store.fails_at = Some(*commit);
                rig.read(2);
            }
        }
    }
    rig.lines(1);
    for _ in 0..3 {
        assert!(rig.read(3));
    }
    rig
}

proptest! {
    // Every case makes dozens of files.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_line_arrives_once(deeds in deeds()) {
        // A reader that never looked before the first rotation knows nothing of the past.
        let rig = do_all(&[&[Deed::Lines(1), Deed::Read(1)], &deeds[..]].concat());
        let mut stored = rig.stored();
        stored.sort_unstable();
        prop_assert_eq!(stored, (0..rig.written).collect::<Vec<_>>());
        prop_assert_eq!((rig.gaps, rig.rejected), (0, 0));
    }

    #[test]
    fn every_line_arrives_once_through_copies(deeds in deeds_with_copies()) {
        let rig = do_all(&deeds);
        prop_assert_eq!(rig.stored(), (0..rig.written).collect::<Vec<_>>());
        prop_assert_eq!((rig.gaps, rig.rejected), (0, 0));
    }
}
