//! JSON: one flat object per event, keys in a stable order.

use std::io::Write;
use std::time::SystemTime;

use super::escape::{is_json_text, json_string};
use super::fields::Field;
use super::visit::FieldWriter;
use crate::facts::NameList;
use crate::timestamp::rfc3339_micros;

/// Appends one object with the members that `walk` writes.
pub(super) fn write(out: &mut Vec<u8>, walk: impl FnOnce(&mut Json<'_>)) {
    let start = out.len();
    walk(&mut Json { out });
    // Every member starts with a comma; that of the first becomes the opening brace.
    match out.get_mut(start) {
        Some(comma) => *comma = b'{',
        None => out.push(b'{'),
    }
    out.push(b'}');
}

pub(super) struct Json<'a> {
    out: &'a mut Vec<u8>,
}

impl Json<'_> {
    #[inline(always)]
    fn key(&mut self, field: Field) {
        self.out.extend_from_slice(field.json_key().as_bytes());
    }
}

impl FieldWriter for Json<'_> {
    #[inline(always)]
    fn time(&mut self, field: Field, time: SystemTime) {
        self.plain(field, &rfc3339_micros(time));
    }

    #[inline(always)]
    fn text(&mut self, field: Field, text: &[u8]) {
        if is_json_text(text) {
            self.plain(field, text);
        } else {
            self.key(field);
            json_string(self.out, text);
        }
    }

    #[inline(always)]
    fn plain(&mut self, field: Field, text: &[u8]) {
        self.out.extend_from_slice(field.json_text_key().as_bytes());
        self.out.extend_from_slice(text);
        self.out.push(b'"');
    }

    #[inline(always)]
    fn number(&mut self, field: Field, number: u64) {
        self.key(field);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    #[inline(always)]
    fn flag(&mut self, field: Field, flag: bool) {
        self.key(field);
        self.out.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    fn list(&mut self, field: Field, names: &NameList) {
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
            // Writing into a Vec cannot fail.
            let _ = write!(self.out, "{comma}\"+{} more\"", names.omitted());
        }
        self.out.push(b']');
    }
}
