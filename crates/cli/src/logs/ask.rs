//! Queries to the log store, and the output of their answers.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use offramp_analytics::question::DataSource;
use offramp_analytics::questions::SHOWN;
use offramp_analytics::render::{self, Style};
use offramp_analytics::{QueryResult, QuerySettings, Questions, RequestFilter};

use crate::failure::Failure;
use crate::flags::logs::{
    AnswerOptions, Compare, FilterOptions, LogsTop, Query, Search, StoreOptions, TopSubject, Traffic,
    Visitors,
};
use crate::log_store::StoreTarget;
use crate::surroundings::{self, print, say};

pub(super) fn top(arguments: LogsTop) -> Result<(), Failure> {
    let LogsTop { what, by, per, exact, geoip, filter, answer, store } = arguments;
    if per.is_some() && what != TopSubject::Slow {
        return Err(Failure::usage("error: --per belongs to `logs top slow`"));
    }
    let filter = RequestFilter { order: by.into(), source: source(exact), ..filter_of(filter) };
    let mut questions = open(store, answer.time_limit, None, geoip)?;
    let found = match what {
        TopSubject::Heaviest(top) => questions.top(top, &filter),
        TopSubject::Slow => questions.slow(per.map(Into::into).unwrap_or_default(), &filter),
        TopSubject::Errors => questions.errors(&filter),
    };
    show(&found.map_err(|error| Failure::of_store(&error))?, &answer)
}

pub(super) fn traffic(arguments: Traffic) -> Result<(), Failure> {
    let Traffic { interval, by_host, filter, answer, store } = arguments;
    let filter = filter_of(filter);
    let mut questions = open(store, answer.time_limit, None, None)?;
    let step = interval
        .map_or_else(|| questions.step_for(&filter), Ok)
        .map_err(|error| Failure::of_store(&error))?;
    show(&questions.traffic(step, by_host, &filter).map_err(|error| Failure::of_store(&error))?, &answer)
}

pub(super) fn visitors(arguments: Visitors) -> Result<(), Failure> {
    let Visitors { interval, filter, answer, store } = arguments;
    let mut questions = open(store, answer.time_limit, None, None)?;
    show(
        &questions.visitors(interval, &filter_of(filter)).map_err(|error| Failure::of_store(&error))?,
        &answer,
    )
}

pub(super) fn compare(arguments: Compare) -> Result<(), Failure> {
    let Compare { what, by, exact, filter, answer, store } = arguments;
    let now = SystemTime::now();
    let mut filter = RequestFilter { order: by.into(), source: source(exact), ..filter_of(filter) };
    let until = *filter.until.get_or_insert(now);
    filter.since.get_or_insert(until.checked_sub(COMPARED).unwrap_or(SystemTime::UNIX_EPOCH));
    let mut questions = open(store, answer.time_limit, None, None)?;
    show(&questions.compare(what, &filter).map_err(|error| Failure::of_store(&error))?, &answer)
}

/// Default period of `logs compare`: a week.
const COMPARED: Duration = Duration::from_secs(7 * 86_400);

pub(super) fn search(arguments: Search) -> Result<(), Failure> {
    let Search { text, filter, answer, store } = arguments;
    let mut questions = open(store, answer.time_limit, None, None)?;
    let found = questions.found(text.as_deref(), &SHOWN, &filter_of(filter));
    show(&found.map_err(|error| Failure::of_store(&error))?, &answer)
}

pub(super) fn query(arguments: Query) -> Result<(), Failure> {
    let Query { sql, limit, answer, store } = arguments;
    let mut questions = open(store, answer.time_limit, Some(limit), None)?;
    show(&questions.sql(&sql).map_err(|error| Failure::of_store(&error))?, &answer)
}

fn source(exact: bool) -> DataSource {
    if exact { DataSource::Requests } else { DataSource::Either }
}

pub(super) fn filter_of(options: FilterOptions) -> RequestFilter {
    let now = SystemTime::now();
    let zone = if options.utc { TimeZone::UTC } else { surroundings::time_zone() };
    let bots = options.bots();
    RequestFilter {
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
        ..RequestFilter::default()
    }
}

/// Opens a store for questions.
///
/// # Errors
/// There is no store, or it cannot be read.
pub(crate) fn open(
    store: StoreOptions,
    time_limit: Duration,
    most_rows: Option<usize>,
    geoip: Option<PathBuf>,
) -> Result<Questions, Failure> {
    let place = StoreTarget::find(store)?;
    let defaults = QuerySettings::default();
    let settings = QuerySettings {
        time_limit,
        most_rows: most_rows.unwrap_or(defaults.most_rows),
        geoip: geoip.or(place.geoip),
    };
    Questions::open(&place.url, &settings).map_err(|error| Failure::of_store(&error))
}

/// Prints an answer, as wide as the terminal at most; its notes go to standard error.
fn show(answer: &QueryResult, options: &AnswerOptions) -> Result<(), Failure> {
    answer.notes.iter().for_each(|note| say(note));
    let text = match (options.json, options.csv, surroundings::columns()) {
        (true, _, _) => render::render(answer, Style::Json),
        (_, true, _) => render::render(answer, Style::Csv),
        (_, _, Some(columns)) => render::fit(answer, columns),
        (_, _, None) => render::render(answer, Style::Table),
    };
    print(text.as_bytes())
}
