//! From the path of a request to the path of a file below a root.
//!
//! Escapes are decoded once. What could be read in two ways is refused and not corrected: dot segments, an escaped
//! slash, a backslash, control characters, text that is not UTF-8.

/// Why a path names no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathFault {
    /// An honest client does not write such a path: 400.
    Malformed,
    /// There can be no such file: 404.
    NotFound,
    /// A segment begins with a dot, and such files are not served: 404.
    Hidden,
}

/// Decodes `path`, the path of a request without its query, to a path below a root: without the slash at its front, with
/// the one at its end. Empty stands for the root itself. Segments that begin with a dot are refused unless `hidden`;
/// `.well-known` (RFC 8615) is public by its purpose.
///
/// # Errors
/// Why it names no file.
pub fn decode(path: &str, hidden: bool) -> Result<String, PathFault> {
    let rest = path.strip_prefix('/').ok_or(PathFault::NotFound)?;
    let decoded = unescape(rest)?;
    if decoded.is_empty() {
        return Ok(decoded);
    }
    let whole = decoded.strip_suffix('/').unwrap_or(&decoded);
    let mut concealed = false;
    for segment in whole.split('/') {
        match segment {
            "." | ".." => return Err(PathFault::Malformed),
            // A server that merges slashes would serve one file by many names.
            "" => return Err(PathFault::NotFound),
            ".well-known" => {}
            _ => concealed |= segment.starts_with('.'),
        }
    }
    if concealed && !hidden { Err(PathFault::Hidden) } else { Ok(decoded) }
}

fn unescape(text: &str) -> Result<String, PathFault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let byte = if byte == b'%' {
            let [high, low, after @ ..] = rest else { return Err(PathFault::Malformed) };
            rest = after;
            let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(PathFault::Malformed);
            // Two digits fit.
            match (digit(*high)? * 16 + digit(*low)?) as u8 {
                b'/' => return Err(PathFault::Malformed),
                byte => byte,
            }
        } else {
            byte
        };
        if byte.is_ascii_control() || byte == b'\\' {
            return Err(PathFault::Malformed);
        }
        bytes.push(byte);
    }
    // Overlong forms and surrogates are no UTF-8.
    String::from_utf8(bytes).map_err(|_| PathFault::Malformed)
}

/// Whether `text` matches `pattern`, in which each `*` stands for any text.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        // The first place is as good as any: what follows may begin with anything.
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
            ("/..", Err(Malformed)),
            ("/../etc/passwd", Err(Malformed)),
            ("/a/../b", Err(Malformed)),
            ("/a/./b", Err(Malformed)),
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
            ("//etc/passwd", Err(NotFound)),
            ("//", Err(NotFound)),
            ("/a//b", Err(NotFound)),
            ("*", Err(NotFound)),
            ("", Err(NotFound)),
        ] {
            assert_eq!(decode(path, false), expected.map(str::to_owned), "{path}");
        }
        assert_eq!(decode("/.git/config", true).unwrap(), ".git/config");
        assert_eq!(decode("/.git/..", true), Err(Malformed));
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
        /// Whatever is asked for: what is opened is below the root.
        #[test]
        fn nothing_leads_out(path in "/([a.%2eEfF/\\\\05cC]|%2e|%2f|\\.\\./){0,12}", hidden: bool) {
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
