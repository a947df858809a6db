//! Standard output, standard error, and files.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;

/// An open stream or file. After a write that tore a line, the next one starts on a line of its own. Blocks
/// as its descriptor does.
#[derive(Debug)]
pub(super) struct OutputStream {
    file: File,
    pub(super) torn: bool,
}

impl From<File> for OutputStream {
    fn from(file: File) -> Self {
        Self { file, torn: false }
    }
}

impl OutputStream {
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Writes whole lines. A failure carries the number of bytes written before it.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        if self.torn {
            write_all(&mut self.file, b"\n").map_err(|(_, error)| (0, error))?;
            self.torn = false;
        }
        write_all(&mut self.file, lines).inspect_err(|&(written, _)| {
            self.torn = written > 0 && lines[written - 1] != b'\n';
        })
    }
}

/// Opens a file with `O_NONBLOCK`, so that a named pipe without a reader is an error instead of a start that
/// hangs; then switches it back to blocking.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).mode(FILE_MODE).custom_flags(flags).open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

fn write_all(file: &mut File, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process made the shared stream non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_writable(file).map_err(|error| (written, error))?;
            }
            Err(error) => return Err((written, error)),
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

/// Readable by the group, for log shippers; client addresses are private otherwise.
pub const FILE_MODE: u32 = 0o640;
