//! Hosts exact, wildcard and any, the longest path; redirects, fixed responses, rewritten paths, changed
//! headers, HSTS; 421 for a host that belongs to another certificate.

use offramp_testkit::ca::{Key, Leaf};
use offramp_testkit::server::{Listen, Server};

use crate::support::http_app::{Seen, named};
use crate::support::http_curl::{HTTP, PLAIN, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

/// What the tests below ask for; each route leads to the application of its name.
const ROUTES: &str = r#"
[[route]]
server = "unix:any.sock"

[[route]]
host = "*.example.org"
server = "unix:wild.sock"

[[route]]
host = "a.example.org"
server = "unix:exact.sock"
hsts = { max_age = "365d", include_subdomains = true, preload = true }

[[route]]
host = "a.example.org"
path = "/api"
server = "unix:api.sock"
strip_path = true
request_headers = { set = { X-Set = "1" }, add = { X-Add = "2" }, remove = ["X-Remove"] }
response_headers = { set = { X-App = "changed" }, add = { Vary = "X" }, remove = ["Server"] }

[[route]]
host = "a.example.org"
path = "/api/v2"
server = "unix:v2.sock"
replace_path = "/second"

[[route]]
host = "a.example.org"
path = "/old"
redirect = { to = "https://{host}/new{path}?{query}", status = 301 }

[[route]]
host = "a.example.org"
path = "/robots.txt"
respond = { body = "User-agent: *\n" }

[[route]]
host = "a.example.org"
path = "/teapot"
respond = { status = 418, body = "{}", content_type = "application/json" }

[[route]]
listener = "plain"
redirect = "https"
"#;

struct Street {
    apps: Vec<(&'static str, Server, Seen)>,
    instance: Instance,
}

fn street() -> Street {
    let home = Home::new();
    let apps = ["any", "wild", "exact", "api", "v2"].map(|name| {
        let (server, seen) = named(&Listen::Unix(home.file(&format!("{name}.sock"))), name);
        (name, server, seen)
    });
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{PLAIN}{ROUTES}"));
    Street { apps: apps.into(), instance }
}

impl Street {
    fn seen(&self, name: &str) -> &Seen {
        &self.apps.iter().find(|app| app.0 == name).unwrap().2
    }
}

#[test]
fn requests_go_where_host_and_path_say() {
    let street = street();
    for (url, app, target) in [
        ("https://localhost/", "any", "/"),
        ("https://b.example.org/api", "wild", "/api"),
        ("https://A.Example.ORG/", "exact", "/"),
        ("https://a.example.org/apix", "exact", "/apix"),
        ("https://a.example.org/api", "api", "/"),
        ("https://a.example.org/api/", "api", "/"),
        ("https://a.example.org/api/x/y?q=/api", "api", "/x/y?q=/api"),
        ("https://a.example.org/api/v2", "v2", "/second"),
        ("https://a.example.org/api/v2/z?1", "v2", "/second/z?1"),
        ("https://a.example.org/api/v20", "api", "/v20"),
        // Between open routes, no spelling is refused.
        ("https://a.example.org/%61pi", "api", "/"),
        ("https://a.example.org//api", "api", "/"),
        ("https://b.example.org/%61pi", "wild", "/%61pi"),
        ("https://a.example.org:8443/port", "exact", "/port"),
    ] {
        for version in ["--http1.1", "--http2"] {
            let answer = get(&street.instance, &[version, "--path-as-is"], url);
            assert_eq!(answer.text(), format!("{app}\n"), "{url}");
            assert_eq!(street.seen(app).one().target, target, "{url}");
            // A route of this host refuses its path, so that no path may be read as that one.
            let other =
                ["/teapot;a", "//x/teapot", "/api%2fx"].map(|path| format!("https://a.example.org{path}"));
            for url in other {
                assert_eq!(get(&street.instance, &[version, "--path-as-is"], &url).status(), 400, "{url}");
            }
        }
    }
    street.instance.stop();
}

#[test]
fn headers_are_changed_as_the_route_says() {
    let street = street();
    let more = ["--header", "X-Remove: a", "--header", "X-Set: b", "--header", "X-Add: c"];
    for version in ["--http1.1", "--http2"] {
        let answer = get(&street.instance, &[&[version][..], &more].concat(), "https://a.example.org/api/");
        assert_eq!((answer.field("x-app"), answer.field("vary")), ("changed", "X"), "{answer:?}");
        let request = street.seen("api").one();
        assert_eq!((request.field("x-set"), request.field("x-remove")), ("1", ""));
        assert_eq!(request.values("x-add"), ["c", "2"]);
        // The route beside it changes nothing, and says that TLS is here to stay.
        let answer = get(&street.instance, &[&[version][..], &more].concat(), "https://a.example.org/");
        let hsts = "max-age=31536000; includeSubDomains; preload";
        assert_eq!((answer.field("x-app"), answer.field("strict-transport-security")), ("yes", hsts));
        let request = street.seen("exact").one();
        assert_eq!(
            (request.field("x-set"), request.field("x-remove"), request.field("x-add")),
            ("b", "a", "c")
        );
    }
    street.instance.stop();
}

#[test]
fn some_routes_answer_by_themselves() {
    let street = street();
    for version in ["--http1.0", "--http1.1", "--http2"] {
        let answer = get(&street.instance, &[version], "https://a.example.org/robots.txt");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "User-agent: *\n"));
        assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8");
        let answer = get(&street.instance, &[version, "--head"], "https://a.example.org/teapot");
        assert_eq!((answer.status(), answer.body.len()), (418, 0));
        assert_eq!((answer.field("content-type"), answer.field("content-length")), ("application/json", "2"));
        let answer = get(&street.instance, &[version], "https://a.example.org/old/thing?a=1&b=2");
        let to = "https://a.example.org/new/old/thing?a=1&b=2";
        assert_eq!((answer.status(), answer.field("location")), (301, to), "{answer:?}");
    }
    let events = street.instance.stop();
    assert!(events.iter().all(|event| cause(event) == "completed" && event["tries"].is_null()), "{events:?}");
}

