//! Following a log that grows: neither losing nor doubling a line, whatever happens to the file or to this process.
//!
//! Every batch is committed together with how far its file was read: which file (device and inode, and what it says
//! at its beginning and before the position) and how many of its bytes are whole lines that are in the store. After a
//! kill the next start continues there, also if the file was renamed, copied or compressed meanwhile.
//!
//! A file that was renamed is kept open until the log has been rotated again: servers write to it for as long as they
//! have it open. What the log was while nobody looked is found by its name, unless the store knows that it is
//! something else.
//!
//! What cannot be known is reported as a [`Gap`](crate::ingest::Gap): a file that was deleted, or truncated without a
//! copy, before its end could be seen; or more copies than can be found, made while nobody looked. What a server writes
//! between the copy and the truncation is lost for every reader.

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
use crate::ingest::identity::{self, Beginning, read_at};
use crate::ingest::{Drained, Ingest, Mark, Sink};
use crate::store::files::{FileRecord, FileState};

use known::Known;
use rotation::{Beside, Past};
use tail::{FileId, Filled, Tail};
use watch::{LOOK_RARELY, Watch, Woken};

/// Where to begin with a log that the store knows nothing of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With its first line.
    #[default]
    Beginning,
    /// With what is written from now on.
    End,
}

/// Follows a log until it is stopped. The file need not exist yet.
///
/// A line that comes after a pause is stored at once, one of many within ten seconds; when none come, nothing runs.
///
/// # Errors
/// If the log cannot be read, or the sink fails for good. What is committed by then is consistent: follow again to
/// continue.
pub fn follow<S: Sink>(ingest: &mut Ingest<S>, path: &Path, start: Start) -> Result<(), Error> {
    attend(ingest, path, start, Until::Stopped).map(drop)
}

/// Whether something of a log was in the store before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing was. If no line was understood now either, nothing is remembered of it.
    Never,
    /// Something was.
    Before,
}

/// Reads what is new in a log since it was read last, and in what was the log meanwhile, and ends.
///
/// # Errors
/// As [`follow`].
pub fn resume<S: Sink>(ingest: &mut Ingest<S>, path: &Path, start: Start) -> Result<Seen, Error> {
    attend(ingest, path, start, Until::Read)
}

/// How long a log is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Stopped,
    Read,
}

fn attend<S: Sink>(ingest: &mut Ingest<S>, path: &Path, start: Start, until: Until) -> Result<Seen, Error> {
    let stop = ingest.stop().clone();
    let mut follower = Follower::new(ingest, path)?;
    // Nothing would be known of a log that made no sense: see `commit`.
    if until == Until::Read && !follower.ingest.sink().files(&follower.source)?.is_empty() {
        follower.ingest.go_on();
    }
    let outcome = follower.resume(start).and_then(|()| match until {
        Until::Stopped => follower.run(),
        Until::Read => follower.run_once(),
    });
    match outcome {
        Ok(()) => Ok(follower.seen),
        // What the store has not got is read again from the last position on.
        Err(Failure::Sink(error)) if error.is_passing() && stop.is_requested() => Ok(Seen::Before),
        Err(Failure::Sink(error)) => Err(error),
        Err(Failure::Read(error)) => Err(Error::Io(path.display().to_string(), error)),
    }
}

/// What ends the following.
enum Failure {
    Read(io::Error),
    Sink(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Sink(error)
    }
}

struct Follower<'i, S> {
    ingest: &'i mut Ingest<S>,
    path: PathBuf,
    /// The name of the source in the store.
    source: String,
    watch: Watch,
    known: Known,
    seen: Seen,
    /// Whether to remember nothing before a line has parsed.
    must_understand: bool,
    /// What the log's name meant when it was looked up last.
    log: Option<Tail>,
    /// What it meant before, the oldest first: servers may still write there.
    older: VecDeque<Tail>,
    /// Where a file beside the log cannot be read yet: how old such files may be.
    unready: Option<SystemTime>,
    /// Whether names have changed since the files beside the log were looked at, and which there were.
    renamed: bool,
    beside: Vec<Beside>,
    /// How many copies were made and not found; below zero, how many were found that the kernel has not told of yet.
    unfound: isize,
    /// For how long a file must be quiet to be done with after another rotation.
    quiet: Duration,
    /// When something was read last.
    read: Option<Instant>,
    /// When the log was rotated last, or began to be.
    rotation: Option<Instant>,
}

