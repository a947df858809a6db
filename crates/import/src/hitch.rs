//! The language of hitch: frontends, certificates and one backend, as listeners with routes of connections.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use offramp_config::model::ServerAddress;

use crate::draft::{Draft, DraftItem, DraftKeys, DraftRoute, inline, list, quoted};
use crate::known::{ForeignLanguage, Handling};
use crate::report::{self, Fate, Finding};
use crate::source::{ImportError, SourceFiles};
use crate::written::toml_time;
use settings::Setting;

mod settings;

/// Reads and lowers files; returns the draft, and the findings by the number of their setting.
pub(crate) fn lower(
    paths: &[PathBuf],
    files: &dyn SourceFiles,
) -> Result<(Draft, Vec<Finding>), ImportError> {
    if paths.is_empty() {
        return Err(ImportError::whole("no file was named", "name hitch.conf"));
    }
    let settings = settings::read(paths, files)?;
    let mut lowering = HitchLowering::default();
    lowering.whole(&settings);
    let mut findings = Vec::new();
    for one in settings.iter().flat_map(|one| std::iter::once(one).chain(&one.block)) {
        let fate = lowering.fates.remove(&one.id).unwrap_or_else(|| unused(one));
        findings.push(Finding { at: one.at.clone(), text: shown(one), fate });
    }
    Ok((lowering.draft, findings))
}

/// The state of the lowering.
#[derive(Default)]
struct HitchLowering {
    draft: Draft,
    fates: HashMap<usize, Fate>,
    pairs: HashSet<DraftKeys>,
    listeners: Vec<String>,
}

impl HitchLowering {
    fn whole(&mut self, settings: &[Setting]) {
        for one in settings {
            match one.name.as_str() {
                "frontend" => self.frontend(one, settings),
                "pem-file" => self.certificate(one),
                "pem-dir" => {
                    let how = "a folder is read as `NAME.pem` with chain and key, or in pairs";
                    self.note(one, Fate::changed(how));
                    self.pair(one, vec![("directory".to_owned(), quoted(&one.value))]);
                }
                "workers" => {
                    if let Ok(count @ 1..=1024) = one.value.parse::<u16>() {
                        self.take(one);
                        self.set("", "workers", count.to_string(), one);
                    }
                }
                "tls-protos" => self.versions(one),
                "sni-nomatch-abort" if is_on(one) => {
                    self.take(one);
                    self.set("tls", "unknown_name", quoted("refuse"), one);
                }
                "ssl-handshake-timeout" => self.seconds(one, "handshake_timeout"),
                "backend-connect-timeout" => self.seconds(one, "connect_timeout"),
                "log-filename" if one.value.starts_with('/') => {
                    self.take(one);
                    self.set("log", "output", quoted(&one.value), one);
                }
                "syslog" if is_on(one) => {
                    self.take(one);
                    self.set("log", "output", quoted("syslog"), one);
                }
                _ => {}
            }
        }
        if let Some(backend) = last(settings, "backend") {
            self.routes(backend, settings);
        }
    }

    fn seconds(&mut self, one: &Setting, key: &'static str) {
        if let Ok(seconds @ 1..=3_600) = one.value.parse::<u64>() {
            self.take(one);
            self.set("limits", key, toml_time(Duration::from_secs(seconds)), one);
        }
    }

