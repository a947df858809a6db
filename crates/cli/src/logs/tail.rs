//! `offramp logs tail`: requests as they come.

use std::thread;
use std::time::{Duration, SystemTime};

use offramp_analytics::render;
use offramp_analytics::{Answer, Error, Questions, Settings, Tail, Value};

use crate::failure::Failure;
use crate::flags::logs;
use crate::surroundings::{self, say, show};

use super::ask::meant;
use super::failure;
use super::place::Place;

/// Between two looks at the store. Whoever writes there does so once a second.
const EVERY: Duration = Duration::from_millis(500);

/// No look may take longer.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Shows requests until the output has no reader; a signal ends the process.
pub(super) fn run(arguments: logs::Tail) -> Result<(), Failure> {
    let logs::Tail { json, store, filter } = arguments;
    let filter = meant(filter);
    let place = Place::find(store)?;
    let settings = Settings { time_limit: TIME_LIMIT, ..Settings::default() };
    let questions = Questions::open(&place.url, &settings).map_err(|error| failure(&error))?;
    let mut tail = Tail::new(questions, filter);
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
            Err(error) => return Err(failure(&error)),
        }
        thread::sleep(EVERY);
    }
}

/// A line for each request: time, status, client, method, host and path, bytes, how long it took, and why it failed.
fn lines(answer: &Answer, columns: Option<usize>) -> String {
    let mut text = String::new();
    for row in &answer.rows {
        let cell =
            |name: &str| answer.columns.iter().position(|column| column == name).and_then(|at| row.get(at));
        let word = |name: &str| match cell(name) {
            Some(Value::Text(text)) => text.replace(char::is_control, "\u{fffd}"),
            Some(Value::Int(number)) => number.to_string(),
            _ => "-".to_owned(),
        };
        let query = match cell("query") {
            Some(Value::Text(query)) => format!("?{query}"),
            _ => String::new(),
        };
        let time = word("time");
        let time = time.get(..19).unwrap_or(&time).replace('T', " ");
        let took = match cell("duration_us") {
            Some(Value::Int(duration)) if *duration > 0 => format!("{:.1} ms", *duration as f64 / 1000.0),
            _ => "-".to_owned(),
        };
        let asked = format!("{}{}{query}", word("host"), word("path"));
        let asked = asked.replace(char::is_control, "\u{fffd}");
        let (client, method) = (word("client"), word("method"));
        let before = format!("{time}  {:>3}  {client:<15}  {method:<4}  ", word("status"));
        let cause = match cell("cause") {
            Some(Value::Text(_)) => format!("  {}", word("cause")),
            _ => String::new(),
        };
        let after = format!("  {} B  {took}{cause}", word("bytes"));
        let room = columns.map(|columns| columns.saturating_sub(before.len() + after.len()).max(LEAST));
        let asked = room.map_or_else(|| asked.clone(), |room| render::shorten(&asked, room));
        text += &format!("{before}{asked}{after}\n");
    }
    text
}

/// Host and path are not cut shorter than this.
const LEAST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_line_that_fits() {
        let columns = ["time", "host", "client", "method", "path", "query", "status", "bytes", "duration_us"];
        let text = |text: &str| Value::Text(text.into());
        let row = vec![
            text("2026-11-22T10:00:00.250000+01:00"),
            text("a.test"),
            text("192.0.2.1"),
            text("GET"),
            text("/news"),
            text("page=\u{1b}[2J"),
            Value::Int(200),
            Value::Int(5120),
            Value::Int(12_345),
        ];
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        let answer = Answer { columns, rows: vec![row], ..Answer::default() };
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
