//! The rows of the table of keys, in the order in which they are documented and printed.

use std::time::Duration;

use super::{Choice, Default, Key, Kind, Reload, Support};

const NOW: Support = Support::Since("0.1.0");
const PLANNED: Support = Support::Planned;

const fn now(word: &'static str) -> Choice {
    Choice { word, support: NOW }
}

const fn planned(word: &'static str) -> Choice {
    Choice { word, support: PLANNED }
}

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

/// The shortest of the timeouts: what is shorter than a scheduling delay only breaks connections.
const SHORTEST: Duration = ms(1);

const LEVELS: &[Choice] = &[now("error"), now("warn"), now("info"), now("debug")];
const LOG_FORMATS: &[Choice] = &[now("text"), now("json"), now("logfmt")];
const LOG_OUTPUTS: &[Choice] = &[now("stderr"), now("stdout"), planned("journald"), planned("syslog")];
const ACCESS_FORMATS: &[Choice] =
    &[now("json"), now("logfmt"), now("text"), planned("combined"), planned("vhost")];
const ACCESS_OUTPUTS: &[Choice] =
    &[now("stdout"), now("stderr"), now("none"), planned("journald"), planned("syslog")];
const POLICIES: &[Choice] = &[now("modern"), now("intermediate")];
const MODES: &[Choice] = &[now("tcp"), planned("http")];
const PROXY_VERSIONS: &[Choice] = &[now("v1"), now("v2")];
const AUTH_MODES: &[Choice] = &[now("required"), now("optional")];
const BALANCES: &[Choice] = &[
    now("round_robin"),
    planned("least_conn"),
    planned("two_choices"),
    planned("hash:client"),
    planned("hash:cookie:NAME"),
    planned("hash:header:NAME"),
];
const CHALLENGES: &[Choice] = &[planned("tls-alpn-01"), planned("http-01"), planned("dns-01")];
const RECORD_SIZE: Kind = Kind::WordOrSize { word: "adaptive", min: 4096, max: 16384 };

