//! Clients that say what no client should, or go away when they should not: each has its named cause and
//! its counter, leaves nothing behind, and no other connection notices.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use offramp_testkit::server::{Listen, Server, apps};
use offramp_testkit::tls_client::wire::{self, content, handshake, header, message, record};
use offramp_testkit::tls_client::{Client, Event, Options, Received, Seal, Suite};
use serde_json::Value;
use socket2::SockRef;

use crate::support::crowd::{Crowd, tcp, trusting};
use crate::support::figures::{Page, descriptors, resident};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, text};
use crate::support::skipped::sees_inside_or_skipped;

/// What a client does, and the cause by which that ends.
struct Case {
    name: &'static str,
    cause: &'static str,
    run: fn(&mut TcpStream),
}

/// The first version of TLS, as record headers around a ClientHello have it.
const V10: [u8; 2] = [3, 1];

fn send(stream: &mut TcpStream, bytes: &[u8]) {
    // One that is refused already has its event.
    let _ = stream.write_all(bytes);
}

fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Closes with a reset, when it is dropped.
fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn client(stream: &TcpStream) -> Client<TcpStream> {
    Client::new(stream.try_clone().unwrap(), Options::new(Suite::ALL[0])).unwrap()
}

/// A client that has had an answer: nothing of the handshake is under way any more.
fn connected(stream: &TcpStream) -> Client<TcpStream> {
    let mut client = client(stream);
    client.handshake().unwrap();
    client.send(&Seal::data(b"GET /x HTTP/1.1\r\n\r\n")).unwrap();
    while !matches!(client.receive().unwrap(), Received::Event(Event::Data(_))) {}
    client
}

fn hello(stream: &TcpStream) -> Vec<u8> {
    record(content::HANDSHAKE, V10, client(stream).hello())
}

