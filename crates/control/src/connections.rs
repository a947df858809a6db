//! Open connections: which of them a change touches, and which an operator has closed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use offramp_config::model::BackendConfig;
use offramp_config::{ConfigDiff, ItemChange, ListDiff};
use offramp_observe::Log;
use offramp_proxy::live::{Filter, Touched};
use offramp_proxy::{CloseReport, Connections, StuckWorker};

use crate::history::{History, Requester};
use crate::view::View;

/// Closes connections for an operator, and remembers that.
#[derive(Clone)]
pub(crate) struct Closer {
    pub(crate) connections: Connections,
    pub(crate) history: History,
    pub(crate) log: Log,
}

impl Closer {
    /// Closes connections of this process.
    pub(crate) fn of(view: &View, history: &History, log: &Log) -> Self {
        let connections = view.connections().clone();
        Self { connections, history: history.clone(), log: log.clone() }
    }

    /// Closes the connections that are meant. `what` says in words which these are. It is done and noted whether or not
    /// the requester still waits.
    pub(crate) async fn close(&self, filter: &Arc<Filter>, what: &str, by: &Requester) -> CloseReport {
        let (closer, filter, by) = (self.clone(), Arc::clone(filter), by.clone());
        let what = what.to_owned();
        let closing = tokio::spawn(async move {
            let done = closer.connections.close(&filter).await;
            closer.note(done, &what, &by);
            done
        });
        // It is never aborted and does not panic: only the end of the runtime ends it.
        closing.await.unwrap_or(CloseReport { count: 0, unanswered: None })
    }

    /// Remembers what was closed, and that there may be more.
    fn note(&self, CloseReport { count, unanswered }: CloseReport, what: &str, by: &Requester) {
        if count == 0 {
            return;
        }
        let what = match unanswered {
            None => what.to_owned(),
            Some(StuckWorker { worker }) => format!("{what}; without worker {worker}, which did not answer"),
        };
        self.history.note_closed(&what, count, by.clone(), SystemTime::now());
        let fields = [("connections", count.into()), ("which", (&what).into()), ("by", by.as_str().into())];
        self.log.info("connections closed", &fields);
    }
}

/// The connections that a change touches: those of listeners, routes, backends and servers that become others, or go.
/// `None` where it is nothing of these.
pub(crate) fn touched(diff: &ConfigDiff) -> Option<Filter> {
    let mut touched = Touched {
        listeners: before(&diff.listeners).map(|listener| listener.name.to_string()).collect(),
        routes: before(&diff.routes).map(offramp_config::model::RouteConfig::name).collect(),
        ..Touched::default()
    };
    for change in diff.backends.changes() {
        match change {
            ItemChange::Added(_) => {}
            ItemChange::Removed(old) => {
                touched.backends.insert(old.name.to_string());
            }
            ItemChange::Replaced { old, new } => match servers(old, new) {
                Some(servers) => {
                    touched.servers.insert(old.name.to_string(), servers);
                }
                None => {
                    touched.backends.insert(old.name.to_string());
                }
            },
        }
    }
    let Touched { listeners, routes, backends, servers } = &touched;
    let is_something =
        !(listeners.is_empty() && routes.is_empty() && backends.is_empty() && servers.is_empty());
    is_something.then(|| Filter { touched: Some(touched), ..Filter::default() })
}

/// The items that have become others, or are gone.
fn before<T: offramp_config::Keyed>(diff: &ListDiff<T>) -> impl Iterator<Item = &T> {
    diff.changes().filter_map(|change| match change {
        ItemChange::Added(_) => None,
        ItemChange::Removed(old) | ItemChange::Replaced { old, .. } => Some(old),
    })
}

/// The servers that are others, or gone; `None` where more than servers has changed.
fn servers(old: &BackendConfig, new: &BackendConfig) -> Option<HashSet<String>> {
    let alike = BackendConfig { servers: new.servers.clone(), ..old.clone() };
    if alike != *new {
        return None;
    }
    let changed = old.servers.iter().filter(|server| !new.servers.contains(server));
    Some(changed.map(|server| server.address.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use offramp_config::{Config, Environment};

    use super::*;

    fn config(text: &str) -> Config {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        offramp_config::load(file.path(), &Environment::default()).unwrap().0
    }

    fn of(old: &str, new: &str) -> Option<Touched> {
        touched(&ConfigDiff::between(&config(old), &config(new)))?.touched
    }

    #[test]
    fn what_was_closed_is_remembered_though_a_worker_did_not_answer() {
        let history = History::default();
        let closer =
            Closer { connections: Connections::default(), history: history.clone(), log: Log::silent() };
        let unanswered = Some(StuckWorker { worker: 1 });
        closer.note(CloseReport { count: 0, unanswered }, "older 1h", &Requester::Program);
        closer.note(CloseReport { count: 7, unanswered }, "client 192.0.2.1", &Requester::Program);
        let closed = history.closed();
        assert_eq!((closed.len(), closed[0].count), (1, 7));
        assert_eq!(closed[0].what, "client 192.0.2.1; without worker 1, which did not answer");
    }

    const BASE: &str = "\
[[listener]]
name = \"web\"
address = \"127.0.0.1:8080\"
mode = \"http\"
tls = false
[[route]]
host = \"shop.example\"
backend = \"shop\"
[[route]]
host = \"blog.example\"
backend = \"blog\"
[backend.shop]
servers = [\"127.0.0.1:3000\", \"127.0.0.1:3001\"]
[backend.blog]
servers = [\"127.0.0.1:4000\"]
";

    #[test]
    fn a_change_touches_what_it_changes_and_takes_away_and_nothing_else() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
        assert!(of(BASE, BASE).is_none());
        let added = format!("{BASE}[[route]]\nhost = \"new.example\"\nbackend = \"blog\"\n");
        assert!(of(BASE, &added).is_none(), "what comes touches nobody");
        let more = BASE.replace("\"127.0.0.1:4000\"]", "\"127.0.0.1:4000\", \"127.0.0.1:4001\"]");
        let touched = of(BASE, &more).unwrap();
        assert!(touched.servers["blog"].is_empty() && touched.backends.is_empty(), "{touched:?}");
        let weight = BASE.replace("127.0.0.1:3001\"", "127.0.0.1:3001 drain\"");
        let touched = of(BASE, &weight).unwrap();
        assert_eq!(touched.servers["shop"], set(&["127.0.0.1:3001"]));
        assert!(touched.backends.is_empty() && touched.routes.is_empty());
        let balance = BASE.replace("[backend.blog]\n", "[backend.blog]\nbalance = \"least_conn\"\n");
        assert_eq!(of(BASE, &balance).unwrap().backends, set(&["blog"]));
        let gone = of(&added, BASE).unwrap();
        assert_eq!((gone.routes, gone.backends), (set(&["new.example"]), set(&[])));
        let moved = BASE.replace("127.0.0.1:8080", "127.0.0.1:8081");
        assert_eq!(of(BASE, &moved).unwrap().listeners, set(&["web"]));
    }
}
