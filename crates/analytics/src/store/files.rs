//! How far the files of logs have been read: which file, how many of its bytes, and whether more may come.
//!
//! A record is written in the transaction of the requests that it counts. A file is known again by its device and
//! inode, and by what it says: the hash of its first bytes, and of the last bytes that were read. So a file that was
//! renamed, copied or compressed is the same one, and one that got a used inode is not.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::store::{Dialect, Engine, Fields};

/// Bytes, as their number and a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// How many.
    pub length: u16,
    /// FNV-1a: it need not resist anybody, it must be the same forever.
    pub hash: u64,
}

impl Default for Digest {
    /// Of no bytes.
    fn default() -> Self {
        Self::of(b"")
    }
}

impl Digest {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { length: bytes.len().min(usize::from(u16::MAX)) as u16, hash }
    }
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It is read, and more may be written to it.
    Reading,
    /// All of it has been read, and nothing more is expected.
    Finished,
    /// It could not be found again or read to its end: requests may be missing from the store.
    Lost,
    /// It was there before the log was followed first, and is not read.
    Older,
}

impl FileState {
    const ALL: [Self; 4] = [Self::Reading, Self::Finished, Self::Lost, Self::Older];

    /// Its name in the store.
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

/// A file of a log, and how far it has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Tells the files of one source apart; later ones have greater numbers.
    pub number: i64,
    /// What became of it.
    pub state: FileState,
    /// Where it was seen last.
    pub path: String,
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
    /// How many bytes of its content were read: whole lines. Of a compressed file: of what it holds.
    pub position: u64,
    /// When it had been written to last when it was seen to be the log last. What was the log later is younger.
    pub modified: SystemTime,
    /// The hash of its first 48 bytes, by which it is looked up; 0 where it is shorter.
    pub head: u64,
    /// Its first bytes.
    pub start: Digest,
    /// The last bytes before the position.
    pub end: Digest,
}

impl FileRecord {
    /// Whether its first bytes tell it from other files: every line has a time, so the first ones of two logs differ.
    #[must_use]
    pub const fn is_telling(&self) -> bool {
        self.start.length as usize >= HEAD
    }
}

/// At most so many bytes are digested: a line or two.
pub(crate) const DIGESTED: usize = 256;
/// Bytes that say something by themselves: an address and a time.
pub(crate) const HEAD: usize = 48;
/// So many records of a source are kept.
const KEPT: i64 = 1000;

/// The table, and the index by which a file is found that was read under another name.
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

/// Writes a record, inside the open transaction.
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

/// The files of a source, the oldest first.
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

/// The files of all sources that begin with these bytes.
pub(crate) fn with_head(engine: &mut dyn Engine, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM files WHERE head = {} ORDER BY number", head.cast_signed());
    let mut found = Vec::new();
    engine.rows(&sql, &[], &mut |row| {
        found.push((row.text(12).to_owned(), record(row)));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn record(row: &dyn Fields) -> FileRecord {
    let digest = |at: usize| Digest {
        length: u16::try_from(row.int(at)).unwrap_or(0),
        hash: row.int(at + 1).cast_unsigned(),
    };
    let state = FileState::ALL.into_iter().find(|state| state.name() == row.text(1));
    FileRecord {
        number: row.int(0),
        // What a later version may call otherwise is at least not read twice.
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

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// What the first version of the schema knew of a log: in `positions`, one opaque value for a source. It has a version,
/// then device, inode, position, the hash of the first bytes and the time in nanoseconds, then their number.
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
    use crate::store::{Access, schema};

    fn engine() -> Box<dyn Engine> {
        let access = Access { busy: Duration::from_secs(1), cache_kib: 1024 };
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
