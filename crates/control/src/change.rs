//! Changes that operators ask for while the process runs: the change, its terms, and its outcome.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use offramp_config::{Edit, EditError};
use offramp_observe::timestamp::rfc3339_micros;
use offramp_process::Error;

use crate::changes::Changes;
use crate::history::Kind;

/// A change of the configuration.
#[derive(Clone, Debug)]
pub enum Change {
    /// It is read again from its file, as SIGHUP has it.
    Reload,
    /// It is replaced by another.
    Document {
        /// Its name in messages.
        name: String,
        /// The directory where its relative paths start; `None`: that of the configuration's file.
        folder: Option<PathBuf>,
        /// The text of the configuration.
        text: String,
    },
    /// One item of it changes.
    Edit(Edit),
    /// That of an earlier version takes its place; `None`: that before the latest change.
    Rollback(Option<u64>),
    /// The latest change stays, which would be taken back otherwise.
    Confirm {
        /// Set if it is written to the file, where that was asked for.
        write: bool,
    },
    /// The configuration in force is written to its file, with everything that was not written yet.
    Persist,
}

impl Change {
    /// The kind that the history has of it.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Reload => Kind::Reload,
            // What is confirmed or written was applied; it is remembered no second time.
            Self::Document { .. } | Self::Confirm { .. } | Self::Persist => Kind::Apply,
            Self::Edit(_) => Kind::Edit,
            Self::Rollback(_) => Kind::Rollback,
        }
    }
}

/// The terms that a change is made on.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The version that must be in force.
    pub expected: Option<u64>,
    /// Set for a trial: the report says what would change.
    pub dry_run: bool,
    /// The change is taken back after this time, unless it is confirmed.
    pub confirm: Option<Duration>,
    /// The change is written to the file of the configuration.
    pub persist: bool,
    /// A configuration is used that has no routes or listeners, though the one in force has some.
    pub force: bool,
}

/// The outcome of a change, or of a trial.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The version in force afterwards.
    pub version: u64,
    /// The differences from the configuration before.
    pub changes: Changes,
    /// Warnings that are new.
    pub warnings: Vec<String>,
    /// The addresses that are listened on from then on.
    pub opens: Vec<String>,
    /// The addresses that are given up.
    pub closes: Vec<String>,
    /// The number of open connections on listeners, routes, backends and servers that become others, or go. They stay
    /// open. `None`: a worker did not answer in time.
    pub connections: Option<u64>,
    /// The number of open connections.
    pub open: u64,
    /// Until when it must be confirmed.
    pub confirm_until: Option<SystemTime>,
    /// The file that it was written to.
    pub persisted: Option<PathBuf>,
}

/// The reason why nothing changed.
#[derive(Clone, Debug)]
pub enum NotChanged {
    /// The new configuration cannot be used: everything that is wrong with it.
    Invalid(Error),
    /// Another version is in force than the one that was expected.
    Version {
        /// The version in force.
        version: u64,
        /// Its differences from the expected one; empty if that is forgotten.
        difference: Vec<String>,
    },
    /// The latest change has to be confirmed or taken back first.
    Unconfirmed {
        /// The end of the wait for a confirmation.
        until: SystemTime,
    },
    /// The change cannot be written to the file, and waits on.
    StillWaits {
        /// The end of the wait for a confirmation.
        until: SystemTime,
        /// The reason why it cannot be written.
        why: String,
    },
    /// There is nothing to confirm.
    NothingToConfirm,
    /// The configuration of that version is not remembered.
    Forgotten {
        /// The version; `None`: there was no change yet.
        version: Option<u64>,
        /// Those that are remembered.
        known: Vec<u64>,
    },
    /// The item cannot be changed.
    Edit(EditError),
    /// There is no file to write to, or it cannot be written.
    NotWritten(String),
    /// No new process has taken over, for this reason.
    NotUpgraded(String),
    /// Too many requests wait.
    Busy,
    /// The process is about to end, perhaps because another has taken over.
    Ended,
}

impl fmt::Display for NotChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => error.fmt(f),
            Self::Version { version, .. } => {
                write!(f, "the configuration has changed meanwhile: version {version} is in force")
            }
            Self::Unconfirmed { .. } => {
                f.write_str("the latest change waits to be confirmed; confirm it or roll it back first")
            }
            Self::StillWaits { until, why } => write!(
                f,
                "{why}\nThe change still waits to be confirmed, until {}; confirm it again when that is mended, or keep it \
                 without writing it: `offramp ctl confirm --no-persist`",
                String::from_utf8_lossy(&rfc3339_micros(*until))
            ),
            Self::NothingToConfirm => f.write_str("no change waits to be confirmed"),
            Self::Forgotten { version: None, .. } => f.write_str("there was no change yet"),
            Self::Forgotten { version: Some(version), known } => {
                let known: Vec<String> = known.iter().map(u64::to_string).collect();
                write!(f, "version {version} is not remembered; these are: {}", known.join(", "))
            }
            Self::Edit(error) => error.fmt(f),
            Self::NotWritten(why) => f.write_str(why),
            Self::NotUpgraded(why) => {
                write!(f, "no new process has taken over, and this one serves on: {why}")
            }
            Self::Busy => f.write_str("too many changes wait already; try again"),
            Self::Ended => f.write_str("this process is about to end, or another has taken over; try again"),
        }
    }
}

impl std::error::Error for NotChanged {}

impl From<Error> for NotChanged {
    fn from(error: Error) -> Self {
        Self::Invalid(error)
    }
}

impl From<EditError> for NotChanged {
    fn from(error: EditError) -> Self {
        Self::Edit(error)
    }
}
