//! Entry of browsers: names of the interface, origins, logins and sessions.
//!
//! - `browser`: checks of a request alone
//! - `sessions`: the table of sessions
//! - `throttle`: delays of wrong tokens
//! - `accounts`: users with passwords
//!
//! [`PageGate`] puts the first two together, for the admin interface and for `offramp ui`.

mod accounts;
mod browser;
mod sessions;
mod throttle;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use offramp_config::model::HostPattern;
use offramp_proxy::credentials::LoginOutcome;
use serde_json::json;
use zeroize::Zeroizing;

use crate::api::{ProblemDetails, respond};
use crate::caller::same;
use crate::owner::ConnectionOwner;
use crate::tls::AdminCertificate;

pub use accounts::PageUsers;
use browser::BrowserAuthority;
use sessions::SessionTable;
pub use sessions::{SessionEnd, SessionHolder, secret};
use throttle::{TokenGate, TokenThrottle};

/// Fields of everything that a browser gets. The policy of content has no script, style or font but those of the binary; no
/// other page can show this one within itself.
const SECURITY_FIELDS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The protection of the page: who may send requests for it, and the sessions of those who have logged in.
#[derive(Debug)]
pub struct PageGate {
    /// The name of the interface that answers, for the page.
    interface: &'static str,
    /// The certificate, where browsers come by TLS; its names are those of the interface.
    certificate: Option<Arc<AdminCertificate>>,
    /// Further names.
    hosts: Arc<[HostPattern]>,
    sessions: Mutex<SessionTable>,
}

/// A request that the page may have sent.
#[derive(Debug)]
pub struct PageRequest {
    authority: BrowserAuthority,
    /// Set if the browser speaks TLS: with the interface, or with a proxy before it.
    encrypted: bool,
}

/// The session of a request.
#[derive(Debug)]
pub struct AdmittedSession {
    /// The holder.
    pub holder: SessionHolder,
    /// Its end.
    pub end: SessionEnd,
}

impl PageGate {
    /// A gate without sessions.
    #[must_use]
    pub fn new(
        interface: &'static str,
        certificate: Option<Arc<AdminCertificate>>,
        hosts: Arc<[HostPattern]>,
    ) -> Self {
        Self { interface, certificate, hosts, sessions: Mutex::default() }
    }

