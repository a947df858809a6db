//! What those who watch the process are told of it, beside changes of its configuration; and what whoever changes it is
//! warned of.

use std::time::SystemTime;

use offramp_config::model::ListenAddress;

use offramp_observe::{LogField, NoticeKind, Notices};
use tokio::time::Instant;

use crate::error::Finding;
use crate::history::Requester;
use crate::running::Running;
use crate::upgrade::Successor;

/// Said of a change that would cut off whoever makes it, if it did not need an upgrade.
const ADMIN_STAYS: &str = "[admin] stays as it is until the next upgrade or start; then `offramp ctl` reaches Offramp as the new one says, or not at all";

impl Running {
    /// What those who watch are told.
    pub(crate) fn notices(&self) -> &Notices {
        self.crew.shared.refusals.notices()
    }

    /// An upgrade begins.
    pub(crate) fn upgrade_begins(&self, by: &Requester) {
        let by = match by {
            Requester::Signal => "SIGUSR2",
            other => other.as_str(),
        };
        self.notices().note(NoticeKind::Upgrade, "begun", &[("by", by.into())]);
    }

    /// Another process takes over now, or does not.
    pub(crate) fn upgrade_ends(&self, outcome: &Result<Successor, String>, begun: Instant) {
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        match outcome {
            Ok(successor) => {
                let fields = [("process", successor.id().into()), ("took_ms", took.into())];
                self.notices().note(NoticeKind::Upgrade, "took_over", &fields);
                // The drain of this process is no end for those who watch.
                self.notices().end();
            }
            Err(reason) => {
                let fields = [("reason", reason.into()), ("took_ms", took.into())];
                self.notices().note(NoticeKind::Upgrade, "refused", &fields);
            }
        }
    }

    /// Of the keys that keep their value until an upgrade or a start, those that may cut off whoever makes the change.
    pub(crate) fn admin_moves(&self, keys: &[&str]) -> Vec<Finding> {
        let admin = &self.config.admin;
        let mut all = Vec::new();
        if keys.iter().any(|key| key.starts_with("admin.")) {
            all.push(ADMIN_STAYS.to_owned());
        }
        let address = admin.endpoint.as_ref().map(|endpoint| &endpoint.address);
        if admin.enabled && keys.contains(&"state_dir") && address.is_none() {
            let socket = self.config.admin_socket();
            all.push(format!(
                "`state_dir` stays as it is until the next upgrade or start; then the admin socket is in the new directory, and \
                 {} is gone: `offramp ctl` finds it by the new configuration",
                socket.display()
            ));
        }
        if admin.enabled && keys.contains(&"user") && !matches!(address, Some(ListenAddress::Ip(_))) {
            all.push(
                "`user` stays as it is until the next start, or until the next upgrade if Offramp runs as root; then the admin \
                 socket is for root and the new user, who must be able to write to its directory"
                    .to_owned(),
            );
        }
        all.into_iter().map(Finding::nowhere).collect()
    }

    /// A change waits to be confirmed.
    pub(crate) fn change_waits(&self, version: u64, until: SystemTime, by: &Requester) {
        let until = offramp_observe::timestamp::rfc3339_micros(until);
        let until = String::from_utf8_lossy(&until).into_owned();
        self.change_waited(
            "waiting",
            Some(version),
            &[("by", by.as_str().into()), ("until", (&until).into())],
        );
    }

    /// What becomes of the change that waits, and of which version that is; `None` for one that has made none.
    pub(crate) fn change_waited(&self, what: &'static str, version: Option<u64>, more: &[LogField<'_>]) {
        let version: Option<LogField<'_>> = version.map(|version| ("version", version.into()));
        let fields: Vec<LogField<'_>> = version.into_iter().chain(more.iter().copied()).collect();
        self.notices().note(NoticeKind::Confirm, what, &fields);
    }
}
