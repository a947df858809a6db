//! The items in the lines of an edited text, which exists in no file.

use toml_edit::{DocumentMut, Item as Toml, Table, Value};

use super::EDITED;
use crate::error::At;
use crate::model::Config;

/// The item in a line (from 1) of `text`, by its usual name, with its place in the file of `config`; `None`
/// outside items.
pub(super) fn item_at(text: &str, line: usize, config: &Config) -> Option<String> {
    let header = text.lines().take(line).filter(|written| written.starts_with('[')).last()?;
    if header.starts_with("[defaults.") || header.starts_with("[policy.") {
        return Some(header.to_owned());
    }
    if let Some(name) = header.strip_prefix("[backend.") {
        let name = name.trim_end_matches(']').trim_matches('"');
        let at = config.backends.iter().find(|one| one.name.as_str() == name).map(|one| &one.at);
        return Some(called("backend", name, at));
    }
    let kind = header.strip_prefix("[[")?.strip_suffix("]]")?;
    // Items of a list are counted from the first.
    let count = text.lines().take(line).filter(|written| *written == header).count();
    let document: DocumentMut = text.parse().ok()?;
    let table = document.get(kind).and_then(Toml::as_array_of_tables)?.get(count.checked_sub(1)?)?;
    let name = name_of(kind, table);
    let at = match kind {
        "route" => config.routes.iter().find(|one| one.name() == name).map(|one| &one.at),
        "listener" => config.listeners.iter().find(|one| one.name.as_str() == name).map(|one| &one.at),
        "notify" => config.telemetry.notify.iter().find(|one| one.name.as_str() == name).map(|one| &one.at),
        _ => config.certificates.iter().find(|one| one.name() == name).map(|one| &one.at),
    };
    Some(called(kind, &name, at))
}

/// The name of an item of a list, from its keys.
pub(super) fn name_of(kind: &str, table: &Table) -> String {
    match kind {
        "route" => route(table),
        "listener" | "notify" => texts(table, "name").concat(),
        _ => {
            let keys = ["cert", "directory", "names", "acme"];
            let name = keys.iter().map(|key| texts(table, key).join(",")).find(|name| !name.is_empty());
            name.unwrap_or_default()
        }
    }
}

fn called(kind: &str, name: &str, at: Option<&At>) -> String {
    match at.and_then(At::place).filter(|place| &*place.file != EDITED) {
        Some(place) => format!("{kind} `{name}` ({}:{})", place.file, place.line),
        None => format!("{kind} `{name}`"),
    }
}

/// The name of a route, in the form of [`RouteConfig::name`](crate::model::RouteConfig::name).
fn route(table: &Table) -> String {
    let mut name = texts(table, "host").join(",");
    name.extend(texts(table, "path").into_iter().filter(|path| path != "/"));
    let alpn = texts(table, "alpn").join(",");
    if !alpn.is_empty() {
        let gap = if name.is_empty() { "" } else { " " };
        name.push_str(&format!("{gap}alpn={alpn}"));
    }
    if name.is_empty() { "default".to_owned() } else { name }
}

/// The texts of a key with one or several values.
fn texts(table: &Table, key: &str) -> Vec<String> {
    match table.get(key).and_then(Toml::as_value) {
        Some(Value::String(one)) => vec![one.value().clone()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
