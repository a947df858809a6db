//! Any configuration that is valid, for properties.

mod access;
mod answers;
mod canary;
mod certificates;
mod observation;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

use offramp_config::model::{
    Admin, AlpnId, BackendConfig, BackendServer, CertificateSource, ClientNetworks, CompressionAlgorithm,
    CompressionConfig, Eject, EncodedSlashes, ErrorPageFiles, FilePath, FixedResponse, HeaderChanges,
    HeaderName, HeaderValue, Health, HostPattern, Hsts, HttpLimits, HttpProbe, HttpRules, Ja4Pattern, Limits,
    ListenAddress, ListenerConfig, Listeners, Mode, Name, Networks, Origins, Passthrough, PathForm,
    PlainRules, Pool, PostgresCancel, PreambleProtocol, PrefixRewrite, Probe, ProcessSettings,
    ProxyProtocolHeader, ProxyV2, RedirectResponse, RedirectTo, RelayConfig, RelayTarget, RouteConfig,
    RoutePath, RouteTarget, Sandbox, ServerAddress, ServerState, Shared, Size, StaticFiles, Telemetry,
    UpgradeProtocol, User, Weight, Workers,
};
use offramp_config::{At, Config, Keyed, Rate};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use access::credentials;
use answers::answers;
use canary::relay_of_requests;
use certificates::{authorities, certificates};
use observation::{access_log, figures, log, receivers};
use tls::{client_auth, server_tls, tls};

fn path() -> impl Strategy<Value = PathBuf> {
    "/[a-z\"\\\\ é\u{1}]{1,8}(/[a-z]{1,3})?".prop_map(PathBuf::from)
}

fn file() -> impl Strategy<Value = FilePath> {
    path().prop_map(FilePath::new)
}

fn server_address() -> impl Strategy<Value = ServerAddress> {
    prop_oneof![
        "/[a-z]{1,8}".prop_map(|path| ServerAddress::Unix(path.into())),
        (any::<[u8; 4]>(), 1u16..).prop_map(|(ip, port)| ServerAddress::Ip((ip, port).into())),
        (any::<[u16; 8]>(), 1u16..).prop_map(|(ip, port)| ServerAddress::Ip((ip, port).into())),
        ("[a-z]{1,5}(\\.[a-z]{2,3})?", 1u16..)
            .prop_map(|(host, port)| ServerAddress::Name { host: host.parse().unwrap(), port }),
    ]
}

fn host() -> impl Strategy<Value = HostPattern> {
    "(\\*\\.)?[a-z]{1,3}\\.(org|net)".prop_map(|text| text.parse().unwrap())
}

fn duration(min: u64, max: u64) -> impl Strategy<Value = Duration> {
    (min..=max).prop_map(Duration::from_millis)
}

fn distinct<T: PartialEq + Clone>(items: &mut Vec<T>) {
    let mut seen: Vec<T> = Vec::new();
    items.retain(|item| {
        !seen.contains(item) && {
            seen.push(item.clone());
            true
        }
    });
}

fn relay(backends: Vec<Name>) -> impl Strategy<Value = RelayConfig> {
    let tls = server_address()
        .prop_filter("a Unix socket has no name", |address| !matches!(address, ServerAddress::Unix(_)));
    let server =
        prop_oneof![server_address().prop_map(RelayTarget::Server), tls.prop_map(RelayTarget::TlsServer),];
    let server = server.boxed();
    let to = if backends.is_empty() {
        server
    } else {
        prop_oneof![server, select(backends).prop_map(RelayTarget::Backend)].boxed()
    };
    let proxy = prop_oneof![
        Just(ProxyProtocolHeader::V1),
        any::<(bool, bool)>().prop_map(|(crc32c, client_certificate)| ProxyProtocolHeader::V2(ProxyV2 {
            tls: true,
            crc32c,
            client_certificate
        })),
    ];
    (to, option::of(proxy), option::of(duration(1, 1_000_000)))
        .prop_map(|(to, send_proxy, connect_timeout)| RelayConfig { to, send_proxy, connect_timeout })
}

