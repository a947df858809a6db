//! `bandwidth` of a route: what all of its clients together move in either direction has a bound, whatever they speak, and
//! other routes are not slowed, not even on the same connection.
//!
//! Times have lower bounds only: a busy machine takes longer. Who overtakes whom does not depend on it.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Output;
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use offramp_testkit::server::{Listen, Server, Stream};
use rustls::{ClientConfig, ClientConnection};

use crate::reload_loses_no_request::reload_to;
use crate::support::crowd::{connect, trusting};
use crate::support::figures::Page;
use crate::support::h2_client::kind::{DATA, HEADERS, WINDOW_UPDATE};
use crate::support::h2_client::{END_STREAM, Frame, H2, data, get, post, window};
use crate::support::http_app::{app, respond};
use crate::support::http_curl::{HTTP, command};
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE};

const MIB: usize = 1 << 20;
/// What is moved at a time; a second's worth passes at once.
const SIZE: usize = 3 * MIB;

/// The least time for so many bytes at 1 MiB/s, with what a clock may round.
fn least(bytes: usize) -> Duration {
    Duration::from_secs_f64((bytes - MIB) as f64 / MIB as f64) - Duration::from_millis(20)
}

/// Gives as many bytes as are asked for in the last part of the path, takes what it is given, or agrees to another protocol,
/// in which both sides say [`SIZE`] bytes.
fn application(home: &Home) -> Server {
    app(&Listen::Unix(home.file("app.sock")), |request, stream| {
        if request.target.ends_with("/tunnel") {
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            stream.write_all(head.as_bytes())?;
            stream.write_all(&vec![7; SIZE])?;
            stream.read_exact(&mut vec![0; SIZE])?;
            return stream.write_all(b"!");
        }
        let wanted = request.target.rsplit('/').next().and_then(|last| last.parse().ok());
        let body =
            wanted.map_or_else(|| request.body.len().to_string().into_bytes(), |wanted| vec![7; wanted]);
        respond(stream, 200, &[], &body)
    })
}

/// Takes [`SIZE`] bytes, and answers with one.
fn taker(mut stream: Stream) {
    if stream.read_exact(&mut vec![0; SIZE]).is_ok() {
        let _ = stream.write_all(b"!");
    }
}

/// Gives [`SIZE`] bytes to whoever says something.
fn giver(mut stream: Stream) {
    if stream.read(&mut [0; 64 << 10]).is_ok_and(|n| n > 0) {
        let _ = stream.write_all(&vec![7; SIZE]);
    }
}

/// A listener of connections with one route.
fn tcp(name: &str, listener: &str, route: &str) -> String {
    format!(
        "[[listener]]\nname = \"{name}\"\naddress = \"127.0.0.1:0\"\n{listener}\
         [[route]]\nlistener = \"{name}\"\n{route}"
    )
}

/// A route of requests.
fn path(path: &str, rest: &str) -> String {
    format!("[[route]]\nlistener = \"default\"\npath = \"/{path}\"\n{rest}\n")
}

const APP: &str = "server = \"unix:app.sock\"";
const ALL: &str = "workers = 2\n[defaults.route]\nbandwidth = \"1MiB\"\n";

struct World {
    instance: Instance,
    config: Arc<ClientConfig>,
    _servers: Vec<Server>,
}

/// What `text` says, with an application and a directory, where routes find `{taker}`, `{giver}` and `{files}`.
fn world(text: &str) -> World {
    let home = Home::new();
    fs::create_dir(home.file("files")).unwrap();
    fs::write(home.file("files/large"), vec![b'x'; SIZE]).unwrap();
    let config = trusting(&home.ca.certificate());
    let servers = [taker, giver].map(|serve| Server::start(&Listen::Ipv4, serve).unwrap());
    let text = text.replace("{taker}", &servers[0].address().to_string());
    let text = text.replace("{giver}", &servers[1].address().to_string());
    let text = text.replace("{files}", &home.file("files").display().to_string());
    let application = application(&home);
    let instance = home.run(&format!("{text}{CERTIFICATE}"));
    let servers = servers.into_iter().chain([application]).collect();
    World { instance, config, _servers: servers }
}

