//! `server` lines and what is said about them, as backends.

use offramp_config::model::ServerAddress;

use super::HaproxyLowering;
use super::lines::Line;
use super::proxies::ProxySection;
use super::values;
use crate::draft::{DraftKeys, inline, list, quoted};
use crate::report::Fate;
use crate::written::{self, toml_time};

/// The servers of a section, as far as they are one backend.
#[derive(Default)]
struct Pool {
    servers: Vec<String>,
    /// The `tls` of the backend, and of the first server.
    tls: Option<Option<String>>,
    protocol: Option<&'static str>,
    send_proxy: Option<&'static str>,
    max_connections: Option<u32>,
    health: DraftKeys,
    is_checked: bool,
}

/// A server while its options are read.
#[derive(Default)]
struct PoolServer {
    suffix: String,
    is_tls: bool,
    tls: DraftKeys,
}

/// Options of servers with a value that are done in another way.
const CHANGED: [(&[&str], &str); 3] = [
    (&["slowstart"], "see `eject.slow_start` of the backend"),
    (
        &[
            "observe",
            "on-error",
            "error-limit",
            "on-marked-down",
            "on-marked-up",
            "track",
            "agent-port",
            "agent-inter",
            "agent-addr",
        ],
        "see `health` and `eject` of the backend",
    ),
    (&["port", "addr", "check-sni", "check-alpn"], "servers are checked at the address that requests go to"),
];

/// Options of servers with a value that need nothing.
const WITH_VALUE: [&str; 23] = [
    "cookie",
    "id",
    "minconn",
    "maxqueue",
    "resolvers",
    "init-addr",
    "resolve-prefer",
    "fastinter",
    "downinter",
    "ciphers",
    "ciphersuites",
    "ssl-min-ver",
    "ssl-max-ver",
    "pool-max-conn",
    "pool-purge-delay",
    "pool-low-conn",
    "max-reuse",
    "log-proto",
    "source",
    "namespace",
    "redir",
    "check-proto",
    "ws",
];

impl<'a> HaproxyLowering<'a> {
    /// The keys of a route to a backend, which is drafted when it is first used; notes why there are none.
    pub(super) fn backend(&mut self, name: &str, from: &'a Line) -> Option<DraftKeys> {
        if let Some(known) = self.drafted.get(name) {
            return known.clone();
        }
        let keys = match self.backend_section(name) {
            None => {
                self.refuse(
                    from,
                    format!("there is no backend `{}`", written::name(name)),
                    "name one that exists",
                );
                None
            }
            Some(section) => self.draft_backend(&section),
        };
        if keys.is_none() {
            let fate =
                Fate::not("its backend has no server that Offramp can reach", "write [backend.NAME] by hand");
            self.note(from, fate);
        }
        self.drafted.insert(name.to_owned(), keys.clone());
        keys
    }

    fn draft_backend(&mut self, section: &ProxySection<'a>) -> Option<DraftKeys> {
        let mut pool = Pool::default();
        let defaults: Vec<&'a Line> = section.all("default-server");
        defaults.iter().for_each(|line| self.take(line));
        for line in section.own("server") {
            self.server(line, &defaults, &mut pool);
        }
        if pool.servers.is_empty() {
            return None;
        }
        let mut keys: DraftKeys = vec![("servers".to_owned(), list(&pool.servers))];
        keys.extend(self.balance(section));
        keys.extend(self.sticky(section));
        keys.extend(pool.protocol.map(|protocol| ("protocol".to_owned(), quoted(protocol))));
        keys.extend(pool.tls.flatten().map(|tls| ("tls".to_owned(), tls)));
        keys.extend(pool.max_connections.map(|count| ("max_connections".to_owned(), count.to_string())));
        if pool.is_checked {
            keys.push(("health".to_owned(), self.health(section, pool.health)));
        }
        for (words, key) in [("timeout connect", "connect_timeout"), ("timeout queue", "queue_timeout")] {
            if let Some(line) = section.one(words)
                && let Some(time) = values::bounded(line.word(2), 3_600)
            {
                self.take(line);
                keys.push((key.to_owned(), toml_time(time)));
            }
        }
        let name = written::name(section.name());
        let mut free = name.clone();
        let mut number = 2;
        while !self.draft.names.insert(free.clone()) {
            free = format!("{name}-{number}");
            number += 1;
        }
        let item = self.item(section.head(), keys);
        self.draft.backends.push((free.clone(), item));
        let mut route: DraftKeys = vec![("backend".to_owned(), quoted(&free))];
        route.extend(pool.send_proxy.map(|version| ("send_proxy".to_owned(), quoted(version))));
        if let Some(line) = section.one("timeout server")
            && let Some(time) = values::bounded(line.word(2), 86_400)
            && section.is_http
        {
            self.take(line);
            route.push(("response_timeout".to_owned(), toml_time(time)));
        }
        Some(route)
    }

