//! A change that waits to be confirmed, and the way back from it.
//!
//! The way back must not fail. What the configuration before needs is kept until the change is confirmed: the sockets that
//! the change has given up ([`Sockets::Keep`](crate::reload::Sockets)), and what was read from certificates and other
//! files. If it fails nevertheless, it is tried again until it works.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use offramp_config::Config;
use tokio::time::Instant;

use super::persist::File;
use super::{Draft, NotChanged, Report};
use crate::build::Contents;
use crate::certificates::Sources;
use crate::error::{Error, Finding};
use crate::history::{Kind, Requester};
use crate::outputs::access_log;
use crate::reload::{Events, Sockets};
use crate::running::Running;
use crate::sandbox;
use crate::unwritten::{Made, Unwritten};

/// Between two attempts to take a change back, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// A change that is taken back, unless somebody confirms it.
pub(crate) struct Confirmation {
    /// When it is taken back, or when that is tried again.
    pub(crate) due: Instant,
    /// When it is to be taken back, by the clock of people.
    until: SystemTime,
    /// What was in force before.
    pub(super) before: Arc<Config>,
    /// What was read for that.
    pub(super) files: Files,
    /// What the file did not have then.
    unwritten: Unwritten,
    made: Made,
    /// What is written to the file when it is confirmed.
    file: Option<File>,
    /// The version that the change has made.
    version: Option<u64>,
    /// Until the next attempt, if the next one fails.
    pause: Duration,
    /// Why it could not be taken back.
    failed: Option<Arc<str>>,
}

/// What was read from files.
pub(super) struct Files {
    pub(super) sources: Sources,
    pub(super) contents: Contents,
    /// Where events went, and how: the key under which fields are hashed is a file too.
    pub(super) events: Option<Events>,
}

/// What became of a change that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It stays.
    Confirmed,
    /// Another configuration is in force now.
    Replaced,
    /// The configuration before is in force again.
    TakenBack,
}

impl Confirmation {
    /// Of a change that is about to be made.
    pub(super) fn of(running: &Running, time: Duration, (file, made): (Option<File>, &Made)) -> Self {
        let (sources, contents) = (running.ground.sources.clone(), running.ground.contents.clone());
        Self {
            due: Instant::now() + time,
            until: SystemTime::now() + time,
            before: Arc::clone(&running.config),
            // It is in use, and was opened.
            files: Files {
                sources,
                contents,
                events: access_log(&running.config, running.source.terminals).ok(),
            },
            unwritten: running.unwritten.clone(),
            made: made.clone(),
            file,
            version: None,
            pause: AGAIN.0,
            failed: None,
        }
    }

    pub(super) fn before(&self) -> &Arc<Config> {
        &self.before
    }

    pub(super) fn until(&self) -> SystemTime {
        self.until
    }

    /// Takes note of the version that the change has made.
    pub(super) fn became(&mut self, version: u64) {
        self.version = Some(version);
    }
}

/// Waits until a change is to be taken back.
pub(crate) async fn unconfirmed(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

impl Running {
    pub(super) fn confirm(&mut self, by: &Requester, write: bool) -> Result<Report, NotChanged> {
        let waiting = self.confirmation.as_ref().ok_or(NotChanged::NothingToConfirm)?;
        // While it is not written it is not confirmed: whoever asks may try again.
        let persisted = match &waiting.file {
            Some(file) if write => {
                let until = waiting.until;
                Some(file.write().map_err(|why| NotChanged::StillWaits { until, why })?)
            }
            _ => None,
        };
        if persisted.is_some() {
            self.unwritten = waiting.unwritten.clone();
            let made = waiting.made.clone();
            self.unwritten.note(&made, true, &self.config);
        }
        let version = waiting.version;
        self.settle(Settled::Confirmed);
        let by = [("by", by.as_str().into())];
        self.log.info("the change is confirmed", &by);
        self.change_waited("confirmed", version, &by);
        self.publish();
        let version = self.history.version();
        let open = self.crew.page.counters.totals().active();
        Ok(Report { version, persisted, connections: Some(0), open, ..Report::default() })
    }

    /// Ends the wait for a confirmation, if there is one.
    pub(crate) fn settle(&mut self, how: Settled) {
        self.listening.forget_reserved();
        let Some(waiting) = self.confirmation.take() else { return };
        match how {
            Settled::Confirmed => return,
            Settled::Replaced => {
                self.log.warn("another change replaces the one that nobody has confirmed", &[]);
                self.change_waited("replaced", waiting.version, &[]);
            }
            Settled::TakenBack => {
                self.unwritten = waiting.unwritten;
                self.change_waited("taken_back", waiting.version, &[]);
            }
        }
        waiting.version.into_iter().for_each(|version| self.history.discard(version));
    }

    /// Said of a change that waits, if the file is read again.
    pub(super) fn discarded(&self) -> Option<Finding> {
        let waiting = self.confirmation.as_ref()?;
        let version = waiting.version.map(|version| format!(" (version {version})")).unwrap_or_default();
        Some(Finding::nowhere(format!(
            "a change{version} waits to be confirmed; reading the file again replaces it, and it is not kept"
        )))
    }

    /// Takes back the change that nobody has confirmed. Where that fails it is tried again.
    pub(crate) async fn take_back(&mut self) {
        let Some(waiting) = &self.confirmation else { return };
        self.begins(std::time::Instant::now());
        if waiting.failed.is_none() {
            self.log.warn("nobody has confirmed the change; it is taken back", &[]);
        }
        let ready = match Draft::back(self, waiting).await {
            Ok(proposal) => self.ready(proposal).await,
            Err(error) => Err(error),
        };
        match ready {
            Ok(ready) => {
                self.tell_warnings(ready.warnings());
                let changes = self.apply(ready, Sockets::Close).await;
                self.ends("commit_ms");
                self.settle(Settled::TakenBack);
                self.remember(&Ok(changes), Kind::TakenBack, Requester::Unconfirmed);
                self.tell_phases();
            }
            Err(error) => self.try_again(sandbox::explain(&self.source, &error)),
        }
    }

    /// Takes note of why the change is still in force.
    fn try_again(&mut self, error: Error) {
        let Some(waiting) = &mut self.confirmation else { return };
        let (reason, pause) = (error.to_string(), waiting.pause);
        waiting.due = Instant::now() + pause;
        waiting.pause = (pause * 2).min(AGAIN.1);
        if waiting.failed.as_deref() != Some(&*reason) {
            waiting.failed = Some(reason.as_str().into());
            let version = waiting.version;
            let fields = [("reason", (&reason).into()), ("again_s", pause.as_secs().into())];
            self.log
                .error("the change cannot be taken back yet; this is tried again until it works", &fields);
            self.change_waited("not_taken_back", version, &fields);
            let now = SystemTime::now();
            self.crew.reloads.note(false, now);
            self.history.note(&Err(error), (Kind::TakenBack, Requester::Unconfirmed), now);
        }
        self.publish();
    }

    /// Until when the latest change has to be confirmed.
    pub(crate) fn unconfirmed_until(&self) -> Option<SystemTime> {
        self.confirmation.as_ref().map(|waiting| waiting.until)
    }

    /// Why the latest change could not be taken back yet.
    pub(crate) fn not_taken_back(&self) -> Option<Arc<str>> {
        self.confirmation.as_ref()?.failed.clone()
    }
}
