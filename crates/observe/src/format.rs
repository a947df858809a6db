//! One event as one line: JSON, logfmt, text for people, or as nginx writes its access log.
//!
//! JSON and logfmt are made by one walk over the fields, so they cannot differ in what they tell. Every
//! format keeps two promises, whatever bytes a client sent: an event is at most one line of valid UTF-8,
//! and no control or invisible character leaves unescaped, so that a log can be shown on a terminal.

mod combined;
mod escape;
mod fields;
mod journal;
mod json;
mod logfmt;
mod plain;
mod selection;
mod terminal;
mod text;
mod visit;

pub(crate) use escape::{bare_or_quoted, json_string, sentence};
pub use fields::{Field, FieldKind, FieldOf};
pub(crate) use journal::JournalEntry;
pub use selection::{HashKey, Selection, coarse};

use selection::Selected;
use visit::FieldWriter;

use crate::event::Event;

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
    /// For a person at a terminal: at most 100 columns, with advice where nothing came of a connection.
    Terminal,
    /// nginx's `combined`. Connections have no line in it: the program's log counts them by cause.
    Combined,
    /// nginx's `combined`, and the host in quotes. Connections have no line in it either.
    Vhost,
}

/// How events are written, and what of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventStyle {
    /// The form of a line.
    pub format: EventFormat,
    /// Which fields are written.
    pub selection: Selection,
}

impl From<EventFormat> for EventStyle {
    fn from(format: EventFormat) -> Self {
        Self { format, selection: Selection::default() }
    }
}

impl EventStyle {
    /// Whether events of this kind have a line in this format.
    pub(crate) const fn has_line(&self, event: &Event) -> bool {
        !matches!((self.format, event), (EventFormat::Combined | EventFormat::Vhost, Event::Connection(_)))
    }

    /// Appends the event with its final newline to `out`, which the caller reuses; nothing at all for an
    /// event that has no line in this format.
    pub fn write(&self, event: &Event, out: &mut Vec<u8>) {
        let selection = &self.selection;
        match (self.format, event) {
            (EventFormat::Json, _) => json::write(out, |to| walk(event, selection, to)),
            (EventFormat::Logfmt, _) => logfmt::write(out, |to| walk(event, selection, to)),
            (EventFormat::Text, _) => text::write(event, selection, text::Opening::Time, out),
            (EventFormat::Terminal, _) => terminal::write(event, selection, out),
            (EventFormat::Combined | EventFormat::Vhost, Event::Connection(_)) => return,
            (EventFormat::Combined, Event::Request(facts)) => combined::write(facts, selection, false, out),
            (EventFormat::Vhost, Event::Request(facts)) => combined::write(facts, selection, true, out),
        }
        out.push(b'\n');
    }

    /// Appends the event as an entry of journald's: its line in this format as the message (without a time,
    /// where it is text; as text, where it has no line), then one field per fact.
    pub(crate) fn write_journal(&self, event: &Event, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        scratch.clear();
        if !matches!(self.format, EventFormat::Text | EventFormat::Terminal) {
            self.write(event, scratch);
            scratch.pop();
        }
        if scratch.is_empty() {
            text::write(event, &self.selection, text::Opening::Client, scratch);
        }
        let mut entry = JournalEntry::begin(out, event.severity(), scratch);
        walk(event, &self.selection, &mut entry);
    }
}

/// Hands the fields that are selected to a writer.
fn walk(event: &Event, selection: &Selection, to: &mut impl FieldWriter) {
    if selection.is_everything() {
        visit::event(event, to);
    } else {
        visit::event(event, &mut Selected { to, selection });
    }
}
