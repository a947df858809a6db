//! The language by example.

use std::path::{Path, PathBuf};

use offramp_config::model::{
    AccessOutput, Balance, Bounded, CertificateSource, DefaultRole, HashKey, ListenAddress, Listeners,
    LogOutput, Mode, Passthrough, Policy, PrefixRewrite, Probe, ProgramLogFormat, ProxyProtocolHeader,
    ProxyV2, RecordSizePolicy, RedirectPart, RedirectResponse, RedirectTo, RelayTarget, RouteTarget,
    ServerAddress, Verify, Workers,
};
use offramp_config::{Config, Environment, Per, load, parse, print};

use crate::blessed::read;

fn config(text: &str) -> Config {
    match parse(text, "/etc/offramp/offramp.toml", &Environment::default()) {
        Ok((config, _)) => config,
        Err(errors) => panic!("{errors}"),
    }
}

/// Everything that this version supports.
pub(crate) const FULL: &str = r#"
workers = 4
user = "www-data"
state_dir = "/srv/offramp"

[log]
level = "debug"
format = "json"
output = "./offramp.log"

[access_log]
format = "text"
output = "none"

[metrics]
address = "127.0.0.1:9902"
graphite = "carbon.home.arpa:2003"
graphite_prefix = "home.offramp"

[tls]
policy = "modern"
tickets = 0
ticket_rotation = "1h"
record_size = "4KiB"
post_quantum = false

[limits]
connections = 10
connections_per_client = 5
handshakes_per_client = "30/m"
handshake_timeout = "250ms"
connect_timeout = "1s"
idle_timeout = "1d"
drain_timeout = "0s"

[[certificate]]
cert = "example.org.pem"
key = "/etc/keys/example.org.key"

[[certificate]]
local = true
names = ["localhost", "*.Home.arpa", "127.0.0.1", "::1"]
default = true

[[listener]]
name = "web"
address = ["[::]:443", "unix:tls.sock"]
accept_proxy = ["10.0.0.0/8", "192.168.1.1"]

[[listener]]
name = "plain"
address = "0.0.0.0:80"
tls = false

[[route]]
listener = ["web"]
host = ["Example.ORG", "*.example.org"]
alpn = ["h2", "http/1.1"]
backend = "app"
send_proxy = { version = "v2", crc32c = true, client_certificate = true }
client_auth = { mode = "optional", ca = "clients.pem", allow = ["dns:*.svc.example.org", "cn:backup"] }

[[route]]
server = "unix:/run/app.sock"
send_proxy = "v1"

[[route]]
host = "legacy.example.org"
passthrough = "legacy.internal:443"

[backend.app]
servers = ["unix:app.sock", "10.0.0.7:3000 weight=2", "[::1]:3000 backup"]
balance = "round_robin"
"#;

#[test]
fn plain_values_are_what_they_say() {
    let config = config(FULL);
    assert_eq!(config.process.workers, Workers::Count(4.try_into().unwrap()));
    assert_eq!(config.process.user.unwrap().name, "www-data");
    assert_eq!(config.process.state_dir, Path::new("/srv/offramp"));
    assert_eq!(config.telemetry.log.format, ProgramLogFormat::Json);
    let LogOutput::File(file) = config.telemetry.log.output else { panic!() };
    assert_eq!(file.path, Path::new("/etc/offramp/./offramp.log"));
    assert_eq!(file.at.to_string(), "/etc/offramp/offramp.toml:9:10");
    assert_eq!(config.telemetry.access_log.output, AccessOutput::None);
    assert_eq!(config.telemetry.metrics.endpoint.unwrap().address.to_string(), "127.0.0.1:9902");
    assert_eq!(config.tls.policy, Policy::Modern);
    assert_eq!(config.tls.record_size, RecordSizePolicy::Fixed(Bounded::literal::<4096>()));
    assert!(!config.tls.post_quantum);
    assert_eq!(config.limits.handshakes_per_client.unwrap().per, Per::Minute);
    assert_eq!(config.limits.handshake_timeout.as_millis(), 250);
}

