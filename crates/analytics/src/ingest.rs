//! Logs into the store: from standard input, from files, and (see [`crate::follow`]) from files that grow.
//!
//! Lines are read in large blocks and parsed where they lie. A line that does not parse is counted and described, and
//! never ends anything. Memory is bounded whatever the input: by the block and by [`MAX_LINE`].

mod gzip;
pub(crate) mod identity;
mod input;
mod lines;
mod memory;
mod parts;
mod rejects;
mod stop;
mod zstd;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::time::{Duration, Instant};

use crate::Error;
use crate::entry::Entry;
use crate::format::Parser;
use crate::parse_error::ParseError;

pub use input::Input;
pub use lines::MAX_LINE;
pub(crate) use lines::{Lines, Next};
use memory::Remembered;
pub use memory::{Again, Before, FileOutcome};
pub use rejects::Rejects;
pub use stop::Stop;
pub(crate) use stop::Waited;

pub use crate::store::files::{Digest, FileRecord, FileState};

/// Where entries go. What was added since the last commit becomes durable by the next one, whole or not at all,
/// together with the position that is given to it. Whatever may pass a sink waits for itself, as
/// [`crate::StoreSink`] does: an error is final, or what the sink failed with when it was told to stop.
pub trait Sink {
    /// Takes one entry.
    ///
    /// # Errors
    /// If it cannot be kept; reading ends then.
    fn add(&mut self, entry: &Entry<'_>) -> Result<(), Error>;

    /// Makes what was added durable, and with it how far a file was read.
    ///
    /// # Errors
    /// If that fails; reading ends then.
    fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error>;

    /// The files of a source that were committed, the oldest first.
    ///
    /// # Errors
    /// If the store cannot say.
    fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error>;

    /// The files of all sources that begin with these bytes, and their sources.
    ///
    /// # Errors
    /// If the store cannot say.
    fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error>;

    /// Does upkeep; called between batches, and about once a minute while nothing arrives.
    ///
    /// # Errors
    /// If it never will succeed.
    fn tend(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// How far a file of a source has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    /// The source's name.
    pub source: &'a str,
    /// The file.
    pub file: &'a FileRecord,
}

/// Why lines may be missing from the store; whether there were any is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The file that could not be read to its end, where it was seen last.
    pub path: String,
    /// How many bytes of it were read.
    pub position: u64,
    /// What happened, in a few words.
    pub reason: &'static str,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; what it had after byte {} is missing", self.path, self.reason, self.position)
    }
}

/// What has been read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Lines, of every kind.
    pub lines: u64,
    /// Lines that became entries.
    pub accepted: u64,
    /// Lines that did not parse, or were longer than [`MAX_LINE`].
    pub rejected: u64,
    /// Lines that are no requests: empty ones, and other events in a JSON log.
    pub skipped: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Files that may not have been read to their ends: see [`Gap`].
    pub gaps: u64,
    /// Since the beginning.
    pub elapsed: Duration,
}

/// Why no more lines were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// No whole line is left.
    Dry,
    /// The batch is full and wants to be committed.
    Full,
}

/// Reads lines, parses them, and gives the entries to a sink in batches.
pub struct Ingest<S> {
    parser: Parser,
    sink: S,
    rejects: Rejects,
    stop: Stop,
    report: Report,
    begun: Instant,
    /// The number of the last line in the present source.
    line: u64,
    /// Set when the parser has seen how the present source begins.
    is_begun: bool,
    /// Entries added since the last commit, the bytes of their lines, and since when.
    pending: u64,
    pending_bytes: usize,
    pending_since: Instant,
    /// The observer of gaps and of the position in a file.
    gap: Box<dyn FnMut(&Gap) + Send>,
    progress: Option<Box<dyn FnMut(Progress) + Send>>,
}

/// How far a file has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file on disk.
    pub bytes: u64,
    /// Requests taken so far, of all files.
    pub accepted: u64,
}

