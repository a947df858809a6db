//! A route as TOML.

use std::fmt::Write as _;

use super::{array, bare, list, networks, path, quoted, text};
use crate::model::{
    BasicAuth, ClientAuth, Compress, Credentials, EncodedSlashes, ErrorPages, FilePath, ForwardAuth,
    HeaderChanges, HeaderField, HeaderValue, Hsts, HttpRules, Jwks, JwtAuth, KeyServer, Listeners,
    Maintenance, Mirror, PathForm, PathRewrite, ProxyV2, ProxyVersion, Redirect, Relay, RelayTarget, Respond,
    Rewrite, Route, RouteLimits, RouteTls, Satisfy, SendProxy, Split, StaticFiles, StatusRange, Target,
    TrustDomain,
};
use crate::units::print_duration;

/// Writes a route with everything that is not as it would be anyway. `pages_of_all`: the defaults of routes have pages.
pub(crate) fn route(out: &mut String, route: &Route, pages_of_all: bool) {
    out.push_str("[[route]]\n");
    if let Listeners::Named(names) = &route.listeners {
        list(out, "listener", names);
    }
    if !route.hosts.is_empty() {
        list(out, "host", &route.hosts);
    }
    if !route.path.is_root() {
        text(out, "path", &route.path);
    }
    if !route.alpn.is_empty() {
        list(out, "alpn", &route.alpn);
    }
    match &route.target {
        Target::Passthrough(passthrough) => {
            text(out, "passthrough", &passthrough.server);
            send_proxy(out, passthrough.send_proxy);
        }
        Target::Relay(relay) => self::relay(out, relay),
        Target::Redirect(Redirect { to, status: 308 }) => text(out, "redirect", to),
        Target::Redirect(Redirect { to, status }) => {
            let to = quoted(&to.to_string());
            bare(out, "redirect", format_args!("{{ to = {to}, status = {status} }}"));
        }
        Target::Files(files) => self::files(out, files),
        Target::Respond(Respond { status, body, file, content_type }) => {
            let content = match file {
                Some(file) => format!("file = {}", quoted(&path(file))),
                None => format!("body = {}", quoted(body)),
            };
            let kind =
                content_type.as_ref().map(|kind| format!(", content_type = {}", quoted(kind.as_str())));
            let kind = kind.unwrap_or_default();
            bare(out, "respond", format_args!("{{ status = {status}, {content}{kind} }}"));
        }
    }
    if let Some(auth) = &route.client_auth {
        client_auth(out, auth);
    }
    route_tls(out, &route.tls);
    if !route.deny_ja4.is_empty() {
        list(out, "deny_ja4", &route.deny_ja4);
    }
    networks(out, &route.networks);
    credentials(out, &route.credentials);
    rules(out, &route.http);
    let answers = !matches!(route.target, Target::Passthrough(_));
    if pages_of_all && answers && route.http.error_pages.files.is_empty() {
        bare(out, "error_pages", false);
    }
    if let Some(rate) = route.bandwidth {
        text(out, "bandwidth", rate);
    }
    if route.log_one_in.get() > 1 {
        bare(out, "log_one_in", route.log_one_in);
    }
    out.push('\n');
}

fn credentials(out: &mut String, credentials: &Credentials) {
    if credentials.satisfy == Satisfy::Any {
        text(out, "satisfy", credentials.satisfy);
    }
    if let Some(auth) = &credentials.forward {
        forward_auth(out, auth);
    }
    if let Some(auth) = &credentials.jwt {
        jwt(out, auth);
    }
    if let Some(BasicAuth { file, realm, header, keep_authorization }) = &credentials.basic {
        let (file, realm) = (quoted(&path(file)), quoted(realm.as_str()));
        bare(
            out,
            "basic_auth",
            format_args!(
                "{{ file = {file}, realm = {realm}, header = \"{header}\", keep_authorization = {keep_authorization} }}"
            ),
        );
    }
}

fn jwt(out: &mut String, auth: &JwtAuth) {
    let JwtAuth { jwks, issuer, audience, headers, leeway, keep_authorization, keep_tunnels } = auth;
    let mut parts = match jwks {
        Jwks::File(file) => vec![format!("jwks = {}", quoted(&path(file)))],
        Jwks::Server(KeyServer { url, ca, refresh }) => {
            let ca = ca.iter().map(|file| format!("ca = {}", quoted(&path(file))));
            let refresh = format!("refresh = \"{}\"", print_duration(*refresh));
            [format!("jwks = {}", quoted(url.as_str())), refresh].into_iter().chain(ca).collect()
        }
    };
    parts.extend(issuer.iter().map(|issuer| format!("issuer = {}", quoted(issuer))));
    if !audience.is_empty() {
        parts.push(format!("audience = {}", array(audience)));
    }
    let headers: Vec<String> =
        headers.iter().map(|(name, claim)| format!("{name} = {}", quoted(claim))).collect();
    parts.push(format!("headers = {{ {} }}", headers.join(", ")));
    parts.push(format!("leeway = \"{}\"", print_duration(*leeway)));
    parts.push(format!("keep_authorization = {keep_authorization}, keep_tunnels = {keep_tunnels}"));
    bare(out, "jwt", format_args!("{{ {} }}", parts.join(", ")));
}

