//! Which route a connection takes: pure.
//!
//! Rules come in the order of their preference, whatever made it so; the table finds the first that
//! matches without walking those that name other hosts.

mod ja4;
mod path;
pub mod redirects;
mod rewrite;
mod template;

use std::collections::HashMap;

pub use ja4::Ja4List;
pub use path::{PathMatch, Paths};
pub use redirects::RedirectMap;
pub use rewrite::PathRules;
pub use template::{BadTemplate, Template, TemplateValues};

/// The conditions on a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Server names in lower case: exact, or `*.` and a suffix for one more label. Empty: any name,
    /// and none.
    pub hosts: Vec<String>,
    /// Protocols of which the client must offer one. Empty: any, and none.
    pub alpn: Vec<Vec<u8>>,
}

/// A destination and what leads there.
#[derive(Clone, Debug)]
pub struct RouteRule<T> {
    /// Conditions that must match.
    pub matches: Match,
    /// Destination of the rule.
    pub to: T,
}

/// Rules arranged for lookup.
pub struct RouteTable<T> {
    rules: Vec<RouteRule<T>>,
    exact: HashMap<String, Vec<usize>>,
    /// By what follows the `*`, the dot included.
    wildcard: HashMap<String, Vec<usize>>,
    any: Vec<usize>,
}

impl<T> RouteTable<T> {
    /// Arranges rules, the preferred ones first.
    pub fn new(rules: Vec<RouteRule<T>>) -> Self {
        let mut table = Self { rules, exact: HashMap::new(), wildcard: HashMap::new(), any: Vec::new() };
        for (at, rule) in table.rules.iter().enumerate() {
            if rule.matches.hosts.is_empty() {
                table.any.push(at);
            }
            for host in &rule.matches.hosts {
                match host.strip_prefix('*') {
                    Some(suffix) => table.wildcard.entry(suffix.to_owned()).or_default().push(at),
                    None => table.exact.entry(host.clone()).or_default().push(at),
                }
            }
        }
        table
    }

    /// The first rule that matches a client that asks for `host` (in lower case) and for which
    /// `offers` says whether it offers a protocol.
    pub fn find(&self, host: Option<&str>, offers: impl Fn(&[u8]) -> bool) -> Option<&T> {
        self.places(host, |at| self.takes(at, &offers))
    }

    /// The first rule for `host` (in lower case) with a destination that `suits`.
    pub(crate) fn first(&self, host: Option<&str>, suits: impl Fn(&T) -> bool) -> Option<&T> {
        self.places(host, |at| suits(&self.rules[at].to))
    }

    /// The destinations of every rule that matches a client that asks for `host` (in lower case), whatever
    /// protocols it offers.
    pub fn for_host(&self, host: Option<&str>) -> impl Iterator<Item = &T> {
        self.groups(host).into_iter().flatten().flatten().map(|&at| &self.rules[at].to)
    }

    /// The destinations that a client that asks for `host` (in lower case) can come to, where one that `takes_all` hides
    /// those behind it.
    pub(crate) fn reachable(
        &self,
        host: Option<&str>,
        takes_all: impl Fn(&T) -> bool,
    ) -> impl Iterator<Item = &T> {
        let first = |places: &Vec<usize>| places.iter().copied().find(|&at| takes_all(&self.rules[at].to));
        let groups = self.groups(host);
        let end = groups.into_iter().flatten().filter_map(first).min().unwrap_or(usize::MAX);
        groups.into_iter().flatten().flatten().filter(move |&&at| at <= end).map(|&at| &self.rules[at].to)
    }

    /// Number of rules for `host`.
    pub(crate) fn count(&self, host: Option<&str>) -> usize {
        self.groups(host).into_iter().flatten().map(Vec::len).sum()
    }

