//! Validation of request targets: that of HTTP/1 (RFC 9112 §3.2), and `:path` and `:scheme` of HTTP/2 (RFC
//! 9113 §8.3.1). Both share one check, so that a target is accepted in both versions or in none.
//!
//! It is as strict as browsers permit. By the URL standard of the WHATWG, browsers percent-encode in paths:
//! control bytes, space, `"`, `#`, `<`, `>`, `?`, `` ` ``, `{`, `}`, everything that is not ASCII, and `^`
//! since 2023; and they write `/` for `\`. In queries: control bytes, space, `"`, `#`, `<`, `>`, `'`, and
//! everything that is not ASCII. So browsers send `|`, `[`, `]`, `'` and `^` raw in paths, and `|`, `[`, `]`,
//! `{`, `}`, `` ` ``, `^` and `\` in queries, none of which RFC 3986 permits but `'`; those are accepted. Two
//! more are accepted: `{` and `}` in paths, which command-line clients send, and `'` in queries, which RFC
//! 3986 permits. Programs that assemble queries by hand leave `"`, `<`, `>` and UTF-8 raw in them
//! ([`QueryForm::Raw`]): those bytes are forwarded percent-encoded, which every server decodes to the same.
//! All other bytes are rejected, and so are fragments, which clients must not send (RFC 9110 §4.2.5).
//!
//! Nothing is decoded or corrected here, and dot segments stay: an accepted target is forwarded as received.

use crate::fault::Http1Fault;
use crate::scan;

/// The longest method, in bytes. The longest registered one has 17.
pub const MAX_METHOD: usize = 32;

/// A scheme that requests may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// The scheme `http`, without TLS.
    Http,
    /// The scheme `https`, over TLS.
    Https,
}

impl Scheme {
    /// Parses a scheme, in any case (RFC 3986 §3.1); `None` for other schemes.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        match text.len() {
            4 if text.eq_ignore_ascii_case(b"http") => Some(Self::Http),
            5 if text.eq_ignore_ascii_case(b"https") => Some(Self::Https),
            _ => None,
        }
    }

    /// Default port of the scheme (RFC 9110 §4.2).
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Spelling of the query of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueryForm {
    /// Forwarded as received, or absent.
    Encoded,
    /// Contains bytes that [`encode`] must escape.
    Raw,
}

/// Validates a path with an optional query: the origin form.
///
/// # Errors
/// [`Http1Fault::TargetForm`] without a leading slash, [`Http1Fault::TargetFragment`], or
/// [`Http1Fault::TargetByte`].
#[inline]
pub fn check(text: &[u8]) -> Result<QueryForm, Http1Fault> {
    if text.first() != Some(&b'/') {
        return Err(Http1Fault::TargetForm);
    }
    match text.get(scan::target(text, 0)) {
        None => check_path(text).map(|()| QueryForm::Encoded),
        Some(b'#') => Err(Http1Fault::TargetFragment),
        Some(_) => check_raw(text),
    }
}

#[cold]
fn check_raw(text: &[u8]) -> Result<QueryForm, Http1Fault> {
    let end = raw_end(text, 0);
    match text.get(end) {
        _ if std::str::from_utf8(&text[..end]).is_err() => Err(Http1Fault::TargetByte),
        None => check_path(text).map(|()| QueryForm::Raw),
        Some(b'#') => Err(Http1Fault::TargetFragment),
        Some(_) => Err(Http1Fault::TargetByte),
    }
}

/// Bytes that are accepted raw in a query, and percent-encoded for the server.
#[inline]
pub(crate) fn is_raw(byte: u8) -> bool {
    byte >= 0x80 || matches!(byte, b'"' | b'<' | b'>')
}

/// End of the target at `from`, which may contain raw bytes in its query only.
#[cold]
pub(crate) fn raw_end(text: &[u8], from: usize) -> usize {
    let mut end = scan::target(text, from);
    if text[from..end].contains(&b'?') {
        while text.get(end).is_some_and(|&byte| is_raw(byte)) {
            end = scan::target(text, end + 1);
        }
    }
    end
}

/// Percent-encodes the raw bytes in the query of a validated target.
#[must_use]
pub fn encode(target: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = Vec::with_capacity(encoded_length(target));
    for &byte in target {
        if is_raw(byte) {
            let digit = |four: u8| DIGITS[usize::from(four)];
            encoded.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        } else {
            encoded.push(byte);
        }
    }
    encoded
}

/// Length of the result of [`encode`].
#[must_use]
pub(crate) fn encoded_length(target: &[u8]) -> usize {
    target.len() + 2 * target.iter().filter(|&&byte| is_raw(byte)).count()
}

/// Validates the path at the front of `text`; all bytes are valid in queries: up to a question mark no
/// backslash, which browsers never send and some servers treat as a slash, and no grave accent.
#[inline]
pub(crate) fn check_path(text: &[u8]) -> Result<(), Http1Fault> {
    let odd = |byte: &u8| matches!(byte, b'?' | b'\\' | b'`');
    match text.iter().find(|byte| odd(byte)) {
        None | Some(b'?') => Ok(()),
        Some(_) => Err(Http1Fault::TargetByte),
    }
}

