//! What has happened, numbered, so that a stream can go on where another one ended.
//!
//! The history of changes and the notices have numbers already. States of servers and certificates in use have none: a
//! record of them is kept here for all streams. It is brought up to date by whoever reads, so that nothing is done as long
//! as nobody does, and what happened meanwhile is found by the next one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use offramp_control::View;
use offramp_observe::{Detail, Notice, NoticeKind};
use serde_json::{Value, json};

use super::super::{read, time};
use super::KINDS;

/// Events of servers, and of certificates, that are kept: all servers of a large configuration may go down together.
const KEPT: usize = 10_000;

/// The places of kinds in [`KINDS`].
const CHANGE: usize = 0;
const REFUSED: usize = 1;
const CLOSED: usize = 2;
const SERVER: usize = 3;
const CERTIFICATE: usize = 4;
const NOTICES: usize = 5;

/// Where a stream is: the number of the latest event of each kind that it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position([u64; KINDS.len()]);

impl Position {
    /// As [`Position`] is written; `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = [0; KINDS.len()];
        let mut parts = text.split('.');
        for number in &mut numbers {
            *number = parts.next()?.parse().ok()?;
        }
        parts.next().is_none().then_some(Self(numbers))
    }

    pub(super) fn pass(&mut self, event: &Event) {
        self.0[event.kind] = event.number;
    }

    /// What is after this is news, whatever a client says it had.
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

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its place in [`KINDS`].
    kind: usize,
    /// Its number among those of its kind.
    number: u64,
    pub(super) data: Value,
}

impl Event {
    pub(super) fn kind(&self) -> &'static str {
        KINDS[self.kind]
    }
}

/// What has happened. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    /// Whether there was a look: what is there at the first one is no event.
    begun: bool,
    servers: HashMap<(String, String), &'static str>,
    /// By when they begin and end, and their names.
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

impl Record {
    /// Where a stream begins that had nothing before.
    pub(super) fn latest(&self, view: &View) -> Position {
        let mut latest = Position::default();
        for event in self.since(view, latest) {
            latest.pass(&event);
        }
        latest
    }

    /// Where a stream goes on that was there.
    pub(super) fn resumed(&self, view: &View, at: Position) -> Position {
        at.at_most(self.latest(view))
    }

    /// Where a stream goes on that was at another process: all of this one is news, but for servers and certificates,
    /// which were there before.
    pub(super) fn since_the_start(&self, view: &View) -> Position {
        let mut at = Position::default();
        let latest = self.latest(view);
        (at.0[SERVER], at.0[CERTIFICATE]) = (latest.0[SERVER], latest.0[CERTIFICATE]);
        at
    }

    /// What has happened after that, and is remembered: of each kind the oldest first.
    pub(super) fn since(&self, view: &View, at: Position) -> Vec<Event> {
        let Position(seen) = at;
        let mut events = Vec::new();
        let mut add = |kind, number, data| events.push(Event { kind, number, data });
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

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Notes what is another since the last look.
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

/// The state of each server, for whoever knew another process.
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
    fn a_position_is_read_as_it_is_written_and_in_no_other_way() {
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
