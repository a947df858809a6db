//! `X-Forwarded-*`, `Forwarded`, `X-Request-Id`, `Via`, and a PROXY header instead; what a client says of
//! itself is believed only where it is trusted. Fields of one connection stay on it.

use std::io::{Read as _, Write as _};

use offramp_testkit::server::{Listen, Server};

use crate::support::h2_client::kind::HEADERS;
use crate::support::h2_client::{END_HEADERS, END_STREAM, H2, data, headers};
use crate::support::http_app::{Seen, named};
use crate::support::http_curl::{HTTP, PLAIN, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, text};
use crate::support::pebble::logged;

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

fn served(listener: &str, route: &str) -> (Server, Seen, Instance) {
    let home = Home::new();
    let (app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let text = format!(
        "{CERTIFICATE}{PLAIN}{listener}{HTTP}{listener}[[route]]\nserver = \"unix:app.sock\"\n{route}"
    );
    (app, seen, home.run(&text))
}

#[test]
fn what_strangers_claim_is_replaced() {
    let (_app, seen, instance) = served("", "");
    for version in ["--http1.0", "--http1.1", "--http2"] {
        for claims in [&[][..], &CLAIMS] {
            get(&instance, &[&[version][..], claims].concat(), "https://a.example.org/x");
            let request = seen.one();
            let port = instance.address().port().to_string();
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
            instance.event("the request of this id", |event| text(event, "id") == id);
        }
    }
    get(&instance, &[], "http://localhost/");
    let request = seen.one();
    assert_eq!(
        (request.field("x-forwarded-proto"), request.field("forwarded")),
        ("http", "for=127.0.0.1;proto=http;host=localhost")
    );
    instance.stop();
}

#[test]
fn what_trusted_proxies_say_is_extended() {
    let (_app, seen, instance) = served("trusted_proxies = [\"127.0.0.0/8\"]\nvia = true\n", "");
    for (version, spoken) in [("--http1.0", "1.0"), ("--http1.1", "1.1"), ("--http2", "2.0")] {
        let more = [&[version][..], &CLAIMS, &["--header", "Via: 1.1 outer"]].concat();
        let answer = get(&instance, &more, "https://a.example.org/x");
        assert_eq!(answer.field("via"), "1.1 offramp", "{answer:?}");
        let request = seen.one();
        for (name, value) in [
            ("x-forwarded-for", "203.0.113.9, 198.51.100.7, 127.0.0.1"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "evil.test"),
            ("x-forwarded-port", "7"),
            // It names another client than X-Forwarded-For does, which decides.
            ("forwarded", "for=198.51.100.7, for=127.0.0.1;proto=https;host=a.example.org"),
            ("x-request-id", "given-1"),
            ("via", &format!("1.1 outer, {spoken} offramp")),
        ] {
            assert_eq!(request.field(name), value, "{version} {name}");
        }
        // What names another client than X-Forwarded-For is the client's own word, and so is what no proxy writes.
        let forged = ["Forwarded: for=6.6.6.6", "X-Forwarded-For: 198.51.100.7", "X_Forwarded_For: 6.6.6.6"];
        let vendors =
            ["CF-Connecting-IP: 198.51.100.7", "X-Real-IP: 198.51.100.7", "CF_Connecting_IP: 6.6.6.6"];
        let forged: Vec<&str> = forged.iter().chain(&vendors).flat_map(|line| ["--header", line]).collect();
        get(&instance, &[&[version][..], &forged].concat(), "https://a.example.org/x");
        let request = seen.one();
        assert!(!format!("{request:?}").contains("6.6.6.6"), "{version} {request:?}");
        assert!(request.field("forwarded").starts_with("for=198.51.100.7, "), "{request:?}");
        for vendor in ["cf-connecting-ip", "x-real-ip"] {
            assert_eq!(request.field(vendor), "198.51.100.7", "{version} {request:?}");
        }
        // An id that could break a log or a header is none.
        get(&instance, &[version, "--header", "X-Request-Id: a b\"c"], "https://a.example.org/x");
        assert!(seen.one().field("x-request-id").len() > 30);
    }
    let events = instance.stop();
    assert!(events.iter().any(|event| text(event, "id") == "given-1"), "{events:?}");
}

/// Names that many servers read as the real ones, and trailers, which some put beside the head.
#[test]
fn strangers_claim_nothing_by_other_names_or_later() {
    let backend = crate::support::smuggling_backend::Backend::start();
    let (instance, config) = crate::h2_follows_rfc9113::http_instance(&backend, "workers = 1");
    let claims = [
        "x-forwarded-for",
        "x_forwarded_for",
        "X_Forwarded-Proto",
        "forwarded",
        "x-request-id",
        "X-Real-IP",
        "x-forwarded-user",
        "CF-Connecting-IP",
        "CF_Connecting_IP",
        "True-Client-IP",
        "X-Client-IP",
        "X-Cluster-Client-IP",
        "X_Cluster_Client_IP",
        "Fastly-Client-IP",
        "Fly-Client-IP",
        "Client-IP",
        "X-Original-Forwarded-For",
    ];
    let lines: String = claims.iter().map(|name| format!("{name}: 6.6.6.6\r\n")).collect();
    let mut tls = crate::support::crowd::connect(&config, instance.address(), "localhost").unwrap();
    let announced = claims.join(", ");
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\n{lines}Trailer: {announced}, x-sum\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\n{lines}x-sum: 1\r\n\r\n"
    );
    tls.write_all(request.as_bytes()).unwrap();
    let mut start = [0; 12];
    tls.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    let lower: Vec<_> = claims.iter().map(|name| (name.to_ascii_lowercase(), "6.6.6.6")).collect();
    let fields: Vec<_> = lower.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let trailers = [&fields[..], &[("x-sum", "1")]].concat();
    let head =
        crate::support::h2_client::request("POST", "/", &[&fields[..], &[("trailer", &announced)]].concat());
    let mut h2 = H2::open(&config, instance.address(), &[]);
    h2.send(
        &[headers(1, END_HEADERS, &head), data(1, 0, b"ok"), headers(1, END_HEADERS | END_STREAM, &trailers)]
            .concat(),
    );
    assert_eq!(h2.find("answer", |frame| frame.kind == HEADERS).status(), 200);
    let (raw, whole) = backend.take();
    assert_eq!(whole.len(), 2);
    assert!(!raw.windows(7).any(|bytes| bytes == b"6.6.6.6"), "{}", raw.escape_ascii());
    assert!(whole[0].body.ends_with(b"x-sum: 1\r\n\r\n"), "{}", raw.escape_ascii());
    instance.stop();
}

