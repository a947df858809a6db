//! Names of listeners, backends, hosts and protocols.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::error::{Problem, shown};

/// The name of a listener or a backend: 1 to 64 of the characters `A-Z a-z 0-9 _ . -`, so that it needs no
/// quotes in TOML, events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

const NAME_MAX: usize = 64;

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Name {
    /// `default`, the name of a listener without one.
    fn default() -> Self {
        Name("default".to_owned())
    }
}

impl FromStr for Name {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if text.is_empty() || text.len() > NAME_MAX || !text.bytes().all(allowed) {
            let problem = Problem::new(format!("`{}` cannot be a name", shown(text)));
            return Err(problem.help("names have 1 to 64 letters, digits, `_`, `.` and `-`"));
        }
        Ok(Name(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A DNS host name in ASCII: lower case, without a final dot, at most 253 bytes (RFC 1035 §2.3.4), never an
/// IP address. `_` is allowed because it occurs in practice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

impl HostName {
    /// The host name `localhost`.
    pub fn localhost() -> Self {
        HostName("localhost".to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong =
            |help: &str| Err(Problem::new(format!("`{}` is not the name of a host", shown(text))).help(help));
        if !text.is_ascii() {
            return wrong("write international names in their ASCII form, which begins with xn--");
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if name.parse::<IpAddr>().is_ok() || text.starts_with('[') {
            return wrong("it is an IP address; clients send names only (RFC 6066, section 3)");
        }
        if text.contains(['/', ':']) {
            return wrong("write the name alone, without scheme, port or path");
        }
        if name.contains('*') {
            return wrong("a `*` stands for the whole first label: \"*.example.org\"");
        }
        let label = |label: &str| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(allowed)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > 253 || !name.split('.').all(label) {
            return wrong("names are labels of letters, digits and `-`, joined by dots");
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|b| b.is_ascii_digit()) {
            return wrong("it looks like an IP address, but is none");
        }
        Ok(HostName(name))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pattern for host names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This name and no other.
    Exact(HostName),
    /// One label and a dot before this name, as in certificates (RFC 6125 §6.4.3).
    Wildcard(HostName),
}

impl FromStr for HostPattern {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == "*" {
            return Err(Problem::new("`*` is not the name of a host").help("leave `host` out for any host"));
        }
        match text.strip_prefix("*.") {
            Some(parent) => parent.parse().map(HostPattern::Wildcard),
            None => text.parse().map(HostPattern::Exact),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(name) => name.fmt(f),
            HostPattern::Wildcard(parent) => write!(f, "*.{parent}"),
        }
    }
}

/// A name for a certificate of the local CA.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CertificateName {
    /// A host name or a wildcard.
    Host(HostPattern),
    /// An address, for clients that connect by address.
    Ip(IpAddr),
}

impl FromStr for CertificateName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == "*" {
            let problem = Problem::new("`*` cannot be the name of a certificate");
            return Err(problem.help("clients accept no certificate for every name; write the names"));
        }
        match text.parse() {
            Ok(address) => Ok(CertificateName::Ip(address)),
            Err(_) => text.parse().map(CertificateName::Host),
        }
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CertificateName::Host(pattern) => pattern.fmt(f),
            CertificateName::Ip(address) => address.fmt(f),
        }
    }
}

/// The id of an application protocol (RFC 7301): 1 to 255 bytes, in the configuration printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AlpnId(String);

impl AlpnId {
    /// The id in its wire form.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The protocol of PostgreSQL listeners: clients since version 17 request it.
    pub fn of_postgres() -> AlpnId {
        AlpnId("postgresql".to_owned())
    }

    /// The protocols of HTTP listeners in order of preference: HTTP/2 (RFC 9113 §3.2), then HTTP/1.1 and 1.0.
    pub fn of_http() -> [AlpnId; 3] {
        ["h2", "http/1.1", "http/1.0"].map(|id| AlpnId(id.to_owned()))
    }
}

impl FromStr for AlpnId {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.is_empty() || text.len() > 255 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            let problem = Problem::new(format!("`{}` is not the id of a protocol", shown(text)));
            return Err(problem.help("ids are short words of ASCII such as \"h2\" or \"http/1.1\""));
        }
        Ok(AlpnId(text.to_owned()))
    }
}

impl fmt::Display for AlpnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn help(text: &str) -> String {
        text.parse::<HostPattern>().unwrap_err().to_string()
    }

    #[test]
    fn hosts_are_normalised() {
        assert_eq!("Git.Example.ORG.".parse::<HostPattern>().unwrap().to_string(), "git.example.org");
        assert_eq!("*.Example.org".parse::<HostPattern>().unwrap().to_string(), "*.example.org");
        assert!("_dmarc.example.org".parse::<HostName>().is_ok());
        assert!("localhost".parse::<HostName>().is_ok());
    }

    #[test]
    fn what_is_no_host_gets_a_remedy() {
        assert!(help("bücher.example").contains("xn--"));
        assert!(help("10.0.0.1").contains("IP address"));
        assert!(help("[::1]").contains("IP address"));
        assert!(help("10.0.0").contains("looks like"));
        assert!(help("https://example.org").contains("scheme"));
        assert!(help("example.org:443").contains("port"));
        assert!(help("www.*.org").contains("first label"));
        assert!(help("*").contains("leave `host` out"));
        for text in ["", ".", "a..b", "-a.org", "a-.org", "a b.org", "*.", &"a".repeat(64), &"a.".repeat(128)]
        {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn certificates_may_name_addresses() {
        assert_eq!("127.0.0.1".parse(), Ok(CertificateName::Ip([127, 0, 0, 1].into())));
        assert!(matches!("::1".parse(), Ok(CertificateName::Ip(_))));
        assert!(matches!("*.home.arpa".parse(), Ok(CertificateName::Host(HostPattern::Wildcard(_)))));
        assert!("*".parse::<CertificateName>().is_err());
    }

    #[test]
    fn names_and_protocols() {
        assert!("web-1_a.b".parse::<Name>().is_ok());
        for text in ["", "a b", "ä", "a\"", &"x".repeat(65)] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
        assert!("http/1.1".parse::<AlpnId>().is_ok());
        for text in ["", "h 2", "h\u{1}", &"x".repeat(256)] {
            assert!(text.parse::<AlpnId>().is_err(), "{text}");
        }
    }
}
