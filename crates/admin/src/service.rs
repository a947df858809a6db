//! The way from a request to its answer: routing, methods and origins. `body`: the size and time of bodies.

mod body;

use std::sync::Arc;
use std::time::SystemTime;

use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes};
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HeaderMap, HeaderValue, LOCATION,
    ORIGIN,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use offramp_control::Requester;
use offramp_observe::panics;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::{self, Control, OperationRequest, ProblemDetails, Reply};
use crate::caller::{AccessDecision, ClientIdentity};
use crate::entry::{Credentials, PageGate, secure};
use crate::grafana::{self, GrafanaCall, Mount};
use crate::origin::RequestOrigin;
use crate::page::{self, Admission, PageService};
use crate::places::ActiveRequest;
use crate::query_pool::QueryPool;
use crate::refusal::PlainRefusal;

use body::{is_nothing, read, unwanted};

/// The maximum size of a body: a dashboard's panel sends some 2 KiB.
const BODY_BYTES: usize = 1 << 20;
/// The maximum size of a configuration: one of a hundred thousand routes.
const DOCUMENT_BYTES: usize = 16 << 20;
/// The bytes read of an unexpected body. Many clients send an empty object in the place of no body.
const NO_BODY_BYTES: usize = 64;

pub(crate) struct AdminService {
    queries: Option<Arc<QueryPool>>,
    control: Option<Control>,
    credentials: Credentials,
    page: PageService,
    mount: Mount,
}

/// The target of a path.
enum PathTarget {
    /// The index for people.
    Index,
    Grafana(GrafanaCall),
    Nothing,
}

impl AdminService {
    pub(crate) fn new(
        queries: Option<QueryPool>,
        control: Option<Control>,
        credentials: Credentials,
        gate: PageGate,
        mount: Mount,
    ) -> Self {
        let page = PageService::new(gate);
        let queries = queries.map(Arc::new);
        let control = control.map(|control| control.with_store(queries.clone()));
        Self { queries, control, credentials, page, mount }
    }

    /// Answers one request; errors are reported in JSON, as are panics, which the log explains.
    pub(crate) async fn answer<B>(
        &self,
        request: Request<B>,
        caller: ClientIdentity,
        exchange: &ActiveRequest,
    ) -> Response<Reply>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        panics::caught(self.served(request, caller, exchange)).await.unwrap_or_else(|_| {
            let detail = "a fault of Offramp's own; its log has the reason";
            ProblemDetails::new(StatusCode::INTERNAL_SERVER_ERROR, detail).response().map(Either::Left)
        })
    }

    async fn served<B>(
        &self,
        request: Request<B>,
        caller: ClientIdentity,
        exchange: &ActiveRequest,
    ) -> Response<Reply>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.mount == Mount::Grafana && is_of_api(request.uri().path()) {
            let answer = self.api(request, caller, exchange).await;
            let mut response = answer.unwrap_or_else(|problem| problem.response().map(Either::Left));
            if caller.may_be_browser() {
                secure(&mut response);
            }
            return response;
        }
        if self.mount == Mount::Grafana
            && (PageService::has(request.uri().path())
                || (self.credentials.any() && is_visit(request.uri().path(), request.headers())))
        {
            let answer = self.of_page(request, caller, exchange).await;
            let mut response = answer.unwrap_or_else(ProblemDetails::response);
            page::finish(&mut response);
            return response.map(Either::Left);
        }
        let origin = RequestOrigin::of(request.headers());
        match self.admit(request.headers(), caller) {
            Ok(_) => exchange.admitted(),
            // Remote clients read the log only with the token, and those of a proxy may be remote.
            Err(problem)
                if (matches!(caller, ClientIdentity::Encrypted(_))
                    || (caller.may_be_browser() && self.page.is_behind_proxy()))
                    && request.method() != Method::OPTIONS =>
            {
                return problem.response().map(Either::Left);
            }
            Err(_) => {}
        }
        let found = self.find(request.uri().path());
        let mut response = self.checked(request, &origin, found, exchange).await.unwrap_or_else(|refusal| {
            let body = json!({ "message": refusal.text });
            respond(refusal.status, &body)
        });
        origin.permit(response.headers_mut());
        response.map(Either::Left)
    }

    fn find(&self, path: &str) -> PathTarget {
        let path = path.trim_start_matches('/');
        let inner = match (self.mount, path.split_once('/').unwrap_or((path, ""))) {
            (Mount::Root, _) => path,
            (Mount::Grafana, ("", _)) => return PathTarget::Index,
            // The plugin puts a slash between its URL and a path, even if the URL ends in one.
            (Mount::Grafana, ("grafana", inner)) => inner.trim_start_matches('/'),
            (Mount::Grafana, _) => return PathTarget::Nothing,
        };
        GrafanaCall::of(inner).map_or(PathTarget::Nothing, PathTarget::Grafana)
    }

    async fn checked<B>(
        &self,
        request: Request<B>,
        origin: &RequestOrigin,
        found: PathTarget,
        exchange: &ActiveRequest,
    ) -> Result<Response<Full<Bytes>>, PlainRefusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if *origin == RequestOrigin::Foreign {
            return Err(PlainRefusal {
                status: StatusCode::FORBIDDEN,
                text: "pages of this origin may not read the log: let Grafana's server ask \
                       (Access: Server), or open Grafana by an address of the private network"
                    .to_owned(),
            });
        }
        let (call, method) = match found {
            PathTarget::Nothing => {
                return Err(PlainRefusal {
                    status: StatusCode::NOT_FOUND,
                    text: "nothing is here".to_owned(),
                });
            }
            PathTarget::Index => (None, Method::GET),
            PathTarget::Grafana(call) => (Some(call), call.method()),
        };
        if request.method() == Method::OPTIONS {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
            origin.permit_methods(response.headers_mut());
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
                &json!({ "name": "offramp", "grafana": "/grafana/", "api": "/v1/openapi.json", "page": "/ui/" }),
            ));
        };
        let Some(queries) = &self.queries else {
            return Err(PlainRefusal::later(
                "there is no log store: write [log_store] into the configuration",
            ));
        };
        let body = read(request.into_body(), BODY_BYTES).await?;
        exchange.complete();
        let places = queries.knows_places();
        let now = SystemTime::now();
        let answer = queries.ask(move |session| grafana::answer(call, &body, places, now, session)).await?;
        Ok(respond(StatusCode::OK, &answer))
    }
}

