//! Requests as they come.
//!
//! A request has its place in time by when it began, and is written when it has ended: what is new may be anywhere in
//! the last minutes. So these are looked at each time, at most [`MOST`] requests, and what was there before is
//! remembered by its number. Requests that took longer than [`BACK`] are not seen.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::question::{Answer, Filter, Value};
use crate::questions::sieve::Sieve;
use crate::questions::{Questions, pattern, range};
use crate::writer::{micros, place};

/// So far back is looked for requests that have ended since.
const BACK: Duration = Duration::from_secs(600);

/// So many requests are looked at each time; when there are more in so short a time, the rest is not seen.
const MOST: usize = 50_000;

/// What is shown of a request, and at the end what only the filter needs.
const COLUMNS: [&str; 13] = [
    "time",
    "host",
    "client",
    "method",
    "path",
    "query",
    "status",
    "bytes",
    "duration_us",
    "cause",
    "referer",
    "agent",
    "bot",
];

/// The requests of a store, as they come.
pub struct Tail {
    questions: Questions,
    filter: Filter,
    /// From this number on.
    floor: i64,
    /// What was looked at from the floor on; `None` before the first time.
    known: Option<HashSet<i64>>,
}

impl Tail {
    /// Requests that a filter admits, from now on. Its limit is how many of the past are given at first.
    #[must_use]
    pub fn new(questions: Questions, filter: Filter) -> Self {
        Self { questions, filter, floor: 0, known: None }
    }

    /// Goes on with another connection to the same store.
    pub fn reconnect(&mut self, questions: Questions) {
        self.questions = questions;
    }

    /// What has come since the last time, the oldest first.
    ///
    /// # Errors
    /// The store cannot be read, or the time limit is over.
    pub fn more(&mut self, now: SystemTime) -> Result<Answer, Error> {
        let Self { questions, filter, floor, known } = self;
        questions.limited(|questions| {
            let oldest = place::first(micros(now.checked_sub(BACK).unwrap_or(SystemTime::UNIX_EPOCH)));
            let from = oldest.max(*floor);
            let (found, lowest) = newest(questions, from)?;
            let mut fresh: Vec<i64> = match known {
                Some(known) => found.iter().copied().filter(|number| !known.contains(number)).collect(),
                None => {
                    let sieve = Sieve::of(questions.engine.as_mut(), filter)?;
                    let last = filter.limit.unwrap_or(10).min(questions.settings.most_rows);
                    questions.newest(&sieve, ("1 = 1", &[]), range(filter), last)?
                }
            };
            fresh.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
            let mut answer = questions.requests(&fresh, &COLUMNS, &filter.zone)?;
            answer.rows.reverse();
            answer.rows.retain(|row| admits(filter, row));
            for row in &mut answer.rows {
                row.truncate(COLUMNS.len() - 1);
            }
            answer.columns.truncate(COLUMNS.len() - 1);
            // Only now, so that nothing is lost where the store failed.
            (*floor, *known) = (from.max(lowest), Some(found.into_iter().collect()));
            Ok(answer)
        })
    }
}

/// The newest requests from a number on, and from where on all of them were looked at.
fn newest(questions: &mut Questions, from: i64) -> Result<(Vec<i64>, i64), Error> {
    let sql = format!("SELECT id FROM fact WHERE id >= {from} ORDER BY id DESC LIMIT {MOST}");
    let mut found = Vec::new();
    questions.engine.rows(&sql, &[], &mut |row| {
        found.push(row.int(0));
        ControlFlow::Continue(())
    })?;
    let lowest = found.last().copied().filter(|_| found.len() == MOST).unwrap_or(from);
    Ok((found, lowest))
}

/// Whether a request counts, by its texts.
fn admits(filter: &Filter, row: &[Value]) -> bool {
    let text = |column: &str| match COLUMNS.iter().position(|name| *name == column).and_then(|at| row.get(at))
    {
        Some(Value::Text(text)) => text.as_str(),
        _ => "",
    };
    let int = |column: &str| match COLUMNS.iter().position(|name| *name == column).and_then(|at| row.get(at))
    {
        Some(Value::Int(number)) => *number,
        _ => 0,
    };
    let like = |patterns: &[String], text: &str| {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern::matches(text, pattern))
    };
    let client = text("client").parse().ok();
    let is_in = |networks: &[crate::Network]| {
        client.is_some_and(|client| networks.iter().any(|network| network.contains(client)))
    };
    let method = text("method");
    let referrer = text("referer");
    like(&filter.hosts, text("host"))
        && (filter.statuses.is_empty() || filter.statuses.iter().any(|range| range.contains(int("status"))))
        && (filter.methods.is_empty()
            || filter.methods.iter().any(|asked| asked.eq_ignore_ascii_case(method)))
        && like(&filter.paths, text("path"))
        && (filter.clients.is_empty() || is_in(&filter.clients))
        && !is_in(&filter.exclude)
        && (filter.referrers.is_empty()
            || filter.referrers.iter().any(|asked| pattern::is_referrer(referrer, asked)))
        && filter.bots.admits(int("bot") == 1)
}
