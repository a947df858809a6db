//! Routes as TOML.

use std::time::Duration;

use super::{bare, differing, in_order, inline, member, members, path, table, text, values};
use crate::keys::Key;
use crate::literal::{array, quoted};
use crate::model::{
    ClientAuth, Credentials, ErrorPageFiles, FilePath, ForwardAuthConfig, HeaderChanges, HeaderField,
    HeaderValue, HttpRules, Jwks, JwtAuth, PathRewrite, PrefixRewrite, ProxyProtocolHeader, ProxyVersion,
    RedirectResponse, RelayConfig, RelayTarget, RouteConfig, RouteTarget, RouteTls, StaticFiles, StatusRange,
    TrustDomainConfig,
};
use crate::units::print_duration;

/// Writes a route without default values. `pages_of_all` states that the defaults of routes have error pages.
pub(crate) fn route(out: &mut String, route: &RouteConfig, pages_of_all: bool) {
    let mut lines = String::new();
    keys(&mut lines, route, pages_of_all);
    out.push_str("[[route]]\n");
    out.push_str(&in_order("route", &lines));
    out.push('\n');
}

fn keys(out: &mut String, route: &RouteConfig, pages_of_all: bool) {
    super::lines(out, differing("route", route));
    match &route.target {
        RouteTarget::Passthrough(passthrough) => {
            text(out, "passthrough", &passthrough.server);
            send_proxy(out, passthrough.send_proxy);
            connect_timeout(out, passthrough.connect_timeout);
        }
        RouteTarget::Relay(relay) => self::relay(out, relay),
        RouteTarget::Redirect(RedirectResponse { to, status: 308 }) => text(out, "redirect", to),
        RouteTarget::Redirect(redirect) => table(out, "route.redirect", Vec::new(), redirect),
        RouteTarget::Files(files) => self::files(out, files),
        RouteTarget::Respond(respond) => {
            let bound = values("route.respond", respond);
            let is_sent = |key: &Key| key.name() != "body" || respond.file.is_none();
            let parts = bound.filter(|(key, _)| is_sent(key)).map(|(key, value)| member(key, &value));
            inline(out, "route.respond", parts.collect());
        }
    }
    if let Some(auth) = &route.client_auth {
        client_auth(out, auth);
    }
    route_tls(out, &route.tls);
    credentials(out, &route.credentials);
    rules(out, &route.http);
    let answers = !matches!(route.target, RouteTarget::Passthrough(_));
    if pages_of_all && answers && route.http.error_pages.files.is_empty() {
        bare(out, "error_pages", false);
    }
}

fn credentials(out: &mut String, credentials: &Credentials) {
    if let Some(auth) = &credentials.forward {
        forward_auth(out, auth);
    }
    if let Some(auth) = &credentials.jwt {
        jwt(out, auth);
    }
    if let Some(auth) = &credentials.basic {
        table(out, "route.basic_auth", Vec::new(), auth);
    }
}

fn jwt(out: &mut String, auth: &JwtAuth) {
    let mut parts = match &auth.jwks {
        Jwks::File(file) => vec![format!("jwks = {}", quoted(&path(file)))],
        Jwks::Server(server) => {
            let url = format!("jwks = {}", quoted(server.url.as_str()));
            members("route.jwt", server).chain([url]).collect()
        }
    };
    let headers: Vec<String> =
        auth.headers.iter().map(|(name, claim)| format!("{name} = {}", quoted(claim))).collect();
    parts.push(format!("headers = {{ {} }}", headers.join(", ")));
    table(out, "route.jwt", parts, auth);
}

fn forward_auth(out: &mut String, auth: &ForwardAuthConfig) {
    let to = match &auth.to {
        RelayTarget::Backend(name) => format!("backend = {}", quoted(name.as_str())),
        RelayTarget::Server(server) => format!("server = {}", quoted(&server.to_string())),
        RelayTarget::TlsServer(server) => format!("server = {}", quoted(&format!("tls://{server}"))),
        // A single server is asked; validation allows nothing else.
        RelayTarget::Split(_) => return,
    };
    table(out, "route.forward_auth", vec![to], auth);
}

fn files(out: &mut String, files: &StaticFiles) {
    text(out, "root", path(&files.root));
    super::lines(out, values("route", files));
    if !files.cache_control.is_empty() {
        let pair = |(pattern, value): &(String, HeaderValue)| {
            format!("{} = {}", quoted(pattern), quoted(value.as_str()))
        };
        let pairs: Vec<String> = files.cache_control.iter().map(pair).collect();
        bare(out, "cache_control", format_args!("{{ {} }}", pairs.join(", ")));
    }
}

