//! Addresses of listeners, servers and networks.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ipnet::IpNet;

use super::HostName;
use crate::error::{Problem, shown};
use crate::folder::joined;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerAddress {
    /// A Unix stream socket: `unix:/run/app.sock`.
    Unix(PathBuf),
    /// An IP address and a non-zero port: `10.0.0.7:3000`, `[::1]:3000`.
    Ip(SocketAddr),
    /// A name to resolve, and a port: `app.internal:80`.
    Name {
        /// The host to resolve.
        host: HostName,
        /// The port, which must not be 0.
        port: u16,
    },
}

impl FromStr for ServerAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong =
            |help: &str| Err(Problem::new(format!("`{}` is not a server's address", shown(text))).help(help));
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_path(path).map(ServerAddress::Unix);
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 {
                wrong("a server's port is 1 to 65535")
            } else {
                Ok(ServerAddress::Ip(address))
            };
        }
        if text.starts_with("tls://") {
            return wrong("write the address alone, and tls = true in the [backend.NAME]");
        }
        if text.contains("://") {
            return wrong("write host:port alone: bytes are forwarded as they come, whatever their protocol");
        }
        if text.starts_with('/') {
            return wrong("write unix: before the path of a Unix socket");
        }
        if text.parse::<IpAddr>().is_ok() || !text.contains(':') {
            return wrong("add the port: \"10.0.0.7:3000\", \"[::1]:3000\", \"app.internal:80\"");
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return wrong("add the port");
        };
        if host.is_empty() {
            return wrong("write the host before the port, such as \"127.0.0.1:3000\"");
        }
        match (port.bytes().all(|b| b.is_ascii_digit()), port.parse()) {
            (true, Ok(port)) if port != 0 => Ok(ServerAddress::Name { host: host.parse()?, port }),
            _ => wrong("a port is a number from 1 to 65535"),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ServerAddress::Ip(address) => address.fmt(f),
            ServerAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl ServerAddress {
    /// The address with a relative socket path joined to `folder`.
    ///
    /// # Errors
    /// The path becomes too long for a socket.
    pub(crate) fn in_folder(self, folder: &Path) -> Result<Self, Problem> {
        match self {
            ServerAddress::Unix(path) => socket_path(joined(folder, path)).map(ServerAddress::Unix),
            other => Ok(other),
        }
    }
}

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenAddress {
    /// An address and a port; `[::]` means every address of both families, port 0 any free port.
    Ip(SocketAddr),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_path(path).map(ListenAddress::Unix);
        }
        if let Ok(address) = text.parse() {
            return Ok(ListenAddress::Ip(address));
        }
        let problem = Problem::new(format!("`{}` is not an address to listen on", shown(text)));
        let port = text.strip_prefix(['*', ':']).map_or(text, |rest| rest.trim_start_matches(':'));
        let help = if text.starts_with('/') {
            "write unix: before the path of a Unix socket".to_owned()
        } else if text.parse::<IpAddr>().is_ok() {
            "add the port: \"127.0.0.1:443\", \"[::1]:443\"".to_owned()
        } else if port.parse::<u16>().is_ok() {
            format!("write \"[::]:{port}\" for every address, or \"0.0.0.0:{port}\" for IPv4 alone")
        } else {
            "write an IP address and a port such as \"[::]:443\", or \"unix:\" and a path".to_owned()
        };
        Err(problem.help(help))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Ip(address) => address.fmt(f),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl ListenAddress {
    /// The address with a relative socket path joined to `folder`.
    ///
    /// # Errors
    /// The path becomes too long for a socket.
    pub(crate) fn in_folder(self, folder: &Path) -> Result<Self, Problem> {
        match self {
            ListenAddress::Unix(path) => socket_path(joined(folder, path)).map(ListenAddress::Unix),
            other => Ok(other),
        }
    }
}

/// The maximum path length of a Unix socket in bytes: `sun_path` of unix(7) without its final zero.
const SOCKET_PATH_MAX: usize = 107;

fn unix_path(path: &str) -> Result<PathBuf, Problem> {
    if path.is_empty() || path.ends_with('/') || path.contains('\0') {
        let problem = Problem::new(format!("`unix:{}` is not a Unix socket", shown(path)));
        return Err(problem.help("write the path of the socket: \"unix:/run/app.sock\""));
    }
    socket_path(PathBuf::from(path))
}

fn socket_path(path: PathBuf) -> Result<PathBuf, Problem> {
    let length = path.as_os_str().len();
    if length > SOCKET_PATH_MAX {
        let problem = Problem::new(format!("the path of the socket is {length} bytes long"));
        return Err(problem.help(format!("Linux allows {SOCKET_PATH_MAX} bytes: choose a shorter path")));
    }
    Ok(path)
}

/// A network: an address with a prefix length. All other bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

impl Cidr {
    /// The network of the first `prefix` bits of `address`; `None` if the address has fewer bits, or further
    /// bits set. A network of IPv4-mapped addresses becomes one of IPv4.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let (address, prefix) = match (address, address.to_canonical(), prefix.checked_sub(96)) {
            (IpAddr::V6(_), mapped @ IpAddr::V4(_), Some(prefix)) => (mapped, prefix),
            _ => (address, prefix),
        };
        IpNet::new(address, prefix).ok().filter(|network| network.trunc() == *network).map(Self)
    }

    /// The first address of the network.
    pub fn address(self) -> IpAddr {
        self.0.addr()
    }

    /// The prefix length: up to 32 for IPv4, up to 128 for IPv6.
    pub fn prefix(self) -> u8 {
        self.0.prefix_len()
    }

    /// Returns `true` for addresses in the network. IPv4-mapped addresses, as on dual-stack sockets, count as
    /// IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Cidr {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = || {
            let problem = Problem::new(format!("`{}` is not a network", shown(text)));
            problem.help("write an address, or a network such as \"10.0.0.0/8\" or \"fd00::/8\"")
        };
        let network: IpNet = match text.contains('/') {
            true => text.parse().map_err(|_| wrong())?,
            false => text.parse().map(|address: IpAddr| address.into()).map_err(|_| wrong())?,
        };
        let prefix = network.prefix_len();
        Cidr::new(network.addr(), prefix).ok_or_else(|| {
            let problem = Problem::new(format!("`{text}` has bits set beyond the first {prefix}"));
            problem.help(format!("write \"{}\", or the address alone", network.trunc()))
        })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_every_form() {
        for text in ["unix:/run/app.sock", "10.0.0.7:3000", "[::1]:3000", "app.internal:80", "localhost:1"] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_server_gets_a_remedy() {
        let help = |text: &str| text.parse::<ServerAddress>().unwrap_err().to_string();
        assert!(help("10.0.0.7").contains("add the port"));
        assert!(help("::1").contains("add the port"));
        assert!(help("localhost").contains("add the port"));
        assert!(help("http://localhost:80").contains("host:port alone"));
        assert!(help("/run/app.sock").contains("unix:"));
        assert!(help(":3000").contains("before the port"));
        assert!(help("127.0.0.1:0").contains("1 to 65535"));
        assert!(help("localhost:+80").contains("number"));
        assert!(help("localhost:99999").contains("number"));
        assert!(help("unix:").contains("path"));
        assert!(help(&format!("unix:/{}", "a".repeat(107))).contains("107"));
        assert!(help("256.0.0.1:80").contains("IP address"));
    }

    #[test]
    fn listen_addresses() {
        for text in ["[::]:443", "0.0.0.0:443", "127.0.0.1:0", "unix:/run/tls.sock"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        let help = |text: &str| text.parse::<ListenAddress>().unwrap_err().to_string();
        for text in [":443", "443", "*:443"] {
            assert!(help(text).contains("[::]:443"), "{text}");
        }
        assert!(help("::1").contains("add the port"));
        assert!(help("/run/tls.sock").contains("unix:"));
        assert!(help("localhost:443").contains("IP address and a port"));
    }

    #[test]
    fn networks_contain_their_addresses() {
        let ten: Cidr = "10.0.0.0/8".parse().unwrap();
        assert!(ten.contains("10.255.1.2".parse().unwrap()));
        assert!(ten.contains("::ffff:10.1.1.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.0".parse().unwrap()));
        assert!(!ten.contains("a00::".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains("1.2.3.4".parse().unwrap()));
        assert!("::/0".parse::<Cidr>().unwrap().contains("fd00::1".parse().unwrap()));
        assert!("fd00::1".parse::<Cidr>().unwrap().contains("fd00::1".parse().unwrap()));
        assert_eq!("::ffff:10.0.0.0/104".parse::<Cidr>().unwrap(), ten);
    }

    #[test]
    fn what_is_no_network_gets_a_remedy() {
        assert!("10.1.0.0/8".parse::<Cidr>().unwrap_err().to_string().contains("\"10.0.0.0/8\""));
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0/8", "x/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
    }
}
