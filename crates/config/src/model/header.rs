//! Header fields: names, values, and changes to them.

use std::fmt;
use std::str::FromStr;

use super::HeaderTemplate;
use crate::error::{Problem, shown};

/// The name of a header field in lower case: a token (RFC 9110 §5.1, §5.6.2) of at most 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderName(String);

impl HeaderName {
    /// The name as text, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name in the code: a token in lower case.
    pub(crate) fn literal(name: &'static str) -> Self {
        HeaderName(name.to_owned())
    }

    /// The name under CGI's rules (RFC 3875 §4.1.18): `-` for every byte that is not a letter or digit.
    pub(crate) fn folded(&self) -> String {
        self.0.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
    }
}

impl FromStr for HeaderName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if !is_token(text) || text.len() > 128 {
            let problem = Problem::new(format!("`{}` cannot be the name of a header field", shown(text)));
            return Err(problem.help("names are of letters, digits and `-` (RFC 9110, section 5.6.2)"));
        }
        Ok(HeaderName(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The value of a header field: printable ASCII with inner blanks and tabs, at most 8 KiB (RFC 9110 §5.5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderValue(String);

/// The maximum length of a value: most servers refuse more as a whole header.
const VALUE_MAX: usize = 8192;

impl HeaderValue {
    /// A value in the code: printable ASCII.
    pub(crate) fn literal(value: &'static str) -> Self {
        HeaderValue(value.to_owned())
    }

    /// The value as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HeaderValue {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = |help: &str| {
            // The value may be a secret: messages go to the log.
            Err(Problem::new("this cannot be the value of a header field").help(help))
        };
        if text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']) {
            return wrong("leave the blanks at its ends out: whoever reads it would (RFC 9110, section 5.5)");
        }
        if !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ' || b == b'\t') {
            return wrong("values are of printable ASCII characters (RFC 9110, section 5.5)");
        }
        if text.len() > VALUE_MAX {
            return wrong("values have at most 8192 characters");
        }
        Ok(HeaderValue(text.to_owned()))
    }
}

impl fmt::Display for HeaderValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a cookie: a case-sensitive token (RFC 6265 §4.1.1) of at most 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CookieName(String);

impl CookieName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for CookieName {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if !is_token(text) || text.len() > 128 {
            let problem = Problem::new(format!("`{}` cannot be the name of a cookie", shown(text)));
            return Err(problem.help("names are of letters, digits, `_` and `-` (RFC 6265, section 4.1.1)"));
        }
        Ok(CookieName(text.to_owned()))
    }
}

impl fmt::Display for CookieName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn is_token(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(allowed)
}

/// A name, and a value with optional variables.
pub type HeaderField = (HeaderName, HeaderTemplate);

/// Changes to a header, in the order remove, set, add. No field is one of those that frame a message or
/// belong to a single connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    /// Fields that replace those of the same name; sorted by name, without duplicates.
    pub set: Vec<HeaderField>,
    /// Fields added to those of the same name; sorted by name.
    pub add: Vec<HeaderField>,
    /// Names of fields to remove, without duplicates.
    pub remove: Vec<HeaderName>,
}

impl HeaderChanges {
    /// Returns `true` if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Set,
    Add,
    Remove,
}

/// The reason for which a field must not be changed: hop-by-hop fields and those that frame the message
/// belong to the connection (RFC 9110 §7.6.1, RFC 9112 §6).
pub(crate) fn refused(name: &HeaderName, act: Act) -> Option<&'static str> {
    match name.folded().as_str() {
        "connection" | "keep-alive" | "proxy-connection" | "te" | "trailer" | "upgrade" => {
            Some("it belongs to one connection and is made anew for each (RFC 9110, section 7.6.1)")
        }
        "transfer-encoding" | "content-length" => {
            Some("it frames the message: with another one the next message would begin elsewhere")
        }
        "host" if act != Act::Set => Some("a request has exactly one; `set` replaces it"),
        _ => None,
    }
}

/// Accepts a field that `act` may change.
pub(crate) fn permitted(name: HeaderName, act: Act) -> Result<HeaderName, Problem> {
    match refused(&name, act) {
        None => Ok(name),
        Some(why) => {
            Err(Problem::new(format!("`{name}` cannot be changed")).help(format!("leave it out: {why}")))
        }
    }
}

/// Parses the name of a field that may be removed.
pub(crate) fn removable(text: &str) -> Result<HeaderName, Problem> {
    text.parse().and_then(|name| permitted(name, Act::Remove))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        assert_eq!("X-Frame-Options".parse::<HeaderName>().unwrap().as_str(), "x-frame-options");
        for text in ["", "a b", "a:", "ä", "a\r\nb", ":path", &"x".repeat(129)] {
            assert!(text.parse::<HeaderName>().is_err(), "{text}");
        }
        assert!("max-age=1, \"x\"\ty".parse::<HeaderValue>().is_ok());
        assert!("".parse::<HeaderValue>().is_ok());
        for text in [" a", "a ", "a\r\nSet-Cookie: b", "a\0", "ä", &"x".repeat(8193)] {
            // The value may be a secret, and messages go to the log.
            let said = text.parse::<HeaderValue>().unwrap_err().to_string();
            assert!(said.starts_with("this cannot be the value of a header field"), "{said}");
        }
    }

    #[test]
    fn fields_of_the_connection_are_refused() {
        let name = |text: &str| text.parse::<HeaderName>().unwrap();
        let spelt = ["Content_Length", "transfer.encoding", "Keep~Alive"];
        let names = ["Connection", "Transfer-Encoding", "Content-Length", "Upgrade", "TE", "Trailer"];
        for text in names.into_iter().chain(spelt) {
            assert!(refused(&name(text), Act::Set).is_some(), "{text}");
        }
        assert!(refused(&name("Host"), Act::Set).is_none());
        assert!(refused(&name("Host"), Act::Remove).is_some());
        assert!(refused(&name("Cookie"), Act::Remove).is_none());
    }
}
