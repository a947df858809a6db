//! The API about the running process: what is asked, and which answer it gets.
//!
//! | question | module |
//! | --- | --- |
//! | which path and method is what? | `operations`, from which the OpenAPI document (`openapi`) follows |
//! | what may stand behind the `?`? | `query` |
//! | what does the process tell of itself? | `read` |
//! | what does it change? | `change`: a request to `control`, and nothing else |
//! | what happens meanwhile? | `events` |
//! | which connections are open, and how are some closed? | `connections` |
//! | how does a configuration look in JSON? | `document` |
//! | what is in a body in JSON? | `json` |
//! | why was something refused? | `problem` |

mod change;
mod connections;
mod document;
mod events;
mod json;
mod openapi;
mod operations;
mod problem;
mod query;
mod read;

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

pub(crate) use events::Events;
pub(crate) use operations::{Body, Found, Operation, find, nothing_at};
pub(crate) use problem::Problem;
use query::Query;
use read::Read;

/// The running process.
#[derive(Clone)]
pub struct Control {
    /// Changes it.
    handle: Handle,
    /// Shows it.
    view: View,
    /// Places of those that watch what happens.
    watchers: Arc<Semaphore>,
    /// What they are told.
    record: events::Record,
    /// Turns true when they have to end.
    closes: Option<watch::Receiver<bool>>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// What an operation is asked.
pub(crate) struct Asked<'a> {
    pub(crate) operation: &'static Operation,
    /// What the path has in the places of its parameters, in their order.
    pub(crate) names: Vec<String>,
    /// What stands behind the `?`.
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) by: Requester,
}

/// An answer that is no refusal.
pub(crate) enum Answer {
    /// A document.
    Json(Value),
    /// What came of a change, and the version that is in force afterwards.
    Changed(Value, u64),
    /// A configuration as its file has it.
    Toml(String),
    /// Something was begun.
    Accepted(Value),
    /// What happens from now on.
    Events(Box<Events>),
}

/// The body of an answer.
pub(crate) type Reply = Either<Full<Bytes>, Events>;

impl Control {
    /// A process that is changed by `handle`, and shown by `view`.
    #[must_use]
    pub fn new(handle: Handle, view: View) -> Self {
        Self { handle, view, watchers: events::places(), record: events::Record::default(), closes: None }
    }

    /// Whoever watches is told of the end when this turns true.
    pub(crate) fn until(self, closes: watch::Receiver<bool>) -> Self {
        Self { closes: Some(closes), ..self }
    }

    /// Does what is asked.
    pub(crate) async fn answer(&self, asked: Asked<'_>) -> Result<Response<Reply>, Problem> {
        let query = Query::read(asked.query, asked.operation.query)?;
        // The tag of what is read may be older than that, and never newer: a change with it is refused rather than made to
        // what its author has not seen.
        let mut version = self.view.in_force().version;
        let answer = match asked.operation.call {
            operations::Call::Read(Read::Connections) => Answer::Json(connections::page(self, &query).await?),
            operations::Call::Read(Read::Connection) => Answer::Json(connections::one(self, &asked).await?),
            operations::Call::Read(what) => read::answer(self, what, &asked, &query)?,
            operations::Call::Change(what) => change::answer(self, what, &asked, &query).await?,
        };
        let (status, kind, text) = match answer {
            Answer::Json(value) => (StatusCode::OK, JSON, value.to_string()),
            Answer::Changed(value, changed) => {
                version = changed;
                (StatusCode::OK, JSON, value.to_string())
            }
            Answer::Toml(text) => (StatusCode::OK, TOML, text),
            Answer::Accepted(value) => (StatusCode::ACCEPTED, JSON, value.to_string()),
            Answer::Events(events) => {
                let response = respond(StatusCode::OK, "text/event-stream", String::new());
                return Ok(response.map(|_| Either::Right(*events)));
            }
        };
        let mut response = respond(status, kind, text).map(Either::Left);
        if let Ok(tag) = HeaderValue::from_str(&self.tag(version)) {
            response.headers_mut().insert(ETAG, tag);
        }
        Ok(response)
    }

    /// The entity tag of a configuration: its version, and the start of the process, as versions begin anew with it.
    fn tag(&self, version: u64) -> String {
        format!("\"{:x}-{version}\"", self.start())
    }

    fn start(&self) -> u128 {
        let began = self.view.figures().counters.began();
        began.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
    }

    /// The version that the client expects, by its `If-Match` (RFC 9110 §13.1.1); 0, which never is, for that of another
    /// process.
    fn expected(&self, headers: &HeaderMap) -> Result<Option<u64>, Problem> {
        let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(None);
        }
        let tag = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let parts = tag.and_then(|tag| tag.split_once('-'));
        let Some((start, version)) = parts else {
            return Err(Problem::wrong("If-Match takes one tag as an ETag has it, such as \"18c9-7\", or *"));
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
