//! The interface between the log store and its databases.
//!
//! An [`Engine`] runs statements, streams rows and takes facts in bulk. Everything above it (the writer,
//! roll-ups, retention, queries) is written once, in the SQL that SQLite and PostgreSQL share; the
//! differences are in [`Dialect`]. Integers are written into the statements, texts are always bound.

pub(crate) mod files;
pub(crate) mod location;
pub(crate) mod positions;
pub(crate) mod postgres;
pub(crate) mod schema;
pub(crate) mod sequence;
pub(crate) mod sqlite;
pub(crate) mod tls;

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::Error;
use crate::store::location::Location;

/// The SQL dialect of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// One value of an answer, with the type that the database gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// No value, SQL's null.
    Null,
    /// An integer of up to 64 bits.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text, or binary data in hexadecimal digits.
    Text(String),
}

/// One row of a result, readable only during the visit.
pub(crate) trait RowReader {
    /// The integer in a column; 0 for null.
    fn int(&self, column: usize) -> i64;
    /// The text in a column; empty for null.
    fn text(&self, column: usize) -> &str;
}

/// A visitor of rows, which continues or stops.
pub(crate) type Visit<'a> = dyn FnMut(&dyn RowReader) -> ControlFlow<()> + 'a;

/// The result of a user's SQL: names of columns, and rows.
pub(crate) type Table = (Vec<String>, Vec<Vec<SqlValue>>);

/// One request as a row; 0 means absent, except in `status` and `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The position in time: microseconds shifted left by [`SEQUENCE_BITS`], and a sequence number.
    pub(crate) id: i64,
    pub(crate) shape: i64,
    pub(crate) client: i64,
    pub(crate) path: i64,
    pub(crate) query: i64,
    pub(crate) agent: i64,
    pub(crate) referer: i64,
    pub(crate) bytes: i64,
    pub(crate) received: Option<i64>,
    pub(crate) duration: Option<i64>,
    /// In the queue, connecting, and up to the first byte of the response, in microseconds.
    pub(crate) phases: [Option<i64>; 3],
    pub(crate) request: Option<Box<str>>,
}

/// A range of fact numbers: `from` and later, before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FactRange {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// The bits of an id that distinguish requests of the same microsecond. Further requests move into the
/// following microseconds, as is usual for logs that have only whole seconds.
pub(crate) const SEQUENCE_BITS: u32 = 5;

/// A connection to a database with a store.
pub(crate) trait Engine: Send {
    fn dialect(&self) -> Dialect;
    /// Runs one statement with bound texts, or several without; returns the number of rows changed.
    fn run(&mut self, sql: &str, texts: &[&str]) -> Result<u64, Error>;
    /// Visits the rows of one statement.
    fn rows(&mut self, sql: &str, texts: &[&str], visit: &mut Visit<'_>) -> Result<(), Error>;
    /// Adds facts, the ids of which must be free, within the open transaction.
    fn insert(&mut self, facts: &[Fact]) -> Result<(), Error>;
    /// Runs a user's statement, which must not change anything, for at most `limit`. Returns at most `most`
    /// rows.
    fn ask(&mut self, sql: &str, limit: Duration, most: usize) -> Result<Table, Error>;
    /// Sets a time limit for running statements, which then fail with [`Error::TimedOut`].
    fn limit(&mut self, limit: Option<Duration>) -> Result<(), Error>;
}

impl dyn Engine + '_ {
    /// Starts a writing transaction.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        let sql = match self.dialect() {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN",
        };
        // If the writers' lock is not available in time, PostgreSQL's transaction exists all the same and
        // must be ended.
        self.run(sql, &[]).map(drop).inspect_err(|_| self.rollback())
    }

    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        self.run("COMMIT", &[]).map(|_| ())
    }

    /// Rolls the transaction back. If that fails too, the connection is lost, and the transaction with it.
    pub(crate) fn rollback(&mut self) {
        drop(self.run("ROLLBACK", &[]));
    }

    /// Runs `work` in a transaction, which is committed if it succeeds.
    pub(crate) fn whole<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.begin()?;
        match work(self).and_then(|result| self.commit().map(|()| result)) {
            Ok(result) => Ok(result),
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    /// The first integer of the first row.
    pub(crate) fn int(&mut self, sql: &str) -> Result<Option<i64>, Error> {
        let mut found = None;
        self.rows(sql, &[], &mut |row| {
            found = Some(row.int(0));
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The first text of the first row.
    pub(crate) fn text(&mut self, sql: &str, texts: &[&str]) -> Result<Option<String>, Error> {
        let mut found = None;
        self.rows(sql, texts, &mut |row| {
            found = Some(row.text(0).to_owned());
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The first `N` integers of every row.
    pub(crate) fn ints<const N: usize>(&mut self, sql: &str) -> Result<Vec<[i64; N]>, Error> {
        let mut found = Vec::new();
        self.rows(sql, &[], &mut |row| {
            found.push(std::array::from_fn(|column| row.int(column)));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// Options for opening a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreAccess {
    /// The time to wait for another process that holds the store.
    pub(crate) busy: Duration,
    /// The database's cache, in KiB.
    pub(crate) cache_kib: u32,
}

/// Opens a store for writing, creating it if necessary, and brings its schema up to date.
pub(crate) fn open(location: &Location, access: StoreAccess) -> Result<Box<dyn Engine>, Error> {
    let mut engine: Box<dyn Engine> = match location {
        Location::File(path) => Box::new(sqlite::Sqlite::open(path, access)?),
        Location::Memory => Box::new(sqlite::Sqlite::in_memory(access)?),
        Location::Postgres(server) => Box::new(postgres::Postgres::open(server, access, true)?),
    };
    schema::migrate(engine.as_mut())?;
    Ok(engine)
}

/// Opens an existing store for reading.
pub(crate) fn open_to_read(location: &Location, access: StoreAccess) -> Result<Box<dyn Engine>, Error> {
    let mut engine: Box<dyn Engine> = match location {
        Location::File(path) => Box::new(sqlite::Sqlite::open_to_read(path, access)?),
        Location::Memory => {
            return Err(Error::Url("a store in memory cannot be opened a second time".into()));
        }
        Location::Postgres(server) => Box::new(postgres::Postgres::open(server, access, false)?),
    };
    schema::check(engine.as_mut())?;
    Ok(engine)
}
