//! What listeners in mode `http` have beside those of connections: where requests go and what is done to them,
//! and which handshake a server name chooses.

mod headers;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU32;
use std::sync::Arc;

use headers::{rules, value};
use http::{HeaderValue, StatusCode};
use offramp_config::At;
use offramp_config::model::{self, AlpnId, AuthMode};
use offramp_http::path::normalize;
use offramp_proxy::limit::Quota;
use offramp_proxy::{
    Action, AuthClass, ClosedPaths, Coding, Compress, Detours, Files, HeaderPolicy, Http, HttpRoute, HttpTls,
    Maintenance, Match, Network, PathHandling, PathMatch, PathRules, Paths, Proxy, Redirect, RequestLimits,
    Respond, Rewrite, Route, RouteBackends, RouteRule, Target, Template, media_type,
};
use offramp_sources::contents::Contents;

use super::backends::Backends;
use super::canary;
use super::routes::{self, ja4_list, name, place, send_proxy, split};
use super::tls::{self, Termination};
use super::{Assembly, Findings, bandwidths};

mod closed;
mod openings;
mod secured;

/// The rules of an HTTP listener for connections and for requests.
pub(super) struct Ways {
    /// By the server name, before there is a request.
    pub(super) rules: Vec<RouteRule<Route>>,
    /// Chosen by the request.
    pub(super) http: Http,
}

/// The ways of one listener.
pub(super) fn ways<'c>(parts: &mut Assembly<'c>, listener: &'c model::ListenerConfig) -> Ways {
    let config = parts.config;
    let mut paths = Vec::new();
    let mut entries = closed::Entries::default();
    for route in config.routes_of(listener) {
        if matches!(route.target, model::RouteTarget::Passthrough(_)) {
            continue;
        }
        let entry = entries.number(route);
        let variants = split(route).into_iter().flat_map(|(preference, Match { hosts, .. })| {
            let variants = closed::variants(config, listener, route, hosts);
            variants.into_iter().map(move |(hosts, closed)| (preference, hosts, closed))
        });
        for (preference, hosts, closed) in variants {
            // What cannot be made is reported, and there will be no snapshot.
            if let Some(mut to) = request(parts, route) {
                if let Action::Files(files) = &mut to.action
                    && let Some(files) = Arc::get_mut(files)
                {
                    files.closed = closed;
                }
                let matches = PathMatch { hosts, path: prefix(route), entry };
                paths.push((preference, (matches, to)));
            }
        }
    }
    openings::look(config, listener, &mut parts.report);
    paths.extend(secured::rules(config, listener, &mut parts.contents, &mut parts.report));
    // The sort is stable, which keeps the order of the file among equals.
    paths.sort_by_key(|(preference, _)| *preference);
    let rules = if listener.tls {
        handshakes(parts, listener)
    } else {
        let plain =
            HttpTls { tls: None, allow: None, configured: Arc::default(), client_auth: AuthClass::default() };
        vec![RouteRule {
            matches: Match::default(),
            to: Route {
                name: "default".into(),
                target: Target::Http(plain),
                deny_ja4: Arc::default(),
                addresses: None,
                log_one_in: NonZeroU32::MIN,
                bandwidth: None,
            },
        }]
    };
    let network = |range: &model::Cidr| Network::new(range.address(), range.prefix());
    let http = Http {
        routes: Paths::new(paths.into_iter().map(|(_, rule)| rule).collect()),
        trusted_proxies: listener.trusted_proxies.iter().map(network).collect(),
        via: listener.via,
        limits: limits(&config.limits.http),
        error_pages: parts.contents.pages(&config.error_pages, &mut parts.report),
    };
    Ways { rules, http }
}

