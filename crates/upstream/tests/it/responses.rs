//! Sloppy, hostile and broken servers, and the protection of clients from them.

use std::future::poll_fn;
use std::io::IoSliceMut;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use offramp_upstream::{Backend, Breach, Pools, ResponseViolation, ServerBody, UpstreamFault};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{spawn_local, yield_now};

use crate::server::{HELLO, Server};
use crate::world::{BodyExt as _, Sent, backend, get, request, send, text, whole, worker};

/// Result of a response.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// Forwarded; `kept` counts the connections in the pool.
    Passed {
        status: u16,
        body: String,
        kept: usize,
    },
    Bad,
    Aborted,
}

fn passed(status: u16, body: &str, kept: usize) -> Outcome {
    Outcome::Passed { status, body: body.to_owned(), kept }
}

/// Sends a request to a server that sends `response`, and then closes or waits.
async fn outcome(response: Vec<u8>, closes: bool) -> Outcome {
    let server = Server::start(move |mut peer| {
        peer.head();
        peer.say(&response);
        if !closes {
            peer.wait_for_close();
        }
    });
    let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
    let fault = match send(&pools, &backend, get("/")).await {
        Ok(answer) => {
            let status = answer.response.status().as_u16();
            match answer.response.into_body().collect().await {
                Ok(body) => {
                    let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
                    return Outcome::Passed { status, body, kept: pools.kept() };
                }
                Err(fault) => fault,
            }
        }
        Err(failure) => failure.fault,
    };
    assert_eq!(pools.kept(), 0);
    assert!(!fault.to_string().is_empty());
    match fault {
        UpstreamFault::BadResponse(_) => Outcome::Bad,
        UpstreamFault::Aborted(_) => Outcome::Aborted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sloppy_server_works_and_an_ambiguous_one_does_not() {
    let sized = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello");
    let coded = |content: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{content}");
    let table = [
        // Sloppy, but accepted.
        ("HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello".into(), passed(200, "hello", 1)),
        ("HTTP/1.1 299 Fine\ncontent-length:5\n\nhello".into(), passed(299, "hello", 1)),
        ("\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello".into(), passed(200, "hello", 1)),
        (sized("content-length: 5\r\nContent-Length: 5\r\n"), passed(200, "hello", 1)),
        (sized("content-length: 05\r\n"), passed(200, "hello", 1)),
        (sized("content-length : 5\r\n"), passed(200, "hello", 1)),
        (sized("content-length\t \t:5\r\nx : y\r\n"), passed(200, "hello", 1)),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding : chunked\r\n\r\n5\r\nhello\r\n0\r\nx : y\r\n\r\n".into(),
            passed(200, "hello", 1),
        ),
        (coded("5 \r\nhello\r\n0\r\n\r\n"), passed(200, "hello", 1)),
        (coded("2;a=b\r\nhe\r\n3; c\r\nllo\r\n0\r\nContent-Length: 9\r\n\r\n"), passed(200, "hello", 1)),
        ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello".into(), passed(200, "hello", 0)),
        (
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nhello".into(),
            passed(200, "hello", 1),
        ),
        ("HTTP/1.1 204 None\r\ncontent-length: 5\r\n\r\n".into(), passed(204, "", 1)),
        // Bytes behind a response do not belong to it.
        (sized("content-length: 4\r\n"), passed(200, "hell", 0)),
        ("HTTP/1.1 204 None\r\n\r\nhello".into(), passed(204, "", 0)),
        ("HTTP/1.1 304 Same\r\n\r\nHTTP/1.1 200 OK\r\n\r\n".into(), passed(304, "", 0)),
        (coded("5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), passed(200, "hello", 0)),
        // Ambiguous, or not HTTP.
        (sized("content-length: 5\r\ncontent-length: 4\r\n"), Outcome::Bad),
        (sized("content-length: 5, 4\r\n"), Outcome::Bad),
        (sized("content-length: -5\r\n"), Outcome::Bad),
        (sized("content-length: 5\r\ntransfer-encoding: chunked\r\n"), Outcome::Bad),
        (sized("content-length : 5\r\ncontent-length: 4\r\n"), Outcome::Bad),
        (sized("content-length : 5\r\ntransfer-encoding : chunked\r\n"), Outcome::Bad),
        (sized("content-length: 5\r\n folded\r\n"), Outcome::Bad),
        (sized("x: a\0b\r\n"), Outcome::Bad),
        (sized("transfer-encoding: gzip\r\n"), Outcome::Bad),
        (coded("hello"), Outcome::Bad),
        (coded("5\nhello"), Outcome::Bad),
        (coded("5\r\nhelloX"), Outcome::Bad),
        (coded("fffffffffffffffff\r\n"), Outcome::Bad),
        ("HTTP/2 200\r\n\r\n".into(), Outcome::Bad),
        ("220 mail.test ESMTP\r\n".into(), Outcome::Bad),
        ("\u{15}\u{3}\u{1}".into(), Outcome::Bad),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n".into(), passed(101, "", 0)),
    ];
    worker(async {
        for (response, expected) in table {
            let outcome = outcome(response.clone().into_bytes(), false).await;
            assert_eq!(outcome, expected, "{response:?}");
        }
    });
}

#[test]
fn a_premature_close_is_not_an_end() {
    let table = [
        ("", Outcome::Aborted),
        ("HTTP/1.1 200 OK\r\ncontent-len", Outcome::Aborted),
        ("HTTP/1.1 100 Continue\r\n\r\n", Outcome::Aborted),
        ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello", Outcome::Aborted),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", Outcome::Aborted),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n",
            Outcome::Aborted,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", passed(200, "hello", 0)),
        ("HTTP/1.1 200 OK\r\n\r\n", passed(200, "", 0)),
    ];
    worker(async {
        for (response, expected) in table {
            assert_eq!(outcome(response.into(), true).await, expected, "{response:?}");
        }
    });
}

#[test]
fn heads_and_interim_responses_are_bounded() {
    let large = |value: usize| {
        let value = "x".repeat(value);
        format!("HTTP/1.1 200 OK\r\nx: {value}\r\ncontent-length: 5\r\n\r\nhello").into_bytes()
    };
    let many = |fields: usize| {
        let fields = "x: y\r\n".repeat(fields);
        format!("HTTP/1.1 200 OK\r\n{fields}content-length: 5\r\n\r\nhello").into_bytes()
    };
    let interim = |number: usize| {
        let interim = "HTTP/1.1 102 Processing\r\n\r\n".repeat(number);
        format!("{interim}{HELLO}").into_bytes()
    };
    worker(async {
        assert_eq!(outcome(large(127 * 1024), false).await, passed(200, "hello", 1));
        assert_eq!(outcome(large(128 * 1024), false).await, Outcome::Bad);
        assert_eq!(outcome(many(255), false).await, passed(200, "hello", 1));
        assert_eq!(outcome(many(256), false).await, Outcome::Bad);
        assert_eq!(outcome(interim(500), false).await, passed(200, "hello", 1));
        assert_eq!(outcome(interim(1000), false).await, Outcome::Bad);
    });
}

#[test]
fn unsolicited_bytes_end_an_idle_connection() {
    worker(async {
        let (ask, asked) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let asked = std::sync::Mutex::new(asked);
        let server = Server::start(move |mut peer| {
            peer.answer(HELLO);
            if peer.number == 0 {
                asked.lock().unwrap().recv().unwrap();
                peer.say(HELLO);
                tell.send(()).unwrap();
            }
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        text(send(&pools, &backend, get("/")).await.unwrap()).await;
        assert_eq!(pools.kept(), 1);
        ask.send(()).unwrap();
        told.recv().unwrap();
        // A yield lets the event loop check its sockets.
        yield_now().await;
        let answer = send(&pools, &backend, request("POST", "/", whole("once"))).await.unwrap();
        assert_eq!((answer.tries, server.connections()), (1, 2));
    });
}

#[test]
fn a_body_received_with_its_head_is_known_to_be_complete() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    worker(async {
        for (response, size) in [(HELLO, Some(5)), (CHUNKED, None)] {
            let server = Server::steady(response);
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            let mut answer = send(&pools, &backend, get("/")).await.unwrap();
            let body = &mut answer.response.body;
            assert_eq!((body.length(), body.is_end_stream()), (size, false));
            let mut cx = Context::from_waker(Waker::noop());
            match Pin::new(&mut *body).poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => assert_eq!(frame.into_data().unwrap(), "hello"),
                other => panic!("{other:?}"),
            }
            assert!(body.is_end_stream());
            assert_eq!(pools.kept(), 1, "the connection is free before the answer is dropped");
        }
    });
}

#[test]
fn a_response_is_read_although_the_server_stops_reading() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.head();
            peer.say("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig");
            // Unread bytes make the close a reset.
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let body = Bytes::from(vec![b'x'; 8_000_000]);
        let answer = send(&pools, &backend, request("POST", "/", whole(body))).await.unwrap();
        assert_eq!(answer.response.status(), 413);
        assert_eq!(text(answer).await, "big");
        assert_eq!(pools.kept(), 0);
    });
}

