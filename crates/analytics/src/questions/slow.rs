//! Slowness: percentiles of durations by page or server.
//!
//! Durations are aggregated with three digits ([`Durations`]). Memory is bounded: beyond it the pages with
//! the least total time are dropped, which the answer states.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::question::{QueryResult, RequestFilter, SlowBy, SqlValue};
use crate::questions::percentiles::Durations;
use crate::questions::scan::{Column, scan};
use crate::questions::sieve::Sieve;
use crate::questions::{Questions, cover, name, range};

/// The maximum numbers of groups and of different durations in them: some 32 MiB.
const MOST: [usize; 2] = [1 << 16, 1 << 20];

/// A page and its host, or a server.
type GroupBy = (i64, i64);

/// The aggregation in progress.
struct Slow {
    groups: HashMap<GroupBy, Durations, RandomState>,
    /// Different durations in all groups.
    durations: usize,
    most: [usize; 2],
    forgot: bool,
}

impl Slow {
    fn new(most: [usize; 2]) -> Self {
        Self { groups: HashMap::default(), durations: 0, most, forgot: false }
    }

    fn add(&mut self, group: GroupBy, duration_us: i64, requests: i64) {
        self.durations += usize::from(self.groups.entry(group).or_default().add(duration_us, requests));
        while self.groups.len() > self.most[0] || self.durations > self.most[1] && self.groups.len() > 1 {
            self.forget();
        }
    }

    /// Drops the half of the groups with less total time.
    fn forget(&mut self) {
        let mut times: Vec<(i64, GroupBy)> =
            self.groups.iter().map(|(group, durations)| (durations.sum(), *group)).collect();
        times.sort_unstable();
        for (_, group) in &times[..times.len() / 2] {
            if let Some(gone) = self.groups.remove(group) {
                self.durations -= gone.len();
            }
        }
        self.forgot = true;
    }
}

impl Questions {
    /// The slowest pages or servers by 95th percentile. Times are in milliseconds.
    ///
    /// # Errors
    /// The store cannot be read, or the time limit has passed.
    pub fn slow(&mut self, per: SlowBy, filter: &RequestFilter) -> Result<QueryResult, Error> {
        self.answered(filter, |questions| {
            let engine = questions.engine.as_mut();
            let sieve = Sieve::of(engine, filter)?;
            let named: &[&str] = if per == SlowBy::Page { &["page", "host"] } else { &["server"] };
            let columns = [named, &["requests", "p50_ms", "p95_ms", "p99_ms"]].concat();
            let mut answer = QueryResult { measured: Some("p95_ms"), ..QueryResult::of(&columns) };
            if sieve.is_empty() {
                return Ok(answer);
            }
            answer.notes.extend(cover::removed(engine, range(filter), &filter.zone)?);
            let mut slow = Slow::new(MOST);
            let columns: &[Column] = match per {
                SlowBy::Page => &[Column::Duration, Column::Of("path")],
                SlowBy::Server => &[Column::Duration],
            };
            scan(
                engine,
                &sieve,
                range(filter),
                columns,
                &mut |shape, sums, [duration, path, _]| match per {
                    SlowBy::Page if path != 0 => slow.add((path, shape.host), duration, sums.requests),
                    SlowBy::Server if shape.server != 0 => {
                        slow.add((shape.server.into(), 0), duration, sums.requests);
                    }
                    _ => {}
                },
            )?;
            if slow.forgot {
                answer
                    .notes
                    .push("there are too many pages: only those that took the most time are listed, with at least so many requests".into());
            }
            let mut groups: Vec<(GroupBy, Durations)> = slow.groups.into_iter().collect();
            groups.sort_unstable_by_key(|(group, durations)| {
                (std::cmp::Reverse((durations.percentile(95), durations.total)), *group)
            });
            groups.truncate(questions.most(filter));
            let paths = match per {
                SlowBy::Page => questions.names("path", groups.iter().map(|((path, _), _)| *path))?,
                SlowBy::Server => HashMap::new(),
            };
            let hosts = questions.names("host", groups.iter().map(|((_, host), _)| *host))?;
            for ((item, host), durations) in groups {
                let mut row = match per {
                    SlowBy::Page => vec![name(&paths, item), name(&hosts, host)],
                    SlowBy::Server => {
                        let server = usize::try_from(item).ok().and_then(|at| sieve.words.get(at));
                        vec![server.map_or(SqlValue::Null, |server| SqlValue::Text(server.clone()))]
                    }
                };
                row.push(SqlValue::Int(durations.total));
                row.extend([50, 95, 99].map(|percent| milliseconds(durations.percentile(percent))));
                answer.rows.push(row);
            }
            Ok(answer)
        })
    }
}

/// A time in milliseconds.
pub(crate) fn milliseconds(duration_us: Option<i64>) -> SqlValue {
    duration_us.map_or(SqlValue::Null, |duration| SqlValue::Real(duration as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_slow_stay() {
        let mut slow = Slow::new([1000, 5000]);
        for page in 1..50_000 {
            slow.add((page, 1), page % 100, 1);
            slow.add((page % 10, 1), page, 1);
            slow.add((3, 2), 1_000_000, 1);
            assert!(slow.groups.len() <= 1000);
            assert!(slow.durations <= 5000, "{}", slow.durations);
            let counted: usize = slow.groups.values().map(Durations::len).sum();
            assert_eq!(slow.durations, counted);
        }
        assert_eq!((slow.groups[&(3, 2)].total, slow.forgot), (49_999, true));
    }
}
