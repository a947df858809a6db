//! What is known of one finished connection or request: plain, owned data.
//!
//! The worker that accepted the connection makes its [`ConnectionFacts`], fills it while it serves, and
//! sends it once, at the end. Facts hold what happened, never what to do; and never application data,
//! keys, or anything else that a log must not hold.

mod cause;
mod id;
mod mismatch;
mod request;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub use cause::{Cause, Fault, Limit};
pub use id::{ConnectionId, IdSource};
pub use mismatch::{Mismatch, NameList, Offer};
pub use offramp_record::Alert;
pub use request::{ConnectionBrief, HttpVersion, RequestFacts, RequestLine, RequestTimes, Scheme, Trace};

/// One finished connection.
#[derive(Clone, Debug)]
pub struct ConnectionFacts {
    /// Unique, and sorted by acceptance.
    pub id: ConnectionId,
    /// The worker that served it.
    pub worker: u16,
    /// The listener's name.
    pub listener: Arc<str>,
    /// When it was accepted.
    pub accepted: SystemTime,
    /// Who it came from.
    pub client: ClientFacts,
    /// What TLS agreed upon.
    pub tls: TlsFacts,
    /// Where it went.
    pub path: PathFacts,
    /// How much it moved.
    pub traffic: Traffic,
    /// How long its parts took.
    pub times: Times,
    /// How it ended.
    pub close: Close,
    /// For a failed handshake: the offer of the client and the configuration.
    pub mismatch: Option<Box<Mismatch>>,
}

impl ConnectionFacts {
    /// The facts of a connection that was just accepted. Until [`close`](Self::close) is set they say
    /// [`Cause::Internal`]: an end without a named cause is our fault.
    #[must_use]
    pub fn new(
        id: ConnectionId,
        worker: u16,
        listener: Arc<str>,
        accepted: SystemTime,
        client: Address,
    ) -> Self {
        Self {
            id,
            worker,
            listener,
            accepted,
            client: ClientFacts { address: client, peer: None, destination: None },
            tls: TlsFacts::default(),
            path: PathFacts::default(),
            traffic: Traffic::default(),
            times: Times::default(),
            close: Close::from(Cause::Internal),
            mismatch: None,
        }
    }
}

/// Who a connection came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFacts {
    /// The client: from a believed PROXY header where there is one, else the peer of the socket.
    pub address: Address,
    /// The peer of the socket, if a PROXY header named another client.
    pub peer: Option<Address>,
    /// Where that client had connected to, as the same header says.
    pub destination: Option<Address>,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and port. IPv4-mapped IPv6 addresses are printed as the IPv4 addresses that they are.
    Ip(SocketAddr),
    /// A Unix socket; clients' sockets rarely have a path, which is any bytes. One that begins with a zero byte is
    /// an abstract name.
    Unix(Option<Box<[u8]>>),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => SocketAddr::new(address.ip().to_canonical(), address.port()).fmt(f),
            Self::Unix(None) => f.write_str("unix"),
            // As systemd and `ss` write abstract names.
            Self::Unix(Some(path)) => match &**path {
                [0, name @ ..] => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
                path => write!(f, "unix:{}", String::from_utf8_lossy(path)),
            },
        }
    }
}

/// What the ClientHello asked for and what TLS agreed upon. Names of code points are IANA's.
#[derive(Clone, Debug, Default)]
pub struct TlsFacts {
    /// The server name that the client asked for (RFC 6066 §3), as it came.
    pub sni: Option<Box<str>>,
    /// The client's JA4 fingerprint, where an event or a rule asks for it: ASCII.
    pub ja4: Option<[u8; 36]>,
    /// The application protocol agreed upon (RFC 7301): any bytes.
    pub alpn: Option<Box<[u8]>>,
    /// The protocol version.
    pub version: Option<TlsVersion>,
    /// The cipher suite.
    pub suite: Option<&'static str>,
    /// The key-exchange group; a resumption without key exchange has none.
    pub group: Option<&'static str>,
    /// The scheme of the server's signature; a resumption has none.
    pub scheme: Option<&'static str>,
    /// Whether the handshake was full or resumed; absent if it was not completed.
    pub handshake: Option<Handshake>,
    /// The common name of the client certificate's subject: any bytes.
    pub client_cn: Option<Box<[u8]>>,
}

