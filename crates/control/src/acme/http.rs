//! Requests to an authority's API, bounded in time and size.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use offramp_certs::client_auth::load_roots;
use offramp_config::model::AcmeAuthority;
use offramp_sources::web::{Unanswered, Web};
use serde_json::Value;
use tokio::time::timeout;

use super::pause::{Pause, Scope};
use super::repair::repaired;

/// For a request and its whole response.
const LIMIT: Duration = Duration::from_secs(60);
/// The largest response: chains of certificates are a few kilobytes.
const MOST: usize = 1 << 20;
/// The longest wait that an authority's `Retry-After` is read as. The library that speaks ACME adds the number to the
/// clock, and panics where that is beyond the end of time.
const LONGEST_WAIT: u64 = 30 * 24 * 3600;
/// The `Retry-After` of an authority that gives advice without one: six hours. The library wants it, the authority need not
/// send it (RFC 9773 section 4.3). Advice is the only thing with such a field that is got by GET.
const UNSAID: u64 = 6 * 3600;
/// The namespace of problems (RFC 8555 section 6.7).
const PROBLEM: &str = "urn:ietf:params:acme:error:";
/// The part of a response that is no problem document that is shown, in bytes.
const SHOWN: usize = 120;

/// A client for one authority. Cheap to clone.
#[derive(Clone)]
pub(super) struct Client {
    web: Web,
    /// The wait that the last refusal asked for, in seconds, and its body.
    refusal: Arc<Mutex<Option<(u64, Bytes)>>>,
    /// Set while the network keeps the authority from answering.
    unreachable: Arc<AtomicBool>,
}

impl Client {
    /// A client that checks the authority against its `ca`, or against the system's authorities.
    pub(super) fn new(authority: &AcmeAuthority) -> Result<Self, String> {
        let roots = match &authority.ca {
            None => None,
            Some(ca) => {
                Some(load_roots(&ca.path, SystemTime::now()).map_err(|error| error.to_string())?.anchors)
            }
        };
        Ok(Self { web: Web::new(roots.as_ref())?, refusal: Arc::default(), unreachable: Arc::default() })
    }

    /// The pause that the authority asked for when it refused something last, of an order for `names`.
    pub(super) fn pause(&self, names: &[String]) -> Option<Pause> {
        let refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let (seconds, body) = refusal.as_ref()?;
        Some(Pause { wait: Duration::from_secs(*seconds), scope: Scope::of(body, names) })
    }

    /// Set where the last request got no answer, because of the network.
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable.load(Ordering::Relaxed)
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Bytes>, String> {
        let (uri, method) = (request.uri().clone(), request.method().clone());
        let late = || Unanswered::by_network(format!("no response within {} s", LIMIT.as_secs()));
        let answered = timeout(LIMIT, self.web.exchange(request, MOST)).await.unwrap_or_else(|_| Err(late()));
        let is_network = answered.as_ref().is_err_and(|unanswered| unanswered.is_network);
        self.unreachable.store(is_network, Ordering::Relaxed);
        let mut response = answered.map_err(|unanswered| format!("{uri}: {}", unanswered.reason))?;
        bound_wait(response.headers_mut());
        let refused = response.status().is_client_error() || response.status().is_server_error();
        if let Some(wait) = retry_after(response.headers()).filter(|_| refused) {
            let body = response.body().clone();
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some((wait, body));
        }
        if method == Method::GET && !refused {
            response.headers_mut().entry(RETRY_AFTER).or_insert(UNSAID.into());
        }
        if let Some(what) = strange(&response, refused) {
            return Err(format!("{uri}: {what}"));
        }
        if let Some(body) = repaired(response.body(), refused) {
            *response.body_mut() = body.into();
        }
        if response.status().is_success() {
            // Of newNonce 204 is as good as 200 (RFC 8555 section 7.2), and the library tells no others apart.
            *response.status_mut() = StatusCode::OK;
        }
        Ok(response)
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            match client.send(request).await {
                Ok(response) => Ok(response.map(Full::new).into()),
                Err(reason) => Err(Error::Other(reason.into())),
            }
        })
    }
}

