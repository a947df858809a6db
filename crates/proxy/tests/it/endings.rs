//! Timeouts, drains and clients that leave in other ways than the polite one.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use offramp_observe::counters::Direction;
use offramp_testkit::server::{Listen, Server, apps, faults};

use crate::test_proxy::{ListenerKind, Setup, TestProxy, echo, finish, shake};

/// A bound that is to pass. Clients and servers that go on must do so in this time, even on a machine that is busy.
const SHORT: Duration = Duration::from_secs(3);

fn hasty() -> Setup {
    let mut setup = Setup::default();
    setup.limits.idle_timeout = SHORT;
    setup
}

#[test]
fn an_idle_connection_is_closed_in_order() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Plain] {
        let proxy = TestProxy::open(&[app.address()], &hasty());
        if kind == ListenerKind::Tls {
            let mut tls = proxy.tls();
            echo(&mut tls, b"hello");
            assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0);
        } else {
            let mut plain = proxy.connect(kind);
            echo(&mut plain, b"hello");
            assert_eq!(plain.read(&mut [0; 1]).unwrap(), 0);
        }
        let event = proxy.end_of_one();
        assert_eq!(event["cause"], "idle_timeout", "{kind:?}");
        assert!(event["total_us"].as_u64().unwrap() >= 2_990_000);
    }
}

#[test]
fn who_takes_nothing_is_named() {
    let app = Server::start(&Listen::Ipv4, apps::source(1, 1 << 30)).unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Plain] {
        let proxy = TestProxy::open(&[app.address()], &hasty());
        let tls = (kind == ListenerKind::Tls).then(|| proxy.tls());
        let plain = (kind == ListenerKind::Plain).then(|| proxy.connect(kind));
        proxy.wait(|totals| {
            totals.closed(offramp_observe::Cause::ClientHung, offramp_observe::facts::Fault::Client) == 1
        });
        drop((tls, plain));
        assert_eq!(proxy.end_of_one()["cause"], "client_hung", "{kind:?}");
    }
}

#[test]
fn a_drain_waits_and_then_cuts() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Plain] {
        let proxy = TestProxy::open(&[app.address()], &Setup { drain: SHORT, ..Setup::default() });
        let waiting = if kind == ListenerKind::Tls {
            let mut tls = proxy.tls();
            echo(&mut tls, b"hello");
            std::thread::spawn(move || tls.read(&mut [0; 1]).unwrap())
        } else {
            let mut plain = proxy.connect(kind);
            echo(&mut plain, b"hello");
            std::thread::spawn(move || plain.read(&mut [0; 1]).unwrap())
        };
        let event = proxy.end_of_one();
        assert_eq!(event["cause"], "drain");
        assert_eq!(waiting.join().unwrap(), 0);
    }
}

#[test]
fn a_drain_serves_who_is_in_the_queue() {
    const CLIENTS: usize = 200;
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let clients: Vec<_> = (0..CLIENTS).map(|_| proxy.connect(ListenerKind::Plain)).collect();
    let served = std::thread::spawn(move || {
        for mut client in clients {
            echo(&mut client, b"still there?");
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
        }
    });
    assert_eq!(proxy.end().len(), CLIENTS);
    served.join().unwrap();
}

#[test]
fn tcp_that_ends_without_close_notify() {
    let app = Server::start(&Listen::Ipv4, faults::answer_after_eof(b"so?")).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = proxy.tls();
    tls.write_all(b"all of it").unwrap();
    tls.sock.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    tls.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "so?");
    assert_eq!(proxy.end_of_one()["cause"], "client_vanished");

    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = proxy.tls();
    tls.sock.write_all(&[23, 3, 3, 0, 99, 1, 2, 3]).unwrap();
    tls.sock.shutdown(Shutdown::Write).unwrap();
    assert!(tls.read(&mut [0; 1]).is_err());
    assert_eq!(proxy.end_of_one()["cause"], "client_truncated");
}

#[test]
fn a_client_that_leaves_at_once_has_still_said_all() {
    // The server greets, so that there is something for the client that it never takes.
    let (tell, sums) = std::sync::mpsc::channel();
    let app = Server::start(&Listen::Ipv4, move |mut stream: offramp_testkit::server::Stream| {
        let mut all = Vec::new();
        let mut chunk = [0; 1000];
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            all.extend_from_slice(&chunk[..n]);
            let _ = stream.write_all(b"ack");
        }
        let _ = tell.send(all.len());
    })
    .unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = proxy.tls();
    tls.write_all(&[5; 60_000]).unwrap();
    finish(&mut tls);
    drop(tls);
    assert_eq!(sums.recv_timeout(crate::test_proxy::PATIENCE).unwrap(), 60_000);
    let event = proxy.end_of_one();
    assert_eq!(event["bytes_from_client"], 60_000, "{event}");
}

#[test]
fn a_handshake_that_fails_late_keeps_its_cause() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut setup = Setup::default();
    setup.limits.handshake_timeout = SHORT;
    let proxy = TestProxy::open(&[app.address()], &setup);
    // The alert is answered by silence: the client neither closes nor speaks.
    let mut odd = proxy.connect(ListenerKind::Tls);
    odd.write_all(&[22, 3, 1, 0, 4, 20, 0, 0, 0]).unwrap();
    let mut http = proxy.connect(ListenerKind::Tls);
    http.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    http.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
    let mut alert = Vec::new();
    odd.read_to_end(&mut alert).unwrap();
    assert_eq!(alert.first(), Some(&21));
    // Only what comes now frees the proxy from waiting for a close.
    proxy.wait(|totals| totals.handshakes_failed() == 1);
    std::thread::park_timeout(2 * SHORT);
    assert_eq!(proxy.totals().handshakes_failed(), 1);
    drop((odd, http));
    let mut causes: Vec<_> = proxy.end().iter().map(|event| event["cause"].to_string()).collect();
    causes.sort();
    assert_eq!(causes, ["\"plain_http\"", "\"unexpected_message\""]);
}

#[test]
fn a_handshake_that_stalls_is_given_up() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut setup = Setup::default();
    setup.limits.handshake_timeout = SHORT;
    let proxy = TestProxy::open(&[app.address()], &setup);
    let mut stalled = proxy.connect(ListenerKind::Tls);
    stalled.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    match stalled.read(&mut [0; 1]) {
        Ok(n) => assert_eq!(n, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    assert_eq!(proxy.end_of_one()["cause"], "handshake_timeout");
}

#[test]
fn a_faulty_record_is_answered_by_its_alert() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = proxy.tls();
    echo(&mut tls, b"well");
    tls.sock.write_all(&[[23, 3, 3, 0, 32].as_slice(), &[0; 32]].concat()).unwrap();
    let error = tls.read(&mut [0; 1]).unwrap_err().to_string();
    assert!(error.contains("BadRecordMac"), "{error}");
    drop(tls);
    let event = proxy.end_of_one();
    assert_eq!(event["cause"], "bad_record_mac");
    assert_eq!(event["alert_sent"], "bad_record_mac");
    assert_eq!(event["fault"], "client");
}

#[test]
fn counted_is_what_was_moved() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = shake(proxy.connect(ListenerKind::Tls)).unwrap();
    echo(&mut tls, &[1; 50_000]);
    let totals = proxy.totals();
    assert_eq!(totals.bytes_relayed(Direction::ClientToServer), 50_000);
    assert_eq!(totals.bytes_relayed(Direction::ServerToClient), 50_000);
    assert_eq!((totals.accepted(), totals.active()), (1, 1));
    drop(tls);
    proxy.wait(|totals| totals.active() == 0);
    proxy.end();
}
