//! The one error type of the kit: what went wrong, and on whose side.
//!
//! An alert or an early end of a connection is an ordinary result for a test of malformed input; they
//! have variants of their own so that a caller can tell them from a fault of the test itself.

use std::fmt;
use std::io;

/// Why an operation of the kit failed.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused something.
    Io(io::Error),
    /// The server under test sent an alert where something else was awaited.
    Alert(Alert),
    /// The connection ended, or stayed silent past the read timeout, where something was awaited.
    Ended(End),
    /// The server under test said something that no correct server says.
    Peer(String),
    /// The answer was not TLS at all; the bytes that arrived.
    NotTls(Vec<u8>),
    /// The test's own preparation failed: a certificate, a missing program, a child process.
    Setup(String),
}

/// An alert of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// 1 is warning, 2 is fatal.
    pub level: u8,
    /// The alert, by its registered number.
    pub description: u8,
    /// Set for an alert in an encrypted record.
    pub protected: bool,
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.protected { "sealed" } else { "plain" };
        write!(f, "the {how} alert {} (level {})", self.description, self.level)
    }
}

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed its side in order.
    Eof,
    /// The connection was torn down (RST).
    Reset,
    /// It has not ended: nothing came within the stream's read timeout.
    StillOpen,
}

impl Error {
    /// A fault of the server under test, in words.
    pub(crate) fn peer(what: impl Into<String>) -> Self {
        Self::Peer(what.into())
    }

    /// A fault of the test's own preparation, in words.
    pub(crate) fn setup(what: impl fmt::Display) -> Self {
        Self::Setup(what.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the operating system says: {error}"),
            Self::Alert(alert) => write!(f, "the server sent {alert}"),
            Self::Ended(end) => write!(f, "the connection ended too early: {end:?}"),
            Self::Peer(what) => write!(f, "the server is wrong: {what}"),
            Self::NotTls(bytes) => write!(f, "the answer is not TLS: {}", bytes.escape_ascii()),
            Self::Setup(what) => write!(f, "the test could not be prepared: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
