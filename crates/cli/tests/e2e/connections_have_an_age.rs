//! `max_age`: every kind of connection ends at its greatest age, give or take a tenth, in order, and loses nothing.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::server::{Listen, Server, Stream, apps, websocket_accept};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};

use crate::support::crowd::{echo, get, secure, tcp, trusting};
use crate::support::duplex::speaking;
use crate::support::figures::Page;
use crate::support::h2_client::{
    ACK, END_HEADERS, END_STREAM, H2, WHOLE, data, frame, headers, kind, post, request, window,
};
use crate::support::http_app::{app, respond};
use crate::support::instance::{CERTIFICATE, Home, Instance, LISTENER, PATIENCE, cause};

const AGED: &str = "workers = 1\n[limits]\nmax_age = \"2s\"\n[metrics]\naddress = \"127.0.0.1:0\"\n";
/// Nine tenths of that, less what clocks lag.
const YOUNGEST: Duration = Duration::from_millis(1700);
const PLAIN: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = false\n";

/// An echo that tells how its client's stream ended.
fn telling() -> (Server, mpsc::Receiver<bool>) {
    let (told, hear) = mpsc::channel();
    let told = Mutex::new(told);
    let serve = move |mut stream: Stream| {
        let mut chunk = [0; 4096];
        let orderly = loop {
            match stream.read(&mut chunk) {
                Ok(0) => break true,
                Ok(n) if stream.write_all(&chunk[..n]).is_ok() => {}
                _ => break false,
            }
        };
        let _ = told.lock().unwrap().send(orderly);
    };
    (Server::start(&Listen::Ipv4, serve).unwrap(), hear)
}

/// A way of relaying.
struct Kind {
    name: &'static str,
    /// The client's TLS; `None`: plain text.
    client: Option<Arc<ClientConfig>>,
    instance: Instance,
    /// What terminates the TLS that Offramp does not.
    _inner: Option<Instance>,
    hear: mpsc::Receiver<bool>,
    _app: Server,
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    let mut add = |name, version: Option<&'static rustls::SupportedProtocolVersion>, encrypted: bool| {
        let (app, hear) = telling();
        let listener = if version.is_some() { LISTENER } else { PLAIN };
        let (inner, backend) = if encrypted {
            let inner = Instance::before(app.address());
            let ca = inner.home.ca.certificate();
            let tls = format!("tls = {{ verify = \"{}\", name = \"localhost\" }}\n", ca.display());
            let backend = format!("servers = \"{}\"\n{tls}", inner.address());
            (Some(inner), backend)
        } else {
            (None, format!("servers = \"{}\"\n", app.address()))
        };
        let route = format!("[[route]]\nbackend = \"app\"\n[backend.app]\n{backend}");
        let instance = Home::new().run(&format!("{AGED}{CERTIFICATE}{listener}{route}"));
        let client = version.map(|version| speaking(version, &instance.home.ca.certificate()));
        kinds.push(Kind { name, client, instance, _inner: inner, hear, _app: app });
    };
    add("TLS 1.3", Some(&TLS13), false);
    add("TLS 1.2", Some(&TLS12), false);
    add("plain", None, false);
    add("plain, server with TLS", None, true);
    add("TLS 1.3, server with TLS", Some(&TLS13), true);
    let (app, hear) = telling();
    let inner = Instance::before(app.address());
    let route = format!("[[route]]\nhost = \"localhost\"\npassthrough = \"{}\"\n", inner.address());
    let instance = Home::new().run(&format!("{AGED}{CERTIFICATE}{LISTENER}{route}"));
    let client = Some(speaking(&TLS13, &inner.home.ca.certificate()));
    kinds.push(Kind { name: "passthrough", client, instance, _inner: Some(inner), hear, _app: app });
    kinds
}

trait Both: Read + Write {}
impl<T: Read + Write> Both for T {}

