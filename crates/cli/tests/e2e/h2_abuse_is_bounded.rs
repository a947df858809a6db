//! What is within the rules of HTTP/2 and still an attack: floods, bombs, windows that never open.
//!
//! Each ends with GOAWAY or a refusal, an event that names the cause, a bounded cost in memory, and a
//! service that others do not find changed.

use std::time::{Duration, Instant};

use crate::h2_follows_rfc9113::http_instance;
use crate::support::figures::resident;
use crate::support::h2_client::kind::{
    CONTINUATION, DATA, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
};
use crate::support::h2_client::{
    ACK, END_HEADERS, END_STREAM, H2, PREFACE, WHOLE, block, data, frame, get, headers, post, request, reset,
    settings, text, window,
};
use crate::support::h2_rules::{CALM, CANCEL, FLOW_CONTROL, PROTOCOL};
use crate::support::instance::{Instance, PATIENCE, cause, text as field};
use crate::support::smuggling_backend::Backend;

/// How often a flood says the same, at the most.
const MOST: u32 = 20_000;
/// How much memory an attack may leave behind.
const SLACK: u64 = 12 << 20;

/// What a flood says first, and then over and over.
struct Flood {
    what: &'static str,
    first: Vec<u8>,
    each: fn(u32) -> Vec<u8>,
    /// How it may end.
    ends: &'static [&'static str],
}

fn flood(what: &'static str, first: Vec<u8>, each: fn(u32) -> Vec<u8>) -> Flood {
    Flood { what, first, each, ends: &["h2_flood", "h2_protocol_error"] }
}

fn floods() -> Vec<Flood> {
    let open = || post(1, "/", &[]);
    vec![
        flood("PING", Vec::new(), |_| frame(PING, 0, 0, &[0; 8])),
        flood("answers to PING", Vec::new(), |_| frame(PING, ACK, 0, &[0; 8])),
        flood("SETTINGS", Vec::new(), |_| settings(&[])),
        flood("SETTINGS that change windows", Vec::new(), |n| settings(&[(4, 100 + n % 2)])),
        flood("acknowledgements", Vec::new(), |_| frame(SETTINGS, ACK, 0, &[])),
        flood("PRIORITY", Vec::new(), |n| frame(PRIORITY, 0, 3 + 2 * n, &[0, 0, 0, 0, 1])),
        flood("WINDOW_UPDATE of the connection", Vec::new(), |_| window(0, 1)),
        flood("WINDOW_UPDATE of a stream", open(), |_| window(1, 1)),
        // Each lets a byte of the response go, which must not pay for the next.
        flood("windows of a byte", [settings(&[(4, 0)]), get(1, "/bytes/100000")].concat(), |_| window(1, 1)),
        flood("empty DATA", open(), |_| data(1, 0, &[])),
        flood("DATA that is all padding", open(), |_| data(1, 8, &[3, 0, 0, 0])),
        flood("GOAWAY with a stream open", open(), |_| frame(GOAWAY, 0, 0, &[0; 8])),
        // Without one the client is let go as soon as it has been listened to, which may be before it is too much.
        Flood {
            ends: &["h2_flood", "client_closed"],
            ..flood("GOAWAY", Vec::new(), |_| frame(GOAWAY, 0, 0, &[0; 8]))
        },
        flood("frames of no known type", Vec::new(), |_| frame(0xf7, 0, 0, b"")),
        flood("resets of one stream", [open(), reset(1, 8)].concat(), |_| reset(1, 8)),
        flood("rapid reset (CVE-2023-44487)", Vec::new(), |n| {
            [get(1 + 2 * n, "/"), reset(1 + 2 * n, 8)].concat()
        }),
        flood("rapid reset of uploads", Vec::new(), |n| {
            [post(1 + 2 * n, "/", &[]), reset(1 + 2 * n, 8)].concat()
        }),
        flood("requests that make us reset (CVE-2025-8671)", Vec::new(), |n| {
            [post(1 + 2 * n, "/", &[]), window(1 + 2 * n, 0)].concat()
        }),
        flood("malformed requests", Vec::new(), |n| headers(1 + 2 * n, WHOLE, &[(":method", "GET")])),
        flood("CONTINUATION without bytes", frame(HEADERS, END_STREAM, 1, &[]), |_| {
            frame(CONTINUATION, 0, 1, &[])
        }),
        flood("CONTINUATION with little", frame(HEADERS, END_STREAM, 1, &[]), |_| {
            frame(CONTINUATION, 0, 1, &block(&[("x-a", "1")]))
        }),
        flood("CONTINUATION with much", frame(HEADERS, END_STREAM, 1, &[]), |_| {
            frame(CONTINUATION, 0, 1, &block(&[("x-a", &"y".repeat(8000))]))
        }),
    ]
}

