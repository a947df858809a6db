//! The rules of RFC 9113, section by section, said byte for byte to the real binary.
//!
//! Each row has a connection of its own. What follows must be what the RFC asks for, the event must name
//! the cause, and a fresh connection must work behind it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::support::crowd::trusting;
use crate::support::h2_client::kind::{GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS};
use crate::support::h2_client::{ACK, H2, PREFACE, frame, get, reset, settings};
use crate::support::h2_messages::{lengths, names_and_values, order, pseudo_fields, pseudo_values};
use crate::support::h2_rules::{Connection, FRAME_SIZE, Nothing, PROTOCOL, Row, Status, Stream, Then};
use crate::support::h2_rules::{
    compression, frames, numbers, of_blocks, of_connections, of_streams, streams,
};
use crate::support::instance::{Home, Instance, PATIENCE, cause};
use crate::support::smuggling_backend::Backend;

/// One route for HTTP to `backend`, with `more` as configuration.
pub(crate) fn http_instance(backend: &Backend, more: &str) -> (Instance, Arc<ClientConfig>) {
    let home = Home::new();
    let config = trusting(&home.ca.certificate());
    let text = format!(
        "{more}\n{}[[listener]]\nname = \"default\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n[[route]]\nserver = \"{}\"\n",
        crate::support::instance::CERTIFICATE,
        backend.address()
    );
    (home.run(&text), config)
}

/// Says a row on a connection of its own; what followed, and the connection's port.
fn say(instance: &Instance, config: &Arc<ClientConfig>, row: &Row) -> (Option<Then>, u16) {
    let mut h2 = H2::open(config, instance.address(), &[]);
    // In one piece: what comes behind the end of a connection may be answered by a reset, which overtakes GOAWAY.
    h2.send(&[&row.bytes[..], &frame(PING, 0, 0, b"and then")].concat());
    let then = follow(&mut h2, row);
    match then {
        Some(Connection(_)) => assert!(h2.next().is_none(), "§{} {}: it goes on", row.section, row.what),
        Some(_) => {
            if row.stream > 200 {
                // There is room for another stream then.
                h2.send(&reset(1, 8));
            }
            h2.is_well(1001);
        }
        None => {}
    }
    (then, h2.port)
}

fn follow(h2: &mut H2, row: &Row) -> Option<Then> {
    while let Some(frame) = h2.next() {
        match frame.kind {
            GOAWAY if frame.code() != 0 => return Some(Connection(frame.code())),
            RST_STREAM if frame.stream == row.stream => return Some(Stream(frame.code())),
            HEADERS if frame.stream == row.stream => return Some(Status(frame.status())),
            PING if frame.payload == b"and then" && row.then.contains(&Nothing) => return Some(Nothing),
            _ => {}
        }
    }
    None
}

/// Whether `then` is what is `wanted`, or more: an error of a stream may be one of the connection (§5.4.1).
fn is_as_good(then: Then, wanted: Then) -> bool {
    then == wanted || matches!((then, wanted), (Connection(is), Stream(was)) if is == was)
}

/// Whether an event tells of what followed on the connection from `port`.
fn told(instance: &Instance, port: u16, then: Then) -> bool {
    let wanted: &[&str] = match then {
        Connection(_) | Stream(_) => &["h2_protocol_error", "h2_flood"],
        Status(200..=299) => &["completed"],
        Status(431) => &["headers_too_large"],
        Status(_) => &["bad_request", "misdirected"],
        Nothing => return true,
    };
    let of = |event: &serde_json::Value| event["client_port"] == port && wanted.contains(&cause(event));
    let deadline = std::time::Instant::now() + PATIENCE;
    while std::time::Instant::now() < deadline {
        if instance.events().iter().any(of) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn hold(rows: impl IntoIterator<Item = Row>) {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut wrong = BTreeMap::new();
    for row in rows {
        let (then, port) = say(&instance, &config, &row);
        let name = format!("§{} {}", row.section, row.what);
        if !then.is_some_and(|then| row.then.iter().any(|wanted| is_as_good(then, *wanted))) {
            wrong.insert(name, format!("{then:?} instead of {:?}", row.then));
        } else if !told(&instance, port, then.unwrap()) {
            let events = instance.events().into_iter().filter(|event| event["client_port"] == port);
            let causes: Vec<_> = events.map(|event| cause(&event).to_owned()).collect();
            wrong.insert(name, format!("{then:?}, but the events say {causes:?}"));
        }
        H2::open(&config, instance.address(), &[]).is_well(1);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    instance.stop();
}

#[test]
fn frames_of_section_4() {
    hold(frames().into_iter().chain(compression()));
}

#[test]
fn streams_of_section_5() {
    hold(streams().into_iter().chain(numbers()));
}

#[test]
fn frame_types_of_section_6() {
    hold(of_streams().into_iter().chain(of_connections()).chain(of_blocks()));
}

#[test]
fn messages_of_section_8() {
    hold(order().into_iter().chain(lengths()).chain(names_and_values()));
}

#[test]
fn pseudo_fields_of_section_8() {
    hold(pseudo_fields().into_iter().chain(pseudo_values()));
}

/// §3.4: both sides begin with a preface, and settings are acknowledged (§6.5.3).
#[test]
fn prefaces_of_section_3() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[]);
    let first = h2.next().unwrap();
    assert!(first.kind == SETTINGS && first.flags == 0, "{first:?}");
    h2.find("acknowledgement", |frame| frame.kind == SETTINGS && frame.flags == ACK);
    h2.send(&settings(&[(4, 1)]));
    h2.find("second acknowledgement", |frame| frame.kind == SETTINGS && frame.flags == ACK);
    h2.is_well(1);
    drop(h2);
    for (bytes, wanted) in [
        (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(), PROTOCOL),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(), PROTOCOL),
        (b"\0\0\0\x04\0\0\0\0\0 and a little more of it".to_vec(), PROTOCOL),
        ([PREFACE, &frame(SETTINGS, 0, 0, &[0; 5])].concat(), FRAME_SIZE),
        ([PREFACE, &get(1, "/")].concat(), PROTOCOL),
        ([PREFACE, &frame(SETTINGS, ACK, 0, &[])].concat(), PROTOCOL),
    ] {
        let mut h2 = H2::silent(&config, instance.address());
        h2.send(&bytes);
        let mut code = None;
        while let Some(frame) = h2.next() {
            assert!(frame.kind != HEADERS, "{} is answered", bytes.escape_ascii());
            code = (frame.kind == GOAWAY).then(|| frame.code()).or(code);
        }
        assert!(code.is_none_or(|code| code == wanted), "{} gets {code:?}", bytes.escape_ascii());
        let port = h2.port;
        drop(h2);
        assert!(told(&instance, port, Connection(PROTOCOL)), "nobody tells of {}", bytes.escape_ascii());
        H2::open(&config, instance.address(), &[]).is_well(1);
    }
    assert_eq!(backend.take().1.len(), 7);
    instance.stop();
}
