//! What is known of one finished HTTP request: plain, owned data, made once, when its last byte has gone.
//!
//! What all requests of a connection have in common is kept once and shared by them. As with connections,
//! facts hold what happened, and nothing that a log must not hold: no bodies, no cookies, no credentials.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{
    Address, Cause, ClientFacts, Close, ConnectionFacts, ConnectionId, Fault, PathFacts, TlsFacts, Traffic,
};

/// One finished request.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    /// The request's id, as the server got it in `X-Request-Id`.
    pub id: Box<str>,
    /// The connection that it came by, shared by all its requests.
    pub connection: Arc<ConnectionBrief>,
    /// The client, where trusted proxies name another one than the connection's.
    pub named: Option<IpAddr>,
    /// When the first byte of its head came.
    pub begun: SystemTime,
    /// What was asked for.
    pub request: RequestLine,
    /// Where it went.
    pub path: PathFacts,
    /// The status of the response; 0 where none was begun.
    pub status: u16,
    /// Bytes of bodies: of the request as received, of the response as sent.
    pub traffic: Traffic,
    /// How long its parts took.
    pub times: RequestTimes,
    /// How it ended.
    pub close: Close,
    /// Its place in a distributed trace.
    pub trace: Option<Trace>,
    /// Set for tunnels and event streams, which last until somebody leaves: their duration says nothing of the server.
    pub is_open_ended: bool,
}

impl RequestFacts {
    /// The facts of a request whose head was just read. Until [`close`](Self::close) is set they say
    /// [`Cause::Internal`]: an end without a named cause is our fault.
    #[must_use]
    pub fn new(
        id: Box<str>,
        connection: Arc<ConnectionBrief>,
        begun: SystemTime,
        request: RequestLine,
    ) -> Self {
        Self {
            id,
            connection,
            named: None,
            begun,
            request,
            path: PathFacts::default(),
            status: 0,
            traffic: Traffic::default(),
            times: RequestTimes::default(),
            close: Close::from(Cause::Internal),
            trace: None,
            is_open_ended: false,
        }
    }

    /// Who asked: the client that trusted proxies name, else the connection's. A port is known of the latter only.
    #[must_use]
    pub fn client(&self) -> Cow<'_, Address> {
        match self.named {
            Some(ip) => Cow::Owned(Address::Ip(SocketAddr::new(ip, 0))),
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
    pub fn peer(&self) -> Option<&Address> {
        let connection = &self.connection.client;
        connection.peer.as_ref().or_else(|| self.named.map(|_| &connection.address))
    }

    /// Whether somebody or something failed, so that sampling must not leave it out: the status is 500 or
    /// above, or the end is anybody's fault.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.status >= 500 || self.close.fault != Fault::Nobody
    }
}

/// What the requests of a connection have in common.
#[derive(Clone, Debug)]
pub struct ConnectionBrief {
    /// The connection's unique id.
    pub id: ConnectionId,
    /// The worker that serves it.
    pub worker: u16,
    /// The listener's name.
    pub listener: Arc<str>,
    /// When it was accepted.
    pub accepted: SystemTime,
    /// Who it came from.
    pub client: ClientFacts,
    /// What TLS agreed upon; absent on plain-text listeners.
    pub tls: Option<TlsFacts>,
}

impl From<&ConnectionFacts> for ConnectionBrief {
    /// What is known once the handshake is complete. Without a handshake it is a plain-text connection.
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
            Address::Ip(address) => Some(address.ip().to_canonical()),
            Address::Unix(_) => None,
        }
    }
}

/// What was asked for. Texts are as the client sent them, where nothing else is said: they may hold
/// anything that the HTTP parser lets through, and every writer escapes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLine {
    /// The method.
    pub method: Cow<'static, str>,
    /// How the client spoke to us.
    pub scheme: Scheme,
    /// The host as routed: lower case, without port; empty where the request names none.
    pub host: Arc<str>,
    /// Path and query as received.
    pub target: Box<str>,
    /// The version of HTTP.
    pub version: HttpVersion,
    /// The `Referer` header (RFC 9110 §10.1.3).
    pub referer: Option<Box<[u8]>>,
    /// The `User-Agent` header (RFC 9110 §10.1.5).
    pub user_agent: Option<Arc<[u8]>>,
    /// The authenticated user.
    pub user: Option<Box<[u8]>>,
}

impl RequestLine {
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

    /// Both at once. Targets are short: a plain search over the bytes beats that of the standard library.
    #[must_use]
    pub fn path_and_query(&self) -> (&str, Option<&str>) {
        match self.target.bytes().position(|byte| byte == b'?') {
            Some(at) => (&self.target[..at], Some(&self.target[at + 1..])),
            None => (&self.target, None),
        }
    }
}

/// How a client speaks to Offramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain text.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// Every scheme, in the order of the discriminants.
    pub const ALL: [Self; 2] = [Self::Http, Self::Https];

    /// The name, in lower case.
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
    /// RFC 1945.
    Http10,
    /// RFC 9112.
    Http11,
    /// RFC 9113.
    Http2,
}

impl HttpVersion {
    /// Every version, in the order of the discriminants.
    pub const ALL: [Self; 3] = [Self::Http10, Self::Http11, Self::Http2];

    /// The name as nginx's `$server_protocol` has it: `HTTP/1.0`, `HTTP/1.1`, `HTTP/2.0`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// How long the parts of a request took; recorded to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Waiting for a server to have room; absent if it did not wait.
    pub queue: Option<Duration>,
    /// Connecting to the server, failed tries included; absent where a kept connection was used.
    pub connect: Option<Duration>,
    /// From the first byte of the request's head to the server's response head; absent if none came.
    pub first_byte: Option<Duration>,
    /// From the first byte of the request's head to the last byte of the response.
    pub total: Duration,
}

/// A request's place in a distributed trace (W3C Trace Context, level 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace's id, not zero.
    pub id: u128,
    /// The id of this request's own span, which the server sees as its parent; not zero.
    pub span: u64,
    /// The span of the caller; `None` if the trace begins here.
    pub parent: Option<u64>,
    /// Whether it is recorded.
    pub sampled: bool,
}

#[cfg(test)]
mod tests {
    use super::{ConnectionBrief, HttpVersion, RequestFacts, RequestLine, Scheme};
    use crate::facts::{Cause, Close, ConnectionFacts, Handshake, IdSource};
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    fn connection() -> ConnectionFacts {
        let id = IdSource::new(0, 0).next(UNIX_EPOCH);
        let client: SocketAddr = "[::ffff:192.0.2.1]:443".parse().unwrap();
        ConnectionFacts::new(id, 0, "web".into(), UNIX_EPOCH, client.into())
    }

    fn line(target: &str) -> RequestLine {
        RequestLine {
            method: "GET".into(),
            scheme: Scheme::Https,
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
