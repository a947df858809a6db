//! `listen`: the addresses of servers, as listeners.

use std::net::IpAddr;

use super::tree::Directive;
use super::{Lowering, Scope, values};
use crate::draft::{DraftKeys, list, one_or_list, quoted};
use crate::report::Fate;

/// One `listen` of a server.
#[derive(Debug)]
pub(super) struct Listen<'a> {
    /// The directive; `None` where a server has none, and listens on port 80.
    pub(super) directive: Option<&'a Directive>,
    /// The group of equal addresses: `*:80`, `127.0.0.1:80`, `unix:/run/x`.
    pub(super) group: String,
    /// The address as Offramp writes it.
    address: String,
    port: Option<u16>,
    tls: bool,
    proxy: bool,
    pub(super) default: bool,
}

/// A listener of the result, and the servers on it.
#[derive(Debug)]
pub(super) struct ListenerGroup {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) tls: bool,
    /// The servers, by index.
    pub(super) servers: Vec<usize>,
    /// The server that is the default.
    pub(super) default: usize,
    /// Says that `default_server` is written.
    pub(super) is_explicit: bool,
}

impl ListenerGroup {
    /// Says that a server listens here.
    pub(super) fn has(&self, server: usize) -> bool {
        self.servers.binary_search(&server).is_ok()
    }
}

