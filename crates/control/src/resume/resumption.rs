//! One attempt to start from the autosave, from the lock to the end of the start.

use std::mem;
use std::path::{Path, PathBuf};

use offramp_observe::Log;

use super::joined;
use crate::autosave::{self, AutosaveLock, FoundAutosave, NotLocked};
use crate::differences::summary;
use offramp_process::Error;

/// The part that the autosave has in a start. Dropped before [`Resumption::succeed`], the start has failed.
///
/// While a start uses the autosave a file says so. It stays if the start does not end well, in whatever way, and the next
/// start uses the configuration's file. A start that fails with the configuration's file removes it: the reason is not in the
/// autosave then, and the next start tries that again.
#[derive(Default)]
pub(crate) struct Resumption {
    state_dir: PathBuf,
    /// Without a lock where another process saves its configuration, or none did.
    found: FoundAutosave,
    /// Set if a start before has used the autosave and did not end well.
    was_tried: bool,
    /// Set while the start uses the autosave.
    uses_saved: bool,
    /// The differences from the file that the start brings back.
    changes: String,
}

impl Resumption {
    /// Takes the lock of the autosave.
    ///
    /// # Errors
    /// Another process has it: nothing is resumed. It is logged.
    pub(super) fn begin(state_dir: &Path, log: &Log) -> Result<Self, Self> {
        let mut part = Self::default();
        state_dir.clone_into(&mut part.state_dir);
        match AutosaveLock::take(state_dir) {
            Ok(lock) => {
                (part.found.lock, part.was_tried) = (Some(lock), autosave::was_attempted(state_dir));
                Ok(part)
            }
            Err(NotLocked::NoFolder) => Ok(part),
            Err(why) => {
                let why = why.to_string();
                let message = "nothing is resumed; the file of the configuration is used";
                log.warn(message, &[("reason", (&why).into())]);
                Err(part)
            }
        }
    }

    /// The part in the start of a process that takes over: the one before had an autosave with something not in force.
    pub(crate) fn taken_over(has_unused: bool) -> Self {
        let mut part = Self::default();
        part.found.has_unused = has_unused;
        part
    }

    pub(super) fn was_tried(&self) -> bool {
        self.was_tried
    }

    /// Logs that a start brings back these differences from the file. They are in force when it has succeeded.
    pub(super) fn resume(&mut self, changes: &str, log: &Log) {
        changes.clone_into(&mut self.changes);
        let from = autosave::path_in(&self.state_dir).display().to_string();
        log.info("resuming the configuration that was in force", &[("from", (&from).into())]);
    }

    /// Notes that the start uses the autosave from now on.
    pub(crate) fn try_saved(&mut self, log: &Log) {
        self.uses_saved = true;
        if let Err(error) = autosave::note_attempt(&self.state_dir) {
            let message = "cannot note that this start resumes; if it fails, the next one resumes again";
            log.warn(message, &[("reason", (&error).into())]);
        }
    }

    /// Logs that a start by the saved configuration has failed, and that the file is used instead.
    pub(crate) fn fall_back(&mut self, error: &Error, log: &Log) {
        self.give_up(&joined(error), log);
    }

    /// Logs that the autosave cannot be used, and keeps it.
    pub(super) fn give_up(&mut self, reason: &str, log: &Log) {
        (self.uses_saved, self.found.has_unused) = (false, true);
        let kept = autosave::unused_path_in(&self.state_dir).display().to_string();
        let message = "cannot resume; the file of the configuration is used, and the saved one is kept once this start has \
                       succeeded";
        log.warn(message, &[("reason", reason.into()), ("kept", (&kept).into())]);
    }

    /// Logs that some changes are not in force again, and keeps the autosave.
    pub(super) fn leave_out(&mut self, conflicts: &[String], log: &Log) {
        self.found.has_unused = true;
        let kept = autosave::unused_path_in(&self.state_dir).display().to_string();
        let message = "changes are not in force again, because they do not fit the file of the configuration; the saved \
                       configuration is kept once this start has succeeded, and `offramp ctl plan KEPT` compares";
        log.warn(message, &[("not_in_force", (&summary(conflicts)).into()), ("kept", (&kept).into())]);
    }

    /// The start has succeeded. Gives the autosave that it has found.
    pub(crate) fn succeed(mut self, log: &Log) -> FoundAutosave {
        if mem::take(&mut self.uses_saved) {
            let message = "changes that the file does not have are in force again; --persist writes them";
            log.warn(message, &[("changes", (&self.changes).into())]);
        }
        if self.found.lock.is_some() {
            autosave::forget_attempt(&self.state_dir);
        }
        mem::take(&mut self.found)
    }
}

impl Drop for Resumption {
    fn drop(&mut self) {
        if self.found.lock.is_some() && !self.uses_saved {
            autosave::forget_attempt(&self.state_dir);
        }
    }
}
