//! What falls due beside writing, in small steps: daily roll-ups, removing what is older than its retention,
//! texts that nothing refers to any more, and giving pages back to the file system.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::Error;
use crate::rollup::{self, GONE, HOUR_US, Period, REMOVING, ROLLED, first_of};
use crate::sink::{BATCH_SOURCE, Identity};
use crate::store::schema::DICTIONARIES;
use crate::store::{Dialect, Engine};
use crate::writer::{Options, from_hex};

/// Whether something is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// One step was done; there may be more.
    More,
    /// Nothing is due.
    Done,
}

/// So many facts are removed by one step: some milliseconds.
const FACTS_AT_ONCE: i64 = 20_000;

/// So many free pages are given back by one step.
const PAGES_AT_ONCE: i64 = 256;

/// Texts are swept when so many hours lost their facts since the last time.
const HOURS_BETWEEN_SWEEPS: i64 = 24;

/// What this process knows of a batch is needed for minutes; what is older than this many seconds was left behind.
const BATCHES_KEPT: u64 = 366 * 86_400;

/// Does one step of what is due. Days from `open_day` on may still get hours.
pub(crate) fn step(
    engine: &mut dyn Engine,
    options: &Options,
    now_us: i64,
    open_day: i64,
) -> Result<Upkeep, Error> {
    if let Some(day) = rollup::day_to_roll(engine, open_day.min(now_us / HOUR_US / 24))? {
        engine.whole(|engine| rollup::roll_day(engine, day))?;
        return Ok(Upkeep::More);
    }
    if let Some(retention) = options.retention
        && remove_facts(engine, first_hour_kept(now_us, retention))?
    {
        return Ok(Upkeep::More);
    }
    if let Some(retention) = options.rollup_retention
        && remove_rollups(engine, first_hour_kept(now_us, retention))?
    {
        return Ok(Upkeep::More);
    }
    if sweep_is_due(engine)? {
        engine.whole(|engine| sweep(engine, now_us))?;
        return Ok(Upkeep::More);
    }
    give_pages_back(engine)
}

/// How often texts were swept: whoever knows numbers of texts forgets them when this changes.
pub(crate) fn sweeps(engine: &mut dyn Engine) -> Result<i64, Error> {
    let value = engine.text("SELECT value FROM meta WHERE name = 'sweeps'", &[])?;
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or(0))
}

/// The first hour that is still kept: one that is only partly too old stays.
fn first_hour_kept(now_us: i64, retention: Duration) -> i64 {
    let retention = i64::try_from(retention.as_micros()).unwrap_or(i64::MAX);
    now_us.saturating_sub(retention).div_euclid(HOUR_US)
}

/// Removes facts of the oldest hour that is too old; true if there was one. Only hours that are rolled up lose
/// their facts.
fn remove_facts(engine: &mut dyn Engine, kept_from: i64) -> Result<bool, Error> {
    let sql = format!(
        "SELECT hour FROM hours WHERE state IN ({ROLLED}, {REMOVING}) AND hour < {kept_from} ORDER BY hour LIMIT 1"
    );
    let Some(hour) = engine.int(&sql)? else { return Ok(false) };
    let (from, to) = (first_of(hour), first_of(hour + 1));
    engine.whole(|engine| {
        // Again, as another writer may have touched it.
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
        remove_period(engine, Period::hour(hour))?;
        engine.run(&format!("DELETE FROM hours WHERE hour = {hour} AND state = {GONE}"), &[])?;
        let left =
            format!("SELECT count(*) FROM hours WHERE hour >= {} AND hour < {}", day * 24, day * 24 + 24);
        if engine.int(&left)? == Some(0) {
            remove_period(engine, Period::day(day))?;
            engine.run(&format!("DELETE FROM days WHERE day = {day}"), &[])?;
        }
        Ok(())
    })?;
    Ok(true)
}

fn remove_period(engine: &mut dyn Engine, period: Period) -> Result<(), Error> {
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

/// Removes texts that neither facts nor roll-ups refer to: facts, which are most, are read once for all of them.
/// Inside a transaction.
fn sweep(engine: &mut (dyn Engine + '_), now_us: i64) -> Result<(), Error> {
    debug_assert_eq!(DICTIONARIES.len(), 7, "a dictionary that is not swept grows for ever");
    let mut shapes = Used::of("shape", engine)?;
    // In the order of roll-ups' kinds.
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
    // What is removed uses nothing any more.
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

/// Which rows of a table are referred to: one bit per number.
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

    /// Removes the rows that nothing refers to.
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

/// Forgets the identities of batches whose processes were killed long ago.
fn forget_batches(engine: &mut dyn Engine, now_s: u64) -> Result<(), Error> {
    let mut old = Vec::new();
    let sql = format!("SELECT source, place FROM positions WHERE source LIKE '{BATCH_SOURCE}%'");
    engine.rows(&sql, &[], &mut |row| {
        let began = Identity::of(&from_hex(row.text(1))).map_or(0, |identity| identity.generation);
        if began.saturating_add(BATCHES_KEPT) < now_s {
            old.push(row.text(0).to_owned());
        }
        ControlFlow::Continue(())
    })?;
    old.iter()
        .try_for_each(|source| engine.run("DELETE FROM positions WHERE source = $1", &[source]).map(drop))
}

/// SQLite keeps pages that became free; PostgreSQL looks after its own.
fn give_pages_back(engine: &mut dyn Engine) -> Result<Upkeep, Error> {
    if engine.dialect() == Dialect::Postgres {
        return Ok(Upkeep::Done);
    }
    let free = engine.int("PRAGMA freelist_count")?.unwrap_or(0);
    // A few free pages are used again soon.
    if free < PAGES_AT_ONCE {
        return Ok(Upkeep::Done);
    }
    engine.run(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"), &[])?;
    let left = engine.int("PRAGMA freelist_count")?.unwrap_or(0);
    Ok(if left < free { Upkeep::More } else { Upkeep::Done })
}
