//! Which files are a log's past. What the store knows of a file decides; its name does only where nothing is known
//! of it: a file that was the log for a while and that nobody has looked at.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::ingest::Input;
use crate::ingest::identity::{Beginning, Fit, fit, modified};
use crate::store::files::FileRecord;

use super::known::Known;
use super::tail::FileId;
use super::watch::directory;

/// A file that was the log once, or may have been.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    pub(super) metadata: Metadata,
}

/// What tells a file beside the log from all others that ever lay there. Most file systems give the inode of a file that
/// was removed to the next one, but not when it was made; some do not say when that was.
pub(super) type Beside = (FileId, Option<SystemTime>);

impl Past {
    pub(super) fn beside(&self) -> Beside {
        (self.id, self.metadata.created().ok())
    }

    pub(super) fn modified(&self) -> SystemTime {
        modified(&self.metadata)
    }

    /// Whether another process may still be writing it.
    pub(super) fn is_fresh(&self) -> bool {
        SystemTime::now().duration_since(self.modified()).is_ok_and(|age| age < PATIENCE)
    }
}

/// Where the rest of a file is.
#[derive(Debug)]
pub(super) enum Found {
    /// It is this very file, by another name perhaps.
    Same(File, PathBuf),
    /// In a copy that stands behind what was read.
    Copy(Past, Input),
    /// In a copy that has less than what was read.
    Shorter(Past),
    /// In a copy that cannot be read so far; it may be in the making.
    BrokenOff(Past),
    /// Nowhere.
    Gone,
}

/// Finds what is left of a file: the very file first, then a copy that can be read as it is, then one that was
/// compressed.
pub(super) fn find(log: &Path, known: &Known, record: &FileRecord) -> io::Result<Found> {
    let mut best = Found::Gone;
    for past in beside(log, known)? {
        let is_same = past.id == FileId::of_record(record);
        if !is_same && (!record.is_telling() || name(log, &past.path) == Name::Other) {
            continue;
        }
        // A file that vanishes while one looks is none.
        let Ok(found) = look(past, record, is_same) else { continue };
        if matches!(found, Found::Same(..)) {
            return Ok(found);
        }
        if rank(&found) > rank(&best) {
            best = found;
        }
    }
    Ok(best)
}

fn look(past: Past, record: &FileRecord, is_same: bool) -> io::Result<Found> {
    let input = Input::open(&past.path)?;
    let is_compressed = input.is_compressed();
    if !is_compressed && is_archive_name(&past.path) {
        // Its first bytes are not written yet.
        return Ok(if is_same { Found::BrokenOff(past) } else { Found::Gone });
    }
    if !(is_same && record.position == 0 && record.start.length == 0) {
        match Beginning::read(&mut Input::open(&past.path)?) {
            Ok(beginning) if beginning.agrees(record.start) => {}
            Err(_) if is_same || past.is_fresh() => return Ok(Found::BrokenOff(past)),
            _ => return Ok(Found::Gone),
        }
    }
    Ok(match fit(input, record)? {
        Fit::Whole(_) if is_same && !is_compressed => {
            let file = File::open(&past.path)?;
            match FileId::of(&file.metadata()?) == past.id {
                true => Found::Same(file, past.path),
                false => Found::Gone,
            }
        }
        Fit::Whole(input) => Found::Copy(past, input),
        Fit::Shorter if !is_same => Found::Shorter(past),
        Fit::BrokenOff => Found::BrokenOff(past),
        Fit::Shorter | Fit::Other => Found::Gone,
    })
}

/// What is better to have.
const fn rank(found: &Found) -> u8 {
    match found {
        Found::Same(..) => 5,
        Found::Copy(_, input) if !input.is_compressed() => 4,
        Found::Copy(..) => 3,
        Found::Shorter(_) => 2,
        Found::BrokenOff(_) => 1,
        Found::Gone => 0,
    }
}

/// The files that are called like the log's past, the oldest first. Of a file and its compressed form only the file
/// counts.
pub(super) fn past(log: &Path, known: &Known) -> io::Result<Vec<Past>> {
    let mut all = beside(log, known)?;
    // An ambiguous name counts where a file that is known to be the log's has such a name too.
    let is_usual = all.iter().any(|past| name(log, &past.path) == Name::Ambiguous && known.was_log(past.id));
    let originals: Vec<PathBuf> =
        all.iter().map(|past| &past.path).filter(|path| !is_archive_name(path)).cloned().collect();
    all.retain(|past| {
        let is_ours = match name(log, &past.path) {
            Name::Past => true,
            Name::Ambiguous => is_usual,
            Name::Other => false,
        };
        is_ours && !(is_archive_name(&past.path) && originals.contains(&past.path.with_extension("")))
    });
    all.sort_by_key(Past::modified);
    Ok(all)
}