impl AdminService {
    /// The name under which a caller has full access, or the refusal.
    fn admit(&self, headers: &HeaderMap, caller: ClientIdentity) -> Result<Requester, ProblemDetails> {
        let shown = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let shown = shown.and_then(bearer);
        let decision = caller.admit(shown, self.credentials.token.as_deref());
        if let (Ok(Some(address)), Some(shown), false) =
            (caller.confidential(), shown, matches!(decision, AccessDecision::Denied(_)))
        {
            self.credentials.check_token(address.ip(), shown, Instant::now().into_std())?;
        }
        match decision {
            AccessDecision::Granted(by) => Ok(by),
            AccessDecision::Denied(why) => Err(ProblemDetails::new(StatusCode::FORBIDDEN, why)),
            AccessDecision::TokenNeeded { wrong } => Err(ProblemDetails::token(wrong)),
        }
    }

    /// Admits a request to the API. A page of a browser may use it with a session, and over TCP alone.
    fn admit_to_api(&self, head: &Parts, caller: ClientIdentity) -> Result<Admission, ProblemDetails> {
        let headers = &head.headers;
        let has_origin = headers.contains_key(ORIGIN);
        let by_itself = || Ok(Admission { by: self.admit(headers, caller)?, session: None });
        match caller.confidential() {
            Ok(Some(address)) if headers.contains_key(COOKIE) && !headers.contains_key(AUTHORIZATION) => {
                self.page.admit(head, address, &self.credentials, Instant::now().into_std())
            }
            Ok(Some(_)) if has_origin => {
                self.page.check(head)?;
                by_itself()
            }
            _ if has_origin => {
                Err(ProblemDetails::new(StatusCode::FORBIDDEN, "no page of a browser may use this"))
            }
            _ => by_itself(),
        }
    }

    /// Answers requests for the page.
    async fn of_page<B>(
        &self,
        request: Request<B>,
        caller: ClientIdentity,
        exchange: &ActiveRequest,
    ) -> Result<Response<Full<Bytes>>, ProblemDetails>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let forbidden = |why: &str| ProblemDetails::new(StatusCode::FORBIDDEN, why);
        let (head, body) = request.into_parts();
        let page = match caller.confidential().map_err(forbidden)? {
            Some(_) if !self.credentials.any() => {
                return Err(forbidden(
                    "over TCP the page needs a login: write token_file = \"/path\" or users = \"/path\" into [admin] and \
                     run `offramp ctl upgrade`; or run `offramp ui`, which needs neither",
                ));
            }
            Some(_) => Some(self.page.check(&head)?),
            None if head.headers.contains_key(ORIGIN) => {
                return Err(forbidden("no page of a browser may use this"));
            }
            None => None,
        };
        if head.uri.path() == "/" {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui/"));
            return Ok(response);
        }
        let body = read(body, page::LOGIN_BYTES).await?;
        exchange.complete();
        self.page.answer(&head, body, caller, page.as_ref(), &self.credentials).await
    }

    /// Answers requests about the running process and for changes.
    async fn api<B>(
        &self,
        request: Request<B>,
        caller: ClientIdentity,
        exchange: &ActiveRequest,
    ) -> Result<Response<Reply>, ProblemDetails>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let Admission { by, session } = self.admit_to_api(&head, caller)?;
        exchange.admitted();
        let Some(control) = &self.control else {
            let why = "no configuration is in force here";
            return Err(ProblemDetails::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let path = head.uri.path().strip_prefix("/v1").unwrap_or_default();
        let (operation, names) = match api::find(&head.method, path) {
            api::RoutedPath::Operation(operation, names) => (operation, names),
            api::RoutedPath::OtherMethod(allowed) => return Err(ProblemDetails::method(&allowed)),
            api::RoutedPath::Nothing => return Err(api::nothing_at(path)),
        };
        let most = match operation.body {
            api::Body::None => NO_BODY_BYTES,
            api::Body::Toml | api::Body::Draft => DOCUMENT_BYTES,
            api::Body::Item | api::Body::Hello | api::Body::Json(_) => BODY_BYTES,
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
            other => other.map_err(ProblemDetails::from),
        }?;
        exchange.complete();
        let query = head.uri.query();
        let mut response = control
            .answer(OperationRequest { operation, names, query, headers: &head.headers, body, by })
            .await?;
        if let Some(end) = session {
            response.extensions_mut().insert(end);
        }
        Ok(response)
    }
}

/// Returns `true` for paths of the API about the running process.
fn is_of_api(path: &str) -> bool {
    path.strip_prefix("/v1").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns `true` for a person who opens the address alone in a browser.
fn is_visit(path: &str, headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok());
    path == "/" && accepted.any(|field| field.contains("text/html"))
}

/// The token in credentials with scheme Bearer, ignoring case (RFC 9110 §11.1).
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
}
