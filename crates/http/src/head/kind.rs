//! What a field of HTTP/2 is, and whether it may be one (RFC 9113 §8.2, §8.3).

use http::Method;
use http::uri;

use super::Known;
use crate::h1::{self, Http1Fault, MAX_METHOD};
use crate::target::{self, QueryForm, Scheme};

/// What a field of HTTP/2 is. It is found out once, when the field comes as a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A field with a name and a value that may be, and the number of its name.
    Plain(Known),
    /// `:method`
    Method,
    /// `:scheme`; a fault for one that is not served.
    Scheme(Result<Scheme, Http1Fault>),
    /// `:authority`
    Authority,
    /// `:path`, and how its query is spelt; a fault for one that the guard of HTTP/1 would refuse as well.
    Path(Result<QueryForm, Http1Fault>),
    /// `:protocol` (RFC 8441 §4)
    Protocol,
    /// `:status`
    Status(u16),
    /// One that no message may have, or with such a value.
    Malformed,
}

const _: () = assert!(size_of::<Kind>() <= 4);

/// The longest path that the types of `http` take, which servers that speak HTTP/2 get.
const LONGEST_PATH: usize = u16::MAX as usize - 1;

impl Kind {
    /// What the field with this name and value is.
    #[must_use]
    pub fn of(name: &[u8], value: &[u8]) -> Self {
        if let Some(b':') = name.first() {
            return Self::pseudo(name, value).unwrap_or(Self::Malformed);
        }
        if !is_name(name) {
            return Self::Malformed;
        }
        match Known::of(name) {
            // They concern one connection, and HTTP/2 has no such fields (RFC 9113 §8.2.2).
            Known::Connection
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::TransferEncoding
            | Known::Upgrade => Self::Malformed,
            Known::Te if value != b"trailers" => Self::Malformed,
            known if is_plain_value(value) => Self::Plain(known),
            _ => Self::Malformed,
        }
    }

    /// What a field of the same name with another value is.
    #[must_use]
    pub fn with_value(self, name: &[u8], value: &[u8]) -> Self {
        match self {
            // The name was looked at before.
            Self::Plain(known) if known != Known::Te => {
                if is_plain_value(value) {
                    self
                } else {
                    Self::Malformed
                }
            }
            _ => Self::of(name, value),
        }
    }

    /// Whether it is a pseudo-header field.
    #[must_use]
    pub fn is_pseudo(self) -> bool {
        !matches!(self, Self::Plain(_) | Self::Malformed)
    }

    fn pseudo(name: &[u8], value: &[u8]) -> Option<Self> {
        Some(match name {
            b":method" if value.len() <= MAX_METHOD && Method::from_bytes(value).is_ok() => Self::Method,
            b":scheme" => Self::Scheme(scheme(value)?),
            b":authority" if uri::Authority::try_from(value).is_ok() => Self::Authority,
            b":path" => Self::Path(path(value)?),
            b":protocol" if h1::is_text(value) => Self::Protocol,
            b":status" => Self::Status(status(value)?),
            _ => return None,
        })
    }
}

/// Whether it is a name in HTTP/2: a token without uppercase letters (RFC 9113 §8.2.1), no longer than a line of an index
/// can say.
fn is_name(name: &[u8]) -> bool {
    u16::try_from(name.len()).is_ok() && h1::is_name(name) && !name.iter().any(u8::is_ascii_uppercase)
}

/// Whether it is a value without whitespace around it, nor bytes that end a line (RFC 9113 §8.2.1).
fn is_plain_value(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !blank(value.first()) && !blank(value.last()) && h1::is_text(value)
}

/// A scheme; `None` for what is none, and a fault for one that is not served.
fn scheme(value: &[u8]) -> Option<Result<Scheme, Http1Fault>> {
    match Scheme::read(value) {
        Some(scheme) => Some(Ok(scheme)),
        None => uri::Scheme::try_from(value).ok().map(|_| Err(Http1Fault::TargetForm)),
    }
}

/// A path with its query, or `*`; `None` for what is none (RFC 9113 §8.3.1) or would end a line of HTTP/1, and a fault
/// where HTTP/1 would say so.
fn path(value: &[u8]) -> Option<Result<QueryForm, Http1Fault>> {
    if value == b"*" {
        return Some(Ok(QueryForm::Encoded));
    }
    if !value.starts_with(b"/") || value.contains(&b' ') || value.iter().any(u8::is_ascii_control) {
        return None;
    }
    let checked = target::check(value);
    let length = match checked {
        Ok(QueryForm::Raw) => target::encoded_length(value),
        _ => value.len(),
    };
    Some(if checked.is_ok() && length > LONGEST_PATH { Err(Http1Fault::TargetTooLong) } else { checked })
}