    fn frontend(&mut self, one: &Setting, settings: &[Setting]) {
        let inner = |name: &str| one.block.iter().find(|inner| inner.name == name);
        let (address, certificate) = if one.block.is_empty() {
            let (address, certificate) = one.value.split_once('+').unwrap_or((&one.value, ""));
            (address_of(address), certificate.to_owned())
        } else {
            let host = inner("host").map_or("*", |host| host.value.as_str());
            let port = inner("port").map_or("8443", |port| port.value.as_str());
            (address_of(&format!("[{host}]:{port}")), String::new())
        };
        let Some(address) = address else {
            self.refuse(one, "this is no address to listen on", "write `address` in [[listener]]");
            return;
        };
        self.take(one);
        for inner in &one.block {
            match inner.name.as_str() {
                "host" | "port" => self.take(inner),
                "pem-file" => self.certificate(inner),
                "pem-dir" => self.pair(inner, vec![("directory".to_owned(), quoted(&inner.value))]),
                "tls-protos" => self.versions(inner),
                "sni-nomatch-abort" if is_on(inner) => {
                    self.take(inner);
                    self.set("tls", "unknown_name", quoted("refuse"), inner);
                }
                "match-global-certs" => {
                    self.note(inner, Fate::changed("all listeners have all certificates"));
                }
                _ => {}
            }
        }
        if !certificate.is_empty() {
            self.pair(one, vec![("cert".to_owned(), quoted(&certificate))]);
        }
        let number = self.listeners.len() + 1;
        let name = if number == 1 { "tls".to_owned() } else { format!("tls-{number}") };
        let mut keys = vec![("name".to_owned(), quoted(&name)), ("address".to_owned(), quoted(&address))];
        if let Some(proxied) = last(settings, "proxy-proxy").filter(|one| is_on(one)) {
            self.take(proxied);
            keys.push(("accept_proxy".to_owned(), list(&["0.0.0.0/0", "::/0"])));
        }
        let item = self.item(one, keys);
        self.draft.listeners.push(item);
        self.listeners.push(name);
    }

    fn certificate(&mut self, one: &Setting) {
        if one.block.is_empty() {
            self.pair(one, vec![("cert".to_owned(), quoted(&one.value))]);
            return;
        }
        let mut pair = DraftKeys::new();
        for inner in &one.block {
            let key = match inner.name.as_str() {
                "cert" => "cert",
                "private-key" => "key",
                "ocsp-resp-file" => "ocsp",
                _ => continue,
            };
            self.take(inner);
            pair.push((key.to_owned(), quoted(&inner.value)));
        }
        self.pair(one, pair);
    }

    fn pair(&mut self, one: &Setting, pair: DraftKeys) {
        self.take(one);
        if self.pairs.insert(pair.clone()) {
            let item = self.item(one, pair);
            self.draft.certificates.push(item);
        }
    }

    fn versions(&mut self, one: &Setting) {
        self.take(one);
        let words: Vec<&str> = one.value.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let has = |version: &str| words.contains(&version);
        match (has("TLSv1.2"), has("TLSv1.3")) {
            (false, true) => self.set("tls", "policy", quoted("modern"), one),
            (true, false) => self.set("tls", "max_version", quoted("1.2"), one),
            (true, true) => {}
            (false, false) => self.note(one, Fate::changed("TLS before 1.2 is not spoken")),
        }
        if words.iter().any(|word| !matches!(*word, "TLSv1.2" | "TLSv1.3")) {
            self.note(one, Fate::changed("TLS before 1.2 is not spoken"));
        }
    }

    /// The routes of all listeners to the backend.
    fn routes(&mut self, backend: &Setting, settings: &[Setting]) {
        let server = match backend.value.starts_with('/') {
            true => format!("unix:{}", backend.value),
            false => backend_address(&backend.value),
        };
        if server.parse::<ServerAddress>().is_err() {
            self.refuse(backend, "this is no address of a server", "write `server` in the route");
            return;
        }
        self.take(backend);
        let mut keys: DraftKeys = vec![("server".to_owned(), quoted(&server))];
        for (name, version) in
            [("write-proxy", "v2"), ("write-proxy-v2", "v2"), ("write-proxy-v1", "v1"), ("proxy-proxy", "v1")]
        {
            if let Some(one) = last(settings, name).filter(|one| is_on(one)) {
                self.take(one);
                if !keys.iter().any(|(key, _)| key == "send_proxy") {
                    keys.push(("send_proxy".to_owned(), quoted(version)));
                }
                if name == "proxy-proxy" {
                    self.note(one, Fate::changed("the header of the client is read, and written anew as v1"));
                }
            }
        }
        match self.client_auth(settings) {
            Ok(auth) => keys.extend(auth),
            // A rule that cannot be said closes its route: without one, connections are refused.
            Err(()) => return,
        }
        if let Some(one) = last(settings, "alpn-protos") {
            self.take(one);
            let protocols: Vec<&str> = one.value.split([',', ' ']).filter(|word| !word.is_empty()).collect();
            let alpn = vec![("alpn".to_owned(), list(&protocols))];
            let item = self.item(one, [alpn, keys.clone()].concat());
            self.draft.routes.push(DraftRoute {
                listeners: self.listeners.clone(),
                hosts: Vec::new(),
                path: None,
                item,
            });
        }
        let item = self.item(backend, keys);
        self.draft.add_route(DraftRoute {
            listeners: self.listeners.clone(),
            hosts: Vec::new(),
            path: None,
            item,
        });
    }

