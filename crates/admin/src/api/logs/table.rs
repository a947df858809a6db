//! Answers of the log store in JSON.

use offramp_analytics::{QueryResult, SqlValue};
use serde_json::{Value, json};

/// An answer as a table, with the kind of each column.
pub(super) fn table(answer: &QueryResult, command: &str) -> Value {
    let columns: Vec<Value> = answer
        .columns
        .iter()
        .enumerate()
        .map(|(at, name)| json!({ "name": name, "kind": kind(name, answer, at) }))
        .collect();
    let rows: Vec<Vec<Value>> = answer
        .rows
        .iter()
        .map(|row| answer.columns.iter().zip(row).map(|(name, value)| cell(name, value)).collect())
        .collect();
    let is_estimated = answer.columns.iter().any(|column| column.ends_with("_error"));
    json!({
        "columns": columns,
        "rows": rows,
        "exact": answer.missing.is_none() && !is_estimated,
        "notes": answer.notes,
        "command": command,
    })
}

/// The rows of an answer, as objects.
pub(super) fn objects(answer: &QueryResult) -> Vec<Value> {
    let object = |row: &Vec<SqlValue>| -> Value {
        answer.columns.iter().zip(row).map(|(name, value)| (name.clone(), cell(name, value))).collect()
    };
    answer.rows.iter().map(object).collect()
}

/// The kind of a column: by its name, else by its values.
fn kind(name: &str, answer: &QueryResult, at: usize) -> &'static str {
    match name {
        "time" => "time",
        "bytes" | "bytes_at_most" | "received" => "bytes",
        _ if name.ends_with("_us") => "microseconds",
        "change_percent" => "percent",
        "bot" => "flag",
        "requests" | "requests_at_most" | "visitors" | "visitors_error" | "status" => "integer",
        _ if name.ends_with("_ms") => "milliseconds",
        _ => {
            let values = answer.rows.iter().filter_map(|row| row.get(at));
            let mut kinds = values.filter_map(|value| match value {
                SqlValue::Null => None,
                SqlValue::Int(_) | SqlValue::Real(_) => Some("number"),
                SqlValue::Text(_) => Some("text"),
            });
            kinds.next().unwrap_or("text")
        }
    }
}

/// A value as JSON has it; a duration of 0 is none.
pub(super) fn cell(column: &str, value: &SqlValue) -> Value {
    match (column, value) {
        (_, SqlValue::Null) => Value::Null,
        (_, SqlValue::Int(0)) if column.ends_with("_us") => Value::Null,
        ("bot", SqlValue::Int(bot)) => (*bot == 1).into(),
        (_, SqlValue::Int(number)) => (*number).into(),
        (_, SqlValue::Real(number)) => (*number).into(),
        (_, SqlValue::Text(text)) => text.as_str().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_kinds() {
        let text = |text: &str| SqlValue::Text(text.to_owned());
        let answer = QueryResult {
            columns: ["page", "requests", "p95_ms", "now", "bot"].map(str::to_owned).into(),
            rows: vec![
                vec![text("/"), SqlValue::Int(2), SqlValue::Real(1.5), SqlValue::Null, SqlValue::Int(1)],
                vec![SqlValue::Null, SqlValue::Int(1), SqlValue::Null, SqlValue::Int(7), SqlValue::Int(0)],
            ],
            ..QueryResult::default()
        };
        let table = table(&answer, "offramp logs");
        let kinds: Vec<&str> = table["columns"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|column| column["kind"].as_str())
            .collect();
        assert_eq!(kinds, ["text", "integer", "milliseconds", "number", "flag"]);
        assert_eq!(table["rows"], json!([["/", 2, 1.5, null, true], [null, 1, null, 7, false]]));
        assert_eq!((&table["exact"], &table["command"]), (&true.into(), &"offramp logs".into()));
    }
}