impl<'i, S: Sink> Follower<'i, S> {
    fn new(ingest: &'i mut Ingest<S>, path: &Path) -> Result<Self, Error> {
        let name = |error| Error::Io(path.display().to_string(), error);
        let path = std::path::absolute(path).map_err(name)?;
        let source = path.display().to_string();
        let watch = Watch::new(&path);
        Ok(Self {
            ingest,
            path,
            source,
            watch,
            known: Known::default(),
            seen: Seen::Before,
            must_understand: false,
            log: None,
            older: VecDeque::new(),
            unready: None,
            renamed: false,
            beside: Vec::new(),
            unfound: 0,
            quiet: QUIET,
            read: None,
            rotation: None,
        })
    }

    /// Finds the places where the last run ended.
    fn resume(&mut self, start: Start) -> Result<(), Failure> {
        self.known = Known::new(self.ingest.sink().files(&self.source)?);
        if self.known.is_empty() {
            self.note_older()?;
        }
        if self.known.newest().is_none() {
            self.seen = Seen::Never;
            if let (Start::End, Some(file)) = (start, self.open()?) {
                let record = self.new_record(&file)?;
                self.begin(Tail::at_end(file, record)?)?;
            }
            return Ok(());
        }
        self.find_log()?;
        self.find_unfinished()?;
        let found = self.find_unknown()?;
        self.forget_empty(found)
    }