/// A status of three digits (RFC 9110 §15).
fn status(value: &[u8]) -> Option<u16> {
    match value {
        [first @ b'1'..=b'9', rest @ ..] if rest.len() == 2 && rest.iter().all(u8::is_ascii_digit) => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Some(digit(first) * 100 + digit(&rest[0]) * 10 + digit(&rest[1]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderName, HeaderValue};
    use http::uri::PathAndQuery;

    use super::*;

    #[test]
    fn what_a_field_is_and_may_be() {
        let of = |name: &str, value: &str| Kind::of(name.as_bytes(), value.as_bytes());
        for (name, value, kind) in [
            (":method", "GET", Kind::Method),
            (":method", "M-SEARCH", Kind::Method),
            (":method", &"M".repeat(MAX_METHOD + 1), Kind::Malformed),
            (":method", "", Kind::Malformed),
            (":method", "G T", Kind::Malformed),
            (":scheme", "HTTP", Kind::Scheme(Ok(Scheme::Http))),
            (":scheme", "https", Kind::Scheme(Ok(Scheme::Https))),
            (":scheme", "ftp", Kind::Scheme(Err(Http1Fault::TargetForm))),
            (":scheme", "ht tp", Kind::Malformed),
            (":authority", "a.test:1", Kind::Authority),
            (":authority", "", Kind::Malformed),
            (":authority", "a b", Kind::Malformed),
            (":path", "*", Kind::Path(Ok(QueryForm::Encoded))),
            (":path", "/?a|b^c", Kind::Path(Ok(QueryForm::Encoded))),
            (":path", "/?q=\"x\"", Kind::Path(Ok(QueryForm::Raw))),
            (":path", "/?caf\u{e9}", Kind::Path(Ok(QueryForm::Raw))),
            (":path", "/a#b", Kind::Path(Err(Http1Fault::TargetFragment))),
            (":path", "/caf\u{e9}", Kind::Path(Err(Http1Fault::TargetByte))),
            (":path", "/\u{a0}", Kind::Path(Err(Http1Fault::TargetByte))),
            (":path", "/\"x\"", Kind::Path(Err(Http1Fault::TargetByte))),
            (":path", "", Kind::Malformed),
            (":path", "x", Kind::Malformed),
            (":path", "/a b", Kind::Malformed),
            (":path", "/\r\n", Kind::Malformed),
            (":protocol", "websocket", Kind::Protocol),
            (":protocol", "a\n", Kind::Malformed),
            (":status", "200", Kind::Status(200)),
            (":status", "", Kind::Malformed),
            (":status", "099", Kind::Malformed),
            (":status", "2000", Kind::Malformed),
            (":other", "x", Kind::Malformed),
            ("x-a", "1", Kind::Plain(Known::Other)),
            ("cookie", "", Kind::Plain(Known::Cookie)),
            ("te", "trailers", Kind::Plain(Known::Te)),
            ("te", "gzip", Kind::Malformed),
            ("connection", "x", Kind::Malformed),
            ("upgrade", "x", Kind::Malformed),
            ("x-a", " 1", Kind::Malformed),
            ("x-a", "1\t", Kind::Malformed),
            ("x-a", "\x001", Kind::Malformed),
            ("x-a", "1\r\n2", Kind::Malformed),
            ("\"content-length\"", "5", Kind::Malformed),
            ("", "", Kind::Malformed),
            ("x y", "", Kind::Malformed),
            ("X-A", "", Kind::Malformed),
        ] {
            assert_eq!(of(name, value), kind, "{name}: {value}");
            assert_eq!(of(name, "/").with_value(name.as_bytes(), value.as_bytes()), kind, "{name}: {value}");
            assert_eq!(of(name, "\0").with_value(name.as_bytes(), value.as_bytes()), kind, "{name}: {value}");
            assert_eq!(kind.is_pseudo(), name.starts_with(':') && kind != Kind::Malformed);
        }
        let long = |length: usize| [b"/".to_vec(), vec![b'x'; length - 1]].concat();
        assert_eq!(Kind::of(b":path", &long(LONGEST_PATH)), Kind::Path(Ok(QueryForm::Encoded)));
        let fault = Kind::Path(Err(Http1Fault::TargetTooLong));
        assert_eq!(Kind::of(b":path", &long(LONGEST_PATH + 1)), fault);
        let raw = [b"/?".to_vec(), vec![b'"'; LONGEST_PATH / 3 + 1]].concat();
        assert_eq!(Kind::of(b":path", &raw), fault);
        assert_eq!(Kind::of(b":path", &raw[..raw.len() - 1]), Kind::Path(Ok(QueryForm::Raw)));
    }

    /// What passes here the types of `http` take, which servers that speak HTTP/2 are asked with.
    #[test]
    fn what_passes_has_a_type() {
        for byte in 0..=255_u8 {
            for (before, after) in [("/", "/b"), ("/?", "c"), ("/a", "")] {
                let path = [before.as_bytes(), &[byte], after.as_bytes()].concat();
                let passes = matches!(Kind::of(b":path", &path), Kind::Path(Ok(_)));
                let passed_on = target::encode(&path);
                assert!(!passes || PathAndQuery::try_from(&passed_on[..]).is_ok(), "{}", path.escape_ascii());
            }
            let name = [b'x', byte];
            let is_name = matches!(Kind::of(&name, b""), Kind::Plain(_));
            // The type takes names in quotes, too.
            let is_of_type = HeaderName::from_lowercase(&name).is_ok() && byte != b'"';
            assert_eq!(is_name, is_of_type, "{}", name.escape_ascii());
            let value = [b'x', byte, b'y'];
            let is_value = matches!(Kind::of(b"x", &value), Kind::Plain(_));
            assert_eq!(is_value, HeaderValue::from_bytes(&value).is_ok(), "{}", value.escape_ascii());
        }
        assert!(PathAndQuery::try_from(&[b"/".to_vec(), vec![b'x'; LONGEST_PATH - 1]].concat()[..]).is_ok());
    }
}
