//! Networks: ranges of addresses in user input and for the grouping of clients.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::error::Error;

/// A range of addresses, such as `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange(IpNet);

impl AddressRange {
    /// The network by which an address is grouped: /24 in IPv4, /48 in IPv6.
    #[must_use]
    pub fn around(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let prefix = if address.is_ipv4() { 24 } else { 48 };
        // Both lengths are valid for their family.
        Self(IpNet::new(address, prefix).unwrap_or_else(|_| address.into()).trunc())
    }

    /// Returns `true` for addresses in this network. IPv4-mapped IPv6 addresses count as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl From<IpAddr> for AddressRange {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }
}

impl FromStr for AddressRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong =
            || Error::Question(format!("`{text}` is neither an address nor a network like 10.0.0.0/8"));
        if text.contains('/') {
            return text.parse().map(|network: IpNet| Self(network.trunc())).map_err(|_| wrong());
        }
        text.parse().map(|address: IpAddr| Self(address.into())).map_err(|_| wrong())
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let ten: AddressRange = "10.1.2.3/8".parse().unwrap();
        assert_eq!(ten.to_string(), "10.0.0.0/8");
        assert!(
            ten.contains("10.255.0.1".parse().unwrap()) && ten.contains("::ffff:10.0.0.1".parse().unwrap())
        );
        assert!(!ten.contains("11.0.0.1".parse().unwrap()) && !ten.contains("::a".parse().unwrap()));
        let all: AddressRange = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.1.2.3".parse().unwrap()));
        let one: AddressRange = "2001:db8::1".parse().unwrap();
        assert!(
            one.contains("2001:db8::1".parse().unwrap()) && !one.contains("2001:db8::2".parse().unwrap())
        );
        assert_eq!(AddressRange::around("2001:db8:1:2::3".parse().unwrap()).to_string(), "2001:db8:1::/48");
        assert_eq!(AddressRange::around("192.0.2.77".parse().unwrap()).to_string(), "192.0.2.0/24");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "10.0.0.0/+8", "10.0.0.0/33", "a/8", "10.0.0.0/", "::/129", "10.0.0"] {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
    }
}
