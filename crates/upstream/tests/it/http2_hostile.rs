//! Servers that violate HTTP/2: each ends its stream or its connection, with a cause, and harms no other
//! request.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use offramp_upstream::{Backend, Breach, Pools, ResponseViolation, ServerProtocol, UpstreamFault};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use crate::world::{BodyExt as _, Sent, backend, get, request, send, text, worker};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// `:status: 200` (RFC 7541 appendix A).
const OK: &[u8] = &[0x88];
const STREAM: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A literal field without indexing.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0x10], text(name), text(value)].concat()
}

fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let more = fields.iter().flat_map(|(name, value)| field(name, value));
    frame(HEADERS, 4, STREAM, &OK.iter().copied().chain(more).collect::<Vec<_>>())
}

/// Waits for a request, behind the preface; `None` if the client closes.
async fn hear(socket: &mut TcpStream) -> Option<()> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        socket.read_exact(&mut vec![0; length]).await.ok()?;
        if head[3] == HEADERS {
            return Some(());
        }
    }
}

/// A server whose first connection sends these bytes, and whose others respond properly. Counts connections.
async fn server(answer: Vec<u8>) -> (Backend, Rc<Cell<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut backend = backend(&[listener.local_addr().unwrap()]);
    backend.protocol = ServerProtocol::Http2;
    let connections = Rc::new(Cell::new(0));
    let count = Rc::clone(&connections);
    spawn_local(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let number = count.replace(count.get() + 1);
            let answer = answer.clone();
            spawn_local(async move {
                socket.read_exact(&mut [0; 24]).await.unwrap();
                let _ = socket.write_all(&frame(SETTINGS, 0, 0, &[])).await;
                let mut stream = STREAM;
                while hear(&mut socket).await.is_some() {
                    let good = frame(HEADERS, 5, stream, OK);
                    stream += 2;
                    // After a close it does not read the rest.
                    let said = if number == 0 && stream == STREAM + 2 { &answer } else { &good };
                    let _ = socket.write_all(said).await;
                }
            });
        }
    });
    (backend, connections)
}

/// Result of a request to such a server: its fault, and a flag for a response that had begun.
async fn outcome(answer: Vec<u8>) -> (Option<UpstreamFault>, bool) {
    let (backend, connections) = server(answer).await;
    let (pools, backend) = (Pools::new(0), Arc::new(backend));
    let outcome = match send(&pools, &backend, get("/")).await {
        Err(failure) => (Some(failure.fault), false),
        Ok(answer) => (answer.response.into_body().collect().await.err(), true),
    };
    // The next request is served, on this connection or another.
    for _ in 0..2 {
        assert_eq!(text(send(&pools, &backend, get("/")).await.unwrap()).await, "");
    }
    assert!(connections.get() <= 2);
    outcome
}

fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8])
}

