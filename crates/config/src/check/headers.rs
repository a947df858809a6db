//! `request_headers` and `response_headers` of a route: changes that leave the message whole.

use super::ValueReader;
use crate::error::{Problem, Span, shown};
use crate::keys;
use crate::model::foreign_variable;
use crate::model::header::{Act, permitted};
use crate::model::{
    HeaderChanges, HeaderField, HeaderName, HeaderTemplate, HeaderValue, HeaderVariable, TemplatePart,
};
use crate::raw::Section;

/// Reads the changes of one of the two keys, for requests or responses.
pub(super) fn changes(section: &Section, path: &str, reader: &mut ValueReader<'_, '_>) -> HeaderChanges {
    let Some(details) = keys::find(path).and_then(|key| section.section(key.name())) else {
        return HeaderChanges::default();
    };
    let of_requests = path == "route.request_headers";
    let set = fields(details, "set", Act::Set, of_requests, reader);
    let plain: HeaderChanges = reader.filled(path, details);
    for (at, (name, span)) in set.names.iter().enumerate() {
        if set.names[..at].iter().any(|(other, _)| other == name) {
            let problem = Problem::new(format!("`set` has `{name}` twice"));
            reader.report.local(span, problem.help("keep one of the two; `add` adds several"));
        }
        if plain.remove.contains(name) {
            let problem = Problem::new(format!("`{name}` is both set and removed"));
            reader.report.local(span, problem.help("leave it out of `remove`: `set` replaces what is there"));
        }
    }
    HeaderChanges {
        set: set.fields,
        add: fields(details, "add", Act::Add, of_requests, reader).fields,
        ..plain
    }
}

struct HeaderFields {
    /// The fields, sorted by name.
    fields: Vec<HeaderField>,
    /// The place of each field.
    names: Vec<(HeaderName, Span)>,
}

fn fields(
    details: &Section,
    key: &str,
    act: Act,
    of_requests: bool,
    reader: &mut ValueReader<'_, '_>,
) -> HeaderFields {
    let mut found = HeaderFields { fields: Vec::new(), names: Vec::new() };
    for (name, value) in details.pairs(key) {
        let parsed = name.value.parse().and_then(|parsed| permitted(parsed, act));
        let parsed = reader.ok_or_report(&name.span, parsed);
        found.names.extend(parsed.clone().map(|parsed| (parsed, name.span.clone())));
        let template = template(&name.value, &value.value, of_requests);
        if template.is_ok()
            && let Some(problem) = foreign_variable::look(&value.value)
        {
            reader.report.warn(&value.span, problem);
        }
        let value = reader.ok_or_report(&value.span, template);
        found.fields.extend(parsed.zip(value));
    }
    // The sort is stable: values of one name keep their order.
    found.fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// Parses the value of a field; its variables must be known when the field is sent.
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
