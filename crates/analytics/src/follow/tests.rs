//! What can happen to a log and to its reader: each line arrives once.

mod copies;
mod deeds;
mod rig;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Follower, StartAt, follow};
use crate::Error;
use crate::entry::LogEntry;
use crate::format::InputFormat;
use crate::ingest::tests::{Memory, ingest, line};
use crate::ingest::{EntrySink, FileRecord, FileState, LogImport, Mark, Rejects, StopSignal};
use crate::sink::StoreSink;
use crate::writer::Options;

use rig::{Rig, late};

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
    assert!(follower.resume(StartAt::End).is_ok());
    rig.lines(2);
    assert!(follower.pass().is_ok());
    rig.store = ingest.finish().0;
    assert_eq!(rig.stored(), [4, 5], "the half line was begun before");
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

impl EntrySink for Telling {
    fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error> {
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
    let stop = StopSignal::new().unwrap();
    let (requested, log) = (stop.clone(), rig.log.clone());
    let (tell, told) = mpsc::channel();
    let following = std::thread::spawn(move || {
        let parser = InputFormat::named("combined").unwrap().parser(0);
        let mut ingest = LogImport::new(parser, Telling(Memory::default(), tell), Rejects::new(), stop);
        follow(&mut ingest, &log, StartAt::Beginning).map(|()| ingest.finish())
    });
    let until = |count: usize| loop {
        // It bounds only how long a failure takes.
        match told.recv_timeout(Duration::from_secs(60)) {
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
        let store = StoreSink::open(&url, &Options::default(), StopSignal::new().unwrap()).unwrap();
        let parser = InputFormat::named("combined").unwrap().parser(0);
        let mut ingest = LogImport::new(parser, store, Rejects::new(), StopSignal::new().unwrap());
        let mut follower = Follower::new(&mut ingest, &rig.log).unwrap();
        follower.quiet = Duration::ZERO;
        assert!(follower.resume(StartAt::Beginning).and_then(|()| follower.pass()).is_ok());
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
