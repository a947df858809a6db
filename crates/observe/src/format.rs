//! One event as one line: JSON, logfmt, or text for people.
//!
//! JSON and logfmt are made by one walk over the fields, so they cannot differ in what they tell. Every
//! format keeps two promises, whatever bytes a client sent: an event is exactly one line of valid UTF-8,
//! and no control or invisible character leaves unescaped, so that a log can be shown on a terminal.

mod escape;
mod fields;
mod json;
mod logfmt;
mod text;

pub(crate) use escape::{bare_or_quoted, json_string, sentence};
pub use fields::{FIELDS, Field, FieldKind};

use crate::facts::ConnectionFacts;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFormat {
    /// One JSON object per line.
    #[default]
    Json,
    /// `key=value` pairs.
    Logfmt,
    /// Aligned columns for people; not meant to be parsed.
    Text,
}

impl EventFormat {
    /// Appends the event with its final newline to `out`, which the caller reuses.
    pub fn write(self, facts: &ConnectionFacts, out: &mut Vec<u8>) {
        match self {
            Self::Json => json::write(facts, out),
            Self::Logfmt => logfmt::write(facts, out),
            Self::Text => text::write(facts, out),
        }
        out.push(b'\n');
    }
}