fn forward_auth(out: &mut String, auth: &ForwardAuth) {
    let ForwardAuth { to, path, headers, timeout, at: _ } = auth;
    let to = match to {
        RelayTarget::Backend(name) => format!("backend = {}", quoted(name.as_str())),
        RelayTarget::Server(server) => format!("server = {}", quoted(&server.to_string())),
        RelayTarget::TlsServer(server) => format!("server = {}", quoted(&format!("tls://{server}"))),
        // One server is asked, and the check makes nothing else.
        RelayTarget::Split(_) => return,
    };
    let (path, headers, timeout) = (quoted(path), array(headers), print_duration(*timeout));
    bare(
        out,
        "forward_auth",
        format_args!("{{ {to}, path = {path}, headers = {headers}, timeout = \"{timeout}\" }}"),
    );
}

fn files(out: &mut String, files: &StaticFiles) {
    let StaticFiles { root, index, tries, fallback, listing, precompressed, hidden, cache_control } = files;
    text(out, "root", path(root));
    list(out, "index", index);
    list(out, "try", tries);
    if let Some(fallback) = fallback {
        text(out, "fallback", fallback);
    }
    bare(out, "listing", listing);
    bare(out, "precompressed", precompressed);
    bare(out, "hidden", hidden);
    if !cache_control.is_empty() {
        let pair = |(pattern, value): &(String, HeaderValue)| {
            format!("{} = {}", quoted(pattern), quoted(value.as_str()))
        };
        let pairs: Vec<String> = cache_control.iter().map(pair).collect();
        bare(out, "cache_control", format_args!("{{ {} }}", pairs.join(", ")));
    }
}

fn relay(out: &mut String, relay: &Relay) {
    match &relay.to {
        RelayTarget::Backend(name) => text(out, "backend", name),
        RelayTarget::Server(server) => text(out, "server", server),
        RelayTarget::TlsServer(server) => text(out, "server", format_args!("tls://{server}")),
        RelayTarget::Split(split) => self::split(out, split),
    }
    send_proxy(out, relay.send_proxy);
}

fn split(out: &mut String, split: &Split) {
    let Split { backends, by, header, cookie, sticky_cookie } = split;
    let mut details = format!("backends = {}, by = \"{by}\"", array(backends));
    let header = header.as_ref().map(ToString::to_string);
    let cookies = [cookie, sticky_cookie].map(|name| name.as_ref().map(ToString::to_string));
    let [cookie, sticky_cookie] = cookies;
    for (key, value) in [("header", header), ("cookie", cookie), ("sticky_cookie", sticky_cookie)] {
        if let Some(value) = value {
            let _ = write!(details, ", {key} = {}", quoted(&value));
        }
    }
    bare(out, "split", format_args!("{{ {details} }}"));
}

fn mirror(out: &mut String, mirror: &Mirror) {
    let Mirror { backend, max_body, requests, one_in } = mirror;
    let details = format_args!(
        "{{ backend = \"{backend}\", max_body = \"{max_body}\", requests = {requests}, one_in = {one_in} }}"
    );
    bare(out, "mirror", details);
}

fn send_proxy(out: &mut String, version: Option<SendProxy>) {
    match version {
        None => {}
        Some(SendProxy::V1) => text(out, "send_proxy", ProxyVersion::V1),
        Some(SendProxy::V2(ProxyV2 { tls, crc32c, client_certificate })) => bare(
            out,
            "send_proxy",
            format_args!(
                "{{ version = \"{}\", tls = {tls}, crc32c = {crc32c}, client_certificate = {client_certificate} }}",
                ProxyVersion::V2
            ),
        ),
    }
}

fn route_tls(out: &mut String, tls: &RouteTls) {
    let RouteTls { policy, max_version, aeads } = tls;
    let policy = policy.map(|policy| format!("policy = \"{policy}\""));
    let version = max_version.map(|version| format!("max_version = \"{version}\""));
    let aeads = (!aeads.is_empty()).then(|| format!("aeads = {}", array(aeads)));
    let parts: Vec<String> = [policy, version, aeads].into_iter().flatten().collect();
    if !parts.is_empty() {
        bare(out, "tls", format_args!("{{ {} }}", parts.join(", ")));
    }
}

fn client_auth(out: &mut String, auth: &ClientAuth) {
    let files = |files: &[FilePath]| array(&files.iter().map(path).collect::<Vec<_>>());
    let _ = write!(out, "client_auth = {{ mode = \"{}\"", auth.mode);
    if !auth.ca.is_empty() {
        let _ = write!(out, ", ca = {}", files(&auth.ca));
    }
    if !auth.trust_domains.is_empty() {
        let domain = |one: &TrustDomain| format!("\"{}\" = {}", one.name, files(&one.ca));
        let domains: Vec<_> = auth.trust_domains.iter().map(domain).collect();
        let _ = write!(out, ", trust_domains = {{ {} }}", domains.join(", "));
    }
    if !auth.crl.is_empty() {
        let _ = write!(out, ", crl = {}", files(&auth.crl));
    }
    if !auth.allow.is_empty() {
        let _ = write!(out, ", allow = {}", array(&auth.allow));
    }
    if auth.xfcc {
        out.push_str(", xfcc = true");
    }
    out.push_str(" }\n");
}

