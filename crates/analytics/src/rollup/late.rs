//! Facts that come after their hour was rolled up: long downloads and WebSockets, which are counted where they
//! began, and logs that are read late.
//!
//! While they are few they are added to the roll-ups of their hour and day. Sums stay exact, and so does what has a
//! name there; an item without one is added to the rest. Once they are more than one in [`FEW`] of an hour it is
//! rolled up anew, so that this costs no more than a constant for each fact.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use crate::error::Error;
use crate::rollup::tally::{Cell, Sums};
use crate::rollup::{
    GONE, HEAVY, HOUR_US, Kind, Period, REMOVING, REST, ROLLED, Rolled, Shapes, TRAFFIC, insert, list,
};
use crate::store::{Engine, Fact, SEQUENCE_BITS};

/// One fact in this many may be late before an hour is rolled up again.
const FEW: i64 = 16;

/// What is done with facts that are there already.
const ADD_TO_TRAFFIC: &str = "ON CONFLICT (level, period, host, status, bot) DO UPDATE SET \
     requests = traffic.requests + excluded.requests, bytes = traffic.bytes + excluded.bytes";
const ADD_TO_HEAVY: &str = "ON CONFLICT (kind, level, period, host, bot, item) DO UPDATE SET \
     requests = heavy.requests + excluded.requests, bytes = heavy.bytes + excluded.bytes";

/// Adds what is late of these facts, sorted by time, to roll-ups, and gives the hours whose facts are in roll-ups
/// now, with how many they got. Facts of an hour that keeps none any more are taken out. Inside the transaction
/// that adds the facts, before they are added.
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
            // What is being removed cannot be read again.
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
    rolled.add_to(engine, Period::hour(hour))?;
    let day = hour.div_euclid(24);
    // One that is to be rolled up anew gets it from its hours.
    if engine.int(&format!("SELECT state FROM days WHERE day = {day}"))? == Some(ROLLED) {
        rolled.add_to(engine, Period::day(day))?;
    }
    Ok(())
}

impl Rolled {
    /// Adds to the roll-ups that are there.
    fn add_to(&self, engine: &mut dyn Engine, period: Period) -> Result<(), Error> {
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
        for (kind, tally) in Kind::ALL.into_iter().zip(&self.heavy) {
            let cells = merged(tally.iter().map(|(cell, sums)| (hosts.name(cell), sums)));
            let named = Named::of(engine, kind, period, &cells)?;
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

/// Adds up what has become the same cell, in the order of cells: a statement must not meet one twice.
fn merged(cells: impl Iterator<Item = (Cell, Sums)>) -> BTreeMap<Cell, Sums> {
    let mut merged: BTreeMap<Cell, Sums> = BTreeMap::new();
    for (cell, sums) in cells {
        merged.entry(cell).or_default().add(sums);
    }
    merged
}

/// Which hosts a period has by name.
struct Hosts {
    known: HashSet<i64>,
}

impl Hosts {
    fn of(engine: &mut dyn Engine, rolled: &Rolled, period: Period) -> Result<Self, Error> {
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

    /// The same cell under the name that its host has. As long as none was added to the rest, all have theirs.
    fn name(&self, cell: Cell) -> Cell {
        if self.known.contains(&cell.host()) || !self.known.contains(&REST) {
            cell
        } else {
            Cell::new(REST, cell.bot(), cell.item())
        }
    }
}

/// Which items a period has by name, of those that are asked for, and where there is a rest.
struct Named {
    known: HashSet<Cell>,
}

impl Named {
    fn of(
        engine: &mut dyn Engine,
        kind: Kind,
        period: Period,
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
