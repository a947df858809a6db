//! Limits, and PROXY headers that say whom they apply to.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use offramp_observe::counters::PauseReason;
use offramp_proxy::Network;
use offramp_proxy::limit::Quota;
use offramp_testkit::server::{Listen, Server, apps};

use crate::test_proxy::{ListenerKind, Setup, TestProxy, echo, shake};

/// Whether the proxy has hung up without a word.
fn is_turned_away(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn causes(proxy: TestProxy) -> Vec<String> {
    let mut causes: Vec<_> =
        proxy.end().iter().map(|event| event["cause"].as_str().unwrap().to_owned()).collect();
    causes.sort();
    causes
}

/// Sends a PROXY header that names this client.
fn introduce(stream: &mut TcpStream, client: &str) {
    stream.write_all(format!("PROXY TCP4 {client} 192.0.2.1 4711 443\r\n").as_bytes()).unwrap();
}

/// Whose PROXY header is believed in these tests: all clients are on this machine.
fn loopback() -> Vec<Network> {
    vec![Network::new("127.0.0.0".parse().unwrap(), 8)]
}

#[test]
fn connections_in_all_wait_for_a_place() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut setup = Setup::default();
    setup.limits.connections = 2;
    let proxy = TestProxy::open(&[app.address()], &setup);
    let mut held = [proxy.connect(ListenerKind::Plain), proxy.connect(ListenerKind::Plain)];
    for stream in &mut held {
        echo(stream, b"in");
    }
    let mut waiting = proxy.connect(ListenerKind::Plain);
    proxy.wait(|totals| totals.accept_pauses(PauseReason::Connections) >= 1);
    assert_eq!(proxy.totals().accepted(), 2);
    let [first, second] = held;
    drop(first);
    echo(&mut waiting, b"in as well");
    drop((second, waiting));
    proxy.wait(|totals| totals.active() == 0);
    let causes = causes(proxy);
    assert_eq!(causes.len(), 3);
    assert!(!causes.iter().any(|cause| cause.starts_with("limit")), "{causes:?}");
}

#[test]
fn connections_per_client() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut setup = Setup { trusted: loopback(), ..Setup::default() };
    setup.limits.connections_per_client = 2;
    let proxy = TestProxy::open(&[app.address()], &setup);
    let enter = |client: &str| {
        let mut stream = proxy.connect(ListenerKind::Plain);
        introduce(&mut stream, client);
        stream
    };
    let mut held = ["198.51.100.1"; 2].map(enter);
    for stream in &mut held {
        echo(stream, b"in");
    }
    assert!(is_turned_away(&enter("198.51.100.1")));
    echo(&mut enter("198.51.100.2"), b"another one");
    drop(held);
    proxy.wait(|totals| totals.active() == 0);
    echo(&mut enter("198.51.100.1"), b"in again");
    assert_eq!(causes(proxy).iter().filter(|cause| *cause == "limit_connections_per_client").count(), 1);
}

#[test]
fn this_machine_and_proxies_are_many_clients() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut setup = Setup::default();
    setup.limits.connections_per_client = 1;
    let proxy = TestProxy::open(&[app.address()], &setup);
    let mut held = [ListenerKind::Plain; 5].map(|kind| proxy.connect(kind));
    held.iter_mut().for_each(|stream| echo(stream, b"from the loopback"));
    drop(held);
    proxy.end();

    let network = |text: &str| vec![Network::new(text.parse().unwrap(), 24)];
    setup.trusted = [loopback(), network("198.51.100.0")].concat();
    setup.trusted_proxies = network("203.0.113.0");
    let proxy = TestProxy::open(&[app.address()], &setup);
    for (kind, client, many) in [
        (ListenerKind::Plain, "198.51.100.7", true),
        (ListenerKind::Http, "203.0.113.7", true),
        // This listener does not know the trusted proxies of others.
        (ListenerKind::Plain, "203.0.113.7", false),
        (ListenerKind::Plain, "192.0.2.7", false),
    ] {
        let mut held = Vec::new();
        for place in 0..3 {
            let mut stream = proxy.connect(kind);
            introduce(&mut stream, client);
            if place > 0 && !many {
                assert!(is_turned_away(&stream), "{client}");
                continue;
            }
            let line = &b"GET / HTTP/1.1\r\n"[..];
            match kind {
                ListenerKind::Http => {
                    stream.write_all(line).unwrap();
                    // Half a request has no answer; one that is turned away ends.
                    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                    let outcome = stream.read(&mut [0; 1]).map_err(|error| error.kind());
                    assert_eq!(outcome, Err(ErrorKind::WouldBlock), "{client}");
                }
                _ => echo(&mut stream, line),
            }
            held.push(stream);
        }
        drop(held);
        proxy.wait(|totals| totals.active() == 0);
    }
}

#[test]
fn handshakes_per_client() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut setup = Setup::default();
    setup.limits.handshakes_per_client = Some(Quota { count: 2, per: Duration::from_secs(3600) });
    let proxy = TestProxy::open(&[app.address()], &setup);
    for _ in 0..2 {
        echo(&mut proxy.tls(), b"in");
    }
    assert!(is_turned_away(&proxy.connect(ListenerKind::Tls)));
    let causes = causes(proxy);
    assert_eq!(causes.iter().filter(|cause| *cause == "limit_handshakes_per_client").count(), 1);
}

#[test]
fn a_believed_header_and_the_hello_behind_it_in_one_piece() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut setup = Setup::default();
    setup.limits.connections_per_client = 1;
    setup.trusted = loopback();
    let proxy = TestProxy::open(&[app.address()], &setup);
    let enter = |client: &str| {
        let mut stream = proxy.connect(ListenerKind::Tls);
        // In the buffer of the kernel before the hello is: most often both are read at once.
        introduce(&mut stream, client);
        shake(stream)
    };
    let mut first = enter("198.51.100.1").unwrap();
    echo(&mut first, b"one");
    let mut other = enter("198.51.100.2").unwrap();
    echo(&mut other, b"two");
    assert!(enter("198.51.100.1").is_err(), "the limit holds for whom the header names");
    drop((first, other));
    let events = proxy.end();
    let mut clients: Vec<_> = events.iter().map(|event| event["client"].as_str().unwrap()).collect();
    clients.sort_unstable();
    assert_eq!(clients, ["198.51.100.1", "198.51.100.1", "198.51.100.2"]);
    assert!(events.iter().all(|event| event["peer"] == "127.0.0.1"));
}

#[test]
fn headers_that_must_not_be_and_headers_that_must() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stranger = proxy.connect(ListenerKind::Tls);
    stranger.write_all(b"PROXY TCP4 198.51.100.1 192.0.2.1 4711 443\r\n").unwrap();
    assert!(is_turned_away(&stranger));
    assert_eq!(causes(proxy), ["proxy_stranger"]);

    let trusted = vec![Network::new("127.0.0.1".parse().unwrap(), 32)];
    let proxy = TestProxy::open(&[app.address()], &Setup { trusted, ..Setup::default() });
    assert!(shake(proxy.connect(ListenerKind::Tls)).is_err());
    let mut broken = proxy.connect(ListenerKind::Plain);
    broken.write_all(b"PROXY TCP4 198.51.100.1 nonsense\r\n").unwrap();
    assert!(is_turned_away(&broken));
    assert_eq!(causes(proxy), ["proxy_malformed", "proxy_missing"]);
}
