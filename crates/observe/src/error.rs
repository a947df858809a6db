//! The error type of this crate.
//!
//! Only starting and reopening return errors. Failures to write are counted and reported by the [flusher]:
//! the code that serves traffic could not act on them.
//!
//! [flusher]: crate::flusher

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A failure to open an output or to start the flusher. The fault is Offramp's or the machine's, never a
/// peer's.
#[derive(Debug)]
pub enum OutputError {
    /// A log file cannot be opened or created.
    OpenFile {
        /// The path as configured.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Standard output or standard error cannot be used.
    OpenStream {
        /// The stream: `stdout` or `stderr`.
        stream: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The socket for events or lines has no listener.
    Connect {
        /// The output as configured.
        output: Box<str>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The thread of the flusher cannot be started.
    StartThread(io::Error),
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenFile { path, source } => write!(f, "cannot open {}: {source}", path.display()),
            Self::OpenStream { stream, source } => write!(f, "cannot use {stream}: {source}"),
            Self::Connect { output, source } => write!(f, "cannot reach {output}: {source}"),
            Self::StartThread(source) => write!(f, "cannot start the thread that writes events: {source}"),
        }
    }
}

impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OpenFile { source, .. }
            | Self::OpenStream { source, .. }
            | Self::Connect { source, .. }
            | Self::StartThread(source) => Some(source),
        }
    }
}
