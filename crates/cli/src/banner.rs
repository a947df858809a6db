//! The text that `to`, `serve` and `demo` print as soon as clients can connect: the URL to open, the reach of
//! the listener, the mode, the certificate, and a command to try.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use offramp_config::model::{CertificateName, HostPattern};
use offramp_net::Address;

/// Content of the text; [`Banner::text`] renders it.
pub(crate) struct Banner<'a> {
    /// Target as the user named it: an address, or a directory.
    pub(crate) what: String,
    /// Listen addresses; at least one.
    pub(crate) addresses: &'a [Address],
    pub(crate) service: ServiceMode,
    /// Names in the certificate.
    pub(crate) names: Vec<CertificateName>,
    pub(crate) origin: BannerCertificate,
}

/// Mode in which clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceMode {
    /// Relays bytes of any protocol; the text recommends `--http`.
    Bytes,
    /// Proxies HTTP to an application.
    Http,
    /// Serves files of a directory.
    Files,
    /// Relays bytes to the built-in application; `--http` does not apply.
    Demo,
}

impl ServiceMode {
    /// Description for the row `mode`, one item per line.
    fn lines(self) -> &'static [&'static str] {
        match self {
            Self::Bytes => &[
                "tcp: the bytes of any protocol, unchanged",
                "(for an HTTP application add --http: HTTP/2, X-Forwarded-For, a line per request)",
            ],
            Self::Http => &["http: HTTP/1.1 and HTTP/2 for clients, HTTP/1.1 for the application"],
            Self::Files => &["http: HTTP/1.1 and HTTP/2"],
            Self::Demo => &["tcp: the bytes of any protocol, unchanged"],
        }
    }
}
pub(crate) enum BannerCertificate {
    /// The local CA; path of its certificate.
    LocalCa(PathBuf),
    /// A file that the user named.
    File(PathBuf),
    /// An ACME authority, by its name.
    Authority(String),
    /// No certificate: clients speak plain text.
    PlainText,
}

