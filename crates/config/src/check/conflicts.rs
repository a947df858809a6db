//! Conflicts between items: duplicate names and addresses, routes that hide routes, routes on unsuitable
//! listeners, and unused items.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Problem, ProblemCollector, Span, shown};
use crate::keys::{self, Key};
use crate::model::{
    Config, ListenAddress, ListenerConfig, Listeners, Mode, Name, Protocol, RouteConfig, RouteTarget,
};
use crate::raw::Section;

/// Reports every conflict between items that are valid by themselves.
pub(super) fn between(
    root: &Section,
    listeners: &[(ListenerConfig, &Section)],
    routes: &[(RouteConfig, &Section)],
    config: &Config,
    report: &mut ProblemCollector<'_>,
) {
    names(root, report);
    addresses(root, listeners, config, report);
    duplicate_routes(routes, report);
    plain_listeners(routes, config, report);
    clear_text(routes, config, report);
    upgrades(routes, config, report);
    unused(root, listeners, config, report);
}

/// Records a first occurrence, to be named where the second is found.
fn remember<K: Ord>(seen: &mut BTreeMap<K, Span>, key: K, span: &Span) -> Option<Span> {
    match seen.entry(key) {
        std::collections::btree_map::Entry::Occupied(first) => Some(first.get().clone()),
        std::collections::btree_map::Entry::Vacant(place) => {
            place.insert(span.clone());
            None
        }
    }
}

fn line(report: &ProblemCollector<'_>, span: &Span) -> usize {
    report.source.place(span.start).line
}

fn names(root: &Section, report: &mut ProblemCollector<'_>) {
    let mut seen = BTreeMap::new();
    for section in root.sections("listener") {
        let name = section.text("name").map_or_else(|| "default".to_owned(), |text| text.value.to_owned());
        let span = section.key_span("name");
        if let Some(first) = remember(&mut seen, name.clone(), span) {
            let problem = Problem::new(format!("two listeners are named `{}`", shown(&name)));
            let help =
                format!("the other one is in line {}: give each a name of its own", line(report, &first));
            report.whole(span, problem.help(help));
        }
    }
}

fn addresses(
    root: &Section,
    listeners: &[(ListenerConfig, &Section)],
    config: &Config,
    report: &mut ProblemCollector<'_>,
) {
    // Port 0 is a different port each time.
    let fixed = |address: &ListenAddress| !matches!(address, ListenAddress::Ip(ip) if ip.port() == 0);
    let mut seen = BTreeMap::new();
    for (listener, section) in listeners {
        for address in listener.addresses.iter().filter(|address| fixed(address)) {
            let span = section.key_span("address");
            if let Some(first) = remember(&mut seen, address.clone(), span) {
                let problem = Problem::new(format!("two listeners have the address `{address}`"));
                let help = format!("the other one is in line {}", line(report, &first));
                report.whole(span, problem.help(help));
            }
        }
    }
    for (name, endpoint) in
        [("metrics", &config.telemetry.metrics.endpoint), ("admin", &config.admin.endpoint)]
    {
        let address = endpoint.as_ref().map(|endpoint| &endpoint.address).filter(|address| fixed(address));
        let (Some(address), Some(section)) = (address, root.section(name)) else { continue };
        let metrics = config.telemetry.metrics.endpoint.as_ref().filter(|_| name == "admin");
        let other = if config.listeners.iter().any(|listener| listener.addresses.contains(address)) {
            "a listener has"
        } else if metrics.is_some_and(|metrics| metrics.address == *address) {
            "[metrics] has"
        } else {
            continue;
        };
        let problem = Problem::new(format!("{other} the address `{address}` too"));
        report.whole(section.key_span("address"), problem.help(format!("give [{name}] a port of its own")));
    }
}

