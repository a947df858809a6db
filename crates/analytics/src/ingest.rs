//! Import of logs: from standard input, from files, and (see [`crate::follow`]) from growing files.
//!
//! Lines are read in large blocks and parsed in place. A line that does not parse is counted and described,
//! and ends nothing. Memory is bounded by the block and by [`MAX_LINE`], whatever the input.

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
use crate::entry::LogEntry;
use crate::format::Parser;
use crate::parse_error::ParseError;

pub use input::Input;
pub use lines::MAX_LINE;
pub(crate) use lines::{LineBuffer, NextLine};
use memory::Remembered;
pub use memory::{Before, FileOutcome, Reimport};
pub use rejects::Rejects;
pub use stop::StopSignal;
pub(crate) use stop::Waited;

pub use crate::store::files::{Digest, FileRecord, FileState};

/// A destination of entries. A commit makes all entries since the last one durable, atomically and together
/// with the given position. The sink itself waits out temporary failures, as [`crate::StoreSink`] does: an
/// error is final, or the last failure before a requested stop.
pub trait EntrySink {
    /// Adds one entry.
    ///
    /// # Errors
    /// The entry cannot be kept; reading ends.
    fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error>;

    /// Makes all added entries durable, together with the position in a file.
    ///
    /// # Errors
    /// The commit fails; reading ends.
    fn commit(&mut self, mark: Option<Mark<'_>>) -> Result<(), Error>;

    /// The committed files of a source, oldest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error>;

    /// The files of all sources whose content starts with these bytes, with their sources.
    ///
    /// # Errors
    /// The store cannot be read.
    fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error>;

    /// Does upkeep; called between batches, and about once a minute while idle.
    ///
    /// # Errors
    /// Upkeep can never succeed.
    fn tend(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// The read position in a file of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark<'a> {
    /// The name of the source.
    pub source: &'a str,
    /// The file with its position.
    pub file: &'a FileRecord,
}

/// A place where lines may be missing from the store; it is unknown if there were any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last known path of the file that could not be read to its end.
    pub path: String,
    /// The bytes of it that were read.
    pub position: u64,
    /// The event in a few words.
    pub reason: &'static str,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; what it had after byte {} is missing", self.path, self.reason, self.position)
    }
}

/// Counts of an import so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Lines of every kind.
    pub lines: u64,
    /// Lines that became entries.
    pub accepted: u64,
    /// Lines that did not parse, or exceeded [`MAX_LINE`].
    pub rejected: u64,
    /// Lines that are not requests: empty ones, and other events in a JSON log.
    pub skipped: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Files that may not have been read to their ends; see [`Gap`].
    pub gaps: u64,
    /// The time since the start of the import.
    pub elapsed: Duration,
}

/// The reason for a pause in taking lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainOutcome {
    /// No whole line is left.
    Dry,
    /// The batch is full and must be committed.
    Full,
}

/// Reads lines, parses them, and passes entries to a sink in batches.
pub struct LogImport<S> {
    parser: Parser,
    sink: S,
    rejects: Rejects,
    stop: StopSignal,
    report: ImportReport,
    begun: Instant,
    /// The number of the last line in the current source.
    line: u64,
    /// Set once the parser has seen the start of the current source.
    is_begun: bool,
    /// Entries added since the last commit, the bytes of their lines, and the time of the first.
    pending: u64,
    pending_bytes: usize,
    pending_since: Instant,
    /// Observers of gaps and of the position in a file.
    gap: Box<dyn FnMut(&Gap) + Send>,
    progress: Option<Box<dyn FnMut(ImportProgress) + Send>>,
}

/// The progress within a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportProgress {
    /// Bytes of the file on disk.
    pub bytes: u64,
    /// Requests accepted so far, over all files.
    pub accepted: u64,
}

