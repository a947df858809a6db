//! Where bytes end: standard output, standard error, a file, or nowhere.
//!
//! A sink writes whole lines and remembers when a line was torn by a failure, so that the next one starts on
//! a line of its own. It blocks as its file descriptor does; only threads that may block own one. It refuses
//! to buffer (its callers batch), to rotate (`logrotate` and a signal do), and to be fatal.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

use crate::Error;

/// A place to write to, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, appended to; created with mode 0640 if it does not exist. A named pipe needs a reader.
    File(PathBuf),
    /// Nowhere.
    None,
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => path.display().fmt(f),
            Self::None => f.write_str("none"),
        }
    }
}

/// An open output.
#[derive(Debug)]
pub struct Sink {
    output: Output,
    /// `None` for [`Output::None`].
    file: Option<File>,
    torn: bool,
}

impl Sink {
    /// Opens `output`.
    ///
    /// # Errors
    /// The file cannot be opened or created, or the stream is closed.
    pub fn open(output: Output) -> Result<Self, Error> {
        let file = open(&output)?;
        Ok(Self { output, file, torn: false })
    }

    /// A sink that takes everything and writes nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self { output: Output::None, file: None, torn: false }
    }

    /// What it was opened for.
    #[must_use]
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// Opens a file anew by its path, after somebody moved it away. Streams stay as they are.
    ///
    /// # Errors
    /// The file cannot be opened; then the old one stays in use.
    pub fn reopen(&mut self) -> Result<(), Error> {
        if matches!(self.output, Output::File(_)) {
            self.file = open(&self.output)?;
            self.torn = false;
        }
        Ok(())
    }

    /// Writes whole lines. It may block as long as whoever reads the other end likes.
    ///
    /// # Errors
    /// The system's error (`EPIPE`, `ENOSPC`, …), and how much of `lines` was written before.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), WriteFailure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if self.torn {
            write_all(file, b"\n").map_err(|failure| WriteFailure { written: 0, ..failure })?;
            self.torn = false;
        }
        write_all(file, lines).inspect_err(|failure| {
            self.torn = failure.written > 0 && lines[failure.written - 1] != b'\n';
        })
    }
}

/// A write that failed.
#[derive(Debug)]
pub struct WriteFailure {
    /// How many bytes were written before.
    pub written: usize,
    /// What the system said.
    pub error: io::Error,
}

fn open(output: &Output) -> Result<Option<File>, Error> {
    match output {
        Output::Stdout => stream("stdout", io::stdout().as_fd().try_clone_to_owned()).map(Some),
        Output::Stderr => stream("stderr", io::stderr().as_fd().try_clone_to_owned()).map(Some),
        Output::File(path) => {
            let file = open_file(path);
            file.map(Some).map_err(|source| Error::OpenFile { path: path.clone(), source })
        }
        Output::None => Ok(None),
    }
}

/// A descriptor of our own, past the lock and the buffer of the standard library.
fn stream(stream: &'static str, fd: io::Result<std::os::fd::OwnedFd>) -> Result<File, Error> {
    fd.map(File::from).map_err(|source| Error::OpenStream { stream, source })
}

/// Opened without blocking, so that a named pipe that nobody reads is an error instead of a start that
/// hangs; then switched back to blocking.
fn open_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(FILE_MODE).custom_flags(flags).open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

fn write_all(file: &mut File, bytes: &[u8]) -> Result<(), WriteFailure> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err(WriteFailure { written, error: io::ErrorKind::WriteZero.into() }),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A stream shared with somebody who made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_writable(file).map_err(|error| WriteFailure { written, error })?;
            }
            Err(error) => return Err(WriteFailure { written, error }),
        }
    }
    Ok(())
}

fn wait_writable(file: &File) -> io::Result<()> {
    match poll(&mut [PollFd::new(file, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Readable by the group, for log shippers; client addresses are nobody else's business.
const FILE_MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use super::{Output, Sink};
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_appended_to_and_reopened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        fs::write(&path, "before\n").unwrap();
        let mut sink = Sink::open(Output::File(path.clone())).unwrap();
        sink.write(b"one\n").unwrap();
        let moved = dir.path().join("access.log.1");
        fs::rename(&path, &moved).unwrap();
        sink.write(b"two\n").unwrap();
        sink.reopen().unwrap();
        sink.write(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "before\none\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o137, 0, "mode {mode:o}");
    }

    #[test]
    fn a_failed_reopen_keeps_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("logs/a"), dir.path().join("moved"));
        fs::create_dir(dir.path().join("logs")).unwrap();
        let mut sink = Sink::open(Output::File(path)).unwrap();
        fs::rename(dir.path().join("logs"), &moved).unwrap();
        assert!(sink.reopen().unwrap_err().to_string().contains("logs/a"));
        sink.write(b"still here\n").unwrap();
        assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "still here\n");
    }

    #[test]
    fn a_full_device_and_a_closed_pipe_are_errors() {
        let mut full = Sink::open(Output::File("/dev/full".into())).unwrap();
        let failure = full.write(b"line\n").unwrap_err();
        assert_eq!((failure.written, failure.error.kind()), (0, std::io::ErrorKind::StorageFull));

        let (reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let mut sink = Sink::open(Output::File(path.into())).unwrap();
        sink.write(b"line\n").unwrap();
        drop(reader);
        let failure = sink.write(b"line\n").unwrap_err();
        assert_eq!(failure.error.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_torn_line_is_ended_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut sink = Sink::open(Output::File(path.clone())).unwrap();
        sink.write(b"whole\nto").unwrap();
        sink.torn = true;
        sink.write(b"next\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole\nto\nnext\n");
    }

    #[test]
    fn nowhere_takes_everything() {
        assert!(Sink::open(Output::None).unwrap().write(b"line\n").is_ok());
    }
}
