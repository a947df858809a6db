//! Changes that somebody asks for while the process runs, by the admin API: what is asked for, on which terms, and what
//! came of it.
//!
//! They go the way of a reload: the whole new configuration is read and built beside the one in force, and replaces it
//! only if nothing is wrong with it. What a change adds to that is here: the version that it expects, a trial (`dry_run`),
//! the way back unless it is confirmed, and the file that it is written to.

mod draft;
mod persist;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_config::{Config, Edit, EditError};
use offramp_proxy::live::Filter;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
use crate::history::Requester;
use crate::reload::{Changes, Ready};
use crate::running::{Running, tell};
use crate::sandbox;

use draft::Draft;

pub(crate) use draft::refused;

/// What is to become of the configuration.
#[derive(Clone, Debug)]
pub enum Change {
    /// It is read again from its file, as SIGHUP has it.
    Reload,
    /// It is replaced by another.
    Document {
        /// What messages call it.
        name: String,
        /// The directory where its relative paths start; `None`: that of the configuration's file.
        folder: Option<PathBuf>,
        /// The text.
        text: String,
    },
    /// One item of it changes.
    Edit(Edit),
    /// That of an earlier version takes its place; `None`: that before the latest change.
    Rollback(Option<u64>),
}

/// On which terms.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The version that must be in force.
    pub expected: Option<u64>,
    /// Nothing is changed, only told what would be.
    pub dry_run: bool,
    /// The change is taken back after this time, unless it is confirmed.
    pub confirm: Option<Duration>,
    /// The change is written to the file of the configuration.
    pub persist: bool,
}

/// What came of a change, or would come of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The version in force afterwards.
    pub version: u64,
    /// What is different.
    pub changes: Changes,
    /// What an operator should know.
    pub warnings: Vec<String>,
    /// The addresses that are listened on from then on.
    pub opens: Vec<String>,
    /// The addresses that are given up.
    pub closes: Vec<String>,
    /// How many connections are open on listeners, routes, backends and servers that become others, or go. They stay
    /// open. `None`: a worker did not answer in time.
    pub connections: Option<u64>,
    /// How many connections are open.
    pub open: u64,
    /// Until when it must be confirmed.
    pub confirm_until: Option<SystemTime>,
    /// The file that it was written to.
    pub persisted: Option<PathBuf>,
}

