//! Inputs that are read once: standard input or a file, compressed or not.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::gzip::{Gzip, MEMBER};
use super::identity::is_broken_off;
use super::zstd::Zstd;
use super::{Gap, StopSignal, Waited};

/// An input. gzip and Zstandard are recognised by their first bytes, whatever the file's name, with any
/// number of members or frames.
#[derive(Debug)]
pub struct Input {
    name: String,
    file: Arc<File>,
    kind: InputKind,
}

#[derive(Debug)]
enum InputKind {
    Plain(BufReader<Arc<File>>),
    Gzip(Box<Gzip<BufReader<Arc<File>>>>),
    Zstd(Box<Zstd<BufReader<Arc<File>>>>),
}

impl Input {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be opened or read, or has an unsupported compression format.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(path.display().to_string(), File::open(path)?)
    }

    /// Opens standard input, and waits for its first bytes.
    ///
    /// # Errors
    /// Like [`Input::open`].
    pub fn stdin() -> io::Result<Self> {
        Self::new("standard input".to_owned(), io::stdin().as_fd().try_clone_to_owned()?.into())
    }

    pub(crate) fn new(name: String, file: File) -> io::Result<Self> {
        let file = Arc::new(file);
        let mut reader = BufReader::with_capacity(BLOCK, Arc::clone(&file));
        let first = reader.fill_buf()?;
        let kind = if first.starts_with(MEMBER) {
            InputKind::Gzip(Box::new(Gzip::new(reader)))
        } else if Zstd::<File>::is_frame(first) {
            InputKind::Zstd(Box::new(Zstd::new(reader)))
        } else if let Some((_, program)) = UNKNOWN.iter().find(|(magic, _)| first.starts_with(magic)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "it is compressed in a format that Offramp cannot read; pipe it in: {program} FILE | offramp logs ingest"
                ),
            ));
        } else {
            InputKind::Plain(reader)
        };
        Ok(Self { name, file, kind })
    }

    /// The name of the input in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` for compressed inputs.
    pub(crate) const fn is_compressed(&self) -> bool {
        !matches!(self.kind, InputKind::Plain(_))
    }

    /// Skips the first `bytes` of the content; returns the number skipped.
    pub(crate) fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        if let InputKind::Plain(reader) = &mut self.kind {
            let there = reader.get_ref().metadata()?.len().min(bytes);
            reader.seek(SeekFrom::Start(there))?;
            return Ok(there);
        }
        io::copy(&mut self.take(bytes), &mut io::sink())
    }

    /// The bytes of the file consumed; for compressed files fewer than those of the content.
    pub(crate) fn taken(&self) -> u64 {
        // Pipes have no position.
        (&*self.file).stream_position().unwrap_or(0)
    }

    /// The metadata of the file.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Trailing bytes that are neither compressed data nor padding.
    pub(crate) fn strange(&self) -> Option<Gap> {
        let ahead = match &self.kind {
            InputKind::Plain(_) => None,
            InputKind::Gzip(reader) => reader.strange(),
            InputKind::Zstd(reader) => reader.strange(),
        };
        ahead.map(|ahead| Gap {
            path: self.name.clone(),
            position: self.taken().saturating_sub(ahead as u64),
            reason: "the compressed data ends before the file",
        })
    }

    pub(super) fn wait(&self, timeout: Option<Duration>, stop: &StopSignal) -> io::Result<Waited> {
        if stop.is_requested() {
            return Ok(Waited::Stopped);
        }
        match &self.kind {
            InputKind::Plain(reader) if reader.buffer().is_empty() => {
                stop.wait(Some(self.file.as_fd()), timeout)
            }
            // Compressed input, or buffered data: reading will not block for long.
            _ => Ok(Waited::Ready),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.kind {
            InputKind::Plain(reader) => reader.read(buffer),
            InputKind::Gzip(reader) => reader.read(buffer).map_err(|error| self.damaged("gunzip -t", error)),
            InputKind::Zstd(reader) => reader.read(buffer).map_err(|error| self.damaged("zstd -t", error)),
        }
    }
}

impl Input {
    /// An error of a decompressor in words, of the same kind. `test` is the command that finds it, too.
    fn damaged(&self, test: &str, error: io::Error) -> io::Error {
        if !is_broken_off(&error) {
            return error;
        }
        let (at, length) = (self.taken(), self.metadata().map_or(0, |found| found.len()));
        let what = if at >= length { "breaks off at the end of the file" } else { "is damaged" };
        let text = format!(
            "the compressed data {what}, at byte {at} or before ({error}); what is before it was read. Copy the file once \
             more, or wait until it is whole, and read it again: `{test} FILE` says whether it is"
        );
        io::Error::new(error.kind(), text)
    }
}

/// Formats that logrotate may produce but that are not supported, and the programs that decompress them.
const UNKNOWN: [(&[u8], &str); 3] =
    [(b"\xfd7zXZ\0", "xzcat"), (b"BZh", "bzcat"), (&[0x04, 0x22, 0x4d, 0x18], "lz4cat")];
/// The buffer size for compressed bytes; plain input bypasses it.
const BLOCK: usize = 64 << 10;
