//! Configurations in JSON, with the keys and values of the TOML form.

use offramp_config::model::Config;
use offramp_config::{At, EDITED, hide_secrets};
use serde_json::{Map, Value, json};
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table};

use super::ProblemDetails;

/// The configuration as a file, without its secrets.
pub(crate) fn toml(config: &Config) -> String {
    let mut shown = config.clone();
    hide_secrets(&mut shown);
    offramp_config::print(&shown)
}

/// The whole configuration in JSON.
pub(crate) fn whole(config: &Config) -> Map<String, Value> {
    // Printing yields valid TOML; otherwise nothing would be shown.
    let document: DocumentMut = toml(config).parse().unwrap_or_default();
    match table(document.as_table().iter()) {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// The plain values of a configuration, each with its origin.
pub(crate) fn settings(config: &Config, whole: &Map<String, Value>) -> Value {
    let mut settings = Map::new();
    let mut add = |path: String, value: &Value| {
        let origin = config.origins.of(&path).map_or_else(|| "default".to_owned(), origin);
        settings.insert(path, json!({ "value": value, "origin": origin }));
    };
    for (name, value) in whole {
        match value {
            _ if APART.contains(&name.as_str()) => {}
            Value::Object(section) => {
                section.iter().for_each(|(key, value)| add(format!("{name}.{key}"), value));
            }
            _ => add(name.clone(), value),
        }
    }
    Value::Object(settings)
}

/// Sections with operations of their own: items, and settings that routes share.
const APART: [&str; 8] =
    ["notify", "certificate", "acme", "listener", "route", "backend", "defaults", "policy"];

/// The settings that routes share, `[defaults.route]` and the policies, each with its origin.
pub(crate) fn shared(config: &Config, whole: &Map<String, Value>) -> Vec<Value> {
    let sections = config.shared.sections.iter().map(|section| {
        let keys = |all: &str, key: &str| whole.get(all).map_or(Value::Null, |section| section[key].clone());
        let (name, keys) = match &section.policy {
            None => ("defaults.route".to_owned(), keys("defaults", "route")),
            Some(name) => (format!("policy.{name}"), keys("policy", name)),
        };
        json!({ "name": name, "origin": origin(&section.at), "config": keys })
    });
    sections.collect()
}

/// The origin of a setting: file and line, or the API.
pub(crate) fn origin(at: &At) -> String {
    match at.place() {
        None => "implied".to_owned(),
        Some(place) if &*place.file == EDITED => EDITED.to_owned(),
        Some(place) => place.to_string(),
    }
}

/// The items of a kind in order.
pub(crate) fn items<'w>(whole: &'w Map<String, Value>, kind: &str) -> impl Iterator<Item = &'w Value> {
    whole.get(kind).and_then(Value::as_array).into_iter().flatten()
}

fn table<'t>(entries: impl Iterator<Item = (&'t str, &'t Item)>) -> Value {
    Value::Object(entries.map(|(key, item)| (key.to_owned(), json_of(item))).collect())
}

fn json_of(item: &Item) -> Value {
    match item {
        Item::None => Value::Null,
        Item::Value(value) => json_of_value(value),
        Item::Table(inner) => table(inner.iter()),
        Item::ArrayOfTables(list) => list.iter().map(|inner| table(inner.iter())).collect(),
    }
}

fn json_of_value(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(text) => text.value().as_str().into(),
        Toml::Integer(number) => (*number.value()).into(),
        Toml::Float(number) => (*number.value()).into(),
        Toml::Boolean(flag) => (*flag.value()).into(),
        Toml::Datetime(time) => time.value().to_string().into(),
        Toml::Array(list) => list.iter().map(json_of_value).collect(),
        Toml::InlineTable(inner) => {
            Value::Object(inner.iter().map(|(key, value)| (key.to_owned(), json_of_value(value))).collect())
        }
    }
}

/// Parses the keys of an item from a JSON object.
pub(crate) fn keys(bytes: &[u8]) -> Result<Table, ProblemDetails> {
    let mut table = Table::new();
    for (key, value) in object(bytes)? {
        table.insert(&key, Item::Value(toml_of(&key, value)?));
    }
    Ok(table)
}

/// Parses some keys of an item, and the names of null members, which are removed.
pub(crate) fn some_keys(bytes: &[u8]) -> Result<(Table, Vec<String>), ProblemDetails> {
    let (mut table, mut without) = (Table::new(), Vec::new());
    for (key, value) in object(bytes)? {
        if value.is_null() {
            without.push(key);
        } else {
            table.insert(&key, Item::Value(toml_of(&key, value)?));
        }
    }
    Ok((table, without))
}

