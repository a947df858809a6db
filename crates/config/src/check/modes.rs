//! The requirements of routes on their listeners: HTTP for keys about requests, TLS where it is needed, one
//! handshake for all routes of a host.

use std::collections::BTreeMap;

use crate::error::{Problem, ProblemCollector, Span};
use crate::keys::{self, Key};
use crate::model::{
    Config, HostPattern, ListenerConfig, Listeners, Mode, Name, RedirectResponse, RedirectTo, RelayTarget,
    RouteConfig, RouteTarget,
};
use crate::raw::Section;

/// Reports every route that a listener cannot serve. `known` are the listeners of known mode and TLS;
/// `complete` states that these are all listeners, without mistakes.
pub(super) fn between(
    known: &[&ListenerConfig],
    complete: bool,
    routes: &[(RouteConfig, &Section)],
    config: &Config,
    report: &mut ProblemCollector<'_>,
) {
    for (route, section) in routes {
        match &route.listeners {
            Listeners::Named(names) => {
                by_name(route, section, &named(names, known, config), report);
            }
            // A listener that was left out could be the suitable one.
            Listeners::All if complete => everywhere(route, section, config, report),
            Listeners::All => {}
        }
        backend(route, section, config, report);
    }
    for listener in config.listeners.iter().filter(|listener| listener.mode == Mode::Http && listener.tls) {
        handshakes(listener, routes, report);
    }
}

/// Reports listeners that cannot serve routes with other mistakes.
pub(super) fn of_broken(
    known: &[&ListenerConfig],
    routes: &[(RouteConfig, &Section)],
    report: &mut ProblemCollector<'_>,
) {
    for (route, section) in routes {
        if let Listeners::Named(names) = &route.listeners {
            let named = known.iter().copied().filter(|listener| names.contains(&listener.name));
            by_name(route, section, &named.collect::<Vec<_>>(), report);
        }
    }
}

/// The listeners of these names: the configured ones, or the implied one.
fn named<'a>(names: &[Name], known: &[&'a ListenerConfig], config: &'a Config) -> Vec<&'a ListenerConfig> {
    let written = |name: &Name| known.iter().copied().find(|listener| listener.name == *name);
    names.iter().filter_map(|name| written(name).or_else(|| config.listener(name))).collect()
}

/// The first key of a route that only requests of HTTP can match or follow.
pub(super) fn of_requests(section: &Section) -> Option<&'static str> {
    let mut names = keys::in_section("route").filter(|key| key.scope.is_of_requests()).map(Key::name);
    names.find(|name| section.mentions(name))
}

fn to_https(route: &RouteConfig) -> bool {
    matches!(&route.target, RouteTarget::Redirect(RedirectResponse { to: RedirectTo::Https, .. }))
}

/// Checks a route against the listeners that it names.
fn by_name(
    route: &RouteConfig,
    section: &Section,
    named: &[&ListenerConfig],
    report: &mut ProblemCollector<'_>,
) {
    let first = |is: fn(&ListenerConfig) -> bool| named.iter().copied().find(|listener| is(listener));
    if let (Some(key), Some(tcp)) = (of_requests(section), first(|listener| listener.mode == Mode::Tcp)) {
        let problem = Problem::new(format!(
            "`{key}` applies to HTTP only, but the listener `{}` relays connections",
            tcp.name
        ));
        let help = "name only listeners with mode = \"http\", or leave it out";
        report.whole(section.key_span(key), problem.help(help));
    }
    if let (false, Some(http)) = (route.alpn.is_empty(), first(|listener| listener.mode == Mode::Http)) {
        let problem =
            Problem::new(format!("`alpn` cannot choose between requests on the listener `{}`", http.name));
        let help = "leave it out: listeners with mode = \"http\" offer h2 and http/1.1 for all their routes";
        report.whole(section.key_span("alpn"), problem.help(help));
    }
    if let (true, Some(secure)) = (to_https(route), first(|listener| listener.tls)) {
        let problem = Problem::new(format!("clients of the listener `{}` speak TLS already", secure.name));
        let help = "name a listener with tls = false: this redirect would lead to itself";
        report.whole(section.key_span("redirect"), problem.help(help));
    }
    if let (Some(_), Some(plain)) = (&route.http.hsts, first(|listener| !listener.tls)) {
        let problem = Problem::new(format!("`hsts` needs TLS, but the listener `{}` has none", plain.name));
        let help = "leave it out: browsers ignore it in plain text (RFC 6797, section 8.1)";
        report.whole(section.key_span("hsts"), problem.help(help));
    }
}

