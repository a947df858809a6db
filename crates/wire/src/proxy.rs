//! The PROXY protocol, versions 1 and 2, in both directions.
//!
//! Follows HAProxy's `doc/proxy-protocol.txt`, revision of 2026/04/27; section numbers refer to it. [`parse`]
//! reads a header from the front of a buffer; [`OutboundHeader`] writes one. The parser trusts the sender: call it
//! only for sources that the configuration trusts, and then require the header (§2: a receiver must not guess
//! whether a header is present).
//!
//! Datagram transports, headers above [`MAX_HEADER`] and unassigned values are rejected.

mod tlv;
mod v1;
mod v2;

use std::net::SocketAddr;

pub use tlv::{CLIENT_CERT_CONN, CLIENT_CERT_SESS, CLIENT_SSL, TlsInfo, Tlv, TlvIter, Tlvs, kind};

use crate::{ParseStep, ProxyFault};

/// Longest v1 line, including CRLF, in bytes (§2.1).
pub const MAX_V1: usize = 107;
/// Longest v2 header that is read or written, in bytes. The specification allows 64 KiB; this holds every
/// assigned TLV with a client certificate of usual size, and bounds the memory that a peer can claim.
pub const MAX_HEADER: usize = 8192;
/// Longest unique ID, in bytes (§2.2.5).
pub const MAX_UNIQUE_ID: usize = 128;
/// Longest Unix socket path, in bytes (§2.2).
pub const MAX_UNIX_PATH: usize = 108;

/// The first bytes of a v1 header.
pub(crate) const SIGNATURE_V1: &[u8; 6] = b"PROXY ";
/// The first bytes of a v2 header.
pub(crate) const SIGNATURE_V2: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// A received PROXY header, borrowed from the input buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Format of the header.
    pub version: ProxyHeaderVersion,
    /// Origin of the connection: a client, or the proxy itself.
    pub command: ProxyCommand,
    /// Endpoints of the original connection; for [`ProxyAddresses::Unspec`], use those of the real one.
    pub addresses: ProxyAddresses<'a>,
    /// TLVs of the sender; empty for v1, for LOCAL, and if the sender adds none.
    pub tlvs: Tlvs<'a>,
}

/// The format of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyHeaderVersion {
    /// Version 1, a line of text (§2.1).
    V1,
    /// Version 2, a binary block (§2.2).
    V2,
}

/// Origin of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyCommand {
    /// The proxy itself connects, as for a health check; use the real endpoints of the connection.
    Local,
    /// The proxy relays the connection of a client.
    Proxy,
}

/// Endpoints of the original connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyAddresses<'a> {
    /// Unspecified: use the real endpoints of the connection.
    Unspec,
    /// TCP addresses, both of one family.
    Tcp {
        /// Address of the client.
        source: SocketAddr,
        /// Address that the client connected to.
        destination: SocketAddr,
    },
    /// Unix stream sockets, as in `sockaddr_un`: up to 108 bytes, empty for an unnamed socket, a leading zero
    /// byte for an abstract one.
    Unix {
        /// Path of the client's socket.
        source: &'a [u8],
        /// Path that the client connected to.
        destination: &'a [u8],
    },
}

/// Endpoint of a connection in a header to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProxyEndpoint<'a> {
    /// An Internet address. The header has no fields for flow label and scope, which are dropped; an
    /// IPv4-mapped IPv6 address is written as IPv4.
    Inet(SocketAddr),
    /// A Unix socket, as in [`ProxyAddresses::Unix`]. A path above [`MAX_UNIX_PATH`] bytes cannot be written: the
    /// header then omits both addresses.
    Unix(&'a [u8]),
}

