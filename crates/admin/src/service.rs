//! From a request to its answer: which path, which method, which page asks, how much is read.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use offramp_control::History;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::api;
use crate::caller::Caller;
use crate::desk::Desk;
use crate::grafana::{self, Call};
use crate::origin::Asker;
use crate::refusal::Refusal;
use crate::serve::Mount;

/// The largest body of a request: a dashboard's panel asks with some 2 KiB.
const BODY_BYTES: usize = 1 << 20;
/// How long a body may take.
const BODY: Duration = Duration::from_secs(10);

/// Answers requests.
pub(crate) struct Service {
    desk: Option<Arc<Desk>>,
    history: Option<History>,
    mount: Mount,
}

/// What a path leads to.
enum Found {
    /// What is here, for people.
    Index,
    Grafana(Call),
    /// About the running process.
    Api(api::Call),
    Nothing,
}

impl Service {
    pub(crate) fn new(desk: Option<Desk>, history: Option<History>, mount: Mount) -> Self {
        Self { desk: desk.map(Arc::new), history, mount }
    }

    /// Answers one request; what is wrong with it is said in JSON.
    pub(crate) async fn answer<B>(&self, request: Request<B>, caller: Caller) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let asker = Asker::of(request.headers());
        let found = self.find(request.uri().path());
        let mut response = self.checked(request, (caller, &asker), found).await.unwrap_or_else(|refusal| {
            let body = json!({ "message": refusal.text });
            respond(refusal.status, &body)
        });
        asker.permit(response.headers_mut());
        response
    }

    fn find(&self, path: &str) -> Found {
        let path = path.trim_start_matches('/');
        let inner = match (self.mount, path.split_once('/').unwrap_or((path, ""))) {
            (Mount::Root, _) => path,
            (Mount::Grafana, ("", _)) => return Found::Index,
            // The plugin puts a slash between its URL and a path, even where the URL ends in one.
            (Mount::Grafana, ("grafana", inner)) => inner.trim_start_matches('/'),
            (Mount::Grafana, ("v1", inner)) => {
                return api::Call::of(inner).map_or(Found::Nothing, Found::Api);
            }
            (Mount::Grafana, _) => return Found::Nothing,
        };
        Call::of(inner).map_or(Found::Nothing, Found::Grafana)
    }

    async fn checked<B>(
        &self,
        request: Request<B>,
        (caller, asker): (Caller, &Asker),
        found: Found,
    ) -> Result<Response<Full<Bytes>>, Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if *asker == Asker::Foreign {
            return Err(Refusal {
                status: StatusCode::FORBIDDEN,
                text: "pages of this origin may not read the log: let Grafana's server ask \
                       (Access: Server), or open Grafana by an address of the private network"
                    .to_owned(),
            });
        }
        let (call, method) = match found {
            Found::Nothing => {
                return Err(Refusal { status: StatusCode::NOT_FOUND, text: "nothing is here".to_owned() });
            }
            Found::Api(call) => return self.api(request.method(), caller, call),
            Found::Index => (None, Method::GET),
            Found::Grafana(call) => (Some(call), call.method()),
        };
        if request.method() == Method::OPTIONS {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
            asker.permit_methods(response.headers_mut());
            return Ok(response);
        }
        if *request.method() != method && !(method == Method::GET && request.method() == Method::HEAD) {
            let mut response =
                respond(StatusCode::METHOD_NOT_ALLOWED, &json!({ "message": format!("use {method} here") }));
            allow(response.headers_mut(), &method);
            return Ok(response);
        }
        let Some(call) = call else {
            return Ok(respond(StatusCode::OK, &json!({ "name": "offramp", "grafana": "/grafana/" })));
        };
        let Some(desk) = &self.desk else {
            return Err(Refusal::later("there is no log store: write [log_store] into the configuration"));
        };
        let body = read(request.into_body()).await?;
        let places = desk.knows_places();
        let now = SystemTime::now();
        let answer = desk.ask(move |asking| grafana::answer(call, &body, places, now, asking)).await?;
        Ok(respond(StatusCode::OK, &answer))
    }
}

impl Service {
    /// Answers about the running process, to programs of this machine alone: no page of a browser is permitted.
    fn api(
        &self,
        method: &Method,
        caller: Caller,
        call: api::Call,
    ) -> Result<Response<Full<Bytes>>, Refusal> {
        if let Some(text) = caller.refused() {
            return Err(Refusal { status: StatusCode::FORBIDDEN, text: text.to_owned() });
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = respond(StatusCode::METHOD_NOT_ALLOWED, &json!({ "message": "use GET here" }));
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        let Some(history) = &self.history else {
            return Err(Refusal::later("no configuration is in force here"));
        };
        Ok(respond(StatusCode::OK, &call.answer(history)))
    }
}

async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match timeout(BODY, Limited::new(body, BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            text: format!("the request has more than {BODY_BYTES} bytes"),
        }),
        Ok(Err(_)) => Err(Refusal::wrong("the body of the request could not be read")),
        Err(_) => Err(Refusal {
            status: StatusCode::REQUEST_TIMEOUT,
            text: "the body of the request did not come in time".to_owned(),
        }),
    }
}

fn respond(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn allow(headers: &mut HeaderMap, method: &Method) {
    let allowed = if *method == Method::GET { "GET, HEAD, OPTIONS" } else { "POST, OPTIONS" };
    headers.insert(ALLOW, HeaderValue::from_static(allowed));
}
