//! Events as JSON: one flat object per line, keys in a stable order.

use std::fmt::Display;
use std::io::Write;
use std::time::SystemTime;

use super::escape::json_string;
use super::fields::{Field, FieldWriter, visit};
use crate::facts::{ConnectionFacts, NameList};
use crate::timestamp::{Precision, write_rfc3339};

pub(super) fn write(facts: &ConnectionFacts, out: &mut Vec<u8>) {
    out.push(b'{');
    visit(facts, &mut Json { out, first: true });
    out.push(b'}');
}

/// Writing into a Vec cannot fail, so the results of `write!` are dropped.
struct Json<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl Json<'_> {
    fn key(&mut self, field: &Field) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        // Keys are ours and need no escapes.
        let _ = write!(self.out, "\"{}\":", field.key);
    }
}

impl FieldWriter for Json<'_> {
    fn time(&mut self, field: &Field, time: SystemTime) {
        self.key(field);
        self.out.push(b'"');
        write_rfc3339(self.out, time, Precision::Micros);
        self.out.push(b'"');
    }

    fn text(&mut self, field: &Field, text: &[u8]) {
        self.key(field);
        json_string(self.out, text);
    }

    fn plain(&mut self, field: &Field, value: &dyn Display) {
        self.key(field);
        let _ = write!(self.out, "\"{value}\"");
    }

    fn number(&mut self, field: &Field, number: u64) {
        self.key(field);
        let _ = write!(self.out, "{number}");
    }

    fn flag(&mut self, field: &Field, flag: bool) {
        self.key(field);
        let _ = write!(self.out, "{flag}");
    }

    fn list(&mut self, field: &Field, names: &NameList) {
        self.key(field);
        self.out.push(b'[');
        for (index, name) in names.iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            json_string(self.out, name);
        }
        if names.omitted() > 0 {
            let comma = if names.iter().next().is_some() { "," } else { "" };
            let _ = write!(self.out, "{comma}\"+{} more\"", names.omitted());
        }
        self.out.push(b']');
    }
}
