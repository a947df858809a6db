//! `[[route]]`: what each one says by itself, and whether the names that it refers to exist.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::{Known, Reader, Sorted, access, canary, files, reference, rules};
use crate::error::Problem;
use crate::model::{
    AuthMode, ClientAuth, FilePath, HttpRules, Listeners, Passthrough, Policy, ProxyV2, ProxyVersion, Relay,
    RelayTarget, Respond, Route, RoutePath, RouteTls, SendProxy, ServerAddress, Size, Target,
    TlsVersionLimit, TrustDomain, TrustDomainName,
};
use crate::raw::{Section, Spanned};

/// The keys of which a route has exactly one.
const TARGETS: [&str; 7] = ["backend", "server", "split", "passthrough", "redirect", "respond", "root"];

/// What a route that is not terminated cannot have, and why.
const NOT_WITH_PASSTHROUGH: [(&str, &str); 29] = [
    ("client_auth", "the server that terminates TLS asks for the client's certificate"),
    ("alpn", "the server that terminates TLS agrees on a protocol"),
    ("tls", "the server that terminates TLS decides on versions and ciphers"),
    ("path", SEALED),
    ("strip_path", SEALED),
    ("replace_path", SEALED),
    ("normalize_path", SEALED),
    ("encoded_slashes", SEALED),
    ("request_headers", SEALED),
    ("upgrade", SEALED),
    ("keep_original_url", SEALED),
    ("satisfy", SEALED),
    ("response_headers", SEALED),
    ("hsts", SEALED),
    ("max_body", SEALED),
    ("rewrite", SEALED),
    ("redirects", SEALED),
    ("maintenance", SEALED),
    ("response_timeout", SEALED),
    ("request_body_timeout", SEALED),
    ("min_body_rate", SEALED),
    ("idle_timeout", SEALED),
    ("error_pages", SEALED),
    ("intercept_errors", SEALED),
    ("compress", SEALED),
    ("basic_auth", SEALED),
    ("mirror", SEALED),
    ("jwt", SEALED),
    ("forward_auth", SEALED),
];

const SEALED: &str = "the requests are encrypted here";

/// What a route that answers by itself cannot have: there is no server that would get it.
const NOT_WITH_ANSWERS: [&str; 16] = [
    "send_proxy",
    "strip_path",
    "replace_path",
    "normalize_path",
    "encoded_slashes",
    "rewrite",
    "request_headers",
    "upgrade",
    "keep_original_url",
    "max_body",
    "response_timeout",
    "request_body_timeout",
    "min_body_rate",
    "idle_timeout",
    "intercept_errors",
    "mirror",
];

/// Whether a key has no effect on a route that answers by itself, with this key.
pub(super) fn is_for_servers(answer: &str, name: &str) -> bool {
    // What is taken off is not looked for among the files. Files and placeholders are those of the new path.
    let is_for_both = matches!((answer, name), ("root", "strip_path") | ("root" | "redirect", "rewrite"));
    NOT_WITH_ANSWERS.contains(&name) && !is_for_both
}

/// Whether a key needs a route whose TLS ends here.
pub(super) fn is_for_terminated(name: &str) -> bool {
    NOT_WITH_PASSTHROUGH.iter().any(|(key, _)| *key == name)
}

/// The routes. One that leads nowhere answers by itself.
pub(super) fn routes<'s>(root: &'s Section, known: &Known, reader: &mut Reader<'_, '_>) -> Sorted<'s, Route> {
    let mut routes = Sorted { whole: Vec::new(), broken: Vec::new() };
    for section in root.sections("route") {
        let before = reader.report.len();
        let listeners = listeners(section, known, reader);
        reader.not_empty(section, "host", "leave it out for any host");
        let hosts = reader.list(section, "host", |text: &Spanned<String>, _| text.value.parse());
        reader.not_empty(section, "alpn", "leave it out for any protocol");
        let alpn = reader.list(section, "alpn", |text: &Spanned<String>, _| text.value.parse());
        reader.not_empty(section, "deny_ja4", "leave it out to refuse no client by its fingerprint");
        let deny_ja4 = reader.list(section, "deny_ja4", |text: &Spanned<String>, _| text.value.parse());
        let networks = access::networks(section, reader);
        let target = target(section, known, reader);
        let route = Route {
            listeners,
            hosts,
            alpn,
            path: path(section, reader),
            client_auth: client_auth(section, reader),
            tls: route_tls(section, reader),
            deny_ja4,
            networks,
            credentials: access::credentials(section, known, reader),
            http: HttpRules {
                mirror: canary::mirror(section, &known.backends, reader),
                ..rules::rules(section, reader)
            },
            log_one_in: log_one_in(section),
            bandwidth: section.size("bandwidth").map(Size::new),
            at: reader.at(&section.span),
            target: target.clone().unwrap_or_else(|| Target::Respond(Respond::default())),
        };
        if target.is_some() && reader.report.len() == before {
            routes.whole.push((route, section));
        } else {
            routes.broken.push((route, section));
        }
    }
    routes
}

