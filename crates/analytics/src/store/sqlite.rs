//! The store in a SQLite file; SQLite is built in.
//!
//! Write-ahead log, so that queries run while requests are written; synchronised at checkpoints only: a power
//! cut may lose the last batches, together with the positions stored with them.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Statement};
use rustix::fs::StatVfsMountFlags;

use crate::error::Error;
use crate::store::{Dialect, Engine, Fact, RowReader, SqlValue, StoreAccess, Table, Visit};

/// A connection to a store in SQLite.
pub(crate) struct Sqlite {
    connection: Connection,
    /// The statement that adds [`TOGETHER`] facts at once.
    many: String,
}

/// Facts per statement: they share the cost of starting it, and the cursor stays at the last one. More gained
/// nothing.
const TOGETHER: usize = 32;

/// The application id in SQLite's header: "OFFR". Only a damaged file with this id is moved aside, and a
/// database of another program gets no tables of Offramp.
pub(crate) const APPLICATION_ID: i32 = 0x4f46_4652;

/// The maximum size of one value in an answer to a user's query, in bytes.
const LONGEST_VALUE: i32 = 16 << 20;

/// SQLite's virtual machine steps between two looks at the clock: some microseconds.
const STEPS_BETWEEN_LOOKS: i32 = 4000;

impl Sqlite {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path, access: StoreAccess) -> Result<Self, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // Access logs must not be world-readable; the files beside it get the same mode. If the file
        // cannot be created, SQLite reports the reason.
        drop(OpenOptions::new().write(true).create_new(true).mode(0o640).open(path));
        let opened = Connection::open_with_flags(path, flags).map_err(|e| error(&e));
        match opened.and_then(|connection| Self::set_up(connection, access, true)) {
            Err(Error::Away(what)) if is_on_read_only_media(path) => Err(Error::ReadOnly(what)),
            opened => opened,
        }
    }

    /// Opens the file for reading only.
    pub(crate) fn open_to_read(path: &Path, access: StoreAccess) -> Result<Self, Error> {
        if !path.exists() {
            return Err(Error::Away(format!("there is no file {}", path.display())));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match Connection::open_with_flags(path, flags).and_then(read_once) {
            // Readers of a write-ahead log need a shared file beside it, which cannot be created on read-only
            // media; but nothing changes there either. The end of an existing log is not visible then.
            Err(_) if is_on_read_only_media(path) => {
                let flags = flags | OpenFlags::SQLITE_OPEN_URI;
                Connection::open_with_flags(immutable(path), flags)
            }
            opened => opened,
        };
        Self::set_up(connection.map_err(|e| error(&e))?, access, false)
    }

    /// A store in memory, which lasts as long as this engine.
    pub(crate) fn in_memory(access: StoreAccess) -> Result<Self, Error> {
        Self::set_up(Connection::open_in_memory().map_err(|e| error(&e))?, access, true)
    }

    fn set_up(connection: Connection, access: StoreAccess, writes: bool) -> Result<Self, Error> {
        connection.busy_timeout(access.busy).map_err(|e| error(&e))?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE).map_err(|e| error(&e))?;
        let pragmas = if writes {
            own(&connection)?;
            // The log is checkpointed every 8 MiB and then reused, so that it stays that small.
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA wal_autocheckpoint=1000; PRAGMA journal_size_limit=16777216; \
             PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
        } else {
            "PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
        };
        connection.execute_batch(pragmas).map_err(|e| error(&e))?;
        connection
            .execute_batch(&format!("PRAGMA cache_size=-{}", access.cache_kib))
            .map_err(|e| error(&e))?;
        Ok(Self { connection, many: insert_sql(TOGETHER) })
    }
}

