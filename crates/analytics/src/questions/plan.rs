//! From a range of time to what is read: facts, hours or days.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::question::Source;
use crate::rollup::{GONE, HOUR_US, LATE, Level, PENDING, REMOVING, ROLLED, first_of};
use crate::store::{Engine, SEQUENCE_BITS};

/// A part of what is read. All ranges end before their second bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Facts, by their numbers.
    Facts(i64, i64),
    /// Hourly roll-ups.
    Hours(i64, i64),
    /// Daily roll-ups, by days.
    Days(i64, i64),
}

impl Piece {
    /// The periods of a piece of roll-ups, as a condition.
    pub(crate) fn periods(self) -> String {
        match self {
            Self::Facts(..) => "1 = 0".to_owned(),
            Self::Hours(from, to) => format!("level = {HOURS} AND period >= {from} AND period < {to}"),
            Self::Days(from, to) => format!("level = {DAYS} AND period >= {from} AND period < {to}"),
        }
    }
}

const HOURS: i64 = Level::Hour as i64;
const DAYS: i64 = Level::Day as i64;

/// Whether a range of time, in microseconds since 1970, can be added up as a whole.
pub(crate) type IsOne<'a> = dyn FnMut(i64, i64) -> bool + 'a;

/// So many facts are read rather than roll-ups: a fraction of a second, and exact.
const FEW: i64 = 400_000;

#[derive(Clone, Copy)]
struct Hour {
    requests: i64,
    state: i64,
}

impl Hour {
    const fn has_all_facts(self) -> bool {
        matches!(self.state, PENDING | ROLLED)
    }
}

/// What is to be read for a range of fact numbers, of which roll-ups are used where an hour or a day of them
/// `is_one`.
pub(crate) fn plan(
    engine: &mut dyn Engine,
    (from, to): (i64, i64),
    source: Source,
    is_one: &mut IsOne<'_>,
) -> Result<Vec<Piece>, Error> {
    if to <= from {
        return Ok(Vec::new());
    }
    let (first, last) = (hour_of(from), hour_of(to - 1));
    let sql = format!(
        "SELECT hour, requests, state FROM hours WHERE hour >= {first} AND hour <= {} ORDER BY hour",
        last.min(i64::from(i32::MAX))
    );
    let hours: BTreeMap<i64, Hour> = engine
        .ints::<3>(&sql)?
        .into_iter()
        .map(|[hour, requests, state]| (hour, Hour { requests, state }))
        .collect();
    let few = hours.values().map(|hour| hour.requests).sum::<i64>() <= FEW;
    if source == Source::Either && few && hours.values().all(|hour| hour.has_all_facts()) {
        return Ok(vec![Piece::Facts(from, to)]);
    }
    let days = days(engine, &hours, (from, to), is_one)?;
    let mut pieces = Pieces::default();
    for (hour, state) in hours {
        let day = hour.div_euclid(24);
        if days.binary_search(&day).is_ok() {
            pieces.push(Piece::Days(day, day + 1));
            continue;
        }
        let (begins, ends) = (first_of(hour), first_of(hour + 1));
        let facts = Piece::Facts(begins.max(from), ends.min(to));
        let whole =
            begins >= from && ends <= to && is_one(hour.saturating_mul(HOUR_US), (hour + 1) * HOUR_US);
        match state.state {
            PENDING => pieces.push(facts),
            ROLLED if !whole => pieces.push(facts),
            LATE => {
                pieces.push(Piece::Hours(hour, hour + 1));
                pieces.push(facts);
            }
            // Of an hour whose facts are gone no part can be told from the rest.
            ROLLED | GONE | REMOVING => pieces.push(Piece::Hours(hour, hour + 1)),
            other => return Err(Error::Store(format!("hour {hour} has the unknown state {other}"))),
        }
    }
    Ok(pieces.0)
}

/// The hour that a fact number is in.
pub(crate) const fn hour_of(number: i64) -> i64 {
    (number >> SEQUENCE_BITS) / HOUR_US
}

/// The days, sorted, that are wholly in the range and whose roll-ups are up to date.
fn days(
    engine: &mut dyn Engine,
    hours: &BTreeMap<i64, Hour>,
    (from, to): (i64, i64),
    is_one: &mut IsOne<'_>,
) -> Result<Vec<i64>, Error> {
    let sql = format!("SELECT day FROM days WHERE state = {ROLLED} ORDER BY day");
    let mut days: Vec<i64> = engine.ints::<1>(&sql)?.into_iter().map(|[day]| day).collect();
    days.retain(|day| {
        first_of(day * 24) >= from
            && first_of((day + 1) * 24) <= to
            && hours.range(day * 24..(day + 1) * 24).all(|(_, hour)| !matches!(hour.state, PENDING | LATE))
            && is_one(day * 24 * HOUR_US, (day + 1) * 24 * HOUR_US)
    });
    Ok(days)
}

/// Pieces in the order of time; hours that are not there had no request, so that neighbours may be joined.
#[derive(Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn push(&mut self, piece: Piece) {
        let joined = match (self.0.last_mut(), piece) {
            (Some(Piece::Facts(_, end)), Piece::Facts(_, to))
            | (Some(Piece::Hours(_, end)), Piece::Hours(_, to))
            | (Some(Piece::Days(_, end)), Piece::Days(_, to)) => {
                *end = to;
                true
            }
            _ => false,
        };
        if !joined {
            self.0.push(piece);
        }
    }
}
