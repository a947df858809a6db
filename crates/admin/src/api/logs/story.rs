//! One stored request: what the log has of it, and its steps in time as far as they were measured.

use offramp_analytics::{QueryResult, SqlValue};
use serde_json::{Map, Value, json};

use super::table;

/// The facts of the request in an answer of one row, and its story.
pub(super) fn request(answer: &QueryResult) -> Option<Value> {
    let row = answer.rows.first()?;
    let members = answer.columns.iter().zip(row);
    let mut facts: Map<String, Value> =
        members.map(|(name, value)| (name.clone(), table::cell(name, value))).collect();
    facts.insert("story".to_owned(), steps(answer, row).into());
    Some(Value::Object(facts))
}

/// The steps in their order, each from where the one before it ended; `at_ms` is its own end. A step that was not measured
/// is left out.
fn steps(answer: &QueryResult, row: &[SqlValue]) -> Vec<Value> {
    let value =
        |name: &str| answer.columns.iter().position(|column| column == name).and_then(|at| row.get(at));
    let text = |name: &str| match value(name) {
        Some(SqlValue::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let int = |name: &str| match value(name) {
        Some(SqlValue::Int(number)) => *number,
        _ => 0,
    };
    let ms = |name: &str| Some(int(name)).filter(|micros| *micros > 0).map(|micros| micros as f64 / 1000.0);
    let server = text("server").unwrap_or("the server");
    let mut steps = Vec::new();
    let mut begins = 0.0;
    let mut step = |name: &str, ends: Option<f64>, says: String| {
        let took = ends.map(|ends| rounded((ends - begins).max(0.0)));
        begins = ends.unwrap_or(begins).max(begins);
        steps.push(json!({ "step": name, "at_ms": rounded(begins), "took_ms": took, "says": says }));
    };
    if let Some(route) = text("route") {
        step("route", None, format!("the route `{route}` matches"));
    }
    let queued = ms("queue_us");
    if queued.is_some() {
        step("queue", queued, "waited for a server with a free place".to_owned());
    }
    if let Some(connect) = ms("connect_us") {
        step("connect", Some(queued.unwrap_or(0.0) + connect), format!("connected to {server}"));
    }
    let first_byte = ms("first_byte_us");
    if first_byte.is_some() {
        step("first_byte", first_byte, format!("{server} worked on its answer"));
    }
    if let Some(total) = ms("duration_us") {
        let mut says = match int("status") {
            0 => "ended without a response".to_owned(),
            status => format!("answered with {status} and {} bytes", int("bytes")),
        };
        if let Some(cause) = text("cause") {
            says.push_str(&format!("; it ended because of `{cause}`"));
        }
        step("done", Some(total), says);
    }
    steps
}

/// Microseconds, in milliseconds.
fn rounded(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The story of a request with these facts.
    fn told(facts: &[(&str, SqlValue)]) -> Value {
        let answer = QueryResult {
            columns: facts.iter().map(|(name, _)| (*name).to_owned()).collect(),
            rows: vec![facts.iter().map(|(_, value)| value.clone()).collect()],
            ..QueryResult::default()
        };
        request(&answer).unwrap()["story"].clone()
    }

    #[test]
    fn a_story_has_what_was_measured() {
        let text = |text: &str| SqlValue::Text(text.to_owned());
        let int = SqlValue::Int;
        let steps = told(&[
            ("status", int(200)),
            ("bytes", int(5)),
            ("duration_us", int(48_000)),
            ("route", text("a.test/x")),
            ("server", text("10.0.0.7:3000")),
            ("queue_us", int(9000)),
            ("connect_us", int(4100)),
            ("first_byte_us", int(41_000)),
        ]);
        let step = |step, at: f64, took: Option<f64>, says| json!({ "step": step, "at_ms": at, "took_ms": took, "says": says });
        let expected = json!([
            step("route", 0.0, None, "the route `a.test/x` matches"),
            step("queue", 9.0, Some(9.0), "waited for a server with a free place"),
            step("connect", 13.1, Some(4.1), "connected to 10.0.0.7:3000"),
            step("first_byte", 41.0, Some(27.9), "10.0.0.7:3000 worked on its answer"),
            step("done", 48.0, Some(7.0), "answered with 200 and 5 bytes"),
        ]);
        assert_eq!(steps, expected);
        // A file, or an answer of Offramp's own.
        let steps = told(&[("status", int(404)), ("bytes", int(5)), ("duration_us", int(50))]);
        assert_eq!(steps, json!([step("done", 0.05, Some(0.05), "answered with 404 and 5 bytes")]));
        let steps = told(&[("status", int(0)), ("duration_us", int(50)), ("cause", text("client_aborted"))]);
        assert_eq!(steps[0]["says"], "ended without a response; it ended because of `client_aborted`");
        assert_eq!(told(&[("status", int(101)), ("duration_us", int(0))]), json!([]));
        assert!(request(&QueryResult::default()).is_none());
    }
}