#[test]
fn who_trusted_proxies_name_is_the_client() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let (_other, others) = named(&Listen::Unix(home.file("other.sock")), "other");
    let instance = home.run(&format!(
        "{CERTIFICATE}[limits]\nrequests_per_client = \"2/h\"\n{HTTP}trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]\n\
         [[route]]\nbackend = \"app\"\n[backend.app]\nservers = [\"unix:app.sock\", \"unix:other.sock\"]\nbalance = \"hash:client\"\n"
    ));
    let ask = |claim: &str, version: &str| {
        get(&instance, &[version, "--header", claim], "https://localhost/").status()
    };
    // Each client has its own two requests, however it is named, and not its proxy.
    for (claim, version, client) in [
        ("X-Forwarded-For: 6.6.6.6, 203.0.113.9", "--http1.1", "203.0.113.9"),
        ("Forwarded: for=203.0.113.9;proto=https, for=10.1.1.1", "--http2", "203.0.113.9"),
        ("X-Forwarded-For: 203.0.113.9, 10.0.0.7", "--http1.1", ""),
        ("X-Forwarded-For: 2001:db8::1", "--http2", "2001:db8::1"),
        ("X-Forwarded-For: unknown", "--http1.1", "127.0.0.1"),
    ] {
        assert_eq!(ask(claim, version), if client.is_empty() { 429 } else { 200 }, "{claim}");
        let Some(request) = seen.take().into_iter().chain(others.take()).next() else {
            // The operator wants to know who it was, not which proxy.
            logged(&instance, "a limit refuses clients", "client=203.0.113.9 ");
            continue;
        };
        if client != "127.0.0.1" {
            assert!(request.field("x-forwarded-for").contains(client), "{request:?}");
            assert!(request.field("forwarded").contains(client), "{request:?}");
        }
        let id = request.field("x-request-id");
        let event = instance.event("the request", |event| text(event, "id") == id);
        assert_eq!(text(&event, "client"), client, "{event}");
        let peer = if client == "127.0.0.1" { "" } else { "127.0.0.1" };
        assert_eq!(event["peer"].as_str().unwrap_or_default(), peer, "{event}");
        assert_eq!(event["client_port"].is_null(), client != "127.0.0.1", "{event}");
    }
    // They are spread over servers, and each keeps its own.
    let mut servers = std::collections::HashSet::new();
    for client in 1..=12 {
        let claim = format!("X-Forwarded-For: 198.51.100.{client}");
        assert_eq!((ask(&claim, "--http1.1"), ask(&claim, "--http2")), (200, 200));
        let counts = (seen.take().len(), others.take().len());
        assert!(matches!(counts, (2, 0) | (0, 2)), "{counts:?}");
        servers.insert(counts);
    }
    assert_eq!(servers.len(), 2, "the hash of one address alone");
    instance.stop();
}