impl Banner<'_> {
    /// Renders the text, which has several lines.
    pub(crate) fn text(&self) -> String {
        let list = |items: Vec<String>| items.join(", ");
        let does = match self.origin {
            _ if self.service == ServiceMode::Files => "serves the files below",
            BannerCertificate::PlainText => "relays plain text to",
            _ => "terminates TLS for",
        };
        let mut out = format!("\nOfframp {does} {}\n\n", self.what);
        // Writing to a String cannot fail, here and below.
        if let Some(url) = self.url() {
            let _ = writeln!(out, "  open         {url}");
        }
        let _ = writeln!(
            out,
            "  listening    {}",
            list(self.addresses.iter().map(ToString::to_string).collect())
        );
        if let Some(reach) = self.reach() {
            let _ = writeln!(out, "               ({reach})");
        }
        let mut title = "mode";
        for line in self.service.lines() {
            let _ = writeln!(out, "  {title:12} {line}");
            title = "";
        }
        if !self.names.is_empty() {
            let names = list(self.names.iter().map(ToString::to_string).collect());
            let _ = writeln!(out, "  names        {names}");
            if self.needs_a_name() {
                let _ = writeln!(
                    out,
                    "               (other machines need a name or address of this one: add --name)"
                );
            }
        }
        let _ = match &self.origin {
            BannerCertificate::LocalCa(path) => writeln!(
                out,
                "  certificate  from the local CA {}\n               (how to trust it: offramp ca)",
                path.display()
            ),
            BannerCertificate::File(path) => writeln!(out, "  certificate  {}", path.display()),
            BannerCertificate::Authority(name) => writeln!(
                out,
                "  certificate  from {name}, as soon as it is issued; until then from the local CA"
            ),
            BannerCertificate::PlainText => {
                writeln!(out, "  clients      speak plain text: keep this address private")
            }
        };
        if let Some(curl) = self.curl() {
            let _ = writeln!(out, "\n  try          {curl}");
        }
        out
    }

    /// Scope from which clients can connect; `None` for Unix sockets, where file permissions decide.
    fn reach(&self) -> Option<&'static str> {
        let mut reach = None;
        for address in self.addresses {
            let Address::Tcp(address) = address else { continue };
            let ip = address.ip().to_canonical();
            if ip.is_unspecified() {
                return Some("EVERY network interface: anyone who reaches this machine can connect");
            }
            if !ip.is_loopback() {
                reach = Some("other machines can connect");
            } else if reach.is_none() {
                reach = Some("this machine only; --public admits others");
            }
        }
        reach
    }

    /// Returns true if other machines can connect, but every name of the local CA's certificate is one of
    /// this machine only.
    fn needs_a_name(&self) -> bool {
        let is_local = |name: &CertificateName| match name {
            CertificateName::Host(HostPattern::Exact(host)) => host.to_string() == "localhost",
            CertificateName::Host(HostPattern::Wildcard(_)) => false,
            CertificateName::Ip(ip) => ip.is_loopback(),
        };
        let reached = self.addresses.iter().any(|address| match address {
            Address::Tcp(address) => !address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => false,
        });
        reached && matches!(self.origin, BannerCertificate::LocalCa(_)) && self.names.iter().all(is_local)
    }

    /// URL for a browser on this machine; `None` for a Unix socket.
    fn url(&self) -> Option<String> {
        let Some(Address::Tcp(listening)) = self.addresses.first() else { return None };
        let names_this_machine = |name: &&CertificateName| match name {
            CertificateName::Host(HostPattern::Exact(host)) => host.to_string() == "localhost",
            CertificateName::Host(HostPattern::Wildcard(_)) => false,
            CertificateName::Ip(ip) => *ip == listening.ip() || listening.ip().is_unspecified(),
        };
        let local = listening.ip().is_unspecified() || listening.ip().to_canonical().is_loopback();
        let own = CertificateName::Ip(listening.ip());
        let name = if local { self.names.iter().find(names_this_machine) } else { None };
        let name = name.or_else(|| self.names.iter().find(|name| **name == own)).or(self.names.first())?;
        Some(format!("https://{}:{}/", host_of(name), listening.port()))
    }

    /// A command that fetches the first page; `None` without an address or name to request.
    pub(crate) fn curl(&self) -> Option<String> {
        let ca = match &self.origin {
            BannerCertificate::LocalCa(path) => format!("--cacert {} ", quoted(path)),
            BannerCertificate::File(_) | BannerCertificate::Authority(_) | BannerCertificate::PlainText => {
                String::new()
            }
        };
        let name = self.names.first()?;
        let host = host_of(name);
        Some(match self.addresses.first()? {
            Address::Unix(path) => format!("curl {ca}--unix-socket {} https://{host}/", quoted(path)),
            Address::Tcp(listening) => {
                let port = listening.port();
                let to = match listening.ip() {
                    ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
                    ip => ip,
                };
                let finds_the_way = match name {
                    CertificateName::Ip(ip) => *ip == to || listening.ip().is_unspecified(),
                    CertificateName::Host(_) => host == "localhost" && to.is_loopback(),
                };
                match finds_the_way {
                    true => format!("curl {ca}https://{host}:{port}/"),
                    false => format!("curl {ca}--connect-to ::{}: https://{host}:{port}/", bracketed(to)),
                }
            }
        })
    }
}

/// Formats a name of the certificate for a URL; a wildcard becomes its `www` subdomain.
fn host_of(name: &CertificateName) -> String {
    match name {
        CertificateName::Ip(address) => bracketed(*address),
        CertificateName::Host(HostPattern::Exact(host)) => host.to_string(),
        CertificateName::Host(HostPattern::Wildcard(parent)) => format!("www.{parent}"),
    }
}

fn bracketed(ip: IpAddr) -> String {
    let text = SocketAddr::new(ip, 0).to_string();
    text.strip_suffix(":0").unwrap_or(&text).to_owned()
}

