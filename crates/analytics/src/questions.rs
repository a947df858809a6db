//! Answering questions: lists, traffic over time, searches, and SQL of the user's own. SQL is nowhere else.
//!
//! Answers are made from requests where those are few, and from roll-ups where they are many; hours that are not
//! rolled up yet are always counted from their requests, so that an answer is never behind. Where a roll-up
//! cannot say (pages without certain clients), requests are read.

mod compare;
mod cover;
mod distinct;
pub(crate) mod fold;
mod list;
mod missing;
pub(crate) mod pattern;
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
use crate::question::{Answer, Filter, OTHER_HOSTS, Source, Value};
use crate::questions::fold::{Fold, Group};
use crate::questions::plan::{Piece, plan};
use crate::questions::sieve::{Seen, Sieve};
pub use crate::questions::tail::Tail;
use crate::rollup::{self, REST};
use crate::search;
use crate::store::location::Location;
use crate::store::{Access, Engine, open_to_read};
use crate::time::{Steps, TimeStep, Zone};
use crate::writer::{micros, place};

/// How questions are answered.
#[derive(Clone, Debug)]
pub struct Settings {
    /// No question may run longer.
    pub time_limit: Duration,
    /// No answer may have more rows.
    pub most_rows: usize,
    /// A GeoIP file in MaxMind's format.
    pub geoip: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { time_limit: Duration::from_secs(30), most_rows: 100_000, geoip: None }
    }
}

/// Answers questions about one store.
pub struct Questions {
    engine: Box<dyn Engine>,
    settings: Settings,
    geo: Option<Geo>,
}

/// The database's cache while questions are answered, in KiB.
const CACHE_KIB: u32 = 16 << 10;

/// What a search shows of a request.
const SHOWN: [&str; 10] =
    ["time", "host", "client", "method", "path", "query", "status", "bytes", "referer", "agent"];

/// A search reads so many requests at a time, at first and later.
const SEARCHED_AT_ONCE: [usize; 2] = [1024, 65_536];

impl Questions {
    /// Opens a store for reading. It may be written at the same time.
    ///
    /// # Errors
    /// A wrong URL; a store that is not there, or of another version; a GeoIP file that cannot be read.
    pub fn open(url: &str, settings: &Settings) -> Result<Self, Error> {
        let access = Access { busy: Duration::from_secs(5), cache_kib: CACHE_KIB };
        let engine = open_to_read(&Location::parse(url)?, access)?;
        let mut questions = Self::over(engine);
        questions.settings = settings.clone();
        if let Some(path) = &settings.geoip {
            questions.use_geoip(path)?;
        }
        Ok(questions)
    }

    /// Answers about a store that is open already.
    pub(crate) fn over(engine: Box<dyn Engine>) -> Self {
        Self { engine, settings: Settings::default(), geo: None }
    }

    /// Reads a GeoIP file in MaxMind's format; clients are then shown with country and city.
    ///
    /// # Errors
    /// The file cannot be read, or is of another format.
    pub fn use_geoip(&mut self, path: &Path) -> Result<(), Error> {
        self.geo = Some(Geo::open(path)?);
        Ok(())
    }

    /// Requests and bytes sent, by steps of time; `by_host` gives each host rows of its own. Steps without a request
    /// are left out, and a limit keeps the newest.
    ///
    /// # Errors
    /// The store cannot be read, the time limit is over, the step is shorter than a second, or there are too many.
    pub fn traffic(
        &mut self,
        step: impl Into<TimeStep>,
        by_host: bool,
        filter: &Filter,
    ) -> Result<Answer, Error> {
        let step = step.into();
        let steps = Steps::new(step, &filter.zone)?;
        self.answered(filter, |questions| {
            let group = if by_host { Group::Host } else { Group::Nothing };
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
            let mut answer = Answer { notes, missing, step: Some(step), measured, ..Answer::of(&["time"]) };
            answer.columns.extend(by_host.then(|| "host".to_owned()));
            answer.columns.extend(["requests".to_owned(), "bytes".to_owned()]);
            for (key, sums) in sums {
                let mut row = vec![Value::Text(filter.zone.text(key.bucket))];
                row.extend(by_host.then(|| match key.item {
                    REST => Value::Text(OTHER_HOSTS.to_owned()),
                    host => name(&names, host),
                }));
                row.extend([Value::Int(sums.requests), Value::Int(sums.bytes)]);
                answer.rows.push(row);
            }
            Ok(answer)
        })
    }

