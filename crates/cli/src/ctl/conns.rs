//! `ctl conns`: open connections as a table that fits the terminal or as JSON, and the request to close some.

use serde_json::{Value, json};

use super::client::{AdminClient, AdminRequest, printable};
use super::{segment, show, with};
use crate::failure::Failure;
use crate::flags::ctl::Conns;
use crate::surroundings::{self, print};

/// Number of connections requested per page.
const PAGE: usize = 1000;

/// Shows the selected connections, or closes them.
pub(super) fn run(client: &AdminClient, conns: &Conns) -> Result<(), Failure> {
    let filter = filter(conns);
    if conns.kill {
        if filter.is_empty() && conns.id.is_none() {
            return Err(Failure::usage(
                "error: --kill needs to know which connections: name an id, or one of --client, --name, --route, \
                 --listener, --older, --larger",
            ));
        }
        let path = conns.id.as_ref().map_or_else(|| with("/connections", &filter), |id| of(id));
        let answer = client.ask_json(&AdminRequest::new("DELETE", &path))?;
        let text = if client.json {
            format!("{answer:#}\n")
        } else {
            let closed = answer["closed"].as_u64().unwrap_or_default();
            format!("Closed {closed} {}.\n", if closed == 1 { "connection" } else { "connections" })
        };
        return print(text.as_bytes());
    }
    let (all, more) = match &conns.id {
        Some(id) => (vec![client.ask_json(&AdminRequest::new("GET", &of(id)))?], false),
        None => pages(client, &filter, conns.limit)?,
    };
    if client.json {
        return print(format!("{:#}\n", json!({ "connections": all, "more": more })).as_bytes());
    }
    let mut text = table(&all, surroundings::columns().unwrap_or(0));
    if more {
        text.push_str(&format!("There are more than these {}: --limit shows more.\n", all.len()));
    }
    print(printable(&text).as_bytes())
}

fn of(id: &str) -> String {
    format!("/connections/{}", segment(id))
}

/// Fetches the selected connections page by page; the flag is true if there are more than `limit`.
fn pages(client: &AdminClient, filter: &[String], limit: usize) -> Result<(Vec<Value>, bool), Failure> {
    let (mut all, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut query = filter.to_vec();
        query.push(format!("limit={}", (limit - all.len()).clamp(1, PAGE)));
        query.extend(after.map(|after| format!("after={}", segment(&after))));
        let mut page = client.ask_json(&AdminRequest::new("GET", &with("/connections", &query)))?;
        let Value::Array(connections) = page["connections"].take() else { return Ok((all, false)) };
        // This page was requested only to learn if there are more.
        if all.len() >= limit && !connections.is_empty() {
            return Ok((all, true));
        }
        all.extend(connections);
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok((all, false)),
        }
    }
}

/// Query parameters of the filter options.
fn filter(conns: &Conns) -> Vec<String> {
    let known = [
        ("client", &conns.client),
        ("name", &conns.name),
        ("route", &conns.route),
        ("listener", &conns.listener),
        ("older", &conns.older),
        ("larger", &conns.larger),
    ];
    let set =
        known.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", segment(value.as_ref()?))));
    set.collect()
}

/// Formats connections as a table. Columns are ordered by importance, and the last ones are dropped until the
/// table fits `width`; 0 means unlimited.
fn table(connections: &[Value], width: usize) -> String {
    let head = ["ID", "CLIENT", "PROTOCOL", "AGE", "IN", "OUT", "ROUTE", "SERVER", "NAME", "LISTENER"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(connections.iter().map(row));
    let mut columns = head.len();
    while width > 0 && columns > 3 {
        let text = show::table(&rows);
        if text.lines().all(|line| line.trim_end().chars().count() <= width) {
            return text;
        }
        columns -= 1;
        rows.iter_mut().for_each(|row| row.truncate(columns));
    }
    show::table(&rows)
}

fn row(one: &Value) -> Vec<String> {
    let number = |key: &str| one[key].as_u64().unwrap_or_default();
    let text = |key: &str| show::text(&one[key]);
    vec![
        text("id"),
        text("client"),
        text("protocol"),
        age(number("age_s")),
        size(number("bytes_from_client")),
        size(number("bytes_to_client")),
        text("route"),
        text("server"),
        text("name"),
        text("listener"),
    ]
}

/// Formats an age in the unit that leaves one to three digits.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= 10 * unit) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_where_the_terminal_is_narrow_and_the_id_stays() {
        let one = json!({
            "id": "00019aa8-1234-7000-8000-c00000002abc", "client": "192.0.2.1:40000", "protocol": "h2", "age_s": 7200,
            "bytes_from_client": 9, "bytes_to_client": 20 << 20, "route": "shop.example", "server": "127.0.0.1:3000",
            "name": "shop.example", "listener": "web",
        });
        let all = table(std::slice::from_ref(&one), 0);
        assert!(all.contains("2h") && all.contains("9 B") && all.contains("20 MiB") && all.contains("web"));
        for width in [80, 100, 120, 200] {
            let text = table(std::slice::from_ref(&one), width);
            assert!(text.lines().all(|line| line.trim_end().len() <= width), "{width}\n{text}");
            assert!(text.contains("00019aa8-1234-7000-8000-c00000002abc  192.0.2.1:40000  h2"), "{text}");
        }
        assert_eq!((age(119), age(120), age(172_800)), ("119s".into(), "2m".into(), "2d".into()));
    }
}
