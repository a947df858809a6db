//! Events of the process as a whole, for watchers of the admin API.

use std::time::SystemTime;

use offramp_observe::{LogField, NoticeKind, Notices};

use crate::history::Requester;

/// A change waits to be confirmed.
pub(crate) fn change_waits(notices: &Notices, version: u64, until: SystemTime, by: &Requester) {
    let until = offramp_observe::timestamp::rfc3339_micros(until);
    let until = String::from_utf8_lossy(&until).into_owned();
    change_waited(
        notices,
        "waiting",
        Some(version),
        &[("by", by.as_str().into()), ("until", (&until).into())],
    );
}

/// The fate of the change that waits; `version` is the one that it has made, if any.
pub(crate) fn change_waited(
    notices: &Notices,
    what: &'static str,
    version: Option<u64>,
    more: &[LogField<'_>],
) {
    let version: Option<LogField<'_>> = version.map(|version| ("version", version.into()));
    let fields: Vec<LogField<'_>> = version.into_iter().chain(more.iter().copied()).collect();
    notices.note(NoticeKind::Confirm, what, &fields);
}

/// Notes that an upgrade begins.
pub(crate) fn upgrade_begins(notices: &Notices, by: &Requester) {
    let by = match by {
        Requester::Signal => "SIGUSR2",
        other => other.as_str(),
    };
    notices.note(NoticeKind::Upgrade, "begun", &[("by", by.into())]);
}

/// The end of an upgrade: the number of the process that takes over, or the reason why none does.
pub(crate) fn upgrade_ends(notices: &Notices, outcome: Result<u32, &str>, took_ms: u64) {
    let (what, first) = match outcome {
        Ok(process) => ("took_over", ("process", process.into())),
        Err(reason) => ("refused", ("reason", reason.into())),
    };
    notices.note(NoticeKind::Upgrade, what, &[first, ("took_ms", took_ms.into())]);
    if outcome.is_ok() {
        // The drain of this process is no end for watchers.
        notices.end();
    }
}
