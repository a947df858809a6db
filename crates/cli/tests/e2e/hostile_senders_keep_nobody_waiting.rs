//! Whatever one client sends, another one of the same worker is served soon.
//!
//! What is measured is the CPU time of the worker between a request of an honest client and its response: how much it
//! does for others first. The time that passes says nothing on a machine that has other things to do.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use offramp_testkit::server::{Listen, Server, apps};
use offramp_testkit::tls_client::{Cipher, Client, Options, Seal, Suite, Version};
use rustls::ClientConfig;

use crate::crowd::{Tls, connect, tcp, trusting};
use crate::h2_client::kind::PING;
use crate::h2_client::{END_HEADERS, H2, PREFACE, data, frame, headers, request, settings};
use crate::instance::{CERTIFICATE, Home, Instance, LISTENER};

/// What every row is to stay below.
const BOUND: Duration = Duration::from_millis(20);
/// The figures of a thread that runs are as old as the last tick of the kernel, and tests run without the optimizations
/// of a release.
const ROOM: f64 = 2.0;
/// Records that the test seals to learn how fast the machine is, and the CPU time of that where the bound was found.
const SEALED: usize = 100_000;
const USUAL: Duration = Duration::from_millis(100);
/// How often the honest client asks at the least.
const ROUNDS: usize = 9;

type Raw = Client<TcpStream>;
/// Sends all that it was made for; ends early where the connection is closed.
type Sender = Box<dyn FnOnce() + Send>;

struct World {
    instance: Instance,
    config: Arc<ClientConfig>,
    relay: SocketAddr,
    web: SocketAddr,
    /// The figures of the worker's thread (proc(5), Documentation/scheduler/sched-stats).
    schedstat: PathBuf,
}

