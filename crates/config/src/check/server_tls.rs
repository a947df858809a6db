//! `tls` of `[backend.NAME]`: TLS to servers.

use super::ValueReader;
use crate::error::Problem;
use crate::model::{BackendConfig, ClientCertificate, Probe, Protocol, ServerAddress, ServerTls, Verify};
use crate::raw::{Section, Spanned};

/// Reads the section of a backend, if present.
pub(super) fn server_tls(backend: &Section, reader: &mut ValueReader<'_, '_>) -> Option<ServerTls> {
    let Some(section) = backend.section("tls") else {
        let at = reader.at(backend.key_span("tls"));
        return backend.bool("tls")?.then(|| ServerTls { at, ..ServerTls::default() });
    };
    let pins = reader.list(section, "pin", |text: &Spanned<String>, _| text.value.parse());
    let nothing = section.bool("unsafe_no_verification") == Some(true);
    if nothing {
        unverified(section, reader);
    } else if section.mentions("pin") {
        for key in ["verify", "name", "crl"].into_iter().filter(|key| section.mentions(key)) {
            let problem = Problem::new(format!("`{key}` cannot go with `pin`"));
            let help =
                "keep one of the two: with a pin the key of a certificate counts, and nothing else in it";
            reader.report.local(section.key_span(key), problem.help(help));
        }
    }
    let verify = match section.text("verify") {
        _ if nothing => Verify::Nothing,
        Some(text) if OFF.iter().any(|word| word.eq_ignore_ascii_case(text.value)) => {
            let problem = Problem::new(format!("`{}` is not the file of an authority", text.value));
            let help = "name the server's own certificate in `verify`, or its key in `pin`; if nobody must be able to rely on \
                        the server, write unsafe_no_verification = true";
            reader.report.local(&text.span, problem.help(help));
            Verify::System
        }
        _ if section.mentions("pin") => Verify::Pins(pins),
        None => Verify::System,
        Some(text) if text.value == "system" => Verify::System,
        Some(text) => {
            let file = reader.origin(&text.span).file(text.value);
            reader.ok_or_report(&text.span, file).map_or(Verify::System, Verify::File)
        }
    };
    Some(ServerTls {
        verify,
        certificate: certificate(section, reader),
        at: reader.at(backend.key_span("tls")),
        ..reader.filled("backend.*.tls", section)
    })
}

/// Reports keys for verification beside a key that turns it off.
fn unverified(section: &Section, reader: &mut ValueReader<'_, '_>) {
    for key in ["verify", "pin", "name", "crl"].into_iter().filter(|key| section.mentions(key)) {
        let problem = Problem::new(format!("`{key}` cannot go with unsafe_no_verification = true"));
        reader.report.local(section.key_span(key), problem.help("nothing is verified: keep one of the two"));
    }
}

/// Other programs' values for verification turned off.
const OFF: [&str; 6] = ["off", "none", "no", "false", "insecure", "skip"];

fn certificate(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<ClientCertificate> {
    let certificate: ClientCertificate = reader.filled("backend.*.tls", section);
    if section.mentions("key") && !section.mentions("cert") {
        let problem = Problem::new("`key` has no effect without `cert`");
        reader.report.whole(section.key_span("key"), problem.help("add the file of the certificate"));
    }
    section.mentions("cert").then_some(certificate)
}

/// Reports conflicts with other keys of the backend.
pub(super) fn compare(section: &Section, backend: &BackendConfig, reader: &mut ValueReader<'_, '_>) {
    let Some(tls) = &backend.tls else {
        if backend.protocol == Protocol::Auto && !section.is_wrong("tls") {
            let problem = Problem::new("`auto` has no effect without `tls`");
            let help = "servers choose a protocol within TLS: add tls = true, or write \"h1\" or \"h2\"";
            reader.report.whole(section.key_span("protocol"), problem.help(help));
        }
        return;
    };
    if let (Verify::Nothing, Some(details)) = (&tls.verify, section.section("tls")) {
        let problem = Problem::new("the certificates of these servers are not verified");
        let help = "whoever is on the way can read and change everything; name the server's own certificate in `verify`, or \
                    its key in `pin`";
        reader.report.warn(details.key_span("unsafe_no_verification"), problem.help(help));
    }
    if tls.preamble.is_some() {
        let probes = backend.health.as_ref().is_some_and(|health| matches!(health.probe, Probe::Http(_)));
        if let Some(key) = backend.needs_http().or_else(|| probes.then_some("health")) {
            let problem =
                Problem::new(format!("`{key}` is of HTTP, which is not asked for TLS by a `preamble`"));
            let help =
                "leave one of the two out; a health check without `path` connects, and does the handshake";
            reader.report.whole(section.key_span(key), problem.help(help));
        }
    }
    let is_unix = |server: &crate::model::BackendServer| matches!(server.address, ServerAddress::Unix(_));
    let named = tls.name.is_some() || matches!(tls.verify, Verify::Pins(_) | Verify::Nothing);
    if !named && let Some(server) = backend.servers.iter().find(|server| is_unix(server)) {
        let problem = Problem::new(format!("there is no name for the certificate of `{}`", server.address));
        reader
            .report
            .whole(section.key_span("tls"), problem.help("add `name` to `tls`: a Unix socket has no host"));
    }
}
