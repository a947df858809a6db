//! The tables, by version. A migration runs in one transaction with the note that it ran.
//!
//! ```text
//! fact      one row per request: id (time and sequence), numbers of dictionary rows, sizes
//! shape     properties that many requests share: host, method, protocol, status, route, server, TLS, cause, user
//! host path query referer agent client network    texts, each once
//! hours     per hour: the number of its facts, the state of its roll-ups, and the number of late facts
//! days      per day: the state of its roll-ups
//! traffic   roll-up: level × period × host × status × bot, exact
//! heavy     roll-up: level × period × kind × host × bot × the heaviest items, the rest as item -1
//! files     read positions in the files of logs, written together with their facts (see `files`)
//! positions read positions of other sources, written together with their facts
//! requests  a view for people: every fact with its texts
//! ```
//!
//! The lowest bit of an agent's number marks bots. A period is the hour since 1970 (UTC) at level 0, the day
//! since 1970 at level 1. `traffic` doubles as the index of host × time: it has the hours in which a host was
//! requested, at a few bytes per hour and host instead of a dozen per request.

use crate::error::Error;
use crate::store::{Dialect, Engine, SEQUENCE_BITS, files};

/// The schema version that this program writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The migration from each version to the next.
const MIGRATIONS: [fn(Dialect) -> String; 5] = [first, second, levels, read_files, phases];

/// Dictionaries with rows of number, hash and text.
pub(crate) const DICTIONARIES: [&str; 7] = ["host", "path", "query", "referer", "agent", "client", "network"];

/// The host of requests without room for their own.
pub(crate) const OTHER_HOSTS: &str = "(other)";

/// Brings the schema up to date, step by step.
pub(crate) fn migrate(engine: &mut dyn Engine) -> Result<(), Error> {
    migrate_to(engine, VERSION)
}

/// Brings the schema to one version; later ones are refused.
pub(crate) fn migrate_to(engine: &mut dyn Engine, target: i64) -> Result<(), Error> {
    let dialect = engine.dialect();
    if version(engine)? == target {
        return Ok(());
    }
    engine.whole(|engine| {
        engine.run(
            "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, applied BIGINT NOT NULL)",
            &[],
        )?;
        // Read again under the lock: another process may have been faster.
        let found = version(engine)?;
        if found > VERSION {
            return Err(Error::TooNew(found, VERSION));
        }
        for (number, migration) in (1..=target).zip(MIGRATIONS) {
            if number > found {
                engine.run(&migration(dialect), &[])?;
                let now = match dialect {
                    Dialect::Sqlite => "unixepoch()",
                    Dialect::Postgres => "extract(epoch from now())::bigint",
                };
                engine.run(
                    &format!("INSERT INTO migrations (version, applied) VALUES ({number}, {now})"),
                    &[],
                )?;
            }
        }
        Ok(())
    })
}

/// Checks that a store opened for reading has the current schema.
pub(crate) fn check(engine: &mut dyn Engine) -> Result<(), Error> {
    match version(engine)? {
        found if found > VERSION => Err(Error::TooNew(found, VERSION)),
        0 => Err(Error::Away("it has no tables yet; nothing was written to it".into())),
        found if found < VERSION => Err(Error::Store(format!(
            "its schema has version {found}, and questions need {VERSION}: start its writer once"
        ))),
        _ => Ok(()),
    }
}

fn version(engine: &mut dyn Engine) -> Result<i64, Error> {
    let exists = match engine.dialect() {
        Dialect::Sqlite => "SELECT count(*) FROM sqlite_master WHERE name = 'migrations'",
        Dialect::Postgres => "SELECT count(*) FROM pg_class WHERE oid = to_regclass('migrations')",
    };
    if engine.int(exists)? == Some(0) {
        return Ok(0);
    }
    Ok(engine.int("SELECT max(version) FROM migrations")?.unwrap_or(0))
}

/// Version 1: the tables of facts.
fn first(dialect: Dialect) -> String {
    let strict = match dialect {
        Dialect::Sqlite => " STRICT",
        Dialect::Postgres => "",
    };
    let key = match dialect {
        Dialect::Sqlite => "INTEGER PRIMARY KEY",
        Dialect::Postgres => "BIGINT PRIMARY KEY",
    };
    let mut sql = String::new();
    for name in DICTIONARIES {
        let network = if name == "client" { ", network INTEGER" } else { "" };
        sql += &format!(
            "CREATE TABLE {name} (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, text TEXT NOT NULL{network}){strict};
             CREATE INDEX {name}_hash ON {name} (hash);"
        );
    }
    sql += &format!(
        "CREATE TABLE shape (id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, text TEXT NOT NULL, host INTEGER, \
           method TEXT, protocol TEXT, status INTEGER NOT NULL, route TEXT, server TEXT, tls TEXT, cause TEXT, \
           person TEXT){strict};
         CREATE INDEX shape_hash ON shape (hash);
         CREATE TABLE fact (id {key}, shape INTEGER NOT NULL, client INTEGER, path INTEGER, query INTEGER, \
           agent INTEGER, referer INTEGER, bytes BIGINT NOT NULL, received BIGINT, duration_us BIGINT, \
           request TEXT){strict};
         CREATE TABLE hours (hour INTEGER PRIMARY KEY, requests BIGINT NOT NULL, state INTEGER NOT NULL){strict};
         CREATE TABLE positions (source TEXT PRIMARY KEY, place TEXT NOT NULL){strict};
         CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL){strict};",
    );
    types(&sql, dialect)
}

