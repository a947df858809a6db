//! What has no known end and was opened by a token ends with the token, over both versions of HTTP, or goes on, where a key
//! says so: WebSockets, responses without a length, calls of gRPC. Other responses and uploads are finished.

use std::fs;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use offramp_testkit::server::{Listen, Server, Stream};

use crate::http_websockets_pass_over_both_versions::{head, shouting_back};
use crate::support::crowd::{self, Tls, connect, trusting};
use crate::support::h2_client::kind::{DATA, HEADERS, RST_STREAM};
use crate::support::h2_client::{self, END_HEADERS, END_STREAM, H2, data, headers, request};
use crate::support::http_app::{Request, app};
use crate::support::http_curl::HTTP;
use crate::support::instance::{CERTIFICATE, Home, Instance, cause};
use crate::support::signed_tokens::TokenSigner;

/// The life of a token: longer than it takes to open a tunnel on a busy machine.
const LIFE: Duration = Duration::from_secs(15);

fn served(keys: &str) -> (Server, Instance, TokenSigner) {
    before(shouting_back, keys)
}

fn before(app: impl FnOnce(&Home) -> Server, keys: &str) -> (Server, Instance, TokenSigner) {
    let (home, signer) = (Home::new(), TokenSigner::new());
    let app = app(&home);
    fs::write(home.file("keys.json"), signer.keys()).unwrap();
    let instance = home.run(&format!(
        "{CERTIFICATE}{HTTP}[[route]]\nserver = \"unix:app.sock\"\n\
         jwt = {{ jwks = \"keys.json\", leeway = \"0s\"{keys} }}\n\
         min_body_rate = \"0B\"\nrequest_body_timeout = \"10m\"\n"
    ));
    (app, instance, signer)
}

/// A WebSocket over HTTP/1.1.
fn open(instance: &Instance, token: &str) -> Tls {
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    let request = format!(
        "GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    tls.write_all(request.as_bytes()).unwrap();
    let head = head(&mut tls);
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    tls
}

/// One over HTTP/2, on stream 1.
fn open_stream(instance: &Instance, token: &str) -> H2 {
    let mut h2 = H2::open(&trusting(&instance.home.ca.certificate()), instance.address(), &[]);
    let bearer = format!("Bearer {token}");
    let mut fields = request("CONNECT", "/socket", &[]);
    fields.extend([(":protocol", "websocket"), ("sec-websocket-version", "13"), ("authorization", &bearer)]);
    assert!(h2.send(&headers(1, END_HEADERS, &fields)));
    let answer = h2.find("answer", |frame| frame.kind == HEADERS && frame.stream == 1);
    assert_eq!(answer.status(), 200);
    h2
}

fn echo(h2: &mut H2) {
    assert!(h2.send(&data(1, 0, b"there")));
    let back = h2.find("data", |frame| frame.kind == DATA && frame.stream == 1);
    assert_eq!(back.payload, b"there");
    assert!(h2.send(&h2_client::window(0, 5)));
}

#[test]
fn a_websocket_ends_with_its_token() {
    let (_app, instance, signer) = served("");
    let begun = Instant::now();
    let token = signer.ending_in(LIFE);
    let (mut tls, mut h2) = (open(&instance, &token), open_stream(&instance, &token));
    crowd::echo(&mut tls, "here").unwrap();
    echo(&mut h2);
    // Traffic keeps no tunnel open; this one sends until it is cut off.
    while crowd::echo(&mut tls, "here").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    // One second less, for the two clocks.
    assert!(begun.elapsed() >= LIFE - Duration::from_secs(1));
    h2.find("end", |frame| frame.kind == RST_STREAM && frame.stream == 1);
    let events = instance.stop();
    let ends: Vec<_> = events.iter().map(|event| (event["status"].as_u64(), cause(event))).collect();
    // Over both versions (RFC 8441 answers with 200).
    assert_eq!(ends, [(Some(101), "token_expired"); 2], "{events:?}");
}

#[test]
fn a_websocket_may_outlive_its_token() {
    let (_app, instance, signer) = served(", keep_tunnels = true");
    let token = signer.ending_in(LIFE);
    let (mut tls, mut h2) = (open(&instance, &token), open_stream(&instance, &token));
    let status = || {
        let header = format!("Authorization: Bearer {token}");
        crate::support::http_curl::curl(&instance, &["--header", &header], "https://localhost/").status()
    };
    instance.until("the token ends", || (status() == 401).then_some(()));
    crowd::echo(&mut tls, "here").unwrap();
    echo(&mut h2);
    drop((tls, h2));
    let events = instance.stop();
    assert!(events.iter().all(|event| cause(event) != "token_expired"), "{events:?}");
}

/// The content of the response that has a length.
const SIZED: usize = 100_000;

/// Writes a piece of content again and again, until nobody takes it; one with a length is finished as soon as it is `due`.
fn talk(request: &Request, stream: &mut Stream, due: &AtomicBool) -> io::Result<()> {
    let (head, piece) = match &*request.target {
        "/events" => ("Content-Type: text/event-stream\r\nTransfer-Encoding: chunked", "8\r\ndata: x\n\r\n"),
        "/chunked" => ("Transfer-Encoding: chunked", "1\r\nx\r\n"),
        "/grpc" => ("Content-Type: application/grpc\r\nTransfer-Encoding: chunked", "1\r\nx\r\n"),
        "/closed" => ("Connection: close", "x"),
        _ => ("Content-Length: 100000", "x"),
    };
    stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes())?;
    let mut written = 0;
    while request.target != "/sized" || !due.load(Ordering::Relaxed) {
        stream.write_all(piece.as_bytes())?;
        written += 1;
        thread::sleep(Duration::from_millis(50));
    }
    stream.write_all(&vec![b'x'; SIZED - written])
}

