//! `acl` and conditions: what of them the host, the path, the listener and the client's network decide.

use std::collections::HashMap;
use std::net::IpAddr;

use super::lines::Line;

/// A test of a request, as far as routes can say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AclTest {
    /// The host is one of these names, or of these `*.` and a name.
    Hosts(Vec<String>),
    /// The path begins with one of these segments.
    Paths(Vec<String>),
    /// The client speaks TLS.
    Tls,
    /// The port on which the client came.
    Ports(Vec<u16>),
    /// The networks of clients.
    Clients(Vec<String>),
    /// The client has shown a name and a password of a list.
    Password,
    Always,
    /// No route can say it; `guards` tells that it may be about access.
    Unknown {
        fetch: String,
        guards: bool,
    },
}

/// A test, as it stands or negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AclTerm {
    pub(super) test: AclTest,
    pub(super) negated: bool,
}

/// A condition: one of several lists of tests that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AclCondition(pub(super) Vec<Vec<AclTerm>>);

/// The requests for which rules are evaluated: those for a host or for all others, below a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestClass<'a> {
    pub(super) tls: bool,
    pub(super) port: Option<u16>,
    pub(super) host: Option<&'a str>,
    pub(super) path: &'a str,
}

/// The value of a condition for a class of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AclTruth {
    Yes,
    No,
    /// It depends on these terms: one of the lists must hold.
    Depends(Vec<Vec<AclTerm>>),
}

/// The named tests of a section.
#[derive(Clone, Debug, Default)]
pub(super) struct Acls {
    by_name: HashMap<String, Vec<AclTest>>,
}

/// The report on an `acl` line that is understood.
pub(super) type AclNote = Option<String>;

impl Acls {
    /// Adds an `acl` line; returns what it does differently.
    pub(super) fn add(&mut self, line: &Line) -> AclNote {
        let (test, note) = test(line.rest(2));
        self.by_name.entry(line.word(1).to_owned()).or_default().push(test);
        note
    }

    /// The condition after `if` or `unless`; no words are always true.
    pub(super) fn condition(&self, words: &[String]) -> AclCondition {
        let (first, terms) = match words.split_first() {
            Some((first, terms)) => (first.as_str(), terms),
            None => return AclCondition(vec![Vec::new()]),
        };
        let mut any: Vec<Vec<AclTerm>> = vec![Vec::new()];
        let mut negated = false;
        let mut rest = terms.iter();
        while let Some(word) = rest.next() {
            let tests = match word.as_str() {
                "or" | "||" => {
                    any.push(Vec::new());
                    continue;
                }
                "!" => {
                    negated = !negated;
                    continue;
                }
                "{" | "!{" => {
                    negated ^= word == "!{";
                    let inner: Vec<String> = rest.by_ref().take_while(|word| *word != "}").cloned().collect();
                    vec![test(&inner).0]
                }
                name => {
                    let bare = name.trim_start_matches('!');
                    negated ^= (name.len() - bare.len()) % 2 == 1;
                    self.named(bare)
                }
            };
            any = with(any, &tests, negated);
            negated = false;
        }
        let condition = AclCondition(any);
        if first == "unless" { condition.negated() } else { condition }
    }

    fn named(&self, name: &str) -> Vec<AclTest> {
        match self.by_name.get(name) {
            Some(tests) => joined(tests),
            None => vec![predefined(name)],
        }
    }
}

/// Adds a test to the last list; one of several tests divides it.
fn with(mut any: Vec<Vec<AclTerm>>, tests: &[AclTest], negated: bool) -> Vec<Vec<AclTerm>> {
    let last = any.pop().unwrap_or_default();
    let term = |test: &AclTest| AclTerm { test: test.clone(), negated };
    if negated {
        any.push(last.into_iter().chain(tests.iter().map(term)).collect());
    } else if any.len() + tests.len() > MOST {
        let test = AclTest::Unknown { fetch: "very many conditions".to_owned(), guards: true };
        any.push(last.into_iter().chain([AclTerm { test, negated }]).collect());
    } else {
        any.extend(tests.iter().map(|test| last.iter().cloned().chain([term(test)]).collect()));
    }
    any
}

/// The lists of a condition.
const MOST: usize = 256;

/// Lines of one name as few tests: those of hosts are one list.
fn joined(tests: &[AclTest]) -> Vec<AclTest> {
    let mut found: Vec<AclTest> = Vec::new();
    for test in tests {
        match (found.last_mut(), test) {
            (Some(AclTest::Hosts(known)), AclTest::Hosts(more))
            | (Some(AclTest::Paths(known)), AclTest::Paths(more))
            | (Some(AclTest::Clients(known)), AclTest::Clients(more)) => known.extend(more.iter().cloned()),
            _ => found.push(test.clone()),
        }
    }
    found
}