fn duplicate_routes(routes: &[(RouteConfig, &Section)], report: &mut ProblemCollector<'_>) {
    let mut seen = BTreeMap::new();
    for (route, section) in routes {
        let listeners = match &route.listeners {
            Listeners::All => vec![None],
            Listeners::Named(names) => names.iter().map(Some).collect(),
        };
        let hosts: Vec<_> =
            if route.hosts.is_empty() { vec![None] } else { route.hosts.iter().map(Some).collect() };
        let protocols: Vec<_> =
            if route.alpn.is_empty() { vec![None] } else { route.alpn.iter().map(Some).collect() };
        // One report per pair of routes, however much they share.
        let mut first = None;
        for listener in listeners {
            for host in &hosts {
                for protocol in &protocols {
                    let key = (listener, *host, &route.path, *protocol);
                    first = remember(&mut seen, key, &section.span).or(first);
                }
            }
        }
        if let Some(first) = first.filter(|first| *first != section.span) {
            let key = if route.hosts.is_empty() { &section.span } else { section.key_span("host") };
            let problem = Problem::new("an earlier route already takes these connections");
            let help = format!(
                "it is in line {}: make listener, host, path or alpn different",
                line(report, &first)
            );
            report.whole(key, problem.help(help));
        }
    }
}

fn plain_listeners(routes: &[(RouteConfig, &Section)], config: &Config, report: &mut ProblemCollector<'_>) {
    for (route, section) in routes {
        let Listeners::Named(names) = &route.listeners else {
            continue;
        };
        let plain = names.iter().filter_map(|name| config.listener(name)).find(|listener| !listener.tls);
        let needing = |listener: &ListenerConfig| {
            let of_requests = listener.mode == Mode::Http;
            let keys = keys::in_section("route").filter(move |key| key.scope.needs_tls(of_requests));
            // The key that needs TLS anywhere tells more than the host.
            let (anywhere, here): (Vec<&Key>, Vec<&Key>) = keys.partition(|key| key.scope.needs_tls(true));
            anywhere.into_iter().chain(here).map(Key::name).find(|name| section.mentions(name))
        };
        let reason = plain.and_then(needing);
        if let (Some(listener), Some(key)) = (plain, reason) {
            let problem =
                Problem::new(format!("`{key}` needs TLS, but the listener `{}` has none", listener.name));
            let help = "leave it out, or name a listener with tls = true";
            report.whole(section.key_span(key), problem.help(help));
        }
    }
}

/// Reports routes with `upgrade` to servers that speak HTTP/2 only: those would need extended CONNECT (RFC 8441),
/// which Offramp does not use towards servers.
fn upgrades(routes: &[(RouteConfig, &Section)], config: &Config, report: &mut ProblemCollector<'_>) {
    for (route, section) in routes {
        let (Some(protocols), RouteTarget::Relay(relay)) = (&route.http.upgrade, &route.target) else {
            continue;
        };
        let names = relay.to.backends();
        let speaks_http2 = |name: &&&Name| {
            config.backends.iter().any(|backend| backend.name == ***name && backend.protocol == Protocol::H2)
        };
        if protocols.is_empty() || names.is_empty() || names.iter().filter(speaks_http2).count() < names.len()
        {
            continue;
        }
        let text = format!(
            "the servers of `{}` speak HTTP/2, over which no connection changes its protocol",
            names[0]
        );
        let help = "leave `upgrade` out, or give the backend `protocol = \"h1\"` or `\"auto\"`";
        report.whole(section.key_span("upgrade"), Problem::new(text).help(help));
    }
}

/// Reports routes for all listeners that one of them serves without TLS, while others use TLS: a listener for
/// redirects serves routes without `listeners` too, which is easily forgotten.
fn clear_text(routes: &[(RouteConfig, &Section)], config: &Config, report: &mut ProblemCollector<'_>) {
    if !config.listeners.iter().any(|listener| listener.tls) {
        return;
    }
    for (route, section) in routes {
        let is_content = matches!(route.target, RouteTarget::Relay(_) | RouteTarget::Files(_));
        if route.listeners != Listeners::All || !is_content {
            continue;
        }
        let plain = config.listeners.iter().filter(|listener| !listener.tls);
        let serves = |listener: &&ListenerConfig| {
            let mut routes = config.routes_of(listener);
            let serves = routes.any(|one| one == route);
            serves && !config.routes_of(listener).any(|other| hides(other, route))
        };
        if let Some(listener) = plain.into_iter().find(serves) {
            let text =
                format!("the listener `{}` serves this route in clear text: {}", listener.name, of(route));
            let problem = Problem::new(text);
            let help = "name its listeners with `listener`";
            report.warn(&section.span, problem.help(help));
        }
    }
}

