//! Rotation of files by size: `access.log` becomes `access.log.1`, that `access.log.2`, and so on.
//!
//! Each step is one rename, so every line is in exactly one file at every moment; a crash between two steps
//! leaves a gap in the numbers, which the next rotation closes. A failed rotation loses nothing: the file
//! grows on, and rotation is retried later. Rotation by another program (`logrotate`, or another Offramp
//! process during an upgrade) shows when the path leads to another file, which is used from then on.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::stream::{OutputStream, open_file};

/// The size at which a file is rotated, and the number of old files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The file is rotated before a write would exceed this many bytes; at least 1. A single larger batch
    /// (rare; 64 KiB) exceeds it.
    pub size: u64,
    /// The number of rotated files to keep; with 0, a full file is deleted.
    pub keep: u32,
}

/// The state of a rotated file.
#[derive(Debug)]
pub(super) struct Rotator {
    rotation: Rotation,
    path: PathBuf,
    /// The expected length of the file.
    length: u64,
    /// After a failure: the length below which rotation is not retried.
    not_before: u64,
}

impl Rotator {
    /// The state for `stream`, which was opened by `path`.
    pub(super) fn new(rotation: Rotation, path: &Path, stream: &OutputStream) -> io::Result<Self> {
        let length = stream.file().metadata()?.len();
        Ok(Self { rotation, path: path.to_owned(), length, not_before: 0 })
    }

    /// Rotates if the next `more` bytes would not fit. The stream stays usable in any case.
    pub(super) fn make_room(&mut self, stream: &mut OutputStream, more: usize) -> io::Result<()> {
        let more = more as u64;
        self.length = self.length.saturating_add(more);
        if self.length <= self.rotation.size.max(self.not_before) {
            return Ok(());
        }
        self.rotate(stream, more).inspect_err(|_| {
            self.not_before = self.length.saturating_add(self.rotation.size / 8 + 1);
        })
    }

    fn rotate(&mut self, stream: &mut OutputStream, more: u64) -> io::Result<()> {
        let ours = stream.file().metadata()?;
        if !ours.is_file() {
            // A pipe or device has no size.
            self.length = 0;
            return Ok(());
        }
        match fs::metadata(&self.path) {
            Ok(there) if is_same(&ours, &there) => {
                // The file may have been truncated by another program.
                self.length = ours.len().saturating_add(more);
                if ours.len() == 0 || self.length <= self.rotation.size {
                    return Ok(());
                }
                self.shift()?;
            }
            // Rotated or deleted by another program.
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let fresh = OutputStream::from(open_file(&self.path)?);
        self.length = fresh.file().metadata()?.len().saturating_add(more);
        self.not_before = 0;
        *stream = fresh;
        Ok(())
    }

    /// Moves every file one number up; drops the last.
    fn shift(&self) -> io::Result<()> {
        let keep = self.rotation.keep;
        if keep == 0 {
            return fs::remove_file(&self.path);
        }
        // Stops at the first gap: files beyond it need not move.
        let gap = (1..keep).find(|&number| !self.numbered(number).exists()).unwrap_or(keep);
        for number in (1..gap).rev() {
            fs::rename(self.numbered(number), self.numbered(number + 1))?;
        }
        fs::rename(&self.path, self.numbered(1))
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(format!(".{number}"));
        name.into()
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::{Rotation, Rotator};
    use crate::sink::stream::{OutputStream, open_file};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    struct Log {
        dir: tempfile::TempDir,
        stream: OutputStream,
        rotator: Rotator,
    }

    impl Log {
        fn new(size: u64, keep: u32) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            let stream = OutputStream::from(open_file(&path).unwrap());
            let rotator = Rotator::new(Rotation { size, keep }, &path, &stream).unwrap();
            Self { dir, stream, rotator }
        }

        fn path(&self, suffix: &str) -> PathBuf {
            self.dir.path().join(format!("log{suffix}"))
        }

        fn write(&mut self, text: &str) -> std::io::Result<()> {
            let outcome = self.rotator.make_room(&mut self.stream, text.len());
            self.stream.write(text.as_bytes()).unwrap();
            outcome
        }

        fn read(&self, suffix: &str) -> Option<String> {
            fs::read_to_string(self.path(suffix)).ok()
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn files_move_up_and_the_last_falls_off() {
        let mut log = Log::new(8, 2);
        for number in 0..7 {
            log.write(&format!("line{number}\n")).unwrap();
        }
        assert_eq!(names(log.dir.path()), ["log", "log.1", "log.2"]);
        let read = ["", ".1", ".2"].map(|suffix| log.read(suffix).unwrap());
        assert_eq!(read, ["line6\n", "line5\n", "line4\n"]);
    }

    #[test]
    fn no_file_outgrows_its_size_and_nothing_is_lost() {
        let mut log = Log::new(100, 1000);
        let lines: Vec<_> = (0..500).map(|number| format!("{}\n", "x".repeat(number % 60))).collect();
        for line in &lines {
            log.write(line).unwrap();
        }
        let files = names(log.dir.path()).len();
        let mut whole = String::new();
        for number in (1..files).rev() {
            let part = log.read(&format!(".{number}")).unwrap();
            assert!(part.len() <= 100);
            whole.push_str(&part);
        }
        whole.push_str(&log.read("").unwrap());
        assert_eq!(whole, lines.concat());
    }

    #[test]
    fn with_nothing_to_keep_the_full_file_is_deleted() {
        let mut log = Log::new(8, 0);
        log.write("line0\n").unwrap();
        log.write("line1\n").unwrap();
        assert_eq!(names(log.dir.path()), ["log"]);
        assert_eq!(log.read("").unwrap(), "line1\n");
    }

    #[test]
    fn a_gap_is_closed_and_what_is_beyond_it_stays() {
        let mut log = Log::new(8, 5);
        fs::write(log.path(".1"), "one").unwrap();
        fs::write(log.path(".3"), "three").unwrap();
        log.write("line0\n").unwrap();
        log.write("line1\n").unwrap();
        let read = [".1", ".2", ".3"].map(|suffix| log.read(suffix).unwrap());
        assert_eq!(read, ["line0\n", "one", "three"]);
    }

    #[test]
    fn somebody_elses_rotation_is_noticed() {
        let mut log = Log::new(8, 5);
        log.write("line0\n").unwrap();
        fs::rename(log.path(""), log.path(".old")).unwrap();
        fs::write(log.path(""), "x\n").unwrap();
        log.write("line1\n").unwrap();
        assert_eq!(log.read("").unwrap(), "x\nline1\n");
        assert_eq!(log.read(".1"), None);
        fs::write(log.path(""), "").unwrap();
        log.write("line2\n").unwrap();
        assert_eq!(log.read("").unwrap(), "line2\n", "an emptied file is not full");
    }

    #[test]
    fn a_rotation_that_fails_loses_nothing() {
        let mut log = Log::new(8, 1);
        // A directory cannot be replaced by a file, so it blocks the rename.
        fs::create_dir(log.path(".1")).unwrap();
        fs::write(log.path(".1").join("file"), "").unwrap();
        log.write("line0\n").unwrap();
        log.write("line1\n").unwrap_err();
        log.write("2\n").expect("it is not tried with every write");
        assert_eq!(log.read("").unwrap(), "line0\nline1\n2\n");
        fs::remove_dir_all(log.path(".1")).unwrap();
        log.write("line3\n").unwrap();
        assert_eq!(log.read("").unwrap(), "line3\n");
        assert_eq!(fs::metadata(log.path("")).unwrap().permissions().mode() & 0o137, 0);
    }
}
