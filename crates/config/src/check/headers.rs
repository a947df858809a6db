//! `request_headers` and `response_headers` of a route: changes that leave the message whole.

use super::Reader;
use crate::error::{Problem, Span, shown};
use crate::model::header::{Act, refused};
use crate::model::{HeaderChanges, HeaderField, HeaderName};
use crate::raw::{Section, Spanned};

/// The changes of one of the two keys.
pub(super) fn changes(section: &Section, key: &str, reader: &mut Reader<'_, '_>) -> HeaderChanges {
    let Some(details) = section.section(key) else {
        return HeaderChanges::default();
    };
    let set = fields(details, "set", Act::Set, reader);
    let remove = removed(details, reader);
    for (at, (name, span)) in set.names.iter().enumerate() {
        if set.names[..at].iter().any(|(other, _)| other == name) {
            let problem = Problem::new(format!("`set` has `{name}` twice"));
            reader.report.local(span, problem.help("keep one of the two; `add` adds several"));
        }
        if remove.contains(name) {
            let problem = Problem::new(format!("`{name}` is both set and removed"));
            reader.report.local(span, problem.help("leave it out of `remove`: `set` replaces what is there"));
        }
    }
    HeaderChanges { set: set.fields, add: fields(details, "add", Act::Add, reader).fields, remove }
}

struct Fields {
    /// Sorted by name.
    fields: Vec<HeaderField>,
    /// Where each is written.
    names: Vec<(HeaderName, Span)>,
}

fn fields(details: &Section, key: &str, act: Act, reader: &mut Reader<'_, '_>) -> Fields {
    let mut found = Fields { fields: Vec::new(), names: Vec::new() };
    for (name, value) in details.pairs(key) {
        let parsed = name.value.parse().and_then(|parsed| permitted(parsed, act));
        let parsed = reader.tell(&name.span, parsed);
        found.names.extend(parsed.clone().map(|parsed| (parsed, name.span.clone())));
        let text = value.value.parse().map_err(|problem: Problem| {
            let said = format!("the value of `{}` cannot be that of a header field", shown(&name.value));
            Problem::new(said).help(problem.remedy().unwrap_or_default())
        });
        let value = reader.tell(&value.span, text);
        found.fields.extend(parsed.zip(value));
    }
    // The sort is stable: values of one name keep their order.
    found.fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn removed(details: &Section, reader: &mut Reader<'_, '_>) -> Vec<HeaderName> {
    reader.not_empty(details, "remove", "leave it out");
    reader.list(details, "remove", |text: &Spanned<String>, _| {
        text.value.parse().and_then(|name| permitted(name, Act::Remove))
    })
}

fn permitted(name: HeaderName, act: Act) -> Result<HeaderName, Problem> {
    match refused(&name, act) {
        None => Ok(name),
        Some(why) => {
            Err(Problem::new(format!("`{name}` cannot be changed")).help(format!("leave it out: {why}")))
        }
    }
}
