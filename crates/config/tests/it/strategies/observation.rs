//! Strategies of logs, metrics and their exports.

use offramp_config::At;
use offramp_config::model::{
    AccessFormat, AccessLog, AccessOutput, Anonymize, ListenAddress, LogConfig, LogLevel, LogOutput,
    LogStore, MailTarget, Metrics, NotifyConfig, NotifyFormat, NotifyKind, NotifyProgram, NotifyTarget,
    ProgramCommand, ProgramLogFormat, ServiceEndpoint, Size, StoreUrl, SyslogAddress, TracingConfig, Webhook,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{distinct, duration, file, server_address};

pub(super) fn log() -> impl Strategy<Value = LogConfig> {
    let output =
        prop_oneof![Just(LogOutput::Stderr), Just(LogOutput::Stdout), file().prop_map(LogOutput::File)];
    (select(LogLevel::ALL), select(ProgramLogFormat::ALL), output)
        .prop_map(|(level, format, output)| LogConfig { level, format, output, ..LogConfig::default() })
}

pub(super) fn access_log() -> impl Strategy<Value = AccessLog> {
    let output = prop_oneof![
        Just(AccessOutput::None),
        Just(AccessOutput::Journald),
        Just(AccessOutput::Syslog),
        file().prop_map(AccessOutput::File)
    ];
    let syslog = select(vec!["/dev/log", "unix:/run/x", "udp://10.0.0.1:514", "udp://log:514"]);
    let fields = || vec(select(vec!["path", "user_agent", "referer"]), 0..3);
    let rotation = (64u64 << 10..1 << 40, 1u32..=1000);
    let anonymize = select(Anonymize::ALL);
    (select(AccessFormat::ALL), output, syslog, option::of(rotation), (fields(), fields(), anonymize))
        .prop_map(|(format, output, syslog, rotation, (mut omit, mut hash, anonymize))| {
            let rotation = rotation.filter(|_| matches!(output, AccessOutput::File(_)));
            let is_syslog = output == AccessOutput::Syslog;
            distinct(&mut omit);
            distinct(&mut hash);
            hash.retain(|name| !omit.contains(name));
            AccessLog {
                format,
                syslog: if is_syslog { syslog.parse().unwrap() } else { SyslogAddress::default() },
                output,
                rotate_size: rotation.map(|(size, _)| Size::new(size)),
                rotate_keep: rotation.map_or(5, |(_, keep)| keep),
                omit: omit.iter().map(|name| name.parse().unwrap()).collect(),
                hash: hash.iter().map(|name| name.parse().unwrap()).collect(),
                anonymize,
            }
        })
}

/// Metrics, collector, log store and admin interface.
pub(super) fn figures() -> impl Strategy<Value = (Metrics, TracingConfig, LogStore, Option<ServiceEndpoint>)>
{
    let endpoint = |ip: u8| {
        let endpoint = move |port: u16| ServiceEndpoint {
            address: ListenAddress::Ip(([127, 0, 0, ip], port).into()),
            at: At::NOWHERE,
        };
        option::of(any::<u16>().prop_map(endpoint))
    };
    let metrics = (endpoint(2), option::of(server_address()), duration(1000, 3_600_000), 0u32..100_000)
        .prop_map(|(endpoint, graphite, interval, top_clients)| {
            let default = Metrics::default();
            Metrics {
                graphite_interval: if graphite.is_some() { interval } else { default.graphite_interval },
                top_clients: if endpoint.is_some() { top_clients } else { default.top_clients },
                endpoint,
                graphite,
                ..default
            }
        });
    let otlp = select(vec!["http://localhost", "http://[::1]:80/otlp"]).prop_map(|url| url.parse().unwrap());
    let tracing =
        (option::of(otlp), 1u32..=1_000_000, any::<bool>()).prop_map(|(otlp, sample_one_in, metrics)| {
            let there = otlp.is_some();
            if there { TracingConfig { otlp, sample_one_in, metrics } } else { TracingConfig::default() }
        });
    let url = prop_oneof![
        file().prop_map(StoreUrl::Sqlite),
        "postgres://[a-z]{1,3}(:[a-z]{1,3})?@[a-z]{1,3}/[a-z]{1,3}".prop_map(StoreUrl::Postgres)
    ];
    let kept = || duration(3_600_000, 3650 * 86_400_000);
    let spool = (1u64 << 20..1 << 40).prop_map(Size::new);
    let store = (option::of(url), (kept(), kept()), spool, any::<bool>(), option::of(file())).prop_map(
        |(url, (retention, rollup_retention), spool, full_text, geoip)| match url {
            Some(_) => LogStore { url, retention, rollup_retention, spool, full_text, geoip },
            None => LogStore::default(),
        },
    );
    (metrics, tracing, store, endpoint(3))
}

/// Receivers of notifications.
pub(crate) fn receivers() -> impl Strategy<Value = Vec<NotifyConfig>> {
    let url = select(vec!["https://a.example/T/B?x=1", "http://127.0.0.1:8080/", "http://ntfy.home.arpa"]);
    let body = select(vec![None, Some("{\"text\": \"{title}\\n{text}\", \"n\": {count}}")]);
    let webhook = (option::of(url), file(), select(NotifyFormat::ALL), body, option::of(file()));
    let webhook = webhook.prop_map(|(url, url_file, format, body, token_file)| Webhook {
        url: url.map(|url| url.parse().unwrap()),
        url_file: url.is_none().then_some(url_file),
        format: if body.is_some() { NotifyFormat::Json } else { format },
        body: body.map(|body| body.parse().unwrap()),
        token_file,
    });
    let server = select(vec!["smtps://mail.example", "smtp://localhost", "smtp://[::1]:2525"]);
    let login = option::of(("[a-z\"]{1,8}", file()));
    let mail = (vec(select(vec!["a@example.org", "b.c+d@localhost"]), 1..2), server, login);
    let mail = mail.prop_map(|(to, server, login)| {
        let (user, password_file) = login.unzip();
        let to = to.into_iter().map(|to| to.parse().unwrap()).collect();
        let (from, server) = ("offramp@example.org".parse().unwrap(), server.parse().unwrap());
        MailTarget { to, from, server, user, password_file }
    });
    let program = vec("[a-z \"'\\\\$]{0,6}", 0..3).prop_map(|arguments| {
        let words: Vec<String> = ["/p/tell".to_owned()].into_iter().chain(arguments).collect();
        NotifyTarget::Program(NotifyProgram { command: ProgramCommand::read(&words).unwrap() })
    });
    let program = program.prop_map(|target| (target, None));
    let target = prop_oneof![webhook.prop_map(NotifyTarget::Webhook), mail.prop_map(NotifyTarget::Mail)];
    let target = prop_oneof![3 => (target, option::of(file())), 1 => program];
    let on = proptest::sample::subsequence(NotifyKind::ALL, 1..=NotifyKind::ALL.len());
    let share = (1_u16..=100).prop_map(|share| format!("{share}%").parse().unwrap());
    let receiver = (target, on, share, 1_u32..1000, duration(0, 3_600_000), duration(0, 604_800_000));
    vec(receiver, 0..3).prop_map(|receivers| {
        let named = receivers.into_iter().enumerate().map(|(at, receiver)| {
            let ((to, ca), on, errors, errors_at_least, group, rest) = receiver;
            let called = NotifyConfig::called(format!("n{at}").parse().unwrap());
            NotifyConfig { to, ca, on, errors, errors_at_least, group, rest, ..called }
        });
        named.collect()
    })
}
