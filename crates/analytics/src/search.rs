//! Full-text search. Texts are in dictionaries, so each is indexed once: SQLite has FTS5 tables beside the
//! dictionaries, PostgreSQL has GIN indexes over `to_tsvector`.

use crate::error::Error;
use crate::pattern::escape_like;
use crate::store::{Dialect, Engine};

/// The dictionaries that are searched.
pub(crate) const SEARCHED: [&str; 4] = ["path", "query", "referer", "agent"];

/// The indexed expression in PostgreSQL: words are separated by anything but letters and digits, as in FTS5.
const WORDS: &str = "to_tsvector('simple', regexp_replace(text, '[^[:alnum:]]+', ' ', 'g'))";

/// Returns `true` if the store has an index of words.
pub(crate) fn is_indexed(engine: &mut dyn Engine) -> Result<bool, Error> {
    let sql = match engine.dialect() {
        Dialect::Sqlite => "SELECT count(*) FROM sqlite_master WHERE name = 'path_words'",
        Dialect::Postgres => "SELECT count(*) FROM pg_class WHERE oid = to_regclass('path_words')",
    };
    Ok(engine.int(sql)? == Some(1))
}

/// Creates or removes the index of words.
pub(crate) fn prepare(engine: &mut dyn Engine, wanted: bool) -> Result<(), Error> {
    if is_indexed(engine)? == wanted {
        return Ok(());
    }
    let dialect = engine.dialect();
    engine.whole(|engine| {
        for table in SEARCHED {
            let sql = match (dialect, wanted) {
                (Dialect::Sqlite, true) => index(table),
                (Dialect::Sqlite, false) => format!(
                    "DROP TRIGGER {table}_added; DROP TRIGGER {table}_removed; DROP TABLE {table}_words;"
                ),
                (Dialect::Postgres, true) => {
                    format!("CREATE INDEX {table}_words ON {table} USING gin ({WORDS})")
                }
                (Dialect::Postgres, false) => format!("DROP INDEX {table}_words"),
            };
            engine.run(&sql, &[])?;
        }
        Ok(())
    })
}

/// The FTS5 table over a dictionary, which triggers keep up to date.
fn index(table: &str) -> String {
    format!(
        "CREATE VIRTUAL TABLE {table}_words USING fts5(text, content='{table}', content_rowid='id');
         INSERT INTO {table}_words ({table}_words) VALUES ('rebuild');
         CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN
           INSERT INTO {table}_words (rowid, text) VALUES (new.id, new.text); END;
         CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN
           INSERT INTO {table}_words ({table}_words, rowid, text) VALUES ('delete', old.id, old.text); END;"
    )
}

/// A condition on facts, and the texts that it binds.
pub(crate) struct SearchCondition {
    pub(crate) sql: String,
    pub(crate) texts: Vec<String>,
}

/// The condition that a fact has the text in one of the [`SEARCHED`] columns.
///
/// With an index, every word must begin a word of the same text. Without one, the text must occur as it is,
/// ignoring the case of ASCII letters.
pub(crate) fn condition(engine: &mut dyn Engine, text: &str) -> Result<SearchCondition, Error> {
    let dialect = engine.dialect();
    let (inner, bound): (fn(Dialect, &str) -> String, String) = if is_indexed(engine)? {
        let words: Vec<&str> =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            return Err(Error::Question("a search needs at least one word".into()));
        }
        match dialect {
            Dialect::Sqlite => {
                let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"*")).collect();
                (by_words, quoted.join(" "))
            }
            Dialect::Postgres => {
                let quoted: Vec<String> = words.iter().map(|word| format!("'{word}':*")).collect();
                (by_words, quoted.join(" & "))
            }
        }
    } else {
        (by_letters, format!("%{}%", escape_like(text)))
    };
    let columns: Vec<String> =
        SEARCHED.iter().map(|table| format!("{table} IN ({})", inner(dialect, table))).collect();
    Ok(SearchCondition { sql: format!("({})", columns.join(" OR ")), texts: vec![bound] })
}

fn by_words(dialect: Dialect, table: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!("SELECT rowid FROM {table}_words WHERE {table}_words MATCH ?1"),
        Dialect::Postgres => format!("SELECT id FROM {table} WHERE {WORDS} @@ to_tsquery('simple', $1)"),
    }
}

fn by_letters(dialect: Dialect, table: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!("SELECT id FROM {table} WHERE text LIKE ?1 ESCAPE '\\'"),
        Dialect::Postgres => format!("SELECT id FROM {table} WHERE text ILIKE $1"),
    }
}
