//! What clients of HTTP/2 can have pinned: much is asked or sent, and nothing is taken.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use offramp_testkit::process::{Signal, Source};
use offramp_testkit::server::{Listen, Server, Stream};
use rustls::ClientConfig;

use crate::h2_follows_rfc9113::http_instance;
use crate::quiet_http_connections_wake_nobody::sleeps;
use crate::support::crowd::trusting;
use crate::support::figures::{Page, resident};
use crate::support::h2_client::kind::{DATA, HEADERS, PING, RST_STREAM, WINDOW_UPDATE};
use crate::support::h2_client::{H2, data, frame, get, post, window};
use crate::support::http_curl::HTTP;
use crate::support::http_node::node;
use crate::support::instance::{CERTIFICATE, Home, Instance};
use crate::support::smuggling_backend::Backend;

/// The code of a stream that was not looked at (RFC 9113 §7).
const REFUSED_STREAM: u32 = 7;
/// Streams of a connection.
const STREAMS: u32 = 100;
/// What one connection may hold by the constants that bound it, if all of them are met at once; see
/// `what_a_connection_can_hold_is_known`.
const MOST: u64 = 2924 << 10;
/// The same where servers speak HTTP/2: they may send 896 KiB ahead in the place of 176 KiB of first reads, and 256 KiB
/// beyond; see docs/inside/http.md.
const MOST_FROM_HTTP2: u64 = MOST + ((896 - 176 + 256) << 10);

/// Memory when the worker has done what there was to do: it sleeps, however often one looks.
fn settled(instance: &Instance) -> u64 {
    const LOOKS: usize = 20;
    let asleep = Cell::new(0);
    instance.until("the worker has nothing to do", || {
        asleep.set(if sleeps(instance) { asleep.get() + 1 } else { 0 });
        (asleep.get() >= LOOKS).then(|| resident(instance.process.id()))
    })
}

/// A client that takes a little of each of many large responses, so that they get going, and then nothing more.
#[test]
fn responses_that_nobody_takes_hold_little() {
    let backend = Backend::start();
    let (instance, config) = http_instance(&backend, "workers = 1");
    H2::open(&config, instance.address(), &[]).is_well(1);
    take_little(&instance, &config, "/bytes/600000", MOST);
    instance.stop();
}

/// The same for responses in small chunks: of each little waits, and much was read with it.
#[test]
fn responses_in_chunks_that_nobody_takes_hold_little() {
    let home = Home::new();
    let config = trusting(&home.ca.certificate());
    let server = Server::start(&Listen::Unix(home.file("app.sock")), |mut stream: Stream| {
        let _ = stream.read(&mut [0; 4096]);
        let chunks = format!("64\r\n{}\r\n", "x".repeat(100)).repeat(2000);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while stream.write_all(chunks.as_bytes()).is_ok() {}
    });
    let instance =
        home.run(&format!("workers = 1\n{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"));
    take_little(&instance, &config, "/", MOST);
    instance.process.signal(Signal::KILL).unwrap();
    drop(server);
}

/// A server of HTTP/2 whose responses never end.
const ENDLESS: &str = r"
const http2 = require('http2'), piece = Buffer.alloc(16384);
const server = http2.createServer();
server.on('stream', stream => {
  stream.on('error', () => {});
  stream.respond({ ':status': 200 });
  const write = () => { while (!stream.destroyed && stream.write(piece)); };
  stream.on('drain', write);
  write();
});
server.listen('app.sock');
";

/// The same for an HTTP/2 server: what it may send ahead is counted. Windows are kept from growing, as a busy machine
/// looks like a long path; [`downloads_over_a_distance`](crate::downloads_over_a_distance) tests the bound of those.
#[test]
fn responses_of_http2_servers_that_nobody_takes_hold_little() {
    let home = Home::new();
    let config = trusting(&home.ca.certificate());
    let server = node(&home, ENDLESS);
    let instance = home.run(&format!(
        "workers = 1\n[limits]\nmax_window = \"256KiB\"\n{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n[backend.app]\nservers = [\"unix:app.sock\"]\n\
         protocol = \"h2\"\n"
    ));
    take_little(&instance, &config, "/", MOST_FROM_HTTP2);
    instance.process.signal(Signal::KILL).unwrap();
    drop(server);
}

fn take_little(instance: &Instance, config: &Arc<ClientConfig>, path: &str, most: u64) {
    let before = resident(instance.process.id());
    let mut clients: Vec<_> = (0..2).map(|_| H2::open(config, instance.address(), &[(4, 1 << 30)])).collect();
    for h2 in &mut clients {
        let all: Vec<u8> = (0..STREAMS).flat_map(|n| get(1 + 2 * n, path)).collect();
        h2.send(&[window(0, 1 << 30), all].concat());
        let mut taken = HashMap::new();
        while taken.len() < STREAMS as usize || taken.values().any(|taken| *taken < 100_000) {
            let part = h2.find("data", |frame| frame.kind == DATA);
            *taken.entry(part.stream).or_insert(0) += part.payload.len();
        }
    }
    let held = settled(instance).saturating_sub(before) / clients.len() as u64;
    println!("{held} bytes for a connection with {STREAMS} responses that are not taken");
    assert!(held < most, "{held} bytes for a connection with {STREAMS} responses that are not taken");
    drop(clients);
}

