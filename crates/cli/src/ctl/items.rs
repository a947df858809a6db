//! Requests that add, change or remove items of the configuration; all kinds work alike.

use offramp_config::keys::{self, Kind};
use serde_json::{Map, Value};

use super::client::AdminRequest;
use super::{query, segment, with};
use crate::failure::Failure;
use crate::flags::ctl::{ChangeOptions, ItemCommand, RouteCommand};

/// Keys of a route that are its target.
const TARGETS: [&str; 7] = ["backend", "server", "split", "passthrough", "redirect", "respond", "root"];

/// Request for a listener, a backend or a certificate, which have their name among their keys.
pub(super) fn keyed(path: &str, command: &ItemCommand) -> Result<AdminRequest, Failure> {
    match command {
        ItemCommand::Add { keys, terms } => Ok(add(path, added(path, &keys.keys)?, terms)),
        ItemCommand::Change { item, keys, terms } => Ok(change(path, &item.name, &keys.keys, terms)),
        ItemCommand::Remove { item, terms } => Ok(remove(path, &item.name, terms)),
    }
}

pub(super) fn route(command: &RouteCommand) -> Result<AdminRequest, Failure> {
    let (host, path, listener, backend, to, keys, terms) = match command {
        RouteCommand::Change { item, keys, terms } => {
            return Ok(change("/routes", &item.name, &keys.keys, terms));
        }
        RouteCommand::Remove { item, terms } => return Ok(remove("/routes", &item.name, terms)),
        RouteCommand::Add { host, path, listener, backend, to, keys, terms } => {
            (host, path, listener, backend, to, keys, terms)
        }
    };
    let mut all = added("/routes", &keys.keys)?;
    let lists = [("host", "host", host), ("listener", "listener", listener)];
    let lists =
        lists.map(|(option, key, values)| (option, key, (!values.is_empty()).then(|| values.clone().into())));
    let texts = [("path", "path", path), ("backend", "backend", backend), ("to", "server", to)];
    let texts = texts.map(|(option, key, value)| (option, key, value.clone().map(Value::from)));
    for (option, key, value) in lists.into_iter().chain(texts) {
        let Some(value) = value else { continue };
        if all.insert(key.to_owned(), value).is_some() {
            return Err(Failure::usage(format_args!(
                "error: --{option} and {key}= are the same key; write one of them"
            )));
        }
    }
    if !TARGETS.iter().any(|key| all.contains_key(*key)) {
        return Err(Failure::usage(
            "error: where does the route lead to?\nName one: --backend NAME, --to ADDRESS, or a key such as \
             redirect=https://example.org or root=/srv/www",
        ));
    }
    Ok(add("/routes", all, terms))
}

fn add(path: &str, keys: Map<String, Value>, terms: &ChangeOptions) -> AdminRequest {
    AdminRequest::json("POST", &with(path, &query(terms)), &Value::Object(keys))
}

fn change(path: &str, name: &str, keys: &[(String, String)], terms: &ChangeOptions) -> AdminRequest {
    AdminRequest::json("PATCH", &with(&one(path, name), &query(terms)), &Value::Object(values(path, keys)))
}

fn remove(path: &str, name: &str, terms: &ChangeOptions) -> AdminRequest {
    AdminRequest::new("DELETE", &with(&one(path, name), &query(terms)))
}

fn one(path: &str, name: &str) -> String {
    format!("{path}/{}", segment(name))
}

/// Keys of a new item; an empty value is refused, since there is no key to remove.
fn added(path: &str, keys: &[(String, String)]) -> Result<Map<String, Value>, Failure> {
    match keys.iter().find(|(_, value)| value.is_empty()) {
        Some((key, _)) => Err(Failure::usage(format_args!("error: `{key}=` has no value"))),
        None => Ok(values(path, keys)),
    }
}

/// Converts keys to JSON: a repeated key becomes one list of all its values, and an empty value becomes null.
fn values(path: &str, keys: &[(String, String)]) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, text) in keys {
        let value = value(text, is_text(path, key, text));
        match all.get_mut(key) {
            None => drop(all.insert(key.clone(), value)),
            Some(first) => {
                let mut list = listed(first.take());
                list.extend(listed(value));
                *first = list.into();
            }
        }
    }
    all
}