/// The TLS versions that Offramp terminates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl TlsVersion {
    /// Every version, in the order of the discriminants.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// The name, as `TLSv1.3`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }
}

/// How a handshake authenticated the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handshake {
    /// By certificate and signature.
    Full,
    /// By a ticket.
    Resumed,
}

impl Handshake {
    /// Every kind, in the order of the discriminants.
    pub const ALL: [Self; 2] = [Self::Full, Self::Resumed];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
        }
    }
}

/// Where a connection went.
#[derive(Clone, Debug, Default)]
pub struct PathFacts {
    /// The route that matched.
    pub route: Option<Arc<str>>,
    /// The backend of the route.
    pub backend: Option<Arc<str>>,
    /// The server that was connected to, or tried last: its address as configured.
    pub server: Option<Arc<str>>,
    /// How many connection attempts were made, over all servers.
    pub tries: u16,
}

/// How much a connection moved: bytes of plaintext (of a passthrough route: bytes as they came).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the client to the server.
    pub from_client: u64,
    /// From the server to the client.
    pub to_client: u64,
}

/// How long the parts of a connection took; recorded to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the first byte to the completed (or failed) handshake.
    pub handshake: Option<Duration>,
    /// From picking a server to being connected, failed tries included.
    pub connect: Option<Duration>,
    /// From accept to the end.
    pub total: Duration,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// Why.
    pub cause: Cause,
    /// Whose fault it was; usually the cause's own.
    pub fault: Fault,
    /// The fatal alert that went or came.
    pub alert: Option<FatalAlert>,
    /// What the system or a library said, for causes that do not say it all.
    pub detail: Option<Box<str>>,
}

impl From<Cause> for Close {
    fn from(cause: Cause) -> Self {
        Self { cause, fault: cause.fault(), alert: None, detail: None }
    }
}

impl Close {
    /// The same end with an alert that was sent or received.
    #[must_use]
    pub fn with_alert(self, alert: FatalAlert) -> Self {
        Self { alert: Some(alert), ..self }
    }

    /// The same end with another fault than usual.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// The same end with an explanation; long ones are cut after [`Close::MAX_DETAIL`] bytes.
    #[must_use]
    pub fn with_detail(self, detail: &str) -> Self {
        let end = floor_char_boundary(detail, Self::MAX_DETAIL);
        Self { detail: Some(detail[..end].into()), ..self }
    }

    /// The most bytes of a detail that are kept.
    pub const MAX_DETAIL: usize = 256;
}

/// A TLS alert that ended a connection, and which way it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalAlert {
    /// Offramp sent it.
    Sent(Alert),
    /// The client sent it.
    Received(Alert),
}

/// The largest character boundary of `text` that is not above `limit`.
fn floor_char_boundary(text: &str, limit: usize) -> usize {
    // Index 0 is always a boundary, so the search always finds one.
    (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Address, Cause, Close, Fault};

    #[test]
    fn mapped_addresses_read_as_ipv4() {
        let mapped: Address = "[::ffff:192.0.2.1]:443".parse::<std::net::SocketAddr>().unwrap().into();
        assert_eq!(mapped.to_string(), "192.0.2.1:443");
        let unix = |path: &[u8]| Address::Unix(Some(path.into())).to_string();
        assert_eq!(unix(b"/run/x"), "unix:/run/x");
        assert_eq!(unix(b"\0\xffx"), "unix:@\u{fffd}x");
    }

    #[test]
    fn a_cause_brings_its_usual_fault() {
        let close = Close::from(Cause::ConnectTimeout);
        assert_eq!(close.fault, Fault::Server);
        assert_eq!(close.with_fault(Fault::Us).fault, Fault::Us);
    }

    #[test]
    fn details_are_cut_between_characters() {
        let close = Close::from(Cause::Internal).with_detail(&"é".repeat(200));
        assert_eq!(close.detail.unwrap().len(), Close::MAX_DETAIL);
        let close = Close::from(Cause::Internal).with_detail(&format!("a{}", "é".repeat(200)));
        assert_eq!(close.detail.unwrap().len(), Close::MAX_DETAIL - 1);
    }
}
