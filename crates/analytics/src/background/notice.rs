//! Messages about the store for operators.

use std::fmt;
use std::path::PathBuf;

use crate::error::Error;

/// Something that happened to the store.
#[derive(Debug)]
pub enum Notice {
    /// The store does not take events; they wait in the spool.
    Waiting(String),
    /// The store takes events again; those that waited are in it.
    CaughtUp {
        /// How many events had waited.
        events: u64,
    },
    /// The store's file was damaged: it was moved to this path, and a fresh one begun.
    MovedAside(PathBuf, Error),
    /// The store's file is damaged, and could not be moved aside.
    Damaged(Error),
    /// The spool is full, or cannot be written: events are dropped and counted.
    Dropping(Option<Error>),
    /// Upkeep (roll-ups, retention) failed; it is tried again.
    UpkeepFailed(Error),
}

impl Notice {
    /// Whether something is wrong, rather than right again.
    #[must_use]
    pub const fn is_problem(&self) -> bool {
        !matches!(self, Self::CaughtUp { .. })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(error) => {
                write!(f, "the log store does not take events; they wait in the spool: {error}")
            }
            Self::CaughtUp { events } => {
                write!(f, "the log store caught up with {events} events that had waited")
            }
            Self::MovedAside(path, error) => {
                write!(
                    f,
                    "the log store was damaged ({error}); it was moved to {}, and a new one was started",
                    path.display()
                )
            }
            Self::Damaged(error) => {
                write!(f, "the log store is damaged and could not be moved aside: {error}")
            }
            Self::Dropping(None) => f.write_str("the log store's spool is full: events are dropped"),
            Self::Dropping(Some(error)) => write!(f, "events for the log store are dropped: {error}"),
            Self::UpkeepFailed(error) => {
                write!(f, "upkeep of the log store failed and will be tried again: {error}")
            }
        }
    }
}
