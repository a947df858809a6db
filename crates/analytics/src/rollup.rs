//! Roll-ups: sums per hour and day, so that queries about months need not read every request.
//!
//! An hour is rolled up from its facts when it is over; until then it is *pending* and queries read its
//! facts. Facts that come later are added to existing roll-ups (see `late`) as long as they are few. Requests
//! by host and status are exact. Of paths, referrers, agents, clients and networks the heaviest of each host
//! are kept by name, as many as its share of the hour deserves, and the others are summed up under [`REST`].
//! A host with few of them keeps all (`tally::ItemShare`); for other hosts, the rest bounds the error of a list
//! (`questions::missing`).

pub(crate) mod late;
pub(crate) mod tally;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::ops::ControlFlow;

use foldhash::fast::RandomState;

use crate::error::Error;
use crate::rollup::tally::{Cell, ItemShare, RollupTally, Sums};
use crate::store::{Engine, Fact, SEQUENCE_BITS};

pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// Hours with facts that are not in roll-ups yet.
pub(crate) const PENDING: i64 = 0;
/// Hours that are rolled up.
pub(crate) const ROLLED: i64 = 1;
/// Hours that are rolled up and have lost their facts.
pub(crate) const GONE: i64 = 2;
/// Hours that got facts after their facts were removed: roll-ups and facts add up.
pub(crate) const LATE: i64 = 3;

/// Hours that are rolled up and lose their facts step by step; late facts are removed with them.
pub(crate) const REMOVING: i64 = 4;

/// The update of an hour that gets facts.
pub(crate) const TOUCH: &str = " ON CONFLICT (hour) DO UPDATE SET requests = hours.requests + \
     excluded.requests, state = CASE hours.state WHEN 1 THEN 0 WHEN 2 THEN 3 ELSE hours.state END";

/// The number of everything that is not kept by name.
pub(crate) const REST: i64 = -1;

/// Items of which the heaviest are kept; discriminants are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RollupKind {
    Path = 0,
    Referer = 1,
    Agent = 2,
    Client = 3,
    Network = 4,
}

impl RollupKind {
    /// Every kind in the order of the discriminants.
    const ALL: [Self; 5] = [Self::Path, Self::Referer, Self::Agent, Self::Client, Self::Network];
}

/// The length of a period; discriminants are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RollupLevel {
    Hour = 0,
    Day = 1,
}

/// An hour or a day, by its number since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RollupPeriod {
    pub(crate) level: RollupLevel,
    pub(crate) number: i64,
}

impl RollupPeriod {
    pub(crate) const fn hour(number: i64) -> Self {
        Self { level: RollupLevel::Hour, number }
    }

    pub(crate) const fn day(number: i64) -> Self {
        Self { level: RollupLevel::Day, number }
    }

    /// The SQL condition for roll-ups of this period.
    pub(crate) fn condition(self) -> String {
        format!("level = {} AND period = {}", self.level as i64, self.number)
    }

    /// The maximum number of items per host.
    const fn most(self) -> usize {
        match self.level {
            RollupLevel::Hour => 500,
            RollupLevel::Day => 1000,
        }
    }

    /// The minimum number of items per host while hosts are few: more for a day, as its hours differ.
    const fn least(self) -> usize {
        match self.level {
            RollupLevel::Hour => 64,
            RollupLevel::Day => 256,
        }
    }
}

/// The first hour of a roll-up's period, in SQL.
pub(crate) const FIRST_HOUR: &str = "period * (1 + 23 * level)";

/// Rows inserted per statement.
const CHUNK: usize = 256;

/// The first fact number of an hour.
pub(crate) const fn first_of(hour: i64) -> i64 {
    (hour * HOUR_US) << SEQUENCE_BITS
}

/// The hours to roll up.
pub(crate) fn pending(engine: &mut dyn Engine) -> Result<Vec<i64>, Error> {
    let sql = format!("SELECT hour FROM hours WHERE state IN ({PENDING}, {LATE}) ORDER BY hour");
    Ok(engine.ints::<1>(&sql)?.into_iter().map(|[hour]| hour).collect())
}

/// Rolls up an hour that needs it. Must run in a transaction.
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
        rolled.read_hours(engine, &[hour])?;
        engine.run(&format!("DELETE FROM fact WHERE id >= {from} AND id < {to}"), &[])?;
    }
    rolled.write(engine, RollupPeriod::hour(hour))?;
    engine.run(&format!("UPDATE hours SET state = {next}, late = 0 WHERE hour = {hour}"), &[])?;
    let day = hour.div_euclid(24);
    let sql = format!(
        "INSERT INTO days (day, state) VALUES ({day}, {PENDING}) ON CONFLICT (day) DO UPDATE SET state = {PENDING}"
    );
    engine.run(&sql, &[]).map(|_| ())
}

