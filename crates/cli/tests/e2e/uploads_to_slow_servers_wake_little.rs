//! A server on a Unix socket that is slower than its client: the worker sleeps until there is room for much, and when
//! there is nothing to write it is not woken by each read of the server.

use std::io::{Read, Write};
use std::time::Duration;

use offramp_testkit::server::{Listen, Server, Stream};

use crate::quiet_http_connections_wake_nobody::waits;
use crate::support::crowd::{connect, tcp, trusting};
use crate::support::instance::{Home, Instance, PATIENCE};
use crate::uploads_pause_their_clients::while_stopped;

const MIB: usize = 1 << 20;
const UPLOADS: u64 = 16;
/// The most times that the worker may fall asleep for a MiB.
const MOST: u64 = 12;
const QUESTIONS: u64 = 100;
/// The most times that it may fall asleep for two questions: for each of them and for each answer, and once more.
const MOST_FOR_TWO: u64 = 5;

/// For how long everybody does nothing around a question, so that what happens does not happen at once.
const REST: Duration = Duration::from_millis(3);

/// Takes so many times a MiB in pieces, with a pause behind each, and acknowledges it. Then it reads byte by byte, and
/// answers each.
fn slow(mut stream: Stream, uploads: u64) {
    let mut piece = vec![0; 32 * 1024];
    for _ in 0..uploads {
        let mut left = MIB;
        while left > 0 {
            let most = left.min(piece.len());
            match stream.read(&mut piece[..most]) {
                Ok(n @ 1..) => left -= n,
                _ => return,
            }
            // What makes it slow: on any machine it takes longer than the client to send as much.
            std::thread::sleep(Duration::from_millis(1));
        }
        if stream.write_all(b"k").is_err() {
            return;
        }
    }
    // The worker sleeps when a question is read, and again when it is answered. So it is woken by each that it hears of.
    std::thread::sleep(REST);
    while let Ok(1) = stream.read(&mut piece[..1]) {
        std::thread::sleep(REST);
        if stream.write_all(b"k").is_err() {
            return;
        }
        std::thread::sleep(2 * REST);
    }
}

/// Sends a MiB that is there at once, and waits for the answer.
fn upload(instance: &Instance, client: &mut (impl Read + Write)) {
    while_stopped(instance, &mut || client.write_all(&vec![7; MIB]).unwrap());
    client.flush().unwrap();
    client.read_exact(&mut [0]).unwrap();
}

/// Sends all of `data`, and waits for the answer.
fn send(client: &mut (impl Read + Write), data: &[u8]) {
    client.write_all(data).unwrap();
    client.flush().unwrap();
    client.read_exact(&mut [0]).unwrap();
}

/// Asks and is answered, on a connection whose writes to the server had to wait before.
#[track_caller]
fn questions_wake_for_what_there_is_to_do(instance: &Instance, client: &mut (impl Read + Write)) {
    let before = waits(instance);
    for _ in 0..QUESTIONS {
        std::thread::sleep(REST);
        send(client, b"?");
    }
    let woken = waits(instance) - before;
    assert!(woken * 2 <= QUESTIONS * MOST_FOR_TWO, "woken {woken} times for {QUESTIONS} questions");
}

#[test]
fn uploads_to_slow_servers_wake_little() {
    let home = Home::new();
    let slow = |stream| slow(stream, 1 + UPLOADS);
    let app = Server::start(&Listen::Unix(home.file("app.sock")), slow).unwrap();
    let config = trusting(&home.ca.certificate());
    let one_route = Home::one_route(app.address());
    let instance = home.run(&format!("workers = 1\n{one_route}"));
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    tls.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    upload(&instance, &mut tls);
    let before = waits(&instance);
    for _ in 0..UPLOADS {
        upload(&instance, &mut tls);
    }
    let woken = waits(&instance) - before;
    // To be stopped is to fall asleep once more.
    assert!(woken <= (MOST + 1) * UPLOADS, "woken {woken} times for {UPLOADS} MiB");
    questions_wake_for_what_there_is_to_do(&instance, &mut tls);
    drop(tls);
    instance.stop();
}

#[test]
fn so_it_is_without_tls() {
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), |stream| slow(stream, 2)).unwrap();
    let instance = home.run(&format!(
        "workers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\ntls = false\n[[route]]\nserver = \"{}\"\n",
        app.address()
    ));
    let mut client = tcp(instance.address()).unwrap();
    for _ in 0..2 {
        upload(&instance, &mut client);
    }
    questions_wake_for_what_there_is_to_do(&instance, &mut client);
    drop(client);
    instance.stop();
}