/// Checks a route that applies to all suitable listeners.
fn everywhere(route: &RouteConfig, section: &Section, config: &Config, report: &mut ProblemCollector<'_>) {
    let any = |is: fn(&ListenerConfig) -> bool| config.listeners.iter().any(is);
    let http = any(|listener| listener.mode == Mode::Http);
    if let (Some(key), false) = (of_requests(section), http) {
        let problem =
            Problem::new(format!("`{key}` applies to HTTP only, but no listener has mode = \"http\""));
        let help = "add mode = \"http\" to a [[listener]], or leave it out";
        report.whole(section.key_span(key), problem.help(help));
    } else if !route.alpn.is_empty() && !any(|listener| listener.mode == Mode::Tcp) {
        let problem =
            Problem::new("`alpn` cannot choose between requests, and all listeners have mode = \"http\"");
        let help = "leave it out: listeners with mode = \"http\" offer h2 and http/1.1 for all their routes";
        report.whole(section.key_span("alpn"), problem.help(help));
    } else if to_https(route) && !any(|listener| listener.mode == Mode::Http && !listener.tls) {
        let problem = Problem::new("no HTTP listener has tls = false, so there is nothing to redirect");
        let help = "add a [[listener]] with mode = \"http\", tls = false and a name, and its address";
        report.whole(section.key_span("redirect"), problem.help(help));
    } else if !config.listeners.iter().any(|listener| config.routes_of(listener).any(|one| one == route)) {
        let problem = Problem::new("this route applies to no listener");
        report.warn(&section.span, problem.help("what it says needs TLS, or HTTP, and no listener has it"));
    }
}

/// Reports a backend for HTTP behind a listener for connections.
fn backend(route: &RouteConfig, section: &Section, config: &Config, report: &mut ProblemCollector<'_>) {
    let RouteTarget::Relay(relay) = &route.target else { return };
    let key = if matches!(relay.to, RelayTarget::Split(_)) { "split" } else { "backend" };
    let of_route = relay.to.backends().into_iter().map(|name| (name, key));
    let mirror = route.http.mirror.iter().map(|mirror| (&mirror.backend, "mirror"));
    for (name, key) in of_route.chain(mirror) {
        backend_of(route, name, section.key_span(key), config, report);
    }
}

/// Checks one backend of a route at the place where the route names it.
fn backend_of(
    route: &RouteConfig,
    name: &Name,
    span: &Span,
    config: &Config,
    report: &mut ProblemCollector<'_>,
) {
    let Some(backend) = config.backend(name) else { return };
    let applies = |listener: &&ListenerConfig| config.routes_of(listener).any(|one| one == route);
    if backend.tls.as_ref().is_some_and(|tls| tls.preamble.is_some()) {
        let mut http = config.listeners.iter().filter(|listener| listener.mode == Mode::Http);
        if let Some(listener) = http.find(applies) {
            let problem = Problem::new(format!(
                "servers of the backend `{name}` are asked for TLS by a `preamble`, but the listener `{}` speaks HTTP",
                listener.name
            ));
            let help = "name the listeners with mode = \"tcp\" in the route, or lead it to another backend";
            report.whole(span, problem.help(help));
        }
    }
    let Some(key) = backend.needs_http() else { return };
    let mut tcp = config.listeners.iter().filter(|listener| listener.mode == Mode::Tcp);
    if let Some(listener) = tcp.find(applies) {
        let problem = Problem::new(format!(
            "`{key}` of the backend `{name}` applies to HTTP only, but the listener `{}` relays connections",
            listener.name
        ));
        let help = "name the listeners with mode = \"http\" in the route, or use another backend for it";
        report.whole(span, problem.help(help));
    }
}

/// Reports routes of one host with different handshakes: the handshake precedes the request.
fn handshakes(
    listener: &ListenerConfig,
    routes: &[(RouteConfig, &Section)],
    report: &mut ProblemCollector<'_>,
) {
    let mut seen: BTreeMap<(bool, Option<&HostPattern>), (&RouteConfig, &Span)> = BTreeMap::new();
    for (route, section) in routes {
        let by_name = match &route.listeners {
            Listeners::All => false,
            Listeners::Named(names) if names.contains(&listener.name) => true,
            Listeners::Named(_) => continue,
        };
        let hosts: Vec<_> =
            if route.hosts.is_empty() { vec![None] } else { route.hosts.iter().map(Some).collect() };
        for host in hosts {
            let Some((first, span)) = seen.get(&(by_name, host)) else {
                seen.insert((by_name, host), (route, &section.span));
                continue;
            };
            let sealed = |route: &RouteConfig| matches!(route.target, RouteTarget::Passthrough(_));
            let line = report.source.place(span.start).line;
            let (message, key) = if sealed(first) != sealed(route) {
                ("all connections for a host pass through, or none", "passthrough")
            } else if first.client_auth != route.client_auth {
                ("routes of one host share the handshake, and differ in `client_auth`", "client_auth")
            } else if first.tls != route.tls {
                ("routes of one host share the handshake, and differ in `tls`", "tls")
            } else if first.deny_ja4 != route.deny_ja4 {
                ("routes of one host share the handshake, and differ in `deny_ja4`", "deny_ja4")
            } else {
                continue;
            };
            let help = format!("the other route is in line {line}: give both the same, or other hosts");
            report.whole(section.key_span(key), Problem::new(message).help(help));
            break;
        }
    }
}