    /// Returns `true` if a proxy brings clients here, so that their address and TLS are not those of the connection.
    pub(crate) fn is_behind_proxy(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Checks the name by which the interface was reached, and that no other page has sent the request.
    ///
    /// # Errors
    /// The refusal.
    pub fn check(&self, head: &Parts) -> Result<PageRequest, ProblemDetails> {
        let certificate = self.certificate.as_ref();
        let is_own = |name: &str| {
            self.hosts.iter().any(|host| browser::is_for(host, name))
                || certificate.is_some_and(|one| one.is_for(name, Instant::now()))
        };
        let authority = BrowserAuthority::of(head, is_own)?;
        authority.check_page(head, certificate.is_some())?;
        let encrypted = certificate.is_some() || browser::is_of_https(&head.headers);
        Ok(PageRequest { authority, encrypted })
    }

    /// The session of a request. A change needs the session's secret in a field too, which another page
    /// cannot send.
    ///
    /// # Errors
    /// There is no session, it is over, or the secret is missing.
    pub fn admit(
        &self,
        head: &Parts,
        page: &PageRequest,
        now: Instant,
    ) -> Result<AdmittedSession, ProblemDetails> {
        let mut sessions = self.lock();
        let session = page.authority.cookie(&head.headers).and_then(|id| sessions.find(id, now));
        let session = session.ok_or_else(|| {
            ProblemDetails::new(StatusCode::UNAUTHORIZED, "there is no session, or it is over: log in")
        })?;
        let csrf = session.csrf().as_bytes();
        if !browser::is_read(&head.method)
            && !browser::csrf(&head.headers).is_some_and(|shown| same(shown, csrf))
        {
            let detail = "a change needs the field X-Offramp-CSRF, with `csrf` of the session";
            return Err(ProblemDetails::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(AdmittedSession { holder: session.holder().clone(), end: session.end() })
    }

    /// Opens a session, and answers with its cookie and its secret.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn open(
        &self,
        page: &PageRequest,
        holder: SessionHolder,
        now: Instant,
    ) -> Result<Response<Full<Bytes>>, ProblemDetails> {
        let mut sessions = self.lock();
        let Some(session) = sessions.open(holder, now) else {
            return Err(ProblemDetails::busy("the system has no random numbers now"));
        };
        let mut response = self.describe(session.csrf(), session.holder().name());
        set_cookie(&mut response, page, session.id(), LIFE);
        Ok(response)
    }

    /// Describes the session of a request.
    ///
    /// # Errors
    /// There is no session, or it is over.
    pub fn session(
        &self,
        head: &Parts,
        page: &PageRequest,
        now: Instant,
    ) -> Result<Response<Full<Bytes>>, ProblemDetails> {
        let admitted = self.admit(head, page, now)?;
        let mut sessions = self.lock();
        let session = page.authority.cookie(&head.headers).and_then(|id| sessions.find(id, now));
        Ok(self.describe(session.map_or("", |session| session.csrf()), admitted.holder.name()))
    }

    /// Ends the session of a request, and takes the cookie back.
    pub fn close(&self, head: &Parts, page: &PageRequest) -> Response<Full<Bytes>> {
        if let Some(id) = page.authority.cookie(&head.headers) {
            self.lock().end(id);
        }
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        set_cookie(&mut response, page, "", Duration::ZERO);
        response
    }

    /// The description of a session, as the page gets it.
    pub(crate) fn describe(&self, csrf: &str, name: &str) -> Response<Full<Bytes>> {
        let body = json!({ "csrf": csrf, "name": name, "interface": self.interface });
        respond(StatusCode::OK, "application/json", body.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        // Nothing in here panics with the lock held.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set_cookie(response: &mut Response<Full<Bytes>>, page: &PageRequest, value: &str, life: Duration) {
    let secure = if page.encrypted { "; Secure" } else { "" };
    let (name, life) = (page.authority.cookie_name(), life.as_secs());
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life}{secure}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}

/// Adds the fields that each answer to a browser has.
pub fn secure<B>(response: &mut Response<B>) {
    for (name, value) in SECURITY_FIELDS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// The lifetime of a cookie; the session may end before.
const LIFE: Duration = Duration::from_secs(12 * 60 * 60);

/// The token and the users that let clients of a TCP address in, and the count of wrong ones.
pub(crate) struct Credentials {
    pub(crate) token: Option<Arc<str>>,
    users: Option<Arc<PageUsers>>,
    throttle: Mutex<TokenThrottle>,
}

impl Credentials {
    pub(crate) fn new(token: Option<Arc<str>>, users: Option<Arc<PageUsers>>) -> Self {
        Self { token, users, throttle: Mutex::new(TokenThrottle::new(Instant::now())) }
    }

    /// Returns `true` if some token or name can log in.
    pub(crate) fn any(&self) -> bool {
        self.token.is_some() || self.users.is_some()
    }

    /// Compares a token that a client has sent.
    ///
    /// # Errors
    /// It is wrong, or the client has to wait.
    pub(crate) fn check_token(
        &self,
        client: IpAddr,
        shown: &[u8],
        now: Instant,
    ) -> Result<(), ProblemDetails> {
        let Some(token) = &self.token else { return Err(ProblemDetails::token(true)) };
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = ConnectionOwner::of(client);
        match throttle.gate(owner, shown, now) {
            TokenGate::Compare if same(shown, token.as_bytes()) => Ok(()),
            TokenGate::Compare => {
                throttle.was_wrong(owner, shown, now);
                Err(ProblemDetails::token(true))
            }
            TokenGate::WrongBefore => Err(ProblemDetails::token(true)),
            TokenGate::Wait(wait) => Err(later(wait)),
        }
    }

    /// Checks a name and its password.
    ///
    /// # Errors
    /// They are wrong, the client has to wait, or too many wait to be checked.
    pub(crate) async fn check_password(
        &self,
        client: IpAddr,
        name: &str,
        password: Zeroizing<Vec<u8>>,
    ) -> Result<SessionHolder, ProblemDetails> {
        let wrong = || ProblemDetails::new(StatusCode::UNAUTHORIZED, "the name or the password is wrong");
        let Some(users) = &self.users else {
            let detail =
                "no names can log in here: write users = \"/path\" into [admin], or log in with the token";
            return Err(ProblemDetails::new(StatusCode::UNAUTHORIZED, detail));
        };
        match users.check(name, password, Some(client)).await {
            Ok(identity) => Ok(SessionHolder::User { name: name.into(), identity }),
            Err(LoginOutcome::Wait(wait)) => Err(later(wait)),
            Err(LoginOutcome::Busy) => Err(ProblemDetails::busy("too many passwords wait to be checked")),
            Err(LoginOutcome::Wrong | LoginOutcome::Right) => Err(wrong()),
        }
    }

    /// Returns `true` while what has opened a session would open it again.
    pub(crate) fn admits(&self, holder: &SessionHolder, now: Instant) -> bool {
        match holder {
            SessionHolder::Token => self.token.is_some(),
            SessionHolder::User { name, identity } => {
                self.users.as_ref().is_some_and(|users| users.has(name, identity, now))
            }
            SessionHolder::Link(_) => false,
        }
    }
}

/// The refusal of a client that has guessed too often.
fn later(wait: Duration) -> ProblemDetails {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    let detail = format!("too many wrong ones came from this address: try again in {seconds} s");
    ProblemDetails::new(StatusCode::TOO_MANY_REQUESTS, detail).after(seconds)
}

#[cfg(test)]
mod tests;
