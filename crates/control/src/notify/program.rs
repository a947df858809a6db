//! Receivers that are programs of the operator: one run for each try, with the message as JSON on its standard input.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use offramp_config::model::ProgramCommand;
use offramp_process::Helper;
use tokio::sync::Semaphore;

use super::outbox::{Delivery, TryOutcome};
use crate::operator_program::{self, OperatorProgram, ProgramEnd};

/// The time limit of one run.
const LIMIT: Duration = Duration::from_secs(60);
/// The most runs at a time: the helper starts DNS hooks and upgrades, too, and has a bound for all.
const AT_ONCE: usize = 4;

/// The starts of programs for all receivers.
pub(crate) struct ReceiverPrograms {
    /// Starts programs; without it, this process does.
    helper: OnceLock<Arc<Helper>>,
    permits: Semaphore,
}

impl Default for ReceiverPrograms {
    fn default() -> Self {
        Self { helper: OnceLock::new(), permits: Semaphore::new(AT_ONCE) }
    }
}

impl ReceiverPrograms {
    /// Has the helper start programs in the place of this process.
    pub(super) fn helped_by(&self, helper: Option<Arc<Helper>>) {
        if let Some(helper) = helper {
            // It is set once.
            let _ = self.helper.set(helper);
        }
    }

    /// Runs a program with a message, once. One that fails is tried again: it may wait for something itself.
    pub(super) async fn send(&self, command: &ProgramCommand, message: &[u8]) -> TryOutcome {
        // It is never closed.
        let _permit = self.permits.acquire().await;
        let program = OperatorProgram::Receiver { command, message };
        let helper = self.helper.get().map(|helper| &**helper);
        match operator_program::run(helper, program, LIMIT).await {
            Ok(ProgramEnd { status: Ok(status), said }) if status.success() => {
                TryOutcome { delivery: Delivery::Taken, says: with_output(&status.to_string(), &said) }
            }
            Ok(ProgramEnd { status, said }) => {
                let reason = status.map_or_else(|reason| reason, |status| status.to_string());
                TryOutcome::later(with_output(&reason, &said))
            }
            Err(error) => TryOutcome::later(format!("cannot be started: {error}")),
        }
    }
}

fn with_output(reason: &str, said: &str) -> String {
    if said.is_empty() { reason.to_owned() } else { format!("{reason}: {said}") }
}

/// Says what keeps a path from being a program.
///
/// # Errors
/// It is missing, no regular file, or may not be executed by any user.
pub(super) fn executable(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let found = path.metadata().map_err(|error| format!("cannot look at the program {shown}: {error}"))?;
    if !found.is_file() {
        return Err(format!("{shown} is no program: it is no regular file"));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(format!("the program {shown} is not executable; run chmod +x {shown}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn programs_are_files_that_may_be_executed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tell");
        let said = |path: &Path| executable(path).unwrap_err();
        assert!(said(&path).contains("No such file"), "{}", said(&path));
        assert!(said(folder.path()).contains("no regular file"));
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(said(&path).contains("chmod +x"), "{}", said(&path));
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        executable(&path).unwrap();
    }

    #[tokio::test]
    async fn a_program_that_is_gone_is_tried_again() {
        let command = ProgramCommand::read(&["/nonexistent/tell".to_owned()]).unwrap();
        let TryOutcome { delivery, says } = ReceiverPrograms::default().send(&command, b"{}").await;
        assert_eq!(delivery, Delivery::Later { wait: None });
        assert!(says.starts_with("cannot be started: "), "{says}");
    }
}
