//! An open file of the log and the read position in it.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use crate::ingest::LineBuffer;
use crate::ingest::identity::{FilePrefix, modified, read_at};
use crate::store::files::{DIGESTED, Digest, FileRecord};

/// The identity of a file, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(super) const fn of_record(record: &FileRecord) -> Self {
        Self { device: record.device, inode: record.inode }
    }
}

/// The state of a file since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentChange {
    /// Unchanged, or appended to.
    Same,
    /// Truncated, or overwritten with other content.
    Changed,
}

#[derive(Debug)]
pub(super) struct TailedFile {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) lines: LineBuffer,
    /// The record as of the last look.
    record: FileRecord,
    /// The file offset of the first line.
    base: u64,
    /// The time of the last read, or of opening.
    read: Instant,
}

impl TailedFile {
    /// Opens at the record's position, which is the start of a line.
    pub(super) fn new(mut file: File, record: FileRecord) -> io::Result<Self> {
        file.seek(SeekFrom::Start(record.position))?;
        let id = FileId::of(&file.metadata()?);
        let base = record.position;
        Ok(Self { file, id, lines: LineBuffer::new(), record, base, read: Instant::now() })
    }

    /// Opens at the end of the file; a partial line there is left out.
    pub(super) fn at_end(file: File, record: FileRecord) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let last = read_at(&file, end.saturating_sub(1), 1)?;
        let mut tail = Self::new(file, FileRecord { position: end, ..record })?;
        if !matches!(last[..], [b'\n'] | []) {
            tail.lines = LineBuffer::within_a_line();
        }
        Ok(tail)
    }

    /// The record of what has been read, up to the last whole line.
    pub(super) fn record(&mut self) -> io::Result<&FileRecord> {
        if usize::from(self.record.start.length) < DIGESTED {
            let beginning = FilePrefix::of_file(&self.file)?;
            // A file that was truncated in the meantime keeps its old digests.
            if beginning.agrees(self.record.start) {
                (self.record.head, self.record.start) = (beginning.head(), beginning.digest());
            }
        }
        Ok(self.record_before())
    }

    /// Confirms that the log's path still refers to this file. A later file there is younger than the file is
    /// now; writes to this one under another name do not count.
    pub(super) fn confirm(&mut self, metadata: &fs::Metadata) {
        self.record.modified = modified(metadata);
    }

    /// Like [`record`](Self::record), without a look at the file.
    pub(super) fn record_before(&mut self) -> &FileRecord {
        if self.lines.passed() > 0 {
            self.record.position = self.base + self.lines.passed();
            self.record.end = Digest::of(&self.lines.ending());
        }
        &self.record
    }

    pub(super) const fn number(&self) -> i64 {
        self.record.number
    }

    /// Reads once and returns the number of bytes; yields lines only if the file was the same before and
    /// after.
    pub(super) fn fill(&mut self) -> io::Result<Filled> {
        if self.content()? == ContentChange::Changed {
            return Ok(Filled::Changed);
        }
        let read = self.lines.fill(&mut &self.file)?;
        if read == 0 {
            return Ok(Filled::Dry);
        }
        self.note_start();
        if self.content()? == ContentChange::Changed {
            self.lines.unread(read);
            return Ok(Filled::Changed);
        }
        self.read = Instant::now();
        Ok(Filled::More(read))
    }

    /// Takes the digest of the beginning from what was read first: by the next look the file may have been
    /// truncated and replaced.
    fn note_start(&mut self) {
        let is_first = self.base == 0 && self.lines.passed() == 0;
        if is_first && usize::from(self.record.start.length) < DIGESTED {
            let beginning = FilePrefix::of_bytes(self.lines.incomplete());
            if beginning.agrees(self.record.start) {
                (self.record.head, self.record.start) = (beginning.head(), beginning.digest());
            }
        }
    }

    /// Returns `true` if the file was at most appended to.
    pub(super) fn is_same(&mut self) -> io::Result<bool> {
        Ok(self.content()? == ContentChange::Same)
    }

    /// Compares the first bytes, and those before the position, with their digests.
    fn content(&mut self) -> io::Result<ContentChange> {
        let read = self.base + self.lines.passed() + self.lines.waiting();
        let FileRecord { position, start, end, .. } = *self.record_before();
        let is = |digest: Digest, at: u64| -> io::Result<bool> {
            let mut bytes = [0; DIGESTED];
            let bytes = &mut bytes[..DIGESTED.min(digest.length.into())];
            match self.file.read_exact_at(bytes, at) {
                Ok(()) => Ok(Digest::of(bytes) == digest),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
                Err(error) => Err(error),
            }
        };
        let is_same = self.file.metadata()?.len() >= read
            && is(start, 0)?
            && is(end, position.saturating_sub(end.length.into()))?;
        Ok(if is_same { ContentChange::Same } else { ContentChange::Changed })
    }

    /// Looks up the present path of the file.
    pub(super) fn rename(&mut self) {
        let found = fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        // For an unlinked file the kernel appends a remark to the last path.
        if let Ok(path) = found
            && fs::metadata(&path).is_ok_and(|metadata| FileId::of(&metadata) == self.id)
        {
            self.record.path = path.display().to_string();
        }
    }

    /// The time since the last write.
    pub(super) fn quiet(&self) -> Duration {
        self.read.elapsed()
    }
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// This many bytes were read.
    More(u64),
    /// End of file for now.
    Dry,
    /// The file was truncated or overwritten.
    Changed,
}