#[test]
fn sections_are_what_they_say() {
    let config = config(FULL);
    let web = config.listener(&"web".parse().unwrap()).unwrap();
    assert_eq!(web.addresses[1], ListenAddress::Unix(PathBuf::from("/etc/offramp/tls.sock")));
    assert!(web.accept_proxy[0].contains("10.9.9.9".parse().unwrap()));
    assert_eq!(web.at.place().unwrap().line, 45);
    let route = &config.routes[0];
    assert_eq!(route.listeners, Listeners::Named(vec!["web".parse().unwrap()]));
    assert_eq!(route.hosts[0].to_string(), "example.org");
    let RouteTarget::Relay(relay) = &route.target else { panic!() };
    assert_eq!(relay.to, RelayTarget::Backend("app".parse().unwrap()));
    assert_eq!(
        relay.send_proxy,
        Some(ProxyProtocolHeader::V2(ProxyV2 { tls: true, crc32c: true, client_certificate: true }))
    );
    let auth = route.client_auth.as_ref().unwrap();
    assert_eq!(auth.ca[0].path, Path::new("/etc/offramp/clients.pem"));
    assert_eq!(auth.allow.len(), 2);
    assert!(matches!(
        &config.routes[2].target,
        RouteTarget::Passthrough(Passthrough { server: ServerAddress::Name { port: 443, .. }, .. })
    ));
    let app = config.backend(&"app".parse().unwrap()).unwrap();
    assert_eq!(app.servers[0].address, ServerAddress::Unix(PathBuf::from("/etc/offramp/app.sock")));
    assert_eq!(app.servers[1].weight.get(), 2);
    assert!(app.servers[2].backup);
    assert_eq!(config.default_certificate().unwrap().default, DefaultRole::Always);
    let CertificateSource::Files { cert, key, .. } = &config.certificates[0].source else { panic!() };
    assert_eq!(cert.path, Path::new("/etc/offramp/example.org.pem"));
    assert_eq!(key.as_ref().unwrap().at.place().unwrap().line, 38);
}

#[test]
fn the_printed_configuration_reads_back_the_same() {
    let config = config(FULL);
    let printed = print(&config);
    let (again, warnings) = parse(&printed, "elsewhere/x.toml", &Environment::default()).unwrap();
    assert_eq!(again, config, "{printed}");
    let told: Vec<&str> = warnings.iter().map(offramp_config::Problem::message).collect();
    let [told] = told[..] else { panic!("{told:?}") };
    assert!(told.starts_with("the listener `plain` serves this route in clear text: "), "{told}");
    assert_eq!(print(&again), printed);
}

/// Everything that this version supports of HTTP, and of what is told to others.
pub(crate) const HTTP: &str = r#"
[admin]
address = "unix:admin.sock"

[log]
output = "journald"

[access_log]
format = "vhost"
output = "./access.log"
rotate_size = "10MiB"
rotate_keep = 3
omit = ["referer"]
hash = ["path", "user_agent"]
anonymize = "ip"

[log_store]
url = "sqlite:access.db"
retention = "30d"
spool = "1MiB"
full_text = true
geoip = "/usr/share/GeoIP/city.mmdb"

[tracing]
otlp = "http://localhost"
sample_one_in = 10

[limits]
min_body_rate = "0B"
requests_per_client = "50/s"

[[listener]]
name = "web"
mode = "http"
trusted_proxies = ["10.0.0.0/8"]
via = true

[[listener]]
name = "plain"
address = "[::]:80"
mode = "http"
tls = false

[[route]]
listener = "plain"
redirect = "https"

[[route]]
host = "example.org"
path = "/api/"
backend = "api"
strip_path = true
request_headers = { set = { Host = "api.internal" }, add = { X-Seen = ["a", "b"], X-By = "offramp" }, remove = "Cookie" }
response_headers = { remove = ["Server", "X-Powered-By"] }
hsts = { max_age = "730d", include_subdomains = true, preload = true }
max_body = "10MiB"
bandwidth = "20MiB"
log_one_in = 100

[[route]]
host = "example.org"
path = "/old"
redirect = { to = "https://{host}/new?{query}", status = 301 }

[[route]]
host = "example.org"
path = "/robots.txt"
respond = { body = "User-agent: *\nDisallow: /\n" }

