//! Text output of the admin interface's answers.

use std::fmt::Write as _;

use serde_json::Value;

use super::client::printable;
use crate::flags::ctl::{CtlCommand, ShowSubject};
use crate::text_table::text_table;

/// Formats the answer to a command.
pub(super) fn answer(command: &CtlCommand, answer: &Value) -> String {
    let text = match command {
        CtlCommand::Status => status(answer),
        CtlCommand::Show { what } => items(*what, answer),
        CtlCommand::History { refused: false } => history(answer),
        CtlCommand::History { refused: true } => refused(answer),
        CtlCommand::Stop { .. } => stop(answer),
        CtlCommand::Upgrade { .. } => format!(
            "Process {} has taken over after {} ms. The one before serves what is open, then ends.\n",
            text(&answer["process"]),
            text(&answer["took_ms"])
        ),
        CtlCommand::Confirm { .. } => confirmed(answer),
        CtlCommand::Persist { .. } => written(answer),
        _ => report(answer),
    };
    printable(&text)
}

/// Formats an event as one line.
pub(super) fn event(kind: &str, data: &Value) -> String {
    let what = match kind {
        "change" => format!(
            "version {}, {} by {}: {}",
            text(&data["version"]),
            text(&data["how"]),
            text(&data["by"]),
            list(&data["changes"])
        ),
        "closed" => format!(
            "{} connections, by {}: {}",
            text(&data["connections"]),
            text(&data["by"]),
            text(&data["which"])
        ),
        "refused" => {
            format!("{} by {}: {}", text(&data["how"]), text(&data["by"]), list(&data["reasons"]))
        }
        "server" => {
            let (backend, server) = (text(&data["backend"]), text(&data["server"]));
            format!("{backend} {server}: {} ({})", text(&data["state"]), text(&data["why"]))
        }
        "certificate" => format!("{}, until {}", list(&data["names"]), text(&data["not_after"])),
        "upgrade" | "stop" | "confirm" | "limit" | "late" => {
            format!("{}{}", text(&data["what"]), details(data))
        }
        _ => data.to_string(),
    };
    let line = format!("{} {kind} {what}", text(&data["at"]));
    format!("{}\n", printable(&line).replace('\n', " "))
}

/// Formats the answer to `stop`.
fn stop(answer: &Value) -> String {
    let open = answer["open"].as_u64().unwrap_or_default();
    let connections = if open == 1 { "open connection" } else { "open connections" };
    match (answer["now"] == true, answer["already"] == true) {
        (true, _) => format!("Offramp stops and closes {open} {connections} now.\n"),
        (false, false) => {
            format!("Offramp stops; {open} {connections} may finish until {}.\n", text(&answer["until"]))
        }
        (false, true) => format!(
            "Offramp stops already, and nothing changes: {open} {connections} may finish until {}.\n\
             To close them now: offramp ctl stop --now\n",
            text(&answer["until"])
        ),
    }
}

/// Formats the members of a notice other than its time and text.
fn details(data: &Value) -> String {
    let members = data.as_object().into_iter().flatten();
    let others = members.filter(|(name, _)| !matches!(name.as_str(), "at" | "what"));
    others.map(|(name, value)| format!(" {name}={}", text(value))).collect()
}

/// Maximum number of unwritten changes in `status`.
const MAX_UNWRITTEN: usize = 10;

