//! Sections as TOML, as typed, but with absolute paths, because the text may be parsed in another directory.

use super::{Pair, Section, Spanned, Value};
use crate::error::SourceText;
use crate::folder::joined;
use crate::keys::{self, Key};
use crate::literal::{array, quoted};
use crate::model::KeySetUrl;
use crate::settings::Scalar;

/// Keys of routes, and of shared sections, that name a file or a directory.
const FILES: [&str; 10] = [
    "route.root",
    "route.redirects",
    "route.respond.file",
    "route.error_pages",
    "route.client_auth.ca",
    "route.client_auth.crl",
    "route.client_auth.trust_domains",
    "route.basic_auth",
    "route.basic_auth.file",
    "route.jwt.ca",
];

/// Keys with values that name a file after a prefix.
const PREFIXED: [(&str, &str); 5] = [
    ("route.allow", "file:"),
    ("route.deny", "file:"),
    ("route.server", "unix:"),
    ("route.passthrough", "unix:"),
    ("route.forward_auth.server", "unix:"),
];

/// The key that takes a file or a URL.
const FILE_OR_URL: &str = "route.jwt.jwks";

impl Section {
    /// The keys of this section, one per line, in the order of the table; `path` is its path there.
    pub(crate) fn written(&self, path: &str, source: &SourceText) -> String {
        self.pairs_of(path, source).into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }

    fn pairs_of(&self, path: &str, source: &SourceText) -> Vec<(&'static str, String)> {
        let value = |key: &'static Key| Some((key.name(), text(key, self.value(key.name())?, source)));
        keys::in_section(path).filter_map(value).collect()
    }
}

fn text(key: &Key, value: &Spanned<Value>, source: &SourceText) -> String {
    match &value.value {
        Value::Scalar(Scalar::Text(text)) => quoted(&absolute(key, text, value.span.start, source)),
        Value::Scalar(scalar) => scalar.to_string(),
        Value::List(texts) => list(key, texts.iter(), source),
        Value::Map(pairs) => map(key, pairs, source),
        Value::Section(section) => table(key, section, source),
        Value::Sections(sections) => {
            let tables: Vec<String> = sections.iter().map(|section| table(key, section, source)).collect();
            format!("[{}]", tables.join(", "))
        }
        // No key of a route is a section with names.
        Value::Named(_) => "{}".to_owned(),
        Value::Off => "false".to_owned(),
    }
}

fn table(key: &Key, section: &Section, source: &SourceText) -> String {
    let pairs = section.pairs_of(key.path, source);
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

fn list<'t>(key: &Key, texts: impl Iterator<Item = &'t Spanned<String>>, source: &SourceText) -> String {
    let texts: Vec<String> = texts.map(|text| absolute(key, &text.value, text.span.start, source)).collect();
    array(&texts)
}

/// A table with user-defined keys. Several pairs of one key form a list.
fn map(key: &Key, pairs: &[Pair], source: &SourceText) -> String {
    let of_one_key = pairs.chunk_by(|(one, _), (other, _)| one.value == other.value);
    let written: Vec<String> = of_one_key
        .map(|pairs| {
            let value = match pairs {
                [(_, one)] => quoted(&absolute(key, &one.value, one.span.start, source)),
                several => list(key, several.iter().map(|(_, value)| value), source),
            };
            format!("{} = {value}", quoted(&pairs[0].0.value))
        })
        .collect();
    format!("{{ {} }}", written.join(", "))
}

/// A text of a key, with an absolute path if it names a file.
fn absolute(key: &Key, text: &str, at: usize, source: &SourceText) -> String {
    let prefix = match PREFIXED.iter().find(|(path, _)| *path == key.path) {
        Some((_, prefix)) => prefix,
        None if FILES.contains(&key.path) || key.path == FILE_OR_URL && !KeySetUrl::is_meant(text) => "",
        None => return text.to_owned(),
    };
    match text.strip_prefix(prefix) {
        Some(path) => format!("{prefix}{}", joined(source.folder(at), path).display()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{Kind, TABLE};

    #[test]
    fn every_key_that_names_a_file_is_known() {
        for key in TABLE.iter().filter(|key| key.path.starts_with("route.")) {
            let (Kind::Text(what) | Kind::List(what) | Kind::Map(what) | Kind::TextOrTable(what)) = key.kind
            else {
                continue;
            };
            // These are files below `root`, or `FILE` stands for an element.
            let is_below_root = ["route.index", "route.try", "route.fallback"].contains(&key.path);
            let words = ["path of", "file's path", "paths of", "PEM", "unix:", "file:", "FILE", ".html"];
            let names_a_file = !is_below_root && words.iter().any(|word| what.contains(word));
            let is_known = FILES.contains(&key.path)
                || key.path == FILE_OR_URL
                || PREFIXED.iter().any(|(path, _)| *path == key.path);
            assert_eq!(names_a_file, is_known, "{}", key.path);
        }
    }
}
