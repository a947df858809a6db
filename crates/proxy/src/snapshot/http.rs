//! The part of the read model that only listeners in mode `http` have: where requests go, and what is
//! done to them on their way. Names and values of headers are checked once, when a snapshot is built.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use offramp_certs::client_auth::AllowList;
use offramp_config::model::PlainRules;
use offramp_http::semantics::TrailerRules;
pub use offramp_http::semantics::accept_encoding::Coding;
pub use offramp_http::semantics::variables::{FieldTemplate, FieldVariable, TemplatePiece};
pub use offramp_http::semantics::{FieldValue, HeaderRules};
use offramp_observe::facts::TlsOffer;
use offramp_tls::Configs;

use super::pages::ErrorPages;
use super::{Bandwidth, Network, RouteName, SendProxy};
use crate::credentials::Users;
use crate::credentials::jwt::Jwt;
use crate::limit::Quota;
use crate::networks::AddressRules;
use crate::route::{PathRules, Paths, RedirectMap, Template};
use crate::split::RouteBackends;

/// A listener in mode `http`.
pub struct Http {
    /// Routes of requests.
    pub routes: Paths<HttpRoute>,
    /// Networks that may send `X-Forwarded-*`, `Forwarded` and `X-Request-Id`, which are believed and extended.
    pub trusted_proxies: Vec<Network>,
    /// Set if `Via` names this proxy (RFC 9110 §7.6.3).
    pub via: bool,
    /// Bounds of requests.
    pub limits: RequestLimits,
    /// Pages for errors outside of routes, if not the plain pages.
    pub error_pages: Option<Arc<ErrorPages>>,
}

/// Bounds on requests. Times are between two events, not in all, unless it is said.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
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
    pub requests_per_client: Option<Quota>,
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
    /// Clients with a verified certificate that are let in; `None` if no certificate is asked for.
    pub allow: Option<AllowList>,
    /// Protocols and ciphers on offer, for the event of a handshake that found nothing in common.
    pub configured: Arc<TlsOffer>,
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

/// Destination of a request, and the rules on the way.
pub struct HttpRoute {
    /// Name in events.
    pub name: RouteName,
    /// Action for a request.
    pub action: Action,
    /// The rule for client certificates.
    pub client_auth: AuthClass,
    /// Rules of access.
    pub access: Access,
    /// Set if servers get clients' certificates by `X-Forwarded-Client-Cert` too.
    pub xfcc: bool,
    /// Changes to the headers of requests and responses, after everything else is in them.
    pub headers: HeaderPolicy,
    /// The protocols that a connection may change to by `Upgrade`.
    pub upgrade: Box<[Box<str>]>,
    /// Keys that are used as they are written.
    pub plain: PlainRules,
    /// For one attempt to connect to a server, instead of the time of its backend.
    pub connect_timeout: Option<Duration>,
    /// Rules that go before the action.
    pub detours: Detours,
    /// Pages for errors, if not the plain pages.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// Compression of responses; `None`: they pass as they are.
    pub compress: Option<Arc<Compress>>,
    /// Backend that gets copies of the requests.
    pub mirror: Option<Mirror>,
    /// Of so many requests that went well one has an event; those that failed always have.
    pub log_one_in: NonZeroU32,
    /// Bandwidth of its clients in bodies and tunnels; `None`: any.
    pub bandwidth: Option<Bandwidth>,
}

/// Rules of a route for the fields of requests and responses.
#[derive(Debug, Default)]
pub struct HeaderPolicy {
    /// Changes to the fields of requests.
    pub request: HeaderRules,
    /// Changes to responses; shared with those that pass interim responses on.
    pub response: Arc<HeaderRules>,
    /// The fields that no trailer of a request may have: those of `request` and of [`Access::reserved`].
    pub trailers: Option<Arc<TrailerRules>>,
    /// Some of the rules have variables.
    pub variables: bool,
    /// The whole value of `Strict-Transport-Security` (RFC 6797 §6.1), sent over TLS only.
    pub hsts: Option<HeaderValue>,
}

impl HeaderPolicy {
    /// These changes; `reserved` are the fields that checks set.
    #[must_use]
    pub fn new(request: HeaderRules, response: HeaderRules, reserved: &HeaderRules) -> Self {
        Self {
            trailers: TrailerRules::of(&[&request, reserved]),
            variables: request.uses_variables() || response.uses_variables(),
            request,
            response: Arc::new(response),
            hsts: None,
        }
    }
}

