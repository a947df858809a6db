//! `offramp logs tail`: prints requests as they arrive in the store.

use std::thread;
use std::time::{Duration, SystemTime};

use offramp_analytics::render;
use offramp_analytics::{Error, QueryResult, QuerySettings, Questions, RequestFeed, SqlValue};

use crate::failure::Failure;
use crate::flags::logs;
use crate::log_store::StoreTarget;
use crate::surroundings::{self, say, show};

use super::ask::filter_of;

/// Interval between queries. Writers commit once a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Time limit of a query.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Prints requests until the output has no reader; a signal ends the process.
pub(super) fn run(arguments: logs::Tail) -> Result<(), Failure> {
    let logs::Tail { json, store, filter } = arguments;
    let filter = filter_of(filter);
    let place = StoreTarget::find(store)?;
    let settings = QuerySettings { time_limit: TIME_LIMIT, ..QuerySettings::default() };
    let questions = Questions::open(&place.url, &settings).map_err(|error| Failure::of_store(&error))?;
    let mut tail = RequestFeed::new(questions, filter);
    let mut away = false;
    loop {
        let more = tail.more(SystemTime::now());
        match more {
            Ok(answer) => {
                away = false;
                let text =
                    if json { render::json_lines(&answer) } else { lines(&answer, surroundings::columns()) };
                if !text.is_empty() && !show(text.as_bytes())? {
                    return Ok(());
                }
            }
            Err(error @ (Error::Away(_) | Error::Busy(_))) => {
                if !away {
                    say(&format!("warning: {error}; waiting for it"));
                }
                away = true;
                if let Ok(questions) = Questions::open(&place.url, &settings) {
                    tail.reconnect(questions);
                }
            }
            Err(error) => return Err(Failure::of_store(&error)),
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Formats one line per request: time, status, client, method, host and path, bytes, duration, and cause of
/// failure.
fn lines(answer: &QueryResult, columns: Option<usize>) -> String {
    let mut text = String::new();
    for row in &answer.rows {
        let cell =
            |name: &str| answer.columns.iter().position(|column| column == name).and_then(|at| row.get(at));
        let word = |name: &str| match cell(name) {
            Some(SqlValue::Text(text)) => text.replace(char::is_control, "\u{fffd}"),
            Some(SqlValue::Int(number)) => number.to_string(),
            _ => "-".to_owned(),
        };
        let query = match cell("query") {
            Some(SqlValue::Text(query)) => format!("?{query}"),
            _ => String::new(),
        };
        let time = word("time");
        let time = time.get(..19).unwrap_or(&time).replace('T', " ");
        let took = match cell("duration_us") {
            Some(SqlValue::Int(duration)) if *duration > 0 => format!("{:.1} ms", *duration as f64 / 1000.0),
            _ => "-".to_owned(),
        };
        let asked = format!("{}{}{query}", word("host"), word("path"));
        let asked = asked.replace(char::is_control, "\u{fffd}");
        let (client, method) = (word("client"), word("method"));
        let before = format!("{time}  {:>3}  {client:<15}  {method:<4}  ", word("status"));
        let cause = match cell("cause") {
            Some(SqlValue::Text(_)) => format!("  {}", word("cause")),
            _ => String::new(),
        };
        let after = format!("  {} B  {took}{cause}", word("bytes"));
        let room =
            columns.map(|columns| columns.saturating_sub(before.len() + after.len()).max(MIN_PATH_WIDTH));
        let asked = room.map_or_else(|| asked.clone(), |room| render::shorten(&asked, room));
        text += &format!("{before}{asked}{after}\n");
    }
    text
}

/// Minimum width of host and path, in columns.
const MIN_PATH_WIDTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_line_that_fits() {
        let columns = ["time", "host", "client", "method", "path", "query", "status", "bytes", "duration_us"];
        let text = |text: &str| SqlValue::Text(text.into());
        let row = vec![
            text("2026-11-22T10:00:00.250000+01:00"),
            text("a.test"),
            text("192.0.2.1"),
            text("GET"),
            text("/news"),
            text("page=\u{1b}[2J"),
            SqlValue::Int(200),
            SqlValue::Int(5120),
            SqlValue::Int(12_345),
        ];
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        let answer = QueryResult { columns, rows: vec![row], ..QueryResult::default() };
        assert_eq!(
            lines(&answer, None),
            "2026-11-22 10:00:00  200  192.0.2.1        GET   a.test/news?page=\u{fffd}[2J  5120 B  12.3 ms\n"
        );
        assert_eq!(
            lines(&answer, Some(82)),
            "2026-11-22 10:00:00  200  192.0.2.1        GET   a.test/news?pag…  5120 B  12.3 ms\n"
        );
        let mut failed = answer;
        failed.columns.push("cause".to_owned());
        failed.rows[0].push(text("client_aborted"));
        assert_eq!(
            lines(&failed, Some(98)),
            "2026-11-22 10:00:00  200  192.0.2.1        GET   a.test/news?pag…  5120 B  12.3 ms  client_aborted\n"
        );
    }
}
