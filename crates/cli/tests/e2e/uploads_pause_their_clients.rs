//! Uploads to a server that takes nothing for a while, or is slower than its client, by whatever carries them: neither
//! what the client sends meanwhile wakes the worker, nor each read of the server.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use offramp_testkit::process::Signal;
use offramp_testkit::server::{Listen, Server, Stream};
use rustls::ClientConfig;

use crate::quiet_http_connections_wake_nobody::{is_stopped, sleeps, waits};
use crate::support::crowd::{connect, offering, tcp, trusting};
use crate::support::h2_client::kind::{HEADERS, WINDOW_UPDATE};
use crate::support::h2_client::{END_STREAM, H2, data, post};
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE};

const MIB: usize = 1 << 20;
const UPLOADS: u64 = 16;
/// The most times that the worker may fall asleep for a MiB.
const MOST: u64 = 12;

/// Takes a MiB in pieces, with a pause behind each; `false` where it does not come.
fn take_slowly(stream: &mut impl Read) -> bool {
    let mut piece = vec![0; 32 * 1024];
    let mut left = MIB;
    while left > 0 {
        let most = left.min(piece.len());
        match stream.read(&mut piece[..most]) {
            Ok(n @ 1..) => left -= n,
            _ => return false,
        }
        // What makes it slow: on any machine it takes longer than the client to send as much.
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Reads to the end of a head.
fn head(stream: &mut impl Read) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return Vec::new();
        }
        head.push(byte[0]);
    }
    head
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A client that uploads, whatever it speaks, and Offramp before a server.
struct Rig {
    instance: Instance,
    client: Client,
    server: Server,
}

enum Client {
    /// A relay, or HTTP/1.1 with the head of a request for a body of so many bytes.
    Stream(Box<dyn Duplex>, fn(usize) -> String),
    Http2 {
        h2: Box<H2>,
        stream: u32,
        all: usize,
        own: usize,
    },
}

trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

const WAYS: [&str; 4] = ["TLS", "plain", "HTTP/1.1", "HTTP/2"];