/// Whether a file is there of which something was read.
pub(super) fn has_known(log: &Path, known: &Known) -> io::Result<bool> {
    Ok(past(log, known)?.iter().any(|past| {
        let beginning = Input::open(&past.path).and_then(|mut input| Beginning::read(&mut input));
        beginning.is_ok_and(|beginning| known.has_read(&beginning))
    }))
}

/// The regular files beside the log and where its past was seen, without the log.
fn beside(log: &Path, known: &Known) -> io::Result<Vec<Past>> {
    let mut found = Vec::new();
    let mut directories = vec![directory(log).to_owned()];
    directories.extend(known.directories().filter(|path| *path != directory(log)).map(Path::to_owned));
    directories.sort();
    directories.dedup();
    for directory in directories {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            // Not through links: a link to the log is not its past.
            let Some(metadata) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
            let path = entry.path();
            if path != log {
                found.push(Past { path, id: FileId::of(&metadata), metadata });
            }
        }
    }
    Ok(found)
}

/// Whether the name is one that programs give to what they compress.
pub(super) fn is_archive_name(path: &Path) -> bool {
    path.extension().is_some_and(|end| COMPRESSED.iter().any(|known| end == *known))
}

/// What the name of a file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// It is what `logrotate` and its like call the past of the log: `access.log.1`, `access.log.2.gz`,
    /// `access.log-20261122`, `access-2026-11-22.log.zst`.
    Past,
    /// So may another log be called: `access.2.log`.
    Ambiguous,
    /// It says nothing.
    Other,
}

pub(super) fn name(log: &Path, path: &Path) -> Name {
    let (Some(log), Some(name)) = (log.file_name(), path.file_name()) else { return Name::Other };
    let name = if is_archive_name(path) { path.file_stem().unwrap_or(name) } else { name };
    let name = name.as_bytes();
    if let Some(end) = name.strip_prefix(log.as_bytes()) {
        return if is_count(end) || is_date(end) { Name::Past } else { Name::Other };
    }
    let log = Path::new(log);
    let (Some(stem), Some(extension)) = (log.file_stem().map(OsStr::as_bytes), log.extension()) else {
        return Name::Other;
    };
    let middle = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(extension.as_bytes()));
    match middle.and_then(|middle| middle.strip_suffix(b".")) {
        Some(middle) if is_date(middle) => Name::Past,
        Some(middle) if is_count(middle) => Name::Ambiguous,
        _ => Name::Other,
    }
}

/// `.1`, up to four digits.
fn is_count(part: &[u8]) -> bool {
    matches!(part, [b'.', digits @ ..] if (1..=4).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit))
}

/// `-20261122`, `.2026-11-22`, `-20261122-1795309323`: at least eight digits, the first two of a year.
fn is_date(part: &[u8]) -> bool {
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    matches!(part, [b'.' | b'-' | b'_', b'1' | b'2', b'0'..=b'9', ..])
        && part.iter().filter(is_digit).count() >= 8
        && part.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_' | b'T' | b':'))
}

/// What compressed files are called.
const COMPRESSED: [&str; 7] = ["gz", "zst", "xz", "bz2", "lz4", "Z", "zip"];
/// For so long a file that cannot be read may become one that can.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Name, name};

    #[test]
    fn knows_the_names_of_the_past() {
        let log = Path::new("/var/log/access.log");
        for (file, is) in [
            ("access.log.1", Name::Past),
            ("access.log.12.gz", Name::Past),
            ("access.log.12.zst", Name::Past),
            ("access.log-20261122", Name::Past),
            ("access.log-20261122-1795309323.gz", Name::Past),
            ("access.log.2026-11-22_10", Name::Past),
            ("access.log-1795309323", Name::Past),
            ("access-20261122.log", Name::Past),
            ("access.2026-11-22.log.gz", Name::Past),
            ("access.2.log", Name::Ambiguous),
            ("access.2.log.gz", Name::Ambiguous),
            ("access-2.log", Name::Other),
            ("access_3.log.1", Name::Other),
            ("access-2.log.1", Name::Other),
            ("access2.log", Name::Other),
            ("access.log-2", Name::Other),
            ("access.log", Name::Other),
            ("access.log.gz", Name::Other),
            ("access.log.bak", Name::Other),
            ("access.log.rejects", Name::Other),
            ("access.log.", Name::Other),
            ("access.log.12345678901", Name::Past),
            ("access-admin.log", Name::Other),
            ("access-8080.log", Name::Other),
            ("other.log.1", Name::Other),
            ("error.log", Name::Other),
        ] {
            assert_eq!(name(log, &Path::new("/var/log").join(file)), is, "{file}");
        }
    }
}
