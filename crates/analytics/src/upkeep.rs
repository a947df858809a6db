//! Maintenance in small steps: daily roll-ups, removal of data past its retention, removal of unused texts,
//! and return of free pages to the file system.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::batch::{BATCH_SOURCE, BatchId};
use crate::error::Error;
use crate::rollup::{self, GONE, HOUR_US, REMOVING, ROLLED, RollupPeriod, first_of};
use crate::store::positions::from_hex;
use crate::store::schema::DICTIONARIES;
use crate::store::{Dialect, Engine};

/// Times that data is kept for; `None`: for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    /// For requests one by one.
    pub(crate) requests: Option<Duration>,
    /// For hourly and daily roll-ups.
    pub(crate) rollups: Option<Duration>,
}

/// The outcome of one step of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// One step was done; there may be more.
    More,
    /// Nothing is due at present.
    Done,
}

/// Facts removed per step: some milliseconds.
const FACTS_AT_ONCE: i64 = 20_000;

/// Free pages returned per step.
const PAGES_AT_ONCE: i64 = 256;

/// The number of hours that must lose their facts before unused texts are removed.
const HOURS_BETWEEN_SWEEPS: i64 = 24;

/// The age in seconds at which identities of batches count as left behind; a process needs them for minutes.
const BATCHES_KEPT: u64 = 366 * 86_400;

/// Does one step of due work. Days from `open_day` on may still get hours.
pub(crate) fn step(
    engine: &mut dyn Engine,
    retention: Retention,
    now_us: i64,
    open_day: i64,
) -> Result<Upkeep, Error> {
    if let Some(day) = rollup::day_to_roll(engine, open_day.min(now_us / HOUR_US / 24))? {
        engine.whole(|engine| rollup::roll_day(engine, day))?;
        return Ok(Upkeep::More);
    }
    if let Some(kept) = retention.requests
        && remove_facts(engine, first_hour_kept(now_us, kept))?
    {
        return Ok(Upkeep::More);
    }
    if let Some(kept) = retention.rollups
        && remove_rollups(engine, first_hour_kept(now_us, kept))?
    {
        return Ok(Upkeep::More);
    }
    if sweep_is_due(engine)? {
        engine.whole(|engine| sweep(engine, now_us))?;
        return Ok(Upkeep::More);
    }
    give_pages_back(engine)
}

/// The number of sweeps of texts so far: cached numbers of texts are invalid when it changes.
pub(crate) fn sweeps(engine: &mut dyn Engine) -> Result<i64, Error> {
    let value = engine.text("SELECT value FROM meta WHERE name = 'sweeps'", &[])?;
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
}

/// The first hour to keep: an hour that is only partly too old stays.
fn first_hour_kept(now_us: i64, retention: Duration) -> i64 {
    let retention = i64::try_from(retention.as_micros()).unwrap_or(i64::MAX);
    now_us.saturating_sub(retention).div_euclid(HOUR_US)
}

/// Removes facts of the oldest hour past its retention; returns `true` if there was one. Only hours that are
/// rolled up lose their facts.
fn remove_facts(engine: &mut dyn Engine, kept_from: i64) -> Result<bool, Error> {
    let sql = format!(
        "SELECT hour FROM hours WHERE state IN ({ROLLED}, {REMOVING}) AND hour < {kept_from} ORDER BY hour LIMIT 1"
    );
    let Some(hour) = engine.int(&sql)? else { return Ok(false) };
    let (from, to) = (first_of(hour), first_of(hour + 1));
    engine.whole(|engine| {
        // Checked again under the lock, as another writer may have touched the hour.
        let state = engine.int(&format!("SELECT state FROM hours WHERE hour = {hour}"))?;
        if !matches!(state, Some(ROLLED | REMOVING)) {
            return Ok(());
        }
        let sql = format!(
            "SELECT id FROM fact WHERE id >= {from} AND id < {to} ORDER BY id LIMIT 1 OFFSET {FACTS_AT_ONCE}"
        );
        let end = engine.int(&sql)?;
        engine.run(&format!("DELETE FROM fact WHERE id >= {from} AND id < {}", end.unwrap_or(to)), &[])?;
        let next = if end.is_none() { GONE } else { REMOVING };
        engine.run(&format!("UPDATE hours SET state = {next} WHERE hour = {hour}"), &[])?;
        if end.is_none() {
            add_to_meta(engine, "unswept", 1)?;
        }
        Ok(())
    })?;
    Ok(true)
}

