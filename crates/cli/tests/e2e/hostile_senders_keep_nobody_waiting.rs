//! Whatever one client sends, another one of the same worker is served soon.
//!
//! What is measured is the CPU time of the worker between a request of an honest client and its response: how much it
//! does for others first. The time that passes says nothing on a machine that has other things to do. What is counted
//! besides are the system calls of the worker between two looks at its event loop, which no machine changes.

use std::any::Any;
use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use offramp_testkit::oracle;
use offramp_testkit::process::{Process, Ready, Signal, require};
use offramp_testkit::server::{Listen, Server, Stream};
use offramp_testkit::tls_client::{Cipher, Client, Options, Seal, Suite, Version};
use rustls::{ClientConfig, ServerConfig, ServerConnection, StreamOwned};

use crate::support::crowd::{Tls, connect, tcp, trusting};
use crate::support::h2_client::kind::{PING, WINDOW_UPDATE};
use crate::support::h2_client::{END_HEADERS, H2, PREFACE, WHOLE, data, frame, headers, request, settings};
use crate::support::instance::{CERTIFICATE, Home, Instance, LIFE, LISTENER, PATIENCE};
use crate::support::skipped::sees_inside_or_skipped;

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
/// So many hostile clients send at once where there are no more of them; others send one after the other.
const AT_ONCE: usize = 4;
/// The most system calls of a worker for one hostile client between two looks at the event loop, where 20 to 54 were
/// counted, and 280 before turns were counted whatever comes of them.
const CALLS: usize = 60;
/// What else a worker calls between two looks: many clients have few calls each.
const OTHER_CALLS: usize = 200;
/// By how much less is sent where calls are counted: each of them takes many times as long then.
const SHORTER: usize = 16;

type Raw = Client<TcpStream>;
/// Sends all that it was made for, and gives its connection, which is to stay: what nobody hears is not said. Ends early
/// where the connection is closed.
type Sender = Box<dyn FnOnce() -> Connected + Send>;
type Connected = Box<dyn Any + Send>;

struct World {
    instance: Instance,
    config: Arc<ClientConfig>,
    relay: SocketAddr,
    /// The same to a server that speaks TLS, and without TLS of ours.
    secure: SocketAddr,
    blind: SocketAddr,
    web: SocketAddr,
    /// The worker's thread.
    thread: PathBuf,
    /// By how much less is sent.
    shorter: usize,
    _servers: [Server; 2],
}

/// How much a server answers with, in chunks of a byte.
const CHUNKS: usize = 500_000;

/// A server that answers a request for `/chunks` in chunks of a byte, agrees to another protocol on `/switch`, and takes
/// whatever else comes.
fn serve(mut stream: impl Read + Write) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0
            || !head.is_empty() && !b"GET POST ".starts_with(&head[..head.len().min(4)])
        {
            break;
        }
        head.push(byte[0]);
    }
    if head.starts_with(b"GET /chunks") {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let many = b"1\r\nx\r\n".repeat(2700);
        for _ in 0..CHUNKS / 2700 {
            stream.write_all(&many)?;
        }
        stream.write_all(b"0\r\n\r\n")?;
    } else if head.starts_with(b"GET /switch") {
        stream.write_all(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")?;
    }
    stream.flush()?;
    std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
}

fn servers(home: &Home) -> [Server; 2] {
    let tls: Arc<ServerConfig> =
        Arc::new(oracle::server_config(&home.server.chain, &home.server.key).unwrap());
    let secure = move |stream: Stream| {
        let session = ServerConnection::new(Arc::clone(&tls)).unwrap();
        let _ = serve(StreamOwned::new(session, stream));
    };
    [
        Server::start(&Listen::Ipv4, |stream| drop(serve(stream))).unwrap(),
        Server::start(&Listen::Ipv4, secure).unwrap(),
    ]
}

