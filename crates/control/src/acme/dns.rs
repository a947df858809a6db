//! Records of the challenge dns-01, set and removed by the operator's program or by the name server itself.
//!
//! The program is called as `PROGRAM present|cleanup RECORD VALUE`, such as `_acme-challenge.example.org`. The same stands
//! in `OFFRAMP_ACME_ACTION`, `OFFRAMP_ACME_RECORD` and `OFFRAMP_ACME_VALUE`, the name without its prefix in
//! `OFFRAMP_ACME_DOMAIN`. It must end within [`LIMIT`], with status 0 if the record is set or gone.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use offramp_certs::acme::dns_update::{TsigHmac, TsigKey, Update};
use offramp_certs::read_secret;
use offramp_config::model::{DnsUpdate, TsigAlgorithm};
use offramp_process::{Helper, challenge_record};

use super::name_server;
use crate::operator_program::{self, OperatorProgram, ProgramEnd};

/// The time limit of the program.
const LIMIT: Duration = Duration::from_secs(120);

/// The change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Add it to those of its name.
    Present,
    /// Remove it from those of its name.
    Cleanup,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Action::Present => "present",
            Action::Cleanup => "cleanup",
        }
    }
}

/// A TXT record that proves control of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The name that is proved, without `*.`.
    pub(super) domain: String,
    /// The text of the record.
    pub(super) value: String,
}

impl Record {
    pub(super) fn name(&self) -> String {
        challenge_record(&self.domain)
    }
}

/// Runs the program; `helper` starts it, if there is one.
pub(super) async fn hook(
    helper: Option<&Helper>,
    program: &Path,
    action: Action,
    record: &Record,
) -> Result<(), String> {
    run(helper, program, action, record, LIMIT).await.map_err(|reason| {
        format!("the DNS hook {} {} {}: {reason}", program.display(), action.word(), record.name())
    })
}

/// Has a name server make the change; `id` is random.
pub(super) async fn update(
    server: &DnsUpdate,
    action: Action,
    record: &Record,
    id: u16,
) -> Result<(), String> {
    let path = server.key_file.path.display();
    let text = read_secret(&server.key_file.path).map_err(|error| error.to_string())?;
    let secret = BASE64_STANDARD.decode(text.as_bytes());
    let secret = secret.map_err(|_| format!("{path}: a TSIG key is written in base64"))?;
    let algorithm = match server.algorithm {
        TsigAlgorithm::HmacSha256 => TsigHmac::HmacSha256,
        TsigAlgorithm::HmacSha512 => TsigHmac::HmacSha512,
    };
    let key = TsigKey::new(server.key_name.as_str(), algorithm, &secret)?;
    let (zone, name) = (server.zone.as_str(), record.name());
    let add = action == Action::Present;
    name_server::update(server.server, &Update { zone, name: &name, value: &record.value, add }, &key, id)
        .await
}

async fn run(
    helper: Option<&Helper>,
    program: &Path,
    action: Action,
    record: &Record,
    limit: Duration,
) -> Result<(), String> {
    let words = [action.word(), &record.domain, &record.value];
    let hook = OperatorProgram::DnsHook { path: program, words };
    let ended = operator_program::run(helper, hook, limit).await;
    let ProgramEnd { status, said } = ended.map_err(|error| format!("cannot be started: {error}"))?;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{status}: {said}")),
        Err(reason) if said.is_empty() => Err(reason),
        Err(reason) => Err(format!("{reason}: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use offramp_testkit::process::write_program;
    use tokio::time::timeout;

    use super::*;

    /// Runs a script of a shell as the hook, for up to `limit`.
    fn outcome(script: &str, limit: Duration) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("hook");
        write_program(&program, &format!("#!/bin/sh\n{script}\n"));
        let record = Record { domain: "example.org".into(), value: "value".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(None, &program, Action::Present, &record, limit))
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_hook_gets_what_it_needs_in_both_forms() {
        let script = "test \"$*\" = 'present _acme-challenge.example.org value' && \
            test \"$OFFRAMP_ACME_ACTION $OFFRAMP_ACME_RECORD $OFFRAMP_ACME_VALUE\" = \"$*\" && \
            test \"$OFFRAMP_ACME_DOMAIN\" = example.org";
        outcome(script, PATIENCE).unwrap();
    }

    #[test]
    fn a_hook_that_fails_is_quoted() {
        let error = outcome("echo no such zone >&2; exit 3", PATIENCE).unwrap_err();
        assert!(error.contains("exit status: 3") && error.contains("no such zone"), "{error}");
        let error = outcome("printf 'a\\001b\\377'; exit 1", PATIENCE).unwrap_err();
        assert!(!error.contains('\u{1}'), "{error:?}");
        let error = outcome("yes | head -c 1000000; exit 1", PATIENCE).unwrap_err();
        assert!(error.len() < 1000, "{}", error.len());
    }

    #[test]
    fn a_hook_that_hangs_is_stopped() {
        let error = outcome("exec sleep 1000", Duration::from_millis(100)).unwrap_err();
        assert!(error.contains("did not end"), "{error}");
    }

    #[tokio::test]
    async fn what_a_hook_has_started_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let (program, file) = (folder.path().join("hook"), folder.path().join("pid"));
        let text =
            format!("#!/bin/sh\nsleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait\n", file.display());
        write_program(&program, &text);
        let record = Record { domain: "example.org".into(), value: "value".into() };
        let begun = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // As a reload does that has no use for the order any more.
        tokio::select! {
            ended = run(None, &program, Action::Present, &record, PATIENCE) => panic!("{ended:?}"),
            () = begun => {}
        }
        let pid = std::fs::read_to_string(file).unwrap();
        let status = format!("/proc/{}/stat", pid.trim());
        let gone = async {
            // Gone, or a zombie that its new parent has not waited for.
            while std::fs::read_to_string(&status).is_ok_and(|status| !status.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, gone).await.expect("what the hook has started lives on");
    }

    #[test]
    fn a_hook_may_leave_a_process_behind_that_keeps_its_output_open() {
        outcome("sleep 70 & exit 0", PATIENCE).unwrap();
        let error = outcome("echo bad >&2; sleep 70 & exit 3", PATIENCE).unwrap_err();
        assert!(error.contains("exit status: 3: bad"), "{error}");
    }

    #[test]
    fn a_hook_that_is_not_there_is_told() {
        let record = Record { domain: "example.org".into(), value: "value".into() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error =
            runtime.block_on(hook(None, Path::new("/nonexistent"), Action::Cleanup, &record)).unwrap_err();
        assert!(
            error.contains("/nonexistent cleanup _acme-challenge.example.org: cannot be started"),
            "{error}"
        );
    }
}
