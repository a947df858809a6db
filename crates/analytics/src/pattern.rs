//! Patterns with `*` for any text, from users and as conditions of databases.

use crate::store::Dialect;

/// The condition that the column `text` matches a pattern, and the text that it binds.
pub(crate) fn condition(dialect: Dialect, pattern: &str) -> (String, String) {
    if !pattern.contains('*') {
        return ("text = $1".to_owned(), pattern.to_owned());
    }
    match dialect {
        // GLOB is case-sensitive, and gives a meaning to `?` and `[` too.
        Dialect::Sqlite => {
            let mut bound = String::with_capacity(pattern.len());
            for character in pattern.chars() {
                match character {
                    '?' | '[' => bound.extend(['[', character, ']']),
                    other => bound.push(other),
                }
            }
            ("text GLOB $1".to_owned(), bound)
        }
        Dialect::Postgres => ("text LIKE $1 ESCAPE '\\'".to_owned(), escape_like(pattern).replace('*', "%")),
    }
}

/// Returns `true` if a text matches a pattern.
pub(crate) fn matches(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Escapes a text for LIKE, so that no character is special.
pub(crate) fn escape_like(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

/// Returns `true` if the value for a referrer is a host name.
pub(crate) fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains(['*', '/', ':'])
}

/// Returns `true` if a referrer matches the value: a pattern or a host name.
pub(crate) fn is_referrer(referrer: &str, asked: &str) -> bool {
    if is_host(asked) { is_of_host(referrer, asked) } else { matches(referrer, asked) }
}

/// Returns `true` if a referrer is a page of a host or of its subdomains.
pub(crate) fn is_of_host(referrer: &str, host: &str) -> bool {
    let after_scheme = referrer.split_once("://").map_or(referrer, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    let name = authority.rsplit_once('@').map_or(authority, |(_, name)| name);
    let name = name.split(':').next().unwrap_or_default();
    let Some(before) = name.len().checked_sub(host.len()) else { return false };
    let (sub, end) = match (name.get(..before), name.get(before..)) {
        (Some(sub), Some(end)) => (sub, end),
        _ => return false,
    };
    end.eq_ignore_ascii_case(host) && (sub.is_empty() || sub.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (text, pattern, expected) in [
            ("/api/v1", "/api*", true),
            ("/api", "/api*", true),
            ("/ap", "/api*", false),
            ("/api", "/api", true),
            ("/api/", "/api", false),
            ("/a/b/c.php", "*.php", true),
            ("/a/b/c.php", "/a*/c*", true),
            ("/a/b/c.php", "/a*b*c*p*p", true),
            ("/a/c", "/a*b*c", false),
            ("aba", "ab*ba", false),
            ("", "*", true),
            ("/a?[x]%_", "/a?[x]%_", true),
        ] {
            assert_eq!(matches(text, pattern), expected, "{text} {pattern}");
        }
    }

    #[test]
    fn referrers_are_known_by_their_host() {
        for (referrer, expected) in [
            ("https://search.test/", true),
            ("https://www.Search.test:8443/a?b", true),
            ("http://me@search.test", true),
            ("search.test", true),
            ("https://research.test/", false),
            ("https://other.test/www.search.test/", false),
            ("https://other.test?search.test", false),
            ("https://search.test.other/", false),
            ("é.test", false),
        ] {
            assert_eq!(is_of_host(referrer, "search.test"), expected, "{referrer}");
        }
        assert!(is_host("search.test") && !is_host("https://search.test/*") && !is_host(""));
    }
}