#[test]
fn faults_have_messages() {
    worker(async {
        let fault = async |response: &'static str| {
            let server = Server::start(move |mut peer| drop(peer.answer(response)));
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            send(&pools, &backend, get("/")).await.unwrap_err().fault
        };
        let closed = fault("").await;
        assert!(matches!(closed, UpstreamFault::Aborted(Breach::Closed)), "{closed:?}");
        assert_eq!(
            closed.to_string(),
            "the server broke off: it closed the connection before the message had ended"
        );
        let bad = fault("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n").await;
        assert!(matches!(bad, UpstreamFault::BadResponse(ResponseViolation::Head(_))), "{bad:?}");
        assert!(bad.to_string().ends_with("both Content-Length and Transfer-Encoding"));
    });
}

/// Responses of a connection, with everything that may come before and within them.
const RESPONSES: &[&str] = &[
    HELLO,
    "HTTP/1.1 103 Hints\r\nlink: a\r\n\r\nHTTP/1.1 200 Fine\r\nx: 1\r\nx: 2\r\ncontent-length: 3\r\n\r\nabc",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;x\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nt: u\r\n\r\n",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
    "\r\nHTTP/1.1 404 Not Found\ncontent-length: 5\n\n12345",
];

/// A server that sends the responses of `order`, one per request, in pieces of these sizes.
async fn cutting(order: Vec<usize>, sizes: Vec<usize>) -> Backend {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = backend(&[listener.local_addr().unwrap()]);
    spawn_local(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let mut sizes = sizes.into_iter().cycle();
        let mut buffer = [0; 1024];
        for response in order {
            if !matches!(socket.read(&mut buffer).await, Ok(1..)) {
                return;
            }
            let mut rest = RESPONSES[response].as_bytes();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
                socket.write_all(now).await.unwrap();
                rest = later;
                // The client reads the piece alone.
                yield_now().await;
                yield_now().await;
            }
        }
    });
    backend
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_split_agrees(
        order in prop::collection::vec(0..RESPONSES.len(), 1..6),
        sizes in prop::collection::vec(1_usize..30, 0..8),
    ) {
        worker(async {
            let hear = async |sizes: Vec<usize>| {
                let backend = Arc::new(cutting(order.clone(), sizes).await);
                let pools = Pools::new(0);
                let mut heard = Vec::new();
                for number in 0..order.len() {
                    let answer = send(&pools, &backend, get("/")).await.unwrap();
                    assert_eq!(answer.connect.is_some(), number == 0, "all go over one connection");
                    let status = answer.response.status;
                    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
                    let headers: Vec<_> = answer.response.fields.iter().map(owned).collect();
                    let body = answer.response.into_body().collect().await.unwrap();
                    let trailers = body.trailers().cloned();
                    heard.push((status, headers, trailers, body.to_bytes()));
                }
                heard
            };
            assert_eq!(hear(sizes.clone()).await, hear(Vec::new()).await);
        });
    }
}

