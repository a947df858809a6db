//! `[[route]]`: each section by itself, and the existence of the names that it refers to.

use std::collections::BTreeMap;

use super::{KnownNames, Sorted, ValueReader, access, canary, files, is_known, reference, rules};
use crate::error::Problem;
use crate::keys::{self, TargetKind};
use crate::model::{
    ClientAuth, FilePath, FixedResponse, HttpRules, Passthrough, ProxyProtocolHeader, ProxyV2, ProxyVersion,
    RelayConfig, RelayTarget, RouteConfig, RoutePath, RouteTarget, RouteTls, ServerAddress,
    TrustDomainConfig, TrustDomainName,
};
use crate::raw::Section;

/// The routes. One without a target answers itself.
pub(super) fn routes<'s>(
    root: &'s Section,
    known: &KnownNames,
    reader: &mut ValueReader<'_, '_>,
) -> Sorted<'s, RouteConfig> {
    let mut routes = Sorted { whole: Vec::new(), broken: Vec::new() };
    for section in root.sections("route") {
        let before = reader.report.len();
        listeners(section, known, reader);
        let plain: RouteConfig = reader.filled("route", section);
        path(section, &plain.path, reader);
        let target = target(section, known, reader);
        let route = RouteConfig {
            client_auth: client_auth(section, reader),
            tls: route_tls(section, reader),
            credentials: access::credentials(section, plain.credentials.satisfy, known, reader),
            http: HttpRules {
                mirror: canary::mirror(section, &known.backends, reader),
                ..rules::rules(section, plain.http, reader)
            },
            at: reader.at(&section.span),
            target: target.clone().unwrap_or_else(|| RouteTarget::Respond(FixedResponse::default())),
            ..plain
        };
        if target.is_some() && reader.report.len() == before && !section.has_wrong() {
            routes.whole.push((route, section));
        } else {
            routes.broken.push((route, section));
        }
    }
    routes
}

/// Reports a path that no request can have in one reading.
fn path(section: &Section, path: &RoutePath, reader: &mut ValueReader<'_, '_>) {
    let written = section.text("path");
    if let (Some(what), Some(text)) = (path.ambiguity(), written) {
        let problem =
            Problem::new(format!("servers read {what} in several ways, so that no route is found by it"));
        reader.report.local(&text.span, problem.help("leave it out: end `path` before it"));
    }
}

/// Reports the listeners of a route that do not exist.
fn listeners(section: &Section, known: &KnownNames, reader: &mut ValueReader<'_, '_>) {
    for text in section.list("listener").unwrap_or_default() {
        // One that is no name is reported where the list is read.
        let Ok(name) = text.value.parse() else { continue };
        if let Err(problem) = is_known(&name, "listener", &known.listeners) {
            reader.report.whole(&text.span, problem);
        }
    }
}

fn target(section: &Section, known: &KnownNames, reader: &mut ValueReader<'_, '_>) -> Option<RouteTarget> {
    let written: Vec<_> = keys::targets().filter(|(name, _)| section.mentions(name)).collect();
    match written[..] {
        [] => {
            let problem = Problem::new("this route has no target");
            let help = "add one of `server`, `backend`, `root`, `passthrough`, `redirect` and `respond`";
            reader.report.whole(&section.span, problem.help(help));
            return None;
        }
        [_] => {}
        [(first, _), (second, _), ..] => {
            let problem = Problem::new(format!("a route cannot have both `{first}` and `{second}`"));
            reader.report.local(section.key_span(second), problem.help("keep one of the two"));
        }
    }
    files::only_with_root(section, reader);
    if written.iter().any(|(_, kind)| *kind == TargetKind::Passthrough) {
        conflicts(section, "passthrough", TargetKind::Passthrough, reader);
        let (send_proxy, connect_timeout) =
            (send_proxy(section, reader), section.duration("connect_timeout"));
        let server = server(section, "passthrough", reader)?;
        return Some(RouteTarget::Passthrough(Passthrough { server, send_proxy, connect_timeout }));
    }
    if let Some(&(name, answer)) = written.iter().find(|(_, kind)| kind.answers()) {
        conflicts(section, name, answer, reader);
        return match answer {
            TargetKind::Redirect => rules::redirect(section, reader).map(RouteTarget::Redirect),
            TargetKind::Files => files::files(section, reader).map(RouteTarget::Files),
            _ => rules::respond(section, reader).map(RouteTarget::Respond),
        };
    }
    let (send_proxy, connect_timeout) = (send_proxy(section, reader), section.duration("connect_timeout"));
    let to = if section.mentions("server") {
        relay_server(section, reader)?
    } else if section.mentions("split") {
        RelayTarget::Split(canary::split(section, &known.backends, reader)?)
    } else {
        let text = section.text("backend")?;
        match reference(text.value, "backend", &known.backends) {
            Ok(name) => RelayTarget::Backend(name),
            Err(problem) => {
                reader.report.whole(&text.span, problem);
                return None;
            }
        }
    };
    Some(RouteTarget::Relay(RelayConfig { to, send_proxy, connect_timeout }))
}