fn path(section: &Section, reader: &mut Reader<'_, '_>) -> RoutePath {
    let Some(text) = section.text("path") else { return RoutePath::default() };
    let path: Option<RoutePath> = reader.parsed(&text);
    if let Some(what) = path.as_ref().and_then(RoutePath::ambiguity) {
        let problem =
            Problem::new(format!("servers read {what} in several ways, so that no route is found by it"));
        reader.report.local(&text.span, problem.help("leave it out: end `path` before it"));
    }
    path.unwrap_or_default()
}

/// The table of keys keeps it within its bounds.
fn log_one_in(section: &Section) -> NonZeroU32 {
    let number = section.integer("log_one_in").and_then(|number| u32::try_from(number).ok());
    number.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}

fn listeners(section: &Section, known: &Known, reader: &mut Reader<'_, '_>) -> Listeners {
    reader.not_empty(section, "listener", "leave it out for all listeners");
    let mut names = Vec::new();
    for text in section.list("listener").unwrap_or_default() {
        match reference(&text.value, "listener", &known.listeners) {
            Ok(name) if names.contains(&name) => {
                let problem = Problem::new("`listener` contains this twice");
                reader.report.local(&text.span, problem.help("keep one of the two"));
            }
            Ok(name) => names.push(name),
            Err(problem) => reader.report.whole(&text.span, problem),
        }
    }
    if section.mentions("listener") { Listeners::Named(names) } else { Listeners::All }
}

fn target(section: &Section, known: &Known, reader: &mut Reader<'_, '_>) -> Option<Target> {
    let written: Vec<&str> = TARGETS.into_iter().filter(|name| section.mentions(name)).collect();
    match written[..] {
        [] => {
            let problem = Problem::new("this route has no target");
            let help = "add one of `server`, `backend`, `root`, `passthrough`, `redirect` and `respond`";
            reader.report.whole(&section.span, problem.help(help));
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            let problem = Problem::new(format!("a route cannot have both `{first}` and `{second}`"));
            reader.report.local(section.key_span(second), problem.help("keep one of the two"));
        }
    }
    files::only_with_root(section, reader);
    if section.mentions("passthrough") {
        for (name, why) in NOT_WITH_PASSTHROUGH.into_iter().filter(|(name, _)| section.mentions(name)) {
            let problem = Problem::new(format!("`{name}` cannot go with `passthrough`"));
            reader.report.local(section.key_span(name), problem.help(format!("leave it out: {why}")));
        }
        let send_proxy = send_proxy(section, reader);
        let server = server(section, "passthrough", reader)?;
        return Some(Target::Passthrough(Passthrough { server, send_proxy }));
    }
    if let Some(answer) = ["redirect", "respond", "root"].into_iter().find(|name| section.mentions(name)) {
        let senseless = |name: &&str| section.mentions(name) && is_for_servers(answer, name);
        for name in NOT_WITH_ANSWERS.into_iter().filter(senseless) {
            let problem = Problem::new(format!("`{name}` cannot go with `{answer}`"));
            let help = "leave it out: no server gets these requests";
            reader.report.local(section.key_span(name), problem.help(help));
        }
        return match answer {
            "redirect" => rules::redirect(section, reader).map(Target::Redirect),
            "root" => files::files(section, reader).map(Target::Files),
            _ => rules::respond(section, reader).map(Target::Respond),
        };
    }
    let send_proxy = send_proxy(section, reader);
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
    Some(Target::Relay(Relay { to, send_proxy }))
}

/// The `server` of a route: `tls://` before its address says that it speaks TLS.
pub(super) fn relay_server(section: &Section, reader: &mut Reader<'_, '_>) -> Option<RelayTarget> {
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
    reader.tell(&text.span, address).map(RelayTarget::TlsServer)
}

