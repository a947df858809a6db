//! Where messages end: standard output, standard error, a file, syslog, journald, or nowhere.
//!
//! A sink is given whole messages, each one event or one line of the log, in the framing that it asks for.
//! Streams and files block as their file descriptor does, so only threads that may block own a sink; sockets
//! give up after a fifth of a second per batch. A sink refuses to buffer (its callers batch), and to be
//! fatal.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

mod journald;
mod rotate;
mod socket;
mod stream;
mod syslog;

pub use rotate::Rotation;
pub use stream::FILE_MODE;
pub use syslog::SyslogTarget;
pub(crate) use syslog::{Facility, SyslogHead};

use journald::Journald;
use rotate::Rotator;
use stream::{Stream, open_file};
use syslog::Syslog;

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
    /// The same, rotated by size.
    Rotated(PathBuf, Rotation),
    /// Syslog.
    Syslog(SyslogTarget),
    /// journald's native socket, usually [`JOURNALD_SOCKET`].
    Journald(PathBuf),
    /// Nowhere.
    None,
}

/// Where journald listens.
pub const JOURNALD_SOCKET: &str = "/run/systemd/journal/socket";

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout => f.write_str("stdout"),
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) | Self::Rotated(path, _) => path.display().fmt(f),
            Self::Syslog(target) => target.fmt(f),
            Self::Journald(path) => write!(f, "journald ({})", path.display()),
            Self::None => f.write_str("none"),
        }
    }
}

/// How an output wants its messages.
#[derive(Debug)]
pub(crate) enum Framing {
    /// Lines that end in a newline.
    Lines,
    /// Syslog, with what begins every message.
    Syslog(SyslogHead),
    /// journald's native entries.
    Journal,
}

impl Output {
    pub(crate) fn framing(&self) -> Framing {
        match self {
            Self::Syslog(target) => Framing::Syslog(SyslogHead::new(target)),
            Self::Journald(_) => Framing::Journal,
            Self::Stdout | Self::Stderr | Self::File(_) | Self::Rotated(..) | Self::None => Framing::Lines,
        }
    }
}

/// Messages to be written together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The messages, one after the other.
    pub bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Batch {
    /// Forgets all messages, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Ends a message; an empty one is none.
    pub fn end_message(&mut self) {
        if self.bytes.len() > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(self.bytes.len());
        }
    }

    /// How many messages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// An open output.
#[derive(Debug)]
pub struct Sink {
    output: Output,
    open: Open,
    /// A failed rotation that was not reported yet.
    trouble: Option<io::Error>,
}

#[derive(Debug)]
enum Open {
    Stream(Stream),
    Rotated(Stream, Rotator),
    Syslog(Syslog),
    Journald(Journald),
    Nowhere,
}

impl Sink {
    /// Opens `output`. The name of a distant syslog is looked up, which may take its time.
    ///
    /// # Errors
    /// The file cannot be opened or created, the stream is closed, or the socket has no listener.
    pub fn open(output: Output) -> Result<Self, Error> {
        let open = open(&output)?;
        Ok(Self { output, open, trouble: None })
    }

    /// Of a file that is open already, to which `output` leads when it is opened anew.
    #[must_use]
    pub fn on(output: Output, file: File) -> Self {
        Self { output, open: Open::Stream(file.into()), trouble: None }
    }

    /// A sink that takes everything and writes nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self { output: Output::None, open: Open::Nowhere, trouble: None }
    }

    /// What it was opened for.
    #[must_use]
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// Opens a file anew by its path, after somebody moved it away, and connects a socket anew. Streams stay
    /// as they are.
    ///
    /// # Errors
    /// It cannot be opened; then the old one stays in use.
    pub fn reopen(&mut self) -> Result<(), Error> {
        match &mut self.open {
            Open::Stream(_) if !matches!(self.output, Output::File(_)) => {}
            Open::Stream(_) | Open::Rotated(..) => self.open = open(&self.output)?,
            Open::Syslog(syslog) => syslog.reopen().map_err(|source| self.output.refused(source))?,
            Open::Journald(journald) => journald.reopen().map_err(|source| self.output.refused(source))?,
            Open::Nowhere => {}
        }
        Ok(())
    }

    /// Writes messages, which must be in the output's framing. To a stream or file it may block as long as
    /// whoever reads the other end likes; to a socket for a fifth of a second.
    ///
    /// # Errors
    /// The system's error (`EPIPE`, `ENOSPC`, …), and how many messages were written before.
    pub fn write(&mut self, batch: &Batch) -> Result<(), WriteFailure> {
        let outcome = match &mut self.open {
            Open::Stream(stream) => write_lines(stream, batch),
            Open::Rotated(stream, rotator) => {
                if let Err(error) = rotator.make_room(stream, batch.bytes.len()) {
                    self.trouble = Some(error);
                }
                write_lines(stream, batch)
            }
            Open::Syslog(syslog) => syslog.send(batch.messages()),
            Open::Journald(journald) => journald.send(batch.messages()),
            Open::Nowhere => Ok(()),
        };
        outcome.map_err(|(written, error)| WriteFailure { written, error })
    }

    /// Why the file could not be rotated lately, if so; it was written all the same.
    pub fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }
}

