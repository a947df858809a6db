//! Maps the path of a request to the path of a file below a root.
//!
//! The path is taken in its [normal form](crate::path). Ambiguous paths are rejected: an escaped slash, a
//! backslash, control characters, text that is not UTF-8, a `..` above the root.

use crate::path::{Ambiguity, normalize, unescape};

/// Reason for which a path names no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathFault {
    /// A path that honest clients do not send: 400.
    Malformed,
    /// No file can have such a path: 404.
    NotFound,
    /// A segment begins with a dot, and such files are not served: 404.
    Hidden,
}

/// Decodes `path`, the path of a request without its query, to a path below a root: without the leading
/// slash, with a trailing one. Empty stands for the root itself. Segments that begin with a dot are rejected
/// unless `hidden` is set, except `.well-known` (RFC 8615), which is meant to be public.
///
/// # Errors
/// The reason for which the path names no file.
pub fn decode(path: &str, hidden: bool) -> Result<String, PathFault> {
    let normal = normalize(path);
    match normal.spelling.ambiguity() {
        // A file name may contain a `%` before two digits; it is decoded once.
        None | Some(Ambiguity::DoubleEscape) => {}
        Some(_) => return Err(PathFault::Malformed),
    }
    let rest = normal.text.strip_prefix('/').ok_or(PathFault::NotFound)?;
    let decoded = unescape(rest).ok_or(PathFault::Malformed)?;
    let is_concealed = |segment: &str| segment.starts_with('.') && segment != ".well-known";
    if !hidden && decoded.split('/').any(is_concealed) { Err(PathFault::Hidden) } else { Ok(decoded) }
}

/// Matches `text` against `pattern`, in which each `*` stands for any text.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        // Leftmost match: it leaves the most text for the rest of the pattern.
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths() {
        use PathFault::{Hidden, Malformed, NotFound};
        for (path, expected) in [
            ("/", Ok("")),
            ("/a", Ok("a")),
            ("/a/", Ok("a/")),
            ("/a/b.html", Ok("a/b.html")),
            ("/%2e/a/%2E%2e/b", Ok("b")),
            ("/a/../../b", Err(Malformed)),
            ("/a;b", Ok("a;b")),
            ("/a%3Bb", Ok("a;b")),
            ("/a%20b/%C3%A4", Ok("a b/ä")),
            ("/%61", Ok("a")),
            ("/100%25", Ok("100%")),
            ("/%252e%252e/x", Ok("%2e%2e/x")),
            ("/a..b/...c/", Err(Hidden)),
            ("/a..b", Ok("a..b")),
            ("/.well-known/x", Ok(".well-known/x")),
            ("/.git/config", Err(Hidden)),
            ("/a/.env", Err(Hidden)),
            ("/%2egit/config", Err(Hidden)),
            ("/%2541/%00", Err(Malformed)),
            ("/%2541/..%2f..%2fprivate", Err(Malformed)),
            ("/%2541/../..", Err(Malformed)),
            ("/..", Err(Malformed)),
            ("/../etc/passwd", Err(Malformed)),
            ("/a/../b", Ok("b")),
            ("/a/./b", Ok("a/b")),
            ("/%2e%2e/etc/passwd", Err(Malformed)),
            ("/%2E%2e%2Fetc", Err(Malformed)),
            ("/.%2e/x", Err(Malformed)),
            ("/a%2fb", Err(Malformed)),
            ("/a%5cb", Err(Malformed)),
            ("/a\\b", Err(Malformed)),
            ("/a%00.html", Err(Malformed)),
            ("/a%0d%0ab", Err(Malformed)),
            ("/%c0%ae%c0%ae/x", Err(Malformed)),
            ("/%e0%80%af", Err(Malformed)),
            ("/%ff", Err(Malformed)),
            ("/%", Err(Malformed)),
            ("/%4", Err(Malformed)),
            ("/%zz", Err(Malformed)),
            ("//etc/passwd", Ok("etc/passwd")),
            ("//", Ok("")),
            ("/a//b", Ok("a/b")),
            ("*", Err(NotFound)),
            ("", Err(NotFound)),
        ] {
            assert_eq!(decode(path, false), expected.map(str::to_owned), "{path}");
        }
        assert_eq!(decode("/.git/config", true).unwrap(), ".git/config");
        assert_eq!(decode("/.git/..", true).unwrap(), "");
        assert_eq!(decode("/x/%252e", true).unwrap(), "x/%2e");
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*.css", "/a/b.css", true),
            ("*.css", "/a/b.css.map", false),
            ("/assets/*", "/assets/", true),
            ("/assets/*", "/x/assets/", false),
            ("/a/*.*.js", "/a/app.1f.js", true),
            ("/a/*.*.js", "/a/app.js", false),
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    proptest! {
        /// Whatever the request, the decoded path stays below the root.
        #[test]
        fn paths_stay_below_the_root(path in "/([a.%2eEfF/\\\\05cC]|%2e|%2f|\\.\\./){0,12}", hidden: bool) {
            if let Ok(file) = decode(&path, hidden) {
                prop_assert!(!file.starts_with('/') && !file.contains('\0'), "{file}");
                for segment in file.split('/') {
                    prop_assert!(segment != ".." && segment != ".");
                    prop_assert!(hidden || !segment.starts_with('.') || segment == ".well-known");
                }
            }
        }
    }
}
