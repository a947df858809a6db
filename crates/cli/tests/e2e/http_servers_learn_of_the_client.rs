//! `X-Forwarded-*`, `Forwarded`, `X-Request-Id`, `Via`, and a PROXY header instead; what a client says of
//! itself is believed only where it is trusted. Fields of one connection stay on it.

use offramp_testkit::server::{Listen, Server};

use crate::house::{CERTIFICATE, Home, House, text};
use crate::http_app::{Seen, named};
use crate::http_curl::{HTTP, PLAIN, get};

/// What a client claims of whom it speaks for.
const CLAIMS: [&str; 12] = [
    "--header",
    "X-Forwarded-For: 203.0.113.9, 198.51.100.7",
    "--header",
    "X-Forwarded-Proto: gopher",
    "--header",
    "X-Forwarded-Host: evil.test",
    "--header",
    "X-Forwarded-Port: 7",
    "--header",
    "Forwarded: for=203.0.113.9;proto=gopher",
    "--header",
    "X-Request-Id: given-1",
];

fn served(listener: &str, route: &str) -> (Server, Seen, House) {
    let home = Home::new();
    let (app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let text = format!(
        "{CERTIFICATE}{PLAIN}{listener}{HTTP}{listener}[[route]]\nserver = \"unix:app.sock\"\n{route}"
    );
    (app, seen, home.run(&text))
}

#[test]
fn what_strangers_claim_is_replaced() {
    let (_app, seen, house) = served("", "");
    for version in ["--http1.0", "--http1.1", "--http2"] {
        for claims in [&[][..], &CLAIMS] {
            get(&house, &[&[version][..], claims].concat(), "https://a.example.org/x");
            let request = seen.one();
            let port = house.address().port().to_string();
            for (name, value) in [
                ("x-forwarded-for", "127.0.0.1"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "a.example.org"),
                ("x-forwarded-port", &port),
                ("forwarded", "for=127.0.0.1;proto=https;host=a.example.org"),
                ("host", "a.example.org"),
                ("via", ""),
            ] {
                assert_eq!(request.field(name), value, "{version} {name}");
            }
            let id = request.field("x-request-id");
            assert!(id.len() > 30 && id != "given-1", "{id}");
            house.event("the request of this id", |event| text(event, "id") == id);
        }
    }
    get(&house, &[], "http://localhost/");
    let request = seen.one();
    assert_eq!(
        (request.field("x-forwarded-proto"), request.field("forwarded")),
        ("http", "for=127.0.0.1;proto=http;host=localhost")
    );
    house.stop();
}

#[test]
fn what_trusted_proxies_say_is_extended() {
    let (_app, seen, house) = served("trusted_proxies = [\"127.0.0.0/8\"]\nvia = true\n", "");
    for (version, spoken) in [("--http1.0", "1.0"), ("--http1.1", "1.1"), ("--http2", "2.0")] {
        let more = [&[version][..], &CLAIMS, &["--header", "Via: 1.1 outer"]].concat();
        let answer = get(&house, &more, "https://a.example.org/x");
        assert_eq!(answer.field("via"), "1.1 offramp", "{answer:?}");
        let request = seen.one();
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.9, 198.51.100.7, 127.0.0.1"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "evil.test"),
            ("x-forwarded-port", "7"),
            ("forwarded", "for=203.0.113.9;proto=gopher, for=127.0.0.1;proto=https;host=a.example.org"),
            ("x-request-id", "given-1"),
            ("via", &format!("1.1 outer, {spoken} offramp")),
        ] {
            assert_eq!(request.field(name), value, "{version} {name}");
        }
        // An id that could break a log or a header is none.
        get(&house, &[version, "--header", "X-Request-Id: a b\"c"], "https://a.example.org/x");
        assert!(seen.one().field("x-request-id").len() > 30);
    }
    let events = house.stop();
    assert!(events.iter().any(|event| text(event, "id") == "given-1"), "{events:?}");
}

#[test]
fn fields_of_one_connection_stay_on_it() {
    let (_app, seen, house) = served("", "");
    let more = [
        "--http1.1",
        "--header",
        "Connection: keep-alive, X-Secret, TE",
        "--header",
        "X-Secret: 1",
        "--header",
        "TE: trailers, deflate",
        "--header",
        "Keep-Alive: timeout=5",
        "--header",
        "Proxy-Connection: keep-alive",
        "--header",
        "X-Stays: 1",
        "--header",
        "Upgrade: h2c",
    ];
    get(&house, &more, "https://localhost/");
    let request = seen.one();
    for name in ["x-secret", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(request.field(name), "", "{name} in {request:?}");
    }
    assert_eq!(request.field("x-stays"), "1");
    // One field for all cookies, however HTTP/2 splits them (RFC 9113 §8.2.3).
    get(&house, &["--http2", "--header", "Cookie: a=1; b=2"], "https://localhost/");
    assert_eq!(seen.one().field("cookie"), "a=1; b=2");
    house.stop();
}

#[test]
fn a_proxy_header_comes_before_requests() {
    let (app, seen, house) = served("", "send_proxy = \"v1\"\n");
    let port = house.address().port();
    for version in ["--http1.1", "--http2"] {
        let answer = get(&house, &[version], "https://localhost/[1-3]");
        assert_eq!(answer.code, 0, "{}", answer.said);
        let requests = seen.take();
        assert_eq!(requests.len(), 3);
        // Once for each connection; those of another client never carry a request of this one.
        let words: Vec<_> = requests[0].prologue.split_whitespace().collect();
        let to = port.to_string();
        assert!(
            matches!(&words[..], ["PROXY", "TCP4", "127.0.0.1", "127.0.0.1", _, last] if *last == to),
            "{words:?}"
        );
        assert!(requests[1..].iter().all(|request| request.prologue.is_empty()));
    }
    assert_eq!(app.accepted(), 2);
    house.stop();
}

#[test]
fn a_believed_proxy_header_names_the_client() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let text_ = format!(
        "{CERTIFICATE}{HTTP}accept_proxy = [\"127.0.0.0/8\"]\n[[route]]\nserver = \"unix:app.sock\"\n"
    );
    let house = home.run(&text_);
    let answer = get(&house, &["--haproxy-protocol", "--http2"], "https://localhost/");
    assert_eq!(answer.status(), 200);
    assert_eq!(seen.one().field("x-forwarded-for"), "127.0.0.1");
    let event = &house.stop()[0];
    assert_eq!((text(event, "client"), text(event, "peer")), ("127.0.0.1", "127.0.0.1"), "{event}");
}
