//! Where the keys that sign tokens come from (RFC 7517).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use super::FilePath;
use crate::error::{Problem, shown};

/// A set of public keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jwks {
    /// In a file, read at a start and at a reload.
    File(FilePath),
    /// Of a server, fetched while the process runs.
    Server(KeyServer),
}

/// Who has a set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyServer {
    /// Where.
    pub url: KeySetUrl,
    /// The authorities that its certificate is checked against; `None`: those of the system.
    pub ca: Option<FilePath>,
    /// The longest time between two fetches: 10 s to 24 h.
    pub refresh: Duration,
}

impl KeyServer {
    /// The time between two fetches where none is written.
    pub(crate) const REFRESH: Duration = Duration::from_secs(600);
}

/// The URL of a set: by `https`, or by `http` from this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySetUrl(String);

impl KeySetUrl {
    /// The URL as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether its server speaks TLS.
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// The port of its server.
    pub fn port(&self) -> u16 {
        let authority = self.0.split(['/', '?']).nth(2).unwrap_or_default();
        let written = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        written.unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    /// Whether a text means a URL rather than a file.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()))
    }
}

impl FromStr for KeySetUrl {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let refused = |why: &str| {
            let problem = Problem::new(format!("`{}` is no URL of a set of keys: {why}", shown(text)));
            Err(problem.help("write such as \"https://idp.example.org/.well-known/jwks.json\""))
        };
        let (rest, plain) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => return refused("it must begin with https://"),
        };
        if !text.chars().all(|c| c.is_ascii_graphic())
            || text.contains(['#', '"', '<', '>', '\\', '^', '`', '{', '|', '}'])
        {
            return refused("it has a character that a URL cannot have");
        }
        if text.len() > LONGEST {
            return refused("it is longer than 2,048 characters");
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|address| address.parse::<IpAddr>().is_ok()),
            None => Some(host).filter(|host| !host.is_empty() && host.chars().all(is_name)),
        };
        let Some(bare) = bare else { return refused("it names no host") };
        if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
            return refused("its port is no number from 1 to 65535");
        }
        let is_here =
            bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if plain && !is_here {
            return refused("without TLS anybody on the way could exchange the keys");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The longest URL, in bytes.
const LONGEST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_secure_or_of_this_machine() {
        for (text, port) in [
            ("https://idp.example.org/keys:1", 443),
            ("https://idp.example.org", 443),
            ("https://idp.example.org?x=:2", 443),
            ("https://idp.example.org:8443/realms/a/certs?x=1", 8443),
            ("https://[2001:db8::1]/keys", 443),
            ("http://localhost:8080/keys", 8080),
            ("http://127.0.0.7/keys", 80),
            ("http://[::1]:1/keys", 1),
        ] {
            let url: KeySetUrl = text.parse().unwrap();
            assert_eq!((url.as_str(), url.port()), (text, port));
        }
        for (text, why) in [
            ("http://idp.example.org/keys", "without TLS"),
            ("http://localhost.example.org/keys", "without TLS"),
            ("http://10.0.0.1/keys", "without TLS"),
            ("ftp://a/keys", "must begin with https://"),
            ("https://", "no host"),
            ("https://:443/", "no host"),
            ("https://user@a/", "no host"),
            ("https://[::g]/", "no host"),
            ("https://a:0/", "port"),
            ("https://a:x/", "port"),
            ("https://a/ b", "character"),
            ("https://a/#f", "character"),
            ("https://a/é", "character"),
        ] {
            let problem = text.parse::<KeySetUrl>().unwrap_err();
            assert!(problem.message().contains(why), "{text}: {}", problem.message());
        }
    }

    #[test]
    fn what_has_a_scheme_is_no_file() {
        assert!(["https://a", "http://a", "ftp://a", "://a"].into_iter().all(KeySetUrl::is_meant));
        assert!(!["keys.json", "/etc/a:b", "./http:/a", "a b://c"].into_iter().any(KeySetUrl::is_meant));
    }
}
