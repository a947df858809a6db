//! Following a log that grows: neither losing nor doubling a line, whatever happens to the file or to this process.
//!
//! Every batch is committed together with its position: which file (device, inode, and a hash of its first bytes) and
//! how many bytes of it are whole lines that are in the store. After a kill the next start continues there, also if
//! the file has been renamed, copied or compressed meanwhile. An incomplete last line waits for its end.
//!
//! What cannot be known is told as a gap in the report: a file that was deleted, or truncated without a copy, before
//! it had been read. A log that is truncated and written again with the same first bytes looks as if it had grown.

mod position;
mod rotation;
mod tail;
mod watch;

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;
use crate::ingest::{Drained, Ingest, Input, Lines, Mark, Sink, Waited};

use position::{FileId, Fingerprint, Position};
use rotation::Past;
use tail::Tail;
use watch::Watch;

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
    let stop = ingest.stop().clone();
    let mut follower = Follower::new(ingest, path)?;
    match follower.resume(start).and_then(|()| follower.run()) {
        Ok(()) => Ok(()),
        // What the store has not got is read again from the last position on.
        Err(Failure::Sink(error)) if error.is_passing() && stop.is_requested() => Ok(()),
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
    tail: Option<Tail>,
    /// Since when the name means another file.
    replaced: Option<Instant>,
    /// When something was read last.
    read: Option<Instant>,
    /// How long nothing must be written to a file with a successor.
    quiet: Duration,
}

impl<'i, S: Sink> Follower<'i, S> {
    fn new(ingest: &'i mut Ingest<S>, path: &Path) -> Result<Self, Error> {
        let name = |error| Error::Io(path.display().to_string(), error);
        let path = std::path::absolute(path).map_err(name)?;
        let source = path.display().to_string();
        let watch = Watch::new(&path);
        Ok(Self { ingest, path, source, watch, tail: None, replaced: None, read: None, quiet: QUIET })
    }

    /// Finds the place where the last run ended.
    fn resume(&mut self, start: Start) -> Result<(), Failure> {
        let Some(stored) = self.ingest.sink().position(&self.source)? else {
            if let (Start::End, Some(file)) = (start, self.open()?) {
                self.begin(Tail::at_end(file)?)?;
            }
            return Ok(());
        };
        let position = Position::decode(&stored).ok_or_else(|| {
            Error::Store(format!("the position of {} was written by another version of Offramp", self.source))
        })?;
        let log = self.open()?;
        if let Some(file) = log {
            let metadata = file.metadata()?;
            let is_same = FileId::of(&metadata) == position.file && metadata.len() >= position.offset;
            // Of a log that was empty nobody can tell whether it has been truncated since.
            let is_new = position.offset == 0 && position.fingerprint.is_empty();
            if is_same && !is_new && position.fingerprint.matches_file(&file)? {
                return self.begin(Tail::at(file, position.offset)?);
            }
        }
        match rotation::find(&self.path, &position)? {
            // Renamed: it is followed under its new name until it is known to be finished.
            Some(past) if past.id == position.file && !Input::open(&past.path)?.is_compressed() => {
                self.begin(Tail::at(File::open(&past.path)?, position.offset)?)
            }
            Some(past) => {
                self.finish(&past, position.offset)?;
                self.finish_later(&Position { file: past.id, modified: past.modified, ..position })
            }
            None => {
                self.ingest.counts().gaps += u64::from(position.offset > 0);
                self.finish_later(&position)
            }
        }
    }

    fn run(&mut self) -> Result<(), Failure> {
        loop {
            if self.ingest.stop().is_requested() {
                return Ok(());
            }
            self.watch.forget();
            let begun = Instant::now();
            self.pass()?;
            let pace = (begun.elapsed() * REST).clamp(LEAST_REST, MOST_REST);
            let limit = self.replaced.map(|_| LOOK_AT_REPLACED);
            if self.watch.wait(self.ingest.stop(), limit)? == Waited::Stopped {
                return Ok(());
            }
            // Lines that come one by one are taken together.
            let rest = self.read.map_or(Duration::ZERO, |read| pace.saturating_sub(read.elapsed()));
            if !rest.is_zero() {
                self.ingest.stop().wait(None, Some(rest))?;
            }
        }
    }

    /// Looks at everything once, and reads what there is.
    fn pass(&mut self) -> Result<(), Failure> {
        if self.tail.is_none() {
            match self.open()? {
                Some(file) => self.begin(Tail::at(file, 0)?)?,
                None => return Ok(()),
            }
        }
        self.truncated()?;
        self.read_tail()?;
        self.ingest.tend()?;
        self.replaced()
    }

