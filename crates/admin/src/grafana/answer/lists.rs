//! Lists over time: a series for each of the heaviest items of the whole range.
//!
//! The log store aggregates hosts over time itself. For other items it is queried interval by interval, which
//! reads each request once, as a query of the whole range would; so there are fewer intervals than pixels.

use std::collections::HashMap;

use offramp_analytics::question::{DataSource, OTHER_HOSTS, SortOrder};
use offramp_analytics::{QueryResult, RequestFilter, SqlValue, Top};

use super::{PanelQuery, PanelSeries, column, moment, number, position};
use crate::grafana::buckets::{Buckets, MOST};
use crate::grafana::target::QueryTarget;
use crate::grafana::time::system;
use crate::query_pool::StoreSession;
use crate::refusal::PlainRefusal;

/// The maximum number of intervals with a query each.
const INTERVALS: usize = 48;
/// The default and the maximum number of series in a panel.
const LINES: [usize; 2] = [10, 50];
/// The number of items read per interval; lighter ones count as zero.
const LOOKED_AT: usize = 1000;
/// The number of requests from which intervals are answered from roll-ups: each alone would be small enough
/// to be counted from its requests, but together they are not.
const MANY: i64 = 400_000;

/// A series for each of the heaviest items.
pub(super) fn series(
    question: &PanelQuery,
    session: &mut StoreSession<'_>,
) -> Result<(Buckets, Vec<PanelSeries>), PlainRefusal> {
    let top = match question.target {
        QueryTarget::List(top) => top,
        _ => Top::Hosts,
    };
    let buckets = question.buckets(if top == Top::Hosts { MOST } else { INTERVALS })?;
    if buckets.count > INTERVALS + 1 && top != Top::Hosts {
        return Err(PlainRefusal::wrong(format!(
            "the interval is too short for the time range: {} over time has at most {INTERVALS} intervals",
            top.name()
        )));
    }
    if question.parameters.nothing {
        return Ok((buckets, Vec::new()));
    }
    let limit = question.parameters.limit.unwrap_or(LINES[0]);
    if limit > LINES[1] {
        return Err(PlainRefusal::wrong(format!("over time there are at most {} lines", LINES[1])));
    }
    let filter = RequestFilter { limit: Some(limit), ..question.filter_by(&buckets) };
    let heaviest = session.top(top, &filter)?;
    let mut lines = SeriesLines::of(&heaviest, buckets.count);
    if top == Top::Hosts {
        hosts(question, &buckets, session, &mut lines)?;
    } else {
        let source = source(question, &buckets, session)?;
        for bucket in 0..buckets.count {
            let answer = session.top(top, &part(question, &buckets, bucket, source))?;
            let value = position(&answer, column(filter.order));
            for row in &answer.rows {
                lines.add(&named(&answer, row), bucket, number(row, value));
            }
            lines.unnamed[bucket] = answer.missing.map_or(0, |missing| match filter.order {
                SortOrder::Requests => missing.requests,
                SortOrder::Bytes => missing.bytes,
            });
        }
    }
    Ok((buckets, lines.finish()))
}

/// Chooses the source of data for the intervals.
fn source(
    question: &PanelQuery,
    buckets: &Buckets,
    session: &mut StoreSession<'_>,
) -> Result<DataSource, PlainRefusal> {
    // Roll-ups are exact for statuses, and fast.
    let filter =
        RequestFilter { source: DataSource::Rollups, limit: Some(LOOKED_AT), ..question.filter_by(buckets) };
    let statuses = session.top(Top::Status, &filter)?;
    let requests = position(&statuses, "requests");
    let all: i64 = statuses.rows.iter().map(|row| number(row, requests)).sum();
    Ok(if all > MANY { DataSource::Rollups } else { DataSource::Either })
}

/// The filter of one interval.
fn part(question: &PanelQuery, buckets: &Buckets, bucket: usize, source: DataSource) -> RequestFilter {
    RequestFilter {
        since: Some(system(buckets.begins(bucket))),
        until: Some(system(buckets.begins(bucket + 1))),
        limit: Some(LOOKED_AT),
        source,
        ..question.filter()
    }
}

