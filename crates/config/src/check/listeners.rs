//! `[[listener]]` and `[backend.NAME]`: what each one says by itself.

use super::Reader;
use crate::error::Problem;
use crate::model::{Backend, Balance, ListenAddress, Listener, Mode, Name, Server};
use crate::raw::{Section, Spanned};

/// The listeners without mistakes, each with what was typed.
pub(super) fn listeners<'s>(root: &'s Section, reader: &mut Reader<'_, '_>) -> Vec<(Listener, &'s Section)> {
    let mut listeners = Vec::new();
    for section in root.sections("listener") {
        let before = reader.report.len();
        let default = Listener::default();
        let name = match section.text("name") {
            Some(text) => reader.parsed(&text).unwrap_or_default(),
            None => Name::default(),
        };
        reader.not_empty(section, "address", "write where to listen, such as \"[::]:443\"");
        let mut addresses = reader.list(section, "address", |text: &Spanned<String>, reader| {
            text.value.parse::<ListenAddress>()?.in_folder(reader.folder)
        });
        if addresses.is_empty() {
            addresses = default.addresses;
        }
        let listener = Listener {
            name,
            addresses,
            mode: section.text("mode").and_then(|text| Mode::from_word(text.value)).unwrap_or(default.mode),
            tls: section.bool("tls").unwrap_or(default.tls),
            accept_proxy: reader
                .list(section, "accept_proxy", |text: &Spanned<String>, _| text.value.parse()),
            at: reader.at(&section.span),
        };
        if reader.report.len() == before {
            listeners.push((listener, section));
        }
    }
    listeners
}

/// The names that routes may refer to: those of listeners with mistakes too, and that of the implied one.
pub(super) fn names_of_listeners(root: &Section) -> Vec<String> {
    let default = Name::default();
    let sections = root.sections("listener");
    let name = |section: &Section| {
        section.text("name").map_or_else(|| default.to_string(), |text| text.value.to_owned())
    };
    if sections.is_empty() { vec![default.to_string()] } else { sections.iter().map(name).collect() }
}

/// The backends without mistakes.
pub(super) fn backends(root: &Section, reader: &mut Reader<'_, '_>) -> Vec<Backend> {
    let mut backends = Vec::new();
    for (name, section) in root.named("backend") {
        let before = reader.report.len();
        let at = reader.at(&name.span);
        let name = reader.tell(&name.span, name.value.parse());
        reader.not_empty(section, "servers", "write at least one server");
        let servers = servers(section, reader);
        let balance = section.text("balance").and_then(|text| Balance::from_word(text.value));
        if let (Some(name), true) = (name, reader.report.len() == before) {
            backends.push(Backend { name, servers, balance: balance.unwrap_or(Balance::RoundRobin), at });
        }
    }
    backends
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
    Ok(Server { address: server.address.in_folder(reader.folder)?, at: reader.at(&text.span), ..server })
}