/// Reads a body, directly if possible, into slots of `slot` bytes and at most `most` at a time. Returns the
/// data, the end of the body, and the number of bytes read directly.
async fn directly(
    mut body: ServerBody<Sent>,
    slot: usize,
    most: usize,
) -> (Vec<u8>, Result<(), UpstreamFault>, usize) {
    let (mut all, mut past) = (Vec::new(), 0);
    loop {
        let direct = usize::try_from(body.direct()).unwrap();
        if direct == 0 {
            match body.frame().await {
                None => return (all, Ok(()), past),
                Some(Ok(frame)) => all.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(fault)) => return (all, Err(fault), past),
            }
            continue;
        }
        let mut room = vec![0; direct.min(most)];
        let read = poll_fn(|cx| {
            let mut slots: Vec<_> = room.chunks_mut(slot).map(IoSliceMut::new).collect();
            let count = slots.len().min(64);
            body.poll_into(cx, &mut slots[..count])
        });
        match read.await {
            Ok(n) => {
                all.extend_from_slice(&room[..n]);
                past += n;
            }
            Err(fault) => return (all, Err(fault), past),
        }
    }
}

#[test]
fn a_long_body_is_read_in_place() {
    const LONG: usize = 700_000;
    let body: Arc<[u8]> = (0..LONG).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect();
    worker(async {
        // Sizes of the server's pieces, of the slots, and of a read.
        for (piece, slot, most) in [
            (LONG, 16_384, 262_144),
            (LONG, 1369, 90_000),
            (9_999, 16_384, 65_536),
            (300, 100, 6_000),
            (LONG, 7, 1),
        ] {
            let (sent, most) = (Arc::clone(&body), if most == 1 { LONG } else { most });
            let server = Server::start(move |mut peer| {
                while peer.head().is_some() {
                    let mut all = format!("HTTP/1.1 200 OK\r\ncontent-length: {LONG}\r\n\r\n").into_bytes();
                    all.extend_from_slice(&sent);
                    all.chunks(piece).for_each(|piece| peer.say(piece));
                }
            });
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            for _ in 0..3 {
                let answer = send(&pools, &backend, get("/")).await.unwrap();
                let (all, end, past) = directly(answer.response.into_body(), slot, most).await;
                end.unwrap();
                assert!(all == *body, "{piece} {slot} {most}");
                assert!(piece < LONG || past > LONG / 2, "{past}");
                assert_eq!((pools.kept(), server.connections()), (1, 1));
            }
        }
    });
}

