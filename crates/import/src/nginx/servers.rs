//! `server` blocks of `http`: names and listeners, and what precedes locations.

use offramp_config::model::HostPattern;

use super::listeners::{Listen, ListenerGroup};
use super::tree::Directive;
use super::{Lowering, Scope};
use crate::draft::{DraftItem, DraftKeys, DraftRoute};
use crate::report::Fate;

/// A server with the listeners and hosts that its routes have.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) directive: &'a Directive,
    pub(super) scope: Scope<'a>,
    pub(super) seats: Vec<Seat>,
}

/// Listeners on which a server has the same hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct Seat {
    secure: Vec<String>,
    plain: Vec<String>,
    hosts: Vec<String>,
}

impl Site<'_> {
    /// The first host, for texts that name it.
    pub(super) fn first_host(&self) -> Option<&str> {
        self.seats.iter().flat_map(|seat| &seat.hosts).map(String::as_str).find(|host| !host.starts_with('*'))
    }

    /// Says that all clients speak TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.seats.iter().all(|seat| seat.plain.is_empty())
    }

    fn is_plain(&self) -> bool {
        self.seats.iter().all(|seat| seat.secure.is_empty())
    }
}

impl<'a> Lowering<'a> {
    /// Lowers the servers of all `http` blocks together, since they share listeners.
    pub(super) fn http(&mut self, scopes: &[Scope<'a>]) {
        let mut servers: Vec<(&'a Directive, Vec<Listen<'a>>, Scope<'a>)> = Vec::new();
        for scope in scopes {
            for server in scope.own("server") {
                self.take(server);
                let listens = self.listens(server);
                servers.push((server, listens, scope.clone()));
            }
        }
        let groups = self.groups(&servers, true);
        let mut seats: Vec<Vec<Seat>> = Vec::new();
        for (number, (server, ..)) in servers.iter().enumerate() {
            let scope = servers[number].2.inside(server.inner());
            let found = self.seats(number, &scope, &groups, server);
            seats.push(found);
        }
        // The default certificate is the first one that is written.
        let mut order: Vec<usize> = (0..servers.len()).collect();
        order.sort_by_key(|number| !groups.iter().any(|group| group.tls && group.default == *number));
        for number in order {
            let (server, _, scope) = &servers[number];
            if groups.iter().any(|group| group.tls && group.has(number)) {
                self.certificates(&scope.inside(server.inner()), server);
            }
        }
        self.tls_settings(&servers, &groups);
        for ((server, _, scope), seats) in servers.iter().zip(seats) {
            if !seats.is_empty() {
                let site = Site { directive: server, scope: scope.inside(server.inner()), seats };
                self.server(site);
            }
        }
    }

    /// The names of a server, and the listeners on which it is found by them or as the default.
    fn seats(
        &mut self,
        number: usize,
        scope: &Scope<'a>,
        groups: &[ListenerGroup],
        server: &'a Directive,
    ) -> Vec<Seat> {
        let (hosts, any) = self.hosts(scope);
        let (mut default, mut named) = (Seat::default(), Seat { hosts, ..Seat::default() });
        for group in groups.iter().filter(|group| group.has(number)) {
            let is_default = group.default == number;
            let is_alone = group.servers.len() == 1;
            let seat = if is_default && (group.is_explicit || is_alone || any || named.hosts.is_empty()) {
                &mut default
            } else {
                if is_default {
                    let how = "requests for other names get 404; nginx gives them to this server, because it is the first one";
                    self.note(server, Fate::changed(how));
                }
                &mut named
            };
            let names = if group.tls { &mut seat.secure } else { &mut seat.plain };
            names.push(group.name.clone());
        }
        let is_used = |seat: &Seat| !seat.secure.is_empty() || !seat.plain.is_empty();
        if named.hosts.is_empty() && is_used(&named) {
            self.refuse(
                server,
                "it has no name that a route could have, and another server is the default",
                "give it a `server_name`",
            );
            named = Seat::default();
        }
        [default, named].into_iter().filter(is_used).collect()
    }

    /// The hosts of `server_name`, and whether it has one that stands for any.
    fn hosts(&mut self, scope: &Scope<'a>) -> (Vec<String>, bool) {
        let (mut hosts, mut any) = (Vec::new(), false);
        for one in scope.own("server_name") {
            self.take(one);
            for name in &one.arguments {
                match name.as_str() {
                    "_" | "" | "\"\"" | "*" => any = true,
                    name if name.starts_with('~') => self.refuse(
                        one,
                        "hosts are names or `*.` and a name, no regular expressions",
                        "write the names that it stands for",
                    ),
                    "$hostname" => self.refuse(one, "the name of this machine is not known here", "write it"),
                    name => self.host(one, name, &mut hosts),
                }
            }
        }
        (hosts, any)
    }

    fn host(&mut self, directive: &'a Directive, name: &str, hosts: &mut Vec<String>) {
        let (names, wild) = match name.strip_prefix('.') {
            Some(rest) => (vec![rest.to_owned(), format!("*.{rest}")], true),
            None => (vec![name.to_owned()], name.starts_with("*.")),
        };
        if wild {
            let how = "`*` stands for one label; nginx takes several";
            self.note(directive, Fate::changed(how));
        }
        for name in names {
            match name.parse::<HostPattern>() {
                Ok(host) => {
                    let host = host.to_string();
                    if !hosts.contains(&host) {
                        hosts.push(host);
                    }
                }
                Err(problem) => {
                    let remedy = problem.remedy().unwrap_or("write a name").to_owned();
                    self.refuse(directive, problem.message(), remedy);
                }
            }
        }
    }

    fn server(&mut self, mut site: Site<'a>) {
        for one in site.scope.own("if") {
            self.condition(&mut site, one);
        }
        if site.seats.is_empty() {
            return;
        }
        for one in site.scope.own("set") {
            self.constants.insert(one.argument(0).trim_start_matches('$'), one);
        }
        let returned = site.scope.own("return").into_iter().next();
        let answer = returned.and_then(|one| self.returned(&site, &site.scope, one));
        let answer = answer.or_else(|| self.whole_redirect(&site));
        if let Some(answer) = answer {
            let directive = returned.unwrap_or(site.directive);
            self.route(&site, "/", directive, |secure| answer.keys(secure));
            for location in site.scope.own("location") {
                let how = "it has no effect in nginx either: the server answers before";
                self.note(location, Fate::changed(how));
                self.note_inside(location, how);
            }
            return;
        }
        self.locations(&site);
    }

    fn note_inside(&mut self, block: &Directive, how: &str) {
        for one in block.inner() {
            self.note(one, Fate::changed(how));
            self.note_inside(one, how);
        }
    }

    /// Lowers an `if` of a server that compares the host or the scheme and returns.
    fn condition(&mut self, site: &mut Site<'a>, one: &'a Directive) {
        let words: Vec<&str> = one.arguments.iter().map(String::as_str).collect();
        let text = words.join(" ");
        let text = text.trim_start_matches('(').trim_end_matches(')').trim();
        let answer = match one.inner() {
            [inner] if inner.name == "return" => Some(inner),
            [inner] if inner.name == "rewrite" => Some(inner),
            _ => None,
        };
        let Some(inner) = answer else {
            self.refuse(one, "routes do not choose by this", "decide in the application");
            return;
        };
        let parts: Vec<&str> = text.split_whitespace().collect();
        let (host, is_plain) = compared(&parts);
        let answer = if inner.name == "return" {
            self.returned(site, &site.scope, inner)
        } else {
            self.whole_redirect_of(site, inner)
        };
        let Some(answer) = answer else {
            self.refuse(one, "routes do not choose by this", "decide in the application");
            return;
        };
        if let Some(host) = host.filter(|host| host.parse::<HostPattern>().is_ok()) {
            self.take(one);
            self.take(inner);
            let mut part = Site { directive: one, scope: site.scope.clone(), seats: site.seats.clone() };
            part.seats =
                part.seats.into_iter().map(|seat| Seat { hosts: vec![host.to_owned()], ..seat }).collect();
            self.route(&part, "/", inner, |secure| answer.keys(secure));
            // What remains of the server is for the other hosts.
            for seat in &mut site.seats {
                let had = !seat.hosts.is_empty();
                seat.hosts.retain(|other| other != host);
                if had && seat.hosts.is_empty() {
                    (seat.secure, seat.plain) = (Vec::new(), Vec::new());
                }
            }
            site.seats.retain(|seat| !seat.secure.is_empty() || !seat.plain.is_empty());
        } else if is_plain {
            self.take(one);
            self.take(inner);
            if site.is_plain() || !site.is_secure() {
                let plain = |seat: &Seat| Seat { secure: Vec::new(), ..seat.clone() };
                let seats = site.seats.iter().map(plain).filter(|seat| !seat.plain.is_empty()).collect();
                let part = Site { directive: one, scope: site.scope.clone(), seats };
                self.route(&part, "/", inner, |secure| answer.keys(secure));
            }
            for seat in &mut site.seats {
                seat.plain.clear();
            }
            site.seats.retain(|seat| !seat.secure.is_empty());
        } else {
            let fate = Fate::not("routes do not choose by this", "decide in the application");
            self.note(one, fate.clone());
            self.note(inner, fate);
        }
    }

    /// Adds a route to each seat of a site; `keys` may differ with TLS.
    pub(super) fn route(
        &mut self,
        site: &Site<'a>,
        path: &str,
        from: &'a Directive,
        keys: impl Fn(bool) -> DraftKeys,
    ) {
        let mut is_any = false;
        for Seat { secure, plain, hosts } in &site.seats {
            let (with, without) = (keys(true), keys(false));
            let parts = if with == without {
                vec![([secure.clone(), plain.clone()].concat(), with)]
            } else {
                vec![(plain.clone(), without), (secure.clone(), with)]
            };
            for (listeners, keys) in parts.into_iter().filter(|(listeners, _)| !listeners.is_empty()) {
                let item: DraftItem = self.item(from, keys);
                let (hosts, path) = (hosts.clone(), Some(path.to_owned()));
                is_any |= self.draft.add_route(DraftRoute { listeners, hosts, path, item });
            }
        }
        if !is_any {
            let why = "an earlier route takes the same requests";
            self.refuse(from, why, "keep one of the two");
        }
    }
}

/// The host that a condition compares with, and whether it is true for plain text alone.
fn compared<'t>(parts: &[&'t str]) -> (Option<&'t str>, bool) {
    let host = match parts {
        ["$host" | "$http_host", "=", host] => Some(host.trim_matches(['"', '\''])),
        _ => None,
    };
    let is_plain = matches!(
        parts,
        ["$scheme", "=", "http" | "\"http\""]
            | ["$scheme", "!=", "https" | "\"https\""]
            | ["$https", "=", "" | "\"\"" | "''"]
            | ["$https", "="]
            | ["$https", "!=", "on" | "\"on\""]
            | ["$server_port", "=", "80"]
            | ["$ssl_protocol", "="]
    );
    (host, is_plain)
}
