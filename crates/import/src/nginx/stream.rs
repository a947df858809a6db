//! `stream`: servers of connections.

use offramp_config::model::{HostPattern, ServerAddress};

use super::listeners::Listen;
use super::tree::Directive;
use super::upstreams::with_port;
use super::{Lowering, Scope, values};
use crate::draft::{DraftKeys, DraftRoute, list, quoted};
use crate::report::Fate;

impl<'a> Lowering<'a> {
    /// Lowers the servers of a `stream` block.
    pub(super) fn stream(&mut self, scope: &Scope<'a>) {
        let mut servers: Vec<(&'a Directive, Vec<Listen<'a>>, Scope<'a>)> = Vec::new();
        for server in scope.own("server") {
            self.take(server);
            let listens = self.listens(server);
            if !listens.is_empty() {
                servers.push((server, listens, scope.clone()));
            }
        }
        let groups = self.groups(&servers, false);
        for (number, (server, ..)) in servers.iter().enumerate() {
            let inside = scope.inside(server.inner());
            for group in groups.iter().filter(|group| group.servers.first() == Some(&number)) {
                if group.tls {
                    self.certificates(&inside, server);
                }
                self.connections(&inside, server, &group.name, group.tls);
            }
            if groups.iter().any(|group| group.servers.iter().skip(1).any(|other| *other == number)) {
                self.refuse(server, "another server has the same address", "use an address of its own");
            }
        }
    }

    fn connections(&mut self, scope: &Scope<'a>, server: &'a Directive, listener: &str, secure: bool) {
        let Some(pass) = scope.own("proxy_pass").pop() else {
            self.refuse(server, "it has no `proxy_pass`", "write a route");
            return;
        };
        let Ok(mut common) = self.networks(scope) else {
            self.refuse(server, "its rules about clients are not taken", "write `allow` in the route");
            return;
        };
        if let Some(one) = scope.is_on("proxy_protocol") {
            self.take(one);
            common.push(("send_proxy".to_owned(), quoted("v1")));
        }
        if let Some(one) = scope.one("proxy_connect_timeout")
            && let Some(time) =
                values::time(one.argument(0)).filter(|time| (1..=3_600).contains(&time.as_secs()))
        {
            self.take(one);
            common.push(("connect_timeout".to_owned(), values::toml_time(time)));
        }
        if let Some(one) = scope.one("proxy_timeout")
            && let Some(time) = values::time(one.argument(0)).filter(|time| !time.is_zero())
        {
            self.note(one, Fate::changed("`idle_timeout` of [limits] is one for all connections"));
            self.set("limits", "idle_timeout", values::toml_time(time), one);
        }
        let map =
            pass.argument(0).starts_with('$').then(|| self.by_server_name.get(pass.argument(0)).copied());
        match map.flatten() {
            Some(map) if scope.is_on("ssl_preread").is_some() => {
                scope.one("ssl_preread").into_iter().for_each(|one| self.take(one));
                self.take(pass);
                self.by_name(map, listener, &common);
            }
            _ => self.one_server(scope, pass, listener, common, secure),
        }
    }

    fn one_server(
        &mut self,
        scope: &Scope<'a>,
        pass: &'a Directive,
        listener: &str,
        common: DraftKeys,
        secure: bool,
    ) {
        let mut keys = DraftKeys::new();
        let text = pass.argument(0);
        let tls = scope.is_on("proxy_ssl").map(|one| {
            self.take(one);
            self.server_tls(scope, pass)
        });
        if let Some(upstream) = self.upstreams.get(text).copied() {
            let Some(name) = self.stream_upstream(upstream, tls) else {
                self.refuse(pass, "its upstream is not taken", "see there");
                return;
            };
            keys.push(("backend".to_owned(), quoted(&name)));
        } else if text.contains('$') || with_port(text, 0).parse::<ServerAddress>().is_err() {
            self.refuse(pass, "this is no fixed address of a server", "write `server` in the route");
            return;
        } else if let Some(tls) = tls {
            let backend = vec![("servers".to_owned(), list(&[text])), ("tls".to_owned(), tls)];
            let name = self.backend(&values::name(text), backend, pass);
            keys.push(("backend".to_owned(), quoted(&name)));
        } else {
            keys.push(("server".to_owned(), quoted(text)));
        }
        self.take(pass);
        if let Ok(Some(auth)) = self.client_auth(scope, secure) {
            keys.push(("client_auth".to_owned(), auth));
        }
        keys.extend(common);
        let item = self.item(pass, keys);
        let listeners = vec![listener.to_owned()];
        self.draft.add_route(DraftRoute { listeners, hosts: Vec::new(), path: None, item });
    }

    /// The backend of an upstream of connections.
    fn stream_upstream(&mut self, upstream: &'a Directive, tls: Option<String>) -> Option<String> {
        let keys = self.upstream_keys(upstream, 0)?;
        let keys = [keys, tls.map(|tls| ("tls".to_owned(), tls)).into_iter().collect()].concat();
        Some(self.backend(&values::name(upstream.argument(0)), keys, upstream))
    }

    /// Routes with `passthrough` for the names of a map.
    fn by_name(&mut self, map: &'a Directive, listener: &str, common: &DraftKeys) {
        self.take(map);
        for one in map.inner() {
            if one.name == "hostnames" || one.name == "volatile" {
                self.take(one);
                continue;
            }
            let server = match self.upstreams.get(one.argument(0)).copied() {
                Some(upstream) => self.single(upstream),
                None => Some(one.argument(0).to_owned()),
            };
            let Some(server) = server.filter(|server| server.parse::<ServerAddress>().is_ok()) else {
                let why = "`passthrough` leads to one server";
                self.refuse(one, why, "name its address, or end TLS here with a [[certificate]]");
                continue;
            };
            let hosts = match one.name.as_str() {
                "default" => Vec::new(),
                name => {
                    let name = match name.strip_prefix('.') {
                        Some(rest) => format!("*.{rest}"),
                        None => name.to_owned(),
                    };
                    if name.parse::<HostPattern>().is_err() {
                        self.refuse(one, "hosts are names or `*.` and a name", "write the names");
                        continue;
                    }
                    vec![name]
                }
            };
            self.take(one);
            self.secure_listener(listener);
            let mut keys = vec![("passthrough".to_owned(), quoted(&server))];
            keys.extend(common.iter().cloned());
            let item = self.item(one, keys);
            let listeners = vec![listener.to_owned()];
            self.draft.add_route(DraftRoute { listeners, hosts, path: None, item });
        }
    }

    /// The only server of an upstream.
    fn single(&mut self, upstream: &'a Directive) -> Option<String> {
        let servers: Vec<&Directive> = upstream.inner().iter().filter(|one| one.name == "server").collect();
        let [server] = servers[..] else { return None };
        let server = upstream.inner().iter().find(|one| one.id == server.id)?;
        self.take(upstream);
        self.take(server);
        Some(server.argument(0).to_owned())
    }

    /// Has a listener read the ClientHello, as `ssl_preread` does.
    fn secure_listener(&mut self, listener: &str) {
        let name = ("name".to_owned(), quoted(listener));
        for item in self.draft.listeners.iter_mut().filter(|item| item.keys.contains(&name)) {
            item.keys.retain(|(key, _)| key != "tls");
        }
    }
}
