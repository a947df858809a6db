//! An upload to a server on a Unix socket that is slower than its client: the worker sleeps until there is room for
//! much, and is not woken by each read of the server.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use offramp_testkit::server::{Listen, Server, Stream};

use crate::crowd::{connect, trusting};
use crate::house::{Home, PATIENCE};
use crate::quiet_http_connections_wake_nobody::waits;

const MIB: usize = 1 << 20;
const UPLOADS: u64 = 16;
/// The most times that the worker may fall asleep for a MiB.
const MOST: u64 = 12;

/// Takes a MiB in pieces, with a pause behind each, and acknowledges it.
fn slow(mut stream: Stream) {
    let mut piece = vec![0; 32 * 1024];
    loop {
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
}

#[test]
fn uploads_to_slow_servers_wake_little() {
    let home = Home::new();
    let app = Server::start(&Listen::Unix(home.file("app.sock")), slow).unwrap();
    let config = trusting(&home.ca.certificate());
    let one_route = Home::one_route(app.address());
    let house = home.run(&format!("workers = 1\n{one_route}"));
    let mut tls = connect(&config, house.address(), "localhost").unwrap();
    tls.sock.set_read_timeout(Some(PATIENCE)).unwrap();
    let data = vec![7; MIB];
    let mut upload = || {
        tls.write_all(&data).unwrap();
        tls.flush().unwrap();
        tls.read_exact(&mut [0]).unwrap();
    };
    upload();
    let before = waits(&house);
    for _ in 0..UPLOADS {
        upload();
    }
    let woken = waits(&house) - before;
    assert!(woken <= MOST * UPLOADS, "woken {woken} times for {UPLOADS} MiB");
    drop(tls);
    house.stop();
}
