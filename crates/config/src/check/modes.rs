//! Whether listeners can do what the routes that lead from them ask for: HTTP where requests are spoken of, TLS
//! where it is needed, one handshake for all routes of a host.

use std::collections::BTreeMap;

use crate::error::{Problem, Report, Span};
use crate::model::{
    Config, HostPattern, Listener, Listeners, Mode, Name, Redirect, RedirectTo, RelayTarget, Route, Target,
};
use crate::raw::Section;

/// The keys that only requests of HTTP can match or follow.
pub(super) const OF_REQUESTS: [&str; 30] = [
    "path",
    "redirect",
    "respond",
    "root",
    "strip_path",
    "replace_path",
    "normalize_path",
    "encoded_slashes",
    "request_headers",
    "upgrade",
    "keep_original_url",
    "satisfy",
    "response_headers",
    "hsts",
    "max_body",
    "rewrite",
    "redirects",
    "maintenance",
    "response_timeout",
    "request_body_timeout",
    "min_body_rate",
    "idle_timeout",
    "error_pages",
    "intercept_errors",
    "compress",
    "basic_auth",
    "split",
    "mirror",
    "jwt",
    "forward_auth",
];

/// Reports every route that a listener cannot serve. `known` are the listeners of which mode and TLS are known;
/// `complete`: these are all, and without mistakes.
pub(super) fn between(
    known: &[&Listener],
    complete: bool,
    routes: &[(Route, &Section)],
    config: &Config,
    report: &mut Report<'_>,
) {
    for (route, section) in routes {
        match &route.listeners {
            Listeners::Named(names) => {
                by_name(route, section, &named(names, known, config), report);
            }
            // A listener that was left out could be the one that is looked for.
            Listeners::All if complete => everywhere(route, section, config, report),
            Listeners::All => {}
        }
        backend(route, section, config, report);
    }
    for listener in config.listeners.iter().filter(|listener| listener.mode == Mode::Http && listener.tls) {
        handshakes(listener, routes, report);
    }
}

/// Reports what listeners cannot serve of routes that have other mistakes.
pub(super) fn of_broken(known: &[&Listener], routes: &[(Route, &Section)], report: &mut Report<'_>) {
    for (route, section) in routes {
        if let Listeners::Named(names) = &route.listeners {
            let named = known.iter().copied().filter(|listener| names.contains(&listener.name));
            by_name(route, section, &named.collect::<Vec<_>>(), report);
        }
    }
}

/// The listeners of these names: as they were written, or as they are implied.
fn named<'a>(names: &[Name], known: &[&'a Listener], config: &'a Config) -> Vec<&'a Listener> {
    let written = |name: &Name| known.iter().copied().find(|listener| listener.name == *name);
    names.iter().filter_map(|name| written(name).or_else(|| config.listener(name))).collect()
}

fn of_requests(section: &Section) -> Option<&'static str> {
    OF_REQUESTS.into_iter().find(|key| section.mentions(key))
}

fn to_https(route: &Route) -> bool {
    matches!(&route.target, Target::Redirect(Redirect { to: RedirectTo::Https, .. }))
}

/// A route and the listeners that it names.
fn by_name(route: &Route, section: &Section, named: &[&Listener], report: &mut Report<'_>) {
    let first = |is: fn(&Listener) -> bool| named.iter().copied().find(|listener| is(listener));
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

/// A route that applies to all listeners that can serve it.
fn everywhere(route: &Route, section: &Section, config: &Config, report: &mut Report<'_>) {
    let any = |is: fn(&Listener) -> bool| config.listeners.iter().any(is);
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

/// A backend that serves HTTP alone, behind a listener of connections.
fn backend(route: &Route, section: &Section, config: &Config, report: &mut Report<'_>) {
    let Target::Relay(relay) = &route.target else { return };
    let key = if matches!(relay.to, RelayTarget::Split(_)) { "split" } else { "backend" };
    let of_route = relay.to.backends().into_iter().map(|name| (name, key));
    let mirror = route.http.mirror.iter().map(|mirror| (&mirror.backend, "mirror"));
    for (name, key) in of_route.chain(mirror) {
        backend_of(route, (name, section.key_span(key)), config, report);
    }
}

/// One of the backends of a route, and where the route names it.
fn backend_of(route: &Route, (name, span): (&Name, &Span), config: &Config, report: &mut Report<'_>) {
    let Some(backend) = config.backend(name) else { return };
    let applies = |listener: &&Listener| config.routes_of(listener).any(|one| one == route);
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

/// Routes of one host that require different handshakes: the handshake comes before the request.
fn handshakes(listener: &Listener, routes: &[(Route, &Section)], report: &mut Report<'_>) {
    let mut seen: BTreeMap<(bool, Option<&HostPattern>), (&Route, &Span)> = BTreeMap::new();
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
            let sealed = |route: &Route| matches!(route.target, Target::Passthrough(_));
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
