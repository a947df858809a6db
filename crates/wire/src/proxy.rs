//! The PROXY protocol, versions 1 and 2, in both directions.
//!
//! Written after HAProxy's `doc/proxy-protocol.txt`, revision of 2026/04/27; sections are cited from there.
//! [`parse`] reads a header from the front of a buffer; [`Outbound`] writes one. The parser believes whoever
//! wrote the bytes: call it only for sources that the configuration trusts, and then require the header
//! (§2: a receiver must not guess whether a header is present).
//!
//! It refuses datagram transports, headers above [`MAX_HEADER`], and anything that the specification does
//! not assign.

mod tlv;
mod v1;
mod v2;

use std::net::SocketAddr;

pub use tlv::{CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, TlsInfo, Tlv, TlvIter, Tlvs, kind};

use crate::{ProxyFault, Step};

/// The longest v1 line, CRLF included, in bytes (§2.1).
pub const MAX_V1: usize = 107;
/// The longest v2 header that is read or written, in bytes. The specification allows 64 KiB; this holds every
/// assigned TLV with a client certificate of usual size, and bounds what a peer can make us keep.
pub const MAX_HEADER: usize = 8192;
/// The longest unique ID, in bytes (§2.2.5).
pub const MAX_UNIQUE_ID: usize = 128;
/// The longest Unix socket path, in bytes (§2.2).
pub const MAX_UNIX_PATH: usize = 108;

/// The first bytes of a v1 header.
pub(crate) const SIGNATURE_V1: &[u8; 6] = b"PROXY ";
/// The first bytes of a v2 header.
pub(crate) const SIGNATURE_V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// A PROXY header as it was received. It borrows from the buffer that it was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Which of the two formats it had.
    pub version: Version,
    /// On whose behalf the connection was made.
    pub command: Command,
    /// The endpoints of the original connection; [`Addresses::Unspec`] means: use those of this one.
    pub addresses: Addresses<'a>,
    /// The other fields of the sender; empty for v1, for LOCAL, and if the sender has none.
    pub tlvs: Tlvs<'a>,
}

/// The format of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// The line of text (§2.1).
    V1,
    /// The binary block (§2.2).
    V2,
}

/// On whose behalf the connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// The proxy itself connects, as for a health check; the real endpoints of the connection hold.
    Local,
    /// The proxy relays for someone else.
    Proxy,
}

/// The endpoints of the original connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addresses<'a> {
    /// Unspecified: use the real endpoints of the connection.
    Unspec,
    /// TCP, both of one family.
    Tcp {
        /// The client.
        source: SocketAddr,
        /// Where the client connected to.
        destination: SocketAddr,
    },
    /// Unix stream sockets, as in `sockaddr_un`: up to 108 bytes, empty for an unnamed socket, a leading
    /// zero byte for an abstract one.
    Unix {
        /// The client.
        source: &'a [u8],
        /// Where the client connected to.
        destination: &'a [u8],
    },
}

/// One endpoint of a connection, for a header to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint<'a> {
    /// An Internet address; flow label and scope have no place in the header and are left out, and an
    /// IPv4-mapped IPv6 address is written as IPv4.
    Inet(SocketAddr),
    /// A Unix socket, as in [`Addresses::Unix`]. One of more than [`MAX_UNIX_PATH`] bytes cannot be written: the
    /// addresses are left out then.
    Unix(&'a [u8]),
}

/// A header to be written to a server. Text fields go out as they are; the caller has validated them.
///
/// There is no header that cannot be written: a server that wants one would take the client's own bytes for it.
/// What the format has no room for is left out instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outbound<'a> {
    /// The client.
    pub source: Endpoint<'a>,
    /// Where the client connected to.
    pub destination: Endpoint<'a>,
    /// The protocol agreed by ALPN (§2.2.1).
    pub alpn: Option<&'a [u8]>,
    /// The host name that the client requested (§2.2.2).
    pub authority: Option<&'a str>,
    /// A name for this connection, at most [`MAX_UNIQUE_ID`] bytes (§2.2.5).
    pub unique_id: Option<&'a [u8]>,
    /// How the client's TLS looked (§2.2.6).
    pub tls: Option<TlsInfo<'a>>,
    /// Whether to add a checksum over the header (§2.2.3).
    pub crc32c: bool,
}

impl<'a> Outbound<'a> {
    /// A header with addresses alone.
    #[must_use]
    pub fn new(source: Endpoint<'a>, destination: Endpoint<'a>) -> Self {
        Self { source, destination, alpn: None, authority: None, unique_id: None, tls: None, crc32c: false }
    }

    /// Appends the v1 line to `out`: at most [`MAX_V1`] bytes. `UNKNOWN` where an endpoint is a Unix socket or
    /// the families differ (§2.1). Everything but the addresses is left out: v1 has no place for it.
    pub fn encode_v1(&self, out: &mut Vec<u8>) {
        v1::encode(self.pair(), out);
    }

    /// Appends the v2 block to `out`: at most [`MAX_HEADER`] bytes.
    ///
    /// Where one endpoint is IPv4 and the other IPv6, both are written as IPv6, the first one mapped. Where one
    /// is a Unix socket and the other is not, or a path is too long, the addresses are left out (AF_UNSPEC), the
    /// TLVs are not. A TLV that is too long, or for which [`MAX_HEADER`] leaves no room, is left out; of the one
    /// about TLS only the parts are that do not fit, the certificate first.
    pub fn encode_v2(&self, out: &mut Vec<u8>) {
        v2::encode(self, out);
    }

    /// Both endpoints as one, the way the formats want them.
    fn pair(&self) -> Pair<'a> {
        match (self.source, self.destination) {
            (Endpoint::Inet(source), Endpoint::Inet(destination)) => {
                Pair::Inet(canonical(source), canonical(destination))
            }
            (Endpoint::Unix(source), Endpoint::Unix(destination))
                if source.len().max(destination.len()) <= MAX_UNIX_PATH =>
            {
                Pair::Unix(source, destination)
            }
            _ => Pair::Unspec,
        }
    }
}

/// Two endpoints, sorted by what the formats can say of them.
#[derive(Clone, Copy)]
enum Pair<'a> {
    Inet(SocketAddr, SocketAddr),
    /// Both of at most [`MAX_UNIX_PATH`] bytes.
    Unix(&'a [u8], &'a [u8]),
    /// Nothing.
    Unspec,
}

/// A dual-stack socket reports IPv4 peers as IPv4-mapped; the server wants to see what the client had.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Appends the v2 header of a connection that the proxy makes for itself, as for a health check (§2.2).
pub fn encode_local_v2(out: &mut Vec<u8>) {
    v2::encode_local(out);
}

/// Reads a PROXY header of either version from the front of `buf`.
///
/// Never looks past the header, and asks for at most [`MAX_HEADER`] bytes in all. Does not allocate.
///
/// Rejects with the [`ProxyFault`] that names what is wrong; §2.1 and §2.2 want the connection aborted then.
pub fn parse(buf: &[u8]) -> Step<Header<'_>, ProxyFault> {
    match buf.first() {
        // The shortest header there is: "PROXY UNKNOWN\r\n".
        None => Step::Need(v1::SHORTEST),
        Some(b'P') => v1::parse(buf),
        Some(b'\r') => v2::parse(buf),
        Some(_) => Step::Reject(ProxyFault::NotProxy),
    }
}
