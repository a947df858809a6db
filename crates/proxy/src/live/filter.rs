//! The selection of connections.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use offramp_observe::facts::{ByteCounts, PathFacts};
use offramp_observe::{ConnectionFacts, ConnectionId};

use super::ip;
use crate::networks::NetworkSet;

/// Selects the connections that fit every condition that is set; without one, all.
#[derive(Debug, Default)]
pub struct Filter {
    /// The one with this id.
    pub id: Option<ConnectionId>,
    /// Those of clients with these addresses.
    pub clients: Option<NetworkSet>,
    /// Those with this name ([`super::LiveConnection::name`]); `*.example.org` is any name below `example.org`.
    pub name: Option<Box<str>>,
    /// Connections on this route; of HTTP, those with their latest request on it.
    pub route: Option<Box<str>>,
    /// Those of this listener.
    pub listener: Option<Box<str>>,
    /// Those that are at least as old.
    pub older: Option<Duration>,
    /// Those that have moved at least so many bytes, both directions together.
    pub larger: Option<u64>,
    /// Those on anything that a change touches.
    pub touched: Option<Touched>,
}

/// The items that a change of the configuration touches.
#[derive(Debug, Default)]
pub struct Touched {
    /// Names of listeners; empty: any.
    pub listeners: HashSet<String>,
    /// Routes, as events call them.
    pub routes: HashSet<String>,
    /// Names of backends; empty: any.
    pub backends: HashSet<String>,
    /// Servers of other backends, by the backend's name and their addresses.
    pub servers: HashMap<String, HashSet<String>>,
}

impl Touched {
    fn has(&self, listener: &str, path: &PathFacts) -> bool {
        let of = |set: &HashSet<String>, name: Option<&str>| name.is_some_and(|name| set.contains(name));
        let backend = path.backend.as_deref();
        let servers = backend.and_then(|backend| self.servers.get(backend));
        self.listeners.contains(listener)
            || of(&self.routes, path.route.as_deref())
            || of(&self.backends, backend)
            || servers.is_some_and(|servers| of(servers, path.server.as_deref()))
    }
}

impl Filter {
    /// Applies the conditions on facts that never change. Asked first: it looks at nothing else.
    pub(super) fn admits(&self, facts: &ConnectionFacts, now: SystemTime) -> bool {
        let is_of = |clients: &NetworkSet| ip(&facts.client.address).is_some_and(|ip| clients.contains(ip));
        let age = || now.duration_since(facts.accepted).unwrap_or_default();
        self.id.is_none_or(|id| facts.id == id)
            && self.listener.as_deref().is_none_or(|listener| *facts.listener == *listener)
            && self.clients.as_ref().is_none_or(is_of)
            // Without one, what HTTP knows of it is asked later.
            && facts.tls.sni.as_deref().is_none_or(|sni| self.is_named(Some(sni)))
            && self.older.is_none_or(|older| age() >= older)
    }

    /// There are conditions beside those of [`Filter::admits`].
    pub(super) fn looks_further(&self) -> bool {
        self.name.is_some() || self.route.is_some() || self.larger.is_some() || self.touched.is_some()
    }

    /// Applies the conditions on the name, the path and the traffic of a connection of `listener`.
    pub(super) fn admits_now(
        &self,
        listener: &str,
        name: Option<&str>,
        path: &PathFacts,
        traffic: ByteCounts,
    ) -> bool {
        let moved = traffic.from_client.saturating_add(traffic.to_client);
        self.is_named(name)
            && self.route.as_deref().is_none_or(|route| path.route.as_deref() == Some(route))
            && self.larger.is_none_or(|larger| moved >= larger)
            && self.touched.as_ref().is_none_or(|touched| touched.has(listener, path))
    }

    fn is_named(&self, name: Option<&str>) -> bool {
        self.name.as_deref().is_none_or(|wanted| is_name(name, wanted))
    }
}

/// The host of all requests on a route, as the route is called: its hosts, its path and its protocols. `None` where there
/// may be several.
pub(super) fn only_host(route: &str) -> Option<&str> {
    let hosts = route.split(['/', ' ']).next().unwrap_or_default();
    let is_one = !hosts.is_empty() && !hosts.starts_with("*.") && !hosts.contains(',');
    // So are routes for any host called.
    let is_none = hosts == "default" || hosts.starts_with("alpn=");
    (is_one && !is_none).then_some(hosts)
}

/// A server name is the wanted one, or below it where that begins with `*.`.
fn is_name(name: Option<&str>, wanted: &str) -> bool {
    let Some(name) = name else { return false };
    match wanted.strip_prefix("*.") {
        None => name.eq_ignore_ascii_case(wanted),
        Some(parent) => {
            let at = name.len().checked_sub(parent.len());
            at.is_some_and(|at| {
                at > 1
                    && name.as_bytes()[at - 1] == b'.'
                    && name.as_bytes()[at..].eq_ignore_ascii_case(parent.as_bytes())
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_without_case_and_a_star_is_anything_below() {
        for (name, wanted, fits) in [
            (Some("a.example.org"), "A.example.org", true),
            (Some("a.example.org"), "example.org", false),
            (Some("a.example.org"), "*.Example.org", true),
            (Some("b.a.example.org"), "*.example.org", true),
            (Some("example.org"), "*.example.org", false),
            (Some(".example.org"), "*.example.org", false),
            (Some("badexample.org"), "*.example.org", false),
            (Some("ä.org"), "*.org", true),
            (None, "a", false),
        ] {
            assert_eq!(is_name(name, wanted), fits, "{name:?} {wanted}");
        }
    }

    #[test]
    fn a_route_of_one_host_tells_it() {
        for (route, host) in [
            ("shop.example", Some("shop.example")),
            ("shop.example/cart", Some("shop.example")),
            ("shop.example alpn=h2", Some("shop.example")),
            ("*.shop.example", None),
            ("a.example,b.example/x", None),
            ("/cart", None),
            ("alpn=h2", None),
            ("default", None),
            ("", None),
        ] {
            assert_eq!(only_host(route), host, "{route}");
        }
    }

    #[test]
    fn a_change_touches_what_is_on_its_listeners_routes_backends_and_servers() {
        let path = PathFacts {
            route: Some("r".into()),
            backend: Some("b".into()),
            server: Some("s".into()),
            tries: 1,
        };
        let set = |name: &str| HashSet::from([name.to_owned()]);
        let none = Touched::default();
        assert!(!none.has("l", &path));
        for (touched, has) in [
            (Touched { listeners: set("l"), ..Touched::default() }, true),
            (Touched { listeners: set("r"), ..Touched::default() }, false),
            (Touched { routes: set("r"), ..Touched::default() }, true),
            (Touched { backends: set("b"), ..Touched::default() }, true),
            (Touched { backends: set("s"), ..Touched::default() }, false),
            (Touched { servers: [("b".to_owned(), set("s"))].into(), ..Touched::default() }, true),
            (Touched { servers: [("b".to_owned(), set("t"))].into(), ..Touched::default() }, false),
            (Touched { servers: [("c".to_owned(), set("s"))].into(), ..Touched::default() }, false),
        ] {
            assert_eq!(touched.has("l", &path), has, "{touched:?}");
        }
        assert!(!Touched { routes: set("r"), ..Touched::default() }.has("l", &PathFacts::default()));
    }
}
