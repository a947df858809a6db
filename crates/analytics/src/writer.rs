//! The writer: requests are added one by one, and stored in batches.
//!
//! Everything since the last [`Writer::commit`] becomes durable atomically; a position in the source can be
//! committed with it, so that an import that resumes after a crash neither loses nor duplicates a line.
//! Several processes may write to one store; they take turns by transaction.

mod damage;
pub(crate) mod dictionary;
mod rolling;
pub(crate) mod shape;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use crate::entry::LogEntry;
use crate::error::Error;
use crate::rollup::{self, late};
use crate::search;
use crate::store::location::Location;
use crate::store::positions::ReadProgress;
use crate::store::{Dialect, Engine, Fact, StoreAccess, open, sequence};
use crate::text::clean;
use crate::upkeep;
use crate::writer::dictionary::{CacheKeys, TextCache, intern, settled};

pub use damage::{move_aside, was_a_store};

/// Options for writing a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Set to index texts by word, for [`crate::Questions::search`], which costs disk and time; `None` keeps
    /// the store's present state.
    pub full_text: Option<bool>,
    /// The time to wait for another process that holds the store.
    pub busy_timeout: Duration,
    /// The retention of single requests; `None` for ever.
    pub retention: Option<Duration>,
    /// The retention of hourly and daily roll-ups; `None` for ever.
    pub rollup_retention: Option<Duration>,
    /// The number of cached texts of each kind. The default takes some 4 MiB.
    pub texts_at_hand: usize,
    /// The database's cache, in KiB (SQLite only).
    pub cache_kib: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            full_text: None,
            busy_timeout: Duration::from_secs(5),
            retention: None,
            rollup_retention: None,
            texts_at_hand: 8192,
            cache_kib: 4096,
        }
    }
}

/// Writes requests to a store.
pub struct Writer {
    engine: Box<dyn Engine>,
    keys: CacheKeys,
    caches: Caches,
    /// Facts with provisional numbers, and times instead of positions.
    batch: Vec<Fact>,
    packed: Vec<u8>,
    /// Set while a transaction is open.
    open: bool,
    /// Hours with outdated roll-ups, and the commit that touched each last.
    pending: BTreeMap<i64, u64>,
    /// The latest hour with a request.
    newest_hour: i64,
    /// The number of commits at the last upkeep, and the time since which there was none.
    idle: (u64, i64),
    /// The number of sweeps of the dictionaries when the caches were filled.
    swept: i64,
    commits: u64,
    options: Options,
}

struct Caches {
    shape: TextCache,
    client: TextCache,
    path: TextCache,
    query: TextCache,
    agent: TextCache,
    referer: TextCache,
}

impl Caches {
    fn new(texts: usize) -> Self {
        Self {
            shape: TextCache::new(texts / 4),
            client: TextCache::new(texts * 2),
            path: TextCache::new(texts),
            query: TextCache::new(texts / 2),
            agent: TextCache::new(texts / 2),
            referer: TextCache::new(texts / 2),
        }
    }

    fn clear(&mut self) {
        let Self { shape, client, path, query, agent, referer } = self;
        [shape, client, path, query, agent, referer].into_iter().for_each(TextCache::clear);
    }
}

/// Facts per insertion: enough to amortise a statement, little in memory.
const BATCH: usize = 8192;

/// The time limit that a server has for statements that add requests.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

impl Writer {
    /// Opens a store for writing. An absent one is created, an older one is migrated.
    ///
    /// # Errors
    /// A wrong URL; a store that is locked, unreachable, full, damaged, or of a later version of Offramp.
    pub fn open(url: &str, options: &Options) -> Result<Self, Error> {
        let access = StoreAccess { busy: options.busy_timeout, cache_kib: options.cache_kib };
        Self::over(open(&Location::parse(url)?, access)?, options)
    }

    /// Writes to a store that is open.
    pub(crate) fn over(mut engine: Box<dyn Engine>, options: &Options) -> Result<Self, Error> {
        let keys = engine.whole(CacheKeys::of)?;
        if let Some(wanted) = options.full_text {
            search::prepare(engine.as_mut(), wanted)?;
        }
        let pending = rollup::pending(engine.as_mut())?.into_iter().map(|hour| (hour, 0)).collect();
        let swept = upkeep::sweeps(engine.as_mut())?;
        limit(engine.as_mut(), LONGEST_WRITE)?;
        Ok(Self {
            engine,
            keys,
            caches: Caches::new(options.texts_at_hand),
            batch: Vec::with_capacity(BATCH),
            packed: Vec::new(),
            open: false,
            pending,
            newest_hour: 0,
            idle: (0, 0),
            swept,
            commits: 0,
            options: options.clone(),
        })
    }

