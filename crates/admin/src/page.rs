//! The page for browsers, below `/ui/`: its files, and logins.

mod files;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use offramp_control::Requester;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::api::ProblemDetails;
use crate::caller::{AccessDecision, ClientIdentity};
use crate::entry::{self, Credentials, PageGate, PageRequest, SessionEnd, SessionHolder};

pub use files::PageFiles;

/// The largest body of a login.
pub const LOGIN_BYTES: usize = 8 << 10;

/// The page of an admin interface.
pub(crate) struct PageService {
    files: PageFiles,
    gate: PageGate,
}

/// The name under which a client has full access.
pub(crate) struct Admission {
    pub(crate) by: Requester,
    /// The end of the session by which it has it.
    pub(crate) session: Option<SessionEnd>,
}

/// The body of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginBody {
    token: Option<String>,
    name: Option<String>,
    password: Option<String>,
    once: Option<String>,
}

/// A login that a body asks for.
enum LoginRequest {
    Token(Zeroizing<String>),
    Password(String, Zeroizing<Vec<u8>>),
    Link(String),
}

impl LoginRequest {
    fn read(head: &Parts, body: &[u8]) -> Result<Self, ProblemDetails> {
        let wrong = |what: &str| ProblemDetails::wrong(format!("a login is {what}"));
        // Forms of other pages cannot send this type without a question before it (Fetch §3.3.1).
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json")) {
            let detail = "a login is JSON, with `Content-Type: application/json`";
            return Err(ProblemDetails::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let login: LoginBody = serde_json::from_slice(body).map_err(|error| {
            // The text of the error has no value of the body but for unknown members, which are no secrets.
            wrong(&format!("a JSON object: {error}"))
        })?;
        match login {
            LoginBody { token: Some(token), name: None, password: None, once: None } => {
                Ok(Self::Token(Zeroizing::new(token)))
            }
            LoginBody { token: None, name: Some(name), password: Some(password), once: None } => {
                Ok(Self::Password(name, Zeroizing::new(password.into_bytes())))
            }
            LoginBody { token: None, name: None, password: None, once: Some(once) } => Ok(Self::Link(once)),
            _ => Err(wrong("{\"token\": …}, or {\"name\": …, \"password\": …}, or {\"once\": …}")),
        }
    }
}

/// The ticket in the body of a login, for `offramp ui`.
///
/// # Errors
/// It is no login by a ticket.
pub fn ticket(head: &Parts, body: &[u8]) -> Result<String, ProblemDetails> {
    match LoginRequest::read(head, body)? {
        LoginRequest::Link(ticket) => Ok(ticket),
        LoginRequest::Token(_) | LoginRequest::Password(..) => {
            let detail = "this page opens by the link of `offramp ui` alone: run it again for a new one";
            Err(ProblemDetails::new(StatusCode::UNAUTHORIZED, detail))
        }
    }
}

impl PageService {
    pub(crate) fn new(gate: PageGate) -> Self {
        Self { files: PageFiles::default(), gate }
    }