fn passthrough() -> impl Strategy<Value = Passthrough> {
    let version = prop_oneof![
        Just(ProxyProtocolHeader::V1),
        any::<(bool, bool)>().prop_map(|(tls, crc32c)| ProxyProtocolHeader::V2(ProxyV2 {
            tls,
            crc32c,
            client_certificate: false
        })),
    ];
    (server_address(), option::of(version), option::of(duration(1, 1_000_000)))
        .prop_map(|(server, send_proxy, connect_timeout)| Passthrough { server, send_proxy, connect_timeout })
}

fn deny_ja4() -> impl Strategy<Value = Vec<Ja4Pattern>> {
    let pattern = "t1[0-3][di]([0-9]{4}(h2_[0-9a-f]{12}_[0-9a-f]{0,11})?)?\\*";
    vec(pattern.prop_map(|text| text.parse().unwrap()), 0..3).prop_map(|mut patterns| {
        distinct(&mut patterns);
        patterns
    })
}

fn networks() -> impl Strategy<Value = ClientNetworks> {
    let network =
        any::<[u8; 2]>().prop_map(|[a, b]| Networks::One(format!("{a}.{b}.0.0/16").parse().unwrap()));
    let country = "[A-Z]{2}".prop_map(|code| Networks::Country(code.parse().unwrap()));
    let list = || {
        vec(
            prop_oneof![2 => network.clone(), 2 => file().prop_map(Networks::File), 1 => country.clone()],
            0..3,
        )
    };
    (list(), list()).prop_map(|(mut allow, mut deny)| {
        distinct(&mut allow);
        distinct(&mut deny);
        ClientNetworks { allow, deny }
    })
}

/// A route of connections.
fn tcp_route(backends: Vec<Name>) -> impl Strategy<Value = RouteConfig> {
    let alpn = select(vec!["h2", "http/1.1", "imap"]).prop_map(|id| id.parse::<AlpnId>().unwrap());
    let target = prop_oneof![
        3 => relay(backends).prop_map(RouteTarget::Relay),
        1 => passthrough().prop_map(RouteTarget::Passthrough),
    ];
    let matching = (option::of(host()), option::of(alpn));
    (
        matching,
        target,
        option::of(client_auth()),
        (deny_ja4(), networks()),
        (1u32..5, option::of(1u64 << 14..1 << 40)),
    )
        .prop_map(
            |((host, alpn), mut target, mut client_auth, (deny_ja4, networks), (log_one_in, rate))| {
                let passthrough = matches!(target, RouteTarget::Passthrough(_));
                client_auth = client_auth.filter(|_| !passthrough);
                without_certificate(&mut target, client_auth.is_some());
                RouteConfig {
                    hosts: host.into_iter().collect(),
                    alpn: alpn.into_iter().filter(|_| !passthrough).collect(),
                    client_auth,
                    deny_ja4,
                    networks,
                    log_one_in: log_one_in.try_into().unwrap(),
                    bandwidth: rate.map(Size::new),
                    ..RouteConfig::to(target)
                }
            },
        )
}

/// No client's certificate is sent where none is asked for.
fn without_certificate(target: &mut RouteTarget, asked: bool) {
    if let RouteTarget::Relay(RelayConfig { send_proxy: Some(ProxyProtocolHeader::V2(v2)), .. }) = target {
        v2.client_certificate &= asked;
    }
}

fn header_changes() -> impl Strategy<Value = HeaderChanges> {
    let name = || "x-[a-c]{1,2}".prop_map(|text| text.parse::<HeaderName>().unwrap());
    let field = move || {
        let value = prop_oneof![
            3 => "[!-~]([ -z|~\t]{0,4}[!-z|~])?",
            1 => "(\\{client\\}|\\{tls\\.sni\\}|\\{\\{uri\\}\\}|\\{\"a\":1\\}|x){1,3}",
        ];
        (name(), value).prop_map(|(name, value)| (name, value.parse().unwrap()))
    };
    (vec(field(), 0..3), vec(field(), 0..4), vec(name(), 0..3)).prop_map(|(mut set, mut add, mut remove)| {
        set.sort();
        set.dedup_by(|one, other| one.0 == other.0);
        add.sort_by(|one, other| one.0.cmp(&other.0));
        distinct(&mut remove);
        remove.retain(|name| set.iter().all(|(other, _)| other != name));
        HeaderChanges { set, add, remove }
    })
}

