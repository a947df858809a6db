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
mod tests {
    use super::*;
    use crate::{Environment, parse};

    fn between(old: &str, new: &str) -> ConfigDiff {
        let read = |text: &str| parse(text, "f.toml", &Environment::default()).unwrap().0;
        let (old, new) = (read(old), read(new));
        ConfigDiff::between(&old, &new)
    }

    #[test]
    fn what_changed_is_told_line_by_line() {
        let old = "[limits]\nidle_timeout = \"5m\"\n[[route]]\nhost = \"a\"\nbackend = \"x\"\n\
                   [backend.x]\nservers = \"h:1\"\n";
        let new = "[metrics]\naddress = \"127.0.0.1:1\"\n[limits]\nidle_timeout = \"90s\"\n\
                   [[route]]\nhost = \"a\"\nbackend = \"x\"\n[[route]]\nserver = \"h:2\"\n\
                   [backend.x]\nservers = [\"h:1\", \"h:2\"]\n";
        let text = between(old, new).to_string();
        let expected = "limits.idle_timeout: \"5m\" -> \"90s\"\n\
                        metrics.address: (absent) -> \"127.0.0.1:1\"\nroute default: added\n\
                        backend x: server h:2: added\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_changed_of_an_item_is_told_key_by_key_and_server_by_server() {
        let old = "[[listener]]\nname = \"plain\"\naddress = \"127.0.0.1:1\"\nmode = \"http\"\ntls = false\n\
                   [[certificate]]\ncert = \"/a.pem\"\nkey = \"/a.key\"\n\
                   [acme.own]\ndirectory = \"https://ca.example/dir\"\n\
                   [[route]]\nhost = \"a\"\npath = \"/x\"\nbackend = \"x\"\n\
                   request_headers = { set = { X-Key = \"secret\" } }\n\
                   [backend.x]\nmax_connections = 3\n\
                   servers = [\"h:1\", \"h:2 weight=2\", \"h:3 drain\", \"h:4\", \"h:5\"]\n";
        let new = old
            .replace("127.0.0.1:1\"\n", "127.0.0.1:2\"\nvia = true\n")
            .replace("a.key", "b.key")
            .replace("ca.example", "ca2.example")
            .replace("secret", "other")
            .replace("backend = \"x\"\n", "backend = \"x\"\nmax_body = \"1MiB\"\n")
            .replace("max_connections = 3\n", "balance = \"least_conn\"\n")
            .replace("h:1\"", "h:1 drain\"")
            .replace("h:2 weight=2\"", "h:2 weight=3 backup\"")
            .replace("h:3 drain\"", "h:3\"")
            .replace(", \"h:5\"", ", \"h:6 weight=9\"");
        let text = between(old, &new).to_string();
        let expected = "\
certificate /a.pem: key: \"/a.key\" -> \"/b.key\"
acme own: directory: \"https://ca.example/dir\" -> \"https://ca2.example/dir\"
listener plain: address: [\"127.0.0.1:1\"] -> [\"127.0.0.1:2\"]
listener plain: via: false -> true
route a/x: request_headers: changed
route a/x: max_body: (absent) -> \"1MiB\"
backend x: balance: \"round_robin\" -> \"least_conn\"
backend x: max_connections: 3 -> (absent)
backend x: server h:1: enabled -> drain
backend x: server h:2: weight 2 -> 3
backend x: server h:2: backup false -> true
backend x: server h:3: drain -> enabled
backend x: server h:5: removed
backend x: server h:6 weight=9: added
";
        assert_eq!(text, expected);
        let order = old.replace("\"h:4\", \"h:5\"", "\"h:5\", \"h:4\"");
        assert_eq!(between(old, &order).to_string(), "backend x: servers: in another order\n");
    }

    #[test]
    fn of_long_lists_only_what_comes_and_goes_is_told() {
        let listener = |count: usize| {
            let networks: Vec<String> = (0..count).map(|at| format!("\"10.0.{at}.0/24\"")).collect();
            format!(
                "[[listener]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\nallow = [{}]\n",
                networks.join(", ")
            )
        };
        let text = between(&listener(50), &listener(51)).to_string();
        assert_eq!(text, "listener a: allow: added \"10.0.50.0/24\"\n");
        let text = between(&listener(2), &listener(90)).to_string();
        assert!(
            text.starts_with("listener a: allow: added \"10.0.2.0/24\", ") && text.ends_with("…\n"),
            "{text}"
        );
        assert!(text.len() < 160, "{text}");
    }

    #[test]
    fn places_and_comments_are_no_change() {
        let text = "[[route]]\nserver = \"h:1\"\n";
        assert!(between(text, &format!("# new\n\n{text}")).is_empty());
    }

    #[test]
    fn another_order_is_a_change() {
        let a = "[[route]]\nalpn = \"a\"\nserver = \"h:1\"\n";
        let b = "[[route]]\nalpn = \"b\"\nserver = \"h:1\"\n";
        let diff = between(&format!("{a}{b}"), &format!("{b}{a}"));
        assert_eq!(diff.to_string(), "routes: in another order\n");
    }

    /// Whatever differs is told: what is not told is applied without a plan, a wait and a place in the history.
    #[test]
    fn no_field_differs_without_a_word() {
        let base = "[[listener]]\nmode = \"http\"\naddress = \"127.0.0.1:1\"\n[[route]]\nserver = \"h:1\"\n\
                    [[certificate]]\nlocal = true\nnames = [\"a.example\"]\n";
        let others = [
            ("workers", "workers = 3\n"),
            ("user", "user = \"other\"\n"),
            ("state_dir", "state_dir = \"/other\"\n"),
            ("watch", "watch = true\n"),
            ("sandbox", "sandbox = \"required\"\n"),
            ("geoip", "geoip = \"/countries.mmdb\"\n"),
            ("admin", "admin = { enabled = false }\n"),
            ("log", "log = { level = \"debug\" }\n"),
            ("access_log", "access_log = { format = \"text\" }\n"),
            ("log_store", "log_store = { url = \"sqlite:/a.db\" }\n"),
            ("metrics", "metrics = { address = \"127.0.0.1:2\" }\n"),
            ("tracing", "tracing = { otlp = \"http://127.0.0.1:3\" }\n"),
            ("tls", "tls = { tickets = 2 }\n"),
            ("limits", "limits = { streams = 9 }\n"),
            ("certificates", "certificate = [{ local = true, names = [\"b.example\"] }]\n"),
            ("authorities", "acme = { own = { directory = \"https://ca.example/dir\" } }\n"),
            ("listeners", "listener = [{ mode = \"http\", address = \"127.0.0.1:2\" }]\n"),
            ("error_pages", "defaults = { route = { error_pages = { 404 = \"/404.html\" } } }\n"),
            ("shared", "policy = { p = { max_body = \"1KiB\" } }\n"),
            ("routes", "route = [{ server = \"h:2\" }]\n"),
            ("backends", "backend = { b = { servers = \"h:1\" } }\n"),
        ];
        let all = parse(base, "f.toml", &Environment::default()).unwrap().0;
        // A field that is new belongs into the table above, and into the difference.
        let Config {
            workers: _,
            user: _,
            state_dir: _,
            watch: _,
            sandbox: _,
            geoip: _,
            admin: _,
            log: _,
            access_log: _,
            log_store: _,
            metrics: _,
            tracing: _,
            tls: _,
            limits: _,
            certificates: _,
            authorities: _,
            listeners: _,
            error_pages: _,
            shared: _,
            routes: _,
            backends: _,
            origins: _,
        } = all;
        for (field, line) in others {
            let key = line.split(' ').next().unwrap();
            let rest =
                base.split("[[").filter(|item| !item.is_empty() && !item.starts_with(&format!("{key}]")));
            let text = rest.fold(line.to_owned(), |text, item| text + "[[" + item);
            let other = parse(&text, "f.toml", &Environment::default())
                .unwrap_or_else(|errors| panic!("{errors}\n{text}"))
                .0;
            let diff = ConfigDiff::between(&all, &other);
            assert!(!diff.is_empty() && !diff.to_string().is_empty(), "{field}");
        }
        // As it is in one that was made in code.
        let mut other = all.clone();
        other.error_pages.files.push(("404".parse().unwrap(), crate::model::FilePath::new("/404.html")));
        let told = ConfigDiff::between(&all, &other).to_string();
        assert_eq!(told, "defaults.route: added\n");
    }

    #[test]
    fn what_routes_share_is_told_key_by_key() {
        let of = |keys: &str| {
            format!("[[listener]]\nmode = \"http\"\n[defaults.route]\n{keys}[[route]]\nroot = \"/r\"\n")
        };
        let told = between(
            &of("error_pages = { 404 = \"/a\" }\nresponse_headers = { set = { X-Key = \"secret\" } }\n"),
            &of("error_pages = { 404 = \"/b\" }\nresponse_headers = { set = { X-Key = \"other\" } }\n"),
        );
        let told = told.to_string();
        let page = "defaults.route: error_pages: { \"404\" = \"/a\" } -> { \"404\" = \"/b\" }\n";
        assert!(told.starts_with(page) && !told.contains("secret"), "{told}");
        assert!(told.contains("defaults.route: response_headers: changed\n"), "{told}");
    }
}
