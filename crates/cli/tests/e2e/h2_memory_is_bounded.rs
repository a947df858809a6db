//! What clients of HTTP/2 can have pinned: much is asked or sent, and nothing is taken.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use offramp_testkit::process::Signal;
use offramp_testkit::server::{Listen, Server, Stream};

use crate::crowd::trusting;
use crate::figures::resident;
use crate::h2_client::kind::{DATA, HEADERS, WINDOW_UPDATE};
use crate::h2_client::{H2, data, get, post, window};
use crate::h2_follows_rfc9113::http_house;
use crate::house::{CERTIFICATE, Home, House, PATIENCE};
use crate::http_curl::HTTP;
use crate::smuggling_backend::Backend;

/// Streams of a connection.
const STREAMS: u32 = 100;
/// What one connection may hold by the constants that bound it, if all of them are met at once.
const MOST: u64 = 8 << 20;

/// Memory when it has stopped to grow.
fn settled(house: &House) -> u64 {
    let (mut last, begun) = (resident(house.process.id()), Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = resident(house.process.id());
        if now <= last || begun.elapsed() > PATIENCE {
            return now.max(last);
        }
        last = now;
    }
}

/// A client that takes a little of each of many large responses, so that they get going, and then nothing more.
#[test]
fn responses_that_nobody_takes_hold_little() {
    let backend = Backend::start();
    let (house, config) = http_house(&backend, "workers = 1");
    H2::open(&config, house.address(), &[]).is_well(1);
    let before = resident(house.process.id());
    let mut clients: Vec<_> = (0..2).map(|_| H2::open(&config, house.address(), &[(4, 1 << 30)])).collect();
    for h2 in &mut clients {
        let all: Vec<u8> = (0..STREAMS).flat_map(|n| get(1 + 2 * n, "/bytes/600000")).collect();
        h2.send(&[window(0, 1 << 30), all].concat());
        let mut taken = HashMap::new();
        while taken.len() < STREAMS as usize || taken.values().any(|taken| *taken < 100_000) {
            let part = h2.find("data", |frame| frame.kind == DATA);
            *taken.entry(part.stream).or_insert(0) += part.payload.len();
        }
    }
    let held = settled(&house).saturating_sub(before) / clients.len() as u64;
    println!("{held} bytes for a connection with {STREAMS} responses that are not taken");
    assert!(held < MOST, "{held} bytes for a connection with {STREAMS} responses that are not taken");
    drop(clients);
    house.stop();
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
    let house = home.run(&format!(
        "workers = 1\n[limits]\nmin_body_rate = \"0B\"\n{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n"
    ));
    let mut h2 = H2::open(&config, house.address(), &[]);
    h2.send(&(0..STREAMS).flat_map(|n| post(1 + 2 * n, "/", &[])).collect::<Vec<_>>());
    let before = settled(&house);
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
    let held = settled(&house).saturating_sub(before);
    println!("{held} bytes for a connection that has sent {sent} on {STREAMS} streams");
    assert!(held < MOST, "{held} bytes for a connection that has sent {sent} on {STREAMS} streams");
    drop((h2, over));
    house.process.signal(Signal::KILL).unwrap();
    drop(server);
}
