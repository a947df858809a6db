//! What routes share: `[defaults.route]`, and the groups of keys that they name by `policy`.
//!
//! Before anything else is checked, each route takes over what it does not say itself: first from its policies, then from the
//! defaults. A value keeps its place, so that what is wrong with it is shown where it is written. The defaults are for all
//! routes, so that what a route cannot follow is left out; a policy is named by the route, so that it is a mistake, unless
//! the route has nothing that could follow it because it answers by itself.

use super::modes::OF_REQUESTS;
use super::{files, reference, routes};
use crate::error::{Problem, Report, Source, Span};
use crate::model::{Shared, SharedSection};
use crate::raw::{Section, adds_up};

/// What routes share and what each route says itself, before [`spread`].
pub(crate) fn as_written(root: &Section, source: &Source) -> Shared {
    let shared = |policy: Option<&str>, section: &Section| SharedSection {
        policy: policy.map(str::to_owned),
        at: source.place(section.span.start).into(),
        keys: section.written(if policy.is_some() { "policy.*" } else { "defaults.route" }, source),
    };
    let defaults = root.section("defaults").and_then(|section| section.section("route"));
    let defaults = defaults.map(|section| shared(None, section));
    let policies = root.named("policy").iter().map(|(name, section)| shared(Some(&name.value), section));
    let mut sections: Vec<SharedSection> = defaults.into_iter().chain(policies).collect();
    // Their order means nothing.
    sections.sort_by(|one, other| one.policy.cmp(&other.policy));
    if sections.is_empty() {
        return Shared::default();
    }
    let routes = root.sections("route").iter().map(|route| route.written("route", source));
    Shared { sections, routes: routes.collect() }
}

/// Gives every route what it shares with others. From then on no route mentions what it has switched off.
pub(crate) fn spread(root: &mut Section, report: &mut Report<'_>) {
    take(root, report);
    root.sections_mut("route").iter_mut().for_each(Section::forget_off);
}

fn take(root: &mut Section, report: &mut Report<'_>) {
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
        let reach = Reach::of(route, &listeners);
        if let Some(defaults) = &defaults {
            route.take_over("policy", defaults);
        }
        used.extend(policy(route, &policies, reach, report));
        if let Some(defaults) = &defaults {
            take_defaults(route, defaults, (reach, &listeners), report);
        }
    }
    for (name, section) in root.named("policy") {
        if !used.contains(&name.value) {
            let problem = Problem::new(format!("no route names the policy `{}`", name.value));
            report.warn(&section.span, problem.help("name it by `policy` in a [[route]], or remove it"));
        }
    }
}

/// A listener, as far as routes depend on it.
struct Listener {
    name: String,
    http: bool,
    tls: bool,
}

/// The listeners as they are written; the one that is implied where there is none.
fn listeners(root: &Section) -> Vec<Listener> {
    let listener = |section: &Section| Listener {
        name: section.text("name").map_or("default", |text| text.value).to_owned(),
        http: section.text("mode").is_some_and(|text| text.value == "http"),
        tls: section.bool("tls").unwrap_or(true),
    };
    let written: Vec<Listener> = root.sections("listener").iter().map(listener).collect();
    if root.mentions("listener") {
        return written;
    }
    vec![Listener { name: "default".to_owned(), http: false, tls: true }]
}

/// What a route gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Requests alone.
    Requests,
    /// Connections, and perhaps requests too.
    Connections,
    /// Both, as it names no listener and says nothing of requests.
    Both,
}

impl Reach {
    fn of(route: &Section, listeners: &[Listener]) -> Self {
        let (mut http, mut tcp) = (false, false);
        for listener in reached(route, listeners) {
            http |= listener.http;
            tcp |= !listener.http;
        }
        let is_of_requests = OF_REQUESTS.iter().any(|name| route.mentions(name));
        match (http, tcp) {
            (_, true) if route.mentions("listener") => Reach::Connections,
            (true, true) if is_of_requests => Reach::Requests,
            (true, true) if route.mentions("alpn") => Reach::Connections,
            (true, true) => Reach::Both,
            (false, true) => Reach::Connections,
            (_, false) => Reach::Requests,
        }
    }
}

/// The listeners that a route may apply to.
fn reached<'l>(route: &Section, listeners: &'l [Listener]) -> impl Iterator<Item = &'l Listener> {
    let named: Option<Vec<String>> =
        route.list("listener").map(|names| names.iter().map(|name| name.value.clone()).collect());
    listeners.iter().filter(move |one| named.as_ref().is_none_or(|names| names.contains(&one.name)))
}

/// Takes over what the policies of a route say. Gives their names.
fn policy(
    route: &mut Section,
    policies: &[(String, Section)],
    reach: Reach,
    report: &mut Report<'_>,
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
            if own.contains(&key) && !adds_up(key) || answers_without(route, key) {
                continue;
            }
            if let Some(why) = cannot_follow(route, key, reach) {
                let problem = Problem::new(format!("`{key}` of the policy `{name}` {why}"));
                report.whole(&text.span, problem.help("leave the policy out, or divide it"));
                continue;
            }
            let other = taken.iter().find(|(taken, _)| *taken == key && !adds_up(key));
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

/// Takes over what all routes share.
fn take_defaults(
    route: &mut Section,
    defaults: &Section,
    (reach, listeners): (Reach, &[Listener]),
    report: &mut Report<'_>,
) {
    let plain = route.mentions("listener") && reached(route, listeners).any(|listener| !listener.tls);
    let mut ambiguous: Option<(&'static str, Span)> = None;
    for key in defaults.names() {
        if route.mentions(key) && !adds_up(key) || answers_without(route, key) || key == "hsts" && plain {
            continue;
        }
        match cannot_follow(route, key, reach) {
            None => route.take_over(key, defaults),
            Some(_) if reach == Reach::Both && !route.mentions("passthrough") => {
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

/// Whether a key has no effect on a route because the route answers by itself, or answers without files.
fn answers_without(route: &Section, key: &str) -> bool {
    let answer = ["redirect", "respond", "root"].into_iter().find(|name| route.mentions(name));
    answer.is_some_and(|answer| routes::is_for_servers(answer, key))
        || files::is_of_files(key) && !route.mentions("root")
}

/// Why a route cannot do what a key says.
fn cannot_follow(route: &Section, key: &str, reach: Reach) -> Option<&'static str> {
    if route.mentions("passthrough") && routes::is_for_terminated(key) {
        return Some("cannot go with `passthrough`");
    }
    if OF_REQUESTS.contains(&key) && reach != Reach::Requests {
        return Some("applies to HTTP only, but this route relays connections");
    }
    None
}
