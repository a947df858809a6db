//! Bulk data in both directions at once, summed at every end.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::{Mutex, mpsc};
use std::thread;

use offramp_testkit::server::{Listen, Pattern, Server, Stream, Sum};
use rustls::version::{TLS12, TLS13};

use crate::support::duplex::{Receiver, Sender, connect, speaking};
use crate::support::instance::{Home, PATIENCE, cause};

/// Writes `length` bytes of the pattern by `send`, and gives their sum.
pub(crate) fn pour(seed: u64, length: u64, mut send: impl FnMut(&[u8])) -> String {
    let (mut pattern, mut sum, mut chunk) = (Pattern::new(seed), Sum::new(), vec![0; CHUNK]);
    for _ in 0..length / CHUNK as u64 {
        pattern.fill(&mut chunk);
        sum.add(&chunk);
        send(&chunk);
    }
    sum.to_string()
}

/// The application: sends its pattern while it sums what comes. What both sums are is told.
pub(crate) fn both_ways(mut stream: Stream, length: u64) -> (String, String) {
    let mut out = stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        let sum = pour(2, length, |chunk| out.write_all(chunk).unwrap());
        out.shutdown(Shutdown::Write).unwrap();
        sum
    });
    let (mut sum, mut chunk) = (Sum::new(), vec![0; CHUNK]);
    while let length @ 1.. = stream.read(&mut chunk).unwrap() {
        sum.add(&chunk[..length]);
    }
    (sender.join().unwrap(), sum.to_string())
}

fn receive(receiver: &mut Receiver) -> String {
    let mut sum = Sum::new();
    loop {
        match receiver.receive() {
            more if more.is_empty() => return sum.to_string(),
            more => sum.add(&more),
        }
    }
}

/// Gives what the client and the application have sent and received, as sums.
pub(crate) fn exchange(length: u64, (mut sender, mut receiver): (Sender, Receiver)) -> (String, String) {
    let upward = thread::spawn(move || {
        let sum = pour(1, length, |chunk| sender.send(chunk));
        sender.close();
        sum
    });
    let received = receive(&mut receiver);
    let sent = upward.join().unwrap();
    receiver.end();
    (sent, received)
}

#[test]
fn a_gibibyte_goes_both_ways() {
    for (version, length) in [(&TLS12, 256 << 20), (&TLS13, 1 << 30)] {
        let home = Home::new();
        let (told, hear) = mpsc::channel();
        let told = Mutex::new(told);
        // Each kind of socket has its turn.
        let listen = if version == &TLS13 { Listen::Unix(home.file("app.sock")) } else { Listen::Ipv4 };
        let behaviour = move |stream| {
            let sums = both_ways(stream, length);
            told.lock().unwrap().send(sums).unwrap();
        };
        let app = Server::start(&listen, behaviour).unwrap();
        let instance = home.run(&Home::one_route(app.address()));
        let config = speaking(version, &instance.home.ca.certificate());
        let (sent, received) = exchange(length, connect(&config, instance.address()));
        let (app_sent, app_received) = hear.recv_timeout(PATIENCE).unwrap();
        assert_eq!((&app_received, &received), (&sent, &app_sent), "{version:?}");
        let [event] = &instance.stop()[..] else { panic!("one event") };
        assert_eq!(event["bytes_from_client"], length, "{event}");
        assert_eq!(event["bytes_to_client"], length, "{event}");
        assert!(["client_closed", "server_closed"].contains(&cause(event)), "{event}");
    }
}

/// Bytes that are written at a time.
const CHUNK: usize = 64 * 1024;
