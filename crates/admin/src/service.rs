//! From a request to its answer: which path, which method, which page asks, how much is read.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use offramp_control::Requester;
use offramp_observe::panics;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::api::{self, Asked, Control, Problem, Reply};
use crate::caller::{Admission, Caller};
use crate::desk::Desk;
use crate::grafana::{self, Call};
use crate::origin::Asker;
use crate::places::Exchange;
use crate::refusal::Refusal;
use crate::serve::Mount;

/// The largest body of a request: a dashboard's panel asks with some 2 KiB.
const BODY_BYTES: usize = 1 << 20;
/// The largest configuration that is sent: one of a hundred thousand routes.
const DOCUMENT_BYTES: usize = 16 << 20;
/// What is read of a body that should not be there. Many clients send an empty object where they have nothing to send.
const NO_BODY_BYTES: usize = 64;
/// How long a body may take.
const BODY: Duration = Duration::from_secs(10);
/// So much that has come gives a body another second: the largest one has 74 s, over a line of 2 Mbit/s.
const BODY_STEP: usize = 256 << 10;

/// Answers requests.
pub(crate) struct Service {
    desk: Option<Arc<Desk>>,
    control: Option<Control>,
    token: Option<Arc<str>>,
    mount: Mount,
}

/// What a path leads to.
enum Found {
    /// What is here, for people.
    Index,
    Grafana(Call),
    Nothing,
}

impl Service {
    pub(crate) fn new(
        desk: Option<Desk>,
        control: Option<Control>,
        token: Option<Arc<str>>,
        mount: Mount,
    ) -> Self {
        Self { desk: desk.map(Arc::new), control, token, mount }
    }

    /// Answers one request; what is wrong with it is said in JSON. So is a panic, which the log explains.
    pub(crate) async fn answer<B>(
        &self,
        request: Request<B>,
        caller: Caller,
        exchange: &Exchange,
    ) -> Response<Reply>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        panics::caught(self.served(request, caller, exchange)).await.unwrap_or_else(|_| {
            let detail = "a fault of Offramp's own; its log has the reason";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).response().map(Either::Left)
        })
    }

    async fn served<B>(&self, request: Request<B>, caller: Caller, exchange: &Exchange) -> Response<Reply>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let asker = Asker::of(request.headers());
        if self.mount == Mount::Grafana && is_of_api(request.uri().path()) {
            // To programs alone: no page of a browser may read it.
            let answer = if asker == Asker::Program {
                self.api(request, caller, exchange).await
            } else {
                Err(Problem::new(StatusCode::FORBIDDEN, "no page of a browser may use this"))
            };
            return answer.unwrap_or_else(|problem| problem.response().map(Either::Left));
        }
        match self.admit(request.headers(), caller) {
            Ok(_) => exchange.admitted(),
            // Others than the clients of this machine read the log with the token alone.
            Err(problem) if matches!(caller, Caller::Encrypted(_)) && request.method() != Method::OPTIONS => {
                return problem.response().map(Either::Left);
            }
            Err(_) => {}
        }
        let found = self.find(request.uri().path());
        let mut response = self.checked(request, &asker, found, exchange).await.unwrap_or_else(|refusal| {
            let body = json!({ "message": refusal.text });
            respond(refusal.status, &body)
        });
        asker.permit(response.headers_mut());
        response.map(Either::Left)
    }

    fn find(&self, path: &str) -> Found {
        let path = path.trim_start_matches('/');
        let inner = match (self.mount, path.split_once('/').unwrap_or((path, ""))) {
            (Mount::Root, _) => path,
            (Mount::Grafana, ("", _)) => return Found::Index,
            // The plugin puts a slash between its URL and a path, even where the URL ends in one.
            (Mount::Grafana, ("grafana", inner)) => inner.trim_start_matches('/'),
            (Mount::Grafana, _) => return Found::Nothing,
        };
        Call::of(inner).map_or(Found::Nothing, Found::Grafana)
    }

    async fn checked<B>(
        &self,
        request: Request<B>,
        asker: &Asker,
        found: Found,
        exchange: &Exchange,
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
            return Ok(respond(
                StatusCode::OK,
                &json!({ "name": "offramp", "grafana": "/grafana/", "api": "/v1/openapi.json" }),
            ));
        };
        let Some(desk) = &self.desk else {
            return Err(Refusal::later("there is no log store: write [log_store] into the configuration"));
        };
        let body = read(request.into_body(), BODY_BYTES).await?;
        exchange.complete();
        let places = desk.knows_places();
        let now = SystemTime::now();
        let answer = desk.ask(move |asking| grafana::answer(call, &body, places, now, asking)).await?;
        Ok(respond(StatusCode::OK, &answer))
    }
}

