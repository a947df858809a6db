//! `proxy_pass` and `upstream`: servers and backends.

use offramp_config::model::ServerAddress;

use super::tree::Directive;
use super::values::{self, Piece, pieces};
use super::{Lowering, Scope};
use crate::draft::{DraftKeys, inline, list, quoted};
use crate::report::Fate;

/// A URL of `proxy_pass` in its parts.
#[derive(Debug, PartialEq, Eq)]
struct PassUrl {
    secure: bool,
    grpc: bool,
    /// A host with a port, the name of an upstream, or `unix:` and a path.
    authority: String,
    uri: Option<String>,
}

impl<'a> Lowering<'a> {
    /// The keys that name the servers of a `proxy_pass` or `grpc_pass`, and the URI of it. Notes why there are none.
    pub(super) fn server_keys(
        &mut self,
        scope: &Scope<'a>,
        pass: &'a Directive,
    ) -> Option<(DraftKeys, Option<String>)> {
        let text = match self.constant(scope, pass.argument(0)) {
            Ok(text) => text,
            Err(name) => {
                let why = format!("servers are fixed, and ${name} is not");
                self.refuse(pass, why, "write a route for each value");
                return None;
            }
        };
        let Some(url) = url(&text, &pass.name) else {
            self.refuse(pass, "this is no address of a server", "write `server` in the route");
            return None;
        };
        if let Some(upstream) = self.upstreams.get(url.authority.as_str()).copied() {
            self.take(pass);
            let name = self.upstream(scope, upstream, &url, pass)?;
            return Some((vec![("backend".to_owned(), quoted(&name))], url.uri));
        }
        let address = with_port(&url.authority, if url.secure { 443 } else { 80 });
        if let Err(problem) = address.parse::<ServerAddress>() {
            let remedy = problem.remedy().unwrap_or("write `server` in the route").to_owned();
            self.refuse(pass, problem.message(), remedy);
            return None;
        }
        self.take(pass);
        if !url.secure && !url.grpc {
            return Some((vec![("server".to_owned(), quoted(&address))], url.uri));
        }
        let mut keys: DraftKeys = vec![("servers".to_owned(), list(&[address]))];
        self.protocol(scope, &url, &mut keys, pass);
        let name = self.backend(&values::name(&url.authority), keys, pass);
        Some((vec![("backend".to_owned(), quoted(&name))], url.uri))
    }

