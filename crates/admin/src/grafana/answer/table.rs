//! Tables: the queries of panels, answered row by row.

use offramp_analytics::{QueryResult, RequestFilter, SqlValue, Top};
use serde_json::{Value, json};

use super::{PanelQuery, moment, totals};
use crate::grafana::annotations;
use crate::grafana::buckets::MOST;
use crate::grafana::target::QueryTarget;
use crate::query_pool::StoreSession;
use crate::refusal::PlainRefusal;

/// The table of a target.
pub(super) fn table(
    question: &PanelQuery,
    ref_id: Option<&str>,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    let mut table = match question.target {
        QueryTarget::Traffic => traffic(question, session)?,
        QueryTarget::Errors => annotations::table(question, session)?,
        target => {
            let filter = RequestFilter { limit: question.parameters.limit, ..question.filter_as_asked() };
            let answer = match target {
                QueryTarget::Search => {
                    let text = question.text()?;
                    unless(question.parameters.nothing, || session.search(text, &filter))?
                }
                target => unless(question.parameters.nothing, || session.top(top(target), &filter))?,
            };
            of_answer(&answer)
        }
    };
    if let Some(ref_id) = ref_id {
        table["refId"] = json!(ref_id);
    }
    Ok(table)
}

/// The result of the query, or an empty one if no request can match.
fn unless(
    nothing: bool,
    ask: impl FnOnce() -> Result<QueryResult, PlainRefusal>,
) -> Result<QueryResult, PlainRefusal> {
    if nothing { Ok(QueryResult::default()) } else { ask() }
}

/// The list of a target's table.
const fn top(target: QueryTarget) -> Top {
    match target {
        QueryTarget::List(top) => top,
        QueryTarget::BlogHits => Top::Pages,
        _ => Top::Hosts,
    }
}

/// Requests and bytes over time, one row per interval.
fn traffic(question: &PanelQuery, session: &mut StoreSession<'_>) -> Result<Value, PlainRefusal> {
    let buckets = question.buckets(MOST)?;
    let series = totals(question, &buckets, session)?;
    let mut columns = vec![json!({ "text": "time", "type": "time" })];
    columns.extend(series.iter().map(|series| json!({ "text": series.name, "type": "number" })));
    let row = |bucket: usize| {
        let mut row = vec![json!(buckets.begins(bucket))];
        row.extend(series.iter().map(|series| json!(series.values[bucket])));
        row
    };
    let rows: Vec<Vec<Value>> = (0..buckets.count).map(row).collect();
    Ok(json!({ "columns": columns, "rows": rows, "type": "table" }))
}

/// The type of a column, by its name.
fn kind(column: &str) -> &'static str {
    match column {
        "time" => "time",
        "requests" | "bytes" | "requests_at_most" | "bytes_at_most" => "number",
        _ => "string",
    }
}

fn of_answer(answer: &QueryResult) -> Value {
    let columns: Vec<Value> =
        answer.columns.iter().map(|name| json!({ "text": name, "type": kind(name) })).collect();
    let cell = |row: &[SqlValue], at: usize| match (kind(&answer.columns[at]), &row[at]) {
        ("time", _) => json!(moment(row, Some(at))),
        (_, SqlValue::Null) => Value::Null,
        ("number", SqlValue::Int(number)) => json!(number),
        ("number", SqlValue::Real(number)) => json!(number),
        (_, SqlValue::Int(number)) => json!(number.to_string()),
        (_, SqlValue::Real(number)) => json!(number.to_string()),
        (_, SqlValue::Text(text)) => json!(text),
    };
    let rows: Vec<Vec<Value>> = answer
        .rows
        .iter()
        .map(|row| (0..row.len().min(answer.columns.len())).map(|at| cell(row, at)).collect())
        .collect();
    json!({ "columns": columns, "rows": rows, "type": "table" })
}
