//! The record of one finished HTTP request, made when its last byte was sent.
//!
//! Facts common to all requests of a connection are kept once and shared. Facts state what happened, and hold
//! nothing that must not reach a log: no bodies, no cookies, no credentials.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{
    ByteCounts, Cause, ClientFacts, Close, ConnectionFacts, ConnectionId, EndpointAddress, Fault, PathFacts,
    TlsFacts,
};

/// The record of one finished request.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    /// The request id, as forwarded in `X-Request-Id`.
    pub id: Box<str>,
    /// The connection, shared by all its requests.
    pub connection: Arc<ConnectionBrief>,
    /// The client according to trusted proxies, if it differs from the connection's.
    pub named: Option<IpAddr>,
    /// The time of the first byte of the head.
    pub begun: SystemTime,
    /// Method, target and the headers that are logged.
    pub request: RequestSummary,
    /// Route, backend and server.
    pub path: PathFacts,
    /// The status of the response; 0 if none was started.
    pub status: u16,
    /// Body bytes: of the request as received, of the response as sent.
    pub traffic: ByteCounts,
    /// Durations of the phases.
    pub times: RequestTimes,
    /// The reason for the end, and the fault.
    pub close: Close,
    /// The span of this request in a distributed trace.
    pub trace: Option<Trace>,
    /// Set for tunnels and event streams, which last as long as the parties like: their duration says nothing
    /// about the server.
    pub is_open_ended: bool,
}

impl RequestFacts {
    /// The record of a request just after its head was read. Until [`close`](Self::close) is set it says
    /// [`Cause::Internal`]: an end without a cause is a bug of Offramp.
    #[must_use]
    pub fn new(
        id: Box<str>,
        connection: Arc<ConnectionBrief>,
        begun: SystemTime,
        request: RequestSummary,
    ) -> Self {
        Self {
            id,
            connection,
            named: None,
            begun,
            request,
            path: PathFacts::default(),
            status: 0,
            traffic: ByteCounts::default(),
            times: RequestTimes::default(),
            close: Close::from(Cause::Internal),
            trace: None,
            is_open_ended: false,
        }
    }

    /// The client: the one that trusted proxies name, else the connection's. Only the latter has a port.
    #[must_use]
    pub fn client(&self) -> Cow<'_, EndpointAddress> {
        match self.named {
            Some(ip) => Cow::Owned(EndpointAddress::Ip(SocketAddr::new(ip, 0))),
            None => Cow::Borrowed(&self.connection.client.address),
        }
    }

    /// The client's IP address, IPv4-mapped ones as IPv4; `None` for Unix sockets.
    #[must_use]
    pub fn client_ip(&self) -> Option<IpAddr> {
        self.named.map(|ip| ip.to_canonical()).or_else(|| self.connection.client.ip())
    }

    /// The peer of the socket, if it is not the client.
    #[must_use]
    pub fn peer(&self) -> Option<&EndpointAddress> {
        let connection = &self.connection.client;
        connection.peer.as_ref().or_else(|| self.named.map(|_| &connection.address))
    }

    /// Returns `true` for failures, which sampling must not drop: a status of 500 or above, or a cause with a
    /// fault.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.status >= 500 || self.close.fault != Fault::Nobody
    }
}

/// The facts that all requests of a connection share.
#[derive(Clone, Debug)]
pub struct ConnectionBrief {
    /// The unique id of the connection.
    pub id: ConnectionId,
    /// The worker that serves the connection.
    pub worker: u16,
    /// The name of the listener.
    pub listener: Arc<str>,
    /// The time of acceptance.
    pub accepted: SystemTime,
    /// The client and the socket's peer.
    pub client: ClientFacts,
    /// Negotiated TLS parameters; absent on plain-text listeners.
    pub tls: Option<TlsFacts>,
}

impl From<&ConnectionFacts> for ConnectionBrief {
    /// The facts known once the handshake is complete. A connection without a handshake counts as plain text.
    fn from(facts: &ConnectionFacts) -> Self {
        Self {
            id: facts.id,
            worker: facts.worker,
            listener: Arc::clone(&facts.listener),
            accepted: facts.accepted,
            client: facts.client.clone(),
            tls: facts.tls.handshake.map(|_| facts.tls.clone()),
        }
    }
}

impl ClientFacts {
    /// The client's IP address, IPv4-mapped ones as IPv4; `None` for Unix sockets.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match &self.address {
            EndpointAddress::Ip(address) => Some(address.ip().to_canonical()),
            EndpointAddress::Unix(_) => None,
        }
    }
}

/// The request line, and the headers that are logged. Texts are as sent unless stated otherwise: they may
/// hold anything that the HTTP parser accepts, and every writer escapes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSummary {
    /// The method, such as `GET`.
    pub method: Cow<'static, str>,
    /// The scheme between client and Offramp.
    pub scheme: ClientScheme,
    /// The host as routed: lower case, without port; empty if the request has none.
    pub host: Arc<str>,
    /// Path and query as received.
    pub target: Box<str>,
    /// The HTTP version of the client.
    pub version: HttpVersion,
    /// The `Referer` header (RFC 9110 §10.1.3).
    pub referer: Option<Box<[u8]>>,
    /// The `User-Agent` header (RFC 9110 §10.1.5).
    pub user_agent: Option<Arc<[u8]>>,
    /// The user, if authenticated.
    pub user: Option<Box<[u8]>>,
}

