//! Memory of imported files: content that was read before is not read again, under whatever name it appears.

use std::path::Path;

use crate::Error;
use crate::store::files::{Digest, FileRecord, FileState};

use super::identity::{self, FileMatch, FilePrefix, fit};
use super::{EntrySink, ImportReport, Input, LineBuffer, LogImport, Mark};

/// The treatment of content that was read before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reimport {
    /// Skip what was read before.
    #[default]
    No,
    /// Read it again, which duplicates its requests.
    Yes,
}

/// The record of an earlier import of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// The path at that time.
    pub path: String,
    /// The bytes of content that were read.
    pub bytes: u64,
    /// Set for followed logs: new lines are left to `--follow` or `--resume`.
    pub is_followed: bool,
}

/// The outcome for one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOutcome {
    /// The earlier import, if there was one.
    pub before: Option<Before>,
    /// The counts of this import.
    pub report: ImportReport,
}

impl FileOutcome {
    /// Returns `true` if no line had the format.
    #[must_use]
    pub const fn is_all_rejected(&self) -> bool {
        self.before.is_none() && self.report.accepted == 0 && self.report.rejected > 0
    }
}

/// The record of a file, and the part to read.
struct LookedUp {
    input: Option<Input>,
    file: Option<Remembered>,
    before: Option<Before>,
}

/// A file during its import, with the position that is committed with its entries.
pub(super) struct Remembered {
    source: String,
    file: FileRecord,
    /// The offset at which reading started.
    base: u64,
    /// Requests accepted before this file.
    accepted: u64,
}

impl Remembered {
    /// Advances the position behind the lines taken.
    pub(super) fn advance(&mut self, lines: &LineBuffer) {
        if lines.passed() > 0 {
            self.file.position = self.base + lines.passed();
            self.file.end = Digest::of(&lines.ending());
        }
    }

    /// Set if part of the file was read before.
    pub(super) const fn is_continued(&self) -> bool {
        self.base > 0
    }

    /// The position to commit. A file without a single request leaves no record: the format may have been
    /// wrong.
    pub(super) fn mark(&self, accepted: u64) -> Option<Mark<'_>> {
        let is_worth_it = self.base > 0 || accepted > self.accepted;
        is_worth_it.then_some(Mark { source: &self.source, file: &self.file })
    }
}

impl<S: EntrySink> LogImport<S> {
    /// Imports a file to its end, or until stopped, and records it. Content imported before is skipped.
    ///
    /// # Errors
    /// The file cannot be read (earlier entries are committed), or the sink fails.
    pub fn read_file(&mut self, path: &Path, again: Reimport) -> Result<FileOutcome, Error> {
        let before = self.report.clone();
        let LookedUp { input, mut file, before: read_before } = self.look_up(path, again)?;
        if let Some(mut input) = input {
            self.read_remembered(&mut input, file.as_mut())?;
        }
        let now = &self.report;
        let report = ImportReport {
            lines: now.lines - before.lines,
            accepted: now.accepted - before.accepted,
            rejected: now.rejected - before.rejected,
            skipped: now.skipped - before.skipped,
            bytes: now.bytes - before.bytes,
            ..ImportReport::default()
        };
        Ok(FileOutcome { before: read_before, report })
    }

    /// Looks up the record of a file, and determines the part to read.
    fn look_up(&mut self, path: &Path, again: Reimport) -> Result<LookedUp, Error> {
        let name = |error| Error::Io(path.display().to_string(), error);
        let input = Input::open(path).map_err(name)?;
        let metadata = input.metadata().map_err(name)?;
        if !metadata.is_file() {
            return Ok(LookedUp { input: Some(input), file: None, before: None });
        }
        // Damage at the start is reported when the file is read.
        let beginning =
            Input::open(path).and_then(|mut input| FilePrefix::read(&mut input)).unwrap_or_default();
        let accepted = self.report.accepted;
        let known = self.find(path, &beginning)?;
        if let Some((source, file, rest)) = known {
            if again == Reimport::Yes {
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

    /// Finds the stored file with the same beginning, its source, and the input positioned behind the
    /// recorded part. `None` if the file is shorter than that.
    fn find(
        &mut self,
        path: &Path,
        beginning: &FilePrefix,
    ) -> Result<Option<(String, FileRecord, Option<Input>)>, Error> {
        let mut known = self.sink.files_with_head(beginning.head())?;
        known.retain(|(_, file)| file.position > 0 && beginning.is_of(file));
        known.sort_by_key(|(_, file)| std::cmp::Reverse(file.position));
        let mut shorter = None;
        for (source, file) in known {
            let fitted = Input::open(path).and_then(|input| fit(input, &file));
            match fitted.map_err(|error| Error::Io(path.display().to_string(), error))? {
                FileMatch::Whole(rest) => return Ok(Some((source, file, Some(rest)))),
                FileMatch::Shorter => shorter = shorter.or(Some((source, file, None))),
                FileMatch::BrokenOff | FileMatch::Other => {}
            }
        }
        Ok(shorter)
    }
}
