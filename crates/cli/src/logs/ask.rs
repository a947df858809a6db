//! Questions to the store, and how answers are printed.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use offramp_analytics::question::Source;
use offramp_analytics::render::{self, Style};
use offramp_analytics::{Answer, Filter, Questions, Settings};

use crate::failure::Failure;
use crate::flags::logs::{
    AnswerOptions, Compare, FilterOptions, List, Query, Search, StoreOptions, Traffic, Visitors, What,
};
use crate::surroundings::{self, print, say};

use super::failure;
use super::place::Place;

pub(super) fn top(arguments: List) -> Result<(), Failure> {
    let List { what, by, per, exact, geoip, filter, answer, store } = arguments;
    if per.is_some() && what != What::Slow {
        return Err(Failure::usage("error: --per belongs to `logs top slow`"));
    }
    let filter = Filter { order: by.into(), source: source(exact), ..meant(filter) };
    let mut questions = open(store, answer.time_limit, None, geoip)?;
    let found = match what {
        What::Heaviest(top) => questions.top(top, &filter),
        What::Slow => questions.slow(per.map(Into::into).unwrap_or_default(), &filter),
        What::Errors => questions.errors(&filter),
    };
    show(&found.map_err(|error| failure(&error))?, &answer)
}

pub(super) fn traffic(arguments: Traffic) -> Result<(), Failure> {
    let Traffic { interval, by_host, filter, answer, store } = arguments;
    let filter = meant(filter);
    let mut questions = open(store, answer.time_limit, None, None)?;
    let step = interval.map_or_else(|| questions.step_for(&filter), Ok).map_err(|error| failure(&error))?;
    show(&questions.traffic(step, by_host, &filter).map_err(|error| failure(&error))?, &answer)
}

pub(super) fn visitors(arguments: Visitors) -> Result<(), Failure> {
    let Visitors { interval, filter, answer, store } = arguments;
    let mut questions = open(store, answer.time_limit, None, None)?;
    show(&questions.visitors(interval, &meant(filter)).map_err(|error| failure(&error))?, &answer)
}

pub(super) fn compare(arguments: Compare) -> Result<(), Failure> {
    let Compare { what, by, exact, filter, answer, store } = arguments;
    let now = SystemTime::now();
    let mut filter = Filter { order: by.into(), source: source(exact), ..meant(filter) };
    let until = *filter.until.get_or_insert(now);
    filter.since.get_or_insert(until.checked_sub(COMPARED).unwrap_or(SystemTime::UNIX_EPOCH));
    let mut questions = open(store, answer.time_limit, None, None)?;
    show(&questions.compare(what, &filter).map_err(|error| failure(&error))?, &answer)
}

/// What is compared where nothing says it: a week.
const COMPARED: Duration = Duration::from_secs(7 * 86_400);

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

fn source(exact: bool) -> Source {
    if exact { Source::Requests } else { Source::Either }
}

pub(super) fn meant(options: FilterOptions) -> Filter {
    let now = SystemTime::now();
    let zone = if options.utc { TimeZone::UTC } else { surroundings::time_zone() };
    let bots = options.bots();
    Filter {
        hosts: options.host,
        statuses: options.status,
        methods: options.method,
        paths: options.path,
        clients: options.client,
        referrers: options.referrer,
        since: options.since.map(|when| when.time(now, &zone)),
        until: options.until.map(|when| when.time(now, &zone)),
        exclude: options.exclude_client.into_iter().chain(options.exclude_networks).collect(),
        bots,
        limit: options.limit,
        zone: zone.into(),
        ..Filter::default()
    }
}

pub(super) fn open(
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

/// Prints an answer, for a terminal as wide as that is, and what must be known of it to standard error.
fn show(answer: &Answer, options: &AnswerOptions) -> Result<(), Failure> {
    answer.notes.iter().for_each(|note| say(note));
    let text = match (options.json, options.csv, surroundings::columns()) {
        (true, _, _) => render::render(answer, Style::Json),
        (_, true, _) => render::render(answer, Style::Csv),
        (_, _, Some(columns)) => render::fit(answer, columns),
        (_, _, None) => render::render(answer, Style::Table),
    };
    print(text.as_bytes())
}