/// The choice by server names: termination of TLS, and the rule for client certificates.
fn handshakes<'c>(parts: &mut Assembly<'c>, listener: &'c model::ListenerConfig) -> Vec<RouteRule<Route>> {
    let mut ranked: Vec<_> = parts
        .config
        .routes_of(listener)
        .flat_map(|route| {
            split(route).into_iter().map(move |(preference, matches)| (preference, matches, route))
        })
        .collect();
    // Hosts go before listeners: a path for any host must not open the handshake of one that is sealed.
    ranked.sort_by_key(|((every_listener, host, ..), _, _)| (*host, *every_listener));
    let mut rules = Vec::new();
    let mut seen = HashSet::new();
    for (_, matches, route) in ranked {
        if !seen.insert(matches.hosts.clone()) {
            // The best of the routes of these hosts has chosen.
            continue;
        }
        let (target, addresses, log_one_in) = match &route.target {
            model::RouteTarget::Passthrough(passthrough) => {
                let to = routes::sealed(passthrough, &mut parts.backends, &mut parts.report);
                (Some(Target::Passthrough(to)), parts.access.rules(&route.networks), route.log_one_in)
            }
            _ => {
                let http = handshake(Some(route), &route.at, parts);
                // A connection has an event only where no request has one, which is a failure.
                (http.map(Target::Http), None, NonZeroU32::MIN)
            }
        };
        let name = if matches.hosts.is_empty() { "default".to_owned() } else { matches.hosts.join(",") };
        let deny_ja4 = Arc::new(ja4_list(route));
        // Requests have the bandwidths of their own routes.
        let is_sealed = matches!(route.target, model::RouteTarget::Passthrough(_));
        let bandwidth = bandwidths::of(&parts.bandwidths, route).filter(|_| is_sealed);
        rules.extend(target.map(|target| RouteRule {
            matches,
            to: Route { name: name.into(), target, deny_ja4, addresses, log_one_in, bandwidth },
        }));
    }
    if !rules.iter().any(|rule| rule.matches.hosts.is_empty())
        && let Some(http) = handshake(None, &listener.at, parts)
    {
        // The request may name a host that the server name does not.
        let to = Route {
            name: "default".into(),
            target: Target::Http(http),
            deny_ja4: Arc::default(),
            addresses: None,
            log_one_in: NonZeroU32::MIN,
            bandwidth: None,
        };
        rules.push(RouteRule { matches: Match::default(), to });
    }
    rules
}

/// The handshake that a route asks for; without one: that of any client.
fn handshake(route: Option<&model::RouteConfig>, at: &At, parts: &mut Assembly<'_>) -> Option<HttpTls> {
    let Assembly { termination, report, .. } = parts;
    let auth = route.and_then(|route| route.client_auth.as_ref());
    let of_all = model::RouteTls::default();
    let tls = route.map_or(&of_all, |route| &route.tls);
    let terms = termination.terms(tls, &AlpnId::of_http(), auth, at, report)?;
    Some(HttpTls {
        tls: Some(terms.configs),
        allow: auth.map(|auth| tls::allow(auth, at, report)),
        configured: terms.offer,
        client_auth: route.map(|route| class(route, termination)).unwrap_or_default(),
    })
}

/// The number of a rule for clients: the same as long as mode, authorities, names and fingerprints are.
fn class(route: &model::RouteConfig, termination: &Termination<'_>) -> AuthClass {
    let mut hasher = DefaultHasher::new();
    for pattern in &route.deny_ja4 {
        pattern.as_str().hash(&mut hasher);
    }
    // A connection of another host may have been made by weaker terms.
    let policy = termination.policy(&route.tls);
    let is_usual = policy == termination.policy(&model::RouteTls::default());
    if !is_usual {
        policy.hash(&mut hasher);
    }
    let Some(auth) = &route.client_auth else {
        // 0 is that there is no rule.
        return if route.deny_ja4.is_empty() && is_usual {
            AuthClass::default()
        } else {
            AuthClass(hasher.finish().max(1))
        };
    };
    (auth.mode == AuthMode::Required).hash(&mut hasher);
    if let Some(trust) = termination.trust(auth) {
        hasher.write(&trust.context());
    }
    AuthClass(hasher.finish().max(1))
}

