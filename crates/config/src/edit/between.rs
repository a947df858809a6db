//! The edits that lead from one configuration to another.

use toml_edit::{DocumentMut, Table};

use super::{Edit, Item, ServerEdit, text};
use crate::diff::{ConfigDiff, ItemChange, Keyed, ListDiff, SettingValue};
use crate::model::{BackendConfig, BackendServer, Config, RouteConfig};
use crate::print;
use crate::settings::Scalar;

impl Edit {
    /// The edits that lead from `old` to `new`, in an order in which each is possible.
    ///
    /// Shared settings, authorities and a change of order have no edits: the caller compares the result
    /// with `new`.
    pub fn between(old: &Config, new: &Config) -> Vec<Self> {
        let (old, new) = (&old.without_implied(), &new.without_implied());
        let diff = ConfigDiff::between(old, new);
        let backends = ItemEdits::of(&diff.backends, &new.backends, Item::Backend, |one| ItemText {
            name: one.name.to_string(),
            text: print::item(one, print::backend),
        });
        let listeners = ItemEdits::of(&diff.listeners, &new.listeners, Item::Listener, |one| ItemText {
            name: one.name.to_string(),
            text: print::item(one, print::listener),
        });
        let certificates = ItemEdits::of(&diff.certificates, &new.certificates, Item::Certificate, |one| {
            ItemText { name: one.name(), text: print::item(one, print::certificate) }
        });
        let routes = ItemEdits::of(&diff.routes, &new.routes, Item::Route, |one| {
            let side = if new.routes.contains(one) { new } else { old };
            ItemText { name: one.name(), text: route(side, one) }
        });
        let servers = diff.backends.changes().flat_map(|change| match change {
            ItemChange::Replaced { old, new } => servers(old, new).unwrap_or_default(),
            _ => Vec::new(),
        });
        let settings = diff.settings.changes().filter_map(setting);
        // A route needs its backend, listener and certificate; one that is in use cannot be removed.
        let added = [backends.added, listeners.added, certificates.added].into_iter().flatten();
        let changed = [backends.changed, listeners.changed, certificates.changed].into_iter().flatten();
        let of_routes = [routes.changed, routes.removed, routes.added].into_iter().flatten();
        let removed = [backends.removed, listeners.removed, certificates.removed].into_iter().flatten();
        settings.chain(added).chain(servers).chain(changed).chain(of_routes).chain(removed).collect()
    }
}

/// An item with its name and its keys in TOML, below its header.
struct ItemText {
    name: String,
    text: String,
}

/// The edits of one kind of item.
#[derive(Default)]
struct ItemEdits {
    added: Vec<Edit>,
    changed: Vec<Edit>,
    removed: Vec<Edit>,
}

impl ItemEdits {
    /// The edits of a difference that leads to `list`: what is added comes in its order there.
    fn of<T: Keyed>(diff: &ListDiff<T>, list: &[T], item: Item, describe: impl Fn(&T) -> ItemText) -> Self {
        let (mut steps, mut added) = (Self::default(), Vec::new());
        for change in diff.changes() {
            match change {
                ItemChange::Added(new) => added.push(new),
                ItemChange::Removed(old) => {
                    steps.removed.push(Edit::Remove { item, name: describe(old).name });
                }
                ItemChange::Replaced { old, new } => {
                    steps.changed.extend(changed(item, &describe(old), &describe(new)));
                }
            }
        }
        added.sort_by_cached_key(|new| list.iter().position(|one| one == *new));
        for new in added {
            let new = describe(new);
            let table = keys(item, &new);
            let name = if item == Item::Backend { new.name } else { String::new() };
            steps.added.extend(table.map(|table| Edit::Add { item, name, table }));
        }
        steps
    }
}