    /// Adds a request to the batch.
    ///
    /// # Errors
    /// The store refused a full batch: everything since the last commit is rolled back, and must be added
    /// again.
    pub fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error> {
        let fact = self.fact(entry);
        self.batch.push(fact);
        if self.batch.len() >= BATCH {
            return self.guarded(Self::flush);
        }
        Ok(())
    }

    /// Commits everything added.
    ///
    /// # Errors
    /// Like [`Writer::add`].
    pub fn commit(&mut self) -> Result<(), Error> {
        self.commit_places(None)
    }

    /// Commits everything added, together with a position in its source.
    ///
    /// # Errors
    /// Like [`Writer::add`].
    pub fn commit_with(&mut self, source: &str, position: &[u8]) -> Result<(), Error> {
        self.commit_places(Some(ReadProgress::Position(source, position)))
    }

    /// Commits everything added, together with positions in several sources.
    pub(crate) fn commit_places<'p>(
        &mut self,
        places: impl IntoIterator<Item = ReadProgress<'p>>,
    ) -> Result<(), Error> {
        self.finish_transaction(places)
    }

    /// Drops everything added since the last commit.
    pub fn rollback(&mut self) {
        self.batch.clear();
        self.caches.clear();
        if std::mem::take(&mut self.open) {
            self.engine.rollback();
        }
        if let Ok(sweeps) = upkeep::sweeps(self.engine.as_mut()) {
            self.swept = sweeps;
        }
    }

    /// Commits, and gives up the store.
    pub(crate) fn into_engine(mut self) -> Result<Box<dyn Engine>, Error> {
        self.commit()?;
        Ok(self.engine)
    }

    fn fact(&mut self, entry: &LogEntry<'_>) -> Fact {
        shape::pack(entry, &mut self.packed);
        let size = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
        let Caches { shape, client, path, query, agent, referer } = &mut self.caches;
        let number = |cache: &mut TextCache, text: Option<&[u8]>| match text {
            Some(text) if !text.is_empty() => cache.number(bounded(text)),
            _ => 0,
        };
        Fact {
            id: entry.time_us,
            shape: shape.number(&self.packed),
            client: match entry.client.map(|ip| ip.to_canonical()) {
                Some(IpAddr::V4(ip)) => client.number(&ip.octets()),
                Some(IpAddr::V6(ip)) => client.number(&ip.octets()),
                None => 0,
            },
            path: number(path, Some(entry.request.path)),
            query: number(query, entry.request.query),
            agent: number(agent, entry.agent),
            referer: number(referer, entry.referer),
            bytes: size(entry.response.bytes),
            received: entry.response.received.map(size),
            duration: entry.response.duration_us.map(size),
            phases: entry.phases.all().map(|phase| phase.map(size)),
            request: entry.proxy.id.map(|id| clean(&id[..id.len().min(128)]).into()),
        }
    }

    /// Runs a step of the transaction; a failure rolls back the whole transaction.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let result = step(self);
        if result.is_err() {
            self.rollback();
        }
        result
    }

    fn ensure_open(&mut self) -> Result<(), Error> {
        if self.open {
            return Ok(());
        }
        self.engine.begin()?;
        self.open = true;
        if upkeep::sweeps(self.engine.as_mut())? != self.swept {
            // Numbers in the batch may belong to texts that were removed.
            return Err(Error::Busy("texts were swept meanwhile".into()));
        }
        Ok(())
    }

    /// Passes the batch to the database, within the transaction.
    fn flush(&mut self) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.ensure_open()?;
        self.settle_texts()?;
        sequence::assign(self.engine.as_mut(), &mut self.batch)?;
        let rolled = late::take(self.engine.as_mut(), &mut self.batch)?;
        self.engine.insert(&self.batch)?;
        self.count_hours(&rolled)?;
        self.batch.clear();
        Ok(())
    }

    /// Assigns numbers to new texts.
    fn settle_texts(&mut self) -> Result<(), Error> {
        let (engine, keys) = (self.engine.as_mut(), self.keys);
        let shapes = match self.caches.shape.new_texts() {
            [] => Vec::new(),
            new => shape::intern_shapes(engine, keys, new)?,
        };
        self.caches.shape.settle(&shapes);
        let mut tables = [
            ("client", &mut self.caches.client),
            ("path", &mut self.caches.path),
            ("query", &mut self.caches.query),
            ("agent", &mut self.caches.agent),
            ("referer", &mut self.caches.referer),
        ];
        let mut numbers: [Vec<i64>; 5] = Default::default();
        for ((table, cache), numbers) in tables.iter_mut().zip(&mut numbers) {
            if cache.new_texts().is_empty() {
                continue;
            }
            let texts: Vec<_> = cache.new_texts().iter().map(|text| readable(table, text)).collect();
            let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
            *numbers = intern(engine, keys, table, &texts)?;
            cache.settle(numbers);
        }
        for fact in &mut self.batch {
            fact.shape = settled(fact.shape, &shapes);
            let references =
                [&mut fact.client, &mut fact.path, &mut fact.query, &mut fact.agent, &mut fact.referer];
            for (reference, numbers) in references.into_iter().zip(&numbers) {
                *reference = settled(*reference, numbers);
            }
        }
        Ok(())
    }

    /// Updates the number of facts per hour, and marks roll-ups as outdated unless they include the facts.
    fn count_hours(&mut self, rolled: &BTreeMap<i64, i64>) -> Result<(), Error> {
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for fact in &self.batch {
            *counts.entry(late::hour_of(fact)).or_default() += 1;
        }
        let newest = counts.last_key_value().map_or(0, |(hour, _)| *hour);
        self.newest_hour = self.newest_hour.max(newest);
        counts.retain(|hour, _| !rolled.contains_key(hour));
        for hour in counts.keys() {
            self.pending.insert(*hour, self.commits);
        }
        let counts: Vec<_> = counts.into_iter().collect();
        for chunk in counts.chunks(512) {
            let mut sql = String::from("INSERT INTO hours (hour, requests, state) VALUES ");
            for (index, (hour, count)) in chunk.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                let _ = write!(sql, "{comma}({hour},{count},0)");
            }
            sql += rollup::TOUCH;
            self.engine.run(&sql, &[])?;
        }
        Ok(())
    }

    fn finish_transaction<'p>(
        &mut self,
        places: impl IntoIterator<Item = ReadProgress<'p>>,
    ) -> Result<(), Error> {
        self.guarded(|writer| {
            writer.flush()?;
            for place in places {
                writer.ensure_open()?;
                place.save(writer.engine.as_mut())?;
            }
            if writer.open {
                writer.engine.commit()?;
                writer.open = false;
                writer.commits += 1;
            }
            Ok(())
        })
    }

    /// Another process, or this one, may have removed texts that are still cached.
    fn look_for_sweeps(&mut self) -> Result<(), Error> {
        let sweeps = upkeep::sweeps(self.engine.as_mut())?;
        if sweeps != self.swept {
            self.swept = sweeps;
            self.caches.clear();
        }
        Ok(())
    }
}

/// Sets a time limit for statements on a server. SQLite has no other machine to wait for.
fn limit(engine: &mut dyn Engine, limit: Duration) -> Result<(), Error> {
    match engine.dialect() {
        Dialect::Sqlite => Ok(()),
        Dialect::Postgres => engine.limit(Some(limit)),
    }
}

/// The part of a text that is kept, so that the rest need not be hashed.
fn bounded(text: &[u8]) -> &[u8] {
    &text[..text.len().min(crate::text::LONGEST + 8)]
}

/// The text of cached bytes.
fn readable<'a>(table: &str, bytes: &'a [u8]) -> std::borrow::Cow<'a, str> {
    match (table, bytes) {
        ("client", [a, b, c, d]) => IpAddr::from([*a, *b, *c, *d]).to_string().into(),
        ("client", _) => match <[u8; 16]>::try_from(bytes) {
            Ok(octets) => IpAddr::from(octets).to_string().into(),
            Err(_) => clean(bytes),
        },
        _ => clean(bytes),
    }
}
