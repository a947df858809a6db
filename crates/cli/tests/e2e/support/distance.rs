//! Relay that delays bytes, as a long path does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::server::{Address, Stream};

/// Starts a relay to `server` over which each byte takes `delay`; returns its address. It ends with the process.
pub(crate) fn relay(server: Address, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let client = Stream::Tcp(client);
            let Ok(server) = server.connect() else { continue };
            let _ = client.send_at_once();
            for (from, to) in [(&client, &server), (&server, &client)] {
                delayed(from.try_clone().unwrap(), to.try_clone().unwrap(), delay);
            }
        }
    });
    address
}

/// Forwards bytes, each piece `delay` after its arrival.
fn delayed(mut from: Stream, to: Stream, delay: Duration) {
    let (put, taken) = channel();
    thread::spawn(move || late(&taken, to));
    thread::spawn(move || {
        let mut buffer = vec![0; 256 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if put.send((Instant::now() + delay, buffer[..n].to_vec())).is_err() {
                return;
            }
        }
    });
}

fn late(pieces: &Receiver<(Instant, Vec<u8>)>, mut to: Stream) {
    for (due, piece) in pieces {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
