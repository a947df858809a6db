//! The file at whose end one waits.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

use crate::ingest::Lines;

use super::position::{FileId, Fingerprint, Position};
use super::rotation::modified;

/// An open file, and how far it has been read.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) lines: Lines,
    /// Where in the file the lines began.
    base: u64,
    fingerprint: Fingerprint,
    modified: SystemTime,
}

impl Tail {
    /// From an offset on, at which a line begins.
    pub(super) fn at(mut file: File, offset: u64) -> io::Result<Self> {
        file.seek(SeekFrom::Start(offset))?;
        let metadata = file.metadata()?;
        let id = FileId::of(&metadata);
        let fingerprint = Fingerprint::of_file(&file)?;
        Ok(Self { file, id, lines: Lines::new(), base: offset, fingerprint, modified: modified(&metadata) })
    }

    /// From its end on; a line that is half written there is left out.
    pub(super) fn at_end(file: File) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let mut tail = Self::at(file, end)?;
        let mut last = [b'\n'];
        if end > 0 {
            tail.file.read_exact_at(&mut last, end - 1)?;
        }
        if last != [b'\n'] {
            tail.lines = Lines::within_a_line();
        }
        Ok(tail)
    }

    /// Behind the last whole line.
    pub(super) fn position(&mut self) -> io::Result<Position> {
        if self.fingerprint.is_short() {
            self.fingerprint = Fingerprint::of_file(&self.file)?;
        }
        self.modified = modified(&self.file.metadata()?);
        Ok(self.position_before())
    }

    /// The same, without a look at the file.
    pub(super) fn position_before(&self) -> Position {
        Position {
            file: self.id,
            offset: self.base + self.lines.passed(),
            fingerprint: self.fingerprint,
            modified: self.modified,
        }
    }

    /// Whether the file has become shorter than what was read of it, or begins differently.
    pub(super) fn is_truncated(&self) -> io::Result<bool> {
        let read = self.base + self.lines.passed() + self.lines.waiting();
        Ok(self.file.metadata()?.len() < read || !self.fingerprint.matches_file(&self.file)?)
    }
}
