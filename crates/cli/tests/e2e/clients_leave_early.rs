//! Clients that go before all is said, in order and out of order: each gets its own cause, and the
//! application sees the end of its connection.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use offramp_testkit::server::{Listen, Server, apps};

use crate::support::instance::{Instance, PATIENCE, cause};
use crate::support::openssl::{command, connect};

#[test]
fn a_client_that_closes_at_once_is_no_fault() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Instance::before(app.address());
    for version in ["-tls1_2", "-tls1_3"] {
        // Its input is at its end when it starts: it closes right behind its Finished.
        let output = crate::support::instance::ask(command(&instance, &[version]), b"", PATIENCE);
        assert!(output.status.success());
    }
    for event in instance.stop() {
        assert_eq!((cause(&event), &event["fault"]), ("client_closed", &"nobody".into()), "{event}");
    }
}

#[test]
fn a_client_that_is_killed_has_vanished() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Instance::before(app.address());
    let mut client = connect(&instance, &["-tls1_3"]);
    client.say("then nothing more\n");
    client.hear("then nothing more");
    drop(client);
    let event = instance.event("the killed client", |_| true);
    // The kernel closes its socket: with a FIN, or with a reset if it had not read all.
    assert!(["client_vanished", "client_reset"].contains(&cause(&event)), "{event}");
    instance.stop();
}

#[test]
fn half_a_client_hello_is_an_abandoned_handshake() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance = Instance::before(app.address());
    // The head of a record of 512 bytes with a ClientHello, and no more.
    let begun = [&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 40]].concat();
    let mut client = TcpStream::connect(instance.address()).unwrap();
    client.write_all(&begun).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = client.read_to_end(&mut Vec::new());
    assert_eq!(cause(&instance.event("half a ClientHello", |_| true)), "handshake_abandoned");

    drop(TcpStream::connect(instance.address()).unwrap());
    assert_eq!(cause(&instance.events_of(2)[1]), "client_silent");
    instance.stop();
}
