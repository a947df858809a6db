//! What is read once: standard input or a file, compressed or not.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::gzip::{Gzip, MEMBER};
use super::zstd::Zstd;
use super::{Gap, Stop, Waited};

/// An input; gzip and Zstandard are known by their first bytes, whatever the file is called, and may have any number
/// of members or frames.
#[derive(Debug)]
pub struct Input {
    name: String,
    file: Arc<File>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Plain(BufReader<Arc<File>>),
    Gzip(Box<Gzip<BufReader<Arc<File>>>>),
    Zstd(Box<Zstd<BufReader<Arc<File>>>>),
}

impl Input {
    /// A file.
    ///
    /// # Errors
    /// If it cannot be opened or read, or is compressed by a program of which the format is not known here.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::new(path.display().to_string(), File::open(path)?)
    }

    /// The standard input. This waits for its first bytes.
    ///
    /// # Errors
    /// As [`Input::open`].
    pub fn stdin() -> io::Result<Self> {
        Self::new("standard input".to_owned(), io::stdin().as_fd().try_clone_to_owned()?.into())
    }

    pub(crate) fn new(name: String, file: File) -> io::Result<Self> {
        let file = Arc::new(file);
        let mut reader = BufReader::with_capacity(BLOCK, Arc::clone(&file));
        let first = reader.fill_buf()?;
        let kind = if first.starts_with(MEMBER) {
            Kind::Gzip(Box::new(Gzip::new(reader)))
        } else if Zstd::<File>::is_frame(first) {
            Kind::Zstd(Box::new(Zstd::new(reader)))
        } else if let Some((_, program)) = UNKNOWN.iter().find(|(magic, _)| first.starts_with(magic)) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "it is compressed in a format that Offramp cannot read; pipe it in: {program} FILE | offramp logs ingest"
                ),
            ));
        } else {
            Kind::Plain(reader)
        };
        Ok(Self { name, file, kind })
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is compressed.
    pub(crate) const fn is_compressed(&self) -> bool {
        !matches!(self.kind, Kind::Plain(_))
    }

    /// Steps over the first `bytes` of the content; gives how many there were.
    pub(crate) fn skip(&mut self, bytes: u64) -> io::Result<u64> {
        if let Kind::Plain(reader) = &mut self.kind {
            let there = reader.get_ref().metadata()?.len().min(bytes);
            reader.seek(SeekFrom::Start(there))?;
            return Ok(there);
        }
        io::copy(&mut self.take(bytes), &mut io::sink())
    }

    /// How many bytes of the file were taken, which are fewer than those of its content where it is compressed.
    pub(crate) fn taken(&self) -> u64 {
        // A pipe has no position.
        (&*self.file).stream_position().unwrap_or(0)
    }

    /// What is known of the file.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// The bytes behind the compressed data, at the end of the input, that are neither compressed nor padding.
    pub(crate) fn strange(&self) -> Option<Gap> {
        let ahead = match &self.kind {
            Kind::Plain(_) => None,
            Kind::Gzip(reader) => reader.strange(),
            Kind::Zstd(reader) => reader.strange(),
        };
        ahead.map(|ahead| Gap {
            path: self.name.clone(),
            position: self.taken().saturating_sub(ahead as u64),
            reason: "the compressed data ends before the file",
        })
    }

    pub(super) fn wait(&self, timeout: Option<Duration>, stop: &Stop) -> io::Result<Waited> {
        if stop.is_requested() {
            return Ok(Waited::Stopped);
        }
        match &self.kind {
            Kind::Plain(reader) if reader.buffer().is_empty() => stop.wait(Some(self.file.as_fd()), timeout),
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
            Kind::Zstd(reader) => reader.read(buffer),
        }
    }
}

/// Forms that logrotate may have made and that are not read here, and what turns them into text.
const UNKNOWN: [(&[u8], &str); 3] =
    [(b"\xfd7zXZ\0", "xzcat"), (b"BZh", "bzcat"), (&[0x04, 0x22, 0x4d, 0x18], "lz4cat")];
/// For compressed bytes; plain ones go past it.
const BLOCK: usize = 64 << 10;