fn relay(out: &mut String, relay: &RelayConfig) {
    match &relay.to {
        RelayTarget::Backend(name) => text(out, "backend", name),
        RelayTarget::Server(server) => text(out, "server", server),
        RelayTarget::TlsServer(server) => text(out, "server", format_args!("tls://{server}")),
        RelayTarget::Split(split) => table(out, "route.split", Vec::new(), split),
    }
    send_proxy(out, relay.send_proxy);
    connect_timeout(out, relay.connect_timeout);
}

fn connect_timeout(out: &mut String, timeout: Option<Duration>) {
    if let Some(timeout) = timeout {
        text(out, "connect_timeout", print_duration(timeout));
    }
}

fn send_proxy(out: &mut String, version: Option<ProxyProtocolHeader>) {
    match version {
        None => {}
        Some(ProxyProtocolHeader::V1) => text(out, "send_proxy", ProxyVersion::V1),
        Some(ProxyProtocolHeader::V2(v2)) => {
            table(out, "route.send_proxy", vec![format!("version = \"{}\"", ProxyVersion::V2)], &v2);
        }
    }
}

fn route_tls(out: &mut String, tls: &RouteTls) {
    if *tls != RouteTls::default() {
        table(out, "route.tls", Vec::new(), tls);
    }
}

fn client_auth(out: &mut String, auth: &ClientAuth) {
    let files = |files: &[FilePath]| array(&files.iter().map(path).collect::<Vec<_>>());
    let domain = |one: &TrustDomainConfig| format!("\"{}\" = {}", one.name, files(&one.ca));
    let domains: Vec<_> = auth.trust_domains.iter().map(domain).collect();
    let domains = format!("trust_domains = {{ {} }}", domains.join(", "));
    let parts = if auth.trust_domains.is_empty() { Vec::new() } else { vec![domains] };
    table(out, "route.client_auth", parts, auth);
}

fn rules(out: &mut String, rules: &HttpRules) {
    match &rules.rewrite {
        PrefixRewrite::Keep => {}
        PrefixRewrite::Strip => bare(out, "strip_path", true),
        PrefixRewrite::Replace(path) => text(out, "replace_path", path),
    }
    if !rules.rewrites.is_empty() {
        let rule = |rule: &PathRewrite| {
            format!("{{ {} }}", members("route.rewrite", rule).collect::<Vec<_>>().join(", "))
        };
        let rules: Vec<String> = rules.rewrites.iter().map(rule).collect();
        bare(out, "rewrite", format_args!("[{}]", rules.join(", ")));
    }
    headers(out, "route.request_headers", &rules.request_headers);
    headers(out, "route.response_headers", &rules.response_headers);
    if let Some(hsts) = &rules.hsts {
        table(out, "route.hsts", Vec::new(), hsts);
    }
    if let Some(maintenance) = &rules.maintenance {
        table(out, "route.maintenance", Vec::new(), maintenance);
    }
    error_pages(out, &rules.error_pages);
    if let Some(compress) = &rules.compress {
        table(out, "route.compress", Vec::new(), compress);
    }
    if let Some(mirror) = &rules.mirror {
        table(out, "route.mirror", Vec::new(), mirror);
    }
}

pub(super) fn error_pages(out: &mut String, pages: &ErrorPageFiles) {
    let files = &pages.files;
    if files.is_empty() {
        return;
    }
    let of_status = |files: &[(StatusRange, FilePath)]| {
        let paths: Vec<_> = files.iter().map(|(_, file)| path(file)).collect();
        format!("{} = {}", files[0].0, array(&paths))
    };
    let pages: Vec<String> = files.chunk_by(|(one, _), (other, _)| one == other).map(of_status).collect();
    bare(out, "error_pages", format_args!("{{ {} }}", pages.join(", ")));
}

fn headers(out: &mut String, section: &str, changes: &HeaderChanges) {
    if changes.is_empty() {
        return;
    }
    let mut parts = Vec::new();
    for (key, of_kind) in [("set", &changes.set), ("add", &changes.add)] {
        if !of_kind.is_empty() {
            parts.push(format!("{key} = {}", fields(of_kind)));
        }
    }
    table(out, section, parts, changes);
}

/// Fields sorted by name, as a table: several values of one name are a list.
fn fields(fields: &[HeaderField]) -> String {
    let field = |of_name: &[HeaderField]| {
        let values: Vec<_> = of_name.iter().map(|(_, value)| value).collect();
        let name = quoted(of_name[0].0.as_str());
        match values[..] {
            [value] => format!("{name} = {}", quoted(value.as_str())),
            _ => format!("{name} = {}", array(&values)),
        }
    };
    let fields: Vec<String> = fields.chunk_by(|(one, _), (other, _)| one == other).map(field).collect();
    format!("{{ {} }}", fields.join(", "))
}
