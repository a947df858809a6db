//! Directives of nginx about the process: limits, logs, workers.

use std::time::Duration;

use super::tree::Directive;
use super::{Lowering, NOWHERE, Scope, values};
use crate::draft::quoted;
use crate::report::Fate;

/// The times of the `http` block that become `[limits]`: directive, key, and the greatest in seconds.
const TIMES: [(&str, &str, u64); 3] = [
    ("client_header_timeout", "request_header_timeout", 3_600),
    ("keepalive_timeout", "keepalive_timeout", 86_400),
    ("keepalive_time", "max_age", 2_592_000),
];

/// The body that nginx takes if nothing is said.
pub(super) const BODY: u64 = 1 << 20;

impl<'a> Lowering<'a> {
    /// Lowers what is not about a server; last, because routes have to be known.
    pub(super) fn process(&mut self, top: &Scope<'a>, https: &[Scope<'a>]) {
        if let Some(one) = top.one("worker_processes") {
            self.take(one);
            if let Ok(count @ 1..=1024) = one.argument(0).parse::<u16>() {
                self.set("", "workers", count.to_string(), one);
            }
        }
        if let Some(one) = top.one("worker_shutdown_timeout")
            && let Some(time) = values::time(one.argument(0)).filter(|time| time.as_secs() <= 86_400)
        {
            self.take(one);
            self.set("limits", "drain_timeout", values::toml_time(time), one);
        }
        self.error_logs(top, https);
        for scope in https {
            self.limits(scope);
            self.access_logs(scope);
        }
        let is_relay = |key: &(String, String)| key.0 == "server" || key.0 == "backend";
        let relays = self
            .draft
            .routes
            .iter()
            .any(|route| route.path.is_some() && route.item.keys.iter().any(is_relay));
        if relays && self.max_body > 0 {
            let from = https.iter().find_map(|scope| scope.own("client_max_body_size").pop());
            let place = from.map_or(NOWHERE, |one| Some(one.at.clone()));
            self.draft.set("defaults.route", "max_body", values::toml_size(self.max_body), place);
        }
    }

    /// The size of bodies that the `http` block sets.
    pub(super) fn default_body(&mut self, https: &[Scope<'a>]) {
        let one = https.iter().find_map(|scope| scope.own("client_max_body_size").pop());
        self.max_body = BODY;
        if let Some((one, size)) = one.and_then(|one| values::size(one.argument(0)).map(|size| (one, size))) {
            self.take(one);
            self.max_body = size;
        }
    }

    fn limits(&mut self, scope: &Scope<'a>) {
        for (name, key, most) in TIMES {
            let here = scope.own(name).pop();
            let inner = scope
                .own("server")
                .into_iter()
                .flat_map(super::tree::Directive::inner)
                .filter(|one| one.name == name);
            for one in inner {
                self.note(one, Fate::changed("[limits] are for all servers, and come from the `http` block"));
            }
            let Some(one) = here else { continue };
            match values::time(one.argument(0)) {
                Some(time) if !time.is_zero() => {
                    self.take(one);
                    let time = time.min(Duration::from_secs(most));
                    self.set("limits", key, values::toml_time(time), one);
                }
                _ => {
                    self.note(one, Fate::changed("connections are kept for `keepalive_timeout` of [limits]"));
                }
            }
        }
        if let Some(one) = scope.own("client_body_timeout").pop() {
            self.fates
                .entry(one.id)
                .or_insert_with(|| Fate::changed("it is written in the routes to servers"));
        }
        if let Some(one) = scope.one("large_client_header_buffers") {
            let count = one.argument(0).parse::<u64>().ok();
            match count.zip(values::size(one.argument(1))) {
                Some((count, size)) => {
                    self.take(one);
                    let size = count.saturating_mul(size).clamp(1 << 10, 1 << 20);
                    self.set("limits", "request_header_size", values::toml_size(size), one);
                }
                None => {
                    self.refuse(one, "this is no count and size", "write `request_header_size` of [limits]");
                }
            }
        }
        if let Some(one) = scope.own("http2_max_concurrent_streams").pop()
            && let Ok(count @ 1..=10_000) = one.argument(0).parse::<u32>()
        {
            self.take(one);
            self.set("limits", "streams", count.to_string(), one);
        }
        self.rates(scope);
    }

    /// `limit_req` and `limit_conn` of the `http` block, by the client's address.
    fn rates(&mut self, scope: &Scope<'a>) {
        let is_client = |zone: &Directive| matches!(zone.argument(0), "$binary_remote_addr" | "$remote_addr");
        let named = |zones: &[&'a Directive], name: &str| {
            let is = |zone: &&&'a Directive| {
                zone.arguments.iter().any(|word| {
                    word.strip_prefix("zone=").is_some_and(|zone| zone.split(':').next() == Some(name))
                })
            };
            zones.iter().find(is).copied()
        };
        let zones = scope.own("limit_req_zone");
        for one in scope.own("limit_req") {
            let name = one.arguments.iter().find_map(|word| word.strip_prefix("zone=")).unwrap_or_default();
            let zone = named(&zones, name).filter(|zone| is_client(zone));
            let rate =
                zone.and_then(|zone| zone.arguments.iter().find_map(|word| word.strip_prefix("rate=")));
            let Some((zone, rate)) = zone.zip(rate.and_then(rate_of)) else { continue };
            self.take(zone);
            let how = "a client that is too fast gets 429, and its requests do not wait";
            self.note(one, Fate::changed(how));
            self.set("limits", "requests_per_client", quoted(&rate), one);
        }
        let zones = scope.own("limit_conn_zone");
        for one in scope.own("limit_conn") {
            let zone = named(&zones, one.argument(0)).filter(|zone| is_client(zone));
            let Some((_, count)) = zone.zip(one.argument(1).parse::<u32>().ok()) else { continue };
            let how = "connections are counted, and one of HTTP/2 has many requests";
            self.note(one, Fate::changed(how));
            self.set("limits", "connections_per_client", count.max(1).to_string(), one);
        }
        let inner: Vec<&'a Directive> =
            scope.own("server").into_iter().flat_map(|server| deep(server.inner())).collect();
        let (mut refused, all) = (Vec::new(), ["limit_req", "limit_conn"]);
        refused.extend(inner.into_iter().filter(|one| all.contains(&one.name.as_str())));
        for one in refused {
            let remedy = "`requests_per_client` and `connections_per_client` of [limits] are for all routes";
            self.refuse(one, "routes have no limit of their own", remedy);
        }
        for zone in [scope.own("limit_req_zone"), scope.own("limit_conn_zone")].concat() {
            self.fates.entry(zone.id).or_insert(Fate::Taken);
        }
    }

    fn access_logs(&mut self, scope: &Scope<'a>) {
        let mut logs: Vec<&'a Directive> = scope.own("access_log");
        let inner = scope.own("server").into_iter().flat_map(|server| server.inner().iter());
        logs.extend(inner.filter(|one| one.name == "access_log"));
        let mut first: Option<&str> = None;
        for one in logs {
            let path = one.argument(0);
            match first {
                _ if self.fates.contains_key(&one.id) => {}
                None if path == "off" => {
                    if scope.own("access_log").iter().any(|own| own.id == one.id) {
                        self.take(one);
                        self.set("access_log", "output", quoted("none"), one);
                        first = Some(path);
                    } else {
                        self.note(one, Fate::changed("one log is for all servers"));
                    }
                }
                None if path.starts_with("syslog:") => {
                    self.note(one, Fate::changed("events go to the syslog of this machine"));
                    self.set("access_log", "output", quoted("syslog"), one);
                    first = Some(path);
                }
                None if path.contains('$') => {
                    self.refuse(one, "the file is fixed", "write `output` in [access_log]");
                }
                None => {
                    let format = one.argument(1);
                    if format.is_empty() || format == "combined" {
                        self.take(one);
                    } else {
                        let how = "the format is `combined`; others of Offramp are `json` and `vhost`";
                        self.note(one, Fate::changed(how));
                    }
                    let output = if path == "/dev/stdout" { quoted("stdout") } else { self.path(path) };
                    self.set("access_log", "output", output, one);
                    self.set("access_log", "format", quoted("combined"), one);
                    first = Some(path);
                }
                Some(known) if known == path => self.take(one),
                Some(_) => self.note(
                    one,
                    Fate::changed("one log is for all servers; `vhost` has the host after each line"),
                ),
            }
        }
    }

    fn error_logs(&mut self, top: &Scope<'a>, https: &[Scope<'a>]) {
        let mut first: Option<&str> = None;
        let scopes = std::iter::once(top).chain(https);
        let mut logs: Vec<&'a Directive> = scopes.flat_map(|scope| scope.own("error_log")).collect();
        let servers =
            https.iter().flat_map(|scope| scope.own("server")).flat_map(|server| deep(server.inner()));
        logs.extend(servers.filter(|one| one.name == "error_log"));
        for one in logs {
            let path = one.argument(0);
            self.take(one);
            if first.is_some_and(|known| known != path) {
                self.note(one, Fate::changed("[log] is one for the whole process"));
                continue;
            }
            first = Some(path);
            match path {
                "stderr" | "/dev/stderr" | "off" | "/dev/null" => {}
                path if path.starts_with("syslog:") => self.set("log", "output", quoted("syslog"), one),
                path => {
                    let path = self.path(path);
                    self.set("log", "output", path, one);
                }
            }
            match one.argument(1) {
                "debug" => self.set("log", "level", quoted("debug"), one),
                "" | "info" => {}
                _ => self.note(one, Fate::changed("the level is `info`, which writes little")),
            }
        }
    }
}

/// A block, and the blocks within.
fn deep(block: &[Directive]) -> Vec<&Directive> {
    let mut found = Vec::new();
    for one in block {
        found.push(one);
        found.extend(deep(one.inner()));
    }
    found
}

/// `10r/s` as `10/s`.
fn rate_of(text: &str) -> Option<String> {
    let (count, unit) = text.split_once("r/")?;
    let count: u32 = count.parse().ok()?;
    matches!(unit, "s" | "m").then(|| format!("{count}/{unit}"))
}
