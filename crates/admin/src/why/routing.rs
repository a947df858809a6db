//! The way of a URL through the configuration: listener, routes in their order, rules, target.

mod destination;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use offramp_config::model::{
    AuthMode, Config, HostPattern, ListenAddress, ListenerConfig, Listeners, Mode, Name, Passthrough,
    RedirectTo, RelayTarget, RouteConfig, RouteTarget, Satisfy,
};
use offramp_http::path::normalize;
use offramp_wire::client_hello::ClientHello;

use super::{MOST, WhyAnswer, WhyState, place, servers};
use destination::Destination;

/// The request that an answer is about.
pub(crate) struct UrlSubject {
    /// In lower case.
    pub(crate) host: String,
    /// In normal form.
    pub(crate) path: String,
    /// Set if Offramp ends the TLS of its connection.
    pub(crate) is_terminated: bool,
}

/// Explains where a request for `text` goes.
///
/// # Errors
/// It is no URL.
pub(crate) fn url(
    question: &'static str,
    state: WhyState<'_>,
    text: &str,
) -> Result<(WhyAnswer, UrlSubject), String> {
    let to = Destination::read(text)?;
    let fits = |listener: &&ListenerConfig| listener.tls == to.is_tls && listener.preamble.is_none();
    let fitting: Vec<&ListenerConfig> = state.config.listeners.iter().filter(fits).collect();
    let here = fitting.iter().copied().find(|listener| has_port(listener, to.port));
    let Some(listener) = here.or_else(|| fitting.first().copied()) else {
        let answer = nobody_listens(question, state.config, &to);
        return Ok((answer, UrlSubject { host: to.host, path: to.path, is_terminated: false }));
    };
    let mut answer = choose(question, state, listener, &to);
    let address = listener.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let says = if here.is_some() {
        format!("Listener {} accepts on {address}.", listener.name)
    } else {
        format!(
            "No listener has port {}; this answer is right if something forwards it to listener {} on {address}.",
            to.port, listener.name
        )
    };
    answer.evidence.insert(0, (says, place(&listener.at, "[[listener]]")));
    if let Some(reason) = &to.ambiguity {
        let says = format!(
            "The path has {reason}. Where paths decide who may enter, it is refused with 400 unless encoded_slashes says \
             otherwise."
        );
        answer.saw(says, "the URL");
    }
    answer.fact("listener", listener.name.as_str());
    answer.fact("host", to.host.as_str());
    answer.fact("path", to.path.as_str());
    let is_terminated = listener.tls && passed_through(state.config, listener, &to.host).is_none();
    Ok((answer, UrlSubject { host: to.host, path: to.path, is_terminated }))
}

pub(super) fn has_port(listener: &ListenerConfig, port: u16) -> bool {
    listener.addresses.iter().any(|address| matches!(address, ListenAddress::Ip(ip) if ip.port() == port))
}

fn nobody_listens(question: &'static str, config: &Config, to: &Destination) -> WhyAnswer {
    let (scheme, tls) = if to.is_tls { ("https", "with") } else { ("http", "without") };
    let first = format!("No listener takes {scheme}:// requests: there is none {tls} TLS.");
    let mut answer = WhyAnswer::new(question, first);
    for listener in config.listeners.iter().take(MOST) {
        let says = format!("Listener {} has tls = {}.", listener.name, listener.tls);
        answer.saw(says, place(&listener.at, "[[listener]]"));
    }
    answer.advise(format!(
        "Add a [[listener]] with mode = \"http\", tls = {} and address = \"[::]:{}\"",
        to.is_tls, to.port
    ));
    answer
}

/// A route that a request may take on a listener, by one of its hosts.
struct Candidate<'a> {
    host: Option<&'a HostPattern>,
    route: &'a RouteConfig,
    /// Set if the listener redirects its requests to TLS.
    secured: bool,
}

