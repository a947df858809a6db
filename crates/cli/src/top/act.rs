//! Requests to the admin interface that keys cause, and what their answers say.

use serde_json::{Value, json};

use super::tables::{TopTable, clock};
use super::{text, units};
use crate::ctl::client::AdminRequest;
use crate::ctl::segment;

/// A request for more about a row, or for a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopAsk {
    Server { backend: String, server: String },
    Connection { id: String },
    Request { id: String },
    Route { name: String },
    Cause { name: String },
    Drain { backend: String, server: String },
    Enable { backend: String, server: String },
    Close { id: String, client: String },
}

impl TopAsk {
    /// The request for more about a row; `None` where the row has all there is.
    pub(super) fn about(table: TopTable, row: &Value) -> Option<Self> {
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        match table {
            TopTable::Hosts | TopTable::Clients => None,
            TopTable::Routes => Some(Self::Route { name: text("route")? }),
            TopTable::Servers => Some(Self::Server { backend: text("backend")?, server: text("server")? }),
            TopTable::Connections => Some(Self::Connection { id: text("id")? }),
            TopTable::Causes => Some(Self::Cause { name: text("cause")? }),
            TopTable::Requests => Some(Self::Request { id: text("request_id")? }),
        }
    }

    /// The change of a row that a key stands for, or why there is none.
    pub(super) fn change(key: char, table: TopTable, row: Option<&Value>) -> Result<Self, &'static str> {
        let text = |key: &str| row.and_then(|row| row[key].as_str()).map(str::to_owned);
        let server = || text("backend").zip(text("server"));
        match (key, table) {
            ('d', TopTable::Servers) => {
                let (backend, server) = server().ok_or("no server is chosen")?;
                Ok(Self::Drain { backend, server })
            }
            ('e', TopTable::Servers) => {
                let (backend, server) = server().ok_or("no server is chosen")?;
                Ok(Self::Enable { backend, server })
            }
            ('k', TopTable::Connections) => {
                let (id, client) = text("id").zip(text("client")).ok_or("no connection is chosen")?;
                Ok(Self::Close { id, client })
            }
            ('k', _) => Err("k closes a connection: choose one in table 5"),
            _ => Err("d drains a server and e enables it: choose one in table 3"),
        }
    }

    /// The question before a change; `None` for what changes nothing.
    pub(super) fn question(&self) -> Option<String> {
        let clean = |name: &str| text::clean(name).into_owned();
        match self {
            Self::Drain { backend, server } => Some(format!(
                "Drain {} of {}? It finishes what it has, and gets nothing new.",
                clean(server),
                clean(backend)
            )),
            Self::Enable { backend, server } => {
                Some(format!("Enable {} of {}?", clean(server), clean(backend)))
            }
            Self::Close { client, .. } => {
                Some(format!("Close the connection of {}? Its requests get no response.", clean(client)))
            }
            _ => None,
        }
    }

    /// The sentence about a change that was made.
    pub(super) fn done(&self) -> String {
        let clean = |name: &str| text::clean(name).into_owned();
        match self {
            Self::Drain { server, .. } => format!("{} drains", clean(server)),
            Self::Enable { server, .. } => format!("{} is enabled", clean(server)),
            Self::Close { client, .. } => format!("the connection of {} is closed", clean(client)),
            _ => String::new(),
        }
    }

    pub(super) fn request(&self) -> AdminRequest {
        let get = |path: String| AdminRequest::new("GET", &path);
        let state = |backend: &str, server: &str, state: &str| {
            let path = format!("/backends/{}/servers/{}", segment(backend), segment(server));
            AdminRequest::json("PATCH", &path, &json!({ "state": state }))
        };
        match self {
            Self::Server { backend, .. } => get(format!("/backends/{}", segment(backend))),
            Self::Connection { id } => get(format!("/connections/{}", segment(id))),
            Self::Request { id } => get(format!("/requests/{}", segment(id))),
            Self::Route { name } => get(format!("/routes/{}", segment(name))),
            Self::Cause { name } => get(format!("/why?about=cause&cause={}", segment(name))),
            Self::Drain { backend, server } => state(backend, server, "drain"),
            Self::Enable { backend, server } => state(backend, server, "enabled"),
            Self::Close { id, .. } => AdminRequest::new("DELETE", &format!("/connections/{}", segment(id))),
        }
    }

    /// The lines that an answer is shown as.
    pub(super) fn lines(&self, answer: &Value) -> Vec<String> {
        let mut out = Vec::new();
        match self {
            Self::Server { server, .. } => {
                let servers = answer["servers"].as_array().into_iter().flatten();
                for one in servers.filter(|one| one["name"] == server.as_str()) {
                    members(&mut out, "", one);
                }
                members(&mut out, "config.", &answer["config"]);
            }
            Self::Request { .. } => {
                story(&mut out, &answer["story"]);
                members(&mut out, "", answer);
            }
            Self::Cause { .. } => {
                out.extend(answer["first"].as_str().map(str::to_owned));
                for said in answer["evidence"].as_array().into_iter().flatten() {
                    out.push(format!("- {} ({})", scalar(&said["says"]), scalar(&said["source"])));
                }
                for step in answer["remedy"].as_array().into_iter().flatten() {
                    out.push(format!("* {}", scalar(step)));
                }
            }
            _ => members(&mut out, "", answer),
        }
        out.iter().map(|line| text::clean(line).into_owned()).collect()
    }
}

