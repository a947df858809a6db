//! The one table of keys, and what derives from it.
//!
//! A key is a row of [`TABLE`]: path, kind, default, reload class, support and a line of documentation.
//! Unknown-key errors, type and range errors, `docs/config.md` and the comments of the printed
//! configuration all come from the row, so that they cannot contradict each other. What values *mean* is
//! not here: that is the model's.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use crate::units;

pub use table::TABLE;

pub mod markdown;
mod table;

/// One key of the language.
#[derive(Debug)]
pub struct Key {
    /// Sections and name joined by dots; `*` stands for a name that the user chooses: `backend.*.servers`.
    pub path: &'static str,
    /// What is written after the `=`, or that it is a section.
    pub kind: Kind,
    /// The value if the key is absent.
    pub default: Default,
    /// When a change of the key takes effect.
    pub reload: Reload,
    /// Whether this version supports it.
    pub support: Support,
    /// What it does: one sentence in Markdown, without the final period.
    pub doc: &'static str,
}

impl Key {
    /// The name within its section: the last part of the path.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The path of the section that the key is in; empty for the top.
    pub fn section(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// Whether a route may write `false`, and so be without what its policies and the defaults of routes say: of the keys that
    /// can be shared those that mean nothing where they are absent. The others have a value that says so.
    pub fn can_be_off(&self) -> bool {
        let name = self.name();
        let is_shared = !NOT_DEFAULTS.contains(&name) || !NOT_POLICIES.contains(&name);
        self.section() == "route" && is_shared && matches!(self.default, Default::Absent(_))
    }

    /// How the section that the key is in is written: `[limits]`, `[[route]]`, `[backend.NAME]`, or
    /// `the top level`.
    pub fn header(&self) -> String {
        header(self.section())
    }

    /// Whether it may be written as a table of its own.
    pub(crate) fn accepts_table(&self) -> bool {
        self.kind.takes_table()
    }
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number within bounds, both included.
    Integer {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// A string; the text describes it.
    Text(&'static str),
    /// A string or a list of strings; the text describes them.
    List(&'static str),
    /// One of some words.
    Choice(&'static [Choice]),
    /// One of some words, or the path of a file: it contains a `/`.
    Output(&'static [Choice]),
    /// One of some words, or a table of details.
    ChoiceOrTable(&'static [Choice]),
    /// A string, or a table of details; the text describes the string.
    TextOrTable(&'static str),
    /// `true`, `false`, or a table of details.
    BoolOrTable,
    /// Numbers and words: one, or a list; the text describes them.
    Mixed(&'static str),
    /// A table whose keys the user chooses, with a string or a list of strings each; the text describes them.
    Map(&'static str),
    /// A duration within bounds, both included.
    Duration {
        /// The least.
        min: Duration,
        /// The greatest.
        max: Duration,
    },
    /// A size within bounds, both included.
    Size {
        /// The least, in bytes.
        min: u64,
        /// The greatest, in bytes.
        max: u64,
    },
    /// A word, or a size within bounds, both included.
    WordOrSize {
        /// The word.
        word: &'static str,
        /// The least, in bytes.
        min: u64,
        /// The greatest, in bytes.
        max: u64,
    },
    /// How many per second, minute or hour.
    Rate,
    /// A section that is written once: `[log]`.
    Section,
    /// A section that is written any number of times: `[[route]]`.
    Sections,
    /// A section for each name that the user chooses: `[backend.NAME]`.
    Named,
}

impl Kind {
    /// Whether it may be written as a table.
    fn takes_table(self) -> bool {
        let either =
            matches!(self, Kind::ChoiceOrTable(_) | Kind::TextOrTable(_) | Kind::BoolOrTable | Kind::Map(_));
        self.is_section() || either
    }

    /// Whether it is a section with its own header.
    pub fn is_section(self) -> bool {
        matches!(self, Kind::Section | Kind::Sections | Kind::Named)
    }

    /// The words to choose from, if it takes words.
    pub fn choices(self) -> &'static [Choice] {
        match self {
            Kind::Choice(choices) | Kind::Output(choices) | Kind::ChoiceOrTable(choices) => choices,
            _ => &[],
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Bool => f.write_str("`true` or `false`"),
            Kind::Integer { min, max } => write!(f, "whole number, {min} to {max}"),
            Kind::Text(what) => write!(f, "string: {what}"),
            Kind::List(what) => write!(f, "string or list: {what}"),
            Kind::Choice(choices) => words(f, choices),
            Kind::Output(choices) => words(f, choices).and_then(|()| f.write_str(", or a file's path")),
            Kind::ChoiceOrTable(choices) => words(f, choices).and_then(|()| f.write_str(", or a table")),
            Kind::TextOrTable(what) => write!(f, "string: {what}; or a table"),
            Kind::BoolOrTable => f.write_str("`true`, `false`, or a table"),
            Kind::Mixed(what) => write!(f, "list: {what}"),
            Kind::Map(what) => write!(f, "table: {what}"),
            Kind::Size { min, max } => {
                write!(f, "size, {} to {}", units::print_size(*min), units::print_size(*max))
            }
            Kind::Duration { min, max } => {
                write!(f, "duration, {} to {}", units::print_duration(*min), units::print_duration(*max))
            }
            Kind::WordOrSize { word, min, max } => {
                write!(
                    f,
                    "`\"{word}\"`, or a size, {} to {}",
                    units::print_size(*min),
                    units::print_size(*max)
                )
            }
            Kind::Rate => f.write_str("rate, such as `\"100/s\"`"),
            Kind::Section | Kind::Sections | Kind::Named => f.write_str("section"),
        }
    }
}

fn words(f: &mut fmt::Formatter<'_>, choices: &[Choice]) -> fmt::Result {
    let supported = choices.iter().filter(|choice| choice.support.is_now());
    for (at, choice) in supported.enumerate() {
        write!(f, "{}`\"{}\"`", if at > 0 { ", " } else { "" }, choice.word)?;
    }
    Ok(())
}

/// A word that a key takes.
#[derive(Debug)]
pub struct Choice {
    /// The word; `NAME` at its end stands for any text that is not empty.
    pub word: &'static str,
    /// Whether this version supports it.
    pub support: Support,
}

impl Choice {
    /// A word that every version so far has known.
    pub(crate) const fn now(word: &'static str) -> Self {
        Self { word, support: Support::Since("0.1.0") }
    }

    /// Whether `text` is this word.
    pub fn matches(&self, text: &str) -> bool {
        match self.word.strip_suffix("NAME") {
            Some(prefix) => text.strip_prefix(prefix).is_some_and(|name| !name.is_empty()),
            None => self.word == text,
        }
    }
}

/// What holds when a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This value, in TOML.
    Toml(&'static str),
    /// Nothing that could be written; the text says what happens instead.
    Absent(&'static str),
    /// The key must be written wherever its section is.
    Required,
}

/// When a change of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// On reload, for new connections.
    Live,
    /// When the program is started again.
    Restart,
}

/// Whether this version supports a key or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Yes, since this version.
    Since(&'static str),
    /// Not yet: using it is an error.
    Planned,
}

impl Support {
    /// Whether this version supports it.
    pub fn is_now(self) -> bool {
        matches!(self, Support::Since(_))
    }
}

/// The row of a path such as `limits.connections` or `backend.*.servers`.
pub fn find(path: &str) -> Option<&'static Key> {
    TABLE.iter().find(|key| key.path == path)
}

/// The row of a key by its section and its name.
pub fn find_in(section: &str, name: &str) -> Option<&'static Key> {
    in_section(section).find(|key| key.name() == name)
}

/// The rows of a section, in the order of the table.
pub fn in_section(section: &str) -> impl Iterator<Item = &'static Key> {
    let shared = shared(section);
    let section = if shared.is_some() { "route" } else { section };
    let takes = move |key: &&Key| shared.is_none_or(|without| !without.contains(&key.name()));
    BY_SECTION.get(section).into_iter().flatten().copied().filter(takes)
}

/// The table by section: each section and each key of a file is looked up, and files have thousands.
static BY_SECTION: LazyLock<HashMap<&'static str, Vec<&'static Key>>> = LazyLock::new(|| {
    let mut sections: HashMap<_, Vec<_>> = HashMap::new();
    TABLE.iter().for_each(|key| sections.entry(key.section()).or_default().push(key));
    sections
});

/// The keys of `[[route]]` that a section of shared keys does not take; `None` for all other sections. What a route matches and
/// where it leads is its own, and the handshake comes before the route.
pub(crate) fn shared(section: &str) -> Option<&'static [&'static str]> {
    match section {
        "defaults.route" => Some(&NOT_DEFAULTS),
        "policy.*" => Some(&NOT_POLICIES),
        _ => None,
    }
}

const NOT_DEFAULTS: [&str; 20] = [
    "client_auth",
    "tls",
    "deny_ja4",
    "listener",
    "host",
    "alpn",
    "path",
    "backend",
    "server",
    "split",
    "passthrough",
    "redirect",
    "respond",
    "root",
    "try",
    "fallback",
    "strip_path",
    "replace_path",
    "rewrite",
    "redirects",
];

const NOT_POLICIES: [&str; 18] = [
    "policy",
    "listener",
    "host",
    "alpn",
    "path",
    "backend",
    "server",
    "split",
    "passthrough",
    "redirect",
    "respond",
    "root",
    "try",
    "fallback",
    "strip_path",
    "replace_path",
    "rewrite",
    "redirects",
];

/// How a section is written: `[limits]`, `[[route]]`, `[backend.NAME]`; a table within a section as
/// `` `client_auth` of [[route]] ``.
pub fn header(section: &str) -> String {
    if section.is_empty() {
        return "the top level".to_owned();
    }
    if let Some(named) = section.strip_suffix(".*") {
        return format!("[{named}.NAME]");
    }
    match section.rsplit_once('.') {
        _ if shared(section).is_some() => format!("[{section}]"),
        Some((outer, name)) => format!("`{name}` of {}", header(outer)),
        None if find(section).is_some_and(|key| matches!(key.kind, Kind::Sections)) => {
            format!("[[{section}]]")
        }
        None => format!("[{section}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_unique_and_their_sections_exist() {
        for (at, key) in TABLE.iter().enumerate() {
            assert!(TABLE[..at].iter().all(|other| other.path != key.path), "{} twice", key.path);
            let section = key.section().trim_end_matches(".*");
            assert!(section.is_empty() || find(section).is_some(), "{} has no section", key.path);
        }
    }

    #[test]
    fn documentation_is_one_sentence_without_its_period() {
        for key in TABLE {
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.') && !key.doc.contains('|'), "{}", key.path);
        }
    }

    #[test]
    fn keys_of_planned_sections_are_planned() {
        for key in TABLE {
            let mut section = key.section();
            while !section.is_empty() {
                let planned = find(section).is_some_and(|key| key.support == Support::Planned);
                assert!(!planned || key.support == Support::Planned, "{}", key.path);
                section = section.rsplit_once('.').map_or("", |(outer, _)| outer);
            }
        }
    }

    #[test]
    fn choices_with_a_name_match_any_name() {
        let choice = Choice { word: "hash:cookie:NAME", support: Support::Planned };
        assert!(choice.matches("hash:cookie:session"));
        assert!(!choice.matches("hash:cookie:"));
        assert!(!choice.matches("hash:cooky:x"));
    }

    #[test]
    fn what_can_be_shared_can_be_switched_off() {
        for key in in_section("defaults.route").chain(in_section("policy.*")) {
            // All others have a default that can be written.
            assert!(key.can_be_off() || matches!(key.default, Default::Toml(_)), "{}", key.path);
            assert!(!key.can_be_off() || !matches!(key.kind, Kind::Bool | Kind::BoolOrTable), "{}", key.path);
        }
        let of = |path: &str| find(path).unwrap().can_be_off();
        assert!(of("route.basic_auth") && of("route.allow") && of("route.policy") && of("route.max_body"));
        assert!(!of("route.server") && !of("route.compress") && !of("route.log_one_in"));
        assert!(!of("listener.allow"));
    }

    #[test]
    fn headers() {
        assert_eq!(header("limits"), "[limits]");
        assert_eq!(header("route"), "[[route]]");
        assert_eq!(header("backend.*"), "[backend.NAME]");
        assert_eq!(header("defaults.route"), "[defaults.route]");
        assert_eq!(header("route.client_auth"), "`client_auth` of [[route]]");
    }
}
