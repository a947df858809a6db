//! Elements of Forwarded (RFC 7239 §4), parsed and written.
//!
//! One extension: whitespace around semicolons, which the grammar forbids and proxies write.

use std::borrow::Cow;
use std::fmt::Write;
use std::str;

use super::{ForwardedFault, Node};
use crate::scan::is_token;

/// The information added by one proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element<'a> {
    /// `for`: the client of the proxy.
    pub client: Option<Node<'a>>,
    /// `by`: the interface of the proxy that received the request.
    pub by: Option<Node<'a>>,
    /// `host`: Host as the proxy received it. Not checked; see [`Authority::parse`](crate::Authority::parse).
    pub host: Option<Cow<'a, str>>,
    /// `proto`: the scheme of the request. Not checked.
    pub proto: Option<Cow<'a, str>>,
}

/// Parses the elements of one value from the left. Ends after the first error.
#[must_use]
pub fn elements(value: &[u8]) -> Elements<'_> {
    Elements { rest: Some(value) }
}

/// Iterator returned by [`elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    /// Unparsed text; `None` at the end.
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, ForwardedFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.rest?.trim_ascii_start();
            match rest {
                [] => {
                    self.rest = None;
                    return None;
                }
                // An empty list element (RFC 9110 §5.6.1.2).
                [b',', rest @ ..] => self.rest = Some(rest),
                rest => {
                    let read = element(rest);
                    self.rest = read.as_ref().ok().and_then(|(_, rest)| *rest);
                    return Some(read.map(|(element, _)| element));
                }
            }
        }
    }
}

/// Parses one element, up to a comma or the end.
fn element(mut text: &[u8]) -> Result<(Element<'_>, Option<&[u8]>), ForwardedFault> {
    let mut element = Element::default();
    loop {
        text = text.trim_ascii_start();
        if !matches!(text, [] | [b';' | b',', ..]) {
            text = element.parameter(text)?.trim_ascii_start();
        }
        match text {
            [] => return Ok((element, None)),
            [b',', rest @ ..] => return Ok((element, Some(rest))),
            [b';', rest @ ..] => text = rest,
            _ => return Err(ForwardedFault::Syntax),
        }
    }
}

impl<'a> Element<'a> {
    /// Parses one parameter, and returns the rest. Unknown parameters are skipped (RFC 7239 §5.5).
    fn parameter(&mut self, text: &'a [u8]) -> Result<&'a [u8], ForwardedFault> {
        let (name, rest) = token(text);
        let (value, rest) = match rest {
            [b'=', b'"', rest @ ..] => quoted(rest)?,
            [b'=', rest @ ..] => {
                let (value, rest) = token(rest);
                if value.is_empty() {
                    return Err(ForwardedFault::Syntax);
                }
                (plain(value)?, rest)
            }
            _ => return Err(ForwardedFault::Syntax),
        };
        let repeated = match name {
            b"" => return Err(ForwardedFault::Syntax),
            _ if name.eq_ignore_ascii_case(b"for") => self.client.replace(Node::parse(value)?).is_some(),
            _ if name.eq_ignore_ascii_case(b"by") => self.by.replace(Node::parse(value)?).is_some(),
            _ if name.eq_ignore_ascii_case(b"host") => self.host.replace(value).is_some(),
            _ if name.eq_ignore_ascii_case(b"proto") => self.proto.replace(value).is_some(),
            _ => false,
        };
        if repeated { Err(ForwardedFault::Repeated) } else { Ok(rest) }
    }

    /// Appends the element in the order `for`, `by`, `host`, `proto`, quoted where necessary. Control bytes
    /// in `host` or `proto`, which [`elements`] never yields, are omitted.
    pub fn write(&self, out: &mut String) {
        let mut first = true;
        let mut pair = |name: &str, value: &str| {
            if !first {
                out.push(';');
            }
            first = false;
            out.push_str(name);
            out.push('=');
            if !value.is_empty() && value.bytes().all(is_token) {
                out.push_str(value);
                return;
            }
            out.push('"');
            for letter in value.chars().filter(|letter| !letter.is_control()) {
                if matches!(letter, '"' | '\\') {
                    out.push('\\');
                }
                out.push(letter);
            }
            out.push('"');
        };
        let mut text = String::new();
        for (name, node) in [("for", &self.client), ("by", &self.by)] {
            if let Some(node) = node {
                text.clear();
                // Writing to a `String` cannot fail.
                let written = write!(text, "{node}");
                debug_assert!(written.is_ok());
                pair(name, &text);
            }
        }
        for (name, value) in [("host", &self.host), ("proto", &self.proto)] {
            if let Some(value) = value {
                pair(name, value);
            }
        }
    }
}

fn token(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| !is_token(byte)).unwrap_or(text.len());
    text.split_at(end)
}

/// Parses a quoted-string behind its opening quote (RFC 9110 §5.6.4), and returns the text behind the closing
/// one.
fn quoted(text: &[u8]) -> Result<(Cow<'_, str>, &[u8]), ForwardedFault> {
    let mut unescaped: Option<Vec<u8>> = None;
    let mut at = 0;
    loop {
        let byte = match text.get(at) {
            Some(b'"') => break,
            Some(b'\\') => {
                unescaped.get_or_insert_with(|| text[..at].to_vec());
                at += 1;
                text.get(at)
            }
            byte => byte,
        };
        match byte {
            Some(&byte) if !byte.is_ascii_control() => {
                if let Some(unescaped) = &mut unescaped {
                    unescaped.push(byte);
                }
            }
            _ => return Err(ForwardedFault::Syntax),
        }
        at += 1;
    }
    let value = match unescaped {
        Some(bytes) => Cow::Owned(String::from_utf8(bytes).map_err(|_| ForwardedFault::Syntax)?),
        None => plain(&text[..at])?,
    };
    Ok((value, &text[at + 1..]))
}

fn plain(bytes: &[u8]) -> Result<Cow<'_, str>, ForwardedFault> {
    str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| ForwardedFault::Syntax)
}
