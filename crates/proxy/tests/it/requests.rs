//! Requests over HTTP/1: what servers see, what clients get, what the events say.

use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroU32;

use http::{HeaderName, HeaderValue, StatusCode};
use offramp_proxy::{
    Action, HeaderPolicy, HeaderRules, Network, PathMatch, Proxy, Redirect, Respond, Rewrite, Template,
};
use offramp_testkit::server::{Listen, Recording, Server, Stream, apps};

use crate::test_proxy::{ListenerKind, Setup, TestProxy, at, proxied, to};

/// One response as it came.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Reads a head, up to its empty line.
pub(crate) fn head(from: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(from.read_line(&mut head).unwrap(), 0, "the end came first: {head:?}");
    }
    head
}

/// Reads one response; `bodiless` where it was asked for by HEAD.
pub(crate) fn response(from: &mut impl BufRead, bodiless: bool) -> Got {
    let head = head(from);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut got = Got { status, head, body: Vec::new() };
    if bodiless || matches!(status, 100..=199 | 204 | 304) {
        return got;
    }
    if let Some(length) = got.field("content-length") {
        got.body = vec![0; length.parse().unwrap()];
        from.read_exact(&mut got.body).unwrap();
    } else if got.field("transfer-encoding") == Some("chunked") {
        loop {
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            if size == 0 {
                // Trailers up to an empty line, and often none.
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    assert_ne!(from.read_line(&mut line).unwrap(), 0, "the end came first");
                    got.head.push_str(&line);
                }
                break;
            }
            from.read_exact(&mut chunk).unwrap();
            got.body.extend_from_slice(&chunk[..size]);
        }
    } else {
        from.read_to_end(&mut got.body).unwrap();
    }
    got
}

/// Sends `request` to a fresh connection without TLS and reads one response.
pub(crate) fn ask(proxy: &TestProxy, request: &str) -> Got {
    let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    response(&mut stream, request.starts_with("HEAD"))
}

fn get(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")
}

