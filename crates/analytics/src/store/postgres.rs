//! The store in PostgreSQL. Facts are inserted by binary `COPY`; a writer holds an advisory lock during its
//! transaction, so that several writers take turns as with SQLite.

use std::ops::ControlFlow;
use std::time::Duration;

use postgres::binary_copy::BinaryCopyInWriter;
use postgres::config::SslMode;
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::{ToSql, Type};
use postgres::{Client, Config, NoTls, Row, SimpleQueryMessage};

use crate::error::Error;
use crate::store::location::{PostgresServer, Protection};
use crate::store::tls::Verified;
use crate::store::{Dialect, Engine, Fact, RowReader, SqlValue, StoreAccess, Table, Visit};

/// A connection to a store in PostgreSQL.
pub(crate) struct Postgres {
    client: Client,
}

/// The key of the writers' advisory lock: `offramp` in ASCII.
const LOCK: i64 = 0x006f_6666_7261_6d70;

/// The timeout of a connection attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server ends a transaction that is idle for this many milliseconds: a client that vanished must not
/// keep the writers' lock.
const IDLE: u32 = 60_000;

impl Postgres {
    /// Connects. Without `writes` every transaction is read-only. Waits for another writer as `access` says.
    pub(crate) fn open(server: &PostgresServer, access: StoreAccess, writes: bool) -> Result<Self, Error> {
        let mut config = Config::new();
        config.host(&server.host).port(server.port).user(&server.user).dbname(&server.database);
        config.connect_timeout(PATIENCE).application_name("offramp");
        config.keepalives_idle(PATIENCE * 3).keepalives_interval(PATIENCE).keepalives_retries(3);
        config.tcp_user_timeout(PATIENCE * 3);
        if let Some(password) = server.password()? {
            config.password(password);
        }
        let client = match &server.protection {
            Protection::None => config.ssl_mode(SslMode::Disable).connect(NoTls),
            Protection::Verified(authorities) => {
                config.ssl_mode(SslMode::Require).connect(Verified::by(authorities)?)
            }
        };
        let mut client = client.map_err(|error| connect_error(&error))?;
        let settings = format!(
            "SET client_min_messages = warning; SET lock_timeout = {}; SET default_transaction_read_only = {};
             SET timezone = 'UTC'; SET idle_in_transaction_session_timeout = {IDLE}; SET tcp_keepalives_idle = 30; \
             SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3",
            // 0 would wait forever.
            access.busy.as_millis().clamp(1, 86_400_000),
            if writes { "off" } else { "on" },
        );
        client.batch_execute(&settings).map_err(|e| error(&e))?;
        Ok(Self { client })
    }

    fn fetch(&mut self, sql: &str, most: usize) -> Result<Table, Error> {
        // Preparation refuses several statements in one; a cursor refuses everything but queries.
        let statement = self.client.prepare(sql).map_err(|e| question_error(&e))?;
        let types: Vec<Type> = statement.columns().iter().map(|column| column.type_().clone()).collect();
        let names = statement.columns().iter().map(|column| column.name().to_owned()).collect();
        self.client
            .batch_execute(&format!("DECLARE answer NO SCROLL CURSOR FOR {sql}"))
            .map_err(|e| question_error(&e))?;
        let messages =
            self.client.simple_query(&format!("FETCH {most} FROM answer")).map_err(|e| question_error(&e))?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some(types.iter().enumerate().map(|(at, kind)| value(kind, row.get(at))).collect())
            }
            _ => None,
        });
        Ok((names, rows.collect()))
    }
}

