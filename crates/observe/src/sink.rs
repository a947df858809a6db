//! Outputs: standard output, standard error, a file, syslog, journald, or none.
//!
//! A sink takes whole messages, each one event or one log line, in the framing of its output. Streams and
//! files block as their descriptor does, so only threads that may block own a sink; sockets give up after 200
//! ms per batch. A sink does no buffering (its callers batch), and its failures are never fatal.

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
pub(crate) use syslog::{Facility, SyslogHead, SyslogPriority};

use journald::Journald;
use rotate::Rotator;
use stream::{OutputStream, open_file};
use syslog::Syslog;

use crate::OutputError;

/// The destination of messages, as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The standard output of the process.
    Stdout,
    /// The standard error of the process.
    Stderr,
    /// A file, appended to; created with mode 0640 if absent. A named pipe needs a reader.
    File(PathBuf),
    /// Like [`File`](Self::File), with rotation by size.
    Rotated(PathBuf, Rotation),
    /// Syslog, local or over UDP.
    Syslog(SyslogTarget),
    /// journald's native socket, usually [`JOURNALD_SOCKET`].
    Journald(PathBuf),
    /// No output: messages are discarded.
    None,
}

/// The default path of journald's native socket.
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

/// The framing that an output expects.
#[derive(Debug)]
pub(crate) enum OutputFraming {
    /// Lines that end in a newline.
    Lines,
    /// Syslog messages with this header.
    Syslog(SyslogHead),
    /// Entries in journald's native protocol.
    Journal,
}

impl Output {
    pub(crate) fn framing(&self) -> OutputFraming {
        match self {
            Self::Syslog(target) => OutputFraming::Syslog(SyslogHead::new(target)),
            Self::Journald(_) => OutputFraming::Journal,
            Self::Stdout | Self::Stderr | Self::File(_) | Self::Rotated(..) | Self::None => {
                OutputFraming::Lines
            }
        }
    }
}

/// Messages to be written together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The messages one after the other.
    pub bytes: Vec<u8>,
    /// The end of each message.
    ends: Vec<usize>,
}

impl Batch {
    /// Removes all messages, and keeps the allocation.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Ends the current message; an empty one is ignored.
    pub fn end_message(&mut self) {
        if self.bytes.len() > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(self.bytes.len());
        }
    }

    /// The number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns `true` if the batch has no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// An output that has been opened, and its rotation.
#[derive(Debug)]
pub struct Sink {
    output: Output,
    open: OpenOutput,
    /// A rotation failure not yet reported.
    trouble: Option<io::Error>,
}

#[derive(Debug)]
enum OpenOutput {
    Stream(OutputStream),
    Rotated(OutputStream, Rotator),
    Syslog(Syslog),
    Journald(Journald),
    Nowhere,
}

impl Sink {
    /// Opens `output`. Resolving the name of a remote syslog may block.
    ///
    /// # Errors
    /// The file cannot be opened or created, the stream is closed, or the socket has no listener.
    pub fn open(output: Output) -> Result<Self, OutputError> {
        let open = open(&output)?;
        Ok(Self { output, open, trouble: None })
    }

    /// A sink for a file that is already open; `output` is the path by which it is reopened.
    #[must_use]
    pub fn on(output: Output, file: File) -> Self {
        Self { output, open: OpenOutput::Stream(file.into()), trouble: None }
    }

    /// A sink that discards everything.
    #[must_use]
    pub const fn none() -> Self {
        Self { output: Output::None, open: OpenOutput::Nowhere, trouble: None }
    }

    /// The output that the sink writes to.
    #[must_use]
    pub const fn output(&self) -> &Output {
        &self.output
    }

    /// Reopens a file by its path, after a rotation by another program, and reconnects a socket. Streams stay
    /// as they are.
    ///
    /// # Errors
    /// It cannot be opened; the old one stays in use.
    pub fn reopen(&mut self) -> Result<(), OutputError> {
        match &mut self.open {
            OpenOutput::Stream(_) if !matches!(self.output, Output::File(_)) => {}
            OpenOutput::Stream(_) | OpenOutput::Rotated(..) => self.open = open(&self.output)?,
            OpenOutput::Syslog(syslog) => syslog.reopen().map_err(|source| self.output.refused(source))?,
            OpenOutput::Journald(journald) => {
                journald.reopen().map_err(|source| self.output.refused(source))?;
            }
            OpenOutput::Nowhere => {}
        }
        Ok(())
    }

