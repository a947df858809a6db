//! Every status that Offramp answers with by itself: a short text, or JSON for who asks for it, with the
//! id under which the access log has the cause.

use std::io::{Read as _, Write as _};

use offramp_testkit::process::Source;
use offramp_testkit::server::{Listen, Refusing, Server, faults};
use serde_json::Value;

use crate::support::crowd::{connect, trusting};
use crate::support::http_app::named;
use crate::support::http_curl::{Answer, HTTP, curl, get};
use crate::support::instance::{CERTIFICATE, Home, Instance, cause, text};

/// Every fault that a server can have, at a path of its own.
struct Street {
    instance: Instance,
    _apps: Vec<Server>,
    _refusing: Refusing,
}

fn street() -> Street {
    let home = Home::new();
    let (good, _) = named(&Listen::Unix(home.file("good.sock")), "good");
    let hang = Server::start(&Listen::Ipv4, faults::hang).unwrap();
    let garbage = Server::start(&Listen::Ipv4, faults::close_in_the_middle(b"SSH-2.0-x\r\n\r\n")).unwrap();
    let close = Server::start(&Listen::Ipv4, faults::close_in_the_middle(b"")).unwrap();
    let reset = Server::start(&Listen::Ipv4, faults::reset_in_the_middle(b"")).unwrap();
    let refusing = Refusing::new(&Listen::Ipv4).unwrap();
    let mut text = format!(
        "[limits]\nresponse_timeout = \"3s\"\nrequest_header_timeout = \"3s\"\n\
         request_body_timeout = \"3s\"\nrequest_target_size = \"100B\"\nrequest_headers = 20\n\
         {CERTIFICATE}{HTTP}\
         [[route]]\nhost = \"localhost\"\npath = \"/good\"\nserver = \"unix:good.sock\"\nmax_body = \"1KiB\"\n\
         [[route]]\nhost = \"localhost\"\npath = \"/down\"\nbackend = \"down\"\n\
         [backend.down]\nservers = \"{0}\"\nhealth = {{ interval = \"20ms\", fall = 1 }}\n",
        refusing.address()
    );
    for (path, server) in [
        ("hang", hang.address()),
        ("garbage", garbage.address()),
        ("close", close.address()),
        ("reset", reset.address()),
        ("refused", refusing.address()),
    ] {
        text.push_str(&format!(
            "[[route]]\nhost = \"localhost\"\npath = \"/{path}\"\nserver = \"{server}\"\n"
        ));
    }
    let instance = home.run(&text);
    Street { instance, _apps: vec![good, hang, garbage, close, reset], _refusing: refusing }
}

/// The answer is an error of ours, in both forms alike, whose id leads to an event with this cause.
#[track_caller]
fn error(instance: &Instance, answer: &Answer, status: u16, expected: &str) -> Value {
    assert_eq!(answer.status(), status, "{answer:?}");
    let id = answer.field("x-request-id");
    let body = answer.text();
    if answer.field("content-type") == "application/json" {
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((body["status"].as_u64(), text(&body, "request_id")), (Some(status.into()), id), "{body}");
        assert!(!text(&body, "error").is_empty());
    } else {
        assert_eq!(answer.field("content-type"), "text/plain; charset=utf-8", "{answer:?}");
        let mut lines = body.lines();
        assert!(lines.next().unwrap().starts_with(&format!("{status} ")), "{body}");
        assert_eq!((lines.next(), lines.next()), (Some(format!("request {id}").as_str()), None), "{body}");
    }
    assert!(!body.contains("127.0.0.1") && !body.contains("sock"), "{body}");
    let event = instance.event(&format!("{status} of {id}"), |event| text(event, "id") == id);
    assert_eq!((event["status"].as_u64(), cause(&event)), (Some(status.into()), expected), "{event}");
    event
}

#[test]
fn each_fault_has_its_status_in_text_and_json() {
    let street = street();
    let instance = &street.instance;
    instance.until("the server that is down is known to be", || {
        (curl(instance, &[], "https://localhost/down").status() == 503).then_some(())
    });
    let long = format!("https://localhost/good/{}", "x".repeat(100));
    let fields: Vec<String> = (0..30).map(|number| format!("X-{number}: y")).collect();
    let fields: Vec<&str> = fields.iter().flat_map(|field| ["--header", field]).collect();
    let large = ["--data-binary", &"x".repeat(2000)];
    let cases: [(&str, &[&str], u16, &str); 12] = [
        ("https://localhost/nowhere", &[], 404, "no_route"),
        ("https://a.example.org/", &[], 404, "no_route"),
        ("https://localhost/good", &large, 413, "body_too_large"),
        (&long, &[], 414, "target_too_long"),
        ("https://localhost/good", &["--header", "Host: elsewhere.test"], 404, "no_route"),
        ("https://localhost/good", &fields, 431, "headers_too_large"),
        ("https://localhost/refused", &[], 502, "server_refused"),
        ("https://localhost/garbage", &[], 502, "bad_response"),
        ("https://localhost/close", &[], 502, "server_aborted"),
        ("https://localhost/reset", &[], 502, "server_aborted"),
        ("https://localhost/hang", &[], 504, "server_response_timeout"),
        ("https://localhost/down", &[], 503, "no_server_alive"),
    ];
    for (url, more, status, expected) in cases {
        for version in ["--http1.1", "--http2"] {
            for accept in ["*/*", "application/json"] {
                let accept = format!("Accept: {accept}");
                let arguments = [&[version, "--header", &accept], more].concat();
                let answer = get(instance, &arguments, url);
                let json = answer.field("content-type") == "application/json";
                // What the guard before HTTP/1 refuses it has not read to the end: it answers in text.
                let unread = version == "--http1.1" && [414, 431].contains(&status);
                assert_eq!(json, accept.ends_with("json") && !unread, "{url} {version} {answer:?}");
                error(instance, &answer, status, expected);
            }
        }
    }
    for event in street.instance.stop() {
        let server = event["status"].as_u64().is_some_and(|status| status >= 500);
        assert_eq!(text(&event, "fault") == "server", server, "{event}");
    }
}

