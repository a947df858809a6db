//! HTTP/2: streams, trailers, WebSocket (RFC 8441), floods.

use std::io::{Read, Write};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use offramp_testkit::server::{Listen, Server, Stream, apps};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tokio::task::JoinHandle;

use crate::test_proxy::{ListenerKind, PATIENCE, Setup, TestProxy};

/// Runs a client, with a bound.
fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, client).await.expect("it took too long") })
}

type Sender = SendRequest<Full<Bytes>>;

/// Speaks HTTP/2 without TLS, with prior knowledge.
async fn connect(proxy: &TestProxy) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = proxy.connect(ListenerKind::Http);
    stream.set_nonblocking(true).unwrap();
    let io = TokioIo::new(tokio::net::TcpStream::from_std(stream).unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://a.test{path}")).body(Full::default()).unwrap()
}

async fn text(response: http::Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[test]
fn streams_run_side_by_side() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    run(async {
        let (sender, connection) = connect(&proxy).await;
        let asked: Vec<_> = (0..20)
            .map(|at| {
                let mut sender = sender.clone();
                async move { text(sender.send_request(get(&format!("/{at}"))).await.unwrap()).await }
            })
            .collect();
        for (at, asked) in asked.into_iter().enumerate() {
            assert_eq!(asked.await.trim(), format!("hello /{at}"));
        }
        let mut sender = sender;
        let body = Bytes::from(vec![b'x'; 700_000]);
        let up = Request::post("http://a.test/up").body(Full::new(body.clone())).unwrap();
        let back = sender.send_request(up).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert!(back == body);
        drop(sender);
        connection.await.unwrap().unwrap();
    });
    let events = proxy.end();
    assert_eq!(events.len(), 21);
    assert!(
        events.iter().all(|event| event["cause"] == "completed" && event["protocol"] == "HTTP/2.0"),
        "{events:?}"
    );
}

#[test]
fn websocket_over_http_2_becomes_an_upgrade() {
    let app = Server::start(&Listen::Ipv4, |mut stream: Stream| {
        let mut seen = Vec::new();
        let mut chunk = [0; 1024];
        while !seen.ends_with(b"\r\n\r\n") {
            match stream.read(&mut chunk) {
                Ok(n @ 1..) => seen.extend_from_slice(&chunk[..n]),
                _ => return,
            }
        }
        let seen = String::from_utf8(seen).unwrap();
        let asked = seen.starts_with("GET /chat HTTP/1.1\r\n")
            && seen.contains("upgrade: websocket\r\n")
            && seen.contains("connection: upgrade\r\n")
            && seen.contains("sec-websocket-key: ");
        if !asked {
            let _ = stream.write_all(b"HTTP/1.1 400 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            return;
        }
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-accept: {}\r\n\r\n",
            offramp_testkit::server::websocket_accept(&seen)
        );
        let _ = stream.write_all(answer.as_bytes());
        apps::echo(stream);
    })
    .unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    run(async {
        let (mut sender, connection) = connect(&proxy).await;
        // The SETTINGS that allow it come before the first response.
        assert_eq!(sender.send_request(get("/before")).await.unwrap().status(), StatusCode::BAD_REQUEST);
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri("http://a.test/chat")
            .header("sec-websocket-version", "13")
            .extension(hyper::ext::Protocol::from_static("websocket"))
            .body(Full::default())
            .unwrap();
        sender.ready().await.unwrap();
        let mut response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut socket = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        socket.write_all(b"ping").await.unwrap();
        let mut back = [0; 4];
        socket.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"ping");
        socket.shutdown().await.unwrap();
        assert_eq!(socket.read(&mut back).await.unwrap(), 0);
        drop((socket, sender));
        connection.abort();
    });
    let events = proxy.end();
    let event = events.iter().find(|event| event["path"] == "/chat" && event["status"] == 101).unwrap();
    assert_eq!((&event["cause"], &event["bytes_to_client"]), (&"completed".into(), &4.into()), "{event}");
}

/// The preface and empty SETTINGS.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Sends `frame` so many times; how the connection ended, and what came.
fn flood(frame: &[u8], times: usize) -> (serde_json::Value, Vec<u8>) {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let mut stream = proxy.connect(ListenerKind::Http);
    stream.write_all(BEGIN).unwrap();
    let mut reader = stream.try_clone().unwrap();
    let reading = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = reader.read_to_end(&mut all);
        all
    });
    let many = frame.repeat(times.min(100));
    for _ in 0..times.div_ceil(100) {
        if stream.write_all(&many).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let all = reading.join().unwrap();
    (proxy.end_of_one(), all)
}

#[test]
fn floods_end_the_connection() {
    for (name, frame) in [
        ("PING", &b"\0\0\x08\x06\0\0\0\0\0abcdefgh"[..]),
        ("SETTINGS", &b"\0\0\0\x04\0\0\0\0\0"[..]),
        ("PRIORITY", &b"\0\0\x05\x02\0\0\0\0\x01\0\0\0\0\x10"[..]),
    ] {
        let (event, all) = flood(frame, 20_000);
        assert_eq!(
            (&event["cause"], &event["fault"]),
            (&"h2_flood".into(), &"client".into()),
            "{name}: {event}"
        );
        // GOAWAY with ENHANCE_YOUR_CALM.
        assert!(all.ends_with(&[0, 0, 0, 0x0b]), "{name}: {}", all.escape_ascii());
    }
}

#[test]
fn what_is_no_http_2_is_named() {
    let (event, _) = flood(b"\0\0\x04\x08\0\0\0\0\0\0\0\0\0", 1);
    assert_eq!(event["cause"], "h2_protocol_error", "{event}");
}

#[test]
fn a_stream_that_is_reset_is_a_client_that_left() {
    let app =
        Server::start(&Listen::Ipv4, |mut stream: Stream| drop(stream.read_to_end(&mut Vec::new()))).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    run(async {
        let (mut sender, _connection) = connect(&proxy).await;
        let mut asking = pin!(sender.send_request(get("/slow")));
        // It is under way when a server is asked.
        while proxy.totals().connect_attempts() == 0 {
            assert!(tokio::time::timeout(Duration::from_millis(5), &mut asking).await.is_err());
        }
    });
    let events = proxy.end();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["cause"], "client_aborted");
}

#[test]
fn a_drain_lets_streams_finish() {
    let app = Server::start(&Listen::Ipv4, apps::http).unwrap();
    let proxy = TestProxy::open(&[app.address()], &Setup::default());
    let events = run(async {
        let (mut sender, connection) = connect(&proxy).await;
        assert_eq!(sender.send_request(get("/1")).await.unwrap().status(), StatusCode::OK);
        let ending = tokio::task::spawn_blocking(move || proxy.end());
        // GOAWAY ends the connection in order.
        connection.await.unwrap().unwrap();
        ending.await.unwrap()
    });
    assert_eq!(events.len(), 1);
}
