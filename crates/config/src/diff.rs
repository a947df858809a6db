//! What is different between two configurations.
//!
//! One generic difference of keyed lists, used for everything. The law: the old without what went and with what
//! came is the new. Listeners and backends are told apart by their names, plain values by their keys,
//! certificates by what they are made of, and routes by what they match.

mod detail;
mod restart;

use std::collections::BTreeMap;
use std::fmt;

use crate::keys::{self, Key};
use crate::model::figures::without_password;
use crate::model::{
    Authority, Backend, Certificate, CertificateSource, Config, Listener, Listeners, Name, Route,
    SharedSection,
};
use crate::print::shared_sections;
use crate::settings::{BINDINGS, Scalar};

use detail::Described;

pub use restart::keep_until_restart;

/// An item that is recognised by a key when its content changes.
pub trait Keyed: Clone + PartialEq {
    /// What it is recognised by. Several items of a list may share a key: the first is then compared to
    /// the first, the second to the second.
    type Key: Clone + Ord;

    /// The key of this item.
    fn key(&self) -> Self::Key;
}

/// What happens to one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// It is new.
    Added(T),
    /// It is gone; this is what it was.
    Removed(T),
    /// Its content is another.
    Replaced {
        /// What it was.
        old: T,
        /// What it is.
        new: T,
    },
}

/// The difference of two lists of keyed items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDiff<T: Keyed> {
    changes: BTreeMap<(T::Key, usize), Change<T>>,
    /// Whether the order is not that of the old list with what is new at its end.
    reordered: bool,
}

impl<T: Keyed> ListDiff<T> {
    /// What makes `new` of `old`.
    pub fn between(old: &[T], new: &[T]) -> Self {
        let before = index(old);
        let after = index(new);
        let mut changes = BTreeMap::new();
        for (key, was) in &before {
            let change = match after.get(key) {
                None => Change::Removed(old[*was].clone()),
                Some(is) if old[*was] != new[*is] => {
                    Change::Replaced { old: old[*was].clone(), new: new[*is].clone() }
                }
                Some(_) => continue,
            };
            changes.insert(key.clone(), change);
        }
        for (key, is) in &after {
            if !before.contains_key(key) {
                changes.insert(key.clone(), Change::Added(new[*is].clone()));
            }
        }
        let kept = ordered_keys(old).into_iter().filter(|key| after.contains_key(key));
        let added = after.keys().filter(|key| !before.contains_key(key)).cloned();
        let reordered = !kept.chain(added).eq(ordered_keys(new));
        ListDiff { changes, reordered }
    }

    /// The changes of items; a change of order alone has none.
    pub fn changes(&self) -> impl Iterator<Item = &Change<T>> {
        self.changes.values()
    }

    /// Whether the order changed otherwise than by additions at the end.
    pub fn reordered(&self) -> bool {
        self.reordered
    }

    /// Whether the lists are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.reordered
    }
}

/// The keys of the items in their order, each with the count of equal ones before it.
fn ordered_keys<T: Keyed>(items: &[T]) -> Vec<(T::Key, usize)> {
    let mut seen = BTreeMap::new();
    let number = |item: &T| {
        let count = seen.entry(item.key()).and_modify(|count| *count += 1).or_insert(0);
        (item.key(), *count)
    };
    items.iter().map(number).collect()
}

fn index<T: Keyed>(items: &[T]) -> BTreeMap<(T::Key, usize), usize> {
    ordered_keys(items).into_iter().enumerate().map(|(at, key)| (key, at)).collect()
}

/// The value of one plain key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    path: &'static str,
    value: Option<Scalar>,
}

impl Setting {
    /// The row of the key; `None` never occurs for settings made by [`ConfigDiff::between`].
    pub fn row(&self) -> Option<&'static Key> {
        keys::find(self.path)
    }

    /// The path of the key, such as `limits.connections`.
    pub fn path(&self) -> &'static str {
        self.path
    }
}

impl fmt::Display for Setting {
    /// The value as it is written in TOML, without a password, or `(absent)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(Scalar::Text(url)) if self.path == "log_store.url" => {
                Scalar::Text(without_password(url)).fmt(f)
            }
            Some(value) => value.fmt(f),
            None => f.write_str("(absent)"),
        }
    }
}

impl Keyed for Setting {
    type Key = &'static str;

    fn key(&self) -> &'static str {
        self.path
    }
}

impl Keyed for Listener {
    type Key = Name;

    fn key(&self) -> Name {
        self.name.clone()
    }
}