    /// A text with the constants of `set`; an error names a variable that has none.
    fn constant(&mut self, scope: &Scope<'a>, text: &str) -> Result<String, String> {
        let mut out = String::new();
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Variable("request_uri" | "uri") => {}
                Piece::Variable(name) => {
                    let local = scope.blocks.iter().rev();
                    let mut sets = local.flat_map(|block| block.named("set")).copied();
                    let set = sets.find(|one| one.argument(0).trim_start_matches('$') == name);
                    let set = set.or_else(|| self.constants.get(name).copied());
                    match set.filter(|set| !set.argument(1).contains('$')) {
                        Some(set) => {
                            self.take(set);
                            out.push_str(set.argument(1));
                        }
                        None => return Err(name.to_owned()),
                    }
                }
            }
        }
        Ok(out)
    }

    /// The backend of an upstream, drafted when it is first used in this way.
    fn upstream(
        &mut self,
        scope: &Scope<'a>,
        upstream: &'a Directive,
        url: &PassUrl,
        pass: &'a Directive,
    ) -> Option<String> {
        let Some(mut keys) = self.upstream_keys(upstream, if url.secure { 443 } else { 80 }) else {
            self.refuse(pass, "its upstream is not taken", "see there");
            return None;
        };
        self.protocol(scope, url, &mut keys, pass);
        Some(self.backend(&values::name(upstream.argument(0)), keys, upstream))
    }

    /// The servers of an upstream, and how one is selected.
    pub(super) fn upstream_keys(&mut self, upstream: &'a Directive, port: u16) -> Option<DraftKeys> {
        self.take(upstream);
        let mut keys = DraftKeys::new();
        let mut servers = Vec::new();
        for one in upstream.inner() {
            match one.name.as_str() {
                "server" => servers.extend(self.member(one, port)),
                _ => self.balance(one, &mut keys),
            }
        }
        if servers.is_empty() {
            self.refuse(upstream, "it has no server that Offramp can reach", "write [backend.NAME] by hand");
            return None;
        }
        keys.insert(0, ("servers".to_owned(), list(&servers)));
        Some(keys)
    }

    fn member(&mut self, one: &'a Directive, port: u16) -> Option<String> {
        let mut text = with_port(one.argument(0), port);
        if let Err(problem) = text.parse::<ServerAddress>() {
            let remedy = problem.remedy().unwrap_or("write it in `servers`").to_owned();
            self.refuse(one, problem.message(), remedy);
            return None;
        }
        self.take(one);
        for option in one.arguments.iter().skip(1) {
            match option.split_once('=').unwrap_or((option, "")) {
                ("weight", weight) => match weight.parse::<u16>() {
                    Ok(1) => {}
                    Ok(weight) => text.push_str(&format!(" weight={}", weight.clamp(1, 256))),
                    Err(_) => self.refuse(one, "this is no weight", "write a number from 1 to 256"),
                },
                ("backup", _) => text.push_str(" backup"),
                ("down", _) => text.push_str(" disabled"),
                ("max_fails" | "fail_timeout", _) => {
                    let how =
                        "a server that cannot be connected is skipped for a moment; see `eject` for more";
                    self.note(one, Fate::changed(how));
                }
                ("resolve", _) => {}
                ("slow_start", _) => self.note(one, Fate::changed("see `eject.slow_start` of the backend")),
                ("max_conns", _) => {
                    self.note(
                        one,
                        Fate::changed("see `max_connections` of the backend, one for each server"),
                    );
                }
                _ => self.refuse(one, format!("servers have no option `{option}`"), "leave it out"),
            }
        }
        Some(text)
    }

    fn balance(&mut self, one: &'a Directive, keys: &mut DraftKeys) {
        let mut put = |key: &str, value: String| {
            if !keys.iter().any(|(known, _)| known == key) {
                keys.push((key.to_owned(), value));
            }
        };
        self.fates.entry(one.id).or_insert(Fate::Taken);
        match (one.name.as_str(), one.argument(0)) {
            ("least_conn", _) => put("balance", quoted("least_conn")),
            ("ip_hash", _) => put("balance", quoted("hash:client")),
            ("random", _) => put("balance", quoted("two_choices")),
            ("hash", "$remote_addr" | "$binary_remote_addr") => put("balance", quoted("hash:client")),
            ("hash", by) => match (by.strip_prefix("$cookie_"), by.strip_prefix("$http_")) {
                (Some(name), _) => put("balance", quoted(&format!("hash:cookie:{name}"))),
                (_, Some(name)) => put("balance", quoted(&format!("hash:header:{}", name.replace('_', "-")))),
                _ => {
                    let how =
                        "servers are selected by a hash of the client's address, a cookie or a field only";
                    self.note(one, Fate::changed(how));
                    put("balance", quoted("hash:client"));
                }
            },
            ("sticky", "cookie") => put("sticky_cookie", quoted(one.argument(1))),
            ("keepalive", count) => match count.parse::<u32>() {
                Ok(count) if count <= 100_000 => put("idle_connections", count.to_string()),
                _ => self.refuse(one, "this is no count", "write `idle_connections`"),
            },
            ("keepalive_timeout", time) => match values::time(time) {
                Some(time) => put("idle_timeout", values::toml_time(time)),
                None => self.refuse(one, "this is no time", "write `idle_timeout`"),
            },
            ("zone" | "resolver" | "resolver_timeout", _) => {}
            ("keepalive_requests", _) => {
                self.note(one, Fate::changed("a connection has no greatest number of requests"));
            }
            ("health_check", _) => {
                put("health", "{ path = \"/\" }".to_owned());
                self.note(one, Fate::changed("the path is / here; see `health` of a backend for the rest"));
            }
            _ => {
                self.fates.remove(&one.id);
            }
        }
    }

    /// TLS and the protocol to the servers.
    fn protocol(&mut self, scope: &Scope<'a>, url: &PassUrl, keys: &mut DraftKeys, pass: &'a Directive) {
        if url.grpc {
            keys.push(("protocol".to_owned(), quoted("h2")));
        }
        if url.secure {
            let tls = self.server_tls(scope, pass);
            keys.push(("tls".to_owned(), tls));
        }
    }

    /// The `tls` of a backend.
    pub(super) fn server_tls(&mut self, scope: &Scope<'a>, pass: &'a Directive) -> String {
        let mut keys = DraftKeys::new();
        let verify = scope.one("proxy_ssl_verify");
        if verify.is_none_or(|verify| verify.argument(0) != "on") {
            let how = "the certificates of servers are verified; nginx does not do so unless told. For a certificate of one's own see `tls.verify` of the backend";
            self.note(verify.unwrap_or(pass), Fate::changed(how));
        } else if let Some(verify) = verify {
            self.take(verify);
        }
        for (name, key) in [
            ("proxy_ssl_trusted_certificate", "verify"),
            ("proxy_ssl_certificate", "cert"),
            ("proxy_ssl_certificate_key", "key"),
            ("proxy_ssl_crl", "crl"),
        ] {
            if let Some(one) = scope.one(name).filter(|one| !one.argument(0).contains('$')) {
                self.take(one);
                keys.push((key.to_owned(), self.path(one.argument(0))));
            }
        }
        if let Some(one) = scope.one("proxy_ssl_name").filter(|one| !one.argument(0).contains('$')) {
            self.take(one);
            keys.push(("name".to_owned(), quoted(one.argument(0))));
        } else if let Some(one) = scope.one("proxy_ssl_name") {
            self.refuse(one, "the name of a backend is fixed", "write `tls.name` in [backend.NAME]");
        }
        if keys.is_empty() { "true".to_owned() } else { inline(&keys) }
    }

    /// Adds a backend under a free name, or finds the equal one.
    pub(super) fn backend(&mut self, wish: &str, keys: DraftKeys, from: &'a Directive) -> String {
        let text = format!("{wish} {}", inline(&keys));
        if let Some(name) = self.backends.get(&text) {
            return name.clone();
        }
        let mut name = wish.to_owned();
        let mut number = 2;
        while !self.draft.names.insert(name.clone()) {
            name = format!("{wish}-{number}");
            number += 1;
        }
        self.backends.insert(text, name.clone());
        let item = self.item(from, keys);
        self.draft.backends.push((name.clone(), item));
        name
    }
}

