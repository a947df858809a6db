//! What falls due beside writing, in small steps: daily roll-ups, removing what is older than its retention,
//! texts that nothing refers to any more, and giving pages back to the file system.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::Error;
use crate::rollup::{self, GONE, HOUR_US, REMOVING, ROLLED, day_period, first_of};
use crate::store::schema::DICTIONARIES;
use crate::store::{Dialect, Engine};
use crate::writer::Options;

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

/// Does one step of what is due.
pub(crate) fn step(engine: &mut dyn Engine, options: &Options, now_us: i64) -> Result<Upkeep, Error> {
    if let Some(day) = rollup::day_to_roll(engine, now_us / HOUR_US / 24)? {
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
        engine.whole(sweep)?;
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
        remove_period(engine, hour)?;
        engine.run(&format!("DELETE FROM hours WHERE hour = {hour} AND state = {GONE}"), &[])?;
        let left =
            format!("SELECT count(*) FROM hours WHERE hour >= {} AND hour < {}", day * 24, day * 24 + 24);
        if engine.int(&left)? == Some(0) {
            remove_period(engine, day_period(day))?;
            engine.run(&format!("DELETE FROM days WHERE day = {day}"), &[])?;
        }
        Ok(())
    })?;
    Ok(true)
}

fn remove_period(engine: &mut dyn Engine, period: i64) -> Result<(), Error> {
    engine.run(&format!("DELETE FROM traffic WHERE period = {period}"), &[])?;
    engine.run(&format!("DELETE FROM heavy WHERE kind IN (0,1,2,3,4) AND period = {period}"), &[]).map(|_| ())
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

/// Removes texts that neither facts nor roll-ups refer to. Inside a transaction.
fn sweep(engine: &mut (dyn Engine + '_)) -> Result<(), Error> {
    for (table, column, kind) in
        [("path", "path", 0), ("referer", "referer", 1), ("agent", "agent", 2), ("client", "client", 3)]
    {
        let rolled = format!("SELECT item FROM heavy WHERE kind = {kind}");
        remove_unused(engine, table, &[format!("SELECT {column} FROM fact"), rolled])?;
    }
    remove_unused(engine, "query", &["SELECT query FROM fact".into()])?;
    remove_unused(engine, "shape", &["SELECT shape FROM fact".into()])?;
    remove_unused(
        engine,
        "host",
        &[
            "SELECT host FROM shape".into(),
            "SELECT host FROM traffic".into(),
            "SELECT host FROM heavy".into(),
        ],
    )?;
    remove_unused(
        engine,
        "network",
        &["SELECT network FROM client".into(), "SELECT item FROM heavy WHERE kind = 4".into()],
    )?;
    debug_assert_eq!(DICTIONARIES.len(), 7, "a dictionary that is not swept grows for ever");
    engine.run("DELETE FROM meta WHERE name = 'unswept'", &[])?;
    add_to_meta(engine, "sweeps", 1)
}

/// Removes the rows of a table whose numbers none of the statements gives. One bit per number is kept.
fn remove_unused(engine: &mut dyn Engine, table: &str, uses: &[String]) -> Result<(), Error> {
    let most =
        usize::try_from(engine.int(&format!("SELECT max(id) FROM {table}"))?.unwrap_or(0)).unwrap_or(0);
    let mut used = vec![0u64; most / 64 + 1];
    for sql in uses {
        engine.rows(sql, &[], &mut |row| {
            if let Ok(number) = usize::try_from(row.int(0))
                && let Some(word) = used.get_mut(number / 64)
            {
                *word |= 1 << (number % 64);
            }
            ControlFlow::Continue(())
        })?;
    }
    let mut unused = Vec::new();
    engine.rows(&format!("SELECT id FROM {table}"), &[], &mut |row| {
        let number = row.int(0);
        let word = usize::try_from(number).ok().and_then(|number| used.get(number / 64));
        if word.is_some_and(|word| word >> (number % 64) & 1 == 0) {
            unused.push(number);
        }
        ControlFlow::Continue(())
    })?;
    for chunk in unused.chunks(512) {
        engine.run(&format!("DELETE FROM {table} WHERE id IN ({})", rollup::list(chunk)), &[])?;
    }
    Ok(())
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
