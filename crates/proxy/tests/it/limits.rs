//! Limits, and PROXY headers that say whom they apply to.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use offramp_proxy::Network;
use offramp_proxy::limit::Rate;
use offramp_testkit::server::{Listen, Server, apps};

use crate::house::{Door, House, Terms, echo, shake};

/// Whether the house has hung up without a word.
fn is_turned_away(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0; 1]) {
        Ok(n) => n == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn causes(house: House) -> Vec<String> {
    let mut causes: Vec<_> =
        house.end().iter().map(|event| event["cause"].as_str().unwrap().to_owned()).collect();
    causes.sort();
    causes
}

#[test]
fn connections_in_all_and_per_client() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    for (per_client, cause) in [(1000, "limit_connections"), (2, "limit_connections_per_client")] {
        let mut terms = Terms::default();
        terms.limits.connections = if per_client == 2 { 1000 } else { 2 };
        terms.limits.connections_per_client = per_client;
        let house = House::open(&[app.address()], &terms);
        let mut held = [house.knock(Door::Plain), house.knock(Door::Plain)];
        for stream in &mut held {
            echo(stream, b"in");
        }
        assert!(is_turned_away(&house.knock(Door::Plain)));
        drop(held);
        house.wait(|totals| totals.active() == 0);
        echo(&mut house.knock(Door::Plain), b"in again");
        assert_eq!(causes(house).iter().filter(|found| *found == cause).count(), 1);
    }
}

#[test]
fn handshakes_per_client() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut terms = Terms::default();
    terms.limits.handshakes_per_client = Rate { count: 2, per: Duration::from_secs(3600) };
    let house = House::open(&[app.address()], &terms);
    for _ in 0..2 {
        echo(&mut house.tls(), b"in");
    }
    assert!(is_turned_away(&house.knock(Door::Tls)));
    let causes = causes(house);
    assert_eq!(causes.iter().filter(|cause| *cause == "limit_handshakes_per_client").count(), 1);
}

#[test]
fn a_believed_header_and_the_hello_behind_it_in_one_piece() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let mut terms = Terms::default();
    terms.limits.connections_per_client = 1;
    terms.trusted = vec![Network::new("127.0.0.0".parse().unwrap(), 8)];
    let house = House::open(&[app.address()], &terms);
    let enter = |client: &str| {
        let mut stream = house.knock(Door::Tls);
        // In the buffer of the kernel before the hello is: most often both are read at once.
        stream.write_all(format!("PROXY TCP4 {client} 192.0.2.1 4711 443\r\n").as_bytes()).unwrap();
        shake(stream)
    };
    let mut first = enter("198.51.100.1").unwrap();
    echo(&mut first, b"one");
    let mut other = enter("198.51.100.2").unwrap();
    echo(&mut other, b"two");
    assert!(enter("198.51.100.1").is_err(), "the limit holds for whom the header names");
    drop((first, other));
    let events = house.end();
    let mut clients: Vec<_> = events.iter().map(|event| event["client"].as_str().unwrap()).collect();
    clients.sort_unstable();
    assert_eq!(clients, ["198.51.100.1", "198.51.100.1", "198.51.100.2"]);
    assert!(events.iter().all(|event| event["peer"] == "127.0.0.1"));
}

#[test]
fn headers_that_must_not_be_and_headers_that_must() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let house = House::open(&[app.address()], &Terms::default());
    let mut stranger = house.knock(Door::Tls);
    stranger.write_all(b"PROXY TCP4 198.51.100.1 192.0.2.1 4711 443\r\n").unwrap();
    assert!(is_turned_away(&stranger));
    assert_eq!(causes(house), ["proxy_stranger"]);

    let trusted = vec![Network::new("127.0.0.1".parse().unwrap(), 32)];
    let house = House::open(&[app.address()], &Terms { trusted, ..Terms::default() });
    assert!(shake(house.knock(Door::Tls)).is_err());
    let mut broken = house.knock(Door::Plain);
    broken.write_all(b"PROXY TCP4 198.51.100.1 nonsense\r\n").unwrap();
    assert!(is_turned_away(&broken));
    assert_eq!(causes(house), ["proxy_malformed", "proxy_missing"]);
}
