//! The table of keys, and everything derived from it.
//!
//! A key is a row of [`TABLE`]: path, kind, default, reload class, support, scope, reading, spelling, the remedy for an
//! empty list and a line of documentation. Errors about unknown keys, types and ranges, conflicts with the target of a
//! route or the mode of a listener, `docs/reference/keys/`, the JSON Schema, and the reading and printing of plain
//! values all come from the row, so that they cannot contradict each other. The *meaning* of values is the model's.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use crate::model::Config;
use crate::settings::{Bindable, Binding};
use crate::syntax::TextSyntax;
use crate::units;

pub use crate::choice::{Choice, Support};
pub(crate) use reading::KeyReading;
pub(crate) use scope::{KeyScope, Sharing, TargetKind};
pub use table::TABLE;

pub mod markdown;
mod reading;
mod rules;
pub mod schema;
mod scope;
mod table;

/// One key of the language.
#[derive(Debug)]
pub struct Key {
    /// Sections and name joined by dots; `*` stands for a user-defined name: `backend.*.servers`.
    pub path: &'static str,
    /// The type of the value, or the kind of section.
    pub kind: Kind,
    /// The default of an absent key.
    pub default: Default,
    /// The time at which a change takes effect.
    pub reload: Reload,
    /// The first version with support.
    pub support: Support,
    /// The routes that a key of `[[route]]` applies to, and the sections that share it.
    pub(crate) scope: KeyScope,
    /// The way of the value to the model.
    pub(crate) reading: KeyReading,
    /// The spelling of a text, where the type of its field does not say it.
    pub(crate) syntax: Option<TextSyntax>,
    /// The spelling of names that users choose.
    pub(crate) names: Option<TextSyntax>,
    /// The remedy for an empty list, where that is a mistake.
    pub(crate) remedy_if_empty: Option<&'static str>,
    /// The meaning: one sentence in Markdown, without the final period.
    pub doc: &'static str,
}