fn choose(
    question: &'static str,
    state: WhyState<'_>,
    listener: &ListenerConfig,
    to: &Destination,
) -> WhyAnswer {
    if let Some((route, passthrough)) = passed_through(state.config, listener, &to.host) {
        let first = format!(
            "The TLS of {} passes unchanged to {} by route {}: Offramp sees no request.",
            to.host,
            passthrough.server,
            route.name()
        );
        let mut answer = WhyAnswer::new(question, first);
        answer.saw("The server name decides before there is a request.", place(&route.at, "[[route]]"));
        return answer;
    }
    let candidates = ranked(state.config, listener);
    let refused = |candidate: &Candidate<'_>| mismatch(candidate, listener, to);
    let found = candidates.iter().position(|candidate| refused(candidate).is_none());
    let looked_at = &candidates[..found.unwrap_or(candidates.len())];
    let mut answer = match found {
        Some(at) => taken(question, state, &candidates[at], to),
        None => unrouted(question, state.config, listener, to),
    };
    for candidate in looked_at.iter().take(MOST) {
        let reason = refused(candidate).unwrap_or_default();
        let says = format!("Route {} does not match: {reason}.", candidate.route.name());
        answer.saw(says, place(&candidate.route.at, "[[route]]"));
    }
    if looked_at.len() > MOST {
        answer.saw(format!("{} more routes do not match.", looked_at.len() - MOST), "configuration");
    }
    answer
}

/// The route by which the TLS of a host passes unchanged on every listener with TLS.
pub(super) fn passes<'a>(config: &'a Config, host: &str) -> Option<(&'a RouteConfig, &'a Passthrough)> {
    let listeners = config.listeners.iter().filter(|listener| listener.tls);
    let found: Option<Vec<_>> = listeners.map(|listener| passed_through(config, listener, host)).collect();
    found?.first().copied()
}

/// The route that takes the connection before there is a request.
fn passed_through<'a>(
    config: &'a Config,
    listener: &'a ListenerConfig,
    host: &str,
) -> Option<(&'a RouteConfig, &'a Passthrough)> {
    let first = by_name(config, listener).into_iter().find(|candidate| host_fits(candidate.host, host))?;
    match &first.route.target {
        RouteTarget::Passthrough(passthrough) if listener.tls => Some((first.route, passthrough)),
        _ => None,
    }
}

/// The route whose handshake a client gets.
pub(super) fn of_hello<'a>(
    config: &'a Config,
    listener: &'a ListenerConfig,
    hello: &ClientHello<'_>,
) -> Option<&'a RouteConfig> {
    let fits = |candidate: &Candidate<'_>| match hello.server_name().host() {
        Some(host) => host_fits(candidate.host, host),
        None => candidate.host.is_none(),
    };
    let speaks = |route: &RouteConfig| {
        listener.mode == Mode::Http
            || route.alpn.is_empty()
            || route.alpn.iter().any(|id| hello.offers_alpn(id.as_bytes()))
    };
    let found = by_name(config, listener).into_iter().find(|one| fits(one) && speaks(one.route));
    found.map(|candidate| candidate.route)
}

/// The routes of a listener in the order in which they take connections: on listeners of HTTP, hosts go before listeners.
fn by_name<'a>(config: &'a Config, listener: &'a ListenerConfig) -> Vec<Candidate<'a>> {
    let mut candidates: Vec<Candidate<'_>> = ranked(config, listener);
    candidates.retain(|candidate| !candidate.secured);
    if listener.mode == Mode::Http {
        let order = |route: &RouteConfig| config.routes.iter().position(|other| std::ptr::eq(other, route));
        candidates
            .sort_by_key(|one| (kind(one.host), one.route.listeners == Listeners::All, order(one.route)));
    }
    candidates
}

/// The routes of a listener in order of precedence; each once per host.
fn ranked<'a>(config: &'a Config, listener: &'a ListenerConfig) -> Vec<Candidate<'a>> {
    let own = config.routes_of(listener).map(|route| (route, false));
    let secured = config.secured_routes_of(listener).map(|route| (route, true));
    let mut all = Vec::new();
    for (route, secured) in own.chain(secured) {
        if route.hosts.is_empty() {
            all.push(Candidate { host: None, route, secured });
        }
        all.extend(route.hosts.iter().map(|host| Candidate { host: Some(host), route, secured }));
    }
    // The sort is stable, as in `control`: equals stay in the order of the file.
    all.sort_by_key(|Candidate { host, route, .. }| {
        let path = Reverse(route.path.as_str().len());
        (route.listeners == Listeners::All, kind(*host), path, route.alpn.is_empty())
    });
    all
}