impl<'a> Lowering<'a> {
    /// The addresses of one server.
    pub(super) fn listens(&mut self, server: &'a Directive) -> Vec<Listen<'a>> {
        let mut found = Vec::new();
        let all_tls = server.inner().iter().any(|one| one.name == "ssl" && one.argument(0) == "on");
        for one in server.inner().iter().filter(|one| one.name == "listen") {
            if let Some(listen) = self.listen(one, all_tls) {
                found.push(listen);
            }
        }
        for one in server.inner().iter().filter(|one| one.name == "ssl") {
            self.take(one);
        }
        let is_written = server.inner().iter().any(|one| one.name == "listen");
        if !is_written {
            found.push(Listen {
                directive: None,
                group: "*:80".to_owned(),
                address: "0.0.0.0:80".to_owned(),
                port: Some(80),
                tls: all_tls,
                proxy: false,
                default: false,
            });
        }
        found
    }

    fn listen(&mut self, one: &'a Directive, all_tls: bool) -> Option<Listen<'a>> {
        if one.has("quic") {
            self.refuse(one, "Offramp speaks no HTTP/3", "leave it out: clients use HTTP/2");
            return None;
        }
        if one.has("udp") {
            self.refuse(
                one,
                "Offramp relays TCP only",
                "keep nginx for UDP, or let the server listen itself",
            );
            return None;
        }
        let Some((group, address, port)) = place(one.argument(0)) else {
            let remedy = "write an address and a port in [[listener]]";
            self.refuse(one, "this is no address to listen on", remedy);
            return None;
        };
        self.take(one);
        Some(Listen {
            directive: Some(one),
            group,
            address,
            port,
            tls: all_tls || one.has("ssl"),
            proxy: one.has("proxy_protocol"),
            default: one.has("default_server") || one.has("default"),
        })
    }

    /// Drafts the listeners of servers. `http` tells the mode.
    pub(super) fn groups(
        &mut self,
        servers: &[(&'a Directive, Vec<Listen<'a>>, Scope<'a>)],
        http: bool,
    ) -> Vec<ListenerGroup> {
        let mut groups: Vec<ListenerGroup> = Vec::new();
        let mut index = std::collections::HashMap::new();
        let mut members: Vec<Vec<&Listen<'a>>> = Vec::new();
        for (number, (_, listens, _)) in servers.iter().enumerate() {
            for listen in listens {
                let at = *index.entry(listen.group.clone()).or_insert_with(|| {
                    members.push(Vec::new());
                    groups.push(ListenerGroup {
                        group: listen.group.clone(),
                        name: String::new(),
                        tls: false,
                        servers: Vec::new(),
                        default: number,
                        is_explicit: false,
                    });
                    groups.len() - 1
                });
                let group = &mut groups[at];
                group.tls |= listen.tls;
                if group.servers.last() != Some(&number) {
                    group.servers.push(number);
                }
                if listen.default && !group.is_explicit {
                    (group.default, group.is_explicit) = (number, true);
                }
                members[at].push(listen);
            }
        }
        for (group, members) in groups.iter_mut().zip(&members) {
            let (server, _, scope) = &servers[group.servers[0]];
            group.name = self.listener(group, members, &scope.inside(server.inner()), http, server);
        }
        groups
    }

    fn listener(
        &mut self,
        group: &ListenerGroup,
        members: &[&Listen<'a>],
        scope: &Scope<'a>,
        http: bool,
        server: &'a Directive,
    ) -> String {
        let first = members[0];
        let mut addresses: Vec<&str> = Vec::new();
        for member in members {
            if !addresses.contains(&member.address.as_str()) {
                addresses.push(&member.address);
            }
        }
        // One socket takes both families.
        if let Some(both) = addresses.iter().find(|address| address.starts_with("[::]:")).copied() {
            addresses = vec![both];
        }
        let name = self.listener_name(group, first, http);
        let mut keys: DraftKeys =
            vec![("name".to_owned(), quoted(&name)), ("address".to_owned(), one_or_list(&addresses))];
        if http {
            keys.push(("mode".to_owned(), quoted("http")));
        }
        if !group.tls {
            keys.push(("tls".to_owned(), "false".to_owned()));
        }
        keys.extend(self.trusted(scope, first.directive, members.iter().any(|member| member.proxy), http));
        let item = self.item(first.directive.unwrap_or(server), keys);
        self.draft.listeners.push(item);
        name
    }

    fn listener_name(&self, group: &ListenerGroup, first: &Listen<'_>, http: bool) -> String {
        let kind = match (http, group.tls) {
            (true, true) => "https",
            (true, false) => "http",
            (false, true) => "tls",
            (false, false) => "tcp",
        };
        let usual = if group.tls { 443 } else { 80 };
        let name = match first.port {
            Some(port) if group.group.starts_with("*:") && http && port == usual => kind.to_owned(),
            Some(port) if group.group.starts_with("*:") => format!("{kind}-{port}"),
            _ => format!("{kind}-{}", values::name(&group.group)),
        };
        let is_used = |name: &str| {
            let key = ("name".to_owned(), quoted(name));
            self.draft.listeners.iter().any(|item| item.keys.contains(&key))
        };
        let mut free = name.clone();
        let mut number = 2;
        while is_used(&free) {
            free = format!("{name}-{number}");
            number += 1;
        }
        free
    }

    /// The proxies before nginx: PROXY headers, or fields.
    fn trusted(
        &mut self,
        scope: &Scope<'a>,
        listen: Option<&'a Directive>,
        proxy: bool,
        http: bool,
    ) -> DraftKeys {
        let mut keys = DraftKeys::new();
        let networks = scope.all("set_real_ip_from");
        let mut from: Vec<&str> = Vec::new();
        for one in &networks {
            let network = one.argument(0);
            if network.split('/').next().is_some_and(|address| address.parse::<IpAddr>().is_ok()) {
                self.take(one);
                from.push(network);
            } else {
                self.refuse(one, "this is no network of addresses", "write addresses in `trusted_proxies`");
            }
        }
        let header = scope.one("real_ip_header");
        let field = header.map(|one| one.argument(0).to_ascii_lowercase()).unwrap_or_default();
        if proxy {
            if from.is_empty() {
                keys.push(("accept_proxy".to_owned(), list(&["0.0.0.0/0", "::/0"])));
            } else {
                keys.push(("accept_proxy".to_owned(), list(&from)));
            }
            if let Some(listen) = listen.filter(|_| field != "proxy_protocol") {
                self.note(listen, Fate::changed("the client is the one of the PROXY header"));
            }
            if let Some(header) = header.filter(|_| field == "proxy_protocol") {
                self.take(header);
                return keys;
            }
        }
        if let Some(header) = header {
            match field.as_str() {
                "x-forwarded-for" => self.take(header),
                "x-real-ip" | "cf-connecting-ip" | "true-client-ip" => {
                    let how =
                        "the client is the one of X-Forwarded-For, which the proxy before must send too";
                    self.note(header, Fate::changed(how));
                }
                _ => self.refuse(
                    header,
                    "trusted proxies name the client in X-Forwarded-For",
                    "have them send it",
                ),
            }
        }
        if http && !from.is_empty() && !(proxy && header.is_none()) {
            keys.push(("trusted_proxies".to_owned(), list(&from)));
        }
        keys
    }
}

/// The group, the address and the port of a `listen`.
fn place(text: &str) -> Option<(String, String, Option<u16>)> {
    if let Some(path) = text.strip_prefix("unix:") {
        return path.starts_with('/').then(|| (text.to_owned(), text.to_owned(), None));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Some((format!("*:{port}"), format!("0.0.0.0:{port}"), Some(port)));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && (!host.contains(':') || host.ends_with(']')) => {
            (host, port.parse::<u16>().ok()?)
        }
        _ => (text, 80),
    };
    match host {
        "*" | "0.0.0.0" => Some((format!("*:{port}"), format!("0.0.0.0:{port}"), Some(port))),
        "[::]" => Some((format!("*:{port}"), format!("[::]:{port}"), Some(port))),
        "localhost" => place(&format!("127.0.0.1:{port}")),
        _ => {
            let address: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
            let address = std::net::SocketAddr::new(address, port).to_string();
            Some((address.clone(), address, Some(port)))
        }
    }
}
