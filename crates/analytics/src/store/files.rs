//! Read positions in the files of logs: the file, the number of bytes read, and its state.
//!
//! A record is written in the transaction of the requests that it counts. Files are recognised by device and
//! inode, and by content: hashes of the first bytes, and of the last bytes that were read. So a renamed,
//! copied or compressed file is the same one, and a file with a reused inode is not.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::store::{Dialect, Engine, RowReader};
use crate::time::micros;

/// A digest of bytes: their number and a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The number of bytes.
    pub length: u16,
    /// FNV-1a: it must be stable forever, not collision-resistant.
    pub hash: u64,
}

impl Default for Digest {
    /// The digest of no bytes.
    fn default() -> Self {
        Self::of(b"")
    }
}

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { length: bytes.len().min(usize::from(u16::MAX)) as u16, hash }
    }
}

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Read so far, and more may be written to it.
    Reading,
    /// Read to its end, and nothing more is expected.
    Finished,
    /// Not found again, or not readable to its end: requests may be missing from the store.
    Lost,
    /// Older than the first following of the log, and not read.
    Older,
}

impl FileState {
    const ALL: [Self; 4] = [Self::Reading, Self::Finished, Self::Lost, Self::Older];

    /// The name of the state in the store.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Finished => "finished",
            Self::Lost => "lost",
            Self::Older => "older",
        }
    }
}

/// A file of a log with its read position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// The number among the files of one source; increases with age of the log.
    pub number: i64,
    /// The state of the file.
    pub state: FileState,
    /// The last known path.
    pub path: String,
    /// The device of the file.
    pub device: u64,
    /// The inode of the file.
    pub inode: u64,
    /// The content bytes read, in whole lines. For compressed files, after decompression.
    pub position: u64,
    /// The modification time when the file was last seen to be the log. Later files of the log are younger.
    pub modified: SystemTime,
    /// The hash of the first 48 bytes, which is the key for look-ups; 0 for shorter files.
    pub head: u64,
    /// The digest of the first bytes.
    pub start: Digest,
    /// The digest of the last bytes before the position.
    pub end: Digest,
}

impl FileRecord {
    /// Returns `true` if the first bytes identify the file: every line has a time, so the first lines of two
    /// logs differ.
    #[must_use]
    pub const fn is_telling(&self) -> bool {
        self.start.length as usize >= HEAD
    }
}

/// The maximum number of digested bytes: a line or two.
pub(crate) const DIGESTED: usize = 256;
/// The number of bytes that identify a file: an address and a time.
pub(crate) const HEAD: usize = 48;
/// The number of records kept per source.
const KEPT: i64 = 1000;

/// The table, and the index for finding a file that was read under another name.
pub(crate) fn tables(dialect: Dialect) -> String {
    let strict = match dialect {
        Dialect::Sqlite => " STRICT",
        Dialect::Postgres => "",
    };
    format!(
        "CREATE TABLE files (source TEXT NOT NULL, number BIGINT NOT NULL, state TEXT NOT NULL, \
           path TEXT NOT NULL, device BIGINT NOT NULL, inode BIGINT NOT NULL, bytes_read BIGINT NOT NULL, \
           modified_us BIGINT NOT NULL, head BIGINT NOT NULL, start_length INTEGER NOT NULL, \
           start_hash BIGINT NOT NULL, end_length INTEGER NOT NULL, end_hash BIGINT NOT NULL, \
           PRIMARY KEY (source, number)){strict};
         CREATE INDEX files_head ON files (head);"
    )
}

const COLUMNS: &str = "number, state, path, device, inode, bytes_read, modified_us, head, start_length, start_hash, \
                       end_length, end_hash, source";

/// Writes a record in the open transaction.
pub(crate) fn save(engine: &mut dyn Engine, source: &str, file: &FileRecord) -> Result<(), Error> {
    let mut values = String::new();
    let numbers = [
        file.device.cast_signed(),
        file.inode.cast_signed(),
        file.position.cast_signed(),
        micros(file.modified),
        file.head.cast_signed(),
        file.start.length.into(),
        file.start.hash.cast_signed(),
        file.end.length.into(),
        file.end.hash.cast_signed(),
    ];
    for number in numbers {
        // Writing to a string cannot fail.
        let _ = write!(values, ", {number}");
    }
    let sql = format!(
        "INSERT INTO files ({COLUMNS}) VALUES ({number}, $1, $2{values}, $3) \
         ON CONFLICT (source, number) DO UPDATE SET state = excluded.state, path = excluded.path, \
           device = excluded.device, inode = excluded.inode, bytes_read = excluded.bytes_read, \
           modified_us = excluded.modified_us, head = excluded.head, start_length = excluded.start_length, \
           start_hash = excluded.start_hash, end_length = excluded.end_length, end_hash = excluded.end_hash",
        number = file.number,
    );
    engine.run(&sql, &[file.state.name(), &file.path, source])?;
    if file.state != FileState::Reading && file.number > KEPT {
        let oldest = file.number - KEPT;
        engine.run(
            &format!("DELETE FROM files WHERE source = $1 AND number < {oldest} AND state <> 'reading'"),
            &[source],
        )?;
    }
    Ok(())
}