/// Quotes a path as one word for a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{Address, Banner, BannerCertificate, ServiceMode};

    fn address(listening: &str) -> Address {
        match listening.strip_prefix("unix:") {
            Some(path) => Address::Unix(path.into()),
            None => Address::Tcp(listening.parse().unwrap()),
        }
    }

    fn banner<'a>(addresses: &'a [Address], names: &[&str]) -> Banner<'a> {
        Banner {
            what: "127.0.0.1:3000".to_owned(),
            addresses,
            service: ServiceMode::Bytes,
            names: names.iter().map(|name| name.parse().unwrap()).collect(),
            origin: BannerCertificate::LocalCa("/a b/ca.pem".into()),
        }
    }

    fn curl(listening: &str, name: &str) -> String {
        banner(&[address(listening)], &[name]).curl().unwrap()
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
    fn the_url_has_a_name_of_the_certificate() {
        let open = |listening: &str, names: &[&str]| banner(&[address(listening)], names).url();
        let own = ["localhost", "127.0.0.1", "::1"];
        assert_eq!(open("127.0.0.1:8443", &own).unwrap(), "https://localhost:8443/");
        assert_eq!(open("[::]:8443", &own).unwrap(), "https://localhost:8443/");
        assert_eq!(open("[::1]:1", &["::1"]).unwrap(), "https://[::1]:1/");
        assert_eq!(open("10.0.0.7:1", &["localhost", "10.0.0.7"]).unwrap(), "https://10.0.0.7:1/");
        assert_eq!(open("127.0.0.1:1", &["a.org", "localhost"]).unwrap(), "https://localhost:1/");
        assert_eq!(open("127.0.0.1:1", &["a.org"]).unwrap(), "https://a.org:1/");
        assert_eq!(open("unix:/s", &own), None);
    }

    #[test]
    fn the_reach_of_the_listener_is_printed() {
        let said = |listening: &[&str]| {
            let addresses: Vec<_> = listening.iter().map(|text| address(text)).collect();
            banner(&addresses, &["localhost"]).reach().unwrap_or_default()
        };
        assert!(said(&["127.0.0.1:1", "[::1]:1"]).contains("this machine only; --public"));
        assert!(said(&["[::]:1"]).contains("EVERY network interface"));
        assert!(said(&["0.0.0.0:1"]).contains("EVERY network interface"));
        assert!(said(&["192.0.2.7:1"]).contains("other machines"));
        assert_eq!(said(&["unix:/s"]), "");
    }

    #[test]
    fn other_machines_need_a_name() {
        let says = |listening: &str, names: &[&str]| {
            banner(&[address(listening)], names).text().contains("add --name)")
        };
        let own = ["localhost", "127.0.0.1", "::1"];
        assert!(says("[::]:8443", &own) && says("0.0.0.0:8443", &own));
        assert!(!says("127.0.0.1:8443", &own) && !says("unix:/s", &own));
        assert!(!says("[::]:8443", &["localhost", "box.home.arpa"]) && !says("192.0.2.7:1", &["192.0.2.7"]));
        let addresses = [address("[::]:1")];
        let file =
            Banner { origin: BannerCertificate::File("/c.pem".into()), ..banner(&addresses, &["localhost"]) };
        assert!(!file.text().contains("add --name"));
    }

    #[test]
    fn the_mode_is_said_and_what_http_would_bring() {
        let addresses = [address("127.0.0.1:8443")];
        let mut banner = banner(&addresses, &["localhost"]);
        let text = banner.text();
        assert!(text.contains("  mode         tcp: ") && text.contains("add --http"), "{text}");
        banner.service = ServiceMode::Http;
        let text = banner.text();
        assert!(text.contains("  mode         http: ") && !text.contains("--http"), "{text}");
        banner.service = ServiceMode::Files;
        let text = banner.text();
        assert!(text.contains("Offramp serves the files below ") && !text.contains("--http"), "{text}");
        banner.service = ServiceMode::Demo;
        assert!(!banner.text().contains("--http"));
        for line in text.lines().filter(|line| !line.contains("curl")) {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn a_certificate_of_ones_own_is_verified_as_ever() {
        let addresses = [address("[::]:1")];
        let banner =
            Banner { origin: BannerCertificate::File("/c.pem".into()), ..banner(&addresses, &["localhost"]) };
        assert_eq!(banner.curl().unwrap(), "curl https://localhost:1/");
        assert!(banner.text().contains("certificate  /c.pem\n"));
    }
}