impl AclCondition {
    /// De Morgan: each list must have a term that does not hold.
    fn negated(self) -> Self {
        let mut any: Vec<Vec<AclTerm>> = vec![Vec::new()];
        for list in self.0 {
            let mut more = Vec::new();
            for head in &any {
                for AclTerm { test, negated } in &list {
                    let term = AclTerm { test: test.clone(), negated: !negated };
                    more.push(head.iter().cloned().chain([term]).collect());
                }
            }
            any = more;
            any.truncate(MOST);
        }
        AclCondition(any)
    }

    /// The terms.
    pub(super) fn terms(&self) -> impl Iterator<Item = &AclTerm> {
        self.0.iter().flatten()
    }

    /// The first term that no route can say.
    pub(super) fn unknown(&self) -> Option<(&str, bool)> {
        self.terms().find_map(|term| match &term.test {
            AclTest::Unknown { fetch, guards } => Some((fetch.as_str(), *guards)),
            _ => None,
        })
    }

    pub(super) fn of(&self, class: RequestClass<'_>) -> AclTruth {
        let mut depends = Vec::new();
        for list in &self.0 {
            let mut left = Vec::new();
            let mut holds = true;
            for term in list {
                match term.test.of(class) {
                    Some(value) => holds &= value != term.negated,
                    None => left.push(term.clone()),
                }
            }
            match (holds, left.is_empty()) {
                (true, true) => return AclTruth::Yes,
                (true, false) => depends.push(left),
                _ => {}
            }
        }
        if depends.is_empty() { AclTruth::No } else { AclTruth::Depends(depends) }
    }
}

impl AclTest {
    /// The value for a class of requests, if that decides it.
    fn of(&self, class: RequestClass<'_>) -> Option<bool> {
        match self {
            AclTest::Always => Some(true),
            AclTest::Tls => Some(class.tls),
            AclTest::Ports(ports) => class.port.map(|port| ports.contains(&port)),
            AclTest::Hosts(hosts) => {
                Some(class.host.is_some_and(|host| hosts.iter().any(|known| takes(known, host))))
            }
            AclTest::Paths(paths) => Some(paths.iter().any(|path| is_below(class.path, path))),
            AclTest::Clients(_) | AclTest::Password | AclTest::Unknown { .. } => None,
        }
    }
}

/// Says that a host pattern takes a host, or all hosts of a narrower pattern.
fn takes(pattern: &str, host: &str) -> bool {
    pattern == host
        || pattern.strip_prefix('*').is_some_and(|end| host.len() > end.len() && host.ends_with(end))
}

/// Says that a path is another one or below it.
pub(super) fn is_below(path: &str, above: &str) -> bool {
    above == "/" || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn predefined(name: &str) -> AclTest {
    match name {
        "TRUE" | "always_true" => AclTest::Always,
        "LOCALHOST" => AclTest::Clients(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()]),
        name => {
            let guards = !name.starts_with("METH_") && !name.starts_with("HTTP");
            AclTest::Unknown { fetch: name.to_owned(), guards }
        }
    }
}

/// The test of the words after the name of an `acl`, or between braces.
fn test(words: &[String]) -> (AclTest, AclNote) {
    let Some((fetch, rest)) = words.split_first() else { return (AclTest::Always, None) };
    let (mut way, mut values) = ("", Vec::new());
    let mut rest = rest.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        match word {
            "-i" | "-n" | "-u" => {}
            "-m" => way = rest.next().unwrap_or_default(),
            "--" => values.extend(rest.by_ref()),
            "-f" | "-M" => return (unknown(&format!("{fetch} -f")), None),
            value => values.push(value),
        }
    }
    let (name, converters) = fetch.split_once(',').unwrap_or((fetch, ""));
    if !matches!(converters, "" | "lower" | "url_dec" | "field(1,:)" | "host_only") {
        return (unknown(fetch), None);
    }
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        "ssl_fc" | "https" => (AclTest::Tls, None),
        "always_true" => (AclTest::Always, None),
        "dst_port" => {
            let ports: Option<Vec<u16>> =
                values.iter().filter(|value| **value != "eq").map(|value| value.parse().ok()).collect();
            (ports.map_or_else(|| unknown(fetch), AclTest::Ports), None)
        }
        "src" => clients(fetch, &values),
        name if name.starts_with("http_auth(") => (AclTest::Password, None),
        "req_ssl_sni" | "req.ssl_sni" | "ssl_fc_sni" => hosts(fetch, way, &values),
        "ssl_fc_sni_end" | "req_ssl_sni_end" => hosts(fetch, "end", &values),
        _ => match lower.strip_suffix("(host)").or_else(|| lower.strip_suffix("(host,1)")) {
            Some("hdr" | "req.hdr" | "req.fhdr" | "hdr_str") => hosts(fetch, way, &values),
            Some(ending) if ending.starts_with("hdr_") => hosts(fetch, &ending[4..], &values),
            _ => paths(fetch, way, &values),
        },
    }
}

