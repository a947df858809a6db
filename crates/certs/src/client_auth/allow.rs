//! Admission of verified client certificates: patterns for their names, and pins of their keys.
//!
//! A `dns:` pattern applies to subjectAltName only, never to the CN, and a wildcard in the client's
//! certificate matches nothing. Of several CNs only the first counts, which is the one that is logged; of
//! several OUs any one does.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ipnet::IpNet;

use crate::describe;
use crate::error::{Error, PatternFault};
use crate::facts::AlternativeNames;
use crate::name::DnsPattern;
use crate::x509;

/// The list of patterns for admitted certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    patterns: Vec<Pattern>,
}

/// One entry of an `allow` list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// `dns:` a DNS name in subjectAltName; `*` is one label, as in certificates.
    Dns(DnsPattern),
    /// `uri:` a URI in subjectAltName, compared as written; `*` is any run of characters.
    Uri(Box<str>),
    /// `ip:` an address in subjectAltName, or a network that contains it.
    Ip(IpNet),
    /// `cn:` the Common Name of the subject, compared as written; `*` is any run of characters.
    CommonName(Box<str>),
    /// `ou:` an Organizational Unit of the subject, compared as written; `*` is any run of characters.
    OrganizationalUnit(Box<str>),
    /// `pin:sha256/` the SHA-256 of the SubjectPublicKeyInfo, in base64 (RFC 7469 §2.4).
    Pin([u8; 32]),
}

/// Parses a network or a single address.
fn network(text: &str) -> Option<IpNet> {
    if text.contains('/') { text.parse().ok() } else { Some(text.parse::<IpAddr>().ok()?.into()) }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |fault| Error::Pattern { pattern: text.to_owned(), fault };
        let (kind, value) = text.split_once(':').ok_or_else(|| refuse(PatternFault::Kind))?;
        if matches!(kind, "dns" | "uri" | "ip" | "cn" | "ou" | "pin") && value.is_empty() {
            return Err(refuse(PatternFault::Empty));
        }
        match kind {
            "dns" => match DnsPattern::parse(value) {
                Ok(name) => Ok(Pattern::Dns(name)),
                Err(fault) => Err(refuse(PatternFault::Name(fault))),
            },
            "uri" => Ok(Pattern::Uri(value.into())),
            "ip" => network(value).map(Pattern::Ip).ok_or_else(|| refuse(PatternFault::Address)),
            "cn" => Ok(Pattern::CommonName(value.into())),
            "ou" => Ok(Pattern::OrganizationalUnit(value.into())),
            "pin" => {
                let hash = value.strip_prefix("sha256/").and_then(|hash| BASE64_STANDARD.decode(hash).ok());
                let hash = hash.and_then(|hash| hash.try_into().ok());
                hash.map(Pattern::Pin).ok_or_else(|| refuse(PatternFault::Pin))
            }
            _ => Err(refuse(PatternFault::Kind)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Dns(name) => write!(f, "dns:{name}"),
            Pattern::Uri(glob) => write!(f, "uri:{glob}"),
            Pattern::Ip(net) if net.prefix_len() == net.max_prefix_len() => write!(f, "ip:{}", net.addr()),
            Pattern::Ip(net) => write!(f, "ip:{net}"),
            Pattern::CommonName(glob) => write!(f, "cn:{glob}"),
            Pattern::OrganizationalUnit(glob) => write!(f, "ou:{glob}"),
            Pattern::Pin(hash) => write!(f, "pin:sha256/{}", BASE64_STANDARD.encode(hash)),
        }
    }
}