/// Version 2: roll-ups, and the view for people.
fn second(dialect: Dialect) -> String {
    let end = match dialect {
        Dialect::Sqlite => " STRICT, WITHOUT ROWID",
        Dialect::Postgres => "",
    };
    let sql = format!(
        "CREATE TABLE days (day INTEGER PRIMARY KEY, state INTEGER NOT NULL);
         CREATE TABLE traffic (period INTEGER NOT NULL, host INTEGER NOT NULL, status INTEGER NOT NULL, \
           bot INTEGER NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL, \
           PRIMARY KEY (period, host, status, bot)){end};
         CREATE TABLE heavy (kind INTEGER NOT NULL, period INTEGER NOT NULL, host INTEGER NOT NULL, \
           bot INTEGER NOT NULL, item INTEGER NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL, \
           PRIMARY KEY (kind, period, host, bot, item)){end};"
    );
    types(&sql, dialect) + &view(dialect, &[])
}

/// Version 3: the level of a roll-up as a column (before, days had periods of −1 − the day since 1970), and
/// the number of late facts per hour.
fn levels(dialect: Dialect) -> String {
    let end = match dialect {
        Dialect::Sqlite => " STRICT, WITHOUT ROWID",
        Dialect::Postgres => "",
    };
    let level =
        "CASE WHEN period < 0 THEN 1 ELSE 0 END, CASE WHEN period < 0 THEN -1 - period ELSE period END";
    let sql = format!(
        "ALTER TABLE hours ADD COLUMN late BIGINT NOT NULL DEFAULT 0;
         CREATE TABLE traffic_by_level (level INTEGER NOT NULL, period INTEGER NOT NULL, host INTEGER NOT NULL, \
           status INTEGER NOT NULL, bot INTEGER NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL, \
           PRIMARY KEY (level, period, host, status, bot)){end};
         INSERT INTO traffic_by_level SELECT {level}, host, status, bot, requests, bytes FROM traffic;
         DROP TABLE traffic;
         ALTER TABLE traffic_by_level RENAME TO traffic;
         CREATE TABLE heavy_by_level (kind INTEGER NOT NULL, level INTEGER NOT NULL, period INTEGER NOT NULL, \
           host INTEGER NOT NULL, bot INTEGER NOT NULL, item INTEGER NOT NULL, requests BIGINT NOT NULL, \
           bytes BIGINT NOT NULL, PRIMARY KEY (kind, level, period, host, bot, item)){end};
         INSERT INTO heavy_by_level SELECT kind, {level}, host, bot, item, requests, bytes FROM heavy;
         DROP TABLE heavy;
         ALTER TABLE heavy_by_level RENAME TO heavy;"
    );
    types(&sql, dialect)
}

/// Version 4: read positions in files.
fn read_files(dialect: Dialect) -> String {
    types(&files::tables(dialect), dialect)
}

/// Version 5: the phases of a request. SQLite reads nulls where older rows have no columns, and so does PostgreSQL: no row
/// is written again.
fn phases(dialect: Dialect) -> String {
    let column = |name: &str| format!("ALTER TABLE fact ADD COLUMN {name} BIGINT;");
    let columns: String = PHASES.iter().map(|name| column(name)).collect();
    types(&format!("DROP VIEW requests; {columns}"), dialect) + &view(dialect, &PHASES)
}

/// The columns of the phases.
const PHASES: [&str; 3] = ["queue_us", "connect_us", "first_byte_us"];

/// The view for people, with further columns of facts at its end.
fn view(dialect: Dialect, more: &[&str]) -> String {
    let more: String = more.iter().map(|name| format!(", fact.{name}")).collect();
    let time = match dialect {
        Dialect::Sqlite => {
            format!("strftime('%Y-%m-%dT%H:%M:%fZ', (fact.id >> {SEQUENCE_BITS}) / 1000000.0, 'unixepoch')")
        }
        Dialect::Postgres => format!("to_timestamp((fact.id >> {SEQUENCE_BITS}) / 1000000.0)"),
    };
    format!(
        "CREATE VIEW requests AS SELECT fact.id, {time} AS time, fact.id >> {SEQUENCE_BITS} AS time_us, \
           host.text AS host, client.text AS client, network.text AS network, shape.method, \
           path.text AS path, query.text AS query, shape.protocol, shape.status, fact.bytes, fact.received, \
           fact.duration_us, referer.text AS referer, agent.text AS agent, \
           coalesce(fact.agent, 0) & 1 AS bot, shape.person AS \"user\", shape.route, shape.server, shape.tls, \
           shape.cause, fact.request AS request_id{more} \
         FROM fact JOIN shape ON shape.id = fact.shape LEFT JOIN host ON host.id = shape.host \
           LEFT JOIN client ON client.id = fact.client LEFT JOIN network ON network.id = client.network \
           LEFT JOIN path ON path.id = fact.path LEFT JOIN query ON query.id = fact.query \
           LEFT JOIN agent ON agent.id = fact.agent LEFT JOIN referer ON referer.id = fact.referer;"
    )
}

