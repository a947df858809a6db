//! `/query`: points over time, and tables.
//!
//! Intervals without requests are zero, not absent: absence would be drawn as a line between the neighbours.

mod lists;
mod table;

use std::time::SystemTime;

use offramp_analytics::question::SortOrder;
use offramp_analytics::{QueryResult, RequestFilter, SqlValue};
use serde_json::{Value, json};

use crate::grafana::buckets::{Buckets, MOST, TimeSpan};
use crate::grafana::parameters::{TargetParameters, shape};
use crate::grafana::request::{AdhocFilter, GrafanaQuery, Range, TargetRequest};
use crate::grafana::target::{PanelShape, QueryTarget};
use crate::grafana::time;
use crate::query_pool::StoreSession;
use crate::refusal::PlainRefusal;

pub(crate) use lists::{StatusCount, errors};

/// The default range, in milliseconds: the last day.
const USUAL_SPAN: i64 = 86_400_000;
/// The default number of points of a panel.
const USUAL_POINTS: usize = 550;
/// The maximum number of targets of a panel.
const TARGETS: usize = 64;

/// One target, ready to be answered.
pub(crate) struct PanelQuery {
    pub(crate) target: QueryTarget,
    pub(crate) parameters: TargetParameters,
    pub(crate) span: TimeSpan,
    /// The minimum length of an interval, in milliseconds.
    pub(crate) least: i64,
    pub(crate) points: usize,
}

/// One series of a panel.
pub(crate) struct PanelSeries {
    pub(crate) name: String,
    /// Values per interval; `None` if unknown.
    pub(crate) values: Vec<Option<i64>>,
}

pub(crate) fn query(
    query: GrafanaQuery,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    let now = time::of_system(now);
    let usual = TimeSpan { from: now - USUAL_SPAN, to: now };
    let span = query.range.as_ref().map_or(Ok(usual), Range::span)?;
    let filters = query.adhoc_filters.unwrap_or_default();
    let targets = query.targets.unwrap_or_default();
    if targets.len() > TARGETS {
        return Err(PlainRefusal::wrong(format!("a panel has at most {TARGETS} targets")));
    }
    let mut answers = Vec::new();
    for asked in targets.iter().filter(|asked| asked.hide != Some(true)) {
        let Some(text) = asked.target.as_deref().filter(|text| is_chosen(text)) else { continue };
        let (mut question, shape) = question(asked, text, &filters, span)?;
        question.least = whole(query.interval_ms, 0);
        question.points = query
            .max_data_points
            .map_or(USUAL_POINTS, |points| usize::try_from(whole(Some(points), 1)).unwrap_or(USUAL_POINTS));
        let ref_id = asked.ref_id.as_deref();
        match shape {
            PanelShape::Table => answers.push(table::table(&question, ref_id, session)?),
            PanelShape::Series => {
                let (buckets, series) = series(&question, session)?;
                answers.extend(series.iter().map(|series| points(series, &buckets, ref_id)));
            }
        }
    }
    Ok(Value::Array(answers))
}

/// Converts a number of Grafana, which may have a fraction.
#[expect(clippy::cast_possible_truncation, reason = "a float becomes the nearest number that there is")]
fn whole(number: Option<f64>, least: i64) -> i64 {
    (number.unwrap_or(0.0).ceil() as i64).max(least)
}

/// Returns `true` if a target was chosen: new panels have none yet.
fn is_chosen(text: &str) -> bool {
    !text.trim().is_empty() && text != "select metric"
}

fn question(
    asked: &TargetRequest,
    text: &str,
    filters: &[AdhocFilter],
    span: TimeSpan,
) -> Result<(PanelQuery, PanelShape), PlainRefusal> {
    let payloads: Vec<&Value> = asked.data.iter().chain(&asked.payload).collect();
    let (target, mut parameters) = TargetParameters::read(text, &payloads)?;
    parameters.narrow(filters)?;
    let kind = match asked.kind.as_deref().filter(|kind| !kind.is_empty()) {
        None => None,
        Some(kind) => Some(shape(kind).ok_or_else(|| {
            PlainRefusal::wrong(format!("`{kind}` is no type of answers; there are timeseries and table"))
        })?),
    };
    let shape = parameters.shape.or(kind).unwrap_or_else(|| target.usual_shape());
    Ok((PanelQuery { target, parameters, span, least: 0, points: USUAL_POINTS }, shape))
}

impl PanelQuery {
    pub(crate) fn filter(&self) -> RequestFilter {
        self.parameters.filter(self.target)
    }

    /// The filter for whole intervals.
    pub(crate) fn filter_by(&self, buckets: &Buckets) -> RequestFilter {
        RequestFilter { since: Some(buckets.since()), until: Some(buckets.until()), ..self.filter() }
    }

    /// The filter for the exact range.
    pub(crate) fn filter_as_asked(&self) -> RequestFilter {
        let until = Some(time::system(self.span.to));
        RequestFilter { since: Some(time::system(self.span.from)), until, ..self.filter() }
    }

    pub(crate) fn buckets(&self, most: usize) -> Result<Buckets, PlainRefusal> {
        Buckets::of(self.span, self.parameters.interval, self.least, self.points.min(most))
    }
}

