//! The numbered history of events, so that a stream can continue where another ended.
//!
//! Changes and notices have numbers already. States of servers and certificates in use have none: this record
//! numbers them for all streams. Readers bring it up to date, so that it costs nothing without them, and the
//! next reader finds what happened in between.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use offramp_control::View;
use offramp_observe::{Detail, Notice, NoticeKind};
use serde_json::{Value, json};

use super::super::{read, time};
use super::KINDS;

/// Events kept for servers, and for certificates: all servers of a large configuration may go down together.
const KEPT: usize = 10_000;

/// The indexes of kinds in [`KINDS`].
const CHANGE: usize = 0;
const REFUSED: usize = 1;
const CLOSED: usize = 2;
const SERVER: usize = 3;
const CERTIFICATE: usize = 4;
const NOTICES: usize = 5;

/// The position of a stream: the number of the last event sent, per kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position([u64; KINDS.len()]);

impl Position {
    /// Parses the text form of a position; `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0; KINDS.len()];
        let mut parts = text.split('.');
        for number in &mut numbers {
            *number = parts.next()?.parse().ok()?;
        }
        parts.next().is_none().then_some(Self(numbers))
    }

    pub(super) fn pass(&mut self, event: &RecordedEvent) {
        self.0[event.kind] = event.number;
    }

    /// Caps the position: a client cannot claim events that have not happened.
    fn at_most(self, latest: Self) -> Self {
        Self(std::array::from_fn(|kind| self.0[kind].min(latest.0[kind])))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, number) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_char('.')?;
            }
            number.fmt(f)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(super) struct RecordedEvent {
    /// The index in [`KINDS`].
    kind: usize,
    /// The number among events of this kind.
    number: u64,
    pub(super) data: Value,
}

impl RecordedEvent {
    pub(super) fn kind(&self) -> &'static str {
        KINDS[self.kind]
    }
}

/// The history of events. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct EventHistory(Arc<Mutex<HistoryState>>);

#[derive(Default)]
struct HistoryState {
    /// Set after the first poll, before which the present state is no event.
    begun: bool,
    servers: HashMap<(String, String), &'static str>,
    /// Certificates in use, by validity and names.
    certificates: HashSet<String>,
    changed_servers: Numbered,
    new_certificates: Numbered,
}

/// The latest events of a kind.
#[derive(Default)]
struct Numbered {
    last: u64,
    events: VecDeque<(u64, Value)>,
}

impl EventHistory {
    /// The position of a new stream.
    pub(super) fn latest(&self, view: &View) -> Position {
        let mut latest = Position::default();
        for event in self.since(view, latest) {
            latest.pass(&event);
        }
        latest
    }

    /// The position of a stream that resumes.
    pub(super) fn resumed(&self, view: &View, at: Position) -> Position {
        at.at_most(self.latest(view))
    }

    /// The position of a stream that was at another process: everything of this one is new, except servers
    /// and certificates, which existed before.
    pub(super) fn since_the_start(&self, view: &View) -> Position {
        let mut at = Position::default();
        let latest = self.latest(view);
        (at.0[SERVER], at.0[CERTIFICATE]) = (latest.0[SERVER], latest.0[CERTIFICATE]);
        at
    }

    /// The remembered events after a position, by kind and from old to new.
    pub(super) fn since(&self, view: &View, at: Position) -> Vec<RecordedEvent> {
        let Position(seen) = at;
        let mut events = Vec::new();
        let mut add = |kind, number, data| events.push(RecordedEvent { kind, number, data });
        let history = view.history();
        for change in history.applied().1.iter().rev().filter(|one| one.number > seen[CHANGE]) {
            add(CHANGE, change.number, read::change(change));
        }
        for refusal in history.refused().iter().rev().filter(|one| one.number > seen[REFUSED]) {
            add(REFUSED, refusal.number, read::refusal(refusal));
        }
        for closed in history.closed().iter().rev().filter(|one| one.number > seen[CLOSED]) {
            add(CLOSED, closed.number, read::closed(closed));
        }
        for (at, kind) in NoticeKind::ALL.into_iter().enumerate().map(|(at, kind)| (NOTICES + at, kind)) {
            for one in view.notices().since(kind, seen[at]) {
                add(at, one.number, notice(&one));
            }
        }
        let mut kept = self.kept();
        kept.look(view);
        for (kind, list) in [(SERVER, &kept.changed_servers), (CERTIFICATE, &kept.new_certificates)] {
            for (number, data) in list.events.iter().filter(|(number, _)| *number > seen[kind]) {
                add(kind, *number, data.clone());
            }
        }
        events
    }

