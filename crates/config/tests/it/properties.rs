//! Laws: any text is answered without a panic, what is printed reads back, a difference leads from the old
//! to the new.

use std::path::PathBuf;
use std::time::Duration;

use offramp_config::model::{
    AccessOutput, Allow, AlpnId, AuthMode, Backend, Balance, Certificate, CertificateName, CertificateSource,
    ClientAuth, DefaultRole, FilePath, HostPattern, Level, Limits, ListenAddress, Listener, Listeners, Log,
    LogFormat, LogOutput, Metrics, Mode, Name, Policy, ProxyV2, RecordSize, RecordSizeLimit, Relay,
    RelayTarget, Route, SendProxy, Server, ServerAddress, Target, Tickets, Tls, User, Weight, Workers,
};
use offramp_config::{At, Config, ConfigDiff, Environment, Keyed, ListDiff, Rate, parse, print};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

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

fn relay(backends: Vec<Name>) -> impl Strategy<Value = Relay> {
    let server = server_address().prop_map(RelayTarget::Server).boxed();
    let to = if backends.is_empty() {
        server
    } else {
        prop_oneof![server, select(backends).prop_map(RelayTarget::Backend)].boxed()
    };
    let allow = "(dns|uri|cn):[a-z*:/.]{1,8}".prop_map(|text| text.parse::<Allow>().unwrap());
    let auth = (select(AuthMode::ALL), file(), vec(allow, 0..3)).prop_map(|(mode, ca, mut allow)| {
        let mut seen = Vec::new();
        allow.retain(|item| {
            !seen.contains(item) && {
                seen.push(item.clone());
                true
            }
        });
        ClientAuth { mode, ca, allow }
    });
    let proxy = prop_oneof![
        Just(SendProxy::V1),
        any::<(bool, bool)>()
            .prop_map(|(crc32c, client_certificate)| SendProxy::V2(ProxyV2 { crc32c, client_certificate })),
    ];
    (to, option::of(proxy), option::of(auth)).prop_map(|(to, mut send_proxy, client_auth)| {
        if let (Some(SendProxy::V2(v2)), None) = (&mut send_proxy, &client_auth) {
            v2.client_certificate = false;
        }
        Relay { to, send_proxy, client_auth }
    })
}

fn route(backends: Vec<Name>) -> impl Strategy<Value = Route> {
    let alpn = select(vec!["h2", "http/1.1", "imap"]).prop_map(|id| id.parse::<AlpnId>().unwrap());
    let target = prop_oneof![
        3 => relay(backends).prop_map(Target::Relay),
        1 => server_address().prop_map(Target::Passthrough),
    ];
    (option::of(host()), option::of(alpn), target).prop_map(|(host, alpn, target)| {
        let passthrough = matches!(target, Target::Passthrough(_));
        Route {
            listeners: Listeners::All,
            hosts: host.into_iter().collect(),
            alpn: alpn.into_iter().filter(|_| !passthrough).collect(),
            target,
            at: At::NOWHERE,
        }
    })
}

fn certificates() -> impl Strategy<Value = Vec<Certificate>> {
    let files = (file(), option::of(file())).prop_map(|(cert, key)| CertificateSource::Files { cert, key });
    let local = host().prop_map(|host| CertificateSource::Local { names: vec![CertificateName::Host(host)] });
    let role = prop_oneof![Just(DefaultRole::Unsaid), Just(DefaultRole::Always), Just(DefaultRole::Never)];
    vec((prop_oneof![files, local], role), 0..4).prop_map(|certificates| {
        let mut defaults = 0;
        let certificate = |(source, mut default)| {
            defaults += usize::from(default == DefaultRole::Always);
            if default == DefaultRole::Always && defaults > 1 {
                default = DefaultRole::Unsaid;
            }
            Certificate { source, default, at: At::NOWHERE }
        };
        certificates.into_iter().map(certificate).collect()
    })
}

fn name() -> impl Strategy<Value = Name> {
    "[a-c.]{1,2}".prop_map(|text| text.parse().unwrap())
}

fn backends() -> impl Strategy<Value = Vec<Backend>> {
    let server = (server_address(), 1u16..=256, any::<bool>()).prop_map(|(address, weight, backup)| Server {
        address,
        weight: Weight::new(weight).unwrap(),
        backup,
        at: At::NOWHERE,
    });
    vec((name(), vec(server, 1..4)), 0..4).prop_map(|backends| {
        let mut out: Vec<Backend> = Vec::new();
        for (name, mut servers) in backends {
            let mut seen = Vec::new();
            servers.retain(|server| {
                !seen.contains(&server.address) && {
                    seen.push(server.address.clone());
                    true
                }
            });
            out.push(Backend { name, servers, balance: Balance::RoundRobin, at: At::NOWHERE });
        }
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out.dedup_by(|a, b| a.name == b.name);
        out
    })
}

fn listeners() -> impl Strategy<Value = Vec<Listener>> {
    vec((name(), any::<bool>(), option::of(any::<[u8; 2]>())), 0..4).prop_map(|listeners| {
        let mut out: Vec<Listener> = Vec::new();
        for (port, (name, tls, network)) in (1000u16..).zip(listeners) {
            if out.iter().all(|other| other.name != name) {
                let network = network.map(|[a, b]| format!("{a}.{b}.0.0/16").parse().unwrap());
                out.push(Listener {
                    name,
                    addresses: vec![ListenAddress::Ip(([127, 0, 0, 1], port).into())],
                    mode: Mode::Tcp,
                    tls,
                    accept_proxy: network.into_iter().collect(),
                    at: At::NOWHERE,
                });
            }
        }
        out
    })
}

