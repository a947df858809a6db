//! Errors of the log store, grouped by the party that can fix them.

use std::fmt;

use offramp_observe::panics::Panicked;

/// An error of the log store or of a question to it.
#[derive(Debug)]
pub enum Error {
    /// The store's URL is wrong or refused, for this reason.
    Url(String),
    /// Another process holds the store; a retry may succeed.
    Busy(String),
    /// The store cannot be reached; a retry may succeed.
    Away(String),
    /// The store can be read but not written.
    ReadOnly(String),
    /// The disk or the quota is full.
    Full(String),
    /// The store's file is damaged, or is not a store.
    Corrupt(String),
    /// The store was written by a later version of Offramp: the version found, and the latest one supported.
    TooNew(i64, i64),
    /// A question is malformed or not allowed, for this reason.
    Question(String),
    /// A question exceeded its time limit.
    TimedOut,
    /// A file could not be read or written.
    Io(String, std::io::Error),
    /// The store refused for another reason.
    Store(String),
}

impl Error {
    /// Returns `true` if a retry may succeed without repair of the store.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Away(_) | Self::Full(_) | Self::ReadOnly(_) | Self::Io(..))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(what) => write!(f, "the store's URL: {what}"),
            Self::Busy(what) => write!(f, "the store is held by another process: {what}"),
            Self::Away(what) => write!(f, "the store cannot be reached: {what}"),
            Self::ReadOnly(what) => write!(f, "the store cannot be written: {what}"),
            Self::Full(what) => write!(f, "no space is left for the store: {what}"),
            Self::Corrupt(what) => write!(f, "the store is damaged: {what}"),
            Self::TooNew(found, known) => {
                write!(f, "the store has schema version {found}; this program knows versions up to {known}")
            }
            Self::Question(what) => f.write_str(what),
            Self::TimedOut => f.write_str("the query took longer than its time limit"),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::Store(what) => write!(f, "the store: {what}"),
        }
    }
}

/// A panic of the store's code, which may pass like other failures.
impl From<Panicked> for Error {
    fn from(panicked: Panicked) -> Self {
        Self::Store(format!("a fault in Offramp: {panicked}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, error) => Some(error),
            _ => None,
        }
    }
}