fn rules(out: &mut String, rules: &HttpRules) {
    match &rules.rewrite {
        Rewrite::Keep => {}
        Rewrite::Strip => bare(out, "strip_path", true),
        Rewrite::Replace(path) => text(out, "replace_path", path),
    }
    let PathForm { normalize, encoded_slashes } = rules.paths;
    if normalize {
        bare(out, "normalize_path", true);
    }
    if encoded_slashes != EncodedSlashes::default() {
        text(out, "encoded_slashes", encoded_slashes);
    }
    if !rules.rewrites.is_empty() {
        let rule = |PathRewrite { pattern, to }: &PathRewrite| {
            format!("{{ match = {}, to = {} }}", quoted(pattern), quoted(to))
        };
        let rules: Vec<String> = rules.rewrites.iter().map(rule).collect();
        bare(out, "rewrite", format_args!("[{}]", rules.join(", ")));
    }
    headers(out, "request_headers", &rules.request_headers);
    if let Some(protocols) = &rules.upgrade {
        list(out, "upgrade", protocols);
    }
    if rules.keep_original_url {
        bare(out, "keep_original_url", true);
    }
    headers(out, "response_headers", &rules.response_headers);
    if let Some(Hsts { max_age, include_subdomains, preload }) = &rules.hsts {
        let max_age = print_duration(*max_age);
        bare(
            out,
            "hsts",
            format_args!(
                "{{ max_age = \"{max_age}\", include_subdomains = {include_subdomains}, preload = {preload} }}"
            ),
        );
    }
    if let Some(size) = rules.max_body {
        text(out, "max_body", size);
    }
    if let Some(file) = &rules.redirects {
        text(out, "redirects", path(file));
    }
    if let Some(Maintenance { retry_after, allow }) = &rules.maintenance {
        let (retry_after, allow) = (print_duration(*retry_after), array(allow));
        bare(out, "maintenance", format_args!("{{ retry_after = \"{retry_after}\", allow = {allow} }}"));
    }
    limits(out, &rules.limits);
    error_pages(out, &rules.error_pages);
    if let Some(compress) = &rules.compress {
        self::compress(out, compress);
    }
    if let Some(mirror) = &rules.mirror {
        self::mirror(out, mirror);
    }
}

fn limits(out: &mut String, limits: &RouteLimits) {
    let RouteLimits { response_timeout, request_body_timeout, min_body_rate, idle_timeout } = limits;
    for (key, time) in [
        ("response_timeout", response_timeout),
        ("request_body_timeout", request_body_timeout),
        ("idle_timeout", idle_timeout),
    ] {
        if let Some(time) = time {
            text(out, key, print_duration(*time));
        }
    }
    if let Some(rate) = min_body_rate {
        text(out, "min_body_rate", rate);
    }
}

pub(super) fn error_pages(out: &mut String, ErrorPages { files, intercept }: &ErrorPages) {
    if files.is_empty() {
        return;
    }
    let of_status = |files: &[(StatusRange, FilePath)]| {
        let paths: Vec<_> = files.iter().map(|(_, file)| path(file)).collect();
        format!("{} = {}", files[0].0, array(&paths))
    };
    let pages: Vec<String> = files.chunk_by(|(one, _), (other, _)| one == other).map(of_status).collect();
    bare(out, "error_pages", format_args!("{{ {} }}", pages.join(", ")));
    if *intercept {
        bare(out, "intercept_errors", true);
    }
}

fn compress(out: &mut String, compress: &Compress) {
    let Compress { algorithms, min_size, types, level, secrets } = compress;
    let mut rest = level.map(|level| format!(", level = {level}")).unwrap_or_default();
    if *secrets {
        rest.push_str(", secrets = true");
    }
    let (algorithms, types) = (array(algorithms), array(types));
    let details =
        format_args!("{{ algorithms = {algorithms}, min_size = \"{min_size}\", types = {types}{rest} }}");
    bare(out, "compress", details);
}

fn headers(out: &mut String, key: &str, changes: &HeaderChanges) {
    if changes.is_empty() {
        return;
    }
    let mut parts = Vec::new();
    for (key, of_kind) in [("set", &changes.set), ("add", &changes.add)] {
        if !of_kind.is_empty() {
            parts.push(format!("{key} = {}", fields(of_kind)));
        }
    }
    if !changes.remove.is_empty() {
        parts.push(format!("remove = {}", array(&changes.remove)));
    }
    bare(out, key, format_args!("{{ {} }}", parts.join(", ")));
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
