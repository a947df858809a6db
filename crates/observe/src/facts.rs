//! The record of one finished connection or request: plain, owned data.
//!
//! The worker that accepted a connection creates its [`ConnectionFacts`], fills it in while it serves, and
//! sends it once, at the end. Facts state what happened, never what to do; and they hold no application data,
//! keys, or anything else that must not reach a log.

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
pub use mismatch::{Mismatch, NameList, TlsOffer};
pub use offramp_record::Alert;
pub use request::{
    ClientScheme, ConnectionBrief, HttpVersion, RequestFacts, RequestSummary, RequestTimes, Trace,
};

/// The record of one finished connection.
#[derive(Clone, Debug)]
pub struct ConnectionFacts {
    /// Unique id; ids sort by time of acceptance.
    pub id: ConnectionId,
    /// The worker that served the connection.
    pub worker: u16,
    /// The name of the listener.
    pub listener: Arc<str>,
    /// The time of acceptance.
    pub accepted: SystemTime,
    /// The client and the socket's peer.
    pub client: ClientFacts,
    /// Parameters that the TLS handshake negotiated.
    pub tls: TlsFacts,
    /// Route, backend and server.
    pub path: PathFacts,
    /// Plaintext bytes in each direction.
    pub traffic: ByteCounts,
    /// Durations of the phases.
    pub times: Times,
    /// The reason for the end, and the fault.
    pub close: Close,
    /// For a failed handshake: the offer of the client and the configured parameters.
    pub mismatch: Option<Box<Mismatch>>,
}

impl ConnectionFacts {
    /// The record of a connection that was just accepted. Until [`close`](Self::close) is set it says
    /// [`Cause::Internal`]: an end without a cause is a bug of Offramp.
    #[must_use]
    pub fn new(
        id: ConnectionId,
        worker: u16,
        listener: Arc<str>,
        accepted: SystemTime,
        client: EndpointAddress,
    ) -> Self {
        Self {
            id,
            worker,
            listener,
            accepted,
            client: ClientFacts { address: client, peer: None, destination: None },
            tls: TlsFacts::default(),
            path: PathFacts::default(),
            traffic: ByteCounts::default(),
            times: Times::default(),
            close: Close::from(Cause::Internal),
            mismatch: None,
        }
    }
}

/// The origin of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFacts {
    /// The client address: from a trusted PROXY header where there is one, else the peer of the socket.
    pub address: EndpointAddress,
    /// The peer of the socket, if a PROXY header names another client.
    pub peer: Option<EndpointAddress>,
    /// The original destination, from the same PROXY header.
    pub destination: Option<EndpointAddress>,
}

/// The address of one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointAddress {
    /// An IP address and port. IPv4-mapped IPv6 addresses are printed as the IPv4 addresses that they are.
    Ip(SocketAddr),
    /// A Unix socket. Client sockets rarely have a path; a path is arbitrary bytes, and a leading zero byte
    /// marks an abstract name.
    Unix(Option<Box<[u8]>>),
}

impl From<SocketAddr> for EndpointAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => SocketAddr::new(address.ip().to_canonical(), address.port()).fmt(f),
            Self::Unix(None) => f.write_str("unix"),
            // The notation of systemd and `ss` for abstract names.
            Self::Unix(Some(path)) => match &**path {
                [0, name @ ..] => write!(f, "unix:@{}", String::from_utf8_lossy(name)),
                path => write!(f, "unix:{}", String::from_utf8_lossy(path)),
            },
        }
    }
}

/// The ClientHello's requests and the negotiated parameters. Code points go by their IANA names.
#[derive(Clone, Debug, Default)]
pub struct TlsFacts {
    /// The SNI name (RFC 6066 §3) as sent.
    pub sni: Option<Box<str>>,
    /// The client's JA4 fingerprint in ASCII; computed only where an event or a rule needs it.
    pub ja4: Option<[u8; 36]>,
    /// The application protocol (RFC 7301): arbitrary bytes.
    pub alpn: Option<Box<[u8]>>,
    /// The negotiated protocol version.
    pub version: Option<TlsVersion>,
    /// The negotiated cipher suite.
    pub suite: Option<&'static str>,
    /// The key-exchange group; absent for a resumption without key exchange.
    pub group: Option<&'static str>,
    /// The signature scheme of the server; absent for a resumption.
    pub scheme: Option<&'static str>,
    /// Full or resumed; absent if the handshake was not completed.
    pub handshake: Option<Handshake>,
    /// The common name in the subject of the client certificate: arbitrary bytes.
    pub client_cn: Option<Box<[u8]>>,
}