/// A write that failed.
#[derive(Debug)]
pub struct WriteFailure {
    /// How many messages were written before.
    pub written: usize,
    /// What the system said.
    pub error: io::Error,
}

/// A message that was torn is not written.
fn write_lines(stream: &mut Stream, batch: &Batch) -> Result<(), (usize, io::Error)> {
    stream
        .write(&batch.bytes)
        .map_err(|(bytes, error)| (batch.ends.partition_point(|&end| end <= bytes), error))
}

fn open(output: &Output) -> Result<Open, Error> {
    let file = |path: &PathBuf| open_file(path).map(Stream::from).map_err(|source| open_failed(path, source));
    Ok(match output {
        Output::Stdout => Open::Stream(stream("stdout", io::stdout().as_fd().try_clone_to_owned())?),
        Output::Stderr => Open::Stream(stream("stderr", io::stderr().as_fd().try_clone_to_owned())?),
        Output::File(path) => Open::Stream(file(path)?),
        Output::Rotated(path, rotation) => {
            let stream = file(path)?;
            let rotator =
                Rotator::new(*rotation, path, &stream).map_err(|source| open_failed(path, source))?;
            Open::Rotated(stream, rotator)
        }
        Output::Syslog(target) => {
            Open::Syslog(Syslog::open(target.clone()).map_err(|source| output.refused(source))?)
        }
        Output::Journald(path) => {
            Open::Journald(Journald::open(path.clone()).map_err(|source| output.refused(source))?)
        }
        Output::None => Open::Nowhere,
    })
}

impl Output {
    fn refused(&self, source: io::Error) -> Error {
        Error::Connect { output: self.to_string().into(), source }
    }
}

fn open_failed(path: &std::path::Path, source: io::Error) -> Error {
    Error::OpenFile { path: path.to_owned(), source }
}

/// A descriptor of our own, past the lock and the buffer of the standard library.
fn stream(stream: &'static str, fd: io::Result<std::os::fd::OwnedFd>) -> Result<Stream, Error> {
    fd.map(|fd| File::from(fd).into()).map_err(|source| Error::OpenStream { stream, source })
}

#[cfg(test)]
mod tests {
    use super::{Batch, Open, Output, Sink};
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    fn lines(text: &[u8]) -> Batch {
        let mut batch = Batch::default();
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            batch.bytes.extend_from_slice(line);
            batch.end_message();
        }
        batch
    }

    #[test]
    fn files_are_appended_to_and_reopened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        fs::write(&path, "before\n").unwrap();
        let mut sink = Sink::open(Output::File(path.clone())).unwrap();
        sink.write(&lines(b"one\n")).unwrap();
        let moved = dir.path().join("access.log.1");
        fs::rename(&path, &moved).unwrap();
        sink.write(&lines(b"two\n")).unwrap();
        sink.reopen().unwrap();
        sink.write(&lines(b"three\n")).unwrap();
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
        sink.write(&lines(b"still here\n")).unwrap();
        assert_eq!(fs::read_to_string(moved.join("a")).unwrap(), "still here\n");
    }

    #[test]
    fn a_full_device_and_a_closed_pipe_are_errors() {
        let mut full = Sink::open(Output::File("/dev/full".into())).unwrap();
        let failure = full.write(&lines(b"line\n")).unwrap_err();
        assert_eq!((failure.written, failure.error.kind()), (0, std::io::ErrorKind::StorageFull));

        let (reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let mut sink = Sink::open(Output::File(path.into())).unwrap();
        sink.write(&lines(b"line\n")).unwrap();
        drop(reader);
        let failure = sink.write(&lines(b"line\n")).unwrap_err();
        assert_eq!(failure.error.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_torn_line_is_ended_before_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut sink = Sink::open(Output::File(path.clone())).unwrap();
        sink.write(&lines(b"whole\nto")).unwrap();
        let Open::Stream(stream) = &mut sink.open else { panic!("a file is a stream") };
        stream.torn = true;
        sink.write(&lines(b"next\n")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole\nto\nnext\n");
    }

    #[test]
    fn nowhere_takes_everything() {
        assert!(Sink::open(Output::None).unwrap().write(&lines(b"line\n")).is_ok());
    }
}