fn hosts(
    question: &PanelQuery,
    buckets: &Buckets,
    session: &mut StoreSession<'_>,
    lines: &mut SeriesLines,
) -> Result<(), PlainRefusal> {
    let mut filter = question.filter_by(buckets);
    // Requests without a host, and hosts without a name, cannot be selected by name.
    if !lines.places.contains_key(NAMELESS) && !lines.is_partial {
        filter.hosts = lines.places.keys().cloned().collect();
    }
    if lines.places.is_empty() {
        return Ok(());
    }
    let answer = session.traffic(buckets.width(), true, &filter)?;
    let (at, host) = (position(&answer, "time"), position(&answer, "host"));
    let value = position(&answer, column(filter.order));
    for row in &answer.rows {
        if let Some(bucket) = moment(row, at).and_then(|time| buckets.index(time)) {
            let name = text(host.and_then(|host| row.get(host)));
            let is_unnamed = name == OTHER_HOSTS && !lines.places.contains_key(OTHER_HOSTS);
            match is_unnamed && lines.is_partial {
                true => lines.unnamed[bucket] += number(row, value),
                false => lines.add(&name, bucket, number(row, value)),
            }
        }
    }
    Ok(())
}

struct SeriesLines {
    series: Vec<PanelSeries>,
    places: HashMap<String, usize>,
    /// Set if values are lower bounds.
    is_partial: bool,
    /// Per interval: the most by which any value may be too low.
    unnamed: Vec<i64>,
}

impl SeriesLines {
    fn of(heaviest: &QueryResult, count: usize) -> Self {
        let names: Vec<String> = heaviest.rows.iter().map(|row| named(heaviest, row)).collect();
        let places = names.iter().enumerate().map(|(place, name)| (name.clone(), place)).collect();
        let line = |name| PanelSeries { name, values: vec![Some(0); count] };
        let is_partial = heaviest.missing.is_some();
        Self { series: names.into_iter().map(line).collect(), places, is_partial, unnamed: vec![0; count] }
    }

    fn add(&mut self, name: &str, bucket: usize, value: i64) {
        if let Some(place) = self.places.get(name) {
            let sum = &mut self.series[*place].values[bucket];
            *sum = Some(sum.unwrap_or(0) + value);
        }
    }

    /// The series, and one for the requests that belong to any of them or to others, if there are such.
    fn finish(mut self) -> Vec<PanelSeries> {
        if self.unnamed.iter().any(|more| *more > 0) {
            let values = self.unnamed.into_iter().map(Some).collect();
            self.series.push(PanelSeries { name: UNNAMED.to_owned(), values });
        }
        self.series
    }
}

/// The series of items without a name in roll-ups.
const UNNAMED: &str = "(without a name)";

/// The placeholder for an item without a name.
pub(super) const NAMELESS: &str = "-";

/// The legend of a list's row.
fn named(answer: &QueryResult, row: &[SqlValue]) -> String {
    let cell = |name: &str| position(answer, name).and_then(|at| row.get(at));
    let first = text(row.first());
    match answer.columns.first().map(String::as_str) {
        Some("page") => format!("{}{first}", text(cell("host"))),
        Some("city") => format!("{first}, {}", text(cell("country"))),
        _ => first,
    }
}

fn text(cell: Option<&SqlValue>) -> String {
    match cell {
        Some(SqlValue::Text(text)) => text.clone(),
        Some(SqlValue::Int(number)) => number.to_string(),
        Some(SqlValue::Real(number)) => number.to_string(),
        Some(SqlValue::Null) | None => NAMELESS.to_owned(),
    }
}

/// The outcome of the requests of one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusCount {
    pub(crate) requests: i64,
    /// Responses that indicate a failed server, by status, most frequent first.
    pub(crate) statuses: Vec<(i64, i64)>,
}

impl StatusCount {
    pub(crate) fn failed(&self) -> i64 {
        self.statuses.iter().map(|(_, count)| count).sum()
    }
}

/// The outcome of requests over time.
pub(crate) fn errors(
    question: &PanelQuery,
    session: &mut StoreSession<'_>,
) -> Result<(Buckets, Vec<StatusCount>), PlainRefusal> {
    let buckets = question.buckets(INTERVALS)?;
    let mut counts = vec![StatusCount::default(); buckets.count];
    if buckets.count > INTERVALS + 1 {
        return Err(PlainRefusal::wrong(format!(
            "the interval is too short for the time range: errors over time have at most {INTERVALS} intervals"
        )));
    }
    if question.parameters.nothing {
        return Ok((buckets, counts));
    }
    for (bucket, count) in counts.iter_mut().enumerate() {
        let answer = session.top(Top::Status, &part(question, &buckets, bucket, DataSource::Rollups))?;
        let requests = position(&answer, "requests");
        for row in &answer.rows {
            let number = number(row, requests);
            count.requests += number;
            match row.first() {
                Some(SqlValue::Int(status)) if (500..600).contains(status) => {
                    count.statuses.push((*status, number));
                }
                _ => {}
            }
        }
    }
    Ok((buckets, counts))
}
