//! Shared settings of routes: `[defaults.route]`, and the groups of keys that routes name by `policy`.
//!
//! Before any other check, each route inherits the keys that it lacks: first from its policies, then from the
//! defaults. A value keeps its place, so that a mistake is shown where it is written. Defaults are for all
//! routes, so keys that do not apply to a route are skipped; a policy is named by the route, so such keys are
//! mistakes, unless the route answers itself.

use super::modes::of_requests;
use super::reference;
use crate::error::{Problem, ProblemCollector, SourceText, Span};
use crate::keys::{self, TargetKind, scope_in_route};
use crate::model::{Shared, SharedSection};
use crate::raw::Section;

/// The shared settings and each route's own, before [`spread`].
pub(crate) fn as_written(root: &Section, source: &SourceText) -> Shared {
    let shared = |policy: Option<&str>, section: &Section| SharedSection {
        policy: policy.map(str::to_owned),
        at: source.place(section.span.start).into(),
        keys: section.written(if policy.is_some() { "policy.*" } else { "defaults.route" }, source),
    };
    let defaults = root.section("defaults").and_then(|section| section.section("route"));
    let defaults = defaults.map(|section| shared(None, section));
    let policies = root.named("policy").iter().map(|(name, section)| shared(Some(&name.value), section));
    let mut sections: Vec<SharedSection> = defaults.into_iter().chain(policies).collect();
    // Their order has no meaning.
    sections.sort_by(|one, other| one.policy.cmp(&other.policy));
    if sections.is_empty() {
        return Shared::default();
    }
    let routes = root.sections("route").iter().map(|route| route.written("route", source));
    Shared { sections, routes: routes.collect() }
}

/// Distributes shared settings to routes. Afterwards no route mentions keys that it has switched off.
pub(crate) fn spread(root: &mut Section, report: &mut ProblemCollector<'_>) {
    take(root, report);
    root.sections_mut("route").iter_mut().for_each(Section::forget_off);
}

fn take(root: &mut Section, report: &mut ProblemCollector<'_>) {
    let defaults = root.section("defaults").and_then(|section| section.section("route")).cloned();
    let policies: Vec<(String, Section)> =
        root.named("policy").iter().map(|(name, section)| (name.value.clone(), section.clone())).collect();
    if defaults.is_none()
        && policies.is_empty()
        && !root.sections("route").iter().any(|one| one.mentions("policy"))
    {
        return;
    }
    let listeners = listeners(root);
    let mut used = Vec::new();
    for route in root.sections_mut("route") {
        let reach = RouteTraffic::of(route, &listeners);
        if let Some(defaults) = &defaults {
            route.take_over("policy", defaults);
        }
        used.extend(policy(route, &policies, reach, report));
        if let Some(defaults) = &defaults {
            take_defaults(route, defaults, reach, &listeners, report);
        }
    }
    for (name, section) in root.named("policy") {
        if !used.contains(&name.value) {
            let problem = Problem::new(format!("no route names the policy `{}`", name.value));
            report.warn(&section.span, problem.help("name it by `policy` in a [[route]], or remove it"));
        }
    }
}

/// The properties of a listener that routes depend on.
struct ListenerTraits {
    name: String,
    http: bool,
    tls: bool,
}

/// The listeners as written, or the implied one.
fn listeners(root: &Section) -> Vec<ListenerTraits> {
    let listener = |section: &Section| ListenerTraits {
        name: section.text("name").map_or("default", |text| text.value).to_owned(),
        http: section.text("mode").is_some_and(|text| text.value == "http"),
        tls: section.bool("tls").unwrap_or(true),
    };
    let written: Vec<ListenerTraits> = root.sections("listener").iter().map(listener).collect();
    if root.mentions("listener") {
        return written;
    }
    vec![ListenerTraits { name: "default".to_owned(), http: false, tls: true }]
}

/// The traffic that a route receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteTraffic {
    Requests,
    /// Connections, and perhaps requests too.
    Connections,
    /// Both, as it names no listener and no key about requests.
    Both,
}

impl RouteTraffic {
    fn of(route: &Section, listeners: &[ListenerTraits]) -> Self {
        let (mut http, mut tcp) = (false, false);
        for listener in reached(route, listeners) {
            http |= listener.http;
            tcp |= !listener.http;
        }
        let is_of_requests = of_requests(route).is_some();
        match (http, tcp) {
            (_, true) if route.mentions("listener") => RouteTraffic::Connections,
            (true, true) if is_of_requests => RouteTraffic::Requests,
            (true, true) if route.mentions("alpn") => RouteTraffic::Connections,
            (true, true) => RouteTraffic::Both,
            (false, true) => RouteTraffic::Connections,
            (_, false) => RouteTraffic::Requests,
        }
    }
}