impl World {
    fn new(shorter: usize) -> Self {
        let home = Home::new();
        let config = trusting(&home.ca.certificate());
        let servers = servers(&home);
        let [plain, tls] = [&servers[0], &servers[1]].map(|server| server.address().to_string());
        let verified =
            format!("tls = {{ verify = \"{}\", name = \"localhost\" }}\n", home.ca.certificate().display());
        let relay = |name: &str| format!("[[listener]]\nname = \"{name}\"\naddress = \"127.0.0.1:0\"\n");
        let instance = home.run(&format!(
            "workers = 1\n{CERTIFICATE}{LISTENER}{}{}[[listener]]\nname = \"web\"\naddress = \"127.0.0.1:0\"\nmode = \"http\"\n\
             [[route]]\nlistener = [\"web\"]\npath = \"/well\"\nrespond = {{ body = \"ok\" }}\n\
             [[route]]\nlistener = [\"web\"]\npath = \"/chunks-of-tls\"\nbackend = \"secure\"\n\
             [[route]]\nlistener = [\"blind\"]\npassthrough = \"{tls}\"\n\
             [[route]]\nlistener = [\"secure\"]\nbackend = \"secure\"\n\
             [[route]]\nlistener = [\"default\", \"web\"]\nserver = \"{plain}\"\n\
             [backend.secure]\nservers = \"{tls}\"\n{verified}",
            relay("secure"),
            relay("blind"),
        ));
        let tasks = fs::read_dir(format!("/proc/{}/task", instance.process.id())).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        let is_worker = |task: &PathBuf| fs::read_to_string(task.join("comm")).unwrap().trim() == "offramp-0";
        let thread = tasks.find(is_worker).expect("the thread of the worker");
        let [secure, blind, web] = ["secure", "blind", "web"].map(|name| instance.address_of(name));
        let relay = instance.address();
        Self { instance, config, relay, secure, blind, web, thread, shorter, _servers: servers }
    }

    /// The CPU time of the worker so far.
    fn cpu(&self) -> Duration {
        // proc(5), Documentation/scheduler/sched-stats.
        let text = fs::read_to_string(self.thread.join("schedstat")).unwrap();
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
        (0..times / self.shorter).for_each(|_| all.extend(piece(&mut client)));
        vec![Box::new(move || {
            let _ = client.write_raw(&all);
            Box::new(client)
        })]
    }

    /// Clients of HTTP/2 that begin a request on each of so many streams, and then send this.
    fn frames(&self, clients: usize, streams: u32, bytes: &[u8]) -> Vec<Sender> {
        let post = request("POST", "/", &[]);
        let begin: Vec<u8> = (0..streams).flat_map(|n| headers(1 + 2 * n, END_HEADERS, &post)).collect();
        let one = |_| -> Sender {
            let mut client = H2::open(&self.config, self.web, &[]);
            assert!(client.send(&begin));
            let bytes = bytes[..bytes.len() / self.shorter].to_vec();
            Box::new(move || {
                client.send(&bytes);
                Box::new(client)
            })
        };
        (0..clients).map(one).collect()
    }

    /// Four clients as [`World::records`] makes them.
    fn four(
        &self,
        to: SocketAddr,
        first: &[u8],
        times: usize,
        piece: fn(&mut Raw) -> Vec<u8>,
    ) -> Vec<Sender> {
        (0..AT_ONCE).flat_map(|_| self.records(to, first, times, piece)).collect()
    }

    /// Four clients that ask for this over HTTP/1.1, and read the answer.
    fn readers(&self, path: &str) -> Vec<Sender> {
        let one = |_| -> Sender {
            let mut client = connect(&self.config, self.web, "localhost").unwrap();
            let text = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let most = (6 * CHUNKS / self.shorter) as u64;
            Box::new(move || {
                client.write_all(text.as_bytes()).and_then(|()| client.flush()).unwrap();
                let _ = std::io::copy(&mut (&mut client).take(most), &mut std::io::sink());
                Box::new(client)
            })
        };
        (0..AT_ONCE).map(one).collect()
    }

