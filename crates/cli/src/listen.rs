//! `--listen` and `--public`: the listen addresses of `to`, `serve` and `demo`.
//!
//! The configuration file takes only full addresses. Here a port is enough and means this machine: a first
//! experiment should not be open to the network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use offramp_config::model::ListenAddress;

/// The value of `--listen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenArgument {
    /// A port, for this machine alone unless it is made public: `8443`, `:8443`, `localhost:8443`.
    Here(u16),
    /// A full address, or the path of a Unix socket.
    At(ListenAddress),
}

impl ListenArgument {
    /// Default of the option.
    pub(crate) const DEFAULT: Self = Self::Here(8443);

    /// Parses the value of `--listen`.
    ///
    /// # Errors
    /// Says what is wrong and what to write instead, in one line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let port = match text.rsplit_once(':') {
            None => Some(text),
            Some((host, port)) if host.is_empty() || host.eq_ignore_ascii_case("localhost") => Some(port),
            Some(("*", port)) if digits(port) => return Self::address(&format!("[::]:{port}")),
            Some(_) => None,
        };
        match port.filter(|port| digits(port)) {
            Some(port) => match port.parse() {
                Ok(port) => Ok(Self::Here(port)),
                Err(_) => Err("a port is a number from 0 to 65535".to_owned()),
            },
            None if text.eq_ignore_ascii_case("localhost") => Err("add the port: localhost:8443".to_owned()),
            None => match text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
                Some(path) => {
                    // An absolute path stays valid if the process changes its directory, and is clear in
                    // messages.
                    let path = offramp_config::absolute(path).map_err(|error| error.to_string())?;
                    Self::address(&format!("unix:{}", path.display()))
                }
                None => Self::address(text),
            },
        }
    }

    fn address(text: &str) -> Result<Self, String> {
        text.parse().map(Self::At).map_err(|problem: offramp_config::Problem| problem.to_string())
    }

    /// Resolves the argument to addresses. `public` admits other machines; `has_ipv6` means that this machine
    /// has `::1`.
    ///
    /// # Errors
    /// The address contradicts `public`.
    pub(crate) fn addresses(&self, public: bool, has_ipv6: bool) -> Result<Vec<ListenAddress>, String> {
        let ip = |ip: IpAddr, port| ListenAddress::Ip(SocketAddr::new(ip, port));
        match (self, public) {
            (Self::Here(port), true) => Ok(vec![ip(Ipv6Addr::UNSPECIFIED.into(), *port)]),
            // With port 0, two addresses would get different ports.
            (Self::Here(0), false) => Ok(vec![ip(Ipv4Addr::LOCALHOST.into(), 0)]),
            (Self::Here(port), false) => {
                let six = has_ipv6.then(|| ip(Ipv6Addr::LOCALHOST.into(), *port));
                Ok(std::iter::once(ip(Ipv4Addr::LOCALHOST.into(), *port)).chain(six).collect())
            }
            (Self::At(ListenAddress::Ip(address)), true) if address.ip().to_canonical().is_loopback() => {
                Err(format!("error: {address} is this machine only; omit --public or --listen"))
            }
            (Self::At(ListenAddress::Unix(_)), true) => {
                Err("error: a Unix socket cannot be public; omit --public or --listen".to_owned())
            }
            (Self::At(address), _) => Ok(vec![address.clone()]),
        }
    }

    /// Suggests an alternative for an address in use: another port, or a socket beside it, quoted for a
    /// shell.
    pub(crate) fn another(&self) -> String {
        let other = |port: u16| if port == OTHER_PORT { OTHER_PORT + 1 } else { OTHER_PORT };
        match self {
            Self::Here(port) => other(*port).to_string(),
            Self::At(ListenAddress::Ip(address)) => {
                format!("'{}'", SocketAddr::new(address.ip(), other(address.port())))
            }
            Self::At(ListenAddress::Unix(path)) => {
                crate::banner::quoted(std::path::Path::new(&format!("unix:{}2", path.display())))
            }
        }
    }
}

/// Suggested port: unprivileged, and easily remembered beside 8443.
const OTHER_PORT: u16 = 9443;

#[cfg(test)]
mod tests {
    use super::ListenArgument;

    fn addresses(listen: &str, public: bool, has_ipv6: bool) -> Result<Vec<String>, String> {
        let addresses = ListenArgument::parse(listen)?.addresses(public, has_ipv6)?;
        Ok(addresses.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_port_is_for_this_machine_alone_unless_it_is_made_public() {
        for text in ["8443", ":8443", "localhost:8443", "LocalHost:8443"] {
            assert_eq!(addresses(text, false, true).unwrap(), ["127.0.0.1:8443", "[::1]:8443"], "{text}");
            assert_eq!(addresses(text, false, false).unwrap(), ["127.0.0.1:8443"], "{text}");
            assert_eq!(addresses(text, true, true).unwrap(), ["[::]:8443"], "{text}");
        }
        assert_eq!(addresses("0", false, true).unwrap(), ["127.0.0.1:0"]);
    }

    #[test]
    fn an_address_is_what_it_says() {
        for text in ["127.0.0.1:1", "[::]:8443", "0.0.0.0:443", "192.0.2.7:443", "unix:/run/tls.sock"] {
            assert_eq!(addresses(text, false, true).unwrap(), [text]);
        }
        assert_eq!(addresses("*:443", false, true).unwrap(), ["[::]:443"]);
        assert_eq!(addresses("0.0.0.0:443", true, true).unwrap(), ["0.0.0.0:443"]);
        assert!(addresses("unix:tls.sock", false, true).unwrap()[0].starts_with("unix:/"));
    }

    #[test]
    fn invalid_values_are_refused_with_advice() {
        for (text, public, remedy) in [
            ("127.0.0.1:8443", true, "omit --public"),
            ("[::1]:8443", true, "omit --public"),
            ("unix:/run/tls.sock", true, "omit --public"),
            ("65536", false, "0 to 65535"),
            ("localhost", false, "localhost:8443"),
            ("127.0.0.1", false, "add the port"),
            ("/run/tls.sock", false, "unix:"),
            ("example.org:443", false, "an IP address and a port"),
            ("", false, "an IP address and a port"),
            (":", false, "an IP address and a port"),
        ] {
            let said = addresses(text, public, true).unwrap_err();
            assert!(said.contains(remedy), "{text}: {said}");
        }
    }

    #[test]
    fn another_port_is_another() {
        let other = |text: &str| ListenArgument::parse(text).unwrap().another();
        assert_eq!(other("8443"), "9443");
        assert_eq!(other("localhost:9443"), "9444");
        assert_eq!(other("[::]:8443"), "'[::]:9443'");
        assert_eq!(other("unix:/a b"), "'unix:/a b2'");
    }
}
