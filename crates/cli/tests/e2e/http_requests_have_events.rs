//! One event for each request, with every field; in every format; sampled where a route says so.

use std::fs;

use offramp_testkit::server::{Listen, Server};
use serde_json::Value;

use crate::support::http_app::named;
use crate::support::http_curl::{HTTP, PLAIN, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

fn served(settings: &str, route: &str) -> (Server, Instance) {
    let home = Home::new();
    let (app, _) = named(&Listen::Unix(home.file("app.sock")), "app");
    let instance = home.run(&format!(
        "{settings}{CERTIFICATE}{HTTP}{PLAIN}[[route]]\nhost = \"localhost\"\nbackend = \"app\"\n{route}\
         [backend.app]\nservers = \"unix:app.sock\"\n"
    ));
    (app, instance)
}

const REQUEST: [&str; 8] = [
    "--header",
    "Referer: https://there.test/\"page\"",
    "--user-agent",
    "Cli\u{eb}nt/1.0 (\\)",
    "--data",
    "twelve bytes",
    "--header",
    "X-Request-Id: mine",
];

#[test]
fn an_event_has_every_field() {
    let (_app, instance) = served("", "");
    get(&instance, &[&["--http2"][..], &REQUEST].concat(), "https://LocalHost:443/a%20path/?q=1&r=/x");
    get(&instance, &["--http1.1"], "http://localhost/plain");
    let events = instance.stop();
    let [event, plain] = &events[..] else { panic!("{events:?}") };
    let expected = [
        ("event", "request"),
        ("listener", "default"),
        ("client", "127.0.0.1"),
        ("method", "POST"),
        ("scheme", "https"),
        ("host", "localhost"),
        ("path", "/a%20path/"),
        ("query", "q=1&r=/x"),
        ("protocol", "HTTP/2.0"),
        ("referer", "https://there.test/\"page\""),
        ("user_agent", "Cli\u{eb}nt/1.0 (\\)"),
        ("sni", "localhost"),
        ("alpn", "h2"),
        ("tls_version", "TLSv1.3"),
        ("tls_suite", "TLS_AES_128_GCM_SHA256"),
        ("tls_scheme", "ecdsa_secp256r1_sha256"),
        ("route", "localhost"),
        ("backend", "app"),
        ("cause", "completed"),
        ("fault", "nobody"),
    ];
    for (name, value) in expected {
        assert_eq!(text(event, name), value, "{name} in {event}");
    }
    for (name, value) in [("status", 200), ("tries", 1), ("bytes_from_client", 12), ("bytes_to_client", 4)] {
        assert_eq!(event[name].as_u64(), Some(value), "{name} in {event}");
    }
    assert_eq!(event["resumed"], false);
    assert!(text(event, "server").ends_with("/app.sock"), "{event}");
    let us = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("{name} in {event}"));
    assert!(us("connect_us") <= us("first_byte_us") && us("first_byte_us") <= us("total_us"), "{event}");
    assert!(text(event, "id").starts_with(text(event, "connection")), "{event}");
    for name in ["time", "id", "connection", "tls_group", "ja4", "client_port", "worker"] {
        assert!(!event[name].is_null(), "{name} in {event}");
    }
    // Nothing else, and nothing that is not so.
    let names = |event: &Value| -> Vec<String> { event.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(event).len(), expected.len() + 4 + 2 + 3 + 7, "{:?}", names(event));
    for name in ["sni", "alpn", "tls_version", "ja4", "referer", "query", "trace_id", "resumed"] {
        assert!(plain[name].is_null(), "{name} in {plain}");
    }
    assert_eq!((text(plain, "listener"), text(plain, "protocol")), ("plain", "HTTP/1.1"), "{plain}");
    assert_eq!((text(plain, "scheme"), cause(plain)), ("http", "completed"), "{plain}");
}

#[test]
fn an_access_log_is_written_as_nginx_does() {
    for (format, end) in [("combined", "\"\n"), ("vhost", "\" \"localhost\"\n")] {
        let settings = format!("[access_log]\nformat = \"{format}\"\noutput = \"./access.log\"\n");
        let (_app, instance) = served(&settings, "");
        get(&instance, &[&["--http2"][..], &REQUEST].concat(), "https://localhost/a%20path/?q=1");
        let file = instance.home.file("access.log");
        let line =
            instance.until("a line", || fs::read_to_string(&file).ok().filter(|text| text.ends_with('\n')));
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        let rest = "] \"POST /a%20path/?q=1 HTTP/2.0\" 200 4 \"https://there.test/\\x22page\\x22\" \"Cli\\xC3\\xABnt/1.0 (\\x5C)";
        assert!(line.ends_with(&format!("{rest}{end}")), "{line}");
        instance.stop();
    }
}

#[test]
fn a_route_may_be_sampled_and_failures_are_told_always() {
    let (_app, instance) = served("", "log_one_in = 50\nmax_body = \"3B\"\n");
    for version in ["--http1.1", "--http2"] {
        get(&instance, &[version], "https://localhost/[1-200]");
        for _ in 0..3 {
            assert_eq!(get(&instance, &[version, "--data", "four"], "https://localhost/").status(), 413);
        }
    }
    let events = instance.stop();
    let failures = events.iter().filter(|event| cause(event) == "body_too_large").count();
    let ordinary = events.len() - failures;
    // Of 400 about 8; 40 or more never come.
    assert_eq!(failures, 6);
    assert!(ordinary < 40, "{ordinary}");
}