/// What the requests of a worker hold is bounded by `limits.memory`. The metrics and the log say so, and a reload holds
/// for connections that are open.
#[test]
fn a_worker_holds_no_more_than_its_memory() {
    const MANY: u32 = 300;
    let home = Home::new();
    let config = trusting(&home.ca.certificate());
    let (over, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let server = Server::start(&Listen::Unix(home.file("app.sock")), move |mut stream: Stream| {
        let _ = stream.read(&mut [0; 4096]);
        drop(wait.lock().map(|wait| wait.recv()));
    });
    let text = |memory: &str| {
        format!(
            "workers = 1\n[metrics]\naddress = \"127.0.0.1:0\"\n[limits]\nmemory = \"{memory}\"\nstreams = {MANY}\n\
             {CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"
        )
    };
    let instance = home.run(&text("1MiB"));
    let page = || Page::scrape(instance.metrics());
    let mut h2 = H2::open(&config, instance.address(), &[]);
    let mut ask = |from: u32, count: u32| {
        let all: Vec<u8> = (0..count).flat_map(|n| get(from + 2 * n, "/")).collect();
        h2.send(&[&all[..], &frame(PING, 0, 0, b"and then")].concat());
        let mut refused = 0;
        loop {
            match h2.next().expect("the connection ended") {
                part if part.kind == PING => return refused,
                part if part.kind == RST_STREAM => {
                    assert_eq!(part.code(), REFUSED_STREAM);
                    refused += 1;
                }
                _ => {}
            }
        }
    };
    let refused = ask(1, MANY);
    assert!((40..140).contains(&refused), "{refused} of {MANY} were refused");
    let figures = page();
    let used = figures.get("offramp_limit_used{limit=\"memory\"}");
    assert!((900_000.0..=1_048_576.0).contains(&used), "{used}");
    assert_eq!(figures.get("offramp_limit{limit=\"memory\"}"), 1_048_576.0);
    assert_eq!(figures.get("offramp_limit_refusals_total{limit=\"memory\"}"), f64::from(refused));
    instance.until("the line of the log", || {
        let lines = instance.process.lines(Source::Stderr);
        lines.into_iter().find(|line| line.contains("limit=memory ") && line.contains("key=limits.memory"))
    });
    let outcome = crate::reload_loses_no_request::reload_to(&instance, &text("64MiB"));
    assert!(outcome.contains(" reloaded "), "{outcome}");
    assert_eq!(ask(1 + 2 * MANY, 10), 0, "a reload holds for connections that are open");
    assert_eq!(page().get("offramp_limit{limit=\"memory\"}"), 67_108_864.0);
    drop(h2);
    instance.until("nothing is held", || {
        (page().get("offramp_limit_used{limit=\"memory\"}") == 0.0).then_some(())
    });
    drop(over);
    instance.stop();
    drop(server);
}

/// A client that sends as much as its windows allow to servers that take nothing.
#[test]
fn requests_that_no_server_takes_hold_little() {
    let home = Home::new();
    let config = trusting(&home.ca.certificate());
    let (over, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    // Reads heads, which come first, and then nothing until all is over. What the kernel takes is its own.
    let server = Server::start(&Listen::Unix(home.file("app.sock")), move |mut stream: Stream| {
        let _ = stream.read(&mut [0; 16]);
        drop(wait.lock().map(|wait| wait.recv()));
    });
    let instance = home.run(&format!(
        "workers = 1\n[limits]\nmin_body_rate = \"0B\"\n{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"
    ));
    let mut h2 = H2::open(&config, instance.address(), &[]);
    h2.send(&(0..STREAMS).flat_map(|n| post(1 + 2 * n, "/", &[])).collect::<Vec<_>>());
    let before = settled(&instance);
    // The windows of the connection and of each stream, as they were announced.
    let mut windows: HashMap<u32, usize> = (0..STREAMS).map(|n| (1 + 2 * n, 256 * 1024)).collect();
    windows.insert(0, 1024 * 1024);
    h2.patience(Duration::from_millis(500));
    let mut sent = 0;
    loop {
        let open: Vec<u32> = windows.keys().copied().filter(|id| *id > 0).collect();
        for id in open {
            // As much as there is room for, at once: it is taken in one piece.
            let frames = windows[&0].min(windows[&id]) / 16_384;
            h2.send(&data(id, 0, &[7; 16_384]).repeat(frames));
            sent += frames * 16_384;
            *windows.get_mut(&0).unwrap() -= frames * 16_384;
            *windows.get_mut(&id).unwrap() -= frames * 16_384;
        }
        match h2.next() {
            Some(frame) if frame.kind == WINDOW_UPDATE => {
                *windows.get_mut(&frame.stream).unwrap() += frame.code() as usize;
            }
            Some(frame) => assert!(frame.kind != HEADERS, "{frame:?}"),
            // Nothing more may be sent.
            None => break,
        }
    }
    let held = settled(&instance).saturating_sub(before);
    println!("{held} bytes for a connection that has sent {sent} on {STREAMS} streams");
    assert!(held < MOST, "{held} bytes for a connection that has sent {sent} on {STREAMS} streams");
    drop((h2, over));
    instance.process.signal(Signal::KILL).unwrap();
    drop(server);
}
