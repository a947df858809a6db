//! Read positions of sources, as the store has them.

use std::fmt::Write;

use super::Engine;
use super::files::{self, FileRecord};
use crate::error::Error;

/// The read position of a source, which is committed together with its requests.
#[derive(Clone, Copy)]
pub(crate) enum ReadProgress<'a> {
    /// An opaque position in the source of this name.
    Position(&'a str, &'a [u8]),
    /// A file of the source of this name.
    File(&'a str, &'a FileRecord),
}

impl ReadProgress<'_> {
    /// Stores the position within the current transaction.
    pub(crate) fn save(&self, engine: &mut dyn Engine) -> Result<(), Error> {
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

/// The position that a text of the store stands for.
pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .filter_map(|pair| std::str::from_utf8(pair).ok())
        .filter_map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}