/// The first past day to roll up: its hours are rolled up already.
pub(crate) fn day_to_roll(engine: &mut dyn Engine, today: i64) -> Result<Option<i64>, Error> {
    let sql = format!(
        "SELECT day FROM days WHERE state = {PENDING} AND day < {today} AND NOT EXISTS (SELECT 1 FROM hours WHERE \
         hour >= day * 24 AND hour < day * 24 + 24 AND state IN ({PENDING}, {LATE})) ORDER BY day LIMIT 1"
    );
    engine.int(&sql)
}

/// Rolls up a day from its hours. Must run in a transaction.
pub(crate) fn roll_day(engine: &mut dyn Engine, day: i64) -> Result<(), Error> {
    let mut rolled = Rolled::default();
    let hours: Vec<i64> = (day * 24..day * 24 + 24).collect();
    rolled.read_hours(engine, &hours)?;
    rolled.write(engine, RollupPeriod::day(day))?;
    engine.run(&format!("UPDATE days SET state = {ROLLED} WHERE day = {day}"), &[]).map(|_| ())
}

/// The roll-ups of one period under construction.
struct Rolled {
    /// By host, status and bot.
    traffic: RollupTally,
    /// By host, item and bot; one per kind.
    heavy: [RollupTally; 5],
}

impl Default for Rolled {
    fn default() -> Self {
        Self { traffic: RollupTally::exact_by_item(), heavy: Default::default() }
    }
}

impl Rolled {
    /// Adds one fact; only the columns of roll-ups matter.
    fn add(&mut self, shapes: &Shapes, fact: &Fact) {
        let (host, status) = shapes.of(fact.shape);
        let sums = Sums { requests: 1, bytes: fact.bytes };
        let bot = fact.agent & 1 == 1;
        self.traffic.add(Cell::new(host, bot, status.min(HIGHEST_STATUS)), sums);
        let items = [fact.path, fact.referer, fact.agent, fact.client];
        for (tally, item) in self.heavy.iter_mut().zip(items) {
            if item != 0 {
                tally.add(Cell::new(host, bot, item), sums);
            }
        }
    }

    fn read_facts(&mut self, engine: &mut dyn Engine, from: i64, to: i64) -> Result<(), Error> {
        let shapes = Shapes::read(engine)?;
        let sql = format!(
            "SELECT shape, bytes, agent, path, referer, client FROM fact WHERE id >= {from} AND id < {to}"
        );
        engine.rows(&sql, &[], &mut |row| {
            let [shape, bytes, agent, path, referer, client] = std::array::from_fn(|at| row.int(at));
            self.add(&shapes, &Fact { shape, bytes, agent, path, referer, client, ..Fact::default() });
            ControlFlow::Continue(())
        })?;
        self.read_networks(engine)
    }

    /// Aggregates clients to networks.
    fn read_networks(&mut self, engine: &mut dyn Engine) -> Result<(), Error> {
        let [.., clients, networks] = &mut self.heavy;
        let mut cells: Vec<(Cell, Sums)> = clients.iter().collect();
        cells.sort_unstable_by_key(|(cell, _)| cell.item());
        for chunk in cells.chunks(CHUNK) {
            let mut ids: Vec<i64> = chunk.iter().map(|(cell, _)| cell.item()).collect();
            ids.dedup();
            let found =
                engine.ints::<2>(&format!("SELECT id, network FROM client WHERE id IN ({})", list(&ids)))?;
            let network_of: HashMap<i64, i64> = found.into_iter().map(Into::into).collect();
            for (cell, sums) in chunk {
                let network = network_of.get(&cell.item()).copied().unwrap_or(REST);
                networks.add(Cell::new(cell.host(), cell.bot(), network), *sums);
            }
        }
        Ok(())
    }

    fn read_hours(&mut self, engine: &mut dyn Engine, hours: &[i64]) -> Result<(), Error> {
        let hours = format!("level = {} AND period IN ({})", RollupLevel::Hour as i64, list(hours));
        let sql = format!("SELECT host, bot, status, requests, bytes FROM traffic WHERE {hours}");
        read(engine, &sql, &mut self.traffic)?;
        for (kind, tally) in RollupKind::ALL.into_iter().zip(&mut self.heavy) {
            let kind = kind as i64;
            let sql =
                format!("SELECT host, bot, item, requests, bytes FROM heavy WHERE kind = {kind} AND {hours}");
            read(engine, &sql, tally)?;
        }
        Ok(())
    }

