//! One line of the log in each format.

use std::time::SystemTime;

use super::{Level, LogField, LogFormat, Value};
use crate::format::{JournalEntry, bare_or_quoted, json_string, sentence};
use crate::sink::{Batch, Facility, Framing, Output, SyslogHead};
use crate::timestamp::{Precision, write_rfc3339};

pub(super) type Entry<'a> = (Level, &'a str, &'a [LogField<'a>]);

/// Turns entries into messages in the framing of an output.
pub(super) struct Composer {
    format: LogFormat,
    to: To,
    scratch: Vec<u8>,
}

enum To {
    Lines,
    Syslog(SyslogHead),
    Journal,
}

impl Composer {
    pub(super) fn new(format: LogFormat, output: &Output) -> Self {
        let to = match output.framing() {
            Framing::Lines => To::Lines,
            Framing::Syslog(head) => To::Syslog(head),
            Framing::Journal => To::Journal,
        };
        Self { format, to, scratch: Vec::new() }
    }

    /// Adds one entry as a separate message.
    pub(super) fn add(&mut self, batch: &mut Batch, now: SystemTime, entry: Entry<'_>) {
        let (level, _, fields) = entry;
        let out = &mut batch.bytes;
        match &self.to {
            To::Lines => {
                compose(out, self.format, now, entry);
                out.push(b'\n');
            }
            To::Syslog(head) => {
                head.write(out, (Facility::Daemon, level.severity()), now, "-");
                compose_untimed(out, self.format, now, entry);
            }
            To::Journal => {
                self.scratch.clear();
                compose_untimed(&mut self.scratch, self.format, now, entry);
                let mut journal = JournalEntry::begin(out, level.severity(), &self.scratch);
                for (key, value) in fields {
                    value.with_text(|text| journal.fact(key, text.as_bytes()));
                }
            }
        }
        batch.end_message();
    }
}

/// The entry as text without time and level: the receiver stores these separately.
fn compose_untimed(out: &mut Vec<u8>, format: LogFormat, now: SystemTime, entry: Entry<'_>) {
    let (_, message, fields) = entry;
    match format {
        LogFormat::Text | LogFormat::Journal => text(out, message, fields),
        LogFormat::Json | LogFormat::Logfmt => compose(out, format, now, entry),
    }
}

fn compose(out: &mut Vec<u8>, format: LogFormat, now: SystemTime, entry: Entry<'_>) {
    let (level, message, fields) = entry;
    match format {
        LogFormat::Text => {
            write_rfc3339(out, now, Precision::Seconds);
            out.push(b' ');
            out.extend_from_slice(level.column().as_bytes());
            out.push(b' ');
            text(out, message, fields);
        }
        LogFormat::Journal => {
            out.extend_from_slice(level.journal_mark().as_bytes());
            text(out, message, fields);
        }
        LogFormat::Json => json(out, now, entry),
        LogFormat::Logfmt => {
            out.extend_from_slice(b"time=");
            write_rfc3339(out, now, Precision::Micros);
            out.extend_from_slice(b" level=");
            out.extend_from_slice(level.name().as_bytes());
            out.extend_from_slice(b" msg=");
            bare_or_quoted(out, message.as_bytes());
            pairs(out, fields);
        }
    }
}

fn text(out: &mut Vec<u8>, message: &str, fields: &[LogField<'_>]) {
    sentence(out, message);
    pairs(out, fields);
}

fn pairs(out: &mut Vec<u8>, fields: &[LogField<'_>]) {
    for (key, value) in fields {
        out.push(b' ');
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        value.with_text(|text| bare_or_quoted(out, text.as_bytes()));
    }
}

fn json(out: &mut Vec<u8>, now: SystemTime, (level, message, fields): Entry<'_>) {
    out.extend_from_slice(b"{\"time\":\"");
    write_rfc3339(out, now, Precision::Micros);
    out.extend_from_slice(b"\",\"level\":\"");
    out.extend_from_slice(level.name().as_bytes());
    out.extend_from_slice(b"\",\"message\":");
    json_string(out, message.as_bytes());
    for (key, value) in fields {
        out.push(b',');
        json_string(out, key.as_bytes());
        out.push(b':');
        let quoted = matches!(value, Value::Text(_) | Value::Shown(_));
        value.with_text(|text| match quoted {
            true => json_string(out, text.as_bytes()),
            false => out.extend_from_slice(text.as_bytes()),
        });
    }
    out.push(b'}');
}