/// The target of a route's requests; `None` where it has a fault, which is reported.
fn request<'c>(parts: &mut Assembly<'c>, route: &'c model::RouteConfig) -> Option<HttpRoute> {
    let Assembly { backends, access, bandwidths, termination, contents, report, .. } = parts;
    let rules = &route.http;
    let error_pages = contents.pages(&rules.error_pages, report);
    let map = rules.redirects.as_ref();
    let redirects = map.and_then(|file| contents.redirects(file, &prefix(route), report));
    let mirror = match &rules.mirror {
        None => None,
        Some(mirror) => Some(canary::mirror(mirror, &route.at, backends, report)?),
    };
    let auth = route.credentials.forward.as_ref();
    let auth = auth.and_then(|auth| place(&auth.to, &auth.at, backends, report));
    let made = action(route, backends, contents, report)?.and_then(|action| {
        let access = access.access(route, auth)?;
        let (request, response) =
            (self::rules(&rules.request_headers)?, self::rules(&rules.response_headers)?);
        let mut headers = HeaderPolicy::new(request, response, &access.reserved);
        headers.hsts = rules.hsts.as_ref().map(hsts).transpose()?;
        Ok(HttpRoute {
            name: name(route).into(),
            action,
            client_auth: class(route, termination),
            access,
            xfcc: route.client_auth.as_ref().is_some_and(|auth| auth.xfcc),
            headers,
            upgrade: match &rules.upgrade {
                Some(protocols) => protocols.iter().map(|protocol| protocol.as_str().into()).collect(),
                None => ["websocket".into()].into(),
            },
            error_pages,
            plain: rules.plain,
            connect_timeout: match &route.target {
                model::RouteTarget::Relay(relay) => relay.connect_timeout,
                _ => None,
            },
            detours: Detours {
                maintenance: rules.maintenance.as_ref().map(|rule| Box::new(maintenance(rule))),
                redirects,
                rewrites: rewrites(&rules.rewrites)?,
            },
            compress: rules.compress.as_ref().map(compress),
            mirror,
            log_one_in: route.log_one_in,
            bandwidth: bandwidths::of(bandwidths, route),
        })
    });
    made.map_err(|error| report.error(&route.at, error)).ok()
}

/// The action on a request; `None` where its backend is missing, which is reported.
fn action(
    route: &model::RouteConfig,
    backends: &mut Backends<'_>,
    contents: &mut Contents,
    report: &mut Findings,
) -> Option<Result<Action, String>> {
    let action = match &route.target {
        model::RouteTarget::Relay(relay) => Ok(Action::Proxy(Proxy {
            to: match &relay.to {
                model::RelayTarget::Split(split) => {
                    RouteBackends::Split(Box::new(canary::split(split, &route.at, backends, report)?))
                }
                to => RouteBackends::Backend(place(to, &route.at, backends, report)?),
            },
            send_proxy: relay.send_proxy.map(send_proxy),
            rewrite: rewrite(route),
            paths: PathHandling {
                normalize: route.http.paths.normalize,
                encoded_slashes: route.http.paths.encoded_slashes == model::EncodedSlashes::Pass,
            },
        })),
        model::RouteTarget::Redirect(redirect) => self::redirect(redirect).map(Action::Redirect),
        model::RouteTarget::Files(files) => {
            self::files(route, files, contents, report).map(|files| Action::Files(Arc::new(files)))
        }
        model::RouteTarget::Respond(respond) => self::respond(respond, contents, report).map(Action::Respond),
        // It was decided before there was a request.
        model::RouteTarget::Passthrough(_) => return None,
    };
    Some(action)
}

/// The path of a route in the normal form by which requests are compared with it.
fn prefix(route: &model::RouteConfig) -> String {
    normalize(route.path.as_str()).text.into_owned()
}

fn rewrite(route: &model::RouteConfig) -> Rewrite {
    let length = if route.path.is_root() { 0 } else { prefix(route).len() };
    match &route.http.rewrite {
        model::PrefixRewrite::Keep => Rewrite::Keep,
        model::PrefixRewrite::Strip => Rewrite::Strip(length),
        // What follows begins with `/` by itself.
        model::PrefixRewrite::Replace(path) if path.is_root() => Rewrite::Strip(length),
        model::PrefixRewrite::Replace(path) => Rewrite::Replace(length, path.as_str().into()),
    }
}

fn rewrites(rules: &[model::PathRewrite]) -> Result<Option<Box<PathRules>>, String> {
    if rules.is_empty() {
        return Ok(None);
    }
    let rules = PathRules::new(rules.iter().map(|rule| (rule.pattern.as_str(), rule.to.as_str())));
    rules.map(|rules| Some(Box::new(rules))).map_err(|error| format!("rewrite: {error}"))
}

fn redirect(redirect: &model::RedirectResponse) -> Result<Redirect, String> {
    let to = match &redirect.to {
        model::RedirectTo::Https => "https://{host}{uri}".to_owned(),
        url @ model::RedirectTo::Url(_) => url.to_string(),
    };
    Ok(Redirect {
        status: status(redirect.status)?,
        to: Template::parse(&to).map_err(|error| format!("redirect: {error}"))?,
    })
}

