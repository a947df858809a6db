//! Addresses of both families that a proxy listens on and connects to.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Something to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// A Unix stream socket in the file system.
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

/// The far end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A client over TCP; an IPv4 client of an IPv6 socket is given as IPv4.
    Tcp(SocketAddr),
    /// A client of a Unix socket; those have no address worth naming.
    Unix,
}

impl Peer {
    /// The socket address, where there is one.
    #[must_use]
    pub const fn socket_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix => None,
        }
    }
}

/// Writes an IPv4-mapped IPv6 address (`::ffff:a.b.c.d`) as the IPv4 address that it means.
#[must_use]
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The address to try where a wildcard IPv6 address cannot be bound because IPv6 is switched off.
#[must_use]
pub(crate) fn without_ipv6(address: SocketAddr) -> Option<SocketAddr> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => Some((Ipv4Addr::UNSPECIFIED, v6.port()).into()),
        _ => None,
    }
}