impl World {
    fn socket(&self, listener: &str) -> TcpStream {
        let socket = TcpStream::connect(self.instance.address_of(listener)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn address(&self) -> SocketAddr {
        self.instance.address()
    }

    /// Fetches a path with curl, whose last line says how many bytes came by which version.
    fn curl(&self, arguments: &[&str], path: &str) -> String {
        let mut command = command(&self.instance, "https");
        command.args([
            "--output",
            "/dev/null",
            "--write-out",
            "%{size_download} %{http_version} %{http_code}",
        ]);
        let output = command.args(arguments).arg(format!("https://localhost/{path}")).output().unwrap();
        let Output { status, stdout, stderr } = output;
        assert!(status.success(), "{path}: {status} {}", stderr.escape_ascii());
        String::from_utf8(stdout).unwrap()
    }

    fn download(&self, version: &str, path: &str) {
        let said = self.curl(&[&format!("--http{version}")], path);
        assert_eq!(said, format!("{SIZE} {version} 200"), "{path}");
    }

    /// Sends the file to the application, which answers with its size.
    fn upload(&self, version: &str, path: &str) {
        let (version, size) = (format!("--http{version}"), SIZE.to_string().len());
        let said = self.curl(&[&version, "--data-binary", "@files/large"], path);
        assert!(said.starts_with(&format!("{size} ")), "{path}: {said}");
    }
}

/// Has the giver give all, and reads it.
fn receive(stream: &mut (impl Read + Write), asks: &[u8]) {
    stream.write_all(asks).unwrap();
    stream.flush().unwrap();
    let mut bytes = vec![0; SIZE];
    stream.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
}

/// Gives the taker all, and reads its answer.
fn send(stream: &mut (impl Read + Write)) {
    stream.write_all(&vec![1; SIZE]).unwrap();
    stream.flush().unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"!");
}

/// Does something, which takes so long at least.
fn slowly<'s>(
    scope: &'s Scope<'s, '_>,
    what: &'static str,
    bytes: usize,
    act: impl FnOnce() + Send + 's,
) -> ScopedJoinHandle<'s, ()> {
    scope.spawn(move || {
        let begun = Instant::now();
        act();
        assert!(begun.elapsed() >= least(bytes), "{what} took {:?}", begun.elapsed());
    })
}

#[test]
fn bodies_go_at_the_rate_of_their_route_over_both_versions() {
    let root = "root = \"{files}\"\nstrip_path = true";
    let apps: String = ["down1", "down2", "up1", "up2"].into_iter().map(|name| path(name, APP)).collect();
    let text = format!("{ALL}{HTTP}{apps}{}{}", path("file1", root), path("file2", root));
    let world = &world(&text);
    let size = SIZE;
    thread::scope(|scope| {
        slowly(scope, "a file over HTTP/1.1", size, || world.download("1.1", "file1/large"));
        slowly(scope, "a file over HTTP/2", size, || world.download("2", "file2/large"));
        slowly(scope, "a response over HTTP/1.1", size, || world.download("1.1", &format!("down1/{size}")));
        slowly(scope, "a response over HTTP/2", size, || world.download("2", &format!("down2/{size}")));
        slowly(scope, "an upload over HTTP/1.1", size, || world.upload("1.1", "up1/take"));
        slowly(scope, "an upload over HTTP/2", size, || world.upload("2", "up2/take"));
    });
    // With the other direction of the same route it is another matter, and without a body nothing waits.
    assert_eq!(world.curl(&["--head"], "file1/large"), "0 2 200");
}

#[test]
fn relays_and_tunnels_go_at_the_rate_of_their_route() {
    let text = [
        ALL,
        HTTP,
        &path("tunnel", APP),
        &tcp("down", "", "server = \"{giver}\"\n"),
        &tcp("up", "", "server = \"{taker}\"\n"),
        &tcp("bare", "tls = false\n", "server = \"{giver}\"\n"),
        &tcp("sealed", "", "passthrough = \"{giver}\"\n"),
    ];
    let world = &world(&text.concat());
    let tls = |listener| connect(&world.config, world.instance.address_of(listener), "localhost").unwrap();
    thread::scope(|scope| {
        slowly(scope, "a relay to a client", SIZE, || receive(&mut tls("down"), b"?"));
        slowly(scope, "a relay to a server", SIZE, || send(&mut tls("up")));
        slowly(scope, "a relay without TLS", SIZE, || receive(&mut world.socket("bare"), b"?"));
        slowly(scope, "a sealed connection", SIZE, || {
            let name = "localhost".try_into().unwrap();
            let mut client = ClientConnection::new(Arc::clone(&world.config), name).unwrap();
            let mut hello = Vec::new();
            client.write_tls(&mut hello).unwrap();
            receive(&mut world.socket("sealed"), &hello);
        });
        // The first bytes of the server may have come with its head.
        slowly(scope, "a tunnel", SIZE - (128 << 10), || {
            let mut client = tls("default");
            let asks =
                b"GET /tunnel HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
            client.write_all(asks).unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                client.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
            receive(&mut client, b"");
            let begun = Instant::now();
            send(&mut client);
            assert!(begun.elapsed() >= least(SIZE), "up a tunnel took {:?}", begun.elapsed());
        });
    });
}