/// Answers each request with its own head.
fn mirror(stream: Stream) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(stream.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-app: 1\r\n\r\n{head}", head.len());
        if stream.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

pub(crate) fn mirrored(setup: &Setup) -> (Server, TestProxy) {
    let app = Server::start(&Listen::Ipv4, mirror).unwrap();
    let proxy = TestProxy::open(&[app.address()], setup);
    (app, proxy)
}

#[test]
fn a_connection_serves_request_after_request_with_and_without_tls() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = BufReader::new(proxy.https());
    let mut plain = BufReader::new(proxy.connect(ListenerKind::Http));
    for path in ["/a", "/b?q=1", "/c"] {
        tls.get_mut().write_all(get("a.test", path).as_bytes()).unwrap();
        assert_eq!(response(&mut tls, false).text().trim(), format!("hello {path}"));
        plain.get_mut().write_all(get("a.test", path).as_bytes()).unwrap();
        assert_eq!(response(&mut plain, false).text().trim(), format!("hello {path}"));
    }
    let body = "x".repeat(300_000);
    let upload = format!("POST /up HTTP/1.1\r\nhost: a.test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    tls.get_mut().write_all(upload.as_bytes()).unwrap();
    assert_eq!(response(&mut tls, false).text(), body);
    drop((tls, plain));
    let events = proxy.end();
    assert_eq!(events.len(), 7, "{events:?}");
    for event in &events {
        assert_eq!(event["cause"], "completed", "{event}");
        assert_eq!(event["status"], 200);
        assert_eq!(event["host"], "a.test");
        assert_eq!(event["server"], app.address().to_string());
        assert_eq!(event["route"], "app");
    }
    let upload = events.iter().find(|event| event["method"] == "POST").unwrap();
    assert_eq!(upload["bytes_from_client"], 300_000);
    assert_eq!(upload["bytes_to_client"], 300_000);
    assert_eq!(upload["tls_version"], "TLSv1.3");
}

#[test]
fn servers_see_who_asks_and_nothing_of_the_connection() {
    let (_app, proxy) = mirrored(&Setup::default());
    let got = ask(
        &proxy,
        "GET /x HTTP/1.1\r\nhost: a.test:8080\r\nx-forwarded-for: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\n\
         x-request-id: mine\r\nconnection: x-secret\r\nx-secret: 1\r\nproxy: evil\r\nte: trailers\r\n\r\n",
    );
    assert_eq!(got.status, 200);
    assert_eq!(got.field("x-app"), Some("1"));
    let seen = Got { status: 0, head: got.text(), body: Vec::new() };
    assert_eq!(seen.field("host"), Some("a.test:8080"));
    assert_eq!(seen.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(seen.field("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.field("x-forwarded-host"), Some("a.test:8080"));
    assert_eq!(seen.field("forwarded"), Some("for=127.0.0.1;proto=http;host=\"a.test:8080\""));
    assert_eq!(seen.field("te"), Some("trailers"));
    for gone in ["x-secret", "proxy", "via"] {
        assert_eq!(seen.field(gone), None, "{}", seen.head);
    }
    let id = seen.field("x-request-id").unwrap().to_owned();
    assert_ne!(id, "mine");
    assert_eq!(proxy.end_of_one()["id"], id);
}

#[test]
fn trusted_proxies_are_extended() {
    let trusted_proxies = vec![Network::new("127.0.0.0".parse().unwrap(), 8)];
    let (_app, proxy) = mirrored(&Setup { trusted_proxies, via: true, ..Setup::default() });
    let got = ask(
        &proxy,
        "GET /x HTTP/1.1\r\nhost: a.test\r\nx-forwarded-for: 192.0.2.1\r\nx-forwarded-for: 192.0.2.2\r\n\
         x-forwarded-proto: https\r\nx-request-id: theirs\r\nvia: 1.1 front\r\n\r\n",
    );
    let seen = Got { status: 0, head: got.text(), body: Vec::new() };
    assert_eq!(seen.field("x-forwarded-for"), Some("192.0.2.1, 192.0.2.2, 127.0.0.1"));
    assert_eq!(seen.field("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.field("x-request-id"), Some("theirs"));
    assert_eq!(seen.field("via"), Some("1.1 front, 1.1 offramp"));
    assert_eq!(got.field("via"), Some("1.1 offramp"));
    assert_eq!(proxy.end_of_one()["id"], "theirs");
}

fn many_routes() -> Vec<(PathMatch, offramp_proxy::HttpRoute)> {
    let rewrite = |rewrite| {
        Action::Proxy(Proxy {
            to: offramp_proxy::RouteBackends::Backend(0),
            send_proxy: None,
            rewrite,
            paths: offramp_proxy::PathHandling::default(),
        })
    };
    let mut ruled = to(proxied());
    let name = HeaderName::from_static;
    let request = HeaderRules {
        remove: vec![name("cookie")],
        set: vec![(name("x-set"), HeaderValue::from_static("1").into())],
        add: vec![(name("x-add"), HeaderValue::from_static("2").into())],
    };
    let response = HeaderRules { remove: vec![name("x-app")], ..HeaderRules::default() };
    ruled.headers = HeaderPolicy::new(request, response, &HeaderRules::default());
    ruled.headers.hsts = Some(HeaderValue::from_static("max-age=1"));
    let redirect = Redirect {
        status: StatusCode::PERMANENT_REDIRECT,
        to: Template::parse("https://{host}{uri}").unwrap(),
    };
    let respond = Respond {
        status: StatusCode::IM_A_TEAPOT,
        content_type: Some(HeaderValue::from_static("text/plain")),
        body: "short and stout\n".into(),
    };
    let mut small = to(proxied());
    small.plain.max_body = Some(offramp_config::model::Size::new(10));
    vec![
        (at(&["a.test"], "/strip"), to(rewrite(Rewrite::Strip(6)))),
        (at(&["a.test"], "/replace"), to(rewrite(Rewrite::Replace(8, "/new".into())))),
        (at(&["a.test"], "/ruled"), ruled),
        (at(&["a.test"], "/small"), small),
        (at(&["go.test"], "/"), to(Action::Redirect(redirect))),
        (at(&["*.pot.test"], "/"), to(Action::Respond(respond))),
    ]
}

#[test]
fn routes_do_what_they_say() {
    let (_app, proxy) = mirrored(&Setup { routes: many_routes, ..Setup::default() });
    assert!(ask(&proxy, &get("A.test", "/strip/x?q")).text().starts_with("GET /x?q HTTP/1.1\r\n"));
    assert!(ask(&proxy, &get("a.test.", "/replace/x")).text().starts_with("GET /new/x HTTP/1.1\r\n"));
    let got = ask(&proxy, "GET /ruled HTTP/1.1\r\nhost: a.test\r\ncookie: c\r\nx-add: 1\r\n\r\n");
    assert!(got.text().contains("x-add: 1\r\n") && got.text().contains("x-add: 2\r\n"), "{got:?}");
    assert!(got.text().contains("x-set: 1\r\n") && !got.text().contains("cookie"), "{got:?}");
    assert_eq!((got.field("x-app"), got.field("strict-transport-security")), (None, None));
    let got = ask(&proxy, &get("go.test:80", "/x?y=1"));
    assert_eq!((got.status, got.field("location")), (308, Some("https://go.test/x?y=1")));
    let got = ask(&proxy, &get("tea.pot.test", "/"));
    assert_eq!((got.status, got.text().as_str()), (418, "short and stout\n"));
    let got = ask(&proxy, "HEAD / HTTP/1.1\r\nhost: tea.pot.test\r\n\r\n");
    assert_eq!((got.status, got.field("content-length")), (418, Some("16")));
    assert_eq!(ask(&proxy, &get("other.test", "/")).status, 404);
    let got = ask(&proxy, "POST /small HTTP/1.1\r\nhost: a.test\r\ncontent-length: 11\r\n\r\nhello world");
    assert_eq!(got.status, 413);
    let got = ask(
        &proxy,
        "POST /small HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n",
    );
    assert_eq!(got.status, 413);
    let causes: Vec<_> =
        proxy.end().iter().map(|event| event["cause"].as_str().unwrap().to_owned()).collect();
    assert_eq!(causes.iter().filter(|cause| *cause == "completed").count(), 6, "{causes:?}");
    assert_eq!(causes.iter().filter(|cause| *cause == "body_too_large").count(), 2, "{causes:?}");
    assert!(causes.contains(&"no_route".to_owned()), "{causes:?}");
}

#[test]
fn what_is_refused_is_answered_and_told() {
    let (app, _) = Recording::start(&Listen::Ipv4).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\nhost: a\n\n", 400),
        ("GET / HTTP/3.0\r\nhost: a\r\n\r\n", 505),
    ] {
        let got = ask(&proxy, request);
        assert_eq!(got.status, status, "{request}");
        assert_eq!(got.field("connection"), Some("close"));
        assert!(got.text().contains("request "), "{got:?}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(9000));
    assert_eq!(ask(&proxy, &long).status, 414);
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(100));
    assert_eq!(ask(&proxy, &many).status, 431);
    let events = proxy.end();
    assert_eq!(events.len(), 6, "{events:?}");
    for event in events {
        assert!(event["status"].as_u64().unwrap() >= 400, "{event}");
        assert_ne!(event["fault"], "nobody", "{event}");
    }
}

#[test]
fn a_pipeline_is_answered_up_to_what_is_refused() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.https());
    let pipeline =
        format!("{}{}GET /bad HTTP/1.1\r\nho st: a\r\n\r\n", get("a.test", "/1"), get("a.test", "/2"));
    stream.get_mut().write_all(pipeline.as_bytes()).unwrap();
    assert_eq!(response(&mut stream, false).text().trim(), "hello /1");
    assert_eq!(response(&mut stream, false).text().trim(), "hello /2");
    assert_eq!(response(&mut stream, false).status, 400);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(proxy.end().len(), 3);
}

#[test]
fn http_1_0_and_close_end_the_connection() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    for request in ["GET /x HTTP/1.0\r\n\r\n", "GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"] {
        let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert!(all.starts_with("HTTP/1.") && all.trim_end().ends_with("hello /x"), "{all}");
    }
    proxy.end();
}

#[test]
fn no_server_is_a_502_without_a_reason() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = offramp_testkit::server::Address::Tcp(nobody.local_addr().unwrap());
    drop(nobody);
    let proxy = TestProxy::open(&[&address], &Setup::default());
    let got = ask(&proxy, "GET / HTTP/1.1\r\nhost: a\r\naccept: application/json\r\n\r\n");
    assert_eq!((got.status, got.field("content-type")), (502, Some("application/json")));
    assert!(!got.text().contains("refused"), "{got:?}");
    let event = proxy.end_of_one();
    assert_eq!((&event["cause"], &event["fault"]), (&"server_refused".into(), &"server".into()));
    assert!(got.text().contains(event["id"].as_str().unwrap()));
}

#[test]
fn sampling_leaves_out_what_went_well() {
    let (_app, proxy) = mirrored(&Setup {
        routes: || {
            let mut route = to(proxied());
            route.log_one_in = NonZeroU32::new(1_000_000).unwrap();
            vec![(at(&["a.test"], "/"), route)]
        },
        ..Setup::default()
    });
    for _ in 0..5 {
        assert_eq!(ask(&proxy, &get("a.test", "/")).status, 200);
    }
    assert_eq!(ask(&proxy, &get("b.test", "/")).status, 404);
    assert_eq!(proxy.end_of_one()["cause"], "no_route");
}