fn status(answer: &Value) -> String {
    let config = &answer["config"];
    let mut rows = vec![
        vec!["version".to_owned(), text(&answer["version"])],
        vec!["process".to_owned(), format!("{}, since {}", text(&answer["pid"]), text(&answer["started"]))],
        vec!["workers".to_owned(), text(&answer["workers"])],
        vec![
            "configuration".to_owned(),
            format!("version {}, {}", text(&config["version"]), text(&config["file"])),
        ],
        vec![
            "connections".to_owned(),
            format!(
                "{} open, {} accepted",
                text(&answer["connections"]["open"]),
                text(&answer["connections"]["accepted"])
            ),
        ],
        vec![
            "requests".to_owned(),
            format!(
                "{} open, {} ended",
                text(&answer["requests"]["open"]),
                text(&answer["requests"]["ended"])
            ),
        ],
        vec!["listeners".to_owned(), text(&answer["listeners"])],
        vec!["routes".to_owned(), text(&answer["routes"])],
        vec!["backends".to_owned(), text(&answer["backends"])],
        vec!["servers".to_owned(), states(&answer["servers"])],
        vec!["certificates".to_owned(), text(&answer["certificates"])],
    ];
    if let Some(until) = config["confirm_until"].as_str() {
        rows.push(vec!["to be confirmed".to_owned(), format!("until {until}, else it is taken back")]);
    }
    if let Some(reason) = config["not_taken_back"].as_str() {
        let reason = printable(reason);
        rows.push(vec!["not taken back".to_owned(), format!("it is tried again until it works: {reason}")]);
    }
    if let Some(reason) = config["unsaved"].as_str() {
        rows.push(vec!["not saved".to_owned(), format!("for `run --resume`: {}", printable(reason))]);
    }
    let unwritten = config["unwritten"].as_array().map_or(&[][..], Vec::as_slice);
    for (at, line) in unwritten.iter().take(MAX_UNWRITTEN).enumerate() {
        let label = if at == 0 { "not in the file" } else { "" };
        rows.push(vec![label.to_owned(), text(line)]);
    }
    if unwritten.len() > MAX_UNWRITTEN {
        rows.push(vec![String::new(), format!("and {} more (--json)", unwritten.len() - MAX_UNWRITTEN)]);
    }
    let last = &config["last_refused"];
    if !last.is_null() {
        rows.push(vec![
            "last refused".to_owned(),
            format!("{}, by {}: {}", text(&last["at"]), text(&last["by"]), list(&last["reasons"])),
        ]);
    }
    table(&rows)
}

fn states(states: &Value) -> String {
    let states = states.as_object().into_iter().flatten();
    let states: Vec<String> = states.map(|(state, count)| format!("{} {state}", text(count))).collect();
    if states.is_empty() { "none".to_owned() } else { states.join(", ") }
}

fn items(what: ShowSubject, answer: &Value) -> String {
    let (kind, head): (&str, &[&str]) = match what {
        ShowSubject::Listeners => ("listeners", &["NAME", "MODE", "LISTENING", "ORIGIN"]),
        ShowSubject::Routes => ("routes", &["NAME", "TARGET", "ORIGIN"]),
        ShowSubject::Backends => ("backends", &["BACKEND", "SERVER", "STATE", "WEIGHT", "ACTIVE", "WHY"]),
        ShowSubject::Certificates => ("certificates", &["NAMES", "DAYS", "KEY", "SOURCE"]),
        ShowSubject::Workers => ("workers", &["WORKER", "OPEN", "ACCEPTED", "REQUESTS", "YIELDS"]),
        ShowSubject::Counters | ShowSubject::Config => return counters(answer),
    };
    let mut rows = vec![head.iter().map(|title| (*title).to_owned()).collect()];
    for item in answer[kind].as_array().into_iter().flatten() {
        match what {
            ShowSubject::Backends => rows.extend(servers(item)),
            _ => rows.push(row(what, item)),
        }
    }
    table(&rows)
}

fn row(what: ShowSubject, item: &Value) -> Vec<String> {
    let config = &item["config"];
    match what {
        ShowSubject::Listeners => {
            vec![text(&item["name"]), text(&config["mode"]), list(&item["listening"]), text(&item["origin"])]
        }
        ShowSubject::Routes => {
            vec![text(&item["name"]), target(config), text(&item["origin"])]
        }
        ShowSubject::Certificates => {
            vec![list(&item["names"]), text(&item["days_left"]), text(&item["key"]), text(&item["source"])]
        }
        _ => vec![
            text(&item["worker"]),
            text(&item["connections"]["open"]),
            text(&item["connections"]["accepted"]),
            text(&item["requests_open"]),
            text(&item["yields"]),
        ],
    }
}