/// Rules of a route that go before its action.
#[derive(Default)]
pub struct Detours {
    /// The route is closed for a while.
    pub maintenance: Option<Box<Maintenance>>,
    /// Redirects of single paths.
    pub redirects: Option<Arc<RedirectMap>>,
    /// Rules that rewrite paths.
    pub rewrites: Option<Box<PathRules>>,
}

/// The closure of a route for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// Time after which clients may try again, in seconds.
    pub retry_after: u32,
    /// Clients for which the route works as usual.
    pub allow: Vec<Network>,
}

/// Rules of access to a route, beside [`HttpRoute::client_auth`]; the default has none.
#[derive(Debug, Default)]
pub struct Access {
    /// Networks of clients; `None`: any.
    pub addresses: Option<Arc<AddressRules>>,
    /// Users with the name and password that a request must have.
    pub basic: Option<BasicAuth>,
    /// The tokens that a request may have; one of them it must have.
    pub jwt: Option<Jwt>,
    /// Authentication server that is asked about each request.
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
    /// Maximum time until it answers.
    pub timeout: Duration,
}

/// The users of a route, by name and password (RFC 7617).
#[derive(Debug)]
pub struct BasicAuth {
    /// File of users, as it was read.
    pub users: Arc<Users>,
    /// The value of `WWW-Authenticate`: printable ASCII.
    pub challenge: Box<str>,
    /// The field that names the user to servers.
    pub header: HeaderName,
}

/// Compression of the responses of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// Codings on offer, the preferred one first.
    pub algorithms: Vec<Coding>,
    /// The least content that is compressed, where its length is known, in bytes.
    pub min_size: u64,
    /// Media types in lower case; a `*` stands for any text.
    pub types: Vec<Box<str>>,
    /// 1 to 9; `None`: what suits the coding.
    pub level: Option<u8>,
    /// Set if the responses of one user pass as they are, because they have secrets in them.
    pub secrets: bool,
}

impl Compress {
    /// Returns true if content of this type is compressed.
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

/// Action for a request.
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
        /// Port on which the route is served over TLS; `None` if it is unknown.
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
    /// Paths below it that belong to routes with rules of access, and are served by these alone.
    pub closed: ClosedPaths,
    /// The bytes that are taken off the normal form of a path first.
    pub strip: usize,
    /// Files for a directory: the first of these that it has.
    pub index: Vec<Box<str>>,
    /// The names that are looked for in turn, below the root; `{path}` stands for the path of the request.
    pub tries: Vec<Box<str>>,
    /// The path below the root of what is served where there is nothing else.
    pub fallback: Option<Box<str>>,
    /// Set if a directory that has none of `index` is listed.
    pub listing: bool,
    /// Set if files beside a file are served in its place that have its content in a content coding.
    pub precompressed: bool,
    /// Set if names that begin with a dot are served.
    pub hidden: bool,
    /// Values of `Cache-Control` by patterns of names, the preferred ones first.
    pub cache_control: Vec<(Box<str>, HeaderValue)>,
}

/// A request that goes to a server.
pub struct Proxy {
    /// Destination of the requests.
    pub to: RouteBackends,
    /// The PROXY header that servers get first. Each client connection then has server connections of its own.
    pub send_proxy: Option<SendProxy>,
    /// Change of the path.
    pub rewrite: Rewrite,
    /// Treatment of other spellings of a path.
    pub paths: PathHandling,
}

/// Treatment of paths that can be read in several ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathHandling {
    /// Servers get the normal form, instead of the path as it came.
    pub normalize: bool,
    /// Escaped slashes and other escapes with several readings pass where all of them select this route, even on hosts
    /// that are guarded.
    pub encoded_slashes: bool,
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

/// Change of the path of a request on its way to a server. The query stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Rewrite {
    /// The path stays as it is.
    #[default]
    Keep,
    /// The prefix of so many bytes that the route matches is taken off; nothing left is `/`.
    Strip(usize),
    /// The prefix of so many bytes gives way to this one, which begins with `/`.
    Replace(usize, Box<str>),
}

/// A response that sends the client elsewhere.
pub struct Redirect {
    /// Status: 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// Destination; `https` of the configuration is `https://{host}{uri}`.
    pub to: Template,
}

/// A response that is always the same.
pub struct Respond {
    /// Final status of the response.
    pub status: StatusCode,
    /// Its type; `None` sends none.
    pub content_type: Option<HeaderValue>,
    /// Content of the response.
    pub body: bytes::Bytes,
}