/// The parts of a URL.
fn url(text: &str, directive: &str) -> Option<PassUrl> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let (secure, grpc) = match (scheme, directive) {
        ("http", "proxy_pass") => (false, false),
        ("https", "proxy_pass") => (true, false),
        ("grpc" | "", "grpc_pass") => (false, true),
        ("grpcs", "grpc_pass") => (true, true),
        _ => return None,
    };
    if let Some(rest) = rest.strip_prefix("unix:") {
        let (path, uri) = match rest.split_once(':') {
            Some((path, uri)) => (path, Some(uri.to_owned()).filter(|uri| !uri.is_empty())),
            None => (rest, None),
        };
        return Some(PassUrl { secure, grpc, authority: format!("unix:{path}"), uri });
    }
    let (authority, uri) = match rest.find('/') {
        Some(at) => (&rest[..at], Some(rest[at..].to_owned())),
        None => (rest, None),
    };
    let is_bare = !authority.is_empty() && !authority.contains(['?', '@']);
    is_bare.then(|| PassUrl { secure, grpc, authority: authority.to_owned(), uri })
}

/// An address with its port.
pub(super) fn with_port(authority: &str, port: u16) -> String {
    let has_port = authority.rsplit_once(':').is_some_and(|(host, port)| {
        (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok()
    });
    if authority.starts_with("unix:") || has_port {
        authority.to_owned()
    } else {
        format!("{authority}:{port}")
    }
}
