//! `/query`: points over time, and tables.
//!
//! Intervals in which nothing was asked for are zero, not absent: absence would be drawn as a line from the one
//! before to the one after.

mod lists;
mod table;

use std::time::SystemTime;

use offramp_analytics::question::Order;
use offramp_analytics::{Answer, Filter, Value as Cell};
use serde_json::{Value, json};

use crate::desk::Asking;
use crate::grafana::buckets::{Buckets, MOST, Span};
use crate::grafana::parameters::{Parameters, shape};
use crate::grafana::request::{AdhocFilter, Asked, Query, Range};
use crate::grafana::target::{Shape, Target};
use crate::grafana::time;
use crate::refusal::Refusal;

pub(crate) use lists::{Count, errors};

/// What is asked about where no range is given: the day before, in milliseconds.
const USUAL_SPAN: i64 = 86_400_000;
/// How many points a panel gets that does not say.
const USUAL_POINTS: usize = 550;
/// More targets no panel has.
const TARGETS: usize = 64;

/// One target, ready to be answered.
pub(crate) struct Question {
    pub(crate) target: Target,
    pub(crate) parameters: Parameters,
    pub(crate) span: Span,
    /// No interval is shorter, in milliseconds.
    pub(crate) least: i64,
    pub(crate) points: usize,
}

/// One line of a panel.
pub(crate) struct Series {
    pub(crate) name: String,
    /// `None`: nothing is known of this interval.
    pub(crate) values: Vec<Option<i64>>,
}

/// Answers `/query`.
pub(crate) fn query(query: Query, now: SystemTime, asking: &mut Asking<'_>) -> Result<Value, Refusal> {
    let now = time::of_system(now);
    let usual = Span { from: now - USUAL_SPAN, to: now };
    let span = query.range.as_ref().map_or(Ok(usual), Range::span)?;
    let filters = query.adhoc_filters.unwrap_or_default();
    let targets = query.targets.unwrap_or_default();
    if targets.len() > TARGETS {
        return Err(Refusal::wrong(format!("a panel has at most {TARGETS} targets")));
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
            Shape::Table => answers.push(table::table(&question, ref_id, asking)?),
            Shape::Series => {
                let (buckets, series) = series(&question, asking)?;
                answers.extend(series.iter().map(|series| points(series, &buckets, ref_id)));
            }
        }
    }
    Ok(Value::Array(answers))
}

/// A number of Grafana's, which may have a fraction.
#[expect(clippy::cast_possible_truncation, reason = "a float becomes the nearest number that there is")]
fn whole(number: Option<f64>, least: i64) -> i64 {
    (number.unwrap_or(0.0).ceil() as i64).max(least)
}

/// Whether a target was chosen: new panels have none yet.
fn is_chosen(text: &str) -> bool {
    !text.trim().is_empty() && text != "select metric"
}

fn question(
    asked: &Asked,
    text: &str,
    filters: &[AdhocFilter],
    span: Span,
) -> Result<(Question, Shape), Refusal> {
    let payloads: Vec<&Value> = asked.data.iter().chain(&asked.payload).collect();
    let (target, mut parameters) = Parameters::read(text, &payloads)?;
    parameters.narrow(filters)?;
    let kind = match asked.kind.as_deref().filter(|kind| !kind.is_empty()) {
        None => None,
        Some(kind) => Some(shape(kind).ok_or_else(|| {
            Refusal::wrong(format!("`{kind}` is no type of answers; there are timeseries and table"))
        })?),
    };
    let shape = parameters.shape.or(kind).unwrap_or_else(|| target.usual_shape());
    Ok((Question { target, parameters, span, least: 0, points: USUAL_POINTS }, shape))
}

impl Question {
    pub(crate) fn filter(&self) -> Filter {
        self.parameters.filter(self.target)
    }

    /// The filter for whole intervals.
    pub(crate) fn filter_by(&self, buckets: &Buckets) -> Filter {
        Filter { since: Some(buckets.since()), until: Some(buckets.until()), ..self.filter() }
    }