/// Target of a route.
fn target(route: &Value) -> String {
    let keys = ["backend", "server", "split", "passthrough", "redirect", "respond", "root"];
    match keys.into_iter().find(|key| !route[*key].is_null()) {
        None => "-".to_owned(),
        Some("split") => format!("split {}", list(&route["split"]["backends"])),
        Some(key) => format!("{key} {}", text(&route[key])),
    }
}

fn servers(backend: &Value) -> Vec<Vec<String>> {
    let servers = backend["servers"].as_array().into_iter().flatten();
    servers
        .map(|server| {
            let weight = text(&server["weight"]);
            let weight = if server["backup"] == true { format!("{weight} backup") } else { weight };
            let (name, state) = (text(&server["name"]), text(&server["state"]));
            vec![text(&backend["name"]), name, state, weight, text(&server["active"]), text(&server["why"])]
        })
        .collect()
}

fn counters(answer: &Value) -> String {
    let rows: Vec<Vec<String>> = answer["counters"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| vec![name.clone(), text(value)])
        .collect();
    table(&rows)
}

/// Formats changes and closed connections, the newest first.
fn history(answer: &Value) -> String {
    let mut entries: Vec<(String, String)> = Vec::new();
    for change in answer["changes"].as_array().into_iter().flatten() {
        let (version, at, by) = (text(&change["version"]), text(&change["at"]), text(&change["by"]));
        let mut entry = format!("version {version}, {at}, {} by {by}\n", text(&change["how"]));
        lines(&mut entry, &change["changes"]);
        more(&mut entry, change);
        let certificates = change["new_certificates"].as_u64().unwrap_or_default();
        if certificates > 0 {
            let _ = writeln!(entry, "  new certificates: {certificates}");
        }
        entries.push((at, entry));
    }
    for closed in answer["closed_connections"].as_array().into_iter().flatten() {
        let (at, by, which) = (text(&closed["at"]), text(&closed["by"]), text(&closed["which"]));
        let count = text(&closed["connections"]);
        entries.push((at.clone(), format!("connections closed: {count}, {at}, by {by} ({which})\n")));
    }
    // Times have one format, so they sort as text; the sort is stable for equal times.
    entries.sort_by(|(one, _), (other, _)| other.cmp(one));
    let entries: String = entries.into_iter().map(|(_, entry)| entry).collect();
    format!("version {} is in force\n{entries}", text(&answer["version"]))
}

fn refused(answer: &Value) -> String {
    let mut out = String::new();
    for refusal in answer["refused"].as_array().into_iter().flatten() {
        let (at, how, by) = (text(&refusal["at"]), text(&refusal["how"]), text(&refusal["by"]));
        let _ = writeln!(out, "{at}, {how} by {by}");
        lines(&mut out, &refusal["reasons"]);
        more(&mut out, refusal);
    }
    if out.is_empty() { "no change was refused\n".to_owned() } else { out }
}

fn more(out: &mut String, entry: &Value) {
    if let Some(omitted) = entry["omitted"].as_u64().filter(|omitted| *omitted > 0) {
        let _ = writeln!(out, "  and {omitted} more");
    }
}