impl Keyed for Authority {
    type Key = Name;

    fn key(&self) -> Name {
        self.name.clone()
    }
}

impl Keyed for Backend {
    type Key = Name;

    fn key(&self) -> Name {
        self.name.clone()
    }
}

impl Keyed for Certificate {
    type Key = String;

    fn key(&self) -> String {
        match &self.source {
            CertificateSource::Files { cert, .. } => format!("certificate {}", cert.path.display()),
            CertificateSource::Directory { path } => format!("certificates in {}", path.path.display()),
            CertificateSource::Acme(acme) => {
                let (kind, names) = match &acme.on_demand {
                    None => ("certificate", &acme.names),
                    Some(on_demand) => ("certificates on demand", &on_demand.names),
                };
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                format!("acme {kind} {}", names.join(" "))
            }
            CertificateSource::Local { names } => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                format!("local certificate {}", names.join(" "))
            }
        }
    }
}

impl Keyed for SharedSection {
    type Key = Option<String>;

    fn key(&self) -> Option<String> {
        self.policy.clone()
    }
}

impl Keyed for Route {
    type Key = String;

    fn key(&self) -> String {
        let mut key = String::from("route");
        if let Listeners::Named(names) = &self.listeners {
            key.extend(names.iter().map(|name| format!(" listener={name}")));
        }
        key.extend(self.hosts.iter().map(|host| format!(" host={host}")));
        if !self.path.is_root() {
            key.push_str(&format!(" path={}", self.path));
        }
        key.extend(self.alpn.iter().map(|id| format!(" alpn={id}")));
        key
    }
}

/// The difference of two configurations. Printed, it is one line for each item that comes or goes, and for each key or
/// server of an item that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigDiff {
    /// Plain values.
    pub settings: ListDiff<Setting>,
    /// Certificates.
    pub certificates: ListDiff<Certificate>,
    /// Authorities.
    pub authorities: ListDiff<Authority>,
    /// Listeners.
    pub listeners: ListDiff<Listener>,
    /// What routes share.
    pub shared: ListDiff<SharedSection>,
    /// Routes.
    pub routes: ListDiff<Route>,
    /// Backends.
    pub backends: ListDiff<Backend>,
}

impl ConfigDiff {
    /// What makes `new` of `old`.
    pub fn between(old: &Config, new: &Config) -> Self {
        ConfigDiff {
            settings: ListDiff::between(&settings(old), &settings(new)),
            certificates: ListDiff::between(&old.certificates, &new.certificates),
            authorities: ListDiff::between(&old.authorities, &new.authorities),
            listeners: ListDiff::between(&old.listeners, &new.listeners),
            shared: ListDiff::between(&shared_sections(old), &shared_sections(new)),
            routes: ListDiff::between(&old.routes, &new.routes),
            backends: ListDiff::between(&old.backends, &new.backends),
        }
    }

    /// Whether the configurations mean the same.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
            && self.certificates.is_empty()
            && self.authorities.is_empty()
            && self.listeners.is_empty()
            && self.shared.is_empty()
            && self.routes.is_empty()
            && self.backends.is_empty()
    }
}

fn settings(config: &Config) -> Vec<Setting> {
    BINDINGS.iter().map(|binding| Setting { path: binding.path, value: (binding.get)(config) }).collect()
}

impl fmt::Display for ConfigDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in self.settings.changes() {
            if let Change::Replaced { old, new } = change {
                writeln!(f, "{}: {old} -> {new}", new.path)?;
            }
        }
        lines(f, &self.certificates, "certificates")?;
        lines(f, &self.authorities, "authorities")?;
        lines(f, &self.listeners, "listeners")?;
        lines(f, &self.shared, "policies")?;
        lines(f, &self.routes, "routes")?;
        lines(f, &self.backends, "backends")
    }
}

fn lines<T: Described>(f: &mut fmt::Formatter<'_>, diff: &ListDiff<T>, kind: &str) -> fmt::Result {
    for change in diff.changes() {
        match change {
            Change::Added(item) => writeln!(f, "{}: added", item.label())?,
            Change::Removed(item) => writeln!(f, "{}: removed", item.label())?,
            Change::Replaced { old, new } => {
                let label = new.label();
                for line in detail::lines(old, new) {
                    writeln!(f, "{label}: {line}")?;
                }
            }
        }
    }
    if diff.reordered() && diff.changes.is_empty() {
        writeln!(f, "{kind}: in another order")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
