//! Differences between two configurations.
//!
//! One generic difference of keyed lists serves everything. The law: the old list without the removed items
//! and with the added ones is the new list. Listeners and backends are identified by name, plain values by
//! key, certificates by their source, and routes by their conditions.

mod detail;
mod places;
mod restart;

use std::collections::BTreeMap;
use std::fmt;

use crate::keys::{self, Key};
use crate::model::figures::without_password;
use crate::model::{
    AcmeAuthority, BackendConfig, CertificateConfig, CertificateSource, Config, ListenerConfig, Listeners,
    Name, NotifyConfig, RouteConfig, SharedSection,
};
use crate::print::shared_sections;
use crate::settings::Scalar;

use detail::Described;

pub use restart::keep_until_restart;

/// An item with an identity that survives changes of its content.
pub trait Keyed: Clone + PartialEq {
    /// The identity. If several items share a key, the first is compared with the first, the second with the
    /// second.
    type Key: Clone + Ord;

    /// The identity of this item.
    fn key(&self) -> Self::Key;
}

/// The change of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemChange<T> {
    /// The item was added.
    Added(T),
    /// The item, which was removed.
    Removed(T),
    /// The content of the item changed.
    Replaced {
        /// The item before the change.
        old: T,
        /// The item after the change.
        new: T,
    },
}

/// The difference of two lists of keyed items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDiff<T: Keyed> {
    changes: BTreeMap<(T::Key, usize), ItemChange<T>>,
    /// Set unless the order is that of the old list followed by the added items.
    reordered: bool,
}

impl<T: Keyed> ListDiff<T> {
    /// The difference that leads from `old` to `new`.
    pub fn between(old: &[T], new: &[T]) -> Self {
        let before = index(old);
        let after = index(new);
        let mut changes = BTreeMap::new();
        for (key, was) in &before {
            let change = match after.get(key) {
                None => ItemChange::Removed(old[*was].clone()),
                Some(is) if old[*was] != new[*is] => {
                    ItemChange::Replaced { old: old[*was].clone(), new: new[*is].clone() }
                }
                Some(_) => continue,
            };
            changes.insert(key.clone(), change);
        }
        for (key, is) in &after {
            if !before.contains_key(key) {
                changes.insert(key.clone(), ItemChange::Added(new[*is].clone()));
            }
        }
        let kept = ordered_keys(old).into_iter().filter(|key| after.contains_key(key));
        let added = after.keys().filter(|key| !before.contains_key(key)).cloned();
        let reordered = !kept.chain(added).eq(ordered_keys(new));
        ListDiff { changes, reordered }
    }

    /// The changes of items; a mere change of order has none.
    pub fn changes(&self) -> impl Iterator<Item = &ItemChange<T>> {
        self.changes.values()
    }

    /// Returns `true` if the order changed other than by additions at the end.
    pub fn reordered(&self) -> bool {
        self.reordered
    }

    /// Returns `true` if the lists are equal.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.reordered
    }
}

/// The keys of the items in order, each with the number of equal ones before it.
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
pub struct SettingValue {
    path: &'static str,
    value: Option<Scalar>,
}

impl SettingValue {
    /// The row of the key in the table; always present for settings from [`ConfigDiff::between`].
    pub fn row(&self) -> Option<&'static Key> {
        keys::find(self.path)
    }

    /// The value; `None` where the key is absent.
    pub(crate) fn value(&self) -> Option<&Scalar> {
        self.value.as_ref()
    }

    /// The path of the key, such as `limits.connections`.
    pub fn path(&self) -> &'static str {
        self.path
    }
}

impl fmt::Display for SettingValue {
    /// The value in TOML, without a password, or `(absent)`.
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

impl Keyed for SettingValue {
    type Key = &'static str;

    fn key(&self) -> &'static str {
        self.path
    }
}

impl Keyed for ListenerConfig {
    type Key = Name;

    fn key(&self) -> Name {
        self.name.clone()
    }
}

impl Keyed for AcmeAuthority {
    type Key = Name;

    fn key(&self) -> Name {
        self.name.clone()
    }
}

impl Keyed for NotifyConfig {
    type Key = Name;

    fn key(&self) -> Name {
        self.name.clone()
    }
}

impl Keyed for BackendConfig {
    type Key = Name;

    fn key(&self) -> Name {
        self.name.clone()
    }
}

impl Keyed for CertificateConfig {
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

impl Keyed for RouteConfig {
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

/// The difference of two configurations. Printed, it has one line per added or removed item, and per changed
/// key or server of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigDiff {
    /// Differences of plain values.
    pub settings: ListDiff<SettingValue>,
    /// Differences of receivers of notifications, identified by name.
    pub notify: ListDiff<NotifyConfig>,
    /// Differences of certificates, identified by source.
    pub certificates: ListDiff<CertificateConfig>,
    /// Differences of ACME authorities.
    pub authorities: ListDiff<AcmeAuthority>,
    /// Differences of listeners, identified by name.
    pub listeners: ListDiff<ListenerConfig>,
    /// Differences of shared settings.
    pub shared: ListDiff<SharedSection>,
    /// Differences of routes, identified by their conditions.
    pub routes: ListDiff<RouteConfig>,
    /// Differences of backends, identified by name.
    pub backends: ListDiff<BackendConfig>,
}

impl ConfigDiff {
    /// The difference that leads from `old` to `new`.
    pub fn between(old: &Config, new: &Config) -> Self {
        ConfigDiff {
            settings: ListDiff::between(&settings(old), &settings(new)),
            notify: ListDiff::between(&old.telemetry.notify, &new.telemetry.notify),
            certificates: ListDiff::between(&old.certificates, &new.certificates),
            authorities: ListDiff::between(&old.authorities, &new.authorities),
            listeners: ListDiff::between(&old.listeners, &new.listeners),
            shared: ListDiff::between(&shared_sections(old), &shared_sections(new)),
            routes: ListDiff::between(&old.routes, &new.routes),
            backends: ListDiff::between(&old.backends, &new.backends),
        }
    }

    /// Returns `true` if the configurations are equivalent.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty()
            && self.notify.is_empty()
            && self.certificates.is_empty()
            && self.authorities.is_empty()
            && self.listeners.is_empty()
            && self.shared.is_empty()
            && self.routes.is_empty()
            && self.backends.is_empty()
    }
}

fn settings(config: &Config) -> Vec<SettingValue> {
    keys::settings()
        .map(|(key, binding)| SettingValue { path: key.path, value: (binding.get)(config) })
        .collect()
}

impl fmt::Display for ConfigDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in self.settings.changes() {
            if let ItemChange::Replaced { old, new } = change {
                writeln!(f, "{}: {old} -> {new}", new.path)?;
            }
        }
        lines(f, &self.notify, "notifications")?;
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
            ItemChange::Added(item) => writeln!(f, "{}: added", item.label())?,
            ItemChange::Removed(item) => writeln!(f, "{}: removed", item.label())?,
            ItemChange::Replaced { old, new } => {
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
