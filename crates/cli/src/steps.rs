//! Changes of a machine as data, for `setup` and `ca trust`: a [`SystemAction`] can be shown as the command of a shell, done, and
//! taken back by a [`Reversal`]. So what `--print` shows, what is done and what is undone are the same.

mod action;
mod invocation;
mod lock;
mod record;
mod reversal;
mod root;
mod tools;
pub(crate) mod user;

use action::advice;
pub(crate) use action::{ActionOutcome, FileGroup, SystemAction};
pub(crate) use invocation::Invocation;
pub(crate) use lock::{LockRefusal, SetupLock};
pub(crate) use record::SetupRecord;
pub(crate) use reversal::{Reversal, ReversalOutcome, USER};
pub(crate) use root::Root;
pub(crate) use tools::{Account, DistributionFamily, find_program, group_id, home_of};

/// A step of a plan: actions that belong together, and those that take it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanStep {
    /// Description of the step, without a full stop.
    pub(crate) title: String,
    /// The actions, in their order.
    pub(crate) actions: Vec<SystemAction>,
    /// The changes that take the step back, in their order; empty if nothing is left to take back.
    pub(crate) undo: Vec<Reversal>,
}

impl PlanStep {
    /// A step whose actions are taken back by their own inverses, the last one first.
    pub(crate) fn new(root: &Root, title: impl Into<String>, actions: Vec<SystemAction>) -> Self {
        let undo = actions.iter().rev().flat_map(|action| action.inverse(root)).collect();
        Self { title: title.into(), actions, undo }
    }

    /// Performs the actions. The outcome is [`ActionOutcome::Already`] if each of them was done before.
    ///
    /// # Errors
    /// The action that failed, and why; the ones before it are done.
    pub(crate) fn perform(&self) -> Result<ActionOutcome, String> {
        let mut outcome = ActionOutcome::Already;
        for action in &self.actions {
            if action.perform()? == ActionOutcome::Done {
                outcome = ActionOutcome::Done;
            }
        }
        Ok(outcome)
    }

    /// Returns true if no action would change anything.
    pub(crate) fn is_done(&self) -> bool {
        self.actions.iter().all(SystemAction::is_done)
    }

    /// The commands of a shell that do the same.
    pub(crate) fn shell(&self) -> String {
        shell(&self.actions)
    }
}

/// The commands of a shell for these actions, one after the other.
pub(crate) fn shell(actions: &[SystemAction]) -> String {
    actions.iter().map(|action| action.shell() + "\n").collect()
}

/// The SHA-256 of a file's bytes, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use aws_lc_rs::digest::{SHA256, digest};
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text for one line of a terminal or a comment of a script: what could end the line, or drive the terminal, is escaped.
pub(crate) fn one_line(text: &str) -> String {
    let is_harmful = |c: char| c.is_control() || offramp_observe::turns_text(c);
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if is_harmful(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}
