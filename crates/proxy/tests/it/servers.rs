//! Servers that refuse, fail over, reset, or answer without listening to the end.

use std::io::{Read, Write};
use std::net::Shutdown;

use offramp_proxy::SendProxy;
use offramp_testkit::server::{Listen, Recording, Refusing, Server, Stream, apps, faults};

use crate::test_proxy::{ListenerKind, PATIENCE, Setup, TestProxy, echo, finish};

#[test]
fn the_next_server_is_tried_where_one_refuses() {
    let refusing = Refusing::new(&Listen::Ipv4).unwrap();
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let proxy = TestProxy::open(&[refusing.address(), app.address()], &Setup::default());
    for _ in 0..4 {
        let mut tls = proxy.tls();
        echo(&mut tls, b"anyone?");
        finish(&mut tls);
        assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0);
    }
    let events = proxy.end();
    assert!(events.iter().all(|event| event["server"] == app.address().to_string()));
    // The first was passed over once, and is no first choice for a second.
    assert_eq!(events.iter().filter(|event| event["tries"] == 2).count(), 1, "{events:?}");
}

#[test]
fn nobody_is_there() {
    let refusing = Refusing::new(&Listen::Ipv4).unwrap();
    let proxy = TestProxy::open(&[refusing.address()], &Setup::default());
    let mut tls = proxy.tls();
    let error = tls.read(&mut [0; 1]).unwrap_err().to_string();
    assert!(error.contains("InternalError"), "{error}");
    drop(tls);
    let event = proxy.end_of_one();
    assert_eq!(event["cause"], "server_refused");
    assert_eq!(event["fault"], "server");
    assert_eq!(event["alert_sent"], "internal_error");
}

#[test]
fn a_reset_in_the_middle_is_no_orderly_end_for_the_client() {
    let app = Server::start(&Listen::Ipv4, faults::reset_in_the_middle(b"half an ans")).unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Plain] {
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let mut answer = Vec::new();
        let outcome = if kind == ListenerKind::Tls {
            let mut tls = proxy.tls();
            tls.write_all(b"question").unwrap();
            tls.read_to_end(&mut answer)
        } else {
            let mut plain = proxy.connect(kind);
            plain.write_all(b"question").unwrap();
            plain.read_to_end(&mut answer)
        };
        assert!(outcome.is_err(), "{kind:?}: {}", answer.escape_ascii());
        let event = proxy.end_of_one();
        assert_eq!(event["cause"], "server_reset", "{kind:?}");
    }
}

#[test]
fn a_reset_of_the_client_is_no_orderly_end_for_the_server() {
    for (kind, finished) in [
        (ListenerKind::Tls, false),
        (ListenerKind::Plain, false),
        (ListenerKind::Tls, true),
        (ListenerKind::Plain, true),
    ] {
        let (tell, ends) = std::sync::mpsc::channel();
        let app = Server::start(&Listen::Ipv4, move |mut stream: Stream| {
            if finished {
                let _ = stream.shutdown(Shutdown::Write);
            }
            let _ = tell.send(stream.read_to_end(&mut Vec::new()).map(drop));
        })
        .unwrap();
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let mut socket = if kind == ListenerKind::Tls {
            let mut tls = proxy.tls();
            tls.write_all(b"half an upl").unwrap();
            if finished {
                assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0);
            }
            tls.sock
        } else {
            let mut plain = proxy.connect(kind);
            plain.write_all(b"half an upl").unwrap();
            plain
        };
        if finished {
            let _ = socket.read(&mut [0; 1]).unwrap();
        }
        proxy.wait(|totals| totals.bytes_relayed(offramp_observe::counters::Direction::ClientToServer) > 0);
        Stream::Tcp(socket).reset_on_close().unwrap();
        assert!(
            ends.recv_timeout(PATIENCE).unwrap().is_err(),
            "{kind:?} {finished}: it looked like an orderly end"
        );
        let cause = if finished { "server_closed" } else { "client_reset" };
        assert_eq!(proxy.end_of_one()["cause"], cause, "{kind:?}");
    }
}

/// An application that answers an upload before it has read it, and leaves: a 413, say.
fn answer_and_leave(mut stream: Stream) {
    let mut first = [0; 1024];
    let _ = stream.read(&mut first);
    let _ = stream.write_all(&[b'!'; 50_000]);
    let _ = stream.shutdown(Shutdown::Write);
}

#[test]
fn an_answer_in_the_middle_of_an_upload_arrives() {
    let directory = tempfile::tempdir().unwrap();
    for listen in [Listen::Ipv4, Listen::Unix(directory.path().join("app"))] {
        let app = Server::start(&listen, answer_and_leave).unwrap();
        for kind in [ListenerKind::Tls, ListenerKind::Plain] {
            let proxy = TestProxy::open(&[app.address()], &Setup::default());
            let mut answer = Vec::new();
            // Until the upload fails or is over; then what was answered must still be there.
            if kind == ListenerKind::Tls {
                let mut tls = proxy.tls();
                for _ in 0..60 {
                    let _ = tls.write_all(&[0; 100_000]);
                }
                let _ = tls.read_to_end(&mut answer);
            } else {
                let mut plain = proxy.connect(kind);
                for _ in 0..60 {
                    let _ = plain.write_all(&[0; 100_000]);
                }
                let _ = plain.read_to_end(&mut answer);
            }
            assert_eq!(answer.len(), 50_000, "{kind:?} {listen:?}");
            let event = proxy.end_of_one();
            assert_eq!(event["bytes_to_client"], 50_000);
            assert!(event["cause"] == "server_closed" || event["cause"] == "server_reset", "{event}");
        }
    }
}

#[test]
fn the_server_is_told_who_the_client_is() {
    for version in [SendProxy::V1, SendProxy::V2 { tls: true, crc32c: true, client_certificate: false }] {
        let (app, recording) = Recording::start(&Listen::Ipv4).unwrap();
        let proxy =
            TestProxy::open(&[app.address()], &Setup { send_proxy: Some(version), ..Setup::default() });
        let mut tls = proxy.tls();
        tls.write_all(b"question").unwrap();
        let client = tls.sock.local_addr().unwrap();
        let seen = recording.wait_until(PATIENCE, |all| all.iter().any(|one| one.ends_with(b"question")));
        let seen = seen.unwrap().remove(0);
        let offramp_wire::ParseStep::Done { value, consumed } = offramp_wire::proxy::parse(&seen) else {
            panic!("{}", seen.escape_ascii())
        };
        let offramp_wire::proxy::ProxyAddresses::Tcp { source, .. } = value.addresses else {
            panic!("{value:?}")
        };
        assert_eq!(source, client);
        assert_eq!(&seen[consumed..], b"question");
        if version != SendProxy::V1 {
            assert_eq!(value.tlvs.authority(), Some("a.test"));
        }
        drop(tls);
        proxy.end();
    }
}
