//! Requests of the page, on their way to the admin interface.
//!
//! Only fields that the API reads go there, and none of a browser: the interface admits this process, whoever the browser
//! is. What is of one connection alone (RFC 9110 §7.6.1) goes neither there nor back. Bodies pass as they come.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName,
    HeaderValue, IF_MATCH, IF_NONE_MATCH, LOCATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use offramp_admin::{
    LOGIN_BYTES, PageFiles, PageGate, PageRequest, ProblemDetails, SessionHolder, secure, ticket,
};
use tokio::time::timeout;

use super::activity::{CountedBody, PageActivity};
use crate::ctl::client::AdminClient;

/// The time in which a ticket is good.
const TICKET_LIFE: Duration = Duration::from_secs(60);
/// The time for the body of a login.
const LOGIN_TIME: Duration = Duration::from_secs(10);
/// The time for a file of the page; after it, that of this program is sent.
const FILE_TIME: Duration = Duration::from_secs(2);
/// The time to connect to the admin interface.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The time for the beginning of an answer: more than a query of the log store has.
const READ_TIME: Duration = Duration::from_secs(120);
/// The same for a change: an upgrade may take `limits.upgrade_timeout`, an hour at most.
const CHANGE_TIME: Duration = Duration::from_secs(3700);
/// The fields of a request that the admin interface gets.
const PASSED: [HeaderName; 6] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONTENT_TYPE,
    IF_MATCH,
    IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
];
/// The fields of an answer that are of its connection alone, or of its own browsers.
const KEPT_BACK: [HeaderName; 8] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    SET_COOKIE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The body of an answer.
pub(super) type RelayBody = CountedBody<Either<Full<Bytes>, Incoming>>;

/// The way of the page's requests.
pub(super) struct PageRelay {
    gate: PageGate,
    files: PageFiles,
    client: AdminClient,
    /// The ticket, until it was used.
    ticket: Mutex<Option<OneTicket>>,
    /// The name of who runs this.
    user: Box<str>,
    activity: PageActivity,
}

/// A ticket for one login.
struct OneTicket {
    text: String,
    made: Instant,
}

impl PageRelay {
    pub(super) fn new(
        gate: PageGate,
        client: AdminClient,
        ticket: String,
        user: &str,
        activity: PageActivity,
    ) -> Self {
        let ticket = Mutex::new(Some(OneTicket { text: ticket, made: Instant::now() }));
        Self { gate, files: PageFiles::default(), client, ticket, user: user.into(), activity }
    }

    /// Answers a request. `stranger` is set for connections of other users of this machine.
    pub(super) async fn serve(
        &self,
        request: Request<Incoming>,
        stranger: bool,
    ) -> Result<Response<RelayBody>, Infallible> {
        let (head, body) = request.into_parts();
        let answer = if stranger {
            let detail = "this page is for the user who has run `offramp ui`, and for root";
            Err(ProblemDetails::new(StatusCode::FORBIDDEN, detail))
        } else {
            self.answer(head, body).await
        };
        Ok(answer.unwrap_or_else(|problem| {
            let mut response = problem.response();
            secure(&mut response);
            response.map(|body| CountedBody { body: Either::Left(body), end: None, _mark: None })
        }))
    }

    async fn answer(&self, head: Parts, body: Incoming) -> Result<Response<RelayBody>, ProblemDetails> {
        let page = self.gate.check(&head)?;
        let now = Instant::now();
        let path = head.uri.path().to_owned();
        let (mut mark, mut end) = (Some(self.activity.begin()), None);
        let mut response = match &*path {
            "/" => redirect().map(Either::Left),
            "/ui/login" if head.method == Method::POST => {
                self.login(&head, &page, body).await?.map(Either::Left)
            }
            "/ui/session" => self.gate.session(&head, &page, now)?.map(Either::Left),
            "/ui/logout" if head.method == Method::POST => {
                self.gate.admit(&head, &page, now)?;
                self.gate.close(&head, &page).map(Either::Left)
            }
            "/ui/login" | "/ui/logout" => {
                return Err(ProblemDetails::method("POST"));
            }
            _ if path == "/ui" || path.starts_with("/ui/") => {
                // What nobody has to log in for keeps nothing open.
                mark = None;
                self.file(&head, &path).await?
            }
            _ if path.starts_with("/v1/") => {
                let session = self.gate.admit(&head, &page, now)?;
                let response = self.pass(&head, Either::Right(body)).await?;
                // The length of others is known.
                let is_stream = response.body().size_hint().exact().is_none();
                end = is_stream.then(|| Box::pin(session.end.wait()) as _);
                response.map(Either::Right)
            }
            _ => return Err(ProblemDetails::new(StatusCode::NOT_FOUND, "nothing is here")),
        };
        secure(&mut response);
        Ok(response.map(|body| CountedBody { body, end, _mark: mark }))
    }

