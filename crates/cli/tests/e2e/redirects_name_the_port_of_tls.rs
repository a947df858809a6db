//! Requests without TLS for routes that need it: GET and HEAD are sent to the port that serves TLS, whatever it is, all others
//! are refused. Over HTTP/1.1 and over HTTP/2 without TLS, for names and for addresses.

use offramp_testkit::process::free_port;
use offramp_testkit::server::Listen;

use crate::support::http_app::named;
use crate::support::http_curl::{Answer, PLAIN, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

const ROUTES: &str = r#"
[[route]]
server = "unix:app.sock"

[[route]]
host = ["sealed.test", "*.sealed.test"]
passthrough = "unix:sealed.sock"

[[route]]
host = "b.test"
server = "unix:app.sock"
deny_ja4 = ["t00*"]

[[route]]
host = "part.test"
path = "/secret"
server = "unix:app.sock"
client_auth = { mode = "required", ca = "ca.pem" }
"#;

fn ask(instance: &Instance, version: &str, method: &str, url: &str) -> Answer {
    let method: &[&str] = match method {
        "HEAD" => &["--head"],
        "POST" => &["--data", "x"],
        method => &["--request", method],
    };
    get(instance, &[&[version, "--path-as-is", "--globoff"][..], method].concat(), url)
}

/// Asks for each URL by each method. `moved`: the URL, the host that it leads to, and what is asked for there.
fn are_sent_to_tls(instance: &Instance, version: &str, port: u16, moved: &[(&str, &str, &str)]) {
    for (url, host, target) in moved {
        for method in ["GET", "HEAD"] {
            let answer = ask(instance, version, method, url);
            let to = format!("https://{host}:{port}{target}");
            assert_eq!((answer.status(), answer.field("location")), (308, &*to), "{version} {method} {url}");
        }
        for method in REFUSED {
            let answer = ask(instance, version, method, url);
            assert_eq!(answer.status(), 421, "{version} {method} {url}: {answer:?}");
            assert!(answer.values("location").is_empty(), "{answer:?}");
        }
    }
}

const REFUSED: [&str; 4] = ["POST", "PUT", "DELETE", "OPTIONS"];
const VERSIONS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

fn run(home: Home, port: u16, routes: &str) -> Instance {
    let tls = format!("[[listener]]\nname = \"tls\"\naddress = \"127.0.0.1:{port}\"\nmode = \"http\"\n");
    home.run(&format!("{CERTIFICATE}{tls}{PLAIN}{routes}"))
}

#[test]
fn requests_are_sent_to_the_port_of_tls_or_refused() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let port = free_port();
    let instance = run(home, port, ROUTES);
    let moved = [
        ("http://sealed.test/", "sealed.test", "/"),
        ("http://a.sealed.test:8080/x?y=%2F&z", "a.sealed.test", "/x?y=%2F&z"),
        ("http://B.Test.:80/%41", "b.test", "/%41"),
        ("http://part.test/secret/x", "part.test", "/secret/x"),
        ("http://part.test//secret", "part.test", "//secret"),
        ("http://part.test/%73ecret", "part.test", "/%73ecret"),
        ("http://part.test/a/../secret", "part.test", "/a/../secret"),
    ];
    for version in VERSIONS {
        are_sent_to_tls(&instance, version, port, &moved);
        assert!(seen.take().is_empty(), "{version}");
        for url in ["http://other.test/", "http://part.test/", "http://part.test/secrets", "http://[::2]/"] {
            assert_eq!(ask(&instance, version, "GET", url).status(), 200, "{version} {url}");
        }
        assert_eq!(seen.take().len(), 4, "{version}");
    }
    let events = instance.stop();
    let misdirected: Vec<_> = events.iter().filter(|event| cause(event) == "misdirected").collect();
    assert_eq!(misdirected.len(), VERSIONS.len() * moved.len() * REFUSED.len());
    assert!(misdirected.iter().all(|event| text(event, "detail").contains("needs TLS")), "{misdirected:?}");
}

/// Addresses match routes for any host.
#[test]
fn addresses_keep_their_brackets() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let port = free_port();
    let instance = run(home, port, "[[route]]\nserver = \"unix:app.sock\"\ndeny_ja4 = [\"t00*\"]\n");
    let moved = [
        ("http://[2001:db8::1]/x", "[2001:db8::1]", "/x"),
        ("http://[2001:DB8:0::1]:8080/?q", "[2001:db8::1]", "/?q"),
        ("http://[::1]:80/a%20b", "[::1]", "/a%20b"),
        ("http://192.0.2.1/x", "192.0.2.1", "/x"),
        ("http://192.0.2.1:8080/", "192.0.2.1", "/"),
    ];
    for version in VERSIONS {
        are_sent_to_tls(&instance, version, port, &moved);
    }
    assert!(seen.take().is_empty());
    instance.stop();
}
