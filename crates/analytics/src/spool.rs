//! The spool: one bounded file in which accepted events wait, in order, while the store is unavailable.
//!
//! ```text
//! head     "OFSPOOL2", instance (8 bytes), generation (8)
//! record   length of the entries (4), number of events (4), CRC-32C of what follows (4), identity (16), entries
//! ```
//!
//! Each record has the identity of its batch. The store keeps the identity of its last batch, committed with
//! it, so a crash neither loses nor duplicates spooled events. The generation increases with every start, so
//! that no identity is used twice. Once the store has everything, the file is cut back to its head.

use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::batch::BatchId;
use crate::error::Error;

const MAGIC: &[u8; 8] = b"OFSPOOL2";
const HEAD: u64 = 24;
const RECORD_HEAD: u64 = 28;

/// The maximum number of spools at a path: one per process, including predecessors that still serve
/// connections.
const SPOOLS: u32 = 32;

/// The maximum length of a record; a larger value means damage.
const LONGEST_RECORD: u32 = 16 << 20;

/// The file in which events wait.
pub(crate) struct Spool {
    path: PathBuf,
    file: File,
    instance: u64,
    generation: u64,
    /// The offset of the first record that the store does not have.
    read: u64,
    /// The offset of the next record to write.
    end: u64,
    limit: u64,
}

/// The outcome of spooling a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpoolOutcome {
    /// The batch was written to the spool.
    Yes,
    /// The spool has no room for the batch.
    Full,
}

/// One record of the file.
struct SpoolRecord {
    identity: BatchId,
    events: u32,
    bytes: Vec<u8>,
}

/// Consecutive records, to be stored as one batch.
pub(crate) struct SpooledBatch {
    /// The identity of the last record.
    pub(crate) identity: BatchId,
    pub(crate) events: u64,
    pub(crate) bytes: Vec<u8>,
    /// The offset behind the last record.
    pub(crate) end: u64,
}

impl Spool {
    /// Opens or creates the file, readable by its owner only. It never grows beyond `limit` bytes.
    ///
    /// During an upgrade two processes have a spool each, locked: the first free one of `PATH`, `PATH.2` and
    /// so on, starting with those that are not empty.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Self, Error> {
        let failed = |error| Error::Io(format!("opening the spool {}", path.display()), error);
        let mut empty = None;
        for number in 1..=SPOOLS {
            let path = numbered(path, number);
            if number > 1 && empty.is_some() && !path.exists() {
                continue;
            }
            let Some(file) = lock(&path).map_err(failed)? else { continue };
            let spool = Self::of(path.clone(), file, limit).map_err(failed)?;
            if spool.waiting() > 0 {
                return Ok(spool);
            }
            empty.get_or_insert(spool);
        }
        empty.ok_or_else(|| failed(io::ErrorKind::WouldBlock.into()))
    }

    fn of(path: PathBuf, file: File, limit: u64) -> io::Result<Self> {
        let mut head = [0; HEAD as usize];
        let known = file.read_exact_at(&mut head, 0).is_ok() && head.starts_with(MAGIC);
        let number = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let mut spool = Self {
            path,
            file,
            instance: number(8),
            generation: number(16).wrapping_add(1),
            read: HEAD,
            end: HEAD,
            limit,
        };
        if known {
            spool.end = spool.intact_end()?;
            spool.write_head()?;
        } else {
            spool.instance = std::hash::RandomState::new().hash_one(&spool.path);
            spool.generation = 1;
            spool.begin_again()?;
        }
        Ok(spool)
    }

    /// The source under which the store records the last batch.
    pub(crate) fn source(&self) -> String {
        format!("spool-{:016x}", self.instance)
    }

    /// Increases with every start.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The offset behind the last record.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Skips records up to this batch, which the store has.
    pub(crate) fn skip(&mut self, latest: BatchId) {
        while let Ok(Some(record)) = self.record_at(self.read)
            && record.identity <= latest
        {
            self.read += record.bytes.len() as u64 + RECORD_HEAD;
        }
    }

    /// Skips records up to this offset, which the store has.
    pub(crate) fn done(&mut self, end: u64) {
        self.read = end.clamp(self.read, self.end);
    }

    /// Drops the remaining records, which cannot be read.
    pub(crate) fn give_up(&mut self) {
        self.read = self.end;
    }

    pub(crate) const fn waiting(&self) -> u64 {
        self.end - self.read
    }

    /// Appends a batch, if there is room for it.
    pub(crate) fn push(
        &mut self,
        identity: BatchId,
        events: u32,
        bytes: &[u8],
    ) -> Result<SpoolOutcome, Error> {
        let length = bytes.len() as u64 + RECORD_HEAD;
        if self.end + length > self.limit {
            return Ok(SpoolOutcome::Full);
        }
        let mut record = Vec::with_capacity(bytes.len() + RECORD_HEAD as usize);
        record.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        record.extend_from_slice(&events.to_le_bytes());
        record.extend_from_slice(&checksum(&identity.bytes(), bytes).to_le_bytes());
        record.extend_from_slice(&identity.bytes());
        record.extend_from_slice(bytes);
        self.file.write_all_at(&record, self.end).map_err(|error| self.failed("writing", error))?;
        self.end += length;
        Ok(SpoolOutcome::Yes)
    }

    /// The next records to store: up to `size` bytes, but at least one if there is one.
    pub(crate) fn peek(&mut self, size: usize) -> Result<Option<SpooledBatch>, Error> {
        let mut found: Option<SpooledBatch> = None;
        while found.as_ref().is_none_or(|found| found.bytes.len() < size) {
            let at = found.as_ref().map_or(self.read, |found| found.end);
            if at >= self.end {
                break;
            }
            let record = self.record_at(at).map_err(|error| self.failed("reading", error))?;
            let Some(record) = record else {
                // Intact when the file was opened, but damaged now: later records cannot be trusted.
                self.end = at;
                break;
            };
            let end = at + record.bytes.len() as u64 + RECORD_HEAD;
            let found = found.get_or_insert_with(|| SpooledBatch {
                identity: record.identity,
                events: 0,
                bytes: Vec::new(),
                end,
            });
            (found.identity, found.end) = (record.identity, end);
            found.events += u64::from(record.events);
            found.bytes.extend_from_slice(&record.bytes);
        }
        Ok(found)
    }

    /// Cuts the file back to its head, after all records were committed.
    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        if self.end == HEAD {
            return Ok(());
        }
        self.begin_again().map_err(|error| self.failed("emptying", error))
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.write_head()?;
        (self.read, self.end) = (HEAD, HEAD);
        Ok(())
    }

    fn write_head(&self) -> io::Result<()> {
        let mut head = [0; HEAD as usize];
        head[..8].copy_from_slice(MAGIC);
        head[8..16].copy_from_slice(&self.instance.to_le_bytes());
        head[16..].copy_from_slice(&self.generation.to_le_bytes());
        self.file.write_all_at(&head, 0)
    }

    /// The offset behind the last complete record.
    fn intact_end(&self) -> io::Result<u64> {
        let mut end = HEAD;
        while let Some(record) = self.record_at(end)? {
            end += record.bytes.len() as u64 + RECORD_HEAD;
        }
        Ok(end)
    }

    fn record_at(&self, at: u64) -> io::Result<Option<SpoolRecord>> {
        let mut head = [0; RECORD_HEAD as usize];
        if !self.read_whole(&mut head, at)? {
            return Ok(None);
        }
        let number = |at: usize| head[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let (length, events, expected) = (number(0), number(4), number(8));
        let identity = &head[12..];
        if length > LONGEST_RECORD {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        let whole = self.read_whole(&mut bytes, at + RECORD_HEAD)?;
        if !whole || length == 0 || checksum(identity, &bytes) != expected {
            return Ok(None);
        }
        Ok(BatchId::of(identity).map(|identity| SpoolRecord { identity, events, bytes }))
    }

    /// Returns `false` if the file ends before.
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

/// The path of the spool with this number.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if number > 1 {
        name.push(format!(".{number}"));
    }
    name.into()
}

