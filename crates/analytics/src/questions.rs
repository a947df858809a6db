//! Answers to queries: lists, traffic over time, searches, and SQL of the user.
//!
//! Answers come from requests where those are few, and from roll-ups where they are many; hours not yet
//! rolled up are always counted from their requests, so that an answer is never behind. Queries that roll-ups
//! cannot answer (pages without certain clients) read requests.

mod compare;
mod cover;
mod distinct;
pub(crate) mod fold;
mod list;
mod missing;
mod one;
mod percentiles;
pub(crate) mod plan;
pub(crate) mod scan;
pub(crate) mod sieve;
mod slow;
mod tail;
mod visitors;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::geo::Geo;
use crate::question::{DataSource, OTHER_HOSTS, QueryResult, RequestFilter, SqlValue};
use crate::questions::fold::{Fold, GroupBy};
pub use crate::questions::one::{IdSearch, NEAR};
use crate::questions::plan::{PlanPiece, plan};
use crate::questions::sieve::{RequestColumns, Sieve};
pub use crate::questions::tail::RequestFeed;
use crate::rollup::{self, REST};
use crate::search::{self, SearchCondition};
use crate::store::location::Location;
use crate::store::{Engine, FactRange, StoreAccess, open_to_read, sequence};
use crate::time::{TimeStep, TimeSteps, Zone, micros};
use crate::writer::Writer;

/// Limits and files for answering queries.
#[derive(Clone, Debug)]
pub struct QuerySettings {
    /// The time limit of a query.
    pub time_limit: Duration,
    /// The maximum number of rows of an answer.
    pub most_rows: usize,
    /// The path of a GeoIP file in MaxMind's format.
    pub geoip: Option<PathBuf>,
}

impl Default for QuerySettings {
    fn default() -> Self {
        Self { time_limit: Duration::from_secs(30), most_rows: 100_000, geoip: None }
    }
}

/// A connection to one store that answers queries.
pub struct Questions {
    engine: Box<dyn Engine>,
    settings: QuerySettings,
    geo: Option<Geo>,
}

impl Writer {
    /// Converts the writer for queries: for stores in memory. Uncommitted data is not visible.
    ///
    /// # Errors
    /// Like [`Writer::add`].
    pub fn into_questions(self) -> Result<Questions, Error> {
        Ok(Questions::over(self.into_engine()?))
    }
}

/// The size of the database's cache, in KiB.
const CACHE_KIB: u32 = 16 << 10;

/// The columns of a search result.
pub const SHOWN: [&str; 10] =
    ["time", "host", "client", "method", "path", "query", "status", "bytes", "referer", "agent"];

/// The columns of a search result that a program shows.
pub const DETAILS: [&str; 15] = [
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
    "route",
    "server",
    "request_id",
];

/// Requests read at a time by a search: at first, and later.
const SEARCHED_AT_ONCE: [usize; 2] = [1024, 65_536];

impl Questions {
    /// Opens a store for reading. Other processes may write it at the same time.
    ///
    /// # Errors
    /// A wrong URL; a store that is absent or of another version; an unreadable GeoIP file.
    pub fn open(url: &str, settings: &QuerySettings) -> Result<Self, Error> {
        let access = StoreAccess { busy: Duration::from_secs(5), cache_kib: CACHE_KIB };
        let engine = open_to_read(&Location::parse(url)?, access)?;
        let mut questions = Self::over(engine);
        questions.settings = settings.clone();
        if let Some(path) = &settings.geoip {
            questions.use_geoip(path)?;
        }
        Ok(questions)
    }

    /// Uses a store that is open already.
    pub(crate) fn over(engine: Box<dyn Engine>) -> Self {
        Self { engine, settings: QuerySettings::default(), geo: None }
    }

