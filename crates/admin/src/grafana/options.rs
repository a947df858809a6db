//! Values for Grafana's menus and variables.

use std::time::SystemTime;

use offramp_analytics::{RequestFilter, SqlValue, Top};
use serde_json::{Value, json};

use crate::grafana::buckets::TimeSpan;
use crate::grafana::parameters::{ParameterKey, TargetParameters};
use crate::grafana::request::{PayloadOptions, Range, TagValues, TargetSearch, VariableQuery};
use crate::grafana::target::{ALL, QueryTarget};
use crate::grafana::time;
use crate::query_pool::StoreSession;
use crate::refusal::PlainRefusal;

/// The default range, in milliseconds: 30 days.
const USUAL_SPAN: i64 = 30 * 86_400_000;
/// The maximum number of values in a menu.
const VALUES: usize = 200;

/// Handles `/search`: `values(hosts)` and similar fill variables, other texts find targets by a part of their
/// name.
pub(crate) fn search(
    request: &TargetSearch,
    places: bool,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    let text = request.target.as_deref().unwrap_or_default().trim();
    if let Some(inner) = values_of(text) {
        return Ok(json!(values(inner, None, now, session)?));
    }
    let part = text.split('?').next().unwrap_or_default();
    let part = if part == "select metric" { "" } else { part };
    let names: Vec<&str> = shown(places).map(QueryTarget::name).filter(|name| name.contains(part)).collect();
    Ok(json!(names))
}

/// The inside of `values(…)`.
fn values_of(text: &str) -> Option<&str> {
    text.strip_prefix("values(")?.strip_suffix(')')
}

/// The targets that can be answered.
fn shown(places: bool) -> impl Iterator<Item = QueryTarget> {
    ALL.into_iter().filter(move |target| places || !target.needs_places())
}

/// The names in a list, heaviest first.
fn values(
    text: &str,
    span: Option<TimeSpan>,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Vec<String>, PlainRefusal> {
    let (target, parameters) = TargetParameters::of_text(text)?;
    let QueryTarget::List(top) = target else {
        return Err(PlainRefusal::wrong(format!(
            "`{}` is no list: write values(hosts) or the like",
            target.name()
        )));
    };
    let limit = parameters.limit.unwrap_or(VALUES);
    names(top, parameters.filter(target), limit, span.unwrap_or_else(|| usual(now)), session)
}

fn usual(now: SystemTime) -> TimeSpan {
    let now = time::of_system(now);
    TimeSpan { from: now - USUAL_SPAN, to: now }
}

fn names(
    top: Top,
    filter: RequestFilter,
    limit: usize,
    span: TimeSpan,
    session: &mut StoreSession<'_>,
) -> Result<Vec<String>, PlainRefusal> {
    let filter = RequestFilter {
        since: Some(time::system(span.from)),
        until: Some(time::system(span.to)),
        limit: Some(limit),
        ..filter
    };
    let answer = session.top(top, &filter)?;
    let name = |row: &Vec<SqlValue>| match row.first() {
        Some(SqlValue::Text(text)) => Some(text.clone()),
        Some(SqlValue::Int(number)) => Some(number.to_string()),
        _ => None,
    };
    let mut names: Vec<String> = Vec::new();
    // A page may be in the list once per host.
    for name in answer.rows.iter().filter_map(name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Handles `/variable`: the payload is `{"target": "hosts"}` with parameters in its text, or that text alone.
pub(crate) fn variable(
    request: &VariableQuery,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    let missing = || PlainRefusal::wrong("a variable asks for a list: write {\"target\": \"hosts\"}");
    let text = match request.payload.as_ref().ok_or_else(missing)? {
        Value::String(text) => text.as_str(),
        payload => payload.get("target").and_then(Value::as_str).ok_or_else(missing)?,
    };
    let span = request.range.as_ref().map(Range::span).transpose()?;
    let values = values(values_of(text).unwrap_or(text), span, now, session)?;
    let options: Vec<Value> =
        values.iter().map(|value| json!({ "__text": value, "__value": value })).collect();
    Ok(Value::Array(options))
}

/// Handles `/metrics`: every target with its parameters.
pub(crate) fn metrics(places: bool) -> Value {
    shown(places).map(metric).collect()
}

fn metric(target: QueryTarget) -> Value {
    let payloads: Vec<Value> = target.keys().into_iter().map(payload).collect();
    json!({ "label": target.label(), "value": target.name(), "payloads": payloads })
}

fn payload(key: ParameterKey) -> Value {
    let kind = match key {
        // Hosts are requested when the menu opens.
        ParameterKey::Host => "multi-select",
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

/// Handles `/metric-payload-options`.
pub(crate) fn payload_options(
    request: &PayloadOptions,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    match request.name.as_str() {
        "host" => Ok(options(&names(Top::Hosts, RequestFilter::default(), VALUES, usual(now), session)?)),
        name => match [ParameterKey::Bots, ParameterKey::By, ParameterKey::Format]
            .into_iter()
            .find(|key| key.name() == name)
        {
            Some(key) => Ok(options(key.choices())),
            None => Err(PlainRefusal::wrong(format!("the parameter `{name}` has no values to choose from"))),
        },
    }
}

/// Handles `/tag-keys`, for ad hoc filters.
pub(crate) fn tag_keys() -> Value {
    ["host", "client", "network", "bots"]
        .into_iter()
        .map(|key| json!({ "type": "string", "text": key }))
        .collect()
}

/// Handles `/tag-values`, for ad hoc filters.
pub(crate) fn tag_values(
    request: &TagValues,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    let top = match request.key.as_str() {
        "host" => Top::Hosts,
        "client" => Top::Clients,
        "network" => Top::Networks,
        "bots" => {
            return Ok(ParameterKey::Bots.choices().iter().map(|choice| json!({ "text": choice })).collect());
        }
        key => return Err(PlainRefusal::wrong(format!("there is no filter `{key}`"))),
    };
    let values = names(top, RequestFilter::default(), VALUES, usual(now), session)?;
    Ok(values.iter().map(|value| json!({ "text": value })).collect())
}
