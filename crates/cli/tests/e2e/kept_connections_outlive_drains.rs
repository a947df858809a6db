//! A drain loses no request of a kept connection: whoever has one is told by `Connection: close` before it is closed.
//!
//! The clients here are as strict as load generators: an error on a connection that was not announced to end is a lost
//! request, whether it could be sent again or not.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use offramp_testkit::process::{Signal, free_port};
use offramp_testkit::server::{Listen, Server};
use rustls::ClientConfig;

use crate::reload_loses_no_request::reload_to;
use crate::support::crowd::{connect, tcp, trusting};
use crate::support::http_app::{app, respond};
use crate::support::instance::{CERTIFICATE, Home, PATIENCE};
use crate::support::upgrade::Upgraded;
use crate::upgrades_lose_nothing::Load;

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Clients of each kind.
const CLIENTS: usize = 6;

/// The ways in: what a client connects by.
#[derive(Clone)]
struct Door {
    config: Option<Arc<ClientConfig>>,
    address: SocketAddr,
}

impl Door {
    fn open(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match &self.config {
            Some(config) => Box::new(connect(config, self.address, "localhost")?),
            None => Box::new(tcp(self.address)?),
        })
    }
}

/// One request and its response; whether that says that it is the last.
fn ask(stream: &mut dyn Stream, method: &str) -> io::Result<bool> {
    let body = if method == "POST" { "Content-Length: 5\r\n\r\nhello" } else { "\r\n" };
    stream.write_all(format!("{method} /kept HTTP/1.1\r\nHost: localhost\r\n{body}").as_bytes())?;
    stream.flush()?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nwell") {
        let mut part = [0; 1024];
        match stream.read(&mut part)? {
            0 => {
                return Err(io::Error::other(format!(
                    "an end behind {:?}",
                    answer.escape_ascii().to_string()
                )));
            }
            n => answer.extend_from_slice(&part[..n]),
        }
    }
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    if !head.starts_with("http/1.1 200 ") {
        return Err(io::Error::other(head));
    }
    Ok(head.contains("connection: close\r\n"))
}

