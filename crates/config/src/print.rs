//! The effective configuration as TOML that reads back as the same model.
//!
//! Every value is written out, defaults too, each under its line of the table of keys. A configuration made
//! in code prints the same way; it reads back the same if [`Config::fill_implied`] was called, its paths
//! are absolute UTF-8 and its durations are whole milliseconds. Places are not kept. Routes that share keys are printed as they
//! are written, without what they have taken over.

use std::fmt::{Display, Write as _};

use crate::error::At;
use crate::keys;
use crate::model::{
    Authority, Backend, Certificate, CertificateSource, ClientNetworks, Config, DefaultRole, DnsProvider,
    DnsUpdate, Eject, FilePath, Health, HttpProbe, Listener, Mode, OnDemand, Pool, Probe, ServerTls, Shared,
    SharedSection, Verify,
};
use crate::settings::{BINDINGS, lacks};
use crate::units::print_duration;

pub(crate) mod route;

/// The configuration as TOML, with the documentation of each plain key as a comment.
pub fn print(config: &Config) -> String {
    let mut out = String::new();
    let mut section = "";
    for binding in BINDINGS {
        let (Some(key), Some(value)) = (keys::find(binding.path), (binding.get)(config)) else {
            continue;
        };
        if lacks(binding.path, config).is_some() {
            continue;
        }
        if key.section() != section {
            section = key.section();
            let about = keys::find(section).map_or("", |key| key.doc);
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(out, "# {about}\n[{section}]");
        }
        let _ = writeln!(out, "# {}\n{} = {value}\n", key.doc, key.name());
    }
    for item in &config.certificates {
        certificate(&mut out, item);
    }
    for item in &config.authorities {
        authority(&mut out, item);
    }
    for item in &config.listeners {
        listener(&mut out, item);
    }
    routes(&mut out, config);
    for item in &config.backends {
        backend(&mut out, item);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// The routes. Where they share keys, that is printed as it is written, and so is each route: with what it has taken over it
/// would not change any more with what it shares.
fn routes(out: &mut String, config: &Config) {
    let Shared { sections, routes } = &config.shared;
    if !sections.is_empty() && routes.len() == config.routes.len() {
        for section in sections {
            shared(out, section);
        }
        for keys in routes.iter() {
            let _ = writeln!(out, "[[route]]\n{keys}");
        }
        return;
    }
    let pages_of_all = !config.error_pages.files.is_empty();
    if pages_of_all {
        shared(out, &pages_of_all_routes(config));
    }
    for item in &config.routes {
        route::route(out, item, pages_of_all);
    }
}

/// The pages of a configuration that was made in code, as the section that they would be written in.
fn pages_of_all_routes(config: &Config) -> SharedSection {
    let keys = item(&config.error_pages, route::error_pages);
    SharedSection { policy: None, at: At::NOWHERE, keys }
}

/// The sections of what routes share.
pub(crate) fn shared_sections(config: &Config) -> Vec<SharedSection> {
    let mut sections = config.shared.sections.clone();
    if !config.error_pages.files.is_empty() && sections.iter().all(|section| section.policy.is_some()) {
        sections.insert(0, pages_of_all_routes(config));
    }
    sections
}

pub(crate) fn shared(out: &mut String, section: &SharedSection) {
    match &section.policy {
        None => out.push_str("[defaults.route]\n"),
        Some(name) => {
            let _ = writeln!(out, "[policy.{}]", section_name(name));
        }
    }
    let _ = writeln!(out, "{}", section.keys);
}

/// An item alone: a line for each key, below its header.
pub(crate) fn item<T>(item: &T, print: impl FnOnce(&mut String, &T)) -> String {
    let mut out = String::new();
    print(&mut out, item);
    out
}

pub(crate) fn certificate(out: &mut String, certificate: &Certificate) {
    out.push_str("[[certificate]]\n");
    match &certificate.source {
        CertificateSource::Files { cert, key, ocsp } => {
            text(out, "cert", path(cert));
            if let Some(key) = key {
                text(out, "key", path(key));
            }
            if let Some(ocsp) = ocsp {
                text(out, "ocsp", path(ocsp));
            }
        }
        CertificateSource::Directory { path: folder } => text(out, "directory", path(folder)),
        CertificateSource::Local { names } => {
            out.push_str("local = true\n");
            if !names.is_empty() {
                list(out, "names", names);
            }
        }
        CertificateSource::Acme(acme) => {
            list(out, "acme", &acme.authorities);
            text(out, "key_type", acme.key_type);
            bare(out, "reuse_key", acme.reuse_key);
            match &acme.on_demand {
                None if acme.names.is_empty() => {}
                None => list(out, "names", &acme.names),
                Some(on_demand) => bare(out, "on_demand", demanded(on_demand)),
            }
        }
    }
    match certificate.default {
        DefaultRole::Unsaid => {}
        DefaultRole::Always => out.push_str("default = true\n"),
        DefaultRole::Never => out.push_str("default = false\n"),
    }
    out.push('\n');
}

fn demanded(on_demand: &OnDemand) -> String {
    let OnDemand { names, ask, rate, wait } = on_demand;
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let names = if names.is_empty() { String::new() } else { format!("names = {}, ", array(&names)) };
    let ask = ask.as_ref().map(|ask| format!("ask = {}, ", quoted(&ask.to_string()))).unwrap_or_default();
    format!("{{ {names}{ask}rate = \"{rate}\", wait = \"{}\" }}", print_duration(*wait))
}

pub(crate) fn authority(out: &mut String, authority: &Authority) {
    let Authority { name, directory, email, challenge, dns, dns_wait, ca, profile, eab, at: _ } = authority;
    let _ = writeln!(out, "[acme.{}]", section_name(name.as_str()));
    text(out, "directory", directory);
    if let Some(email) = email {
        text(out, "email", email);
    }
    text(out, "challenge", challenge);
    if let Some(ca) = ca {
        text(out, "ca", path(ca));
    }
    if let Some(profile) = profile {
        text(out, "profile", profile);
    }
    if let Some(eab) = eab {
        let (id, key) = (quoted(&eab.key_id), quoted(&path(&eab.key_file)));
        bare(out, "eab", format_args!("{{ key_id = {id}, key_file = {key} }}"));
    }
    match dns {
        None => {}
        Some(DnsProvider::Hook(program)) => text(out, "dns_hook", path(program)),
        Some(DnsProvider::Update(DnsUpdate { server, zone, key_name, key_file, algorithm })) => {
            let key_file = quoted(&path(key_file));
            bare(
                out,
                "dns_update",
                format_args!(
                    "{{ server = \"{server}\", zone = \"{zone}\", key_name = \"{key_name}\", key_file = {key_file}, algorithm = \"{algorithm}\" }}"
                ),
            );
        }
    }
    if dns.is_some() {
        text(out, "dns_wait", print_duration(*dns_wait));
    }
    out.push('\n');
}

/// A name within a header: a dot would begin a section within a section.
fn section_name(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

pub(crate) fn listener(out: &mut String, listener: &Listener) {
    out.push_str("[[listener]]\n");
    text(out, "name", &listener.name);
    list(out, "address", &listener.addresses);
    text(out, "mode", listener.mode);
    bare(out, "tls", listener.tls);
    list(out, "accept_proxy", &listener.accept_proxy);
    networks(out, &listener.networks);
    if let Some(preamble) = listener.preamble {
        text(out, "preamble", preamble);
        text(out, "cancel", listener.cancel);
    }
    if listener.mode == Mode::Http {
        list(out, "trusted_proxies", &listener.trusted_proxies);
        bare(out, "via", listener.via);
    }
    out.push('\n');
}

fn networks(out: &mut String, networks: &ClientNetworks) {
    for (key, entries) in [("allow", &networks.allow), ("deny", &networks.deny)] {
        if !entries.is_empty() {
            list(out, key, entries);
        }
    }
}

pub(crate) fn backend(out: &mut String, backend: &Backend) {
    let _ = writeln!(out, "[backend.{}]", section_name(backend.name.as_str()));
    list(out, "servers", &backend.servers);
    text(out, "balance", &backend.balance);
    text(out, "protocol", backend.protocol);
    if let Some(tls) = &backend.tls {
        server_tls(out, tls);
    }
    let Pool { max_connections, queue, queue_timeout, idle_connections, idle_timeout, connect_timeout } =
        &backend.pool;
    if let Some(count) = max_connections {
        bare(out, "max_connections", count);
    }
    bare(out, "queue", queue);
    text(out, "queue_timeout", print_duration(*queue_timeout));
    bare(out, "idle_connections", idle_connections);
    text(out, "idle_timeout", print_duration(*idle_timeout));
    if let Some(timeout) = connect_timeout {
        text(out, "connect_timeout", print_duration(*timeout));
    }
    if let Some(name) = &backend.sticky_cookie {
        text(out, "sticky_cookie", name);
    }
    if let Some(health) = &backend.health {
        bare(out, "health", self::health(health));
    }
    if let Some(Eject { failures, duration, slow_start }) = &backend.eject {
        let (duration, slow_start) = (print_duration(*duration), print_duration(*slow_start));
        bare(
            out,
            "eject",
            format_args!("{{ failures = {failures}, for = \"{duration}\", slow_start = \"{slow_start}\" }}"),
        );
    }
    out.push('\n');
}

fn server_tls(out: &mut String, tls: &ServerTls) {
    let ServerTls { verify, crl, name, sni, certificate, preamble, alpn, at: _ } = tls;
    let mut parts = vec![match verify {
        Verify::System => "verify = \"system\"".to_owned(),
        Verify::File(file) => format!("verify = {}", quoted(&path(file))),
        Verify::Pins(pins) => format!("pin = {}", array(pins)),
        Verify::Nothing => "unsafe_no_verification = true".to_owned(),
    }];
    let name = name.as_ref().map(|name| ("name", name.to_string()));
    let sni = sni.as_ref().map(|sni| ("sni", sni.to_string()));
    let cert = certificate.as_ref().map(|files| ("cert", path(&files.cert)));
    let key = certificate.as_ref().and_then(|files| Some(("key", path(files.key.as_ref()?))));
    let preamble = preamble.map(|preamble| ("preamble", preamble.word().to_owned()));
    let texts = [name, sni, cert, key, preamble].into_iter().flatten();
    parts.extend(texts.map(|(key, value)| format!("{key} = {}", quoted(&value))));
    if !crl.is_empty() {
        parts.push(format!("crl = {}", array(&crl.iter().map(path).collect::<Vec<_>>())));
    }
    if !alpn.is_empty() {
        parts.push(format!("alpn = {}", array(alpn)));
    }
    bare(out, "tls", format_args!("{{ {} }}", parts.join(", ")));
}

fn health(health: &Health) -> String {
    let Health { probe, interval, timeout, rise, fall } = health;
    let mut out = String::from("{ ");
    if let Probe::Http(HttpProbe { path, host, status }) = probe {
        let _ = write!(out, "path = {}, status = {}, ", quoted(path), array(status));
        if let Some(host) = host {
            let _ = write!(out, "host = {}, ", quoted(host));
        }
    }
    let (interval, timeout) = (print_duration(*interval), print_duration(*timeout));
    let _ =
        write!(out, "interval = \"{interval}\", timeout = \"{timeout}\", rise = {rise}, fall = {fall} }}");
    out
}

fn path(file: &FilePath) -> String {
    file.path.to_string_lossy().into_owned()
}

/// What stands there without quotes.
fn bare(out: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(out, "{key} = {value}");
}

fn text(out: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(out, "{key} = {}", quoted(&value.to_string()));
}

fn list<T: Display>(out: &mut String, key: &str, values: &[T]) {
    let _ = writeln!(out, "{key} = {}", array(values));
}

pub(crate) fn array<T: Display>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(|value| quoted(&value.to_string())).collect();
    format!("[{}]", values.join(", "))
}

/// A basic string of TOML: in double quotes, with what is not allowed there escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, parse};

    #[test]
    fn the_default_reads_back() {
        let (config, _) = parse("", "f.toml", &Environment::default()).unwrap();
        let printed = print(&config);
        let (again, _) = parse(&printed, "f.toml", &Environment::default()).unwrap();
        assert_eq!(again, config, "{printed}");
        assert!(
            printed.contains("# The time for one attempt to connect to a server\nconnect_timeout = \"5s\"\n")
        );
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a\"b\\c\n\u{7f}é"), "\"a\\\"b\\\\c\\u000A\\u007Fé\"");
    }
}
