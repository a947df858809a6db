//! The configuration as typed: every value of the right type and within its bounds, with its place.
//!
//! This stage knows the table of keys but no meanings. It reports invalid TOML, unknown and planned keys,
//! wrong types, invalid words, and numbers out of bounds; the result holds only values that the table allows,
//! so that the next stage need not check types.

use std::collections::BTreeMap;
use std::time::Duration;

use toml::de::DeTable;

use crate::error::{Problem, ProblemCollector, Span, shown};
use crate::keys::{self, Default, Key};
use crate::settings::Scalar;
use crate::suggest::nearest;

mod foreign;
mod shared;
mod value;
mod written;

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Spanned<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

/// One value as the table of keys allows it.
#[derive(Clone, Debug)]
enum Value {
    Scalar(Scalar),
    List(Vec<Spanned<String>>),
    Section(Section),
    Sections(Vec<Section>),
    Named(Vec<(Spanned<String>, Section)>),
    Map(Vec<Pair>),
    /// `false`: inherits nothing from other sections.
    Off,
}

/// A user-defined key, and one of its values.
pub(crate) type Pair = (Spanned<String>, Spanned<String>);

/// The content of one section.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The place of the header, or of the inline table.
    pub(crate) span: Span,
    entries: BTreeMap<&'static str, RawEntry>,
}

#[derive(Clone, Debug)]
struct RawEntry {
    key: Span,
    /// `None` if the value was reported as wrong.
    value: Option<Spanned<Value>>,
}

/// Reads the whole source, and merges its files into one section.
pub(crate) fn read(report: &mut ProblemCollector<'_>) -> Section {
    let source = report.source;
    let mut files = source.files().map(|(base, text)| {
        report.begin(base);
        let root = parse(text, report);
        Section::read(root.get_ref(), "", report.here(root.span()), report)
    });
    let first = files.next();
    let rest: Vec<Section> = files.collect();
    let mut root = first.unwrap_or_else(|| Section { span: 0..0, entries: BTreeMap::new() });
    for file in rest {
        root.merge(file, report);
    }
    root
}

/// Parses one file, and reports invalid TOML.
pub(crate) fn parse<'t>(text: &'t str, report: &mut ProblemCollector<'_>) -> toml::Spanned<DeTable<'t>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        let problem = syntax(error.message(), text.get(span.clone()).unwrap_or_default());
        report.syntax(&report.here(span), problem);
    }
    root
}

fn syntax(message: &str, at: &str) -> Problem {
    if message == "duplicate key" {
        return Problem::new(format!("`{at}` is written twice")).help("keep one of the two");
    }
    let problem = Problem::new(message);
    if message.contains("string values must be quoted") || message.contains("missing value") {
        return problem.help("strings stand in double quotes: key = \"value\"");
    }
    problem
}

impl Section {
    fn read(table: &DeTable<'_>, path: &str, span: Span, report: &mut ProblemCollector<'_>) -> Section {
        let mut entries = BTreeMap::new();
        for (name, value) in table {
            let key_span = report.here(name.span());
            let Some(key) = keys::find_in(path, name.get_ref()) else {
                let is_section = value.get_ref().is_table() || path.is_empty() && value.get_ref().is_array();
                report.local(&key_span, unknown(path, name.get_ref(), is_section));
                continue;
            };
            let value = if key.support.is_now() {
                let value = value::read(key, value, report);
                value.filter(|value| is_filled(key, &value.value, &key_span, report))
            } else {
                report.local(&key_span, unsupported(&format!("`{}`", key.name())).help("leave it out"));
                None
            };
            entries.insert(key.name(), RawEntry { key: key_span, value });
        }
        for key in keys::in_section(path).filter(|key| key.support.is_now()) {
            if key.default == Default::Required && !entries.contains_key(key.name()) {
                let problem = Problem::new(format!("{} lacks `{}`", key.header(), key.name()));
                report.whole(&span, problem.help(format!("add `{}`: {}", key.name(), lower(key.doc))));
            }
        }
        Section { span, entries }
    }

    /// Merges an included file: repeatable sections add up, anything else may be in one file only.
    fn merge(&mut self, file: Section, report: &mut ProblemCollector<'_>) {
        for (name, entry) in file.entries {
            if name == "include" {
                let problem = Problem::new("a file that is included cannot include others");
                report.local(&entry.key, problem.help("name them in the first file"));
                continue;
            }
            let Some(mine) = self.entries.get_mut(name) else {
                self.entries.insert(name, entry);
                continue;
            };
            match (mine.value.as_mut().map(|value| &mut value.value), entry.value.map(|value| value.value)) {
                (Some(Value::Sections(mine)), Some(Value::Sections(more))) => mine.extend(more),
                (Some(Value::Named(mine)), Some(Value::Named(more))) => {
                    for (name, section) in more {
                        let Some((other, _)) = mine.iter().find(|(other, _)| other.value == name.value)
                        else {
                            mine.push((name, section));
                            continue;
                        };
                        report.local(&name.span, twice(&name.value, &other.span, report));
                    }
                }
                // An invalid one was reported.
                (Some(Value::Sections(_) | Value::Named(_)) | None, None) | (None, Some(_)) => {
                    mine.value = None;
                }
                _ => report.local(&entry.key, twice(name, &mine.key, report)),
            }
        }
    }

