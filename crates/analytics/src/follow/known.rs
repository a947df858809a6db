//! The files of one log that the store knows.

use std::path::Path;

use crate::ingest::identity::FilePrefix;
use crate::store::files::{FileRecord, FileState};

use super::tail::FileId;

#[derive(Debug, Default)]
pub(super) struct KnownFiles {
    /// File records, ordered by number.
    files: Vec<FileRecord>,
}

impl KnownFiles {
    pub(super) const fn new(files: Vec<FileRecord>) -> Self {
        Self { files }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The number of the next file.
    pub(super) fn next(&self) -> i64 {
        self.files.last().map_or(1, |last| last.number + 1)
    }

    /// Records a committed read position.
    pub(super) fn note(&mut self, record: &FileRecord) {
        match self.files.binary_search_by_key(&record.number, |file| file.number) {
            Ok(at) => self.files[at] = record.clone(),
            Err(at) => self.files.insert(at, record.clone()),
        }
    }

    /// Files that may have grown, oldest first.
    pub(super) fn unfinished(&self) -> Vec<FileRecord> {
        self.files.iter().filter(|file| file.state == FileState::Reading).cloned().collect()
    }

    /// The last file with this inode.
    pub(super) fn of(&self, id: FileId) -> Option<&FileRecord> {
        self.files.iter().rev().find(|file| FileId::of_record(file) == id)
    }

    /// Returns `true` if the store knows a file with this inode.
    pub(super) fn has(&self, id: FileId) -> bool {
        self.of(id).is_some()
    }

    /// Returns `true` if a file with this inode was the log.
    pub(super) fn was_log(&self, id: FileId) -> bool {
        self.of(id).is_some_and(|file| file.state != FileState::Older)
    }

    /// Returns `true` for known files and copies of them. An inode alone proves little: the next file may
    /// reuse it.
    pub(super) fn is(&self, id: FileId, beginning: &FilePrefix) -> bool {
        let is_same = |file: &FileRecord| {
            (file.start.length > 0 || file.state == FileState::Reading) && beginning.agrees(file.start)
        };
        self.of(id).is_some_and(is_same) || self.files.iter().any(|file| beginning.is_of(file))
    }

    /// Returns `true` if a file with this beginning was read in part.
    pub(super) fn has_read(&self, beginning: &FilePrefix) -> bool {
        self.files.iter().any(|file| file.position > 0 && beginning.is_of(file))
    }

    /// The latest file that was the log.
    pub(super) fn newest(&self) -> Option<&FileRecord> {
        self.files.iter().rev().find(|file| file.state != FileState::Older)
    }

    /// The directories in which the files were seen.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter_map(|file| Path::new(&file.path).parent())
    }
}
