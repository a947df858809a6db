//! Late facts, which arrive after the roll-up of their hour: long downloads and WebSockets, which are counted at their
//! start, and logs that are imported late.
//!
//! While they are few they are added to the roll-ups of their hour and day. Sums stay exact, and so do named
//! items; an item without a name is added to the rest. Once more than one in [`FEW`] of an hour are late, the
//! hour is rolled up anew, so that the cost per fact is constant.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use crate::error::Error;
use crate::rollup::tally::{Cell, Sums};
use crate::rollup::{
    GONE, HEAVY, HOUR_US, REMOVING, REST, ROLLED, Rolled, RollupKind, RollupPeriod, Shapes, TRAFFIC, insert,
    list,
};
use crate::store::{Engine, Fact, SEQUENCE_BITS};

/// One fact in this many may be late before an hour is rolled up again.
const FEW: i64 = 16;

/// The conflict clauses that add to existing rows.
const ADD_TO_TRAFFIC: &str = "ON CONFLICT (level, period, host, status, bot) DO UPDATE SET \
     requests = traffic.requests + excluded.requests, bytes = traffic.bytes + excluded.bytes";
const ADD_TO_HEAVY: &str = "ON CONFLICT (kind, level, period, host, bot, item) DO UPDATE SET \
     requests = heavy.requests + excluded.requests, bytes = heavy.bytes + excluded.bytes";

/// Adds the late ones of these facts, sorted by time, to roll-ups; returns the hours whose facts are in
/// roll-ups now, with their numbers. Removes facts of hours that keep none any more. Must run in the
/// transaction that adds the facts, before they are added.
pub(crate) fn take(engine: &mut dyn Engine, facts: &mut Vec<Fact>) -> Result<BTreeMap<i64, i64>, Error> {
    let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
    for fact in &*facts {
        *counts.entry(hour_of(fact)).or_default() += 1;
    }
    let hours: Vec<i64> = counts.keys().copied().collect();
    let mut taken = BTreeMap::new();
    let mut gone = HashSet::new();
    for chunk in hours.chunks(512) {
        let sql = format!(
            "SELECT hour, requests, state, late FROM hours WHERE state IN ({ROLLED}, {GONE}, {REMOVING}) AND \
             hour IN ({})",
            list(chunk)
        );
        for [hour, requests, state, late] in engine.ints::<4>(&sql)? {
            let count = counts.get(&hour).copied().unwrap_or(0);
            // Facts under removal cannot be read again.
            if state == REMOVING || (late + count).saturating_mul(FEW) <= requests + count {
                taken.insert(hour, count);
                if state != ROLLED {
                    gone.insert(hour);
                }
            }
        }
    }
    for (hour, count) in &taken {
        let from = facts.partition_point(|fact| hour_of(fact) < *hour);
        let to = facts.partition_point(|fact| hour_of(fact) <= *hour);
        add(engine, *hour, &facts[from..to])?;
        let sql = format!(
            "UPDATE hours SET requests = requests + {count}, late = late + {count} WHERE hour = {hour}"
        );
        engine.run(&sql, &[])?;
    }
    if !gone.is_empty() {
        facts.retain(|fact| !gone.contains(&hour_of(fact)));
    }
    Ok(taken)
}

pub(crate) const fn hour_of(fact: &Fact) -> i64 {
    (fact.id >> SEQUENCE_BITS) / HOUR_US
}

fn add(engine: &mut dyn Engine, hour: i64, facts: &[Fact]) -> Result<(), Error> {
    let numbers: Vec<i64> = facts.iter().map(|fact| fact.shape).collect();
    let shapes = Shapes::read_some(engine, &numbers)?;
    let mut rolled = Rolled::default();
    facts.iter().for_each(|fact| rolled.add(&shapes, fact));
    rolled.read_networks(engine)?;
    rolled.add_to(engine, RollupPeriod::hour(hour))?;
    let day = hour.div_euclid(24);
    // A day that must be rolled up anew gets them from its hours.
    if engine.int(&format!("SELECT state FROM days WHERE day = {day}"))? == Some(ROLLED) {
        rolled.add_to(engine, RollupPeriod::day(day))?;
    }
    Ok(())
}