    /// Returns `true` for paths of the page.
    pub(crate) fn has(path: &str) -> bool {
        path.strip_prefix("/ui").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns `true` if a proxy brings clients here.
    pub(crate) fn is_behind_proxy(&self) -> bool {
        self.gate.is_behind_proxy()
    }

    /// The session of a request over TCP, if a browser has sent it with one.
    ///
    /// # Errors
    /// Another page has sent it, or the session does not allow it.
    pub(crate) fn admit(
        &self,
        head: &Parts,
        address: SocketAddr,
        credentials: &Credentials,
        now: Instant,
    ) -> Result<Admission, ProblemDetails> {
        let page = self.gate.check(head)?;
        let session = self.gate.admit(head, &page, now)?;
        if !credentials.admits(&session.holder, now) {
            self.gate.close(head, &page);
            let detail = "the session is over: what it was opened with is no longer valid";
            return Err(ProblemDetails::new(StatusCode::UNAUTHORIZED, detail));
        }
        let by = Requester::Admin(format!("{}, from {address}", session.holder.name()).into());
        Ok(Admission { by, session: Some(session.end) })
    }

    /// Checks that a request is for this interface and of its page.
    ///
    /// # Errors
    /// The refusal.
    pub(crate) fn check(&self, head: &Parts) -> Result<PageRequest, ProblemDetails> {
        self.gate.check(head)
    }

    /// Answers a request of a client that may see the page. `page` is the checked request, `None` over a Unix socket.
    pub(crate) async fn answer(
        &self,
        head: &Parts,
        body: Bytes,
        caller: ClientIdentity,
        page: Option<&PageRequest>,
        credentials: &Credentials,
    ) -> Result<Response<Full<Bytes>>, ProblemDetails> {
        let path = head.uri.path();
        if let Some(response) = self.files.answer(&head.method, path, &head.headers) {
            return Ok(response);
        }
        let allowed = match path {
            "/ui/login" | "/ui/logout" => Method::POST,
            "/ui/session" => Method::GET,
            _ => return Err(ProblemDetails::new(StatusCode::NOT_FOUND, "the page has no such file")),
        };
        if head.method != allowed && !(allowed == Method::GET && head.method == Method::HEAD) {
            let allowed = if allowed == Method::GET { "GET, HEAD" } else { "POST" };
            return Err(ProblemDetails::method(allowed));
        }
        let now = Instant::now();
        match (caller, page) {
            (ClientIdentity::Network(address) | ClientIdentity::Encrypted(address), Some(page)) => match path
            {
                "/ui/login" => {
                    let holder = Self::login(head, &body, address, credentials).await?;
                    self.gate.open(page, holder, Instant::now())
                }
                "/ui/session" => {
                    self.admit(head, address, credentials, now)?;
                    self.gate.session(head, page, now)
                }
                _ => {
                    self.gate.admit(head, page, now)?;
                    Ok(self.gate.close(head, page))
                }
            },
            // The kernel says who it is: there is no session.
            _ => match caller.admit(None, None) {
                AccessDecision::Granted(Requester::Admin(name)) if path != "/ui/logout" => {
                    Ok(PageGate::new("unix", None, Arc::default()).describe("", &name))
                }
                AccessDecision::Granted(_) => {
                    let mut response = Response::new(Full::default());
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    Ok(response)
                }
                AccessDecision::Denied(why) => Err(ProblemDetails::new(StatusCode::FORBIDDEN, why)),
                AccessDecision::TokenNeeded { wrong } => Err(ProblemDetails::token(wrong)),
            },
        }
    }

    /// Checks the credentials of a login.
    async fn login(
        head: &Parts,
        body: &[u8],
        address: SocketAddr,
        credentials: &Credentials,
    ) -> Result<SessionHolder, ProblemDetails> {
        let client = address.ip();
        match LoginRequest::read(head, body)? {
            LoginRequest::Token(token) => {
                credentials.check_token(client, token.trim().as_bytes(), Instant::now()).map_err(
                    |problem| {
                        match problem.status {
                            // The page asks by itself: a browser must not open a window of its own for this.
                            StatusCode::UNAUTHORIZED => {
                                ProblemDetails::new(problem.status, "this is not the token of `token_file`")
                            }
                            _ => problem,
                        }
                    },
                )?;
                Ok(SessionHolder::Token)
            }
            LoginRequest::Password(name, password) => {
                credentials.check_password(client, &name, password).await
            }
            LoginRequest::Link(_) => {
                let detail = "this link is of `offramp ui`, and good for its own page alone";
                Err(ProblemDetails::new(StatusCode::UNAUTHORIZED, detail))
            }
        }
    }
}

/// Adds the fields of an answer to a browser. Answers without a rule for caches are not kept.
pub(crate) fn finish<B>(response: &mut Response<B>) {
    entry::secure(response);
    response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