fn series(
    question: &PanelQuery,
    session: &mut StoreSession<'_>,
) -> Result<(Buckets, Vec<PanelSeries>), PlainRefusal> {
    match question.target {
        QueryTarget::BlogHits | QueryTarget::OutboundData | QueryTarget::Traffic => {
            let buckets = question.buckets(MOST)?;
            Ok((buckets, totals(question, &buckets, session)?))
        }
        QueryTarget::Sites | QueryTarget::List(_) => lists::series(question, session),
        QueryTarget::Search => {
            let buckets = question.buckets(MOST)?;
            Ok((buckets, vec![matches(question, &buckets, session)?]))
        }
        QueryTarget::Errors => {
            let (buckets, counts) = lists::errors(question, session)?;
            let values = counts.iter().map(|count| Some(count.failed())).collect();
            Ok((buckets, vec![PanelSeries { name: question.target.name().to_owned(), values }]))
        }
    }
}

/// Requests, bytes, or both, over all traffic.
fn totals(
    question: &PanelQuery,
    buckets: &Buckets,
    session: &mut StoreSession<'_>,
) -> Result<Vec<PanelSeries>, PlainRefusal> {
    let columns: Vec<(&str, &str)> = match (question.target, question.parameters.by) {
        (QueryTarget::Traffic, None) => vec![("requests", "requests"), ("bytes", "bytes")],
        (QueryTarget::Traffic, Some(by)) => vec![(column(by), column(by))],
        (target, _) => vec![(target.name(), column(question.filter().order))],
    };
    let mut series: Vec<PanelSeries> = columns
        .iter()
        .map(|(name, _)| PanelSeries { name: (*name).to_owned(), values: vec![Some(0); buckets.count] })
        .collect();
    if question.parameters.nothing {
        return Ok(series);
    }
    let answer = session.traffic(buckets.width(), false, &question.filter_by(buckets))?;
    let columns: Vec<Option<usize>> = columns.iter().map(|(_, column)| position(&answer, column)).collect();
    let at = position(&answer, "time");
    for row in &answer.rows {
        let Some(bucket) = moment(row, at).and_then(|time| buckets.index(time)) else { continue };
        for (series, column) in series.iter_mut().zip(&columns) {
            series.values[bucket] = Some(number(row, *column));
        }
    }
    Ok(series)
}

/// The maximum number of requests that a search over time counts.
const FOUND: usize = 20_000;

/// Requests with a text. If there are more than are counted, earlier intervals are unknown.
fn matches(
    question: &PanelQuery,
    buckets: &Buckets,
    session: &mut StoreSession<'_>,
) -> Result<PanelSeries, PlainRefusal> {
    let mut series =
        PanelSeries { name: question.target.name().to_owned(), values: vec![Some(0); buckets.count] };
    if question.parameters.nothing {
        return Ok(series);
    }
    let filter = RequestFilter { limit: Some(FOUND), ..question.filter_by(buckets) };
    let answer = session.search(question.text()?, &filter)?;
    let at = position(&answer, "time");
    let found = answer.rows.iter().filter_map(|row| moment(row, at).and_then(|time| buckets.index(time)));
    let mut earliest = buckets.count;
    for bucket in found {
        earliest = earliest.min(bucket);
        series.values[bucket] = series.values[bucket].map(|count| count + 1);
    }
    if answer.rows.len() >= FOUND {
        // The earliest interval may be counted in part.
        series.values.iter_mut().take(earliest + 1).for_each(|value| *value = None);
    }
    Ok(series)
}

impl PanelQuery {
    /// The text to search for.
    pub(crate) fn text(&self) -> Result<&str, PlainRefusal> {
        let missing = || PlainRefusal::wrong("a search needs a text: write `search?text=login`");
        self.parameters.text.as_deref().ok_or_else(missing)
    }
}

fn points(series: &PanelSeries, buckets: &Buckets, ref_id: Option<&str>) -> Value {
    let points: Vec<Value> = series
        .values
        .iter()
        .enumerate()
        .map(|(index, value)| json!([value, buckets.begins(index)]))
        .collect();
    let mut answer = json!({ "target": series.name, "datapoints": points });
    if let Some(ref_id) = ref_id {
        answer["refId"] = json!(ref_id);
    }
    answer
}

/// The column for a sort order.
pub(crate) const fn column(by: SortOrder) -> &'static str {
    match by {
        SortOrder::Requests => "requests",
        SortOrder::Bytes => "bytes",
    }
}

pub(crate) fn position(answer: &QueryResult, column: &str) -> Option<usize> {
    answer.columns.iter().position(|name| name == column)
}

/// The number in a column; 0 without one.
pub(crate) fn number(row: &[SqlValue], column: Option<usize>) -> i64 {
    match column.and_then(|column| row.get(column)) {
        Some(SqlValue::Int(number)) => *number,
        _ => 0,
    }
}

/// The time in a column, in milliseconds since 1970.
pub(crate) fn moment(row: &[SqlValue], column: Option<usize>) -> Option<i64> {
    match column.and_then(|column| row.get(column)) {
        Some(SqlValue::Text(text)) => time::of_text(text),
        _ => None,
    }
}