    /// Writes messages, which must be in the output's framing. A stream or file may block for as long as its
    /// reader does; a socket for 200 ms.
    ///
    /// # Errors
    /// The error of the operating system (`EPIPE`, `ENOSPC`, …), and the number of messages written before
    /// it.
    pub fn write(&mut self, batch: &Batch) -> Result<(), WriteFailure> {
        let outcome = match &mut self.open {
            OpenOutput::Stream(stream) => write_lines(stream, batch),
            OpenOutput::Rotated(stream, rotator) => {
                if let Err(error) = rotator.make_room(stream, batch.bytes.len()) {
                    self.trouble = Some(error);
                }
                write_lines(stream, batch)
            }
            OpenOutput::Syslog(syslog) => syslog.send(batch.messages()),
            OpenOutput::Journald(journald) => journald.send(batch.messages()),
            OpenOutput::Nowhere => Ok(()),
        };
        outcome.map_err(|(written, error)| WriteFailure { written, error })
    }

    /// Takes the last rotation failure, if any; the messages were written all the same.
    pub fn take_trouble(&mut self) -> Option<io::Error> {
        self.trouble.take()
    }
}

/// The failure of a write after some of the messages.
#[derive(Debug)]
pub struct WriteFailure {
    /// The number of messages written before the failure.
    pub written: usize,
    /// The error of the operating system.
    pub error: io::Error,
}

/// Writes whole lines. A torn message does not count as written.
fn write_lines(stream: &mut OutputStream, batch: &Batch) -> Result<(), (usize, io::Error)> {
    stream
        .write(&batch.bytes)
        .map_err(|(bytes, error)| (batch.ends.partition_point(|&end| end <= bytes), error))
}

fn open(output: &Output) -> Result<OpenOutput, OutputError> {
    let file =
        |path: &PathBuf| open_file(path).map(OutputStream::from).map_err(|source| open_failed(path, source));
    Ok(match output {
        Output::Stdout => OpenOutput::Stream(stream("stdout", io::stdout().as_fd().try_clone_to_owned())?),
        Output::Stderr => OpenOutput::Stream(stream("stderr", io::stderr().as_fd().try_clone_to_owned())?),
        Output::File(path) => OpenOutput::Stream(file(path)?),
        Output::Rotated(path, rotation) => {
            let stream = file(path)?;
            let rotator =
                Rotator::new(*rotation, path, &stream).map_err(|source| open_failed(path, source))?;
            OpenOutput::Rotated(stream, rotator)
        }
        Output::Syslog(target) => {
            OpenOutput::Syslog(Syslog::open(target.clone()).map_err(|source| output.refused(source))?)
        }
        Output::Journald(path) => {
            OpenOutput::Journald(Journald::open(path.clone()).map_err(|source| output.refused(source))?)
        }
        Output::None => OpenOutput::Nowhere,
    })
}

impl Output {
    fn refused(&self, source: io::Error) -> OutputError {
        OutputError::Connect { output: self.to_string().into(), source }
    }
}

fn open_failed(path: &std::path::Path, source: io::Error) -> OutputError {
    OutputError::OpenFile { path: path.to_owned(), source }
}

/// Opens a duplicate of the descriptor, to bypass the lock and the buffer of the standard library.
fn stream(stream: &'static str, fd: io::Result<std::os::fd::OwnedFd>) -> Result<OutputStream, OutputError> {
    fd.map(|fd| File::from(fd).into()).map_err(|source| OutputError::OpenStream { stream, source })
}

#[cfg(test)]
mod tests {
    use super::{Batch, OpenOutput, Output, Sink};
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
        let OpenOutput::Stream(stream) = &mut sink.open else { panic!("a file is a stream") };
        stream.torn = true;
        sink.write(&lines(b"next\n")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole\nto\nnext\n");
    }

    #[test]
    fn nowhere_takes_everything() {
        assert!(Sink::open(Output::None).unwrap().write(&lines(b"line\n")).is_ok());
    }
}
