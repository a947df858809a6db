//! Values of arguments that are parsed strictly: TARGET of `offramp to`, with advice for common mistakes, and
//! the values of other options.
//!
//! The configuration file takes `host:port` and `unix:PATH`; here a port alone means this machine.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use offramp_config::model::{DirectoryUrl, FilePath, PreambleProtocol, ServerAddress, StoreUrl, contact};

/// TARGET of `offramp to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerTarget {
    /// Address of the server.
    pub(crate) address: ServerAddress,
    /// Start of TLS with the server.
    pub(crate) tls: ServerSpeaks,
}

/// Start of TLS with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerSpeaks {
    /// The server speaks plain text.
    Plain,
    /// TLS starts with the connection: `tls://` precedes the address.
    Tls,
    /// TLS starts after a request of the protocol: `postgres+tls://` precedes the address.
    TlsAfter(PreambleProtocol),
}

impl ServerSpeaks {
    fn scheme(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Tls => "tls://",
            Self::TlsAfter(PreambleProtocol::Postgres) => "postgres+tls://",
        }
    }
}

impl fmt::Display for ServerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.tls.scheme(), self.address)
    }
}

/// Parses a TARGET.
///
/// # Errors
/// Says what is wrong and what to write instead, in one line.
pub(crate) fn target(text: &str) -> Result<ServerTarget, String> {
    let with_tls = [ServerSpeaks::Tls, ServerSpeaks::TlsAfter(PreambleProtocol::Postgres)];
    let found = with_tls.into_iter().find_map(|tls| Some((tls, text.strip_prefix(tls.scheme())?)));
    let Some((tls, address)) = found else {
        return Ok(ServerTarget { address: parse(text)?, tls: ServerSpeaks::Plain });
    };
    match parse(address)? {
        ServerAddress::Unix(_) => Err(format!(
            "a Unix socket has no host that a certificate could name: write {}host:port, or `tls` with a `name` \
                 in a configuration file",
            tls.scheme()
        )),
        address => Ok(ServerTarget { address, tls }),
    }
}

/// Parses the address of a server.
fn parse(text: &str) -> Result<ServerAddress, String> {
    if let Some(port) = bare_port(text) {
        return match port.parse() {
            Ok(port) if port > 0 => {
                Ok(ServerAddress::Ip(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)))
            }
            _ => Err("a port is a number from 1 to 65535".to_owned()),
        };
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(url(scheme, rest));
    }
    if text.starts_with(['/', '.', '~']) {
        return Err(format!("for a Unix socket write unix:{text}"));
    }
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        // An absolute path stays valid if the process changes its directory, and is clear in messages.
        let path = offramp_config::absolute(path).map_err(|error| error.to_string())?;
        return read(&format!("unix:{}", path.display()));
    }
    if text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
        return Err(format!("add the port: [{text}]:3000"));
    }
    if !text.contains([':', '/']) && !text.is_empty() {
        return Err(format!("add the port: {text}:3000"));
    }
    read(text)
}

fn read(text: &str) -> Result<ServerAddress, String> {
    text.parse().map_err(|problem: offramp_config::Problem| problem.to_string())
}

/// Port of `3000` or `:3000`, as digits.
fn bare_port(text: &str) -> Option<&str> {
    let digits = text.strip_prefix(':').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

/// Parses the value of `--acme`.
///
/// # Errors
/// The text is no e-mail address.
pub(crate) fn email(text: &str) -> Result<String, String> {
    contact(text).map_err(|problem| problem.to_string())
}

/// Parses the value of `--acme-directory`.
///
/// # Errors
/// The text is no URL of an ACME directory.
pub(crate) fn directory(text: &str) -> Result<DirectoryUrl, String> {
    text.parse().map_err(|problem: offramp_config::Problem| problem.to_string())
}

/// Parses the value of `--fallback`: a path below the served directory, with or without a leading slash.
///
/// # Errors
/// The path leaves the directory, or names no file.
pub(crate) fn fallback(text: &str) -> Result<String, String> {
    let path = format!("/{}", text.strip_prefix('/').unwrap_or(text));
    let wrong = |_| "write the path of a file below DIR: /index.html".to_owned();
    offramp_config::model::fallback(&path).map_err(wrong)
}

/// Parses a host name or a wildcard.
///
/// # Errors
/// The text is no such name.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let parsed = text.parse::<offramp_config::model::HostPattern>();
    parsed.map(|host| host.to_string()).map_err(|problem| problem.to_string())
}