#[test]
fn plain_text_is_sent_to_https() {
    let street = street();
    for (version, method) in [("--http1.0", "GET"), ("--http1.1", "POST"), ("--http2-prior-knowledge", "GET")]
    {
        let arguments = [version, "--request", method];
        let answer = get(&street.instance, &arguments, "http://localhost/a%20b?c=d");
        let to = "https://localhost/a%20b?c=d";
        assert_eq!((answer.status(), answer.field("location")), (308, to), "{answer:?}");
        assert_eq!(answer.field("strict-transport-security"), "", "{answer:?}");
    }
    street.instance.stop();
}

#[test]
fn a_host_of_another_certificate_is_misdirected() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    home.ca.issue("other", &Leaf::server(Key::P256, &["other.test"])).unwrap();
    let more = "[[certificate]]\ncert = \"other.chain.pem\"\nkey = \"other.key\"\n";
    let instance = home.run(&format!("{CERTIFICATE}{more}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    for version in ["--http1.1", "--http2"] {
        let ask = |host: &str, url: &str| {
            get(&instance, &[version, "--header", &format!("Host: {host}")], url).status()
        };
        assert_eq!(ask("localhost", "https://localhost/"), 200);
        // Covered by the same certificate: clients may share the connection (RFC 9113 §9.1.1).
        assert_eq!(ask("x.example.org", "https://localhost/"), 200);
        assert_eq!(ask("other.test", "https://other.test/"), 200);
        assert_eq!(ask("other.test", "https://localhost/"), 421);
        assert_eq!(ask("localhost", "https://other.test/"), 421);
    }
    assert_eq!(seen.take().len(), 6);
    let events = instance.stop();
    let misdirected: Vec<_> = events.iter().filter(|event| event["status"] == 421).collect();
    assert_eq!(misdirected.len(), 4);
    assert!(
        misdirected.iter().all(|e| (cause(e), text(e, "fault")) == ("misdirected", "client")),
        "{misdirected:?}"
    );
}

#[test]
fn a_route_with_client_certificates_is_for_connections_that_showed_one() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    home.ca.issue("client", &Leaf::client("somebody", &[])).unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n\
         [[route]]\nhost = \"a.example.org\"\nserver = \"unix:app.sock\"\n\
         client_auth = {{ mode = \"required\", ca = \"ca.pem\" }}\n"
    ));
    let shown = ["--cert", "client.chain.pem", "--key", "client.key"];
    for version in ["--http1.1", "--http2"] {
        let with = [&[version][..], &shown].concat();
        assert_eq!(get(&instance, &with, "https://a.example.org/").status(), 200);
        assert_ne!(curl(&instance, &[version], "https://a.example.org/").code, 0);
        // The same certificate serves both hosts, but nobody was asked who they are.
        let host = ["--header", "Host: a.example.org"];
        let answer = get(&instance, &[&[version][..], &host].concat(), "https://localhost/");
        assert_eq!(answer.status(), 421, "{answer:?}");
    }
    assert_eq!(seen.take().len(), 2);
    let events = instance.stop();
    assert!(events.iter().any(|event| cause(event) == "client_certificate_missing"), "{events:?}");
}

/// Where the TLS of a host leads is not known by the port 0; its requests go nowhere else all the same.
#[test]
fn what_needs_tls_does_not_fall_to_another_route_without_it() {
    let home = Home::new();
    let (_any, seen) = named(&Listen::Unix(home.file("any.sock")), "any");
    let routes = "[[route]]\nserver = \"unix:any.sock\"\n\
                [[route]]\nhost = \"sealed.test\"\npassthrough = \"unix:sealed.sock\"\n\
                [[route]]\nhost = \"b.test\"\nserver = \"unix:any.sock\"\ndeny_ja4 = [\"t00*\"]\n";
    let instance = home.run(&format!("{CERTIFICATE}{HTTP}{PLAIN}{routes}"));
    for (url, status) in [
        ("http://other.test/", 200),
        ("http://sealed.test/x", 421),
        ("http://b.test/", 421),
        ("http://B.test.:80//x/../", 421),
        ("https://b.test/", 200),
    ] {
        let answer = get(&instance, &["--path-as-is", "--insecure"], url);
        assert_eq!(answer.status(), status, "{url}: {answer:?}");
        assert_eq!(seen.take().len(), usize::from(status == 200), "{url}");
    }
    let events = instance.stop();
    let refused: Vec<_> = events.iter().filter(|event| cause(event) == "misdirected").collect();
    assert_eq!(refused.len(), 3);
    assert!(refused.iter().all(|event| text(event, "detail").contains("needs TLS")), "{refused:?}");
}