impl Kind {
    /// A connection that is busy, or not, until its age ends it.
    fn try_out(&self, busy: bool) {
        let name = self.name;
        let begun = Instant::now();
        let socket = tcp(self.instance.address()).unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut stream: Box<dyn Both> = match &self.client {
            Some(config) => Box::new(secure(config, socket, "localhost").unwrap()),
            None => Box::new(socket),
        };
        echo(&mut stream, "hello").unwrap();
        if busy {
            while echo(&mut stream, "more").is_ok() {
                assert!(begun.elapsed() < PATIENCE, "{name}: busy for ever");
            }
        } else {
            let end = stream.read(&mut [0; 16]);
            // Without close_notify behind it, the end of a passthrough is that of TCP.
            let orderly = matches!(end, Ok(0)) || name == "passthrough";
            assert!(orderly, "{name}: {end:?}");
        }
        drop(stream);
        assert!(begun.elapsed() >= YOUNGEST, "{name}, {busy}: after {:?}", begun.elapsed());
        let orderly = self.hear.recv_timeout(PATIENCE).unwrap();
        assert!(orderly || name == "passthrough", "{name}, {busy}: the server saw a break");
        let event = self.instance.event("the end", |event| event["client_port"] == port);
        assert_eq!((cause(&event), &event["fault"]), ("max_age", &"nobody".into()), "{name}: {event}");
        assert!(Page::scrape(self.instance.metrics()).closed("max_age") >= 1.0, "{name}");
    }
}

#[test]
fn relays_of_each_kind_end_in_order() {
    let mut kinds = kinds();
    thread::scope(|scope| {
        for kind in &mut kinds {
            scope.spawn(move || [false, true].into_iter().for_each(|busy| kind.try_out(busy)));
        }
    });
    for Kind { instance, .. } in kinds {
        instance.stop();
    }
}

/// An Offramp in mode `http`.
fn http(server: impl std::fmt::Display) -> Instance {
    Home::new()
        .run(&format!("{AGED}{CERTIFICATE}{LISTENER}mode = \"http\"\n[[route]]\nserver = \"{server}\"\n"))
}

/// The head of the answer to a GET whose body is `well`.
fn asked(stream: &mut impl Both) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.flush().unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nwell") {
        let mut part = [0; 1024];
        let n = stream.read(&mut part).unwrap();
        assert!(n > 0, "an end behind {:?}", answer.escape_ascii().to_string());
        answer.extend_from_slice(&part[..n]);
    }
    String::from_utf8(answer).unwrap().to_ascii_lowercase()
}

#[test]
fn over_http1_a_response_says_that_it_is_the_last() {
    let app = app(&Listen::Ipv4, |_, stream| respond(stream, 200, &[], b"well"));
    let instance = http(app.address());
    let config = trusting(&instance.home.ca.certificate());
    let begun = Instant::now();
    let mut busy = secure(&config, tcp(instance.address()).unwrap(), "localhost").unwrap();
    let mut idle = secure(&config, tcp(instance.address()).unwrap(), "localhost").unwrap();
    asked(&mut idle);
    while !asked(&mut busy).contains("\r\nconnection: close\r\n") {
        assert!(begun.elapsed() < PATIENCE, "never the last");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(begun.elapsed() >= YOUNGEST, "after {:?}", begun.elapsed());
    assert_eq!(busy.read(&mut [0; 16]).unwrap(), 0);
    // Who asks for nothing has a moment, and then a clean end.
    assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0);
    assert!(begun.elapsed() < PATIENCE / 2, "after {:?}", begun.elapsed());
    drop((busy, idle));
    let closed = || Page::scrape(instance.metrics()).closed("max_age");
    instance.until("two ends", || (closed() >= 2.0).then_some(()));
    // The next connection is young.
    let mut fresh = secure(&config, tcp(instance.address()).unwrap(), "localhost").unwrap();
    assert_eq!(get(&mut fresh, "/").unwrap(), "well");
    drop(fresh);
    instance.stop();
}