fn remove_rollups(engine: &mut dyn Engine, kept_from: i64) -> Result<bool, Error> {
    let sql =
        format!("SELECT hour FROM hours WHERE state = {GONE} AND hour < {kept_from} ORDER BY hour LIMIT 1");
    let Some(hour) = engine.int(&sql)? else { return Ok(false) };
    let day = hour.div_euclid(24);
    engine.whole(|engine| {
        remove_period(engine, RollupPeriod::hour(hour))?;
        engine.run(&format!("DELETE FROM hours WHERE hour = {hour} AND state = {GONE}"), &[])?;
        let left =
            format!("SELECT count(*) FROM hours WHERE hour >= {} AND hour < {}", day * 24, day * 24 + 24);
        if engine.int(&left)? == Some(0) {
            remove_period(engine, RollupPeriod::day(day))?;
            engine.run(&format!("DELETE FROM days WHERE day = {day}"), &[])?;
        }
        Ok(())
    })?;
    Ok(true)
}

fn remove_period(engine: &mut dyn Engine, period: RollupPeriod) -> Result<(), Error> {
    let these = period.condition();
    engine.run(&format!("DELETE FROM traffic WHERE {these}"), &[])?;
    engine.run(&format!("DELETE FROM heavy WHERE kind IN (0,1,2,3,4) AND {these}"), &[]).map(|_| ())
}

fn add_to_meta(engine: &mut dyn Engine, name: &str, by: i64) -> Result<(), Error> {
    let value = engine.text("SELECT value FROM meta WHERE name = $1", &[name])?;
    let value = value.and_then(|value| value.parse::<i64>().ok()).unwrap_or(0) + by;
    engine
        .run(
            "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            &[name, &value.to_string()],
        )
        .map(|_| ())
}

fn sweep_is_due(engine: &mut dyn Engine) -> Result<bool, Error> {
    let unswept = engine.text("SELECT value FROM meta WHERE name = 'unswept'", &[])?;
    let unswept = unswept.and_then(|value| value.parse::<i64>().ok()).unwrap_or(0);
    Ok(unswept >= HOURS_BETWEEN_SWEEPS)
}

