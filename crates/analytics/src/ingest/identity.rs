//! Knowing a file again by what it says.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use crate::store::files::{DIGESTED, Digest, FileRecord, FileState, HEAD};

use super::Input;

/// The first bytes of a content.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beginning {
    bytes: Vec<u8>,
    /// Whether nothing follows.
    is_all: bool,
}

impl Beginning {
    /// Of what a reader has at its beginning.
    pub(crate) fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(DIGESTED + 1);
        reader.take(DIGESTED as u64 + 1).read_to_end(&mut bytes)?;
        let is_all = bytes.len() <= DIGESTED;
        bytes.truncate(DIGESTED);
        Ok(Self { bytes, is_all })
    }

    /// Of these bytes, which stand at the beginning.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes[..bytes.len().min(DIGESTED)].to_vec(), is_all: bytes.len() <= DIGESTED }
    }

    /// Of an open file; its offset stays where it is.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        let mut bytes = read_at(file, 0, DIGESTED + 1)?;
        let is_all = bytes.len() <= DIGESTED;
        bytes.truncate(DIGESTED);
        Ok(Self { bytes, is_all })
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether more may follow that would say more of it.
    pub(crate) fn is_short(&self) -> bool {
        self.bytes.len() < DIGESTED
    }

    /// By this it is looked up; 0 where it is too short to tell anything.
    pub(crate) fn head(&self) -> u64 {
        self.bytes.get(..HEAD).map_or(0, |head| Digest::of(head).hash)
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// Whether a file that began like this when it was looked at is the same, or a copy of it.
    pub(crate) fn is_of(&self, record: &FileRecord) -> bool {
        let length = usize::from(record.start.length);
        let is_enough = record.is_telling() || (self.is_all && self.bytes.len() == length && length > 0);
        is_enough && self.agrees(record.start)
    }

    /// Whether it begins with these bytes.
    pub(crate) fn agrees(&self, start: Digest) -> bool {
        self.bytes.get(..start.length.into()).is_some_and(|bytes| Digest::of(bytes) == start)
    }
}

/// The record of a file of which nothing was read yet.
pub(crate) fn record(number: i64, path: &Path, metadata: &Metadata, beginning: &Beginning) -> FileRecord {
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

/// When a file was written to last.
pub(crate) fn modified(metadata: &Metadata) -> SystemTime {
    // Every file system of Linux has it.
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// How a content fits to a record that begins like it.
#[derive(Debug)]
pub(crate) enum Fit {
    /// It has everything that was read; the input stands behind it.
    Whole(Input),
    /// It ends before: it was copied before the last of it was written.
    Shorter,
    /// It breaks off before: it is being compressed, or was damaged.
    BrokenOff,
    /// It says something else.
    Other,
}

/// Compares a content with what was read before, from its beginning on.
pub(crate) fn fit(mut input: Input, record: &FileRecord) -> io::Result<Fit> {
    let end = u64::from(record.end.length);
    let Some(before) = record.position.checked_sub(end) else { return Ok(Fit::Other) };
    let read = input.skip(before).and_then(|skipped| {
        let mut last = Vec::new();
        (&mut input).take(end).read_to_end(&mut last)?;
        Ok((skipped == before && last.len() as u64 == end, Digest::of(&last) == record.end))
    });
    Ok(match read {
        Ok((true, true)) => Fit::Whole(input),
        Ok((true, false)) => Fit::Other,
        Ok((false, _)) => Fit::Shorter,
        Err(error) if is_broken_off(&error) => Fit::BrokenOff,
        Err(error) => return Err(error),
    })
}

/// Whether compressed bytes end too soon or make no sense, which while they are written is no fault.
pub(crate) fn is_broken_off(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | Other | UnexpectedEof)
}

/// Up to `wanted` bytes from `offset` on.
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