#[test]
fn browsers_get_a_page_and_programs_a_problem() {
    let street = street();
    let instance = &street.instance;
    let browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    for version in ["--http1.1", "--http2"] {
        for (url, status) in [("https://localhost/nowhere", 404), ("https://localhost/refused", 502)] {
            let page = get(instance, &[version, "--header", browser], url);
            assert_eq!((page.status(), page.field("content-type")), (status, "text/html; charset=utf-8"));
            let id = page.field("x-request-id");
            assert!(page.text().contains(&format!("<h1>{status}</h1>")), "{page:?}");
            assert!(page.text().contains(&format!("<code>{id}</code>")), "{page:?}");
            assert!(!page.text().contains("127.0.0.1"), "{page:?}");
            let head = get(instance, &[version, "--head", "--header", browser], url);
            assert_eq!((head.status(), head.text()), (status, String::new()));
            assert_eq!(head.field("content-type"), "text/html; charset=utf-8");
            assert_eq!(head.field("content-length"), page.field("content-length"));

            let problem = get(instance, &[version, "--header", "Accept: application/problem+json"], url);
            assert_eq!(problem.field("content-type"), "application/problem+json");
            let body: Value = serde_json::from_str(&problem.text()).unwrap();
            assert_eq!(body["status"].as_u64(), Some(status.into()), "{body}");
            assert_eq!(text(&body, "request_id"), problem.field("x-request-id"), "{body}");
        }
        // Thousands of members cost no more than the first of them.
        let hostile = format!("Accept: {}text/html", "a/b;q=NaN,".repeat(800));
        let answer = get(instance, &[version, "--header", &hostile], "https://localhost/nowhere");
        error(instance, &answer, 404, "no_route");
    }
    street.instance.stop();
}

#[test]
fn a_head_or_body_that_does_not_come_is_a_408() {
    let street = street();
    let instance = &street.instance;
    let config = trusting(&instance.home.ca.certificate());
    for (said, expected) in [
        ("GET /good HTTP/1.1\r\nHost: loc", "request_header_timeout"),
        ("POST /good HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf", "request_body_timeout"),
        (
            "POST /good HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "request_body_timeout",
        ),
    ] {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        tls.write_all(said.as_bytes()).unwrap();
        let mut heard = String::new();
        tls.read_to_string(&mut heard).unwrap();
        assert!(heard.starts_with("HTTP/1.1 408 "), "{said:?} {heard:?}");
        let id = heard.lines().last().unwrap().strip_prefix("request ").unwrap();
        let event = instance.event(expected, |event| text(event, "id") == id);
        assert_eq!((cause(&event), event["status"].as_u64()), (expected, Some(408)), "{event}");
        assert!(heard.contains("connection: close\r\n"), "{heard:?}");
    }
    street.instance.stop();
}

#[test]
fn whoever_asks_too_often_is_told_when_to_come_back() {
    let home = Home::new();
    let (_app, seen) = named(&Listen::Unix(home.file("app.sock")), "app");
    let instance = home.run(&format!(
        "[limits]\nrequests_per_client = \"5/h\"\n{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"
    ));
    for _ in 0..5 {
        assert_eq!(get(&instance, &["--http2"], "https://localhost/").status(), 200);
    }
    for version in ["--http1.1", "--http2"] {
        let answer = get(&instance, &[version], "https://localhost/");
        let seconds: u64 = answer.field("retry-after").parse().unwrap();
        assert!((1..=720).contains(&seconds), "{answer:?}");
        error(&instance, &answer, 429, "too_many_requests");
    }
    assert_eq!(seen.take().len(), 5);
    let lines = instance.process.lines(Source::Stderr);
    let said: Vec<_> = lines.iter().filter(|line| line.contains("a limit refuses clients")).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    for part in
        ["limit=too_many_requests", "client=127.0.0.1", "refused=1 ", "key=limits.requests_per_client"]
    {
        assert!(said[0].contains(part), "{part} in {said:?}");
    }
    instance.stop();
}

#[test]
fn malformed_requests_are_refused_and_end_the_connection() {
    let street = street();
    let instance = &street.instance;
    let config = trusting(&instance.home.ca.certificate());
    for said in [
        "GET /good HTTP/1.1\r\n\r\n",
        "GET /good HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /good HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /good HTTP/1.1\r\nHost : localhost\r\n\r\n",
        "GET /good HTTP/1.1\nHost: localhost\n\n",
        "GET  /good HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mut tls = connect(&config, instance.address(), "localhost").unwrap();
        tls.write_all(said.as_bytes()).unwrap();
        let mut heard = String::new();
        tls.read_to_string(&mut heard).unwrap();
        assert!(
            heard.starts_with("HTTP/1.1 400 ") && heard.contains("connection: close"),
            "{said:?} {heard:?}"
        );
        let id = heard.lines().last().unwrap().strip_prefix("request ").unwrap();
        let event = instance.event(said, |event| text(event, "id") == id);
        assert_eq!((cause(&event), text(&event, "fault")), ("bad_request", "client"), "{event}");
        assert!(!text(&event, "detail").is_empty(), "{event}");
    }
    let events = street.instance.stop();
    assert_eq!(events.len(), 7, "{events:?}");
}