/// Says it until the connection ends, and gives the code of the GOAWAY.
fn pour(h2: &mut H2, flood: &Flood) -> Option<u32> {
    h2.send(&flood.first);
    for round in 0..MOST / 100 {
        let bytes: Vec<_> = (0..100).flat_map(|n| (flood.each)(round * 100 + n)).collect();
        if !h2.send(&bytes) {
            break;
        }
    }
    let mut code = None;
    while let Some(frame) = h2.next() {
        if frame.kind == GOAWAY && frame.code() != 0 {
            code = Some(frame.code());
        }
    }
    code
}

/// Waits for an event of this connection with one of the causes.
fn tells(instance: &Instance, port: u16, causes: &[&str]) {
    instance.event(&format!("{causes:?} of {port}"), |event| {
        event["client_port"] == port && causes.contains(&cause(event))
    });
}

#[test]
fn floods_are_ended_and_named() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut before = None;
    for flood in floods() {
        let mut h2 = H2::open(&config, instance.address(), &[]);
        let code = pour(&mut h2, &flood);
        // A reset may overtake the GOAWAY, as the client was still talking.
        assert!(matches!(code, None | Some(CALM | PROTOCOL)), "{}: {code:?}", flood.what);
        let port = h2.port;
        drop(h2);
        println!("{}", flood.what);
        tells(&instance, port, flood.ends);
        H2::open(&config, instance.address(), &[]).is_well(1);
        let now = resident(instance.process.id());
        let first = *before.get_or_insert(now);
        assert!(now < first + SLACK, "{}: from {first} to {now} bytes", flood.what);
    }
    instance.stop();
}

/// gRPC libraries measure a connection: for each DATA frame they send a PING, and WINDOW_UPDATE for the connection and
/// for the stream, however small the frame was.
#[test]
fn frames_that_answer_data_are_not_counted_against_a_client() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[]);
    let answers = |id, size| [window(0, size), window(id, size), frame(PING, 0, 0, &[0; 8])].concat();
    let mut id = 1;
    // Far more than time pays for in a burst.
    for _ in 0..100 {
        let asked: Vec<_> = (0..50).map(|n| id + 2 * n).collect();
        h2.send(&asked.iter().flat_map(|id| get(*id, "/well")).collect::<Vec<_>>());
        for _ in &asked {
            let data = h2.find("content", |frame| frame.kind == DATA && !frame.payload.is_empty());
            h2.send(&answers(data.stream, u32::try_from(data.payload.len()).unwrap()));
        }
        id += 100;
    }
    // The same for content that a client sends, which servers take at their leisure.
    for _ in 0..100 {
        let bytes: Vec<_> = (0..20).flat_map(|_| [data(id, 0, b"hello"), answers(id, 5)].concat()).collect();
        h2.send(&[post(id, "/", &[]), bytes, data(id, END_STREAM, b"!")].concat());
        let head = h2.find("answer", |frame| frame.kind == HEADERS && frame.stream == id);
        assert_eq!(head.status(), 200);
        id += 2;
    }
    h2.is_well(id);
    drop(h2);
    instance.stop();
}

/// §6.8: a client that will not ask again gets the answer that it waits for, whatever else it says meanwhile.
#[test]
fn who_says_goodbye_is_answered_to_the_end() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    for _ in 0..5 {
        let mut h2 = H2::open(&config, instance.address(), &[(4, 2 << 20)]);
        h2.send(&[window(0, 2 << 20), get(1, "/bytes/2000000"), frame(GOAWAY, 0, 0, &[0; 8])].concat());
        let (mut have, mut ended) = (0, false);
        while !ended {
            let part = h2.find("data", |frame| frame.kind == DATA);
            have += part.payload.len();
            ended = part.flags & END_STREAM > 0;
            // Nobody reads this any more when the last of the answer is under way.
            h2.send(&frame(PING, 0, 0, &[0; 8]));
        }
        assert_eq!(have, 2_000_000);
        while h2.next().is_some() {}
        tells(&instance, h2.port, &["completed"]);
    }
    instance.stop();
}

