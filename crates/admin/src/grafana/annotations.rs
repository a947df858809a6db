//! Marks in time: bursts of failed requests.
//!
//! The log store knows requests, not restarts or deployments. What it can say is when answers of 500 and above
//! were many: in an interval, at least `least` of them and `share` percent of all requests. Intervals that follow
//! each other make one mark.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::desk::Asking;
use crate::grafana::answer::{Count, Question, errors};
use crate::grafana::buckets::{Buckets, Span};
use crate::grafana::parameters::Parameters;
use crate::grafana::request::{Annotations, Range};
use crate::grafana::target::Target;
use crate::grafana::time;
use crate::refusal::Refusal;

/// What all marks are tagged with.
const TAGS: [&str; 2] = ["errors", "5xx"];
/// How many answers of 500 and above make a burst, if nothing is said.
const LEAST: i64 = 5;
/// How many percent of requests make a burst, if nothing is said.
const SHARE: i64 = 5;
/// What is looked at where no range is given: the day before, in milliseconds.
const USUAL_SPAN: i64 = 86_400_000;

/// When failures were many.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Burst {
    /// Milliseconds since 1970.
    from: i64,
    to: i64,
    requests: i64,
    statuses: BTreeMap<i64, i64>,
}

impl Burst {
    fn title(&self) -> String {
        let failed: i64 = self.statuses.values().sum();
        format!("{failed} of {} requests failed", self.requests)
    }

    fn text(&self) -> String {
        let parts: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
        parts.join(", ")
    }
}

/// Answers `/annotations`. The query is `errors` with parameters, or nothing, or `#tag`s that marks must have.
pub(crate) fn annotations(
    request: &Annotations,
    now: SystemTime,
    asking: &mut Asking<'_>,
) -> Result<Value, Refusal> {
    let now = time::of_system(now);
    let usual = Span { from: now - USUAL_SPAN, to: now };
    let span = request.range.as_ref().map_or(Ok(usual), Range::span)?;
    let query = request.annotation.get("query").and_then(Value::as_str).unwrap_or_default();
    let (tags, words): (Vec<&str>, Vec<&str>) =
        query.split_whitespace().partition(|word| word.starts_with('#'));
    if tags.iter().any(|tag| !TAGS.contains(&tag.trim_start_matches('#'))) {
        return Ok(json!([]));
    }
    let text = if words.is_empty() { Target::Errors.name().to_owned() } else { words.join(" ") };
    let (target, parameters) = Parameters::of_text(&text)?;
    if target != Target::Errors {
        return Err(Refusal::wrong("annotations are of `errors`; write `errors?host=a.test&share=10`"));
    }
    let question = Question { target, parameters, span, least: 0, points: usize::MAX };
    let marks: Vec<Value> = bursts(&question, asking)?
        .iter()
        .map(|burst| {
            json!({
                "annotation": request.annotation,
                "time": burst.from,
                "timeEnd": burst.to,
                "isRegion": true,
                "title": burst.title(),
                "text": burst.text(),
                "tags": TAGS,
            })
        })
        .collect();
    Ok(Value::Array(marks))
}

/// The same as a table, which is how newer versions of Grafana ask for marks.
pub(crate) fn table(question: &Question, asking: &mut Asking<'_>) -> Result<Value, Refusal> {
    let columns =
        [("time", "time"), ("timeEnd", "time"), ("title", "string"), ("text", "string"), ("tags", "string")];
    let columns = columns.map(|(text, kind)| json!({ "text": text, "type": kind }));
    let rows: Vec<Value> = bursts(question, asking)?
        .iter()
        .map(|burst| json!([burst.from, burst.to, burst.title(), burst.text(), TAGS.join(",")]))
        .collect();
    Ok(json!({ "columns": columns, "rows": rows, "type": "table" }))
}

fn bursts(question: &Question, asking: &mut Asking<'_>) -> Result<Vec<Burst>, Refusal> {
    let (buckets, counts) = errors(question, asking)?;
    let least = question.parameters.least.unwrap_or(LEAST);
    let share = question.parameters.share.unwrap_or(SHARE);
    Ok(join(&buckets, &counts, least, share))
}

fn join(buckets: &Buckets, counts: &[Count], least: i64, share: i64) -> Vec<Burst> {
    let mut bursts: Vec<Burst> = Vec::new();
    for (bucket, count) in counts.iter().enumerate() {
        let failed = count.failed();
        if failed < least || failed.saturating_mul(100) < count.requests.saturating_mul(share) {
            continue;
        }
        let (from, to) = (buckets.begins(bucket), buckets.begins(bucket + 1));
        let fresh = Burst { from, to, requests: 0, statuses: BTreeMap::new() };
        let mut burst = bursts.pop_if(|burst| burst.to == from).unwrap_or(fresh);
        burst.to = to;
        burst.requests += count.requests;
        for (status, number) in &count.statuses {
            *burst.statuses.entry(*status).or_default() += number;
        }
        bursts.push(burst);
    }
    bursts
}

#[cfg(test)]
mod tests {
    use super::{Count, join};
    use crate::grafana::buckets::{Buckets, Span};

    #[test]
    fn bursts_join_and_need_number_and_share() {
        let buckets = Buckets::of(Span { from: 0, to: 6000 }, Some(1000), 0, 10).unwrap();
        let count = |requests, statuses: &[(i64, i64)]| Count { requests, statuses: statuses.to_vec() };
        let counts = [
            count(100, &[(500, 4)]),
            count(100, &[(502, 3), (503, 2)]),
            count(10, &[(502, 10)]),
            count(101, &[(500, 5)]),
            count(0, &[]),
            count(5, &[(504, 5)]),
        ];
        let found = join(&buckets, &counts, 5, 5);
        let shown: Vec<_> = found.iter().map(|b| (b.from, b.to, b.title(), b.text())).collect();
        let one = (1000, 3000, "15 of 110 requests failed".to_owned(), "13 × 502, 2 × 503".to_owned());
        let two = (5000, 6000, "5 of 5 requests failed".to_owned(), "5 × 504".to_owned());
        assert_eq!(shown, [one, two]);
        assert!(join(&buckets, &counts, 11, 5).is_empty());
    }
}
