//! Annotations: bursts of failed requests.
//!
//! The log store has requests, not restarts or deployments. A burst is an interval with at least `least`
//! responses of 500 and above that are at least `share` percent of all requests. Consecutive intervals make
//! one mark.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::grafana::answer::{PanelQuery, StatusCount, errors};
use crate::grafana::buckets::{Buckets, TimeSpan};
use crate::grafana::parameters::TargetParameters;
use crate::grafana::request::{Annotations, Range};
use crate::grafana::target::QueryTarget;
use crate::grafana::time;
use crate::query_pool::StoreSession;
use crate::refusal::PlainRefusal;

/// The tags of all marks.
const TAGS: [&str; 2] = ["errors", "5xx"];
/// The default number of responses of 500 and above that make a burst.
const LEAST: i64 = 5;
/// The default share of requests that makes a burst, in percent.
const SHARE: i64 = 5;
/// The default range, in milliseconds: the last day.
const USUAL_SPAN: i64 = 86_400_000;

/// A period with many failures.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AnnotationBurst {
    /// The start in milliseconds since 1970.
    from: i64,
    to: i64,
    requests: i64,
    statuses: BTreeMap<i64, i64>,
}

impl AnnotationBurst {
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

/// Handles `/annotations`. The query is `errors` with parameters, empty, or `#tag`s that marks must have.
pub(crate) fn annotations(
    request: &Annotations,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    let now = time::of_system(now);
    let usual = TimeSpan { from: now - USUAL_SPAN, to: now };
    let span = request.range.as_ref().map_or(Ok(usual), Range::span)?;
    let query = request.annotation.get("query").and_then(Value::as_str).unwrap_or_default();
    let (tags, words): (Vec<&str>, Vec<&str>) =
        query.split_whitespace().partition(|word| word.starts_with('#'));
    if tags.iter().any(|tag| !TAGS.contains(&tag.trim_start_matches('#'))) {
        return Ok(json!([]));
    }
    let text = if words.is_empty() { QueryTarget::Errors.name().to_owned() } else { words.join(" ") };
    let (target, parameters) = TargetParameters::of_text(&text)?;
    if target != QueryTarget::Errors {
        return Err(PlainRefusal::wrong("annotations are of `errors`; write `errors?host=a.test&share=10`"));
    }
    let question = PanelQuery { target, parameters, span, least: 0, points: usize::MAX };
    let marks: Vec<Value> = bursts(&question, session)?
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

/// The marks as a table, which newer versions of Grafana request.
pub(crate) fn table(question: &PanelQuery, session: &mut StoreSession<'_>) -> Result<Value, PlainRefusal> {
    let columns =
        [("time", "time"), ("timeEnd", "time"), ("title", "string"), ("text", "string"), ("tags", "string")];
    let columns = columns.map(|(text, kind)| json!({ "text": text, "type": kind }));
    let rows: Vec<Value> = bursts(question, session)?
        .iter()
        .map(|burst| json!([burst.from, burst.to, burst.title(), burst.text(), TAGS.join(",")]))
        .collect();
    Ok(json!({ "columns": columns, "rows": rows, "type": "table" }))
}

fn bursts(
    question: &PanelQuery,
    session: &mut StoreSession<'_>,
) -> Result<Vec<AnnotationBurst>, PlainRefusal> {
    let (buckets, counts) = errors(question, session)?;
    let least = question.parameters.least.unwrap_or(LEAST);
    let share = question.parameters.share.unwrap_or(SHARE);
    Ok(join(&buckets, &counts, least, share))
}

fn join(buckets: &Buckets, counts: &[StatusCount], least: i64, share: i64) -> Vec<AnnotationBurst> {
    let mut bursts: Vec<AnnotationBurst> = Vec::new();
    for (bucket, count) in counts.iter().enumerate() {
        let failed = count.failed();
        if failed < least || failed.saturating_mul(100) < count.requests.saturating_mul(share) {
            continue;
        }
        let (from, to) = (buckets.begins(bucket), buckets.begins(bucket + 1));
        let fresh = AnnotationBurst { from, to, requests: 0, statuses: BTreeMap::new() };
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
    use super::{StatusCount, join};
    use crate::grafana::buckets::{Buckets, TimeSpan};

    #[test]
    fn bursts_join_and_need_number_and_share() {
        let buckets = Buckets::of(TimeSpan { from: 0, to: 6000 }, Some(1000), 0, 10).unwrap();
        let count = |requests, statuses: &[(i64, i64)]| StatusCount { requests, statuses: statuses.to_vec() };
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