[[route]]
host = "example.org"
path = "/app"
replace_path = "/v2"
normalize_path = true
encoded_slashes = "pass"
server = "127.0.0.1:8080"
hsts = true

[backend.api]
servers = ["10.0.0.7:50051", "10.0.0.8:50051"]
balance = "hash:header:X-User"
protocol = "h2"
max_connections = 100
queue = 10
connect_timeout = "250ms"
sticky_cookie = "server"
tls = { verify = "ca.pem", name = "api.internal", sni = "front.internal", cert = "own.pem", key = "own.key" }
health = { path = "/healthz?full=1", host = "api.internal:80", status = [204, "2xx"], interval = "1s" }
eject = { failures = 3 }
"#;

#[test]
fn http_is_what_it_says() {
    let config = config(HTTP);
    assert_eq!(config.admin.endpoint.as_ref().unwrap().address.to_string(), "unix:/etc/offramp/admin.sock");
    assert_eq!(config.telemetry.log.output, LogOutput::Journald);
    assert_eq!(config.telemetry.access_log.rotate_size.unwrap().bytes(), 10 << 20);
    assert_eq!(config.telemetry.log_store.url.as_ref().unwrap().to_string(), "sqlite:/etc/offramp/access.db");
    assert_eq!(config.telemetry.tracing.otlp.as_ref().unwrap().to_string(), "http://localhost:4318");
    assert_eq!(config.limits.http.min_body_rate.bytes(), 0);
    let web = &config.listeners[0];
    assert!(web.mode == Mode::Http && web.via && web.trusted_proxies.len() == 1);
    assert!(matches!(
        &config.routes[0].target,
        RouteTarget::Redirect(RedirectResponse { to: RedirectTo::Https, status: 308 })
    ));
    let api = &config.routes[1];
    assert_eq!((api.path.as_str(), api.log_one_in.get()), ("/api", 100));
    assert_eq!(
        (api.bandwidth, config.routes[0].bandwidth),
        (Some(offramp_config::model::Size::new(20 << 20)), None)
    );
    assert_eq!(api.http.rewrite, PrefixRewrite::Strip);
    let added: Vec<String> =
        api.http.request_headers.add.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(added, ["x-by: offramp", "x-seen: a", "x-seen: b"]);
    assert!(api.http.hsts.as_ref().unwrap().preload);
    let RouteTarget::Redirect(RedirectResponse { to: RedirectTo::Url(parts), status: 301 }) =
        &config.routes[2].target
    else {
        panic!()
    };
    let text = |text: &str| RedirectPart::Text(text.to_owned());
    assert_eq!(parts[..], [text("https://"), RedirectPart::Host, text("/new?"), RedirectPart::Query]);
    let RouteTarget::Respond(respond) = &config.routes[3].target else { panic!() };
    assert_eq!((respond.status, respond.body.len(), &respond.content_type), (200, 26, &None));
    let backend = &config.backends[0];
    assert_eq!(backend.balance, Balance::Hash(HashKey::Header("x-user".parse().unwrap())));
    assert_eq!(backend.pool.max_connections, Some(100));
    assert_eq!(backend.pool.connect_timeout, Some(std::time::Duration::from_millis(250)));
    let tls = backend.tls.as_ref().unwrap();
    let Verify::File(ca) = &tls.verify else { panic!() };
    assert_eq!(ca.path, PathBuf::from("/etc/offramp/ca.pem"));
    assert_eq!(tls.name.as_ref().unwrap().to_string(), "api.internal");
    assert_eq!(
        tls.certificate.as_ref().unwrap().key.as_ref().unwrap().path,
        PathBuf::from("/etc/offramp/own.key")
    );
    let Probe::Http(probe) = &backend.health.as_ref().unwrap().probe else { panic!() };
    assert_eq!((probe.status[0].first(), probe.status[1].last()), (204, 299));
    assert_eq!(backend.eject.as_ref().unwrap().duration.as_secs(), 10);
    let ranked = config.ranked_routes(web);
    let paths: Vec<&str> = ranked.iter().map(|(_, route)| route.path.as_str()).collect();
    assert_eq!(paths, ["/robots.txt", "/api", "/old", "/app"]);
    let printed = print(&config);
    let (again, warnings) = parse(&printed, "elsewhere/x.toml", &Environment::default()).unwrap();
    assert_eq!((again, warnings), (config, vec![]), "{printed}");
}

