//! `request_headers` and `response_headers` of a route: changes that leave the message whole.

use super::Reader;
use crate::error::{Problem, Span, shown};
use crate::model::header::{Act, refused};
use crate::model::{
    HeaderChanges, HeaderField, HeaderName, HeaderTemplate, HeaderValue, HeaderVariable, TemplatePart,
};
use crate::raw::{Section, Spanned};

/// The changes of one of the two keys, which is that of requests or of responses.
pub(super) fn changes(section: &Section, key: &str, reader: &mut Reader<'_, '_>) -> HeaderChanges {
    let Some(details) = section.section(key) else {
        return HeaderChanges::default();
    };
    let of = |act| (act, key == "request_headers");
    let set = fields(details, "set", of(Act::Set), reader);
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
    HeaderChanges { set: set.fields, add: fields(details, "add", of(Act::Add), reader).fields, remove }
}

struct Fields {
    /// Sorted by name.
    fields: Vec<HeaderField>,
    /// Where each is written.
    names: Vec<(HeaderName, Span)>,
}

fn fields(
    details: &Section,
    key: &str,
    (act, of_requests): (Act, bool),
    reader: &mut Reader<'_, '_>,
) -> Fields {
    let mut found = Fields { fields: Vec::new(), names: Vec::new() };
    for (name, value) in details.pairs(key) {
        let parsed = name.value.parse().and_then(|parsed| permitted(parsed, act));
        let parsed = reader.tell(&name.span, parsed);
        found.names.extend(parsed.clone().map(|parsed| (parsed, name.span.clone())));
        let template = template(&name.value, &value.value, of_requests);
        let value = reader.tell(&value.span, template);
        found.fields.extend(parsed.zip(value));
    }
    // The sort is stable: values of one name keep their order.
    found.fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// The value of a field, with variables that have a value by the time when it is sent.
fn template(name: &str, text: &str, of_requests: bool) -> Result<HeaderTemplate, Problem> {
    text.parse::<HeaderValue>().map_err(|problem| {
        let said = format!("the value of `{}` cannot be that of a header field", shown(name));
        Problem::new(said).help(problem.remedy().unwrap_or_default())
    })?;
    let template: HeaderTemplate = text.parse()?;
    let server = TemplatePart::Variable(HeaderVariable::Server);
    if of_requests && template.parts().contains(&server) {
        let problem = Problem::new("`{server}` has no value in `request_headers`");
        return Err(
            problem.help("use it in `response_headers`: a server is chosen when the request is whole")
        );
    }
    Ok(template)
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
