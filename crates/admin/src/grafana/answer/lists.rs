//! Lists over time: the heaviest things of the whole range, a line each.
//!
//! The log store adds hosts up over time by itself. Of everything else it is asked interval by interval, which
//! reads each request once, as a whole range would; so there are fewer intervals than a panel has pixels.

use std::collections::HashMap;

use offramp_analytics::question::{OTHER_HOSTS, Order, Source};
use offramp_analytics::{Answer, Filter, Top, Value as Cell};

use super::{Question, Series, column, moment, number, position};
use crate::desk::Asking;
use crate::grafana::buckets::{Buckets, MOST};
use crate::grafana::target::Target;
use crate::grafana::time::system;
use crate::refusal::Refusal;

/// So many intervals are asked about one by one, at most.
const INTERVALS: usize = 48;
/// So many lines a panel gets that does not say, and at most.
const LINES: [usize; 2] = [10, 50];
/// So many things of an interval are looked at; lighter ones count as zero there.
const LOOKED_AT: usize = 1000;
/// From so many requests on intervals are answered from roll-ups: each alone would be small enough to be counted
/// from its requests, but all of them are not.
const MANY: i64 = 400_000;

/// A line for each of the heaviest.
pub(super) fn series(
    question: &Question,
    asking: &mut Asking<'_>,
) -> Result<(Buckets, Vec<Series>), Refusal> {
    let top = match question.target {
        Target::List(top) => top,
        _ => Top::Hosts,
    };
    let buckets = question.buckets(if top == Top::Hosts { MOST } else { INTERVALS })?;
    if buckets.count > INTERVALS + 1 && top != Top::Hosts {
        return Err(Refusal::wrong(format!(
            "the interval is too short for the time range: {} over time has at most {INTERVALS} intervals",
            top.name()
        )));
    }
    if question.parameters.nothing {
        return Ok((buckets, Vec::new()));
    }
    let limit = question.parameters.limit.unwrap_or(LINES[0]);
    if limit > LINES[1] {
        return Err(Refusal::wrong(format!("over time there are at most {} lines", LINES[1])));
    }
    let filter = Filter { limit: Some(limit), ..question.filter_by(&buckets) };
    let heaviest = asking.top(top, &filter)?;
    let mut lines = Lines::of(&heaviest, buckets.count);
    if top == Top::Hosts {
        hosts(question, &buckets, asking, &mut lines)?;
    } else {
        let source = source(question, &buckets, asking)?;
        for bucket in 0..buckets.count {
            let answer = asking.top(top, &part(question, &buckets, bucket, source))?;
            let value = position(&answer, column(filter.order));
            for row in &answer.rows {
                lines.add(&named(&answer, row), bucket, number(row, value));
            }
            lines.unnamed[bucket] = answer.missing.map_or(0, |missing| match filter.order {
                Order::Requests => missing.requests,
                Order::Bytes => missing.bytes,
            });
        }
    }
    Ok((buckets, lines.finish()))
}

/// What intervals are answered from.
fn source(question: &Question, buckets: &Buckets, asking: &mut Asking<'_>) -> Result<Source, Refusal> {
    // Of statuses roll-ups are exact, and quick.
    let filter = Filter { source: Source::Rollups, limit: Some(LOOKED_AT), ..question.filter_by(buckets) };
    let statuses = asking.top(Top::Status, &filter)?;
    let requests = position(&statuses, "requests");
    let all: i64 = statuses.rows.iter().map(|row| number(row, requests)).sum();
    Ok(if all > MANY { Source::Rollups } else { Source::Either })
}

/// The filter of one interval.
fn part(question: &Question, buckets: &Buckets, bucket: usize, source: Source) -> Filter {
    Filter {
        since: Some(system(buckets.begins(bucket))),
        until: Some(system(buckets.begins(bucket + 1))),
        limit: Some(LOOKED_AT),
        source,
        ..question.filter()
    }
}