    fn server(&mut self, line: &'a Line, defaults: &[&'a Line], pool: &mut Pool) {
        let address = line.word(2);
        let text = match address.strip_prefix("unix@").or(Some(address).filter(|text| text.starts_with('/')))
        {
            Some(path) => format!("unix:{path}"),
            None => address.trim_start_matches("ipv4@").trim_start_matches("ipv6@").to_owned(),
        };
        if let Err(problem) = text.parse::<ServerAddress>() {
            let remedy = problem.remedy().unwrap_or("write it in `servers`").to_owned();
            self.refuse(line, problem.message(), remedy);
            return;
        }
        self.take(line);
        let mut server = PoolServer::default();
        for defaults in defaults {
            self.options(line, defaults.rest(1), &mut server, pool);
        }
        self.options(line, line.rest(3), &mut server, pool);
        let tls = server
            .is_tls
            .then(|| if server.tls.is_empty() { "true".to_owned() } else { inline(&server.tls) });
        match &pool.tls {
            Some(first) if *first != tls => {
                let remedy = "give servers with other TLS a backend of their own";
                self.refuse(line, "the servers of a backend have the same TLS", remedy);
                return;
            }
            _ => pool.tls = Some(tls),
        }
        pool.servers.push(format!("{text}{}", server.suffix));
    }

    fn options(&mut self, line: &'a Line, words: &[String], server: &mut PoolServer, pool: &mut Pool) {
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word {
                "check" => pool.is_checked = true,
                "backup" => server.suffix.push_str(" backup"),
                "disabled" => server.suffix.push_str(" disabled"),
                "ssl" => server.is_tls = true,
                "send-proxy" => pool.send_proxy = Some("v1"),
                "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                    pool.send_proxy = Some("v2");
                }
                "weight" => match value().parse::<u16>() {
                    Ok(0) => server.suffix.push_str(" drain"),
                    Ok(1) => {}
                    Ok(weight) => server.suffix.push_str(&format!(" weight={}", weight.min(256))),
                    Err(_) => self.refuse(line, "this is no weight", "write a number from 1 to 256"),
                },
                "maxconn" => self.most_connections(line, value(), pool),
                "inter" | "rise" | "fall" => put_health(&mut pool.health, word, value()),
                "proto" | "alpn" => self.protocol(line, value(), pool),
                "verify" | "ca-file" | "crt" | "crl-file" | "verifyhost" | "sni" => {
                    self.tls_option(line, word, value(), server);
                }
                _ => {
                    let changed = CHANGED.iter().find(|(names, _)| names.contains(&word));
                    if let Some((_, how)) = changed {
                        self.note(line, Fate::changed(*how));
                    }
                    if changed.is_some() || WITH_VALUE.contains(&word) {
                        value();
                    }
                }
            }
        }
    }

    fn most_connections(&mut self, line: &'a Line, value: &str, pool: &mut Pool) {
        let count = value.parse::<u32>().ok().filter(|count| *count > 0);
        if pool.max_connections.zip(count).is_some_and(|(known, count)| known != count) {
            let how = "`max_connections` is one for all servers of a backend: the least one";
            self.note(line, Fate::changed(how));
        }
        pool.max_connections = pool.max_connections.into_iter().chain(count).min();
    }

    fn protocol(&mut self, line: &'a Line, value: &str, pool: &mut Pool) {
        match value {
            "fcgi" => {
                let remedy = "let the application serve HTTP, or keep a web server for it";
                self.refuse(line, "Offramp speaks HTTP to servers", remedy);
            }
            "h2" => pool.protocol = Some("h2"),
            list if list.starts_with("h2,") => pool.protocol = Some("auto"),
            _ => {}
        }
    }

    fn tls_option(&mut self, line: &'a Line, word: &str, value: &str, server: &mut PoolServer) {
        match word {
            "verify" if value == "none" => {
                let how = "the certificates of servers are verified; for a certificate of one's own see `tls.verify` of the backend";
                self.note(line, Fate::changed(how));
            }
            "ca-file" if value != "@system-ca" => {
                server.tls.push(("verify".to_owned(), self.trusted(value)));
            }
            "crt" => {
                let path = self.crt_base.join(value);
                server.tls.push(("cert".to_owned(), quoted(&path.to_string_lossy())));
            }
            "crl-file" => server.tls.push(("crl".to_owned(), self.trusted(value))),
            "verifyhost" => server.tls.push(("name".to_owned(), quoted(value))),
            "sni" => match value.strip_prefix("str(").and_then(|name| name.strip_suffix(')')) {
                Some(name) => server.tls.push(("sni".to_owned(), quoted(name))),
                None => {
                    self.note(line, Fate::changed("the name that is sent (SNI) is that of the server"));
                }
            },
            _ => {}
        }
    }

    fn balance(&mut self, section: &ProxySection<'a>) -> Option<(String, String)> {
        let line = section.one("balance")?;
        self.take(line);
        let way = line.word(1);
        let value = match way {
            "roundrobin" | "static-rr" => return None,
            "leastconn" => "least_conn".to_owned(),
            "source" => "hash:client".to_owned(),
            "random" => "two_choices".to_owned(),
            way => match way.strip_prefix("hdr(").and_then(|name| name.strip_suffix(')')) {
                Some(name) => format!("hash:header:{name}"),
                None => {
                    let how = "servers are selected in turn, by load, or by a hash of the client's address, a cookie or a field";
                    self.note(line, Fate::changed(how));
                    return None;
                }
            },
        };
        Some(("balance".to_owned(), quoted(&value)))
    }

    fn sticky(&mut self, section: &ProxySection<'a>) -> Option<(String, String)> {
        let line = section.one("cookie")?;
        self.take(line);
        if line.word(2) != "insert" {
            let how = "the cookie that keeps a client with its server is Offramp's own";
            self.note(line, Fate::changed(how));
        }
        Some(("sticky_cookie".to_owned(), quoted(line.word(1))))
    }

    /// The `health` of a backend with checked servers.
    fn health(&mut self, section: &ProxySection<'a>, times: DraftKeys) -> String {
        let mut keys = DraftKeys::new();
        let mut path = None;
        if let Some(line) = section.one("option httpchk") {
            self.take(line);
            path = line.rest(2).iter().find(|word| word.starts_with('/')).map(String::as_str).or(Some("/"));
            let old = line.rest(2).iter().find_map(|word| word.split("Host:").nth(1));
            keys.extend(old.map(|host| ("host".to_owned(), quoted(host.trim()))));
        }
        for line in section.all("http-check") {
            let after = |word: &str| {
                line.words
                    .iter()
                    .position(|one| one == word)
                    .map(|at| line.word(at + 1))
                    .filter(|one| !one.is_empty())
            };
            match line.word(1) {
                "send" => {
                    self.take(line);
                    path = after("uri").or(path);
                    if line.words.iter().any(|word| word.eq_ignore_ascii_case("host")) {
                        let at = line.words.iter().position(|word| word.eq_ignore_ascii_case("host"));
                        keys.extend(at.map(|at| ("host".to_owned(), quoted(line.word(at + 1)))));
                    }
                }
                "expect" => {
                    let statuses = after("status").map(|text| text.split(',').collect::<Vec<_>>());
                    let plain = statuses.filter(|all| all.iter().all(|one| one.parse::<u16>().is_ok()));
                    match plain {
                        Some(all) => {
                            self.take(line);
                            keys.push(("status".to_owned(), format!("[{}]", all.join(", "))));
                        }
                        None => self.note(line, Fate::changed("a status from 200 to 399 is expected")),
                    }
                }
                _ => {}
            }
        }
        if let Some(path) = path {
            keys.insert(0, ("path".to_owned(), quoted(path)));
        } else {
            keys.clear();
        }
        keys.extend(times);
        if let Some(line) = section.one("timeout check")
            && let Some(time) = values::bounded(line.word(2), 3_600)
        {
            self.take(line);
            keys.push(("timeout".to_owned(), toml_time(time)));
        }
        if keys.is_empty() { "{}".to_owned() } else { inline(&keys) }
    }

    /// The `compress` of routes to a backend.
    pub(super) fn compression(&mut self, section: &ProxySection<'a>, name: &str) -> DraftKeys {
        let backend = self.backend_section(name);
        let one = |words: &str| {
            section.one(words).or_else(|| backend.as_ref().and_then(|backend| backend.one(words)))
        };
        let Some(line) = one("compression algo") else { return DraftKeys::new() };
        self.note(line, Fate::changed("clients that decode zstd or Brotli get that"));
        let types = one("compression type");
        let value = match types {
            Some(types) => {
                self.take(types);
                inline(&[("types".to_owned(), list(types.rest(2)))])
            }
            None => "true".to_owned(),
        };
        vec![("compress".to_owned(), value)]
    }
}

fn put_health(health: &mut DraftKeys, word: &str, value: &str) {
    let written = match word {
        "inter" => values::bounded(value, 86_400).map(toml_time),
        _ => {
            value.parse::<u8>().ok().filter(|count| (1..=100).contains(count)).map(|count| count.to_string())
        }
    };
    let key = if word == "inter" { "interval" } else { word };
    if let Some(written) = written
        && !health.iter().any(|(known, _)| known == key)
    {
        health.push((key.to_owned(), written));
    }
}
