use std::collections::HashSet;

use offramp_config::keys::{Kind, TABLE};
use offramp_config::{Environment, parse};

use super::*;

/// A configuration with every key that names something.
const EVERYTHING: &str = r#"
state_dir = "/n/state"
geoip = "/n/countries.mmdb"
admin = { address = "127.0.0.1:1001", token_file = "/n/token", users = "/n/admin.users", certificate = "/n/admin.pem", key = "/n/admin.key" }
log = { output = "/n/log" }
access_log = { output = "/n/events" }
log_store = { url = "sqlite:/n/store.db", geoip = "/n/cities.mmdb" }
metrics = { address = "127.0.0.1:1002", graphite = "carbon.test:1003" }
tracing = { otlp = "http://127.0.0.1:1004" }
[[notify]]
name = "one"
url = "https://ntfy.test:1015/topic"
token_file = "/n/notify-token"
ca = "/n/notify-ca.pem"
[[notify]]
name = "other"
url_file = "/n/notify-url"
[[notify]]
name = "mail"
mail = { to = "a@b.test", from = "c@b.test", server = "smtps://mail.test:1016", user = "u", password_file = "/n/mail-password" }
[[certificate]]
cert = "/n/cert.pem"
key = "/n/key.pem"
ocsp = "/n/ocsp"
[[certificate]]
directory = "/n/certs"
[[certificate]]
acme = "own"
on_demand = { ask = "http://127.0.0.1:1005/ask" }
[[certificate]]
acme = "other"
names = "a.example.org"
[acme.own]
directory = "https://ca.test:1006/dir"
ca = "/n/acme-ca.pem"
eab = { key_id = "k", key_file = "/n/eab" }
[acme.other]
directory = "https://ca.test/dir"
challenge = "dns-01"
dns_update = { server = "192.0.2.53:1007", zone = "example.org", key_name = "k", key_file = "/n/tsig" }
[[listener]]
name = "web"
address = ["127.0.0.1:443", "127.0.0.1:1008", "unix:/n/listener.sock"]
mode = "http"
allow = "file:/n/listener-allow"
deny = "file:/n/listener-deny"
[[listener]]
name = "bytes"
address = "127.0.0.1:1009"
mode = "tcp"
[[route]]
listener = "web"
host = "a.example.org"
server = "127.0.0.1:1010"
allow = "file:/n/allow"
deny = "file:/n/deny"
redirects = "/n/redirects"
error_pages = { 404 = "/n/404.html" }
basic_auth = "/n/users"
client_auth = { ca = "/n/clients.pem", crl = "/n/clients.crl" }
forward_auth = { server = "127.0.0.1:1011" }
[[route]]
listener = "web"
host = "b.example.org"
backend = "b"
jwt = { jwks = "/n/jwks" }
client_auth = { trust_domains = { "d.test" = "/n/domain.pem" } }
[[route]]
listener = "web"
host = "keys.example.org"
backend = "b"
jwt = { jwks = "https://idp.example.org:1014/keys", ca = "/n/idp.pem" }
[[route]]
listener = "web"
host = "c.example.org"
root = "/n/root"
[[route]]
listener = "web"
host = "d.example.org"
respond = { file = "/n/body" }
[[route]]
listener = "bytes"
host = "e.example.org"
passthrough = "e.test:1012"
[[route]]
listener = "bytes"
host = "f.example.org"
server = "unix:/n/application.sock"
[backend.b]
servers = ["b.test:1013", "unix:/n/b.sock"]
tls = { name = "b.test", verify = "/n/servers.pem", crl = "/n/servers.crl", cert = "/n/client.pem", key = "/n/client.key" }
"#;

fn everything() -> Vec<Need> {
    needs(&parse(EVERYTHING, "/offramp.toml", &Environment::default()).unwrap().0)
}

