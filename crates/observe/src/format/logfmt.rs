//! logfmt: `key=value` pairs, with values quoted like JSON strings where necessary.

use std::io::Write;
use std::time::SystemTime;

use super::escape::bare_or_quoted;
use super::fields::Field;
use super::visit::FieldWriter;
use crate::facts::NameList;
use crate::timestamp::{Precision, write_rfc3339};

/// Appends the pairs that `walk` writes, separated by spaces.
pub(super) fn write(out: &mut Vec<u8>, walk: impl FnOnce(&mut Logfmt<'_>)) {
    let start = out.len();
    walk(&mut Logfmt { out });
    // Every pair ends in a space; drops the last one.
    if out.len() > start {
        out.pop();
    }
}

/// Joins names by commas; the number of omitted names comes last.
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
        // Writing into a Vec cannot fail.
        let _ = write!(joined, "{comma}+{} more", names.omitted());
    }
    joined
}

pub(super) struct Logfmt<'a> {
    out: &'a mut Vec<u8>,
}

impl Logfmt<'_> {
    #[inline(always)]
    fn key(&mut self, field: Field) {
        self.out.extend_from_slice(field.logfmt_key().as_bytes());
    }
}

impl FieldWriter for Logfmt<'_> {
    #[inline(always)]
    fn time(&mut self, field: Field, time: SystemTime) {
        self.key(field);
        write_rfc3339(self.out, time, Precision::Micros);
        self.out.push(b' ');
    }

    #[inline(always)]
    fn text(&mut self, field: Field, text: &[u8]) {
        self.key(field);
        bare_or_quoted(self.out, text);
        self.out.push(b' ');
    }

    #[inline(always)]
    fn plain(&mut self, field: Field, text: &[u8]) {
        self.key(field);
        self.out.extend_from_slice(text);
        self.out.push(b' ');
    }

    #[inline(always)]
    fn number(&mut self, field: Field, number: u64) {
        self.plain(field, itoa::Buffer::new().format(number).as_bytes());
    }

    #[inline(always)]
    fn flag(&mut self, field: Field, flag: bool) {
        self.plain(field, if flag { b"true" } else { b"false" });
    }

    fn list(&mut self, field: Field, names: &NameList) {
        self.text(field, &join(names));
    }
}
