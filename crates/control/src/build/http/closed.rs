//! What lies below the root of a route with files, and belongs to routes of the same host with access rules.

use std::path::{Path, PathBuf};

use offramp_config::Config;
use offramp_config::model::{self, PrefixRewrite, RouteTarget};
use offramp_http::files::path::decode;
use offramp_proxy::{ClosedPaths, Match};

use super::super::routes::{Preference, split};
use super::prefix;

/// Hosts as a route matches them, and what is closed to the route there.
pub(super) type Variant = (Vec<String>, ClosedPaths);

/// The variants of a route on a listener, for `hosts`; none: any host. Hosts with more rules come before those with fewer.
pub(super) fn variants(
    config: &Config,
    listener: &model::ListenerConfig,
    route: &model::RouteConfig,
    hosts: Vec<String>,
) -> Vec<Variant> {
    let RouteTarget::Files(files) = &route.target else { return vec![(hosts, ClosedPaths::default())] };
    let guards: Vec<Guard> = config
        .routes_of(listener)
        .filter(|guard| guard.is_guard() && !std::ptr::eq(*guard, route) && !has_same_rules(guard, route))
        .filter(|guard| meet(&hosts, &patterns(guard)))
        .map(|guard| Guard::new(guard, route, files))
        .filter(|guard| !guard.closed.is_empty())
        .collect();
    let closed = |host: Option<&str>| {
        let of = guards.iter().filter(|guard| {
            is_in(&guard.hosts, host) && winner(config, listener, host, &guard.path) == Some(guard.at)
        });
        let mut all: Vec<Box<str>> = of.flat_map(|guard| guard.closed.iter().cloned()).collect();
        all.sort();
        all.dedup();
        ClosedPaths(all)
    };
    let base: Vec<Option<&str>> = match &hosts[..] {
        [] => vec![None],
        hosts => hosts.iter().map(|host| Some(host.as_str())).collect(),
    };
    let mut variants: Vec<Variant> = Vec::new();
    for host in &base {
        for inner in guards.iter().flat_map(|guard| &guard.hosts) {
            let is_inside = host.is_none_or(|outer| outer != inner && covers(outer, inner));
            if is_inside && closed(Some(inner)) != closed(*host) {
                variants.push((vec![inner.clone()], closed(Some(inner))));
            }
        }
    }
    // Exact hosts go before wildcards, as everywhere.
    variants.sort_by_key(|(hosts, _)| hosts[0].starts_with('*'));
    variants.dedup();
    for host in base {
        let of = closed(host);
        let own = host.map(str::to_owned);
        match variants.last_mut().filter(|(hosts, last)| *last == of && own.is_some() && !hosts.is_empty()) {
            Some((hosts, _)) => hosts.extend(own),
            None => variants.push((own.into_iter().collect(), of)),
        }
    }
    variants
}

/// The route that requests for a path below its own get on the hosts of a pattern; `None`: on any host.
pub(super) fn winner(
    config: &Config,
    listener: &model::ListenerConfig,
    host: Option<&str>,
    path: &str,
) -> Option<*const model::RouteConfig> {
    let mut best: Option<(Preference, *const model::RouteConfig)> = None;
    for route in config.routes_of(listener).filter(|route| is_above(&prefix(route), path)) {
        for (preference, Match { hosts, .. }) in split(route) {
            let is_first = best.is_none_or(|(other, _)| preference < other);
            if is_first && is_in(&hosts, host) {
                best = Some((preference, std::ptr::from_ref(route)));
            }
        }
    }
    best.map(|(_, route)| route)
}

