//! Start, traffic, drain.

use std::io::{Read, Write};
use std::time::Duration;

use offramp_control::Requester;
use offramp_testkit::server::{Listen, Server, apps};

use crate::instance::{Folder, connect, echo};

const INSTANCE: &str = r#"
[limits]
drain_timeout = "LIMIT"

[[listener]]
name = "web"
address = "127.0.0.1:0"

[[certificate]]
local = true
names = ["localhost", "127.0.0.1"]

[[route]]
server = "BACKEND"
"#;

fn instance(folder: &Folder, limit: &str, backend: &Server) {
    folder.write(&INSTANCE.replace("LIMIT", limit).replace("BACKEND", &backend.address().to_string()));
}

#[test]
fn a_client_is_served_and_the_drain_waits_for_it() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    instance(&folder, "20s", &backend);
    let running = folder.start().unwrap();
    let address = running.address("web");
    let mut client = connect(&folder.client(), address, "localhost").unwrap();
    echo(&mut client, "hello");
    running.handle.stop();
    // What is open may go on; what is new is refused.
    while std::net::TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    echo(&mut client, "still here");
    client.conn.send_close_notify();
    client.flush().unwrap();
    let _ = client.read(&mut [0; 16]);
    drop(client);
    let exit = running.end();
    assert_eq!((exit.cut, exit.hurried, exit.panicked), (0, false, 0), "{}", folder.log());
    let log = folder.log();
    for line in ["AEAD", "listening", "started", "draining", "stopped"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let events = std::fs::read_to_string(folder.path().join("events")).unwrap();
    assert!(events.contains("\"listener\":\"web\""), "{events}");
}

#[test]
fn a_server_is_found_by_its_host_name() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    let server = format!("localhost:{}", backend.address().socket().port());
    folder.write(&INSTANCE.replace("LIMIT", "0s").replace("BACKEND", &server));
    let running = folder.start().unwrap();
    echo(&mut connect(&folder.client(), running.address("web"), "localhost").unwrap(), "hello");
    // A reload keeps what is known of the name.
    running.reload().unwrap();
    echo(&mut connect(&folder.client(), running.address("web"), "localhost").unwrap(), "again");
}

#[test]
fn the_drain_cuts_who_does_not_end() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    instance(&folder, "50ms", &backend);
    let running = folder.start().unwrap();
    let mut client = connect(&folder.client(), running.address("web"), "localhost").unwrap();
    echo(&mut client, "hello");
    running.handle.stop();
    let exit = running.end();
    assert_eq!((exit.cut, exit.hurried), (1, false), "{}", folder.log());
}

#[test]
fn a_second_order_to_stop_ends_the_drain_if_it_says_so() {
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    instance(&folder, "1h", &backend);
    let running = folder.start().unwrap();
    let mut client = connect(&folder.client(), running.address("web"), "localhost").unwrap();
    echo(&mut client, "hello");
    let begun = std::time::Instant::now();
    running.handle.stop();
    // Each further order changes nothing, and tells when the drain ends, once that has begun.
    while running.handle.order_stop(false, Requester::Program).until.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no drain: {}", folder.log());
        std::thread::sleep(Duration::from_millis(1));
    }
    // Still served: the second order has changed nothing.
    echo(&mut client, "again");
    let stopping = running.handle.order_stop(true, Requester::Admin("root".into()));
    assert!(stopping.already && stopping.until.is_some(), "{stopping:?}");
    let exit = running.end();
    assert_eq!((exit.cut, exit.hurried), (1, true), "{}", folder.log());
    assert!(begun.elapsed() < Duration::from_secs(1800), "the drain is an hour");
}

#[test]
fn the_local_ca_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let backend = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let folder = Folder::new();
    instance(&folder, "0s", &backend);
    drop(folder.start().unwrap());
    let mode = |path: &str| std::fs::metadata(folder.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("state"), mode("state/ca/ca.key")), (0o700, 0o600));
}
