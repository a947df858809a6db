//! What a request asks for: the target of HTTP/1 (RFC 9112 §3.2), and `:path` and `:scheme` of HTTP/2 (RFC 9113
//! §8.3.1). One check for both, so that a target is served by both versions or by none.
//!
//! It is as strict as browsers allow. The URL standard of the WHATWG has them percent-encode, in paths: control
//! bytes, space, `"`, `#`, `<`, `>`, `?`, `` ` ``, `{`, `}`, whatever is not ASCII, and `^` since 2023; and it has them
//! write `/` for `\`. In queries: control bytes, space, `"`, `#`, `<`, `>`, `'`, and whatever is not ASCII. So
//! browsers send `|`, `[`, `]`, `'` and `^` raw in paths, and `|`, `[`, `]`, `{`, `}`, `` ` ``, `^` and `\` in queries,
//! none of which RFC 3986 allows but `'`; those pass. Two more pass than browsers send: `{` and `}` in paths, which
//! command-line clients send, and `'` in queries, which RFC 3986 allows. All other bytes are refused, and fragments
//! too, which no client may send (RFC 9110 §4.2.5).
//!
//! It refuses to decode, to remove dot segments, or to correct anything: what passes goes on as it came.

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

/// Checks a path with its query, if it has one: the origin form.
///
/// # Errors
/// [`Http1Fault::TargetForm`] where it does not begin with a slash, [`Http1Fault::TargetFragment`], or
/// [`Http1Fault::TargetByte`].
#[inline]
pub fn check(text: &[u8]) -> Result<(), Http1Fault> {
    if text.first() != Some(&b'/') {
        return Err(Http1Fault::TargetForm);
    }
    match text.get(scan::target(text, 0)) {
        None => check_path(text),
        Some(b'#') => Err(Http1Fault::TargetFragment),
        Some(_) => Err(Http1Fault::TargetByte),
    }
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
                let fault = if byte == b'#' { Http1Fault::TargetFragment } else { Http1Fault::TargetByte };
                let expected = if passes { Ok(()) } else { Err(fault) };
                assert_eq!(check(&text), expected, "{}", text.escape_ascii());
            }
        }
        for none in [&b""[..], b"?a", b"a", b"*", b"http://a/"] {
            assert_eq!(check(none), Err(Http1Fault::TargetForm));
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