/// A header to be written to a server. Text fields go out as they are; the caller has validated them.
///
/// Encoding cannot fail: a server that expects a header would parse the client's own bytes in its place.
/// Fields that the format cannot hold are omitted instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboundHeader<'a> {
    /// Endpoint of the client.
    pub source: ProxyEndpoint<'a>,
    /// Endpoint that the client connected to.
    pub destination: ProxyEndpoint<'a>,
    /// Protocol agreed by ALPN (§2.2.1).
    pub alpn: Option<&'a [u8]>,
    /// Host name that the client requested (§2.2.2).
    pub authority: Option<&'a str>,
    /// Identifier of this connection, at most [`MAX_UNIQUE_ID`] bytes (§2.2.5).
    pub unique_id: Option<&'a [u8]>,
    /// Parameters of the client's TLS session (§2.2.6).
    pub tls: Option<TlsInfo<'a>>,
    /// Adds a CRC32c over the header (§2.2.3).
    pub crc32c: bool,
}

impl<'a> OutboundHeader<'a> {
    /// Creates a header with addresses alone.
    #[must_use]
    pub fn new(source: ProxyEndpoint<'a>, destination: ProxyEndpoint<'a>) -> Self {
        Self { source, destination, alpn: None, authority: None, unique_id: None, tls: None, crc32c: false }
    }

    /// Appends the v1 line to `out`: at most [`MAX_V1`] bytes. Writes `UNKNOWN` if an endpoint is a Unix
    /// socket or the families differ (§2.1). Only the addresses are written: v1 has no other fields.
    pub fn encode_v1(&self, out: &mut Vec<u8>) {
        v1::encode(self.pair(), out);
    }

    /// Appends the v2 block to `out`: at most [`MAX_HEADER`] bytes.
    ///
    /// If one endpoint is IPv4 and the other IPv6, both are written as IPv6, the first one mapped. If only
    /// one is a Unix socket, or a path is too long, the addresses are omitted (AF_UNSPEC) and the TLVs kept.
    /// A TLV that is too long or for which [`MAX_HEADER`] leaves no room is omitted; of the SSL TLV only the
    /// sub-TLVs that do not fit, the certificate first.
    pub fn encode_v2(&self, out: &mut Vec<u8>) {
        v2::encode(self, out);
    }

    /// Both endpoints in the form that the formats can hold.
    fn pair(&self) -> EndpointPair<'a> {
        match (self.source, self.destination) {
            (ProxyEndpoint::Inet(source), ProxyEndpoint::Inet(destination)) => {
                EndpointPair::Inet(canonical(source), canonical(destination))
            }
            (ProxyEndpoint::Unix(source), ProxyEndpoint::Unix(destination))
                if source.len().max(destination.len()) <= MAX_UNIX_PATH =>
            {
                EndpointPair::Unix(source, destination)
            }
            _ => EndpointPair::Unspec,
        }
    }
}

/// Two endpoints of a common family.
#[derive(Clone, Copy)]
enum EndpointPair<'a> {
    Inet(SocketAddr, SocketAddr),
    /// Both of at most [`MAX_UNIX_PATH`] bytes.
    Unix(&'a [u8], &'a [u8]),
    /// No common family, or a path that is too long.
    Unspec,
}

/// Unmaps IPv4: a dual-stack socket reports IPv4 peers as IPv4-mapped.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Appends the v2 header of a connection that the proxy makes on its own behalf, as for a health check
/// (§2.2).
pub fn encode_local_v2(out: &mut Vec<u8>) {
    v2::encode_local(out);
}

/// Reads a PROXY header of either version from the front of `buf`.
///
/// Does not read past the header, asks for at most [`MAX_HEADER`] bytes in all, and does not allocate.
///
/// Rejects with the [`ProxyFault`] that names the error; §2.1 and §2.2 require the connection to be aborted
/// then.
pub fn parse(buf: &[u8]) -> ParseStep<Header<'_>, ProxyFault> {
    match buf.first() {
        // The shortest header: "PROXY UNKNOWN\r\n".
        None => ParseStep::Need(v1::SHORTEST),
        Some(b'P') => v1::parse(buf),
        Some(b'\r') => v2::parse(buf),
        Some(_) => ParseStep::Reject(ProxyFault::NotProxy),
    }
}
