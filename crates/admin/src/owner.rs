//! The owner of a connection: the user or the address that its limits count for.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use offramp_net::process::UserIdentity;

/// The owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConnectionOwner {
    /// A user of this machine, over a Unix socket; `None` if the kernel does not report it.
    User(Option<u32>),
    /// An address; for IPv6 the /64 network, all of which one client may have.
    Address(IpAddr),
}

impl ConnectionOwner {
    /// The owner of connections from this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
            }
            other => other,
        })
    }
}

impl fmt::Display for ConnectionOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(None) => f.write_str("an unknown user"),
            Self::User(Some(user)) => {
                // The group has no influence on the name.
                let name = UserIdentity::of_numbers(*user, *user).name();
                if name == user.to_string() {
                    write!(f, "uid {user}")
                } else {
                    write!(f, "{name} (uid {user})")
                }
            }
            Self::Address(IpAddr::V6(address)) if !address.is_loopback() => write!(f, "{address}/64"),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_a_user_an_address_or_a_network_of_ipv6() {
        let of = |text: &str| ConnectionOwner::of(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!((of("::ffff:192.0.2.1"), of("::1")), ("192.0.2.1".to_owned(), "::1".to_owned()));
        assert_eq!(ConnectionOwner::User(Some(0)).to_string(), "root (uid 0)");
        assert_eq!(ConnectionOwner::User(Some(4_000_000_001)).to_string(), "uid 4000000001");
    }
}