/// Removes texts without a reference from facts or roll-ups. Facts, the bulk, are read once for all
/// dictionaries. Must run in a transaction.
fn sweep(engine: &mut (dyn Engine + '_), now_us: i64) -> Result<(), Error> {
    debug_assert_eq!(DICTIONARIES.len(), 7, "a dictionary that is not swept grows for ever");
    let mut shapes = Used::of("shape", engine)?;
    // In the order of the kinds of roll-ups.
    let mut items = [
        Used::of("path", engine)?,
        Used::of("referer", engine)?,
        Used::of("agent", engine)?,
        Used::of("client", engine)?,
        Used::of("network", engine)?,
    ];
    let (mut queries, mut hosts) = (Used::of("query", engine)?, Used::of("host", engine)?);
    engine.rows("SELECT shape, path, referer, agent, client, query FROM fact", &[], &mut |row| {
        shapes.mark(row.int(0));
        for (at, used) in items.iter_mut().take(4).enumerate() {
            used.mark(row.int(at + 1));
        }
        queries.mark(row.int(5));
        ControlFlow::Continue(())
    })?;
    engine.rows("SELECT kind, item, host FROM heavy", &[], &mut |row| {
        if let Some(used) = usize::try_from(row.int(0)).ok().and_then(|kind| items.get_mut(kind)) {
            used.mark(row.int(1));
        }
        hosts.mark(row.int(2));
        ControlFlow::Continue(())
    })?;
    mark_all(engine, "SELECT host FROM traffic", &mut hosts)?;
    // Shapes that are removed refer to nothing any more.
    shapes.remove_others(engine)?;
    mark_all(engine, "SELECT host FROM shape", &mut hosts)?;
    let [paths, referers, agents, clients, mut networks] = items;
    clients.remove_others(engine)?;
    mark_all(engine, "SELECT network FROM client", &mut networks)?;
    for used in [paths, referers, agents, networks, queries, hosts] {
        used.remove_others(engine)?;
    }
    forget_batches(engine, u64::try_from(now_us / 1_000_000).unwrap_or(0))?;
    engine.run("DELETE FROM meta WHERE name = 'unswept'", &[])?;
    add_to_meta(engine, "sweeps", 1)
}

fn mark_all(engine: &mut dyn Engine, sql: &str, used: &mut Used) -> Result<(), Error> {
    engine.rows(sql, &[], &mut |row| {
        used.mark(row.int(0));
        ControlFlow::Continue(())
    })
}

/// The rows of a table with references, as a bitmap.
struct Used {
    table: &'static str,
    bits: Vec<u64>,
}

impl Used {
    fn of(table: &'static str, engine: &mut dyn Engine) -> Result<Self, Error> {
        let most = engine.int(&format!("SELECT max(id) FROM {table}"))?.unwrap_or(0);
        Ok(Self { table, bits: vec![0; usize::try_from(most).unwrap_or(0) / 64 + 1] })
    }

    fn mark(&mut self, number: i64) {
        if let Ok(number) = usize::try_from(number)
            && let Some(word) = self.bits.get_mut(number / 64)
        {
            *word |= 1 << (number % 64);
        }
    }

    fn has(&self, number: i64) -> bool {
        let word = usize::try_from(number).ok().and_then(|number| self.bits.get(number / 64));
        word.is_none_or(|word| word >> (number % 64) & 1 == 1)
    }

    /// Removes the rows without references.
    fn remove_others(&self, engine: &mut dyn Engine) -> Result<(), Error> {
        let table = self.table;
        let mut unused = Vec::new();
        engine.rows(&format!("SELECT id FROM {table}"), &[], &mut |row| {
            unused.extend(Some(row.int(0)).filter(|number| !self.has(*number)));
            ControlFlow::Continue(())
        })?;
        for chunk in unused.chunks(512) {
            engine.run(&format!("DELETE FROM {table} WHERE id IN ({})", rollup::list(chunk)), &[])?;
        }
        Ok(())
    }
}

/// Removes identities of batches of processes that were killed long ago.
fn forget_batches(engine: &mut dyn Engine, now_s: u64) -> Result<(), Error> {
    let mut old = Vec::new();
    let sql = format!("SELECT source, place FROM positions WHERE source LIKE '{BATCH_SOURCE}%'");
    engine.rows(&sql, &[], &mut |row| {
        let began = BatchId::of(&from_hex(row.text(1))).map_or(0, |identity| identity.generation);
        if began.saturating_add(BATCHES_KEPT) < now_s {
            old.push(row.text(0).to_owned());
        }
        ControlFlow::Continue(())
    })?;
    old.iter()
        .try_for_each(|source| engine.run("DELETE FROM positions WHERE source = $1", &[source]).map(drop))
}

/// Returns free pages of SQLite; PostgreSQL manages its own.
fn give_pages_back(engine: &mut dyn Engine) -> Result<Upkeep, Error> {
    if engine.dialect() == Dialect::Postgres {
        return Ok(Upkeep::Done);
    }
    let free = engine.int("PRAGMA freelist_count")?.unwrap_or(0);
    // A few free pages will be reused soon.
    if free < PAGES_AT_ONCE {
        return Ok(Upkeep::Done);
    }
    engine.run(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"), &[])?;
    let left = engine.int("PRAGMA freelist_count")?.unwrap_or(0);
    Ok(if left < free { Upkeep::More } else { Upkeep::Done })
}
