//! Paths that are rewritten by patterns with captures. Pure.
//!
//! A search takes time in proportion to the path, whatever the pattern (`regex` backtracks nowhere), and what a pattern may
//! hold in memory is bounded.

use regex::bytes::{Regex, RegexBuilder};

/// The most bytes that a compiled pattern, and the states that are remembered of its searches, may have.
const SIZE_MAX: usize = 1 << 20;

/// Patterns of paths, and what takes their place.
#[derive(Debug)]
pub struct PathRules(Vec<(Regex, Box<[u8]>)>);

impl PathRules {
    /// Compiles patterns with their replacements, in which `$1` and `${name}` stand for what groups have matched.
    ///
    /// # Errors
    /// A pattern that is none, or is too large.
    pub fn new<'a>(rules: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, regex::Error> {
        let compiled = rules.into_iter().map(|(pattern, to)| Ok((compile(pattern)?, to.as_bytes().into())));
        compiled.collect::<Result<_, _>>().map(Self)
    }

    /// The new path and query of a request; `None` where no pattern matches. The first that does decides. The query stays,
    /// unless the replacement has one.
    #[must_use]
    pub fn apply(&self, path: &str, query: Option<&str>) -> Option<Vec<u8>> {
        // A search for groups allocates, a search does not.
        let (pattern, to) = self.0.iter().find(|(pattern, _)| pattern.is_match(path.as_bytes()))?;
        let captures = pattern.captures(path.as_bytes())?;
        let mut target = Vec::with_capacity(to.len() + path.len());
        captures.expand(to, &mut target);
        if let Some(query) = query.filter(|_| !to.contains(&b'?')) {
            target.push(b'?');
            target.extend_from_slice(query.as_bytes());
        }
        Some(target)
    }
}

/// Paths are ASCII, so that classes are those of ASCII.
fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    let mut builder = RegexBuilder::new(pattern);
    builder.unicode(false).size_limit(SIZE_MAX).dfa_size_limit(SIZE_MAX).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pattern_that_matches_decides() {
        let rules = PathRules::new([
            (r"^/user/(\d+)$", "/u?id=$1"),
            (r"^/(?<year>\d{4})/(?<rest>.*)$", "/archive/${rest}/${year}x"),
            (r"/OLD(?i)/x", "/first"),
            (r"^/old/", "/$$new"),
        ])
        .unwrap();
        let apply = |path, query| Some(String::from_utf8(rules.apply(path, query)?).unwrap());
        assert_eq!(apply("/user/17", None).as_deref(), Some("/u?id=17"));
        assert_eq!(apply("/user/17", Some("q=1")).as_deref(), Some("/u?id=17"));
        assert_eq!(apply("/2024/a/b", Some("q=1")).as_deref(), Some("/archive/a/b/2024x?q=1"));
        assert_eq!(apply("/old/x/y", Some("")).as_deref(), Some("/$new?"));
        for other in ["/", "/user/x", "/user/17/", "*", ""] {
            assert_eq!(apply(other, Some("q")), None, "{other}");
        }
    }

    #[test]
    fn patterns_have_a_bound_and_no_search_goes_back() {
        assert!(PathRules::new([(r"(", "/")]).is_err());
        assert!(PathRules::new([(r"(\w{1000}){1000}", "/")]).is_err());
        // A backtracking search would take longer than anybody lives.
        let rules = PathRules::new([(r"^(/a*)*$", "/b")]).unwrap();
        assert_eq!(rules.apply(&format!("{}!", "/a".repeat(4000)), None), None);
    }
}
