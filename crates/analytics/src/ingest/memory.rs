//! Files that are read once are remembered: what was read of them is not read again, under whatever name they come.

use std::path::Path;

use crate::Error;
use crate::store::files::{Digest, FileRecord, FileState};

use super::identity::{self, Beginning, Fit, fit};
use super::{Ingest, Input, Lines, Mark, Report, Sink};

/// What is done with what was read before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Again {
    /// It is stepped over.
    #[default]
    No,
    /// It is read again, and its requests are there twice.
    Yes,
}

/// What was read of a file before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// What it was called then.
    pub path: String,
    /// How many bytes of its content were read.
    pub bytes: u64,
    /// Whether it is a log that is followed: what is new in it is left to `--follow` or `--resume`.
    pub is_followed: bool,
}

/// What became of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOutcome {
    /// What was read of it before, if anything was.
    pub before: Option<Before>,
    /// What was read now.
    pub report: Report,
}

impl FileOutcome {
    /// Whether nothing in it was a line of the format.
    #[must_use]
    pub const fn is_all_rejected(&self) -> bool {
        self.before.is_none() && self.report.accepted == 0 && self.report.rejected > 0
    }
}

/// What is known of a file, and what to read of it.
struct LookedUp {
    input: Option<Input>,
    file: Option<Remembered>,
    before: Option<Before>,
}

/// A file while it is read: what is committed with its entries.
pub(super) struct Remembered {
    source: String,
    file: FileRecord,
    /// Where reading began.
    base: u64,
    /// Requests that had been accepted then.
    accepted: u64,
}

impl Remembered {
    /// The lines that were taken are read.
    pub(super) fn advance(&mut self, lines: &Lines) {
        if lines.passed() > 0 {
            self.file.position = self.base + lines.passed();
            self.file.end = Digest::of(&lines.ending());
        }
    }

    /// Set where something of the file was read before.
    pub(super) const fn is_continued(&self) -> bool {
        self.base > 0
    }

    /// What to commit. Of a file without a single request nothing is remembered: perhaps the format was the wrong one.
    pub(super) fn mark(&self, accepted: u64) -> Option<Mark<'_>> {
        let is_worth_it = self.base > 0 || accepted > self.accepted;
        is_worth_it.then_some(Mark { source: &self.source, file: &self.file })
    }
}

impl<S: Sink> Ingest<S> {
    /// Reads a file to its end, or until it is stopped, and remembers it. What was read of it before is stepped over.
    ///
    /// # Errors
    /// If it cannot be read (what was read before that is committed), or the sink.
    pub fn read_file(&mut self, path: &Path, again: Again) -> Result<FileOutcome, Error> {
        let before = self.report.clone();
        let LookedUp { input, mut file, before: read_before } = self.look_up(path, again)?;
        if let Some(mut input) = input {
            self.read_remembered(&mut input, file.as_mut())?;
        }
        let now = &self.report;
        let report = Report {
            lines: now.lines - before.lines,
            accepted: now.accepted - before.accepted,
            rejected: now.rejected - before.rejected,
            skipped: now.skipped - before.skipped,
            bytes: now.bytes - before.bytes,
            ..Report::default()
        };
        Ok(FileOutcome { before: read_before, report })
    }

    /// Finds what is known of a file. Returns what to read of it, if anything.
    fn look_up(&mut self, path: &Path, again: Again) -> Result<LookedUp, Error> {
        let name = |error| Error::Io(path.display().to_string(), error);
        let input = Input::open(path).map_err(name)?;
        let metadata = input.metadata().map_err(name)?;
        if !metadata.is_file() {
            return Ok(LookedUp { input: Some(input), file: None, before: None });
        }
        // What is damaged there already says so when it is read.
        let beginning =
            Input::open(path).and_then(|mut input| Beginning::read(&mut input)).unwrap_or_default();
        let accepted = self.report.accepted;
        let known = self.find(path, &beginning)?;
        if let Some((source, file, rest)) = known {
            if again == Again::Yes {
                let file = FileRecord { position: 0, end: Digest::default(), ..file };
                let file = Some(Remembered { source, file, base: 0, accepted });
                return Ok(LookedUp { input: Some(input), file, before: None });
            }
            let is_followed = file.state == FileState::Reading;
            let before = Before { path: file.path.clone(), bytes: file.position, is_followed };
            let base = file.position;
            return Ok(LookedUp {
                input: rest.filter(|_| !is_followed),
                file: Some(Remembered { source, file, base, accepted }),
                before: Some(before),
            });
        }
        let path = std::path::absolute(path).map_err(name)?;
        let source = path.display().to_string();
        let number = self.sink.files(&source)?.last().map_or(1, |last| last.number + 1);
        let file = FileRecord {
            state: FileState::Finished,
            ..identity::record(number, &path, &metadata, &beginning)
        };
        let file = Some(Remembered { source, file, base: 0, accepted });
        Ok(LookedUp { input: Some(input), file, before: None })
    }

    /// The file in the store that begins in the same way, with its source, and the input behind what was read of it.
    /// There is none where the file has less than was read.
    fn find(
        &mut self,
        path: &Path,
        beginning: &Beginning,
    ) -> Result<Option<(String, FileRecord, Option<Input>)>, Error> {
        let mut known = self.sink.files_with_head(beginning.head())?;
        known.retain(|(_, file)| file.position > 0 && beginning.is_of(file));
        known.sort_by_key(|(_, file)| std::cmp::Reverse(file.position));
        let mut shorter = None;
        for (source, file) in known {
            let fitted = Input::open(path).and_then(|input| fit(input, &file));
            match fitted.map_err(|error| Error::Io(path.display().to_string(), error))? {
                Fit::Whole(rest) => return Ok(Some((source, file, Some(rest)))),
                Fit::Shorter => shorter = shorter.or(Some((source, file, None))),
                Fit::BrokenOff | Fit::Other => {}
            }
        }
        Ok(shorter)
    }
}
