//! Several servers: turns, weights, one that is down, backups; and servers that fail in every way.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use offramp_testkit::server::{Address, Listen, Refusing, Server, apps, faults};
use serde_json::Value;

use crate::support::crowd::{Tls, close, connect, get, trusting};
use crate::support::figures::Page;
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, cause, text};

const METRICS: &str = "[metrics]\naddress = \"127.0.0.1:0\"\n";

fn client(instance: &Instance) -> Tls {
    connect(&trusting(&instance.home.ca.certificate()), instance.address(), "localhost").unwrap()
}

/// One worker, so that turns can be counted, before a backend of these servers.
fn backend(servers: &[String]) -> Instance {
    let limits = "[limits]\nidle_timeout = \"3s\"\n";
    let backend = format!("[backend.app]\nservers = {servers:?}\n");
    Home::new().run(&format!(
        "workers = 1\n{limits}{METRICS}{CERTIFICATE}{LISTENER}[[route]]\nbackend = \"app\"\n{backend}"
    ))
}

/// `count` requests, each on a connection of its own; all must be answered. Gives their events.
fn requests(instance: &Instance, count: usize) -> Vec<Value> {
    for _ in 0..count {
        let mut tls = client(instance);
        assert_eq!(get(&mut tls, "/x").unwrap(), "hello /x\n");
        close(tls).unwrap();
    }
    instance.events_of(count)
}

fn served_by(events: &[Value], address: &Address) -> usize {
    events.iter().filter(|event| text(event, "server") == address.to_string()).count()
}

#[test]
fn one_of_three_is_down_and_nobody_notices() {
    let apps = [1, 2].map(|_| Server::start(&Listen::Ipv4, apps::http).unwrap());
    let dead = Refusing::new(&Listen::Ipv4).unwrap();
    let [a, b] = apps.each_ref().map(Server::address);
    let instance = backend(&[a.to_string(), dead.address().to_string(), b.to_string()]);
    let events = requests(&instance, 30);
    assert!(events.iter().all(|event| cause(event) == "client_closed" && event["backend"] == "app"));
    assert_eq!(served_by(&events, dead.address()), 0);
    let (one, other) = (served_by(&events, a), served_by(&events, b));
    assert!(one >= 12 && other >= 12 && one + other == 30, "{one} and {other}");
    let tries: Vec<u64> = events.iter().map(|event| event["tries"].as_u64().unwrap()).collect();
    assert!(tries.contains(&2) && tries.iter().all(|&tries| tries <= 2), "{tries:?}");
    let retries: u64 = tries.iter().map(|tries| tries - 1).sum();
    let page = Page::scrape(instance.metrics());
    assert_eq!(page.get("offramp_connect_failures_total"), retries as f64);
    assert_eq!(page.get("offramp_connect_attempts_total"), (30 + retries) as f64);
    instance.stop();
}

#[test]
fn weights_are_shares() {
    let apps = [1, 2].map(|_| Server::start(&Listen::Ipv4, apps::http).unwrap());
    let [a, b] = apps.each_ref().map(Server::address);
    let instance = backend(&[format!("{a} weight=2"), b.to_string()]);
    let events = requests(&instance, 30);
    assert_eq!((served_by(&events, a), served_by(&events, b)), (20, 10));
    instance.stop();
}

#[test]
fn a_backup_serves_when_no_other_does() {
    let home = Home::new();
    let backup = Server::start(&Listen::Unix(home.file("backup.sock")), apps::http).unwrap();
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let instance = backend(&[app.address().to_string(), format!("{} backup", backup.address())]);
    let events = requests(&instance, 6);
    assert_eq!(served_by(&events, app.address()), 6);
    instance.stop();

    let dead = Refusing::new(&Listen::Ipv4).unwrap();
    let instance = backend(&[dead.address().to_string(), format!("{} backup", backup.address())]);
    let events = requests(&instance, 6);
    assert_eq!(served_by(&events, backup.address()), 6);
    assert_eq!(events[0]["tries"], 2);
    instance.stop();
}

