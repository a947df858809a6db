//! The API about the running process.
//!
//! - `operations`: the table of paths and methods, from which `openapi` derives the OpenAPI document
//! - `query`: parameters behind the `?`
//! - `read`: the state of the process
//! - `change`: requests to `control`, and nothing else
//! - `events`: streams of events
//! - `connections`: lists of open connections, and closing some
//! - `document`: configurations in JSON
//! - `ask`: questions that wait: `figures`, `logs`, `check`, `renew`, `notify`, `why`; `stream`, the streams of tasks
//! - `problem`: refusals

mod ask;
mod change;
mod check;
mod connections;
mod document;
mod events;
mod figures;
mod logs;
mod notify;
mod openapi;
mod operations;
mod problem;
mod query;
mod read;
mod renew;
mod stream;
mod why;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_MATCH};
use hyper::{Response, StatusCode};
use offramp_control::{Handle, Requester, View};
use offramp_observe::timestamp::rfc3339_micros;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use crate::query_pool::QueryPool;
pub(crate) use operations::{Body, Operation, RoutedPath, find, nothing_at};
pub use problem::ProblemDetails;
use query::QueryParameters;
use read::ReadOperation;
use stream::EventStream;

/// Access to the running process.
#[derive(Clone)]
pub struct Control {
    /// The sender of change requests.
    handle: Handle,
    /// The readable state of the process.
    view: View,
    /// Limits the number of event streams.
    watchers: Arc<Semaphore>,
    /// The event history that streams share.
    record: events::EventHistory,
    /// Turns true when streams have to end.
    closes: Option<watch::Receiver<bool>>,
    /// The readings that streams of figures share.
    figures: figures::FigureSource,
    /// Limits the number of streams of requests: each asks the store once a second.
    tails: Arc<Semaphore>,
    /// Limits the number of texts that are checked at a time.
    trials: Arc<Semaphore>,
    /// The log store.
    queries: Option<Arc<QueryPool>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// A request for one operation.
pub(crate) struct OperationRequest<'a> {
    pub(crate) operation: &'static Operation,
    /// The values of the path's parameters in order.
    pub(crate) names: Vec<String>,
    /// The part behind the `?`.
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) by: Requester,
}

/// The successful result of an operation.
pub(crate) enum OperationResult {
    Json(Value),
    /// The outcome of a change, and the version in force after it.
    Changed(Value, u64),
    /// A configuration in TOML.
    Toml(String),
    /// An operation that was started.
    Accepted(Value),
    /// A stream of events from now on.
    Stream(EventStream),
}

/// The body of a response.
pub(crate) type Reply = Either<Full<Bytes>, EventStream>;

impl Control {
    /// Access by `handle` for changes, and by `view` for reading.
    #[must_use]
    pub fn new(handle: Handle, view: View) -> Self {
        Self {
            handle,
            view,
            watchers: events::places(),
            record: events::EventHistory::default(),
            closes: None,
            figures: figures::FigureSource::default(),
            tails: Arc::new(Semaphore::new(4)),
            trials: Arc::new(Semaphore::new(2)),
            queries: None,
        }
    }

    /// Answers questions to this log store, too.
    pub(crate) fn with_store(self, queries: Option<Arc<QueryPool>>) -> Self {
        Self { queries, ..self }
    }

    /// Ends event streams when this turns true.
    pub(crate) fn until(self, closes: watch::Receiver<bool>) -> Self {
        Self { closes: Some(closes), ..self }
    }

    pub(crate) async fn answer(
        &self,
        asked: OperationRequest<'_>,
    ) -> Result<Response<Reply>, ProblemDetails> {
        let query = QueryParameters::read(asked.query, asked.operation.query)?;
        // Read before the content, so the tag may be older than it but never newer: a change with this tag is
        // refused rather than applied to a state that its author has not seen.
        let mut version = self.view.in_force().version;
        let answer = match asked.operation.call {
            operations::OperationCall::Read(ReadOperation::Connections) => {
                OperationResult::Json(connections::page(self, &query).await?)
            }
            operations::OperationCall::Read(ReadOperation::Connection) => {
                OperationResult::Json(connections::one(self, &asked).await?)
            }
            operations::OperationCall::Read(what) => read::answer(self, what, &asked, &query)?,
            operations::OperationCall::Ask(what) => ask::answer(self, what, &asked, &query).await?,
            operations::OperationCall::Change(what) => change::answer(self, what, &asked, &query).await?,
        };
        let (status, kind, text) = match answer {
            OperationResult::Json(value) => (StatusCode::OK, JSON, value.to_string()),
            OperationResult::Changed(value, changed) => {
                version = changed;
                (StatusCode::OK, JSON, value.to_string())
            }
            OperationResult::Toml(text) => (StatusCode::OK, TOML, text),
            OperationResult::Accepted(value) => (StatusCode::ACCEPTED, JSON, value.to_string()),
            OperationResult::Stream(events) => {
                let response = respond(StatusCode::OK, "text/event-stream", String::new());
                return Ok(response.map(|_| Either::Right(events)));
            }
        };
        let mut response = respond(status, kind, text).map(Either::Left);
        if let Ok(tag) = HeaderValue::from_str(&self.tag(version)) {
            response.headers_mut().insert(ETAG, tag);
        }
        Ok(response)
    }

    /// The entity tag of a configuration: its version and the start of the process, since versions restart
    /// with it.
    fn tag(&self, version: u64) -> String {
        format!("\"{:x}-{version}\"", self.start())
    }

    fn start(&self) -> u128 {
        let began = self.view.figures().counters.began();
        began.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
    }

    /// The version in `If-Match` (RFC 9110 §13.1.1); 0, which never exists, for a tag of another process.
    fn expected(&self, headers: &HeaderMap) -> Result<Option<u64>, ProblemDetails> {
        let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(None);
        }
        let tag = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let parts = tag.and_then(|tag| tag.split_once('-'));
        let Some((start, version)) = parts else {
            return Err(ProblemDetails::wrong(
                "If-Match takes one tag as an ETag has it, such as \"18c9-7\", or *",
            ));
        };
        let same = start == format!("{:x}", self.start());
        Ok(Some(version.parse().ok().filter(|_| same).unwrap_or(0)))
    }
}

pub(crate) fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn time(at: SystemTime) -> String {
    String::from_utf8_lossy(&rfc3339_micros(at)).into_owned()
}

const JSON: &str = "application/json";
const TOML: &str = "application/toml";
