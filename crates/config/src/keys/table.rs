//! The rows of the table of keys, in the order of documentation and printing.

use std::time::Duration;

use super::TargetKind::{Files, Passthrough, Redirect, Relay, Respond};
use super::{Default, Key, KeyReading, KeyScope, Kind, Reload, Support};
use crate::model;
use crate::settings::{Binding, BoundField as _, FieldBinding, TextField as _};
use crate::syntax::TextSyntax;

const NOW: Support = Support::Since("0.1.0");

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}

const fn toml(value: &'static str) -> Default {
    Default::Toml(value)
}

const fn absent(meaning: &'static str) -> Default {
    Default::Absent(meaning)
}

const REQUIRED: Default = Default::Required;
const SECTION_DEFAULTS: Default = absent("the defaults of its keys");
const LIST_ABSENT: Default = absent("none");

/// The shortest timeout: less than a scheduling delay would only break connections.
const SHORTEST: Duration = ms(1);

const RECORD_SIZE: Kind = Kind::WordOrSize { word: "adaptive", min: 4096, max: 16384 };

const fn timeout(max: Duration) -> Kind {
    Kind::Duration { min: SHORTEST, max }
}

/// A retention time, from 1 h to `max` days.
const fn kept(max: u64) -> Kind {
    Kind::Duration { min: hours(1), max: hours(24 * max) }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

const fn size(min: u64, max: u64) -> Kind {
    Kind::Size { min, max }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The first of one or two: the column of a row, or what holds for rows without it.
macro_rules! first {
    ($first:expr $(, $second:expr)?) => {
        $first
    };
}

/// The binding of a field; with the function that reads its text, if the type has no rules of its own.
macro_rules! binding {
    ($item:ident $($place:ident).+) => {
        Binding {
            syntax: |$item| $($place).+.syntax(),
            get: |$item| $($place).+.fetch(),
            set: |$item, value| $($place).+.store(value),
        }
    };
    ($item:ident $($place:ident).+, $parse:path) => {
        Binding {
            syntax: |_| None,
            get: |$item| $($place).+.fetch_text($parse),
            set: |$item, value| $($place).+.store_text(value, $parse),
        }
    };
}

/// Applies to every route. Rows of other sections, and of tables within a route, have no scope of their own.
const EVERY: KeyScope = KeyScope::EVERY;
/// Applies to requests of HTTP.
const REQUESTS: KeyScope = EVERY.of_requests();
/// Applies to requests that servers get.
const SERVERS: KeyScope = REQUESTS.only_with(&[Relay]);
/// Applies to routes that connect to servers.
const CONNECTING: KeyScope = EVERY.only_with(&[Relay, Passthrough]);
/// Applies to routes with `root`, which itself is of requests.
const FILES: KeyScope = EVERY.only_with(&[Files]);

/// The rows: path, kind, default, time of effect and support; then the columns that a key may lack: `for` the routes
/// that it applies to, `in` the field of the model that has its value (`via` the function that reads its text) or `own`
/// with the reason why no field has it, `syntax` the spelling of a text where the type of the field does not say it,
/// `names` that of names that users choose, and `filled` with the remedy where an empty list is a mistake; then the
/// documentation.
macro_rules! rows {
    ($($path:literal: $kind:expr, $default:expr, $reload:ident, $support:expr,
       $(for $scope:expr,)? $(in $owner:ident $(. $field:ident)+ $(via $parse:path)?,)? $(own $why:ident,)?
       $(syntax $syntax:ident,)? $(names $names:ident,)? $(filled $remedy:expr,)? $doc:literal;)*) => {
        &[$(Key {
            path: $path,
            kind: $kind,
            default: $default,
            reload: Reload::$reload,
            support: $support,
            scope: first!($($scope,)? EVERY.own()),
            reading: first!(
                $(KeyReading::Field(FieldBinding::$owner(binding!(item item $(. $field)+ $(, $parse)?))),)?
                $(KeyReading::$why,)?
                KeyReading::Table
            ),
            syntax: first!($(Some(TextSyntax::$syntax),)? None),
            names: first!($(Some(TextSyntax::$names),)? None),
            remedy_if_empty: first!($(Some($remedy),)? None),
            doc: $doc,
        }),*]
    };
}

/// Every key of the language, in the order of documentation and printing.
#[rustfmt::skip]
pub const TABLE: &[Key] = rows! {
    "include": Kind::List("paths of files such as `sites.d/*.toml`"), LIST_ABSENT, Live, NOW, own Expansion, syntax Path, "Files that are read as if they stood at the end of this one, in the order of their names; paths in them start at their folder";
    "workers": count(0, 1024), toml("0"), Restart, NOW, in Config.process.workers, "Worker threads; 0: one per core that the process may use";
    "user": Kind::Text("a user's name"), absent("`offramp` when started as root, else nothing is switched"), Restart, NOW, in Config.process.user, "The user that the process becomes after sockets are bound and keys are read";
    "state_dir": Kind::Text("a folder's path"), absent("`/var/lib/offramp` for root, else `offramp` in the XDG state folder"), Restart, NOW, in Config.process.state_dir, "Where the local CA and other state are kept";
    "watch": Kind::Bool, toml("false"), Live, NOW, in Config.process.watch, "Reload by itself soon after this file, or one that it includes, has changed";
    "sandbox": Kind::Choice(model::Sandbox::CHOICES), toml("\"on\""), Restart, NOW, in Config.process.sandbox, "What the process forbids itself after the start ([Sandbox](inside/sandbox.md)): as much as the kernel can; `required`: all, or the start is refused; `strict`: besides it reads no files and uses no TCP ports that the configuration does not name; `off`: nothing";
    "geoip": Kind::Text("a file's path"), absent("no `country:` in `allow` and `deny`"), Live, NOW, in Config.geoip, "A database in MaxMind's format with the countries of addresses, for `allow` and `deny`";

    "admin": Kind::Section, SECTION_DEFAULTS, Restart, NOW, "The admin interface: the API of `offramp ctl`, the page for browsers, and the data source for Grafana over the log store";
    "admin.enabled": Kind::Bool, toml("true"), Restart, NOW, in Config.admin.enabled, "Whether there is one";
    "admin.address": Kind::Text("`unix:/path`, `127.0.0.1:9901`"), absent("`admin.sock` in `state_dir`"), Restart, NOW, in Config.admin.endpoint, "Where the admin interface listens. An address that other machines reach needs `certificate`, and `token_file` or `users`";
    "admin.token_file": Kind::Text("a file's path"), absent("the API is served on Unix sockets only"), Restart, NOW, in Config.admin.token_file, "The file with the token of at least 16 characters that clients of a TCP address send as `Authorization: Bearer`, to use the API, and that logs in on the page";
    "admin.users": Kind::Text("a file's path"), absent("only the token logs in on the page"), Restart, NOW, in Config.admin.users, "The file with a `name:hash` in each line, as for `basic_auth`, of those who may log in on the page over a TCP address; what replaces it is used by itself within some seconds";
    "admin.hosts": Kind::List("`admin.example.org`, `*.example.org`"), LIST_ABSENT, Restart, NOW, in Config.admin.hosts, "Names by which browsers reach the page through a proxy that stands before a TCP address; addresses, `localhost` and the names of `certificate` are known";
    "admin.certificate": Kind::Text("a file's path"), absent("plain HTTP"), Restart, NOW, in Config.admin.certificate, "The PEM file with the chain for HTTPS on a TCP address; what replaces it is used by itself within some seconds";
    "admin.key": Kind::Text("a file's path"), absent("the key is in the file of `certificate`"), Restart, NOW, in Config.admin.key, "The PEM file with its private key";

    "log": Kind::Section, SECTION_DEFAULTS, Live, NOW, "The log of the program itself";
    "log.level": Kind::Choice(model::LogLevel::CHOICES), toml("\"info\""), Live, NOW, in Config.telemetry.log.level, "The least important messages to write";
    "log.format": Kind::Choice(model::ProgramLogFormat::CHOICES), toml("\"text\""), Live, NOW, in Config.telemetry.log.format, "The format of a message";
    "log.output": Kind::Output(model::LogOutput::CHOICES), toml("\"stderr\""), Live, NOW, in Config.telemetry.log.output, "Where messages go";
    "log.syslog": Kind::Text("`/dev/log`, `unix:/path` or `udp://host:port`"), toml("\"/dev/log\""), Live, NOW, in Config.telemetry.log.syslog, "Where the syslog of `output` listens: RFC 3164 on Unix sockets, RFC 5424 over UDP";

    "access_log": Kind::Section, SECTION_DEFAULTS, Live, NOW, "One event per connection (`mode = \"tcp\"`) or request (`mode = \"http\"`)";
    "access_log.format": Kind::Choice(model::AccessFormat::CHOICES), toml("\"json\""), Live, NOW, in Config.telemetry.access_log.format, "The format of an event; `combined` is that of nginx and Apache, `vhost` has the host after it";
    "access_log.output": Kind::Output(model::AccessOutput::CHOICES), toml("\"stdout\""), Live, NOW, in Config.telemetry.access_log.output, "Where events go";
    "access_log.syslog": Kind::Text("`/dev/log`, `unix:/path` or `udp://host:port`"), toml("\"/dev/log\""), Live, NOW, in Config.telemetry.access_log.syslog, "Where the syslog of `output` listens: RFC 3164 on Unix sockets, RFC 5424 over UDP";
    "access_log.rotate_size": size(64 * KIB, 1024 * GIB), absent("the file is never renamed"), Live, NOW, in Config.telemetry.access_log.rotate_size, "When the file of `output` reaches this size, it is renamed and a new one begins";
    "access_log.rotate_keep": count(1, 1000), toml("5"), Live, NOW, in Config.telemetry.access_log.rotate_keep, "How many renamed files are kept; `.1` is the newest";
    "access_log.omit": Kind::List("names of fields of events"), LIST_ABSENT, Live, NOW, in Config.telemetry.access_log.omit, "Fields to leave out";
    "access_log.hash": Kind::List("names of fields of events"), LIST_ABSENT, Live, NOW, in Config.telemetry.access_log.hash, "Fields whose values are replaced by a hash, with a key of this installation; equal values stay equal";
    "access_log.anonymize": Kind::Choice(model::Anonymize::CHOICES), toml("\"none\""), Live, NOW, in Config.telemetry.access_log.anonymize, "`ip`: the last byte of IPv4 addresses of clients and the last 80 bits of IPv6 ones become zero, in events, metrics and the log store";

    "log_store": Kind::Section, absent("no log store"), Restart, NOW, "The log store: a database of requests for queries";
    "log_store.url": Kind::Text("`sqlite:/path` or `postgres://user@host/database`"), REQUIRED, Restart, NOW, in Config.telemetry.log_store.url, "The database";
    "log_store.retention": kept(3650), toml("\"90d\""), Restart, NOW, in Config.telemetry.log_store.retention, "How long events are kept";
    "log_store.rollup_retention": kept(36_500), toml("\"1825d\""), Restart, NOW, in Config.telemetry.log_store.rollup_retention, "How long the hourly and daily sums of events are kept";
    "log_store.spool": size(MIB, 1024 * GIB), toml("\"64MiB\""), Restart, NOW, in Config.telemetry.log_store.spool, "The maximum size of the file in `state_dir` in which events wait while the database is away, locked or full; further events are dropped and counted";
    "log_store.full_text": Kind::Bool, toml("false"), Restart, NOW, in Config.telemetry.log_store.full_text, "Keep an index of all words for `offramp logs search`; it takes about as much space as the events";
    "log_store.geoip": Kind::Text("a file's path"), absent("no countries and cities"), Restart, NOW, in Config.telemetry.log_store.geoip, "A database in MaxMind's format for the country and city of clients";

    "metrics": Kind::Section, absent("no metrics"), Live, NOW, "Figures for Prometheus and Graphite";
    "metrics.address": Kind::Text("an address to listen on"), absent("no metrics endpoint"), Live, NOW, in Config.telemetry.metrics.endpoint, "Where `/metrics` is served over plain HTTP, such as `127.0.0.1:9902`";
    "metrics.graphite": Kind::Text("`host:port`"), absent("nothing is pushed"), Live, NOW, in Config.telemetry.metrics.graphite, "Where the same figures are pushed in Graphite's plaintext protocol, such as `carbon.home.arpa:2003`";
    "metrics.graphite_interval": Kind::Duration { min: ms(1000), max: hours(1) }, toml("\"10s\""), Live, NOW, in Config.telemetry.metrics.graphite_interval, "The time between two pushes";
    "metrics.graphite_prefix": Kind::Text("names joined by dots"), toml("\"offramp\""), Live, NOW, in Config.telemetry.metrics.graphite_prefix, "The prefix of the names of pushed figures";
    "metrics.top_clients": count(0, 100_000), toml("100"), Live, NOW, in Config.telemetry.metrics.top_clients, "The number of heaviest clients with their own figures";

    "tracing": Kind::Section, absent("no traces are exported"), Live, NOW, "Traces and metrics for an OpenTelemetry collector";
    "tracing.otlp": Kind::Text("`http://host:port`"), REQUIRED, Live, NOW, in Config.telemetry.tracing.otlp, "The collector: OTLP over HTTP without TLS";
    "tracing.sample_one_in": count(1, 1_000_000), toml("100"), Live, NOW, in Config.telemetry.tracing.sample_one_in, "Of the requests without a `traceparent`, one in this many begins a trace; a request with one continues its trace as the caller asks";
    "tracing.metrics": Kind::Bool, toml("false"), Live, NOW, in Config.telemetry.tracing.metrics, "Push the figures of `[metrics]` to the collector too";

    "notify": Kind::Sections, absent("no notifications"), Live, NOW, "A receiver of notifications about certificates, servers, errors, limits and faults";
    "notify.name": Kind::Text("a name"), REQUIRED, Live, NOW, in NotifyConfig.name, "The name in the log, in metrics and for `offramp notify test`";
    "notify.url": Kind::Text("a URL"), absent("required without `url_file`, `mail` or `program`"), Live, NOW, in Webhook.url, "Where messages are sent by HTTP: `https`, or `http` to this machine and local networks";
    "notify.url_file": Kind::Text("a file's path"), absent("required without `url`, `mail` or `program`"), Live, NOW, in Webhook.url_file, "The file with the URL, where that is a secret";
    "notify.format": Kind::Choice(model::NotifyFormat::CHOICES), toml("\"json\""), Live, NOW, in Webhook.format, "The form of messages: `json` for programs, with every detail; `ntfy`; `slack`, which Mattermost, Rocket.Chat and Google Chat take too; `matrix`, with the URL of a room that ends in `/send/m.room.message`";
    "notify.body": Kind::Text("JSON with fields in braces, such as `{\"msg\": \"{text}\"}`"), absent("the body of `format`"), Live, NOW, in Webhook.body, "The body of messages. The fields are `{title}`, `{text}`, `{host}`, `{time}`, `{kind}`, `{about}`, `{state}` and `{count}`; their values are escaped for JSON";
    "notify.token_file": Kind::Text("a file's path"), absent("no token"), Live, NOW, in Webhook.token_file, "The file with the token that is sent as `Authorization: Bearer`";
    "notify.ca": Kind::Text("a file's path"), absent("the authorities of the system"), Live, NOW, in NotifyConfig.ca, "The PEM file with the authorities that the receiver's certificate is checked against";
    "notify.mail": Kind::Section, absent("no mail"), Live, NOW, "Messages are sent by mail, instead of to a URL";
    "notify.mail.to": Kind::List("e-mail addresses"), REQUIRED, Live, NOW, in MailTarget.to, filled "name an address", "The addresses that get the mail";
    "notify.mail.from": Kind::Text("an e-mail address"), REQUIRED, Live, NOW, in MailTarget.from, "The address of the sender";
    "notify.mail.server": Kind::Text("`smtps://host:port` or `smtp://host:port`"), REQUIRED, Live, NOW, in MailTarget.server, "The server that takes the mail: `smtps` speaks TLS from the first byte, port 465; `smtp` asks for it by STARTTLS, port 587; on this machine, port 25, it goes without unless `ca` is written";
    "notify.mail.user": Kind::Text("a user's name"), absent("no login"), Live, NOW, in MailTarget.user, "The name for a login at the server, with `password_file`";
    "notify.mail.password_file": Kind::Text("a file's path"), absent("no login"), Live, NOW, in MailTarget.password_file, "The file with the password for a login at the server, with `user`";
    "notify.program": Kind::List("a program's path and its arguments"), absent("no program"), Live, NOW, in NotifyProgram.command, filled "name a program", "The program that gets messages, instead of a URL: its absolute path and its arguments. It runs as the user of Offramp, gets each message as JSON on its standard input, and takes it by ending with status 0 within a minute";
    "notify.on": Kind::List("kinds of notifications"), toml("[\"certificate\", \"server\", \"errors\", \"limit\", \"log_store\", \"taken_back\", \"late\", \"panic\"]"), Live, NOW, in NotifyConfig.on, filled "leave it out for all but `change`", "The kinds that are sent: `certificate`, one that expires soon or has expired; `server`, down and up; `errors`, a share above `errors`; `limit`, one that refuses clients; `log_store`, away or losing events; `taken_back`, a change that nobody confirmed; `late`, a worker; `panic`, a fault of the program; `change`, every change of the configuration";
    "notify.errors": Kind::Text("a share, such as `5%` or `0.5%`"), toml("\"5%\""), Live, NOW, in NotifyConfig.errors, "The share of requests with a status of 5xx within five minutes above which `errors` tells";
    "notify.errors_at_least": count(1, 1_000_000_000), toml("100"), Live, NOW, in NotifyConfig.errors_at_least, "With fewer requests within five minutes, `errors` tells nothing";
    "notify.group": Kind::Duration { min: ms(0), max: hours(1) }, toml("\"30s\""), Live, NOW, in NotifyConfig.group, "How long a message waits for others, to be one with them";
    "notify.rest": Kind::Duration { min: ms(0), max: hours(168) }, toml("\"15m\""), Live, NOW, in NotifyConfig.rest, "How long the same thing is not sent again; its end is sent at once";

    "tls": Kind::Section, SECTION_DEFAULTS, Live, NOW, "TLS to the clients";
    "tls.policy": Kind::Choice(model::Policy::CHOICES), toml("\"intermediate\""), Live, NOW, in Config.tls.policy, "`modern`: TLS 1.3 only; `intermediate`: 1.2 and 1.3 with AEAD suites only";
    "tls.max_version": Kind::Choice(model::TlsVersionLimit::CHOICES), toml("\"1.3\""), Live, NOW, in Config.tls.max_version, "The latest version that is spoken; `1.2` only for clients that fail with TLS 1.3, and not with `policy = \"modern\"`";
    "tls.aeads": Kind::List("`aes-128-gcm`, `aes-256-gcm`, `chacha20-poly1305`"), toml(r#"["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"]"#), Live, NOW, in Config.tls.aeads, filled "leave it out for all of them", "The ciphers that are offered, in the order of Offramp. TLS 1.3 requires `aes-128-gcm` of every client (RFC 8446)";
    "tls.no_server_name": Kind::Choice(model::Nameless::CHOICES), toml("\"default\""), Live, NOW, in Config.tls.no_server_name, "What clients get that send no server name (SNI): the default certificate, or a refusal before the handshake. Routes with `passthrough` do not ask";
    "tls.unknown_name": Kind::Choice(model::Nameless::CHOICES), toml("\"default\""), Live, NOW, in Config.tls.unknown_name, "What clients get whose server name is in no certificate: the default certificate, or a refusal with the alert `unrecognized_name`";
    "tls.tickets": count(0, 8), toml("1"), Live, NOW, in Config.tls.tickets, "TLS 1.3 tickets per handshake; 0: no resumption. Each ticket costs CPU time. More than one helps clients that open several connections at once and use each ticket once";
    "tls.ticket_rotation": Kind::Duration { min: ms(1000), max: hours(72) }, toml("\"6h\""), Live, NOW, in Config.tls.ticket_rotation, "How long a ticket key is used before a new one replaces it";
    "tls.record_size": RECORD_SIZE, toml("\"adaptive\""), Live, NOW, in Config.tls.record_size, "The size of sent records; adaptive: small ones first on a new or idle connection, then 16 KiB";
    "tls.post_quantum": Kind::Bool, toml("true"), Live, NOW, in Config.tls.post_quantum, "Offer the hybrid key exchange X25519MLKEM768";
    "tls.certificates": Kind::Choice(model::ImpliedCertificates::CHOICES), toml("\"local\""), Live, NOW, in Config.tls.certificates, "`acme`: a certificate from the authorities of `tls.acme` for each host of the routes that no [[certificate]] covers";
    "tls.acme": Kind::List("names of authorities: `letsencrypt`, or an [acme.NAME]"), absent("the only [acme.NAME], or `letsencrypt`"), Live, NOW, in Config.tls.acme, filled "leave it out for the only [acme.NAME], or letsencrypt", "With `certificates = \"acme\"`: the authorities, the preferred one first";

    "limits": Kind::Section, SECTION_DEFAULTS, Live, NOW, "Limits on connections, requests, times and memory";
    "limits.connections": count(1, 10_000_000), toml("100000"), Live, NOW, in Config.limits.connections, "Connections at a time, over all workers; the default is lowered to what the limit of open files allows";
    "limits.connections_per_client": count(1, 10_000_000), toml("1000"), Live, NOW, in Config.limits.connections_per_client, "Connections at a time from one client address; those from loopback addresses and from the networks in `accept_proxy` and `trusted_proxies` count but are never refused";
    "limits.handshakes_per_client": Kind::Rate, absent("no limit"), Live, NOW, in Config.limits.handshakes_per_client, "New connections from one client address; more are closed before their handshake";
    "limits.bandwidth_per_client": size(16 * KIB, 1024 * GIB), absent("no limit"), Live, NOW, in Config.limits.bandwidth_per_client, "Bytes per second that one client address may send, and as many that it may receive, over all of its connections; one second's worth may pass at once. Networks in `accept_proxy` and `trusted_proxies` are not limited";
    "limits.handshake_timeout": timeout(hours(1)), toml("\"10s\""), Live, NOW, in Config.limits.handshake_timeout, "The time from the accepted connection to the end of the handshake";
    "limits.connect_timeout": timeout(hours(1)), toml("\"5s\""), Live, NOW, in Config.limits.connect_timeout, "The time for one attempt to connect to a server";
    "limits.idle_timeout": timeout(hours(24 * 30)), toml("\"5m\""), Live, NOW, in Config.limits.idle_timeout, "A connection without a byte in either direction is closed after this time";
    "limits.max_age": Kind::Duration { min: Duration::from_secs(1), max: hours(24 * 30) }, absent("no limit"), Live, NOW, in Config.limits.max_age, "The greatest age of a connection with a client, give or take 10 % so that not all end at once. Over HTTP what is under way has `max_age_grace` to finish first; connections of other routes are ended, busy or not. A change is for new connections";
    "limits.max_age_grace": Kind::Duration { min: ms(0), max: hours(24 * 30) }, toml("\"30s\""), Live, NOW, in Config.limits.max_age_grace, "How long requests, responses, WebSockets and other tunnels may go on when their connection has its greatest age (`max_age`); then they are ended";
    "limits.request_header_timeout": timeout(hours(1)), toml("\"10s\""), Live, NOW, in Config.limits.http.request_header_timeout, "The time from the first byte of an HTTP request to the end of its header";
    "limits.request_body_timeout": timeout(hours(1)), toml("\"30s\""), Live, NOW, in Config.limits.http.request_body_timeout, "The time between two pieces of the body of an HTTP request, until the response begins. For requests of gRPC and once the response has begun, `idle_timeout` applies instead";
    "limits.min_body_rate": size(0, GIB), toml("\"256B\""), Live, NOW, in Config.limits.http.min_body_rate, "The minimum average rate of the body of an HTTP request, in bytes per second, after 10 s; `0B`: no minimum. It applies until the response begins, and not to requests of gRPC";
    "limits.keepalive_timeout": timeout(hours(24)), toml("\"75s\""), Live, NOW, in Config.limits.http.keepalive_timeout, "The time between two HTTP requests of a connection";
    "limits.response_timeout": timeout(hours(24)), toml("\"1m\""), Live, NOW, in Config.limits.http.response_timeout, "The time from an HTTP request to the header of the server's response";
    "limits.request_headers": count(1, 10_000), toml("100"), Live, NOW, in Config.limits.http.request_headers, "The maximum number of header fields of an HTTP request";
    "limits.request_header_size": size(KIB, MIB), toml("\"32KiB\""), Live, NOW, in Config.limits.http.request_header_size, "The maximum size of the header of an HTTP request";
    "limits.request_target_size": size(64, MIB), toml("\"8KiB\""), Live, NOW, in Config.limits.http.request_target_size, "The maximum size of path and query of an HTTP request";
    "limits.requests_per_client": Kind::Rate, absent("no limit"), Live, NOW, in Config.limits.http.requests_per_client, "HTTP requests from one client address";
    "limits.streams": count(1, 10_000), toml("100"), Live, NOW, in Config.limits.http.streams, "Requests at a time on one HTTP/2 connection";
    "limits.memory": size(MIB, 1024 * GIB), toml("\"256MiB\""), Live, NOW, in Config.limits.http.memory, "The memory of requests and responses in progress over HTTP/2, per worker; above it a connection that uses more than its share (at least that of eight requests) gets no further requests until some have ended";
    "limits.max_window": size(256 * KIB, GIB), toml("\"8MiB\""), Live, NOW, in Config.limits.http.max_window, "The greatest window of one upload over HTTP/2, and of one response of a server that speaks HTTP/2; each is also the bound of all that grow for one client's connection together. Windows begin with 256 KiB and grow where the other side is far away, as far as `memory` has room; `256KiB`: they do not grow";
    "limits.file_cache": size(0, 64 * GIB), toml("\"16MiB\""), Live, NOW, in Config.limits.http.file_cache, "The memory for small files of routes with `root`, per worker; `0B`: keep no files in memory and no descriptors open";
    "limits.compression_memory": size(0, 1024 * GIB), toml("\"32MiB\""), Live, NOW, in Config.limits.http.compression_memory, "The memory of the encoders that compress responses, per worker; further responses are sent as they are, and counted";
    "limits.process_memory": size(8 * MIB, 1024 * GIB), absent("no limit"), Live, NOW, in Config.limits.process_memory, "The memory of the process (resident, without what the kernel holds for sockets); at this size new connections wait, caches are emptied, responses are not compressed, less is read ahead for clients, and HTTP/2 connections get few further requests, until a sixteenth less is used";
    "limits.drain_timeout": Kind::Duration { min: ms(0), max: hours(24) }, toml("\"30s\""), Live, NOW, in Config.limits.drain_timeout, "How long open connections may take to finish after the order to stop";
    "limits.upgrade_timeout": timeout(hours(1)), toml("\"1m\""), Live, NOW, in Config.limits.upgrade_timeout, "How long the new process of an upgrade (SIGUSR2) may take until it accepts connections; else it is killed, and the old one serves on";

    "certificate": Kind::Sections, absent("one from the local CA for the hosts of the routes, or for `localhost`"), Live, NOW, "A certificate and its key; one name may have several, with different key types";
    "certificate.cert": Kind::Text("a file's path"), absent("`local` must be set"), Live, NOW, own Alternatives, syntax Path, "The PEM file with the chain, including the server's own certificate";
    "certificate.key": Kind::Text("a file's path"), absent("the key is in the file of `cert`"), Live, NOW, own Alternatives, syntax Path, "The PEM file with the private key";
    "certificate.ocsp": Kind::Text("a file's path"), absent("the file `NAME.ocsp` beside `NAME.pem`, if there is one"), Live, NOW, own Alternatives, syntax Path, "The file with the OCSP response to staple";
    "certificate.local": Kind::Bool, toml("false"), Live, NOW, own Alternatives, "Issue the certificate from the local CA in `state_dir`, one for each 100 names";
    "certificate.names": Kind::List("host names, `*.` wildcards, IP addresses"), absent("the hosts of the routes, or `localhost`"), Live, NOW, own Alternatives, syntax CertificateName, filled "leave it out for the hosts of the routes", "What a certificate with `local` or `acme` is valid for";
    "certificate.default": Kind::Bool, absent("the first certificate that does not say `false` is the default"), Live, NOW, in CertificateConfig.default, "Whether clients that name no known server get this certificate; without any default they get the alert `unrecognized_name`";
    "certificate.directory": Kind::Text("a folder's path"), LIST_ABSENT, Live, NOW, own Alternatives, syntax Path, "Every pair of certificate and key in a folder: `NAME.pem` or `NAME.crt` with `NAME.key`, `NAME.pem` with both, `NAME/fullchain.pem` with `NAME/privkey.pem`";
    "certificate.acme": Kind::List("names of authorities: `letsencrypt`, or an [acme.NAME]"), LIST_ABSENT, Live, NOW, in AcmeCertificate.authorities, filled "name an authority, such as \"letsencrypt\"", "Obtained from the first of these authorities that issues it, and renewed";
    "certificate.key_type": Kind::Choice(model::AcmeKeyType::CHOICES), toml("\"p256\""), Live, NOW, in AcmeCertificate.key_type, "With `acme`: the kind of the key";
    "certificate.reuse_key": Kind::Bool, toml("false"), Live, NOW, in AcmeCertificate.reuse_key, "With `acme`: keep the key when the certificate is renewed";
    "certificate.on_demand": Kind::Section, absent("the certificate is ordered at once"), Live, NOW, "With `acme`: order a certificate for a name when the first client asks for it";
    "certificate.on_demand.names": Kind::List("host names, `*.` wildcards of one label"), LIST_ABSENT, Live, NOW, in OnDemand.names, filled "leave it out if `ask` decides on every name", "Names that may have a certificate without a question";
    "certificate.on_demand.ask": Kind::Text("a URL of plain HTTP"), absent("names that `names` does not have get no certificate"), Live, NOW, in OnDemand.ask, "Who decides about all other names: Offramp sends a GET with `?domain=NAME`, and a status of 2xx allows the name";
    "certificate.on_demand.rate": Kind::Rate, toml("\"50/h\""), Live, NOW, in OnDemand.rate, "How many names that have no certificate yet are ordered";
    "certificate.on_demand.wait": Kind::Duration { min: ms(0), max: Duration::from_secs(60) }, toml("\"8s\""), Live, NOW, in OnDemand.wait, "How long the handshake that asks for a name waits for its certificate; at most until a second before `limits.handshake_timeout`";

    "acme": Kind::Named, LIST_ABSENT, Live, NOW, names Name, "A certificate authority that speaks ACME; to name one in `acme` is to agree to its terms of service";
    "acme.*.directory": Kind::Text("a URL"), absent("known for `letsencrypt`, `letsencrypt-staging`, `zerossl` and `google`"), Live, NOW, in AcmeAuthority.directory, "The directory of the authority";
    "acme.*.email": Kind::Text("an e-mail address"), absent("none"), Live, NOW, in AcmeAuthority.email via model::contact, syntax Email, "The contact for the account";
    "acme.*.challenge": Kind::Choice(model::Challenge::CHOICES), toml("\"tls-alpn-01\""), Live, NOW, in AcmeAuthority.challenge, "How control of a name is proved: by a handshake on port 443, a response on port 80, or a TXT record";
    "acme.*.ca": Kind::Text("a file's path"), absent("the authorities of the system"), Live, NOW, in AcmeAuthority.ca, "The PEM file with the authorities that the API of a private authority is checked against";
    "acme.*.profile": Kind::Text("a profile's name"), absent("the default of the authority"), Live, NOW, in AcmeAuthority.profile, "The certificate profile, such as `shortlived`";
    "acme.*.eab": Kind::Section, absent("no binding"), Live, NOW, "External account binding: the account that exists elsewhere";
    "acme.*.eab.key_id": Kind::Text("any text"), REQUIRED, Live, NOW, in ExternalAccount.key_id, "The identifier that the authority has given";
    "acme.*.eab.key_file": Kind::Text("a file's path"), REQUIRED, Live, NOW, in ExternalAccount.key_file, "The file with the HMAC key that the authority has given, in base64url";
    "acme.*.dns_hook": Kind::Text("a program's path"), LIST_ABSENT, Live, NOW, own Alternatives, syntax Path, "With `dns-01`: the program that sets and removes TXT records";
    "acme.*.dns_update": Kind::Section, LIST_ABSENT, Live, NOW, "With `dns-01`: the name server that takes signed updates (RFC 2136), instead of `dns_hook`";
    "acme.*.dns_update.server": Kind::Text("an address and a port, such as `192.0.2.53:53`"), REQUIRED, Live, NOW, in DnsUpdate.server via model::acme::name_server, syntax SocketAddress, "The address of the primary name server";
    "acme.*.dns_update.zone": Kind::Text("a domain"), REQUIRED, Live, NOW, in DnsUpdate.zone, "The zone that has the records";
    "acme.*.dns_update.key_name": Kind::Text("a name"), REQUIRED, Live, NOW, in DnsUpdate.key_name, "The name of the TSIG key on the name server";
    "acme.*.dns_update.key_file": Kind::Text("a file's path"), REQUIRED, Live, NOW, in DnsUpdate.key_file, "The file with the TSIG key, in base64";
    "acme.*.dns_update.algorithm": Kind::Choice(model::TsigAlgorithm::CHOICES), toml("\"hmac-sha256\""), Live, NOW, in DnsUpdate.algorithm, "The algorithm of the TSIG key";
    "acme.*.dns_wait": Kind::Duration { min: ms(0), max: hours(1) }, toml("\"30s\""), Live, NOW, in AcmeAuthority.dns_wait, "With `dns-01`: how long a record has been set before the authority looks for it";

    "listener": Kind::Sections, absent("one named `default` with the defaults of its keys"), Live, NOW, "An address that accepts connections";
    "listener.name": Kind::Text("a name"), toml("\"default\""), Live, NOW, in ListenerConfig.name, "The name in routes, events and metrics";
    "listener.address": Kind::List("`[::]:443`, `0.0.0.0:443`, `unix:/path`"), toml("\"[::]:443\""), Live, NOW, in ListenerConfig.addresses, filled "write where to listen, such as \"[::]:443\"", "Where it listens; `[::]` includes IPv4";
    "listener.mode": Kind::Choice(model::Mode::CHOICES), toml("\"tcp\""), Live, NOW, in ListenerConfig.mode, "`tcp`: relay the bytes of any protocol; `http`: HTTP/1.1 and HTTP/2, each request with its own route";
    "listener.tls": Kind::Bool, toml("true"), Live, NOW, in ListenerConfig.tls, "`false`: clients speak plain text";
    "listener.accept_proxy": Kind::List("addresses or networks such as `10.0.0.0/8`"), toml("[]"), Live, NOW, in ListenerConfig.accept_proxy, "Sources that must send a PROXY header, which is trusted; from all others a PROXY header is refused";
    "listener.allow": Kind::List("networks such as `10.0.0.0/8`, countries such as `country:DE`, or `file:` and the path of a list"), absent("clients from anywhere"), Live, NOW, in ListenerConfig.networks.allow, filled "leave it out to admit clients from anywhere", "The networks that clients may come from; others are disconnected before the TLS handshake, see [Networks](how-to/networks.md)";
    "listener.deny": Kind::List("networks such as `10.0.0.0/8`, countries such as `country:DE`, or `file:` and the path of a list"), absent("nobody is refused"), Live, NOW, in ListenerConfig.networks.deny, filled "leave it out to refuse nobody", "The networks that clients may not come from, whatever `allow` says";
    "listener.preamble": Kind::Choice(model::PreambleProtocol::CHOICES), absent("clients begin with TLS"), Live, NOW, in ListenerConfig.preamble, "With `mode = \"tcp\"`: clients ask for TLS in the protocol that it protects; `postgres`: by `SSLRequest`, as clients of PostgreSQL do, or they begin with TLS";
    "listener.cancel": Kind::Choice(model::PostgresCancel::CHOICES), toml("\"tls\""), Live, NOW, in ListenerConfig.cancel, "With `preamble = \"postgres\"`: how clients may cancel a query; `clear`: by a `CancelRequest` in clear too, as those before libpq 17 do. It goes to the route without `host`, unless that has `client_auth`, see [Cancelling a query](how-to/postgresql.md#cancelling-a-query)";
    "listener.trusted_proxies": Kind::List("addresses or networks such as `10.0.0.0/8`"), toml("[]"), Live, NOW, in ListenerConfig.trusted_proxies, "With `mode = \"http\"`: proxies whose `X-Forwarded-*`, `Forwarded` and `X-Request-Id` are trusted and extended, and so name the client; those of all others are replaced";
    "listener.via": Kind::Bool, toml("false"), Live, NOW, in ListenerConfig.via, "With `mode = \"http\"`: add `Via` to requests and responses";

    "route": Kind::Sections, absent("every connection is refused"), Live, NOW, "Where connections and requests go; the most specific one wins: by listener, then host, then the longest `path`, then `alpn`";
    "route.listener": Kind::List("listeners' names"), absent("all that the route can apply to"), Live, NOW, for EVERY.own(), in RouteConfig.listeners, filled "leave it out for all listeners", "The listeners that it applies to";
    "route.host": Kind::List("`example.org`, `*.example.org`"), absent("any, and none"), Live, NOW, for EVERY.own().with_tls_on_tcp(), in RouteConfig.hosts, filled "leave it out for any host", "The server name that the client requests, with `mode = \"http\"` the host of the request; `*` stands for one label";
    "route.alpn": Kind::List("protocols such as `h2`"), absent("any, and none"), Live, NOW, for EVERY.own().with_tls_on_tcp().terminated("the server that terminates TLS agrees on a protocol"), in RouteConfig.alpn, filled "leave it out for any protocol", "With `mode = \"tcp\"`: matches a client that offers one of them; the first of the list that the client offers is selected";
    "route.path": Kind::Text("`/`, `/api`"), toml("\"/\""), Live, NOW, for REQUESTS.own(), in RouteConfig.path, "With `mode = \"http\"`: the first segments of the path of the request; `/api` matches `/api` and `/api/x`, never `/apix`";
    "route.backend": Kind::Text("the name of a [backend.NAME]"), absent("one of `backend`, `server`, `split`, `passthrough`, `redirect`, `respond`, `root` must be set"), Live, NOW, for EVERY.is_target(Relay), own Alternatives, syntax Name, "The group of servers";
    "route.server": Kind::Text("`unix:/path`, `host:port`"), absent("one of `backend`, `server`, `split`, `passthrough`, `redirect`, `respond`, `root` must be set"), Live, NOW, for EVERY.is_target(Relay), own Alternatives, syntax RouteServer, "The server, if there is only one";
    "route.split": Kind::Section, absent("one of `backend`, `server`, `split`, `passthrough`, `redirect`, `respond`, `root` must be set"), Live, NOW, for REQUESTS.is_target(Relay), "Several backends share the HTTP requests, see [Canaries and mirrors](how-to/canary.md)";
    "route.split.backends": Kind::List("names of [backend.NAME], then ` weight=N`"), REQUIRED, Live, NOW, in TrafficSplit.backends, "The backends; `weight` (0 to 1000, default 1) is the share. With 0 a backend gets the requests that name it";
    "route.split.by": Kind::Choice(model::SplitWay::CHOICES), toml("\"client\""), Live, NOW, in TrafficSplit.by, "What decides on the share of a request: a hash of the client's address, of a cookie or of a field, so that the same value is always in the same share; or chance, for each request anew";
    "route.split.header": Kind::Text("a field's name"), absent("no field"), Live, NOW, in TrafficSplit.header, "Requests in which this field is the name of one of the backends go to it";
    "route.split.cookie": Kind::Text("a cookie's name"), absent("no cookie"), Live, NOW, in TrafficSplit.cookie, "Requests in which this cookie is the name of one of the backends go to it";
    "route.split.sticky_cookie": Kind::Text("a cookie's name"), absent("no cookie"), Live, NOW, in TrafficSplit.sticky_cookie, "The cookie that keeps a client with its backend, as long as the weight of that is not 0";
    "route.passthrough": Kind::Text("`unix:/path`, `host:port`"), absent("one of `backend`, `server`, `split`, `passthrough`, `redirect`, `respond`, `root` must be set"), Live, NOW, for EVERY.is_target(Passthrough).with_tls(), own Alternatives, syntax Server, "The server that gets the TLS of the client unchanged, not terminated";
    "route.redirect": Kind::TextOrTable("`https`, or a URL with `{host}`, `{path}`, `{query}`, `{uri}`"), absent("one of `backend`, `server`, `split`, `passthrough`, `redirect`, `respond`, `root` must be set"), Live, NOW, for REQUESTS.is_target(Redirect), syntax Redirect, "Answers HTTP requests with a redirect; `https`: to the same URL over TLS";
    "route.redirect.to": Kind::Text("`https`, or a URL with placeholders"), REQUIRED, Live, NOW, in RedirectResponse.to, "The new URL; `{host}` is the request's, `{path}` its path, `{query}` its query without the `?`, `{uri}` path and query unchanged";
    "route.redirect.status": count(301, 308), toml("308"), Live, NOW, in RedirectResponse.status, "301, 302, 303, 307 or 308";
    "route.respond": Kind::Section, absent("one of `backend`, `server`, `split`, `passthrough`, `redirect`, `respond`, `root` must be set"), Live, NOW, for REQUESTS.is_target(Respond), "Answers HTTP requests with a fixed response";
    "route.respond.status": count(200, 599), toml("200"), Live, NOW, in FixedResponse.status, "The status";
    "route.respond.body": Kind::Text("any text"), toml("\"\""), Live, NOW, in FixedResponse.body, "The body";
    "route.respond.file": Kind::Text("a file's path"), absent("the body is `body`"), Live, NOW, in FixedResponse.file, "The file with the body, of at most 16 MiB, read at a start and at a reload";
    "route.respond.content_type": Kind::Text("a media type"), absent("`text/plain; charset=utf-8`, or that of the name of `file`"), Live, NOW, in FixedResponse.content_type, "The media type of the body";
    "route.root": Kind::Text("the path of a directory"), absent("one of `backend`, `server`, `split`, `passthrough`, `redirect`, `respond`, `root` must be set"), Live, NOW, for REQUESTS.is_target(Files), own Alternatives, syntax Path, "Answers HTTP requests with the files below this directory, see [Static files](how-to/static-files.md)";
    "route.index": Kind::List("names of files"), toml("[\"index.html\"]"), Live, NOW, for FILES, in StaticFiles.index via model::files::name, syntax FileName, filled "leave it out for index.html", "With `root`: the file of a directory that is served for it; the first that exists";
    "route.try": Kind::List("`{path}`, `{path}.html`"), toml("[\"{path}\"]"), Live, NOW, for FILES.own(), in StaticFiles.tries via model::files::attempt, syntax FileAttempt, filled "leave it out to look for `{path}` alone", "With `root`: the files that are looked for in turn; `{path}` is the path of the request";
    "route.fallback": Kind::Text("`/index.html`"), absent("404"), Live, NOW, for FILES.own(), in StaticFiles.fallback via model::fallback, syntax FileBelow, "With `root`: the file that is served where there is no other, as single-page applications need it";
    "route.listing": Kind::Bool, toml("false"), Live, NOW, for FILES, in StaticFiles.listing, "With `root`: answer with a list of its files for a directory that has none of `index`, as a page or, by `Accept`, as JSON; without it such a directory is refused with 403";
    "route.precompressed": Kind::Bool, toml("false"), Live, NOW, for FILES, in StaticFiles.precompressed, "With `root`: serve `FILE.br`, `FILE.zst` or `FILE.gz` for `FILE` to clients that decode it (`Accept-Encoding`), if it is not older than `FILE`";
    "route.hidden": Kind::Bool, toml("false"), Live, NOW, for FILES, in StaticFiles.hidden, "With `root`: serve files and directories whose names begin with a dot; `.well-known` is served anyway";
    "route.cache_control": Kind::Map("`{ \"*.css\" = \"max-age=3600\" }`"), absent("no `Cache-Control`"), Live, NOW, for FILES.adds_up(), own Pairs, syntax FieldValue, names Any, "With `root`: the value of `Cache-Control` by a pattern of the file's name, or of its path below `root` if the pattern begins with `/`; `*` stands for any text, and the longest pattern wins";
    "route.strip_path": Kind::Bool, toml("false"), Live, NOW, for REQUESTS.only_with(&[Relay, Files]).own(), own Alternatives, "Servers get the path without the `path` of the route; with `root`, files are looked for without it";
    "route.replace_path": Kind::Text("`/new`"), absent("the path stays"), Live, NOW, for SERVERS.own(), own Alternatives, syntax RoutePath, "Servers get this instead of the `path` of the route";
    "route.normalize_path": Kind::Bool, toml("false"), Live, NOW, for SERVERS, in RouteConfig.http.paths.normalize, "Servers get paths in normal form, by which routes are found, instead of as they came: `//a/./%62` as `/a/b`, see [Spellings of a path](how-to/paths.md)";
    "route.encoded_slashes": Kind::Choice(model::EncodedSlashes::CHOICES), toml("\"refuse\""), Live, NOW, for SERVERS, in RouteConfig.http.paths.encoded_slashes, "Where the path decides who may enter a host: whether paths with `%2F`, `%5C` or other escapes with several readings are refused (400), or pass if every reading leads to the same route";
    "route.rewrite": Kind::Sections, LIST_ABSENT, Live, NOW, for REQUESTS.only_with(&[Relay, Files, Redirect]).own(), "Rules that rewrite the path of requests, before files are looked for or servers get it; the first one whose pattern matches counts, see [Rewriting by patterns](how-to/answers.md#rewriting-by-patterns)";
    "route.rewrite.match": Kind::Text("a regular expression"), REQUIRED, Live, NOW, in PathRewrite.pattern, "The pattern of the path, without the query; `^` and `$` tie it to the ends";
    "route.rewrite.to": Kind::Text("`/new/$1`"), REQUIRED, Live, NOW, in PathRewrite.to, "The new path, with a new query if it has a `?`; `$1` and `${name}` stand for what groups of the pattern have matched";
    "route.request_headers": Kind::Section, absent("no change"), Live, NOW, for SERVERS.adds_up(), "Changes to the header of requests before servers get them";
    "route.request_headers.set": Kind::Map("`{ NAME = \"value\" }`"), LIST_ABSENT, Live, NOW, own Pairs, syntax FieldValue, names Token, "Fields that replace those of the same name; values may have [variables](how-to/headers.md#variables)";
    "route.request_headers.add": Kind::Map("`{ NAME = \"value\" }`, or a list of values"), LIST_ABSENT, Live, NOW, own Pairs, syntax FieldValue, names Token, "Fields that are added to those of the same name; values may have [variables](how-to/headers.md#variables)";
    "route.request_headers.remove": Kind::List("names of fields"), LIST_ABSENT, Live, NOW, in HeaderChanges.remove via model::header::removable, syntax Token, filled "leave it out", "Fields that are removed, before others are set and added";
    "route.upgrade": Kind::List("protocols such as `websocket`"), toml("[\"websocket\"]"), Live, NOW, for SERVERS, in RouteConfig.http.upgrade, "The protocols that clients may change to with `Upgrade` over HTTP/1.1, WebSocket over HTTP/2 too; servers are offered no others, `[]` passes none";
    "route.keep_original_url": Kind::Bool, toml("false"), Live, NOW, for SERVERS, in RouteConfig.http.plain.keep_original_url, "Servers get `X-Original-URL`, `X-Original-URI`, `X-Original-Host`, `X-Original-Method`, `X-Rewrite-URL`, `X-Host`, `X-HTTP-Host-Override`, `X-Envoy-Original-Path` and `X-Envoy-Original-Host` of clients that are not `trusted_proxies`; some frameworks serve the path in them instead of the one that the route was chosen by";
    "route.response_headers": Kind::Section, absent("no change"), Live, NOW, for REQUESTS.adds_up(), "Changes to the header of responses before clients get them";
    "route.response_headers.set": Kind::Map("`{ NAME = \"value\" }`"), LIST_ABSENT, Live, NOW, own Pairs, syntax FieldValue, names Token, "Fields that replace those of the same name; values may have [variables](how-to/headers.md#variables)";
    "route.response_headers.add": Kind::Map("`{ NAME = \"value\" }`, or a list of values"), LIST_ABSENT, Live, NOW, own Pairs, syntax FieldValue, names Token, "Fields that are added to those of the same name; values may have [variables](how-to/headers.md#variables)";
    "route.response_headers.remove": Kind::List("names of fields"), LIST_ABSENT, Live, NOW, in HeaderChanges.remove via model::header::removable, syntax Token, filled "leave it out", "Fields that are removed, before others are set and added";
    "route.redirects": Kind::Text("a file's path"), LIST_ABSENT, Live, NOW, for REQUESTS.own(), in RouteConfig.http.redirects, "The file with redirects of single paths, which go before the target of the route: lines `PATH,TARGET` or `PATH,TARGET,STATUS`, see [Redirects of many paths](how-to/answers.md#redirects-of-many-paths)";
    "route.maintenance": Kind::BoolOrTable, toml("false"), Live, NOW, for REQUESTS, "Answers every HTTP request of the route with 503 and `Retry-After`, and the page for 503 of `error_pages`";
    "route.maintenance.retry_after": Kind::Duration { min: ms(1000), max: hours(24 * 30) }, toml("\"5m\""), Live, NOW, in MaintenanceMode.retry_after, "The value of `Retry-After`";
    "route.maintenance.allow": Kind::List("addresses or networks such as `10.0.0.0/8`"), toml("[]"), Live, NOW, in MaintenanceMode.allow, "Clients to whom the route works as usual";
    "route.error_pages": Kind::Map("`{ 404 = \"404.html\", 5xx = \"5xx.html\" }`, or a list of files"), absent("a plain page, JSON or text"), Live, NOW, for REQUESTS.adds_up(), own Pairs, syntax Path, names ErrorStatus, "The files with the pages of errors, by status or class; in HTML, JSON and other text `{status}`, `{reason}` and `{id}` stand for the status, its meaning and the id of the request. Of several for one status, the client gets the one that its `Accept` prefers";
    "route.intercept_errors": Kind::Bool, toml("false"), Live, NOW, for SERVERS, in RouteConfig.http.error_pages.intercept, "Errors of servers get the pages of `error_pages` too; the bodies that the servers send are dropped";
    "route.hsts": Kind::BoolOrTable, toml("false"), Live, NOW, for REQUESTS, "Tells browsers over TLS to use only TLS from now on (RFC 6797)";
    "route.hsts.max_age": Kind::Duration { min: ms(0), max: hours(24 * 3650) }, toml("\"365d\""), Live, NOW, in Hsts.max_age, "For how long";
    "route.hsts.include_subdomains": Kind::Bool, toml("false"), Live, NOW, in Hsts.include_subdomains, "Include all hosts below this one";
    "route.hsts.preload": Kind::Bool, toml("false"), Live, NOW, in Hsts.preload, "Allow browsers to include the host in their built-in list";
    "route.max_body": size(0, 1024 * GIB), absent("no limit"), Live, NOW, for SERVERS, in RouteConfig.http.plain.max_body, "The maximum size of the body of a request; a larger one gets 413";
    "route.compress": Kind::BoolOrTable, toml("false"), Live, NOW, for REQUESTS, "Compresses responses for clients that accept it, see [Compression](how-to/compression.md)";
    "route.compress.algorithms": Kind::List("`zstd`, `br`, `gzip`"), toml("[\"zstd\", \"br\", \"gzip\"]"), Live, NOW, in CompressionConfig.algorithms, filled "leave it out for all of them", "The algorithms, the preferred one first: it decides where the client has no preference";
    "route.compress.min_size": size(0, GIB), toml("\"1KiB\""), Live, NOW, in CompressionConfig.min_size, "The least content that is compressed, where its length is known";
    "route.compress.types": Kind::List("media types; one `*` stands for any text"), absent("text, JSON, JavaScript, XML, SVG, WebAssembly, and fonts that are not compressed"), Live, NOW, in CompressionConfig.types, filled "leave it out for the usual ones", "The media types that are compressed";
    "route.compress.level": count(1, 9), absent("2 for `gzip`, 4 for `br`, 3 for `zstd`"), Live, NOW, in CompressionConfig.level, "How much CPU time is spent for size; `br` goes up to 6, and a busy worker uses a lower one";
    "route.compress.secrets": Kind::Bool, toml("false"), Live, NOW, in CompressionConfig.secrets, "The responses have secrets beside what others may have put into requests (BREACH): those of one user pass as they are. These are responses to requests with `Cookie`, `Authorization` or a client certificate, and responses with `Set-Cookie` or `Cache-Control: private` or `no-store`";
    "route.connect_timeout": timeout(hours(1)), absent("that of the backend"), Live, NOW, for CONNECTING, own Alternatives, "The time for one attempt to connect to a server, its TLS handshake included; it wins over that of the backend and of [limits]";
    "route.response_timeout": timeout(hours(24)), absent("that of [limits]"), Live, NOW, for SERVERS, in RouteConfig.http.plain.limits.response_timeout, "The time from an HTTP request to the header of the server's response";
    "route.request_body_timeout": timeout(hours(1)), absent("that of [limits]"), Live, NOW, for SERVERS, in RouteConfig.http.plain.limits.request_body_timeout, "The time between two pieces of the body of an HTTP request, until the response begins. For requests of gRPC and once the response has begun, `idle_timeout` applies instead";
    "route.min_body_rate": size(0, GIB), absent("that of [limits]"), Live, NOW, for SERVERS, in RouteConfig.http.plain.limits.min_body_rate, "The minimum average rate of the body of an HTTP request, in bytes per second, after 10 s; `0B`: no minimum. It applies until the response begins, and not to requests of gRPC";
    "route.idle_timeout": timeout(hours(24 * 30)), absent("that of [limits]"), Live, NOW, for SERVERS, in RouteConfig.http.plain.limits.idle_timeout, "An HTTP response or WebSocket without a byte in either direction ends after this time";
    "route.bandwidth": size(16 * KIB, 1024 * GIB), absent("no limit"), Live, NOW, for EVERY, in RouteConfig.bandwidth, "Bytes per second that all clients of the route together may send, and as many that they may receive, over all connections and workers; one second's worth may pass at once, see [Bandwidth](operate/overload.md#bandwidth)";
    "route.policy": Kind::List("names of [policy.NAME]"), absent("none"), Live, NOW, for EVERY.in_defaults_only(), own Expansion, syntax Name, "The groups of keys that the route takes over where it does not write them";
    "route.mirror": Kind::TextOrTable("the name of a [backend.NAME]"), absent("no copies"), Live, NOW, for SERVERS, syntax Name, "This backend gets a copy of each request, and its responses are dropped, see [Canaries and mirrors](how-to/canary.md)";
    "route.mirror.backend": Kind::Text("the name of a [backend.NAME]"), REQUIRED, Live, NOW, in MirrorConfig.backend, "Who gets the copies";
    "route.mirror.max_body": size(0, 16 * MIB), toml("\"64KiB\""), Live, NOW, in MirrorConfig.max_body, "Requests with larger bodies are not copied";
    "route.mirror.requests": count(1, 10_000), toml("32"), Live, NOW, in MirrorConfig.requests, "The copies that each worker has in progress; further requests are not copied";
    "route.mirror.one_in": count(1, 1_000_000), toml("1"), Live, NOW, in MirrorConfig.one_in, "One in this many requests is copied";
    "route.log_one_in": count(1, 1_000_000), toml("1"), Live, NOW, for EVERY, in RouteConfig.log_one_in, "Write one in this many events of requests and connections; failures are always written";
    "route.send_proxy": Kind::ChoiceOrTable(model::ProxyVersion::CHOICES), absent("no header"), Live, NOW, for CONNECTING, "The PROXY protocol header that servers get first";
    "route.send_proxy.version": Kind::Choice(model::ProxyVersion::CHOICES), REQUIRED, Live, NOW, own Alternatives, "The version; `v2` has TLS details, ALPN, authority and a unique id";
    "route.send_proxy.tls": Kind::Bool, toml("true"), Live, NOW, in ProxyV2.tls, "`false`: without TLS details, ALPN and authority in the v2 header, for servers that refuse or misread them";
    "route.send_proxy.crc32c": Kind::Bool, toml("false"), Live, NOW, in ProxyV2.crc32c, "Add a checksum to the v2 header";
    "route.send_proxy.client_certificate": Kind::Bool, toml("false"), Live, NOW, in ProxyV2.client_certificate, "Add the client's certificate to the v2 header";
    "route.tls": Kind::Section, absent("as [tls] says"), Live, NOW, for EVERY.in_policies_only().with_tls().terminated("the server that terminates TLS decides on versions and ciphers"), "TLS where it differs from [tls]. On listeners of HTTP, routes of one host have the same";
    "route.tls.policy": Kind::Choice(model::Policy::CHOICES), absent("as [tls] says"), Live, NOW, in RouteTls.policy, "`modern`: TLS 1.3 only; `intermediate`: 1.2 and 1.3";
    "route.tls.max_version": Kind::Choice(model::TlsVersionLimit::CHOICES), absent("as [tls] says"), Live, NOW, in RouteTls.max_version, "The latest version that is spoken";
    "route.tls.aeads": Kind::List("`aes-128-gcm`, `aes-256-gcm`, `chacha20-poly1305`"), absent("as [tls] says"), Live, NOW, in RouteTls.aeads, filled "leave it out for those of [tls]", "The ciphers that are offered";
    "route.client_auth": Kind::Section, absent("clients are not asked for a certificate"), Live, NOW, for EVERY.in_policies_only().with_tls().terminated("the server that terminates TLS asks for the client's certificate"), "Mutual TLS";
    "route.client_auth.mode": Kind::Choice(model::AuthMode::CHOICES), toml("\"required\""), Live, NOW, in ClientAuth.mode, "Whether a client without a certificate is refused";
    "route.client_auth.ca": Kind::List("paths of files"), absent("required without `trust_domains`"), Live, NOW, in ClientAuth.ca, filled "name the file with the authorities", "The PEM files with the authorities that clients' certificates are checked against";
    "route.client_auth.trust_domains": Kind::Map("`{ \"DOMAIN\" = \"FILE\" }`, or a list of files"), absent("any authority of `ca` may issue any name"), Live, NOW, own Pairs, syntax Path, names TrustDomain, "Instead of `ca`: the PEM files with the authorities of each SPIFFE trust domain. A certificate must have one SPIFFE ID, and is checked against the authorities of its trust domain alone";
    "route.client_auth.crl": Kind::List("paths of files"), absent("nobody is revoked"), Live, NOW, in ClientAuth.crl, filled "leave it out if there are no revocation lists", "The files with the authorities' revocation lists, in PEM or DER; an authority without a list has revoked nobody";
    "route.client_auth.allow": Kind::List("`dns:`, `uri:`, `ip:`, `cn:` or `ou:` and a pattern, or `pin:sha256/` and base64"), absent("every certificate that the authorities vouch for"), Live, NOW, in ClientAuth.allow, filled "leave it out to accept every certificate that the authorities have issued", "The names, networks and public keys of which a client's certificate must have one; `*` stands for any text";
    "route.client_auth.xfcc": Kind::Bool, toml("false"), Live, NOW, in ClientAuth.xfcc, "Send the client's certificate to HTTP servers as `X-Forwarded-Client-Cert` too, as Envoy does; they always get it as `Client-Cert` and `Client-Cert-Chain` (RFC 9440)";
    "route.deny_ja4": Kind::List("a JA4 fingerprint such as `t13d1516h2_8daaf6152771_e5627efa2ab1`, or its beginning and `*`"), absent("no client is refused by it"), Live, NOW, for EVERY.in_policies_only().with_tls(), in RouteConfig.deny_ja4, filled "leave it out to refuse no client by its fingerprint", "Refuses clients by the JA4 fingerprint of their ClientHello, with the alert `handshake_failure`";
    "route.allow": Kind::List("networks such as `10.0.0.0/8`, countries such as `country:DE`, or `file:` and the path of a list"), absent("clients from anywhere"), Live, NOW, for EVERY, in RouteConfig.networks.allow, filled "leave it out to admit clients from anywhere", "The networks that clients may come from; requests of others get 403, see [Networks](how-to/networks.md)";
    "route.deny": Kind::List("networks such as `10.0.0.0/8`, countries such as `country:DE`, or `file:` and the path of a list"), absent("nobody is refused"), Live, NOW, for EVERY, in RouteConfig.networks.deny, filled "leave it out to refuse nobody", "The networks that clients may not come from, whatever `allow` says";
    "route.satisfy": Kind::Choice(model::Satisfy::CHOICES), toml("\"all\""), Live, NOW, for REQUESTS, in RouteConfig.credentials.satisfy, "With `mode = \"http\"`: which of `allow`, `basic_auth` or `jwt`, and `forward_auth` a request must satisfy: all of them, or any one of them; see [One rule is enough](how-to/access.md#one-rule-is-enough)";
    "route.basic_auth": Kind::TextOrTable("the path of a file of users"), absent("everybody may enter"), Live, NOW, for REQUESTS, syntax Path, "With `mode = \"http\"`: requests must have the name and password of a user, see [Passwords](how-to/passwords.md)";
    "route.basic_auth.file": Kind::Text("a file's path"), REQUIRED, Live, NOW, in BasicAuthConfig.file, "The users: lines `name:hash` as `offramp password` prints them, by argon2id or bcrypt";
    "route.basic_auth.realm": Kind::Text("any text without quotes"), toml("\"restricted\""), Live, NOW, in BasicAuthConfig.realm via model::access::realm, syntax Realm, "What browsers say that the password is for";
    "route.basic_auth.header": Kind::Text("the name of a field"), toml("\"remote-user\""), Live, NOW, in BasicAuthConfig.header via model::access::identity, syntax Token, "The field that names the user to servers; what clients say there is removed";
    "route.basic_auth.keep_authorization": Kind::Bool, toml("false"), Live, NOW, in BasicAuthConfig.keep_authorization, "Servers get `Authorization` with the name and the password too";
    "route.jwt": Kind::Section, absent("everybody may enter"), Live, NOW, for REQUESTS, "With `mode = \"http\"`: requests must have a token (RFC 7519) in `Authorization: Bearer`, signed by RS256, ES256 or EdDSA (Ed25519), see [Tokens](how-to/tokens.md)";
    "route.jwt.jwks": Kind::Text("a file's path, or a URL of `https`"), REQUIRED, Live, NOW, own Alternatives, syntax Path, "The public keys of who issues the tokens: a JSON Web Key Set. From a URL they are fetched while Offramp runs; `http` only from this machine";
    "route.jwt.ca": Kind::Text("a PEM file"), absent("the authorities of the system"), Live, NOW, in KeyServer.ca, "With a URL in `jwks`: the authorities that the certificate of its server is checked against";
    "route.jwt.refresh": Kind::Duration { min: ms(10_000), max: hours(24) }, toml("\"10m\""), Live, NOW, in KeyServer.refresh, "With a URL in `jwks`: the longest time between two fetches, and so how long a key is believed that the issuer takes back. A shorter `max-age` of the response counts, down to a minute; a token by an unknown key has the keys fetched at once";
    "route.jwt.issuer": Kind::Text("the claim `iss`"), absent("anybody whose key is in `jwks`"), Live, NOW, in JwtAuth.issuer, "Who must have issued the token";
    "route.jwt.audience": Kind::List("values of the claim `aud`"), absent("only tokens without `aud`"), Live, NOW, in JwtAuth.audience via model::access::audience, syntax NonEmpty, filled model::access::ALL_AUDIENCES, "For whom the token must be: one of these; `\"*\"`: for anybody";
    "route.jwt.headers": Kind::Map("`{ Remote-User = \"sub\" }`"), LIST_ABSENT, Live, NOW, own Pairs, syntax Any, names Token, "Fields that servers get, and the claim of each, by its name or a JSON pointer such as `/realm_access/roles`; what clients say there is removed";
    "route.jwt.leeway": Kind::Duration { min: ms(0), max: hours(1) }, toml("\"1m\""), Live, NOW, in JwtAuth.leeway, "By how much the clock of the issuer may differ";
    "route.jwt.keep_authorization": Kind::Bool, toml("false"), Live, NOW, in JwtAuth.keep_authorization, "Servers get `Authorization` with the token too";
    "route.jwt.keep_tunnels": Kind::Bool, toml("false"), Live, NOW, in JwtAuth.keep_tunnels, "WebSockets, other tunnels, responses without a length and calls of gRPC go on when the token that opened them has ended; otherwise they end with it";
    "route.forward_auth": Kind::Section, absent("no server is asked"), Live, NOW, for REQUESTS, "With `mode = \"http\"`: asks an authentication server, such as Authelia, Authentik or oauth2-proxy, about each request, see [Authentication servers](how-to/authentication-servers.md)";
    "route.forward_auth.backend": Kind::Text("the name of a [backend.NAME]"), absent("one of `backend`, `server` must be set"), Live, NOW, own Alternatives, syntax Name, "The servers that are asked";
    "route.forward_auth.server": Kind::Text("`unix:/path`, `host:port`"), absent("one of `backend`, `server` must be set"), Live, NOW, own Alternatives, syntax RouteServer, "The server that is asked, if there is only one; `tls://host:port` speaks TLS";
    "route.forward_auth.path": Kind::Text("`/api/authz/forward-auth`"), toml("\"/\""), Live, NOW, in ForwardAuthConfig.path via model::access::asked, syntax AuthPath, "The path that is asked for";
    "route.forward_auth.headers": Kind::List("names of fields such as `Remote-User`"), LIST_ABSENT, Live, NOW, in ForwardAuthConfig.headers via model::access::identity, syntax Token, "Fields of its response that servers get; what clients say there is removed";
    "route.forward_auth.timeout": timeout(hours(1)), toml("\"5s\""), Live, NOW, in ForwardAuthConfig.timeout, "How long it may take; then the request gets 503";

    "policy": Kind::Named, LIST_ABSENT, Live, NOW, "A group of keys of [[route]] that routes name by `policy`, see [Settings for several routes](how-to/answers.md#settings-for-several-routes)";

    "defaults": Kind::Section, absent("nothing"), Live, NOW, "Values that are shared";
    "defaults.route": Kind::Section, absent("nothing"), Live, NOW, "Keys of all routes that do not write them, see [Settings for several routes](how-to/answers.md#settings-for-several-routes). Its `error_pages` are for requests without a route too";

    "backend": Kind::Named, LIST_ABSENT, Live, NOW, names Name, "A group of servers with the same purpose";
    "backend.*.servers": Kind::List("`unix:/path` or `host:port`, then ` weight=N`, ` backup`, ` drain` or ` disabled`"), REQUIRED, Live, NOW, in BackendConfig.servers, filled "write at least one server", "The servers; `weight` (1 to 256, default 1) is the share, a `backup` is used only if no other is available, one with `drain` finishes what it has and gets nothing new, one with `disabled` is not used or checked";
    "backend.*.balance": Kind::Choice(model::BalanceWay::CHOICES), toml("\"round_robin\""), Live, NOW, in BackendConfig.balance, "How a server is selected: in turn, the least busy, the less busy of two, or by a hash of the client's address, a cookie or a header field";
    "backend.*.protocol": Kind::Choice(model::Protocol::CHOICES), toml("\"h1\""), Live, NOW, in BackendConfig.protocol, "The protocol to the servers of HTTP routes: HTTP/1.1, HTTP/2 with prior knowledge, as gRPC needs, or with `tls` what each server selects (ALPN)";
    "backend.*.max_connections": count(1, 1_000_000), absent("no limit"), Live, NOW, in BackendConfig.pool.max_connections, "Connections or requests at a time for each server; further ones wait";
    "backend.*.queue": count(0, 1_000_000), toml("128"), Live, NOW, in BackendConfig.pool.queue, "How many may wait while all servers are at `max_connections`";
    "backend.*.queue_timeout": timeout(hours(1)), toml("\"5s\""), Live, NOW, in BackendConfig.pool.queue_timeout, "How long a connection or request may wait";
    "backend.*.idle_connections": count(0, 100_000), toml("256"), Live, NOW, in BackendConfig.pool.idle_connections, "Connections without a request that each worker keeps for each server";
    "backend.*.idle_timeout": timeout(hours(24)), toml("\"1m\""), Live, NOW, in BackendConfig.pool.idle_timeout, "How long such a connection is kept";
    "backend.*.connect_timeout": timeout(hours(1)), absent("that of [limits]"), Live, NOW, in BackendConfig.pool.connect_timeout, "The time for one attempt to connect to a server";
    "backend.*.sticky_cookie": Kind::Text("a cookie's name"), absent("no cookie"), Live, NOW, in BackendConfig.sticky_cookie, "The cookie that keeps a client with its server";
    "backend.*.health": Kind::Section, absent("no checks"), Live, NOW, "Checks whether servers are up";
    "backend.*.health.path": Kind::Text("`/healthz`"), absent("the check only connects"), Live, NOW, in HttpProbe.path via model::health::probe_path, syntax Probe, "The path of a GET request";
    "backend.*.health.host": Kind::Text("a host name, or `host:port`"), absent("the address of the first server, or `localhost`"), Live, NOW, in HttpProbe.host via model::health::probe_host, syntax HostAndPort, "The host of the request";
    "backend.*.health.status": Kind::Mixed("statuses such as `200` or `\"2xx\"`"), absent("200 to 399"), Live, NOW, in HttpProbe.status, filled "leave it out for 200 to 399", "The statuses of servers that are up";
    "backend.*.health.interval": Kind::Duration { min: ms(10), max: hours(24) }, toml("\"5s\""), Live, NOW, in Health.interval, "The time between checks";
    "backend.*.health.timeout": timeout(hours(1)), toml("\"2s\""), Live, NOW, in Health.timeout, "The time for one check";
    "backend.*.health.rise": count(1, 100), toml("2"), Live, NOW, in Health.rise, "The number of passed checks until a server is up";
    "backend.*.health.fall": count(1, 100), toml("3"), Live, NOW, in Health.fall, "The number of failed checks until a server is down";
    "backend.*.eject": Kind::Section, absent("a server that cannot be connected is skipped for a moment"), Live, NOW, "Takes out a server to which requests of clients fail";
    "backend.*.eject.failures": count(1, 1000), toml("5"), Live, NOW, in Eject.failures, "The number of failures in a row until a server is taken out; the last server never is";
    "backend.*.eject.for": Kind::Duration { min: ms(100), max: hours(1) }, toml("\"10s\""), Live, NOW, in Eject.duration, "How long it is out the first time; twice as long each time it fails again";
    "backend.*.eject.slow_start": Kind::Duration { min: ms(0), max: hours(1) }, toml("\"10s\""), Live, NOW, in Eject.slow_start, "The time until a server that returns has its full share";
    "backend.*.tls": Kind::BoolOrTable, toml("false"), Live, NOW, "Speaks TLS to the servers, health checks included";
    "backend.*.tls.verify": Kind::Text("`system` or a CA file"), toml("\"system\""), Live, NOW, own Alternatives, syntax Path, "What servers' certificates are checked against: the authorities of the system, or those of a PEM file";
    "backend.*.tls.crl": Kind::List("paths of files"), absent("nobody is revoked"), Live, NOW, in ServerTls.crl, filled "leave it out if there are no revocation lists", "The files with the authorities' revocation lists, in PEM or DER; an authority without a list has revoked nobody";
    "backend.*.tls.pin": Kind::List("`sha256/` and base64"), absent("certificates are checked by `verify`"), Live, NOW, own Alternatives, syntax Pin, filled "leave it out to check certificates with `verify`", "Hashes of public keys, of which a server's certificate must have one; nothing else in it is checked then";
    "backend.*.tls.unsafe_no_verification": Kind::Bool, toml("false"), Live, NOW, own Alternatives, "`true`: the certificates of servers are not verified, so that whoever is on the way can read and change everything. `check` warns of it";
    "backend.*.tls.name": Kind::Text("a host name or an address"), absent("the server's host"), Live, NOW, in ServerTls.name, "The name that servers' certificates must be valid for";
    "backend.*.tls.sni": Kind::Text("a host name"), absent("the name that is checked, unless it is an address"), Live, NOW, in ServerTls.sni, "The name that is sent to servers (SNI)";
    "backend.*.tls.cert": Kind::Text("a PEM file"), absent("none"), Live, NOW, in ClientCertificate.cert, "The certificate that is shown to servers that ask for one, and its chain";
    "backend.*.tls.key": Kind::Text("a PEM file"), absent("the file of `cert`"), Live, NOW, in ClientCertificate.key, "Its key";
    "backend.*.tls.preamble": Kind::Choice(model::PreambleProtocol::CHOICES), absent("connections begin with TLS"), Live, NOW, in ServerTls.preamble, "How servers are asked for TLS in the protocol that it protects; `postgres`: by `SSLRequest`. Not behind listeners with `mode = \"http\"`";
    "backend.*.tls.alpn": Kind::List("protocols such as `redis`"), absent("none; with `preamble = \"postgres\"` `postgresql`; behind routes of HTTP what `protocol` says"), Live, NOW, in ServerTls.alpn, filled "leave it out to offer nothing", "What is offered to servers of connections (ALPN)";
};
