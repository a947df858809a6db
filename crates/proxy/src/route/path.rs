//! Which route a request takes: by its host and path, in normal form (see [`offramp_http::path`]).

use super::{Match, RouteRule, RouteTable};

/// Conditions on the path of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMatch {
    /// Hosts in lower case and without a port: exact, or `*.` and a suffix for one more label. Empty: any,
    /// and none.
    pub hosts: Vec<String>,
    /// A prefix of the path in normal form, at a segment boundary: `/a` matches `/a` and `/a/b`, not `/ab`; `/a/` matches
    /// `/a/` and what is below. `/` and nothing match any path, `*` included.
    pub path: String,
    /// Number of its rules of access: 0 without any, and the same for the same rules.
    pub entry: u32,
}

/// Routes of requests, arranged for lookup.
pub struct Paths<T> {
    table: RouteTable<PathEntry<T>>,
    /// Set if some rule restricts the access.
    has_guards: bool,
    /// The length of the longest prefix.
    longest: usize,
}

struct PathEntry<T> {
    prefix: Prefix,
    entry: u32,
    to: T,
}

impl<T> Paths<T> {
    /// Arranges rules, the preferred ones first: of two that both match a request, the first is taken.
    pub fn new(rules: Vec<(PathMatch, T)>) -> Self {
        let rule = |(matches, to): (PathMatch, T)| RouteRule {
            matches: Match { hosts: matches.hosts, alpn: Vec::new() },
            to: PathEntry { prefix: Prefix::new(matches.path), entry: matches.entry, to },
        };
        let has_guards = rules.iter().any(|(matches, _)| matches.entry != 0);
        let longest = rules.iter().map(|(matches, _)| matches.path.len()).max().unwrap_or(0);
        Self { table: RouteTable::new(rules.into_iter().map(rule).collect()), has_guards, longest }
    }

    /// The first rule that matches a request for `path` (without its query) on `host` (in lower case and
    /// without a port).
    pub fn find(&self, host: Option<&str>, path: &str) -> Option<&T> {
        self.table.first(host, |entry| entry.prefix.covers(path)).map(|entry| &entry.to)
    }

    /// Number of the rules of access by the path; `None` if no rule matches it.
    pub fn entry(&self, host: Option<&str>, path: &str) -> Option<u32> {
        self.table.first(host, |entry| entry.prefix.covers(path)).map(|entry| entry.entry)
    }

    /// Bound on the rules that a look-up for `host` walks.
    pub fn count(&self, host: Option<&str>) -> usize {
        self.table.count(host)
    }

    /// Number of bytes of a path that decide, with the one behind them, which rule it matches.
    pub fn reach(&self) -> usize {
        self.longest
    }

    /// Returns true if the path decides about the access to `host`: some rule for it names a path, some restricts
    /// the access, and they are not the same for every path.
    pub fn is_guarded(&self, host: Option<&str>) -> bool {
        if !self.has_guards {
            return false;
        }
        let (mut guards, mut paths, mut takes_all, mut differ) = (false, false, false, false);
        let mut first = None;
        for entry in self.table.reachable(host, |entry| entry.prefix.0.is_empty()) {
            guards |= entry.entry != 0;
            paths |= !entry.prefix.0.is_empty();
            takes_all |= entry.prefix.0.is_empty();
            differ |= *first.get_or_insert(entry.entry) != entry.entry;
        }
        // A path without a route admits no client.
        guards && paths && (differ || !takes_all)
    }

    /// Every destination, in the order of the rules.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.table.iter().map(|entry| &entry.to)
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
        let hosts = hosts.iter().map(ToString::to_string).collect();
        PathMatch { hosts, path: path.to_owned(), entry: 0 }
    }

    #[test]
    fn a_host_is_guarded_where_the_path_decides() {
        let guard = |hosts: &[&str], path| PathMatch { entry: 1, ..matches(hosts, path) };
        for (rules, guarded) in [
            (vec![matches(&["a.test"], "/x"), matches(&["a.test"], "/")], false),
            (vec![guard(&["a.test"], "/")], false),
            (vec![guard(&["a.test"], "/x"), matches(&["a.test"], "/")], true),
            (vec![matches(&["a.test"], "/x"), guard(&["*.test"], "/")], true),
            (vec![matches(&["a.test"], "/y"), guard(&[], "/x"), matches(&[], "/")], true),
            (vec![matches(&["a.test"], "/"), guard(&["b.test"], "/x")], false),
            // The same rules hold for every path.
            (vec![guard(&["a.test"], "/x"), guard(&["a.test"], "/")], false),
            (vec![guard(&["a.test"], "/x")], true),
            // One that takes every path hides what comes behind it.
            (vec![matches(&["a.test"], "/"), guard(&[], "/x")], false),
        ] {
            let table = Paths::new(rules.into_iter().map(|rule| (rule, ())).collect());
            assert_eq!(table.is_guarded(Some("a.test")), guarded);
        }
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