impl<S: Sink> Ingest<S> {
    /// `stop` ends the reading from elsewhere, between two lines and with a last commit.
    pub fn new(parser: Parser, sink: S, rejects: Rejects, stop: Stop) -> Self {
        let begun = Instant::now();
        let report = Report::default();
        Self {
            parser,
            sink,
            rejects,
            stop,
            report,
            begun,
            line: 0,
            is_begun: false,
            pending: 0,
            pending_bytes: 0,
            pending_since: begun,
            gap: Box::new(|_| {}),
            progress: None,
        }
    }

    /// Tells of gaps as they are found.
    #[must_use]
    pub fn on_gap(mut self, tell: impl FnMut(&Gap) + Send + 'static) -> Self {
        self.gap = Box::new(tell);
        self
    }

    /// Tells how far a file has been read, for every block.
    #[must_use]
    pub fn on_progress(mut self, tell: impl FnMut(Progress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(tell));
        self
    }

    /// Reads an input to its end, or until it is stopped. What arrives slowly is committed every second. Nothing of
    /// it is remembered: see [`Ingest::read_file`].
    ///
    /// # Errors
    /// If reading fails (what was read before that is committed), or the sink.
    pub fn read(&mut self, input: &mut Input) -> Result<(), Error> {
        self.read_remembered(input, None)
    }

    /// The same, and commits with the entries how far it was read.
    fn read_remembered(&mut self, input: &mut Input, mut file: Option<&mut Remembered>) -> Result<(), Error> {
        self.line = 0;
        self.is_begun = false;
        if file.as_ref().is_some_and(|file| file.is_continued()) {
            self.go_on();
        }
        let mut lines = Lines::new();
        loop {
            while self.drain(&mut lines)? == Drained::Full {
                self.commit_lines(file.as_deref_mut(), &lines)?;
            }
            match self.wait(input)? {
                Waited::Ready => {}
                Waited::Stopped => return self.commit_lines(file, &lines),
                Waited::TimedOut => {
                    self.commit_lines(file.as_deref_mut(), &lines)?;
                    continue;
                }
            }
            match lines.fill(input) {
                Ok(0) => break,
                Ok(more) => self.report.bytes += more,
                Err(error) => {
                    self.commit_lines(file, &lines)?;
                    return Err(Error::Io(input.name().to_owned(), error));
                }
            }
            self.tell_progress(input.taken());
        }
        if let Some(gap) = input.strange() {
            self.gap(&gap);
        }
        if let Some(file) = &mut file {
            file.advance(&lines);
        }
        let rejected = self.report.rejected;
        if let Some(last) = lines.rest() {
            self.line(last)?;
        }
        if self.report.rejected == rejected {
            return self.commit_lines(file, &lines);
        }
        // A line that has no end and makes no sense is half a line: it is read again when there is more of it.
        let mark = file.as_ref().and_then(|file| file.mark(self.report.accepted));
        self.commit(mark)
    }

    /// Commits what is pending, and how far the file was read with it.
    fn commit_lines(&mut self, mut file: Option<&mut Remembered>, lines: &Lines) -> Result<(), Error> {
        if let Some(file) = &mut file {
            file.advance(lines);
        }
        let mark = file.as_ref().and_then(|file| file.mark(self.report.accepted));
        self.commit(mark)
    }

    /// The report as of now.
    pub fn report(&self) -> Report {
        Report { elapsed: self.begun.elapsed(), ..self.report.clone() }
    }

    /// What became of the lines that were rejected.
    pub const fn rejects(&self) -> &Rejects {
        &self.rejects
    }

    /// The sink.
    pub const fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Whether it was requested to stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    /// Gives the sink back, and the last report.
    pub fn finish(self) -> (S, Report, Rejects) {
        let report = self.report();
        (self.sink, report, self.rejects)
    }

    /// Waits for input: with entries that are not committed only until they are a second old.
    fn wait(&mut self, input: &Input) -> Result<Waited, Error> {
        let left = COMMIT_EVERY.saturating_sub(self.pending_since.elapsed());
        if self.pending > 0 && left.is_zero() {
            return Ok(Waited::TimedOut);
        }
        let timeout = (self.pending > 0).then_some(left);
        input.wait(timeout, &self.stop).map_err(|error| Error::Io(input.name().to_owned(), error))
    }