fn respond(
    respond: &model::FixedResponse,
    contents: &mut Contents,
    report: &mut Findings,
) -> Result<Respond, String> {
    let (body, kind) = match &respond.file {
        Some(file) => {
            let kind = media_type(&file.path.to_string_lossy());
            // One that cannot be read was reported.
            (contents.body(file, report).unwrap_or_default(), kind)
        }
        None => (respond.body.clone().into(), "text/plain; charset=utf-8".to_owned()),
    };
    let content_type = match &respond.content_type {
        _ if body.is_empty() => None,
        Some(kind) => Some(value(kind)?),
        None => Some(HeaderValue::from_str(&kind).map_err(|error| format!("`{kind}`: {error}"))?),
    };
    Ok(Respond { status: status(respond.status)?, content_type, body })
}

fn maintenance(rule: &model::MaintenanceMode) -> Maintenance {
    let network = |range: &model::Cidr| Network::new(range.address(), range.prefix());
    Maintenance {
        retry_after: u32::try_from(rule.retry_after.as_secs()).unwrap_or(u32::MAX),
        allow: rule.allow.iter().map(network).collect(),
    }
}

/// The files of a route. A root that cannot be read is a mistake in its line, and a warning where it was in use already.
fn files(
    route: &model::RouteConfig,
    files: &model::StaticFiles,
    contents: &Contents,
    report: &mut Findings,
) -> Result<Files, String> {
    let root = &files.root;
    if let Err(error) = std::fs::read_dir(&root.path) {
        let text = format!("root: cannot read the directory {}: {error}", root.path.display());
        if contents.is_known() { report.warn(&root.at, text) } else { report.error(&root.at, text) }
    }
    let texts = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
    let rule =
        |(pattern, value): &(String, model::HeaderValue)| Ok((pattern.as_str().into(), self::value(value)?));
    Ok(Files {
        root: root.path.as_path().into(),
        closed: ClosedPaths::default(),
        strip: if route.http.rewrite == model::PrefixRewrite::Strip { prefix(route).len() } else { 0 },
        index: texts(&files.index),
        tries: texts(&files.tries),
        fallback: files.fallback.as_deref().map(|path| path.trim_start_matches('/').into()),
        listing: files.listing,
        precompressed: files.precompressed,
        hidden: files.hidden,
        cache_control: files.cache_control.iter().map(rule).collect::<Result<_, String>>()?,
    })
}

fn status(status: u16) -> Result<StatusCode, String> {
    StatusCode::from_u16(status).map_err(|error| format!("{status}: {error}"))
}

fn compress(compress: &model::CompressionConfig) -> Arc<Compress> {
    let coding = |algorithm: &model::CompressionAlgorithm| match algorithm {
        model::CompressionAlgorithm::Zstd => Coding::Zstd,
        model::CompressionAlgorithm::Brotli => Coding::Brotli,
        model::CompressionAlgorithm::Gzip => Coding::Gzip,
    };
    Arc::new(Compress {
        algorithms: compress.algorithms.iter().map(coding).collect(),
        min_size: compress.min_size.bytes(),
        types: compress.types.iter().map(|range| range.as_str().into()).collect(),
        level: compress.level,
        secrets: compress.secrets,
    })
}

fn hsts(hsts: &model::Hsts) -> Result<HeaderValue, String> {
    let mut text = format!("max-age={}", hsts.max_age.as_secs());
    if hsts.include_subdomains {
        text.push_str("; includeSubDomains");
    }
    if hsts.preload {
        text.push_str("; preload");
    }
    HeaderValue::from_str(&text).map_err(|error| format!("hsts: {error}"))
}

fn limits(limits: &model::HttpLimits) -> RequestLimits {
    // The language keeps sizes far below.
    let small = |size: model::Size| u32::try_from(size.bytes()).unwrap_or(u32::MAX);
    let rate = |rate: offramp_config::Rate| Quota { count: rate.count.get(), per: rate.per.duration() };
    RequestLimits {
        request_header_timeout: limits.request_header_timeout,
        request_body_timeout: limits.request_body_timeout,
        min_body_rate: limits.min_body_rate.bytes(),
        keepalive_timeout: limits.keepalive_timeout,
        request_headers: limits.request_headers,
        request_header_size: small(limits.request_header_size),
        request_target_size: small(limits.request_target_size),
        requests_per_client: limits.requests_per_client.map(rate),
        streams: limits.streams,
        memory: usize::try_from(limits.memory.bytes()).unwrap_or(usize::MAX),
        max_window: small(limits.max_window),
        file_cache: usize::try_from(limits.file_cache.bytes()).unwrap_or(usize::MAX),
        compression_memory: usize::try_from(limits.compression_memory.bytes()).unwrap_or(usize::MAX),
    }
}

#[cfg(test)]
mod tests;