/// Reports keys without effect with the target of their route. Those of files are reported for lack of `root`.
fn conflicts(section: &Section, target: &str, kind: TargetKind, reader: &mut ValueReader<'_, '_>) {
    let idle = keys::in_section("route").filter(|key| {
        let scope = &key.scope;
        scope.target().is_none() && !scope.is_of_files() && !scope.goes_with(kind)
    });
    for key in idle.filter(|key| section.mentions(key.name())) {
        let problem = Problem::new(format!("`{}` cannot go with `{target}`", key.name()));
        let why = if kind.answers() { "no server gets these requests" } else { key.scope.why_not_sealed() };
        reader.report.local(section.key_span(key.name()), problem.help(format!("leave it out: {why}")));
    }
}

/// The `server` of a route: a `tls://` prefix selects TLS.
pub(super) fn relay_server(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<RelayTarget> {
    let text = section.text("server")?;
    let Some(address) = text.value.strip_prefix("tls://") else {
        return server(section, "server", reader).map(RelayTarget::Server);
    };
    let address = address.parse::<ServerAddress>().and_then(|address| match address {
        ServerAddress::Unix(_) => {
            let problem = Problem::new("a Unix socket has no host that a certificate could name");
            Err(problem.help("write a [backend.NAME] with tls = { name = \"...\" }"))
        }
        address => Ok(address),
    });
    reader.ok_or_report(&text.span, address).map(RelayTarget::TlsServer)
}

fn server(section: &Section, name: &str, reader: &mut ValueReader<'_, '_>) -> Option<ServerAddress> {
    let text = section.text(name)?;
    if text.value.contains(' ') && !text.value.starts_with("unix:") {
        let problem = Problem::new(format!("`{name}` takes an address without a path"));
        let help = "for weights and backups, write a [backend.NAME] and name it with `backend`";
        reader.report.local(&text.span, problem.help(help));
        return None;
    }
    let address =
        text.value.parse::<ServerAddress>().and_then(|address| address.in_folder(reader.folder(&text.span)));
    reader.ok_or_report(&text.span, address)
}

fn send_proxy(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<ProxyProtocolHeader> {
    let Some(details) = section.section("send_proxy") else {
        return match section.text("send_proxy")?.value {
            word if ProxyVersion::from_word(word) == Some(ProxyVersion::V1) => Some(ProxyProtocolHeader::V1),
            _ => Some(ProxyProtocolHeader::V2(ProxyV2::default())),
        };
    };
    let v2: ProxyV2 = reader.filled("route.send_proxy", details);
    let v1 = details.text("version").and_then(|text| ProxyVersion::from_word(text.value))
        == Some(ProxyVersion::V1);
    if v2.client_certificate && !v2.tls {
        let problem = Problem::new("`client_certificate` is a part of what tls = false leaves out");
        reader.report.local(details.key_span("tls"), problem.help("leave one of the two out"));
    }
    let without_tls = !v2.tls;
    for (name, on) in
        [("tls", without_tls), ("crc32c", v2.crc32c), ("client_certificate", v2.client_certificate)]
    {
        if v1 && on {
            let problem = Problem::new(format!("version 1 of the PROXY protocol has no `{name}`"));
            reader
                .report
                .local(details.key_span(name), problem.help("leave it out, or write version = \"v2\""));
        }
    }
    if v2.client_certificate && !section.mentions("client_auth") {
        let problem = Problem::new("there is no client certificate to send");
        reader.report.local(
            details.key_span("client_certificate"),
            problem.help("add `client_auth` to the route: without it clients are not asked for one"),
        );
    }
    if v1 { Some(ProxyProtocolHeader::V1) } else { Some(ProxyProtocolHeader::V2(v2)) }
}

fn route_tls(section: &Section, reader: &mut ValueReader<'_, '_>) -> RouteTls {
    let Some(details) = section.section("tls") else { return RouteTls::default() };
    reader.filled("route.tls", details)
}

fn client_auth(section: &Section, reader: &mut ValueReader<'_, '_>) -> Option<ClientAuth> {
    let details = section.section("client_auth")?;
    let plain: ClientAuth = reader.filled("route.client_auth", details);
    let trust_domains = trust_domains(details, reader);
    if details.mentions("ca") && details.mentions("trust_domains") {
        let problem =
            Problem::new("`ca` cannot go with `trust_domains`: its authorities could issue for every domain");
        let help = "keep one of the two, or name the trust domain of these authorities";
        reader.report.whole(details.key_span("ca"), problem.help(help));
    }
    if plain.ca.is_empty() && trust_domains.is_empty() {
        let is_named = details.is_wrong("trust_domains") || !details.pairs("trust_domains").is_empty();
        if !details.mentions("ca") && !is_named {
            let problem = Problem::new("`client_auth` of [[route]] lacks `ca`");
            let help = "add `ca`, or `trust_domains`: the files with the authorities that issue to clients";
            reader.report.whole(&details.span, problem.help(help));
        }
        return None;
    }
    Some(ClientAuth { trust_domains, ..plain })
}

/// The trust domains, ordered by name.
fn trust_domains(details: &Section, reader: &mut ValueReader<'_, '_>) -> Vec<TrustDomainConfig> {
    let mut domains: BTreeMap<TrustDomainName, Vec<FilePath>> = BTreeMap::new();
    for (name, file) in details.pairs("trust_domains") {
        let name = reader.ok_or_report(&name.span, name.value.parse());
        let path = reader.origin(&file.span).file(&file.value);
        if let (Some(name), Some(path)) = (name, reader.ok_or_report(&file.span, path)) {
            domains.entry(name).or_default().push(path);
        }
    }
    domains.into_iter().map(|(name, ca)| TrustDomainConfig { name, ca }).collect()
}
