//! The effective configuration as TOML that parses to the same model.
//!
//! Every value is written, defaults too, each with its line of the table of keys. A configuration made in
//! code prints the same way; it parses to the same model if [`Config::fill_implied`] was called, its paths
//! are absolute UTF-8 and its durations are whole milliseconds. Places are lost. Routes with shared keys
//! print as written, without inherited ones.

use std::fmt::{Display, Write as _};

use crate::error::At;
use crate::keys::{self, Key};
use crate::literal::{array, quoted};
use crate::model::{
    AcmeAuthority, BackendConfig, CertificateConfig, CertificateSource, Config, DnsProvider, FilePath,
    Health, ListenerConfig, Mode, NotifyConfig, NotifyTarget, Probe, ServerTls, Shared, SharedSection,
    Verify,
};
use crate::settings::{Bindable, Scalar, lacks};

pub(crate) mod route;

/// The configuration as TOML, with the documentation of each plain key as a comment.
pub fn print(config: &Config) -> String {
    let mut out = String::new();
    let mut section = "";
    for (key, binding) in keys::settings() {
        let Some(value) = (binding.get)(config).filter(|_| lacks(key.path, config).is_none()) else {
            continue;
        };
        if key.section() != section {
            section = key.section();
            let about = keys::find(section).map_or("", |key| key.doc);
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(out, "# {about}\n[{section}]");
        }
        let _ = writeln!(out, "# {}\n{} = {value}\n", key.doc, key.name());
    }
    for item in &config.telemetry.notify {
        notify(&mut out, item);
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

/// The routes. With shared keys, those print as written, and so does each route: with inherited keys it would
/// no longer follow changes of the shared ones.
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

/// The error pages of a configuration made in code, as the section to write them in.
fn pages_of_all_routes(config: &Config) -> SharedSection {
    let keys = item(&config.error_pages, route::error_pages);
    SharedSection { policy: None, at: At::NOWHERE, keys }
}

/// The sections of shared keys.
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

/// The values of the keys of a section that are bound to fields of `item`, without those that must be absent.
fn values<T: Bindable>(section: &str, item: &T) -> impl Iterator<Item = (&'static Key, Scalar)> {
    keys::bound::<T>(section).filter_map(move |(key, binding)| {
        let value = (binding.get)(item)?;
        let is_absent = matches!(&value, Scalar::List(values) if values.is_empty())
            && matches!(key.default, keys::Default::Absent(_));
        (!is_absent).then_some((key, value))
    })
}

/// Like [`values`], without those that hold anyway.
fn differing<T: Bindable>(section: &str, item: &T) -> impl Iterator<Item = (&'static Key, Scalar)> {
    let blank = T::blank();
    let usual: Vec<_> = values(section, &blank).map(|(key, value)| (key.path, value)).collect();
    values(section, item)
        .filter(move |(key, value)| !usual.iter().any(|(path, one)| *path == key.path && one == value))
}

fn lines(out: &mut String, values: impl Iterator<Item = (&'static Key, Scalar)>) {
    values.for_each(|(key, value)| bare(out, key.name(), value));
}

/// A table within an item: `parts` that are not bound, and the values of the fields of `item`, in the order of the
/// table of keys.
fn table<T: Bindable>(out: &mut String, path: &str, mut parts: Vec<String>, item: &T) {
    parts.extend(members(path, item));
    inline(out, path, parts);
}

/// The keys of a table that are bound to fields of `item`, each with its value.
fn members<T: Bindable>(path: &str, item: &T) -> impl Iterator<Item = String> {
    values(path, item).map(|(key, value)| member(key, &value))
}

fn member(key: &Key, value: &Scalar) -> String {
    format!("{} = {value}", key.name())
}

/// Writes a table within an item in the order of the table of keys.
fn inline(out: &mut String, path: &str, mut parts: Vec<String>) {
    sort(path, &mut parts);
    let name = path.rsplit('.').next().unwrap_or(path);
    bare(out, name, format_args!("{{ {} }}", parts.join(", ")));
}

/// Sorts lines, or members of a table, by their keys in the order of the table of keys.
fn sort<S: AsRef<str>>(section: &str, lines: &mut [S]) {
    let order: Vec<&str> = keys::in_section(section).map(Key::name).collect();
    lines.sort_by_key(|line| {
        let name = line.as_ref().split_once(" = ").map(|(name, _)| name);
        order.iter().position(|one| Some(*one) == name)
    });
}

/// The lines of an item in the order of the table of keys.
fn in_order(section: &str, lines: &str) -> String {
    let mut lines: Vec<&str> = lines.lines().collect();
    sort(section, &mut lines);
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// One item: a line per key, below its header.
pub(crate) fn item<T>(item: &T, print: impl FnOnce(&mut String, &T)) -> String {
    let mut out = String::new();
    print(&mut out, item);
    out
}

pub(crate) fn notify(out: &mut String, receiver: &NotifyConfig) {
    let mut own = String::new();
    match &receiver.to {
        NotifyTarget::Webhook(webhook) => {
            let is_known_form = webhook.body.is_none();
            let bound = values("notify", webhook);
            lines(&mut own, bound.filter(|(key, _)| key.name() != "format" || is_known_form));
        }
        NotifyTarget::Mail(mail) => table(&mut own, "notify.mail", Vec::new(), mail),
        NotifyTarget::Program(program) => lines(&mut own, values("notify", program)),
    }
    lines(&mut own, values("notify", receiver));
    let _ = writeln!(out, "[[notify]]\n{}", in_order("notify", &own));
}

pub(crate) fn certificate(out: &mut String, certificate: &CertificateConfig) {
    let mut own = String::new();
    match &certificate.source {
        CertificateSource::Files { cert, key, ocsp } => {
            let files = [("cert", Some(cert)), ("key", key.as_ref()), ("ocsp", ocsp.as_ref())];
            files
                .into_iter()
                .for_each(|(name, file)| file.into_iter().for_each(|file| text(&mut own, name, path(file))));
        }
        CertificateSource::Directory { path: folder } => text(&mut own, "directory", path(folder)),
        CertificateSource::Local { names } => {
            own.push_str("local = true\n");
            if !names.is_empty() {
                list(&mut own, "names", names);
            }
        }
        CertificateSource::Acme(acme) => {
            lines(&mut own, values("certificate", acme));
            match &acme.on_demand {
                None if acme.names.is_empty() => {}
                None => list(&mut own, "names", &acme.names),
                Some(on_demand) => table(&mut own, "certificate.on_demand", Vec::new(), on_demand),
            }
        }
    }
    lines(&mut own, values("certificate", certificate));
    let _ = writeln!(out, "[[certificate]]\n{}", in_order("certificate", &own));
}

pub(crate) fn authority(out: &mut String, authority: &AcmeAuthority) {
    let mut own = String::new();
    // The wait is that for a DNS record.
    let bound = values("acme.*", authority);
    lines(&mut own, bound.filter(|(key, _)| key.name() != "dns_wait" || authority.dns.is_some()));
    if let Some(eab) = &authority.eab {
        table(&mut own, "acme.*.eab", Vec::new(), eab);
    }
    match &authority.dns {
        None => {}
        Some(DnsProvider::Hook(program)) => text(&mut own, "dns_hook", path(program)),
        Some(DnsProvider::Update(update)) => table(&mut own, "acme.*.dns_update", Vec::new(), update),
    }
    let _ = writeln!(out, "[acme.{}]\n{}", section_name(authority.name.as_str()), in_order("acme.*", &own));
}

/// A name within a header: quoted, since a dot would start a nested section.
fn section_name(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

pub(crate) fn listener(out: &mut String, listener: &ListenerConfig) {
    out.push_str("[[listener]]\n");
    let without = |key: &Key| match key.name() {
        "cancel" => listener.preamble.is_none(),
        "trusted_proxies" | "via" => listener.mode == Mode::Tcp,
        _ => false,
    };
    lines(out, values("listener", listener).filter(|(key, _)| !without(key)));
    out.push('\n');
}

pub(crate) fn backend(out: &mut String, backend: &BackendConfig) {
    let _ = writeln!(out, "[backend.{}]", section_name(backend.name.as_str()));
    let mut own = String::new();
    if let Some(tls) = &backend.tls {
        server_tls(&mut own, tls);
    }
    lines(&mut own, values("backend.*", backend));
    if let Some(health) = &backend.health {
        self::health(&mut own, health);
    }
    if let Some(eject) = &backend.eject {
        table(&mut own, "backend.*.eject", Vec::new(), eject);
    }
    out.push_str(&in_order("backend.*", &own));
    out.push('\n');
}

fn server_tls(out: &mut String, tls: &ServerTls) {
    let mut parts = vec![match &tls.verify {
        Verify::System => "verify = \"system\"".to_owned(),
        Verify::File(file) => format!("verify = {}", quoted(&path(file))),
        Verify::Pins(pins) => format!("pin = {}", array(pins)),
        Verify::Nothing => "unsafe_no_verification = true".to_owned(),
    }];
    parts.extend(tls.certificate.iter().flat_map(|files| members("backend.*.tls", files)));
    table(out, "backend.*.tls", parts, tls);
}

fn health(out: &mut String, health: &Health) {
    let parts = match &health.probe {
        Probe::Connect => Vec::new(),
        Probe::Http(probe) => members("backend.*.health", probe).collect(),
    };
    table(out, "backend.*.health", parts, health);
}

fn path(file: &FilePath) -> String {
    file.path.to_string_lossy().into_owned()
}

/// Writes a value without quotes.
fn bare(out: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(out, "{key} = {value}");
}

fn text(out: &mut String, key: &str, value: impl Display) {
    let _ = writeln!(out, "{key} = {}", quoted(&value.to_string()));
}

fn list<T: Display>(out: &mut String, key: &str, values: &[T]) {
    let _ = writeln!(out, "{key} = {}", array(values));
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
}
