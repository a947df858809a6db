//! The difference of one item, key by key.
//!
//! Items are compared in their printed TOML, so that no key can be forgotten. Servers of a backend are listed
//! one by one. Values of header fields, URLs and bodies may be secrets and are not shown: differences go to the log.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{self, Write as _};

use toml_edit::Value;

use super::Keyed;
use crate::literal::quoted;
use crate::model::{
    AcmeAuthority, BackendConfig, BackendServer, CertificateConfig, ListenerConfig, Listeners, NotifyConfig,
    RouteConfig, SharedSection,
};
use crate::print;

/// An item with a printable difference.
pub(super) trait Described: Keyed {
    /// The label of the item in a difference.
    fn label(&self) -> String;

    /// The printed item: one line per key.
    fn printed(&self) -> String;

    /// Further lines about the change of an item, besides its keys.
    fn besides(_: &Self, _: &Self) -> Vec<String> {
        Vec::new()
    }
}

impl Described for NotifyConfig {
    fn label(&self) -> String {
        format!("notify {}", self.name)
    }

    fn printed(&self) -> String {
        print::item(self, print::notify)
    }
}

impl Described for CertificateConfig {
    fn label(&self) -> String {
        self.key()
    }

    fn printed(&self) -> String {
        print::item(self, print::certificate)
    }
}

impl Described for AcmeAuthority {
    fn label(&self) -> String {
        format!("acme {}", self.name)
    }

    fn printed(&self) -> String {
        print::item(self, print::authority)
    }
}

impl Described for ListenerConfig {
    fn label(&self) -> String {
        format!("listener {}", self.name)
    }

    fn printed(&self) -> String {
        print::item(self, print::listener)
    }
}

impl Described for SharedSection {
    fn label(&self) -> String {
        self.policy.as_ref().map_or_else(|| "defaults.route".to_owned(), |name| format!("policy {name}"))
    }

    fn printed(&self) -> String {
        print::item(self, print::shared)
    }
}

impl Described for RouteConfig {
    /// The name of the route, and its listeners.
    fn label(&self) -> String {
        let mut label = format!("route {}", self.name());
        if let Listeners::Named(names) = &self.listeners {
            label.extend(names.iter().map(|name| format!(" listener={name}")));
        }
        label
    }

    fn printed(&self) -> String {
        print::item(self, |out, route| print::route::route(out, route, false))
    }
}

impl Described for BackendConfig {
    fn label(&self) -> String {
        format!("backend {}", self.name)
    }

    fn printed(&self) -> String {
        let text = print::item(self, print::backend);
        // Servers are listed one by one.
        text.lines()
            .filter(|line| !line.starts_with("servers = "))
            .fold(String::new(), |text, line| text + line + "\n")
    }

    fn besides(old: &Self, new: &Self) -> Vec<String> {
        servers(&old.servers, &new.servers)
    }
}

/// The maximum length of a shown value, in characters.
const SHOWN: usize = 100;

/// The lines of a changed item without its label; at least one.
pub(super) fn lines<T: Described>(old: &T, new: &T) -> Vec<String> {
    let (before, after) = (old.printed(), new.printed());
    let (before, after) = (keys(&before), keys(&after));
    let mut all: Vec<String> =
        before.iter().filter_map(|(key, was)| line(key, Some(was), after.get(key).copied())).collect();
    let added = after.iter().filter(|(key, _)| !before.contains_key(*key));
    all.extend(added.filter_map(|(key, is)| line(key, None, Some(is))));
    all.extend(T::besides(old, new));
    if all.is_empty() {
        all.push("changed".to_owned());
    }
    all
}

fn keys(printed: &str) -> BTreeMap<&str, &str> {
    printed.lines().filter_map(|line| line.split_once(" = ")).collect()
}

/// The line of a key, if it changed.
fn line(key: &str, old: Option<&str>, new: Option<&str>) -> Option<String> {
    if old == new {
        return None;
    }
    // URLs and bodies of notifications may have secrets, too.
    if key.ends_with("_headers") || ["url", "body"].contains(&key) {
        return Some(format!("{key}: changed"));
    }
    let (was, is) = (old.unwrap_or("(absent)"), new.unwrap_or("(absent)"));
    if was.chars().count() <= SHOWN && is.chars().count() <= SHOWN {
        return Some(format!("{key}: {was} -> {is}"));
    }
    let of = |value: Option<&str>| list(value.unwrap_or("[]"));
    let said = match (of(old), of(new)) {
        (Some(old), Some(new)) => elements(&old, &new),
        _ => "changed".to_owned(),
    };
    Some(format!("{key}: {said}"))
}

/// The elements of a list value.
fn list(value: &str) -> Option<Vec<String>> {
    let value: Value = value.parse().ok()?;
    value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect()
}

/// The elements removed from and added to a long list.
fn elements(old: &[String], new: &[String]) -> String {
    let missing = |from: &[String], of: &[String]| -> Vec<String> {
        let from: HashSet<&String> = from.iter().collect();
        of.iter().filter(|one| !from.contains(one)).map(|one| quoted(one)).collect()
    };
    let mut out = String::new();
    for (word, all) in [("added", missing(old, new)), ("removed", missing(new, old))] {
        if all.is_empty() {
            continue;
        }
        let gap = if out.is_empty() { "" } else { "; " };
        let _ = write!(out, "{gap}{word} {}", cut(&all.join(", ")));
    }
    if out.is_empty() { "in another order".to_owned() } else { out }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A server's address, and the number of equal ones before it.
type ServerKey = (String, usize);

/// One line per server that was added, removed or changed.
fn servers(old: &[BackendServer], new: &[BackendServer]) -> Vec<String> {
    let (before, after) = (numbered(old), numbered(new));
    let by_key = |all: &[(ServerKey, usize)]| all.iter().cloned().collect::<BTreeMap<ServerKey, usize>>();
    let (known_before, known_after) = (by_key(&before), by_key(&after));
    let mut all = Vec::new();
    for (key, at) in &before {
        let address = &key.0;
        match known_after.get(key) {
            None => all.push(format!("server {address}: removed")),
            Some(now) => {
                all.extend(changes(&old[*at], &new[*now]).map(|what| format!("server {address}: {what}")));
            }
        }
    }
    let added = after.iter().filter(|(key, _)| !known_before.contains_key(key));
    all.extend(added.map(|(_, at)| format!("server {}: added", new[*at])));
    if all.is_empty() && !before.iter().map(|(key, _)| key).eq(after.iter().map(|(key, _)| key)) {
        all.push("servers: in another order".to_owned());
    }
    all
}

/// The servers by key, with their indexes.
fn numbered(servers: &[BackendServer]) -> Vec<(ServerKey, usize)> {
    let mut seen = BTreeMap::<String, usize>::new();
    let number = |(at, server): (usize, &BackendServer)| {
        let address = server.address.to_string();
        let count = seen.entry(address.clone()).or_default();
        *count += 1;
        ((address, *count), at)
    };
    servers.iter().enumerate().map(number).collect()
}

/// The changes of a server.
fn changes(old: &BackendServer, new: &BackendServer) -> impl Iterator<Item = String> {
    let parts: [Option<String>; 3] = [
        pair("", &old.state, &new.state),
        pair("weight ", &old.weight, &new.weight),
        pair("backup ", &old.backup, &new.backup),
    ];
    parts.into_iter().flatten()
}

fn pair<T: fmt::Display + PartialEq>(what: &str, old: &T, new: &T) -> Option<String> {
    (old != new).then(|| format!("{what}{old} -> {new}"))
}