/// The TLS versions that Offramp terminates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsVersion {
    /// TLS 1.2, defined in RFC 5246.
    Tls12,
    /// TLS 1.3, defined in RFC 8446.
    Tls13,
}

impl TlsVersion {
    /// Every version, in the order of the discriminants.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// The name in the style of OpenSSL, such as `TLSv1.3`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }
}

/// The way in which a handshake authenticated the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handshake {
    /// By certificate and signature.
    Full,
    /// By a session ticket, without a certificate.
    Resumed,
}

impl Handshake {
    /// Every kind, in the order of the discriminants.
    pub const ALL: [Self; 2] = [Self::Full, Self::Resumed];

    /// The stable name, in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
        }
    }
}

/// The way of a connection through the configuration.
#[derive(Clone, Debug, Default)]
pub struct PathFacts {
    /// The name of the matching route.
    pub route: Option<Arc<str>>,
    /// The backend of the route.
    pub backend: Option<Arc<str>>,
    /// The configured address of the server that was connected to, or tried last.
    pub server: Option<Arc<str>>,
    /// The number of connection attempts, over all servers.
    pub tries: u16,
}

/// Bytes of plaintext in each direction; for a passthrough route, bytes as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteCounts {
    /// Bytes from the client to the server.
    pub from_client: u64,
    /// Bytes from the server to the client.
    pub to_client: u64,
}

/// Durations of the phases of a connection, recorded to the microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// From the first byte to the completed (or failed) handshake.
    pub handshake: Option<Duration>,
    /// From picking a server to being connected, failed tries included.
    pub connect: Option<Duration>,
    /// From accept to close.
    pub total: Duration,
}

/// The end of a connection or request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The reason for the end.
    pub cause: Cause,
    /// The party at fault; usually that of the cause.
    pub fault: Fault,
    /// The fatal alert that was sent or received.
    pub alert: Option<FatalAlert>,
    /// The message of the operating system or a library, for causes that need one.
    pub detail: Option<Box<str>>,
}

impl From<Cause> for Close {
    fn from(cause: Cause) -> Self {
        Self { cause, fault: cause.fault(), alert: None, detail: None }
    }
}

impl Close {
    /// Adds the alert that was sent or received.
    #[must_use]
    pub fn with_alert(self, alert: FatalAlert) -> Self {
        Self { alert: Some(alert), ..self }
    }

    /// Replaces the usual fault of the cause.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// Adds an explanation, cut to [`Close::MAX_DETAIL`] bytes.
    #[must_use]
    pub fn with_detail(self, detail: &str) -> Self {
        let end = floor_char_boundary(detail, Self::MAX_DETAIL);
        Self { detail: Some(detail[..end].into()), ..self }
    }

    /// The maximum length of a detail, in bytes.
    pub const MAX_DETAIL: usize = 256;
}

/// The TLS alert that ended a connection, and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FatalAlert {
    /// Sent by Offramp to the client.
    Sent(Alert),
    /// Received by Offramp from the client.
    Received(Alert),
}

/// The largest character boundary of `text` that is not above `limit`.
fn floor_char_boundary(text: &str, limit: usize) -> usize {
    // Index 0 is always a boundary, so the search always finds one.
    (0..=limit.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Cause, Close, EndpointAddress, Fault};

    #[test]
    fn mapped_addresses_read_as_ipv4() {
        let mapped: EndpointAddress =
            "[::ffff:192.0.2.1]:443".parse::<std::net::SocketAddr>().unwrap().into();
        assert_eq!(mapped.to_string(), "192.0.2.1:443");
        let unix = |path: &[u8]| EndpointAddress::Unix(Some(path.into())).to_string();
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