fn rig(way: &str, serve: impl Fn(Stream, bool) + Clone + Send + Sync + 'static) -> Rig {
    let home = Home::new();
    let http = way.starts_with("HTTP");
    let server =
        Server::start(&Listen::Unix(home.file("app.sock")), move |stream: Stream| serve(stream, http));
    let server = server.unwrap();
    let config = trusting(&home.ca.certificate());
    let listener = match way {
        "plain" => format!("{LISTENER}tls = false\n"),
        "TLS" => format!("{CERTIFICATE}{LISTENER}"),
        _ => format!("{CERTIFICATE}{HTTP}"),
    };
    let instance =
        home.run(&format!("workers = 1\n{listener}[[route]]\nserver = \"{}\"\n", server.address()));
    let tls = |config: &Arc<ClientConfig>| {
        let tls = connect(config, instance.address(), "localhost").unwrap();
        tls.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        Box::new(tls)
    };
    let client = match way {
        "plain" => Client::Stream(Box::new(tcp(instance.address()).unwrap()), |_| String::new()),
        "TLS" => Client::Stream(tls(&config), |_| String::new()),
        "HTTP/1.1" => Client::Stream(tls(&offering(&config, &["http/1.1"])), |length| {
            format!("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
        }),
        _ => {
            let h2 = H2::open(&config, instance.address(), &[]);
            h2.patience(PATIENCE);
            Client::Http2 { h2: Box::new(h2), stream: 1, all: 65_535, own: 0 }
        }
    };
    Rig { instance, client, server }
}

impl Client {
    /// A request for a body of so many bytes begins.
    fn begin(&mut self, length: usize) {
        match self {
            Self::Stream(stream, head) => stream.write_all(head(length).as_bytes()).unwrap(),
            Self::Http2 { h2, stream, own, .. } => {
                *own = 256 * 1024;
                assert!(h2.send(&post(*stream, "/", &[("content-length", &length.to_string())])));
            }
        }
    }

    /// Sends so many bytes as soon as they may be sent; `last`: they are the end of the body. What may be sent at a
    /// time is sent by `at_once`.
    fn send(&mut self, mut left: usize, last: bool, mut at_once: impl FnMut(&mut dyn FnMut())) {
        let (h2, stream, all, own) = match self {
            Self::Stream(stream, _) => {
                at_once(&mut || stream.write_all(&vec![7; left]).unwrap());
                return stream.flush().unwrap();
            }
            Self::Http2 { h2, stream, all, own } => (h2, *stream, all, own),
        };
        loop {
            // As much as the windows allow, at once.
            let mut frames = Vec::new();
            while left > 0 && (*own).min(*all) > 0 {
                let n = left.min(*own).min(*all).min(16_384);
                (*own, *all, left) = (*own - n, *all - n, left - n);
                let flags = if left == 0 && last { END_STREAM } else { 0 };
                frames.extend_from_slice(&data(stream, flags, &vec![7; n]));
            }
            if !frames.is_empty() {
                at_once(&mut || assert!(h2.send(&frames)));
            }
            if left == 0 {
                return;
            }
            let frame = h2.next().expect("the connection ended");
            match frame.stream {
                _ if frame.kind != WINDOW_UPDATE => {}
                0 => *all += frame.code() as usize,
                _ => *own += frame.code() as usize,
            }
        }
    }

    /// Waits until the body has arrived.
    fn end(&mut self) {
        match self {
            Self::Stream(stream, head) if head(0).is_empty() => stream.read_exact(&mut [0]).unwrap(),
            Self::Stream(stream, _) => {
                let head = self::head(stream);
                assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", head.escape_ascii());
            }
            Self::Http2 { h2, stream, all, .. } => loop {
                match h2.next().expect("the connection ended") {
                    frame if frame.kind == WINDOW_UPDATE && frame.stream == 0 => {
                        *all += frame.code() as usize;
                    }
                    frame if frame.kind == HEADERS => {
                        assert_eq!((frame.stream, frame.status()), (*stream, 200));
                        *stream += 2;
                        return;
                    }
                    _ => {}
                }
            },
        }
    }
}

#[test]
fn little_wakes_for_a_mebibyte() {
    for way in WAYS {
        let Rig { instance, mut client, server } = rig(way, |mut stream, http| {
            loop {
                if http && head(&mut stream).is_empty() {
                    return;
                }
                if !take_slowly(&mut stream) || stream.write_all(if http { OK } else { b"k" }).is_err() {
                    return;
                }
            }
        });
        let mut pauses = 0;
        let mut upload = || {
            client.begin(MIB);
            client.send(MIB, true, |send| {
                while_stopped(&instance, send);
                pauses += 1;
            });
            client.end();
        };
        upload();
        let before = waits(&instance);
        (0..UPLOADS).for_each(|_| upload());
        let woken = waits(&instance) - before;
        println!("{way}: woken {woken} times for {UPLOADS} MiB, {pauses} of them to be stopped");
        // To be stopped is to fall asleep once more.
        assert!(
            woken <= MOST * UPLOADS + pauses,
            "{way}: woken {woken} times for {UPLOADS} MiB, {pauses} pauses"
        );
        drop(client);
        instance.stop();
        drop(server);
    }
}

/// Bytes that a client sends at once at first: more than the server's socket takes.
const FIRST: usize = 400 * 1024;
/// The same for HTTP/2, whose window is smaller.
const FIRST_OF_STREAM: usize = 200 * 1024;
/// What it sends afterwards, piece by piece.
const DROPS: usize = 50;
const DROP: usize = 1024;

/// While the server takes nothing, what its client sends wakes nobody; but a connection of HTTP/2 is read all the same, as
/// anything may come, and its windows bound what does. And a server that reads what it has got already, a little at a
/// time, wakes nobody at all.
#[test]
fn nothing_wakes_for_nothing() {
    for way in WAYS {
        let ((go, wait), (took, taken)) = (channel(), channel());
        let (wait, took): (Mutex<Receiver<()>>, Sender<()>) = (Mutex::new(wait), took);
        let wait = Arc::new(wait);
        let Rig { instance, mut client, server } = rig(way, move |mut stream, http| {
            if http {
                head(&mut stream);
            }
            let wait = wait.lock().unwrap();
            // How much to take, and that it was taken.
            while wait.recv().is_ok() {
                let mut piece = [0; 512];
                let mut left = LAST;
                while left > 0 {
                    let most = left.min(piece.len());
                    match stream.read(&mut piece[..most]) {
                        Ok(n @ 1..) => left -= n,
                        _ => return,
                    }
                }
                let _ = took.send(());
            }
            let _ = stream.write_all(if http { OK } else { b"k" });
            let _ = stream.read(&mut [0]);
        });
        let first = if way == "HTTP/2" { FIRST_OF_STREAM } else { FIRST };
        let length = first + DROPS * DROP;
        client.begin(length);
        client.send(first, false, |send| send());
        asleep(&instance);
        let before = waits(&instance);
        for drop in 1..=DROPS {
            client.send(DROP, drop == DROPS, |send| send());
            std::thread::sleep(Duration::from_millis(2));
        }
        asleep(&instance);
        let woken = waits(&instance) - before;
        println!("{way}: woken {woken} times by {DROPS} packets");
        assert!(
            woken <= DROPS as u64 / 2 || way == "HTTP/2",
            "{way}: woken {woken} times by {DROPS} packets"
        );
        let before = waits(&instance);
        for _ in 0..length / LAST {
            go.send(()).unwrap();
            taken.recv_timeout(PATIENCE).unwrap();
        }
        let woken = waits(&instance) - before;
        println!("{way}: woken {woken} times by {} reads", length / 512);
        assert!(woken <= 24, "{way}: woken {woken} times by {} reads", length / 512);
        drop(go);
        client.end();
        drop(client);
        instance.stop();
        drop(server);
    }
}

/// So much is taken at a time in the end.
const LAST: usize = 50 * 1024;

/// Waits until the worker does nothing any more.
fn asleep(instance: &Instance) {
    instance.until("the worker sleeps", || {
        let before = waits(instance);
        let slept = sleeps(instance);
        std::thread::sleep(Duration::from_millis(30));
        (slept && sleeps(instance) && waits(instance) == before).then_some(())
    });
}

/// Stops Offramp while this is done. What is sent meanwhile is there at once when it goes on, however slow the client is.
pub(crate) fn while_stopped(instance: &Instance, done: &mut dyn FnMut()) {
    instance.process.signal(Signal::STOP).unwrap();
    instance.until("the worker is stopped", || is_stopped(instance).then_some(()));
    done();
    instance.process.signal(Signal::CONT).unwrap();
}
