//! `[backend.NAME]`: what each one says by itself.

use super::{Reader, server_tls};
use crate::error::Problem;
use crate::model::health::{probe_host, probe_path};
use crate::model::{Backend, Eject, Health, HttpProbe, Name, Pool, Probe, Protocol, Server};
use crate::raw::{Section, Spanned};

/// The backends without mistakes.
pub(super) fn backends(root: &Section, reader: &mut Reader<'_, '_>) -> Vec<Backend> {
    let mut backends = Vec::new();
    for (name, section) in root.named("backend") {
        let before = reader.report.len();
        let at = reader.at(&name.span);
        let name = reader.tell(&name.span, name.value.parse());
        reader.not_empty(section, "servers", "write at least one server");
        let servers = servers(section, reader);
        let rest = rest(section, reader);
        if let (Some(name), true) = (name, reader.report.len() == before) {
            let backend = Backend { name, servers, at, ..rest };
            server_tls::compare(section, &backend, reader);
            backends.push(backend);
        }
    }
    backends
}

/// All but name, servers and place.
fn rest(section: &Section, reader: &mut Reader<'_, '_>) -> Backend {
    let default = Backend::new(Name::default(), Vec::new());
    let protocol = section.text("protocol").and_then(|text| Protocol::from_word(text.value));
    Backend {
        balance: section.text("balance").and_then(|text| reader.parsed(&text)).unwrap_or(default.balance),
        protocol: protocol.unwrap_or(default.protocol),
        tls: server_tls::server_tls(section, reader),
        pool: pool(section),
        sticky_cookie: section.text("sticky_cookie").and_then(|text| reader.parsed(&text)),
        health: section.section("health").map(|section| health(section, reader)),
        eject: section.section("eject").map(eject),
        ..default
    }
}

/// A number that the table of keys keeps within the bounds of its type.
fn number(section: &Section, name: &str) -> Option<u32> {
    section.integer(name).and_then(|number| u32::try_from(number).ok())
}

fn pool(section: &Section) -> Pool {
    let default = Pool::default();
    Pool {
        max_connections: number(section, "max_connections"),
        queue: number(section, "queue").unwrap_or(default.queue),
        queue_timeout: section.duration("queue_timeout").unwrap_or(default.queue_timeout),
        idle_connections: number(section, "idle_connections").unwrap_or(default.idle_connections),
        idle_timeout: section.duration("idle_timeout").unwrap_or(default.idle_timeout),
        connect_timeout: section.duration("connect_timeout"),
    }
}

fn eject(section: &Section) -> Eject {
    let default = Eject::default();
    Eject {
        failures: number(section, "failures").unwrap_or(default.failures),
        duration: section.duration("for").unwrap_or(default.duration),
        slow_start: section.duration("slow_start").unwrap_or(default.slow_start),
    }
}

fn health(section: &Section, reader: &mut Reader<'_, '_>) -> Health {
    let default = Health::default();
    Health {
        probe: probe(section, reader),
        interval: section.duration("interval").unwrap_or(default.interval),
        timeout: section.duration("timeout").unwrap_or(default.timeout),
        rise: number(section, "rise").unwrap_or(default.rise),
        fall: number(section, "fall").unwrap_or(default.fall),
    }
}

fn probe(section: &Section, reader: &mut Reader<'_, '_>) -> Probe {
    let Some(path) = section.text("path") else {
        let of_http = ["host", "status"].into_iter().filter(|key| section.mentions(key));
        for key in of_http.filter(|_| !section.mentions("path")) {
            let problem = Problem::new(format!("`{key}` has no effect without `path`"));
            let help = "add path = \"/\": without it, servers need only accept a connection";
            reader.report.whole(section.key_span(key), problem.help(help));
        }
        return Probe::Connect;
    };
    let mut probe = HttpProbe::new("/");
    if let Some(path) = reader.tell(&path.span, probe_path(path.value)) {
        probe.path = path;
    }
    if let Some(host) = section.text("host") {
        probe.host = reader.tell(&host.span, probe_host(host.value));
    }
    reader.not_empty(section, "status", "leave it out for 200 to 399");
    let status = reader.list(section, "status", |text: &Spanned<String>, _| text.value.parse());
    if !status.is_empty() {
        probe.status = status;
    }
    Probe::Http(probe)
}

fn servers(section: &Section, reader: &mut Reader<'_, '_>) -> Vec<Server> {
    let mut servers: Vec<Server> = Vec::new();
    for text in section.list("servers").unwrap_or_default() {
        let server = server(text, reader);
        let Some(server) = reader.tell(&text.span, server) else {
            continue;
        };
        if servers.iter().any(|other| other.address == server.address) {
            let problem = Problem::new(format!("`{}` is in this backend twice", server.address));
            reader.report.local(&text.span, problem.help("for a greater share, write \" weight=N\""));
        } else {
            servers.push(server);
        }
    }
    servers
}

fn server(text: &Spanned<String>, reader: &Reader<'_, '_>) -> Result<Server, Problem> {
    let server: Server = text.value.parse()?;
    Ok(Server {
        address: server.address.in_folder(reader.folder(&text.span))?,
        at: reader.at(&text.span),
        ..server
    })
}