    /// A step for the time that a filter admits, as far as the store knows of it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn step_for(&mut self, filter: &Filter) -> Result<TimeStep, Error> {
        let covered = self.covered()?;
        let since = filter.since.map(micros).into_iter().chain(covered.map(|(first, _)| first)).max();
        let until = filter.until.map(micros).into_iter().chain(covered.map(|(_, last)| last)).min();
        let range = until.unwrap_or(0).saturating_sub(since.unwrap_or(0));
        Ok(TimeStep::for_range(Duration::from_micros(u64::try_from(range).unwrap_or(0))))
    }

    /// Requests whose path, query, referrer or agent has a text, the newest first. With an index of words every
    /// word of the text must begin a word there; without one the text must be contained as it is.
    ///
    /// # Errors
    /// The store cannot be read, the time limit is over, or the text has no word.
    pub fn search(&mut self, text: &str, filter: &Filter) -> Result<Answer, Error> {
        self.answered(filter, |questions| {
            let (condition, texts) = search::condition(questions.engine.as_mut(), text)?;
            let sieve = Sieve::of(questions.engine.as_mut(), filter)?;
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let limit = filter.limit.unwrap_or(100).min(questions.settings.most_rows);
            let range = range(filter);
            let found = if sieve.is_empty() {
                Vec::new()
            } else {
                questions.newest(&sieve, (&condition, &texts), range, limit)?
            };
            questions.requests(&found, &SHOWN, &filter.zone)
        })
    }

    /// The newest requests that count and meet a condition, as many as wanted. They are read a piece at a time, since
    /// PostgreSQL would send all that the condition has before the first can be looked at.
    fn newest(
        &mut self,
        sieve: &Sieve,
        (condition, texts): (&str, &[&str]),
        (from, mut to): (i64, i64),
        limit: usize,
    ) -> Result<Vec<i64>, Error> {
        let mut found = Vec::new();
        let mut at_once = SEARCHED_AT_ONCE[0];
        while found.len() < limit && from < to {
            let sql = format!(
                "SELECT id, shape, coalesce(agent, 0) & 1, client, path, referer FROM fact WHERE {condition} AND \
                 id >= {from} AND id < {to} ORDER BY id DESC LIMIT {at_once}"
            );
            let mut looked_at = 0;
            self.engine.rows(&sql, texts, &mut |row| {
                looked_at += 1;
                to = row.int(0);
                let seen = Seen {
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

    /// Answers a statement in the database's own SQL, which must only read. Tables and the view `requests` are
    /// described in the documentation.
    ///
    /// # Errors
    /// The statement is wrong, would write, or runs longer than the time limit.
    pub fn sql(&mut self, sql: &str) -> Result<Answer, Error> {
        let (columns, rows) = self.engine.ask(sql, self.settings.time_limit, self.settings.most_rows)?;
        Ok(Answer { columns, rows, ..Answer::default() })
    }

    /// Answers within the time limit; where nothing was found, it is said of which time the store knows.
    fn answered(
        &mut self,
        filter: &Filter,
        work: impl FnOnce(&mut Self) -> Result<Answer, Error>,
    ) -> Result<Answer, Error> {
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

    /// Adds up what a filter admits, from roll-ups where they can answer, and says what is missing.
    fn fold(
        &mut self,
        group: Group,
        steps: Option<(TimeStep, Steps)>,
        filter: &Filter,
    ) -> Result<(Fold, Sieve, Vec<String>), Error> {
        let engine = self.engine.as_mut();
        let sieve = Sieve::of(engine, filter)?;
        let (step, steps) = steps.unzip();
        let mut fold = Fold::new(group, steps, filter.order);
        let mut notes = Vec::new();
        if sieve.is_empty() {
            return Ok((fold, sieve, notes));
        }
        let (from, to) = range(filter);
        let is_long = step.is_none_or(TimeStep::is_long);
        let pieces = if filter.source != Source::Requests && fold.is_in_rollups(is_long, &sieve) {
            plan(engine, (from, to), filter.source, &mut |from, to| fold.is_one(from, to))?
        } else {
            notes.extend(cover::removed(engine, (from, to), &filter.zone)?);
            vec![Piece::Facts(from, to)]
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

    fn most(&self, filter: &Filter) -> usize {
        filter.limit.unwrap_or(20).min(self.settings.most_rows)
    }

    /// The texts of numbers of a dictionary.
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

    /// Columns of requests, the newest first, by their numbers, which are sorted so.
    fn requests(&mut self, numbers: &[i64], columns: &[&str], zone: &Zone) -> Result<Answer, Error> {
        let mut answer = Answer::of(columns);
        let shown: Vec<&str> =
            columns.iter().map(|&column| if column == "time" { "time_us" } else { column }).collect();
        let shown = shown.join(", ");
        for chunk in numbers.chunks(512) {
            let sql = format!(
                "SELECT {shown} FROM requests WHERE id IN ({}) ORDER BY id DESC",
                rollup::list(chunk)
            );
            self.engine.rows(&sql, &[], &mut |row| {
                let value = |at: usize| match columns[at] {
                    "time" => Value::Text(zone.text(row.int(at))),
                    "status" | "bytes" | "bot" | "duration_us" => Value::Int(row.int(at)),
                    _ if row.text(at).is_empty() => Value::Null,
                    _ => Value::Text(row.text(at).to_owned()),
                };
                answer.rows.push((0..columns.len()).map(value).collect());
                ControlFlow::Continue(())
            })?;
        }
        Ok(answer)
    }
}

fn name(names: &HashMap<i64, String>, number: i64) -> Value {
    match names.get(&number) {
        Some(text) if !text.is_empty() => Value::Text(text.clone()),
        _ => Value::Null,
    }
}

/// The range of fact numbers that a filter admits.
fn range(filter: &Filter) -> (i64, i64) {
    let from = filter.since.map_or(0, |time| place::first(micros(time)));
    let to = filter.until.map_or(i64::MAX, |time| place::first(micros(time)));
    (from, to)
}
