//! `bind`: listeners, their certificates, and client certificates.

use super::HaproxyLowering;
use super::lines::Line;
use super::proxies::ProxySection;
use crate::draft::{DraftItem, DraftKeys, inline, list, one_or_list, quoted};
use crate::report::Fate;
use crate::written;

/// A listener of the result.
#[derive(Clone, Debug)]
pub(super) struct BoundListener {
    pub(super) name: String,
    pub(super) tls: bool,
    pub(super) port: Option<u16>,
    /// Settings that all of its routes have: `client_auth`.
    pub(super) route_keys: DraftKeys,
}

/// A `bind` line as it is read.
struct Bind<'a> {
    line: &'a Line,
    addresses: Vec<String>,
    tls: bool,
    proxy: bool,
    route_keys: DraftKeys,
}

impl<'a> HaproxyLowering<'a> {
    /// Drafts the listeners of a section.
    pub(super) fn binds(&mut self, section: &ProxySection<'a>) -> Vec<BoundListener> {
        let mut binds: Vec<Bind<'a>> = Vec::new();
        for line in section.own("bind") {
            binds.extend(self.bind(line));
        }
        // `frontend NAME ADDRESS:PORT` is the old way to bind.
        let old = section.head().word(2);
        if old.contains(':')
            && let Some(address) = address(old)
        {
            let line = section.head();
            binds.push(Bind {
                line,
                addresses: vec![address],
                tls: false,
                proxy: false,
                route_keys: DraftKeys::new(),
            });
        }
        let both: Vec<String> = binds
            .iter()
            .flat_map(|bind| &bind.addresses)
            .filter(|one| one.starts_with("[::]:"))
            .cloned()
            .collect();
        let mut listeners: Vec<BoundListener> = Vec::new();
        for mut bind in binds {
            // One socket takes both families.
            bind.addresses.retain(|one| {
                one.strip_prefix("0.0.0.0:").is_none_or(|port| !both.contains(&format!("[::]:{port}")))
            });
            if !bind.addresses.is_empty() {
                listeners.push(self.listener(section, bind));
            }
        }
        listeners
    }

    fn listener(&mut self, section: &ProxySection<'a>, bind: Bind<'a>) -> BoundListener {
        let wish = written::name(section.name());
        let mut name = wish.clone();
        let mut number = 2;
        while !self.listener_names.insert(name.clone()) {
            name = format!("{wish}-{number}");
            number += 1;
        }
        let mut keys: DraftKeys =
            vec![("name".to_owned(), quoted(&name)), ("address".to_owned(), one_or_list(&bind.addresses))];
        if section.is_http {
            keys.push(("mode".to_owned(), quoted("http")));
        }
        if !bind.tls {
            keys.push(("tls".to_owned(), "false".to_owned()));
        }
        if bind.proxy {
            keys.push(("accept_proxy".to_owned(), list(&["0.0.0.0/0", "::/0"])));
        }
        let item: DraftItem = self.item(bind.line, keys);
        self.draft.listeners.push(item);
        let port = bind.addresses[0].rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        BoundListener { name, tls: bind.tls, port, route_keys: bind.route_keys }
    }

