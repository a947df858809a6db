//! Query plans: a range of time as pieces of facts, hours or days.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::question::DataSource;
use crate::rollup::{GONE, HOUR_US, LATE, PENDING, REMOVING, ROLLED, RollupLevel, first_of};
use crate::store::{Engine, FactRange, SEQUENCE_BITS};

/// A piece to read. Ranges exclude their second bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanPiece {
    /// Facts, by their numbers.
    Facts(FactRange),
    /// Hourly roll-ups, by hours since 1970.
    Hours(i64, i64),
    /// Daily roll-ups, by days since 1970.
    Days(i64, i64),
}

impl PlanPiece {
    /// The SQL condition for the periods of a piece of roll-ups.
    pub(crate) fn periods(self) -> String {
        match self {
            Self::Facts(..) => "1 = 0".to_owned(),
            Self::Hours(from, to) => format!("level = {HOURS} AND period >= {from} AND period < {to}"),
            Self::Days(from, to) => format!("level = {DAYS} AND period >= {from} AND period < {to}"),
        }
    }
}

const HOURS: i64 = RollupLevel::Hour as i64;
const DAYS: i64 = RollupLevel::Day as i64;

/// Decides if a range of time, in microseconds since 1970, can be aggregated as a whole.
pub(crate) type IsOne<'a> = dyn FnMut(i64, i64) -> bool + 'a;

/// The number of facts that are read in preference to roll-ups: exact, within a fraction of a second.
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

/// Plans the reading of a range of fact numbers. Roll-ups are used for hours and days that are `is_one`.
pub(crate) fn plan(
    engine: &mut dyn Engine,
    range: FactRange,
    source: DataSource,
    is_one: &mut IsOne<'_>,
) -> Result<Vec<PlanPiece>, Error> {
    let FactRange { from, to } = range;
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
    if source == DataSource::Either && few && hours.values().all(|hour| hour.has_all_facts()) {
        return Ok(vec![PlanPiece::Facts(range)]);
    }
    let days = days(engine, &hours, range, is_one)?;
    let mut pieces = Pieces::default();
    for (hour, state) in hours {
        let day = hour.div_euclid(24);
        if days.binary_search(&day).is_ok() {
            pieces.push(PlanPiece::Days(day, day + 1));
            continue;
        }
        let (begins, ends) = (first_of(hour), first_of(hour + 1));
        let facts = PlanPiece::Facts(FactRange { from: begins.max(from), to: ends.min(to) });
        let whole =
            begins >= from && ends <= to && is_one(hour.saturating_mul(HOUR_US), (hour + 1) * HOUR_US);
        match state.state {
            PENDING => pieces.push(facts),
            ROLLED if !whole => pieces.push(facts),
            LATE => {
                pieces.push(PlanPiece::Hours(hour, hour + 1));
                pieces.push(facts);
            }
            // Without its facts an hour cannot be split.
            ROLLED | GONE | REMOVING => pieces.push(PlanPiece::Hours(hour, hour + 1)),
            other => return Err(Error::Store(format!("hour {hour} has the unknown state {other}"))),
        }
    }
    Ok(pieces.0)
}

/// The hour of a fact number.
pub(crate) const fn hour_of(number: i64) -> i64 {
    (number >> SEQUENCE_BITS) / HOUR_US
}

/// The sorted days that lie wholly in the range and have up-to-date roll-ups.
fn days(
    engine: &mut dyn Engine,
    hours: &BTreeMap<i64, Hour>,
    range: FactRange,
    is_one: &mut IsOne<'_>,
) -> Result<Vec<i64>, Error> {
    let sql = format!("SELECT day FROM days WHERE state = {ROLLED} ORDER BY day");
    let mut days: Vec<i64> = engine.ints::<1>(&sql)?.into_iter().map(|[day]| day).collect();
    days.retain(|day| {
        first_of(day * 24) >= range.from
            && first_of((day + 1) * 24) <= range.to
            && hours.range(day * 24..(day + 1) * 24).all(|(_, hour)| !matches!(hour.state, PENDING | LATE))
            && is_one(day * 24 * HOUR_US, (day + 1) * 24 * HOUR_US)
    });
    Ok(days)
}

/// Pieces in the order of time; absent hours had no request, so neighbours may be joined.
#[derive(Default)]
struct Pieces(Vec<PlanPiece>);

impl Pieces {
    fn push(&mut self, piece: PlanPiece) {
        let joined = match (self.0.last_mut(), piece) {
            (Some(PlanPiece::Facts(FactRange { to: end, .. })), PlanPiece::Facts(FactRange { to, .. }))
            | (Some(PlanPiece::Hours(_, end)), PlanPiece::Hours(_, to))
            | (Some(PlanPiece::Days(_, end)), PlanPiece::Days(_, to)) => {
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
