//! DNS names and wildcards as certificates carry them (RFC 5280 §4.2.1.6, RFC 9525 §6.3).
//!
//! A pattern is lower case, without the final dot. A wildcard is `*` as the whole first label and stands for
//! exactly one label. Partial wildcards (`f*.example.org`) are refused.

use std::fmt;
use std::net::IpAddr;

use crate::error::NameFault;

/// The maximum length in text form (RFC 1035 §2.3.4: 255 octets on the wire).
pub(crate) const MAX_NAME: usize = 253;

/// A DNS name or a wildcard of one label, such as `example.org` or `*.example.org`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsPattern {
    /// The name in lower case, without the `*.` of a wildcard.
    host: Box<str>,
    wildcard: bool,
}

impl DnsPattern {
    /// Parses a name from user input or a certificate; lowers its case and drops a final dot.
    ///
    /// # Errors
    /// The [`NameFault`] for which the text is not a host name or wildcard.
    pub fn parse(text: &str) -> Result<Self, NameFault> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(NameFault::Empty);
        }
        if text.len() > MAX_NAME {
            return Err(NameFault::Length);
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(NameFault::Address);
        }
        let (host, wildcard) = match text.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        for label in host.split('.') {
            check_label(label)?;
        }
        Ok(DnsPattern { host: host.to_ascii_lowercase().into(), wildcard })
    }

    /// The name; for a wildcard, the part after the `*.`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns `true` if the first label is `*`.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Returns `true` if `name`, ignoring case and a final dot, equals this name, or has exactly one label in
    /// the place of the `*`.
    pub fn matches(&self, name: &str) -> bool {
        let mut buffer = [0; MAX_NAME];
        let Some(name) = lower(name, &mut buffer) else { return false };
        if self.wildcard { parent(name) == Some(&*self.host) } else { *name == *self.host }
    }
}

impl fmt::Display for DnsPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.wildcard {
            f.write_str("*.")?;
        }
        f.write_str(&self.host)
    }
}

/// The base of a wildcard that matches `name`: `name` without its first label.
pub(crate) fn parent(name: &str) -> Option<&str> {
    match name.split_once('.') {
        Some((label, rest)) if !label.is_empty() && label != "*" && !rest.is_empty() => Some(rest),
        _ => None,
    }
}

/// `name` in lower case without its final dot: borrowed if it is so already, else a copy in `buffer`. `None`
/// if it is too long to be a name.
pub(crate) fn lower<'a>(name: &'a str, buffer: &'a mut [u8; MAX_NAME]) -> Option<&'a str> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.len() > MAX_NAME {
        return None;
    }
    if !name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(name);
    }
    let copy = &mut buffer[..name.len()];
    copy.copy_from_slice(name.as_bytes());
    copy.make_ascii_lowercase();
    std::str::from_utf8(copy).ok()
}

fn check_label(label: &str) -> Result<(), NameFault> {
    if label.is_empty() || label.len() > 63 {
        return Err(NameFault::Length);
    }
    // Underscores are invalid in host names but occur in names of services.
    match label.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))) {
        None => Ok(()),
        Some('*') => Err(NameFault::Wildcard),
        Some(other) => Err(NameFault::Character(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_normalised() {
        let name = DnsPattern::parse("Git.Example.ORG.").unwrap();
        assert_eq!(name.to_string(), "git.example.org");
        assert!(!name.is_wildcard());
        let wildcard = DnsPattern::parse("*.Example.org").unwrap();
        assert_eq!(wildcard.to_string(), "*.example.org");
        assert_eq!(wildcard.host(), "example.org");
    }

    #[test]
    fn what_is_no_name_is_refused_with_its_reason() {
        let long = "a.".repeat(127) + "aa";
        for (text, fault) in [
            ("", NameFault::Empty),
            (".", NameFault::Empty),
            ("a..b", NameFault::Length),
            (".a", NameFault::Length),
            ("*.", NameFault::Wildcard),
            ("*", NameFault::Wildcard),
            ("f*.example.org", NameFault::Wildcard),
            ("*.*.org", NameFault::Wildcard),
            ("a.*.org", NameFault::Wildcard),
            ("127.0.0.1", NameFault::Address),
            ("::1", NameFault::Address),
            ("a b.org", NameFault::Character(' ')),
            ("bücher.de", NameFault::Character('ü')),
            (&long, NameFault::Length),
            (&"a".repeat(64), NameFault::Length),
        ] {
            assert_eq!(DnsPattern::parse(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let wildcard = DnsPattern::parse("*.example.org").unwrap();
        assert!(wildcard.matches("a.example.org"));
        assert!(wildcard.matches("A.EXAMPLE.ORG."));
        for other in ["example.org", ".example.org", "a.b.example.org", "aexample.org", "*.example.org", ""] {
            assert!(!wildcard.matches(other), "{other}");
        }
    }
}
