//! Roll-ups: what an hour and a day came to, so that questions about months need not read every request.
//!
//! An hour is rolled up when it is over, from its facts; until then, and again after late facts, it is *pending*
//! and questions read its facts. Requests by host and status are exact. Of paths, referrers, agents, clients and
//! networks the heaviest of each host are kept by name, as many as its share of the hour deserves, and the rest is
//! added up under [`REST`]: lists from roll-ups are right about what is heavy and may undercount what is rare.

pub(crate) mod tally;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::ControlFlow;

use crate::error::Error;
use crate::rollup::tally::{Cell, Share, Sums, Tally};
use crate::store::{Engine, SEQUENCE_BITS};

/// Microseconds in an hour.
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// Hours whose facts are not in roll-ups yet.
pub(crate) const PENDING: i64 = 0;
/// Hours that are rolled up.
pub(crate) const ROLLED: i64 = 1;
/// Hours that are rolled up and whose facts were removed.
pub(crate) const GONE: i64 = 2;
/// Hours that got facts after theirs were removed: roll-ups and facts are to be added up.
pub(crate) const LATE: i64 = 3;

/// Hours that are rolled up and whose facts are being removed; facts that still come are removed with them.
pub(crate) const REMOVING: i64 = 4;

/// What happens to an hour that gets facts.
pub(crate) const TOUCH: &str = " ON CONFLICT (hour) DO UPDATE SET requests = hours.requests + \
     excluded.requests, state = CASE hours.state WHEN 1 THEN 0 WHEN 2 THEN 3 ELSE hours.state END";

/// The number of what is not kept by name.
pub(crate) const REST: i64 = -1;

/// What is kept by its heaviest items; the discriminants are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Path = 0,
    Referer = 1,
    Agent = 2,
    Client = 3,
    Network = 4,
}

impl Kind {
    /// Every kind.
    const ALL: [Self; 5] = [Self::Path, Self::Referer, Self::Agent, Self::Client, Self::Network];
}

/// So many items of a host are kept for an hour, and for a day, at most.
const MOST: [usize; 2] = [500, 1000];

/// So many rows go into one statement.
const CHUNK: usize = 256;

/// The first fact number of an hour.
pub(crate) const fn first_of(hour: i64) -> i64 {
    (hour * HOUR_US) << SEQUENCE_BITS
}

/// The period of a day since 1970; an hour's period is its own number.
pub(crate) const fn day_period(day: i64) -> i64 {
    -1 - day
}

/// Hours that are to be rolled up.
pub(crate) fn pending(engine: &mut dyn Engine) -> Result<Vec<i64>, Error> {
    let sql = format!("SELECT hour FROM hours WHERE state IN ({PENDING}, {LATE}) ORDER BY hour");
    Ok(engine.ints::<1>(&sql)?.into_iter().map(|[hour]| hour).collect())
}

/// Rolls up an hour that needs it. Inside a transaction.
pub(crate) fn roll_hour(engine: &mut dyn Engine, hour: i64) -> Result<(), Error> {
    let state = engine.int(&format!("SELECT state FROM hours WHERE hour = {hour}"))?;
    let (from, to) = (first_of(hour), first_of(hour + 1));
    let next = match state {
        Some(PENDING) => ROLLED,
        Some(LATE) => GONE,
        _ => return Ok(()),
    };
    let mut rolled = Rolled::default();
    rolled.read_facts(engine, from, to)?;
    if next == GONE {
        rolled.read_periods(engine, &[hour])?;
        engine.run(&format!("DELETE FROM fact WHERE id >= {from} AND id < {to}"), &[])?;
    }
    rolled.write(engine, hour, MOST[0])?;
    engine.run(&format!("UPDATE hours SET state = {next} WHERE hour = {hour}"), &[])?;
    let day = hour.div_euclid(24);
    let sql = format!(
        "INSERT INTO days (day, state) VALUES ({day}, {PENDING}) ON CONFLICT (day) DO UPDATE SET state = {PENDING}"
    );
    engine.run(&sql, &[]).map(|_| ())
}

/// The first day that is over, whose hours are rolled up, and which itself is not.
pub(crate) fn day_to_roll(engine: &mut dyn Engine, today: i64) -> Result<Option<i64>, Error> {
    let sql = format!(
        "SELECT day FROM days WHERE state = {PENDING} AND day < {today} AND NOT EXISTS (SELECT 1 FROM hours WHERE \
         hour >= day * 24 AND hour < day * 24 + 24 AND state IN ({PENDING}, {LATE})) ORDER BY day LIMIT 1"
    );
    engine.int(&sql)
}

/// Rolls up a day from its hours. Inside a transaction.
pub(crate) fn roll_day(engine: &mut dyn Engine, day: i64) -> Result<(), Error> {
    let mut rolled = Rolled::default();
    let hours: Vec<i64> = (day * 24..day * 24 + 24).collect();
    rolled.read_periods(engine, &hours)?;
    rolled.write(engine, day_period(day), MOST[1])?;
    engine.run(&format!("UPDATE days SET state = {ROLLED} WHERE day = {day}"), &[]).map(|_| ())
}

/// The roll-ups of one period while they are made.
#[derive(Default)]
struct Rolled {
    /// By host, status and bot.
    traffic: Tally,
    /// By host, item and bot; one per kind.
    heavy: [Tally; 5],
}

