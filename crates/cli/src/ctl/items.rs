//! Items of the configuration that are added, changed or removed: all kinds in the same way.

use serde_json::{Map, Value};

use super::client::Request;
use super::{query, segment, with};
use crate::failure::Failure;
use crate::flags::ctl::{Keyed, Route, Terms};

/// The keys by which a route leads somewhere.
const TARGETS: [&str; 7] = ["backend", "server", "split", "passthrough", "redirect", "respond", "root"];

/// A listener, a backend or a certificate: its name is among its keys.
pub(super) fn keyed(path: &str, command: &Keyed) -> Result<Request, Failure> {
    match command {
        Keyed::Add { keys, terms } => Ok(add(path, added(&keys.keys)?, terms)),
        Keyed::Change { item, keys, terms } => Ok(change(path, &item.name, &keys.keys, terms)),
        Keyed::Remove { item, terms } => Ok(remove(path, &item.name, terms)),
    }
}

pub(super) fn route(command: &Route) -> Result<Request, Failure> {
    let (host, path, listener, backend, to, keys, terms) = match command {
        Route::Change { item, keys, terms } => return Ok(change("/routes", &item.name, &keys.keys, terms)),
        Route::Remove { item, terms } => return Ok(remove("/routes", &item.name, terms)),
        Route::Add { host, path, listener, backend, to, keys, terms } => {
            (host, path, listener, backend, to, keys, terms)
        }
    };
    let mut all = added(&keys.keys)?;
    for (key, values) in [("host", host), ("listener", listener)] {
        if !values.is_empty() {
            all.insert(key.to_owned(), values.clone().into());
        }
    }
    for (key, value) in [("path", path), ("backend", backend), ("server", to)] {
        if let Some(value) = value {
            all.insert(key.to_owned(), value.clone().into());
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

fn add(path: &str, keys: Map<String, Value>, terms: &Terms) -> Request {
    Request::json("POST", &with(path, &query(terms)), &Value::Object(keys))
}

fn change(path: &str, name: &str, keys: &[(String, String)], terms: &Terms) -> Request {
    Request::json("PATCH", &with(&one(path, name), &query(terms)), &Value::Object(values(keys)))
}

fn remove(path: &str, name: &str, terms: &Terms) -> Request {
    Request::new("DELETE", &with(&one(path, name), &query(terms)))
}

fn one(path: &str, name: &str) -> String {
    format!("{path}/{}", segment(name))
}

/// The keys of a new item: there is nothing to take away.
fn added(keys: &[(String, String)]) -> Result<Map<String, Value>, Failure> {
    match keys.iter().find(|(_, value)| value.is_empty()) {
        Some((key, _)) => Err(Failure::usage(format_args!("error: `{key}=` has no value"))),
        None => Ok(values(keys)),
    }
}

/// The keys as JSON: one that is repeated is a list, and one without a value is null.
fn values(keys: &[(String, String)]) -> Map<String, Value> {
    let mut all = Map::new();
    for (key, text) in keys {
        let value = value(text);
        match all.get_mut(key) {
            None => drop(all.insert(key.clone(), value)),
            Some(Value::Array(list)) => list.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    all
}

/// Numbers, `true`, `false`, lists and tables are JSON; everything else is a text.
fn value(text: &str) -> Value {
    match serde_json::from_str(text) {
        _ if text.is_empty() => Value::Null,
        Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => value,
        Ok(value @ Value::String(_)) => value,
        Ok(Value::Null) | Err(_) => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(Value::Object(values(&keys)), expected);
        assert!(added(&keys).is_err());
    }
}
