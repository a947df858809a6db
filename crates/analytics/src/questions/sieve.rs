//! Filters in terms of the store's numbers.
//!
//! The names in a filter are looked up once in the dictionaries. Sets of dictionary rows are bitmaps: a bit
//! per text of the store, however many match.

use std::collections::HashMap;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::network::AddressRange;
use crate::pattern;
use crate::question::{Bots, RequestFilter, StatusFilter};
use crate::store::{Dialect, Engine};

/// A set of numbers of dictionary rows, which count from 1.
#[derive(Default)]
pub(crate) struct NumberSet(Vec<u64>);

impl NumberSet {
    fn add(&mut self, number: i64) {
        let Ok(number) = usize::try_from(number) else { return };
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        self.0[number / 64] |= 1 << (number % 64);
    }

    pub(crate) fn has(&self, number: i64) -> bool {
        let word = usize::try_from(number).ok().and_then(|number| self.0.get(number / 64));
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// The properties that requests of one shape share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShapeColumns {
    pub(crate) host: i64,
    pub(crate) status: i64,
    /// The indexes of cause and server in [`Sieve::words`]; 0 for none.
    pub(crate) cause: u32,
    pub(crate) server: u32,
    /// Set if host, status and method pass the filter.
    pub(crate) counts: bool,
}

/// The columns of a request that decide if it counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestColumns {
    pub(crate) shape: i64,
    pub(crate) bot: bool,
    pub(crate) client: i64,
    pub(crate) path: i64,
    pub(crate) referer: i64,
}

/// A filter ready for use.
pub(crate) struct Sieve {
    shapes: HashMap<i64, ShapeColumns, RandomState>,
    /// Names of causes and servers.
    pub(crate) words: Vec<String>,
    pub(crate) hosts: Option<NumberSet>,
    pub(crate) statuses: Vec<StatusFilter>,
    pub(crate) by_method: bool,
    pub(crate) paths: Option<NumberSet>,
    pub(crate) referrers: Option<NumberSet>,
    pub(crate) clients: Option<NumberSet>,
    pub(crate) excluded: Option<NumberSet>,
    pub(crate) bots: Bots,
}

impl Sieve {
    /// Looks up the names in a filter.
    pub(crate) fn of(engine: &mut dyn Engine, filter: &RequestFilter) -> Result<Self, Error> {
        let mut sieve = Self {
            shapes: HashMap::default(),
            words: vec![String::new()],
            hosts: texts(engine, "host", &filter.hosts)?,
            statuses: filter.statuses.clone(),
            by_method: !filter.methods.is_empty(),
            paths: texts(engine, "path", &filter.paths)?,
            referrers: texts(engine, "referer", &filter.referrers)?,
            clients: clients(engine, &filter.clients)?,
            excluded: clients(engine, &filter.exclude)?,
            bots: filter.bots,
        };
        sieve.read_shapes(engine, &filter.methods)?;
        Ok(sieve)
    }

    fn read_shapes(&mut self, engine: &mut dyn Engine, methods: &[String]) -> Result<(), Error> {
        let mut numbers: HashMap<String, u32> = HashMap::new();
        engine.rows("SELECT id, host, status, method, cause, server FROM shape", &[], &mut |row| {
            let words = &mut self.words;
            let mut number = |text: &str| {
                if text.is_empty() {
                    return 0;
                }
                if let Some(number) = numbers.get(text) {
                    return *number;
                }
                let number = u32::try_from(words.len()).unwrap_or(u32::MAX);
                numbers.insert(text.to_owned(), number);
                words.push(text.to_owned());
                number
            };
            let (cause, server) = (number(row.text(4)), number(row.text(5)));
            let (host, status) = (row.int(1), row.int(2));
            let by_method =
                methods.is_empty() || methods.iter().any(|method| method.eq_ignore_ascii_case(row.text(3)));
            let counts = by_method && self.admits_status(status) && self.admits_host(host);
            self.shapes.insert(row.int(0), ShapeColumns { host, status, cause, server, counts });
            ControlFlow::Continue(())
        })
    }

