//! Detection of failed servers: active checks, and failures of requests.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::HostName;
use crate::error::{Problem, shown};

/// Active health checks of a backend's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The check to perform.
    pub probe: Probe,
    /// The interval of checks: 10 ms to 24 h.
    pub interval: Duration,
    /// The timeout of one check: 1 ms to 1 h.
    pub timeout: Duration,
    /// Consecutive successes until a server is up: 1 to 100.
    pub rise: u32,
    /// Consecutive failures until a server is down: 1 to 100.
    pub fall: u32,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            probe: Probe::Connect,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            rise: 2,
            fall: 3,
        }
    }
}

/// The condition for a server to be alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It accepts a connection.
    Connect,
    /// It answers a GET request.
    Http(HttpProbe),
}

/// A GET request as a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// Path and query, with a leading `/`.
    pub path: String,
    /// The host; `None` for the address of the first server, or `localhost`.
    pub host: Option<String>,
    /// The expected statuses; at least one range.
    pub status: Vec<StatusRange>,
}

impl HttpProbe {
    /// A check of this path that expects any status from 200 to 399.
    pub fn new(path: impl Into<String>) -> Self {
        HttpProbe {
            path: path.into(),
            host: None,
            status: vec![StatusRange::class(2), StatusRange::class(3)],
        }
    }
}

/// Parses the path and query of a check.
pub(crate) fn probe_path(text: &str) -> Result<String, Problem> {
    let allowed =
        |b: u8| b.is_ascii_graphic() && !matches!(b, b'#' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`');
    if !text.starts_with('/') || text.len() > 2048 || !text.bytes().all(allowed) {
        let problem = Problem::new(format!("`{}` is not a valid path", shown(text)));
        return Err(problem.help("write a path such as \"/healthz\", and escape other characters as %XX"));
    }
    Ok(text.to_owned())
}

/// Parses the host of a check: a name or an address, with an optional port.
pub(crate) fn probe_host(text: &str) -> Result<String, Problem> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let good_port = port.is_none_or(|port| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = match in_brackets {
        Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.parse::<std::net::Ipv4Addr>().is_ok(),
    };
    if !good_port || !(is_address || host.parse::<HostName>().is_ok()) {
        let problem = Problem::new(format!("`{}` is not a valid host", shown(text)));
        return Err(problem.help("write a name or an address, with a port if needed: \"app.internal:8080\""));
    }
    Ok(text.to_owned())
}

/// A status, or all statuses of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// All statuses of a class from 1 to 5.
    const fn class(class: u16) -> Self {
        StatusRange { first: class * 100, last: class * 100 + 99 }
    }

    /// The first status of the range.
    pub fn first(self) -> u16 {
        self.first
    }

    /// The last status of the range, inclusive.
    pub fn last(self) -> u16 {
        self.last
    }
}

impl FromStr for StatusRange {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let class = text.strip_suffix("xx").and_then(|class| class.parse().ok());
        if let Some(class) = class.filter(|class| (1..=5).contains(class)) {
            return Ok(StatusRange::class(class));
        }
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(status) if digits && (100..=599).contains(&status) => {
                Ok(StatusRange { first: status, last: status })
            }
            _ => Err(Problem::new(format!("`{}` is not an HTTP status", shown(text)))
                .help("write statuses from 100 to 599, or classes such as \"2xx\"")),
        }
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}xx", self.first / 100) }
    }
}

/// The ejection of servers that fail requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eject {
    /// Failures in a row: 1 to 1000.
    pub failures: u32,
    /// The duration of the first ejection: 100 ms to 1 h.
    pub duration: Duration,
    /// The time until it gets its full share again: up to 1 h.
    pub slow_start: Duration,
}

impl Default for Eject {
    fn default() -> Self {
        Eject { failures: 5, duration: Duration::from_secs(10), slow_start: Duration::from_secs(10) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        for text in ["200", "2xx", "599"] {
            assert_eq!(text.parse::<StatusRange>().unwrap().to_string(), text);
        }
        for text in ["", "99", "600", "6xx", "+200", "2x", "0xx", "200-299"] {
            assert!(text.parse::<StatusRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_and_paths_of_checks() {
        for text in ["app.internal", "app.internal:80", "10.0.0.1", "10.0.0.1:80", "[::1]", "[::1]:80"] {
            assert!(probe_host(text).is_ok(), "{text}");
        }
        for text in ["", ":80", "a:", "a:0", "a:x", "::1", "a b", "a/b", "[a]"] {
            assert!(probe_host(text).is_err(), "{text}");
        }
        assert!(probe_path("/healthz?full=1").is_ok());
        for text in ["", "healthz", "/a b", "/ä", "/a#b", "/\r\n"] {
            assert!(probe_path(text).is_err(), "{text}");
        }
    }
}