/// Before the handshake.
const GREETINGS: &[Case] = &[
    Case {
        name: "plain HTTP",
        cause: "plain_http",
        run: |stream| {
            send(stream, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let answer = String::from_utf8(answer(stream)).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("speaks TLS"), "{answer}");
        },
    },
    Case {
        name: "plain HTTP with a body that is not read",
        cause: "plain_http",
        run: |stream| {
            send(stream, b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n");
            send(stream, &vec![b'x'; 300_000]);
            let answer = String::from_utf8(answer(stream)).unwrap();
            assert!(answer.starts_with("HTTP/1.1 400 "), "a reset has overtaken the answer: {answer:?}");
        },
    },
    Case { name: "garbage", cause: "not_tls", run: |stream| send(stream, &[0xde; 400]) },
    Case { name: "SSH", cause: "not_tls", run: |stream| send(stream, b"SSH-2.0-OpenSSH_9.2\r\n") },
    Case { name: "nothing", cause: "client_silent", run: |stream| stream.shutdown(Shutdown::Write).unwrap() },
    Case {
        name: "a hello that is cut off",
        cause: "handshake_abandoned",
        run: |stream| {
            let hello = hello(stream);
            send(stream, &hello[..hello.len() / 2]);
            stream.shutdown(Shutdown::Write).unwrap();
        },
    },
    Case {
        name: "a hello that is cut off by a reset",
        cause: "client_reset",
        run: |stream| {
            let hello = hello(stream);
            send(stream, &hello[..hello.len() / 2]);
            reset(stream);
        },
    },
    Case {
        name: "a hello that ends after its flight was answered",
        cause: "handshake_abandoned",
        run: |stream| {
            let mut client = client(stream);
            client.send_hello().unwrap();
            client.receive_server_flight().unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        },
    },
    Case {
        name: "a hello of 16 MiB",
        cause: "client_hello_too_large",
        run: |stream| {
            let start = [&[message::CLIENT_HELLO, 0xff, 0xff, 0xff][..], &[0; 1000]].concat();
            send(stream, &record(content::HANDSHAKE, V10, &start));
            answer(stream);
        },
    },
    Case {
        name: "a record of 64 KiB",
        cause: "client_hello_too_large",
        run: |stream| {
            send(stream, &header(content::HANDSHAKE, V10, 0xffff));
            send(stream, &[1; 20_000]);
            answer(stream);
        },
    },
    Case {
        name: "a hello that makes no sense",
        cause: "client_hello_malformed",
        run: |stream| {
            send(stream, &record(content::HANDSHAKE, V10, &handshake(message::CLIENT_HELLO, &[3, 3, 1, 2])));
            answer(stream);
        },
    },
    Case {
        name: "another message than a hello",
        cause: "unexpected_message",
        run: |stream| {
            send(stream, &record(content::HANDSHAKE, V10, &handshake(message::FINISHED, &[0; 32])));
            answer(stream);
        },
    },
    Case {
        name: "an old PROXY header from a stranger",
        cause: "proxy_stranger",
        run: |stream| send(stream, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n"),
    },
    Case {
        name: "a new PROXY header from a stranger",
        cause: "proxy_stranger",
        run: |stream| send(stream, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0"),
    },
];

/// After the handshake.
const RECORDS: &[Case] = &[
    Case {
        name: "a reset",
        cause: "client_reset",
        run: |stream| {
            drop(connected(stream));
            reset(stream);
        },
    },
    Case { name: "an end without goodbye", cause: "client_vanished", run: |stream| drop(connected(stream)) },
    Case {
        name: "an end in the middle of a record",
        cause: "client_truncated",
        run: |stream| {
            let record = connected(stream).seal(&Seal::data(&[7; 100]));
            send(stream, &record[..50]);
        },
    },
    Case {
        name: "a flipped bit",
        cause: "bad_record_mac",
        run: |stream| {
            let mut record = connected(stream).seal(&Seal::data(&[7; 100]));
            record[40] ^= 1;
            send(stream, &record);
            answer(stream);
        },
    },
    Case {
        name: "records in the wrong order",
        cause: "bad_record_mac",
        run: |stream| {
            let mut client = connected(stream);
            let records = [&[1; 10], &[2; 10]].map(|data| client.seal(&Seal::data(data)));
            send(stream, &[&records[1][..], &records[0]].concat());
            answer(stream);
        },
    },
    Case {
        name: "a record that is too long",
        cause: "record_overflow",
        run: |stream| {
            drop(connected(stream));
            send(stream, &record(content::APPLICATION_DATA, wire::VERSION_12, &[0; 20_000]));
            answer(stream);
        },
    },
    Case {
        name: "plain data behind the handshake",
        cause: "unexpected_message",
        run: |stream| {
            drop(connected(stream));
            send(
                stream,
                &record(content::HANDSHAKE, wire::VERSION_12, &handshake(message::CLIENT_HELLO, b"")),
            );
            answer(stream);
        },
    },
];

/// To a listener that believes this source.
const BELIEVED: &[Case] = &[
    Case {
        name: "no PROXY header",
        cause: "proxy_missing",
        run: |stream| {
            let hello = hello(stream);
            send(stream, &hello);
            answer(stream);
        },
    },
    Case {
        name: "no PROXY header before the end",
        cause: "proxy_missing",
        run: |stream| {
            send(stream, b"PROXY TCP4 192.0.2.1");
            stream.shutdown(Shutdown::Write).unwrap();
        },
    },
    Case {
        name: "a PROXY line that makes no sense",
        cause: "proxy_malformed",
        run: |stream| send(stream, b"PROXY TCP4 here there 1 443\r\n"),
    },
    Case {
        name: "a PROXY line without end",
        cause: "proxy_malformed",
        run: |stream| send(stream, &[&b"PROXY TCP4 "[..], &[b'1'; 200]].concat()),
    },
    Case {
        name: "a PROXY block with a wrong checksum",
        cause: "proxy_malformed",
        run: |stream| {
            let addresses = [192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 1, 187];
            let checksum = [3, 0, 4, 0xde, 0xad, 0xbe, 0xef];
            send(stream, &[&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13"[..], &addresses, &checksum].concat());
        },
    },
    Case {
        name: "half of a PROXY line, and then nothing",
        cause: "proxy_timeout",
        run: |stream| {
            send(stream, b"PROXY TCP4 192.0.2.1");
            answer(stream);
        },
    },
];

fn instance(app: &Server) -> Instance {
    // Long enough for those who mean well on a machine that is busy.
    let limits = "[limits]\nhandshake_timeout = \"4s\"\n";
    let believing = "[[listener]]\nname = \"believing\"\naddress = \"[::1]:0\"\naccept_proxy = [\"::1\"]\n";
    Home::new().run(&format!(
        "workers = 2\n{limits}[metrics]\naddress = \"127.0.0.1:0\"\n{CERTIFICATE}{LISTENER}{believing}\
         [[route]]\nserver = \"{}\"\n",
        app.address()
    ))
}

/// Runs a case and checks its event.
fn encounter(instance: &Instance, case: &Case, believing: bool) {
    let listener = if believing { "believing" } else { "default" };
    let before = instance.events().len();
    let mut stream = tcp(instance.address_of(listener)).unwrap();
    let port = stream.local_addr().unwrap().port();
    (case.run)(&mut stream);
    drop(stream);
    let event = instance.until(case.name, || {
        let is = |event: &Value| event["listener"] == listener && event["client_port"] == port;
        instance.events().into_iter().skip(before).find(is)
    });
    assert_eq!(text(&event, "cause"), case.cause, "{}: {event}", case.name);
    assert_eq!(text(&event, "fault"), if case.cause == "client_silent" { "nobody" } else { "client" });
}

#[test]
fn every_fault_has_its_name_and_nobody_else_notices() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = instance(&app);
    let crowd = Crowd::send(2, &trusting(&instance.home.ca.certificate()), instance.address(), "localhost");
    crowd.busy(10);
    let mut expected = std::collections::BTreeMap::new();
    for (cases, believing) in [(GREETINGS, false), (RECORDS, false), (BELIEVED, true)] {
        for case in cases {
            encounter(&instance, case, believing);
            *expected.entry(case.cause).or_insert(0.0) += 1.0;
        }
    }
    crowd.busy(10);
    let tally = crowd.stop();
    assert!(tally.failures.is_empty() && tally.turned_away == 0, "{tally:?}");
    let page = Page::scrape(instance.metrics());
    for (cause, count) in expected {
        assert_eq!(page.closed(cause), count, "{cause}");
    }
    instance.stop();
}

#[test]
fn nothing_is_left_behind() {
    if !sees_inside_or_skipped() {
        return;
    }
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = instance(&app);
    let process = instance.process.id();
    let quick = || {
        let quick = GREETINGS.iter().filter(|case| case.cause != "proxy_timeout").chain(RECORDS);
        quick.for_each(|case| encounter(&instance, case, false));
    };
    // The first round pays for what is kept for good.
    quick();
    instance.until("nothing is open", || {
        (Page::scrape(instance.metrics()).get("offramp_connections_active") == 0.0).then_some(())
    });
    let (files, memory) = (descriptors(process).len(), resident(process));
    for _ in 0..8 {
        quick();
    }
    instance.until("all descriptors are closed", || (descriptors(process).len() <= files).then_some(()));
    let grown = resident(process).saturating_sub(memory);
    assert!(grown < 4 << 20, "{grown} bytes more");
    instance.stop();
}