/// The change of an item, by its keys that differ. The servers of a backend change one by one where they can.
fn changed(item: Item, old: &ItemText, new: &ItemText) -> Option<Edit> {
    let (before, after) = (keys(item, old)?, keys(item, new)?);
    let mut table = Table::new();
    for (key, value) in &after {
        let same = before.get(key).is_some_and(|was| was.to_string() == value.to_string());
        if !(same || item == Item::Backend && key == SERVERS && one_by_one(&before, &after)) {
            table.insert(key, value.clone());
        }
    }
    let gone = before.iter().map(|(key, _)| key).filter(|key| !after.contains_key(key));
    let without: Vec<String> = gone.map(str::to_owned).collect();
    let is_some = !table.is_empty() || !without.is_empty();
    is_some.then(|| Edit::Change { item, name: old.name.clone(), table, without })
}

const SERVERS: &str = "servers";

/// Returns `true` if edits of single servers lead from one list to the other.
fn one_by_one(before: &Table, after: &Table) -> bool {
    let list = |table: &Table| -> Option<Vec<BackendServer>> {
        let servers = table.get(SERVERS)?.as_array()?;
        servers.iter().map(|server| server.as_str()?.parse().ok()).collect()
    };
    let (Some(before), Some(after)) = (list(before), list(after)) else { return false };
    server_edits("", &before, &after).is_some()
}

fn servers(old: &BackendConfig, new: &BackendConfig) -> Option<Vec<Edit>> {
    server_edits(old.name.as_str(), &old.servers, &new.servers)
}

/// The edits of single servers that lead from one list to the other, if there are any: servers are added at the end.
fn server_edits(backend: &str, old: &[BackendServer], new: &[BackendServer]) -> Option<Vec<Edit>> {
    let edit =
        |server: String, change: ServerEdit| Edit::Server { backend: backend.to_owned(), server, change };
    let same = |one: &BackendServer, other: &BackendServer| one.address == other.address;
    let mut edits = Vec::new();
    let mut left = Vec::new();
    for was in old {
        match new.iter().find(|is| same(was, is)) {
            None => edits.push(edit(was.address.to_string(), ServerEdit::Remove)),
            Some(is) => {
                let state = (was.state != is.state).then_some(is.state);
                let weight = (was.weight != is.weight).then_some(is.weight);
                if (state, weight) != (None, None) {
                    edits.push(edit(was.address.to_string(), ServerEdit::Change { state, weight }));
                }
                left.push(BackendServer { state: is.state, weight: is.weight, ..was.clone() });
            }
        }
    }
    let added = new.iter().filter(|is| !old.iter().any(|was| same(was, is)));
    for is in added {
        edits.push(edit(is.to_string(), ServerEdit::Add));
        left.push(is.clone());
    }
    (left == new).then_some(edits)
}

/// A route as it is written, or with everything that it takes over from shared settings where it is made in code.
fn route(config: &Config, route: &RouteConfig) -> String {
    let shared = &config.shared;
    let at = config.routes.iter().position(|one| one == route);
    match at.filter(|_| !shared.sections.is_empty()).and_then(|at| shared.routes.get(at)) {
        Some(keys) => format!("[[route]]\n{keys}"),
        None => {
            print::item(route, |out, one| print::route::route(out, one, !config.error_pages.files.is_empty()))
        }
    }
}

fn keys(item: Item, described: &ItemText) -> Option<Table> {
    let document: DocumentMut = described.text.parse().ok()?;
    let found = document.get(item.word())?;
    let table = match item {
        Item::Backend => found.as_table()?.get(&described.name)?.as_table()?,
        _ => found.as_array_of_tables()?.get(0)?,
    };
    Some(text::plain(table))
}