fn kind(host: Option<&HostPattern>) -> u8 {
    match host {
        Some(HostPattern::Exact(_)) => 0,
        Some(HostPattern::Wildcard(_)) => 1,
        None => 2,
    }
}

pub(super) fn host_fits(pattern: Option<&HostPattern>, host: &str) -> bool {
    match pattern {
        None => true,
        Some(HostPattern::Exact(name)) => name.as_str() == host,
        Some(HostPattern::Wildcard(parent)) => {
            host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent.as_str())
        }
    }
}

/// The reason why a route does not match; `None` if it does.
fn mismatch(candidate: &Candidate<'_>, listener: &ListenerConfig, to: &Destination) -> Option<String> {
    let Candidate { host, route, .. } = candidate;
    if !host_fits(*host, &to.host) {
        let pattern = host.map(ToString::to_string).unwrap_or_default();
        let deep = pattern.strip_prefix('*').is_some_and(|suffix| to.host.ends_with(suffix));
        let more = if deep { ", as `*` stands for one label" } else { "" };
        return Some(format!("its host is {pattern}, not {}{more}", to.host));
    }
    if listener.mode == Mode::Http {
        if matches!(route.target, RouteTarget::Passthrough(_)) && !candidate.secured {
            return Some("it passes connections through, and another route has taken this one".to_owned());
        }
        let prefix = normalize(route.path.as_str()).text;
        let below = to.path.strip_prefix(&*prefix);
        if !route.path.is_root()
            && !below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
        {
            return Some(format!("its path is {prefix}, and {} is not below it", to.path));
        }
        return None;
    }
    let offered = |id: &str| matches!(id, "h2" | "http/1.1");
    let speaks = route.alpn.is_empty() || route.alpn.iter().any(|id| offered(id.as_str()));
    (!speaks).then(|| "clients of HTTP offer none of its alpn".to_owned())
}

fn unrouted(
    question: &'static str,
    config: &Config,
    listener: &ListenerConfig,
    to: &Destination,
) -> WhyAnswer {
    let end =
        if listener.mode == Mode::Http { "Offramp answers 404" } else { "Offramp closes the connection" };
    let first =
        format!("No route of listener {} matches {}{}: {end} (no_route).", listener.name, to.host, to.path);
    let mut answer = WhyAnswer::new(question, first);
    let names: BTreeSet<String> =
        config.routes_of(listener).flat_map(|route| &route.hosts).map(ToString::to_string).collect();
    if names.contains(&to.host) {
        answer
            .advise(format!("Add a [[route]] with host = \"{}\" and without a path, for the rest.", to.host));
        return answer;
    }
    let elsewhere = config.routes.iter().find(|route| {
        !route.applies_to(listener) && route.hosts.iter().any(|host| host_fits(Some(host), &to.host))
    });
    if let Some(route) = elsewhere {
        let says = format!(
            "Route {} has this host, but does not apply to listener {}.",
            route.name(),
            listener.name
        );
        answer.saw(says, place(&route.at, "[[route]]"));
        answer.advise(
            "Take the listener into the route's `listener`, or use a key that the listener's mode has.",
        );
    }
    if let Some(near) = offramp_config::nearest(&to.host, names.iter().map(String::as_str)) {
        answer.advise(format!("The nearest host of a route is {near}: correct the host if it is misspelt."));
    }
    answer.advise(format!("Add a [[route]] with host = \"{}\"", to.host));
    answer
}