/// True if a path lies below a prefix of whole segments.
pub(super) fn is_above(prefix: &str, path: &str) -> bool {
    prefix == "/" || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A route with rules, as another one sees it.
struct Guard {
    at: *const model::RouteConfig,
    path: String,
    /// `None` stands for any host.
    hosts: Vec<String>,
    /// Below the root of the other one.
    closed: Vec<Box<str>>,
}

impl Guard {
    fn new(guard: &model::RouteConfig, route: &model::RouteConfig, files: &model::StaticFiles) -> Self {
        let root = real(&files.root.path);
        let own = folder(&root, route);
        let mut places = Vec::new();
        if let RouteTarget::Files(theirs) = &guard.target {
            places.push(folder(&real(&theirs.root.path), guard));
        }
        // What this route would serve by the path of the other one.
        let (outer, inner) = (prefix(route), prefix(guard));
        let outer = if outer == "/" { "" } else { &outer };
        if let Some(rest) = inner.strip_prefix(outer).filter(|rest| rest.starts_with('/')) {
            let shown = if route.http.rewrite == PrefixRewrite::Strip { rest } else { &inner };
            places.extend(below(&root, shown));
        }
        // A route within what another one guards is open on purpose.
        let closed = places.iter().filter(|place| !own.starts_with(place)).filter_map(|place| {
            let name = place.strip_prefix(&root).ok()?.to_str()?;
            (!name.is_empty()).then(|| name.into())
        });
        let closed = closed.collect();
        Self { at: std::ptr::from_ref(guard), path: inner, hosts: patterns(guard), closed }
    }
}

pub(super) fn patterns(route: &model::RouteConfig) -> Vec<String> {
    route.hosts.iter().map(ToString::to_string).collect()
}

/// True if patterns, none for any host, have every host of another one.
pub(super) fn is_in(outer: &[String], host: Option<&str>) -> bool {
    outer.is_empty() || host.is_some_and(|host| outer.iter().any(|own| covers(own, host)))
}

/// True if a host can be one of both.
fn meet(one: &[String], other: &[String]) -> bool {
    let pair = |one: &String| other.iter().any(|other| covers(one, other) || covers(other, one));
    one.is_empty() || other.is_empty() || one.iter().any(pair)
}

/// True if a pattern of hosts has all of another one.
fn covers(outer: &str, inner: &str) -> bool {
    let within =
        |suffix: &str| !inner.starts_with('*') && inner.find('.').is_some_and(|dot| &inner[dot..] == suffix);
    outer == inner || outer.strip_prefix('*').is_some_and(within)
}

/// The directory, or file, that a route serves by its own path.
pub(super) fn folder(root: &Path, route: &model::RouteConfig) -> PathBuf {
    match &route.http.rewrite {
        PrefixRewrite::Strip => root.to_owned(),
        _ => below(root, &prefix(route)).unwrap_or_else(|| root.to_owned()),
    }
}

fn below(root: &Path, path: &str) -> Option<PathBuf> {
    let name = decode(path, true).ok()?;
    // A slash at the end would be one of the path, too.
    Some(if name.is_empty() { root.to_owned() } else { root.join(name.trim_end_matches('/')) })
}

/// Two paths of one directory are to look alike.
pub(super) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn has_same_rules(one: &model::RouteConfig, other: &model::RouteConfig) -> bool {
    !matches!(one.target, RouteTarget::Respond(_)) && has_same_entry(one, other)
}

/// Set where two routes have the same access rules.
pub(super) fn has_same_entry(one: &model::RouteConfig, other: &model::RouteConfig) -> bool {
    let refuses = |route: &model::RouteConfig| matches!(&route.target, RouteTarget::Respond(respond) if respond.status >= 400);
    refuses(one) == refuses(other)
        && one.client_auth == other.client_auth
        && one.deny_ja4 == other.deny_ja4
        && one.networks == other.networks
        && one.credentials == other.credentials
        && one.http.maintenance == other.http.maintenance
}

/// Numbers for the access rules of routes: equal for equal rules, 0 for none.
#[derive(Default)]
pub(super) struct Entries<'c>(Vec<&'c model::RouteConfig>);

