//! Follows a growing log without losing or duplicating a line, whatever happens to the file or to this
//! process.
//!
//! Every batch is committed together with the position in its file: the identity of the file (device, inode,
//! and digests of its beginning and of the bytes before the position) and the bytes of whole lines that are
//! in the store. After a kill the next start continues there, even if the file was renamed, copied or
//! compressed meanwhile.
//!
//! A renamed file stays open until the log is rotated again, since servers write to it for as long as they
//! have it open. Files that were the log while no process followed it are found by name, unless the store
//! knows that they are something else.
//!
//! Possible loss is reported as a [`Gap`](crate::ingest::Gap): a file that was deleted, or truncated without
//! a copy, before its end was read; or more copies than can be found, made while no process followed. Lines
//! that a server writes between copy and truncation are lost for every reader.

mod known;
mod rotation;
mod search;
mod tail;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::Error;
use crate::ingest::identity::{self, FilePrefix, read_at};
use crate::ingest::{DrainOutcome, EntrySink, LogImport, Mark};
use crate::store::files::{FileRecord, FileState};

use known::KnownFiles;
use rotation::{Beside, Past};
use tail::{FileId, Filled, TailedFile};
use watch::{LOOK_RARELY, LogWatch, Woken};

/// The starting point in a log that the store does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartAt {
    /// The first line of the log.
    #[default]
    Beginning,
    /// The present end of the log.
    End,
}

/// Follows a log until it is stopped. The file need not exist yet.
///
/// A line after a pause is stored at once, frequent lines within ten seconds; without lines nothing runs.
///
/// # Errors
/// The log cannot be read, or the sink fails for good. The committed part is consistent: follow again to
/// continue.
pub fn follow<S: EntrySink>(ingest: &mut LogImport<S>, path: &Path, start: StartAt) -> Result<(), Error> {
    attend(ingest, path, start, Until::Stopped).map(drop)
}

/// States if the store knew a log before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Familiarity {
    /// The store had nothing of it. If no line parsed now either, nothing is remembered.
    Never,
    /// The store had part of it.
    Before,
}

/// Reads what was added to a log, and to its rotated files, since the last time, and returns.
///
/// # Errors
/// Like [`follow`].
pub fn resume<S: EntrySink>(
    ingest: &mut LogImport<S>,
    path: &Path,
    start: StartAt,
) -> Result<Familiarity, Error> {
    attend(ingest, path, start, Until::Read)
}

/// The end of the reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Stopped,
    Read,
}

fn attend<S: EntrySink>(
    ingest: &mut LogImport<S>,
    path: &Path,
    start: StartAt,
    until: Until,
) -> Result<Familiarity, Error> {
    let stop = ingest.stop().clone();
    let mut follower = Follower::new(ingest, path)?;
    // A log without a line that parses leaves no record: see `commit`.
    if until == Until::Read && !follower.ingest.sink().files(&follower.source)?.is_empty() {
        follower.ingest.go_on();
    }
    let outcome = follower.resume(start).and_then(|()| match until {
        Until::Stopped => follower.run(),
        Until::Read => follower.run_once(),
    });
    match outcome {
        Ok(()) => Ok(follower.seen),
        // Uncommitted lines are read again from the last position.
        Err(FollowFailure::Sink(error)) if error.is_passing() && stop.is_requested() => {
            Ok(Familiarity::Before)
        }
        Err(FollowFailure::Sink(error)) => Err(error),
        Err(FollowFailure::Read(error)) => Err(Error::Io(path.display().to_string(), error)),
    }
}

/// The failure that ended the following.
enum FollowFailure {
    Read(io::Error),
    Sink(Error),
}