/// Asks over HTTP/1.1, and gives the head and what follows up to the end of the connection or of `most` bytes.
fn ask_http1(instance: &Instance, token: &str, path: &str, most: usize) -> (String, Vec<u8>) {
    let config = trusting(&instance.home.ca.certificate());
    let mut tls = connect(&config, instance.address(), "localhost").unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    tls.write_all(request.as_bytes()).unwrap();
    let head = head(&mut tls);
    let (mut content, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    while content.len() < most {
        match tls.read(&mut piece) {
            Ok(n @ 1..) => content.extend_from_slice(&piece[..n]),
            _ => break,
        }
    }
    (head, content)
}

/// Asks over HTTP/2, and gives the kind and the flags of the last frame of the stream, and how much content came before it.
fn ask_http2(instance: &Instance, token: &str, path: &str) -> (u8, u8, usize) {
    let mut h2 = H2::open(&trusting(&instance.home.ca.certificate()), instance.address(), &[(4, 1 << 20)]);
    let bearer = format!("Bearer {token}");
    let mut fields = request("POST", path, &[("authorization", &bearer)]);
    if path == "/grpc" {
        fields.push(("content-type", "application/grpc"));
    }
    assert!(h2.send(&headers(1, END_HEADERS | END_STREAM, &fields)));
    assert!(h2.send(&h2_client::window(0, 1 << 20)));
    let mut content = 0;
    loop {
        let frame = h2.next().unwrap_or_else(|| panic!("{path}: the connection ended"));
        if frame.stream != 1 {
            continue;
        }
        if frame.kind == HEADERS && content == 0 {
            assert_eq!(frame.status(), 200, "{path}");
        }
        content += if frame.kind == DATA { frame.payload.len() } else { 0 };
        if frame.kind == RST_STREAM || frame.flags & END_STREAM != 0 && frame.kind <= HEADERS {
            return (frame.kind, frame.flags, content);
        }
    }
}

#[test]
fn a_response_without_a_length_ends_with_its_token_and_another_is_finished() {
    let due = Arc::new(AtomicBool::new(false));
    let said = Arc::clone(&due);
    let (_app, instance, signer) = before(
        |home| app(&Listen::Unix(home.file("app.sock")), move |request, stream| talk(request, stream, &said)),
        "",
    );
    let (begun, token) = (Instant::now(), signer.ending_in(LIFE));
    let endless = ["/events", "/chunked", "/closed", "/grpc"];
    thread::scope(|scope| {
        let (instance, token) = (&instance, &token);
        let sized1 = scope.spawn(|| ask_http1(instance, token, "/sized", SIZED));
        let sized2 = scope.spawn(|| ask_http2(instance, token, "/sized"));
        let cut = endless.map(|path| {
            let over1 = scope.spawn(move || (ask_http1(instance, token, path, usize::MAX), begun.elapsed()));
            let over2 = scope.spawn(move || (ask_http2(instance, token, path), begun.elapsed()));
            (path, over1, over2)
        });
        for (path, over1, over2) in cut {
            let ((head, content), lived) = over1.join().unwrap();
            assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
            assert!(!content.is_empty() && !content.ends_with(b"0\r\n\r\n"), "{path}: it looks whole");
            assert!(lived >= LIFE - Duration::from_secs(1), "{path}: {lived:?}");
            let ((kind, _, content), lived) = over2.join().unwrap();
            assert_eq!((kind, content > 0), (RST_STREAM, true), "{path}");
            assert!(lived >= LIFE - Duration::from_secs(1), "{path}: {lived:?}");
        }
        due.store(true, Ordering::Relaxed);
        assert_eq!(sized1.join().unwrap().1.len(), SIZED);
        let (kind, flags, content) = sized2.join().unwrap();
        assert_eq!((kind, flags & END_STREAM, content), (DATA, END_STREAM, SIZED));
    });
    let events = instance.stop();
    for event in &events {
        let wanted = if event["path"] == "/sized" { "completed" } else { "token_expired" };
        assert_eq!((event["status"].as_u64(), cause(event)), (Some(200), wanted), "{event}");
    }
    assert_eq!(events.len(), 2 * (endless.len() + 1), "{events:?}");
}

/// The server answers with nothing until it has all of the request.
#[test]
fn a_call_whose_response_has_not_begun_ends_with_its_token_and_an_upload_does_not() {
    let (_app, instance, signer) =
        before(|home| crate::support::http_app::named(&Listen::Unix(home.file("app.sock")), "app").0, "");
    let (begun, token) = (Instant::now(), signer.ending_in(LIFE));
    let mut h2 = H2::open(&trusting(&instance.home.ca.certificate()), instance.address(), &[]);
    let bearer = format!("Bearer {token}");
    let fields = |kind| request("POST", "/", &[("authorization", &bearer), ("content-type", kind)]);
    assert!(h2.send(&headers(1, END_HEADERS, &fields("application/grpc+proto"))));
    assert!(h2.send(&headers(3, END_HEADERS, &fields("application/octet-stream"))));
    let ended = h2.find("end", |frame| {
        assert!(frame.stream != 3 || frame.kind != RST_STREAM, "the upload is cut off");
        frame.kind == RST_STREAM && frame.stream == 1
    });
    assert!(begun.elapsed() >= LIFE - Duration::from_secs(1), "{ended:?} after {:?}", begun.elapsed());
    assert!(h2.send(&data(3, END_STREAM, b"all")));
    let answer = h2.find("answer", |frame| frame.kind == HEADERS && frame.stream == 3);
    assert_eq!(answer.status(), 200);
    drop(h2);
    let events = instance.stop();
    assert!(events.iter().any(|event| cause(event) == "token_expired"), "{events:?}");
}

#[test]
fn a_response_without_a_length_may_outlive_its_token() {
    let due = Arc::new(AtomicBool::new(false));
    let said = Arc::clone(&due);
    let (_app, instance, signer) = before(
        |home| {
            app(&Listen::Unix(home.file("app.sock")), move |request, stream| {
                if request.target == "/" {
                    return crate::support::http_app::respond(stream, 200, &[], b"");
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                while !said.load(Ordering::Relaxed) {
                    stream.write_all(b"1\r\nx\r\n")?;
                    thread::sleep(Duration::from_millis(50));
                }
                stream.write_all(b"0\r\n\r\n")
            })
        },
        ", keep_tunnels = true",
    );
    let token = signer.ending_in(LIFE);
    let header = format!("Authorization: Bearer {token}");
    let ask = |path: &str| {
        crate::support::http_curl::curl(
            &instance,
            &["--header", &header],
            &format!("https://localhost{path}"),
        )
    };
    thread::scope(|scope| {
        let over2 = scope.spawn(|| ask_http2(&instance, &token, "/stream"));
        let over1 = scope.spawn(|| ask("/stream"));
        instance.until("the token ends", || (ask("/").status() == 401).then_some(()));
        // The bounds of a connection are looked at once a second.
        thread::sleep(Duration::from_secs(3));
        due.store(true, Ordering::Relaxed);
        let over1 = over1.join().unwrap();
        assert_eq!(over1.code, 0, "{over1:?}");
        let (kind, flags, content) = over2.join().unwrap();
        assert_eq!((kind, flags & END_STREAM, content > 0), (DATA, END_STREAM, true));
    });
    let events = instance.stop();
    assert!(events.iter().all(|event| cause(event) != "token_expired"), "{events:?}");
}