fn unknown(fetch: &str) -> AclTest {
    // Rates, methods and kinds of clients are limits and preferences; who may enter does not hang on them.
    let harmless =
        ["sc_", "sc0_", "sc1_", "sc2_", "src_", "method", "hdr_cnt", "req.hdr_cnt", "url_len", "nbsrv"];
    let lower = fetch.to_ascii_lowercase();
    let is_agent = lower.contains("user-agent") || lower.contains("referer");
    let guards = !is_agent && !harmless.iter().any(|start| lower.starts_with(start));
    AclTest::Unknown { fetch: fetch.chars().filter(|c| !c.is_control()).take(60).collect(), guards }
}

fn clients(fetch: &str, values: &[&str]) -> (AclTest, AclNote) {
    let is_network =
        |value: &&str| value.split('/').next().is_some_and(|address| address.parse::<IpAddr>().is_ok());
    if values.is_empty() || !values.iter().all(is_network) {
        return (unknown(fetch), None);
    }
    (AclTest::Clients(values.iter().map(|value| (*value).to_owned()).collect()), None)
}

fn hosts(fetch: &str, way: &str, values: &[&str]) -> (AclTest, AclNote) {
    let mut hosts = Vec::new();
    let mut note = None;
    for value in values {
        let lower = value.to_ascii_lowercase();
        let bare = lower.split(':').next().unwrap_or_default();
        if bare.is_empty() || bare.contains(['*', '^', '$', '\\', '(', '%']) {
            return (unknown(fetch), None);
        }
        let end = bare.trim_start_matches('.');
        match way {
            "" | "str" => hosts.push(bare.to_owned()),
            "beg" if bare.matches('.').count() > 1 => hosts.push(bare.to_owned()),
            "end" if bare.starts_with('.') => hosts.push(format!("*{bare}")),
            "end" | "dom" => hosts.extend([end.to_owned(), format!("*.{end}")]),
            _ => return (unknown(fetch), None),
        }
        if way == "end" || way == "dom" {
            note = Some("`*` stands for one label; HAProxy takes several".to_owned());
        }
    }
    (AclTest::Hosts(hosts), note)
}

fn paths(fetch: &str, way: &str, values: &[&str]) -> (AclTest, AclNote) {
    let (name, _) = fetch.split_once(',').unwrap_or((fetch, ""));
    let way = match (name, way) {
        ("path_beg" | "url_beg", "") => "beg",
        ("path" | "url" | "capture.req.uri", way) => way,
        _ => return (unknown(fetch), None),
    };
    let mut note = None;
    let mut paths = Vec::new();
    for value in values {
        let short = value.trim_end_matches('/');
        let is_plain = value.starts_with('/') && !value.contains(['?', '#', '%', '*', '\\']);
        let exact = matches!(way, "" | "str");
        match way {
            "" | "str" | "beg" if is_plain => {
                paths.push(if short.is_empty() { "/" } else { short }.to_owned());
            }
            _ => return (unknown(fetch), None),
        }
        if exact && short.is_empty() {
            return (unknown(fetch), None);
        }
        if value.len() > 1 {
            let how = if exact {
                "paths below it are taken too"
            } else if value.ends_with('/') {
                "the path without the slash at the end is taken too"
            } else {
                "whole segments are compared: `/api` takes `/api` and `/api/x`, not `/apix`"
            };
            note = Some(how.to_owned());
        }
    }
    (AclTest::Paths(paths), note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn class<'a>(host: Option<&'a str>, path: &'a str) -> RequestClass<'a> {
        RequestClass { tls: false, port: Some(80), host, path }
    }

    #[test]
    fn conditions_are_decided_by_host_and_path() {
        let acls = Acls::default();
        let api = acls.condition(&words("if { path_beg /api } { hdr(host) -i a.example }"));
        assert_eq!(api.of(class(Some("a.example"), "/api/x")), AclTruth::Yes);
        assert_eq!(api.of(class(Some("a.example"), "/apix")), AclTruth::No);
        assert_eq!(api.of(class(None, "/api")), AclTruth::No);
        let not = acls.condition(&words("unless { path_beg /api } || { ssl_fc }"));
        assert_eq!(not.of(class(None, "/api")), AclTruth::No);
        assert_eq!(not.of(class(None, "/")), AclTruth::Yes);
        let src = acls.condition(&words("if { path_beg /admin } !{ src 10.0.0.0/8 }"));
        assert!(matches!(src.of(class(None, "/admin")), AclTruth::Depends(_)));
        assert_eq!(src.of(class(None, "/")), AclTruth::No);
        assert!(acls.condition(&words("if { path_reg ^/a }")).unknown().is_some());
    }
}
