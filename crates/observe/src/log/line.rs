//! One line of the log in each format.

use std::time::SystemTime;

use super::{Level, LogField, LogFormat, Value};
use crate::format::{bare_or_quoted, json_string, sentence};
use crate::timestamp::{Precision, write_rfc3339};

pub(super) type Entry<'a> = (Level, &'a str, &'a [LogField<'a>]);

pub(super) fn compose(out: &mut Vec<u8>, format: LogFormat, now: SystemTime, entry: Entry<'_>) {
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
    out.push(b'\n');
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