fn report(answer: &Value) -> String {
    let changed = answer["changes"].as_array().is_some_and(|lines| !lines.is_empty());
    let mut out = String::new();
    let _ = match (answer["dry_run"] == true, changed) {
        (true, true) => writeln!(out, "This would change:"),
        (true, false) => writeln!(out, "Nothing would change."),
        (false, true) => writeln!(out, "Version {} is in force. What changed:", text(&answer["version"])),
        (false, false) => {
            writeln!(out, "Nothing changed: version {} stays in force.", text(&answer["version"]))
        }
    };
    lines(&mut out, &answer["changes"]);
    let touched = &answer["touched"];
    let certificates = answer["new_certificates"].as_u64().unwrap_or_default();
    if certificates > 0 {
        let _ = writeln!(out, "New certificates: {certificates}");
    }
    for (title, value) in [
        ("Opens: ", &touched["opens"]),
        ("Closes: ", &touched["closes"]),
        ("In force after an upgrade or the next start: ", &answer["needs_an_upgrade"]),
    ] {
        if value.as_array().is_some_and(|all| !all.is_empty()) {
            let _ = writeln!(out, "{title}{}", list(value));
        }
    }
    if changed {
        let touches =
            touched["connections"].as_u64().map_or_else(|| "an unknown number".to_owned(), |n| n.to_string());
        let open = touched["open"].as_u64().unwrap_or_default();
        let _ = writeln!(out, "Open connections on what changes: {touches} of {open}; they stay open");
    }
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "Warning: {}", text(warning));
    }
    if let Some(path) = answer["persisted"].as_str() {
        let _ = writeln!(out, "Written to {path}");
    }
    out
}

fn confirmed(answer: &Value) -> String {
    let mut out = format!("Version {} stays in force.\n", text(&answer["version"]));
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "Warning: {}", text(warning));
    }
    if let Some(path) = answer["persisted"].as_str() {
        let _ = writeln!(out, "Written to {path}");
    }
    out
}

fn written(answer: &Value) -> String {
    let mut out = match answer["persisted"].as_str() {
        Some(path) => format!("Written to {path}:\n"),
        None if answer["changes"].as_array().is_some_and(|lines| !lines.is_empty()) => {
            "This would be written:\n".to_owned()
        }
        None => "The file has everything that is in force.\n".to_owned(),
    };
    lines(&mut out, &answer["changes"]);
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "Warning: {}", text(warning));
    }
    out
}

/// Appends each value as an indented line.
fn lines(out: &mut String, values: &Value) {
    for line in values.as_array().into_iter().flatten() {
        let _ = writeln!(out, "  {}", text(line));
    }
}

fn list(values: &Value) -> String {
    let all: Vec<String> = values.as_array().into_iter().flatten().map(text).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Formats rows as columns.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    text_table(rows, |_| false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_history_is_in_the_order_of_time() {
        let history = super::history(&json!({
            "version": 3,
            "changes": [
                { "version": 3, "at": "2026-11-23T12:00:00Z", "by": "SIGHUP", "how": "reload", "changes": ["a: 1 -> 2"],
                  "omitted": 0, "new_certificates": 1 },
                { "version": 2, "at": "2026-11-23T10:00:00Z", "by": "uid 0", "how": "edit", "changes": ["b: added"],
                  "omitted": 7, "new_certificates": 0 },
            ],
            "closed_connections": [
                { "at": "2026-11-23T11:00:00Z", "by": "uid 0", "which": "client 10.0.0.1", "connections": 4 },
            ],
        }));
        let expected = "\
version 3 is in force
version 3, 2026-11-23T12:00:00Z, reload by SIGHUP
  a: 1 -> 2
  new certificates: 1
connections closed: 4, 2026-11-23T11:00:00Z, by uid 0 (client 10.0.0.1)
version 2, 2026-11-23T10:00:00Z, edit by uid 0
  b: added
  and 7 more
";
        assert_eq!(history, expected);
    }

    #[test]
    fn routes_are_shown_with_their_targets() {
        let routes = json!({ "routes": [
            { "name": "a.example", "config": { "backend": "shop" }, "origin": "f.toml:1:1" },
            { "name": "b", "config": { "split": { "backends": ["new", "old weight=9"] } }, "origin": "implied" },
            { "name": "c", "config": { "respond": { "status": 410 } }, "origin": "admin API" },
            { "name": "d", "config": {}, "origin": "implied" },
        ] });
        let expected = "\
NAME       TARGET                   ORIGIN
a.example  backend shop             f.toml:1:1
b          split new, old weight=9  implied
c          respond {\"status\":410}   admin API
d          -                        implied
";
        assert_eq!(items(ShowSubject::Routes, &routes), expected);
    }
}
