//! The latest changes of the configuration: requester, time and outcome of each.
//!
//! It is kept in memory, bounded in length and in the lines of each entry, and readable from any thread. Changes of
//! certificates alone are not in it: no operator requests them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use offramp_config::Config;
use offramp_process::Error;

use crate::changes::Changes;
use crate::running_config::RunningConfig;

/// Changes that are remembered, and refused ones besides.
const KEPT: usize = 100;
/// Configurations that are remembered: each may have thousands of routes.
const CONFIGURATIONS: usize = 10;
/// Lines of one entry that are kept: a new file may change thousands of routes.
const LINES: usize = 200;

/// The requester of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requester {
    /// The sender of SIGHUP.
    Signal,
    /// A change of a file of the configuration, with `watch = true`.
    Watch,
    /// The program that embeds the server, through a [`Handle`](crate::Handle).
    Program,
    /// No requester: a change was not confirmed in time.
    Unconfirmed,
    /// A client of the admin API: its identity as far as it is known.
    Admin(Arc<str>),
}

impl Requester {
    /// As operators know it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unconfirmed => "not confirmed in time",
            Self::Admin(client) => client,
            Self::Signal => "SIGHUP",
            Self::Watch => "watch",
            Self::Program => "program",
        }
    }
}

/// The origin of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another one took its place as a whole.
    Apply,
    /// One item of it was edited.
    Edit,
    /// Its file was read again.
    Reload,
    /// An earlier one came back on request.
    Rollback,
    /// An earlier one came back, because the change was not confirmed.
    TakenBack,
}

impl Kind {
    /// The word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Edit => "edit",
            Self::Reload => "reload",
            Self::Rollback => "rollback",
            Self::TakenBack => "taken back",
        }
    }
}

/// A change that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its number among all of them since the start.
    pub number: u64,
    /// The version of the configuration that was in force afterwards; that of the start is 1.
    pub version: u64,
    /// The kind of the change.
    pub kind: Kind,
    /// The time of the outcome.
    pub at: SystemTime,
    /// The requester, for the history.
    pub by: Requester,
    /// Its differences; at most 200 lines.
    pub changes: Changes,
    /// The number of lines that were left out.
    pub omitted: usize,
}

/// A change that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its number among all of them since the start.
    pub number: u64,
    /// The kind of the change.
    pub kind: Kind,
    /// The time of the outcome.
    pub at: SystemTime,
    /// The requester, for the history.
    pub by: Requester,
    /// Every fault, with its position where it has one; at most 200.
    pub reasons: Vec<String>,
    /// The number of faults that were left out.
    pub omitted: usize,
}

/// Connections that were closed on request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its number among all of them since the start.
    pub number: u64,
    /// The time of the outcome.
    pub at: SystemTime,
    /// The requester, for the history.
    pub by: Requester,
    /// The connections, in words.
    pub what: String,
    /// The number of closed connections.
    pub count: u64,
}

/// The latest changes, and the latest that were refused. Clones share their contents.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// Changes since the start.
    changes: u64,
    applied: VecDeque<Applied>,
    refused: VecDeque<Refused>,
    closed: VecDeque<Closed>,
    /// The latest configurations by version, the newest last.
    configurations: VecDeque<(u64, RunningConfig)>,
    /// Of these, those that were not confirmed.
    discarded: Vec<u64>,
}

impl History {
    /// Of a process that begins with this configuration.
    pub(crate) fn of(running: &RunningConfig) -> Self {
        let history = Self::default();
        history.keep(running);
        history
    }

    /// Remembers the configuration in force, for a way back to it. A version has one; that of a reload without a
    /// difference is that of the version before.
    pub(crate) fn keep(&self, running: &RunningConfig) {
        let mut kept = self.kept();
        let version = kept.version();
        match kept.configurations.back_mut() {
            Some((last, same)) if *last == version => *same = running.clone(),
            _ => {
                if kept.configurations.len() == CONFIGURATIONS {
                    kept.configurations.pop_front();
                }
                kept.configurations.push_back((version, running.clone()));
                let oldest = kept.configurations.front().map_or(version, |(oldest, _)| *oldest);
                kept.discarded.retain(|discarded| *discarded >= oldest);
            }
        }
    }

    /// The configuration of a version, if it is one of the latest ten.
    pub(crate) fn configuration(&self, version: u64) -> Option<RunningConfig> {
        let kept = self.kept();
        kept.configurations.iter().find(|(known, _)| *known == version).map(|(_, running)| running.clone())
    }

    /// Notes that a version was not confirmed: only a rollback that names it leads to it.
    pub(crate) fn discard(&self, version: u64) {
        self.kept().discarded.push(version);
    }

    /// The latest configuration that is another than `current`, which is in force, and was confirmed if it had to be.
    pub(crate) fn before(&self, current: &Config) -> Option<RunningConfig> {
        let kept = self.kept();
        let is_meant = |(version, running): &&(u64, RunningConfig)| {
            !kept.discarded.contains(version) && *running.config != *current
        };
        kept.configurations.iter().rev().skip(1).find(is_meant).map(|(_, running)| running.clone())
    }

