//! Changes that somebody asks for while the process runs, by the admin API: what is asked for, on which terms, and what
//! came of it.
//!
//! They go the way of a reload: the whole new configuration is read and built beside the one in force, and replaces it
//! only if nothing is wrong with it. What a change adds to that is here: the version that it expects, a trial (`dry_run`),
//! the way back unless it is confirmed, and the file that it is written to.

mod confirmation;
mod draft;
mod persist;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_config::model::{Backend, Server, ServerState};
use offramp_config::{Config, Edit, EditError};
use offramp_net::process::Identity;
use offramp_observe::timestamp::rfc3339_micros;
use offramp_proxy::live::Filter;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, Finding};
use crate::history::{Kind, Requester};
use crate::reload::{Changes, Ready, Sockets};
use crate::running::{Running, tell};
use crate::sandbox;
use crate::servers;
use crate::unwritten::Made;

use draft::Draft;

pub(crate) use confirmation::{Confirmation, Settled, unconfirmed};
pub(crate) use draft::{edited, refused};

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
    /// The latest change stays, which would be taken back otherwise.
    Confirm {
        /// Whether it is written to the file, if that was asked for.
        write: bool,
    },
}

impl Change {
    /// What it is called.
    fn kind(&self) -> Kind {
        match self {
            Self::Reload => Kind::Reload,
            // What is confirmed was applied; it is remembered no second time.
            Self::Document { .. } | Self::Confirm { .. } => Kind::Apply,
            Self::Edit(_) => Kind::Edit,
            Self::Rollback(_) => Kind::Rollback,
        }
    }
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
    /// A configuration is used that has no routes or listeners, though the one in force has some.
    pub force: bool,
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
    /// The change cannot be written to the file, and waits on.
    StillWaits {
        /// Until when.
        until: SystemTime,
        /// Why it cannot be written.
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

/// A change as it was asked for, and who waits for its outcome.
pub(crate) struct Asked {
    /// When.
    pub(crate) at: Instant,
    pub(crate) change: Change,
    pub(crate) terms: Terms,
    pub(crate) told: oneshot::Sender<Result<Report, NotChanged>>,
}

/// How long the connections may be counted that a change touches.
const COUNTING: Duration = Duration::from_millis(500);

impl Running {
    /// Reads what is asked for. Changes nothing, and may be dropped.
    pub(crate) async fn draft(&self, asked: &Asked) -> Result<Option<Draft>, NotChanged> {
        self.begins(asked.at.into_std());
        self.ends("wait_ms");
        if matches!(asked.change, Change::Confirm { .. }) {
            self.expect(&asked.terms)?;
            return Ok(None);
        }
        self.admit(&asked.change, &asked.terms)?;
        Draft::read(self, &asked.change, &asked.terms).await.map(Some)
    }

    /// Whether the version is in force that must be.
    fn expect(&self, terms: &Terms) -> Result<(), NotChanged> {
        let version = self.history.version();
        if let Some(expected) = terms.expected.filter(|expected| *expected != version) {
            let before = self.history.configuration(expected);
            let difference = before.map(|before| difference(&before, &self.config)).unwrap_or_default();
            return Err(NotChanged::Version { version, difference });
        }
        Ok(())
    }

    /// Whether the change may be made now.
    fn admit(&self, change: &Change, terms: &Terms) -> Result<(), NotChanged> {
        self.expect(terms)?;
        // One that is to be confirmed itself would forget the way back from the first.
        let ends_the_wait = matches!(change, Change::Rollback(_) | Change::Reload) && terms.confirm.is_none();
        match &self.confirmation {
            Some(waiting) if !terms.dry_run && !ends_the_wait => {
                Err(NotChanged::Unconfirmed { until: waiting.until() })
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
        let Asked { terms, told, change, .. } = asked;
        let (kind, write) = (change.kind(), !matches!(change, Change::Confirm { write: false }));
        let draft = draft.map_err(|refused| match refused {
            NotChanged::Invalid(error) => NotChanged::Invalid(sandbox::explain(&self.source, &error)),
            other => other,
        });
        let outcome = match draft {
            Ok(None) => self.confirm(&by, write),
            Ok(Some(draft)) => self.carry_out(draft, &terms, by).await,
            Err(refused) => {
                if let (NotChanged::Invalid(error), false) = (&refused, terms.dry_run) {
                    self.remember(&Err(error.clone()), kind, by);
                }
                Err(refused)
            }
        };
        let written = outcome.as_ref().is_ok_and(|report| report.persisted.is_some());
        let changed = outcome.is_ok();
        // Whoever asked may be gone.
        let _ = told.send(outcome);
        if changed {
            self.tell_phases();
        }
        written
    }

    async fn carry_out(&mut self, draft: Draft, terms: &Terms, by: Requester) -> Result<Report, NotChanged> {
        let Draft { proposal, mut file, warnings, kind, connections, made } = draft;
        let ready = match self.ready(proposal).await {
            Ok(ready) => ready,
            Err(error) => {
                let error = sandbox::explain(&self.source, &error);
                if !terms.dry_run {
                    self.remember(&Err(error.clone()), kind, by);
                }
                return Err(error.into());
            }
        };
        let mut warnings = self.new_warnings(&ready, warnings);
        if kind == Kind::Reload {
            warnings.1.extend(self.discarded());
        }
        let mut report = Report { connections, ..self.report(&ready, &warnings) };
        if terms.dry_run {
            ready.abandon();
            return Ok(report);
        }
        // What waits to be confirmed is written then, and should not fail only then.
        let written = match (&terms.confirm, &file) {
            (_, None) => Ok(None),
            (Some(_), Some(file)) => file.try_out().map(|()| None),
            (None, Some(file)) => file.write().map(Some),
        };
        match written {
            Ok(path) => report.persisted = path,
            Err(why) => {
                ready.abandon();
                return Err(NotChanged::NotWritten(why));
            }
        }
        self.ends("file_ms");
        self.tell_warnings((&warnings.0, &warnings.1));
        let file = file.take_if(|_| report.persisted.is_none());
        // What changes nothing leaves nothing to take back, and holds up nobody.
        let confirm = terms.confirm.filter(|_| !ready.changes.is_none() || file.is_some());
        let waits = confirm.map(|time| Confirmation::of(self, time, (file, &made)));
        let sockets = if waits.is_some() { Sockets::Keep } else { Sockets::Close };
        let before = self.confirmation.as_ref().map(Confirmation::before);
        let is_back = before.is_some_and(|before| **before == ready.config);
        let changes = self.apply(ready, sockets).await;
        self.ends("commit_ms");
        match waits {
            // None waited before: `admit` would have refused this one.
            Some(waits) => self.confirmation = Some(waits),
            None if is_back => self.settle(Settled::TakenBack),
            None => self.settle(Settled::Replaced),
        }
        // What is on the way back is what the file had not then, unless the file was read now.
        if !is_back || matches!(made, Made::Read) {
            self.unwritten.note(&made, report.persisted.is_some(), &self.config);
        }
        report.confirm_until = self.unconfirmed_until();
        let differs = !changes.lines.is_empty();
        let asker = by.clone();
        self.remember(&Ok(changes), kind, by);
        report.version = self.history.version();
        if let Some(waiting) = self.confirmation.as_mut().filter(|_| differs) {
            waiting.became(report.version);
        }
        if let Some(until) = report.confirm_until {
            self.change_waits(report.version, until, &asker);
        }
        self.ends("history_ms");
        Ok(report)
    }

    /// What a change will do.
    fn report(&self, ready: &Ready, (certificates, rest): &(Vec<Finding>, Vec<Finding>)) -> Report {
        let (opens, closes) = self.addresses_that_change(ready);
        Report {
            version: self.history.version(),
            changes: ready.changes.clone(),
            warnings: rest.iter().chain(certificates).map(ToString::to_string).collect(),
            opens,
            closes,
            open: self.crew.page.counters.totals().active(),
            ..Report::default()
        }
    }

    /// How many connections are meant, if any can be; a worker that is stuck holds up no change for long.
    async fn count(&self, filter: Option<&Arc<Filter>>) -> Option<u64> {
        let Some(filter) = filter else { return Some(0) };
        let count = self.view.connections().count(filter);
        tokio::time::timeout(COUNTING, count).await.ok()?.ok()
    }

    /// The configuration that a rollback leads to.
    fn earlier(&self, version: Option<u64>) -> Result<Arc<Config>, NotChanged> {
        let before = self.confirmation.as_ref().map(Confirmation::before);
        let found = match (version, before) {
            (None, Some(before)) => Some(Arc::clone(before)),
            (None, None) => self.history.before(&self.config),
            (Some(version), _) => self.history.configuration(version),
        };
        found.ok_or_else(|| NotChanged::Forgotten { version, known: self.history.configurations() })
    }

    /// Tells of warnings: of certificates, and of the rest.
    pub(crate) fn tell_warnings(&self, (certificates, rest): (&[Finding], &[Finding])) {
        tell(&self.log, "certificate", certificates);
        tell(&self.log, "configuration", rest);
    }

    /// What is odd about a new configuration and was not about the one in force: of certificates, and of the rest.
    fn new_warnings(&self, ready: &Ready, mut of_text: Vec<Finding>) -> (Vec<Finding>, Vec<Finding>) {
        let (certificates, servers) = ready.warnings();
        let known = servers::look_here(&self.config, &Identity::current());
        let new = |all: &[Finding], known: &[Finding]| -> Vec<Finding> {
            let known: HashSet<&str> = known.iter().map(|one| one.text.as_str()).collect();
            all.iter().filter(|one| !known.contains(one.text.as_str())).cloned().collect()
        };
        of_text.extend(new(servers, &known));
        of_text.extend(self.left_to_none(&ready.config));
        of_text.extend(self.admin_moves(&ready.changes.needs_restart));
        (new(certificates, &self.ground.warnings), of_text)
    }

    /// The backends that lose their last server that works, though others are configured.
    fn left_to_none(&self, config: &Config) -> Vec<Finding> {
        let before: HashMap<_, _> =
            self.config.backends.iter().map(|backend| (backend.name.as_str(), backend)).collect();
        let before = |backend: &Backend| before.get(backend.name.as_str()).copied();
        let changed: Vec<&Backend> = config
            .backends
            .iter()
            .filter(|backend| before(backend).is_some_and(|before| before != *backend))
            .collect();
        if changed.is_empty() {
            return Vec::new();
        }
        let now = self.view.backends();
        let now: HashMap<_, _> = now.iter().map(|backend| (&*backend.name, backend)).collect();
        let works = |name: &str, server: &Server| {
            let known = now.get(name).and_then(|backend| {
                backend.servers.iter().find(|one| one.name == server.address.to_string())
            });
            // A new one is taken for one that works.
            known.is_none_or(|one| !matches!(one.state, "down" | "ejected" | "unresolved"))
        };
        let fares = |backend: &Backend| {
            let mut enabled =
                backend.servers.iter().filter(|server| server.state == ServerState::Enabled).peekable();
            enabled.peek().is_some().then(|| enabled.any(|server| works(backend.name.as_str(), server)))
        };
        let lost = changed.into_iter().filter(|backend| {
            fares(backend) == Some(false) && before(backend).is_some_and(|before| fares(before) == Some(true))
        });
        lost.map(|backend| {
            let text = format!(
                "the servers that are left in the backend `{}` do not work at the moment: clients get an error",
                backend.name
            );
            Finding::nowhere(text)
        })
        .collect()
    }
}

/// The lines in which a configuration differs from an older one.
fn difference(old: &Config, new: &Config) -> Vec<String> {
    offramp_config::ConfigDiff::between(old, new).to_string().lines().map(str::to_owned).collect()
}