/// RFC 7541 §7.1.3, RFC 9113 §10.5.1: few bytes that stand for many.
#[test]
fn bombs_of_fields_are_refused() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let plain = block(&request("GET", "/", &[]));
    // One field of 4000 bytes is put into the table, and meant 12,000 times by one byte each.
    let mut bomb = [&plain[..], &[0x40]].concat();
    text(&mut bomb, b"x-bomb");
    text(&mut bomb, &[b'x'; 4000]);
    bomb.extend_from_slice(&[0xbe; 12_000]);
    let big = "y".repeat(4000);
    let large: Vec<_> = (0..12).map(|_| ("x-large", &big[..])).collect();
    let large = block(&request("GET", "/", &large));
    let many: Vec<_> = (0..150).map(|_| ("x-many", "1")).collect();
    let long = format!("/{}", "p".repeat(9000));
    H2::open(&config, instance.address(), &[]).is_well(1);
    let before = resident(instance.process.id());
    for (what, first, more, status, name) in [
        ("a bomb", &bomb[..16_000], &bomb[16_000..], 431, "headers_too_large"),
        ("48 kB", &large[..16_000], &large[16_000..], 431, "headers_too_large"),
        ("150 fields", &block(&request("GET", "/", &many))[..], &[][..], 431, "headers_too_large"),
        ("a path of 9000 bytes", &block(&request("GET", &long, &[]))[..], &[][..], 414, "target_too_long"),
    ] {
        for _ in 0..5 {
            let mut h2 = H2::open(&config, instance.address(), &[]);
            let mut bytes = frame(HEADERS, END_STREAM, 1, first);
            let parts: Vec<_> = more.chunks(16_000).collect();
            parts.iter().for_each(|part| bytes.extend(frame(CONTINUATION, 0, 1, part)));
            bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
            h2.send(&bytes);
            let end = h2.find(what, |frame| matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY));
            match end.kind {
                HEADERS => assert_eq!(end.status(), status, "{what}"),
                _ => assert!(matches!(end.code(), PROTOCOL | CALM), "{what}: {end:?}"),
            }
            let port = h2.port;
            drop(h2);
            tells(&instance, port, &[name, "h2_protocol_error", "h2_flood"]);
        }
    }
    let now = resident(instance.process.id());
    assert!(now < before + SLACK, "from {before} to {now} bytes");
    instance.stop();
}

/// §6.9.1: no byte above the window, and all of them when it opens.
#[test]
fn windows_of_clients_are_kept() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[(4, 10)]);
    h2.send(&get(1, "/bytes/100000"));
    let mut have = 0;
    // Each time the barrier is answered, what the window allows has come and nothing else.
    for (more, wanted) in [(0, 10), (1, 11), (20_000, 20_011), (45_524, 65_535), (34_465, 65_535)] {
        if more > 0 {
            h2.send(&window(1, more));
        }
        while have < wanted {
            let part = h2.find("data", |frame| frame.kind == DATA);
            have += part.payload.len();
        }
        assert_eq!(have, wanted);
        h2.send(&frame(PING, 0, 0, b"barrier!"));
        let answer = h2.find("answer", |frame| matches!(frame.kind, PING | DATA));
        assert_eq!(answer.kind, PING, "more than the window: {answer:?}");
    }
    // The stream's window is open, the connection's was used up.
    h2.send(&window(0, 100_000));
    while have < 100_000 {
        have += h2.find("data", |frame| frame.kind == DATA).payload.len();
    }
    assert_eq!(have, 100_000);
    h2.is_well(3);
    drop(h2);
    instance.stop();
}

