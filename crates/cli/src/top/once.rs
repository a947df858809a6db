//! `top --once`: the figures of one interval, as tables or as JSON.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

use super::summary;
use super::tables::TopTable;
use crate::ctl::client::{AdminClient, AdminRequest};
use crate::failure::Failure;
use crate::flags::top::TopArguments;
use crate::surroundings::print;
use crate::text_table::text_table;

/// Time for an answer beyond the interval that is measured.
const SPARE: Duration = Duration::from_secs(10);

/// Asks for the figures of one interval, and prints them.
///
/// # Errors
/// No Offramp answers, or it refuses.
pub(super) fn run(client: &mut AdminClient, arguments: &TopArguments) -> Result<(), Failure> {
    client.timeout = Some(arguments.interval.duration() + SPARE);
    let path = format!("/figures?once&every={}", arguments.interval.name());
    let figures = client.ask_json(&AdminRequest::new("GET", &path))?;
    let text = if arguments.json { format!("{figures:#}\n") } else { page(figures) };
    print(text.as_bytes())
}

/// The whole process, then the tables that have rows.
fn page(mut figures: Value) -> String {
    let mut out = String::new();
    for (title, line) in summary::lines(&figures) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "{title:<12} {line}");
    }
    for table in TopTable::ALL {
        let Some(mut rows) = table.take(&mut figures).filter(|rows| !rows.is_empty()) else { continue };
        rows.sort_by(|one, other| table.compare(one, other, table.order()));
        let _ = write!(out, "\n{}", columns(table, &rows));
    }
    out
}

/// Rows with the titles of their columns.
fn columns(table: TopTable, rows: &[Value]) -> String {
    let columns = table.columns();
    let titles: Vec<Cow<'_, str>> = columns.iter().map(|column| column.title.into()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|column| column.cell(row)).collect());
    let lines: Vec<Vec<Cow<'_, str>>> = std::iter::once(titles).chain(cells).collect();
    text_table(&lines, |column| columns[column].is_number())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_page_has_all_figures() {
        let page = page(json!({
            "requests": { "per_second": 120.5, "open": 3, "by_class": { "2xx": 119.0, "3xx": 0.0, "4xx": 1.0, "5xx": 0.5, "none": 0.0 } },
            "connections": { "open": 41, "accepted_per_second": 2.0 },
            "handshakes": { "full_per_second": 1.5, "resumed_per_second": 0.5, "failed_per_second": 0.0 },
            "bytes": { "in_per_second": 20_480.0, "out_per_second": 5_242_880.0 },
            "latency_ms": { "p50": 1.2, "p95": 8.0, "p99": 31.4 },
            "workers": [{ "busy": 0.12, "late": false }, { "busy": null, "late": true }],
            "hosts": [
                { "name": "a.example", "requests_per_second": 20.0, "bytes_out_per_second": 1_024.0 },
                { "name": "\u{1b}[31mb.example", "requests_per_second": 100.5, "bytes_out_per_second": null },
            ],
            "backends": [{ "backend": "apps", "servers": [{ "server": "10.0.0.1:80", "state": "up", "active": 2 }] }],
            "clients": [], "causes": [], "limits": [], "routes": [],
        }));
        let expected = "\
requests     120/s, 3 open
responses    2xx 119  3xx 0  4xx 1.0  5xx 0.5  none 0 /s
bytes        20.0 KiB/s in, 5.0 MiB/s out
connections  41 open, 2.0/s new; handshakes 1.5 full, 0.5 resumed, 0 failed /s
latency      p50 1.2 ms, p95 8.0 ms, p99 31 ms; workers 12% - late

HOST            REQ/S   OUT/S
\u{fffd}[31mb.example    100       -
a.example          20  1024 B

BACKEND  SERVER       STATE  REQ/S  ACTIVE
apps     10.0.0.1:80  up         -       2
";
        assert_eq!(page, expected, "\n{page}");
    }
}
