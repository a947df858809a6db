//! Recognition of files by their content.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use crate::store::files::{DIGESTED, Digest, FileRecord, FileState, HEAD};

use super::Input;

/// The first bytes of a file's content.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilePrefix {
    bytes: Vec<u8>,
    /// Set if the file has no more bytes.
    is_all: bool,
}

impl FilePrefix {
    /// Reads the beginning from a reader at its start.
    pub(crate) fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(DIGESTED + 1);
        reader.take(DIGESTED as u64 + 1).read_to_end(&mut bytes)?;
        let is_all = bytes.len() <= DIGESTED;
        bytes.truncate(DIGESTED);
        Ok(Self { bytes, is_all })
    }

    /// Takes the beginning from the first bytes of a content.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes[..bytes.len().min(DIGESTED)].to_vec(), is_all: bytes.len() <= DIGESTED }
    }

    /// Reads the beginning of an open file, without moving its offset.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        let mut bytes = read_at(file, 0, DIGESTED + 1)?;
        let is_all = bytes.len() <= DIGESTED;
        bytes.truncate(DIGESTED);
        Ok(Self { bytes, is_all })
    }

    /// Returns `true` for an empty content.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns `true` if more bytes may follow that would identify the file better.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes.len() < DIGESTED
    }

    /// The key for look-ups; 0 for a content too short to be recognised.
    pub(crate) fn head(&self) -> u64 {
        self.bytes.get(..HEAD).map_or(0, |head| Digest::of(head).hash)
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// Returns `true` for the recorded file and copies of it.
    pub(crate) fn is_of(&self, record: &FileRecord) -> bool {
        let length = usize::from(record.start.length);
        let is_enough = record.is_telling() || (self.is_all && self.bytes.len() == length && length > 0);
        is_enough && self.agrees(record.start)
    }

    /// Returns `true` if the content starts with the bytes of this digest.
    pub(crate) fn agrees(&self, start: Digest) -> bool {
        self.bytes.get(..start.length.into()).is_some_and(|bytes| Digest::of(bytes) == start)
    }
}

/// The record of a file not yet read.
pub(crate) fn record(number: i64, path: &Path, metadata: &Metadata, beginning: &FilePrefix) -> FileRecord {
    FileRecord {
        number,
        state: FileState::Reading,
        path: path.display().to_string(),
        device: metadata.dev(),
        inode: metadata.ino(),
        position: 0,
        modified: modified(metadata),
        head: beginning.head(),
        start: beginning.digest(),
        end: Digest::default(),
    }
}

/// The time of the last write.
pub(crate) fn modified(metadata: &Metadata) -> SystemTime {
    // Every file system of Linux records it.
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The relation of a content to a record with the same beginning.
#[derive(Debug)]
pub(crate) enum FileMatch {
    /// The content includes everything that was read; the input is positioned behind it.
    Whole(Input),
    /// The content ends earlier: it was copied before the last writes.
    Shorter,
    /// The compressed data breaks off earlier: compression is in progress, or the file is damaged.
    BrokenOff,
    /// Other bytes than the recorded ones.
    Other,
}

/// Compares a content with the recorded part, and positions the input behind it.
pub(crate) fn fit(mut input: Input, record: &FileRecord) -> io::Result<FileMatch> {
    let end = u64::from(record.end.length);
    let Some(before) = record.position.checked_sub(end) else { return Ok(FileMatch::Other) };
    let read = input.skip(before).and_then(|skipped| {
        let mut last = Vec::new();
        (&mut input).take(end).read_to_end(&mut last)?;
        Ok((skipped == before && last.len() as u64 == end, Digest::of(&last) == record.end))
    });
    Ok(match read {
        Ok((true, true)) => FileMatch::Whole(input),
        Ok((true, false)) => FileMatch::Other,
        Ok((false, _)) => FileMatch::Shorter,
        Err(error) if is_broken_off(&error) => FileMatch::BrokenOff,
        Err(error) => return Err(error),
    })
}

/// Returns `true` for truncated or invalid compressed data, which is normal while it is being written.
pub(crate) fn is_broken_off(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | Other | UnexpectedEof)
}

/// Reads up to `wanted` bytes at `offset`.
pub(crate) fn read_at(file: &File, offset: u64, wanted: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; wanted];
    let mut got = 0;
    while got < wanted {
        match file.read_at(&mut bytes[got..], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(got);
    Ok(bytes)
}
