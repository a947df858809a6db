//! Questions to the log store, with the parameters of `offramp logs`, and the command that asks the same.
//!
//! - `filter`: parameters as a filter of requests, and as words of a command
//! - `table`: an answer in JSON, with the kind of each column
//! - `tail`: requests as they end
//! - `story`: one request, and its steps in time

mod filter;
mod story;
mod table;
mod tail;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use offramp_analytics::question::SlowBy;
use offramp_analytics::questions::{DETAILS, IdSearch, NEAR};
use offramp_analytics::{Error, QueryResult, Questions, RequestFilter, TimeStep, Top, when};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::query::{Parameter, ParameterKind, QueryParameters};
use super::stream::EventStream;
use super::{Control, ProblemDetails};
use crate::query_pool::QueryPool;
use crate::why::UrlSubject;
use filter::{ANSWER, FILTER, filter};

/// The lists of the log store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogList {
    Top,
    Traffic,
    Visitors,
    Compare,
    Search,
    Requests,
}

const BY: Parameter = Parameter {
    name: "by",
    kind: ParameterKind::Words(&["requests", "bytes"]),
    doc: "The figure that orders the list; by default requests",
};
const EXACT: Parameter = Parameter {
    name: "exact",
    kind: ParameterKind::Flag,
    doc: "Count each request instead of using sums by the hour, which leave out rare items",
};
const INTERVAL: Parameter = Parameter {
    name: "interval",
    kind: ParameterKind::Step,
    doc: "The length of an interval: 5m, 1h, or a calendar day, week or month",
};

/// The parameters of each list.
pub(super) static TOP: [Parameter; 4 + FILTER.len() + 1] = joined([
    Parameter {
        name: "what",
        kind: ParameterKind::Words(&[
            "pages",
            "referrers",
            "hosts",
            "clients",
            "status",
            "agents",
            "networks",
            "countries",
            "cities",
            "slow",
            "errors",
        ]),
        doc: "The items of the list; by default pages",
    },
    BY,
    Parameter {
        name: "per",
        kind: ParameterKind::Words(&["page", "server"]),
        doc: "Group slow requests by page or server; by default page",
    },
    EXACT,
]);
pub(super) static TRAFFIC: [Parameter; 2 + FILTER.len() + 1] =
    joined([INTERVAL, Parameter { name: "by_host", kind: ParameterKind::Flag, doc: "One row per host" }]);
pub(super) static VISITORS: [Parameter; 1 + FILTER.len() + 1] = joined([INTERVAL]);
pub(super) static COMPARE: [Parameter; 3 + FILTER.len() + 1] = joined([
    Parameter {
        name: "what",
        kind: ParameterKind::Words(&[
            "pages",
            "referrers",
            "hosts",
            "clients",
            "status",
            "agents",
            "networks",
        ]),
        doc: "What to compare; without it, the totals",
    },
    BY,
    EXACT,
]);
pub(super) static SEARCH: [Parameter; 1 + FILTER.len() + 1] = joined([Parameter {
    name: "text",
    kind: ParameterKind::Text,
    doc: "The text to find in path, query, referrer or agent",
}]);
pub(super) static REQUESTS: [Parameter; FILTER.len() + 1] = joined([]);
pub(super) static TAIL: [Parameter; FILTER.len()] = FILTER;

/// Own parameters of a list, followed by those of all.
const fn joined<const OWN: usize, const ALL: usize>(own: [Parameter; OWN]) -> [Parameter; ALL] {
    let mut all = [ANSWER; ALL];
    let mut at = 0;
    while at < OWN {
        all[at] = own[at];
        at += 1;
    }
    while at < OWN + FILTER.len() {
        all[at] = FILTER[at - OWN];
        at += 1;
    }
    all
}

/// The longest answer of lists by time: four years of days, or a day of minutes.
const MOST_STEPS: usize = 1500;
/// The period that `compare` compares by default, as the command does.
const COMPARED: Duration = Duration::from_secs(7 * 86_400);

/// The time from which requests are taken where the question does not say.
const LATELY: Duration = Duration::from_secs(3600);

/// Answers a question with a list.
pub(super) async fn answer(
    control: &Control,
    list: LogList,
    query: &QueryParameters,
) -> Result<Value, ProblemDetails> {
    let queries = store(control)?;
    let command = filter::command(list, query);
    let question = Question::of(list, query)?;
    let found = queries.ask(move |session| session.ask(|questions| question.ask(questions))).await?;
    Ok(table::table(&found, &command))
}

/// The stored request with this id, and its story.
pub(super) async fn request(control: &Control, id: &str, search: IdSearch) -> Result<Value, ProblemDetails> {
    let (queries, asked) = (store(control)?, id.to_owned());
    let found =
        queries.ask(move |session| session.ask(|questions| questions.request(&asked, search))).await?;
    story::request(&found).ok_or_else(|| match search {
        IdSearch::Near => ProblemDetails::new(
            StatusCode::NOT_FOUND,
            format!("there is no request `{id}` among the {NEAR} stored ones near it; --since 7d has all of a week read"),
        ),
        _ => ProblemDetails::unknown("stored request", id, []),
    })
}

