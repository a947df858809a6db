//! Client certificates: which CAs are trusted, and which of their certificates are let in.
//!
//! That a certificate is genuine is verified by rustls against the roots; [`Allow`] then asks who it
//! names. A `dns:` pattern looks at subjectAltName alone, never at the CN, and a client's own wildcard
//! names nobody. Where a certificate has several CNs only the first counts, the one that is logged.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::SystemTime;

use rustls::RootCertStore;

use crate::describe;
use crate::error::{ContentFault, Error, PatternFault};
use crate::name::DnsPattern;
use crate::pem::{Item, PemFile};
use crate::warning::{Concern, Warning};
use crate::x509::{self, AlternativeNames, Facts};

/// The CAs of a bundle, and what to know about them.
#[derive(Debug)]
pub struct LoadedRoots {
    /// The trust anchors; at least one.
    pub roots: RootCertStore,
    /// What does not keep them from being used.
    pub warnings: Vec<Warning>,
}

/// Loads every certificate of a PEM bundle as a trust anchor.
///
/// # Errors
/// [`Error::Io`] and [`Error::Content`]: the file cannot be read, holds no certificate, or holds one
/// that is broken, with its line.
pub fn load_roots(path: &Path, now: SystemTime) -> Result<LoadedRoots, Error> {
    let file = PemFile::read(path)?;
    let (mut roots, mut warnings) = (RootCertStore::empty(), Vec::new());
    let mut seen = Vec::new();
    for block in &file.blocks {
        match &block.item {
            Item::Certificate(der) if seen.contains(&der) => {}
            Item::Certificate(der) => {
                let bad = |why| Error::content(path, Some(block.line), ContentFault::BadCertificate(why));
                let facts = Facts::read(der).map_err(bad)?;
                roots.add(der.clone()).map_err(|error| bad(error.to_string()))?;
                if facts.not_after <= now {
                    let concern =
                        Concern::CaExpired { subject: facts.subject_text, not_after: facts.not_after };
                    warnings.push(Warning::new(path, concern));
                }
                seen.push(der);
            }
            Item::Key(_) => warnings.push(Warning::new(path, Concern::KeyInBundle)),
            Item::EncryptedKey | Item::Other(_) => {}
        }
    }
    if roots.is_empty() {
        return Err(Error::content(path, None, ContentFault::NoCertificate(file.other_labels())));
    }
    Ok(LoadedRoots { roots, warnings })
}

/// Whom of those that a CA vouches for to let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    patterns: Vec<Pattern>,
}

/// One entry of an `allow` list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// `dns:` a DNS name in subjectAltName; `*` is one label, as in certificates.
    Dns(DnsPattern),
    /// `uri:` a URI in subjectAltName, compared as written; `*` is any run of characters.
    Uri(Box<str>),
    /// `cn:` the Common Name of the subject, compared as written; `*` is any run of characters.
    CommonName(Box<str>),
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |fault| Error::Pattern { pattern: text.to_owned(), fault };
        let (kind, value) = text.split_once(':').ok_or_else(|| refuse(PatternFault::Kind))?;
        if matches!(kind, "dns" | "uri" | "cn") && value.is_empty() {
            return Err(refuse(PatternFault::Empty));
        }
        match kind {
            "dns" => match DnsPattern::parse(value) {
                Ok(name) => Ok(Pattern::Dns(name)),
                Err(fault) => Err(refuse(PatternFault::Name(fault))),
            },
            "uri" => Ok(Pattern::Uri(value.into())),
            "cn" => Ok(Pattern::CommonName(value.into())),
            _ => Err(refuse(PatternFault::Kind)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Dns(name) => write!(f, "dns:{name}"),
            Pattern::Uri(glob) => write!(f, "uri:{glob}"),
            Pattern::CommonName(glob) => write!(f, "cn:{glob}"),
        }
    }
}

impl Allow {
    /// A list of patterns, any of which admits. The empty list admits every certificate that the CA
    /// vouches for.
    pub fn new(patterns: Vec<Pattern>) -> Self {
        Allow { patterns }
    }

    /// Whether the certificate `leaf_der`, verified before, is let in. One that cannot be parsed is
    /// not, unless the list is empty.
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
            Pattern::CommonName(glob) => common_name.as_ref().is_some_and(|name| glob_matches(glob, name)),
        })
    }
}

/// Whether a name of the client's is a proper one and fits: a wildcard is no client's name.
fn admits(pattern: &DnsPattern, name: &str) -> bool {
    DnsPattern::parse(name).is_ok_and(|name| !name.is_wildcard() && pattern.matches(name.host()))
}

/// Whether `text` is `glob` with each `*` replaced by any run of characters, also by none.
///
/// Takes time in proportion to the product of the lengths at worst: on a mismatch only the latest `*`
/// takes one more character, as an earlier one need never take more than it has.
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

    #[test]
    fn patterns_are_read_and_written() {
        for text in ["dns:*.svc.example.org", "dns:a.b", "uri:spiffe://example.org/*", "cn:backup", "cn:*"] {
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
