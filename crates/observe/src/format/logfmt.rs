//! Events as logfmt: `key=value` pairs, values quoted like JSON strings where they need it.

use std::fmt::Display;
use std::io::Write;
use std::time::SystemTime;

use super::escape::bare_or_quoted;
use super::fields::{Field, FieldWriter, visit};
use crate::facts::{ConnectionFacts, NameList};
use crate::timestamp::{Precision, write_rfc3339};

pub(super) fn write(facts: &ConnectionFacts, out: &mut Vec<u8>) {
    visit(facts, &mut Logfmt { out, first: true });
}

/// Joins names by commas; what was omitted is told at the end.
pub(super) fn join(names: &NameList) -> Vec<u8> {
    let mut joined = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            joined.push(b',');
        }
        joined.extend_from_slice(name);
    }
    if names.omitted() > 0 {
        let comma = if names.iter().next().is_some() { "," } else { "" };
        let _ = write!(joined, "{comma}+{} more", names.omitted());
    }
    joined
}

/// Writing into a Vec cannot fail, so the results of `write!` are dropped.
struct Logfmt<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl Logfmt<'_> {
    fn key(&mut self, field: &Field) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b' ');
        }
        let _ = write!(self.out, "{}=", field.key);
    }
}

impl FieldWriter for Logfmt<'_> {
    fn time(&mut self, field: &Field, time: SystemTime) {
        self.key(field);
        write_rfc3339(self.out, time, Precision::Micros);
    }

    fn text(&mut self, field: &Field, text: &[u8]) {
        self.key(field);
        bare_or_quoted(self.out, text);
    }

    fn plain(&mut self, field: &Field, value: &dyn Display) {
        self.key(field);
        let _ = write!(self.out, "{value}");
    }

    fn number(&mut self, field: &Field, number: u64) {
        self.plain(field, &number);
    }

    fn flag(&mut self, field: &Field, flag: bool) {
        self.plain(field, &flag);
    }

    fn list(&mut self, field: &Field, names: &NameList) {
        self.text(field, &join(names));
    }
}