impl World {
    fn new(app: &Server) -> Self {
        let home = Home::new();
        let config = trusting(&home.ca.certificate());
        let instance = home.run(&format!(
            "workers = 1\n{CERTIFICATE}{LISTENER}[[listener]]\nname = \"web\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
             [[route]]\nlistener = [\"web\"]\npath = \"/well\"\nrespond = {{ body = \"ok\" }}\n[[route]]\nserver = \"{}\"\n",
            app.address()
        ));
        let tasks = fs::read_dir(format!("/proc/{}/task", instance.process.id())).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        let is_worker = |task: &PathBuf| fs::read_to_string(task.join("comm")).unwrap().trim() == "offramp-0";
        let schedstat = tasks.find(is_worker).expect("the thread of the worker").join("schedstat");
        let (relay, web) = (instance.address(), instance.address_of("web"));
        Self { instance, config, relay, web, schedstat }
    }

    /// The CPU time of the worker so far.
    fn cpu(&self) -> Duration {
        let text = fs::read_to_string(&self.schedstat).unwrap();
        Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
    }

    /// One request of the honest client, and how much the worker did until it was served.
    fn ask(&self, honest: &mut Tls) -> Duration {
        let before = self.cpu();
        honest.write_all(b"GET /well HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        honest.flush().unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nok") {
            let mut part = [0; 1024];
            let n = honest.read(&mut part).unwrap();
            assert!(n > 0, "{}", response.escape_ascii());
            response.extend_from_slice(&part[..n]);
        }
        self.cpu() - before
    }

    /// A client that says each record as it is told to; `protocol`: what it offers in ALPN.
    fn raw(&self, to: SocketAddr, protocol: &str) -> Raw {
        let mut options = Options::new(Suite::new(Version::Tls13, Cipher::Aes128Gcm));
        options.server_name = Some("localhost".into());
        options.alpn = vec![protocol.to_owned()];
        let mut client = Client::new(tcp(to).unwrap(), options).unwrap();
        client.handshake().unwrap();
        client
    }

    /// One that sends `first`, and then so many times what `piece` makes.
    fn records(
        &self,
        to: SocketAddr,
        first: &[u8],
        times: usize,
        piece: fn(&mut Raw) -> Vec<u8>,
    ) -> Vec<Sender> {
        let protocol = if first.starts_with(PREFACE) { "h2" } else { "http/1.1" };
        let mut client = self.raw(to, protocol);
        let mut all = client.seal(&Seal::data(first));
        (0..times).for_each(|_| all.extend(piece(&mut client)));
        vec![Box::new(move || drop(client.write_raw(&all)))]
    }

    /// Clients of HTTP/2 that begin a request on each of so many streams, and then send this.
    fn frames(&self, clients: usize, streams: u32, bytes: &[u8]) -> Vec<Sender> {
        let post = request("POST", "/", &[]);
        let begin: Vec<u8> = (0..streams).flat_map(|n| headers(1 + 2 * n, END_HEADERS, &post)).collect();
        let one = |_| -> Sender {
            let mut client = H2::open(&self.config, self.web, &[]);
            assert!(client.send(&begin));
            let bytes = bytes.to_vec();
            Box::new(move || _ = client.send(&bytes))
        };
        (0..clients).map(one).collect()
    }
}

/// How many times slower than usual this machine is; at least 1.
fn slowness(world: &World) -> f64 {
    let own = || {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
    };
    let mut client = world.raw(world.relay, "http/1.1");
    let before = own();
    (0..SEALED).for_each(|_| drop(std::hint::black_box(client.seal(&Seal::data(b"x")))));
    let took = own() - before;
    println!("{SEALED} records sealed in {took:?} of CPU time");
    (took.as_secs_f64() / USUAL.as_secs_f64()).max(1.0)
}

/// What hostile clients send.
type Row = (&'static str, fn(&World) -> Vec<Sender>);

/// A request for content of that length over HTTP/1, and its first byte.
const HTTP1: &[u8] = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200001\r\n\r\nx";

/// A request over HTTP/2, without the end of its content.
fn http2() -> Vec<u8> {
    [PREFACE, &settings(&[]), &headers(1, END_HEADERS, &request("POST", "/", &[]))].concat()
}

/// Each byte in a record of its own.
fn in_records_of_a_byte(client: &mut Raw, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(1).flat_map(|byte| client.seal(&Seal::data(byte))).collect()
}

/// A record with these bytes behind a key update that asks for one.
fn behind_a_key_update(client: &mut Raw, bytes: &[u8]) -> Vec<u8> {
    [client.seal_key_update(1), client.seal(&Seal::data(bytes))].concat()
}

const ROWS: [Row; 13] = [
    ("relay: records of one byte", |world| {
        world.records(world.relay, b"s", 200_000, |client| client.seal(&Seal::data(b"x")))
    }),
    ("relay: empty records, 31 before each byte", |world| {
        world.records(world.relay, b"s", 4000, |client| {
            let mut piece: Vec<u8> = (0..31).flat_map(|_| client.seal(&Seal::data(b""))).collect();
            piece.extend(client.seal(&Seal::data(b"x")));
            piece
        })
    }),
    ("relay: a key update before each byte", |world| {
        world.records(world.relay, b"s", 40_000, |client| {
            [client.seal_key_update(0), client.seal(&Seal::data(b"x"))].concat()
        })
    }),
    ("relay: key updates that ask for one", |world| {
        world.records(world.relay, b"s", 40_000, |client| {
            [client.seal_key_update(1), client.seal(&Seal::data(b"x"))].concat()
        })
    }),
    ("HTTP/1: chunks of one byte, their sizes split over records", |world| {
        let head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1";
        world.records(world.web, head, 40_000, |client| {
            [client.seal(&Seal::data(b"\r\nx\r")), client.seal(&Seal::data(b"\n1"))].concat()
        })
    }),
    ("HTTP/1: content in records of one byte", |world| {
        world.records(world.web, HTTP1, 200_000, |client| client.seal(&Seal::data(b"x")))
    }),
    ("HTTP/1: a key update before each byte of content", |world| {
        world.records(world.web, HTTP1, 40_000, |client| behind_a_key_update(client, b"x"))
    }),
    ("HTTP/2: PING in records of one byte", |world| {
        let ping = |client: &mut Raw| in_records_of_a_byte(client, &frame(PING, 0, 0, b"12345678"));
        world.records(world.web, &http2(), 10_000, ping)
    }),
    ("HTTP/2: DATA in records of one byte", |world| {
        world.records(world.web, &http2(), 10_000, |client| in_records_of_a_byte(client, &data(1, 0, b"x")))
    }),
    ("HTTP/2: a key update before each DATA of one byte", |world| {
        world.records(world.web, &http2(), 40_000, |client| behind_a_key_update(client, &data(1, 0, b"x")))
    }),
    ("HTTP/2: PING", |world| world.frames(50, 0, &frame(PING, 0, 0, b"12345678").repeat(5000))),
    ("HTTP/2: SETTINGS of 2,730 windows, with 99 streams", |world| {
        let windows: Vec<_> = (0..2730).map(|size| (4, 65_535 + size)).collect();
        world.frames(4, 99, &settings(&windows).repeat(900))
    }),
    ("HTTP/2: empty DATA", |world| world.frames(50, 1, &data(1, 0, b"").repeat(5000))),
];

#[test]
fn whatever_a_client_sends_others_are_served_soon() {
    let app = Server::start(&Listen::Ipv4, apps::sink).unwrap();
    println!("| sent by a hostile client | median, ms | most, ms | requests |\n| --- | ---: | ---: | ---: |");
    let mut slow = Vec::new();
    for (name, prepare) in ROWS {
        let world = World::new(&app);
        let mut honest = connect(&world.config, world.web, "localhost").unwrap();
        world.ask(&mut honest);
        let bound = BOUND.mul_f64(ROOM * slowness(&world));
        let senders = prepare(&world);
        let mut times = thread::scope(|scope| {
            let sending = scope.spawn(|| senders.into_iter().for_each(|send| send()));
            let mut times = Vec::new();
            while times.len() < ROUNDS || !sending.is_finished() {
                times.push(world.ask(&mut honest));
            }
            times
        });
        times.sort_unstable();
        // One at the most: a client that is not given a core for a while sees what was done for others meanwhile.
        let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        println!("| {name} | {:.2} | {:.2} | {} |", ms(median), ms(most), times.len());
        if median > bound {
            slow.push((name, median, bound));
        }
        drop(honest);
        drop(world.instance);
    }
    assert!(slow.is_empty(), "{slow:?}");
}
