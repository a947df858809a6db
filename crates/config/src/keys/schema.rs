//! The table of keys as a JSON Schema, by which editors complete and check a file.
//!
//! Draft 7: Taplo, which is behind most editors of TOML, and VS Code know it, and later drafts divide `dependencies`.
//! Taplo offers each schema in `anyOf`, `allOf` and `oneOf` as a completion of its own, so that a value of several types
//! has one schema with several types, and conditions stand in `then` and `else`, which it only checks.
//!
//! A file that `check` accepts is valid. What depends on several sections, on files or on this machine is left to
//! `check`.

use serde_json::{Map, Value, json};
use toml::de::{DeTable, DeValue};

use super::rules::{self, KeyRule};
use super::{Default, Key, Kind, TargetKind, in_section, targets};

mod values;

use values::SchemaValues;

/// The schema as text, indented.
pub fn schema() -> String {
    let mut values = SchemaValues::default();
    let mut root = table("", &mut values);
    let title = concat!("Configuration of Offramp ", env!("CARGO_PKG_VERSION"));
    root["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    root["title"] = json!(title);
    root["definitions"] = Value::Object(values.definitions());
    // A value of JSON has a text.
    serde_json::to_string_pretty(&root).unwrap_or_default() + "\n"
}

/// The schema of a section: its keys and no others.
fn table(section: &str, values: &mut SchemaValues) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in in_section(section).filter(|key| key.support.is_now()) {
        // Keys that several sections share are defined once.
        let schema = if key.scope.is_shared() { values.shared(key) } else { entry(key, values) };
        properties.insert(key.name().to_owned(), schema);
        if key.default == Default::Required {
            required.push(key.name());
        }
    }
    let mut table = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    if let Some(conditions) = conditions(section) {
        table["if"] = json!({ "type": "object" });
        table["then"] = conditions;
    }
    table
}

/// The schema of a key with its description and default.
fn entry(key: &Key, values: &mut SchemaValues) -> Value {
    let mut entry = value(key, values);
    if key.can_be_off() {
        match entry.get_mut("anyOf").and_then(Value::as_array_mut) {
            Some(ways) => ways.push(json!({ "enum": [false] })),
            None => {
                entry = either(entry, json!({ "type": "boolean" }));
                entry["not"] = json!({ "enum": [true] });
            }
        }
    }
    entry["description"] = json!(description(key));
    if let Default::Toml(text) = key.default {
        entry["default"] = literal(text);
    }
    entry
}

fn value(key: &Key, values: &mut SchemaValues) -> Value {
    match key.kind {
        Kind::Section => table(key.path, values),
        Kind::Sections => {
            let item = table(key.path, values);
            let list = json!({ "type": "array", "items": item });
            // A single item within a section may stand without brackets.
            if key.section().is_empty() { list } else { either(list, item) }
        }
        Kind::Named => named(key, values),
        Kind::TextOrTable(_) | Kind::BoolOrTable => either(values.of(key), table(key.path, values)),
        Kind::ChoiceOrTable(_) => json!({ "anyOf": [values.of(key), table(key.path, values)] }),
        _ => values.of(key),
    }
}

/// One schema for values of the types of both. What one says about its type is without effect on others; the
/// conditions of both stand apart.
fn either(mut one: Value, other: Value) -> Value {
    let types = |schema: &Value| match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let all = [types(&one), types(&other)].concat();
    let (Some(words), Value::Object(others)) = (one.as_object_mut(), other) else { return one };
    let mut conditions = Map::new();
    for (word, value) in others {
        match word.as_str() {
            "if" | "then" => drop(conditions.insert(word, value)),
            _ => drop(words.insert(word, value)),
        }
    }
    if words.contains_key("if") && !conditions.is_empty() {
        words.insert("else".to_owned(), Value::Object(conditions));
    } else {
        words.extend(conditions);
    }
    words.insert("type".to_owned(), Value::Array(all));
    one
}

/// A section per name.
fn named(key: &Key, values: &mut SchemaValues) -> Value {
    let inner = table(&format!("{}.*", key.path), values);
    match key.names.and_then(crate::syntax::TextSyntax::pattern) {
        None => json!({ "type": "object", "additionalProperties": inner }),
        Some(names) => {
            json!({ "type": "object", "patternProperties": { names: inner }, "additionalProperties": false })
        }
    }
}

