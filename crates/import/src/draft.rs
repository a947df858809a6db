//! The draft of a configuration: listeners, certificates, routes and backends, each with the place that it came from, and
//! its text.
//!
//! Values are kept as they are written in TOML, because a language has many keys and each is written once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::source::FoundAt;

/// Keys and their values in TOML, in the order in which they are written.
pub(crate) type DraftKeys = Vec<(String, String)>;

/// A table of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct DraftItem {
    /// The directive that it came from: its number, for the report.
    pub(crate) id: usize,
    /// The place of that directive.
    pub(crate) from: FoundAt,
    /// The directive in words.
    pub(crate) origin: String,
    /// The keys of the table.
    pub(crate) keys: DraftKeys,
}

/// A route: its conditions, and the rest.
#[derive(Clone, Debug)]
pub(crate) struct DraftRoute {
    /// The listeners; all of the draft if there is only one.
    pub(crate) listeners: Vec<String>,
    /// The hosts; empty for any.
    pub(crate) hosts: Vec<String>,
    /// The path; `None` for routes of connections.
    pub(crate) path: Option<String>,
    /// The rest of it.
    pub(crate) item: DraftItem,
}

/// A key of a table such as `[limits]`, with the place that it came from.
#[derive(Clone, Debug)]
pub(crate) struct DraftSetting {
    /// The value in TOML.
    pub(crate) value: String,
    /// The place of the directive.
    pub(crate) from: Option<FoundAt>,
}

/// A configuration before it is text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    /// Plain keys by table; those without a table come first.
    pub(crate) settings: BTreeMap<&'static str, BTreeMap<&'static str, DraftSetting>>,
    pub(crate) listeners: Vec<DraftItem>,
    pub(crate) certificates: Vec<DraftItem>,
    pub(crate) routes: Vec<DraftRoute>,
    /// Backends with their names.
    pub(crate) backends: Vec<(String, DraftItem)>,
    /// The names of backends.
    pub(crate) names: BTreeSet<String>,
    taken: BTreeSet<(String, String, String)>,
}

impl Draft {
    /// Sets a plain key, unless it is set.
    pub(crate) fn set(
        &mut self,
        table: &'static str,
        key: &'static str,
        value: String,
        from: Option<FoundAt>,
    ) {
        self.settings.entry(table).or_default().entry(key).or_insert(DraftSetting { value, from });
    }

    /// Adds a route, except where an earlier one takes the same requests; returns `false` if nothing of it is left.
    pub(crate) fn add_route(&mut self, mut route: DraftRoute) -> bool {
        let path = route.path.clone().unwrap_or_default();
        let hosts = if route.hosts.is_empty() { vec![String::new()] } else { route.hosts.clone() };
        let free = |draft: &Self, host: &String| {
            let key = |listener: &String| (listener.clone(), host.clone(), path.clone());
            route.listeners.iter().all(|listener| !draft.taken.contains(&key(listener)))
        };
        let left: Vec<String> = hosts.into_iter().filter(|host| free(self, host)).collect();
        if left.is_empty() {
            return false;
        }
        for host in &left {
            for listener in &route.listeners {
                self.taken.insert((listener.clone(), host.clone(), path.clone()));
            }
        }
        route.hosts = left.into_iter().filter(|host| !host.is_empty()).collect();
        self.routes.push(route);
        true
    }

    /// The text, and the first line of each item with its number.
    pub(crate) fn text(&self, head: &str) -> (String, Vec<(usize, usize)>) {
        let mut out = DraftText { text: head.to_owned(), lines: Vec::new(), counted: 0, line: 1 };
        for (table, keys) in &self.settings {
            out.text.push('\n');
            if !table.is_empty() {
                let _ = writeln!(out.text, "[{table}]");
            }
            for (key, DraftSetting { value, from }) in keys {
                let _ = match from {
                    Some(from) => writeln!(out.text, "{key} = {value}  # {}:{}", from.file, from.line),
                    None => writeln!(out.text, "{key} = {value}"),
                };
            }
        }
        for listener in &self.listeners {
            out.item("[[listener]]", listener, &[]);
        }
        for certificate in &self.certificates {
            out.item("[[certificate]]", certificate, &[]);
        }
        for route in &self.routes {
            let mut keys = DraftKeys::new();
            if self.listeners.len() > 1 || self.routes.len() > MANY {
                keys.push(("listener".to_owned(), one_or_list(&route.listeners)));
            }
            if !route.hosts.is_empty() {
                keys.push(("host".to_owned(), one_or_list(&route.hosts)));
            }
            if let Some(path) = route.path.as_ref().filter(|path| *path != "/") {
                keys.push(("path".to_owned(), quoted(path)));
            }
            out.item("[[route]]", &route.item, &keys);
        }
        for (name, backend) in &self.backends {
            out.item(&format!("[backend.{}]", bare(name)), backend, &[]);
        }
        (out.text, out.lines)
    }
}

struct DraftText {
    text: String,
    /// The line after the comment of each item, and the number of its directive.
    lines: Vec<(usize, usize)>,
    /// The bytes with counted lines.
    counted: usize,
    line: usize,
}

impl DraftText {
    fn item(&mut self, header: &str, item: &DraftItem, first: &[(String, String)]) {
        let DraftItem { id, from, origin, keys } = item;
        let _ = writeln!(self.text, "\n# {}:{}: {}", from.file, from.line, comment(origin));
        self.line += self.text[self.counted..].bytes().filter(|byte| *byte == b'\n').count();
        self.counted = self.text.len();
        self.lines.push((self.line, *id));
        let _ = writeln!(self.text, "{header}");
        for (key, value) in first.iter().chain(keys) {
            let _ = writeln!(self.text, "{key} = {value}");
        }
    }
}

/// The routes from which on each names its listeners, even if there is only one: a check of those that name none compares
/// each with all.
const MANY: usize = 200;

/// A text that is safe in a comment.
pub(crate) fn comment(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// A list of strings in TOML.
pub(crate) fn list<T: AsRef<str>>(texts: &[T]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

/// One string, or a list of several.
pub(crate) fn one_or_list<T: AsRef<str>>(texts: &[T]) -> String {
    match texts {
        [one] => quoted(one.as_ref()),
        several => list(several),
    }
}

/// A table within a value.
pub(crate) fn inline(keys: &[(String, String)]) -> String {
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{} = {value}", bare(key))).collect();
    format!("{{ {} }}", keys.join(", "))
}

/// A key of TOML, in quotes if it needs them.
pub(crate) fn bare(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !key.is_empty() && key.bytes().all(plain) { key.to_owned() } else { quoted(key) }
}
