//! Recognition of a log's rotated files. Records of the store decide; names decide only for files without a
//! record, which were the log for a while when no process followed it.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::ingest::Input;
use crate::ingest::identity::{FileMatch, FilePrefix, fit, modified};
use crate::store::files::FileRecord;

use super::known::KnownFiles;
use super::tail::FileId;
use super::watch::directory;

/// A file that was, or may have been, the log.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    pub(super) metadata: Metadata,
}

/// The identity of a file beside the log. Most file systems reuse inodes but not creation times; some do not
/// report creation times.
pub(super) type Beside = (FileId, Option<SystemTime>);

impl Past {
    pub(super) fn beside(&self) -> Beside {
        (self.id, self.metadata.created().ok())
    }

    pub(super) fn modified(&self) -> SystemTime {
        modified(&self.metadata)
    }

    /// Returns `true` if another process may still be writing the file.
    pub(super) fn is_fresh(&self) -> bool {
        SystemTime::now().duration_since(self.modified()).is_ok_and(|age| age < PATIENCE)
    }
}

/// The place of the rest of a file.
#[derive(Debug)]
pub(super) enum SearchFinding {
    /// The same file, perhaps under another name.
    Same(File, PathBuf),
    /// A copy that continues after the last position.
    Copy(Past, Input),
    /// A copy that ends before the last position.
    Shorter(Past),
    /// A copy that cannot be read up to the last position; it may be in progress.
    BrokenOff(Past),
    /// No file has the rest.
    Gone,
}

/// Finds the rest of a file: the same file first, then a readable copy, then a compressed one.
pub(super) fn find(log: &Path, known: &KnownFiles, record: &FileRecord) -> io::Result<SearchFinding> {
    let mut best = SearchFinding::Gone;
    for past in beside(log, known)? {
        let is_same = past.id == FileId::of_record(record);
        if !is_same && (!record.is_telling() || name(log, &past.path) == NamePattern::Other) {
            continue;
        }
        // A file that vanishes during the look does not count.
        let Ok(found) = look(past, record, is_same) else { continue };
        if matches!(found, SearchFinding::Same(..)) {
            return Ok(found);
        }
        if rank(&found) > rank(&best) {
            best = found;
        }
    }
    Ok(best)
}

fn look(past: Past, record: &FileRecord, is_same: bool) -> io::Result<SearchFinding> {
    let input = Input::open(&past.path)?;
    let is_compressed = input.is_compressed();
    if !is_compressed && is_archive_name(&past.path) {
        // The first bytes of the file are not written yet.
        return Ok(if is_same { SearchFinding::BrokenOff(past) } else { SearchFinding::Gone });
    }
    if !(is_same && record.position == 0 && record.start.length == 0) {
        match FilePrefix::read(&mut Input::open(&past.path)?) {
            Ok(beginning) if beginning.agrees(record.start) => {}
            Err(_) if is_same || past.is_fresh() => return Ok(SearchFinding::BrokenOff(past)),
            _ => return Ok(SearchFinding::Gone),
        }
    }
    Ok(match fit(input, record)? {
        FileMatch::Whole(_) if is_same && !is_compressed => {
            let file = File::open(&past.path)?;
            match FileId::of(&file.metadata()?) == past.id {
                true => SearchFinding::Same(file, past.path),
                false => SearchFinding::Gone,
            }
        }
        FileMatch::Whole(input) => SearchFinding::Copy(past, input),
        FileMatch::Shorter if !is_same => SearchFinding::Shorter(past),
        FileMatch::BrokenOff => SearchFinding::BrokenOff(past),
        FileMatch::Shorter | FileMatch::Other => SearchFinding::Gone,
    })
}

/// The order of preference among candidates.
const fn rank(found: &SearchFinding) -> u8 {
    match found {
        SearchFinding::Same(..) => 5,
        SearchFinding::Copy(_, input) if !input.is_compressed() => 4,
        SearchFinding::Copy(..) => 3,
        SearchFinding::Shorter(_) => 2,
        SearchFinding::BrokenOff(_) => 1,
        SearchFinding::Gone => 0,
    }
}

/// Files whose names mark them as the log's past, oldest first. If a file exists both plain and compressed,
/// only the plain one counts.
pub(super) fn past(log: &Path, known: &KnownFiles) -> io::Result<Vec<Past>> {
    let mut all = beside(log, known)?;
    // An ambiguous name counts if a file known to be the log's has such a name too.
    let is_usual =
        all.iter().any(|past| name(log, &past.path) == NamePattern::Ambiguous && known.was_log(past.id));
    let originals: Vec<PathBuf> =
        all.iter().map(|past| &past.path).filter(|path| !is_archive_name(path)).cloned().collect();
    all.retain(|past| {
        let is_ours = match name(log, &past.path) {
            NamePattern::Past => true,
            NamePattern::Ambiguous => is_usual,
            NamePattern::Other => false,
        };
        is_ours && !(is_archive_name(&past.path) && originals.contains(&past.path.with_extension("")))
    });
    all.sort_by_key(Past::modified);
    Ok(all)
}

