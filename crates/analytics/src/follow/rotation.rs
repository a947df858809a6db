//! Which files beside a log are its past: by what they are first, by what they are called second.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::ingest::Input;

use super::position::{FileId, Position};
use super::watch::directory;

/// A file that was the log once.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    pub(super) modified: SystemTime,
}

/// The file of a position, under whatever name: the same inode, or else a copy of it (by `copytruncate`, by
/// compression) that is called like one. Of a copy there must be something left to read, or it is not worth finding.
pub(super) fn find(log: &Path, position: &Position) -> io::Result<Option<Past>> {
    let mut copies = Vec::new();
    for (path, metadata) in beside(log)? {
        let id = FileId::of(&metadata);
        let is_same = id == position.file && path != log;
        let may_be_copy = position.fingerprint.is_telling() && is_past_name(log, &path);
        // A file that vanishes while one looks is none.
        if !(is_same || may_be_copy) || !matches!(holds(&path, &metadata, position), Ok(true)) {
            continue;
        }
        let past = Past { path, id, modified: modified(&metadata) };
        if is_same {
            return Ok(Some(past));
        }
        copies.push(past);
    }
    Ok(copies.into_iter().max_by_key(|past| past.modified))
}

/// The files that were the log after `modified`, the oldest first. `known` is left out, and the log as it is now.
pub(super) fn later(log: &Path, modified: SystemTime, known: &[FileId]) -> io::Result<Vec<Past>> {
    let mut later: Vec<_> = beside(log)?
        .filter(|(path, metadata)| {
            is_past_name(log, path)
                && self::modified(metadata) > modified
                && !known.contains(&FileId::of(metadata))
        })
        .map(|(path, metadata)| Past { path, id: FileId::of(&metadata), modified: self::modified(&metadata) })
        .collect();
    later.sort_by_key(|past| past.modified);
    Ok(later)
}

/// When a file was written last.
pub(super) fn modified(metadata: &Metadata) -> SystemTime {
    // Every file system of Linux has it.
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Whether a file has the position: begins in the same way, and is long enough.
fn holds(path: &Path, metadata: &Metadata, position: &Position) -> io::Result<bool> {
    let mut input = Input::new(String::new(), File::open(path)?)?;
    let long_enough = input.is_compressed() || metadata.len() >= position.offset;
    Ok(long_enough && position.fingerprint.matches(&mut input)?)
}

/// The regular files in the log's directory.
fn beside(log: &Path) -> io::Result<impl Iterator<Item = (PathBuf, Metadata)>> {
    let entries = fs::read_dir(directory(log))?;
    Ok(entries.filter_map(|entry| {
        let entry = entry.ok()?;
        // Not through links: a link to the log is not its past.
        let metadata = entry.metadata().ok().filter(Metadata::is_file)?;
        Some((entry.path(), metadata))
    }))
}

/// Whether a file is called as `logrotate` and its like call the past of a log: `access.log.1`, `access.log.2.gz`,
/// `access.log-20261122`, `access-2026-11-22.log.gz`.
fn is_past_name(log: &Path, path: &Path) -> bool {
    let (Some(log), Some(name)) = (log.file_name(), path.file_name()) else { return false };
    let name = name.as_bytes();
    let name = name.strip_suffix(b".gz").unwrap_or(name);
    let is_count = |part: &[u8]| {
        matches!(part, [b'.' | b'-' | b'_', ..])
            && part.iter().any(u8::is_ascii_digit)
            && part
                .iter()
                .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_' | b'T' | b':'))
    };
    if name.strip_prefix(log.as_bytes()).is_some_and(is_count) {
        return true;
    }
    let log = Path::new(log);
    let (Some(stem), Some(extension)) = (log.file_stem().map(OsStr::as_bytes), log.extension()) else {
        return false;
    };
    let middle = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(extension.as_bytes()));
    middle.and_then(|middle| middle.strip_suffix(b".")).is_some_and(is_count)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::is_past_name;

    #[test]
    fn knows_the_names_of_the_past() {
        let log = Path::new("/var/log/access.log");
        for (name, is_past) in [
            ("access.log.1", true),
            ("access.log.12.gz", true),
            ("access.log-20261122", true),
            ("access.log-20261122-1795309323.gz", true),
            ("access-20261122.log", true),
            ("access.2026-11-22.log.gz", true),
            ("access.log", false),
            ("access.log.gz", false),
            ("access.log.bak", false),
            ("access.log.rejects", false),
            ("access.log.", false),
            ("access-admin.log", false),
            ("other.log.1", false),
            ("error.log", false),
        ] {
            assert_eq!(is_past_name(log, &Path::new("/var/log").join(name)), is_past, "{name}");
        }
    }
}