impl<S: EntrySink> LogImport<S> {
    /// Creates an import. `stop` ends the reading from another thread, between two lines and with a last
    /// commit.
    pub fn new(parser: Parser, sink: S, rejects: Rejects, stop: StopSignal) -> Self {
        let begun = Instant::now();
        let report = ImportReport::default();
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

    /// Sets a callback for gaps.
    #[must_use]
    pub fn on_gap(mut self, observer: impl FnMut(&Gap) + Send + 'static) -> Self {
        self.gap = Box::new(observer);
        self
    }

    /// Sets a callback for the position in a file, called for every block.
    #[must_use]
    pub fn on_progress(mut self, observer: impl FnMut(ImportProgress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(observer));
        self
    }

    /// Reads an input to its end, or until stopped. Slow input is committed every second. The position is not
    /// recorded; see [`LogImport::read_file`].
    ///
    /// # Errors
    /// Reading fails (earlier entries are committed), or the sink does.
    pub fn read(&mut self, input: &mut Input) -> Result<(), Error> {
        self.read_remembered(input, None)
    }

    /// Like [`read`](Self::read), and commits the position in the file with the entries.
    fn read_remembered(&mut self, input: &mut Input, mut file: Option<&mut Remembered>) -> Result<(), Error> {
        self.line = 0;
        self.is_begun = false;
        if file.as_ref().is_some_and(|file| file.is_continued()) {
            self.go_on();
        }
        let mut lines = LineBuffer::new();
        loop {
            while self.drain(&mut lines)? == DrainOutcome::Full {
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
        // An unterminated line that does not parse is half a line, and is read again once there is more of
        // it.
        let mark = file.as_ref().and_then(|file| file.mark(self.report.accepted));
        self.commit(mark)
    }

    /// Commits pending entries together with the position after them.
    fn commit_lines(&mut self, mut file: Option<&mut Remembered>, lines: &LineBuffer) -> Result<(), Error> {
        if let Some(file) = &mut file {
            file.advance(lines);
        }
        let mark = file.as_ref().and_then(|file| file.mark(self.report.accepted));
        self.commit(mark)
    }

    /// The counts as of now.
    pub fn report(&self) -> ImportReport {
        ImportReport { elapsed: self.begun.elapsed(), ..self.report.clone() }
    }

    /// The rejected lines so far.
    pub const fn rejects(&self) -> &Rejects {
        &self.rejects
    }

    /// The destination of the entries.
    pub const fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Returns `true` once a stop was requested.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }

    /// Returns the sink, the final counts, and the rejected lines.
    pub fn finish(self) -> (S, ImportReport, Rejects) {
        let report = self.report();
        (self.sink, report, self.rejects)
    }

    /// Waits for input; pending entries are committed once they are a second old.
    fn wait(&mut self, input: &Input) -> Result<Waited, Error> {
        let left = COMMIT_EVERY.saturating_sub(self.pending_since.elapsed());
        if self.pending > 0 && left.is_zero() {
            return Ok(Waited::TimedOut);
        }
        let timeout = (self.pending > 0).then_some(left);
        input.wait(timeout, &self.stop).map_err(|error| Error::Io(input.name().to_owned(), error))
    }

    /// Declares that the next lines continue a known log.
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
    pub(crate) fn drain(&mut self, lines: &mut LineBuffer) -> Result<DrainOutcome, Error> {
        self.begin(lines.incomplete());
        while self.pending < BATCH && self.pending_bytes < BATCH_BYTES {
            match lines.next() {
                NextLine::Line(line) => self.line(&lines[line])?,
                NextLine::TooLong(start) => {
                    self.count();
                    self.report.rejected += 1;
                    let error = ParseError::new(MAX_LINE, "a line of at most 1 MiB");
                    self.rejects.add(self.line, &lines[start], error)?;
                }
                NextLine::More => return Ok(DrainOutcome::Dry),
            }
        }
        Ok(DrainOutcome::Full)
    }

    /// Takes one line without its line feed.
    pub(crate) fn line(&mut self, line: &[u8]) -> Result<(), Error> {
        self.count();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Truncation under a writer that does not append leaves a hole at the start.
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

    /// Commits pending entries; with a mark even if there are none.
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

    pub(crate) const fn stop(&self) -> &StopSignal {
        &self.stop
    }

    pub(crate) const fn counts(&mut self) -> &mut ImportReport {
        &mut self.report
    }

    pub(crate) fn tell_progress(&mut self, bytes: u64) {
        if let Some(progress) = &mut self.progress {
            progress(ImportProgress { bytes, accepted: self.report.accepted });
        }
    }

    /// Counts and reports a gap.
    pub(crate) fn gap(&mut self, gap: &Gap) {
        self.report.gaps += 1;
        (self.gap)(gap);
    }

    /// Restarts line numbers for the next source.
    pub(crate) const fn next_source(&mut self) {
        self.line = 0;
    }
}

/// Increasing pauses between attempts.
#[derive(Debug, Default)]
pub(crate) struct RetryPause {
    attempts: u32,
}

impl RetryPause {
    /// Waits until the next attempt is due.
    pub(crate) fn wait(&mut self, stop: &StopSignal) -> Waited {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.attempts.min(16)).min(LAST_PAUSE);
        self.attempts += 1;
        // If waiting itself fails, stopping is better than spinning.
        stop.wait(None, Some(pause)).unwrap_or(Waited::Stopped)
    }
}

/// Strips the zeros of a hole from the start of a line.
fn without_hole(line: &[u8]) -> &[u8] {
    &line[line.iter().position(|byte| *byte != 0).unwrap_or(line.len())..]
}

/// Entries per batch: enough to amortise a transaction, few enough to keep in memory.
const BATCH: u64 = 10_000;
/// The time that an entry may wait for others.
const COMMIT_EVERY: Duration = Duration::from_secs(1);
/// The approximate size of a batch in bytes of lines: a sink keeps them until the commit.
const BATCH_BYTES: usize = 4 << 20;
/// The pause after the first attempt, and its maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(15);
