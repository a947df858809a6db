//! How far the sources of a store were read: positions and files.

use std::fmt::Write;

use super::Writer;
use crate::error::Error;
use crate::store::Engine;
use crate::store::files::{self, FileRecord};

impl Writer {
    /// Whether the position of a source is such, once all other writers have ended what they were at.
    pub(crate) fn has(&mut self, source: &str, is_such: impl Fn(&[u8]) -> bool) -> Result<bool, Error> {
        let place = self.guarded(|writer| {
            writer.ensure_open()?;
            writer.position(source)
        })?;
        let has = place.is_some_and(|place| is_such(&place));
        if has {
            self.rollback();
        }
        Ok(has)
    }

    /// Forgets the position of a source.
    pub(crate) fn forget_position(&mut self, source: &str) -> Result<(), Error> {
        self.engine.run("DELETE FROM positions WHERE source = $1", &[source]).map(drop)
    }

    /// The files of a source that were committed, the oldest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn files(&mut self, source: &str) -> Result<Vec<FileRecord>, Error> {
        files::of_source(self.engine.as_mut(), source)
    }

    /// The files of all sources that begin with these bytes, and their sources.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn files_with_head(&mut self, head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
        files::with_head(self.engine.as_mut(), head)
    }

    /// The position that was last committed for a source.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn position(&mut self, source: &str) -> Result<Option<Vec<u8>>, Error> {
        let place = self.engine.text("SELECT place FROM positions WHERE source = $1", &[source])?;
        Ok(place.as_deref().map(from_hex))
    }
}

/// How far a source was read.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    Position(&'a str, &'a [u8]),
    File(&'a str, &'a FileRecord),
}

impl Place<'_> {
    pub(super) fn save(&self, engine: &mut dyn Engine) -> Result<(), Error> {
        match self {
            Self::Position(source, position) => {
                let sql = "INSERT INTO positions (source, place) VALUES ($1, $2) \
                           ON CONFLICT (source) DO UPDATE SET place = excluded.place";
                engine.run(sql, &[source, &to_hex(position)]).map(drop)
            }
            Self::File(source, file) => files::save(engine, source, file),
        }
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .filter_map(|pair| std::str::from_utf8(pair).ok())
        .filter_map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}