/// Opens and locks the file; `None` if another process has it. The lock lasts as long as the file is open.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn checksum(identity: &[u8], entries: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(identity), entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: u64) -> BatchId {
        BatchId { generation: 1, number }
    }

    /// The waiting batches, record by record.
    fn bytes(spool: &mut Spool) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| {
            let found = spool.peek(1).unwrap()?;
            spool.done(found.end);
            Some(found.bytes)
        })
        .collect()
    }

    #[test]
    fn records_wait_in_order_and_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spool");
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        for (number, text) in ["one", "two", "three"].into_iter().enumerate() {
            assert_eq!(spool.push(identity(number as u64), 1, text.as_bytes()).unwrap(), SpoolOutcome::Yes);
        }
        let found = spool.peek(4).unwrap().unwrap();
        assert_eq!((found.bytes.as_slice(), found.events, found.identity), (&b"onetwo"[..], 2, identity(1)));
        let (source, generation) = (spool.source(), spool.generation());
        drop(spool);
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        assert_eq!((spool.source(), spool.generation()), (source, generation + 1));
        spool.skip(identity(0));
        assert_eq!(bytes(&mut spool), [b"two".to_vec(), b"three".to_vec()]);
        spool.clear().unwrap();
        spool.push(BatchId { generation: spool.generation(), number: 0 }, 1, b"four").unwrap();
        spool.skip(identity(7));
        assert_eq!(bytes(&mut spool), [b"four".to_vec()], "it is later than what another start gave");
    }

    #[test]
    fn two_processes_have_one_each_and_what_waits_is_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spool");
        let mut old = Spool::open(&path, 1 << 20).unwrap();
        let mut new = Spool::open(&path, 1 << 20).unwrap();
        assert_ne!(old.source(), new.source());
        old.push(identity(1), 1, b"old").unwrap();
        new.push(identity(1), 1, b"new").unwrap();
        assert_eq!((bytes(&mut old), bytes(&mut new)), (vec![b"old".to_vec()], vec![b"new".to_vec()]));
        drop(old);
        // The first spool is free again, and has events.
        let mut next = Spool::open(&path, 1 << 20).unwrap();
        assert_eq!(bytes(&mut next), [b"old".to_vec()]);
        next.clear().unwrap();
        drop((next, new));
        assert_eq!(bytes(&mut Spool::open(&path, 1 << 20).unwrap()), [b"new".to_vec()]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn it_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&directory.path().join("spool"), 130).unwrap();
        assert_eq!(spool.push(identity(1), 1, &[1; 50]).unwrap(), SpoolOutcome::Yes);
        assert_eq!(spool.push(identity(2), 1, &[2; 50]).unwrap(), SpoolOutcome::Full);
        assert_eq!(bytes(&mut spool), [vec![1; 50]]);
    }

    #[test]
    fn a_torn_record_ends_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spool");
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        spool.push(identity(1), 1, b"whole").unwrap();
        spool.push(identity(2), 1, b"to be torn").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(spool.end - 3).unwrap();
        drop(spool);
        let mut spool = Spool::open(&path, 1 << 20).unwrap();
        assert_eq!(bytes(&mut spool), [b"whole".to_vec()]);
        drop(spool);
        std::fs::write(&path, b"something else entirely, which is no spool").unwrap();
        assert_eq!(Spool::open(&path, 1 << 20).unwrap().waiting(), 0);
    }
}
