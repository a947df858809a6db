//! Visitors: different clients per time step.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::question::{QueryResult, RequestFilter, SqlValue};
use crate::questions::distinct::{Distinct, ERROR_PERCENT};
use crate::questions::scan::{Column, scan};
use crate::questions::sieve::Sieve;
use crate::questions::{Questions, cover, range};
use crate::time::{TimeStep, TimeSteps};

/// The maximum number of steps, each of which may take 32 KiB.
const MOST_STEPS: usize = 4000;

/// The figures of a step.
#[derive(Default)]
struct Came {
    clients: Distinct,
    requests: i64,
}

impl Questions {
    /// Different clients, and requests, per time step; exact for up to 2048 clients of a step. Beyond that
    /// the answer has a column with the error bound. Clients without an address are not counted. A limit
    /// keeps the newest steps.
    ///
    /// # Errors
    /// The store cannot be read, the time limit has passed, or there are too many steps.
    pub fn visitors(&mut self, step: TimeStep, filter: &RequestFilter) -> Result<QueryResult, Error> {
        let mut steps = TimeSteps::new(step, &filter.zone)?;
        self.answered(filter, |questions| {
            let engine = questions.engine.as_mut();
            let sieve = Sieve::of(engine, filter)?;
            let mut answer = QueryResult {
                step: Some(step),
                measured: Some("visitors"),
                ..QueryResult::of(&["time", "visitors", "requests"])
            };
            if sieve.is_empty() {
                return Ok(answer);
            }
            let range = range(filter);
            answer.notes.extend(cover::removed(engine, range, &filter.zone)?);
            let mut came: BTreeMap<i64, Came> = BTreeMap::new();
            let mut too_many = false;
            let columns = [Column::Of("client"), Column::Time(steps.slice())];
            scan(engine, &sieve, range, &columns, &mut |_, sums, [client, time, _]| {
                let begins = steps.of(time);
                too_many |= came.len() >= MOST_STEPS && !came.contains_key(&begins);
                if too_many {
                    return;
                }
                let came = came.entry(begins).or_default();
                came.requests += sums.requests;
                if client != 0 {
                    came.clients.add(client);
                }
            })?;
            if too_many {
                return Err(Error::Question(format!(
                    "that is more than {MOST_STEPS} intervals: choose longer ones"
                )));
            }
            let most = filter.limit.unwrap_or(usize::MAX).min(questions.settings.most_rows);
            let skipped = came.len().saturating_sub(most);
            let mut errors = Vec::new();
            for (begins, mut came) in came.into_iter().skip(skipped) {
                let visitors = came.clients.count();
                errors.push(came.clients.error(visitors));
                let begins = SqlValue::Text(filter.zone.text(begins));
                answer.rows.push(vec![begins, SqlValue::Int(visitors), SqlValue::Int(came.requests)]);
            }
            if errors.iter().any(|error| *error > 0) {
                answer.columns.push("visitors_error".to_owned());
                answer.rows.iter_mut().zip(errors).for_each(|(row, error)| row.push(SqlValue::Int(error)));
                answer.notes.push(estimated());
            }
            Ok(answer)
        })
    }
}

/// The remark on estimates.
pub(crate) fn estimated() -> String {
    format!("numbers of visitors above 2048 are estimates: 95 of 100 are within {ERROR_PERCENT} percent")
}
