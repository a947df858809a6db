//! Responses of the demo by path.

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::filler::Filler;
use super::page;
use super::seen::Seen;

type Answer = Response<BoxBody<Bytes, hyper::Error>>;

/// Responds to a request; `seen` describes the client.
pub(crate) fn answer(seen: &Seen, request: Request<Incoming>) -> Answer {
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/" if get => with_policy(text(StatusCode::OK, HTML, page::page(seen, &request))),
        "/hello" if get => text(StatusCode::OK, TEXT, "Hello from behind Offramp.\n"),
        "/large" if get => large(request.uri().query().unwrap_or_default()),
        "/echo" if *request.method() == Method::POST => echo(request),
        "/" | "/hello" | "/large" => not_allowed("GET, HEAD"),
        "/echo" => not_allowed("POST"),
        _ => text(StatusCode::NOT_FOUND, TEXT, "There is /, /hello, /large?bytes=N and POST /echo.\n"),
    }
}

/// Streams the request body back.
fn echo(request: Request<Incoming>) -> Answer {
    let kind = request.headers().get(CONTENT_TYPE).cloned();
    let mut answer = Response::new(request.into_body().boxed());
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn large(query: &str) -> Answer {
    let bytes = query.split('&').find_map(|pair| pair.strip_prefix("bytes="));
    match bytes.map_or(Some(DEFAULT_LENGTH), |bytes| bytes.parse().ok()).filter(|bytes| *bytes <= MAX_LENGTH)
    {
        Some(length) => {
            let mut answer = Response::new(Filler::new(length).boxed());
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
            answer
        }
        None => text(StatusCode::BAD_REQUEST, TEXT, "bytes is a number up to 1099511627776.\n"),
    }
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("This takes {allowed}.\n"));
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Forbids scripts: the page shows what the client sent, and must be harmless even if escaping fails.
fn with_policy(mut answer: Answer) -> Answer {
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";

/// Default length of `/large`, in bytes.
const DEFAULT_LENGTH: u64 = 1 << 20;

/// Maximum length of `/large`, in bytes.
const MAX_LENGTH: u64 = 1 << 40;