    /// The same over HTTP/2, with windows as large as they can be.
    fn h2_readers(&self, path: &str) -> Vec<Sender> {
        let one = |_| -> Sender {
            let mut client = H2::open(&self.config, self.web, &[(4, 0x7fff_ffff)]);
            let window = frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
            let ask = headers(1, WHOLE, &request("GET", path, &[]));
            // Each chunk has more bytes than one there.
            let most = (CHUNKS / self.shorter) as u64;
            Box::new(move || {
                assert!(client.send(&[window, ask].concat()));
                let mut stream = client.into_stream();
                let _ = std::io::copy(&mut (&mut stream).take(most), &mut std::io::sink());
                Box::new(stream)
            })
        };
        (0..AT_ONCE).map(one).collect()
    }

    /// Waits until the worker has done with all that was sent.
    fn rests(&self) {
        let before = Cell::new(self.cpu());
        self.instance.until("a worker without work", || {
            thread::sleep(Duration::from_millis(50));
            let now = self.cpu();
            (now - before.replace(now) < Duration::from_millis(1)).then_some(())
        });
    }

    /// Has strace(1) write the system calls of the worker to a file, until it is told to stop.
    fn traced(&self, to: &Path) -> Process {
        let id = self.thread.file_name().unwrap().to_str().unwrap();
        let mut strace = Command::new(require("strace", "strace"));
        strace.args(["-o", to.to_str().unwrap(), "-p", id]);
        let strace = Process::start(strace, LIFE).unwrap();
        strace.wait_for(&Ready::Line(" attached".into()), PATIENCE).unwrap();
        strace
    }
}

/// The most system calls between two looks at readiness, of a thread whose calls were written down.
fn most_calls(written: &str) -> usize {
    let looks = |line: &&str| line.starts_with("epoll_wait(") || line.starts_with("epoll_pwait");
    let calls = written.lines().filter(|line| !line.starts_with("---"));
    calls.collect::<Vec<_>>().split(looks).map(<[&str]>::len).max().unwrap_or(0)
}

/// Has all that hostile clients send go out.
fn send<'s>(scope: &'s thread::Scope<'s, '_>, senders: Vec<Sender>) -> Vec<Sending<'s>> {
    if senders.len() > AT_ONCE {
        return vec![scope.spawn(|| senders.into_iter().map(|send| send()).collect())];
    }
    senders.into_iter().map(|send| scope.spawn(|| vec![send()])).collect()
}

type Sending<'s> = thread::ScopedJoinHandle<'s, Vec<Connected>>;

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

/// The same in chunks, without any.
const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
/// The same to a route that wants no content.
const UNWANTED: &[u8] = b"POST /well HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
/// A request for another protocol.
const SWITCH: &[u8] =
    b"GET /switch HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
/// A chunk of a byte.
const CHUNK: &[u8] = b"1\r\nx\r\n";

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

