//! `[[listener]]`: each section by itself.

use super::{Sorted, ValueReader};
use crate::error::{Problem, ProblemCollector};
use crate::model::{Config, ListenerConfig, Mode, Name, PostgresCancel};
use crate::raw::Section;

/// The listeners, without those of unknown mode or TLS.
pub(super) fn listeners<'s>(
    root: &'s Section,
    reader: &mut ValueReader<'_, '_>,
) -> Sorted<'s, ListenerConfig> {
    let mut listeners = Sorted { whole: Vec::new(), broken: Vec::new() };
    for section in root.sections("listener") {
        let before = reader.report.len();
        let mut listener: ListenerConfig = reader.filled("listener", section);
        listener.at = reader.at(&section.span);
        if listener.addresses.is_empty() {
            listener.addresses = ListenerConfig::default().addresses;
        }
        let only_http = ["trusted_proxies", "via"].into_iter().filter(|key| section.mentions(key));
        for key in only_http.filter(|_| listener.mode == Mode::Tcp && !section.is_wrong("mode")) {
            let problem =
                Problem::new(format!("`{key}` applies to HTTP only, but this listener relays connections"));
            reader.report.local(section.key_span(key), problem.help("add mode = \"http\", or leave it out"));
        }
        preamble(section, listener.mode, reader);
        if reader.report.len() == before && !section.has_wrong() {
            listeners.whole.push((listener, section));
        } else if !section.is_wrong("mode") && !section.is_wrong("tls") {
            listeners.broken.push((listener, section));
        }
    }
    listeners
}

/// Warns about `cancel` without a route for plain text: such a request has no server name and no client
/// certificate.
pub(super) fn cancels(
    listeners: &[(ListenerConfig, &Section)],
    config: &Config,
    report: &mut ProblemCollector<'_>,
) {
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

/// Reports a preamble without effect.
fn preamble(section: &Section, mode: Mode, reader: &mut ValueReader<'_, '_>) {
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

/// The names that routes may refer to: also those of listeners with mistakes, and that of the implied one.
pub(super) fn names_of_listeners(root: &Section) -> Vec<String> {
    let default = Name::default();
    let sections = root.sections("listener");
    let name = |section: &Section| {
        section.text("name").map_or_else(|| default.to_string(), |text| text.value.to_owned())
    };
    if sections.is_empty() { vec![default.to_string()] } else { sections.iter().map(name).collect() }
}
