//! One direction ends and the other goes on: close_notify becomes the end of the server's input, the end
//! of its output becomes close_notify.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::{Mutex, mpsc};

use offramp_testkit::server::{Listen, Pattern, Server, Stream, apps};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

use crate::support::duplex::{connect, speaking};
use crate::support::instance::{Home, Instance, PATIENCE, cause};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];
const LENGTH: usize = 3 << 20;

fn pattern(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    Pattern::new(seed).fill(&mut bytes);
    bytes
}

/// Both kinds of sockets behave differently at their ends.
fn listens() -> [(Home, Listen); 2] {
    let (one, other) = (Home::new(), Home::new());
    let listen = Listen::Unix(other.file("app.sock"));
    [(one, Listen::Ipv4), (other, listen)]
}

#[test]
fn a_server_answers_after_the_client_has_closed() {
    for (home, listen) in listens() {
        // It answers only when its input is at its end.
        let app = Server::start(&listen, apps::sink).unwrap();
        let instance = home.run(&Home::one_route(app.address()));
        for version in VERSIONS {
            let config = speaking(version, &instance.home.ca.certificate());
            let (mut sender, mut receiver) = connect(&config, instance.address());
            sender.send(&pattern(3));
            sender.close();
            let expected = format!("{}\n", Pattern::new(3).sum(LENGTH as u64));
            assert_eq!(String::from_utf8_lossy(&receiver.rest()), expected);
            receiver.end();
        }
        for event in instance.stop() {
            assert_eq!(event["bytes_from_client"], LENGTH, "{event}");
            assert_eq!((cause(&event), &event["fault"]), ("client_closed", &"nobody".into()), "{event}");
        }
    }
}

#[test]
fn a_client_goes_on_after_the_server_has_closed() {
    for (home, listen) in listens() {
        let (told, hear) = mpsc::channel();
        let told = Mutex::new(told);
        let behaviour = move |mut stream: Stream| {
            stream.write_all(b"that is all from me").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            told.lock().unwrap().send(received).unwrap();
        };
        let app = Server::start(&listen, behaviour).unwrap();
        let instance = home.run(&Home::one_route(app.address()));
        for version in VERSIONS {
            let config = speaking(version, &instance.home.ca.certificate());
            let (mut sender, mut receiver) = connect(&config, instance.address());
            // Up to close_notify, which is sent before this client has said anything.
            assert_eq!(receiver.rest(), b"that is all from me");
            sender.send(&pattern(4));
            sender.close();
            assert!(hear.recv_timeout(PATIENCE).unwrap() == pattern(4));
            receiver.end();
        }
        for event in instance.stop() {
            assert_eq!(event["bytes_from_client"], LENGTH, "{event}");
            assert_eq!(event["bytes_to_client"], 19, "{event}");
            assert_eq!(event["fault"], "nobody", "{event}");
        }
    }
}

#[test]
fn a_client_that_ends_tcp_alone_is_served_whole() {
    let app = Server::start(&Listen::Ipv4, apps::sink).unwrap();
    let instance = Instance::before(app.address());
    for version in VERSIONS {
        let config = speaking(version, &instance.home.ca.certificate());
        let (mut sender, mut receiver) = connect(&config, instance.address());
        sender.send(&pattern(5));
        sender.cut();
        let expected = format!("{}\n", Pattern::new(5).sum(LENGTH as u64));
        assert_eq!(String::from_utf8_lossy(&receiver.rest()), expected);
        receiver.end();
    }
    for event in instance.stop() {
        assert_eq!((cause(&event), &event["fault"]), ("client_vanished", &"client".into()), "{event}");
    }
}
