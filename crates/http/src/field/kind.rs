//! Classification and validation of HTTP/2 fields (RFC 9113 §8.2, §8.3).

use http::Method;
use http::uri;

use super::{Known, is_text};
use crate::fault::Http1Fault;
use crate::target::{self, MAX_METHOD, QueryForm, Scheme};

/// Class of an HTTP/2 field, determined once, when the field arrives as a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldClass {
    /// A regular, valid field, with the number of its name.
    Plain(Known),
    /// `:method`, not validated further
    Method,
    /// `:scheme`; a fault for one that is not supported.
    Scheme(Result<Scheme, Http1Fault>),
    /// `:authority`, not validated further
    Authority,
    /// `:path`, with the spelling of its query; a fault for one that the HTTP/1 guard would reject, too.
    Path(Result<QueryForm, Http1Fault>),
    /// `:protocol` of an extended CONNECT (RFC 8441 §4)
    Protocol,
    /// `:status` of three digits
    Status(u16),
    /// A field that no message may have, or with an invalid value.
    Malformed,
}

const _: () = assert!(size_of::<FieldClass>() <= 4);

/// Longest path that the types of the `http` crate accept, which are used for HTTP/2 servers.
const LONGEST_PATH: usize = u16::MAX as usize - 1;

impl FieldClass {
    /// Classifies a field by name and value.
    #[must_use]
    pub fn of(name: &[u8], value: &[u8]) -> Self {
        if let Some(b':') = name.first() {
            return Self::pseudo(name, value).unwrap_or(Self::Malformed);
        }
        if !is_name(name) {
            return Self::Malformed;
        }
        match Known::of(name) {
            // Connection-specific fields, which HTTP/2 forbids (RFC 9113 §8.2.2).
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

    /// Classifies a field of the same name with another value.
    #[must_use]
    pub fn with_value(self, name: &[u8], value: &[u8]) -> Self {
        match self {
            // The name was validated before.
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

    /// Returns true for pseudo-header fields.
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
            b":protocol" if is_text(value) => Self::Protocol,
            b":status" => Self::Status(status(value)?),
            _ => return None,
        })
    }
}

/// Valid HTTP/2 field names: tokens without uppercase letters (RFC 9113 §8.2.1), at most as long as an index
/// line can hold.
fn is_name(name: &[u8]) -> bool {
    u16::try_from(name.len()).is_ok() && super::is_name(name) && !name.iter().any(u8::is_ascii_uppercase)
}

/// Valid HTTP/2 field values: no surrounding whitespace, and no bytes that end a line (RFC 9113 §8.2.1).
fn is_plain_value(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !blank(value.first()) && !blank(value.last()) && is_text(value)
}

/// Parses a scheme; `None` if it is malformed, and a fault if it is not supported.
fn scheme(value: &[u8]) -> Option<Result<Scheme, Http1Fault>> {
    match Scheme::read(value) {
        Some(scheme) => Some(Ok(scheme)),
        None => uri::Scheme::try_from(value).ok().map(|_| Err(Http1Fault::TargetForm)),
    }
}

/// Validates a path with its query, or `*`; `None` if it is malformed (RFC 9113 §8.3.1) or would end a line
/// of HTTP/1, and a fault if the HTTP/1 guard would reject it.
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

/// Parses a status of three digits (RFC 9110 §15).
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
    fn fields_are_classified() {
        let of = |name: &str, value: &str| FieldClass::of(name.as_bytes(), value.as_bytes());
        for (name, value, kind) in [
            (":method", "GET", FieldClass::Method),
            (":method", "M-SEARCH", FieldClass::Method),
            (":method", &"M".repeat(MAX_METHOD + 1), FieldClass::Malformed),
            (":method", "", FieldClass::Malformed),
            (":method", "G T", FieldClass::Malformed),
            (":scheme", "HTTP", FieldClass::Scheme(Ok(Scheme::Http))),
            (":scheme", "https", FieldClass::Scheme(Ok(Scheme::Https))),
            (":scheme", "ftp", FieldClass::Scheme(Err(Http1Fault::TargetForm))),
            (":scheme", "ht tp", FieldClass::Malformed),
            (":authority", "a.test:1", FieldClass::Authority),
            (":authority", "", FieldClass::Malformed),
            (":authority", "a b", FieldClass::Malformed),
            (":path", "*", FieldClass::Path(Ok(QueryForm::Encoded))),
            (":path", "/?a|b^c", FieldClass::Path(Ok(QueryForm::Encoded))),
            (":path", "/?q=\"x\"", FieldClass::Path(Ok(QueryForm::Raw))),
            (":path", "/?caf\u{e9}", FieldClass::Path(Ok(QueryForm::Raw))),
            (":path", "/a#b", FieldClass::Path(Err(Http1Fault::TargetFragment))),
            (":path", "/caf\u{e9}", FieldClass::Path(Err(Http1Fault::TargetByte))),
            (":path", "/\u{a0}", FieldClass::Path(Err(Http1Fault::TargetByte))),
            (":path", "/\"x\"", FieldClass::Path(Err(Http1Fault::TargetByte))),
            (":path", "", FieldClass::Malformed),
            (":path", "x", FieldClass::Malformed),
            (":path", "/a b", FieldClass::Malformed),
            (":path", "/\r\n", FieldClass::Malformed),
            (":protocol", "websocket", FieldClass::Protocol),
            (":protocol", "a\n", FieldClass::Malformed),
            (":status", "200", FieldClass::Status(200)),
            (":status", "", FieldClass::Malformed),
            (":status", "099", FieldClass::Malformed),
            (":status", "2000", FieldClass::Malformed),
            (":other", "x", FieldClass::Malformed),
            ("x-a", "1", FieldClass::Plain(Known::Other)),
            ("cookie", "", FieldClass::Plain(Known::Cookie)),
            ("te", "trailers", FieldClass::Plain(Known::Te)),
            ("te", "gzip", FieldClass::Malformed),
            ("connection", "x", FieldClass::Malformed),
            ("upgrade", "x", FieldClass::Malformed),
            ("x-a", " 1", FieldClass::Malformed),
            ("x-a", "1\t", FieldClass::Malformed),
            ("x-a", "\x001", FieldClass::Malformed),
            ("x-a", "1\r\n2", FieldClass::Malformed),
            ("\"content-length\"", "5", FieldClass::Malformed),
            ("", "", FieldClass::Malformed),
            ("x y", "", FieldClass::Malformed),
            ("X-A", "", FieldClass::Malformed),
        ] {
            assert_eq!(of(name, value), kind, "{name}: {value}");
            assert_eq!(of(name, "/").with_value(name.as_bytes(), value.as_bytes()), kind, "{name}: {value}");
            assert_eq!(of(name, "\0").with_value(name.as_bytes(), value.as_bytes()), kind, "{name}: {value}");
            assert_eq!(kind.is_pseudo(), name.starts_with(':') && kind != FieldClass::Malformed);
        }
        let long = |length: usize| [b"/".to_vec(), vec![b'x'; length - 1]].concat();
        assert_eq!(FieldClass::of(b":path", &long(LONGEST_PATH)), FieldClass::Path(Ok(QueryForm::Encoded)));
        let fault = FieldClass::Path(Err(Http1Fault::TargetTooLong));
        assert_eq!(FieldClass::of(b":path", &long(LONGEST_PATH + 1)), fault);
        let raw = [b"/?".to_vec(), vec![b'"'; LONGEST_PATH / 3 + 1]].concat();
        assert_eq!(FieldClass::of(b":path", &raw), fault);
        assert_eq!(FieldClass::of(b":path", &raw[..raw.len() - 1]), FieldClass::Path(Ok(QueryForm::Raw)));
    }