fn taken(
    question: &'static str,
    state: WhyState<'_>,
    candidate: &Candidate<'_>,
    to: &Destination,
) -> WhyAnswer {
    let route = candidate.route;
    let name = route.name();
    if candidate.secured {
        let first = format!("{}{} is redirected to https, which route {name} needs.", to.host, to.path);
        let mut answer = WhyAnswer::new(question, first);
        answer.saw("The route needs TLS, which the listener has not.", place(&route.at, "[[route]]"));
        return answer;
    }
    let mut answer =
        WhyAnswer::new(question, format!("{}{} takes route {name}: {}.", to.host, to.path, target(route)));
    answer.saw(format!("Route {name} is the first that matches."), place(&route.at, "[[route]]"));
    for (key, rule) in rules(route) {
        answer.saw(rule, place(&route.at, key));
    }
    health(&mut answer, state, route);
    answer.fact("route", name);
    answer
}

/// Evidence on the state of the servers of the route.
fn health(answer: &mut WhyAnswer, state: WhyState<'_>, route: &RouteConfig) {
    let RouteTarget::Relay(relay) = &route.target else { return };
    let names: Vec<String> = match &relay.to {
        RelayTarget::Server(server) | RelayTarget::TlsServer(server) => vec![server.to_string()],
        other => other.backends().into_iter().map(ToString::to_string).collect(),
    };
    let mut idle = Vec::new();
    for backend in state.backends.iter().filter(|backend| names.contains(&backend.name)) {
        answer.saw(servers::sentence(backend), format!("health of backend {}", backend.name));
        idle.push(servers::working(backend) == 0);
        servers::advise_all(answer, state, backend);
    }
    if !idle.is_empty() && !idle.contains(&false) {
        let way = answer.first.trim_end_matches('.');
        answer.first = format!("{way}, and no server of it takes requests now.");
    }
}

fn target(route: &RouteConfig) -> String {
    match &route.target {
        RouteTarget::Relay(relay) => match &relay.to {
            RelayTarget::Server(server) => format!("it goes to {server}"),
            RelayTarget::TlsServer(server) => format!("it goes to {server} over TLS"),
            other => {
                let names: Vec<&str> = other.backends().into_iter().map(Name::as_str).collect();
                format!("it goes to backend {}", names.join(" or "))
            }
        },
        RouteTarget::Passthrough(passthrough) => {
            format!("its TLS passes unchanged to {}", passthrough.server)
        }
        RouteTarget::Redirect(redirect) => match redirect.to {
            RedirectTo::Https => format!("it is redirected to https with {}", redirect.status),
            RedirectTo::Url(_) => format!("it is redirected with {}", redirect.status),
        },
        RouteTarget::Respond(respond) => format!("Offramp answers {} itself", respond.status),
        RouteTarget::Files(_) => "Offramp answers with files".to_owned(),
    }
}

/// The rules of a route in the order in which they are applied, with their keys.
fn rules(route: &RouteConfig) -> Vec<(&'static str, String)> {
    let mut rules = Vec::new();
    let mut add = |is_set: bool, key: &'static str, says: &str| {
        if is_set {
            rules.push((key, says.to_owned()));
        }
    };
    add(
        !route.deny_ja4.is_empty(),
        "deny_ja4",
        "It refuses clients by their JA4 fingerprint, in the handshake.",
    );
    let asks = route.client_auth.as_ref().map(|auth| auth.mode);
    add(asks == Some(AuthMode::Required), "client_auth", "It requires a client certificate.");
    add(asks == Some(AuthMode::Optional), "client_auth", "A client certificate that is shown must be valid.");
    add(!route.networks.is_empty(), "allow, deny", "It admits some networks only; others get 403.");
    add(
        route.http.maintenance.is_some(),
        "maintenance",
        "Maintenance is on: clients get 503, but those in its allow.",
    );
    add(route.http.plain.max_body.is_some(), "max_body", "Larger bodies of requests get 413.");
    add(route.credentials.basic.is_some(), "basic_auth", "It asks for a name and a password; else 401.");
    add(route.credentials.jwt.is_some(), "jwt", "It asks for a token; else 401.");
    add(route.credentials.forward.is_some(), "forward_auth", "It asks an authentication server.");
    add(route.credentials.satisfy == Satisfy::Any, "satisfy", "One of the rules of access is enough.");
    add(
        route.http.redirects.is_some(),
        "redirects",
        "A file with redirects of single paths is looked at first.",
    );
    rules
}

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod tests;
