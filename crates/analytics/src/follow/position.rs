//! How far a file that is followed has been read, in a form that outlives renames, restarts and reused inodes.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

/// A file on this machine, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// The first bytes of a file, as a hash: tells whether an inode is still the same log, and which file is a copy of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    length: u16,
    hash: u64,
}

impl Fingerprint {
    /// Of the first bytes that are there: a log is only added to, so they stay.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Self::of_front(file, PREFIX)
    }

    fn of_front(file: &File, wanted: usize) -> io::Result<Self> {
        let mut prefix = [0; PREFIX];
        let wanted = wanted.min(PREFIX);
        let mut got = 0;
        while got < wanted {
            match file.read_at(&mut prefix[got..wanted], got as u64) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::of(&prefix[..got]))
    }

    fn of(prefix: &[u8]) -> Self {
        // FNV-1a: it need not resist anybody, it must be the same forever.
        let hash = prefix.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { length: prefix.len() as u16, hash }
    }

    /// Whether a file begins with the same bytes.
    pub(super) fn matches_file(self, file: &File) -> io::Result<bool> {
        Ok(Self::of_front(file, self.length.into())? == self)
    }

    /// Of what a reader has at its beginning.
    pub(super) fn of_content(reader: &mut impl Read) -> io::Result<Self> {
        Self::of_reader(reader, PREFIX as u64)
    }

    /// Whether a reader, at its beginning, has the same bytes.
    pub(super) fn matches(self, reader: &mut impl Read) -> io::Result<bool> {
        Ok(Self::of_reader(reader, self.length.into())? == self)
    }

    fn of_reader(reader: &mut impl Read, length: u64) -> io::Result<Self> {
        let mut prefix = Vec::with_capacity(PREFIX);
        reader.take(length).read_to_end(&mut prefix)?;
        Ok(Self::of(&prefix))
    }

    /// Whether it tells files apart: every line of a log has a time, so the first ones of two logs differ.
    pub(super) const fn is_telling(self) -> bool {
        self.length as usize >= TELLING
    }

    /// Whether there was nothing yet.
    pub(super) const fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Whether more bytes would make it better.
    pub(super) const fn is_short(self) -> bool {
        (self.length as usize) < PREFIX
    }
}

/// Up to where a file has been read: its lines before `offset` are in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) file: FileId,
    /// In bytes of content; in a compressed file of what it holds.
    pub(super) offset: u64,
    pub(super) fingerprint: Fingerprint,
    /// When the file was written last, as far as is known: what was the log later has been written later.
    pub(super) modified: SystemTime,
}

impl Position {
    pub(super) fn encode(&self) -> [u8; ENCODED] {
        let mut bytes = [0; ENCODED];
        bytes[0] = VERSION;
        let modified = self.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let modified = u64::try_from(modified).unwrap_or(u64::MAX);
        let numbers = [self.file.device, self.file.inode, self.offset, self.fingerprint.hash, modified];
        for (slot, number) in bytes[1..LENGTH_AT].chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes[LENGTH_AT..].copy_from_slice(&self.fingerprint.length.to_le_bytes());
        bytes
    }

    /// `None` for what no version of this program wrote, or only a later one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ENCODED] = bytes.try_into().ok()?;
        if bytes[0] != VERSION {
            return None;
        }
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let length = u16::from_le_bytes([bytes[LENGTH_AT], bytes[LENGTH_AT + 1]]);
        Some(Self {
            file: FileId { device: number(1), inode: number(9) },
            offset: number(17),
            fingerprint: Fingerprint { length, hash: number(25) },
            modified: SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(number(33)))?,
        })
    }
}

const VERSION: u8 = 1;
/// Where the fingerprint's length stands: behind the version and five numbers.
const LENGTH_AT: usize = 1 + 5 * 8;
const ENCODED: usize = LENGTH_AT + 2;
/// Bytes of a full fingerprint: a line or two.
const PREFIX: usize = 256;
/// Bytes of a fingerprint that says something by itself: an address and a time.
const TELLING: usize = 48;

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{FileId, Fingerprint, Position};

    #[test]
    fn a_position_outlives_its_encoding() {
        let position = Position {
            file: FileId { device: 3, inode: u64::MAX },
            offset: 1 << 40,
            fingerprint: Fingerprint::of(&[7; 256]),
            modified: SystemTime::UNIX_EPOCH + Duration::from_nanos(1_795_309_323_123_456_789),
        };
        let bytes = position.encode();
        assert_eq!(Position::decode(&bytes), Some(position));
        assert_eq!(Position::decode(&bytes[1..]), None);
        assert_eq!(Position::decode(&[9; 43]), None);
        assert_eq!(Fingerprint::of(b"").hash, 0xcbf2_9ce4_8422_2325);
        assert_eq!(Fingerprint::of(b"a").hash, 0xaf63_dc4c_8601_ec8c, "it is FNV-1a, forever");
    }
}
