//! What a request asks for: the target of HTTP/1 (RFC 9112 §3.2), and `:path` and `:scheme` of HTTP/2 (RFC 9113
//! §8.3.1). One check for both, so that a target is served by both versions or by none.
//!
//! It is as strict as browsers allow. The URL standard of the WHATWG has them percent-encode, in paths: control
//! bytes, space, `"`, `#`, `<`, `>`, `?`, `` ` ``, `{`, `}`, whatever is not ASCII, and `^` since 2023; and it has them
//! write `/` for `\`. In queries: control bytes, space, `"`, `#`, `<`, `>`, `'`, and whatever is not ASCII. So
//! browsers send `|`, `[`, `]`, `'` and `^` raw in paths, and `|`, `[`, `]`, `{`, `}`, `` ` ``, `^` and `\` in queries,
//! none of which RFC 3986 allows but `'`; those pass. Two more pass than browsers send: `{` and `}` in paths, which
//! command-line clients send, and `'` in queries, which RFC 3986 allows. Programs that put queries together by hand
//! leave `"`, `<`, `>` and UTF-8 raw in them ([`QueryForm::Raw`]): those bytes are passed on
//! percent-encoded, which every server decodes to the same. All other bytes are refused, and fragments too, which no
//! client may send (RFC 9110 §4.2.5).
//!
//! It refuses to decode, to remove dot segments, or to correct anything else: what passes goes on as it came.

use crate::h1::Http1Fault;
use crate::h1::scan;

/// A scheme that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain text.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// Reads a scheme, in any case (RFC 3986 §3.1); `None` for others than these.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        match text.len() {
            4 if text.eq_ignore_ascii_case(b"http") => Some(Self::Http),
            5 if text.eq_ignore_ascii_case(b"https") => Some(Self::Https),
            _ => None,
        }
    }

    /// The port where none is written (RFC 9110 §4.2).
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The spelling of the query of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueryForm {
    /// It is passed on as it came, or there is none.
    Encoded,
    /// It has bytes that are passed on as [`encode`] writes them.
    Raw,
}

/// Checks a path with its query, if it has one: the origin form.
///
/// # Errors
/// [`Http1Fault::TargetForm`] where it does not begin with a slash, [`Http1Fault::TargetFragment`], or
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
    match text.get(raw_end(text, 0)) {
        None if std::str::from_utf8(text).is_ok() => check_path(text).map(|()| QueryForm::Raw),
        Some(b'#') => Err(Http1Fault::TargetFragment),
        _ => Err(Http1Fault::TargetByte),
    }
}

/// Set for bytes that may stand raw in a query, and are percent-encoded there.
#[inline]
pub(crate) fn is_raw(byte: u8) -> bool {
    byte >= 0x80 || matches!(byte, b'"' | b'<' | b'>')
}

/// The end of the target at `from` where its query, and nothing before that, may have raw bytes.
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

/// A target that was checked, with the raw bytes of its query percent-encoded.
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

/// The length of what [`encode`] makes of a target.
#[must_use]
pub(crate) fn encoded_length(target: &[u8]) -> usize {
    target.len() + 2 * target.iter().filter(|&&byte| is_raw(byte)).count()
}

/// Checks the path at the front of `text`, which has only bytes that belong in queries: up to a question mark no
/// backslash, which browsers never send and some servers read as a slash, and no grave accent.
#[inline]
pub(crate) fn check_path(text: &[u8]) -> Result<(), Http1Fault> {
    let odd = |byte: &u8| matches!(byte, b'?' | b'\\' | b'`');
    match text.iter().find(|byte| odd(byte)) {
        None | Some(b'?') => Ok(()),
        Some(_) => Err(Http1Fault::TargetByte),
    }
}

/// The parts of an absolute target: scheme, authority, and path with query, which may be empty. `None` for other
/// schemes, and where no authority is announced. Nothing else is judged.
#[must_use]
pub fn split(target: &[u8]) -> Option<(Scheme, &[u8], &[u8])> {
    let colon = target.iter().take("https:".len()).position(|&byte| byte == b':')?;
    let rest = target[colon..].strip_prefix(b"://")?;
    let scheme = Scheme::read(&target[..colon])?;
    let end = rest.iter().position(|&byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..]))
}

/// What a server is asked for where a client asked for `path`, with its query, behind an authority: a path is never
/// empty then (RFC 9112 §3.2.1), and OPTIONS without one is for the whole server (RFC 9112 §3.2.4, RFC 9113
/// §8.3.1). `None`: `path` itself.
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

    /// What the URL standard leaves raw, and what may pass besides.
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

    /// Once one raw byte is let pass, what stands behind it is held to the same.
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
