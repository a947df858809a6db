//! A side that does not read stops the other, and little waits in between.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use offramp_observe::counters::{Direction, Totals};
use offramp_testkit::server::{Listen, Pattern, Server, Stream, apps};

use crate::test_proxy::{ListenerKind, PATIENCE, Setup, TestProxy};

/// What the kernel's buffers may take, with one batch of ours, by far.
const MOST: u64 = 48 << 20;
const LENGTH: u64 = 96 << 20;

/// Waits until a figure stands still, and returns it.
fn settled(proxy: &TestProxy, figure: impl Fn(&Totals) -> u64) -> u64 {
    let mut seen = figure(&proxy.totals());
    let (mut quiet, wait) = (0, Duration::from_millis(20));
    // Standing still is what there is to be seen, so this looks again and again.
    while quiet < 5 {
        std::thread::park_timeout(wait);
        let now = figure(&proxy.totals());
        quiet = if now == seen && now > 0 { quiet + 1 } else { 0 };
        seen = now;
    }
    seen
}

#[test]
fn a_client_that_does_not_read_stops_the_server() {
    let app = Server::start(&Listen::Ipv4, apps::source(1, LENGTH)).unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Plain] {
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let mut tls = (kind == ListenerKind::Tls).then(|| proxy.tls());
        let mut plain = (kind == ListenerKind::Plain).then(|| proxy.connect(kind));
        let stuck = settled(&proxy, |totals| totals.bytes_relayed(Direction::ServerToClient));
        assert!(stuck < MOST, "{kind:?}: {stuck} bytes were taken for a client that does not read");
        // It goes on where it stopped, and nothing is lost.
        let mut part = vec![0; 4 << 20];
        match (&mut tls, &mut plain) {
            (Some(tls), _) => tls.read_exact(&mut part).unwrap(),
            (_, plain) => plain.as_mut().unwrap().read_exact(&mut part).unwrap(),
        }
        let mut expected = vec![0; part.len()];
        Pattern::new(1).fill(&mut expected);
        assert!(part == expected);
        drop((tls, plain));
        assert_eq!(proxy.end_of_one()["cause"], "client_reset", "{kind:?}");
    }
}

#[test]
fn a_server_that_does_not_read_stops_the_client() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let app = Server::start(&Listen::Ipv4, move |stream: Stream| {
        let _ = held.lock().unwrap().recv_timeout(PATIENCE);
        apps::sink(stream);
    })
    .unwrap();
    for kind in [ListenerKind::Tls, ListenerKind::Plain] {
        let proxy = TestProxy::open(&[app.address()], &Setup::default());
        let tls = (kind == ListenerKind::Tls).then(|| proxy.tls());
        let socket = tls.as_ref().map_or_else(|| proxy.connect(kind), |tls| tls.sock.try_clone().unwrap());
        let mut plain = socket.try_clone().unwrap();
        let writing = std::thread::spawn(move || match tls {
            Some(mut tls) => fill(&mut tls),
            None => fill(&mut plain),
        });
        let stuck = settled(&proxy, |totals| totals.bytes_relayed(Direction::ClientToServer));
        assert!(stuck < MOST, "{kind:?}: {stuck} bytes were taken for a server that does not read");
        release.send(()).unwrap();
        // What was kept goes on as soon as there is room.
        proxy.wait(|totals| totals.bytes_relayed(Direction::ClientToServer) > stuck);
        socket.shutdown(Shutdown::Both).unwrap();
        writing.join().unwrap();
        proxy.end();
    }
}

/// Writes until that fails.
fn fill(to: &mut impl Write) {
    let chunk = vec![0; 64 * 1024];
    while to.write_all(&chunk).is_ok() {}
}
