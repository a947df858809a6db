//! Messages to operators about the state of the store.

use std::fmt;
use std::path::PathBuf;

use crate::error::Error;

/// A change in the state of the store.
#[derive(Debug)]
pub enum StoreNotice {
    /// The store does not accept events; they wait in the spool.
    Waiting(String),
    /// The store accepts events again, and has those that waited.
    CaughtUp {
        /// The number of events that waited.
        events: u64,
    },
    /// The store's file was damaged; it was moved to this path, and a fresh one created.
    MovedAside(PathBuf, Error),
    /// The store's file is damaged and cannot be moved aside.
    Damaged(Error),
    /// The spool is full or cannot be written: events are dropped and counted.
    Dropping(Option<Error>),
    /// Upkeep (roll-ups, retention) failed and will be retried.
    UpkeepFailed(Error),
}

impl StoreNotice {
    /// Returns `true` for problems, `false` for recovery from one.
    #[must_use]
    pub const fn is_problem(&self) -> bool {
        !matches!(self, Self::CaughtUp { .. })
    }
}

impl fmt::Display for StoreNotice {
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