const fn timeout(max: Duration) -> Kind {
    Kind::Duration { min: SHORTEST, max }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

macro_rules! rows {
    ($($path:literal: $kind:expr, $default:expr, $reload:ident, $support:expr, $doc:literal;)*) => {
        &[$(Key {
            path: $path,
            kind: $kind,
            default: $default,
            reload: Reload::$reload,
            support: $support,
            doc: $doc,
        }),*]
    };
}

/// Every key of the language, in the order in which it is documented and printed.
#[rustfmt::skip]
pub const TABLE: &[Key] = rows! {
    "workers": count(0, 1024), toml("0"), Restart, NOW, "Worker threads; 0: one per core that the process may use";
    "user": Kind::Text("a user's name"), absent("`offramp` when started as root, else nothing is switched"), Restart, NOW, "The user that the process becomes after sockets are bound and keys are read";
    "state_dir": Kind::Text("a folder's path"), absent("`/var/lib/offramp` for root, else `offramp` in the XDG state folder"), Restart, NOW, "Where the local CA and other state are kept";

    "admin": Kind::Section, absent("no admin interface"), Restart, PLANNED, "The admin interface";
    "admin.address": Kind::Text("an address"), REQUIRED, Restart, PLANNED, "Where the admin interface listens";

    "log": Kind::Section, SECTION_DEFAULTS, Live, NOW, "What the program says about itself";
    "log.level": Kind::Choice(LEVELS), toml("\"info\""), Live, NOW, "The least important messages that are written";
    "log.format": Kind::Choice(LOG_FORMATS), toml("\"text\""), Live, NOW, "How a message is written";
    "log.output": Kind::Output(LOG_OUTPUTS), toml("\"stderr\""), Live, NOW, "Where messages go";

    "access_log": Kind::Section, SECTION_DEFAULTS, Live, NOW, "One event per connection";
    "access_log.format": Kind::Choice(ACCESS_FORMATS), toml("\"json\""), Live, NOW, "How an event is written";
    "access_log.output": Kind::Output(ACCESS_OUTPUTS), toml("\"stdout\""), Live, NOW, "Where events go";

    "log_store": Kind::Section, absent("no log store"), Restart, PLANNED, "The queryable access log";
    "log_store.url": Kind::Text("a database's URL"), REQUIRED, Restart, PLANNED, "The database: `sqlite:` and a path, or `postgres://`";
    "log_store.retention": Kind::Duration { min: hours(1), max: hours(24 * 3650) }, toml("\"90d\""), Live, PLANNED, "How long events are kept";

    "metrics": Kind::Section, absent("no metrics endpoint"), Live, NOW, "Figures for Prometheus";
    "metrics.address": Kind::Text("an address to listen on"), absent("no metrics endpoint"), Live, NOW, "Where `/metrics` is served over plain HTTP, such as `127.0.0.1:9902`";
    "metrics.graphite": Kind::Text("host:port"), LIST_ABSENT, Restart, PLANNED, "Where the same figures are pushed in Graphite's format";
    "metrics.top_clients": count(0, 100_000), toml("100"), Live, PLANNED, "How many clients are kept by name";

    "tls": Kind::Section, SECTION_DEFAULTS, Live, NOW, "TLS towards the clients";
    "tls.policy": Kind::Choice(POLICIES), toml("\"intermediate\""), Live, NOW, "`modern`: TLS 1.3 only; `intermediate`: 1.2 and 1.3 with AEAD suites only";
    "tls.tickets": count(0, 8), toml("2"), Live, NOW, "TLS 1.3 tickets per full handshake; 0: no resumption";
    "tls.ticket_rotation": Kind::Duration { min: ms(1000), max: hours(72) }, toml("\"6h\""), Live, NOW, "How long a ticket key is used before a new one takes its place";
    "tls.record_size": RECORD_SIZE, toml("\"adaptive\""), Live, NOW, "The size of sent records; adaptive: small ones first on a fresh or idle connection, then 16 KiB";
    "tls.post_quantum": Kind::Bool, toml("true"), Live, NOW, "Offer the hybrid key exchange X25519MLKEM768";

    "limits": Kind::Section, SECTION_DEFAULTS, Live, NOW, "What bounds the use of the machine";
    "limits.connections": count(1, 10_000_000), toml("100000"), Live, NOW, "Connections at a time, over all workers";
    "limits.connections_per_client": count(1, 10_000_000), toml("1000"), Live, NOW, "Connections at a time from one client address";
    "limits.handshakes_per_client": Kind::Rate, toml("\"100/s\""), Live, NOW, "New handshakes from one client address";
    "limits.handshake_timeout": timeout(hours(1)), toml("\"10s\""), Live, NOW, "From the accepted connection to the end of the handshake";
    "limits.connect_timeout": timeout(hours(1)), toml("\"5s\""), Live, NOW, "For one attempt to connect to a server";
    "limits.idle_timeout": timeout(hours(24 * 30)), toml("\"5m\""), Live, NOW, "Without a byte in either direction, a connection is closed";
    "limits.request_header_timeout": timeout(hours(1)), toml("\"10s\""), Live, PLANNED, "For the header of one HTTP request";
    "limits.drain_timeout": Kind::Duration { min: ms(0), max: hours(24) }, toml("\"30s\""), Live, NOW, "How long open connections may finish after the order to stop";

    "certificate": Kind::Sections, absent("one from the local CA for the hosts of the routes, or for `localhost`"), Live, NOW, "A certificate and its key; several for one name are allowed, of different key types";
    "certificate.cert": Kind::Text("a file's path"), absent("`local` must be set"), Live, NOW, "The PEM file with the chain, the server's own certificate among it";
    "certificate.key": Kind::Text("a file's path"), absent("the key is in the file of `cert`"), Live, NOW, "The PEM file with the private key";
    "certificate.local": Kind::Bool, toml("false"), Live, NOW, "Minted by the local CA in `state_dir`";
    "certificate.names": Kind::List("host names, `*.` wildcards, IP addresses"), absent("the hosts of the routes, or `localhost`"), Live, NOW, "What a local certificate is valid for";
    "certificate.default": Kind::Bool, absent("the first certificate that does not say `false` is the default"), Live, NOW, "Whether clients that name no known server get this certificate; without any default they get the alert `unrecognized_name`";
    "certificate.directory": Kind::Text("a folder's path"), LIST_ABSENT, Live, PLANNED, "Every pair of certificate and key in a folder, watched";
    "certificate.acme": Kind::Text("the name of an [acme.NAME]"), LIST_ABSENT, Live, PLANNED, "Obtained and renewed from this authority";

    "acme": Kind::Named, LIST_ABSENT, Live, PLANNED, "A certificate authority that speaks ACME";
    "acme.*.directory": Kind::Text("a URL"), REQUIRED, Live, PLANNED, "The authority's directory";
    "acme.*.email": Kind::Text("an e-mail address"), LIST_ABSENT, Live, PLANNED, "The contact for the account";
    "acme.*.challenge": Kind::Choice(CHALLENGES), toml("\"tls-alpn-01\""), Live, PLANNED, "How control of a name is proved";
    "acme.*.dns_hook": Kind::Text("a program's path"), LIST_ABSENT, Live, PLANNED, "What the challenge dns-01 runs";

    "listener": Kind::Sections, absent("one named `default` with the defaults of its keys"), Live, NOW, "An address that accepts connections";
    "listener.name": Kind::Text("a name"), toml("\"default\""), Live, NOW, "What routes, events and metrics call it";
    "listener.address": Kind::List("`[::]:443`, `0.0.0.0:443`, `unix:/path`"), toml("\"[::]:443\""), Live, NOW, "Where it listens; `[::]` takes IPv4 as well";
    "listener.mode": Kind::Choice(MODES), toml("\"tcp\""), Live, NOW, "`tcp`: a blind relay of bytes";
    "listener.tls": Kind::Bool, toml("true"), Live, NOW, "`false`: clients speak plain text";
    "listener.accept_proxy": Kind::List("addresses or networks such as `10.0.0.0/8`"), toml("[]"), Live, NOW, "Sources whose PROXY header is required and believed; from all others it is refused";

    "route": Kind::Sections, absent("every connection is refused"), Live, NOW, "Where connections go; the most specific one wins: by listener, then host, then `alpn`";
    "route.listener": Kind::List("listeners' names"), absent("all that the route can apply to"), Live, NOW, "The listeners that it applies to";
    "route.host": Kind::List("`example.org`, `*.example.org`"), absent("any, and none"), Live, NOW, "The server name that the client asks for; `*` stands for one label";
    "route.alpn": Kind::List("protocols such as `h2`"), absent("any, and none"), Live, NOW, "Matches a client that offers one of them; the first of the list that the client offers is agreed on";
    "route.path": Kind::Text("a path"), toml("\"/\""), Live, PLANNED, "The beginning of the path of an HTTP request";
    "route.backend": Kind::Text("the name of a [backend.NAME]"), absent("`server` or `passthrough` must be set"), Live, NOW, "The group of servers that it leads to";
    "route.server": Kind::Text("`unix:/path`, `host:port`"), absent("`backend` or `passthrough` must be set"), Live, NOW, "The one server that it leads to";
    "route.passthrough": Kind::Text("`unix:/path`, `host:port`"), absent("`backend` or `server` must be set"), Live, NOW, "The server that gets the TLS of the client as it came, not terminated";
    "route.redirect": Kind::Choice(&[planned("https")]), LIST_ABSENT, Live, PLANNED, "Sends HTTP requests to https";
    "route.send_proxy": Kind::ChoiceOrTable(PROXY_VERSIONS), absent("no header"), Live, NOW, "The PROXY protocol header that servers get first";
    "route.send_proxy.version": Kind::Choice(PROXY_VERSIONS), REQUIRED, Live, NOW, "The version; `v2` carries TLS details, ALPN, authority and a unique id";
    "route.send_proxy.crc32c": Kind::Bool, toml("false"), Live, NOW, "Add a checksum to the v2 header";
    "route.send_proxy.client_certificate": Kind::Bool, toml("false"), Live, NOW, "Add the client's certificate to the v2 header";
    "route.client_auth": Kind::Section, absent("clients are not asked for a certificate"), Live, NOW, "Mutual TLS";
    "route.client_auth.mode": Kind::Choice(AUTH_MODES), toml("\"required\""), Live, NOW, "Whether a client without a certificate is refused";
    "route.client_auth.ca": Kind::Text("a file's path"), REQUIRED, Live, NOW, "The PEM file with the authorities that clients' certificates are checked against";
    "route.client_auth.allow": Kind::List("`dns:`, `uri:` or `cn:` and a pattern"), absent("every certificate that the authorities vouch for"), Live, NOW, "The names of which a client's certificate must bear one; `*` stands for any text";

    "backend": Kind::Named, LIST_ABSENT, Live, NOW, "A group of servers that do the same";
    "backend.*.servers": Kind::List("`unix:/path` or `host:port`, then ` weight=N` or ` backup`"), REQUIRED, Live, NOW, "The servers; `weight` (1 to 256, default 1) is the share, a `backup` is used when no other can be connected";
    "backend.*.balance": Kind::Choice(BALANCES), toml("\"round_robin\""), Live, NOW, "How a server is chosen";
    "backend.*.health": Kind::Section, absent("no checks"), Live, PLANNED, "Checks whether servers are alive";
    "backend.*.health.path": Kind::Text("a path"), absent("a TCP connect"), Live, PLANNED, "The path of an HTTP check";
    "backend.*.health.interval": timeout(hours(24)), toml("\"5s\""), Live, PLANNED, "Time between checks";
    "backend.*.health.timeout": timeout(hours(1)), toml("\"2s\""), Live, PLANNED, "For one check";
    "backend.*.health.rise": count(1, 100), toml("2"), Live, PLANNED, "Checks passed until a server is up";
    "backend.*.health.fall": count(1, 100), toml("3"), Live, PLANNED, "Checks failed until a server is down";
    "backend.*.tls": Kind::Section, absent("plain text to the servers"), Live, PLANNED, "Speak TLS to the servers";
    "backend.*.tls.verify": Kind::Text("`system` or a CA file"), toml("\"system\""), Live, PLANNED, "What servers' certificates are checked against";
    "backend.*.tls.name": Kind::Text("a host name"), absent("the server's host"), Live, PLANNED, "The name that servers' certificates must bear";
};