fn hosts(
    question: &Question,
    buckets: &Buckets,
    asking: &mut Asking<'_>,
    lines: &mut Lines,
) -> Result<(), Refusal> {
    let mut filter = question.filter_by(buckets);
    // Requests without a host, and of hosts without a name, cannot be asked for by name.
    if !lines.places.contains_key(NAMELESS) && !lines.is_partial {
        filter.hosts = lines.places.keys().cloned().collect();
    }
    if lines.places.is_empty() {
        return Ok(());
    }
    let answer = asking.traffic(buckets.width(), true, &filter)?;
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

/// Lines by name.
struct Lines {
    series: Vec<Series>,
    places: HashMap<String, usize>,
    /// Set where the lines are lower bounds.
    is_partial: bool,
    /// By interval: how much more any line may be.
    unnamed: Vec<i64>,
}

impl Lines {
    fn of(heaviest: &Answer, count: usize) -> Self {
        let names: Vec<String> = heaviest.rows.iter().map(|row| named(heaviest, row)).collect();
        let places = names.iter().enumerate().map(|(place, name)| (name.clone(), place)).collect();
        let line = |name| Series { name, values: vec![Some(0); count] };
        let is_partial = heaviest.missing.is_some();
        Self { series: names.into_iter().map(line).collect(), places, is_partial, unnamed: vec![0; count] }
    }

    fn add(&mut self, name: &str, bucket: usize, value: i64) {
        if let Some(place) = self.places.get(name) {
            let sum = &mut self.series[*place].values[bucket];
            *sum = Some(sum.unwrap_or(0) + value);
        }
    }

    /// The lines, and one more for what belongs to them or to others, where there is such.
    fn finish(mut self) -> Vec<Series> {
        if self.unnamed.iter().any(|more| *more > 0) {
            let values = self.unnamed.into_iter().map(Some).collect();
            self.series.push(Series { name: UNNAMED.to_owned(), values });
        }
        self.series
    }
}

/// The line of what roll-ups keep without names.
const UNNAMED: &str = "(without a name)";

/// What stands for something that has no name.
pub(super) const NAMELESS: &str = "-";

/// What one row of a list is called in a legend.
fn named(answer: &Answer, row: &[Cell]) -> String {
    let cell = |name: &str| position(answer, name).and_then(|at| row.get(at));
    let first = text(row.first());
    match answer.columns.first().map(String::as_str) {
        Some("page") => format!("{}{first}", text(cell("host"))),
        Some("city") => format!("{first}, {}", text(cell("country"))),
        _ => first,
    }
}

fn text(cell: Option<&Cell>) -> String {
    match cell {
        Some(Cell::Text(text)) => text.clone(),
        Some(Cell::Int(number)) => number.to_string(),
        Some(Cell::Real(number)) => number.to_string(),
        Some(Cell::Null) | None => NAMELESS.to_owned(),
    }
}

/// What became of the requests of one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) requests: i64,
    /// Answers that say that a server failed, by status, the most frequent first.
    pub(crate) statuses: Vec<(i64, i64)>,
}

impl Count {
    pub(crate) fn failed(&self) -> i64 {
        self.statuses.iter().map(|(_, count)| count).sum()
    }
}

/// What became of requests, over time.
pub(crate) fn errors(question: &Question, asking: &mut Asking<'_>) -> Result<(Buckets, Vec<Count>), Refusal> {
    let buckets = question.buckets(INTERVALS)?;
    let mut counts = vec![Count::default(); buckets.count];
    if buckets.count > INTERVALS + 1 {
        return Err(Refusal::wrong(format!(
            "the interval is too short for the time range: errors over time have at most {INTERVALS} intervals"
        )));
    }
    if question.parameters.nothing {
        return Ok((buckets, counts));
    }
    for (bucket, count) in counts.iter_mut().enumerate() {
        let answer = asking.top(Top::Status, &part(question, &buckets, bucket, Source::Rollups))?;
        let requests = position(&answer, "requests");
        for row in &answer.rows {
            let number = number(row, requests);
            count.requests += number;
            match row.first() {
                Some(Cell::Int(status)) if (500..600).contains(status) => {
                    count.statuses.push((*status, number));
                }
                _ => {}
            }
        }
    }
    Ok((buckets, counts))
}
