//! Rules in their order, as routes by host and path.
//!
//! HAProxy takes the first rule that holds; Offramp takes the most specific route. So the rules are evaluated for each host
//! and each path that they name, and for all others; routes that say no more than a wider one are left out.

use std::collections::{BTreeMap, BTreeSet};

use super::HaproxyLowering;
use super::binds::BoundListener;
use super::conditions::{AclCondition, AclTerm, AclTest, AclTruth, RequestClass, is_below};
use super::lines::Line;
use super::proxies::ProxySection;
use super::rules::{FieldChange, ProxyRule, RuleAct};
use crate::draft::{DraftKeys, DraftRoute, inline, list};

/// The treatment of a class of requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuledOutcome {
    keys: DraftKeys,
    /// The number of the line that it comes from.
    line: usize,
}

/// The outcome of the rules for a class.
#[derive(Default)]
struct Gathered<'a> {
    fields: Vec<FieldChange>,
    path: DraftKeys,
    allow: Option<Vec<String>>,
    deny: Vec<String>,
    /// Clients that `allow` has let pass.
    exempt: Vec<String>,
    passed: bool,
    end: Option<RuledEnd<'a>>,
}

/// The rule that ends the evaluation.
enum RuledEnd<'a> {
    Closed(&'a Line, u16),
    Answer(&'a Line, DraftKeys),
    Backend(&'a Line, String),
}

/// Classes beyond which a section is too large.
const CLASSES: usize = 200_000;

/// The outcomes of the classes of one host, by path.
type OutcomesByPath = BTreeMap<String, RuledOutcome>;

/// A route without its hosts and listeners: path and outcome.
type RouteOfClass = (String, RuledOutcome);

impl<'a> HaproxyLowering<'a> {
    /// The routes of a section that accepts requests.
    pub(super) fn routes(&mut self, section: &ProxySection<'a>, binds: &[BoundListener]) {
        let (hosts, paths) = self.classes(section);
        let sizes = hosts.len().saturating_mul(paths.len()).saturating_mul(binds.len());
        if sizes > CLASSES {
            let why = format!("{} hosts with {} paths are too many", hosts.len(), paths.len());
            self.refuse(section.head(), why, "divide it into several sections");
            return;
        }
        let mut found: BTreeMap<(Option<String>, RouteOfClass), Vec<String>> = BTreeMap::new();
        for bind in binds {
            let mut tables: BTreeMap<Option<String>, OutcomesByPath> = BTreeMap::new();
            for host in std::iter::once(None).chain(hosts.iter().map(Some)) {
                let outcomes = paths.iter().map(|path| {
                    let class = RequestClass {
                        tls: bind.tls,
                        port: bind.port,
                        host: host.map(String::as_str),
                        path: path.as_str(),
                    };
                    (path.clone(), self.outcome(section, bind, class))
                });
                let outcomes: OutcomesByPath = outcomes.collect();
                tables.insert(host.cloned(), outcomes);
            }
            for (host, outcomes) in needed(&tables) {
                for (path, outcome) in outcomes {
                    let listeners = found.entry((host.clone(), (path, outcome))).or_default();
                    listeners.push(bind.name.clone());
                }
            }
        }
        self.emit(found);
    }

    /// Adds the routes; hosts with the same outcome share one.
    fn emit(&mut self, found: BTreeMap<(Option<String>, RouteOfClass), Vec<String>>) {
        let mut shared: BTreeMap<(bool, RouteOfClass, Vec<String>), Vec<String>> = BTreeMap::new();
        for ((host, class), listeners) in found {
            let hosts = shared.entry((host.is_some(), class, listeners)).or_default();
            hosts.extend(host);
        }
        let mut routes: Vec<_> = shared.into_iter().collect();
        // In the order of the file; those for all hosts last.
        routes.sort_by_key(|((has_host, (path, outcome), _), _)| (!has_host, outcome.line, path.clone()));
        for ((_, (path, outcome), listeners), hosts) in routes {
            let Some(line) = self.lines.get(&outcome.line).copied() else { continue };
            let item = self.item(line, outcome.keys);
            self.draft.add_route(DraftRoute { listeners, hosts, path: Some(path), item });
        }
    }

    /// The hosts and the paths that the rules name.
    fn classes(&mut self, section: &ProxySection<'a>) -> (BTreeSet<String>, BTreeSet<String>) {
        let (mut hosts, mut paths) = (BTreeSet::new(), BTreeSet::from(["/".to_owned()]));
        let mut gather = |condition: &AclCondition| {
            for term in condition.terms() {
                match &term.test {
                    AclTest::Hosts(more) => hosts.extend(more.iter().cloned()),
                    AclTest::Paths(more) => paths.extend(more.iter().cloned()),
                    _ => {}
                }
            }
        };
        for rule in &section.rules {
            gather(&rule.condition);
            if let RuleAct::Backend(name) = &rule.act
                && let Some(backend) = self.backend_section(name)
            {
                backend.rules.iter().for_each(|rule| gather(&rule.condition));
            }
        }
        (hosts, paths)
    }

    /// The outcome for a class of requests.
    fn outcome(
        &mut self,
        section: &ProxySection<'a>,
        bind: &BoundListener,
        class: RequestClass<'_>,
    ) -> RuledOutcome {
        let mut gathered = Gathered::default();
        gathered.run(&section.rules, class);
        if gathered.end.is_none() && section.has_servers {
            gathered.end = Some(RuledEnd::Backend(section.head(), section.name().to_owned()));
        }
        let mut extra = bind.route_keys.clone();
        if let Some(RuledEnd::Backend(line, name)) = &gathered.end {
            let (line, name): (&'a Line, String) = (line, name.clone());
            if let Some(backend) = self.backend_section(&name)
                && name != section.name()
            {
                gathered.end = None;
                gathered.passed = false;
                gathered.run(&backend.rules, class);
            }
            if gathered.end.is_none() || name == section.name() {
                gathered.end = Some(RuledEnd::Backend(line, name.clone()));
                extra.extend(self.compression(section, &name));
            }
        }
        let (keys, line) = match gathered.end.take() {
            Some(RuledEnd::Closed(line, status)) => return closed(line.id, status),
            Some(RuledEnd::Answer(line, keys)) => ([keys, gathered.access()].concat(), line.id),
            Some(RuledEnd::Backend(line, name)) => match self.backend(&name, line) {
                Some(keys) => {
                    let all = [keys, gathered.path.clone(), gathered.headers(), extra, gathered.access()];
                    (all.concat(), line.id)
                }
                None => return closed(line.id, 503),
            },
            None => return closed(section.head().id, 503),
        };
        RuledOutcome { keys, line }
    }
}

/// A response without a body, for requests that get no further.
fn closed(line: usize, status: u16) -> RuledOutcome {
    let keys = vec![("respond".to_owned(), inline(&[("status".to_owned(), status.to_string())]))];
    RuledOutcome { keys, line }
}

/// The outcomes that differ from those of a wider path or host.
fn needed(tables: &BTreeMap<Option<String>, OutcomesByPath>) -> Vec<(Option<String>, OutcomesByPath)> {
    let short: BTreeMap<&Option<String>, OutcomesByPath> =
        tables.iter().map(|(host, outcomes)| (host, without_repeats(outcomes))).collect();
    let mut needed = Vec::new();
    for (host, outcomes) in &short {
        let wide = host.as_ref().and_then(|host| {
            let (_, rest) = host.split_once('.').filter(|_| !host.starts_with("*."))?;
            short.get(&Some(format!("*.{rest}")))
        });
        let wide = wide.or_else(|| short.get(&None)).filter(|_| host.is_some());
        if wide != Some(outcomes) {
            needed.push(((*host).clone(), outcomes.clone()));
        }
    }
    needed
}

/// The outcomes of paths that differ from that of the path around them.
fn without_repeats(outcomes: &OutcomesByPath) -> OutcomesByPath {
    let mut kept = OutcomesByPath::new();
    // The order of the map has a path before those below it.
    for (path, outcome) in outcomes {
        let around =
            kept.iter().filter(|(above, _)| is_below(path, above)).max_by_key(|(above, _)| above.len());
        if around.is_none_or(|(_, wide)| wide.keys != outcome.keys) {
            kept.insert(path.clone(), outcome.clone());
        }
    }
    kept
}

impl<'a> Gathered<'a> {
    fn run(&mut self, rules: &[ProxyRule<'a>], class: RequestClass<'_>) {
        for rule in rules {
            let is_request = rule.line.word(0) == "http-request";
            if self.passed && is_request {
                continue;
            }
            match rule.condition.of(class) {
                AclTruth::No => {}
                AclTruth::Yes => self.apply(rule, class.tls),
                AclTruth::Depends(lists) => self.guard(rule, &lists),
            }
            if self.end.is_some() {
                return;
            }
        }
    }

    fn apply(&mut self, rule: &ProxyRule<'a>, secure: bool) {
        match &rule.act {
            RuleAct::Deny(_) if !self.exempt.is_empty() => {
                self.allow = Some(std::mem::take(&mut self.exempt));
            }
            RuleAct::Deny(status) => self.end = Some(RuledEnd::Closed(rule.line, *status)),
            RuleAct::Password => self.end = Some(RuledEnd::Closed(rule.line, 403)),
            RuleAct::Allow => self.passed = true,
            RuleAct::Field(change) => self.fields.push(change.clone()),
            RuleAct::Path(keys) => self.path.clone_from(keys),
            RuleAct::Backend(name) => self.end = Some(RuledEnd::Backend(rule.line, name.clone())),
            answer => {
                let keys = answer.answer(secure).unwrap_or_default();
                self.end = Some(RuledEnd::Answer(rule.line, keys));
            }
        }
    }

    /// A rule that depends on more than host, path and listener. What may guard and cannot be said closes.
    fn guard(&mut self, rule: &ProxyRule<'a>, lists: &[Vec<AclTerm>]) {
        let refuses = rule.act.refuses();
        for terms in lists {
            let is_limit =
                terms.iter().any(|term| matches!(term.test, AclTest::Unknown { guards: false, .. }));
            match &terms[..] {
                [AclTerm { test: AclTest::Clients(networks), negated: false }]
                    if matches!(rule.act, RuleAct::Allow) =>
                {
                    self.exempt.extend(networks.iter().cloned());
                }
                _ if !refuses || is_limit => {}
                [AclTerm { test: AclTest::Clients(networks), negated: true }] if self.allow.is_none() => {
                    self.allow = Some(networks.clone());
                }
                [AclTerm { test: AclTest::Clients(networks), negated: false }] if self.exempt.is_empty() => {
                    self.deny.extend(networks.iter().cloned());
                }
                _ => self.end = Some(RuledEnd::Closed(rule.line, 403)),
            }
        }
    }

    fn access(&self) -> DraftKeys {
        let mut keys = DraftKeys::new();
        if !self.deny.is_empty() {
            keys.push(("deny".to_owned(), list(&self.deny)));
        }
        keys.extend(self.allow.as_ref().map(|allow| ("allow".to_owned(), list(allow))));
        keys
    }

    /// `request_headers` and `response_headers`.
    fn headers(&self) -> DraftKeys {
        let mut keys = DraftKeys::new();
        for (key, of_request) in [("request_headers", true), ("response_headers", false)] {
            let of = |how: &str| -> Vec<&FieldChange> {
                self.fields.iter().filter(|one| one.of_request == of_request && one.how == how).collect()
            };
            let mut table = DraftKeys::new();
            for how in ["set", "add"] {
                let mut values: Vec<(String, Vec<String>)> = Vec::new();
                for FieldChange { name, value, .. } in of(how) {
                    match values.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
                        Some((_, known)) if how == "add" => known.push(value.clone()),
                        Some((_, known)) => *known = vec![value.clone()],
                        None => values.push((name.clone(), vec![value.clone()])),
                    }
                }
                let written: DraftKeys = values
                    .into_iter()
                    .map(|(name, values)| match &values[..] {
                        [one] => (name, one.clone()),
                        _ => (name, format!("[{}]", values.join(", "))),
                    })
                    .collect();
                if !written.is_empty() {
                    table.push((how.to_owned(), inline(&written)));
                }
            }
            let removed: Vec<&str> = of("remove").into_iter().map(|one| one.name.as_str()).collect();
            if !removed.is_empty() {
                table.push(("remove".to_owned(), list(&removed)));
            }
            if !table.is_empty() {
                keys.push((key.to_owned(), inline(&table)));
            }
        }
        keys
    }
}
