//! The ledger of the configuration: the one in force, the changes that led to it, the one that waits to be confirmed, and
//! the file as it was last read or written. It decides, and touches neither sockets nor workers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_config::{Config, ConfigDiff};
use offramp_process::Error;
use tokio::time::Instant;

use crate::autosave::Saved;
use crate::change::{Change, NotChanged, Terms};
use crate::changes::Changes;
use crate::config_file::FileRead;
use crate::confirmation::{Confirmation, Settled};
use crate::differences;
use crate::history::{History, Kind, Requester};
use crate::running_config::RunningConfig;

/// The configuration in force, and how it came about.
pub(crate) struct Ledger {
    running: RunningConfig,
    history: History,
    file: FileRead,
    /// The differences of the configuration in force from the file.
    differences: Arc<[String]>,
    /// The change that is taken back unless it is confirmed.
    waiting: Option<Confirmation>,
}

/// A change that was committed.
pub(crate) struct Entry {
    pub(crate) running: RunningConfig,
    pub(crate) changes: Changes,
    pub(crate) kind: Kind,
    pub(crate) by: Requester,
    /// The file, where it was read or written.
    pub(crate) read: Option<FileRead>,
    /// The way back from it, until it is confirmed.
    pub(crate) waits: Option<Confirmation>,
}

/// The consequences of an [`Entry`].
pub(crate) struct Recorded {
    /// The fate of the change that waited before, with its version.
    pub(crate) settled: Option<Settlement>,
    /// The version in force.
    pub(crate) version: u64,
}

/// The fate of a change that waited to be confirmed.
pub(crate) struct Settlement {
    pub(crate) how: Settled,
    /// The version that it had made, if any.
    pub(crate) version: Option<u64>,
}

/// A failure to take a change back.
pub(crate) struct NotTakenBack {
    pub(crate) reason: String,
    /// The time until the next attempt.
    pub(crate) pause: Duration,
    /// The version of the change.
    pub(crate) version: Option<u64>,
    /// Set where the last attempt failed for another reason, or there was none.
    pub(crate) is_new: bool,
}

impl Ledger {
    /// The ledger of a process that begins with this configuration.
    pub(crate) fn new(running: RunningConfig, file: FileRead) -> Self {
        let history = History::of(&running);
        let differences = differences::lines(&file.config, &running.config);
        Self { running, history, file, differences, waiting: None }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> &Arc<Config> {
        &self.running.config
    }

    /// The configuration in force, with its text.
    pub(crate) fn running(&self) -> &RunningConfig {
        &self.running
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The file as it was last read or written.
    pub(crate) fn file(&self) -> &FileRead {
        &self.file
    }

    /// The differences of the configuration in force from the file.
    pub(crate) fn differences(&self) -> &Arc<[String]> {
        &self.differences
    }

    /// The configuration in force as it is saved, unless it waits to be confirmed: the one before is saved then.
    pub(crate) fn saved(&self) -> Option<Saved<'_>> {
        let Self { running, file, differences, waiting, .. } = self;
        waiting.is_none().then(|| file.saved(running, differences.len()))
    }

    /// The change that waits to be confirmed.
    pub(crate) fn waiting(&self) -> Option<&Confirmation> {
        self.waiting.as_ref()
    }

    /// The time to take a change back.
    pub(crate) fn take_back_at(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|waiting| waiting.due)
    }

    /// The end of the wait for a confirmation.
    pub(crate) fn unconfirmed_until(&self) -> Option<SystemTime> {
        self.waiting.as_ref().map(|waiting| waiting.until)
    }

    /// Refuses terms that expect another version.
    pub(crate) fn expect(&self, terms: &Terms) -> Result<(), NotChanged> {
        let version = self.history.version();
        if let Some(expected) = terms.expected.filter(|expected| *expected != version) {
            let before = self.history.configuration(expected);
            let difference =
                before.map(|before| difference(&before.config, self.config())).unwrap_or_default();
            return Err(NotChanged::Version { version, difference });
        }
        Ok(())
    }