fn route_path() -> impl Strategy<Value = RoutePath> {
    "(/[a-c~;]{1,2}){0,2}".prop_map(|text| format!("/{}", text.trim_start_matches('/')).parse().unwrap())
}

fn static_files() -> impl Strategy<Value = StaticFiles> {
    let name = || "[a-z\"é]{1,4}\\.html";
    let pattern = "[*a-z/.]{1,5}".prop_map(|pattern| (pattern, "no-cache".parse().unwrap()));
    let rules = vec(pattern, 0..3).prop_map(|mut rules: Vec<(String, HeaderValue)>| {
        rules.sort_by(|(one, _), (other, _)| (other.len(), one).cmp(&(one.len(), other)));
        rules.dedup_by(|one, other| one.0 == other.0);
        rules
    });
    let tries = vec(Just("{path}.html".to_owned()), 0..2);
    let parts = (file(), vec(name(), 1..3), tries, option::of(name()), any::<(bool, bool, bool)>(), rules);
    parts.prop_map(
        |(root, mut index, mut tries, fallback, (listing, precompressed, hidden), cache_control)| {
            distinct(&mut index);
            tries.insert(0, "{path}".to_owned());
            let fallback = fallback.map(|name| format!("/{name}"));
            StaticFiles { root, index, tries, fallback, listing, precompressed, hidden, cache_control }
        },
    )
}