/// Sets the application id before anything else is written, so that a damaged file differs from one of another
/// program's.
fn own(connection: &Connection) -> Result<(), Error> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).map_err(|e| error(&e));
    let id: i32 = number("PRAGMA application_id")?;
    if id == APPLICATION_ID {
        return Ok(());
    }
    // Earlier versions of this program set no id. A table `migrations` alone is common among other programs.
    let things: i32 = number("SELECT count(*) FROM sqlite_master")?;
    let ours: i32 = number(
        "SELECT (SELECT count(*) FROM pragma_table_info('migrations') WHERE name IN ('version', 'applied')) = 2 \
         AND (SELECT count(*) FROM pragma_table_info('fact') WHERE name IN ('id', 'shape')) = 2",
    )?;
    if id != 0 || things != 0 && ours == 0 {
        return Err(Error::Store(
            "the file is a database of another program: give the log store a path of its own".into(),
        ));
    }
    // Page size and vacuum mode only apply to new files.
    connection
        .execute_batch(&format!(
            "PRAGMA page_size=8192; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA application_id={APPLICATION_ID};"
        ))
        .map_err(|e| error(&e))
}

/// Returns the connection after a first read, since SQLite opens files lazily. A lock by another process
/// shows later, with a timeout.
fn read_once(connection: Connection) -> rusqlite::Result<Connection> {
    match connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(())) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => Err(error),
        _ => Ok(connection),
    }
}

fn is_on_read_only_media(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The path as SQLite's URI for an immutable file (<https://www.sqlite.org/uri.html>).
fn immutable(path: &Path) -> OsString {
    let mut uri = b"file:".to_vec();
    uri.extend(percent_encode(path.as_os_str().as_bytes(), IN_URI).flat_map(str::bytes));
    uri.extend(b"?immutable=1");
    OsString::from_vec(uri)
}

/// Characters with a meaning in a URI's path.
const IN_URI: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');

impl Engine for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn run(&mut self, sql: &str, texts: &[&str]) -> Result<u64, Error> {
        if texts.is_empty() && sql.contains(';') {
            return self.connection.execute_batch(sql).map(|()| 0).map_err(|e| error(&e));
        }
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| error(&e))?;
        for (index, text) in texts.iter().enumerate() {
            statement.raw_bind_parameter(index + 1, *text).map_err(|e| error(&e))?;
        }
        // A pragma or a function may return rows, which are ignored.
        let mut rows = statement.raw_query();
        while rows.next().map_err(|e| error(&e))?.is_some() {}
        drop(rows);
        drop(statement);
        Ok(self.connection.changes())
    }

    fn rows(&mut self, sql: &str, texts: &[&str], visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(sql).map_err(|e| error(&e))?;
        for (index, text) in texts.iter().enumerate() {
            statement.raw_bind_parameter(index + 1, *text).map_err(|e| error(&e))?;
        }
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(|e| error(&e))? {
            if visit(row) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn insert(&mut self, facts: &[Fact]) -> Result<(), Error> {
        let mut groups = facts.chunks_exact(TOGETHER);
        let mut statement = self.connection.prepare_cached(&self.many).map_err(|e| error(&e))?;
        for group in groups.by_ref() {
            insert(&mut statement, group).map_err(|e| error(&e))?;
        }
        let rest = groups.remainder();
        if !rest.is_empty() {
            let mut statement = self.connection.prepare_cached(&insert_sql(1)).map_err(|e| error(&e))?;
            for fact in rest {
                insert(&mut statement, std::slice::from_ref(fact)).map_err(|e| error(&e))?;
            }
        }
        Ok(())
    }

    fn ask(&mut self, sql: &str, limit: Duration, most: usize) -> Result<Table, Error> {
        self.limit(Some(limit))?;
        self.connection.authorizer(Some(only_reading)).map_err(|e| error(&e))?;
        let table = answer(&self.connection, sql, most);
        self.connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>).map_err(|e| error(&e))?;
        self.limit(None)?;
        table
    }

    fn limit(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        let ends = limit.and_then(|limit| Instant::now().checked_add(limit));
        let look = ends.map(|ends| move || Instant::now() >= ends);
        self.connection.progress_handler(STEPS_BETWEEN_LOOKS, look).map_err(|e| error(&e))
    }
}