impl From<io::Error> for FollowFailure {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<Error> for FollowFailure {
    fn from(error: Error) -> Self {
        Self::Sink(error)
    }
}

/// The files beside the log, which a rotation makes.
#[derive(Default)]
struct Neighbours {
    /// The files of the last look.
    listed: Vec<Beside>,
    /// Set if names have changed since that look.
    renamed: bool,
    /// Set if a file cannot be read yet: the oldest modification time to look at.
    unready: Option<SystemTime>,
    /// Copies made and not found; negative for copies found before the kernel reported them.
    unfound: isize,
}

struct Follower<'i, S> {
    ingest: &'i mut LogImport<S>,
    path: PathBuf,
    /// The name of the source in the store.
    source: String,
    watch: LogWatch,
    known: KnownFiles,
    seen: Familiarity,
    /// Set while nothing is remembered because no line has parsed yet.
    must_understand: bool,
    /// The file at the log's path, as of the last look.
    log: Option<TailedFile>,
    /// Earlier files at that path, oldest first: servers may still write to them.
    older: VecDeque<TailedFile>,
    neighbours: Neighbours,
    /// The time without writes after which a rotated file is finished.
    quiet: Duration,
    /// The time of the last successful read.
    read: Option<Instant>,
    /// The time at which the last rotation began.
    rotation: Option<Instant>,
}

impl<'i, S: EntrySink> Follower<'i, S> {
    fn new(ingest: &'i mut LogImport<S>, path: &Path) -> Result<Self, Error> {
        let name = |error| Error::Io(path.display().to_string(), error);
        let path = std::path::absolute(path).map_err(name)?;
        let source = path.display().to_string();
        let watch = LogWatch::new(&path);
        Ok(Self {
            ingest,
            path,
            source,
            watch,
            known: KnownFiles::default(),
            seen: Familiarity::Before,
            must_understand: false,
            log: None,
            older: VecDeque::new(),
            neighbours: Neighbours::default(),
            quiet: QUIET,
            read: None,
            rotation: None,
        })
    }

    /// Restores the positions of the last run.
    fn resume(&mut self, start: StartAt) -> Result<(), FollowFailure> {
        self.known = KnownFiles::new(self.ingest.sink().files(&self.source)?);
        if self.known.is_empty() {
            self.note_older()?;
        }
        if self.known.newest().is_none() {
            self.seen = Familiarity::Never;
            if let (StartAt::End, Some(file)) = (start, self.open()?) {
                let record = self.new_record(&file)?;
                self.begin(TailedFile::at_end(file, record)?)?;
            }
            return Ok(());
        }
        self.find_log()?;
        self.find_unfinished()?;
        let found = self.find_unknown()?;
        self.forget_empty(found)
    }

    fn run(&mut self) -> Result<(), FollowFailure> {
        self.note_beside()?;
        while !self.ingest.stop().is_requested() {
            let begun = Instant::now();
            self.pass()?;
            let pace = (begun.elapsed() * REST).clamp(LEAST_REST, MOST_REST);
            let limit = if self.is_waiting() { LOOK_AGAIN } else { LOOK_RARELY };
            let woken = match self.watch.wait(self.ingest.stop(), limit)? {
                // Gathers lines that arrive one by one.
                Woken::Content => {
                    let is_rotating = self.rotation.is_some_and(|since| since.elapsed() < ALERT);
                    let pace = if is_rotating { ALERT_REST } else { pace };
                    let rest = self.read.map_or(Duration::ZERO, |read| pace.saturating_sub(read.elapsed()));
                    self.watch.wait_for_names(self.ingest.stop(), rest)?
                }
                other => other,
            };
            match woken {
                Woken::Names => {
                    self.rotation = Some(Instant::now());
                    self.neighbours.renamed = true;
                }
                Woken::Content => {}
                Woken::Stopped => return Ok(()),
            }
        }
        Ok(())
    }

    /// Records the files beside the log before waiting for changes.
    fn note_beside(&mut self) -> Result<(), FollowFailure> {
        self.neighbours.listed = rotation::past(&self.path, &self.known)?.iter().map(Past::beside).collect();
        Ok(())
    }

    /// Reads the present content.
    fn run_once(&mut self) -> Result<(), FollowFailure> {
        self.must_understand = self.seen == Familiarity::Never;
        loop {
            let before = self.ingest.report().bytes;
            self.pass()?;
            if self.ingest.report().bytes == before || self.ingest.stop().is_requested() {
                return Ok(());
            }
        }
    }

    /// Checks every file once, and reads what was added.
    fn pass(&mut self) -> Result<(), FollowFailure> {
        let since = std::mem::take(&mut self.neighbours.renamed).then(|| self.newest());
        for _ in 0..TURNS {
            self.read_older()?;
            if self.read_log()? == PathState::Kept && self.replaced()? == PathState::Kept {
                break;
            }
        }
        let open = self.older.len();
        if let Some(since) = since
            && self.log.is_some()
        {
            self.look_beside(since)?;
        }
        if self.is_waiting() {
            self.find_unfinished()?;
            let found = self.find_unknown()?;
            self.forget_empty(found)?;
        }
        if self.older.len() > open {
            // A file found now has no writer, so no event would cause another pass.
            self.read_older()?;
        }
        Ok(self.ingest.tend()?)
    }