impl Key {
    /// The name within its section: the last part of the path.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The path of the key's section; empty at the top level.
    pub fn section(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// The path prefix of the keys within this section.
    pub fn inner(&self) -> String {
        match self.kind {
            Kind::Named => format!("{}.*", self.path),
            _ => self.path.to_owned(),
        }
    }

    /// The full path; `NAME` stands for a user-defined name.
    pub fn heading(&self) -> String {
        self.path.replace('*', "NAME")
    }

    /// The values that are valid, in Markdown.
    pub fn takes(&self) -> String {
        let mut takes = self.kind.to_string();
        if self.can_be_off() {
            takes.push_str("; or `false`");
        }
        takes
    }

    /// Returns `true` if a route may write `false` to override what its policies and the defaults of routes
    /// say. This holds for shared keys without a value for "off"; the others have one.
    pub fn can_be_off(&self) -> bool {
        self.section() == "route" && self.scope.is_shared() && matches!(self.default, Default::Absent(_))
    }

    /// The spelling of a text, or of an element of a list.
    pub(crate) fn syntax(&self) -> Option<TextSyntax> {
        self.syntax.or_else(|| self.reading.field()?.syntax())
    }

    /// The header of the key's section: `[limits]`, `[[route]]`, `[backend.NAME]`, or `the top level`.
    pub fn header(&self) -> String {
        header(self.section())
    }

    /// Returns `true` if the key may be a table of its own.
    pub(crate) fn accepts_table(&self) -> bool {
        self.kind.takes_table()
    }
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A boolean: `true` or `false`.
    Bool,
    /// An integer within inclusive bounds.
    Integer {
        /// The smallest value that is valid.
        min: u64,
        /// The largest value that is valid.
        max: u64,
    },
    /// A string with this description.
    Text(&'static str),
    /// A string or a list of strings with this description.
    List(&'static str),
    /// One of these words.
    Choice(&'static [Choice]),
    /// One of these words, or a file path, which contains a `/`.
    Output(&'static [Choice]),
    /// One of these words, or a table of details.
    ChoiceOrTable(&'static [Choice]),
    /// A string with this description, or a table of details.
    TextOrTable(&'static str),
    /// `true`, `false`, or a table of details.
    BoolOrTable,
    /// Numbers and words, one or a list, with this description.
    Mixed(&'static str),
    /// A table with user-defined keys and a string or a list of strings each, with this description.
    Map(&'static str),
    /// A duration within inclusive bounds.
    Duration {
        /// The shortest duration that is valid.
        min: Duration,
        /// The longest duration that is valid.
        max: Duration,
    },
    /// A size within inclusive bounds.
    Size {
        /// The smallest size in bytes.
        min: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// A word, or a size within inclusive bounds.
    WordOrSize {
        /// The word in the place of a size.
        word: &'static str,
        /// The smallest size in bytes.
        min: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// A rate per second, minute or hour.
    Rate,
    /// A section that occurs once: `[log]`.
    Section,
    /// A section that occurs any number of times: `[[route]]`.
    Sections,
    /// A section per user-defined name: `[backend.NAME]`.
    Named,
}

impl Kind {
    /// Returns `true` if the value may be a table.
    fn takes_table(self) -> bool {
        let either =
            matches!(self, Kind::ChoiceOrTable(_) | Kind::TextOrTable(_) | Kind::BoolOrTable | Kind::Map(_));
        self.is_section() || either
    }

    /// Returns `true` for sections with a header of their own.
    pub fn is_section(self) -> bool {
        matches!(self, Kind::Section | Kind::Sections | Kind::Named)
    }

    /// The valid words, if the key takes words.
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

/// The default of an absent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This value, in TOML.
    Toml(&'static str),
    /// No value that can be written; the text describes the behaviour.
    Absent(&'static str),
    /// None: the key is required in its section.
    Required,
}

impl fmt::Display for Default {
    /// Writes Markdown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Default::Toml(value) => write!(f, "`{value}`"),
            Default::Absent(meaning) => f.write_str(meaning),
            Default::Required => f.write_str("must be written"),
        }
    }
}

/// The time at which a change of a key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// On reload, for new connections.
    Live,
    /// After a restart of the program.
    Restart,
}

/// Looks up a row by a path such as `limits.connections` or `backend.*.servers`.
pub fn find(path: &str) -> Option<&'static Key> {
    TABLE.iter().find(|key| key.path == path)
}

/// Looks up a row by the key's section and name.
pub fn find_in(section: &str, name: &str) -> Option<&'static Key> {
    in_section(section).find(|key| key.name() == name)
}

/// The supported sections that have keys, in the order of the table; the top level is not one of them.
pub fn sections() -> impl Iterator<Item = &'static Key> {
    TABLE.iter().filter(|key| key.support.is_now() && plain_in(&key.inner()).next().is_some())
}

/// The supported keys of a section that are no sections with headers of their own.
pub fn plain_in(section: &str) -> impl Iterator<Item = &'static Key> {
    in_section(section).filter(|key| key.support.is_now() && !key.kind.is_section())
}

/// The rows of a section in the order of the table.
pub fn in_section(section: &str) -> impl Iterator<Item = &'static Key> {
    let sharing = sharing(section);
    let section = if sharing.is_some() { "route" } else { section };
    let takes = move |key: &&Key| sharing.is_none_or(|sharing| key.scope.is_shared_by(sharing));
    BY_SECTION.get(section).into_iter().flatten().copied().filter(takes)
}

/// The keys of a section that are bound to fields of `T`.
pub(crate) fn bound<T: Bindable>(
    section: &str,
) -> impl Iterator<Item = (&'static Key, &'static Binding<T>)> + use<'_, T> {
    in_section(section).filter_map(|key| Some((key, T::binding(key.reading.field()?)?)))
}

/// The settings: keys with one plain value of sections that are written once.
pub(crate) fn settings() -> impl Iterator<Item = (&'static Key, &'static Binding<Config>)> {
    TABLE.iter().filter_map(|key| Some((key, Config::binding(key.reading.field()?)?)))
}

/// The table by section, for speed: files have thousands of sections and keys.
static BY_SECTION: LazyLock<HashMap<&'static str, Vec<&'static Key>>> = LazyLock::new(|| {
    let mut sections: HashMap<_, Vec<_>> = HashMap::new();
    TABLE.iter().for_each(|key| sections.entry(key.section()).or_default().push(key));
    sections
});

/// Returns `true` if the keys of a section are those of `[[route]]` that routes share.
pub fn is_shared(section: &str) -> bool {
    sharing(section).is_some()
}

/// The kind of a section whose keys routes share; `None` for all other sections.
pub(crate) fn sharing(section: &str) -> Option<Sharing> {
    match section {
        "defaults.route" => Some(Sharing::Defaults),
        "policy.*" => Some(Sharing::Policies),
        _ => None,
    }
}

/// The scope of a key of `[[route]]`.
pub(crate) fn scope_in_route(name: &str) -> &'static KeyScope {
    find_in("route", name).map_or(&KeyScope::EVERY, |key| &key.scope)
}

/// The keys of `[[route]]` that are its targets, each with its kind.
pub(crate) fn targets() -> impl Iterator<Item = (&'static str, TargetKind)> {
    in_section("route").filter_map(|key| Some((key.name(), key.scope.target()?)))
}

/// The header of a section: `[limits]`, `[[route]]`, `[backend.NAME]`; a table within a section as
/// `` `client_auth` of [[route]] ``.
pub fn header(section: &str) -> String {
    if section.is_empty() {
        return "the top level".to_owned();
    }
    if let Some(named) = section.strip_suffix(".*") {
        return format!("[{named}.NAME]");
    }
    match section.rsplit_once('.') {
        _ if sharing(section).is_some() => format!("[{section}]"),
        Some((outer, name)) => format!("`{name}` of {}", header(outer)),
        None if find(section).is_some_and(|key| matches!(key.kind, Kind::Sections)) => {
            format!("[[{section}]]")
        }
        None => format!("[{section}]"),
    }
}

#[cfg(test)]
mod tests;
