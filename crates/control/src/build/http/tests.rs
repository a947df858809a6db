//! Routes of requests in their order, and the handshake that each server name gets.

use offramp_config::model;
use offramp_proxy::{Action, AuthClass, HttpRoute, Rewrite, Target};
use offramp_testkit::ca::Ca;

use crate::build::Built;
use crate::build::tests::build_text;

const ROUTES: &str = r#"
[[listener]]
name = "web"
address = "127.0.0.1:4430"
mode = "http"
trusted_proxies = "10.0.0.0/8"
via = true

[[listener]]
name = "plain"
address = "127.0.0.1:4431"
mode = "http"
tls = false

[[listener]]
name = "db"
address = "127.0.0.1:4432"

[limits]
min_body_rate = "1KiB"
requests_per_client = "50/m"

[[route]]
redirect = "https"

[[route]]
host = ["a.test", "*.b.test"]
server = "127.0.0.1:1"
send_proxy = "v2"

[[route]]
host = "a.test"
path = "/api"
strip_path = true
backend = "api"
request_headers = { set = { X-A = "1" }, add = { X-B = ["2", "3"], X-C = "{client}:{{x}}" }, remove = "Cookie" }
hsts = { max_age = "365d", include_subdomains = true, preload = true }
max_body = "10MiB"
log_one_in = 10

[[route]]
host = "a.test"
path = "/api/v1"
replace_path = "/"
server = "127.0.0.1:3"

[[route]]
listener = "web"
path = "/old"
redirect = { to = "https://c.test{uri}", status = 301 }

[[route]]
listener = "web"
path = "/robots.txt"
respond = { body = "none\n" }

[[route]]
host = "sealed.test"
passthrough = "127.0.0.1:4"

[backend.api]
servers = ["127.0.0.1:5", "app.test:80"]
protocol = "h2"
balance = "hash:header:X-User"
sticky_cookie = "srv"
max_connections = 7
queue = 8
idle_connections = 9
health = { path = "/up", interval = "1s", status = ["2xx", 401] }
eject = { failures = 2, for = "1h" }
"#;

fn built() -> Built {
    build_text(ROUTES, tempfile::tempdir().unwrap().path()).unwrap_or_else(|error| panic!("{error}"))
}

fn found<'b>(built: &'b Built, listener: &str, host: &str, path: &str) -> Option<&'b HttpRoute> {
    let http = built.snapshot.listeners[listener].http.as_ref().unwrap();
    http.routes.find(Some(host), path)
}

fn name(built: &Built, listener: &str, host: &str, path: &str) -> String {
    found(built, listener, host, path).map_or_else(|| "none".to_owned(), |route| route.name.to_string())
}

#[test]
fn the_most_specific_route_of_requests_goes_first() {
    let built = built();
    let web = |host, path| name(&built, "web", host, path);
    // Routes that name the listener go before all others.
    assert_eq!(web("a.test", "/old"), "/old");
    assert_eq!(web("a.test", "/api"), "a.test/api");
    assert_eq!(web("a.test", "/api/v1/x"), "a.test/api/v1");
    assert_eq!(web("a.test", "/apis"), "a.test,*.b.test");
    assert_eq!(web("x.b.test", "/"), "a.test,*.b.test");
    assert_eq!(web("other.test", "/"), "none");
    assert_eq!(name(&built, "plain", "other.test", "/x"), "default");
    assert_eq!(name(&built, "plain", "a.test", "/"), "a.test,*.b.test");
    let db = &built.snapshot.listeners["db"];
    assert!(db.http.is_none());
    let relayed = db.routes.find(Some("a.test"), |_| false).unwrap();
    assert!(matches!(relayed.target, Target::Relay(_)));
    assert!(db.routes.find(None, |_| false).is_none(), "a redirect is not for connections");
}

/// `{client}:{{x}}`, compiled.
const TEMPLATE: &str = "x-c=Template(FieldTemplate([Variable(Client), Text([58, 123, 120, 125])]))";