    /// Every valid field is accepted by the types of the `http` crate, which are used for HTTP/2 servers.
    #[test]
    fn valid_fields_are_accepted_by_the_http_crate() {
        for byte in 0..=255_u8 {
            for (before, after) in [("/", "/b"), ("/?", "c"), ("/a", "")] {
                let path = [before.as_bytes(), &[byte], after.as_bytes()].concat();
                let passes = matches!(FieldClass::of(b":path", &path), FieldClass::Path(Ok(_)));
                let passed_on = target::encode(&path);
                assert!(!passes || PathAndQuery::try_from(&passed_on[..]).is_ok(), "{}", path.escape_ascii());
            }
            let name = [b'x', byte];
            let is_name = matches!(FieldClass::of(&name, b""), FieldClass::Plain(_));
            // The type also accepts quotes in names.
            let is_of_type = HeaderName::from_lowercase(&name).is_ok() && byte != b'"';
            assert_eq!(is_name, is_of_type, "{}", name.escape_ascii());
            let value = [b'x', byte, b'y'];
            let is_value = matches!(FieldClass::of(b"x", &value), FieldClass::Plain(_));
            assert_eq!(is_value, HeaderValue::from_bytes(&value).is_ok(), "{}", value.escape_ascii());
        }
        assert!(PathAndQuery::try_from(&[b"/".to_vec(), vec![b'x'; LONGEST_PATH - 1]].concat()[..]).is_ok());
    }
}