impl RequestSummary {
    /// The target without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_and_query().0
    }

    /// The query, without its question mark; `None` where there is none.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.path_and_query().1
    }

    /// Splits path and query. Targets are short: a plain byte search beats that of the standard library.
    #[must_use]
    pub fn path_and_query(&self) -> (&str, Option<&str>) {
        match self.target.bytes().position(|byte| byte == b'?') {
            Some(at) => (&self.target[..at], Some(&self.target[at + 1..])),
            None => (&self.target, None),
        }
    }
}

/// The scheme between a client and Offramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientScheme {
    /// HTTP in plain text.
    Http,
    /// HTTP over a TLS connection.
    Https,
}

impl ClientScheme {
    /// Every scheme, in the order of the discriminants.
    pub const ALL: [Self; 2] = [Self::Http, Self::Https];

    /// The name in lower case, as in URLs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// The versions of HTTP that Offramp speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpVersion {
    /// HTTP/1.0, defined in RFC 1945.
    Http10,
    /// HTTP/1.1, defined in RFC 9112.
    Http11,
    /// HTTP/2, defined in RFC 9113.
    Http2,
}

impl HttpVersion {
    /// Every version, in the order of the discriminants.
    pub const ALL: [Self; 3] = [Self::Http10, Self::Http11, Self::Http2];

    /// The name in the style of nginx's `$server_protocol`: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2.0`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// Durations of the phases of a request, recorded to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Time in the queue for a server; absent if the request was not queued.
    pub queue: Option<Duration>,
    /// Time to connect, failed tries included; absent if a pooled connection was used.
    pub connect: Option<Duration>,
    /// From the first byte of the request head to the response head of the server; absent without a response.
    pub first_byte: Option<Duration>,
    /// From the first byte of the request's head to the last byte of the response.
    pub total: Duration,
}

/// The span of a request in a distributed trace (W3C Trace Context, level 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace id; never zero.
    pub id: u128,
    /// The id of this request's own span, the parent of the server's spans; never zero.
    pub span: u64,
    /// The span of the caller; `None` at the root of the trace.
    pub parent: Option<u64>,
    /// The sampled flag: spans are exported only if it is set.
    pub sampled: bool,
}

#[cfg(test)]
mod tests {
    use super::{ClientScheme, ConnectionBrief, HttpVersion, RequestFacts, RequestSummary};
    use crate::facts::{Cause, Close, ConnectionFacts, Handshake, IdSource};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    fn connection() -> ConnectionFacts {
        let id = IdSource::new(0, 0).next(UNIX_EPOCH);
        let client: SocketAddr = "[::ffff:192.0.2.1]:443".parse().unwrap();
        ConnectionFacts::new(id, 0, "web".into(), UNIX_EPOCH, client.into())
    }

    fn line(target: &str) -> RequestSummary {
        RequestSummary {
            method: "GET".into(),
            scheme: ClientScheme::Https,
            host: "example.org".into(),
            target: target.into(),
            version: HttpVersion::Http2,
            referer: None,
            user_agent: None,
            user: None,
        }
    }

    #[test]
    fn targets_are_split_at_the_first_question_mark() {
        assert_eq!((line("/a?b?c").path(), line("/a?b?c").query()), ("/a", Some("b?c")));
        assert_eq!((line("/a").path(), line("/a").query()), ("/a", None));
        assert_eq!(line("/a?").query(), Some(""));
    }

    #[test]
    fn a_brief_of_plain_text_has_no_tls() {
        let mut facts = connection();
        let brief = ConnectionBrief::from(&facts);
        assert!(brief.tls.is_none());
        assert_eq!(brief.client.ip(), Some([192, 0, 2, 1].into()));
        facts.tls.handshake = Some(Handshake::Full);
        assert!(ConnectionBrief::from(&facts).tls.is_some());
    }

    #[test]
    fn the_client_is_whom_proxies_name_and_the_peer_stays_known() {
        let mut brief = ConnectionBrief::from(&connection());
        let mut facts = RequestFacts::new("id".into(), Arc::new(brief.clone()), UNIX_EPOCH, line("/"));
        assert_eq!((facts.client_ip(), facts.peer()), (Some([192, 0, 2, 1].into()), None));
        facts.named = Some([203, 0, 113, 9].into());
        assert_eq!((facts.client_ip(), facts.peer()), (facts.named, Some(&brief.client.address)));
        assert_eq!(facts.client().to_string(), "203.0.113.9:0");
        let real: SocketAddr = "10.0.0.1:9".parse().unwrap();
        brief.client.peer = Some(real.into());
        facts.connection = Arc::new(brief);
        assert_eq!(facts.peer(), Some(&real.into()));
    }

    #[test]
    fn failures_are_statuses_from_500_and_faults() {
        let brief = Arc::new(ConnectionBrief::from(&connection()));
        let mut facts = RequestFacts::new("id".into(), brief, UNIX_EPOCH, line("/"));
        assert!(facts.is_failure(), "an end that nobody named");
        (facts.status, facts.close) = (404, Close::from(Cause::Completed));
        assert!(!facts.is_failure());
        facts.status = 500;
        assert!(facts.is_failure());
        (facts.status, facts.close) = (200, Close::from(Cause::ClientAborted));
        assert!(facts.is_failure());
    }
}