    /// Refuses a change that may not be made now.
    pub(crate) fn admit(&self, change: &Change, terms: &Terms) -> Result<(), NotChanged> {
        self.expect(terms)?;
        // One that is to be confirmed itself would forget the way back from the first.
        let ends_the_wait = matches!(change, Change::Rollback(_) | Change::Reload) && terms.confirm.is_none();
        match &self.waiting {
            Some(waiting) if !terms.dry_run && !ends_the_wait => {
                Err(NotChanged::Unconfirmed { until: waiting.until })
            }
            _ => Ok(()),
        }
    }

    /// The configuration that a rollback leads to.
    pub(crate) fn earlier(&self, version: Option<u64>) -> Result<RunningConfig, NotChanged> {
        let found = match (version, &self.waiting) {
            (None, Some(waiting)) => Some(waiting.way_back.running.clone()),
            (None, None) => self.history.before(self.config()),
            (Some(version), _) => self.history.configuration(version),
        };
        found.ok_or_else(|| NotChanged::Forgotten { version, known: self.history.configurations() })
    }

    /// Records a change that is in force now.
    pub(crate) fn record(&mut self, entry: Entry, now: SystemTime) -> Recorded {
        let Entry { running, changes, kind, by, read, waits } = entry;
        let before = self.waiting.as_ref().map(|waiting| &waiting.way_back.running.config);
        let is_back = before.is_some_and(|before| **before == *running.config);
        self.running = running;
        // A change that waits itself was admitted only because no other did.
        let settled = self.settle(if is_back { Settled::TakenBack } else { Settled::Replaced });
        self.waiting = waits;
        self.compare(read);
        let differs = !changes.lines.is_empty();
        self.history.note(&Ok(changes), kind, by, now);
        self.history.keep(&self.running);
        let version = self.history.version();
        if let Some(waiting) = self.waiting.as_mut().filter(|_| differs) {
            waiting.version = Some(version);
        }
        Recorded { settled, version }
    }

    /// Records a change that was refused.
    pub(crate) fn record_refused(&mut self, error: &Error, kind: Kind, by: Requester, now: SystemTime) {
        self.history.note(&Err(error.clone()), kind, by, now);
        self.history.keep(&self.running);
    }

    /// Confirms the change that waits, with the file where that was written. Gives its version.
    pub(crate) fn confirm(&mut self, read: Option<FileRead>) -> Option<u64> {
        self.compare(read);
        self.settle(Settled::Confirmed)?.version
    }

    /// Notes that the file was written with what is in force.
    pub(crate) fn note_written(&mut self, read: FileRead) {
        self.compare(Some(read));
    }

    /// Compares with the file, which may have been read or written.
    fn compare(&mut self, read: Option<FileRead>) {
        self.file = read.unwrap_or_else(|| self.file.clone());
        self.differences = differences::lines(&self.file.config, &self.running.config);
    }

    /// Records that the change could not be taken back.
    pub(crate) fn record_not_taken_back(&mut self, error: Error, now: SystemTime) -> Option<NotTakenBack> {
        let waiting = self.waiting.as_mut()?;
        let (reason, pause) = (error.to_string(), waiting.failed_again());
        let is_new = waiting.fails_for(&reason);
        let version = waiting.version;
        if is_new {
            self.history.note(&Err(error), Kind::TakenBack, Requester::Unconfirmed, now);
        }
        Some(NotTakenBack { reason, pause, version, is_new })
    }

    /// Ends the wait for a confirmation, if there is one.
    fn settle(&mut self, how: Settled) -> Option<Settlement> {
        let waiting = self.waiting.take()?;
        if how != Settled::Confirmed {
            waiting.version.into_iter().for_each(|version| self.history.discard(version));
        }
        Some(Settlement { how, version: waiting.version })
    }
}

/// The lines in which a configuration differs from an older one.
fn difference(old: &Config, new: &Config) -> Vec<String> {
    ConfigDiff::between(old, new).to_string().lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