#[test]
fn what_is_done_with_requests() {
    let built = built();
    let api = found(&built, "web", "a.test", "/api/x").unwrap();
    let Action::Proxy(proxy) = &api.action else { panic!() };
    assert_eq!(proxy.rewrite, Rewrite::Strip(4));
    assert_eq!(api.headers.hsts.as_ref().unwrap(), "max-age=31536000; includeSubDomains; preload");
    assert_eq!((api.plain.max_body, api.log_one_in.get()), (Some(model::Size::new(10 << 20)), 10));
    let added: Vec<String> =
        api.headers.request.add.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    assert_eq!(added, ["x-b=Fixed(\"2\")", "x-b=Fixed(\"3\")", TEMPLATE]);
    assert_eq!((api.headers.request.set.len(), api.headers.request.remove.len()), (1, 1));
    let Action::Proxy(old) = &found(&built, "web", "a.test", "/api/v1").unwrap().action else { panic!() };
    assert_eq!(old.rewrite, Rewrite::Strip(7), "`/` takes the place of the prefix");
    let parts = offramp_proxy::route::TemplateValues { host: "h.test", path: "/p", query: Some("q") };
    for (listener, path, status, to) in
        [("plain", "/p", 308, "https://h.test/p?q"), ("web", "/old", 301, "https://c.test/p?q")]
    {
        let Action::Redirect(redirect) = &found(&built, listener, "h.test", path).unwrap().action else {
            panic!()
        };
        assert_eq!((redirect.status.as_u16(), redirect.to.fill(parts).as_str()), (status, to));
    }
    let Action::Respond(respond) = &found(&built, "web", "h.test", "/robots.txt").unwrap().action else {
        panic!()
    };
    assert_eq!(respond.content_type.as_ref().unwrap(), "text/plain; charset=utf-8");
    assert_eq!((respond.status.as_u16(), &respond.body[..]), (200, &b"none\n"[..]));
}

#[test]
fn listeners_have_their_limits_and_those_they_trust() {
    let built = built();
    let web = built.snapshot.listeners["web"].http.as_ref().unwrap();
    assert!(web.via && web.trusted_proxies[0].contains("10.1.1.1".parse().unwrap()));
    assert_eq!(web.limits.min_body_rate, 1024);
    assert_eq!(web.limits.requests_per_client.unwrap().count, 50);
    assert_eq!((web.limits.request_headers, web.limits.request_header_size), (100, 32 << 10));
}

#[test]
fn backends_have_what_their_sections_say() {
    let built = built();
    let api = &built.snapshot.backends[0];
    assert_eq!(api.protocol, offramp_upstream::ServerProtocol::Http2);
    let by_user = offramp_upstream::HashSource::Header("x-user".parse().unwrap());
    assert_eq!(api.policy, offramp_upstream::BalancePolicy::Hash(by_user));
    assert_eq!((api.limits.max_connections, api.limits.queue, api.limits.idle), (Some(7), 8, 9));
    assert_eq!(&*api.sticky.as_ref().unwrap().cookie, "srv");
    let check = api.check.as_ref().unwrap();
    assert_eq!((check.interval.as_secs(), check.rise, check.fall), (1, 2, 3));
    let offramp_upstream::CheckKind::Http { path, host, status } = &check.kind else { panic!() };
    assert_eq!((&**path, &**host), ("/up", "127.0.0.1:5"));
    assert_eq!(**status, [200..=299, 401..=401]);
    let ejection = api.ejection.unwrap();
    assert_eq!((ejection.failures, ejection.time.as_secs(), ejection.limit.as_secs()), (2, 3600, 3600));
    assert_eq!(api.slow_return.as_secs(), 10);
}

fn handshake<'b>(built: &'b Built, name: Option<&str>) -> &'b Target {
    &built.snapshot.listeners["web"].routes.find(name, |_| false).unwrap().target
}

