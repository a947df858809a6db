//! Reading of facts: only the columns that are needed, through a [`Sieve`].
//!
//! SQLite streams facts one by one, which is faster than its own grouping by sorting; PostgreSQL groups them
//! first, so that little has to be sent.

use std::ops::ControlFlow;

use crate::error::Error;
use crate::questions::sieve::{RequestColumns, ShapeColumns, Sieve};
use crate::rollup::tally::Sums;
use crate::store::{Dialect, Engine, FactRange, SEQUENCE_BITS};

/// The maximum number of columns.
const MOST_COLUMNS: usize = 3;

/// The values of the requested columns.
pub(crate) type Values = [i64; MOST_COLUMNS];

/// A column for a scan to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// A column of facts.
    Of(&'static str),
    /// The time in microseconds, rounded to any time within a slice of this length.
    Time(i64),
    /// The duration in microseconds, rounded to three digits; requests without one are left out.
    Duration,
}

/// Reads the facts of a range of numbers, and visits those that pass the sieve with their sums.
pub(crate) fn scan(
    engine: &mut dyn Engine,
    sieve: &Sieve,
    range: FactRange,
    columns: &[Column],
    visit: &mut dyn FnMut(&ShapeColumns, Sums, Values),
) -> Result<(), Error> {
    let FactRange { from, to } = range;
    let dialect = engine.dialect();
    let needs = sieve.columns();
    let mut places = ColumnPositions::default();
    let [bot, client, path, referer] = [
        (needs.bot, "coalesce(agent, 0) & 1"),
        (needs.client, "client"),
        (needs.path, "path"),
        (needs.referer, "referer"),
    ]
    .map(|(needed, column)| needed.then(|| places.of(column.to_owned())));
    let mut condition = format!("id >= {from} AND id < {to}");
    let mut wanted = [None; MOST_COLUMNS];
    for (place, column) in wanted.iter_mut().zip(columns) {
        *place = Some(places.of(expression(dialect, column)));
        if *column == Column::Duration {
            condition += " AND duration_us IS NOT NULL";
        }
    }
    let sql = places.statement(dialect, &condition);
    engine.rows(&sql, &[], &mut |row| {
        let int = |at: Option<usize>| at.map_or(0, |at| row.int(at));
        let seen = RequestColumns {
            shape: row.int(2),
            bot: int(bot) == 1,
            client: int(client),
            path: int(path),
            referer: int(referer),
        };
        if let Some(shape) = sieve.admits(&seen) {
            let mut values = wanted.map(int);
            for (value, column) in values.iter_mut().zip(columns) {
                *value = meant(dialect, column, *value);
            }
            visit(shape, Sums { requests: row.int(0), bytes: row.int(1) }, values);
        }
        ControlFlow::Continue(())
    })
}

/// The columns of a row after the sums and the shape.
#[derive(Default)]
struct ColumnPositions(Vec<String>);

impl ColumnPositions {
    fn of(&mut self, expression: String) -> usize {
        let found = self.0.iter().position(|known| *known == expression);
        3 + found.unwrap_or_else(|| {
            self.0.push(expression);
            self.0.len() - 1
        })
    }

    fn statement(&self, dialect: Dialect, condition: &str) -> String {
        let listed: String = self.0.iter().map(|column| format!(", {column}")).collect();
        match dialect {
            Dialect::Sqlite => format!("SELECT 1, bytes, shape{listed} FROM fact WHERE {condition}"),
            Dialect::Postgres => {
                let places: Vec<String> = (3..self.0.len() + 4).map(|place| place.to_string()).collect();
                format!(
                    "SELECT count(*), CAST(sum(bytes) AS BIGINT), shape{listed} FROM fact WHERE {condition} \
                     GROUP BY {}",
                    places.join(", ")
                )
            }
        }
    }
}

fn expression(dialect: Dialect, column: &Column) -> String {
    match (column, dialect) {
        (Column::Of(name), _) => (*name).to_owned(),
        (Column::Time(_), Dialect::Sqlite) => "id".to_owned(),
        (Column::Time(slice), Dialect::Postgres) => format!("(id >> {SEQUENCE_BITS}) / {slice}"),
        (Column::Duration, Dialect::Sqlite) => "duration_us".to_owned(),
        (Column::Duration, Dialect::Postgres) => {
            let mut cases = String::from("CASE");
            let mut unit: i64 = 1;
            while unit < LONGEST {
                cases += &format!(
                    " WHEN duration_us < {} THEN (duration_us + {}) / {unit} * {unit}",
                    unit * 1000,
                    unit / 2
                );
                unit *= 10;
            }
            format!("{cases} ELSE {} END", LONGEST * 1000)
        }
    }
}

fn meant(dialect: Dialect, column: &Column, value: i64) -> i64 {
    match (column, dialect) {
        (Column::Time(_), Dialect::Sqlite) => value >> SEQUENCE_BITS,
        (Column::Time(slice), Dialect::Postgres) => value.saturating_mul(*slice),
        (Column::Duration, Dialect::Sqlite) => rounded(value),
        _ => value,
    }
}

/// The largest rounded duration, a thousand of which, more than a year, are not exceeded.
const LONGEST: i64 = 100_000_000_000;

/// Rounds a number of microseconds to three digits.
pub(crate) fn rounded(duration_us: i64) -> i64 {
    let mut unit: i64 = 1;
    while unit < LONGEST {
        if duration_us < unit * 1000 {
            return (duration_us + unit / 2) / unit * unit;
        }
        unit *= 10;
    }
    LONGEST * 1000
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn durations_have_three_digits() {
        for (given, expected) in
            [(0, 0), (999, 999), (1004, 1000), (1005, 1010), (120_000, 120_000), (123_456, 123_000)]
        {
            assert_eq!(rounded(given), expected);
        }
        assert_eq!(rounded(i64::MAX), 100_000_000_000_000);
    }
}
