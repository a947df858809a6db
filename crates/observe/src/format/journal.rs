//! Entries in journald's native protocol (systemd's "Native Journal Protocol"): one field per fact.
//!
//! A field is `KEY=value\n`, or, for a value with newlines, `KEY\n`, the length as 64 little-endian bits, the
//! value and `\n`. Values are unescaped bytes: journald and its readers accept any, and `journalctl
//! OFFRAMP_PATH=…` must match the original.

use std::time::SystemTime;

use super::fields::Field;
use super::logfmt::join;
use super::visit::FieldWriter;
use crate::facts::NameList;
use crate::timestamp::rfc3339_micros;

/// An entry under construction.
pub(crate) struct JournalEntry<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> JournalEntry<'a> {
    /// Starts an entry with the common fields; `severity` is syslog's (RFC 5424 §6.2.1).
    pub(crate) fn begin(out: &'a mut Vec<u8>, severity: u8, message: &[u8]) -> Self {
        out.extend_from_slice(b"PRIORITY=");
        out.push(b'0' + severity.min(7));
        out.extend_from_slice(b"\nSYSLOG_IDENTIFIER=offramp\n");
        let mut entry = Self { out };
        entry.field("MESSAGE", message);
        entry
    }

    /// Appends one of journald's own fields.
    fn field(&mut self, key: &str, value: &[u8]) {
        self.out.extend_from_slice(key.as_bytes());
        self.value(value);
    }

    /// Appends a field of Offramp: `key` in `snake_case` becomes `OFFRAMP_KEY`.
    pub(crate) fn fact(&mut self, key: &str, value: &[u8]) {
        self.out.extend_from_slice(b"OFFRAMP_");
        self.out.extend(key.bytes().map(|byte| byte.to_ascii_uppercase()));
        self.value(value);
    }

    fn value(&mut self, value: &[u8]) {
        if value.contains(&b'\n') {
            self.out.push(b'\n');
            self.out.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            self.out.push(b'=');
        }
        self.out.extend_from_slice(value);
        self.out.push(b'\n');
    }
}

impl FieldWriter for JournalEntry<'_> {
    fn time(&mut self, field: Field, time: SystemTime) {
        self.text(field, &rfc3339_micros(time));
    }

    fn text(&mut self, field: Field, text: &[u8]) {
        // The documented name, for connections and requests alike.
        let key = if field == Field::TotalUs { "duration_us" } else { field.key() };
        self.fact(key, text);
    }

    fn plain(&mut self, field: Field, text: &[u8]) {
        self.text(field, text);
    }

    fn number(&mut self, field: Field, number: u64) {
        self.text(field, itoa::Buffer::new().format(number).as_bytes());
    }

    fn flag(&mut self, field: Field, flag: bool) {
        self.text(field, if flag { b"true" } else { b"false" });
    }

    fn list(&mut self, field: Field, names: &NameList) {
        self.text(field, &join(names));
    }
}