impl Service {
    /// By which name a caller may use everything, or why not.
    fn admit(&self, headers: &HeaderMap, caller: Caller) -> Result<Requester, Problem> {
        let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let shown = shown.and_then(bearer);
        match caller.admit(shown, self.token.as_deref()) {
            Admission::Granted(by) => Ok(by),
            Admission::Denied(why) => Err(Problem::new(StatusCode::FORBIDDEN, why)),
            Admission::TokenNeeded { wrong } => Err(Problem::token(wrong)),
        }
    }

    /// Answers about the running process, and has it changed.
    async fn api<B>(
        &self,
        request: Request<B>,
        caller: Caller,
        exchange: &Exchange,
    ) -> Result<Response<Reply>, Problem>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let by = self.admit(request.headers(), caller)?;
        exchange.admitted();
        let Some(control) = &self.control else {
            let why = "no configuration is in force here";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let (head, body) = request.into_parts();
        let path = head.uri.path().strip_prefix("/v1").unwrap_or_default();
        let (operation, names) = match api::find(&head.method, path) {
            api::Found::Operation(operation, names) => (operation, names),
            api::Found::OtherMethod(allowed) => return Err(Problem::method(&allowed)),
            api::Found::Nothing => return Err(api::nothing_at(path)),
        };
        let most = match operation.body {
            api::Body::None => NO_BODY_BYTES,
            api::Body::Toml => DOCUMENT_BYTES,
            api::Body::Item | api::Body::Json(_) => BODY_BYTES,
        };
        let body = match read(body, most).await {
            Ok(body) if operation.body == api::Body::None && !is_nothing(&body) => {
                Err(unwanted(&head.method, head.uri.path()))
            }
            Err(refusal)
                if operation.body == api::Body::None && refusal.status == StatusCode::PAYLOAD_TOO_LARGE =>
            {
                Err(unwanted(&head.method, head.uri.path()))
            }
            other => other.map_err(Problem::from),
        }?;
        exchange.complete();
        let query = head.uri.query();
        control.answer(Asked { operation, names, query, headers: &head.headers, body, by }).await
    }
}

/// Whether a path is of the API about the running process.
fn is_of_api(path: &str) -> bool {
    path.strip_prefix("/v1").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

async fn read<B>(body: B, most: usize) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = pin!(Limited::new(body, most));
    let (began, mut all) = (Instant::now(), Vec::new());
    loop {
        match timeout_at(began + time_for(all.len()), body.frame()).await {
            Ok(Some(Ok(frame))) => all.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Ok(None) => return Ok(all.into()),
            Ok(Some(Err(error))) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(Refusal {
                    status: StatusCode::PAYLOAD_TOO_LARGE,
                    text: format!("the request has more than {most} bytes"),
                });
            }
            Ok(Some(Err(_))) => return Err(Refusal::wrong("the body of the request could not be read")),
            Err(_) => {
                return Err(Refusal {
                    status: StatusCode::REQUEST_TIMEOUT,
                    text: format!(
                        "the body of the request did not come in time: it has {} s, and another second for each {} KiB",
                        BODY.as_secs(),
                        BODY_STEP >> 10
                    ),
                });
            }
        }
    }
}

/// How long a body may take of which so much has come.
fn time_for(received: usize) -> Duration {
    BODY + Duration::from_secs(u64::try_from(received / BODY_STEP).unwrap_or(u64::MAX))
}

/// Whether a body says nothing: it is empty, or an empty object.
fn is_nothing(body: &[u8]) -> bool {
    let text: Vec<u8> = body.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    text.is_empty() || text == b"{}"
}

fn unwanted(method: &Method, path: &str) -> Problem {
    Problem::wrong(format!("{method} {path} takes no body; leave it out"))
}

/// The token of credentials whose scheme is Bearer in whatever case (RFC 9110 §11.1).
fn bearer(credentials: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = credentials.split_at_checked(b"Bearer".len())?;
    let token = rest.trim_ascii_start();
    (scheme.eq_ignore_ascii_case(b"Bearer") && token.len() < rest.len()).then_some(token)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_bearer_in_whatever_case() {
        for text in ["Bearer secret", "bearer secret", "BEARER   secret"] {
            assert_eq!(bearer(text.as_bytes()), Some(&b"secret"[..]), "{text}");
        }
        for text in ["", "Bearer", "Bearersecret", "Basic secret", "secret"] {
            assert_eq!(bearer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_large_body_has_more_time_as_it_comes() {
        let seconds =
            [0, BODY_STEP - 1, BODY_STEP, DOCUMENT_BYTES].map(|received| time_for(received).as_secs());
        assert_eq!(seconds, [10, 10, 11, 74]);
    }

    #[test]
    fn an_empty_object_is_nothing() {
        assert!([&b""[..], b" ", b"{}", b" { }\n"].into_iter().all(is_nothing));
        assert!(![&b"[]"[..], b"{\"force\":true}", b"null"].into_iter().any(is_nothing));
    }
}
