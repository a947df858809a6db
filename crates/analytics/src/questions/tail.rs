//! Requests as they come.
//!
//! A request is ordered by its start but written at its end, so new ones may appear anywhere in the last
//! minutes. Each round looks at these, at most [`MOST`] requests, and remembers known ones by number.
//! Requests that took longer than [`BACK`] are missed.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::pattern;
use crate::question::{QueryResult, RequestFilter, SqlValue};
use crate::questions::sieve::Sieve;
use crate::questions::{DETAILS, Questions, range};
use crate::store::sequence;
use crate::time::micros;

/// The period in which newly ended requests are looked for.
const BACK: Duration = Duration::from_secs(600);

/// The maximum number of requests per round; more in so short a time are missed.
const MOST: usize = 50_000;

/// [`DETAILS`], which are shown, and behind them what only the filter needs.
const COLUMNS: [&str; DETAILS.len() + 1] = {
    let mut columns = ["bot"; DETAILS.len() + 1];
    columns.split_at_mut(DETAILS.len()).0.copy_from_slice(&DETAILS);
    columns
};

/// A subscription to the new requests of a store.
pub struct RequestFeed {
    questions: Questions,
    filter: RequestFilter,
    /// The smallest number to look at.
    floor: i64,
    /// The known numbers from the floor on; `None` before the first round.
    known: Option<HashSet<i64>>,
}

impl RequestFeed {
    /// Follows the requests that pass a filter. Its limit is the number of past requests returned at first.
    #[must_use]
    pub fn new(questions: Questions, filter: RequestFilter) -> Self {
        Self { questions, filter, floor: 0, known: None }
    }

    /// Continues with another connection to the same store.
    pub fn reconnect(&mut self, questions: Questions) {
        self.questions = questions;
    }

    /// Requests since the last call, oldest first.
    ///
    /// # Errors
    /// The store cannot be read, or the time limit has passed.
    pub fn more(&mut self, now: SystemTime) -> Result<QueryResult, Error> {
        let Self { questions, filter, floor, known } = self;
        questions.limited(|questions| {
            let oldest = sequence::first(micros(now.checked_sub(BACK).unwrap_or(SystemTime::UNIX_EPOCH)));
            let from = oldest.max(*floor);
            let (found, lowest) = newest(questions, from)?;
            let mut fresh: Vec<i64> = match known {
                Some(known) => found.iter().copied().filter(|number| !known.contains(number)).collect(),
                None => {
                    let sieve = Sieve::of(questions.engine.as_mut(), filter)?;
                    let last = filter.limit.unwrap_or(10).min(questions.settings.most_rows);
                    questions.newest(&sieve, None, range(filter), last)?
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
            // Updated last, so that nothing is lost if the store fails.
            (*floor, *known) = (from.max(lowest), Some(found.into_iter().collect()));
            Ok(answer)
        })
    }
}

/// The newest requests from a number on, and the number from which they are complete.
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

/// Returns `true` if a request passes the filter by its texts.
fn admits(filter: &RequestFilter, row: &[SqlValue]) -> bool {
    let text = |column: &str| match COLUMNS.iter().position(|name| *name == column).and_then(|at| row.get(at))
    {
        Some(SqlValue::Text(text)) => text.as_str(),
        _ => "",
    };
    let int = |column: &str| match COLUMNS.iter().position(|name| *name == column).and_then(|at| row.get(at))
    {
        Some(SqlValue::Int(number)) => *number,
        _ => 0,
    };
    let like = |patterns: &[String], text: &str| {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern::matches(text, pattern))
    };
    let client = text("client").parse().ok();
    let is_in = |networks: &[crate::AddressRange]| {
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
