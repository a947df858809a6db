//! How many came: different clients by the day. Of a client only a hash is looked at, with a key of this question.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

use crate::error::Error;
use crate::question::{Answer, Filter, Value};
use crate::questions::distinct::Distinct;
use crate::questions::scan::{Column, scan};
use crate::questions::sieve::Sieve;
use crate::questions::{Questions, cover, range};
use crate::time::{Steps, TimeStep};

/// More steps than this, of which each may need 32 KiB, are not counted at once.
const MOST_STEPS: usize = 4000;

/// What a step came to.
#[derive(Default)]
struct Came {
    clients: Distinct,
    requests: i64,
}

impl Questions {
    /// Different clients and requests by steps of time, exact for up to 2048 clients of a step and within some two
    /// percent above. Clients without an address are not counted. A limit keeps the newest.
    ///
    /// # Errors
    /// The store cannot be read, the time limit is over, or there are too many steps.
    pub fn visitors(&mut self, step: TimeStep, filter: &Filter) -> Result<Answer, Error> {
        let mut steps = Steps::new(step, &filter.zone)?;
        self.answered(filter, |questions| {
            let engine = questions.engine.as_mut();
            let sieve = Sieve::of(engine, filter)?;
            let mut answer = Answer {
                step: Some(step),
                measured: Some("visitors"),
                ..Answer::of(&["time", "visitors", "requests"])
            };
            if sieve.is_empty() {
                return Ok(answer);
            }
            let range = range(filter);
            answer.notes.extend(cover::removed(engine, range, &filter.zone)?);
            let hasher = RandomState::default();
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
                    came.clients.add(hasher.hash_one(client));
                }
            })?;
            if too_many {
                return Err(Error::Question(format!(
                    "that is more than {MOST_STEPS} intervals: choose longer ones"
                )));
            }
            let most = filter.limit.unwrap_or(usize::MAX).min(questions.settings.most_rows);
            let skipped = came.len().saturating_sub(most);
            let mut exact = true;
            for (begins, mut came) in came.into_iter().skip(skipped) {
                let visitors = came.clients.count();
                exact &= came.clients.is_exact();
                let begins = Value::Text(filter.zone.text(begins));
                answer.rows.push(vec![begins, Value::Int(visitors), Value::Int(came.requests)]);
            }
            if !exact {
                answer
                    .notes
                    .push("large numbers of visitors are estimates, exact to about two percent".into());
            }
            Ok(answer)
        })
    }
}