/// The conditions between the keys of a section.
fn conditions(section: &str) -> Option<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut dependencies: Map<String, Value> = Map::new();
    for rule in rules::of(section) {
        let (key, condition) = match rule {
            KeyRule::Some(keys) => {
                all.push(any_of(keys));
                continue;
            }
            KeyRule::Without(key, others) => (key, json!({ "not": any_of(others) })),
            KeyRule::Beside(key, others) => (key, any_of(others)),
            KeyRule::Where(key, other, word) => {
                (key, json!({ "properties": { other: { "enum": [word] } }, "required": [other] }))
            }
            KeyRule::BesideFalse(key, other) => {
                (key, json!({ "properties": { other: { "enum": [false] } } }))
            }
        };
        also(&mut dependencies, key, condition);
    }
    if section == "route" {
        let each: Vec<Value> = targets().map(|(name, _)| json!({ "required": [name] })).collect();
        all.push(json!({ "oneOf": each }));
        for key in in_section(section) {
            if let Some(condition) = beside_target(key) {
                also(&mut dependencies, key.name(), condition);
            }
        }
    }
    if !dependencies.is_empty() {
        all.push(json!({ "dependencies": dependencies }));
    }
    (!all.is_empty()).then(|| json!({ "allOf": all }))
}

/// Adds a condition that holds where the key is written.
fn also(dependencies: &mut Map<String, Value>, key: &str, condition: Value) {
    let all = dependencies.entry(key).or_insert_with(|| json!({ "allOf": [] }));
    if let Some(all) = all.get_mut("allOf").and_then(Value::as_array_mut) {
        all.push(condition);
    }
}

fn any_of(keys: &[&str]) -> Value {
    json!({ "anyOf": keys.iter().map(|key| json!({ "required": [key] })).collect::<Vec<_>>() })
}

/// The condition that a route has a target with which the key has an effect; `None` where all have one.
fn beside_target(key: &Key) -> Option<Value> {
    let scope = &key.scope;
    let goes = |kind: TargetKind| scope.goes_with(kind) || kind == TargetKind::Relay && !scope.is_of_files();
    let (with, without): (Vec<_>, Vec<_>) = targets().partition(|(_, kind)| goes(*kind));
    if scope.target().is_some() || without.is_empty() {
        return None;
    }
    let mut ways: Vec<Value> = with.iter().map(|(name, _)| json!({ "required": [name] })).collect();
    if key.can_be_off() {
        ways.push(json!({ "properties": { key.name(): { "enum": [false] } } }));
    }
    Some(json!({ "anyOf": ways }))
}

/// The documentation of a key in one line, with what it takes and what holds without it.
fn description(key: &Key) -> String {
    let mut text = format!("{}.", without_links(key.doc));
    if !key.kind.is_section() {
        let off = if key.can_be_off() { "; or `false`" } else { "" };
        text.push_str(&format!(" Takes: {}{off}.", key.kind));
    }
    let without = match key.default {
        Default::Toml(value) => format!(" Default: `{value}`."),
        Default::Absent(meaning) => format!(" Absent: {meaning}."),
        Default::Required => " It must be written.".to_owned(),
    };
    text + &without
}

/// Replaces links to pages, which editors cannot follow, by their text.
fn without_links(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((_, following)) = after.split_once(')') else { break };
        match before.rfind('[') {
            Some(begin) => {
                out.push_str(&before[..begin]);
                out.push_str(&before[begin + 1..]);
            }
            None => out.push_str(before),
        }
        rest = following;
    }
    out + rest
}

/// The value of a literal of TOML; `null` if it is none, which a test excludes.
fn literal(text: &str) -> Value {
    let document = format!("value = {text}");
    let (root, _) = DeTable::parse_recoverable(&document);
    root.get_ref().get("value").map_or(Value::Null, |value| json_of(value.get_ref()))
}

/// A value of TOML as JSON.
fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Boolean(value) => json!(value),
        DeValue::Integer(number) => json!(number.as_str().parse::<u64>().ok()),
        DeValue::String(text) => json!(text),
        DeValue::Array(values) => values.iter().map(|value| json_of(value.get_ref())).collect(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
