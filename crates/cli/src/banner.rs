//! What `to` and `demo` say once they serve: where, for which names, and a line to try.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use offramp_config::model::{CertificateName, HostPattern, ListenAddress};
use offramp_net::Address;

/// What there is to say.
pub(crate) struct Banner<'a> {
    /// What is served, in words.
    pub(crate) what: String,
    /// Where clients come; at least one.
    pub(crate) addresses: &'a [Address],
    /// The names that the certificate is for.
    pub(crate) names: Vec<CertificateName>,
    /// Where the certificate comes from.
    pub(crate) origin: Origin,
}

/// Where the certificate comes from.
pub(crate) enum Origin {
    /// The local CA, whose certificate this is.
    LocalCa(PathBuf),
    /// A file.
    File(PathBuf),
}

impl Banner<'_> {
    /// The text, several lines.
    pub(crate) fn text(&self) -> String {
        let list = |items: Vec<String>| items.join(", ");
        let addresses = list(self.addresses.iter().map(ToString::to_string).collect());
        let names = list(self.names.iter().map(ToString::to_string).collect());
        let mut out = format!("\nOfframp takes TLS off for {}\n\n", self.what);
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "  listening    {addresses}");
        let _ = writeln!(out, "  names        {names}");
        let _ = match &self.origin {
            Origin::LocalCa(path) => writeln!(
                out,
                "  certificate  by the local CA {}\n               (how to trust it: offramp ca)",
                path.display()
            ),
            Origin::File(path) => writeln!(out, "  certificate  {}", path.display()),
        };
        if let Some(curl) = self.curl() {
            let _ = writeln!(out, "\n  try          {curl}");
        }
        out
    }

    /// A command line that fetches the first page; `None` without an address or name to ask for.
    pub(crate) fn curl(&self) -> Option<String> {
        let ca = match &self.origin {
            Origin::LocalCa(path) => format!("--cacert {} ", quoted(path)),
            Origin::File(_) => String::new(),
        };
        let name = self.names.first()?;
        let (host, address) = match name {
            CertificateName::Ip(address) => (SocketAddr::new(*address, 0).to_string(), Some(*address)),
            CertificateName::Host(HostPattern::Exact(host)) => (host.to_string(), None),
            CertificateName::Host(HostPattern::Wildcard(parent)) => (format!("www.{parent}"), None),
        };
        let host = host.strip_suffix(":0").unwrap_or(&host);
        Some(match self.addresses.first()? {
            Address::Unix(path) => format!("curl {ca}--unix-socket {} https://{host}/", quoted(path)),
            Address::Tcp(listening) => {
                let port = listening.port();
                let to = match listening.ip() {
                    ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
                    ip => ip,
                };
                let finds_the_way = match address {
                    Some(address) => address == to || listening.ip().is_unspecified(),
                    None => host == "localhost" && to.is_loopback(),
                };
                let to = SocketAddr::new(to, 0).to_string();
                let to = to.strip_suffix(":0").unwrap_or(&to);
                match finds_the_way {
                    true => format!("curl {ca}https://{host}:{port}/"),
                    false => format!("curl {ca}--connect-to ::{to}: https://{host}:{port}/"),
                }
            }
        })
    }
}

/// The option that listens on another port of the same address, or beside the same Unix socket.
pub(crate) fn another_port(taken: &ListenAddress) -> String {
    match taken {
        ListenAddress::Unix(path) => {
            format!("--listen {}", quoted(Path::new(&format!("unix:{}2", path.display()))))
        }
        ListenAddress::Ip(address) => {
            let port = if address.port() == OTHER_PORT { OTHER_PORT + 1 } else { OTHER_PORT };
            format!("--listen '{}'", SocketAddr::new(address.ip(), port))
        }
    }
}

/// A port that needs no privileges and is easily remembered beside 8443.
const OTHER_PORT: u16 = 9443;

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{Address, Banner, Origin};

    fn curl(listening: &str, name: &str) -> String {
        let address = match listening.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None => Address::Tcp(listening.parse().unwrap()),
        };
        let banner = Banner {
            what: String::new(),
            addresses: &[address],
            names: vec![name.parse().unwrap()],
            origin: Origin::LocalCa("/a b/ca.pem".into()),
        };
        banner.curl().unwrap()
    }

    #[test]
    fn the_line_reaches_the_listener_under_the_name() {
        assert_eq!(curl("[::]:8443", "localhost"), "curl --cacert '/a b/ca.pem' https://localhost:8443/");
        assert!(curl("[::1]:1", "::1").ends_with(" https://[::1]:1/"));
        assert!(curl("127.0.0.1:1", "127.0.0.1").ends_with(" https://127.0.0.1:1/"));
        assert!(curl("[::]:1", "a.org").ends_with(" --connect-to ::127.0.0.1: https://a.org:1/"));
        assert!(curl("10.0.0.1:1", "localhost").ends_with(" --connect-to ::10.0.0.1: https://localhost:1/"));
        assert!(curl("[::]:1", "*.a.org").contains("https://www.a.org:1/"));
        assert!(curl("unix:/s", "a.org").ends_with(" --unix-socket /s https://a.org/"));
    }

    #[test]
    fn another_port_is_another() {
        let other = |text: &str| super::another_port(&text.parse().unwrap());
        assert_eq!(other("[::]:8443"), "--listen '[::]:9443'");
        assert_eq!(other("127.0.0.1:9443"), "--listen '127.0.0.1:9444'");
        assert_eq!(other("unix:/a b"), "--listen 'unix:/a b2'");
    }

    #[test]
    fn a_certificate_of_ones_own_is_verified_as_ever() {
        let banner = Banner {
            what: "x".to_owned(),
            addresses: &[Address::Tcp("[::]:1".parse().unwrap())],
            names: vec!["localhost".parse().unwrap()],
            origin: Origin::File("/c.pem".into()),
        };
        assert_eq!(banner.curl().unwrap(), "curl https://localhost:1/");
        assert!(banner.text().contains("certificate  /c.pem\n"));
    }
}
