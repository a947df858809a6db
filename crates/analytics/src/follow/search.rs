//! Search for the rest of files that are not open, and for files that were the log between two looks.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::ingest::identity::{self, FilePrefix, is_broken_off};
use crate::ingest::{DrainOutcome, EntrySink, Gap, Input, LineBuffer};
use crate::store::files::{Digest, FileRecord, FileState};

use super::rotation::{self, NamePattern, Past, SearchFinding};
use super::tail::{FileId, TailedFile};
use super::{FollowFailure, Follower, MOST_OLDER};

impl<S: EntrySink> Follower<'_, S> {
    /// Records the files that exist before the log is first followed; they are not read, whatever happens to
    /// them.
    pub(super) fn note_older(&mut self) -> Result<(), FollowFailure> {
        for past in rotation::past(&self.path, &self.known)? {
            let beginning = Input::open(&past.path).and_then(|mut input| FilePrefix::read(&mut input));
            let beginning = beginning.unwrap_or_default();
            let record = identity::record(self.known.next(), &past.path, &past.metadata, &beginning);
            self.commit(&FileRecord { state: FileState::Older, ..record })?;
        }
        Ok(())
    }

    /// Finds the files that may have grown and are not open.
    pub(super) fn find_unfinished(&mut self) -> Result<(), FollowFailure> {
        let open: Vec<i64> = self.log.iter().chain(&self.older).map(TailedFile::number).collect();
        for record in self.known.unfinished() {
            if !open.contains(&record.number) {
                self.find(record)?;
            }
        }
        Ok(())
    }

    /// Finds one file, or its rest.
    pub(super) fn find(&mut self, record: FileRecord) -> Result<(), FollowFailure> {
        let is_empty = record.position == 0 && !record.is_telling();
        for attempt in 1.. {
            match rotation::find(&self.path, &self.known, &record)? {
                SearchFinding::Same(file, path) => {
                    let path = path.display().to_string();
                    self.older.push_back(TailedFile::new(file, FileRecord { path, ..record })?);
                    self.watch_files();
                    return Ok(());
                }
                SearchFinding::Copy(past, input) if input.is_compressed() => {
                    return self.read_copy(&past, input, record);
                }
                // The copy may be in progress, so it is read like a file with a writer.
                SearchFinding::Copy(past, _) => match File::open(&past.path) {
                    Ok(file) => {
                        let record = of_copy(record, &past);
                        self.commit(&record)?;
                        self.older.push_back(TailedFile::new(file, record)?);
                        self.watch_files();
                        return Ok(());
                    }
                    // Compressed or removed in the meantime.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < LOOKS => {}
                    Err(error) => return Err(error.into()),
                },
                SearchFinding::Shorter(past) | SearchFinding::BrokenOff(past) if past.is_fresh() => {
                    return Ok(());
                }
                SearchFinding::Shorter(past) => {
                    let record = of_copy(record, &past);
                    return self.commit(&FileRecord { state: FileState::Finished, ..record });
                }
                SearchFinding::BrokenOff(_) => return self.lost(record, "its compressed copy is damaged"),
                SearchFinding::Gone if is_empty => return Ok(()),
                SearchFinding::Gone if attempt == LOOKS => {
                    return self.lost(record, "it is gone, and there is no copy of it");
                }
                // The look may have coincided with a rename.
                SearchFinding::Gone => {}
            }
            if self.ingest.stop().rest(BETWEEN_LOOKS)? {
                break;
            }
        }
        Ok(())
    }

    /// An empty file cannot be recognised again: a file that was found instead takes its place.
    pub(super) fn forget_empty(&mut self, found: usize) -> Result<(), FollowFailure> {
        let open: Vec<i64> = self.log.iter().chain(&self.older).map(TailedFile::number).collect();
        let log = self.open()?.map(|file| file.metadata()).transpose()?;
        for record in self.known.unfinished() {
            if record.position > 0 || record.is_telling() || open.contains(&record.number) {
                continue;
            }
            let is_log = log.as_ref().is_some_and(|log| FileId::of(log) == FileId::of_record(&record));
            // Rotation removes the oldest files first: if a known one exists, no later one has been removed.
            if (is_log && found == 0) || (found > 0 && rotation::has_known(&self.path, &self.known)?) {
                self.commit(&FileRecord { state: FileState::Finished, ..record })?;
            } else {
                self.lost(record, "it was rotated away before anything of it was read")?;
            }
        }
        Ok(())
    }

    fn lost(&mut self, record: FileRecord, reason: &'static str) -> Result<(), FollowFailure> {
        self.ingest.gap(&Gap { path: record.path.clone(), position: record.position, reason });
        self.commit(&FileRecord { state: FileState::Lost, ..record })
    }

    /// Finds files that were the log between two looks; returns their number.
    pub(super) fn find_unknown(&mut self) -> Result<usize, FollowFailure> {
        let since = self.neighbours.unready.take().unwrap_or_else(|| self.newest());
        let mut found = 0;
        for past in rotation::past(&self.path, &self.known)? {
            if past.modified() < since || self.ingest.stop().is_requested() {
                continue;
            }
            match self.take(&past)? {
                LookOutcome::Known => {}
                LookOutcome::New => found += 1,
                LookOutcome::NotYet => self.neighbours.unready = Some(since),
            }
            if self.older.len() > MOST_OLDER {
                self.read_older()?;
            }
        }
        Ok(found)
    }

    /// Starts to read a new file, unless it is a copy of a known one.
    fn take(&mut self, past: &Past) -> Result<LookOutcome, FollowFailure> {
        let number = self.known.next();
        let opened = File::open(&past.path).and_then(|file| Ok((FileId::of(&file.metadata()?), file)));
        let looked = opened.and_then(|(id, file)| Ok((id, file, Input::open(&past.path)?)));
        let (id, file, input) = match looked {
            // Renamed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LookOutcome::NotYet),
            Ok((id, ..)) if id != past.id => return Ok(LookOutcome::NotYet),
            Ok(looked) => looked,
            Err(_) if self.known.has(past.id) => return Ok(LookOutcome::Known),
            Err(_) => {
                let record = identity::record(number, &past.path, &past.metadata, &FilePrefix::default());
                self.lost(record, "it cannot be read")?;
                return Ok(LookOutcome::New);
            }
        };
        let beginning = if input.is_compressed() {
            Input::open(&past.path).and_then(|mut input| FilePrefix::read(&mut input))
        } else if rotation::is_archive_name(&past.path) {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            FilePrefix::of_file(&file)
        };
        let Ok(beginning) = beginning else {
            return Ok(if past.is_fresh() { LookOutcome::NotYet } else { LookOutcome::Known });
        };
        if let Some(taken) = self.compare_with_log(past, &beginning)? {
            return Ok(taken);
        }
        if self.known.is(id, &beginning) {
            return Ok(LookOutcome::Known);
        }
        let record = identity::record(number, &past.path, &past.metadata, &beginning);
        if input.is_compressed() {
            self.read_copy(past, input, record)?;
        } else {
            self.commit(&record)?;
            self.older.push_back(TailedFile::new(file, record)?);
            self.watch_files();
        }
        Ok(LookOutcome::New)
    }

    /// Handles a file that is, or may become, a copy of the present log. It is not taken: the log itself is
    /// read, and the copy only if the log is truncated first. The store must know the beginning of the log
    /// for that.
    fn compare_with_log(
        &mut self,
        past: &Past,
        beginning: &FilePrefix,
    ) -> Result<Option<LookOutcome>, FollowFailure> {
        let Some(log) = &mut self.log else { return Ok(None) };
        let record = log.record()?.clone();
        let now = FilePrefix::of_file(&log.file)?;
        if self.known.of(log.id).is_none_or(|known| known.start != record.start) {
            self.commit(&record)?;
        }
        // The log was replaced and will be handled as such; this may be a copy of the new one.
        let is_copy = now.agrees(beginning.digest()) || beginning.agrees(now.digest());
        if !now.agrees(record.start) && !now.is_empty() && is_copy {
            return Ok(Some(LookOutcome::NotYet));
        }
        let is_part = beginning.is_short() && now.agrees(beginning.digest());
        Ok(match is_part {
            false => None,
            true if beginning.head() > 0 => Some(LookOutcome::Known),
            true if past.is_fresh() => Some(LookOutcome::NotYet),
            // No copy takes this long, but a renamed file may still grow.
            true => None,
        })
    }

    /// Handles a file that appeared or was renamed. Files that were the log between two looks are among them;
    /// if there are more than can be found, lines may be missing. `since` is the last modification of the log
    /// before.
    pub(super) fn look_beside(&mut self, since: SystemTime) -> Result<(), FollowFailure> {
        let copied = self.watch.take_copies();
        let there = rotation::past(&self.path, &self.known)?;
        // Only the last file made under a name can be there now.
        let mut seen = HashSet::new();
        let latest_first = copied.made.iter().rev().map(|path| (path, seen.insert(path)));
        let made = latest_first.filter(|(path, is_last)| self.may_be_copy(path, *is_last, &there)).count();
        // A renamed file is the log itself, which is still open.
        let is_new =
            |past: &&Past| !self.neighbours.listed.contains(&past.beside()) && !self.is_open(past.id);
        let (archives, plain): (Vec<&Past>, Vec<&Past>) =
            there.iter().filter(is_new).partition(|past| rotation::is_archive_name(&past.path));
        // Compression keeps the modification time.
        let archives = archives.into_iter().filter(|past| past.modified() >= since).count();
        let unfound =
            self.neighbours.unfound.saturating_add_unsigned(made).saturating_sub_unsigned(plain.len());
        // A file may be found shortly before the kernel reports it. Files that came in another way must not
        // compensate for copies lost later.
        self.neighbours.unfound = unfound.clamp(0_isize.saturating_sub_unsigned(plain.len()), 0);
        self.neighbours.listed = there.iter().map(Past::beside).collect();
        self.look_since(since);
        self.find_unknown()?;
        if unfound.saturating_sub_unsigned(archives) <= 0 && !copied.more {
            return Ok(());
        }
        let record = FileRecord {
            number: self.known.next(),
            state: FileState::Reading,
            path: self.path.display().to_string(),
            // The file has no identity any more.
            device: 0,
            inode: 0,
            position: 0,
            modified: self.newest(),
            head: 0,
            start: Digest::default(),
            end: Digest::default(),
        };
        self.lost(record, "it was copied and truncated more often than it could be read")
    }

    /// Returns `true` if a file made at this path may have been a copy of the log, even if it is gone.
    /// `is_last` states that no file was made there since.
    fn may_be_copy(&self, path: &Path, is_last: bool, there: &[Past]) -> bool {
        // An ambiguous name that belongs to an unrelated log has no record.
        let is_usual =
            || there.iter().any(|past| rotation::name(&self.path, &past.path) == NamePattern::Ambiguous);
        if rotation::name(&self.path, path) == NamePattern::Ambiguous && !is_usual() {
            return false;
        }
        match fs::symlink_metadata(path) {
            _ if !is_last => true,
            // Links to the log have no lines of their own.
            Ok(metadata) => metadata.is_file() && !self.is_open(FileId::of(&metadata)),
            Err(_) => true,
        }
    }

    fn is_open(&self, id: FileId) -> bool {
        self.log.iter().chain(&self.older).any(|tail| tail.id == id)
    }

    /// Reads a complete copy from the record's position to its end.
    fn read_copy(&mut self, past: &Past, mut input: Input, record: FileRecord) -> Result<(), FollowFailure> {
        let base = record.position;
        let mut record = of_copy(record, past);
        let mut lines = LineBuffer::new();
        self.ingest.next_source();
        let outcome = loop {
            while self.ingest.drain(&mut lines)? == DrainOutcome::Full {
                advance(&mut record, base, &lines);
                self.commit(&record)?;
            }
            if self.ingest.stop().is_requested() {
                advance(&mut record, base, &lines);
                return self.commit(&record);
            }
            match lines.fill(&mut input) {
                Ok(0) => {
                    if let Some(gap) = input.strange() {
                        self.ingest.gap(&gap);
                    }
                    break Ok(());
                }
                Ok(more) => {
                    self.ingest.counts().bytes += more;
                    self.ingest.tell_progress(0);
                }
                Err(error) => break Err(error),
            }
        };
        match outcome {
            Ok(()) => {
                if let Some(last) = lines.rest() {
                    self.ingest.line(last)?;
                }
                record.state = FileState::Finished;
            }
            Err(error) if is_broken_off(&error) && past.is_fresh() => {}
            Err(_) => {
                advance(&mut record, base, &lines);
                return self.lost(record, "it cannot be read to its end");
            }
        }
        advance(&mut record, base, &lines);
        self.commit(&record)
    }
}

/// The outcome of a look at a file beside the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LookOutcome {
    /// The store knows the file, or a copy of it.
    Known,
    /// A new file, read from now on.
    New,
    /// A file that cannot be read yet.
    NotYet,
}

/// Continues a record in a copy.
fn of_copy(mut record: FileRecord, past: &Past) -> FileRecord {
    (record.device, record.inode) = (past.id.device, past.id.inode);
    record.path = past.path.display().to_string();
    record
}

/// Advances the position behind the lines taken.
fn advance(record: &mut FileRecord, base: u64, lines: &LineBuffer) {
    if lines.passed() > 0 {
        record.position = base + lines.passed();
        record.end = Digest::of(&lines.ending());
    }
}

/// Attempts to find a missing file, and the pause between them.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