    /// Returns `true` if no request can pass. Shapes do not count: they vanish with their requests, while
    /// sums stay.
    pub(crate) fn is_empty(&self) -> bool {
        let sets = [&self.hosts, &self.paths, &self.referrers, &self.clients];
        sets.into_iter().flatten().any(NumberSet::is_empty)
    }

    pub(crate) fn admits_host(&self, host: i64) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.has(host))
    }

    pub(crate) fn admits_status(&self, status: i64) -> bool {
        self.statuses.is_empty() || self.statuses.iter().any(|range| range.contains(status))
    }

    pub(crate) fn admits_path(&self, path: i64) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.has(path))
    }

    pub(crate) fn admits_referrer(&self, referer: i64) -> bool {
        self.referrers.as_ref().is_none_or(|referrers| referrers.has(referer))
    }

    pub(crate) fn admits_client(&self, client: i64) -> bool {
        self.clients.as_ref().is_none_or(|clients| clients.has(client))
            && !self.excluded.as_ref().is_some_and(|excluded| excluded.has(client))
    }

    /// Returns `true` if requests of some clients do not count.
    pub(crate) fn is_by_client(&self) -> bool {
        self.clients.is_some() || self.excluded.is_some()
    }

    /// The shape of a request, if it passes.
    pub(crate) fn admits(&self, seen: &RequestColumns) -> Option<&ShapeColumns> {
        let shape = self.shapes.get(&seen.shape)?;
        let counts = shape.counts
            && self.bots.admits(seen.bot)
            && self.admits_client(seen.client)
            && self.admits_path(seen.path)
            && self.admits_referrer(seen.referer);
        counts.then_some(shape)
    }

    /// The columns of facts, besides the shape, that decide if a request counts.
    pub(crate) fn columns(&self) -> SieveColumns {
        SieveColumns {
            bot: self.bots != Bots::Included,
            client: self.is_by_client(),
            path: self.paths.is_some(),
            referer: self.referrers.is_some(),
        }
    }
}

/// The columns of facts that a sieve needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SieveColumns {
    pub(crate) bot: bool,
    pub(crate) client: bool,
    pub(crate) path: bool,
    pub(crate) referer: bool,
}

/// The numbers of texts that match any of the patterns; `None` without patterns.
fn texts(engine: &mut dyn Engine, table: &str, patterns: &[String]) -> Result<Option<NumberSet>, Error> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut found = NumberSet::default();
    for text in patterns {
        let (condition, bound, host) = match (table, engine.dialect()) {
            ("referer", dialect) if pattern::is_host(text) => {
                let like = if dialect == Dialect::Sqlite { "LIKE" } else { "ILIKE" };
                (format!("text {like} $1 ESCAPE '\\'"), format!("%{}%", pattern::escape_like(text)), true)
            }
            (_, dialect) => {
                let (condition, bound) = pattern::condition(dialect, text);
                (condition, bound, false)
            }
        };
        let sql = format!("SELECT id, {} FROM {table} WHERE {condition}", if host { "text" } else { "''" });
        engine.rows(&sql, &[&bound], &mut |row| {
            if !host || pattern::is_of_host(row.text(1), text) {
                found.add(row.int(0));
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(Some(found))
}

/// The numbers of clients in any of the networks; `None` without networks.
fn clients(engine: &mut dyn Engine, networks: &[AddressRange]) -> Result<Option<NumberSet>, Error> {
    if networks.is_empty() {
        return Ok(None);
    }
    let mut found = NumberSet::default();
    engine.rows("SELECT id, text FROM client", &[], &mut |row| {
        if row.text(1).parse().is_ok_and(|address| networks.iter().any(|network| network.contains(address))) {
            found.add(row.int(0));
        }
        ControlFlow::Continue(())
    })?;
    Ok(Some(found))
}