impl AllowList {
    /// A list of patterns, any of which admits. The empty list admits every certificate that verifies.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        AllowList { patterns }
    }

    /// Returns `true` if the verified certificate `leaf_der` is admitted. One that cannot be parsed is
    /// admitted by the empty list only.
    pub fn matches(&self, leaf_der: &[u8]) -> bool {
        if self.patterns.is_empty() {
            return true;
        }
        let Ok(certificate) = x509::parse(leaf_der) else { return false };
        let Ok(names) = AlternativeNames::read(&certificate) else { return false };
        let common_name = describe::common_name(&certificate);
        self.patterns.iter().any(|pattern| match pattern {
            Pattern::Dns(pattern) => names.dns.iter().any(|name| admits(pattern, name)),
            Pattern::Uri(glob) => names.uris.iter().any(|uri| glob_matches(glob, uri)),
            Pattern::Ip(network) => names.addresses.iter().any(|address| network.contains(address)),
            Pattern::CommonName(glob) => common_name.as_ref().is_some_and(|name| glob_matches(glob, name)),
            Pattern::OrganizationalUnit(glob) => {
                let mut units = certificate.subject().iter_organizational_unit();
                units.any(|unit| unit.as_str().is_ok_and(|unit| glob_matches(glob, unit)))
            }
            Pattern::Pin(hash) => {
                digest::digest(&digest::SHA256, certificate.public_key().raw).as_ref() == hash
            }
        })
    }
}

/// Returns `true` if a name of the client's certificate matches and is not a wildcard.
fn admits(pattern: &DnsPattern, name: &str) -> bool {
    DnsPattern::parse(name).is_ok_and(|name| !name.is_wildcard() && pattern.matches(name.host()))
}

/// Returns `true` if `text` matches `glob`, in which `*` stands for any run of characters, empty ones
/// included.
///
/// Takes time proportional to the product of the lengths at worst: after a mismatch only the last `*` is
/// extended, as an earlier one need never be.
fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if glob.get(g) == Some(&b'*') {
            retry = Some((g, t));
            g += 1;
        } else if glob.get(g) == Some(&text[t]) {
            g += 1;
            t += 1;
        } else if let Some((star, taken)) = retry {
            retry = Some((star, taken + 1));
            g = star + 1;
            t = taken + 1;
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::NameFault;

    const PIN: &str = "pin:sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

    #[test]
    fn networks_hold_the_addresses_with_their_bits() {
        for (network, address, holds) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "255.0.0.1", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "ff::1", true),
            ("2001:db8::/32", "2001:db8:ff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
        ] {
            let found = super::network(network).unwrap().contains(&address.parse::<IpAddr>().unwrap());
            assert_eq!(found, holds, "{network} {address}");
        }
    }

    #[test]
    fn patterns_are_read_and_written() {
        for text in [
            "dns:*.svc.example.org",
            "dns:a.b",
            "uri:spiffe://example.org/*",
            "cn:backup",
            "cn:*",
            "ou:ops",
            "ip:192.0.2.7",
            "ip:10.0.0.0/8",
            "ip:2001:db8::/32",
            PIN,
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_its_reason() {
        for (text, expected) in [
            ("backup", PatternFault::Kind),
            ("email:a@b", PatternFault::Kind),
            ("spiffe://example.org/a", PatternFault::Kind),
            ("cn:", PatternFault::Empty),
            ("dns:", PatternFault::Empty),
            ("dns:a.*.org", PatternFault::Name(NameFault::Wildcard)),
            ("ip:", PatternFault::Empty),
            ("ip:10.0.0.0/33", PatternFault::Address),
            ("ip:a.test", PatternFault::Address),
            ("pin:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", PatternFault::Pin),
            ("pin:sha256/AAAA", PatternFault::Pin),
            ("pin:sha256/!", PatternFault::Pin),
        ] {
            match text.parse::<Pattern>() {
                Err(Error::Pattern { pattern, fault }) => {
                    assert_eq!((pattern.as_str(), fault), (text, expected));
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    /// The definition, by recursion.
    fn naive(glob: &[u8], text: &[u8]) -> bool {
        match glob {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
            [first, rest @ ..] => text.first() == Some(first) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn globs_match_as_defined(glob in "[ab*]{0,7}", text in "[ab]{0,9}") {
            prop_assert_eq!(glob_matches(&glob, &text), naive(glob.as_bytes(), text.as_bytes()));
        }
    }

    #[test]
    fn a_hostile_glob_takes_no_time() {
        assert!(!glob_matches(&"*a".repeat(1000), &"a".repeat(999)));
        assert!(!glob_matches("*a*a*a*a*a*a*a*a*b", &"a".repeat(10_000)));
    }
}