/// Why nothing changed.
#[derive(Clone, Debug)]
pub enum NotChanged {
    /// The new configuration cannot be used: everything that is wrong with it.
    Invalid(Error),
    /// Another version is in force than the one that was expected.
    Version {
        /// That version.
        version: u64,
        /// How it differs from the expected one; empty if that is forgotten.
        difference: Vec<String>,
    },
    /// The latest change has to be confirmed or taken back first.
    Unconfirmed {
        /// Until when.
        until: SystemTime,
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

/// A change as it was asked for, and who waits for its outcome.
pub(crate) struct Asked {
    /// `None`: the latest change is confirmed.
    pub(crate) change: Option<Change>,
    pub(crate) terms: Terms,
    pub(crate) told: oneshot::Sender<Result<Report, NotChanged>>,
}

/// A change that is taken back, unless somebody confirms it.
pub(crate) struct Confirmation {
    /// When it is taken back.
    pub(crate) due: Instant,
    /// The same by the clock of people.
    until: SystemTime,
    /// What was in force before.
    before: Arc<Config>,
    /// What is written to the file when it is confirmed.
    file: Option<persist::File>,
}

/// Said of a change that would cut off whoever makes it, if it did not need a restart.
const ADMIN_STAYS: &str = "[admin] stays as it is until the next start; then `offramp ctl` reaches Offramp as the new one says, or not at all";

/// How long the connections may be counted that a change touches.
const COUNTING: Duration = Duration::from_millis(500);

/// Waits until a change is to be taken back.
pub(crate) async fn unconfirmed(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl Running {
    /// Reads what is asked for. Changes nothing, and may be dropped.
    pub(crate) async fn draft(&self, asked: &Asked) -> Result<Option<Draft>, NotChanged> {
        let Some(change) = &asked.change else { return Ok(None) };
        self.admit(change, &asked.terms)?;
        Draft::read(self, change, &asked.terms).await.map(Some)
    }

    /// Whether the change may be made now.
    fn admit(&self, change: &Change, terms: &Terms) -> Result<(), NotChanged> {
        let version = self.history.version();
        if let Some(expected) = terms.expected.filter(|expected| *expected != version) {
            let before = self.history.configuration(expected);
            let difference = before.map(|before| difference(&before, &self.config)).unwrap_or_default();
            return Err(NotChanged::Version { version, difference });
        }
        let ends_the_wait = matches!(change, Change::Rollback(_) | Change::Reload);
        match &self.confirmation {
            Some(waiting) if !terms.dry_run && !ends_the_wait => {
                Err(NotChanged::Unconfirmed { until: waiting.until })
            }
            _ => Ok(()),
        }
    }

    /// Makes the change of a draft, and tells whoever asked. Whether the file of the configuration was written.
    pub(crate) async fn make(
        &mut self,
        asked: Asked,
        draft: Result<Option<Draft>, NotChanged>,
        by: Requester,
    ) -> bool {
        let Asked { terms, told, .. } = asked;
        let draft = draft.map_err(|refused| match refused {
            NotChanged::Invalid(error) => NotChanged::Invalid(sandbox::explain(&self.source, error)),
            other => other,
        });
        let outcome = match draft {
            Ok(None) => self.confirm(&by),
            Ok(Some(draft)) => self.carry_out(draft, &terms, by).await,
            Err(refused) => {
                if let (NotChanged::Invalid(error), false) = (&refused, terms.dry_run) {
                    self.remember(&Err(error.clone()), by);
                }
                Err(refused)
            }
        };
        let written = outcome.as_ref().is_ok_and(|report| report.persisted.is_some());
        // Whoever asked may be gone.
        let _ = told.send(outcome);
        written
    }

    async fn carry_out(&mut self, draft: Draft, terms: &Terms, by: Requester) -> Result<Report, NotChanged> {
        let Draft { proposal, file, warnings } = draft;
        let ready = match self.ready(proposal).await {
            Ok(ready) => ready,
            Err(error) => {
                let error = sandbox::explain(&self.source, error);
                if !terms.dry_run {
                    self.remember(&Err(error.clone()), by);
                }
                return Err(error.into());
            }
        };
        let mut report = self.report(&ready, warnings).await;
        if terms.dry_run {
            ready.abandon();
            return Ok(report);
        }
        let mut file = file;
        if terms.confirm.is_none()
            && let Some(file) = file.take()
        {
            match file.write() {
                Ok(path) => report.persisted = Some(path),
                Err(why) => {
                    ready.abandon();
                    return Err(NotChanged::NotWritten(why));
                }
            }
        }
        let before = Arc::clone(&self.config);
        let changes = self.apply(ready).await;
        self.confirmation = terms.confirm.map(|time| Confirmation {
            due: Instant::now() + time,
            until: SystemTime::now() + time,
            before,
            file,
        });
        report.confirm_until = self.confirmation.as_ref().map(|waiting| waiting.until);
        self.remember(&Ok(changes), by);
        report.version = self.history.version();
        Ok(report)
    }

    /// What a change will do.
    async fn report(&self, ready: &Ready, warnings: Vec<String>) -> Report {
        let (opens, closes) = self.addresses_that_change(ready);
        let mut all = warnings;
        all.extend(ready.warnings().map(ToString::to_string));
        if ready.changes.needs_restart.iter().any(|key| key.starts_with("admin.")) {
            all.push(ADMIN_STAYS.to_owned());
        }
        let connections = match &ready.touched {
            None => Some(0),
            Some(touched) => self.count(touched).await,
        };
        Report {
            version: self.history.version(),
            changes: ready.changes.clone(),
            warnings: all,
            opens,
            closes,
            connections,
            open: self.crew.page.counters.totals().active(),
            ..Report::default()
        }
    }

    /// How many connections are meant; a worker that is stuck holds up no change for long.
    async fn count(&self, filter: &Arc<Filter>) -> Option<u64> {
        let count = self.view.connections().count(filter);
        tokio::time::timeout(COUNTING, count).await.ok()?.ok()
    }

    fn confirm(&mut self, by: &Requester) -> Result<Report, NotChanged> {
        let waiting = self.confirmation.as_ref().ok_or(NotChanged::NothingToConfirm)?;
        // While it is not written it is not confirmed: whoever asks may try again.
        let persisted = match &waiting.file {
            Some(file) => Some(file.write().map_err(NotChanged::NotWritten)?),
            None => None,
        };
        self.confirmation = None;
        self.log.info("the change is confirmed", &[("by", by.as_str().into())]);
        self.publish();
        let version = self.history.version();
        let open = self.crew.page.counters.totals().active();
        Ok(Report { version, persisted, connections: Some(0), open, ..Report::default() })
    }

    /// Takes back the change that nobody has confirmed.
    pub(crate) async fn take_back(&mut self) {
        let Some(waiting) = self.confirmation.take() else { return };
        self.log.warn("nobody has confirmed the change; it is taken back", &[]);
        let config = Config::clone(&waiting.before);
        let draft = Draft::of(self, config, true).await;
        let outcome = match draft {
            Ok(draft) => self.carry_out(draft, &Terms::default(), Requester::Unconfirmed).await,
            Err(refused) => {
                if let NotChanged::Invalid(error) = &refused {
                    self.remember(&Err(error.clone()), Requester::Unconfirmed);
                }
                Err(refused)
            }
        };
        if outcome.is_err() {
            self.publish();
        }
    }

    /// The configuration that a rollback leads to.
    fn earlier(&self, version: Option<u64>) -> Result<Arc<Config>, NotChanged> {
        let before = self.confirmation.as_ref().map(|waiting| &waiting.before);
        let found = match (version, before) {
            (None, Some(before)) => Some(Arc::clone(before)),
            (None, None) => self.history.before(),
            (Some(version), _) => self.history.configuration(version),
        };
        found.ok_or_else(|| NotChanged::Forgotten { version, known: self.history.configurations() })
    }

    /// Until when the latest change has to be confirmed.
    pub(crate) fn unconfirmed_until(&self) -> Option<SystemTime> {
        self.confirmation.as_ref().map(|waiting| waiting.until)
    }

    /// Tells of the warnings of a configuration that was changed.
    pub(crate) fn tell_warnings(&self, ready: &Ready) {
        let (certificates, rest) = ready.warnings_by_kind();
        tell(&self.log, "certificate", certificates);
        tell(&self.log, "configuration", rest);
    }
}

/// The lines in which a configuration differs from an older one.
fn difference(old: &Config, new: &Config) -> Vec<String> {
    offramp_config::ConfigDiff::between(old, new).to_string().lines().map(str::to_owned).collect()
}