/// The search for a request that `since` asks for: without it, one that is over soon.
pub(super) fn search(query: &QueryParameters) -> Result<IdSearch, ProblemDetails> {
    Ok(filter(query)?.since.map_or(IdSearch::Near, IdSearch::Since))
}

/// The newest requests that the parameters `host`, `client` and `since` select, an object each; `since` is an hour ago by
/// default.
pub(super) async fn newest(
    control: &Control,
    query: &QueryParameters,
    columns: &'static [&'static str],
    most: usize,
) -> Result<Vec<Value>, ProblemDetails> {
    let filter = filter(query)?;
    latest(store(control)?, filter, columns, most).await
}

/// The newest requests for a host and a path from `since` on, as [`newest`]; `None` without a log store.
pub(super) async fn newest_of(
    control: &Control,
    since: &QueryParameters,
    subject: UrlSubject,
    columns: &'static [&'static str],
    most: usize,
) -> Option<Result<Vec<Value>, ProblemDetails>> {
    let queries = control.queries.clone()?;
    let filter = filter(since).map(|filter| RequestFilter {
        hosts: vec![subject.host],
        paths: vec![subject.path],
        since: filter.since,
        ..RequestFilter::default()
    });
    match filter {
        Ok(filter) => Some(latest(queries, filter, columns, most).await),
        Err(problem) => Some(Err(problem)),
    }
}

async fn latest(
    queries: Arc<QueryPool>,
    mut filter: RequestFilter,
    columns: &'static [&'static str],
    most: usize,
) -> Result<Vec<Value>, ProblemDetails> {
    filter.since = filter.since.or_else(|| SystemTime::now().checked_sub(LATELY));
    filter.limit = Some(most);
    let found = queries.ask(move |session| session.ask(|questions| questions.found(None, columns, &filter)));
    Ok(table::objects(&found.await?))
}

/// Streams requests as they end.
pub(super) async fn tail(
    control: &Control,
    query: &QueryParameters,
    place: OwnedSemaphorePermit,
) -> Result<EventStream, ProblemDetails> {
    let queries = store(control)?;
    tail::open(queries, filter(query)?, place, control.closes.clone()).await
}

fn store(control: &Control) -> Result<Arc<QueryPool>, ProblemDetails> {
    control.queries.clone().ok_or_else(|| {
        let why = "there is no log store: write [log_store] into the configuration";
        ProblemDetails::new(StatusCode::NOT_FOUND, why)
    })
}

/// A question with everything that it depends on.
struct Question {
    list: LogList,
    what: Option<String>,
    per: SlowBy,
    interval: Option<TimeStep>,
    by_host: bool,
    text: Option<String>,
    filter: RequestFilter,
}

impl Question {
    fn of(list: LogList, query: &QueryParameters) -> Result<Self, ProblemDetails> {
        let what = query.text("what").map(str::to_owned);
        if query.text("per").is_some() && what.as_deref() != Some("slow") {
            return Err(ProblemDetails::wrong("`per` belongs to `what=slow`"));
        }
        if list == LogList::Search && query.text("text").is_none() {
            return Err(ProblemDetails::wrong("`text` is missing: the text to find"));
        }
        let mut filter = filter(query)?;
        if matches!(list, LogList::Traffic | LogList::Visitors) {
            filter.limit = Some(filter.limit.map_or(MOST_STEPS, |limit| limit.min(MOST_STEPS)));
        }
        if list == LogList::Compare {
            let until = *filter.until.get_or_insert_with(SystemTime::now);
            filter.since.get_or_insert(until.checked_sub(COMPARED).unwrap_or(SystemTime::UNIX_EPOCH));
        }
        Ok(Self {
            list,
            what,
            per: if query.text("per") == Some("server") { SlowBy::Server } else { SlowBy::Page },
            interval: query.text("interval").and_then(|text| when::step(text).ok()),
            by_host: query.flag("by_host"),
            text: query.text("text").map(str::to_owned),
            filter,
        })
    }

    fn ask(&self, questions: &mut Questions) -> Result<QueryResult, Error> {
        let Self { filter, what, .. } = self;
        let what = what.as_deref();
        let top = what.and_then(|what| Top::ALL.into_iter().find(|top| top.name() == what));
        match self.list {
            LogList::Top if what == Some("slow") => questions.slow(self.per, filter),
            LogList::Top if what == Some("errors") => questions.errors(filter),
            LogList::Top => questions.top(top.unwrap_or(Top::Pages), filter),
            LogList::Traffic => {
                let step = self.interval.map_or_else(|| questions.step_for(filter), Ok)?;
                questions.traffic(step, self.by_host, filter)
            }
            LogList::Visitors => questions.visitors(self.interval.unwrap_or(TimeStep::Day), filter),
            LogList::Compare => questions.compare(top, filter),
            LogList::Search | LogList::Requests => questions.found(self.text.as_deref(), &DETAILS, filter),
        }
    }
}