impl Engine for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn run(&mut self, sql: &str, texts: &[&str]) -> Result<u64, Error> {
        if sql == "BEGIN" {
            let sql = format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
            return self.client.batch_execute(&sql).map(|()| 0).map_err(|e| error(&e));
        }
        if texts.is_empty() {
            let messages = self.client.simple_query(sql).map_err(|e| error(&e))?;
            return Ok(messages.iter().fold(0, |changed, message| match message {
                SimpleQueryMessage::CommandComplete(count) => *count,
                _ => changed,
            }));
        }
        let texts: Vec<&(dyn ToSql + Sync)> = texts.iter().map(|text| text as _).collect();
        self.client.execute(sql, &texts).map_err(|e| error(&e))
    }

    fn rows(&mut self, sql: &str, texts: &[&str], visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut rows = self.client.query_raw(sql, texts.iter().copied()).map_err(|e| error(&e))?;
        while let Some(row) = rows.next().map_err(|e| error(&e))? {
            if visit(&row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn insert(&mut self, facts: &[Fact]) -> Result<(), Error> {
        let sink = self
            .client
            .copy_in(
                "COPY fact (id, shape, client, path, query, agent, referer, bytes, received, duration_us, \
                 request, queue_us, connect_us, first_byte_us) FROM STDIN (FORMAT binary)",
            )
            .map_err(|e| error(&e))?;
        let types = [
            Type::INT8,
            Type::INT4,
            Type::INT4,
            Type::INT4,
            Type::INT4,
            Type::INT4,
            Type::INT4,
            Type::INT8,
            Type::INT8,
            Type::INT8,
            Type::TEXT,
            Type::INT8,
            Type::INT8,
            Type::INT8,
        ];
        let mut writer = BinaryCopyInWriter::new(sink, &types);
        for fact in facts {
            // Numbers of dictionary rows start at 1 and fit 31 bits.
            let number = |id: i64| i32::try_from(id).ok().filter(|id| *id != 0);
            writer
                .write(&[
                    &fact.id,
                    &number(fact.shape),
                    &number(fact.client),
                    &number(fact.path),
                    &number(fact.query),
                    &number(fact.agent),
                    &number(fact.referer),
                    &fact.bytes,
                    &fact.received,
                    &fact.duration,
                    &fact.request.as_deref(),
                    &fact.phases[0],
                    &fact.phases[1],
                    &fact.phases[2],
                ])
                .map_err(|e| error(&e))?;
        }
        writer.finish().map(|_| ()).map_err(|e| error(&e))
    }

    fn ask(&mut self, sql: &str, limit: Duration, most: usize) -> Result<Table, Error> {
        let begin = format!(
            "BEGIN TRANSACTION READ ONLY; SET LOCAL statement_timeout = {}",
            limit.as_millis().clamp(1, 86_400_000)
        );
        self.client.batch_execute(&begin).map_err(|e| error(&e))?;
        let answer = self.fetch(sql, most);
        drop(self.client.batch_execute("ROLLBACK"));
        answer
    }

    fn limit(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let milliseconds = limit.map_or(0, |limit| limit.as_millis().clamp(1, 86_400_000));
        self.client.batch_execute(&format!("SET statement_timeout = {milliseconds}")).map_err(|e| error(&e))
    }
}

impl RowReader for Row {
    fn int(&self, column: usize) -> i64 {
        let number = match *self.columns()[column].type_() {
            Type::INT8 => self.try_get::<_, Option<i64>>(column),
            Type::INT4 => self.try_get::<_, Option<i32>>(column).map(|value| value.map(i64::from)),
            _ => Ok(None),
        };
        number.ok().flatten().unwrap_or(0)
    }

    fn text(&self, column: usize) -> &str {
        self.try_get::<_, Option<&str>>(column).ok().flatten().unwrap_or_default()
    }
}

/// Converts PostgreSQL's text form by the column's type.
fn value(kind: &Type, text: Option<&str>) -> SqlValue {
    let Some(text) = text else { return SqlValue::Null };
    let number = match *kind {
        Type::INT2 | Type::INT4 | Type::INT8 => text.parse().ok().map(SqlValue::Int),
        Type::NUMERIC => text.parse().map(SqlValue::Int).or_else(|_| text.parse().map(SqlValue::Real)).ok(),
        Type::FLOAT4 | Type::FLOAT8 => text.parse().ok().map(SqlValue::Real),
        _ => None,
    };
    number.unwrap_or_else(|| SqlValue::Text(text.to_owned()))
}

/// Converts an error of a user's statement: errors from the server are the query's fault.
fn question_error(error: &postgres::Error) -> Error {
    match error.code() {
        Some(code) if *code == SqlState::QUERY_CANCELED => Error::TimedOut,
        Some(code) if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            Error::Question("only statements that read are allowed".into())
        }
        Some(_) => Error::Question(message(error)),
        None => self::error(error),
    }
}

/// Converts a failure to connect: a wrong password needs an operator, other failures may pass.
fn connect_error(error: &postgres::Error) -> Error {
    match error.code() {
        Some(code)
            if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) =>
        {
            Error::Store(message(error))
        }
        _ => Error::Away(message(error)),
    }
}

fn error(error: &postgres::Error) -> Error {
    let text = message(error);
    let Some(code) = error.code() else { return Error::Away(text) };
    // Classes 08 and 58 are faults of connections and the machine, 57P those of an operator who ends
    // sessions.
    if ["08", "57P", "58"].iter().any(|class| code.code().starts_with(class)) {
        return Error::Away(text);
    }
    match *code {
        SqlState::LOCK_NOT_AVAILABLE | SqlState::T_R_DEADLOCK_DETECTED => Error::Busy(text),
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::IN_FAILED_SQL_TRANSACTION => Error::Busy(text),
        SqlState::TOO_MANY_CONNECTIONS | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Error::Away(text),
        SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => Error::Full(text),
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::INSUFFICIENT_PRIVILEGE => Error::ReadOnly(text),
        SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => Error::Corrupt(text),
        SqlState::QUERY_CANCELED => Error::TimedOut,
        _ => Error::Store(text),
    }
}

/// The server's message, or else the underlying error: `postgres` itself gives only the operation.
fn message(error: &postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", said.message(), said.code().code());
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