/// Returns `true` if a file exists of which part was read.
pub(super) fn has_known(log: &Path, known: &KnownFiles) -> io::Result<bool> {
    Ok(past(log, known)?.iter().any(|past| {
        let beginning = Input::open(&past.path).and_then(|mut input| FilePrefix::read(&mut input));
        beginning.is_ok_and(|beginning| known.has_read(&beginning))
    }))
}

/// Regular files beside the log and where its past was seen, without the log.
fn beside(log: &Path, known: &KnownFiles) -> io::Result<Vec<Past>> {
    let mut found = Vec::new();
    let mut directories = vec![directory(log).to_owned()];
    directories.extend(known.directories().filter(|path| *path != directory(log)).map(Path::to_owned));
    directories.sort();
    directories.dedup();
    for directory in directories {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            // Does not follow links: a link to the log is not its past.
            let Some(metadata) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
            let path = entry.path();
            if path != log {
                found.push(Past { path, id: FileId::of(&metadata), metadata });
            }
        }
    }
    Ok(found)
}

/// Returns `true` for names that compression programs give to their output.
pub(super) fn is_archive_name(path: &Path) -> bool {
    path.extension().is_some_and(|end| COMPRESSED.iter().any(|known| end == *known))
}

/// The relation of a file's name to the log's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamePattern {
    /// The pattern of `logrotate` and similar programs: `access.log.1`, `access.log.2.gz`,
    /// `access.log-20261122`, `access-2026-11-22.log.zst`.
    Past,
    /// A pattern that another log may have too: `access.2.log`.
    Ambiguous,
    /// A name without a relation to the log's.
    Other,
}

pub(super) fn name(log: &Path, path: &Path) -> NamePattern {
    let (Some(log), Some(name)) = (log.file_name(), path.file_name()) else { return NamePattern::Other };
    let name = if is_archive_name(path) { path.file_stem().unwrap_or(name) } else { name };
    let name = name.as_bytes();
    if let Some(end) = name.strip_prefix(log.as_bytes()) {
        return if is_count(end) || is_date(end) { NamePattern::Past } else { NamePattern::Other };
    }
    let log = Path::new(log);
    let (Some(stem), Some(extension)) = (log.file_stem().map(OsStr::as_bytes), log.extension()) else {
        return NamePattern::Other;
    };
    let middle = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(extension.as_bytes()));
    match middle.and_then(|middle| middle.strip_suffix(b".")) {
        Some(middle) if is_date(middle) => NamePattern::Past,
        Some(middle) if is_count(middle) => NamePattern::Ambiguous,
        _ => NamePattern::Other,
    }
}

/// A number such as `.1`, up to four digits.
fn is_count(part: &[u8]) -> bool {
    matches!(part, [b'.', digits @ ..] if (1..=4).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit))
}

/// A date such as `-20261122`, `.2026-11-22` or `-20261122-1795309323`: at least eight digits, the first two
/// of a year.
fn is_date(part: &[u8]) -> bool {
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    matches!(part, [b'.' | b'-' | b'_', b'1' | b'2', b'0'..=b'9', ..])
        && part.iter().filter(is_digit).count() >= 8
        && part.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_' | b'T' | b':'))
}

/// Extensions of compressed files.
const COMPRESSED: [&str; 7] = ["gz", "zst", "xz", "bz2", "lz4", "Z", "zip"];
/// The age up to which an unreadable file may still become readable.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{NamePattern, name};

    #[test]
    fn knows_the_names_of_the_past() {
        let log = Path::new("/var/log/access.log");
        for (file, is) in [
            ("access.log.1", NamePattern::Past),
            ("access.log.12.gz", NamePattern::Past),
            ("access.log.12.zst", NamePattern::Past),
            ("access.log-20261122", NamePattern::Past),
            ("access.log-20261122-1795309323.gz", NamePattern::Past),
            ("access.log.2026-11-22_10", NamePattern::Past),
            ("access.log-1795309323", NamePattern::Past),
            ("access-20261122.log", NamePattern::Past),
            ("access.2026-11-22.log.gz", NamePattern::Past),
            ("access.2.log", NamePattern::Ambiguous),
            ("access.2.log.gz", NamePattern::Ambiguous),
            ("access-2.log", NamePattern::Other),
            ("access_3.log.1", NamePattern::Other),
            ("access-2.log.1", NamePattern::Other),
            ("access2.log", NamePattern::Other),
            ("access.log-2", NamePattern::Other),
            ("access.log", NamePattern::Other),
            ("access.log.gz", NamePattern::Other),
            ("access.log.bak", NamePattern::Other),
            ("access.log.rejects", NamePattern::Other),
            ("access.log.", NamePattern::Other),
            ("access.log.12345678901", NamePattern::Past),
            ("access-admin.log", NamePattern::Other),
            ("access-8080.log", NamePattern::Other),
            ("other.log.1", NamePattern::Other),
            ("error.log", NamePattern::Other),
        ] {
            assert_eq!(name(log, &Path::new("/var/log").join(file)), is, "{file}");
        }
    }
}