/// A route of requests.
fn http_route(backends: &[Name]) -> impl Strategy<Value = RouteConfig> + use<> {
    let url = "https://a\\.example/[a-z]{0,3}(\\{(host|path|query|uri)\\})?[a-z]{0,2}";
    let to = prop_oneof![Just("https".to_owned()), url].prop_map(|text| text.parse::<RedirectTo>().unwrap());
    let redirect = (to, select(vec![301, 302, 303, 307, 308]))
        .prop_map(|(to, status)| RouteTarget::Redirect(RedirectResponse { to, status }));
    let respond = (select(vec![200u16, 404, 503]), "[a-z\"\n\\\\é]{0,6}")
        .prop_map(|(status, body)| FixedResponse { status, body, ..FixedResponse::default() });
    let from_file = (file(), option::of(select(vec!["text/html", "a/b; c=\"d\""])))
        .prop_map(|(file, kind)| (Some(file), kind.map(|kind| kind.parse().unwrap())))
        .prop_map(|(file, content_type)| FixedResponse { file, content_type, ..FixedResponse::default() });
    let respond = prop_oneof![respond, from_file].prop_map(RouteTarget::Respond);
    let relay = relay_of_requests(backends).prop_map(|(relay, mirror)| (RouteTarget::Relay(relay), mirror));
    let files = static_files().prop_map(RouteTarget::Files).boxed();
    let alone = prop_oneof![redirect.boxed(), respond.boxed(), files].prop_map(|target| (target, None));
    let target = prop_oneof![2 => relay, 3 => alone];
    let rewrite = prop_oneof![
        Just(PrefixRewrite::Keep),
        Just(PrefixRewrite::Strip),
        route_path().prop_map(PrefixRewrite::Replace)
    ];
    let hsts = (duration(0, 1_000_000), any::<(bool, bool)>())
        .prop_map(|(max_age, (include_subdomains, preload))| Hsts { max_age, include_subdomains, preload });
    let max_body = option::of((0u64..1 << 40).prop_map(Size::new));
    let compress =
        option::of((1u8..10, 0u64..1 << 30, any::<bool>()).prop_map(|(level, min_size, secrets)| {
            CompressionConfig {
                algorithms: vec![CompressionAlgorithm::Gzip, CompressionAlgorithm::Zstd],
                min_size: Size::new(min_size),
                types: vec!["text/*".parse().unwrap()],
                level: Some(level).filter(|level| *level > 1),
                secrets,
            }
        }));
    let protocols = vec("websocket|tus/1\\.0|x-[a-c]", 0..3)
        .prop_map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<UpgradeProtocol>>());
    let upgrade = option::of(protocols.prop_map(|mut protocols| {
        distinct(&mut protocols);
        protocols
    }));
    let rules = (
        rewrite,
        header_changes(),
        header_changes(),
        option::of(hsts),
        max_body,
        (compress, answers(), upgrade, any::<bool>()),
    );
    let target = (target, networks(), credentials());
    (option::of(host()), route_path(), target, rules).prop_map(|(host, path, target, rules)| {
        let ((mut target, mirror), networks, credentials) = target;
        let (rewrite, request_headers, response_headers, hsts, max_body, rest) = rules;
        let (compress, answers, upgrade, keep_original_url) = rest;
        let paths = PathForm {
            normalize: rewrite == PrefixRewrite::Strip,
            encoded_slashes: if max_body.is_some() { EncodedSlashes::Pass } else { EncodedSlashes::Refuse },
        };
        let mut http = HttpRules {
            rewrite,
            paths,
            request_headers,
            response_headers,
            hsts,
            compress,
            mirror,
            upgrade,
            plain: PlainRules { max_body, keep_original_url, ..answers.plain },
            ..answers
        };
        if !http.rewrites.is_empty() {
            http.rewrite = PrefixRewrite::Keep;
        }
        if path.is_root() && http.rewrite == PrefixRewrite::Strip {
            http.rewrite = PrefixRewrite::Keep;
        }
        if !matches!(target, RouteTarget::Relay(_)) {
            http = HttpRules {
                response_headers: http.response_headers,
                hsts: http.hsts,
                error_pages: ErrorPageFiles { intercept: false, ..http.error_pages },
                maintenance: http.maintenance,
                redirects: http.redirects,
                compress: http.compress,
                ..HttpRules::default()
            };
        }
        without_certificate(&mut target, false);
        // The law of configurations in code: what is of requests names listeners of requests.
        let listeners = Listeners::Named(vec!["http".parse().unwrap()]);
        let hosts = host.into_iter().collect();
        RouteConfig { listeners, hosts, path, networks, credentials, http, ..RouteConfig::to(target) }
    })
}

fn name() -> impl Strategy<Value = Name> {
    "[a-c.]{1,2}".prop_map(|text| text.parse().unwrap())
}

/// All of a backend but its name and servers; nothing that only HTTP has.
fn care() -> impl Strategy<Value = BackendConfig> {
    let balance = select(vec!["round_robin", "least_conn", "two_choices", "hash:client"]);
    let pool = (option::of(1u32..9), 0u32..9, duration(1, 3_600_000), 0u32..9, duration(1, 86_400_000))
        .prop_map(|(max_connections, queue, queue_timeout, idle_connections, idle_timeout)| Pool {
            max_connections,
            queue,
            queue_timeout,
            idle_connections,
            idle_timeout,
            connect_timeout: (queue % 2 == 0).then_some(queue_timeout),
        });
    let http =
        ("/[a-z?=]{0,4}", option::of("[a-z]{1,3}(:8080)?"), vec(select(vec!["200", "2xx", "404"]), 1..3))
            .prop_map(|(path, host, mut status)| {
                distinct(&mut status);
                let status = status.iter().map(|text| text.parse().unwrap()).collect();
                Probe::Http(HttpProbe { path, host, status })
            });
    let health = (prop_oneof![Just(Probe::Connect), http], duration(10, 86_400_000), 1u32..=100)
        .prop_map(|(probe, interval, rise)| Health { probe, interval, rise, ..Health::default() });
    let eject = (1u32..=1000, duration(100, 3_600_000), duration(0, 3_600_000))
        .prop_map(|(failures, duration, slow_start)| Eject { failures, duration, slow_start });
    let care = (balance, pool, option::of(health), option::of(eject), option::of(server_tls()));
    care.prop_map(|(balance, pool, health, eject, mut tls)| {
        if health.as_ref().is_some_and(|health| matches!(health.probe, Probe::Http(_))) {
            tls.iter_mut().for_each(|tls| tls.preamble = None);
        }
        let balance = balance.parse().unwrap();
        BackendConfig { balance, pool, tls, health, eject, ..BackendConfig::new(Name::default(), Vec::new()) }
    })
}