impl RowReader for Row<'_> {
    fn int(&self, column: usize) -> i64 {
        match self.get_ref(column) {
            Ok(ValueRef::Integer(value)) => value,
            _ => 0,
        }
    }

    fn text(&self, column: usize) -> &str {
        match self.get_ref(column) {
            Ok(ValueRef::Text(value)) => std::str::from_utf8(value).unwrap_or_default(),
            _ => "",
        }
    }
}

/// The values of a fact, and the place of its request id among them, from 1.
const PLACES: usize = 14;
const REQUEST: usize = 11;

/// The statement that adds `count` facts.
fn insert_sql(count: usize) -> String {
    let rows = vec!["(?,?,?,?,?,?,?,?,?,?,?,?,?,?)"; count].join(",");
    format!(
        "INSERT INTO fact (id,shape,client,path,query,agent,referer,bytes,received,duration_us,request,\
           queue_us,connect_us,first_byte_us) VALUES {rows}"
    )
}

fn insert(statement: &mut Statement<'_>, facts: &[Fact]) -> rusqlite::Result<()> {
    let mut place = 0;
    let mut bind = |value: Option<i64>| {
        place += 1;
        statement.raw_bind_parameter(place, value)
    };
    let mut requests = Vec::new();
    for (index, fact) in facts.iter().enumerate() {
        bind(Some(fact.id))?;
        bind(Some(fact.shape))?;
        for reference in [fact.client, fact.path, fact.query, fact.agent, fact.referer] {
            bind(Some(reference).filter(|id| *id != 0))?;
        }
        bind(Some(fact.bytes))?;
        bind(fact.received)?;
        bind(fact.duration)?;
        bind(None)?;
        for phase in fact.phases {
            bind(phase)?;
        }
        if let Some(request) = &fact.request {
            requests.push((index * PLACES + REQUEST, request));
        }
    }
    for (place, request) in requests {
        statement.raw_bind_parameter(place, &**request)?;
    }
    statement.raw_execute().map(|_| ())
}

/// Lets a statement read tables and call functions, and nothing else: not even `ATTACH` or a pragma.
#[allow(clippy::needless_pass_by_value, reason = "the type that the hook has")]
fn only_reading(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if function_name != "load_extension" => Authorization::Allow,
        _ => Authorization::Deny,
    }
}

fn answer(connection: &Connection, sql: &str, most: usize) -> Result<Table, Error> {
    let mut statement = connection.prepare(sql).map_err(|e| question_error(&e))?;
    if !statement.readonly() {
        return Err(Error::Question("only statements that read are allowed".into()));
    }
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while found.len() < most {
        let Some(row) = rows.next().map_err(|e| question_error(&e))? else { break };
        found.push((0..names.len()).map(|column| value(row, column)).collect());
    }
    Ok((names, found))
}

fn value(row: &Row<'_>, column: usize) -> SqlValue {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(value)) => SqlValue::Int(value),
        Ok(ValueRef::Real(value)) => SqlValue::Real(value),
        Ok(ValueRef::Text(value)) => SqlValue::Text(String::from_utf8_lossy(value).into_owned()),
        Ok(ValueRef::Blob(value)) => SqlValue::Text(value.iter().map(|byte| format!("{byte:02x}")).collect()),
        Ok(ValueRef::Null) | Err(_) => SqlValue::Null,
    }
}

/// Converts an error of a user's statement: wrong SQL is the query's fault.
fn question_error(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::AuthorizationForStatementDenied) => {
            Error::Question("only statements that read are allowed".into())
        }
        // An empty statement, or only a comment, counts as misuse for SQLite.
        Some(ErrorCode::Unknown | ErrorCode::ApiMisuse) | None => Error::Question(error.to_string()),
        _ => self::error(error),
    }
}

fn error(error: &rusqlite::Error) -> Error {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy(text),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Error::ReadOnly(text),
        Some(ErrorCode::DiskFull) => Error::Full(text),
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Error::Away(text),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::Corrupt(text),
        Some(ErrorCode::OperationInterrupted) => Error::TimedOut,
        Some(ErrorCode::TooBig) => Error::Question(text),
        _ => Error::Store(text),
    }
}