/// Bytes of each server, and the code of the violation.
fn rows() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let after_head = |bytes: Vec<u8>| [head(&[]), bytes].concat();
    let bomb = [OK, &[0x40, 1, b'a', 0x7f, 0xa1, 0x1e], &[b'x'; 4000], &[0xbe; 8000]].concat();
    vec![
        ("PING", ping().repeat(20_000), "ENHANCE_YOUR_CALM"),
        ("SETTINGS", frame(SETTINGS, 0, 0, &[]).repeat(20_000), "ENHANCE_YOUR_CALM"),
        ("empty DATA", after_head(frame(DATA, 0, STREAM, &[]).repeat(20_000)), "ENHANCE_YOUR_CALM"),
        ("RST_STREAM", after_head(frame(RST_STREAM, 0, STREAM, &[0; 4]).repeat(20_000)), "NO_ERROR"),
        ("windows of a byte", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(20_000), "ENHANCE_YOUR_CALM"),
        ("a window too large", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), "FLOW_CONTROL_ERROR"),
        (
            "CONTINUATION",
            [frame(HEADERS, 0, STREAM, OK), frame(CONTINUATION, 0, STREAM, &[]).repeat(20_000)].concat(),
            "ENHANCE_YOUR_CALM",
        ),
        (
            "a block without end",
            [frame(HEADERS, 0, STREAM, OK), frame(CONTINUATION, 0, STREAM, &[0; 16_000]).repeat(40)].concat(),
            "ENHANCE_YOUR_CALM",
        ),
        ("a large frame", vec![0, 0x40, 1, 0, 0, 0, 0, 0, STREAM], "FRAME_SIZE_ERROR"),
        ("no block", frame(HEADERS, 4, STREAM, &[0xff, 0x70]), "COMPRESSION_ERROR"),
        ("a bomb", frame(HEADERS, 5, STREAM, &bomb), "PROTOCOL_ERROR"),
        ("PUSH_PROMISE", frame(PUSH_PROMISE, 4, STREAM, &[0, 0, 0, 2, 0x82]), "PROTOCOL_ERROR"),
        ("a stream that is idle", frame(HEADERS, 5, 99, OK), "PROTOCOL_ERROR"),
        ("a stream of the server", frame(HEADERS, 5, 2, OK), "PROTOCOL_ERROR"),
        ("a frame that is too short", frame(RST_STREAM, 0, STREAM, &[0]), "FRAME_SIZE_ERROR"),
        ("HTTP/1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "FRAME_SIZE_ERROR"),
        (
            "interim responses without end",
            frame(HEADERS, 4, STREAM, &field(":status", "102")).repeat(600),
            "ENHANCE_YOUR_CALM",
        ),
        ("no status", frame(HEADERS, 5, STREAM, &field("a", "b")), "PROTOCOL_ERROR"),
        ("a field of a connection", head(&[("connection", "close")]), "PROTOCOL_ERROR"),
        ("two lengths", head(&[("content-length", "1"), ("content-length", "2")]), "PROTOCOL_ERROR"),
        (
            "more content than was said",
            [head(&[("content-length", "1")]), frame(DATA, 1, STREAM, b"xx")].concat(),
            "PROTOCOL_ERROR",
        ),
        (
            "less content than was said",
            [head(&[("content-length", "3")]), frame(DATA, 1, STREAM, b"xx")].concat(),
            "PROTOCOL_ERROR",
        ),
        ("content before the head", frame(DATA, 1, STREAM, b"xx"), "PROTOCOL_ERROR"),
        ("trailers with a status", after_head(frame(HEADERS, 5, STREAM, OK)), "PROTOCOL_ERROR"),
    ]
}

#[test]
fn violations_end_the_connection_with_a_code() {
    worker(async {
        for (what, bytes, code) in rows() {
            let (fault, begun) = outcome(bytes).await;
            match fault {
                Some(UpstreamFault::BadResponse(ResponseViolation::Http2(violation))) => {
                    assert_eq!(violation.code.name(), code, "{what}: {violation}");
                }
                // The first row ends the stream, the others the connection.
                Some(UpstreamFault::Aborted(Breach::Http2(_))) if what == "RST_STREAM" => {}
                other => panic!("{what}: {other:?}, begun: {begun}"),
            }
        }
    });
}

/// A server that sends beyond the window has its connection ended, and other responses with it.
#[test]
fn more_than_the_window_ends_the_connection() {
    worker(async {
        let data = frame(DATA, 0, STREAM, &[0; 4000]).repeat(20);
        let (backend, connections) = server([head(&[]), data].concat()).await;
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let answer = send(&pools, &backend, get("/")).await.unwrap();
        // The body is read only after the connection has ended, and yields the data within the window first.
        while connections.get() < 2 {
            // It may be under way on the same connection.
            let _ = send(&pools, &backend, get("/")).await;
        }
        let (mut body, mut all) = (answer.response.into_body(), 0);
        let fault = loop {
            match body.frame().await.unwrap() {
                Ok(frame) => all += frame.into_data().unwrap().len(),
                Err(fault) => break fault,
            }
        };
        assert_eq!(all, 8000, "what is within the window of a response that nobody reads");
        let UpstreamFault::BadResponse(ResponseViolation::Http2(violation)) = fault else {
            panic!("{fault:?}")
        };
        assert_eq!(violation.code.name(), "FLOW_CONTROL_ERROR");
    });
}

/// A server that closes or sends GOAWAY without having seen the request: any request may be sent again.
#[test]
fn a_server_that_stops_at_once_loses_no_request() {
    worker(async {
        let stops = frame(GOAWAY, 0, 0, &[0; 8]);
        let (backend, connections) = server(stops).await;
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let posted = request("POST", "/", Sent::Whole(Some("x".into())));
        assert_eq!(text(send(&pools, &backend, posted).await.unwrap()).await, "");
        assert_eq!(connections.get(), 2);
    });
}
