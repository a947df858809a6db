//! Where accepted events wait while the store does not take them: one file, bounded, in order.
//!
//! ```text
//! head     "OFSPOOL1", instance (8 bytes), generation (8)
//! record   length (4), number of events (4), CRC-32C of what follows (4), entries
//! ```
//!
//! How far the store has read is kept in the store, beside what was read: a crash neither loses nor doubles what is
//! in here. Once everything is read the file is cut back to its head, with a new generation.

use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;

const MAGIC: &[u8; 8] = b"OFSPOOL1";
const HEAD: u64 = 24;
const RECORD_HEAD: u64 = 12;

/// No record is longer: what says so is damaged.
const LONGEST_RECORD: u32 = 16 << 20;

/// The file in which events wait.
pub(crate) struct Spool {
    path: PathBuf,
    file: File,
    instance: u64,
    generation: u64,
    /// Where the next record is read.
    read: u64,
    /// Where the next record is written.
    end: u64,
    limit: u64,
}

/// What became of events that were to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// They wait.
    Yes,
    /// There is no room for them.
    Full,
}

/// One record.
pub(crate) struct Record {
    pub(crate) events: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Spool {
    /// Opens the file, or begins it, readable for its owner alone. It never becomes longer than `limit` bytes.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Self, Error> {
        let failed = |error| Error::Io(format!("opening the spool {}", path.display()), error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let mut head = [0; HEAD as usize];
        let known = file.read_exact_at(&mut head, 0).is_ok() && head.starts_with(MAGIC);
        let number = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let mut spool = Self {
            path: path.to_path_buf(),
            file,
            instance: number(8),
            generation: number(16),
            read: HEAD,
            end: HEAD,
            limit,
        };
        if known {
            spool.end = spool.intact_end().map_err(failed)?;
        } else {
            spool.instance = std::hash::RandomState::new().hash_one(path);
            spool.begin_again().map_err(failed)?;
        }
        Ok(spool)
    }

    /// The name under which the store remembers how far it read.
    pub(crate) fn source(&self) -> String {
        format!("spool-{:016x}", self.instance)
    }

    /// How far the store will have read once it has what was taken so far.
    pub(crate) fn position(&self) -> [u8; 16] {
        let mut position = [0; 16];
        position[..8].copy_from_slice(&self.generation.to_le_bytes());
        position[8..].copy_from_slice(&self.read.to_le_bytes());
        position
    }

    /// Goes on where the store says that it has read to; from the beginning where it knows nothing of this file.
    pub(crate) fn seek(&mut self, position: Option<&[u8]>) {
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(position?.get(at..at + 8)?.try_into().ok()?))
        };
        self.read = match (number(0), number(8)) {
            (Some(generation), Some(read)) if generation == self.generation => read.clamp(HEAD, self.end),
            _ => HEAD,
        };
    }

    /// Bytes that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.end - self.read
    }

    /// Lets events wait.
    pub(crate) fn push(&mut self, events: u32, bytes: &[u8]) -> Result<Kept, Error> {
        let length = bytes.len() as u64 + RECORD_HEAD;
        if self.end + length > self.limit {
            return Ok(Kept::Full);
        }
        let mut record = Vec::with_capacity(bytes.len() + RECORD_HEAD as usize);
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(&events.to_le_bytes());
        record.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
        record.extend_from_slice(bytes);
        self.file.write_all_at(&record, self.end).map_err(|error| self.failed("writing", error))?;
        self.end += length;
        Ok(Kept::Yes)
    }

    /// Takes the next record, if there is one.
    pub(crate) fn take(&mut self) -> Result<Option<Record>, Error> {
        if self.read >= self.end {
            return Ok(None);
        }
        let record = self.record_at(self.read).map_err(|error| self.failed("reading", error))?;
        match record {
            Some(record) => {
                self.read += record.bytes.len() as u64 + RECORD_HEAD;
                Ok(Some(record))
            }
            None => {
                // It was intact when the file was opened; what follows cannot be trusted.
                self.end = self.read;
                Ok(None)
            }
        }
    }

    /// Cuts the file back to its head, after everything in it was read and committed.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        self.generation = self.generation.wrapping_add(1);
        self.begin_again().map_err(|error| self.failed("emptying", error))
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        let mut head = [0; HEAD as usize];
        head[..8].copy_from_slice(MAGIC);
        head[8..16].copy_from_slice(&self.instance.to_le_bytes());
        head[16..].copy_from_slice(&self.generation.to_le_bytes());
        self.file.write_all_at(&head, 0)?;
        (self.read, self.end) = (HEAD, HEAD);
        Ok(())
    }

    /// Where the last record ends that was written in full.
    fn intact_end(&self) -> io::Result<u64> {
        let mut end = HEAD;
        while let Some(record) = self.record_at(end)? {
            end += record.bytes.len() as u64 + RECORD_HEAD;
        }
        Ok(end)
    }

    fn record_at(&self, at: u64) -> io::Result<Option<Record>> {
        let mut head = [0; RECORD_HEAD as usize];
        if !self.read_whole(&mut head, at)? {
            return Ok(None);
        }
        let number = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let (length, events, checksum) = (number(0), number(4), number(8));
        if length > LONGEST_RECORD {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        let whole = self.read_whole(&mut bytes, at + RECORD_HEAD)?;
        Ok((whole && crc32c::crc32c(&bytes) == checksum && length > 0).then_some(Record { events, bytes }))
    }

    /// False where the file ends before.
    fn read_whole(&self, into: &mut [u8], at: u64) -> io::Result<bool> {
        match self.file.read_exact_at(into, at) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn failed(&self, doing: &str, error: io::Error) -> Error {
        Error::Io(format!("{doing} the spool {}", self.path.display()), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(spool: &mut Spool) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| spool.take().unwrap()).map(|record| record.bytes).collect()
    }

    #[test]
    fn records_wait_in_order_and_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spool");
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        for text in ["one", "two", "three"] {
            assert_eq!(spool.push(1, text.as_bytes()).unwrap(), Kept::Yes);
        }
        assert_eq!(spool.take().unwrap().unwrap().bytes, b"one");
        let (position, source) = (spool.position(), spool.source());
        drop(spool);
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        assert_eq!(spool.source(), source);
        spool.seek(Some(&position));
        assert_eq!(bytes(&mut spool), [b"two".to_vec(), b"three".to_vec()]);
        spool.clear().unwrap();
        spool.seek(Some(&position));
        spool.push(1, b"four").unwrap();
        assert_eq!(
            bytes(&mut spool),
            [b"four".to_vec()],
            "an older generation's position counts for nothing"
        );
    }

    #[test]
    fn it_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&directory.path().join("spool"), 100).unwrap();
        assert_eq!(spool.push(1, &[1; 50]).unwrap(), Kept::Yes);
        assert_eq!(spool.push(1, &[2; 50]).unwrap(), Kept::Full);
        assert_eq!(bytes(&mut spool), [vec![1; 50]]);
    }

    #[test]
    fn a_torn_record_ends_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spool");
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        spool.push(1, b"whole").unwrap();
        spool.push(1, b"to be torn").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(spool.end - 3).unwrap();
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        assert_eq!(bytes(&mut spool), [b"whole".to_vec()]);
        std::fs::write(&path, b"something else entirely, which is no spool").unwrap();
        assert_eq!(Spool::open(&path, 1 << 20).unwrap().waiting(), 0);
    }
}
