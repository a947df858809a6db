//! Questions to the store, and how answers are printed.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use offramp_analytics::question::Source;
use offramp_analytics::render::{self, Style};
use offramp_analytics::{Answer, Filter, Questions, Settings};

use crate::failure::Failure;
use crate::flags::logs::{AnswerOptions, FilterOptions, List, Query, Search, StoreOptions, Traffic};
use crate::surroundings::{self, print};

use super::failure;
use super::place::Place;

pub(super) fn top(arguments: List) -> Result<(), Failure> {
    let List { what, by, exact, geoip, filter, answer, store } = arguments;
    let source = if exact { Source::Requests } else { Source::Either };
    let filter = Filter { order: by.into(), source, ..meant(filter) };
    let mut questions = open(store, answer.time_limit, None, geoip)?;
    show(&questions.top(what, &filter).map_err(|error| failure(&error))?, &answer)
}

pub(super) fn traffic(arguments: Traffic) -> Result<(), Failure> {
    let Traffic { interval, by_host, filter, answer, store } = arguments;
    let mut questions = open(store, answer.time_limit, None, None)?;
    show(&questions.traffic(interval, by_host, &meant(filter)).map_err(|error| failure(&error))?, &answer)
}

pub(super) fn search(arguments: Search) -> Result<(), Failure> {
    let Search { text, filter, answer, store } = arguments;
    let mut questions = open(store, answer.time_limit, None, None)?;
    show(&questions.search(&text, &meant(filter)).map_err(|error| failure(&error))?, &answer)
}

pub(super) fn query(arguments: Query) -> Result<(), Failure> {
    let Query { sql, limit, answer, store } = arguments;
    let mut questions = open(store, answer.time_limit, Some(limit), None)?;
    show(&questions.sql(&sql).map_err(|error| failure(&error))?, &answer)
}

fn meant(options: FilterOptions) -> Filter {
    let now = SystemTime::now();
    let exclude = options.exclude_client.into_iter().chain(options.exclude_networks).collect();
    Filter {
        hosts: options.host,
        since: options.since.map(|when| when.time(now)),
        until: options.until.map(|when| when.time(now)),
        exclude,
        bots: options.bots.into(),
        limit: options.limit,
        ..Filter::default()
    }
}

fn open(
    store: StoreOptions,
    time_limit: Duration,
    most_rows: Option<usize>,
    geoip: Option<PathBuf>,
) -> Result<Questions, Failure> {
    let place = Place::find(store)?;
    let defaults = Settings::default();
    let settings = Settings {
        time_limit,
        most_rows: most_rows.unwrap_or(defaults.most_rows),
        geoip: geoip.or(place.geoip),
    };
    Questions::open(&place.url, &settings).map_err(|error| failure(&error))
}

/// Prints an answer: for a terminal as wide as that is.
fn show(answer: &Answer, options: &AnswerOptions) -> Result<(), Failure> {
    let text = match (options.json, options.csv, surroundings::columns()) {
        (true, _, _) => render::render(answer, Style::Json),
        (_, true, _) => render::render(answer, Style::Csv),
        (_, _, Some(columns)) => render::fit(answer, columns),
        (_, _, None) => render::render(answer, Style::Table),
    };
    print(text.as_bytes())
}