    /// Lines that come make sense without those before them: they go on with a log.
    pub(crate) fn go_on(&mut self) {
        self.parser.go_on();
        self.is_begun = true;
    }

    /// Shows the parser the first lines of a log.
    pub(crate) fn begin(&mut self, block: &[u8]) {
        if !self.is_begun && !block.is_empty() {
            self.parser.begin(block);
            self.is_begun = true;
        }
    }

    /// Takes whole lines until none is left or the batch is full.
    pub(crate) fn drain(&mut self, lines: &mut Lines) -> Result<Drained, Error> {
        self.begin(lines.incomplete());
        while self.pending < BATCH && self.pending_bytes < BATCH_BYTES {
            match lines.next() {
                Next::Line(line) => self.line(&lines[line])?,
                Next::TooLong(start) => {
                    self.count();
                    self.report.rejected += 1;
                    let error = ParseError::new(MAX_LINE, "a line of at most 1 MiB");
                    self.rejects.add(self.line, &lines[start], error)?;
                }
                Next::More => return Ok(Drained::Dry),
            }
        }
        Ok(Drained::Full)
    }

    /// Takes one line, without its line feed.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        self.count();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A file that was truncated under a writer that does not append begins with a hole.
        let line = if line.first() == Some(&0) { without_hole(line) } else { line };
        if line.is_empty() {
            self.report.skipped += 1;
            return Ok(());
        }
        match self.parser.parse(line) {
            Ok(Some(entry)) => self.sink.add(&entry)?,
            Ok(None) => {
                self.report.skipped += 1;
                return Ok(());
            }
            Err(error) => {
                self.report.rejected += 1;
                return self.rejects.add(self.line, line, error);
            }
        }
        self.accepted(line);
        Ok(())
    }

    fn accepted(&mut self, line: &[u8]) {
        self.report.accepted += 1;
        if self.pending == 0 {
            self.pending_since = Instant::now();
        }
        self.pending += 1;
        self.pending_bytes += line.len();
    }

    fn count(&mut self) {
        self.line += 1;
        self.report.lines += 1;
    }

    /// Commits what is pending; with a mark also if nothing is.
    pub(crate) fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error> {
        self.rejects.flush()?;
        if self.pending > 0 || mark.is_some() {
            self.sink.commit(mark)?;
            (self.pending, self.pending_bytes) = (0, 0);
            self.sink.tend()?;
        }
        Ok(())
    }

    pub(crate) fn tend(&mut self) -> Result<(), Error> {
        self.sink.tend()
    }

    pub(crate) const fn stop(&self) -> &Stop {
        &self.stop
    }

    pub(crate) const fn counts(&mut self) -> &mut Report {
        &mut self.report
    }

    pub(crate) fn tell_progress(&mut self, bytes: u64) {
        if let Some(progress) = &mut self.progress {
            progress(Progress { bytes, accepted: self.report.accepted });
        }
    }

    /// Counts a gap, and tells of it.
    pub(crate) fn gap(&mut self, gap: &Gap) {
        self.report.gaps += 1;
        (self.gap)(gap);
    }

    /// Line numbers restart.
    pub(crate) const fn next_source(&mut self) {
        self.line = 0;
    }
}

/// Longer and longer pauses between attempts.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    attempts: u32,
}

impl Pause {
    /// Waits for the next attempt.
    pub(crate) fn wait(&mut self, stop: &Stop) -> Waited {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.attempts.min(16)).min(LAST_PAUSE);
        self.attempts += 1;
        // Without a way to wait it is better to stop than to spin.
        stop.wait(None, Some(pause)).unwrap_or(Waited::Stopped)
    }
}

/// Without the zeros at the front.
fn without_hole(line: &[u8]) -> &[u8] {
    &line[line.iter().position(|byte| *byte != 0).unwrap_or(line.len())..]
}

/// Entries in a batch: enough that the cost of a transaction vanishes, few enough to be kept in memory.
const BATCH: u64 = 10_000;
/// How long an entry may wait for more.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// Bytes of lines in a batch, roughly: a sink keeps them until they are committed.
const BATCH_BYTES: usize = 4 << 20;
/// Between the first attempts, and between later ones.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(15);