fn log() -> impl Strategy<Value = Log> {
    let output =
        prop_oneof![Just(LogOutput::Stderr), Just(LogOutput::Stdout), file().prop_map(LogOutput::File)];
    (select(Level::ALL), select(LogFormat::ALL), output).prop_map(|(level, format, output)| Log {
        level,
        format,
        output,
    })
}

fn tls() -> impl Strategy<Value = Tls> {
    let record_size = prop_oneof![
        Just(RecordSize::Adaptive),
        (4096u16..=16384).prop_map(|size| RecordSize::Fixed(RecordSizeLimit::new(size).unwrap())),
    ];
    (select(Policy::ALL), 0u16..=8, duration(1000, 72 * 3_600_000), record_size, any::<bool>()).prop_map(
        |(policy, tickets, ticket_rotation, record_size, post_quantum)| Tls {
            policy,
            tickets: Tickets::new(tickets).unwrap(),
            ticket_rotation,
            record_size,
            post_quantum,
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    (1u32..=10_000_000, 1u32..=10_000_000, duration(1, 3_600_000), duration(0, 86_400_000)).prop_map(
        |(connections, connections_per_client, handshake_timeout, drain_timeout)| Limits {
            connections,
            connections_per_client,
            handshakes_per_client: Rate::literal::<7>(offramp_config::Per::Hour),
            handshake_timeout,
            drain_timeout,
            ..Limits::default()
        },
    )
}

/// Any configuration that is valid.
fn config() -> impl Strategy<Value = Config> {
    let metrics = any::<u16>().prop_map(|port| Metrics {
        address: ListenAddress::Ip(([127, 0, 0, 2], port).into()),
        at: At::NOWHERE,
    });
    let user = "[a-z]{1,8}".prop_map(|name| User { name, at: At::NOWHERE });
    let plain = (0u16..=1024, option::of(user), path(), option::of(metrics), log(), tls(), limits());
    let output = prop_oneof![Just(AccessOutput::None), file().prop_map(AccessOutput::File)];
    let rest = backends().prop_flat_map(|backends| {
        let names: Vec<Name> = backends.iter().map(|backend| backend.name.clone()).collect();
        (Just(backends), vec(route(names), 0..5))
    });
    (plain, output, certificates(), listeners(), rest).prop_map(
        |((workers, user, state_dir, metrics, log, tls, limits), output, certificates, listeners, rest)| {
            let (backends, mut routes) = rest;
            let mut seen = Vec::new();
            routes.retain(|route| {
                !seen.contains(&route.key()) && {
                    seen.push(route.key());
                    true
                }
            });
            let mut config = Config {
                workers: workers.try_into().map_or(Workers::Auto, Workers::Count),
                user,
                state_dir,
                log,
                metrics,
                tls,
                limits,
                certificates,
                listeners,
                routes,
                backends,
                ..Config::default()
            };
            config.access_log.output = output;
            config.fill_implied();
            config
        },
    )
}

/// An item whose keys collide on purpose.
#[derive(Clone, Debug, PartialEq)]
struct Item(u8, u8);

impl Keyed for Item {
    type Key = u8;

    fn key(&self) -> u8 {
        self.0
    }
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    vec((0u8..4, 0u8..3).prop_map(|(key, value)| Item(key, value)), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_difference_of_lists_leads_from_the_old_to_the_new(old in items(), new in items()) {
        let diff = ListDiff::between(&old, &new);
        prop_assert_eq!(diff.apply(&old), new.clone());
        prop_assert_eq!(diff.is_empty(), old == new);
    }

    #[test]
    fn a_difference_of_configurations_leads_from_the_old_to_the_new(old in config(), new in config()) {
        let diff = ConfigDiff::between(&old, &new);
        prop_assert_eq!(diff.apply(&old), new.clone());
        prop_assert_eq!(diff.is_empty(), old == new);
        prop_assert_eq!(diff.to_string().is_empty(), old == new);
        prop_assert!(ConfigDiff::between(&new, &new).is_empty());
    }

    #[test]
    fn what_is_printed_reads_back(config in config()) {
        let printed = print(&config);
        match parse(&printed, "f.toml", &Environment::default()) {
            Ok((again, _)) => prop_assert_eq!(again, config, "{}", printed),
            Err(errors) => prop_assert!(false, "{}\n{}", errors, printed),
        }
    }

    #[test]
    fn any_text_is_answered(text in ".*") {
        answered(&text);
    }

    #[test]
    fn any_text_of_the_language_is_answered(pieces in vec(piece(), 0..40)) {
        answered(&pieces.concat());
    }
}

fn piece() -> impl Strategy<Value = String> {
    let keys = offramp_config::keys::TABLE.iter().map(|key| key.name().to_owned());
    let mut pieces: Vec<String> = keys.collect();
    let marks = [
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "=",
        ",",
        ".",
        "\"",
        "'",
        "\n",
        "\n",
        " ",
        "#",
        "\"x\"",
        "true",
        "-1",
        "0x_1",
        "[route]",
        "[[route]]\n",
        "[backend.a]\n",
        "1979-05-27T07:32:00Z",
        "\"\"\"",
        "\\",
        "\u{feff}",
        "\r",
        "= \"unix:\"\n",
        "= [\"a\", 1]\n",
        "= {",
        "é",
    ];
    pieces.extend(marks.map(str::to_owned));
    select(pieces)
}

fn answered(text: &str) {
    match parse(text, "f.toml", &Environment::default()) {
        Ok((config, warnings)) => {
            assert!(warnings.iter().all(|warning| warning.place().is_some()));
            let again = parse(&print(&config), "f.toml", &Environment::default()).unwrap().0;
            assert!(ConfigDiff::between(&config, &again).is_empty());
        }
        Err(errors) => {
            assert!(errors.count() > 0);
            assert!(!errors.to_string().is_empty());
        }
    }
}