/// Requests on a kept connection, of which none may fail. `closed`: there may be no way in any more.
fn requests(
    door: &Door,
    method: &'static str,
    (closed, told): (&AtomicBool, &AtomicUsize),
    goes_on: &mut dyn FnMut() -> bool,
) -> io::Result<()> {
    let mut kept: Option<Box<dyn Stream>> = None;
    while goes_on() {
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => match door.open() {
                Ok(stream) => stream,
                Err(_) if closed.load(Ordering::SeqCst) => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        if ask(&mut *stream, method)? {
            told.fetch_add(1, Ordering::SeqCst);
            // The end follows, in order.
            match stream.read(&mut [0; 16]) {
                Ok(0) => {}
                other => return Err(io::Error::other(format!("{other:?} behind the last response"))),
            }
        } else {
            kept = Some(stream);
        }
    }
    Ok(())
}

struct World {
    _app: Server,
    upgraded: Upgraded,
    doors: [Door; 2],
    ports: [u16; 2],
    server: String,
}

impl World {
    fn new() -> Self {
        let app = app(&Listen::Ipv4, |_, stream| respond(stream, 200, &[], b"well"));
        let (home, ports) = (Home::new(), [free_port(), free_port()]);
        let server = app.address().to_string();
        home.configure(&text("first", ports, &server));
        let config = trusting(&home.ca.certificate());
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let doors = [
            Door { config: Some(config), address: address(ports[0]) },
            Door { config: None, address: address(ports[1]) },
        ];
        let upgraded = Upgraded::of(home.run(&text("first", ports, &server)));
        Self { _app: app, upgraded, doors, ports, server }
    }

    /// Clients of each kind.
    fn load(&self, closed: &Arc<AtomicBool>, told: &Arc<AtomicUsize>) -> Load {
        let mut load = Load::new();
        for door in &self.doors {
            for method in ["GET", "POST"] {
                for _ in 0..CLIENTS {
                    let (door, closed, told) = (door.clone(), Arc::clone(closed), Arc::clone(told));
                    load.add(move |goes_on| requests(&door, method, (&closed, &told), goes_on));
                }
            }
        }
        load
    }
}

/// Two listeners, with TLS and without, of these names.
fn text(name: &str, [tls, plain]: [u16; 2], server: &str) -> String {
    format!(
        "workers = 2\n[access_log]\noutput = \"./events\"\n[limits]\nhandshake_timeout = \"1m\"\n\
         drain_timeout = \"1m\"\n{CERTIFICATE}\
         [[listener]]\nname = \"{name}\"\nmode = \"http\"\naddress = \"127.0.0.1:{tls}\"\n\
         [[listener]]\nname = \"{name}-plain\"\nmode = \"http\"\ntls = false\naddress = \"127.0.0.1:{plain}\"\n\
         [[route]]\nserver = \"{server}\"\n"
    )
}

#[test]
fn no_kept_connection_breaks_over_ten_upgrades_and_a_stop() {
    let world = World::new();
    let (closed, told) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    let load = world.load(&closed, &told);
    for _ in 0..10 {
        load.busy(40);
        world.upgraded.upgrade();
    }
    load.busy(40);
    // All had a kept connection at each upgrade, or came to the next process.
    assert!(told.load(Ordering::SeqCst) > 0, "nobody was told that a connection ends");
    closed.store(true, Ordering::SeqCst);
    world.upgraded.signal(Signal::TERM);
    load.stop();
    world.upgraded.until_others_ended();
}

#[test]
fn no_kept_connection_breaks_over_ten_replaced_listeners() {
    let world = World::new();
    let (closed, told) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
    let load = world.load(&closed, &told);
    for turn in 0..10 {
        load.busy(40);
        let name = if turn % 2 == 0 { "second" } else { "first" };
        let outcome = reload_to(&world.upgraded.instance, &text(name, world.ports, &world.server));
        assert!(outcome.contains(" reloaded "), "{outcome}");
    }
    load.busy(40);
    load.stop();
    world.upgraded.stop();
}

/// A connection whose client asks for nothing more is closed in order, and a drain does not wait for it.
#[test]
fn an_idle_connection_is_let_go_after_a_moment() {
    for (nth, served) in [(0, true), (1, true), (0, false), (1, false)] {
        let world = World::new();
        let mut idle = world.doors[nth].open().unwrap();
        assert!(!ask(&mut *idle, "GET").unwrap());
        let begun = Instant::now();
        world.upgraded.signal(Signal::TERM);
        if served {
            // It has a moment for one more request, which is answered as the last.
            world.upgraded.instance.wait_for_notification("STOPPING=1");
            // Its worker may hear of the drain a moment later.
            let is_last = (0..1000).any(|_| ask(&mut *idle, "POST").unwrap());
            assert!(is_last, "the last response does not say so");
        }
        assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
        assert!(begun.elapsed() < PATIENCE / 2);
        drop(idle);
        let status = world.upgraded.instance.process.wait(PATIENCE).unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

/// The ordinary end of an idle connection: what crosses it finds a clean end, and no reset.
#[test]
fn what_crosses_the_idle_timeout_finds_a_clean_end() {
    let world = World::new();
    let text = text("first", world.ports, &world.server)
        .replace("drain_timeout", "keepalive_timeout = \"300ms\"\ndrain_timeout");
    let outcome = reload_to(&world.upgraded.instance, &text);
    assert!(outcome.contains(" reloaded "), "{outcome}");
    let mut stream = world.doors[1].open().unwrap();
    assert!(!ask(&mut *stream, "GET").unwrap());
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "the end of an idle connection");
    // As if it had been on its way.
    stream.write_all(b"GET /kept HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // A reset would follow at once.
    for _ in 0..20 {
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "no reset");
        std::thread::sleep(Duration::from_millis(10));
    }
    world.upgraded.stop();
}