/// A client that asks and then gives no window holds nothing for longer than `idle_timeout`: its stream is reset,
/// and no other.
#[test]
fn windows_that_never_open_end_by_time() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1\n[limits]\nidle_timeout = \"3s\"");
    for size in [0, 1, 100] {
        let mut h2 = H2::open(&config, instance.address(), &[(4, size)]);
        h2.send(&[get(1, "/bytes/1000000"), get(3, "/bytes/20000000")].concat());
        // Both have begun, and taken what their windows allow.
        let (mut begun, mut taken) = (0, 0);
        while begun < 2 || taken < 2 * size as usize {
            let frame = h2.find("answer", |frame| matches!(frame.kind, HEADERS | DATA));
            if frame.kind == DATA { taken += frame.payload.len() } else { begun += 1 }
        }
        // The second goes on slowly for as long as the first stands still.
        h2.patience(Duration::from_millis(20));
        let begun = Instant::now();
        let end = loop {
            match h2.next() {
                Some(frame) if matches!(frame.kind, RST_STREAM | GOAWAY) => break frame,
                Some(_) => {}
                None => {
                    let more = [window(0, 60_000), window(3, 60_000)].concat();
                    assert!(h2.send(&more), "the connection has ended");
                }
            }
            assert!(begun.elapsed() < PATIENCE, "nothing ends");
        };
        assert_eq!((end.kind, end.stream, end.code()), (RST_STREAM, 1, CANCEL), "{end:?}");
        h2.patience(PATIENCE);
        h2.is_well(5);
        let port = h2.port;
        instance.event("the stream that stood still", |event| {
            event["client_port"] == port
                && cause(event) == "idle_timeout"
                && field(event, "path") == "/bytes/1000000"
        });
    }
    instance.stop();
}

/// `request_header_timeout`: a block of fields, or a frame, or the greeting, that has begun is to come to its end.
#[test]
fn what_begins_and_does_not_go_on_ends_by_time() {
    let backend = Backend::start();
    let (instance, config) =
        http_instance(&backend, "workers = 1\n[limits]\nrequest_header_timeout = \"3s\"");
    let whole = get(3, "/");
    for (what, bytes, drip) in [
        ("half of the preface", PREFACE[..9].to_vec(), None),
        ("half of a frame", [PREFACE, &settings(&[]), &whole[..20]].concat(), None),
        (
            "fields without an end",
            [PREFACE, &settings(&[]), &frame(HEADERS, END_STREAM, 1, &[])].concat(),
            None,
        ),
        (
            "fields that drip",
            [PREFACE, &settings(&[]), &frame(HEADERS, END_STREAM, 1, &[])].concat(),
            Some(frame(CONTINUATION, 0, 1, &block(&[("x-a", "1")]))),
        ),
    ] {
        let mut h2 = H2::silent(&config, instance.address());
        h2.send(&bytes);
        h2.patience(Duration::from_millis(200));
        let begun = Instant::now();
        // A client that is still sending may be reset.
        while drip.as_ref().is_none_or(|drip| h2.send(drip)) {
            match h2.next() {
                Some(frame) if frame.kind == GOAWAY => break,
                _ => assert!(begun.elapsed() < PATIENCE, "{what}: nothing ends"),
            }
        }
        let port = h2.port;
        drop(h2);
        println!("{what}");
        tells(&instance, port, &["request_header_timeout"]);
    }
    // Whoever has said all that was begun may take his time.
    let mut h2 = H2::open(&config, instance.address(), &[]);
    for id in [1, 3, 5] {
        h2.is_well(id);
        std::thread::sleep(Duration::from_millis(1700));
    }
    instance.stop();
}

/// §6.9.1: a client that sends more than it was allowed is not listened to.
#[test]
fn windows_of_ours_are_enforced() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    let mut h2 = H2::open(&config, instance.address(), &[]);
    h2.send(&post(1, "/deaf", &[]));
    let mut sent = 0_u64;
    while sent < 64 << 20 && h2.send(&data(1, 0, &[0; 16_384])) {
        sent += 16_384;
    }
    // A reset may overtake what it says, as the client was still talking.
    let mut said = std::iter::from_fn(|| h2.next());
    let end = said.find(|frame| matches!(frame.kind, RST_STREAM | GOAWAY));
    assert!(end.is_none_or(|end| end.code() == FLOW_CONTROL));
    let port = h2.port;
    drop(h2);
    tells(&instance, port, &["h2_protocol_error"]);
    assert!(resident(instance.process.id()) < 200 << 20);
    H2::open(&config, instance.address(), &[]).is_well(1);
    instance.stop();
}