    /// The filter for the range as it was asked for.
    pub(crate) fn filter_as_asked(&self) -> Filter {
        let until = Some(time::system(self.span.to));
        Filter { since: Some(time::system(self.span.from)), until, ..self.filter() }
    }

    pub(crate) fn buckets(&self, most: usize) -> Result<Buckets, Refusal> {
        Buckets::of(self.span, self.parameters.interval, self.least, self.points.min(most))
    }
}

fn series(question: &Question, asking: &mut Asking<'_>) -> Result<(Buckets, Vec<Series>), Refusal> {
    match question.target {
        Target::BlogHits | Target::OutboundData | Target::Traffic => {
            let buckets = question.buckets(MOST)?;
            Ok((buckets, totals(question, &buckets, asking)?))
        }
        Target::Sites | Target::List(_) => lists::series(question, asking),
        Target::Search => {
            let buckets = question.buckets(MOST)?;
            Ok((buckets, vec![matches(question, &buckets, asking)?]))
        }
        Target::Errors => {
            let (buckets, counts) = lists::errors(question, asking)?;
            let values = counts.iter().map(|count| Some(count.failed())).collect();
            Ok((buckets, vec![Series { name: question.target.name().to_owned(), values }]))
        }
    }
}

/// Requests or bytes of everything, or both.
fn totals(question: &Question, buckets: &Buckets, asking: &mut Asking<'_>) -> Result<Vec<Series>, Refusal> {
    let columns: Vec<(&str, &str)> = match (question.target, question.parameters.by) {
        (Target::Traffic, None) => vec![("requests", "requests"), ("bytes", "bytes")],
        (Target::Traffic, Some(by)) => vec![(column(by), column(by))],
        (target, _) => vec![(target.name(), column(question.filter().order))],
    };
    let mut series: Vec<Series> = columns
        .iter()
        .map(|(name, _)| Series { name: (*name).to_owned(), values: vec![Some(0); buckets.count] })
        .collect();
    if question.parameters.nothing {
        return Ok(series);
    }
    let answer = asking.traffic(buckets.width(), false, &question.filter_by(buckets))?;
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

/// So many requests a search over time counts.
const FOUND: usize = 20_000;

/// Requests that have a text. Where there are more than are counted, nothing is said of the time before.
fn matches(question: &Question, buckets: &Buckets, asking: &mut Asking<'_>) -> Result<Series, Refusal> {
    let mut series = Series { name: question.target.name().to_owned(), values: vec![Some(0); buckets.count] };
    if question.parameters.nothing {
        return Ok(series);
    }
    let filter = Filter { limit: Some(FOUND), ..question.filter_by(buckets) };
    let answer = asking.search(question.text()?, &filter)?;
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

impl Question {
    /// What is searched for.
    pub(crate) fn text(&self) -> Result<&str, Refusal> {
        let missing = || Refusal::wrong("a search needs a text: write `search?text=login`");
        self.parameters.text.as_deref().ok_or_else(missing)
    }
}

fn points(series: &Series, buckets: &Buckets, ref_id: Option<&str>) -> Value {
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

/// The column that has what is asked for.
pub(crate) const fn column(by: Order) -> &'static str {
    match by {
        Order::Requests => "requests",
        Order::Bytes => "bytes",
    }
}

pub(crate) fn position(answer: &Answer, column: &str) -> Option<usize> {
    answer.columns.iter().position(|name| name == column)
}

/// The number in a column; 0 where there is none.
pub(crate) fn number(row: &[Cell], column: Option<usize>) -> i64 {
    match column.and_then(|column| row.get(column)) {
        Some(Cell::Int(number)) => *number,
        _ => 0,
    }
}

/// The time in a column, in milliseconds since 1970.
pub(crate) fn moment(row: &[Cell], column: Option<usize>) -> Option<i64> {
    match column.and_then(|column| row.get(column)) {
        Some(Cell::Text(text)) => time::of_text(text),
        _ => None,
    }
}