/// Keys with a path or an address that the process needs nothing for.
const OTHERS: [(&str, &str); 7] = [
    ("include", "the files of the configuration are known from it as a whole"),
    ("log.syslog", "Unix sockets and UDP are not restricted"),
    ("access_log.syslog", "the same"),
    ("acme.*.dns_hook", "the helper starts it"),
    ("notify.program", "the helper starts it"),
    ("route.basic_auth", "its file is that of route.basic_auth.file"),
    ("route.redirect.to", "where clients are sent"),
];

/// Whether what a key takes names a file, a folder or an address.
fn names_something(kind: Kind) -> bool {
    let what = match kind {
        Kind::Output(_) => return true,
        Kind::Text(what) | Kind::List(what) | Kind::TextOrTable(what) | Kind::Map(what) => what,
        _ => return false,
    };
    let words = [
        "'s path",
        "path of a",
        "paths of",
        "file:",
        "a PEM file",
        "a CA file",
        "FILE",
        "list of files",
        "unix:",
        "host:port",
        "an address to",
        "an address and a port",
        "a URL",
        "127.0.0.1",
    ];
    // Hosts of requests and paths within them.
    words.iter().any(|word| what.contains(word))
        && !what.starts_with("a host name")
        && !what.contains("{host}")
}

#[test]
fn every_key_that_names_a_file_or_an_address_is_known() {
    let known: HashSet<&str> = everything().iter().map(|need| need.key).collect();
    for key in TABLE.iter().filter(|key| names_something(key.kind)) {
        let other = OTHERS.iter().any(|(path, _)| *path == key.path);
        assert!(
            known.contains(key.path) != other,
            "{}: add what it names to `needs`, and to the configuration of this test",
            key.path
        );
    }
    for key in known {
        assert!(TABLE.iter().any(|row| row.path == key), "{key}");
    }
}

#[test]
fn everything_that_is_named_is_needed() {
    let needs = everything();
    let of = |what: What| needs.iter().filter(|need| need.what == what).count();
    for (key, what) in [
        ("state_dir", What::State("/n/state".into())),
        ("log.output", What::Log("/n/log".into())),
        ("access_log.output", What::Log("/n/events".into())),
        ("log_store.url", What::Database("/n/store.db".into())),
        ("listener.address", What::Socket("/n/listener.sock".into())),
        ("certificate.directory", What::Certificates("/n/certs".into())),
        ("route.root", What::ReadAll("/n/root".into())),
        ("route.jwt.jwks", What::Read("/n/jwks".into())),
    ] {
        assert!(needs.iter().any(|need| need.key == key && need.what == what), "{key}");
    }
    let named = EVERYTHING.split(['"', ' ']).filter_map(|word| {
        let path = word.trim_start_matches("file:").trim_start_matches("sqlite:").trim_start_matches("unix:");
        path.starts_with("/n/").then_some(path)
    });
    let servers = ["/n/application.sock", "/n/b.sock"];
    for path in named.filter(|path| !servers.contains(path)) {
        let is_it = |need: &Need| match &need.what {
            What::Listen(_) | What::Connect(_) => false,
            What::Read(own)
            | What::ReadAll(own)
            | What::Certificates(own)
            | What::Log(own)
            | What::Database(own)
            | What::State(own)
            | What::Socket(own) => own.as_os_str() == path,
        };
        assert_eq!(needs.iter().filter(|need| is_it(need)).count(), 1, "{path}");
    }
    for port in [443, 1001, 1002, 1008, 1009] {
        assert_eq!(of(What::Listen(port)), 1, "{port}");
    }
    for port in [1015, 1016, 1003, 1004, 1005, 1006, 1007, 1010, 1011, 1012, 1013, 1014] {
        assert_eq!(of(What::Connect(port)), 1, "{port}");
    }
    assert_eq!(of(What::Connect(443)), 1, "of an authority");
}

#[test]
fn a_need_says_where_it_is_written() {
    let needs = everything();
    for need in needs.iter().filter(|need| !matches!(need.what, What::State(_))) {
        assert!(need.at.place().is_some(), "{}", need.key);
    }
}
