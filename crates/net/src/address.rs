//! Addresses of both families that the proxy listens on and connects to.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// IP address and port.
    Tcp(SocketAddr),
    /// Path of a Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The remote end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerAddress {
    /// A TCP client; an IPv4 client of an IPv6 socket is given as IPv4.
    Tcp(SocketAddr),
    /// A client of a Unix socket. Its address is usually unnamed and is not kept.
    Unix,
}

impl PeerAddress {
    /// The socket address; `None` for Unix sockets.
    #[must_use]
    pub const fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix => None,
        }
    }
}

/// Unmaps an IPv4-mapped IPv6 address (`::ffff:a.b.c.d`).
#[must_use]
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The fallback for a wildcard IPv6 address that cannot be bound because IPv6 is disabled.
#[must_use]
pub(crate) fn without_ipv6(address: SocketAddr) -> Option<SocketAddr> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Some((Ipv4Addr::UNSPECIFIED, v6.port()).into()),
        _ => None,
    }
}
