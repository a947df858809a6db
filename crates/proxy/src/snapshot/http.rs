//! The part of the read model that only listeners in mode `http` have: where requests go, and what is
//! done to them on their way. Names and values of headers are checked once, when a snapshot is built.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use offramp_certs::client_auth::Allow;
use offramp_http::semantics::TrailerRules;
pub use offramp_http::semantics::accept_encoding::Coding;
pub use offramp_http::semantics::variables::{FieldTemplate, FieldVariable, TemplatePiece};
pub use offramp_http::semantics::{FieldValue, HeaderRules};
use offramp_observe::facts::Offer;
use offramp_tls::Configs;

use super::pages::ErrorPages;
use super::{Bandwidth, Network, RouteName, SendProxy};
use crate::credentials::Users;
use crate::credentials::jwt::Jwt;
use crate::limit::Rate;
use crate::networks::AddressRules;
use crate::route::{PathRules, Paths, RedirectMap, Template};
use crate::split::Split;

/// A listener in mode `http`.
pub struct Http {
    /// Where requests go.
    pub routes: Paths<HttpRoute>,
    /// Whose `X-Forwarded-*`, `Forwarded` and `X-Request-Id` are believed and extended.
    pub trusted_proxies: Vec<Network>,
    /// Whether `Via` tells of this proxy (RFC 9110 §7.6.3).
    pub via: bool,
    /// What bounds requests.
    pub limits: HttpLimits,
    /// What clients get where there is an error and no route, if not the plain pages.
    pub error_pages: Option<Arc<ErrorPages>>,
}

/// Bounds on requests. Times are between two events, not in all, unless it is said.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// From the first byte of a request's head to its last; on a fresh connection also until the first.
    pub request_header_timeout: Duration,
    /// Between two pieces of a request's body.
    pub request_body_timeout: Duration,
    /// Bytes per second that a request's body must bring on average, after ten seconds; 0: any.
    pub min_body_rate: u64,
    /// Between a response and the next request.
    pub keepalive_timeout: Duration,
    /// Header fields of a request, trailers included.
    pub request_headers: u32,
    /// Bytes of a request's whole head.
    pub request_header_size: u32,
    /// Bytes of a request's target.
    pub request_target_size: u32,
    /// Requests of one client, over all its connections; `None`: any number.
    pub requests_per_client: Option<Rate>,
    /// Streams at a time on an HTTP/2 connection.
    pub streams: u32,
    /// Bytes that requests and responses under way over HTTP/2 may hold, per worker.
    pub memory: usize,
    /// The greatest window of a stream of a client.
    pub max_window: u32,
    /// Bytes of small files that a worker keeps; 0: neither them nor descriptors of others.
    pub file_cache: usize,
    /// Bytes that encoders of responses may hold, per worker.
    pub compression_memory: usize,
}

/// TLS that ends here for HTTP: what a server name chooses on a listener in mode `http`.
pub struct HttpTls {
    /// TLS towards the client, with `h2` and `http/1.1`; absent on listeners without.
    pub tls: Option<Configs>,
    /// Who of those with a verified certificate is let in; `None` where no certificate is asked for.
    pub allow: Option<Allow>,
    /// What is offered to clients, for the event of a handshake that found nothing in common.
    pub configured: Arc<Offer>,
    /// The rule for clients.
    pub client_auth: AuthClass,
}

/// Names a rule for clients: their certificates and fingerprints. Equal rules (mode, authority, allowed names,
/// refused fingerprints) have equal numbers within a snapshot; 0 is that there is no rule. A request is refused with 421 where its route's
/// rule is not the one that its connection was made by.
///
/// The number has to stay the same over snapshots while the rule stays the same, because connections outlive
/// snapshots: a hash of the rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuthClass(pub u64);