    fn bind(&mut self, line: &'a Line) -> Option<Bind<'a>> {
        let mut addresses = Vec::new();
        for text in line.word(1).split(',') {
            match address(text) {
                Some(address) => addresses.push(address),
                None => {
                    let why = if text.starts_with("quic") {
                        "Offramp speaks no HTTP/3"
                    } else {
                        "this is no address with one port"
                    };
                    self.refuse(line, why, "write `address` in [[listener]]");
                    return None;
                }
            }
        }
        self.take(line);
        let mut bind = Bind { line, addresses, tls: false, proxy: false, route_keys: DraftKeys::new() };
        let (mut ca, mut mode, mut crl) = (None, "required", None);
        let mut certificates = Vec::new();
        let mut words = line.rest(2).iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_default();
            match word {
                "ssl" => bind.tls = true,
                "crt" => certificates.push(value()),
                "ca-file" | "ca-verify-file" => ca = Some(value()),
                "crl-file" => crl = Some(value()),
                "verify" => mode = value(),
                "accept-proxy" => bind.proxy = true,
                "ssl-min-ver" => self.oldest_version(line, value()),
                "strict-sni" => self.set("tls", "unknown_name", quoted("refuse"), line),
                "no-tls-tickets" => self.set("tls", "tickets", "0".to_owned(), line),
                "crt-list" => {
                    value();
                    let remedy = "name the certificates in [[certificate]]";
                    self.refuse(line, "lists of certificates are not read", remedy);
                }
                "ciphers" | "ciphersuites" | "curves" | "ecdhe" | "ssl-max-ver" => {
                    value();
                    self.note(
                        line,
                        Fate::changed("Offramp offers AEAD suites only, in its own order; see [tls]"),
                    );
                }
                "alpn" | "npn" | "maxconn" | "backlog" | "name" | "interface" | "mode" | "user" | "group"
                | "uid" | "gid" | "nice" | "process" | "thread" | "shards" | "level" | "id" | "mss"
                | "proto" => {
                    value();
                }
                _ => {}
            }
        }
        if bind.tls {
            self.certificates(line, &certificates);
        }
        if let Some(ca) = ca.filter(|_| mode != "none" && bind.tls) {
            let mut keys: DraftKeys = vec![("ca".to_owned(), self.trusted(ca))];
            if mode == "optional" {
                keys.push(("mode".to_owned(), quoted("optional")));
            }
            keys.extend(crl.map(|crl| ("crl".to_owned(), self.trusted(crl))));
            bind.route_keys.push(("client_auth".to_owned(), inline(&keys)));
        }
        Some(bind)
    }

    /// The oldest version of TLS.
    pub(super) fn oldest_version(&mut self, line: &'a Line, version: &str) {
        match version {
            "TLSv1.3" => self.set("tls", "policy", quoted("modern"), line),
            "TLSv1.2" => {}
            _ => self.note(line, Fate::changed("TLS before 1.2 is not spoken")),
        }
    }

    fn certificates(&mut self, line: &'a Line, paths: &[&str]) {
        if paths.is_empty() {
            self.note(line, Fate::changed("it names no certificate: its hosts get those of the local CA"));
        }
        for path in paths {
            let file = path.rsplit('/').next().unwrap_or_default();
            let is_folder = path.ends_with('/') || !file.contains('.');
            let key = if is_folder { "directory" } else { "cert" };
            if is_folder {
                self.note(
                    line,
                    Fate::changed("a folder is read as `NAME.pem` with chain and key, or in pairs"),
                );
            }
            let path = self.crt_base.join(path);
            let pair: DraftKeys = vec![(key.to_owned(), quoted(&path.to_string_lossy()))];
            if self.pairs.insert(pair.clone()) {
                let item = self.item(line, pair);
                self.draft.certificates.push(item);
            }
        }
    }

    /// The path of a file with authorities, in TOML.
    pub(super) fn trusted(&self, path: &str) -> String {
        quoted(&self.ca_base.join(path).to_string_lossy())
    }
}

/// An address in the words of Offramp.
fn address(text: &str) -> Option<String> {
    let text = text.strip_prefix("ipv4@").unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or(Some(text).filter(|text| text.starts_with('/'))) {
        return path.starts_with('/').then(|| format!("unix:{path}"));
    }
    let (host, port) = match text.strip_prefix("ipv6@") {
        Some(rest) => rest.rsplit_once(':')?,
        None => text.rsplit_once(':')?,
    };
    let port: u16 = port.parse().ok()?;
    match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "*" | "0.0.0.0" => {
            Some(format!("{}:{port}", if text.starts_with("ipv6@") { "[::]" } else { "0.0.0.0" }))
        }
        "::" => Some(format!("[::]:{port}")),
        "localhost" => Some(format!("127.0.0.1:{port}")),
        host => {
            let address: std::net::IpAddr = host.parse().ok()?;
            Some(std::net::SocketAddr::new(address, port).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_are_those_of_haproxy() {
        for (text, is) in [
            ("*:80", Some("0.0.0.0:80")),
            (":443", Some("0.0.0.0:443")),
            (":::80", Some("[::]:80")),
            ("[::]:80", Some("[::]:80")),
            ("ipv6@:80", Some("[::]:80")),
            ("10.0.0.1:8080", Some("10.0.0.1:8080")),
            ("unix@/run/a.sock", Some("unix:/run/a.sock")),
            ("/run/a.sock", Some("unix:/run/a.sock")),
            (":8000-8010", None),
            ("quic4@:443", None),
            ("abns@x", None),
        ] {
            assert_eq!(address(text).as_deref(), is, "{text}");
        }
    }
}