#[test]
fn clients_of_a_route_share_and_a_reload_gives_no_burst_again() {
    let configuration = |more: &str| {
        format!(
            "{ALL}[metrics]\naddress = \"127.0.0.1:0\"\n{HTTP}{}{}{more}",
            path("shared", APP),
            path("free", &format!("{APP}\nbandwidth = false"))
        )
    };
    let world = &world(&configuration(""));
    let page = Page::scrape(world.instance.metrics());
    assert_eq!(page.get("offramp_route_bandwidth_bytes{route=\"/shared\"}"), 1_048_576.0);
    let shared = &format!("shared/{SIZE}");
    let begun = Instant::now();
    thread::scope(|scope| {
        let of = |from, version| world.curl(&["--interface", from, version], shared);
        let both = [
            scope.spawn(move || of("127.0.2.1", "--http1.1")),
            scope.spawn(move || of("127.0.2.2", "--http2")),
        ];
        // A route that takes nothing over from the defaults has no bound: 30 MiB come before 3.
        for _ in 0..10 {
            world.download("1.1", &format!("free/{SIZE}"));
        }
        assert!(both.iter().all(|one| !one.is_finished()) || begun.elapsed() >= least(2 * SIZE));
        for one in both {
            assert!(one.join().unwrap().starts_with(&SIZE.to_string()));
        }
    });
    assert!(begun.elapsed() >= least(2 * SIZE), "both took {:?}", begun.elapsed());
    for more in ["other", "another"] {
        let text = format!("{}{CERTIFICATE}", configuration(&path(more, APP)));
        let outcome = reload_to(&world.instance, &text);
        assert!(outcome.contains(" reloaded "), "{outcome}");
    }
    assert_eq!(world.curl(&["--http1.1"], &format!("shared/{MIB}")), format!("{MIB} 1.1 200"));
    assert!(begun.elapsed() >= least(2 * SIZE + MIB), "with a reload it took {:?}", begun.elapsed());
}

/// The largest window.
const WIDE: u32 = (1 << 31) - 1;

#[test]
fn a_stream_of_a_slow_route_waits_and_its_connection_does_not() {
    overtake(1);
}

/// What waits for the bandwidth takes no turn from what does not, however much of it there is.
#[test]
fn streams_of_a_slow_route_wait_and_their_connection_does_not() {
    overtake(20);
}

/// A response overtakes so many of a slow route on the same connection.
fn overtake(count: u32) {
    const FAST: u32 = 101;
    let text = [HTTP, &path("slow", &format!("{APP}\nbandwidth = \"64KiB\"")), &path("fast", APP)];
    let world = world(&text.concat());
    let mut h2 = H2::open(&world.config, world.address(), &[(4, WIDE)]);
    // Each of them would take half a minute.
    let large = 2 * MIB;
    let asks = (0..count).flat_map(|n| get(1 + 2 * n, &format!("/slow/{large}")));
    h2.send(&window(0, WIDE - 65_535).into_iter().chain(asks).collect::<Vec<_>>());
    let (mut slow, mut begun) = (0, HashSet::new());
    while slow < 60 << 10 || begun.len() < count as usize {
        let part = h2.find("data", |frame| frame.kind == DATA);
        slow += part.payload.len();
        begun.insert(part.stream);
    }
    h2.send(&get(FAST, &format!("/fast/{SIZE}")));
    let (mut fast, before) = (0, slow);
    loop {
        let part = h2.find("data", |frame| frame.kind == DATA);
        if part.stream != FAST {
            slow += part.payload.len();
            // That takes 16 seconds.
            assert!(slow - before < MIB, "the fast one has {fast} bytes");
            assert!(part.flags & END_STREAM == 0, "a slow one overtook");
            continue;
        }
        fast += part.payload.len();
        if part.flags & END_STREAM > 0 {
            break;
        }
    }
    assert_eq!(fast, SIZE);
}

/// Sends content on streams of one connection within its windows.
struct Uploader {
    h2: H2,
    /// What the connection has room for.
    room: usize,
}