/// Where a request goes, and what is done to it.
pub struct HttpRoute {
    /// What events call it.
    pub name: RouteName,
    /// What is done.
    pub action: Action,
    /// The rule for client certificates.
    pub client_auth: AuthClass,
    /// Who may enter.
    pub access: Access,
    /// Whether servers are told of clients' certificates by `X-Forwarded-Client-Cert` too.
    pub xfcc: bool,
    /// Changes to the headers of requests and responses, after everything else is in them.
    pub headers: HeaderPolicy,
    /// The protocols that a connection may change to by `Upgrade`.
    pub upgrade: Box<[Box<str>]>,
    /// The whole value of `Strict-Transport-Security` (RFC 6797 §6.1), sent over TLS only.
    pub hsts: Option<HeaderValue>,
    /// The most bytes of a request's body.
    pub max_body: Option<u64>,
    /// Limits of its own.
    pub limits: RouteLimits,
    /// What rewrites the paths of requests before the action.
    pub rewrites: Option<Box<PathRules>>,
    /// Redirects of single paths, which go before the action.
    pub redirects: Option<Arc<RedirectMap>>,
    /// Whether the route is closed for a while.
    pub maintenance: Option<Box<Maintenance>>,
    /// What clients get where there is an error, if not the plain pages.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// How responses are compressed; `None`: they pass as they are.
    pub compress: Option<Arc<Compress>>,
    /// Who gets copies of the requests.
    pub mirror: Option<Mirror>,
    /// Of so many requests that went well one has an event; those that failed always have.
    pub log_one_in: NonZeroU32,
    /// What its clients may move in bodies and tunnels; `None`: anything.
    pub bandwidth: Option<Bandwidth>,
}

/// What a route does to the fields of requests and responses.
#[derive(Debug, Default)]
pub struct HeaderPolicy {
    /// Changes to requests.
    pub request: HeaderRules,
    /// Changes to responses; shared with whoever passes interim responses on.
    pub response: Arc<HeaderRules>,
    /// Servers get `X-Original-URL` and the like of clients that are not trusted proxies.
    pub keep_original_url: bool,
    /// The fields that no trailer of a request may have: those of `request` and of [`Access::reserved`].
    pub trailers: Option<Arc<TrailerRules>>,
    /// Some of the rules have variables.
    pub variables: bool,
}

impl HeaderPolicy {
    /// These changes; `reserved` are the fields that checks set.
    #[must_use]
    pub fn new(
        request: HeaderRules,
        response: HeaderRules,
        keep_original_url: bool,
        reserved: &HeaderRules,
    ) -> Self {
        Self {
            keep_original_url,
            trailers: TrailerRules::of(&[&request, reserved]),
            variables: request.uses_variables() || response.uses_variables(),
            request,
            response: Arc::new(response),
        }
    }
}

/// Limits that a route has instead of those of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteLimits {
    /// From a request to the head of the server's response.
    pub response_timeout: Option<Duration>,
    /// Between two pieces of a request's body.
    pub request_body_timeout: Option<Duration>,
    /// Bytes per second that a request's body must bring on average, after ten seconds; 0: any.
    pub min_body_rate: Option<u64>,
    /// How long nothing of a response or of another protocol may move.
    pub idle_timeout: Option<Duration>,
}

/// A route that is closed for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// When clients may try again, in seconds.
    pub retry_after: u32,
    /// Clients to whom the route works as usual.
    pub allow: Vec<Network>,
}

/// Who may enter by a route, beside [`HttpRoute::client_auth`]; the default is anybody.
#[derive(Debug, Default)]
pub struct Access {
    /// Where clients may come from; `None`: from anywhere.
    pub addresses: Option<Arc<AddressRules>>,
    /// The users whose name and password a request must have.
    pub basic: Option<BasicAuth>,
    /// The tokens that a request may have; one of them it must have.
    pub jwt: Option<Jwt>,
    /// Who is asked about each request.
    pub forward: Option<ForwardAuth>,
    /// One of these is enough.
    pub any: bool,
    /// The fields that only these checks may set, and those that are for them alone: taken out of what clients say.
    pub reserved: HeaderRules,
}

/// An authentication server that is asked about each request.
#[derive(Debug)]
pub struct ForwardAuth {
    /// The place of its backend in [`Snapshot::backends`](super::Snapshot::backends).
    pub backend: usize,
    /// The path that is asked for, with its query.
    pub target: Box<str>,
    /// The fields of its response that servers get.
    pub headers: Vec<HeaderName>,
    /// How long it may take.
    pub timeout: Duration,
}

/// The users of a route, by name and password (RFC 7617).
#[derive(Debug)]
pub struct BasicAuth {
    /// The users.
    pub users: Arc<Users>,
    /// The value of `WWW-Authenticate`: printable ASCII.
    pub challenge: Box<str>,
    /// The field that names the user to servers.
    pub header: HeaderName,
}

/// How the responses of a route are compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// What is offered, the preferred one first.
    pub algorithms: Vec<Coding>,
    /// The least content that is compressed, where its length is known, in bytes.
    pub min_size: u64,
    /// Media types in lower case; a `*` stands for any text.
    pub types: Vec<Box<str>>,
    /// 1 to 9; `None`: what suits the coding.
    pub level: Option<u8>,
    /// Whether the responses of one user pass as they are, because they have secrets in them.
    pub secrets: bool,
}