fn backends() -> impl Strategy<Value = Vec<BackendConfig>> {
    let state = select(ServerState::ALL);
    let server = (server_address(), 1u16..=256, any::<bool>(), state);
    let server = server.prop_map(|(address, weight, backup, state)| BackendServer {
        address,
        weight: Weight::new(weight).unwrap(),
        backup,
        state,
        at: At::NOWHERE,
    });
    vec((name(), vec(server, 1..4), care()), 0..4).prop_map(|backends| {
        let mut out: Vec<BackendConfig> = Vec::new();
        for (name, mut servers, care) in backends {
            let mut seen = Vec::new();
            servers.retain(|server| {
                !seen.contains(&server.address) && {
                    seen.push(server.address.clone());
                    true
                }
            });
            out.push(BackendConfig { name, servers, ..care });
        }
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out.dedup_by(|a, b| a.name == b.name);
        out
    })
}

fn listeners() -> impl Strategy<Value = Vec<ListenerConfig>> {
    vec((name(), any::<bool>(), option::of(any::<[u8; 2]>())), 0..4).prop_map(|listeners| {
        let mut out: Vec<ListenerConfig> = Vec::new();
        for (port, (name, tls, network)) in (1000u16..).zip(listeners) {
            if out.iter().all(|other| other.name != name) {
                let network = network.map(|[a, b]| format!("{a}.{b}.0.0/16").parse().unwrap());
                out.push(ListenerConfig {
                    name,
                    addresses: vec![ListenAddress::Ip(([127, 0, 0, 1], port).into())],
                    mode: Mode::Tcp,
                    tls,
                    accept_proxy: network.into_iter().collect(),
                    networks: ClientNetworks {
                        allow: network.into_iter().map(Networks::One).collect(),
                        deny: Vec::new(),
                    },
                    preamble: Some(PreambleProtocol::Postgres).filter(|_| tls && port % 2 == 0),
                    trusted_proxies: Vec::new(),
                    cancel: if tls && port % 4 == 0 { PostgresCancel::Clear } else { PostgresCancel::Tls },
                    via: false,
                    at: At::NOWHERE,
                });
            }
        }
        out
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let tcp = (1u32..=10_000_000, 1u32..=10_000_000, duration(1, 3_600_000), duration(0, 86_400_000))
        .prop_map(|(connections, connections_per_client, handshake_timeout, drain_timeout)| Limits {
            connections,
            connections_per_client,
            handshakes_per_client: (connections % 2 == 0)
                .then(|| Rate::literal::<7>(offramp_config::Per::Hour)),
            handshake_timeout,
            max_age: (connections % 3 == 0).then_some(drain_timeout.max(Duration::from_secs(1))),
            max_age_grace: if connections % 5 == 0 { drain_timeout } else { Limits::default().max_age_grace },
            drain_timeout,
            ..Limits::default()
        });
    let times = (duration(1, 3_600_000), duration(1, 3_600_000), duration(1, 86_400_000));
    let sizes = (0u64..=1 << 30, 1u64 << 10..=1 << 20, 64u64..=1 << 20)
        .prop_map(|(rate, head, target)| (Size::new(rate), Size::new(head), Size::new(target)));
    let counts = (1u32..=10_000, 1u32..=10_000, any::<bool>());
    (tcp, times, sizes, counts).prop_map(|(tcp, times, sizes, (request_headers, streams, limited))| Limits {
        http: HttpLimits {
            request_header_timeout: times.0,
            request_body_timeout: times.1,
            keepalive_timeout: times.2,
            min_body_rate: sizes.0,
            request_header_size: sizes.1,
            request_target_size: sizes.2,
            request_headers,
            streams,
            requests_per_client: limited.then(|| Rate::literal::<9>(offramp_config::Per::Second)),
            ..HttpLimits::default()
        },
        ..tcp
    })
}

/// A listener of requests without TLS, so that a redirect to https may name it.
fn http_listener() -> impl Strategy<Value = ListenerConfig> {
    any::<(bool, [u8; 2])>().prop_map(|(via, [a, b])| ListenerConfig {
        name: "http".parse().unwrap(),
        addresses: vec![ListenAddress::Ip(([127, 0, 0, 1], 80).into())],
        mode: Mode::Http,
        tls: false,
        trusted_proxies: vec![format!("{a}.{b}.0.0/16").parse().unwrap()],
        via,
        ..ListenerConfig::default()
    })
}

/// Any configuration that is valid.
pub(crate) fn config() -> impl Strategy<Value = Config> {
    let user = "[a-z]{1,8}".prop_map(|name| User { name, at: At::NOWHERE });
    let process = (0u16..=1024, option::of(user), path(), any::<bool>(), select(Sandbox::ALL));
    let plain = (process, log(), access_log(), figures(), tls(), limits());
    let rest = backends().prop_flat_map(|backends| {
        let names: Vec<Name> = backends.iter().map(|backend| backend.name.clone()).collect();
        (Just(backends), vec(tcp_route(names.clone()), 0..5), vec(http_route(&names), 0..4))
    });
    let certificates = (certificates(), authorities(), receivers());
    (plain, certificates, listeners(), http_listener(), rest).prop_map(
        |(
            plain,
            (certificates, authorities, notify),
            mut listeners,
            http,
            (mut backends, mut routes, requests),
        )| {
            let (
                (workers, user, state_dir, watch, sandbox),
                log,
                access_log,
                (metrics, tracing, log_store, admin),
                tls,
                limits,
            ) = plain;
            // HSTS names no listener of plain text.
            let mut requests = requests;
            requests.iter_mut().for_each(|route| route.http.hsts = None);
            if !requests.is_empty() {
                // Nobody is asked for TLS by a preamble behind a listener of HTTP.
                backends.iter_mut().flat_map(|one| &mut one.tls).for_each(|tls| tls.preamble = None);
                listeners.push(http);
                listeners.push(ListenerConfig {
                    name: "tcp".parse().unwrap(),
                    addresses: vec![ListenAddress::Ip(([127, 0, 0, 1], 81).into())],
                    ..ListenerConfig::default()
                });
            }
            // The challenge of letsencrypt is a handshake.
            let tls_is_there = listeners.is_empty() || listeners.iter().any(|listener| listener.tls);
            let mut certificates = certificates;
            certificates.retain(|certificate| match &certificate.source {
                CertificateSource::Acme(acme) => {
                    tls_is_there || acme.authorities[0].as_str() != "letsencrypt"
                }
                _ => true,
            });
            routes.append(&mut requests);
            let mut seen = Vec::new();
            routes.retain(|route| {
                !seen.contains(&route.key()) && {
                    seen.push(route.key());
                    true
                }
            });
            let mut config = Config {
                process: ProcessSettings {
                    workers: workers.try_into().map_or(Workers::Auto, Workers::Count),
                    user,
                    state_dir,
                    watch,
                    sandbox,
                },
                geoip: Some(FilePath::new("/countries.mmdb")),
                admin: Admin { endpoint: admin, ..Admin::default() },
                telemetry: Telemetry { log, access_log, log_store, metrics, tracing, notify },
                tls,
                limits,
                certificates,
                authorities,
                listeners,
                error_pages: ErrorPageFiles::default(),
                shared: Shared::default(),
                routes,
                backends,
                origins: Origins::default(),
            };
            config.fill_implied();
            config
        },
    )
}
