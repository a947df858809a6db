//! What is read once: standard input or a file, compressed or not.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;

use super::{Stop, Waited};

/// An input; gzip is known by its first bytes, whatever the file is called, and may have any number of members.
#[derive(Debug)]
pub struct Input {
    name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Plain(BufReader<File>),
    Gzip(Box<MultiGzDecoder<BufReader<File>>>),
}

impl Input {
    /// A file.
    ///
    /// # Errors
    /// If it cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(path.display().to_string(), File::open(path)?)
    }

    /// The standard input. This waits for its first bytes.
    ///
    /// # Errors
    /// If it is closed.
    pub fn stdin() -> io::Result<Self> {
        Self::new("standard input".to_owned(), io::stdin().as_fd().try_clone_to_owned()?.into())
    }

    pub(crate) fn new(name: String, file: File) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(BLOCK, file);
        let kind = if reader.fill_buf()?.starts_with(GZIP) {
            Kind::Gzip(Box::new(MultiGzDecoder::new(reader)))
        } else {
            Kind::Plain(reader)
        };
        Ok(Self { name, kind })
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is compressed.
    pub(crate) const fn is_compressed(&self) -> bool {
        matches!(self.kind, Kind::Gzip(_))
    }

    /// Steps over the first `bytes` of the content.
    pub(crate) fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match &mut self.kind {
            Kind::Plain(reader) => reader.seek(SeekFrom::Start(bytes)).map(drop),
            Kind::Gzip(reader) => io::copy(&mut reader.take(bytes), &mut io::sink()).map(drop),
        }
    }

    pub(super) fn wait(&self, timeout: Option<Duration>, stop: &Stop) -> io::Result<Waited> {
        if stop.is_requested() {
            return Ok(Waited::Stopped);
        }
        match &self.kind {
            Kind::Plain(reader) if reader.buffer().is_empty() => {
                stop.wait(Some(reader.get_ref().as_fd()), timeout)
            }
            // Compressed or already read: it will not be long.
            _ => Ok(Waited::Ready),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.kind {
            Kind::Plain(reader) => reader.read(buffer),
            Kind::Gzip(reader) => reader.read(buffer),
        }
    }
}

/// The first bytes of a member, with the only method there is (RFC 1952, section 2.3).
const GZIP: &[u8] = &[0x1f, 0x8b, 8];
/// For compressed bytes; plain ones go past it.
const BLOCK: usize = 64 << 10;