impl Compress {
    /// Whether content of this type is compressed.
    pub(crate) fn covers(&self, media_type: &[u8]) -> bool {
        let is = |text: &[u8], range: &str| text.eq_ignore_ascii_case(range.as_bytes());
        self.types.iter().any(|range| match range.split_once('*') {
            None => is(media_type, range),
            Some((front, back)) => {
                let whole = media_type.len() >= front.len() + back.len();
                whole
                    && is(&media_type[..front.len()], front)
                    && is(&media_type[media_type.len() - back.len()..], back)
            }
        })
    }
}

/// What is done with a request.
pub enum Action {
    /// It goes to a server of a backend.
    Proxy(Proxy),
    /// The client is sent elsewhere.
    Redirect(Redirect),
    /// It is answered as configured.
    Respond(Respond),
    /// It is answered with a file.
    Files(Arc<Files>),
    /// It needs TLS, and the listener has none: GET and HEAD are sent to this port, others are refused.
    ToTls {
        /// Where the route is served over TLS; `None` where it is unknown.
        port: Option<u16>,
    },
}

/// Paths below a root, and everything below these.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClosedPaths(pub Vec<Box<str>>);

impl ClosedPaths {
    /// Set where there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Set where a path below the root is one of them, or below one.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        let is_within = |closed: &str| {
            path.strip_prefix(closed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0.iter().any(|closed| is_within(closed))
    }
}

/// Files below a directory.
#[derive(Debug)]
pub struct Files {
    /// The directory; nothing outside of it is served.
    pub root: Box<Path>,
    /// What below it belongs to routes with rules about who may enter, and is served by these alone.
    pub closed: ClosedPaths,
    /// The bytes that are taken off the normal form of a path first.
    pub strip: usize,
    /// What a directory is served with: the first of these that it has.
    pub index: Vec<Box<str>>,
    /// The names that are looked for in turn, below the root; `{path}` stands for the path of the request.
    pub tries: Vec<Box<str>>,
    /// The path below the root of what is served where there is nothing else.
    pub fallback: Option<Box<str>>,
    /// Whether a directory that has none of `index` is listed.
    pub listing: bool,
    /// Whether files beside a file are served in its place that have its content in a content coding.
    pub precompressed: bool,
    /// Whether names that begin with a dot are served.
    pub hidden: bool,
    /// Values of `Cache-Control` by patterns of names, the preferred ones first.
    pub cache_control: Vec<(Box<str>, HeaderValue)>,
}

/// A request that goes to a server.
pub struct Proxy {
    /// To whom.
    pub to: To,
    /// The PROXY header that servers get first. Each client connection then has server connections of its own.
    pub send_proxy: Option<SendProxy>,
    /// What becomes of the path.
    pub rewrite: Rewrite,
    /// How other spellings of a path are treated.
    pub paths: PathHandling,
}

/// How paths that can be read in several ways go to servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathHandling {
    /// Servers get the normal form, instead of the path as it came.
    pub normalize: bool,
    /// Escaped slashes and other escapes with several readings pass where all of them select this route, even on hosts
    /// that are guarded.
    pub encoded_slashes: bool,
}

/// The servers that get the requests of a route.
#[derive(Debug)]
pub enum To {
    /// Those of one backend, by its place in [`Snapshot::backends`](super::Snapshot::backends).
    Backend(usize),
    /// Those of several backends, by shares.
    Split(Box<Split>),
}

/// Copies of the requests of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The place of the backend that gets them in [`Snapshot::backends`](super::Snapshot::backends).
    pub backend: usize,
    /// Requests with larger bodies are not copied, in bytes.
    pub max_body: u64,
    /// The copies that each worker has under way at the most, for each backend.
    pub requests: u32,
    /// Of so many requests one is copied.
    pub one_in: NonZeroU32,
}

/// What becomes of the path of a request on its way to a server. The query stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rewrite {
    /// It stays.
    #[default]
    Keep,
    /// The prefix of so many bytes that the route matches is taken off; nothing left is `/`.
    Strip(usize),
    /// The prefix of so many bytes gives way to this one, which begins with `/`.
    Replace(usize, Box<str>),
}

/// A response that sends the client elsewhere.
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// Where to; `https` of the configuration is `https://{host}{uri}`.
    pub to: Template,
}

/// A response that is always the same.
pub struct Respond {
    /// A final status.
    pub status: StatusCode,
    /// Its type; `None` sends none.
    pub content_type: Option<HeaderValue>,
    /// Its body.
    pub body: bytes::Bytes,
}
