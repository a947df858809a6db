//! What can go wrong in a benchmark run, and the exit code that says so.
//!
//! A contestant that fails is an outcome to report, never the end of a run; an `Error` that reaches
//! `main` means that the run itself cannot go on.

use std::fmt;
use std::path::{Path, PathBuf};

/// The error of the harness.
#[derive(Debug)]
pub(crate) enum Error {
    /// The user asked for something that does not exist or cannot be.
    Usage(String),
    /// A program is not installed; the text names the package that brings it.
    Missing(String),
    /// A program that the harness started did not do what it must.
    Program {
        /// What it is, as the reader knows it.
        name: String,
        /// What happened, with the end of its own output.
        why: String,
    },
    /// A file or a system call failed.
    Io {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A measurement is unusable: it says why.
    Measure(String),
    /// A TLS exchange of the load client failed.
    Tls(String),
    /// The gate was missed; the misses have been printed.
    Gate(usize),
    /// Ctrl-C or SIGTERM; everything started has been stopped.
    Interrupted,
}

/// The result of the harness.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An input-output failure with what was attempted.
    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }

    /// Exit code: 1 for a missed gate or a failure, 2 for wrong usage, 130 after an interrupt.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) | Self::Missing(why) | Self::Measure(why) | Self::Tls(why) => f.write_str(why),
            Self::Program { name, why } => write!(f, "{name}: {why}"),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
            Self::Gate(1) => f.write_str("the gate was missed at one point"),
            Self::Gate(misses) => write!(f, "the gate was missed at {misses} points"),
            Self::Interrupted => f.write_str("interrupted; everything that was started has been stopped"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Self {
        Self::Tls(error.to_string())
    }
}

/// Reads a whole text file, naming it where that fails.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::io(format!("reading {}", path.display()), e))
}

/// Writes a whole file, naming it where that fails.
pub(crate) fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, content).map_err(|e| Error::io(format!("writing {}", path.display()), e))
}

/// Makes a directory with its parents and returns its absolute path.
pub(crate) fn make_dir(path: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(path)
        .and_then(|()| path.canonicalize())
        .map_err(|e| Error::io(format!("making {}", path.display()), e))
}
