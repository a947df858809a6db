//! `[[listener]]`: what each one says by itself.

use super::{Reader, Sorted, access};
use crate::error::{Problem, Report};
use crate::model::{Config, ListenAddress, Listener, Mode, Name, PostgresCancel, Preamble};
use crate::raw::{Section, Spanned};

/// The listeners. Those whose mode or TLS is not known are left out.
pub(super) fn listeners<'s>(root: &'s Section, reader: &mut Reader<'_, '_>) -> Sorted<'s, Listener> {
    let mut listeners = Sorted { whole: Vec::new(), broken: Vec::new() };
    for section in root.sections("listener") {
        let before = reader.report.len();
        let default = Listener::default();
        let name = match section.text("name") {
            Some(text) => reader.parsed(&text).unwrap_or_default(),
            None => Name::default(),
        };
        reader.not_empty(section, "address", "write where to listen, such as \"[::]:443\"");
        let mut addresses = reader.list(section, "address", |text: &Spanned<String>, reader| {
            text.value.parse::<ListenAddress>()?.in_folder(reader.folder(&text.span))
        });
        if addresses.is_empty() {
            addresses = default.addresses;
        }
        let mode = section.text("mode").and_then(|text| Mode::from_word(text.value)).unwrap_or(default.mode);
        let only_http = ["trusted_proxies", "via"].into_iter().filter(|key| section.mentions(key));
        for key in only_http.filter(|_| mode == Mode::Tcp && !section.is_wrong("mode")) {
            let problem =
                Problem::new(format!("`{key}` applies to HTTP only, but this listener relays connections"));
            reader.report.local(section.key_span(key), problem.help("add mode = \"http\", or leave it out"));
        }
        preamble(section, mode, reader);
        let listener = Listener {
            name,
            addresses,
            mode,
            tls: section.bool("tls").unwrap_or(default.tls),
            accept_proxy: reader
                .list(section, "accept_proxy", |text: &Spanned<String>, _| text.value.parse()),
            trusted_proxies: reader
                .list(section, "trusted_proxies", |text: &Spanned<String>, _| text.value.parse()),
            networks: access::networks(section, reader),
            preamble: section.text("preamble").and_then(|text| Preamble::from_word(text.value)),
            cancel: section
                .text("cancel")
                .and_then(|text| PostgresCancel::from_word(text.value))
                .unwrap_or(default.cancel),
            via: section.bool("via").unwrap_or(default.via),
            at: reader.at(&section.span),
        };
        if reader.report.len() == before {
            listeners.whole.push((listener, section));
        } else if !section.is_wrong("mode") && !section.is_wrong("tls") {
            listeners.broken.push((listener, section));
        }
    }
    listeners
}

/// Warns of `cancel` where no route takes what comes in clear: such a request has no server name, and shows no certificate.
pub(super) fn cancels(listeners: &[(Listener, &Section)], config: &Config, report: &mut Report<'_>) {
    let cancels = listeners.iter().filter(|(listener, _)| listener.cancel == PostgresCancel::Clear);
    for (listener, section) in cancels {
        let mut hostless = config.routes_of(listener).filter(|route| route.hosts.is_empty()).peekable();
        let (text, help) = if hostless.peek().is_none() {
            ("every route has `host`, and a cancel request has no server name", "add a route without `host`")
        } else if hostless.all(|route| route.client_auth.is_some()) {
            (
                "the route without `host` has `client_auth`, and a cancel request in clear shows no certificate",
                "let clients cancel over TLS, as those of libpq 17 do",
            )
        } else {
            continue;
        };
        let problem = Problem::new(format!("`cancel` leads nowhere: {text}"));
        report.warn(section.key_span("cancel"), problem.help(format!("{help}, or leave `cancel` out")));
    }
}

/// Reports a preamble that leads to nothing.
fn preamble(section: &Section, mode: Mode, reader: &mut Reader<'_, '_>) {
    if !section.mentions("preamble") {
        if section.mentions("cancel") {
            let problem =
                Problem::new("`cancel` needs preamble = \"postgres\": it is for clients of PostgreSQL");
            reader.report.local(section.key_span("cancel"), problem.help("add it, or leave `cancel` out"));
        }
        return;
    }
    if mode == Mode::Http {
        let problem = Problem::new("`preamble` cannot go with mode = \"http\"");
        let help = "leave it out, or relay connections with mode = \"tcp\"";
        reader.report.local(section.key_span("preamble"), problem.help(help));
    } else if section.bool("tls") == Some(false) {
        let problem = Problem::new("`preamble` needs TLS, but this listener has none");
        let help = "leave out tls = false: it is TLS that the clients ask for";
        reader.report.local(section.key_span("preamble"), problem.help(help));
    }
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