    /// Returns `true` if the key is present, even with an invalid value.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Returns `true` if the key is present with an invalid value, which was reported.
    pub(crate) fn is_wrong(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.value.is_none())
    }

    /// Returns `true` if some key has an invalid value, so that the section is not as it is meant.
    pub(crate) fn has_wrong(&self) -> bool {
        self.entries.values().any(|entry| entry.value.is_none())
    }

    /// The place of the key, or else of the section's header.
    pub(crate) fn key_span(&self, name: &str) -> &Span {
        self.entries.get(name).map_or(&self.span, |entry| &entry.key)
    }

    fn value(&self, name: &str) -> Option<&Spanned<Value>> {
        self.entries.get(name)?.value.as_ref()
    }

    /// A plain value or a list of strings.
    pub(crate) fn setting(&self, name: &str) -> Option<Spanned<Scalar>> {
        let Spanned { value, span } = self.value(name)?;
        let value = match value {
            Value::Scalar(value) => value.clone(),
            Value::List(texts) => Scalar::List(texts.iter().map(|text| text.value.clone()).collect()),
            _ => return None,
        };
        Some(Spanned { value, span: span.clone() })
    }

    pub(crate) fn scalar(&self, name: &str) -> Option<Spanned<&Scalar>> {
        match self.value(name)? {
            Spanned { value: Value::Scalar(value), span } => Some(Spanned { value, span: span.clone() }),
            _ => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<Spanned<&str>> {
        let Spanned { value, span } = self.scalar(name)?;
        match value {
            Scalar::Text(text) => Some(Spanned { value: text, span }),
            _ => None,
        }
    }

    pub(crate) fn bool(&self, name: &str) -> Option<bool> {
        match self.scalar(name)?.value {
            Scalar::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn integer(&self, name: &str) -> Option<u64> {
        match self.scalar(name)?.value {
            Scalar::Integer(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        match self.scalar(name)?.value {
            Scalar::Duration(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn pairs(&self, name: &str) -> &[Pair] {
        match self.value(name) {
            Some(Spanned { value: Value::Map(pairs), .. }) => pairs,
            _ => &[],
        }
    }

    pub(crate) fn list(&self, name: &str) -> Option<&[Spanned<String>]> {
        match &self.value(name)?.value {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        match &self.value(name)?.value {
            Value::Section(section) => Some(section),
            _ => None,
        }
    }

    pub(crate) fn sections(&self, name: &str) -> &[Section] {
        match self.value(name) {
            Some(Spanned { value: Value::Sections(sections), .. }) => sections,
            _ => &[],
        }
    }

    pub(crate) fn sections_mut(&mut self, name: &str) -> &mut [Section] {
        match self.entries.get_mut(name).and_then(|entry| entry.value.as_mut()) {
            Some(Spanned { value: Value::Sections(sections), .. }) => sections,
            _ => &mut [],
        }
    }

    pub(crate) fn named(&self, name: &str) -> &[(Spanned<String>, Section)] {
        match self.value(name) {
            Some(Spanned { value: Value::Named(named), .. }) => named,
            _ => &[],
        }
    }
}

/// Reports an empty list where that is a mistake.
fn is_filled(key: &Key, value: &Value, span: &Span, report: &mut ProblemCollector<'_>) -> bool {
    let (Value::List(list), Some(remedy)) = (value, key.remedy_if_empty) else { return true };
    if list.is_empty() {
        report.local(span, Problem::new(format!("`{}` is empty", key.name())).help(remedy));
    }
    !list.is_empty()
}

/// The error for a key in two files.
fn twice(name: &str, other: &Span, report: &ProblemCollector<'_>) -> Problem {
    let place = report.source.place(other.start);
    Problem::new(format!("`{}` is written twice: also at {place}", shown(name))).help("keep one of the two")
}

/// The error for a planned part of the language.
fn unsupported(what: &str) -> Problem {
    Problem::new(format!("{what} is not supported by this version yet"))
}

/// Lowers the first letter of a sentence after a colon.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

fn unknown(path: &str, name: &str, is_section: bool) -> Problem {
    let kind = if is_section { "section" } else { "key" };
    let place = if path.is_empty() { String::new() } else { format!(" in {}", keys::header(path)) };
    let problem = Problem::new(format!("unknown {kind} `{}`{place}", shown(name)));
    if let Some(answer) = foreign::answer(path, name) {
        return problem.help(answer);
    }
    let here: Vec<&str> = keys::in_section(path).map(Key::name).collect();
    if let Some(near) = nearest(name, here.iter().copied()) {
        return problem.help(format!("the nearest one is `{near}`"));
    }
    let of_route = |key: &&Key| key.section() == "route" && key.accepts_table();
    let mut known = keys::TABLE.iter().filter(|key| key.name() == name && key.support.is_now());
    let elsewhere =
        if is_section { known.clone().find(of_route).or_else(|| known.next()) } else { known.next() };
    match elsewhere {
        Some(key) if key.section().is_empty() && !key.kind.is_section() => {
            problem.help(format!("`{name}` stands at the top, above the first [section]"))
        }
        Some(key) if is_section && of_route(&key) => {
            problem.help(format!("it is a part of a route: write [{}] below its [[route]]", key.path))
        }
        Some(key) if key.kind.is_section() => problem.help("write it as a section of its own"),
        Some(key) => problem.help(format!("`{name}` is a key of {}", key.header())),
        None => problem.suggest("key", None, &here),
    }
}