    fn run(&mut self) -> Result<(), Failure> {
        self.note_beside()?;
        while !self.ingest.stop().is_requested() {
            let begun = Instant::now();
            self.pass()?;
            let pace = (begun.elapsed() * REST).clamp(LEAST_REST, MOST_REST);
            let limit = if self.is_waiting() { LOOK_AGAIN } else { LOOK_RARELY };
            let woken = match self.watch.wait(self.ingest.stop(), limit)? {
                // Lines that come one by one are taken together.
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
                    self.renamed = true;
                }
                Woken::Content => {}
                Woken::Stopped => return Ok(()),
            }
        }
        Ok(())
    }

    /// What lies beside the log before anybody waits for changes.
    fn note_beside(&mut self) -> Result<(), Failure> {
        self.beside = rotation::past(&self.path, &self.known)?.iter().map(Past::beside).collect();
        Ok(())
    }

    /// Reads what there is now.
    fn run_once(&mut self) -> Result<(), Failure> {
        self.must_understand = self.seen == Seen::Never;
        loop {
            let before = self.ingest.report().bytes;
            self.pass()?;
            if self.ingest.report().bytes == before || self.ingest.stop().is_requested() {
                return Ok(());
            }
        }
    }

    /// Looks at everything once, and reads what there is.
    fn pass(&mut self) -> Result<(), Failure> {
        let since = std::mem::take(&mut self.renamed).then(|| self.newest());
        for _ in 0..TURNS {
            self.read_older()?;
            if self.read_log()? == Name::Kept && self.replaced()? == Name::Kept {
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
            // Nobody writes to what was found, so that nothing would wake anybody who should read it.
            self.read_older()?;
        }
        Ok(self.ingest.tend()?)
    }

    /// Whether something beside the log is expected to be readable soon.
    fn is_waiting(&self) -> bool {
        self.unready.is_some()
            || self.known.unfinished().len() > self.older.len() + usize::from(self.log.is_some())
    }

    /// When what is known to have been the log last had been written to.
    fn newest(&self) -> SystemTime {
        self.known.newest().map_or(SystemTime::UNIX_EPOCH, |newest| newest.modified)
    }

    /// Has files beside the log looked at next that are not older than this.
    fn look_since(&mut self, since: SystemTime) {
        self.unready = Some(self.unready.map_or(since, |unready| unready.min(since)));
    }

    /// The log by its name, if there is one now.
    fn open(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn new_record(&self, file: &File) -> io::Result<FileRecord> {
        let beginning = Beginning::of_file(file)?;
        Ok(identity::record(self.known.next(), &self.path, &file.metadata()?, &beginning))
    }

    /// From now on this file is read as the log.
    fn begin(&mut self, mut tail: Tail) -> Result<(), Failure> {
        self.ingest.next_source();
        let record = tail.record()?.clone();
        if record.position > 0 {
            self.ingest.begin(&read_at(&tail.file, 0, BEGINNING)?);
        }
        self.log = Some(tail);
        self.watch_files();
        self.commit(&record)
    }

    /// Begins with what the name means now, if anything.
    fn begin_log(&mut self) -> Result<(), Failure> {
        let Some(file) = self.open()? else { return Ok(()) };
        let record = self.new_record(&file)?;
        self.begin(Tail::new(file, record)?)
    }

    fn watch_files(&mut self) {
        self.watch.files(self.older.iter().chain(&self.log).map(|tail| &tail.file));
    }

    fn commit(&mut self, record: &FileRecord) -> Result<(), Failure> {
        let report = self.ingest.report();
        if !self.must_understand || report.accepted > 0 || report.rejected == 0 {
            self.ingest.commit(Some(Mark { source: &self.source, file: record }))?;
        }
        self.known.note(record);
        Ok(())
    }

    /// Continues with the log, if its file is known.
    fn find_log(&mut self) -> Result<(), Failure> {
        let Some(file) = self.open()? else { return Ok(()) };
        let Some(record) = self.known.of(FileId::of(&file.metadata()?)).cloned() else { return Ok(()) };
        // Of a log that was empty nobody can tell whether it has been truncated since.
        let is_new = record.position == 0 && record.start.length == 0;
        if record.state == FileState::Older || is_new {
            return Ok(());
        }
        let mut tail = Tail::new(file, FileRecord { state: FileState::Reading, ..record })?;
        if tail.is_same()? { self.begin(tail) } else { Ok(()) }
    }

    /// Reads to the end of the log, and gives whether its name means the same as before.
    fn read_log(&mut self) -> Result<Name, Failure> {
        let Some(mut tail) = self.log.take() else {
            self.begin_log()?;
            return Ok(if self.log.is_some() { Name::Changed } else { Name::Kept });
        };
        match self.read_tail(&mut tail)? {
            Filled::Changed => {
                self.truncated(&mut tail)?;
                Ok(Name::Changed)
            }
            Filled::Dry | Filled::More(_) => {
                self.log = Some(tail);
                Ok(Name::Kept)
            }
        }
    }

    /// Reads to the present end of a file.
    fn read_tail(&mut self, tail: &mut Tail) -> Result<Filled, Failure> {
        let before = tail.lines.passed();
        let filled = loop {
            while self.ingest.drain(&mut tail.lines)? == Drained::Full {
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

    /// The log is not what it was: its copy is read to the end if there is one, and the file is begun again.
    fn truncated(&mut self, tail: &mut Tail) -> Result<(), Failure> {
        self.rotation = Some(Instant::now());
        let record = tail.record_before().clone();
        let file = tail.file.try_clone()?;
        self.look_since(self.newest());
        self.find(record)?;
        // First, so that a copy of what the log is now is not taken for something else.
        let record = self.new_record(&file)?;
        self.begin(Tail::new(file, record)?)?;
        let found = self.find_unknown()?;
        self.forget_empty(found)
    }

    /// If the name means another file, that is the log from now on.
    fn replaced(&mut self) -> Result<Name, Failure> {
        // The name may be back in a moment: between a rename and a creation there is nothing.
        let Some(file) = self.open()? else { return Ok(Name::Kept) };
        let metadata = file.metadata()?;
        match &mut self.log {
            None => return Ok(Name::Kept),
            Some(log) if FileId::of(&metadata) == log.id => {
                log.confirm(&metadata);
                return Ok(Name::Kept);
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
        self.begin(Tail::new(file, record)?)?;
        Ok(Name::Changed)
    }

    /// Reads what was added to older files, and is done with those to which nothing more is expected.
    fn read_older(&mut self) -> Result<(), Failure> {
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
        let is_done = |older: &VecDeque<Tail>| {
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

    /// Nothing more is expected of a file: its last line needs no line feed.
    fn finish(&mut self, mut tail: Tail) -> Result<(), Failure> {
        if let Some(last) = tail.lines.rest() {
            self.ingest.line(last)?;
        }
        let record = tail.record()?.clone();
        self.commit(&FileRecord { state: FileState::Finished, ..record })
    }
}

/// What the log's name means, in comparison to the last look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Kept,
    Changed,
}

/// How many times as long as it took a pass rests: a hundredth of a percent of one CPU is used, while few lines come.
const REST: u32 = 10_000;
/// The bounds of that.
const LEAST_REST: Duration = Duration::from_secs(1);
const MOST_REST: Duration = Duration::from_secs(10);
/// For so long after a file was renamed or copied every line is looked at soon: the copied log is truncated next.
const ALERT: Duration = Duration::from_secs(60);
const ALERT_REST: Duration = Duration::from_millis(20);
/// So much of a log is looked at again where reading goes on in its middle.
const BEGINNING: usize = 64 << 10;
/// How many rotations are looked after in one pass.
const TURNS: usize = 16;
/// How often to look for what cannot be read yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How many older files are held open: even servers that finish long downloads have closed the oldest by then.
const MOST_OLDER: usize = 4;
/// After another rotation, a file without writes for this long is closed.
const QUIET: Duration = Duration::from_secs(600);