/// The requests that a route takes, in words: `a.test/x`, `b.test/x`, or `/x` of every host.
fn of(route: &RouteConfig) -> String {
    let path = if route.path.is_root() { "" } else { route.path.as_str() };
    match (&route.hosts[..], path) {
        ([], "") => "every host and path".to_owned(),
        ([], path) => format!("`{path}` of every host"),
        (hosts, path) => {
            let hosts: Vec<String> = hosts.iter().map(|host| format!("`{host}{path}`")).collect();
            hosts.join(", ")
        }
    }
}

/// Returns `true` if `other`, which names its listeners and so has precedence there, takes everything that
/// `route` matches.
fn hides(other: &RouteConfig, route: &RouteConfig) -> bool {
    let named = other.listeners != Listeners::All && other.alpn.is_empty();
    let hosts = other.hosts.is_empty()
        || !route.hosts.is_empty() && route.hosts.iter().all(|host| other.hosts.contains(host));
    let (path, under) = (route.path.as_str(), other.path.as_str());
    let paths = other.path.is_root()
        || path.strip_prefix(under).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    named && hosts && paths
}

/// The backends that a route names.
fn named_backends(route: &Section) -> Vec<&str> {
    let mirror = route.section("mirror").map_or_else(|| route.text("mirror"), |one| one.text("backend"));
    let asked = route.section("forward_auth").and_then(|auth| auth.text("backend"));
    let single = [route.text("backend"), mirror, asked].into_iter().flatten().map(|text| text.value);
    let shares = route.section("split").and_then(|split| split.list("backends")).unwrap_or_default();
    single.chain(shares.iter().filter_map(|share| share.value.split_ascii_whitespace().next())).collect()
}

fn unused(
    root: &Section,
    listeners: &[(ListenerConfig, &Section)],
    config: &Config,
    report: &mut ProblemCollector<'_>,
) {
    let routes = root.sections("route");
    let used: BTreeSet<&str> = routes.iter().flat_map(named_backends).collect();
    for (name, _) in root.named("backend").iter().filter(|(name, _)| !used.contains(&*name.value)) {
        let problem = Problem::new(format!("no route uses the backend `{}`", shown(&name.value)));
        report.warn(&name.span, problem.help("add a route, or remove the backend"));
    }
    if routes.is_empty() {
        let problem = Problem::new("there is no [[route]]: every connection will be refused");
        report.warn(
            &(0..0),
            problem.help("add a section [[route]] with server = \"127.0.0.1:3000\" or the like"),
        );
        return;
    }
    let complete = config.routes.len() == routes.len();
    for (listener, section) in listeners.iter().filter(|_| complete) {
        if config.routes_of(listener).next().is_none() {
            let problem = Problem::new(format!("no route applies to the listener `{}`", listener.name));
            report.warn(&section.span, problem.help("every connection to it will be refused"));
        }
        let unix = listener.addresses.iter().all(|address| matches!(address, ListenAddress::Unix(_)));
        // With a PROXY header they have an address.
        let trusting = !listener.trusted_proxies.is_empty() && listener.accept_proxy.is_empty();
        let keys = [("accept_proxy", !listener.accept_proxy.is_empty()), ("trusted_proxies", trusting)];
        if let Some(key) = ["allow", "deny"].into_iter().find(|key| unix && section.mentions(key)) {
            let problem = Problem::new("clients of a Unix socket have no address");
            let help = "`allow` refuses all of them, and `deny` none; leave both out";
            report.warn(section.key_span(key), problem.help(help));
        }
        for (key, _) in keys.into_iter().filter(|(_, trusts)| unix && *trusts) {
            let problem = Problem::new("clients of a Unix socket have no address to be trusted by");
            report.warn(section.key_span(key), problem.help("it has no effect here"));
        }
    }
}