impl<'c> Entries<'c> {
    pub(super) fn number(&mut self, route: &'c model::RouteConfig) -> u32 {
        if !route.is_guard() {
            return 0;
        }
        let known = self.0.iter().position(|other| has_same_entry(other, route));
        let at = known.unwrap_or_else(|| {
            self.0.push(route);
            self.0.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use offramp_config::{Environment, parse};

    use super::*;

    /// The variants of the first route of a configuration.
    fn of(routes: &str) -> Vec<(String, Vec<String>)> {
        let text = format!("[[listener]]\nmode = \"http\"\n{routes}");
        let (config, _) =
            parse(&text, "/x/f.toml", &Environment::default()).unwrap_or_else(|e| panic!("{e}"));
        let route = &config.routes[0];
        let hosts = route.hosts.iter().map(ToString::to_string).collect();
        variants(&config, &config.listeners[0], route, hosts)
            .into_iter()
            .map(|(hosts, closed)| (hosts.join(","), closed.0.iter().map(ToString::to_string).collect()))
            .collect()
    }

    #[test]
    fn what_other_routes_guard_is_closed() {
        let any = |closed: &[&str]| {
            vec![(String::new(), closed.iter().map(ToString::to_string).collect::<Vec<_>>())]
        };
        let open = "[[route]]\nroot = \"/w\"\n";
        for (routes, closed) in [
            (format!("{open}[[route]]\npath = \"/p\"\nroot = \"/w\"\nallow = [\"::1\"]\n"), any(&["p"])),
            (format!("{open}[[route]]\npath = \"/p\"\nroot = \"/w/q\"\nstrip_path = true\nallow = [\"::1\"]\n"), any(&["p", "q"])),
            (format!("{open}[[route]]\npath = \"/p\"\nserver = \"a:1\"\nmaintenance = true\n"), any(&["p"])),
            (format!("{open}[[route]]\npath = \"/p%20q\"\nrespond = {{ status = 404 }}\n"), any(&["p q"])),
            (format!("{open}[[route]]\npath = \"/p\"\nserver = \"a:1\"\n"), any(&[])),
            // A root beside or above it is not within it.
            (format!("{open}[[route]]\npath = \"/p\"\nroot = \"/v\"\nstrip_path = true\nallow = [\"::1\"]\n"), any(&["p"])),
            (format!("{open}[[route]]\npath = \"/p\"\nroot = \"/w\"\nstrip_path = true\nallow = [\"::1\"]\n"), any(&["p"])),
            // Open on purpose, within what is guarded.
            ("[[route]]\npath = \"/p/o\"\nroot = \"/w\"\n[[route]]\npath = \"/p\"\nroot = \"/w\"\nallow = [\"::1\"]\n".to_owned(), any(&[])),
            // By another path.
            ("[[route]]\npath = \"/o\"\nroot = \"/w\"\nstrip_path = true\n[[route]]\npath = \"/p\"\nroot = \"/w\"\nallow = [\"::1\"]\n".to_owned(), any(&["p"])),
            // The same rules hold for both.
            ("[defaults.route]\nallow = [\"::1\"]\n[[route]]\nroot = \"/w\"\n[[route]]\npath = \"/p\"\nroot = \"/w\"\n".to_owned(), any(&[])),
        ] {
            assert_eq!(of(&routes), closed, "{routes}");
        }
    }

    #[test]
    fn each_host_has_what_is_closed_on_it() {
        let guard = |hosts: &str, path: &str| {
            format!("[[route]]\nhost = [{hosts}]\npath = \"{path}\"\nserver = \"a:1\"\nallow = [\"::1\"]\n")
        };
        let guards = [guard("\"a.x\"", "/a"), guard("\"*.x\"", "/w"), guard("\"o.y\"", "/o")].concat();
        let said = |hosts: &str| -> Vec<(String, String)> {
            let route = format!("[[route]]\n{hosts}root = \"/w\"\n{guards}");
            of(&route).into_iter().map(|(hosts, closed)| (hosts, closed.join(","))).collect()
        };
        let pair = |host: &str, closed: &str| (host.to_owned(), closed.to_owned());
        assert_eq!(said(""), [pair("a.x", "a,w"), pair("o.y", "o"), pair("*.x", "w"), pair("", "")]);
        assert_eq!(said("host = \"*.x\"\n"), [pair("a.x", "a,w"), pair("*.x", "w")]);
        // Its own exact hosts go before the wildcard.
        assert_eq!(said("host = [\"a.x\", \"b.x\", \"c.x\"]\n"), [pair("a.x", "a"), pair("b.x,c.x", "")]);
        assert_eq!(said("host = \"n.z\"\n"), [pair("n.z", "")]);
        // A route for any host guards nothing where one for the host takes every path.
        let any = "[[route]]\npath = \"/p\"\nserver = \"a:1\"\nallow = [\"::1\"]\n";
        assert_eq!(
            of(&format!("[[route]]\nhost = \"a.x\"\nroot = \"/w\"\n{any}")),
            [("a.x".to_owned(), vec![])]
        );
        assert_eq!(of(&format!("[[route]]\nroot = \"/w\"\n{any}")), [(String::new(), vec!["p".to_owned()])]);
    }
}