/// Splits an absolute target into scheme, authority, and path with query, which may be empty. `None` for
/// other schemes, and without `//`. Nothing else is validated.
#[must_use]
pub fn split(target: &[u8]) -> Option<(Scheme, &[u8], &[u8])> {
    let colon = target.iter().take("https:".len()).position(|&byte| byte == b':')?;
    let rest = target[colon..].strip_prefix(b"://")?;
    let scheme = Scheme::read(&target[..colon])?;
    let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..]))
}

/// Origin form of `path`, with its query, that a client sent behind an authority: an empty path becomes `/`
/// (RFC 9112 §3.2.1), or `*` for OPTIONS (RFC 9112 §3.2.4, RFC 9113 §8.3.1). `None`: `path` itself.
#[must_use]
pub fn origin_form(method: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    match path.first() {
        Some(b'/') => None,
        None if method == b"OPTIONS" => Some(b"*".to_vec()),
        _ => Some([b"/", path].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that the URL standard leaves raw, and the additional ones.
    #[test]
    fn bytes_pass_as_browsers_send_them() {
        let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        for byte in 0..=255_u8 {
            let path = unreserved(byte) || b"!$&'()*+,;=:@/%|[]^{}?".contains(&byte);
            let query = unreserved(byte) || b"!$&'()*+,;=:@/?%|[]^{}`\\".contains(&byte);
            for (place, passes) in
                [("/", path), ("/some/longer/path/so/that/vectors/are/used", path), ("/?a=", query)]
            {
                let text = [place.as_bytes(), &[byte], b"b"].concat();
                let raw = place.contains('?') && b"\"<>".contains(&byte);
                let fault = if byte == b'#' { Http1Fault::TargetFragment } else { Http1Fault::TargetByte };
                let expected = match (passes, raw) {
                    (true, _) => Ok(QueryForm::Encoded),
                    (false, true) => Ok(QueryForm::Raw),
                    (false, false) => Err(fault),
                };
                assert_eq!(check(&text), expected, "{}", text.escape_ascii());
                let encoded = encode(&text);
                assert_eq!(encoded.len(), encoded_length(&text));
                if raw {
                    assert_eq!(check(&encoded), Ok(QueryForm::Encoded));
                    assert_eq!(encoded, [place.as_bytes(), format!("%{byte:02X}b").as_bytes()].concat());
                } else {
                    assert_eq!(encoded == text, !is_raw(byte));
                }
            }
        }
        for none in [&b""[..], b"?a", b"a", b"*", b"http://a/"] {
            assert_eq!(check(none), Err(Http1Fault::TargetForm));
        }
    }

    /// A raw byte does not exempt the bytes behind it.
    #[test]
    fn raw_bytes_pass_in_queries_alone() {
        for (text, expected) in [
            ("/q?query=up{job=\"a\"}>1", Ok("/q?query=up{job=%22a%22}%3E1")),
            ("/?caf\u{e9}", Ok("/?caf%C3%A9")),
            ("/?\u{1f600}", Ok("/?%F0%9F%98%80")),
            ("/\"?a", Err(Http1Fault::TargetByte)),
            ("/caf\u{e9}?\"", Err(Http1Fault::TargetByte)),
            ("/a\\b?\"", Err(Http1Fault::TargetByte)),
            ("/?\" b", Err(Http1Fault::TargetByte)),
            ("/?\"\u{7f}", Err(Http1Fault::TargetByte)),
            ("/?\"\r\nx", Err(Http1Fault::TargetByte)),
            ("/?\"#", Err(Http1Fault::TargetFragment)),
        ] {
            let read = check(text.as_bytes()).map(|_| String::from_utf8(encode(text.as_bytes())).unwrap());
            assert_eq!(read, expected.map(str::to_owned), "{text}");
        }
        for text in [&b"/?caf\xe9"[..], b"/?\xff", b"/?\xc3", b"/?\xc0\xaf"] {
            assert_eq!(check(text), Err(Http1Fault::TargetByte), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn schemes_have_ports() {
        assert_eq!(Scheme::read(b"HTTP").map(Scheme::port), Some(80));
        assert_eq!(Scheme::read(b"https").map(Scheme::port), Some(443));
        for other in [&b""[..], b"ftp", b"http:", b"ws", b"wss"] {
            assert_eq!(Scheme::read(other), None);
        }
    }

    #[test]
    fn paths_are_never_empty() {
        let of = |method: &str, path: &str| {
            let form = origin_form(method.as_bytes(), path.as_bytes());
            String::from_utf8(form.unwrap_or(path.into())).unwrap()
        };
        assert_eq!(of("GET", "?y"), "/?y");
        assert_eq!(of("GET", ""), "/");
        assert_eq!(of("GET", "/a?y"), "/a?y");
        assert_eq!(of("OPTIONS", ""), "*");
        assert_eq!(of("OPTIONS", "?y"), "/?y");
    }
}