/// The files of a source, oldest first.
pub(crate) fn of_source(engine: &mut dyn Engine, source: &str) -> Result<Vec<FileRecord>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM files WHERE source = $1 ORDER BY number");
    let mut found = Vec::new();
    engine.rows(&sql, &[source], &mut |row| {
        found.push(record(row));
        ControlFlow::Continue(())
    })?;
    if found.is_empty() {
        let place = engine.text("SELECT place FROM positions WHERE source = $1", &[source])?;
        found.extend(place.and_then(|place| of_version_1(source, &place)));
    }
    Ok(found)
}

/// The files of all sources that start with these bytes.
pub(crate) fn with_head(engine: &mut dyn Engine, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM files WHERE head = {} ORDER BY number", head.cast_signed());
    let mut found = Vec::new();
    engine.rows(&sql, &[], &mut |row| {
        found.push((row.text(12).to_owned(), record(row)));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn record(row: &dyn RowReader) -> FileRecord {
    let digest = |at: usize| Digest {
        length: u16::try_from(row.int(at)).unwrap_or(0),
        hash: row.int(at + 1).cast_unsigned(),
    };
    let state = FileState::ALL.into_iter().find(|state| state.name() == row.text(1));
    FileRecord {
        number: row.int(0),
        // States of a later version are at least not read twice.
        state: state.unwrap_or(FileState::Finished),
        path: row.text(2).to_owned(),
        device: row.int(3).cast_unsigned(),
        inode: row.int(4).cast_unsigned(),
        position: row.int(5).cast_unsigned(),
        modified: SystemTime::UNIX_EPOCH + Duration::from_micros(row.int(6).max(0).cast_unsigned()),
        head: row.int(7).cast_unsigned(),
        start: digest(8),
        end: digest(10),
    }
}

/// Parses the record of schema version 1: an opaque value per source in `positions`, with a version, then
/// device, inode, position, the hash of the first bytes and the time in nanoseconds, then the number of those
/// bytes.
fn of_version_1(source: &str, place: &str) -> Option<FileRecord> {
    let mut bytes = [0; 43];
    if place.len() != bytes.len() * 2 {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(place.get(at..at + 2)?, 16).ok()?;
    }
    let number = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(number)
    };
    (bytes[0] == 1).then(|| FileRecord {
        number: 1,
        state: FileState::Reading,
        path: source.to_owned(),
        device: number(1),
        inode: number(9),
        position: number(17),
        modified: SystemTime::UNIX_EPOCH + Duration::from_nanos(number(33)),
        head: 0,
        start: Digest { length: u16::from_le_bytes([bytes[41], bytes[42]]), hash: number(25) },
        end: Digest::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::Sqlite;
    use crate::store::{StoreAccess, schema};

    fn engine() -> Box<dyn Engine> {
        let access = StoreAccess { busy: Duration::from_secs(1), cache_kib: 1024 };
        let mut engine: Box<dyn Engine> = Box::new(Sqlite::in_memory(access).unwrap());
        schema::migrate(engine.as_mut()).unwrap();
        engine
    }

    fn file(number: i64) -> FileRecord {
        FileRecord {
            number,
            state: FileState::Reading,
            path: "/var/log/access's.log".to_owned(),
            device: 3,
            inode: u64::MAX,
            position: 1 << 40,
            modified: SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_309_323_123_456),
            head: u64::MAX - 7,
            start: Digest::of(&[7; DIGESTED]),
            end: Digest::of(b"end"),
        }
    }

    #[test]
    fn records_are_kept_as_they_were() {
        let mut engine = engine();
        let engine = engine.as_mut();
        save(engine, "a", &file(1)).unwrap();
        save(engine, "b", &FileRecord { head: 1, ..file(1) }).unwrap();
        let later = FileRecord { state: FileState::Lost, position: 5, ..file(2) };
        save(engine, "a", &file(2)).unwrap();
        save(engine, "a", &later).unwrap();
        assert_eq!(of_source(engine, "a").unwrap(), [file(1), later.clone()]);
        assert_eq!(
            with_head(engine, u64::MAX - 7).unwrap(),
            [("a".to_owned(), file(1)), ("a".to_owned(), later)]
        );
        assert_eq!(of_source(engine, "c").unwrap(), []);
    }

    #[test]
    fn only_the_last_thousand_are_kept() {
        let mut engine = engine();
        let engine = engine.as_mut();
        save(engine, "a", &file(1)).unwrap();
        for number in 2..=1100 {
            save(engine, "a", &FileRecord { state: FileState::Finished, ..file(number) }).unwrap();
        }
        let kept = of_source(engine, "a").unwrap();
        assert_eq!((kept.len(), kept[0].number, kept[1].number), (1002, 1, 100), "what is read is kept");
    }

    #[test]
    fn the_position_of_the_first_version_is_understood() {
        let mut engine = engine();
        let engine = engine.as_mut();
        let mut place = String::from("01");
        for number in [3u64, 77, 1 << 33, 0xaf63_dc4c_8601_ec8c, 1_795_309_323_123_456_789] {
            place += &number.to_le_bytes().map(|byte| format!("{byte:02x}")).concat();
        }
        place += "0100";
        engine.run("INSERT INTO positions (source, place) VALUES ($1, $2)", &["/log", &place]).unwrap();
        let found = of_source(engine, "/log").unwrap();
        assert_eq!((found[0].device, found[0].inode, found[0].position), (3, 77, 1 << 33));
        assert_eq!(found[0].start, Digest::of(b"a"), "it is FNV-1a, forever");
        assert_eq!(of_version_1("/log", "09"), None);
        assert_eq!(of_version_1("/log", &place.replacen("01", "09", 1)), None);
    }
}
