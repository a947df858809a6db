//! What menus and variables of Grafana are filled with.

use std::time::SystemTime;

use offramp_analytics::{Filter, Top, Value as Cell};
use serde_json::{Value, json};

use crate::desk::Asking;
use crate::grafana::buckets::Span;
use crate::grafana::parameters::{Key, Parameters};
use crate::grafana::request::{PayloadOptions, Range, Search, TagValues, Variable};
use crate::grafana::target::{ALL, Target};
use crate::grafana::time;
use crate::refusal::Refusal;

/// What is looked at where no range is given: 30 days, in milliseconds.
const USUAL_SPAN: i64 = 30 * 86_400_000;
/// So many values a menu has.
const VALUES: usize = 200;

/// Answers `/search`: `values(hosts)` and the like fill variables, everything else finds targets by a part of
/// their name.
pub(crate) fn search(
    request: &Search,
    places: bool,
    now: SystemTime,
    asking: &mut Asking<'_>,
) -> Result<Value, Refusal> {
    let text = request.target.as_deref().unwrap_or_default().trim();
    if let Some(inner) = values_of(text) {
        return Ok(json!(values(inner, None, now, asking)?));
    }
    let part = text.split('?').next().unwrap_or_default();
    let part = if part == "select metric" { "" } else { part };
    let names: Vec<&str> = shown(places).map(Target::name).filter(|name| name.contains(part)).collect();
    Ok(json!(names))
}

/// The inside of `values(…)`.
fn values_of(text: &str) -> Option<&str> {
    text.strip_prefix("values(")?.strip_suffix(')')
}

/// The targets that can be answered.
fn shown(places: bool) -> impl Iterator<Item = Target> {
    ALL.into_iter().filter(move |target| places || !target.needs_places())
}

/// The names of a list, the heaviest first.
fn values(
    text: &str,
    span: Option<Span>,
    now: SystemTime,
    asking: &mut Asking<'_>,
) -> Result<Vec<String>, Refusal> {
    let (target, parameters) = Parameters::of_text(text)?;
    let Target::List(top) = target else {
        return Err(Refusal::wrong(format!(
            "`{}` is no list: write values(hosts) or the like",
            target.name()
        )));
    };
    let limit = parameters.limit.unwrap_or(VALUES);
    names(top, parameters.filter(target), limit, span.unwrap_or_else(|| usual(now)), asking)
}

fn usual(now: SystemTime) -> Span {
    let now = time::of_system(now);
    Span { from: now - USUAL_SPAN, to: now }
}

fn names(
    top: Top,
    filter: Filter,
    limit: usize,
    span: Span,
    asking: &mut Asking<'_>,
) -> Result<Vec<String>, Refusal> {
    let filter = Filter {
        since: Some(time::system(span.from)),
        until: Some(time::system(span.to)),
        limit: Some(limit),
        ..filter
    };
    let answer = asking.top(top, &filter)?;
    let name = |row: &Vec<Cell>| match row.first() {
        Some(Cell::Text(text)) => Some(text.clone()),
        Some(Cell::Int(number)) => Some(number.to_string()),
        _ => None,
    };
    let mut names: Vec<String> = Vec::new();
    // A page may be in the list once for each host.
    for name in answer.rows.iter().filter_map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Answers `/variable`: the payload is `{"target": "hosts"}` with parameters in its text, or that text alone.
pub(crate) fn variable(
    request: &Variable,
    now: SystemTime,
    asking: &mut Asking<'_>,
) -> Result<Value, Refusal> {
    let missing = || Refusal::wrong("a variable asks for a list: write {\"target\": \"hosts\"}");
    let text = match request.payload.as_ref().ok_or_else(missing)? {
        Value::String(text) => text.as_str(),
        payload => payload.get("target").and_then(Value::as_str).ok_or_else(missing)?,
    };
    let span = request.range.as_ref().map(Range::span).transpose()?;
    let values = values(values_of(text).unwrap_or(text), span, now, asking)?;
    let options: Vec<Value> =
        values.iter().map(|value| json!({ "__text": value, "__value": value })).collect();
    Ok(Value::Array(options))
}

/// Answers `/metrics`: every target with what can be said about it.
pub(crate) fn metrics(places: bool) -> Value {
    shown(places).map(metric).collect()
}

fn metric(target: Target) -> Value {
    let payloads: Vec<Value> = target.keys().into_iter().map(payload).collect();
    json!({ "label": target.label(), "value": target.name(), "payloads": payloads })
}

fn payload(key: Key) -> Value {
    let kind = match key {
        // Hosts are asked for when the menu opens.
        Key::Host => "multi-select",
        _ if key.choices().is_empty() => "input",
        _ => "select",
    };
    let mut payload = json!({ "name": key.name(), "type": kind, "placeholder": key.hint() });
    if !key.choices().is_empty() {
        payload["options"] = options(key.choices());
    }
    payload
}

fn options<T: AsRef<str>>(values: &[T]) -> Value {
    values.iter().map(|value| json!({ "label": value.as_ref(), "value": value.as_ref() })).collect()
}

/// Answers `/metric-payload-options`.
pub(crate) fn payload_options(
    request: &PayloadOptions,
    now: SystemTime,
    asking: &mut Asking<'_>,
) -> Result<Value, Refusal> {
    match request.name.as_str() {
        "host" => Ok(options(&names(Top::Hosts, Filter::default(), VALUES, usual(now), asking)?)),
        name => match [Key::Bots, Key::By, Key::Format].into_iter().find(|key| key.name() == name) {
            Some(key) => Ok(options(key.choices())),
            None => Err(Refusal::wrong(format!("the parameter `{name}` has no values to choose from"))),
        },
    }
}

/// Answers `/tag-keys`.
pub(crate) fn tag_keys() -> Value {
    ["host", "client", "network", "bots"]
        .into_iter()
        .map(|key| json!({ "type": "string", "text": key }))
        .collect()
}

/// Answers `/tag-values`.
pub(crate) fn tag_values(
    request: &TagValues,
    now: SystemTime,
    asking: &mut Asking<'_>,
) -> Result<Value, Refusal> {
    let top = match request.key.as_str() {
        "host" => Top::Hosts,
        "client" => Top::Clients,
        "network" => Top::Networks,
        "bots" => {
            return Ok(Key::Bots.choices().iter().map(|choice| json!({ "text": choice })).collect());
        }
        key => return Err(Refusal::wrong(format!("there is no filter `{key}`"))),
    };
    let values = names(top, Filter::default(), VALUES, usual(now), asking)?;
    Ok(values.iter().map(|value| json!({ "text": value })).collect())
}