#[test]
fn the_smallest_useful_file_has_three_lines() {
    let text = "[[route]]\nhost = \"example.org\"\nserver = \"unix:/run/app.sock\"\n";
    let config = config(text);
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.listeners[0].addresses[0].to_string(), "[::]:443");
    let CertificateSource::Local { names } = &config.certificates[0].source else { panic!() };
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["example.org"]);
}

#[test]
fn a_local_certificate_without_names_takes_those_of_the_routes() {
    let config = config(
        "[[certificate]]\nlocal = true\n[[route]]\nhost = [\"b\", \"a\"]\nserver = \"x:1\"\n\
         [[route]]\nhost = \"c\"\npassthrough = \"x:1\"",
    );
    let CertificateSource::Local { names } = &config.certificates[0].source else { panic!() };
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b", "a"]);
}

#[test]
fn the_environment_decides_what_absence_means() {
    let state = |environment: &Environment| {
        let (config, _) = parse("", "offramp.toml", environment).unwrap();
        (config.process.state_dir.display().to_string(), config.process.user.map(|user| user.name))
    };
    let home = Some(PathBuf::from("/home/a"));
    let mut environment = Environment { is_root: true, xdg_state_home: None, home };
    assert_eq!(state(&environment), ("/var/lib/offramp".to_owned(), Some("offramp".to_owned())));
    environment.is_root = false;
    assert_eq!(state(&environment), ("/home/a/.local/state/offramp".to_owned(), None));
    environment.xdg_state_home = Some(PathBuf::from("relative"));
    assert_eq!(state(&environment).0, "/home/a/.local/state/offramp");
    environment.xdg_state_home = Some(PathBuf::from("/state"));
    assert_eq!(state(&environment).0, "/state/offramp");
    assert_eq!(state(&Environment::default()).0, "/var/lib/offramp");
}

#[test]
fn the_whole_language_is_supported() {
    let text = read("tests/data/reference.toml");
    if let Err(errors) = parse(&text, "reference.toml", &Environment::default()) {
        panic!("{errors}");
    }
}

#[test]
fn files_are_read_with_their_folder() {
    let folder = std::env::temp_dir().join(format!("offramp-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("offramp.toml");
    std::fs::write(&path, "[[route]]\nserver = \"unix:app.sock\"\n").unwrap();
    let (config, _) = load(&path, &Environment::default()).unwrap();
    let RouteTarget::Relay(relay) = &config.routes[0].target else { panic!() };
    assert_eq!(relay.to, RelayTarget::Server(ServerAddress::Unix(folder.join("app.sock"))));

    std::fs::write(&path, b"workers = 1\n# \xff\n").unwrap();
    assert!(load(&path, &Environment::default()).unwrap_err().to_string().contains("line 2: not UTF-8"));
    let absent = load(&folder.join("absent.toml"), &Environment::default()).unwrap_err();
    assert!(absent.to_string().starts_with("error: cannot read"), "{absent}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn paths_of_standard_streams_are_those_streams() {
    for (path, log, access) in [
        ("/dev/stdout", LogOutput::Stdout, AccessOutput::Stdout),
        ("/dev/stderr", LogOutput::Stderr, AccessOutput::Stderr),
        ("/dev/fd/1", LogOutput::Stdout, AccessOutput::Stdout),
        ("/proc/self/fd/2", LogOutput::Stderr, AccessOutput::Stderr),
    ] {
        let read = config(&format!("[log]\noutput = \"{path}\"\n[access_log]\noutput = \"{path}\"\n"));
        assert_eq!((read.telemetry.log.output, read.telemetry.access_log.output), (log, access), "{path}");
    }
    let read = config("[access_log]\noutput = \"/dev/fd/3\"\n");
    assert!(matches!(read.telemetry.access_log.output, AccessOutput::File(_)));
    // A stream is never renamed.
    let text = "[access_log]\noutput = \"/dev/stdout\"\nrotate_size = \"1MiB\"\n";
    let errors = parse(text, "offramp.toml", &Environment::default()).unwrap_err();
    assert!(errors.to_string().contains("a file as `output`"), "{errors}");
}