#[test]
fn over_http2_goaway_comes_twice_and_streams_are_finished() {
    let app = app(&Listen::Ipv4, |_, stream| respond(stream, 200, &[], b"well"));
    let instance = http(app.address());
    let config = trusting(&instance.home.ca.certificate());
    for open in [false, true] {
        let begun = Instant::now();
        let mut h2 = H2::open(&config, instance.address(), &[]);
        h2.is_well(1);
        if open {
            assert!(h2.send(&post(3, "/", &[("content-length", "2")])));
        }
        let mut last = Vec::new();
        while last.len() < 2 {
            let frame_seen = h2.next().unwrap_or_else(|| panic!("{open}: an end after {last:?}"));
            match frame_seen.kind {
                kind::GOAWAY => {
                    assert_eq!(frame_seen.code(), 0);
                    last.push(u32::from_be_bytes(frame_seen.payload[..4].try_into().unwrap()));
                }
                kind::PING if frame_seen.flags & ACK == 0 => {
                    assert!(h2.send(&frame(kind::PING, ACK, 0, &frame_seen.payload)));
                }
                _ => {}
            }
        }
        assert!(begun.elapsed() >= YOUNGEST, "{open}: after {:?}", begun.elapsed());
        assert_eq!(last, [i32::MAX.unsigned_abs(), if open { 3 } else { 1 }]);
        if open {
            assert!(h2.send(&data(3, END_STREAM, b"ab")));
            let answer = h2.find("answer", |frame| frame.kind == kind::HEADERS && frame.stream == 3);
            assert_eq!(answer.status(), 200);
        }
        while h2.next().is_some() {}
        assert!(begun.elapsed() < PATIENCE / 2, "{open}: after {:?}", begun.elapsed());
    }
    let closed = || Page::scrape(instance.metrics()).closed("max_age");
    instance.until("two ends", || (closed() >= 2.0).then_some(()));
    instance.stop();
}

/// Requests and tunnels under way at the greatest age, over one version of HTTP.
#[derive(Clone, Copy, Debug)]
enum UnderWay {
    WebSocket,
    Stream,
    Download,
    Upload,
}

const UNDER_WAY: [UnderWay; 4] =
    [UnderWay::WebSocket, UnderWay::Stream, UnderWay::Download, UnderWay::Upload];

impl UnderWay {
    /// The method, and the fields of a request over HTTP/1.1.
    fn over_http1(self) -> String {
        let (method, path, fields) = match self {
            Self::WebSocket => (
                "GET",
                "/socket",
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            ),
            Self::Stream => ("GET", "/stream", ""),
            Self::Download => ("GET", "/download", ""),
            Self::Upload => ("POST", "/upload", "Transfer-Encoding: chunked\r\n"),
        };
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
    }

    fn over_http2(self) -> Vec<u8> {
        let fields = match self {
            Self::WebSocket => {
                let mut fields = request("CONNECT", "/socket", &[]);
                fields.extend([(":protocol", "websocket"), ("sec-websocket-version", "13")]);
                fields
            }
            Self::Stream => request("GET", "/stream", &[]),
            Self::Download => request("GET", "/download", &[]),
            Self::Upload => request("POST", "/upload", &[]),
        };
        let flags = if matches!(self, Self::WebSocket | Self::Upload) { END_HEADERS } else { WHOLE };
        headers(1, flags, &fields)
    }
}

/// Never done with an answer, and an echo behind a switch.
fn endless(home: &Home) -> Server {
    app(&Listen::Unix(home.file("app.sock")), |request, stream| {
        let piece = match &*request.target {
            "/socket" => {
                let accept = websocket_accept(&format!(
                    "Sec-WebSocket-Key: {}\r\n",
                    request.field("sec-websocket-key")
                ));
                write!(
                    stream,
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: {accept}\r\n\r\n"
                )?;
                "x"
            }
            "/stream" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                "1\r\nx\r\n"
            }
            _ => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
                "x"
            }
        };
        loop {
            stream.write_all(piece.as_bytes())?;
            thread::sleep(Duration::from_millis(20));
        }
    })
}