/// The lines that a row is shown as, with every figure in full.
pub(super) fn whole(row: &Value) -> Vec<String> {
    let mut out = Vec::new();
    members(&mut out, "", row);
    out.iter().map(|line| text::clean(line).into_owned()).collect()
}

/// The steps of a request, with their ends.
fn story(out: &mut Vec<String>, story: &Value) {
    for step in story.as_array().into_iter().flatten() {
        let time = |key: &str| step[key].as_f64().map_or_else(|| "-".to_owned(), units::milliseconds);
        out.push(format!(
            "{:>9}  took {:>8}  {:<14} {}",
            time("at_ms"),
            time("took_ms"),
            scalar(&step["step"]),
            scalar(&step["says"])
        ));
    }
    if !out.is_empty() {
        out.push(String::new());
    }
}

/// Appends one line for each member, those of inner objects with their path.
fn members(out: &mut Vec<String>, path: &str, value: &Value) {
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Object(_) => members(out, &format!("{path}{name}."), value),
            // Steps have lines of their own.
            Value::Array(_) if name == "story" => {}
            Value::Array(all) => {
                let all: Vec<String> = all.iter().map(scalar).collect();
                out.push(format!("{:<24} {}", format!("{path}{name}"), all.join(", ")));
            }
            _ => out.push(format!("{:<24} {}", format!("{path}{name}"), scalar(value))),
        }
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// The title of a detail.
pub(super) fn title(table: TopTable, row: &Value) -> String {
    let text = |key: &str| row[key].as_str().map_or_else(|| "-".into(), text::clean);
    match table {
        TopTable::Hosts => format!("host {}", text("name")),
        TopTable::Routes => format!("route {}", text("route")),
        TopTable::Servers => format!("server {} of {}", text("server"), text("backend")),
        TopTable::Clients => format!("client {}", text("client")),
        TopTable::Connections => format!("connection {}", text("id")),
        TopTable::Causes => format!("cause {}", text("cause")),
        TopTable::Requests => format!("{} {} at {}", text("method"), text("path"), clock(&row["time"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows_are_single_segments_of_requests() {
        let (backend, server) = ("a/b".to_owned(), "[::1]:80".to_owned());
        let drain = TopAsk::Drain { backend, server }.request();
        assert_eq!((drain.method, &*drain.path), ("PATCH", "/backends/a%2Fb/servers/%5B%3A%3A1%5D%3A80"));
        assert_eq!(drain.body.unwrap().1, br#"{"state":"drain"}"#);
        let route = TopAsk::Route { name: "example.org/api".to_owned() }.request();
        assert_eq!(route.path, "/routes/example.org%2Fapi");
        assert_eq!(TopAsk::Close { id: "x".to_owned(), client: "c".to_owned() }.request().method, "DELETE");
    }

    #[test]
    fn a_request_is_told_as_its_story_and_its_facts() {
        let ask = TopAsk::Request { id: "r".to_owned() };
        let lines = ask.lines(&json!({
            "path": "/\u{1b}[2J", "status": 502, "cause": null,
            "story": [
                { "step": "route", "at_ms": 0.2, "took_ms": 0.2, "says": "route `shop`" },
                { "step": "connect", "at_ms": 30.4, "took_ms": null, "says": "refused" },
            ],
        }));
        let expected = [
            "   0.2 ms  took   0.2 ms  route          route `shop`",
            "    30 ms  took        -  connect        refused",
            "",
            "path                     /\u{fffd}[2J",
            "status                   502",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_server_is_told_with_its_reason_and_a_cause_with_its_remedy() {
        let server = TopAsk::Server { backend: "apps".to_owned(), server: "10.0.0.1:80".to_owned() };
        let lines = server.lines(&json!({
            "servers": [
                { "name": "10.0.0.1:80", "state": "down", "why": "connection refused", "addresses": ["10.0.0.1", "10.0.0.9"] },
                { "name": "10.0.0.2:80", "state": "up" },
            ],
            "config": { "policy": "round_robin" },
        }));
        assert!(lines.contains(&"why                      connection refused".to_owned()), "{lines:?}");
        assert!(lines.contains(&"addresses                10.0.0.1, 10.0.0.9".to_owned()), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("10.0.0.2")), "{lines:?}");
        let cause = TopAsk::Cause { name: "connect_refused".to_owned() };
        assert_eq!(cause.request().path, "/why?about=cause&cause=connect_refused");
        let lines = cause.lines(&json!({
            "first": "Nothing listens.", "evidence": [{ "says": "it refused", "source": "the log" }], "remedy": ["Start it."],
        }));
        assert_eq!(lines, ["Nothing listens.", "- it refused (the log)", "* Start it."]);
    }
}
