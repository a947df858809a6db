//! HTTP/1 as it is read and written: requests in pieces of any size, one behind the other, framed in every way,
//! with bodies that nobody reads, and clients that leave at any point.

use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::net::Shutdown;

use http::StatusCode;
use offramp_proxy::{Action, Respond};
use offramp_testkit::server::{Address, Listen, Server, Stream, apps};
use proptest::prelude::*;

use crate::model::{application, letters};
use crate::requests::{Got, ask, head, response};
use crate::test_proxy::{ListenerKind, Setup, TestProxy, at, proxied, to};

/// A request, and what its response is made of: the line that the application saw, and the body.
struct Known {
    bytes: Vec<u8>,
    seen: String,
    body: Vec<u8>,
    head: bool,
}

fn known(line: &str, fields: &str, content: &[u8], seen: &str, body: &[u8]) -> Known {
    let bytes = [format!("{line}\r\nHost: a.test\r\n{fields}\r\n").as_bytes(), content].concat();
    Known { bytes, seen: seen.to_owned(), body: body.to_vec(), head: line.starts_with("HEAD") }
}

/// Requests of every form that the application answers by what they are.
fn knowns() -> Vec<Known> {
    let long = letters(40_000);
    let chunked = "Transfer-Encoding: chunked\r\n";
    let chunks = b"3;x=\"y\"\r\nabc\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nX-Sum: 1\r\n\r\n";
    let joined = [&b"abc"[..], &letters(26)].concat();
    let many = "X-Many: some value\r\n".repeat(60);
    vec![
        known("GET /length/10?q=%20x HTTP/1.1", "", b"", "GET /length/10?q=%20x 0", &letters(10)),
        known("\r\nGET /pieces/3000 HTTP/1.1", "Accept: */*\r\n", b"", "GET /pieces/3000 0", &letters(3000)),
        known("HEAD /length/10 HTTP/1.1", "", b"", "HEAD /length/10 0", b""),
        known("GET /status/304 HTTP/1.1", "", b"", "GET /status/304 0", b""),
        known("GET /status/204 HTTP/1.1", "", b"", "GET /status/204 0", b""),
        known("BREW /length/0 HTTP/1.1", &many, b"", "BREW /length/0 0", b""),
        known(
            "OPTIONS /status/404 HTTP/1.1",
            "Content-Length: 0\r\n",
            b"",
            "OPTIONS /status/404 0",
            b"status",
        ),
        known("GET http://a.test/length/1 HTTP/1.1", "", b"", "GET /length/1 0", b"a"),
        known("POST /echo HTTP/1.1", "Content-Length: 5\r\n", b"hello", "POST /echo 5", b"hello"),
        known("PUT /echo HTTP/1.1", "Content-Length: 40000\r\n", &long, "PUT /echo 40000", &long),
        known("POST /echo HTTP/1.1", chunked, chunks, "POST /echo 29", &joined),
        known("POST /echo-pieces HTTP/1.1", chunked, chunks, "POST /echo-pieces 29", &joined),
        known("POST /echo HTTP/1.1", chunked, b"0\r\n\r\n", "POST /echo 0", b""),
        known(
            "GET /length/2 HTTP/1.1",
            "Connection: upgrade\r\nUpgrade: foo\r\nContent-Length: 2\r\n",
            b"xy",
            "GET /length/2 2",
            b"ab",
        ),
        known("GET /length/3 HTTP/1.0", "Connection: keep-alive\r\n", b"", "GET /length/3 0", b"abc"),
    ]
}

#[test]
fn it_does_not_matter_where_a_stream_of_requests_is_cut() {
    let address = application();
    let proxy = TestProxy::open(&[&Address::Tcp(address)], &Setup::default());
    let knowns = knowns();
    let last = b"GET /length/0 HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
    let choice = prop::collection::vec(0..knowns.len(), 1..12);
    let cuts = prop_oneof![
        prop::collection::vec(1..4_usize, 1..4).prop_map(|sizes| [&sizes[..], &[300]].concat()),
        prop::collection::vec(1..400_usize, 1..6),
        Just(vec![usize::MAX]),
    ];
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choice in choice, cuts in cuts)| {
        let asked: Vec<_> = choice.iter().map(|&at| &knowns[at]).collect();
        let mut all: Vec<u8> = asked.iter().flat_map(|known| known.bytes.clone()).collect();
        all.extend_from_slice(last);
        // Each piece is a record of its own, and is read as one.
        let mut stream = proxy.https();
        let mut rest = &all[..];
        for size in cuts.iter().cycle() {
            let (piece, more) = rest.split_at(rest.len().min(*size));
            stream.write_all(piece).unwrap();
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        let mut got = Cursor::new(got);
        for known in asked {
            let response = response(&mut got, known.head);
            prop_assert_eq!(response.field("x-seen"), Some(&*known.seen));
            prop_assert_eq!(&response.body, &known.body, "{}", known.seen);
        }
        let end = response(&mut got, false);
        prop_assert_eq!(end.field("connection"), Some("close"));
        prop_assert_eq!(got.read(&mut [0]).unwrap(), 0, "something follows");
    });
    proxy.end();
}

