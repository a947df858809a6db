//! An open file of the log, and how far it has been read.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use crate::ingest::Lines;
use crate::ingest::identity::{Beginning, modified, read_at};
use crate::store::files::{DIGESTED, Digest, FileRecord};

/// A file on this machine, whatever its name.
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

/// Whether a file is still the one of which something was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileContent {
    /// It is: it was only added to.
    Same,
    /// It was truncated, or says something else.
    Changed,
}

#[derive(Debug)]
pub(super) struct Tail {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) lines: Lines,
    /// As of the last look.
    record: FileRecord,
    /// Where in the file the lines began.
    base: u64,
    /// When something was read of it last, or it was opened.
    read: Instant,
}

impl Tail {
    /// From the record's position on, at which a line begins.
    pub(super) fn new(mut file: File, record: FileRecord) -> io::Result<Self> {
        file.seek(SeekFrom::Start(record.position))?;
        let id = FileId::of(&file.metadata()?);
        let base = record.position;
        Ok(Self { file, id, lines: Lines::new(), record, base, read: Instant::now() })
    }

    /// From the file's end on; a line that is half written there is left out.
    pub(super) fn at_end(file: File, record: FileRecord) -> io::Result<Self> {
        let end = file.metadata()?.len();
        let last = read_at(&file, end.saturating_sub(1), 1)?;
        let mut tail = Self::new(file, FileRecord { position: end, ..record })?;
        if !matches!(last[..], [b'\n'] | []) {
            tail.lines = Lines::within_a_line();
        }
        Ok(tail)
    }

    /// How far it has been read: behind the last whole line.
    pub(super) fn record(&mut self) -> io::Result<&FileRecord> {
        if usize::from(self.record.start.length) < DIGESTED {
            let beginning = Beginning::of_file(&self.file)?;
            // A file that was truncated meanwhile is not what it was.
            if beginning.agrees(self.record.start) {
                (self.record.head, self.record.start) = (beginning.head(), beginning.digest());
            }
        }
        Ok(self.record_before())
    }

    /// The log's name means this file still. Whatever means it later is younger than the file is now; what is written
    /// to this one under another name says nothing of that.
    pub(super) fn confirm(&mut self, metadata: &fs::Metadata) {
        self.record.modified = modified(metadata);
    }

    /// The same, without a look at the file.
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

    /// Reads once, and gives how many bytes; lines come only of what was the same file before and after.
    pub(super) fn fill(&mut self) -> io::Result<Filled> {
        if self.content()? == FileContent::Changed {
            return Ok(Filled::Changed);
        }
        let read = self.lines.fill(&mut &self.file)?;
        if read == 0 {
            return Ok(Filled::Dry);
        }
        self.note_start();
        if self.content()? == FileContent::Changed {
            self.lines.unread(read);
            return Ok(Filled::Changed);
        }
        self.read = Instant::now();
        Ok(Filled::More(read))
    }

    /// How the file begins is taken from what was read first: by the time that anybody looks again, the file may have been
    /// truncated and be another.
    fn note_start(&mut self) {
        let is_first = self.base == 0 && self.lines.passed() == 0;
        if is_first && usize::from(self.record.start.length) < DIGESTED {
            let beginning = Beginning::of_bytes(self.lines.incomplete());
            if beginning.agrees(self.record.start) {
                (self.record.head, self.record.start) = (beginning.head(), beginning.digest());
            }
        }
    }

    /// Whether nothing but additions happened to it.
    pub(super) fn is_same(&mut self) -> io::Result<bool> {
        Ok(self.content()? == FileContent::Same)
    }

    /// Compares the first bytes, and those before the position, with what they were.
    fn content(&mut self) -> io::Result<FileContent> {
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
        Ok(if is_same { FileContent::Same } else { FileContent::Changed })
    }

    /// Looks up what it is called by now, wherever it was moved.
    pub(super) fn rename(&mut self) {
        let found = fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        // Of a file without a name the kernel says so, behind its last name.
        if let Ok(path) = found
            && fs::metadata(&path).is_ok_and(|metadata| FileId::of(&metadata) == self.id)
        {
            self.record.path = path.display().to_string();
        }
    }

    /// For how long nothing has been written to it.
    pub(super) fn quiet(&self) -> Duration {
        self.read.elapsed()
    }
}

/// What came of an attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// So many bytes.
    More(u64),
    /// There are no more for now.
    Dry,
    /// The file is not what it was.
    Changed,
}
