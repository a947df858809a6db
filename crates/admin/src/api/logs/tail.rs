//! Requests as they end: the store is asked once a second, and each answer is sent as events.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::Bytes;
use offramp_analytics::{Error, QueryResult, RequestFeed, RequestFilter, SqlValue};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::table;
use crate::api::ProblemDetails;
use crate::api::stream::{self, EventStream};
use crate::query_pool::QueryPool;
use crate::refusal::PlainRefusal;

/// Interval between queries. Writers commit once a second.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Requests sent per round: more in a second cannot be read anyway, and are counted as lost.
const MOST: usize = 200;
/// The rounds without a request after which a comment keeps the stream alive.
const QUIET: u32 = 15;

/// Opens the store, and begins with the latest requests.
pub(super) async fn open(
    queries: Arc<QueryPool>,
    filter: RequestFilter,
    place: OwnedSemaphorePermit,
    closes: Option<watch::Receiver<bool>>,
) -> Result<EventStream, ProblemDetails> {
    let pool = Arc::clone(&queries);
    let first = spawn_blocking(move || -> Result<_, PlainRefusal> {
        let mut feed = RequestFeed::new(pool.questions()?, filter);
        let answer = feed.more(SystemTime::now())?;
        Ok((feed, answer))
    });
    let (feed, answer) =
        first.await.map_err(|_| ProblemDetails::busy("the log store could not be read; try again"))??;
    Ok(stream::open(place, closes, |events| send(queries, feed, answer, events)))
}

/// Sends requests until the client has gone, or the store fails for good.
async fn send(queries: Arc<QueryPool>, mut feed: RequestFeed, first: QueryResult, events: Sender<Bytes>) {
    let mut timer = interval(POLL_INTERVAL);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut answer = Some(first);
    let mut quiet = 0;
    loop {
        timer.tick().await;
        if let Some(answer) = answer.take() {
            quiet = if answer.rows.is_empty() { quiet + 1 } else { 0 };
            let lost = answer.rows.len().saturating_sub(MOST);
            for row in answer.rows.iter().skip(lost) {
                if events.send(stream::event("request", &request(&answer, row))).await.is_err() {
                    return;
                }
            }
            if lost > 0 && events.send(stream::event("lost", &json!({ "lost": lost }))).await.is_err() {
                return;
            }
        }
        if quiet >= QUIET {
            quiet = 0;
            if events.send(stream::COMMENT).await.is_err() {
                return;
            }
        }
        let pool = Arc::clone(&queries);
        let round = spawn_blocking(move || {
            let round = next(&pool, &mut feed);
            (feed, round)
        });
        let Ok((back, round)) = round.await else { return };
        feed = back;
        match round {
            Ok(more) => answer = Some(more),
            // It comes back, or the client gives up.
            Err(Error::Away(_) | Error::Busy(_) | Error::TimedOut) => quiet += 1,
            Err(_) => return,
        }
    }
}

/// One round. A store that is away gets a new connection for the next one.
fn next(queries: &QueryPool, feed: &mut RequestFeed) -> Result<QueryResult, Error> {
    let round = feed.more(SystemTime::now());
    if let Err(Error::Away(_) | Error::Busy(_)) = &round
        && let Ok(questions) = queries.questions()
    {
        feed.reconnect(questions);
    }
    round
}

/// A request as an object.
fn request(answer: &QueryResult, row: &[SqlValue]) -> Value {
    let members = answer.columns.iter().zip(row);
    Value::Object(
        members.map(|(name, value)| (name.clone(), table::cell(name, value))).collect::<Map<_, _>>(),
    )
}