    /// Loads a GeoIP file in MaxMind's format; clients are then shown with country and city.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn use_geoip(&mut self, path: &Path) -> Result<(), Error> {
        self.geo = Some(Geo::open(path)?);
        Ok(())
    }

    /// Requests and bytes sent per time step; `by_host` gives each host rows of its own. Steps without a
    /// request are left out, and a limit keeps the newest.
    ///
    /// # Errors
    /// The store cannot be read, the time limit has passed, the step is shorter than a second, or there are
    /// too many steps.
    pub fn traffic(
        &mut self,
        step: impl Into<TimeStep>,
        by_host: bool,
        filter: &RequestFilter,
    ) -> Result<QueryResult, Error> {
        let step = step.into();
        let steps = TimeSteps::new(step, &filter.zone)?;
        self.answered(filter, |questions| {
            let group = if by_host { GroupBy::Host } else { GroupBy::Nothing };
            let (fold, _, notes) = questions.fold(group, Some((step, steps)), filter)?;
            if fold.forgot {
                return Err(Error::Question("there are too many intervals: choose a longer one".into()));
            }
            let missing = fold.missing.shortfall();
            let mut sums: Vec<_> = fold.sums.into_iter().filter(|(_, sums)| sums.requests > 0).collect();
            sums.sort_unstable_by_key(|(key, _)| *key);
            let most = filter.limit.unwrap_or(usize::MAX).min(questions.settings.most_rows);
            sums.drain(..sums.len().saturating_sub(most));
            let names = questions.names("host", sums.iter().map(|(key, _)| key.item))?;
            let measured = Some("requests");
            let mut answer =
                QueryResult { notes, missing, step: Some(step), measured, ..QueryResult::of(&["time"]) };
            answer.columns.extend(by_host.then(|| "host".to_owned()));
            answer.columns.extend(["requests".to_owned(), "bytes".to_owned()]);
            for (key, sums) in sums {
                let mut row = vec![SqlValue::Text(filter.zone.text(key.bucket))];
                row.extend(by_host.then(|| match key.item {
                    REST => SqlValue::Text(OTHER_HOSTS.to_owned()),
                    host => name(&names, host),
                }));
                row.extend([SqlValue::Int(sums.requests), SqlValue::Int(sums.bytes)]);
                answer.rows.push(row);
            }
            Ok(answer)
        })
    }

    /// A suitable step for the time that a filter covers and the store has.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn step_for(&mut self, filter: &RequestFilter) -> Result<TimeStep, Error> {
        let covered = self.covered()?;
        let since = filter.since.map(micros).into_iter().chain(covered.map(|(first, _)| first)).max();
        let until = filter.until.map(micros).into_iter().chain(covered.map(|(_, last)| last)).min();
        let range = until.unwrap_or(0).saturating_sub(since.unwrap_or(0));
        Ok(TimeStep::for_range(Duration::from_micros(u64::try_from(range).unwrap_or(0))))
    }

    /// Requests with a text in path, query, referrer or agent, newest first. With an index of words, every
    /// word of the text must begin a word there; without one, the text must occur as it is.
    ///
    /// # Errors
    /// The store cannot be read, the time limit has passed, or the text has no word.
    pub fn search(&mut self, text: &str, filter: &RequestFilter) -> Result<QueryResult, Error> {
        self.found(Some(text), &SHOWN, filter)
    }

    /// Requests, newest first, with a text as in [`search`](Self::search) if there is one. Columns are those of the view
    /// `requests`.
    ///
    /// # Errors
    /// Like [`search`](Self::search).
    pub fn found(
        &mut self,
        text: Option<&str>,
        columns: &[&str],
        filter: &RequestFilter,
    ) -> Result<QueryResult, Error> {
        self.answered(filter, |questions| {
            let engine = questions.engine.as_mut();
            let condition = text.map(|text| search::condition(engine, text)).transpose()?;
            let sieve = Sieve::of(questions.engine.as_mut(), filter)?;
            let limit = filter.limit.unwrap_or(100).min(questions.settings.most_rows);
            let range = range(filter);
            let found = if sieve.is_empty() {
                Vec::new()
            } else {
                questions.newest(&sieve, condition.as_ref(), range, limit)?
            };
            questions.requests(&found, columns, &filter.zone)
        })
    }

    /// The newest requests that pass the filter and a condition, up to `limit`. Reads in pieces, since
    /// PostgreSQL would send all matches before the first can be looked at.
    fn newest(
        &mut self,
        sieve: &Sieve,
        condition: Option<&SearchCondition>,
        range: FactRange,
        limit: usize,
    ) -> Result<Vec<i64>, Error> {
        let FactRange { from, mut to } = range;
        let (sql, texts) =
            condition.map_or(("1 = 1", &[][..]), |condition| (&*condition.sql, &*condition.texts));
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let mut found = Vec::new();
        let mut at_once = SEARCHED_AT_ONCE[0];
        while found.len() < limit && from < to {
            let sql = format!(
                "SELECT id, shape, coalesce(agent, 0) & 1, client, path, referer FROM fact WHERE {sql} AND \
                 id >= {from} AND id < {to} ORDER BY id DESC LIMIT {at_once}"
            );
            let mut looked_at = 0;
            self.engine.rows(&sql, &texts, &mut |row| {
                looked_at += 1;
                to = row.int(0);
                let seen = RequestColumns {
                    shape: row.int(1),
                    bot: row.int(2) == 1,
                    client: row.int(3),
                    path: row.int(4),
                    referer: row.int(5),
                };
                if sieve.admits(&seen).is_some() {
                    found.push(row.int(0));
                }
                if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if looked_at < at_once {
                break;
            }
            at_once = (at_once * 4).min(SEARCHED_AT_ONCE[1]);
        }
        Ok(found)
    }

    /// Runs a read-only statement in the database's own SQL. The documentation describes the tables and the
    /// view `requests`.
    ///
    /// # Errors
    /// The statement is wrong, would write, or exceeds the time limit.
    pub fn sql(&mut self, sql: &str) -> Result<QueryResult, Error> {
        let (columns, rows) = self.engine.ask(sql, self.settings.time_limit, self.settings.most_rows)?;
        Ok(QueryResult { columns, rows, ..QueryResult::default() })
    }

    /// Runs a query within the time limit; adds a remark on the time that the store covers if it found
    /// nothing.
    fn answered(
        &mut self,
        filter: &RequestFilter,
        work: impl FnOnce(&mut Self) -> Result<QueryResult, Error>,
    ) -> Result<QueryResult, Error> {
        self.limited(|questions| {
            let mut answer = work(questions)?;
            if answer.rows.is_empty() && filter.limit != Some(0) {
                answer.notes.push(questions.nothing(&filter.zone)?);
            }
            Ok(answer)
        })
    }

    fn limited<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.engine.limit(Some(self.settings.time_limit))?;
        let result = work(self);
        self.engine.limit(None)?;
        result
    }

    /// Sums up the requests of a filter, from roll-ups where possible, with remarks on gaps.
    fn fold(
        &mut self,
        group: GroupBy,
        steps: Option<(TimeStep, TimeSteps)>,
        filter: &RequestFilter,
    ) -> Result<(Fold, Sieve, Vec<String>), Error> {
        let engine = self.engine.as_mut();
        let sieve = Sieve::of(engine, filter)?;
        let (step, steps) = steps.unzip();
        let mut fold = Fold::new(group, steps, filter.order);
        let mut notes = Vec::new();
        if sieve.is_empty() {
            return Ok((fold, sieve, notes));
        }
        let range = range(filter);
        let is_long = step.is_none_or(TimeStep::is_long);
        let pieces = if filter.source != DataSource::Requests && fold.is_in_rollups(is_long, &sieve) {
            plan(engine, range, filter.source, &mut |from, to| fold.is_one(from, to))?
        } else {
            notes.extend(cover::removed(engine, range, &filter.zone)?);
            vec![PlanPiece::Facts(range)]
        };
        for piece in pieces {
            fold.read(engine, &sieve, piece)?;
        }
        if fold.forgot {
            notes.push("there are too many to count at once: rare ones are missing from this list".into());
        }
        notes.extend(fold.missing.notes());
        Ok((fold, sieve, notes))
    }

    fn most(&self, filter: &RequestFilter) -> usize {
        filter.limit.unwrap_or(20).min(self.settings.most_rows)
    }

    /// Looks up texts in a dictionary by number.
    fn names(
        &mut self,
        table: &str,
        numbers: impl Iterator<Item = i64>,
    ) -> Result<HashMap<i64, String>, Error> {
        let mut numbers: Vec<i64> = numbers.filter(|number| *number > 0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut names = HashMap::new();
        for chunk in numbers.chunks(512) {
            let sql = format!("SELECT id, text FROM {table} WHERE id IN ({})", rollup::list(chunk));
            self.engine.rows(&sql, &[], &mut |row| {
                names.insert(row.int(0), row.text(1).to_owned());
                ControlFlow::Continue(())
            })?;
        }
        Ok(names)
    }

    /// Reads columns of requests by their numbers, which are sorted newest first.
    fn requests(&mut self, numbers: &[i64], columns: &[&str], zone: &Zone) -> Result<QueryResult, Error> {
        let mut answer = QueryResult::of(columns);
        // Quoted, because `user` is a word of SQL.
        let name = |column: &&str| format!("\"{}\"", if *column == "time" { "time_us" } else { column });
        let shown = columns.iter().map(name).collect::<Vec<_>>().join(", ");
        for chunk in numbers.chunks(512) {
            let sql = format!(
                "SELECT {shown} FROM requests WHERE id IN ({}) ORDER BY id DESC",
                rollup::list(chunk)
            );
            self.engine.rows(&sql, &[], &mut |row| {
                let value = |at: usize| match columns[at] {
                    "time" => SqlValue::Text(zone.text(row.int(at))),
                    "status" | "bytes" | "received" | "bot" | "duration_us" | "queue_us" | "connect_us"
                    | "first_byte_us" => SqlValue::Int(row.int(at)),
                    _ if row.text(at).is_empty() => SqlValue::Null,
                    _ => SqlValue::Text(row.text(at).to_owned()),
                };
                answer.rows.push((0..columns.len()).map(value).collect());
                ControlFlow::Continue(())
            })?;
        }
        Ok(answer)
    }
}

fn name(names: &HashMap<i64, String>, number: i64) -> SqlValue {
    match names.get(&number) {
        Some(text) if !text.is_empty() => SqlValue::Text(text.clone()),
        _ => SqlValue::Null,
    }
}

/// The range of fact numbers that a filter covers.
fn range(filter: &RequestFilter) -> FactRange {
    let from = filter.since.map_or(0, |time| sequence::first(micros(time)));
    let to = filter.until.map_or(i64::MAX, |time| sequence::first(micros(time)));
    FactRange { from, to }
}