/// SQLite's strict tables have only `INTEGER`, of 64 bits.
fn types(sql: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => sql.replace("BIGINT", "INTEGER"),
        Dialect::Postgres => sql.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::StoreAccess;
    use crate::store::location::Location;
    use crate::store::postgres::Postgres;
    use crate::store::sqlite::Sqlite;

    fn engine() -> Box<dyn Engine> {
        let access = StoreAccess { busy: Duration::from_secs(1), cache_kib: 1024 };
        Box::new(Sqlite::in_memory(access).unwrap())
    }

    #[test]
    fn an_older_store_is_brought_up_to_date() {
        let mut engine = engine();
        let engine = engine.as_mut();
        migrate_to(engine, 1).unwrap();
        assert!(matches!(check(engine), Err(Error::Store(_))));
        engine.run("INSERT INTO host VALUES (1, 0, 'a.test')", &[]).unwrap();
        engine
            .run("INSERT INTO shape (id, hash, text, host, status) VALUES (1, 0, '', 1, 200)", &[])
            .unwrap();
        engine.run("INSERT INTO fact (id, shape, bytes) VALUES (32, 1, 5)", &[]).unwrap();
        migrate(engine).unwrap();
        migrate(engine).unwrap();
        check(engine).unwrap();
        assert_eq!(engine.int("SELECT count(*) FROM requests WHERE first_byte_us IS NULL").unwrap(), Some(1));
        let found = engine.text("SELECT host || ' ' || status || ' ' || time FROM requests", &[]).unwrap();
        assert_eq!(found.as_deref(), Some("a.test 200 1970-01-01T00:00:00.000Z"));
        assert_eq!(engine.int("SELECT count(*) FROM migrations").unwrap(), Some(VERSION));
    }

    #[test]
    fn roll_ups_of_days_get_their_level() {
        let mut sqlite = engine();
        let server = offramp_testkit::postgres::shared().database();
        let Ok(Location::Postgres(server)) = Location::parse(&server) else { panic!("{server}") };
        let access = StoreAccess { busy: Duration::from_secs(5), cache_kib: 1024 };
        let mut postgres = Postgres::open(&server, access, true).unwrap();
        for engine in [sqlite.as_mut(), &mut postgres] {
            migrate_to(engine, 2).unwrap();
            // An hour, day 0, and another day.
            for period in [480_000, -1, -20_001] {
                engine.run(&format!("INSERT INTO traffic VALUES ({period}, 3, 404, 1, 7, 8)"), &[]).unwrap();
                engine.run(&format!("INSERT INTO heavy VALUES (2, {period}, 3, 0, -1, 9, 10)"), &[]).unwrap();
            }
            engine.run("INSERT INTO hours VALUES (480000, 7, 1)", &[]).unwrap();
            migrate(engine).unwrap();
            let traffic = engine.ints::<7>(
                "SELECT level, period, host, status, bot, requests, bytes FROM traffic ORDER BY 1, 2",
            );
            let periods = [[0, 480_000], [1, 0], [1, 20_000]];
            assert_eq!(traffic.unwrap(), periods.map(|[level, period]| [level, period, 3, 404, 1, 7, 8]));
            let heavy = engine.ints::<8>(
                "SELECT kind, level, period, host, bot, item, requests, bytes FROM heavy ORDER BY 2, 3",
            );
            assert_eq!(heavy.unwrap(), periods.map(|[level, period]| [2, level, period, 3, 0, -1, 9, 10]));
            let hours = engine.ints::<4>("SELECT hour, requests, state, late FROM hours").unwrap();
            assert_eq!(hours, [[480_000, 7, 1, 0]]);
            check(engine).unwrap();
        }
    }

    #[test]
    fn a_migration_that_fails_leaves_everything_as_it_was() {
        let mut engine = engine();
        let engine = engine.as_mut();
        migrate_to(engine, 1).unwrap();
        engine.run("CREATE TABLE traffic (in_the_way INTEGER)", &[]).unwrap();
        assert!(migrate(engine).is_err());
        assert_eq!(version(engine).unwrap(), 1);
        assert_eq!(engine.int("SELECT count(*) FROM sqlite_master WHERE name = 'days'").unwrap(), Some(0));
    }

    #[test]
    fn a_later_store_is_refused() {
        let mut engine = engine();
        let engine = engine.as_mut();
        migrate(engine).unwrap();
        engine.run(&format!("INSERT INTO migrations VALUES ({}, 0)", VERSION + 1), &[]).unwrap();
        assert!(matches!(migrate(engine), Err(Error::TooNew(..))));
        assert!(matches!(check(engine), Err(Error::TooNew(..))));
    }
}
