//! Tables: the same questions, answered row by row.

use offramp_analytics::{Answer, Filter, Top, Value as Cell};
use serde_json::{Value, json};

use super::{Question, moment, totals};
use crate::desk::Asking;
use crate::grafana::annotations;
use crate::grafana::buckets::MOST;
use crate::grafana::target::Target;
use crate::refusal::Refusal;

/// The table of a target.
pub(super) fn table(
    question: &Question,
    ref_id: Option<&str>,
    asking: &mut Asking<'_>,
) -> Result<Value, Refusal> {
    let mut table = match question.target {
        Target::Traffic => traffic(question, asking)?,
        Target::Errors => annotations::table(question, asking)?,
        target => {
            let filter = Filter { limit: question.parameters.limit, ..question.filter_as_asked() };
            let answer = match target {
                Target::Search => {
                    let text = question.text()?;
                    unless(question.parameters.nothing, || asking.search(text, &filter))?
                }
                target => unless(question.parameters.nothing, || asking.top(top(target), &filter))?,
            };
            of_answer(&answer)
        }
    };
    if let Some(ref_id) = ref_id {
        table["refId"] = json!(ref_id);
    }
    Ok(table)
}

/// The answer, or an empty one where nothing can pass.
fn unless(nothing: bool, ask: impl FnOnce() -> Result<Answer, Refusal>) -> Result<Answer, Refusal> {
    if nothing { Ok(Answer::default()) } else { ask() }
}

/// The list that a target's table is.
const fn top(target: Target) -> Top {
    match target {
        Target::List(top) => top,
        Target::BlogHits => Top::Pages,
        _ => Top::Hosts,
    }
}

/// Requests and bytes over time, an interval each row.
fn traffic(question: &Question, asking: &mut Asking<'_>) -> Result<Value, Refusal> {
    let buckets = question.buckets(MOST)?;
    let series = totals(question, &buckets, asking)?;
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

/// What a column holds, by its name.
fn kind(column: &str) -> &'static str {
    match column {
        "time" => "time",
        "requests" | "bytes" | "requests_at_most" | "bytes_at_most" => "number",
        _ => "string",
    }
}

fn of_answer(answer: &Answer) -> Value {
    let columns: Vec<Value> =
        answer.columns.iter().map(|name| json!({ "text": name, "type": kind(name) })).collect();
    let cell = |row: &[Cell], at: usize| match (kind(&answer.columns[at]), &row[at]) {
        ("time", _) => json!(moment(row, Some(at))),
        (_, Cell::Null) => Value::Null,
        ("number", Cell::Int(number)) => json!(number),
        ("number", Cell::Real(number)) => json!(number),
        (_, Cell::Int(number)) => json!(number.to_string()),
        (_, Cell::Real(number)) => json!(number.to_string()),
        (_, Cell::Text(text)) => json!(text),
    };
    let rows: Vec<Vec<Value>> = answer
        .rows
        .iter()
        .map(|row| (0..row.len().min(answer.columns.len())).map(|at| cell(row, at)).collect())
        .collect();
    json!({ "columns": columns, "rows": rows, "type": "table" })
}