    fn kept(&self) -> MutexGuard<'_, HistoryState> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HistoryState {
    /// Records the differences since the last poll.
    fn look(&mut self, view: &View) {
        let now = time(SystemTime::now());
        let mut servers = HashMap::new();
        for backend in view.backends() {
            for server in &backend.servers {
                let key = (backend.name.clone(), server.name.clone());
                if self.begun && self.servers.get(&key) != Some(&server.state) {
                    self.changed_servers.push(json!({
                        "at": now, "backend": key.0, "server": key.1, "state": server.state, "why": server.why,
                        "before": self.servers.get(&key),
                    }));
                }
                servers.insert(key, server.state);
            }
        }
        self.servers = servers;
        let mut certificates = HashSet::new();
        for one in view.certificates() {
            let shown = read::certificate(&one, SystemTime::now());
            let key = format!("{} {} {}", shown["names"], shown["not_before"], shown["not_after"]);
            if self.begun && !self.certificates.contains(&key) {
                let mut data = shown;
                data["at"] = now.clone().into();
                self.new_certificates.push(data);
            }
            certificates.insert(key);
        }
        self.certificates = certificates;
        self.begun = true;
    }
}

impl Numbered {
    fn push(&mut self, data: Value) {
        self.last += 1;
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back((self.last, data));
    }
}

/// The state of each server, for clients that know another process.
pub(super) fn states(view: &View) -> Vec<Value> {
    let now = time(SystemTime::now());
    let mut states = Vec::new();
    for backend in view.backends() {
        states.extend(backend.servers.iter().map(|server| {
            json!({
                "at": now, "backend": backend.name, "server": server.name, "state": server.state, "why": server.why,
                "before": Value::Null,
            })
        }));
    }
    states
}

fn notice(Notice { at, what, fields, .. }: &Notice) -> Value {
    let mut all = json!({ "at": time(*at), "what": what });
    for (name, detail) in fields {
        all[*name] = match detail {
            Detail::Count(count) => (*count).into(),
            Detail::Flag(flag) => (*flag).into(),
            Detail::Text(text) => text.as_str().into(),
        };
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_one_form() {
        let text = "1.0.3.18446744073709551615.5.6.7.8.9.10";
        let position = Position::parse(text).unwrap();
        assert_eq!(position.to_string(), text);
        for text in ["", "1", "1.2.3.4.5.6.7.8.9", "1.2.3.4.5.6.7.8.9.10.11", "1.2.3.4.5.6.7.8.9.x"] {
            assert!(Position::parse(text).is_none(), "{text}");
        }
        let latest = Position([4; KINDS.len()]);
        assert_eq!(position.at_most(latest).to_string(), "1.0.3.4.4.4.4.4.4.4");
    }

    #[test]
    fn kinds_are_in_their_places() {
        let named = [CHANGE, REFUSED, CLOSED, SERVER, CERTIFICATE].map(|kind| KINDS[kind]);
        assert_eq!(named, ["change", "refused", "closed", "server", "certificate"]);
        assert_eq!(NoticeKind::ALL.map(NoticeKind::name), KINDS[NOTICES..]);
    }

    #[test]
    fn the_latest_events_are_kept_and_keep_their_numbers() {
        let mut list = Numbered::default();
        (0..KEPT + 5).for_each(|at| list.push(at.into()));
        assert_eq!((list.events.len(), &list.events[0]), (KEPT, &(6, json!(5))));
    }
}
