//! HTTP/1 connections that do more than ask and hear: interim responses, other protocols, patience that
//! ends, clients and servers that leave, drains.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use offramp_proxy::limit::Quota;
use offramp_testkit::server::{Listen, Server, Stream, apps};

use crate::requests::{ask, head, response};
use crate::test_proxy::{ListenerKind, PATIENCE, Setup, TestProxy, at, proxied, to};

/// A bound that is to pass. Clients and servers that go on must do so in this time, even on a machine that is busy.
const SHORT: Duration = Duration::from_secs(3);
const GET: &str = "GET /x HTTP/1.1\r\nhost: a.test\r\n\r\n";

/// Reads a head, then does what it is made for.
fn after_head(then: impl Fn(BufReader<Stream>) + Send + Sync + 'static) -> Server {
    let serve = move |stream: Stream| {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(stream.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        then(stream);
    };
    Server::start(&Listen::Ipv4, serve).unwrap()
}

fn say(stream: &mut BufReader<Stream>, text: &str) {
    // The test's client may be gone by design.
    let _ = stream.get_mut().write_all(text.as_bytes());
}

#[test]
fn early_hints_come_first() {
    let app = after_head(|mut stream| {
        say(&mut stream, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.https());
    stream.get_mut().write_all(GET.as_bytes()).unwrap();
    let hints = response(&mut stream, false);
    assert_eq!((hints.status, hints.field("link")), (103, Some("</a>")));
    let last = response(&mut stream, false);
    assert_eq!((last.status, last.text().as_str()), (200, "ok"));
    drop(stream);
    assert_eq!(proxy.end_of_one()["status"], 200);
}

const EXPECTING: &str =
    "POST /x HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n";

#[test]
fn a_body_is_asked_for_when_the_server_asks() {
    let app = after_head(|mut stream| {
        say(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n");
        let mut body = [0; 5];
        if stream.read_exact(&mut body).is_ok() {
            say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
            let _ = stream.get_mut().write_all(&body);
        }
    });
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
    stream.get_mut().write_all(EXPECTING.as_bytes()).unwrap();
    assert_eq!(response(&mut stream, false).status, 100);
    stream.get_mut().write_all(b"hello").unwrap();
    assert_eq!(response(&mut stream, false).text(), "hello");
}

#[test]
fn a_body_that_the_server_does_not_want_is_never_asked_for() {
    let app = after_head(|mut stream| {
        say(&mut stream, "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    });
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    assert_eq!(ask(&proxy, EXPECTING).status, 403);
}

#[test]
fn a_server_that_knows_no_expectations_gets_the_body_all_the_same() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
    stream.get_mut().write_all(EXPECTING.as_bytes()).unwrap();
    assert_eq!(response(&mut stream, false).status, 100);
    stream.get_mut().write_all(b"hello").unwrap();
    assert_eq!(response(&mut stream, false).text(), "hello");
}

/// Changes to a protocol in which everything is sent back.
fn switching() -> Server {
    after_head(|mut stream| {
        say(
            &mut stream,
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhi",
        );
        let mut chunk = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            if stream.get_mut().write_all(&chunk[..n]).is_err() {
                return;
            }
        }
        let _ = stream.get_mut().shutdown(Shutdown::Write);
    })
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";

#[test]
fn another_protocol_passes_both_ways_until_both_have_ended() {
    let app = switching();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
    // What comes with the request belongs to the new protocol.
    stream.get_mut().write_all(format!("{UPGRADE}early").as_bytes()).unwrap();
    let got = response(&mut stream, false);
    assert_eq!((got.status, got.field("upgrade")), (101, Some("websocket")));
    stream.get_mut().write_all(&[b'x'; 100_000]).unwrap();
    stream.get_mut().shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.starts_with(b"hiearlyxxx") && all.len() == 100_007, "{}", all.len());
    let event = proxy.end_of_one();
    assert_eq!((&event["status"], &event["cause"]), (&101.into(), &"completed".into()));
    assert_eq!((&event["bytes_from_client"], &event["bytes_to_client"]), (&100_005.into(), &100_007.into()));
}

#[test]
fn a_refused_upgrade_leaves_the_connection_as_it_was() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.https());
    stream.get_mut().write_all(format!("{UPGRADE}{GET}").as_bytes()).unwrap();
    assert_eq!(response(&mut stream, false).text().trim(), "hello /ws");
    assert_eq!(response(&mut stream, false).text().trim(), "hello /x");
}

#[test]
fn a_head_that_does_not_come_is_a_408() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let mut setup = Setup::default();
    setup.http.request_header_timeout = SHORT;
    let proxy = TestProxy::open(&[app.address()], &setup);
    let mut stream = BufReader::new(proxy.https());
    stream.get_mut().write_all(GET.as_bytes()).unwrap();
    assert_eq!(response(&mut stream, false).status, 200);
    stream.get_mut().write_all(b"GET /slow HTTP/1.1\r\nhost:").unwrap();
    let got = response(&mut stream, false);
    assert_eq!((got.status, got.field("connection")), (408, Some("close")));
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    let events = proxy.end();
    assert_eq!(
        (&events[1]["cause"], &events[1]["method"]),
        (&"request_header_timeout".into(), &"GET".into())
    );
}

#[test]
fn a_body_that_does_not_come_is_a_408() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let mut setup = Setup::default();
    setup.http.request_body_timeout = SHORT;
    let proxy = TestProxy::open(&[app.address()], &setup);
    let got = ask(&proxy, "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf");
    assert_eq!(got.status, 408);
    let event = proxy.end_of_one();
    assert_eq!((&event["cause"], &event["bytes_from_client"]), (&"request_body_timeout".into(), &4.into()));
}

#[test]
fn a_chunk_that_is_refused_is_a_400() {
    let app = Server::start(&Listen::Ipv4, apps::sink).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let got =
        ask(&proxy, "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n-1\r\n");
    assert_eq!(got.status, 400);
    let event = proxy.end_of_one();
    assert_eq!(event["cause"], "bad_request");
    assert!(event["detail"].as_str().unwrap().contains("chunk"), "{event}");
}

#[test]
fn too_many_requests_are_told_when_to_come_again() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let mut setup = Setup::default();
    setup.http.requests_per_client = Some(Quota { count: 2, per: Duration::from_secs(3600) });
    let proxy = TestProxy::open(&[app.address()], &setup);
    assert_eq!((ask(&proxy, GET).status, ask(&proxy, GET).status), (200, 200));
    let got = ask(&proxy, GET);
    assert_eq!(got.status, 429);
    assert!((1700..=1800).contains(&got.field("retry-after").unwrap().parse::<u32>().unwrap()), "{got:?}");
}