/// The fault of a response that is none of ACME's (RFC 8555 section 6.7): a page for people, or an error without a
/// problem document.
fn strange(response: &Response<Bytes>, refused: bool) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no type");
    let is_page = kind.starts_with("text/html");
    let is_problem = || kind.starts_with("application/problem+json") || names_problem(response.body());
    if !is_page && (!refused || is_problem()) {
        return None;
    }
    let body = String::from_utf8_lossy(&response.body()[..response.body().len().min(SHOWN)]);
    let body: String = body.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(format!("the authority answered {} ({kind}): {body}", response.status()))
}

/// Set for a problem of ACME's, whatever its authority calls the type of the content.
fn names_problem(body: &[u8]) -> bool {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    problem["type"].as_str().is_some_and(|kind| kind.starts_with(PROBLEM))
}

/// Replaces `Retry-After` by a number of seconds that can be added to any time, and that no loop turns on.
fn bound_wait(headers: &mut HeaderMap) {
    let wait = retry_after(headers).map(|wait| wait.clamp(1, LONGEST_WAIT));
    match wait {
        Some(wait) => headers.insert(RETRY_AFTER, wait.into()),
        None => headers.remove(RETRY_AFTER),
    };
}

/// `Retry-After` in seconds from now (RFC 9110 section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than the number has room for are a long time, too.
        return Some(text.parse().unwrap_or(u64::MAX));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default().as_secs())
}

/// True if the authority may be asked again at once: it only wants a fresh nonce (RFC 8555 section 6.5).
pub(super) fn is_bad_nonce(error: &Error) -> bool {
    is_of_type(error, "badNonce")
}

/// True if the error has this type of ACME.
pub(super) fn is_of_type(error: &Error, kind: &str) -> bool {
    let Error::Api(problem) = error else { return false };
    let found = problem.r#type.as_deref().and_then(|kind| kind.strip_prefix(PROBLEM));
    found == Some(kind)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use http::header::HeaderValue;

    use super::*;

    fn response(status: u16, kind: &'static str, body: &'static str) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from_static(body.as_bytes()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    #[test]
    fn pages_for_people_are_told_from_answers() {
        let reported = |status, kind, body| {
            let response = response(status, kind, body);
            strange(&response, status >= 400)
        };
        assert_eq!(reported(200, "application/json", "{}"), None);
        assert_eq!(reported(400, "application/problem+json", "{}"), None);
        let problem = r#"{"type": "urn:ietf:params:acme:error:orderNotReady"}"#;
        assert_eq!(reported(403, "application/json", problem), None);
        assert!(reported(403, "application/json", r#"{"message": "no"}"#).is_some());
        let page = reported(200, "text/html; charset=utf-8", "<html>\n  Maintenance").unwrap();
        assert!(page.contains("200 OK") && page.contains("<html> Maintenance"), "{page}");
        assert!(reported(500, "text/plain", "oops").unwrap().contains("500 Internal Server Error"));
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(of("120"), Some(120));
        assert_eq!(of("soon"), None);
        assert_eq!(of("Fri, 31 Dec 1999 23:59:59 GMT"), Some(0));
        assert_eq!(of("99999999999999999999999"), Some(u64::MAX));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
        assert!((3500..=3600).contains(&of(&later).unwrap()));
    }

    #[test]
    fn no_wait_of_an_authority_is_beyond_the_end_of_time() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            bound_wait(&mut headers);
            headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap().parse::<u64>().unwrap())
        };
        let far = format!("{}", u64::MAX);
        for (text, expected) in [
            ("0", Some(1)),
            ("120", Some(120)),
            (far.as_str(), Some(LONGEST_WAIT)),
            ("99999999999999999999999", Some(LONGEST_WAIT)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(LONGEST_WAIT)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", Some(1)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