    /// Every destination, in the order of the rules.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.rules.iter().map(|rule| &rule.to)
    }

    fn places(&self, host: Option<&str>, takes: impl Fn(usize) -> bool) -> Option<&T> {
        let mut best = self.rules.len();
        for group in self.groups(host).into_iter().flatten() {
            let better = group.iter().copied().take_while(|&at| at < best).find(|&at| takes(at));
            best = better.unwrap_or(best);
        }
        self.rules.get(best).map(|rule| &rule.to)
    }

    /// The rules that match `host`, each group in its order: by the exact name, by a wildcard, and those for any name.
    fn groups(&self, host: Option<&str>) -> [Option<&Vec<usize>>; 3] {
        let exact = host.and_then(|host| self.exact.get(host));
        let wildcard = host.filter(|_| !self.wildcard.is_empty()).and_then(|host| {
            let dot = host.bytes().position(|byte| byte == b'.').filter(|&dot| dot > 0)?;
            self.wildcard.get(&host[dot..])
        });
        [exact, wildcard, Some(&self.any)]
    }

    fn takes(&self, at: usize, offers: &impl Fn(&[u8]) -> bool) -> bool {
        let alpn = &self.rules[at].matches.alpn;
        alpn.is_empty() || alpn.iter().any(|protocol| offers(protocol))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(hosts: &[&str], alpn: &[&str], to: usize) -> RouteRule<usize> {
        let matches = Match {
            hosts: hosts.iter().map(ToString::to_string).collect(),
            alpn: alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect(),
        };
        RouteRule { matches, to }
    }

    #[test]
    fn exact_wildcard_default_and_alpn() {
        let table = RouteTable::new(vec![
            rule(&["a.test"], &["h2"], 0),
            rule(&["a.test", "b.test"], &[], 1),
            rule(&["*.test"], &[], 2),
            rule(&[], &[], 3),
        ]);
        let find = |host, alpn: &str| table.find(host, |protocol| protocol == alpn.as_bytes()).copied();
        assert_eq!(find(Some("a.test"), "h2"), Some(0));
        assert_eq!(find(Some("a.test"), "http/1.1"), Some(1));
        assert_eq!(find(Some("c.test"), ""), Some(2));
        assert_eq!(find(Some("c.d.test"), ""), Some(3));
        assert_eq!(find(Some("test"), ""), Some(3));
        assert_eq!(find(Some(".test"), ""), Some(3));
        assert_eq!(find(None, ""), Some(3));
        assert_eq!(RouteTable::new(vec![rule(&["a.test"], &[], 0)]).find(None, |_| true), None);
        assert_eq!(table.for_host(Some("a.test")).copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(table.for_host(None).copied().collect::<Vec<_>>(), [3]);
    }

    proptest! {
        #[test]
        fn the_table_finds_what_walking_the_rules_finds(
            rules in proptest::collection::vec((
                proptest::collection::vec(proptest::sample::select(vec!["a.t", "b.t", "*.t", "*.a.t", "x.a.t"]), 0..3),
                proptest::collection::vec(proptest::sample::select(vec!["h2", "x"]), 0..2),
            ), 0..8),
            host in proptest::option::of(proptest::sample::select(vec!["a.t", "b.t", "c.t", "x.a.t", "t"])),
            offered in proptest::sample::select(vec!["", "h2", "x"]),
        ) {
            let rules: Vec<_> =
                rules.iter().enumerate().map(|(to, (hosts, alpn))| rule(hosts, alpn, to)).collect();
            let matches = |rule: &RouteRule<usize>| {
                let by_host = rule.matches.hosts.is_empty() || rule.matches.hosts.iter().any(|pattern| {
                    host.is_some_and(|host| match pattern.strip_prefix("*.") {
                        Some(suffix) => host.split_once('.').is_some_and(|(_, rest)| rest == suffix),
                        None => host == pattern,
                    })
                });
                let by_alpn = rule.matches.alpn.is_empty()
                    || rule.matches.alpn.iter().any(|protocol| protocol == offered.as_bytes());
                by_host && by_alpn
            };
            let walked = rules.iter().find(|rule| matches(rule)).map(|rule| rule.to);
            let table = RouteTable::new(rules);
            prop_assert_eq!(table.find(host, |protocol| protocol == offered.as_bytes()).copied(), walked);
        }
    }
}