#[test]
fn every_server_name_gets_a_handshake() {
    let built = built();
    for name in [Some("a.test"), Some("other.test"), None] {
        let Target::Http(http) = handshake(&built, name) else { panic!() };
        assert!(http.tls.is_some() && http.allow.is_none() && http.client_auth == AuthClass::default());
        let offered: Vec<&[u8]> = http.configured.alpn.iter().collect();
        assert_eq!(offered, [&b"h2"[..], b"http/1.1", b"http/1.0"]);
    }
    assert!(matches!(handshake(&built, Some("sealed.test")), Target::Passthrough(_)));
    let plain = built.snapshot.listeners["plain"].routes.find(None, |_| false).unwrap();
    assert!(matches!(&plain.target, Target::Http(http) if http.tls.is_none()));
}

#[test]
fn rules_for_client_certificates_have_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    std::fs::create_dir_all(&one).unwrap();
    std::fs::create_dir_all(&two).unwrap();
    let (one, two) = (Ca::new(&one).unwrap(), Ca::new(&two).unwrap());
    let ca = |ca: &Ca| ca.certificate();
    let class = |auth: &str| {
        let text = format!(
            "[[listener]]\nname = \"web\"\nmode = \"http\"\n\
             [[route]]\nhost = \"a.test\"\nserver = \"127.0.0.1:1\"\nclient_auth = {{ {auth} }}\n\
             [[route]]\nserver = \"127.0.0.1:1\"\n"
        );
        let built = build_text(&text, folder.path()).unwrap_or_else(|error| panic!("{error}"));
        let Target::Http(http) = handshake(&built, Some("a.test")) else { panic!() };
        let of_request = found(&built, "web", "a.test", "/").unwrap().client_auth;
        assert_eq!(http.client_auth, of_request);
        assert!(http.allow.is_some() && of_request != AuthClass::default());
        let Target::Http(other) = handshake(&built, Some("b.test")) else { panic!() };
        assert_eq!(other.client_auth, AuthClass::default());
        of_request
    };
    let rule = class(&format!("ca = {:?}", ca(&one)));
    assert_eq!(
        rule,
        class(&format!("mode = \"required\", ca = {:?}", ca(&one))),
        "the same in every snapshot"
    );
    for other in [
        format!("mode = \"optional\", ca = {:?}", ca(&one)),
        format!("ca = {:?}", ca(&two)),
        format!("ca = {:?}, allow = \"cn:a\"", ca(&one)),
    ] {
        assert_ne!(rule, class(&other), "{other}");
    }
}

#[test]
fn listeners_without_tls_send_what_needs_it_to_tls() {
    let text = r#"
[[listener]]
name = "web"
address = "127.0.0.1:4430"
mode = "http"

[[listener]]
name = "db"
address = "127.0.0.1:4432"

[[listener]]
name = "plain"
address = "127.0.0.1:4431"
mode = "http"
tls = false

[[route]]
host = "sealed.test"
passthrough = "127.0.0.1:1"

[[route]]
host = "*.test"
path = "/in"
server = "127.0.0.1:2"
deny_ja4 = ["t13*"]

[[route]]
listener = "db"
host = "other.test"
passthrough = "127.0.0.1:3"

[[route]]
listener = ["web", "plain"]
path = "/named"
server = "127.0.0.1:4"

[[route]]
server = "127.0.0.1:5"
"#;
    let folder = tempfile::tempdir().unwrap();
    let built = build_text(text, folder.path()).unwrap();
    for (host, path, port) in [
        ("sealed.test", "/", Some(4430)),
        ("sealed.test", "/x", Some(4430)),
        ("a.test", "/in/x", Some(4430)),
        // One that names its listeners goes first, as everywhere.
        ("sealed.test", "/named", None),
        ("a.test", "/", None),
        ("other.test", "/", None),
    ] {
        let action = &found(&built, "plain", host, path).unwrap().action;
        let sent = match action {
            Action::ToTls { port } => *port,
            _ => None,
        };
        assert_eq!(sent, port, "{host}{path}");
        assert!(port.is_some() || matches!(action, Action::Proxy(_)), "{host}{path}");
        assert!(!matches!(found(&built, "web", host, path).unwrap().action, Action::ToTls { .. }));
    }
}