/// RFC 9110 §7.6.2.
#[test]
fn what_may_be_forwarded_no_farther_is_answered_here() {
    let (_app, seen, instance) = served("", "");
    for version in ["--http1.1", "--http2"] {
        for (method, status) in [("OPTIONS", 204), ("TRACE", 405)] {
            let with = |value: &str| {
                let field = format!("Max-Forwards: {value}");
                get(&instance, &[version, "--request", method, "--header", &field], "https://localhost/")
            };
            let answer = with("0");
            assert_eq!(answer.status(), status);
            assert!(answer.field("allow").contains("OPTIONS"), "{answer:?}");
            assert!(seen.take().is_empty());
            assert_eq!(with("3").status(), 200);
            assert_eq!(seen.one().field("max-forwards"), "2");
        }
        get(&instance, &[version, "--header", "Max-Forwards: 0"], "https://localhost/");
        assert_eq!(seen.one().field("max-forwards"), "0", "GET takes no notice");
    }
    instance.stop();
}

#[test]
fn fields_of_one_connection_stay_on_it() {
    let (_app, seen, instance) = served("", "");
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
    get(&instance, &more, "https://localhost/");
    let request = seen.one();
    for name in ["x-secret", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(request.field(name), "", "{name} in {request:?}");
    }
    assert_eq!(request.field("x-stays"), "1");
    // One field for all cookies, however HTTP/2 splits them (RFC 9113 §8.2.3).
    get(&instance, &["--http2", "--header", "Cookie: a=1; b=2"], "https://localhost/");
    assert_eq!(seen.one().field("cookie"), "a=1; b=2");
    instance.stop();
}

#[test]
fn a_proxy_header_comes_before_requests() {
    let (app, seen, instance) = served("", "send_proxy = \"v1\"\n");
    let port = instance.address().port();
    for version in ["--http1.1", "--http2"] {
        let answer = get(&instance, &[version], "https://localhost/[1-3]");
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
    instance.stop();
}

#[test]
fn a_believed_proxy_header_names_the_client() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let text_ = format!(
        "{CERTIFICATE}{HTTP}accept_proxy = [\"127.0.0.0/8\"]\n[[route]]\nserver = \"unix:app.sock\"\n"
    );
    let instance = home.run(&text_);
    let answer = get(&instance, &["--haproxy-protocol", "--http2"], "https://localhost/");
    assert_eq!(answer.status(), 200);
    assert_eq!(seen.one().field("x-forwarded-for"), "127.0.0.1");
    let event = &instance.stop()[0];
    assert_eq!((text(event, "client"), text(event, "peer")), ("127.0.0.1", "127.0.0.1"), "{event}");
}

/// A connection to a server belongs to the client that its header names, and not to the proxy that brought several.
#[test]
fn a_proxy_header_names_whom_trusted_proxies_name() {
    let (app, seen, instance) = served("trusted_proxies = [\"127.0.0.0/8\"]\n", "send_proxy = \"v1\"\n");
    let config = crate::support::crowd::trusting(&instance.home.ca.certificate());
    let mut tls = crate::support::crowd::connect(&config, instance.address(), "localhost").unwrap();
    let port = instance.address().port();
    let mut ask = |claim: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{claim}\r\n");
        tls.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"app\n") {
            let mut piece = [0; 1024];
            let n = tls.read(&mut piece).unwrap();
            assert!(n > 0, "{}", answer.escape_ascii());
            answer.extend_from_slice(&piece[..n]);
        }
        seen.one().prologue
    };
    let (one, six) = ("X-Forwarded-For: 6.6.6.6, 203.0.113.9\r\n", "Forwarded: for=\"[2001:db8::1]\"\r\n");
    assert_eq!(ask(one), format!("PROXY TCP4 203.0.113.9 127.0.0.1 0 {port}\r\n"));
    assert_eq!(ask(six), format!("PROXY TCP6 2001:db8::1 :: 0 {port}\r\n"));
    // Each has its connection kept, and nobody else's is used.
    assert_eq!((ask(one), ask(six)), (String::new(), String::new()));
    let own = ask("");
    let words: Vec<_> = own.split_whitespace().collect();
    assert!(
        matches!(words[..], ["PROXY", "TCP4", "127.0.0.1", "127.0.0.1", from, _] if from != "0"),
        "{own}"
    );
    assert_eq!(app.accepted(), 3);
    // More clients than are remembered: the oldest has to be named again, and the latest not.
    for client in 0..16 {
        let told = ask(&format!("X-Forwarded-For: 198.51.100.{client}\r\n"));
        assert_eq!(told, format!("PROXY TCP4 198.51.100.{client} 127.0.0.1 0 {port}\r\n"));
    }
    assert_eq!(ask("X-Forwarded-For: 198.51.100.15\r\n"), "");
    assert!(ask(one).starts_with("PROXY TCP4 203.0.113.9 "));
    instance.stop();
}