#[test]
fn bytes_behind_a_long_body_are_not_read_with_it() {
    const LONG: usize = 300_000;
    worker(async {
        let server = Server::start(move |mut peer| {
            while peer.head().is_some() {
                let mut all = format!("HTTP/1.1 200 OK\r\ncontent-length: {LONG}\r\n\r\n").into_bytes();
                all.resize(all.len() + LONG, b'x');
                all.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil");
                peer.say(all);
            }
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        for number in 1..4 {
            let answer = send(&pools, &backend, get("/")).await.unwrap();
            let (all, end, past) = directly(answer.response.into_body(), 16_384, 262_144).await;
            end.unwrap();
            assert!(all == vec![b'x'; LONG] && past > 0);
            // A connection with excess bytes is not reused.
            assert_eq!(server.connections(), number);
        }
    });
}

#[test]
fn a_truncated_long_body_is_an_error() {
    worker(async {
        let server = Server::start(move |mut peer| {
            peer.head();
            let mut all = b"HTTP/1.1 200 OK\r\ncontent-length: 400000\r\n\r\n".to_vec();
            all.resize(all.len() + 300_000, b'x');
            peer.say(all);
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let answer = send(&pools, &backend, get("/")).await.unwrap();
        let (all, end, past) = directly(answer.response.into_body(), 16_384, 262_144).await;
        assert!(matches!(end, Err(UpstreamFault::Aborted(Breach::Closed))), "{end:?}");
        assert_eq!((all.len(), pools.kept()), (300_000, 0));
        assert!(past > 0);
    });
}