const ROWS: [Row; 29] = [
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
    ("HTTP/2: WINDOW_UPDATE", |world| {
        world.frames(4, 1, &frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()).repeat(50_000))
    }),
    ("HTTP/2: DATA of one byte in full records", |world| {
        world.frames(4, 1, &data(1, 0, b"x").repeat(50_000))
    }),
    ("HTTP/1: chunks of one byte in full records", |world| {
        world.four(world.web, CHUNKED, 60, |client| client.seal(&Seal::data(&CHUNK.repeat(2700))))
    }),
    ("HTTP/1: a key update before each chunk of one byte", |world| {
        world.four(world.web, CHUNKED, 20_000, |client| {
            [client.seal_key_update(0), client.seal(&Seal::data(CHUNK))].concat()
        })
    }),
    ("HTTP/1: a key update that asks for one before each chunk of one byte", |world| {
        world.four(world.web, CHUNKED, 20_000, |client| behind_a_key_update(client, CHUNK))
    }),
    ("HTTP/1: a key update that asks for one before each byte of content", |world| {
        world.four(world.web, HTTP1, 20_000, |client| behind_a_key_update(client, b"x"))
    }),
    ("HTTP/1: empty records, 31 before each chunk", |world| {
        world.four(world.web, CHUNKED, 1000, |client| {
            let mut piece: Vec<u8> = (0..31).flat_map(|_| client.seal(&Seal::data(b""))).collect();
            piece.extend(client.seal(&Seal::data(CHUNK)));
            piece
        })
    }),
    ("HTTP/1: chunks of one byte that nobody wants", |world| {
        world.four(world.web, UNWANTED, 20_000, |client| behind_a_key_update(client, CHUNK))
    }),
    ("HTTP/1: another protocol in records of one byte", |world| {
        world.four(world.web, SWITCH, 50_000, |client| client.seal(&Seal::data(b"x")))
    }),
    ("HTTP/1: another protocol, with key updates that ask for one", |world| {
        world.four(world.web, SWITCH, 20_000, |client| behind_a_key_update(client, b"x"))
    }),
    ("responses in chunks of one byte", |world| world.readers("/chunks")),
    ("responses in chunks of one byte, from a server within TLS", |world| world.readers("/chunks-of-tls")),
    ("responses in chunks of one byte, over HTTP/2", |world| world.h2_readers("/chunks")),
    ("relay to TLS: records of one byte", |world| {
        world.four(world.secure, b"s", 50_000, |client| client.seal(&Seal::data(b"x")))
    }),
    ("relay to TLS: key updates that ask for one", |world| {
        world.four(world.secure, b"s", 20_000, |client| behind_a_key_update(client, b"x"))
    }),
    ("relay without TLS of ours: records of one byte", |world| {
        world.four(world.blind, b"s", 50_000, |client| client.seal(&Seal::data(b"x")))
    }),
];

#[test]
fn whatever_a_client_sends_others_are_served_soon() {
    println!("| sent by a hostile client | median, ms | most, ms | requests |\n| --- | ---: | ---: | ---: |");
    let mut slow = Vec::new();
    for (name, prepare) in ROWS {
        let world = World::new(1);
        let mut honest = connect(&world.config, world.web, "localhost").unwrap();
        world.ask(&mut honest);
        let bound = BOUND.mul_f64(ROOM * slowness(&world));
        let senders = prepare(&world);
        let mut times = thread::scope(|scope| {
            let sending = send(scope, senders);
            let mut times = Vec::new();
            while times.len() < ROUNDS || !sending.iter().all(thread::ScopedJoinHandle::is_finished) {
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

#[test]
fn nobody_has_more_calls_than_a_turn_has() {
    if !sees_inside_or_skipped() {
        return;
    }
    println!("| sent by hostile clients | most calls between two looks | bound |\n| --- | ---: | ---: |");
    let mut greedy = Vec::new();
    for (name, prepare) in ROWS {
        let world = World::new(SHORTER);
        let senders = prepare(&world);
        let bound = CALLS * senders.len().min(AT_ONCE) + OTHER_CALLS;
        let written = world.instance.home.file("calls");
        let strace = world.traced(&written);
        thread::scope(|scope| {
            let sending = send(scope, senders);
            let connected: Vec<_> = sending.into_iter().map(|one| one.join().unwrap()).collect();
            world.rests();
            drop(connected);
        });
        strace.signal(Signal::INT).unwrap();
        strace.wait(PATIENCE).unwrap();
        let most = most_calls(&fs::read_to_string(&written).unwrap());
        println!("| {name} | {most} | {bound} |");
        if most > bound {
            greedy.push((name, most, bound));
        }
        drop(world.instance);
    }
    assert!(greedy.is_empty(), "{greedy:?}");
}
