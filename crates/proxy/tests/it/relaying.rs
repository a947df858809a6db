//! Bytes both ways through every listener, half-closes, and what the events say about it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::num::NonZeroU32;

use offramp_testkit::server::{Listen, Pattern, Server, apps, faults};

use crate::test_proxy::{ListenerKind, Setup, TestProxy, echo, finish, shake};

#[test]
fn an_echo_through_every_listener() {
    let directory = tempfile::tempdir().unwrap();
    for listen in [Listen::Ipv4, Listen::Unix(directory.path().join("app"))] {
        let app = Server::start(&listen, apps::echo).unwrap();
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let mut tls = proxy.tls();
        echo(&mut tls, b"secret");
        let mut plain = proxy.connect(ListenerKind::Plain);
        echo(&mut plain, &[7; 100_000]);
        finish(&mut tls);
        assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0);
        plain.shutdown(Shutdown::Write).unwrap();
        assert_eq!(plain.read(&mut [0; 1]).unwrap(), 0);
        let mut events = proxy.end();
        events.sort_by_key(|event| event["listener"].to_string());
        let [plain, tls] = &events[..] else { panic!("{events:?}") };
        for (event, bytes) in [(plain, 100_000), (tls, 6)] {
            assert_eq!(event["cause"], "client_closed", "{event}");
            assert_eq!(event["bytes_from_client"], bytes);
            assert_eq!(event["bytes_to_client"], bytes);
            assert_eq!(event["server"], app.address().to_string());
            assert_eq!(event["backend"], "app");
        }
        assert_eq!(tls["tls_version"], "TLSv1.3");
        assert_eq!(tls["sni"], "a.test");
        assert_eq!(tls["resumed"], false);
        assert_eq!(tls["tls_group"], "x25519");
        assert_eq!(plain.get("tls_version"), None);
    }
}

#[test]
fn passthrough_reaches_tls_behind_the_proxy() {
    // The proxy is its own backend: what passes is answered by its other listener.
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let inner = TestProxy::open(&[app.address()], &Setup::default());
    let kind = offramp_testkit::server::Address::Tcp(inner.connect(ListenerKind::Tls).peer_addr().unwrap());
    let outer = TestProxy::open(&[&kind], &Setup::default());
    let mut tls = shake(outer.connect(ListenerKind::Passthrough)).unwrap();
    echo(&mut tls, &[3; 300_000]);
    finish(&mut tls);
    assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0);
    drop(tls);
    let event = outer.end_of_one();
    assert_eq!(event["route"], "passthrough");
    assert_eq!(event["sni"], "a.test");
    assert_eq!(event.get("tls_version"), None);
    let causes: Vec<_> = inner.end().iter().map(|event| event["cause"].to_string()).collect();
    assert!(causes.contains(&"\"client_closed\"".to_owned()), "{causes:?}");
}

#[test]
fn large_transfers_arrive_whole_in_both_directions_at_once() {
    const LENGTH: usize = 8 << 20;
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    for kind in [ListenerKind::Plain, ListenerKind::Tls] {
        let mut sent = vec![0; LENGTH];
        Pattern::new(5).fill(&mut sent);
        let back = match kind {
            ListenerKind::Tls => {
                // One thread: a part is written, then read.
                let mut tls = proxy.tls();
                let mut back = vec![0; LENGTH];
                for (out, into) in sent.chunks(100_000).zip(back.chunks_mut(100_000)) {
                    tls.write_all(out).unwrap();
                    tls.read_exact(into).unwrap();
                }
                finish(&mut tls);
                assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0);
                back
            }
            _ => {
                let mut stream = proxy.connect(kind);
                let (mut writer, all) = (stream.try_clone().unwrap(), sent.clone());
                let writing = std::thread::spawn(move || {
                    writer.write_all(&all).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut back = Vec::new();
                stream.read_to_end(&mut back).unwrap();
                writing.join().unwrap();
                back
            }
        };
        assert!(back == sent, "{kind:?}");
    }
    for event in proxy.end() {
        assert_eq!(event["bytes_to_client"], LENGTH);
        assert_eq!(event["bytes_from_client"], LENGTH);
        assert_eq!(event["cause"], "client_closed");
    }
}

#[test]
fn a_client_that_finished_still_gets_its_answer() {
    let app = Server::start(&Listen::Ipv4, faults::answer_after_eof(b"late answer")).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = proxy.tls();
    tls.write_all(b"question").unwrap();
    finish(&mut tls);
    let mut answer = String::new();
    // rustls says `UnexpectedEof` where close_notify is missing.
    tls.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "late answer");
    let mut plain = proxy.connect(ListenerKind::Plain);
    plain.write_all(b"question").unwrap();
    plain.shutdown(Shutdown::Write).unwrap();
    answer.clear();
    plain.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "late answer");
    for event in proxy.end() {
        assert_eq!(event["cause"], "client_closed");
        assert_eq!(event["bytes_from_client"], 8);
    }
}

#[test]
fn a_server_that_finished_still_gets_the_upload() {
    let app = Server::start(&Listen::Ipv4, faults::close_own_side_first(b"greeting")).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut tls = proxy.tls();
    let mut greeting = String::new();
    tls.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "greeting");
    tls.write_all(&[1; 200_000]).unwrap();
    finish(&mut tls);
    let mut plain = proxy.connect(ListenerKind::Plain);
    greeting.clear();
    plain.read_to_string(&mut greeting).unwrap();
    assert_eq!(greeting, "greeting");
    plain.write_all(&[1; 200_000]).unwrap();
    plain.shutdown(Shutdown::Write).unwrap();
    for event in proxy.end() {
        assert_eq!(event["cause"], "server_closed", "{event}");
        assert_eq!(event["bytes_from_client"], 200_000);
    }
}

#[test]
fn sampling_leaves_out_connections_that_went_well() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let rare = Setup { log_one_in: NonZeroU32::new(1_000_000).unwrap(), ..Setup::default() };
    let proxy = TestProxy::open(&[app.address()], &rare);
    for _ in 0..3 {
        let mut plain = proxy.connect(ListenerKind::Plain);
        echo(&mut plain, b"hello");
        plain.shutdown(Shutdown::Write).unwrap();
        assert_eq!(plain.read(&mut [0; 1]).unwrap(), 0);
        let mut tls = proxy.tls();
        echo(&mut tls, b"hello");
        finish(&mut tls);
        assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0);
    }
    // This one leaves without close_notify.
    let mut tls = proxy.tls();
    echo(&mut tls, b"hello");
    tls.sock.shutdown(Shutdown::Both).unwrap();
    proxy.wait(|totals| totals.active() == 0);
    let event = proxy.end_of_one();
    assert_eq!(event["fault"], "client", "{event}");
}