/// Parses the name of a host or a domain.
///
/// # Errors
/// The text is no such name.
pub(crate) fn host_name(text: &str) -> Result<offramp_config::model::HostName, String> {
    text.parse().map_err(|problem: offramp_config::Problem| problem.to_string())
}

/// Message that suggests an address instead of a URL.
fn url(scheme: &str, rest: &str) -> String {
    if scheme == "unix" {
        return format!("for a Unix socket write unix:{rest}");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let default_port = if scheme == "https" { 443 } else { 80 };
    let ends_in_port =
        host.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty() && bare_port(port).is_some());
    let address = match host {
        "" => "127.0.0.1:3000".to_owned(),
        host if ends_in_port => host.to_owned(),
        host => format!("{}:{default_port}", host.trim_end_matches(':')),
    };
    let why = if scheme == "https" {
        "the application must speak plain text, because TLS ends here"
    } else {
        "Offramp forwards bytes of any protocol and ignores paths"
    };
    format!("write {address} instead of a URL: {why}")
}

/// Returns the path of a Unix socket that does not exist, for a hint at start. This is no error: the
/// application may start later.
pub(crate) fn missing_socket(target: &ServerAddress) -> Option<&Path> {
    match target {
        ServerAddress::Unix(path) if !path.exists() => Some(path),
        _ => None,
    }
}

/// Parses the URL of a log store; a relative path starts at the working directory.
pub(crate) fn store(text: &str) -> Result<StoreUrl, String> {
    offramp_analytics::check_url(text).map_err(|error| error.to_string())?;
    match text.strip_prefix("sqlite:") {
        Some(":memory:") => Err("a store in memory cannot be queried later; name a file".to_owned()),
        Some(path) => {
            let path = offramp_config::absolute(path).map_err(|error| error.to_string())?;
            Ok(StoreUrl::Sqlite(FilePath::new(path)))
        }
        None => Ok(StoreUrl::Postgres(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, target};

    fn ok(text: &str) -> String {
        parse(text).unwrap().to_string()
    }

    fn err(text: &str) -> String {
        parse(text).unwrap_err()
    }

    #[test]
    fn every_form() {
        assert_eq!(ok("127.0.0.1:3000"), "127.0.0.1:3000");
        assert_eq!(ok("localhost:3000"), "localhost:3000");
        assert_eq!(ok("[::1]:3000"), "[::1]:3000");
        assert_eq!(ok("3000"), "127.0.0.1:3000");
        assert_eq!(ok(":3000"), "127.0.0.1:3000");
        assert_eq!(ok("unix:/run/app.sock"), "unix:/run/app.sock");
        assert!(ok("unix:app.sock").starts_with("unix:/"));
    }

    #[test]
    fn servers_that_speak_tls() {
        for text in [
            "tls://db.example.org:5432",
            "postgres+tls://db.example.org:5432",
            "tls://10.0.0.7:1",
            "127.0.0.1:3000",
        ] {
            let target = target(text).unwrap();
            assert_eq!(target.to_string(), text);
            assert_eq!(target.tls != crate::target::ServerSpeaks::Plain, text.contains("tls://"));
        }
        assert_eq!(target("tls://6380").unwrap().to_string(), "tls://127.0.0.1:6380");
        assert!(target("tls://unix:/a.sock").unwrap_err().contains("no host"));
        assert!(target("tls://db").unwrap_err().contains("db:3000"));
    }

    #[test]
    fn what_to_write_instead() {
        assert!(err("http://localhost:3000/app?x").contains("write localhost:3000 instead"));
        assert!(err("http://[::1]/").contains("write [::1]:80 instead"));
        assert!(err("http://user:pw@app.internal").contains("write app.internal:80 instead"));
        assert!(err("https://app.internal/").contains("write app.internal:443 instead"));
        assert!(err("https://app.internal/").contains("TLS ends here"));
        assert!(err("http://").contains("write 127.0.0.1:3000"));
        assert!(err("unix:///run/app.sock").contains("write unix:/run/app.sock"));
        assert!(err("/run/app.sock").contains("write unix:/run/app.sock"));
        assert!(err("./app.sock").contains("write unix:./app.sock"));
        assert!(err("localhost").contains("localhost:3000"));
        assert!(err("::1").contains("[::1]:3000"));
    }

    #[test]
    fn nonsense() {
        for text in ["", ":", "0", ":0", "65536", "99999999999", "unix:", "unix:/run/", "a b:80", "x:y"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(err(&format!("unix:/{}", "a".repeat(200))).contains("107"));
    }
}
