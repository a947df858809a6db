//! Log lines in each format.

use std::time::SystemTime;

use super::{Level, LogField, LogFormat, LogValue};
use crate::format::{JournalEntry, bare_or_quoted, json_string, sentence};
use crate::sink::{Batch, Facility, Output, OutputFraming, SyslogPriority};
use crate::timestamp::{Precision, write_rfc3339};

/// One line before it is encoded.
#[derive(Clone, Copy)]
pub(super) struct LogLine<'a> {
    pub(super) level: Level,
    pub(super) message: &'a str,
    pub(super) fields: &'a [LogField<'a>],
}

/// Encodes log lines as messages in the framing of an output.
pub(super) struct Composer {
    format: LogFormat,
    framing: OutputFraming,
    scratch: Vec<u8>,
}

impl Composer {
    pub(super) fn new(format: LogFormat, output: &Output) -> Self {
        Self { format, framing: output.framing(), scratch: Vec::new() }
    }

    /// Appends one log line as a message of its own.
    pub(super) fn add(&mut self, batch: &mut Batch, now: SystemTime, line: LogLine<'_>) {
        let out = &mut batch.bytes;
        match &self.framing {
            OutputFraming::Lines => {
                compose(out, self.format, now, line);
                out.push(b'\n');
            }
            OutputFraming::Syslog(head) => {
                let priority = SyslogPriority { facility: Facility::Daemon, severity: line.level.severity() };
                head.write(out, priority, now, "-");
                compose_untimed(out, self.format, now, line);
            }
            OutputFraming::Journal => {
                self.scratch.clear();
                compose_untimed(&mut self.scratch, self.format, now, line);
                let mut journal = JournalEntry::begin(out, line.level.severity(), &self.scratch);
                for (key, value) in line.fields {
                    value.with_text(|text| journal.fact(key, text.as_bytes()));
                }
            }
        }
        batch.end_message();
    }
}

/// Encodes a line without time and level, which the receiver records separately.
fn compose_untimed(out: &mut Vec<u8>, format: LogFormat, now: SystemTime, line: LogLine<'_>) {
    let LogLine { message, fields, .. } = line;
    match format {
        LogFormat::Text | LogFormat::Journal => text(out, message, fields),
        LogFormat::Json | LogFormat::Logfmt => compose(out, format, now, line),
    }
}

fn compose(out: &mut Vec<u8>, format: LogFormat, now: SystemTime, line: LogLine<'_>) {
    let LogLine { level, message, fields } = line;
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
        LogFormat::Json => json(out, now, line),
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

fn json(out: &mut Vec<u8>, now: SystemTime, line: LogLine<'_>) {
    let LogLine { level, message, fields } = line;
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
        let quoted = matches!(value, LogValue::Text(_) | LogValue::Shown(_));
        value.with_text(|text| match quoted {
            true => json_string(out, text.as_bytes()),
            false => out.extend_from_slice(text.as_bytes()),
        });
    }
    out.push(b'}');
}
