//! Events as lines: JSON, logfmt, text for people, or nginx's access log.
//!
//! JSON and logfmt are written by one walk over the fields, so they always hold the same facts. Every format
//! keeps two promises, whatever bytes a client sent: an event is at most one line of valid UTF-8, and no
//! control or invisible character leaves unescaped, so that a log can be shown on a terminal.

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
pub use selection::{FieldHashKey, FieldSelection, coarse};

use selection::Selected;
use visit::FieldWriter;

use crate::event::Event;

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFormat {
    /// JSON, one object per line.
    #[default]
    Json,
    /// logfmt: `key=value` pairs.
    Logfmt,
    /// Text for people in aligned columns; not meant to be parsed.
    Text,
    /// For a person at a terminal: at most 100 columns, with advice for connections that failed.
    Terminal,
    /// nginx's `combined` format. Connections have no line in it: the program's log counts them by cause.
    Combined,
    /// nginx's `combined` format followed by the quoted host. Connections have no line in it either.
    Vhost,
}

/// Format and selection of fields of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventStyle {
    /// The format of a line.
    pub format: EventFormat,
    /// The fields to write.
    pub selection: FieldSelection,
}

impl From<EventFormat> for EventStyle {
    fn from(format: EventFormat) -> Self {
        Self { format, selection: FieldSelection::default() }
    }
}

impl EventStyle {
    /// Returns `true` if events of this kind have a line in this format.
    pub(crate) const fn has_line(&self, event: &Event) -> bool {
        !matches!((self.format, event), (EventFormat::Combined | EventFormat::Vhost, Event::Connection(_)))
    }

    /// Appends the event with its final newline to `out`, which the caller reuses; appends nothing for an
    /// event without a line in this format.
    pub fn write(&self, event: &Event, out: &mut Vec<u8>) {
        let selection = &self.selection;
        match (self.format, event) {
            (EventFormat::Json, _) => json::write(out, |to| walk(event, selection, to)),
            (EventFormat::Logfmt, _) => logfmt::write(out, |to| walk(event, selection, to)),
            (EventFormat::Text, _) => text::write(event, selection, text::FirstColumn::Time, out),
            (EventFormat::Terminal, _) => terminal::write(event, selection, out),
            (EventFormat::Combined | EventFormat::Vhost, Event::Connection(_)) => return,
            (EventFormat::Combined, Event::Request(facts)) => combined::write(facts, selection, false, out),
            (EventFormat::Vhost, Event::Request(facts)) => combined::write(facts, selection, true, out),
        }
        out.push(b'\n');
    }

    /// Appends the event as a journald entry: the line as the message (text formats without their time; text
    /// for events without a line), then one field per fact.
    pub(crate) fn write_journal(&self, event: &Event, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        scratch.clear();
        if !matches!(self.format, EventFormat::Text | EventFormat::Terminal) {
            self.write(event, scratch);
            scratch.pop();
        }
        if scratch.is_empty() {
            text::write(event, &self.selection, text::FirstColumn::Client, scratch);
        }
        let mut entry = JournalEntry::begin(out, event.severity(), scratch);
        walk(event, &self.selection, &mut entry);
    }
}

/// Presents the selected fields to a writer.
fn walk(event: &Event, selection: &FieldSelection, to: &mut impl FieldWriter) {
    if selection.is_everything() {
        visit::event(event, to);
    } else {
        visit::event(event, &mut Selected { to, selection });
    }
}
