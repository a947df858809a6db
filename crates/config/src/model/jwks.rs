//! Sources of the keys for signed tokens (RFC 7517).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use super::FilePath;
use super::web_url::WebUrl;
use crate::error::{Problem, shown};

/// A set of public keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jwks {
    /// A file, read at start and reload.
    File(FilePath),
    /// A server, from which keys are fetched regularly.
    Server(KeyServer),
}

/// A server with a set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyServer {
    /// The URL of the set.
    pub url: KeySetUrl,
    /// The CA certificates for its server; `None` for those of the system.
    pub ca: Option<FilePath>,
    /// The maximum interval of fetches: 10 s to 24 h.
    pub refresh: Duration,
}

impl KeyServer {
    /// A server with the defaults of the other keys.
    pub fn at(url: KeySetUrl) -> Self {
        KeyServer { url, ca: None, refresh: Duration::from_secs(600) }
    }
}

/// The URL of a key set: `https`, or `http` on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySetUrl(String);

impl KeySetUrl {
    /// The URL before its key is read, which must be written.
    pub(crate) fn blank() -> Self {
        Self("https://localhost/".to_owned())
    }

    /// The URL as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns `true` for `https`.
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// The port of the server.
    pub fn port(&self) -> u16 {
        // It was read once already.
        WebUrl::read(&self.0).map_or(443, |url| url.port)
    }

    /// Returns `true` if a text is meant as a URL rather than a path.
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
        let url = match WebUrl::read(text) {
            Ok(url) => url,
            Err(why) => return refused(why),
        };
        let address = url.host.parse::<IpAddr>();
        let is_here = url.host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        if !url.is_https && !is_here {
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