fn setting(change: &ItemChange<SettingValue>) -> Option<Edit> {
    let ItemChange::Replaced { new, .. } = change else { return None };
    let key = new.row()?;
    if let (Some(Scalar::Text(value)), Some((section, key))) =
        (new.value(), text::settable(key.section(), key.name()))
    {
        return Some(Edit::Set { section, key, value: value.clone() });
    }
    Some(Edit::Setting { path: key.path, value: new.value().map(ToString::to_string) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::EDITED;
    use crate::{Environment, parse};

    const START: &str = r#"
[[listener]]
address = "127.0.0.1:443"
mode = "http"

[[certificate]]
local = true
names = ["a.example"]

[[route]]
host = "a.example"
backend = "shop"

[[route]]
server = "127.0.0.1:9"

[backend.shop]
servers = ["h:1", "h:2 weight=2", "h:3 backup"]
balance = "least_conn"
health = { path = "/up" }
"#;

    const POLICY: &str = "[defaults.route]\nresponse_timeout = \"9s\"\n";

    fn read(text: &str) -> Config {
        parse(text, EDITED, &Environment::default()).unwrap_or_else(|error| panic!("{error}\n{text}")).0
    }

    /// The configuration that the edits lead to, and their number.
    fn led(old: &Config, new: &Config) -> (Config, usize) {
        let edits = Edit::between(old, new);
        let mut text = Edit::text_of(old);
        for edit in &edits {
            let passed_on = Edit::from_text(&edit.to_text()).unwrap();
            text = passed_on
                .apply(&text, &read(&text), EDITED)
                .unwrap_or_else(|error| panic!("{edit}: {error}"));
        }
        (read(&text), edits.len())
    }

    #[test]
    fn edits_lead_to_the_other_configuration() {
        let replace = |from: &str, to: &str| {
            assert!(START.contains(from), "{from}");
            START.replace(from, to)
        };
        let table = [
            (START.to_owned(), 0),
            (format!("[log]\nlevel = \"debug\"\n{START}"), 1),
            (format!("[limits]\nidle_timeout = \"9m\"\nconnections = 7\n{START}"), 2),
            (format!("watch = true\n[metrics]\ngraphite = \"h:2003\"\n{START}"), 2),
            (replace("\"h:1\"", "\"h:1 drain\""), 1),
            (replace("\"h:1\", \"h:2 weight=2\"", "\"h:2 weight=7 disabled\""), 2),
            (replace("\"h:3 backup\"", "\"h:3 backup\", \"h:4\", \"unix:/s weight=3\""), 2),
            (replace("[\"h:1\", \"h:2 weight=2\"", "[\"h:2 weight=2\", \"h:1\""), 1),
            (replace("least_conn", "round_robin"), 1),
            (replace("health = { path = \"/up\" }\n", ""), 1),
            (replace("\"h:1\"", "\"h:1 drain\"").replace("/up", "/"), 2),
            (replace("[[route]]\nserver = \"127.0.0.1:9\"", ""), 1),
            (
                format!(
                    "{START}[[route]]\nhost = \"z.example\"\nserver = \"h:7\"\n[[route]]\nhost = \"b.example\"\nserver = \"h:7\"\n"
                ),
                2,
            ),
            (replace("backend = \"shop\"", "backend = \"shop\"\nresponse_timeout = \"7s\""), 1),
            (
                replace("backend = \"shop\"", "backend = \"other\"")
                    .replace("[backend.shop]", "[backend.other]"),
                3,
            ),
            (format!("{START}[[listener]]\nname = \"b\"\naddress = \"127.0.0.1:444\"\nmode = \"http\"\n"), 1),
            (replace("127.0.0.1:443", "127.0.0.1:445"), 1),
            (replace("names = [\"a.example\"]", "names = [\"a.example\", \"b.example\"]"), 2),
            (replace("[[certificate]]\nlocal = true\nnames = [\"a.example\"]\n", ""), 1),
        ];
        for (text, count) in table {
            for shared in ["", POLICY] {
                let (old, new) = (read(&format!("{START}{shared}")), read(&format!("{text}{shared}")));
                let (led, edits) = led(&old, &new);
                assert_eq!(
                    (ConfigDiff::between(&led, &new).to_string().as_str(), edits),
                    ("", count),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn differences_without_an_edit_are_left_out() {
        let old = read(START);
        for text in [
            format!("{START}{POLICY}"),
            START.replace("[[route]]\nserver = \"127.0.0.1:9\"\n", "").replacen(
                "[[route]]",
                "[[route]]\nserver = \"127.0.0.1:9\"\n[[route]]",
                1,
            ),
        ] {
            let new = read(&text);
            assert!(!ConfigDiff::between(&led(&old, &new).0, &new).is_empty(), "{text}");
        }
    }
}