/// The value of a body.
pub(super) fn parsed(bytes: &[u8]) -> Result<Value, ProblemDetails> {
    offramp_wire::json::value(bytes).map_err(|error| {
        let what = if error.is_data() { "the body" } else { "the body is not JSON" };
        ProblemDetails::wrong(format!("{what}: {error}"))
    })
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, ProblemDetails> {
    let Value::Object(members) = parsed(bytes)? else {
        return Err(ProblemDetails::wrong("the body is a JSON object with the keys of the item"));
    };
    Ok(members)
}

fn toml_of(key: &str, value: Value) -> Result<toml_edit::Value, ProblemDetails> {
    Ok(match value {
        Value::Null => return Err(ProblemDetails::wrong(format!("`{key}` is null: leave it out"))),
        Value::Bool(flag) => flag.into(),
        Value::String(text) => text.into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(real)) => real.into(),
            (None, None) => {
                return Err(ProblemDetails::wrong(format!("`{key}` is a number that is too large")));
            }
        },
        Value::Array(list) => {
            let mut array = Array::new();
            for value in list {
                array.push(toml_of(key, value)?);
            }
            toml_edit::Value::Array(array)
        }
        Value::Object(members) => {
            let mut inner = InlineTable::new();
            for (key, value) in members {
                inner.insert(&key, toml_of(&key, value)?);
            }
            toml_edit::Value::InlineTable(inner)
        }
    })
}

#[cfg(test)]
mod tests {
    use offramp_config::{Environment, parse};

    use super::*;

    #[test]
    fn what_routes_share_is_shown_with_its_origin() {
        let text = "[[route]]\nbackend = \"x\"\npolicy = \"slow\"\n[defaults.route]\nlog_one_in = 10\n\
                    [policy.slow]\ndeny = [\"192.0.2.1\"]\n[backend.x]\nservers = [\"10.0.0.1:80\"]\n";
        let (config, _) = parse(text, "f.toml", &Environment::default()).unwrap();
        let whole = whole(&config);
        let settings = settings(&config, &whole);
        let is_shared = |key: &&String| key.starts_with("defaults") || key.starts_with("policy");
        assert_eq!(settings.as_object().unwrap().keys().find(is_shared), None);
        let expected =
            [("defaults.route", "f.toml:4:1", "log_one_in"), ("policy.slow", "f.toml:6:1", "deny")];
        for (shown, (name, origin, key)) in shared(&config, &whole).iter().zip(expected) {
            assert_eq!((&shown["name"], &shown["origin"]), (&name.into(), &origin.into()), "{shown}");
            assert!(!shown["config"][key].is_null(), "{shown}");
        }
        assert_eq!(shared(&config, &whole).len(), expected.len());
    }

    #[test]
    fn a_configuration_is_shown_with_its_origins_and_without_a_password() {
        let text = "[limits]\nconnections = 77\n[log_store]\nurl = \"postgres://me:secret@h/db\"\n\
                    [[notify]]\nname = \"chat\"\nurl = \"https://hooks.example/T0/secret\"\n\
                    [[route]]\nhost = \"a.example\"\nbackend = \"x\"\n\
                    [backend.x]\nservers = [\"10.0.0.1:80 weight=2\"]\nhealth = { path = \"/up\" }\n";
        let (config, _) = parse(text, "f.toml", &Environment::default()).unwrap();
        let whole = whole(&config);
        let settings = settings(&config, &whole);
        assert_eq!(settings["limits.connections"], json!({ "value": 77, "origin": "f.toml:2:15" }));
        assert_eq!(settings["limits.idle_timeout"]["origin"], "default");
        assert!(settings["log_store.url"]["value"].as_str().unwrap().contains("***"), "{settings}");
        let chat = items(&whole, "notify").next().unwrap();
        assert_eq!(chat["url"], "https://hooks.example/***");
        assert!(!toml(&config).contains("secret"));
        assert_eq!(shared(&config, &whole), [] as [Value; 0]);
        let route = items(&whole, "route").next().unwrap();
        assert_eq!(route["host"], json!(["a.example"]));
        assert_eq!(whole["backend"]["x"]["health"]["path"], "/up");
        // An item as shown can be sent back.
        let keys = keys(whole["backend"]["x"].to_string().as_bytes()).unwrap();
        let again = format!("[backend.x]\n{keys}[[route]]\nhost = \"a.example\"\nbackend = \"x\"\n");
        let (again, _) = parse(&again, "f.toml", &Environment::default()).unwrap();
        assert_eq!(again.backends, config.backends);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (text, why) in [
            ("", "not JSON"),
            ("[]", "a JSON object"),
            ("{\"host\":null}", "leave it out"),
            ("{\"n\":1e999}", "not JSON"),
        ] {
            let problem = keys(text.as_bytes()).unwrap_err();
            assert!(problem.detail.contains(why), "{text}: {}", problem.detail);
        }
    }
}
