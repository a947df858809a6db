//! Certificates that are ordered when a client first asks for a name.

use std::str::FromStr;
use std::time::Duration;

use super::HostPattern;
use crate::error::{Problem, shown};
use crate::units::{Per, Rate};

/// The names that get certificates on demand, and the rate of orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// The names that are permitted without a query.
    pub names: Vec<HostPattern>,
    /// The URL that decides about all other names; `None` refuses them.
    pub ask: Option<AskUrl>,
    /// The maximum rate of orders for new names.
    pub rate: Rate,
    /// The time that a handshake waits for its certificate; 0 for none.
    pub wait: Duration,
}

impl OnDemand {
    /// Half of Let's Encrypt's limit per account (300 orders in three hours).
    pub const RATE: Rate = Rate::literal::<50>(Per::Hour);
    /// Less than the default of `limits.handshake_timeout`.
    pub const WAIT: Duration = Duration::from_secs(8);
}

impl Default for OnDemand {
    /// The default rate and wait; no name is permitted.
    fn default() -> Self {
        OnDemand { names: Vec::new(), ask: None, rate: OnDemand::RATE, wait: OnDemand::WAIT }
    }
}

/// A URL of plain HTTP that decides if a name may have a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskUrl {
    /// Host and port, as in a `Host` field.
    authority: String,
    path: String,
}

impl AskUrl {
    /// Host and port to connect to.
    pub fn address(&self) -> (&str, u16) {
        let (host, port) = split_port(&self.authority);
        (host.trim_start_matches('[').trim_end_matches(']'), port.unwrap_or(80))
    }

    /// The host, with a port if one was written.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The target of the request about `name`, which consists of letters, digits, hyphens, underscores and
    /// dots.
    pub fn target(&self, name: &str) -> String {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        format!("{}{separator}domain={name}", self.path)
    }
}

/// Splits `host:port`; `None` without a valid port.
fn split_port(authority: &str) -> (&str, Option<u16>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
        _ => (authority, None),
    }
}

impl FromStr for AskUrl {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let refused = |why: &str| {
            let problem = Problem::new(format!("`{}` is no URL to ask: {why}", shown(text)));
            Err(problem.help("write such as \"http://127.0.0.1:3000/may-have-a-certificate\""))
        };
        let Some(rest) = text.strip_prefix("http://") else {
            return refused("it must begin with http://");
        };
        if !text.chars().all(|c| c.is_ascii_graphic()) || text.contains('#') {
            return refused("it has a character that a URL to ask cannot have");
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_port(authority);
        let sound = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if host.is_empty() || !host.chars().all(sound) {
            return refused("it names no host");
        }
        if port.is_none_or(|port| port == 0) && host != authority {
            return refused("its port is no number from 1 to 65535");
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(AskUrl { authority: authority.to_owned(), path })
    }
}

impl std::fmt::Display for AskUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let of = |text: &str| {
            let url: AskUrl = text.parse().unwrap();
            let (host, port) = url.address();
            (host.to_owned(), port, url.target("a.example.org"))
        };
        assert_eq!(
            of("http://127.0.0.1:3000/ask"),
            ("127.0.0.1".into(), 3000, "/ask?domain=a.example.org".into())
        );
        assert_eq!(of("http://[::1]:81?k=v"), ("::1".into(), 81, "/?k=v&domain=a.example.org".into()));
        assert_eq!(of("http://[::1]/"), ("::1".into(), 80, "/?domain=a.example.org".into()));
        assert_eq!(of("http://app.internal"), ("app.internal".into(), 80, "/?domain=a.example.org".into()));
        for text in [
            "",
            "https://a/",
            "http://",
            "http://:80/",
            "http://a:x/",
            "http://a:0/",
            "http://a/ b",
            "http://a/#f",
            "http://u@a/",
        ] {
            assert!(text.parse::<AskUrl>().is_err(), "{text}");
        }
    }
}