    fn client_auth(&mut self, settings: &[Setting]) -> Result<DraftKeys, ()> {
        let Some(verify) = last(settings, "client-verify").filter(|one| one.value != "none") else {
            return Ok(DraftKeys::new());
        };
        let Some(ca) = last(settings, "client-verify-ca") else {
            self.refuse(verify, "there is no `client-verify-ca`", "name the authorities in `client_auth.ca`");
            return Err(());
        };
        self.take(verify);
        self.take(ca);
        let mut keys: DraftKeys = vec![("ca".to_owned(), quoted(&ca.value))];
        if verify.value == "optional" {
            keys.push(("mode".to_owned(), quoted("optional")));
        }
        Ok(vec![("client_auth".to_owned(), inline(&keys))])
    }

    fn note(&mut self, one: &Setting, fate: Fate) {
        let entry = self.fates.entry(one.id).or_insert(Fate::Taken);
        if fate > *entry {
            *entry = fate;
        }
    }

    fn take(&mut self, one: &Setting) {
        self.note(one, Fate::Taken);
    }

    fn refuse(&mut self, one: &Setting, why: &str, remedy: &str) {
        self.note(one, Fate::not(why, remedy));
    }

    fn item(&self, one: &Setting, keys: DraftKeys) -> DraftItem {
        DraftItem { id: one.id, from: one.at.clone(), origin: shown(one), keys }
    }

    fn set(&mut self, table: &'static str, key: &'static str, value: String, from: &Setting) {
        self.draft.set(table, key, value, Some(from.at.clone()));
    }
}

/// The last setting of a name, which counts.
fn last<'s>(settings: &'s [Setting], name: &str) -> Option<&'s Setting> {
    settings.iter().rev().find(|one| one.name == name)
}

fn is_on(one: &Setting) -> bool {
    matches!(one.value.as_str(), "on" | "yes" | "true" | "1")
}

fn shown(one: &Setting) -> String {
    let value = if one.block.is_empty() { one.value.clone() } else { "{ … }".to_owned() };
    report::shown(&one.name, &["=".to_owned(), value])
}

/// `[HOST]:PORT` as an address to listen on.
fn address_of(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    match host.trim_start_matches('[').trim_end_matches(']') {
        "*" | "" | "::" => Some(format!("[::]:{port}")),
        host => {
            let address: IpAddr = host.parse().ok()?;
            Some(std::net::SocketAddr::new(address, port).to_string())
        }
    }
}

/// `[HOST]:PORT` as the address of a server.
fn backend_address(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        }
        None => text.to_owned(),
    }
}

/// The fate of a setting that the lowering had no use for.
fn unused(one: &Setting) -> Fate {
    let language = ForeignLanguage::Hitch;
    let Some(known) = language.named(&one.name) else { return language.unknown(&one.name) };
    match known.handling {
        Handling::Needless(_) => Fate::Taken,
        _ if matches!(one.value.as_str(), "off" | "none" | "\"\"" | "") && one.block.is_empty() => {
            Fate::Taken
        }
        Handling::Changed(how) => Fate::changed(how),
        Handling::NotTaken(why, remedy) => Fate::not(why, remedy),
        Handling::Becomes(keys) => {
            Fate::not("nothing that was taken needs it here", format!("elsewhere it becomes {keys}"))
        }
    }
}