#[test]
fn all_are_down() {
    let dead = [Refusing::new(&Listen::Ipv4).unwrap(), Refusing::new(&Listen::Ipv4).unwrap()];
    let instance = backend(&dead.each_ref().map(|dead| dead.address().to_string()));
    let error = client(&instance).read(&mut [0; 16]).unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    let event = instance.events_of(1).remove(0);
    assert_eq!((cause(&event), &event["tries"]), ("all_servers_failed", &2.into()), "{event}");
    assert_eq!((&event["fault"], &event["alert_sent"]), (&"server".into(), &"internal_error".into()));
    assert!(text(&event, "detail").contains("refused"), "{event}");
    assert_eq!(Page::scrape(instance.metrics()).closed("all_servers_failed"), 1.0);
    instance.stop();
}

/// One connection to a single server; what the client got, how it ended, and the event.
fn encounter(server: &Address, say: &[u8]) -> (Vec<u8>, std::io::Result<usize>, Value) {
    let instance = backend(&[server.to_string()]);
    let mut tls = client(&instance);
    let _ = tls.write_all(say).and_then(|()| tls.flush());
    let mut got = Vec::new();
    let end = tls.read_to_end(&mut got);
    drop(tls);
    let event = instance.events_of(1).remove(0);
    let page = Page::scrape(instance.metrics());
    assert_eq!(page.closed(cause(&event)), 1.0, "{event}");
    instance.stop();
    (got, end, event)
}

#[test]
fn a_server_that_refuses() {
    let home = Home::new();
    for listen in [Listen::Ipv4, Listen::Unix(home.file("dead.sock"))] {
        let dead = Refusing::new(&listen).unwrap();
        let (got, end, event) = encounter(dead.address(), b"");
        assert!(got.is_empty() && end.unwrap_err().to_string().contains("InternalError"));
        assert_eq!((cause(&event), &event["fault"]), ("server_refused", &"server".into()), "{event}");
    }
    let (_, end, event) = encounter(&Address::Unix(home.file("nothing.sock")), b"");
    assert!(end.is_err());
    assert_eq!((cause(&event), &event["fault"]), ("server_unreachable", &"server".into()), "{event}");
}

#[test]
fn a_server_that_resets() {
    let app = Server::start(&Listen::Ipv4, faults::reset).unwrap();
    let (got, end, event) = encounter(app.address(), b"");
    // Never a goodbye: the client must be able to tell this from a whole answer.
    assert!(got.is_empty() && end.is_err(), "{end:?}");
    assert_eq!((cause(&event), &event["fault"]), ("server_reset", &"server".into()), "{event}");

    let app = Server::start(&Listen::Ipv4, faults::reset_in_the_middle(b"half")).unwrap();
    let (got, end, event) = encounter(app.address(), b"hello");
    assert!(b"half".starts_with(&got) && end.is_err(), "{got:?} {end:?}");
    assert_eq!(cause(&event), "server_reset", "{event}");
}

#[test]
fn a_server_that_closes_in_the_middle() {
    let app = Server::start(&Listen::Ipv4, faults::close_in_the_middle(b"half")).unwrap();
    let (got, end, event) = encounter(app.address(), b"hello");
    // It closed in order: so is the client told, after all that there was.
    assert_eq!((got.as_slice(), end.unwrap()), (&b"half"[..], 4));
    assert_eq!((cause(&event), &event["bytes_to_client"]), ("server_closed", &4.into()), "{event}");
}

#[test]
fn a_server_that_hangs() {
    let app = Server::start(&Listen::Ipv4, faults::hang).unwrap();
    let (got, end, event) = encounter(app.address(), b"hello");
    assert!(got.is_empty());
    assert_eq!(end.unwrap(), 0);
    assert_eq!((cause(&event), &event["bytes_from_client"]), ("idle_timeout", &5.into()), "{event}");

    // One that does not even read: nobody accepts, but the kernel has room in its queue.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let (got, end, event) = encounter(&address, &vec![7; 32 << 20]);
    assert!(got.is_empty() && end.is_err(), "{end:?}");
    assert_eq!((cause(&event), &event["fault"]), ("server_hung", &"server".into()), "{event}");
}