    /// The versions with remembered configurations.
    #[must_use]
    pub fn configurations(&self) -> Vec<u64> {
        self.kept().configurations.iter().map(|(version, _)| *version).collect()
    }

    /// Takes note of how a change ended. One that changes nothing is not remembered: there are few places.
    pub fn note(&self, outcome: &Result<Changes, Error>, kind: Kind, by: Requester, at: SystemTime) {
        let mut kept = self.kept();
        match outcome {
            Ok(changes) if changes.is_none() => {}
            Ok(changes) => {
                // New certificates alone make no version.
                kept.changes += u64::from(!changes.lines.is_empty());
                let omitted = changes.lines.len().saturating_sub(LINES);
                let lines = changes.lines.iter().take(LINES).cloned().collect();
                let needs_restart = changes.needs_restart.clone();
                let changes = Changes { lines, needs_restart, ..*changes };
                let version = kept.version();
                let number = kept.applied.back().map_or(1, |last| last.number + 1);
                push(&mut kept.applied, Applied { number, version, kind, at, by, changes, omitted });
            }
            Err(error) => {
                let omitted = error.findings().len().saturating_sub(LINES);
                let reasons = error.findings().iter().take(LINES).map(ToString::to_string).collect();
                let number = kept.refused.back().map_or(1, |last| last.number + 1);
                push(&mut kept.refused, Refused { number, kind, at, by, reasons, omitted });
            }
        }
    }

    /// Notes connections that were closed on request.
    pub fn note_closed(&self, what: &str, count: u64, by: Requester, at: SystemTime) {
        let mut kept = self.kept();
        let number = kept.closed.back().map_or(1, |last| last.number + 1);
        push(&mut kept.closed, Closed { number, at, by, what: what.to_owned(), count });
    }

    /// The latest 100 times that connections were closed on request, the newest first.
    #[must_use]
    pub fn closed(&self) -> Vec<Closed> {
        self.kept().closed.iter().rev().cloned().collect()
    }

    /// The version of the configuration in force.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.kept().version()
    }

    /// The latest 100 changes, the newest first, with the version that was in force at that moment.
    #[must_use]
    pub fn applied(&self) -> (u64, Vec<Applied>) {
        let kept = self.kept();
        (kept.version(), kept.applied.iter().rev().cloned().collect())
    }

    /// The latest 100 changes that were refused, the newest first.
    #[must_use]
    pub fn refused(&self) -> Vec<Refused> {
        self.kept().refused.iter().rev().cloned().collect()
    }

    /// A panic with the lock held leaves nothing half done that matters.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn version(&self) -> u64 {
        self.changes + 1
    }
}

fn push<T>(list: &mut VecDeque<T>, entry: T) {
    if list.len() == KEPT {
        list.pop_front();
    }
    list.push_back(entry);
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use offramp_process::Finding;

    #[test]
    fn the_latest_hundred_of_each_kind_are_kept_with_two_hundred_lines() {
        let history = History::default();
        assert_eq!((history.version(), history.applied(), history.refused()), (1, (1, vec![]), vec![]));
        let many = Changes {
            lines: (0..1000).map(|line| line.to_string()).collect(),
            new_certificates: 3,
            needs_restart: vec!["workers"],
        };
        let faults: Vec<Finding> = (0..1000).map(|fault| Finding::nowhere(fault.to_string())).collect();
        for _ in 0..150 {
            history.note(&Ok(many.clone()), Kind::Reload, Requester::Watch, UNIX_EPOCH);
            history.note(&Ok(Changes::default()), Kind::Reload, Requester::Watch, UNIX_EPOCH);
            history.note(&Err(faults.clone().into()), Kind::Apply, Requester::Signal, UNIX_EPOCH);
            history.note_closed("client 192.0.2.1", 3, Requester::Program, UNIX_EPOCH);
        }
        let closed = history.closed();
        assert_eq!((closed.len(), closed[0].number, closed[0].count), (KEPT, 150, 3));
        let (version, applied) = history.applied();
        assert_eq!((version, history.version(), applied.len()), (151, 151, KEPT));
        assert_eq!((applied[0].version, applied[KEPT - 1].version), (151, 52));
        assert_eq!((applied[0].number, applied[KEPT - 1].number), (150, 51));
        assert_eq!((applied[0].changes.lines.len(), applied[0].omitted), (LINES, 800));
        assert_eq!((applied[0].changes.new_certificates, &applied[0].by), (3, &Requester::Watch));
        assert_eq!(applied[0].changes.needs_restart, ["workers"]);
        let refused = history.refused();
        assert_eq!((refused.len(), refused[0].reasons.len(), refused[0].omitted), (KEPT, LINES, 800));
        assert_eq!((refused[0].reasons[1].as_str(), &refused[0].by), ("1", &Requester::Signal));
    }
}