fn listed(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        other => vec![other],
    }
}

/// Returns true if a number or a boolean must be sent as a string, since the key takes only text.
fn is_text(path: &str, name: &str, value: &str) -> bool {
    let section = match path {
        "/backends" => "backend.*",
        "/routes" => "route",
        "/listeners" => "listener",
        _ => "certificate",
    };
    // The name of a backend is part of its section header, so it is no key.
    let Some(key) = keys::find_in(section, name) else { return name == "name" };
    // Some keys of routes are disabled by `false`.
    let is_off = value == "false" && key.can_be_off();
    matches!(key.kind, Kind::Text(_) | Kind::List(_) | Kind::Choice(_) | Kind::TextOrTable(_)) && !is_off
}

/// Parses numbers, booleans, lists and tables as JSON; everything else is a string, and so is a number or
/// boolean if `is_due`.
fn value(text: &str, is_due: bool) -> Value {
    match serde_json::from_str(text) {
        _ if text.is_empty() => Value::Null,
        Ok(Value::Bool(_) | Value::Number(_)) if is_due => text.into(),
        Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => value,
        Ok(value @ Value::String(_)) => value,
        Ok(Value::Null) | Err(_) => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::flags::ctl::ItemKeys;

    #[test]
    fn keys_are_what_they_look_like() {
        let keys = [
            ("servers", "127.0.0.1:3000 weight=2"),
            ("servers", "127.0.0.1:3001"),
            ("servers", "unix:/run/app"),
            ("max_connections", "10"),
            ("health", "{\"path\":\"/up\"}"),
            ("sticky_cookie", ""),
            ("balance", "null"),
        ];
        let keys = keys.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let expected = json!({
            "servers": ["127.0.0.1:3000 weight=2", "127.0.0.1:3001", "unix:/run/app"], "max_connections": 10,
            "health": { "path": "/up" }, "sticky_cookie": null, "balance": "null",
        });
        assert_eq!(Value::Object(values("/backends", &keys)), expected);
        assert!(added("/backends", &keys).is_err());
    }

    #[test]
    fn a_repeated_key_is_one_list_and_a_number_is_a_text_where_one_is_due() {
        let of = |path, keys: &[(&str, &str)]| {
            let keys: Vec<_> =
                keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Value::Object(values(path, &keys))
        };
        for keys in
            [[("servers", "a"), ("servers", r#"["b"]"#)], [("servers", r#"["a"]"#), ("servers", r#"["b"]"#)]]
        {
            assert_eq!(of("/backends", &keys), json!({ "servers": ["a", "b"] }));
        }
        assert_eq!(of("/backends", &[("name", "12")]), json!({ "name": "12" }));
        assert_eq!(
            of("/routes", &[("host", "12"), ("backend", "true")]),
            json!({ "host": "12", "backend": "true" })
        );
        assert_eq!(
            of("/listeners", &[("name", "443"), ("tls", "false")]),
            json!({ "name": "443", "tls": false })
        );
    }

    #[test]
    fn a_key_that_an_option_sets_is_refused_beside_it() {
        let refused = |host: &[&str], to: Option<&str>, keys: &[(&str, &str)]| {
            let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let route = RouteCommand::Add {
                host: host.iter().map(|host| (*host).to_owned()).collect(),
                path: None,
                listener: Vec::new(),
                backend: None,
                to: to.map(str::to_owned),
                keys: ItemKeys { keys },
                terms: ChangeOptions { confirm: None, persist: false, dry_run: false },
            };
            self::route(&route).map_err(|failure| failure.to_string())
        };
        let both = refused(&["a.example"], Some("127.0.0.1:1"), &[("host", "b.example")]).unwrap_err();
        assert!(both.contains("--host and host= are the same key"), "{both}");
        let both = refused(&[], Some("127.0.0.1:1"), &[("server", "127.0.0.1:2")]).unwrap_err();
        assert!(both.contains("--to and server= are the same key"), "{both}");
        refused(&["a.example"], None, &[("backend", "shop")]).unwrap();
    }
}