/// The listeners that a route may apply to.
fn reached<'l>(route: &Section, listeners: &'l [ListenerTraits]) -> impl Iterator<Item = &'l ListenerTraits> {
    let named: Option<Vec<String>> =
        route.list("listener").map(|names| names.iter().map(|name| name.value.clone()).collect());
    listeners.iter().filter(move |one| named.as_ref().is_none_or(|names| names.contains(&one.name)))
}

/// Inherits the keys of a route's policies; returns their names.
fn policy(
    route: &mut Section,
    policies: &[(String, Section)],
    reach: RouteTraffic,
    report: &mut ProblemCollector<'_>,
) -> Vec<String> {
    let own: Vec<&'static str> = route.names().collect();
    let known: Vec<String> = policies.iter().map(|(name, _)| name.clone()).collect();
    let mut taken: Vec<(&'static str, String)> = Vec::new();
    let mut used = Vec::new();
    for text in route.list("policy").unwrap_or_default().to_vec() {
        if let Err(problem) = reference(&text.value, "policy", &known) {
            report.whole(&text.span, problem);
            continue;
        }
        if used.contains(&text.value) {
            let problem = Problem::new("`policy` contains this twice");
            report.local(&text.span, problem.help("keep one of the two"));
            continue;
        }
        used.push(text.value.clone());
        let Some((name, section)) = policies.iter().find(|(name, _)| *name == text.value) else { continue };
        for key in section.names() {
            if own.contains(&key) && !scope_in_route(key).is_added_up() || answers_without(route, key) {
                continue;
            }
            if let Some(why) = cannot_follow(route, key, reach) {
                let problem = Problem::new(format!("`{key}` of the policy `{name}` {why}"));
                report.whole(&text.span, problem.help("leave the policy out, or divide it"));
                continue;
            }
            let other = taken.iter().find(|(taken, _)| *taken == key && !scope_in_route(key).is_added_up());
            if let Some((_, other)) = other {
                let problem = Problem::new(format!("the policies `{other}` and `{name}` both have `{key}`"));
                report.whole(&text.span, problem.help("keep one of the two, or write the key in the route"));
                continue;
            }
            route.take_over(key, section);
            taken.push((key, name.clone()));
        }
    }
    used
}

/// Inherits the defaults of all routes.
fn take_defaults(
    route: &mut Section,
    defaults: &Section,
    reach: RouteTraffic,
    listeners: &[ListenerTraits],
    report: &mut ProblemCollector<'_>,
) {
    let plain = route.mentions("listener") && reached(route, listeners).any(|listener| !listener.tls);
    let mut ambiguous: Option<(&'static str, Span)> = None;
    for key in defaults.names() {
        let is_said = route.mentions(key) && !scope_in_route(key).is_added_up();
        if is_said || answers_without(route, key) || key == "hsts" && plain {
            continue;
        }
        match cannot_follow(route, key, reach) {
            None => route.take_over(key, defaults),
            Some(_) if reach == RouteTraffic::Both && !route.mentions("passthrough") => {
                ambiguous = Some((key, route.span.clone()));
            }
            Some(_) => {}
        }
    }
    if let Some((key, span)) = ambiguous {
        let problem = Problem::new(format!(
            "`{key}` of [defaults.route] applies to HTTP only, but this route relays connections too"
        ));
        let help = "name its listeners: those with mode = \"http\", or those with mode = \"tcp\"";
        report.whole(&span, problem.help(help));
    }
}

/// Returns `true` for keys without effect on a route that answers itself, or answers without files.
fn answers_without(route: &Section, key: &str) -> bool {
    let scope = scope_in_route(key);
    match keys::targets().find(|(name, kind)| kind.answers() && route.mentions(name)) {
        Some((_, answer)) => !scope.goes_with(answer),
        None => scope.is_of_files(),
    }
}

/// The reason for which a key does not apply to a route.
fn cannot_follow(route: &Section, key: &str, reach: RouteTraffic) -> Option<&'static str> {
    let scope = scope_in_route(key);
    if route.mentions("passthrough") && !scope.goes_with(TargetKind::Passthrough) {
        return Some("cannot go with `passthrough`");
    }
    if scope.is_of_requests() && reach != RouteTraffic::Requests {
        return Some("applies to HTTP only, but this route relays connections");
    }
    None
}