#[test]
fn a_pipeline_is_answered_in_its_order() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let stream = proxy.connect(ListenerKind::Http);
    let all: String = (0..500).map(|at| format!("GET /{at} HTTP/1.1\r\nhost: a.test\r\n\r\n")).collect();
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(all.as_bytes()).unwrap());
    let mut stream = BufReader::new(stream);
    for at in 0..500 {
        assert_eq!(response(&mut stream, false).text().trim(), format!("hello /{at}"));
    }
    sending.join().unwrap();
    drop(stream);
    assert_eq!(proxy.end().len(), 500);
}

#[test]
fn http_1_0_is_framed_as_it_knows() {
    let address = application();
    let proxy = TestProxy::open(&[&Address::Tcp(address)], &Setup::default());
    // Of known length: the connection may be kept, where that is asked for.
    let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
    for path in ["/length/3", "/length/4"] {
        let request = format!("GET {path} HTTP/1.0\r\nhost: a.test\r\nconnection: keep-alive\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let got = response(&mut stream, false);
        assert!(got.head.starts_with("HTTP/1.0 200 OK\r\n"), "{got:?}");
        assert_eq!(got.field("connection"), Some("keep-alive"));
    }
    // Of a length that nobody knows: the end of the connection tells it.
    stream.get_mut().write_all(b"GET /pieces/3000 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").unwrap();
    let got = response(&mut stream, false);
    let framed = ["connection", "transfer-encoding", "content-length"].map(|name| got.field(name).is_some());
    assert_eq!((framed, got.body.len()), ([false; 3], 3000), "{got:?}");
}

/// Answers with chunks and trailers.
fn trailing() -> Server {
    let serve = |stream: Stream| {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if !matches!(stream.read_line(&mut head), Ok(1..)) {
                    return;
                }
            }
            let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
                          2\r\nok\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n";
            if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    };
    Server::start(&Listen::Ipv4, serve).unwrap()
}

#[test]
fn trailers_reach_who_wants_them() {
    let app = trailing();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.https());
    // One is announced, the other is not.
    for (fields, sum, more) in
        [("te: trailers\r\n", Some("1"), Some("2")), ("", None, None), ("te: gzip\r\n", None, None)]
    {
        let request = format!("GET / HTTP/1.1\r\nhost: a.test\r\n{fields}\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let got = response(&mut stream, false);
        assert_eq!((got.text().as_str(), got.field("x-sum"), got.field("x-more")), ("ok", sum, more));
    }
    stream.get_mut().write_all(b"GET / HTTP/1.0\r\nte: trailers\r\n\r\n").unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("\r\n\r\nok") && !rest.contains("trailer"), "{rest}");
}

fn answered_by_us() -> Vec<(offramp_proxy::PathMatch, offramp_proxy::HttpRoute)> {
    let respond = Respond { status: StatusCode::OK, content_type: None, body: "mine".into() };
    vec![(at(&[], "/mine"), to(Action::Respond(respond))), (at(&[], "/"), to(proxied()))]
}

#[test]
fn a_body_that_nobody_reads_is_dropped_or_ends_the_connection() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup { routes: answered_by_us, ..Setup::default() });
    // What is there already is no reason to close.
    let mut stream = BufReader::new(proxy.https());
    for content in
        ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"]
    {
        let request = format!("POST /mine HTTP/1.1\r\nhost: a.test\r\n{content}");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let got = response(&mut stream, false);
        assert_eq!((got.text().as_str(), got.field("connection")), ("mine", None));
    }
    // Nobody waits for the rest.
    let half = "POST /mine HTTP/1.1\r\nhost: a.test\r\ncontent-length: 100\r\n\r\nhalf";
    stream.get_mut().write_all(half.as_bytes()).unwrap();
    let got = response(&mut stream, false);
    assert_eq!((got.text().as_str(), got.field("connection")), ("mine", Some("close")));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    // Nor is a client asked for what nobody reads.
    let expecting = format!("{}expect: 100-continue\r\n\r\n", half.strip_suffix("\r\nhalf").unwrap());
    let got = ask(&proxy, &expecting);
    assert_eq!((got.status, got.field("connection")), (200, Some("close")));
    proxy.end();
}

#[test]
fn half_a_request_is_no_request() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let requests = ["GET / HTTP/1.1\r\nho", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf"];
    for request in requests {
        let mut stream = proxy.connect(ListenerKind::Http);
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // A client that has only half closed may still hear why.
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(!rest.starts_with("HTTP/1.1 2"), "{rest}");
    }
    let mut causes: Vec<_> =
        proxy.end().iter().map(|event| event["cause"].as_str().unwrap().to_owned()).collect();
    causes.sort();
    assert_eq!(causes, ["client_aborted", "client_vanished"]);
}

#[test]
fn a_response_leaves_behind_the_interim_ones() {
    let app = Server::start(&Listen::Ipv4, |stream: Stream| {
        let mut stream = BufReader::new(stream);
        let _ = head(&mut stream);
        let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let _ = stream.get_mut().write_all([&hint.repeat(3), last].concat().as_bytes());
        let _ = stream.read(&mut [0]);
    })
    .unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    for (version, hints) in [("1.1", 3), ("1.0", 0)] {
        let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
        let request = format!("GET / HTTP/{version}\r\nhost: a.test\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        for _ in 0..hints {
            assert_eq!(response(&mut stream, false).status, 103);
        }
        let Got { status, body, .. } = response(&mut stream, false);
        assert_eq!((status, &body[..]), (200, &b"ok"[..]));
    }
}