    /// Returns `true` if a file beside the log is expected to become readable soon.
    fn is_waiting(&self) -> bool {
        self.neighbours.unready.is_some()
            || self.known.unfinished().len() > self.older.len() + usize::from(self.log.is_some())
    }

    /// The last modification of the newest file known to have been the log.
    fn newest(&self) -> SystemTime {
        self.known.newest().map_or(SystemTime::UNIX_EPOCH, |newest| newest.modified)
    }

    /// Includes files beside the log that are not older than this in the next look.
    fn look_since(&mut self, since: SystemTime) {
        self.neighbours.unready = Some(self.neighbours.unready.map_or(since, |unready| unready.min(since)));
    }

    /// Opens the file at the log's path, if there is one.
    fn open(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new_record(&self, file: &File) -> io::Result<FileRecord> {
        let beginning = FilePrefix::of_file(file)?;
        Ok(identity::record(self.known.next(), &self.path, &file.metadata()?, &beginning))
    }

    /// Reads this file as the log from now on.
    fn begin(&mut self, mut tail: TailedFile) -> Result<(), FollowFailure> {
        self.ingest.next_source();
        let record = tail.record()?.clone();
        if record.position > 0 {
            self.ingest.begin(&read_at(&tail.file, 0, BEGINNING)?);
        }
        self.log = Some(tail);
        self.watch_files();
        self.commit(&record)
    }

    /// Starts with the file at the log's path, if any.
    fn begin_log(&mut self) -> Result<(), FollowFailure> {
        let Some(file) = self.open()? else { return Ok(()) };
        let record = self.new_record(&file)?;
        self.begin(TailedFile::new(file, record)?)
    }

    fn watch_files(&mut self) {
        self.watch.files(self.older.iter().chain(&self.log).map(|tail| &tail.file));
    }

    fn commit(&mut self, record: &FileRecord) -> Result<(), FollowFailure> {
        let report = self.ingest.report();
        if !self.must_understand || report.accepted > 0 || report.rejected == 0 {
            self.ingest.commit(Some(Mark { source: &self.source, file: record }))?;
        }
        self.known.note(record);
        Ok(())
    }

    /// Continues with the log, if its file is known.
    fn find_log(&mut self) -> Result<(), FollowFailure> {
        let Some(file) = self.open()? else { return Ok(()) };
        let Some(record) = self.known.of(FileId::of(&file.metadata()?)).cloned() else { return Ok(()) };
        // After an empty log it is unknown whether it was truncated since.
        let is_new = record.position == 0 && record.start.length == 0;
        if record.state == FileState::Older || is_new {
            return Ok(());
        }
        let mut tail = TailedFile::new(file, FileRecord { state: FileState::Reading, ..record })?;
        if tail.is_same()? { self.begin(tail) } else { Ok(()) }
    }

    /// Reads to the end of the log; returns what its path refers to now.
    fn read_log(&mut self) -> Result<PathState, FollowFailure> {
        let Some(mut tail) = self.log.take() else {
            self.begin_log()?;
            return Ok(if self.log.is_some() { PathState::Changed } else { PathState::Kept });
        };
        match self.read_tail(&mut tail)? {
            Filled::Changed => {
                self.truncated(&mut tail)?;
                Ok(PathState::Changed)
            }
            Filled::Dry | Filled::More(_) => {
                self.log = Some(tail);
                Ok(PathState::Kept)
            }
        }
    }

    /// Reads to the present end of a file.
    fn read_tail(&mut self, tail: &mut TailedFile) -> Result<Filled, FollowFailure> {
        let before = tail.lines.passed();
        let filled = loop {
            while self.ingest.drain(&mut tail.lines)? == DrainOutcome::Full {
                let record = tail.record()?.clone();
                self.commit(&record)?;
            }
            if self.ingest.stop().is_requested() {
                break Filled::Dry;
            }
            match tail.fill()? {
                Filled::More(bytes) => {
                    self.ingest.counts().bytes += bytes;
                    self.ingest.tell_progress(0);
                    self.read = Some(Instant::now());
                }
                filled => break filled,
            }
        };
        if tail.lines.passed() > before {
            let record = match filled {
                Filled::Changed => tail.record_before(),
                Filled::Dry | Filled::More(_) => tail.record()?,
            };
            let record = record.clone();
            self.commit(&record)?;
        }
        Ok(filled)
    }

    /// Handles a truncated log: reads its copy to the end, if there is one, and starts the file anew.
    fn truncated(&mut self, tail: &mut TailedFile) -> Result<(), FollowFailure> {
        self.rotation = Some(Instant::now());
        let record = tail.record_before().clone();
        let file = tail.file.try_clone()?;
        self.look_since(self.newest());
        self.find(record)?;
        // First, so that a copy of the present log is not taken for something else.
        let record = self.new_record(&file)?;
        self.begin(TailedFile::new(file, record)?)?;
        let found = self.find_unknown()?;
        self.forget_empty(found)
    }

    /// Switches to another file at the log's path.
    fn replaced(&mut self) -> Result<PathState, FollowFailure> {
        // Between rename and creation the path is briefly absent.
        let Some(file) = self.open()? else { return Ok(PathState::Kept) };
        let metadata = file.metadata()?;
        match &mut self.log {
            None => return Ok(PathState::Kept),
            Some(log) if FileId::of(&metadata) == log.id => {
                log.confirm(&metadata);
                return Ok(PathState::Kept);
            }
            Some(_) => {}
        }
        self.rotation = Some(Instant::now());
        if let Some(mut tail) = self.log.take() {
            tail.rename();
            let record = tail.record()?.clone();
            self.commit(&record)?;
            self.older.push_back(tail);
        }
        self.find_unknown()?;
        let record = self.new_record(&file)?;
        self.begin(TailedFile::new(file, record)?)?;
        Ok(PathState::Changed)
    }

    /// Reads what was added to rotated files, and closes those that expect nothing more.
    fn read_older(&mut self) -> Result<(), FollowFailure> {
        for _ in 0..self.older.len() {
            let Some(mut tail) = self.older.pop_front() else { break };
            match self.read_tail(&mut tail)? {
                Filled::Changed => {
                    let record = tail.record_before().clone();
                    self.find(record)?;
                }
                Filled::Dry | Filled::More(_) => self.older.push_back(tail),
            }
        }
        let quiet = self.quiet;
        let is_done = |older: &VecDeque<TailedFile>| {
            older.len() > MOST_OLDER
                || (older.len() > 1 && older.front().is_some_and(|tail| tail.quiet() >= quiet))
        };
        while is_done(&self.older) && !self.ingest.stop().is_requested() {
            let Some(tail) = self.older.pop_front() else { break };
            self.finish(tail)?;
            self.watch_files();
        }
        Ok(())
    }

    /// Finishes a file: its last line needs no line feed.
    fn finish(&mut self, mut tail: TailedFile) -> Result<(), FollowFailure> {
        if let Some(last) = tail.lines.rest() {
            self.ingest.line(last)?;
        }
        let record = tail.record()?.clone();
        self.commit(&FileRecord { state: FileState::Finished, ..record })
    }
}

/// The file at the log's path, compared with the last look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathState {
    Kept,
    Changed,
}

/// The pause after a pass as a multiple of its duration: a hundredth of a percent of one CPU at low rates.
const REST: u32 = 10_000;
/// The bounds of the pause.
const LEAST_REST: Duration = Duration::from_secs(1);
const MOST_REST: Duration = Duration::from_secs(10);
/// The time after a rename or copy during which every line is read soon: a copied log is truncated next.
const ALERT: Duration = Duration::from_secs(60);
const ALERT_REST: Duration = Duration::from_millis(20);
/// The bytes before the position that are compared again when reading resumes.
const BEGINNING: usize = 64 << 10;
/// Rotations handled in one pass.
const TURNS: usize = 16;
/// The interval between looks at unreadable files.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Rotated files held open: by then even servers with long downloads have closed the oldest.
const MOST_OLDER: usize = 4;
/// The time without writes after which a rotated file is closed at the next rotation.
const QUIET: Duration = Duration::from_secs(600);