impl Rolled {
    fn read_facts(&mut self, engine: &mut dyn Engine, from: i64, to: i64) -> Result<(), Error> {
        let shapes = shapes(engine)?;
        let sql = format!(
            "SELECT shape, bytes, agent, path, referer, client FROM fact WHERE id >= {from} AND id < {to}"
        );
        let Self { traffic, heavy: [paths, referers, agents, clients, _] } = self;
        engine.rows(&sql, &[], &mut |row| {
            let (host, status) = shape_of(&shapes, row.int(0));
            let sums = Sums { requests: 1, bytes: row.int(1) };
            let agent = row.int(2);
            let bot = agent & 1 == 1;
            traffic.add(Cell::new(host, bot, status), sums);
            for (tally, item) in [
                (&mut *paths, row.int(3)),
                (&mut *referers, row.int(4)),
                (&mut *agents, agent),
                (&mut *clients, row.int(5)),
            ] {
                if item != 0 {
                    tally.add(Cell::new(host, bot, item), sums);
                }
            }
            ControlFlow::Continue(())
        })?;
        self.read_networks(engine)
    }

    /// Adds clients up to networks.
    fn read_networks(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        let [.., clients, networks] = &mut self.heavy;
        let mut cells: Vec<(Cell, Sums)> = clients.iter().collect();
        cells.sort_unstable_by_key(|(cell, _)| cell.item());
        for chunk in cells.chunks(CHUNK) {
            let mut ids: Vec<i64> = chunk.iter().map(|(cell, _)| cell.item()).collect();
            ids.dedup();
            let found =
                engine.ints::<2>(&format!("SELECT id, network FROM client WHERE id IN ({})", list(&ids)))?;
            let network_of: std::collections::HashMap<i64, i64> = found.into_iter().map(Into::into).collect();
            for (cell, sums) in chunk {
                let network = network_of.get(&cell.item()).copied().unwrap_or(REST);
                networks.add(Cell::new(cell.host(), cell.bot(), network), *sums);
            }
        }
        Ok(())
    }

    fn read_periods(&mut self, engine: &mut dyn Engine, periods: &[i64]) -> Result<(), Error> {
        let periods = list(periods);
        let sql =
            format!("SELECT host, bot, status, requests, bytes FROM traffic WHERE period IN ({periods})");
        read(engine, &sql, &mut self.traffic)?;
        for (kind, tally) in Kind::ALL.into_iter().zip(&mut self.heavy) {
            let kind = kind as i64;
            let sql = format!(
                "SELECT host, bot, item, requests, bytes FROM heavy WHERE kind = {kind} AND period IN ({periods})"
            );
            read(engine, &sql, tally)?;
        }
        Ok(())
    }

    /// Writes the roll-ups in the place of what was there.
    fn write(&self, engine: &mut dyn Engine, period: i64, most: usize) -> Result<(), Error> {
        let kept = tally::heaviest_hosts(&self.traffic);
        let mut rows = Vec::new();
        for (cell, sums) in self.traffic.within(&kept).iter() {
            rows.push(format!(
                "({period},{},{},{},{},{})",
                cell.host(),
                cell.item(),
                u8::from(cell.bot()),
                sums.requests,
                sums.bytes
            ));
        }
        engine.run(&format!("DELETE FROM traffic WHERE period = {period}"), &[])?;
        insert(engine, "traffic (period, host, status, bot, requests, bytes)", &rows)?;
        for (kind, tally) in Kind::ALL.into_iter().zip(&self.heavy) {
            let kind = kind as i64;
            let share = Share { hosts: &kept, most };
            rows.clear();
            for (cell, sums) in tally.within(&kept).heaviest(&share) {
                rows.push(format!(
                    "({kind},{period},{},{},{},{},{})",
                    cell.host(),
                    u8::from(cell.bot()),
                    cell.item(),
                    sums.requests,
                    sums.bytes
                ));
            }
            engine.run(&format!("DELETE FROM heavy WHERE kind = {kind} AND period = {period}"), &[])?;
            insert(engine, "heavy (kind, period, host, bot, item, requests, bytes)", &rows)?;
        }
        Ok(())
    }
}

fn read(engine: &mut dyn Engine, sql: &str, tally: &mut Tally) -> Result<(), Error> {
    engine.rows(sql, &[], &mut |row| {
        let sums = Sums { requests: row.int(3), bytes: row.int(4) };
        tally.add(Cell::new(row.int(0), row.int(1) == 1, row.int(2)), sums);
        ControlFlow::Continue(())
    })
}

fn insert(engine: &mut dyn Engine, table: &str, rows: &[String]) -> Result<(), Error> {
    for chunk in rows.chunks(CHUNK) {
        engine.run(&format!("INSERT INTO {table} VALUES {}", chunk.join(",")), &[])?;
    }
    Ok(())
}

/// Host and status of every shape, by its number.
pub(crate) fn shapes(engine: &mut dyn Engine) -> Result<Vec<(i64, i64)>, Error> {
    let mut shapes = Vec::new();
    engine.rows("SELECT id, host, status FROM shape", &[], &mut |row| {
        if let Ok(id) = usize::try_from(row.int(0)) {
            if shapes.len() <= id {
                shapes.resize(id + 1, (0, 0));
            }
            shapes[id] = (row.int(1), row.int(2));
        }
        ControlFlow::Continue(())
    })?;
    Ok(shapes)
}

/// Host and status of one shape; 0 where it is not known.
pub(crate) fn shape_of(shapes: &[(i64, i64)], shape: i64) -> (i64, i64) {
    usize::try_from(shape).ok().and_then(|shape| shapes.get(shape)).copied().unwrap_or_default()
}

/// Numbers, as a statement lists them; never empty.
pub(crate) fn list(numbers: &[i64]) -> String {
    let unique: BTreeSet<i64> = numbers.iter().copied().collect();
    let mut text = String::new();
    for number in unique {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{number}");
    }
    if text.is_empty() { "NULL".to_owned() } else { text }
}