impl Rolled {
    /// Adds to existing roll-ups.
    fn add_to(&self, engine: &mut dyn Engine, period: RollupPeriod) -> Result<(), Error> {
        let hosts = Hosts::of(engine, self, period)?;
        let (level, number) = (period.level as i64, period.number);
        let rows: Vec<String> = merged(self.traffic.iter().map(|(cell, sums)| (hosts.name(cell), sums)))
            .into_iter()
            .map(|(cell, sums)| {
                let (host, bot, status) = (cell.host(), u8::from(cell.bot()), cell.item());
                format!("({level},{number},{host},{status},{bot},{},{})", sums.requests, sums.bytes)
            })
            .collect();
        insert(engine, TRAFFIC, &rows, ADD_TO_TRAFFIC)?;
        for (kind, tally) in RollupKind::ALL.into_iter().zip(&self.heavy) {
            let cells = merged(tally.iter().map(|(cell, sums)| (hosts.name(cell), sums)));
            let named = NamedItems::of(engine, kind, period, &cells)?;
            let kind = kind as i64;
            let rows: Vec<String> = merged(cells.into_iter().map(|(cell, sums)| (named.name(cell), sums)))
                .into_iter()
                .map(|(cell, sums)| {
                    let (host, bot, item) = (cell.host(), u8::from(cell.bot()), cell.item());
                    format!("({kind},{level},{number},{host},{bot},{item},{},{})", sums.requests, sums.bytes)
                })
                .collect();
            insert(engine, HEAVY, &rows, ADD_TO_HEAVY)?;
        }
        Ok(())
    }
}

/// Merges equal cells in the order of cells: a statement must not touch one twice.
fn merged(cells: impl Iterator<Item = (Cell, Sums)>) -> BTreeMap<Cell, Sums> {
    let mut merged: BTreeMap<Cell, Sums> = BTreeMap::new();
    for (cell, sums) in cells {
        merged.entry(cell).or_default().add(sums);
    }
    merged
}

/// The hosts that a period has by name.
struct Hosts {
    known: HashSet<i64>,
}

impl Hosts {
    fn of(engine: &mut dyn Engine, rolled: &Rolled, period: RollupPeriod) -> Result<Self, Error> {
        let mut wanted: Vec<i64> = rolled.traffic.iter().map(|(cell, _)| cell.host()).collect();
        wanted.push(REST);
        let sql = format!(
            "SELECT DISTINCT host FROM traffic WHERE {} AND host IN ({})",
            period.condition(),
            list(&wanted)
        );
        let known = engine.ints::<1>(&sql)?.into_iter().map(|[host]| host).collect();
        Ok(Self { known })
    }

    /// The cell under the name that its host has. While nothing was added to the rest, every host has its
    /// own.
    fn name(&self, cell: Cell) -> Cell {
        if self.known.contains(&cell.host()) || !self.known.contains(&REST) {
            cell
        } else {
            Cell::new(REST, cell.bot(), cell.item())
        }
    }
}

/// The items that a period has by name, among those asked for, and the hosts with a rest.
struct NamedItems {
    known: HashSet<Cell>,
}

impl NamedItems {
    fn of(
        engine: &mut dyn Engine,
        kind: RollupKind,
        period: RollupPeriod,
        cells: &BTreeMap<Cell, Sums>,
    ) -> Result<Self, Error> {
        let cells: Vec<&Cell> = cells.keys().collect();
        let (kind, these) = (kind as i64, period.condition());
        let mut known = HashSet::new();
        for chunk in cells.chunks(256) {
            let hosts: Vec<i64> = chunk.iter().map(|cell| cell.host()).collect();
            let mut items: Vec<i64> = chunk.iter().map(|cell| cell.item()).collect();
            items.push(REST);
            let sql = format!(
                "SELECT host, bot, item FROM heavy WHERE kind = {kind} AND {these} AND host IN ({}) AND item IN ({})",
                list(&hosts),
                list(&items)
            );
            engine.rows(&sql, &[], &mut |row| {
                known.insert(Cell::new(row.int(0), row.int(1) == 1, row.int(2)));
                ControlFlow::Continue(())
            })?;
        }
        Ok(Self { known })
    }

    fn name(&self, cell: Cell) -> Cell {
        let rest = Cell::new(cell.host(), cell.bot(), REST);
        if self.known.contains(&cell) || !self.known.contains(&rest) { cell } else { rest }
    }
}