    /// Replaces the roll-ups of a period.
    fn write(&self, engine: &mut dyn Engine, period: RollupPeriod) -> Result<(), Error> {
        let kept = tally::heaviest_hosts(&self.traffic);
        let (level, number, these) = (period.level as i64, period.number, period.condition());
        let mut rows = Vec::new();
        for (cell, sums) in self.traffic.within(&kept).iter() {
            rows.push(format!(
                "({level},{number},{},{},{},{},{})",
                cell.host(),
                cell.item(),
                u8::from(cell.bot()),
                sums.requests,
                sums.bytes
            ));
        }
        engine.run(&format!("DELETE FROM traffic WHERE {these}"), &[])?;
        insert(engine, TRAFFIC, &rows, "")?;
        for (kind, tally) in RollupKind::ALL.into_iter().zip(&self.heavy) {
            let kind = kind as i64;
            let share = ItemShare { hosts: &kept, most: period.most(), least: period.least() };
            rows.clear();
            for (cell, sums) in tally.within(&kept).heaviest(&share) {
                rows.push(format!(
                    "({kind},{level},{number},{},{},{},{},{})",
                    cell.host(),
                    u8::from(cell.bot()),
                    cell.item(),
                    sums.requests,
                    sums.bytes
                ));
            }
            engine.run(&format!("DELETE FROM heavy WHERE kind = {kind} AND {these}"), &[])?;
            insert(engine, HEAVY, &rows, "")?;
        }
        Ok(())
    }
}

/// The columns of roll-ups in the order of inserted rows.
const TRAFFIC: &str = "traffic (level, period, host, status, bot, requests, bytes)";
const HEAVY: &str = "heavy (kind, level, period, host, bot, item, requests, bytes)";

/// Statuses have three digits; anything else in a log is counted under this.
const HIGHEST_STATUS: i64 = 1000;

fn read(engine: &mut dyn Engine, sql: &str, tally: &mut RollupTally) -> Result<(), Error> {
    engine.rows(sql, &[], &mut |row| {
        let sums = Sums { requests: row.int(3), bytes: row.int(4) };
        tally.add(Cell::new(row.int(0), row.int(1) == 1, row.int(2)), sums);
        ControlFlow::Continue(())
    })
}

/// Inserts rows; `conflict` is the clause for existing ones.
fn insert(engine: &mut dyn Engine, table: &str, rows: &[String], conflict: &str) -> Result<(), Error> {
    for chunk in rows.chunks(CHUNK) {
        engine.run(&format!("INSERT INTO {table} VALUES {} {conflict}", chunk.join(",")), &[])?;
    }
    Ok(())
}

/// Host and status of shapes by number. The number of shapes is bounded at their creation.
#[derive(Default)]
pub(crate) struct Shapes(HashMap<i64, (i64, i64), RandomState>);

impl Shapes {
    pub(crate) fn read(engine: &mut dyn Engine) -> Result<Self, Error> {
        Self::default().add(engine, "SELECT id, host, status FROM shape")
    }

    /// Reads these shapes only.
    fn read_some(engine: &mut dyn Engine, numbers: &[i64]) -> Result<Self, Error> {
        numbers.chunks(CHUNK).try_fold(Self::default(), |shapes, chunk| {
            shapes.add(engine, &format!("SELECT id, host, status FROM shape WHERE id IN ({})", list(chunk)))
        })
    }

    fn add(mut self, engine: &mut dyn Engine, sql: &str) -> Result<Self, Error> {
        engine.rows(sql, &[], &mut |row| {
            self.0.insert(row.int(0), (row.int(1), row.int(2)));
            ControlFlow::Continue(())
        })?;
        Ok(self)
    }

    /// Host and status of a shape; 0 if unknown.
    pub(crate) fn of(&self, shape: i64) -> (i64, i64) {
        self.0.get(&shape).copied().unwrap_or_default()
    }
}

/// A SQL list of numbers; never empty.
pub(crate) fn list(numbers: &[i64]) -> String {
    let unique: BTreeSet<i64> = numbers.iter().copied().collect();
    let mut text = String::new();
    for number in unique {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{number}");
    }
    if text.is_empty() { "NULL".to_owned() } else { text }
}