/// A client that sends and reads until its connection ends, and gives how long that took.
fn until_the_end(instance: &Instance, what: UnderWay, http2: bool) -> Duration {
    let config = trusting(&instance.home.ca.certificate());
    let begun = Instant::now();
    if http2 {
        let mut h2 = H2::open(&config, instance.address(), &[]);
        assert!(h2.send(&what.over_http2()));
        let mut reset = false;
        while let Some(seen) = h2.next() {
            match seen.kind {
                kind::PING if seen.flags & ACK == 0 => {
                    h2.send(&frame(kind::PING, ACK, 0, &seen.payload));
                }
                kind::DATA => drop(h2.send(&window(0, seen.payload.len().try_into().unwrap()))),
                kind::RST_STREAM => reset = true,
                _ => assert!(seen.kind != kind::HEADERS || seen.status() == 200, "{what:?}"),
            }
        }
        assert!(reset, "{what:?}: the stream looks whole");
    } else {
        let mut tls = secure(&config, tcp(instance.address()).unwrap(), "localhost").unwrap();
        tls.write_all(what.over_http1().as_bytes()).unwrap();
        let mut piece = [0; 1024];
        while matches!(tls.read(&mut piece), Ok(1..)) {
            assert!(begun.elapsed() < PATIENCE, "{what:?} for ever");
        }
    }
    begun.elapsed()
}

/// The grace is one second here.
#[test]
fn over_http_what_is_under_way_has_a_grace_and_ends() {
    let home = Home::new();
    let _app = endless(&home);
    let aged = AGED.replace("max_age = \"2s\"\n", "max_age = \"2s\"\nmax_age_grace = \"1s\"\n");
    let instance = home.run(&format!(
        "{aged}{CERTIFICATE}{LISTENER}mode = \"http\"\n[[route]]\nserver = \"unix:app.sock\"\n"
    ));
    let (instance, least) = (&instance, YOUNGEST + Duration::from_millis(900));
    thread::scope(|scope| {
        for what in UNDER_WAY {
            for http2 in [false, true] {
                scope.spawn(move || {
                    let lived = until_the_end(instance, what, http2);
                    assert!(lived >= least, "{what:?}, {http2}: {lived:?}");
                });
            }
        }
    });
    let requests = || instance.events().into_iter().filter(|event| event["path"].is_string());
    let ended = |event: &serde_json::Value| (event["path"].clone(), event["http_version"].clone());
    instance.until("all requests", || (requests().count() == 8).then_some(()));
    for event in requests() {
        assert_eq!((cause(&event), &event["fault"]), ("max_age", &"nobody".into()), "{:?}", ended(&event));
    }
    let closed = || Page::scrape(instance.metrics()).closed("max_age");
    instance.until("eight ends", || (closed() >= 8.0).then_some(()));
}

/// Half of the bytes of an echo are on their way at the end: no reset overtakes them.
#[test]
fn what_was_taken_is_delivered() {
    let app = Server::start(&Listen::Ipv4, apps::echo).unwrap();
    let instance =
        Home::new().run(&format!("{AGED}{CERTIFICATE}{PLAIN}[[route]]\nserver = \"{}\"\n", app.address()));
    let mut stream = tcp(instance.address()).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let (mut sent, mut seen) = (0_u64, 0_u64);
    thread::scope(|scope| {
        let writer = scope.spawn(move || {
            while writing.write_all(&[b'x'; 4096]).is_ok() {
                sent += 4096;
            }
            sent
        });
        let mut chunk = vec![0; 65536];
        let end = loop {
            match stream.read(&mut chunk) {
                Ok(0) => break Ok(()),
                Ok(n) => seen += n as u64,
                Err(error) => break Err(error),
            }
        };
        end.expect("an end in order, and no reset");
        drop(stream.shutdown(std::net::Shutdown::Both));
        sent = writer.join().unwrap();
    });
    assert!(seen > 0 && seen <= sent + 4096, "{seen} of {sent}");
    let event = instance.event("the end", |event| event["listener"].is_string());
    assert_eq!(cause(&event), "max_age", "{event}");
    instance.stop();
}