/// That it keeps nothing meanwhile is seen from outside: see `quiet_http_connections_wake_nobody`, end to end.
#[test]
fn a_quiet_client_comes_back() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let mut setup = Setup::default();
    // The turn ends as soon as the shortest bound allows.
    setup.limits.idle_timeout = Duration::from_millis(20);
    let proxy = TestProxy::open(&[app.address()], &setup);
    let mut stream = BufReader::new(proxy.https());
    for _ in 0..4 {
        stream.get_mut().write_all(GET.as_bytes()).unwrap();
        assert_eq!(response(&mut stream, false).status, 200);
        // Long enough to be parked.
        std::thread::park_timeout(Duration::from_millis(60));
    }
    drop(stream);
    assert_eq!(proxy.end().len(), 4);
}

#[test]
fn a_kept_connection_ends_after_its_time() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let mut setup = Setup::default();
    setup.http.keepalive_timeout = SHORT;
    let proxy = TestProxy::open(&[app.address()], &setup);
    let mut stream = BufReader::new(proxy.https());
    stream.get_mut().write_all(GET.as_bytes()).unwrap();
    assert_eq!(response(&mut stream, false).status, 200);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(proxy.end_of_one()["cause"], "completed");
}

#[test]
fn a_server_that_dies_in_its_response_cuts_it_off() {
    let app = after_head(|mut stream| say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"));
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
    stream.get_mut().write_all(GET.as_bytes()).unwrap();
    assert!(head(&mut stream).starts_with("HTTP/1.1 200"));
    let mut body = Vec::new();
    let _ = stream.read_to_end(&mut body);
    assert_eq!(body, b"half");
    let event = proxy.end_of_one();
    assert_eq!((&event["cause"], &event["fault"]), (&"server_aborted".into(), &"server".into()));
}

#[test]
fn what_is_no_http_is_a_502() {
    let app = after_head(|mut stream| say(&mut stream, "SSH-2.0-OpenSSH\r\n\r\n"));
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    assert_eq!(ask(&proxy, GET).status, 502);
    assert_eq!(proxy.end_of_one()["cause"], "bad_response");
}

#[test]
fn a_client_that_leaves_is_told_of() {
    let app = after_head(|mut stream| drop(stream.read(&mut [0; 1])));
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = proxy.connect(ListenerKind::Http);
    stream.write_all(GET.as_bytes()).unwrap();
    proxy.wait(|totals| totals.connect_attempts() == 1);
    // In order, it could be the end of the client's direction alone.
    let stream = Stream::Tcp(stream);
    stream.reset_on_close().unwrap();
    drop(stream);
    let event = proxy.end_of_one();
    assert_eq!((&event["cause"], &event["status"]), (&"client_aborted".into(), &0.into()));
}

#[test]
fn a_drain_lets_requests_finish_and_closes_who_is_quiet() {
    let (hold, release) = std::sync::mpsc::channel::<()>();
    let release = std::sync::Mutex::new(release);
    let app = after_head(move |mut stream| {
        let _ = release.lock().unwrap().recv_timeout(PATIENCE);
        say(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut quiet = proxy.https();
    let mut busy = BufReader::new(proxy.https());
    busy.get_mut().write_all(GET.as_bytes()).unwrap();
    proxy.wait(|totals| totals.connect_attempts() == 1);
    let ending = std::thread::spawn(move || proxy.end());
    assert_eq!(quiet.read(&mut [0; 1]).unwrap(), 0);
    hold.send(()).unwrap();
    let got = response(&mut busy, false);
    assert_eq!((got.text().as_str(), got.field("connection")), ("ok", Some("close")));
    assert_eq!(busy.read(&mut [0; 1]).unwrap(), 0);
    drop((quiet, busy));
    let events = ending.join().unwrap();
    assert!(events.iter().any(|event| event["cause"] == "completed"), "{events:?}");
}

#[test]
fn servers_can_be_told_by_a_proxy_header_instead() {
    let app = Server::start(&Listen::Ipv4, |stream: Stream| {
        let mut stream = BufReader::new(stream);
        let mut proxy = String::new();
        let _ = stream.read_line(&mut proxy);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if !matches!(stream.read_line(&mut head), Ok(1..)) {
                    return;
                }
            }
            say(&mut stream, &format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{proxy}", proxy.len()));
        }
    })
    .unwrap();
    let routes = || {
        let mut action = proxied();
        if let offramp_proxy::Action::Proxy(proxy) = &mut action {
            proxy.send_proxy = Some(offramp_proxy::SendProxy::V1);
        }
        vec![(at(&[], "/"), to(action))]
    };
    let proxy = TestProxy::open(&[app.address()], &Setup { routes, ..Setup::default() });
    for _ in 0..2 {
        let mut stream = BufReader::new(proxy.connect(ListenerKind::Http));
        let port = stream.get_ref().local_addr().unwrap().port();
        for _ in 0..2 {
            stream.get_mut().write_all(GET.as_bytes()).unwrap();
            let line = response(&mut stream, false).text();
            assert!(line.starts_with(&format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} ")), "{line}");
        }
    }
}
