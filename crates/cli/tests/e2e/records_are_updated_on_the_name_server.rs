//! dns-01 without a program: Offramp updates the records on a real name server (RFC 2136), and the authority asks that.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::Home;
use crate::support::knot::{Knot, SECRET};
use crate::support::openssl::echo;
use crate::support::pebble::{Pebble, Terms, logged};

fn update(knot: &Knot, key_name: &str, zone: &str) -> String {
    format!(
        "challenge = \"dns-01\"\ndns_wait = \"0s\"\ndns_update = {{ server = \"127.0.0.1:{}\", zone = \"{zone}\", \
         key_name = \"{key_name}\", key_file = \"tsig.key\" }}",
        knot.port
    )
}

#[test]
fn by_signed_updates_for_a_name_and_its_wildcard_at_once() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let knot = Knot::start(home.path());
    let pebble = Pebble::start_with(home.path(), &home.ca, &Terms::default(), Some(knot.port));
    fs::write(home.file("tsig.key"), SECRET).unwrap();
    let section = pebble.section(&home.ca, &update(&knot, "offramp", "test"));
    let rest = format!(
        "[[certificate]]\nacme = \"pebble\"\nnames = [\"w.test\", \"*.w.test\"]\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
        app.address()
    );
    let instance = home.run(&(section + &rest));
    logged(&instance, "certificates changed", "");
    assert!(echo(&instance, &["-servername", "x.w.test"]).contains("Pebble"));
    instance.until("the records are gone", || (!knot.has_text("_acme-challenge.w.test")).then_some(()));
    assert!(!instance.process.transcript().contains("stays behind"));
}

#[test]
fn a_key_or_a_zone_that_the_server_does_not_know_is_told() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (key, zone, told) in [("stranger", "test", "BADKEY"), ("offramp", "other.test", "NOTAUTH")] {
        let home = Home::new();
        let knot = Knot::start(home.path());
        let pebble = Pebble::start_with(home.path(), &home.ca, &Terms::default(), Some(knot.port));
        fs::write(home.file("tsig.key"), SECRET).unwrap();
        let rest = format!(
            "[[certificate]]\nacme = \"pebble\"\nnames = [\"w.test\"]\n\
             [[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
            app.address()
        );
        let text = pebble.section(&home.ca, &update(&knot, key, zone)) + &rest;
        let instance = home.run(&text);
        let line = logged(&instance, "no certificate was obtained", "_acme-challenge.w.test");
        assert!(line.contains(told), "{line}");
    }
}

/// A port where every answer over UDP is truncated, and what comes over TCP goes to the name server. Counts both.
fn truncating(name_server: u16) -> (u16, Arc<[AtomicUsize; 2]>) {
    let (tcp, udp) = loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        // Somebody else may have the port.
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            break (tcp, udp);
        }
    };
    let port = tcp.local_addr().unwrap().port();
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let (over_udp, over_tcp) = (Arc::clone(&counts), Arc::clone(&counts));
    thread::spawn(move || {
        let mut datagram = [0; 4096];
        while let Ok((length, client)) = udp.recv_from(&mut datagram) {
            over_udp[0].fetch_add(1, Ordering::Relaxed);
            assert!(length > 12);
            // The head of an answer to an update (RFC 2136), with the bit TC and nothing behind.
            let head = [datagram[0], datagram[1], 0x80 | 0x28 | 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            udp.send_to(&head, client).unwrap();
        }
    });
    thread::spawn(move || {
        for client in tcp.incoming() {
            over_tcp[1].fetch_add(1, Ordering::Relaxed);
            // One message and one answer.
            let _ = pass(client.unwrap(), name_server);
        }
    });
    (port, counts)
}

fn pass(mut client: TcpStream, name_server: u16) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", name_server))?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    }
    let message = |from: &mut TcpStream, to: &mut TcpStream| {
        let mut length = [0; 2];
        from.read_exact(&mut length)?;
        let mut bytes = vec![0; u16::from_be_bytes(length).into()];
        from.read_exact(&mut bytes)?;
        to.write_all(&[&length[..], &bytes].concat())
    };
    message(&mut client, &mut server)?;
    message(&mut server, &mut client)
}

#[test]
fn an_answer_that_does_not_fit_comes_over_tcp() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let home = Home::new();
    let knot = Knot::start(home.path());
    let pebble = Pebble::start_with(home.path(), &home.ca, &Terms::default(), Some(knot.port));
    fs::write(home.file("tsig.key"), SECRET).unwrap();
    let (port, counts) = truncating(knot.port);
    let updates =
        update(&knot, "offramp", "test").replace(&format!(":{}\"", knot.port), &format!(":{port}\""));
    let rest = format!(
        "[[certificate]]\nacme = \"pebble\"\nnames = [\"w.test\"]\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\n[[route]]\nserver = \"{}\"\n",
        app.address()
    );
    let text = pebble.section(&home.ca, &updates) + &rest;
    let instance = home.run(&text);
    logged(&instance, "certificates changed", "");
    instance.until("the record is gone", || (!knot.has_text("_acme-challenge.w.test")).then_some(()));
    let [udp, tcp] = [0, 1].map(|index: usize| counts[index].load(Ordering::Relaxed));
    assert_eq!((udp, tcp), (2, 2));
}
