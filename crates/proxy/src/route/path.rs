//! Which route a request takes: by its host and path.

use super::{Match, Rule, Table};

/// What a request must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMatch {
    /// Hosts in lower case and without a port: exact, or `*.` and a suffix for one more label. Empty: any,
    /// and none.
    pub hosts: Vec<String>,
    /// A prefix of the path, at a segment boundary: `/a` matches `/a` and `/a/b`, not `/ab`; `/a/` matches
    /// `/a/` and what is below. `/` and nothing match any path, `*` included.
    pub path: String,
}

/// Routes of requests, arranged for lookup.
pub struct Paths<T> {
    table: Table<(Prefix, T)>,
}

impl<T> Paths<T> {
    /// Arranges rules, the preferred ones first: of two that both match a request, the first is taken.
    pub fn new(rules: Vec<(PathMatch, T)>) -> Self {
        let rule = |(matches, to): (PathMatch, T)| Rule {
            matches: Match { hosts: matches.hosts, alpn: Vec::new() },
            to: (Prefix::new(matches.path), to),
        };
        Self { table: Table::new(rules.into_iter().map(rule).collect()) }
    }

    /// The first rule that matches a request for `path` (without its query) on `host` (in lower case and
    /// without a port).
    pub fn find(&self, host: Option<&str>, path: &str) -> Option<&T> {
        self.table.first(host, |(prefix, _)| prefix.covers(path)).map(|(_, to)| to)
    }

    /// Every destination, in the order of the rules.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.table.iter().map(|(_, to)| to)
    }
}

/// A prefix of paths; one that matches all is empty.
struct Prefix(Box<str>);

impl Prefix {
    fn new(path: String) -> Self {
        Self(if path == "/" { Box::default() } else { path.into() })
    }

    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(&*self.0).is_some_and(|rest| {
            rest.is_empty() || self.0.is_empty() || self.0.ends_with('/') || rest.starts_with('/')
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(hosts: &[&str], path: &str) -> PathMatch {
        PathMatch { hosts: hosts.iter().map(ToString::to_string).collect(), path: path.to_owned() }
    }

    #[test]
    fn prefixes_end_at_segments() {
        let covers = |prefix: &str, path: &str| Prefix::new(prefix.to_owned()).covers(path);
        for path in ["/", "/a", "*", ""] {
            assert!(covers("/", path) && covers("", path), "{path}");
        }
        assert!(covers("/a", "/a") && covers("/a", "/a/") && covers("/a", "/a/b"));
        assert!(!covers("/a", "/ab") && !covers("/a", "/") && !covers("/a", "*"));
        assert!(covers("/a/", "/a/") && covers("/a/", "/a/b") && !covers("/a/", "/a"));
    }

    #[test]
    fn the_preferred_rule_wins() {
        let table = Paths::new(vec![
            (matches(&["a.test"], "/x/y"), 0),
            (matches(&["a.test"], "/x"), 1),
            (matches(&["*.test"], "/"), 2),
            (matches(&[], "/x"), 3),
        ]);
        let find = |host, path| table.find(host, path).copied();
        assert_eq!(find(Some("a.test"), "/x/y/z"), Some(0));
        assert_eq!(find(Some("a.test"), "/x/z"), Some(1));
        assert_eq!(find(Some("a.test"), "/z"), Some(2));
        assert_eq!(find(Some("b.other"), "/x"), Some(3));
        assert_eq!(find(None, "/x"), Some(3));
        assert_eq!(find(None, "/"), None);
        assert_eq!(table.iter().count(), 4);
    }
}