    /// Opens a session for the ticket, which is used up.
    async fn login(
        &self,
        head: &Parts,
        page: &PageRequest,
        body: Incoming,
    ) -> Result<Response<Full<Bytes>>, ProblemDetails> {
        let body = timeout(LOGIN_TIME, Limited::new(body, LOGIN_BYTES).collect()).await;
        let Ok(Ok(body)) = body else {
            return Err(ProblemDetails::new(StatusCode::BAD_REQUEST, "the login is incomplete"));
        };
        let shown = ticket(head, &body.to_bytes())?;
        let now = Instant::now();
        let is_good = {
            let mut ticket = self.ticket.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            ticket.take_if(|one| one.opens(&shown, now)).is_some()
        };
        if !is_good {
            let detail = "this link was used already, or is older than a minute: run `offramp ui` again";
            return Err(ProblemDetails::new(StatusCode::UNAUTHORIZED, detail));
        }
        self.gate.open(page, SessionHolder::Link((*self.user).into()), now)
    }

    /// A file of the page: that of the running Offramp, so that the page fits its API. Where it does not answer, or has no
    /// page, it is that of this program.
    async fn file(
        &self,
        head: &Parts,
        path: &str,
    ) -> Result<Response<Either<Full<Bytes>, Incoming>>, ProblemDetails> {
        if matches!(head.method, Method::GET | Method::HEAD) {
            let passed = timeout(FILE_TIME, self.pass(head, Either::Left(Full::default()))).await;
            let is_file = |status: StatusCode| status.is_success() || status == StatusCode::NOT_MODIFIED;
            if let Ok(Ok(response)) = passed
                && is_file(response.status())
            {
                return Ok(response.map(Either::Right));
            }
        }
        // Compressing it takes a while, once.
        let own = self.files.answer(&head.method, path, &head.headers);
        let own =
            own.ok_or_else(|| ProblemDetails::new(StatusCode::NOT_FOUND, "the page has no such file"))?;
        Ok(own.map(Either::Left))
    }

    /// Sends a request to the admin interface.
    async fn pass(
        &self,
        head: &Parts,
        body: Either<Full<Bytes>, Incoming>,
    ) -> Result<Response<Incoming>, ProblemDetails> {
        let away = |reason: &dyn std::fmt::Display| {
            let reason = reason.to_string();
            let line = reason.lines().next().unwrap_or_default();
            let detail = line.strip_prefix("error: ").unwrap_or(line);
            ProblemDetails::new(StatusCode::BAD_GATEWAY, format!("Offramp does not answer: {detail}"))
        };
        let late = |_| ProblemDetails::new(StatusCode::GATEWAY_TIMEOUT, "Offramp does not answer in time");
        let connected = timeout(CONNECT_TIME, self.client.connect()).await.map_err(late)?;
        let mut sender = connected.map_err(|failure| away(&failure))?;
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut request =
            Request::builder().method(&head.method).uri(target).header(HOST, self.client.host());
        for name in PASSED {
            for value in head.headers.get_all(&name) {
                request = request.header(&name, value);
            }
        }
        if let Some(token) = self.client.token() {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(body).map_err(|error| away(&error))?;
        let time = if matches!(head.method, Method::GET | Method::HEAD) { READ_TIME } else { CHANGE_TIME };
        let answered = timeout(time, sender.send_request(request)).await.map_err(late)?;
        let mut response = answered.map_err(|error| away(&error))?;
        keep_back(response.headers_mut());
        Ok(response)
    }
}

impl OneTicket {
    fn opens(&self, shown: &str, now: Instant) -> bool {
        let is_same = self.text.len() == shown.len()
            && self.text.bytes().zip(shown.bytes()).fold(0, |all, (one, other)| all | (one ^ other)) == 0;
        is_same && now.saturating_duration_since(self.made) < TICKET_LIFE
    }
}

/// Removes the fields that are of the connection to the admin interface alone.
fn keep_back(fields: &mut HeaderMap) {
    let listed: Vec<HeaderName> = fields
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in listed.iter().chain(&KEPT_BACK) {
        fields.remove(name);
    }
}

fn redirect() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/ui/"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_connection_stay_with_it() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Own"),
            ("connection", "x-other"),
            ("x-own", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=b"),
            ("trailer", "x"),
            ("upgrade", "h2c"),
            ("etag", "\"1\""),
            ("content-type", "text/event-stream"),
        ] {
            fields.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        keep_back(&mut fields);
        let mut left: Vec<&str> = fields.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-type", "etag"]);
    }

    #[test]
    fn a_ticket_is_good_whole_and_for_a_minute() {
        let made = Instant::now();
        let ticket = OneTicket { text: "0123".to_owned(), made };
        assert!(ticket.opens("0123", made + Duration::from_secs(59)));
        assert!(!ticket.opens("0123", made + TICKET_LIFE));
        for wrong in ["", "012", "01234", "0124"] {
            assert!(!ticket.opens(wrong, made), "{wrong}");
        }
    }
}
