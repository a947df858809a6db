//! The seam between what is remembered and the databases that remember it.
//!
//! An [`Engine`] runs statements, streams rows and takes facts in bulk. Everything above it (the writer,
//! roll-ups, retention, questions) is written once, in the SQL that SQLite and PostgreSQL share; what differs is
//! in [`Dialect`]. Integers are written into the statements, texts are always bound.

pub(crate) mod files;
pub(crate) mod location;
pub(crate) mod postgres;
pub(crate) mod schema;
pub(crate) mod sqlite;
pub(crate) mod tls;

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::Error;
use crate::store::location::Location;

/// Where SQLite's and PostgreSQL's languages differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

/// One value of an answer, as the database has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// Another number.
    Real(f64),
    /// Text; bytes are given in hexadecimal digits.
    Text(String),
}

/// One row of an answer, only readable while it is visited.
pub(crate) trait Fields {
    /// The column's integer; 0 where there is none.
    fn int(&self, column: usize) -> i64;
    /// The column's text; empty where there is none.
    fn text(&self, column: usize) -> &str;
}

/// What is done with one row: go on, or stop.
pub(crate) type Visit<'a> = dyn FnMut(&dyn Fields) -> ControlFlow<()> + 'a;

/// What a question in the user's own SQL gave: names of columns, and rows.
pub(crate) type Table = (Vec<String>, Vec<Vec<Value>>);

/// One request as a row; what is 0 is absent, but for `status` and `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fact {
    /// Its place in time: microseconds shifted left by [`SEQUENCE_BITS`], and a sequence.
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
    pub(crate) request: Option<Box<str>>,
}

/// So many bits of an id tell requests of the same microsecond apart. More requests than that move into the
/// following microseconds, as those do whose log has only whole seconds.
pub(crate) const SEQUENCE_BITS: u32 = 5;

/// A database that holds a store.
pub(crate) trait Engine: Send {
    fn dialect(&self) -> Dialect;
    /// Runs one statement with bound texts, or several without; gives the number of rows it changed.
    fn run(&mut self, sql: &str, texts: &[&str]) -> Result<u64, Error>;
    /// Visits the rows of one statement.
    fn rows(&mut self, sql: &str, texts: &[&str], visit: &mut Visit<'_>) -> Result<(), Error>;
    /// Adds facts whose ids are known to be free, inside the open transaction.
    fn insert(&mut self, facts: &[Fact]) -> Result<(), Error>;
    /// Runs a statement of the user's, which must not change anything, for no longer than `limit`. No more
    /// than `most` rows are given.
    fn ask(&mut self, sql: &str, limit: Duration, most: usize) -> Result<Table, Error>;
    /// Ends what is running with [`Error::TimedOut`] after `limit`, until it is set again.
    fn limit(&mut self, limit: Option<Duration>) -> Result<(), Error>;
}

impl dyn Engine + '_ {
    /// Begins a transaction that will write.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        let sql = match self.dialect() {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN",
        };
        // Where the lock of writers is not had in time, PostgreSQL's transaction has begun nevertheless, and takes
        // nothing but its end.
        self.run(sql, &[]).map(drop).inspect_err(|_| self.rollback())
    }

    /// Makes the transaction last.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        self.run("COMMIT", &[]).map(|_| ())
    }

    /// Forgets the transaction. Where that fails too, the connection is gone and the transaction with it.
    pub(crate) fn rollback(&mut self) {
        drop(self.run("ROLLBACK", &[]));
    }

    /// Runs `work` in a transaction: all of it lasts, or nothing.
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

    /// Every row's first integers.
    pub(crate) fn ints<const N: usize>(&mut self, sql: &str) -> Result<Vec<[i64; N]>, Error> {
        let mut found = Vec::new();
        self.rows(sql, &[], &mut |row| {
            found.push(std::array::from_fn(|column| row.int(column)));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// How long to wait for another process that holds the store.
    pub(crate) busy: Duration,
    /// The database's own cache, in KiB.
    pub(crate) cache_kib: u32,
}

/// Opens a store for writing, beginning it where there is none, and brings its schema up to date.
pub(crate) fn open(location: &Location, access: Access) -> Result<Box<dyn Engine>, Error> {
    let mut engine: Box<dyn Engine> = match location {
        Location::File(path) => Box::new(sqlite::Sqlite::open(path, access)?),
        Location::Memory => Box::new(sqlite::Sqlite::in_memory(access)?),
        Location::Postgres(server) => Box::new(postgres::Postgres::open(server, access, true)?),
    };
    schema::migrate(engine.as_mut())?;
    Ok(engine)
}

/// Opens a store for reading; it must be there.
pub(crate) fn open_to_read(location: &Location, access: Access) -> Result<Box<dyn Engine>, Error> {
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
