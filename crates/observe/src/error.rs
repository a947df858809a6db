//! The one error type of this crate.
//!
//! Only starting and reopening can fail loudly. Failures to write are counted and reported by the [flusher],
//! because nobody who serves traffic could do anything about them.
//!
//! [flusher]: crate::flusher

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What can go wrong when an output is opened or the flusher is started. All of it is ours or the
/// machine's; a peer has no part in it.
#[derive(Debug)]
pub enum Error {
    /// A log file cannot be opened or created.
    OpenFile {
        /// The file as it was configured.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output or standard error cannot be used.
    OpenStream {
        /// `stdout` or `stderr`.
        stream: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The socket for events or lines has no listener.
    Connect {
        /// The output as it was configured.
        output: Box<str>,
        /// What the system said.
        source: io::Error,
    },
    /// The flusher's thread cannot be started.
    StartThread(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenFile { path, source } => write!(f, "cannot open {}: {source}", path.display()),
            Self::OpenStream { stream, source } => write!(f, "cannot use {stream}: {source}"),
            Self::Connect { output, source } => write!(f, "cannot reach {output}: {source}"),
            Self::StartThread(source) => write!(f, "cannot start the thread that writes events: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OpenFile { source, .. }
            | Self::OpenStream { source, .. }
            | Self::Connect { source, .. }
            | Self::StartThread(source) => Some(source),
        }
    }
}