    /// The log by its name, if there is one now.
    fn open(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// From now on this file is read.
    fn begin(&mut self, mut tail: Tail) -> Result<(), Failure> {
        self.watch.file(&tail.file);
        self.replaced = None;
        self.ingest.next_source();
        let position = tail.position()?;
        self.tail = Some(tail);
        self.commit(&position)
    }

    fn commit(&mut self, position: &Position) -> Result<(), Failure> {
        Ok(self.ingest.commit(Some(Mark { source: &self.source, position: &position.encode() }))?)
    }

    /// Reads to the end of the present file.
    fn read_tail(&mut self) -> Result<(), Failure> {
        let Some(mut tail) = self.tail.take() else { return Ok(()) };
        let before = tail.lines.passed();
        loop {
            while self.ingest.drain(&mut tail.lines)? == Drained::Full {
                let position = tail.position()?;
                self.commit(&position)?;
            }
            if self.ingest.stop().is_requested() {
                break;
            }
            let more = tail.lines.fill(&mut &tail.file)?;
            if more == 0 {
                break;
            }
            self.ingest.counts().bytes += more;
            self.read = Some(Instant::now());
        }
        if tail.lines.passed() > before {
            let position = tail.position()?;
            self.commit(&position)?;
        }
        self.tail = Some(tail);
        Ok(())
    }

    /// If the file is not what it was, its copy is finished if there is one, and it is begun again.
    fn truncated(&mut self) -> Result<(), Failure> {
        let Some(tail) = &mut self.tail else { return Ok(()) };
        if !tail.is_truncated()? {
            return Ok(());
        }
        let position = tail.position_before();
        let incomplete = tail.lines.waiting() > 0;
        let file = tail.file.try_clone()?;
        match rotation::find(&self.path, &position)? {
            Some(copy) => self.finish(&copy, position.offset)?,
            None if incomplete => self.ingest.counts().gaps += 1,
            None => {}
        }
        self.begin(Tail::at(file, 0)?)
    }

    /// If the name means another file, that is next as soon as nobody writes to the present one any more.
    fn replaced(&mut self) -> Result<(), Failure> {
        let Some(tail) = &self.tail else { return Ok(()) };
        let now = match fs::metadata(&self.path) {
            Ok(metadata) if FileId::of(&metadata) != tail.id => metadata,
            // The name may be back in a moment: between a rename and a creation there is nothing.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {
                self.replaced = None;
                return Ok(());
            }
        };
        let since = *self.replaced.get_or_insert_with(Instant::now);
        let is_quiet =
            self.read.is_none_or(|read| read.elapsed() >= self.quiet) && since.elapsed() >= self.quiet;
        // Who has not written to the new file may yet write to the old one.
        let is_finished = now.len() > 0 && (is_quiet || since.elapsed() >= PATIENCE);
        if is_finished { self.next_file() } else { Ok(()) }
    }

    fn next_file(&mut self) -> Result<(), Failure> {
        let Some(mut tail) = self.tail.take() else { return Ok(()) };
        if let Some(last) = tail.lines.rest() {
            self.ingest.line(last)?;
        }
        let position = tail.position()?;
        self.commit(&position)?;
        self.finish_later(&position)
    }

    /// Reads what was the log after a position's file, and begins with the log as it is.
    fn finish_later(&mut self, before: &Position) -> Result<(), Failure> {
        let log = self.open()?;
        let mut ids = vec![before.file];
        if let Some(log) = &log {
            ids.push(FileId::of(&log.metadata()?));
        }
        let known = before.fingerprint;
        for past in rotation::later(&self.path, before.modified, &ids)? {
            // A copy of what is known is not read again.
            let is_copy = known.is_telling()
                && Input::open(&past.path).and_then(|mut input| known.matches(&mut input)).unwrap_or(false);
            if !is_copy {
                self.finish(&past, 0)?;
            }
        }
        if self.ingest.stop().is_requested() {
            return Ok(());
        }
        match log {
            Some(file) => self.begin(Tail::at(file, 0)?),
            None => Ok(()),
        }
    }

    /// Reads a file that nobody writes to any more, from `offset` to its end. One that cannot be read is a gap.
    fn finish(&mut self, past: &Past, offset: u64) -> Result<(), Failure> {
        match self.finish_readable(past, offset) {
            Err(Failure::Read(_)) => {
                self.ingest.counts().gaps += 1;
                Ok(())
            }
            finished => finished,
        }
    }

    fn finish_readable(&mut self, past: &Past, offset: u64) -> Result<(), Failure> {
        let fingerprint = Fingerprint::of_content(&mut Input::open(&past.path)?)?;
        let mut input = Input::open(&past.path)?;
        input.skip(offset)?;
        let mut lines = Lines::new();
        let position = |lines: &Lines| Position {
            file: past.id,
            offset: offset + lines.passed(),
            fingerprint,
            modified: past.modified,
        };
        self.ingest.next_source();
        loop {
            while self.ingest.drain(&mut lines)? == Drained::Full {
                self.commit(&position(&lines))?;
            }
            if self.ingest.stop().is_requested() {
                return self.commit(&position(&lines));
            }
            match lines.fill(&mut input) {
                Ok(0) => break,
                Ok(more) => self.ingest.counts().bytes += more,
                Err(error) => {
                    self.commit(&position(&lines))?;
                    return Err(error.into());
                }
            }
        }
        if let Some(last) = lines.rest() {
            self.ingest.line(last)?;
        }
        self.commit(&position(&lines))
    }
}

/// How many times as long as it took a pass rests: a hundredth of a percent of one CPU is used, while few lines come.
const REST: u32 = 10_000;
/// The bounds of that.
const LEAST_REST: Duration = Duration::from_secs(1);
const MOST_REST: Duration = Duration::from_secs(10);
/// How often to look at a file that has a successor: nothing tells of the successor's first line.
const LOOK_AT_REPLACED: Duration = Duration::from_secs(1);
/// How long a file with a successor must be quiet: servers reopen their logs within milliseconds.
const QUIET: Duration = Duration::from_secs(2);
/// How long a file with a successor may be written to before the successor is preferred.
const PATIENCE: Duration = Duration::from_secs(60);
