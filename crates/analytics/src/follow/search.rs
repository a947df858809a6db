//! Finds the rest of files that are not open, and files that were the log between two looks.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::ingest::identity::{self, Beginning, is_broken_off};
use crate::ingest::{Drained, Gap, Input, Lines, Sink};
use crate::store::files::{Digest, FileRecord, FileState};

use super::rotation::{self, Found, Name, Past};
use super::tail::{FileId, Tail};
use super::{Failure, Follower, MOST_OLDER};

impl<S: Sink> Follower<'_, S> {
    /// What lies there before the log is followed first is not read, whatever becomes of it.
    pub(super) fn note_older(&mut self) -> Result<(), Failure> {
        for past in rotation::past(&self.path, &self.known)? {
            let beginning = Input::open(&past.path).and_then(|mut input| Beginning::read(&mut input));
            let beginning = beginning.unwrap_or_default();
            let record = identity::record(self.known.next(), &past.path, &past.metadata, &beginning);
            self.commit(&FileRecord { state: FileState::Older, ..record })?;
        }
        Ok(())
    }

    /// Finds the files to which more may have been written and that are not open.
    pub(super) fn find_unfinished(&mut self) -> Result<(), Failure> {
        let open: Vec<i64> = self.log.iter().chain(&self.older).map(Tail::number).collect();
        for record in self.known.unfinished() {
            if !open.contains(&record.number) {
                self.find(record)?;
            }
        }
        Ok(())
    }

    /// Finds one file, or what is left of it.
    pub(super) fn find(&mut self, record: FileRecord) -> Result<(), Failure> {
        let is_empty = record.position == 0 && !record.is_telling();
        for attempt in 1.. {
            match rotation::find(&self.path, &self.known, &record)? {
                Found::Same(file, path) => {
                    let path = path.display().to_string();
                    self.older.push_back(Tail::new(file, FileRecord { path, ..record })?);
                    self.watch_files();
                    return Ok(());
                }
                Found::Copy(past, input) if input.is_compressed() => {
                    return self.read_copy(&past, input, record);
                }
                // It may be in the making, so it is read like a file to which somebody writes.
                Found::Copy(past, _) => match File::open(&past.path) {
                    Ok(file) => {
                        let record = of_copy(record, &past);
                        self.commit(&record)?;
                        self.older.push_back(Tail::new(file, record)?);
                        self.watch_files();
                        return Ok(());
                    }
                    // It was compressed or removed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < LOOKS => {}
                    Err(error) => return Err(error.into()),
                },
                Found::Shorter(past) | Found::BrokenOff(past) if past.is_fresh() => return Ok(()),
                Found::Shorter(past) => {
                    let record = of_copy(record, &past);
                    return self.commit(&FileRecord { state: FileState::Finished, ..record });
                }
                Found::BrokenOff(_) => return self.lost(record, "its compressed copy is damaged"),
                Found::Gone if is_empty => return Ok(()),
                Found::Gone if attempt == LOOKS => {
                    return self.lost(record, "it is gone, and there is no copy of it");
                }
                // Perhaps one looked while it was being renamed.
                Found::Gone => {}
            }
            if self.ingest.stop().rest(BETWEEN_LOOKS)? {
                break;
            }
        }
        Ok(())
    }

    /// A file of which nothing was ever seen cannot be known again: one that was found instead is taken for it.
    pub(super) fn forget_empty(&mut self, found: usize) -> Result<(), Failure> {
        let open: Vec<i64> = self.log.iter().chain(&self.older).map(Tail::number).collect();
        let log = self.open()?.map(|file| file.metadata()).transpose()?;
        for record in self.known.unfinished() {
            if record.position > 0 || record.is_telling() || open.contains(&record.number) {
                continue;
            }
            let is_log = log.as_ref().is_some_and(|log| FileId::of(log) == FileId::of_record(&record));
            // The oldest files go first: if one that was read is there, none after it has been removed.
            if (is_log && found == 0) || (found > 0 && rotation::has_known(&self.path, &self.known)?) {
                self.commit(&FileRecord { state: FileState::Finished, ..record })?;
            } else {
                self.lost(record, "it was rotated away before anything of it was read")?;
            }
        }
        Ok(())
    }

    fn lost(&mut self, record: FileRecord, reason: &'static str) -> Result<(), Failure> {
        self.ingest.gap(&Gap { path: record.path.clone(), position: record.position, reason });
        self.commit(&FileRecord { state: FileState::Lost, ..record })
    }

    /// Finds files that were the log between two looks; returns their number.
    pub(super) fn find_unknown(&mut self) -> Result<usize, Failure> {
        let since = self.unready.take().unwrap_or_else(|| self.newest());
        let mut found = 0;
        for past in rotation::past(&self.path, &self.known)? {
            if past.modified() < since || self.ingest.stop().is_requested() {
                continue;
            }
            match self.take(&past)? {
                Taken::Known => {}
                Taken::New => found += 1,
                Taken::NotYet => self.unready = Some(since),
            }
            if self.older.len() > MOST_OLDER {
                self.read_older()?;
            }
        }
        Ok(found)
    }

    /// Takes a new file, unless it is a copy of a known one.
    fn take(&mut self, past: &Past) -> Result<Taken, Failure> {
        let number = self.known.next();
        let opened = File::open(&past.path).and_then(|file| Ok((FileId::of(&file.metadata()?), file)));
        let looked = opened.and_then(|(id, file)| Ok((id, file, Input::open(&past.path)?)));
        let (id, file, input) = match looked {
            // It was renamed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Taken::NotYet),
            Ok((id, ..)) if id != past.id => return Ok(Taken::NotYet),
            Ok(looked) => looked,
            Err(_) if self.known.has(past.id) => return Ok(Taken::Known),
            Err(_) => {
                let record = identity::record(number, &past.path, &past.metadata, &Beginning::default());
                self.lost(record, "it cannot be read")?;
                return Ok(Taken::New);
            }
        };
        let beginning = if input.is_compressed() {
            Input::open(&past.path).and_then(|mut input| Beginning::read(&mut input))
        } else if rotation::is_archive_name(&past.path) {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Beginning::of_file(&file)
        };
        let Ok(beginning) = beginning else {
            return Ok(if past.is_fresh() { Taken::NotYet } else { Taken::Known });
        };
        if let Some(taken) = self.compare_with_log(past, &beginning)? {
            return Ok(taken);
        }
        if self.known.is(id, &beginning) {
            return Ok(Taken::Known);
        }
        let record = identity::record(number, &past.path, &past.metadata, &beginning);
        if input.is_compressed() {
            self.read_copy(past, input, record)?;
        } else {
            self.commit(&record)?;
            self.older.push_back(Tail::new(file, record)?);
            self.watch_files();
        }
        Ok(Taken::New)
    }

    /// Whether a file is a copy of the log as it is now, or may become one. Then it is not taken: the log is read itself,
    /// and its copy if the log is truncated before. For that the store must know how the log begins.
    fn compare_with_log(&mut self, past: &Past, beginning: &Beginning) -> Result<Option<Taken>, Failure> {
        let Some(log) = &mut self.log else { return Ok(None) };
        let record = log.record()?.clone();
        let now = Beginning::of_file(&log.file)?;
        if self.known.of(log.id).is_none_or(|known| known.start != record.start) {
            self.commit(&record)?;
        }
        // The log is another by now, and will be looked at as such; this may be a copy of what it is.
        let is_copy = now.agrees(beginning.digest()) || beginning.agrees(now.digest());
        if !now.agrees(record.start) && !now.is_empty() && is_copy {
            return Ok(Some(Taken::NotYet));
        }
        let is_part = beginning.is_short() && now.agrees(beginning.digest());
        Ok(match is_part {
            false => None,
            true if beginning.head() > 0 => Some(Taken::Known),
            true if past.is_fresh() => Some(Taken::NotYet),
            // Nobody copies for so long; to a file that was renamed more may be written.
            true => None,
        })
    }

    /// A file of the log came, or got another name. What the log was between two looks, and is no more, is in files that
    /// nobody has seen. If there were more of them than can be found, lines may be missing.
    /// `since`: when the log had been written to last before.
    pub(super) fn look_beside(&mut self, since: SystemTime) -> Result<(), Failure> {
        let copied = self.watch.take_copies();
        let there = rotation::past(&self.path, &self.known)?;
        // The file that has a name now is the last that was made with it.
        let mut seen = HashSet::new();
        let latest_first = copied.made.iter().rev().map(|path| (path, seen.insert(path)));
        let made = latest_first.filter(|(path, is_last)| self.may_be_copy(path, *is_last, &there)).count();
        // What was renamed was the log itself, which is open still.
        let is_new = |past: &&Past| !self.beside.contains(&past.beside()) && !self.is_open(past.id);
        let (archives, plain): (Vec<&Past>, Vec<&Past>) =
            there.iter().filter(is_new).partition(|past| rotation::is_archive_name(&past.path));
        // What was compressed before keeps its time.
        let archives = archives.into_iter().filter(|past| past.modified() >= since).count();
        let unfound = self.unfound.saturating_add_unsigned(made).saturating_sub_unsigned(plain.len());
        // One may be found before the kernel tells of it, which it does soon. What came in another way must not make up
        // for copies that are lost later.
        self.unfound = unfound.clamp(0_isize.saturating_sub_unsigned(plain.len()), 0);
        self.beside = there.iter().map(Past::beside).collect();
        self.look_since(since);
        self.find_unknown()?;
        if unfound.saturating_sub_unsigned(archives) <= 0 && !copied.more {
            return Ok(());
        }
        let record = FileRecord {
            number: self.known.next(),
            state: FileState::Reading,
            path: self.path.display().to_string(),
            // It has none any more.
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

    /// Whether what was made there may have been a copy of the log; one that is there no more may have been. `is_last`:
    /// nothing was made there since.
    fn may_be_copy(&self, path: &Path, is_last: bool, there: &[Past]) -> bool {
        // Of another log of such a name, which lies there for itself, nothing is known.
        let is_usual = || there.iter().any(|past| rotation::name(&self.path, &past.path) == Name::Ambiguous);
        if rotation::name(&self.path, path) == Name::Ambiguous && !is_usual() {
            return false;
        }
        match fs::symlink_metadata(path) {
            _ if !is_last => true,
            // A link to the log, or a second name of it, has no lines of its own.
            Ok(metadata) => metadata.is_file() && !self.is_open(FileId::of(&metadata)),
            Err(_) => true,
        }
    }

    fn is_open(&self, id: FileId) -> bool {
        self.log.iter().chain(&self.older).any(|tail| tail.id == id)
    }

    /// Reads a complete copy from the record's position to its end.
    fn read_copy(&mut self, past: &Past, mut input: Input, record: FileRecord) -> Result<(), Failure> {
        let base = record.position;
        let mut record = of_copy(record, past);
        let mut lines = Lines::new();
        self.ingest.next_source();
        let outcome = loop {
            while self.ingest.drain(&mut lines)? == Drained::Full {
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

/// What came of a look at a file beside the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// The store knows it, or a copy of it.
    Known,
    /// It is read from now on.
    New,
    /// It cannot be read yet.
    NotYet,
}

/// The record goes on in a copy.
fn of_copy(mut record: FileRecord, past: &Past) -> FileRecord {
    (record.device, record.inode) = (past.id.device, past.id.inode);
    record.path = past.path.display().to_string();
    record
}

/// The lines that were taken are read.
fn advance(record: &mut FileRecord, base: u64, lines: &Lines) {
    if lines.passed() > 0 {
        record.position = base + lines.passed();
        record.end = Digest::of(&lines.ending());
    }
}

/// How often, and after which pauses, one looks for a file that seems to be gone.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