fn server(section: &Section, name: &str, reader: &mut Reader<'_, '_>) -> Option<ServerAddress> {
    let text = section.text(name)?;
    if text.value.contains(' ') && !text.value.starts_with("unix:") {
        let problem = Problem::new(format!("`{name}` takes an address without a path"));
        let help = "for weights and backups, write a [backend.NAME] and name it with `backend`";
        reader.report.local(&text.span, problem.help(help));
        return None;
    }
    let address =
        text.value.parse::<ServerAddress>().and_then(|address| address.in_folder(reader.folder(&text.span)));
    reader.tell(&text.span, address)
}

fn send_proxy(section: &Section, reader: &mut Reader<'_, '_>) -> Option<SendProxy> {
    let Some(details) = section.section("send_proxy") else {
        return match section.text("send_proxy")?.value {
            word if ProxyVersion::from_word(word) == Some(ProxyVersion::V1) => Some(SendProxy::V1),
            _ => Some(SendProxy::V2(ProxyV2::default())),
        };
    };
    let v2 = ProxyV2 {
        tls: details.bool("tls").unwrap_or(true),
        crc32c: details.bool("crc32c").unwrap_or_default(),
        client_certificate: details.bool("client_certificate").unwrap_or_default(),
    };
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
    if v1 { Some(SendProxy::V1) } else { Some(SendProxy::V2(v2)) }
}

fn route_tls(section: &Section, reader: &mut Reader<'_, '_>) -> RouteTls {
    let Some(details) = section.section("tls") else { return RouteTls::default() };
    reader.not_empty(details, "aeads", "leave it out for those of [tls]");
    RouteTls {
        policy: details.text("policy").and_then(|text| Policy::from_word(text.value)),
        max_version: details.text("max_version").and_then(|text| TlsVersionLimit::from_word(text.value)),
        aeads: reader.list(details, "aeads", |text: &Spanned<String>, _| text.value.parse()),
    }
}

fn client_auth(section: &Section, reader: &mut Reader<'_, '_>) -> Option<ClientAuth> {
    let details = section.section("client_auth")?;
    let mode = details.text("mode").and_then(|text| AuthMode::from_word(text.value));
    reader.not_empty(
        details,
        "allow",
        "leave it out to accept every certificate that the authorities have issued",
    );
    let allow = reader.list(details, "allow", |text: &Spanned<String>, _| text.value.parse());
    reader.not_empty(details, "ca", "name the file with the authorities");
    reader.not_empty(details, "crl", "leave it out if there are no revocation lists");
    let file =
        |text: &Spanned<String>, reader: &mut Reader<'_, '_>| reader.origin(&text.span).file(&text.value);
    let (ca, crl) = (reader.list(details, "ca", file), reader.list(details, "crl", file));
    let trust_domains = trust_domains(details, reader);
    if details.mentions("ca") && details.mentions("trust_domains") {
        let problem =
            Problem::new("`ca` cannot go with `trust_domains`: its authorities could issue for every domain");
        let help = "keep one of the two, or name the trust domain of these authorities";
        reader.report.whole(details.key_span("ca"), problem.help(help));
    }
    if ca.is_empty() && trust_domains.is_empty() {
        let is_named = details.is_wrong("trust_domains") || !details.pairs("trust_domains").is_empty();
        if !details.mentions("ca") && !is_named {
            let problem = Problem::new("`client_auth` of [[route]] lacks `ca`");
            let help = "add `ca`, or `trust_domains`: the files with the authorities that issue to clients";
            reader.report.whole(&details.span, problem.help(help));
        }
        return None;
    }
    let xfcc = details.bool("xfcc").unwrap_or_default();
    Some(ClientAuth { mode: mode.unwrap_or(AuthMode::Required), ca, trust_domains, crl, allow, xfcc })
}

/// The trust domains, in the order of their names.
fn trust_domains(details: &Section, reader: &mut Reader<'_, '_>) -> Vec<TrustDomain> {
    let mut domains: BTreeMap<TrustDomainName, Vec<FilePath>> = BTreeMap::new();
    for (name, file) in details.pairs("trust_domains") {
        let name = reader.tell(&name.span, name.value.parse());
        let path = reader.origin(&file.span).file(&file.value);
        if let (Some(name), Some(path)) = (name, reader.tell(&file.span, path)) {
            domains.entry(name).or_default().push(path);
        }
    }
    domains.into_iter().map(|(name, ca)| TrustDomain { name, ca }).collect()
}