impl Uploader {
    /// Reads frames until one is `wanted`, and notes what may be sent.
    fn read(&mut self, what: &str, wanted: impl Fn(&Frame) -> bool) {
        loop {
            let frame =
                self.h2.find(what, |frame| matches!(frame.kind, HEADERS | WINDOW_UPDATE) || wanted(frame));
            if frame.kind == WINDOW_UPDATE && frame.stream == 0 {
                self.room += frame.code() as usize;
            }
            if frame.kind == HEADERS {
                assert_eq!((frame.stream, frame.status()), (LAST, 200), "another was answered");
            }
            if wanted(&frame) {
                return;
            }
        }
    }

    /// Sends so much on a stream.
    fn send(&mut self, stream: u32, bytes: usize, end: u8) {
        let mut left = bytes;
        while left > 0 {
            let n = left.min(16_384);
            while self.room < n {
                self.read("room", |frame| frame.kind == WINDOW_UPDATE && frame.stream == 0);
            }
            (left, self.room) = (left - n, self.room - n);
            self.h2.send(&data(stream, if left == 0 { end } else { 0 }, &vec![1; n]));
        }
    }
}

/// The stream that overtakes the others.
const LAST: u32 = 101;

#[test]
fn uploads_that_wait_leave_room_for_another() {
    let text = [HTTP, &path("slow", &format!("{APP}\nbandwidth = \"16KiB\"")), &path("fast", APP)];
    let world = world(&text.concat());
    let h2 = H2::open(&world.config, world.address(), &[]);
    let mut client = Uploader { h2, room: 65_535 };
    let begun = Instant::now();
    // Four of them would fill the window of the connection, for minutes.
    for id in (1..20).step_by(2) {
        client.h2.send(&post(id, "/slow/take", &[]));
        client.send(id, 256 << 10, 0);
    }
    client.h2.send(&post(LAST, "/fast/take", &[]));
    client.send(LAST, 256 << 10, END_STREAM);
    client.read("answer", |frame| frame.kind == HEADERS);
    // Behind the others it would have been 100 s: the window has 1 MiB, and they bring 2.5.
    assert!(begun.elapsed() < Duration::from_secs(80), "{:?}", begun.elapsed());
}

/// What waits for its turn is neither idle nor slow.
#[test]
fn who_waits_for_the_route_is_not_cut_off() {
    const COUNT: usize = 24;
    const EACH: usize = 2 << 10;
    let limit = "bandwidth = \"16KiB\"\n";
    let text = [
        "workers = 2\n[limits]\nidle_timeout = \"400ms\"\n",
        HTTP,
        &path("slow", &format!("{APP}\n{limit}")),
        &tcp("relay", "", &format!("{APP}\n{limit}")),
    ];
    let world = &world(&text.concat());
    let begun = Instant::now();
    let rate = 16 << 10;
    thread::scope(|scope| {
        // Behind both listeners is the same application.
        for (listener, count) in [("relay", COUNT), ("default", COUNT / 2)] {
            for _ in 0..count {
                scope.spawn(move || {
                    let address = world.instance.address_of(listener);
                    let mut client = connect(&world.config, address, "localhost").unwrap();
                    write!(client, "GET /slow/{EACH} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                    client.flush().unwrap();
                    let (mut have, mut piece) = (0, [0; 4096]);
                    while have < EACH {
                        let n = client.read(&mut piece).unwrap();
                        assert!(n > 0, "the connection has ended after {have} bytes");
                        have += piece[..n].iter().filter(|byte| **byte == 7).count();
                    }
                });
            }
        }
        let mut h2 = H2::open(&world.config, world.address(), &[]);
        let asks = (0..COUNT as u32 / 2).flat_map(|n| get(1 + 2 * n, &format!("/slow/{EACH}")));
        h2.send(&asks.collect::<Vec<_>>());
        let (mut have, mut over) = (0, 0);
        while over < COUNT / 2 {
            let part = h2.find("data", |frame| !matches!(frame.kind, HEADERS | 4 | 8));
            assert_eq!(part.kind, DATA, "{part:?}");
            have += part.payload.len();
            over += usize::from(part.flags & END_STREAM > 0);
        }
        assert_eq!(have, COUNT / 2 * EACH);
    });
    let least = (COUNT * EACH - rate) as f64 / rate as f64 - 0.02;
    assert!(begun.elapsed().as_secs_f64() >= least, "{:?}", begun.elapsed());
}
