//! The running process: the ledger of its configuration, the services that follow it, and the workers.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use offramp_config::{Config, absolute};
use offramp_net::notify::Notifier;
use offramp_observe::{Log, Notices};
use offramp_process::sandbox::Confinement;
use offramp_process::{Program, Source};
use tokio::task::AbortHandle;

use crate::autosave::Autosave;
use crate::data_plane::DataPlane;
use crate::ledger::Ledger;
use crate::phases::Phases;
use crate::services::Services;
use crate::view::{InForce, View};

/// The running process, as the event loop has it.
pub(crate) struct Running {
    pub(crate) ledger: Ledger,
    pub(crate) services: Services,
    pub(crate) plane: DataPlane,
    /// The source of the next configuration.
    pub(crate) source: Source,
    /// The limits that the process has set itself.
    pub(crate) confinement: Confinement,
    /// The program of an upgrade; without, it is refused.
    pub(crate) program: Option<Program>,
    /// The service manager (systemd).
    pub(crate) notifier: Notifier,
    /// Writes the configuration in force to the state directory.
    pub(crate) autosave: Autosave,
    /// Signs of life for the service manager.
    pub(crate) watchdog: Option<AbortHandle>,
    pub(crate) view: View,
    /// The duration of each part of the change under way.
    pub(crate) phases: RefCell<Phases>,
    pub(crate) log: Log,
}

impl Running {
    pub(crate) fn config(&self) -> &Arc<Config> {
        self.ledger.config()
    }

    /// The channel of events about the process as a whole.
    pub(crate) fn notices(&self) -> &Notices {
        self.plane.shared.refusals.notices()
    }

    /// Shows the configuration in force to other threads.
    pub(crate) fn publish(&self) {
        let waiting = self.ledger.waiting();
        self.view.publish(InForce {
            version: self.ledger.history().version(),
            config: Arc::clone(self.config()),
            text: Arc::clone(&self.ledger.running().text),
            listening: self.services.listeners.addresses(),
            metrics: self.services.metrics.address().cloned(),
            confirm_until: self.ledger.unconfirmed_until(),
            not_taken_back: waiting.and_then(|waiting| waiting.failure()).cloned(),
            unwritten: Arc::clone(self.ledger.differences()),
            unsaved: self.autosave.failure().cloned(),
        });
    }

    /// Tells the log and the service manager that the process serves. Where connections are accepted was logged by the
    /// commit.
    pub(crate) fn announce(&self) {
        let fields = [
            ("version", self.plane.page.build.version.into()),
            ("workers", self.plane.workers.len().into()),
            ("certificates", self.services.snapshot.carryover.store.certificates().count().into()),
        ];
        self.log.info("started", &fields);
        self.notifier.send("READY=1\nSTATUS=serving");
    }

    /// Saves the configuration in force, for a start by `--resume`, and shows if that fails.
    pub(crate) async fn save(&mut self) {
        let Self { ledger, autosave, source, plane, log, .. } = self;
        let before = autosave.failure().cloned();
        if let Some(saved) = ledger.saved() {
            let file = source.origin.path();
            let file = absolute(file).unwrap_or_else(|_| file.to_owned());
            autosave.save(|| saved.form(&file), log, &plane.reloads).await;
        }
        if self.autosave.failure() != before.as_ref() {
            self.publish();
        }
    }

    /// The warning of a change that is in force and not saved.
    pub(crate) fn unsaved(&self) -> Option<String> {
        let why = self.autosave.failure()?;
        Some(format!("not saved for `run --resume`, which would start from an older configuration: {why}"))
    }

    /// Reopens log files, after they were renamed.
    pub(crate) fn reopen(&self) {
        self.services.log.reopen();
        self.plane.flusher.reopen();
    }

    /// Begins to measure a change that was asked for at this time.
    pub(crate) fn begin_phases(&self, since: Instant) {
        *self.phases.borrow_mut() = Phases::since(since);
    }

    /// Ends a part of the change.
    pub(crate) fn end_phase(&self, part: &'static str) {
        self.phases.borrow_mut().end(part);
    }

    /// Logs how long a change took.
    pub(crate) fn log_phases(&self) {
        self.phases.borrow().tell(&self.log, "a change took");
    }
}
