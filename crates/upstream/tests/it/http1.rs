//! Sequential requests over HTTP/1.1.

use std::hash::Hasher as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::StatusCode;
use offramp_http::head::{Fields, Known};
use offramp_upstream::{
    Affinity, InterimListener, Pools, PrivateConnections, Sticky, StickyKey, UpstreamFault,
};
use siphasher::sip::SipHasher13;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};
use tokio::sync::mpsc::unbounded_channel;

use crate::server::{HELLO, PATIENCE, Server};
use crate::world::{BodyExt as _, Sent, backend, get, nobody, request, send, text, whole, worker};

#[test]
fn a_connection_is_reused() {
    worker(async {
        let server = Server::steady(HELLO);
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        for number in 0..20 {
            let answer = send(&pools, &backend, get("/a?b")).await.unwrap();
            assert_eq!((answer.tries, answer.connect.is_some()), (1, number == 0));
            assert_eq!(answer.server, 0);
            assert_eq!(text(answer).await, "hello");
            assert_eq!(pools.kept(), 1);
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn responses_without_a_body_give_their_connection_back_at_once() {
    worker(async {
        for response in [
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        ] {
            let server = Server::steady(response);
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            // The responses are kept: their bodies hold nothing.
            let first = send(&pools, &backend, get("/")).await.unwrap();
            let second = send(&pools, &backend, get("/")).await.unwrap();
            assert_eq!((server.connections(), pools.kept()), (1, 1), "{response}");
            drop((first, second));
        }
        let server = Server::steady("HTTP/1.1 200 OK\r\ncontent-length: 77\r\n\r\n");
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        for _ in 0..2 {
            let answer = send(&pools, &backend, request("HEAD", "/", Sent::Nothing)).await.unwrap();
            assert_eq!(answer.response.fields.get(Known::ContentLength), Some(&b"77"[..]));
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_closed_connection_is_not_kept() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.answer("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello");
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        for _ in 0..3 {
            assert_eq!(text(send(&pools, &backend, get("/")).await.unwrap()).await, "hello");
            assert_eq!(pools.kept(), 0);
        }
        assert_eq!(server.connections(), 3);
    });
}

#[test]
fn a_response_may_end_with_its_connection() {
    worker(async {
        for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n"] {
            let server = Server::start(move |mut peer| {
                peer.answer(head);
                peer.say("until the ");
                peer.say("end");
            });
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            assert_eq!(text(send(&pools, &backend, get("/")).await.unwrap()).await, "until the end");
            assert_eq!(pools.kept(), 0);
        }
    });
}

#[test]
fn chunks_and_trailers_come_through() {
    worker(async {
        let server = Server::start(|mut peer| {
            let head = peer.answer("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n");
            assert!(head.is_some());
            peer.say("3\r\nabc\r\n");
            peer.say("2\r\nde\r\n0\r\nx-sum: 5\r\n\r\n");
            while peer.answer(HELLO).is_some() {}
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let mut wanted = get("/");
        wanted.headers_mut().insert("te", "trailers".parse().unwrap());
        let answer = send(&pools, &backend, wanted).await.unwrap();
        let collected = answer.response.into_body().collect().await.unwrap();
        assert_eq!(collected.trailers().unwrap()["x-sum"], "5");
        assert_eq!(collected.to_bytes(), "abcde");
        assert_eq!(text(send(&pools, &backend, get("/")).await.unwrap()).await, "hello");
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn large_bodies_arrive_whole_both_ways() {
    const SIZE: usize = 3_000_000;
    worker(async {
        let pattern: Bytes = (0..SIZE).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
        let server = Server::start(|mut peer| {
            while let Some(head) = peer.head() {
                assert!(head.contains(&format!("content-length: {SIZE}\r\n")), "{head}");
                let body = peer.body(SIZE);
                peer.say(format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n"));
                peer.say(body);
            }
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        for _ in 0..3 {
            let sent = request("POST", "/", whole(pattern.clone()));
            let answer = send(&pools, &backend, sent).await.unwrap();
            let body = answer.response.into_body().collect().await.unwrap().to_bytes();
            assert!(body == pattern);
        }
        assert_eq!(server.connections(), 1);
    });
}

/// Records interim responses: status, and number of fields.
#[derive(Default)]
struct InterimLog(Mutex<Vec<(u16, usize)>>);

impl InterimListener for InterimLog {
    fn interim(&self, status: StatusCode, fields: &Fields) {
        self.0.lock().unwrap().push((status.as_u16(), fields.len()));
    }
}

#[test]
fn interim_responses_are_reported() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.head();
            peer.say("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n");
            peer.say("HTTP/1.1 102 Processing\r\n\r\n");
            peer.say(HELLO);
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let told = Arc::new(InterimLog::default());
        let about = Affinity { interim: Some(Arc::clone(&told) as _), ..nobody() };
        let answer = pools.send(&backend, get("/"), &about).await.unwrap();
        assert_eq!(answer.response.status(), StatusCode::OK);
        assert_eq!(text(answer).await, "hello");
        assert_eq!(*told.0.lock().unwrap(), [(103, 1), (102, 0)]);
        assert_eq!(pools.kept(), 1);
    });
}

#[test]
fn an_upgraded_connection_is_handed_over() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.answer(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nready",
            );
            let said = peer.body(4);
            peer.say(said);
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let mut wanted = get("/");
        wanted.headers_mut().insert("connection", "upgrade".parse().unwrap());
        wanted.headers_mut().insert("upgrade", "echo".parse().unwrap());
        let answer = send(&pools, &backend, wanted).await.unwrap();
        assert_eq!(answer.response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let tunnel = answer.tunnel.unwrap();
        let ahead = tunnel.ahead.len();
        assert!(b"ready".starts_with(&tunnel.ahead));
        let mut stream = tunnel.link;
        let mut buffer = [0; 5];
        stream.read_exact(&mut buffer[ahead..]).await.unwrap();
        assert_eq!(&buffer[ahead..], &b"ready"[ahead..]);
        AsyncWriteExt::write_all(&mut stream, b"ping").await.unwrap();
        stream.read_exact(&mut buffer[..4]).await.unwrap();
        assert_eq!(&buffer[..4], b"ping");
        assert_eq!(pools.kept(), 0);
    });
}

#[test]
fn an_early_response_ends_the_upload() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.head();
            peer.say("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig");
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let (pieces, body) = unbounded_channel();
        pieces.send(Ok(Bytes::from_static(b"some"))).unwrap();
        let answer = send(&pools, &backend, request("POST", "/", Sent::Pieces(body))).await.unwrap();
        assert_eq!(answer.response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text(answer).await, "big");
        assert_eq!(pools.kept(), 0, "a connection in mid-request is of no use");
        assert!(pieces.is_closed(), "nobody takes the rest of the upload");
    });
}

#[test]
fn a_conversation_goes_both_ways_at_once() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.answer("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
            for _ in 0..3 {
                // A chunk of one byte: its size line, the byte, and the line end.
                let chunk = peer.body(6);
                peer.say(chunk);
            }
            assert_eq!(peer.body(5), b"0\r\n\r\n");
            peer.say("0\r\n\r\n");
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let (pieces, body) = unbounded_channel();
        let mut answer = send(&pools, &backend, request("POST", "/", Sent::Pieces(body))).await.unwrap();
        for letter in ["a", "b", "c"] {
            pieces.send(Ok(Bytes::from_static(letter.as_bytes()))).unwrap();
            let frame = answer.response.body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), letter);
        }
        drop(pieces);
        assert!(answer.response.body.frame().await.is_none());
        assert_eq!(pools.kept(), 1);
    });
}

#[test]
fn a_dropped_body_closes_its_connection() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.answer("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nbegin");
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let mut answer = send(&pools, &backend, get("/")).await.unwrap();
        assert!(answer.response.body.frame().await.unwrap().is_ok());
        drop(answer);
        assert_eq!(pools.kept(), 0);
        assert!(send(&pools, &backend, get("/")).await.is_ok());
        assert_eq!(server.connections(), 2);
    });
}

#[test]
fn faults_are_distinguished() {
    worker(async {
        let fault = async |response: &'static str| {
            let server = Server::start(move |mut peer| drop(peer.answer(response)));
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            match send(&pools, &backend, get("/")).await {
                Ok(answer) => answer.response.into_body().collect().await.unwrap_err(),
                Err(failure) => {
                    assert_eq!(failure.tries, 1, "a new connection's fault is no reason for another");
                    failure.fault
                }
            }
        };
        assert!(matches!(fault("").await, UpstreamFault::Aborted(_)));
        assert!(matches!(fault("HTTP/1.1 200 O").await, UpstreamFault::Aborted(_)));
        assert!(matches!(fault("SSH-2.0-OpenSSH_9.2\r\n\r\n").await, UpstreamFault::BadResponse(_)));
        assert!(matches!(
            fault("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n").await,
            UpstreamFault::BadResponse(_)
        ));
        assert!(matches!(
            fault("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await,
            UpstreamFault::Aborted(_)
        ));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhe";
        assert!(matches!(fault(chunked).await, UpstreamFault::Aborted(_)));
    });
}

#[test]
fn an_aborting_client_does_not_blame_the_server() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.head();
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        let (pieces, body) = unbounded_channel();
        pieces.send(Ok(Bytes::from_static(b"some"))).unwrap();
        pieces.send(Err("gone".to_owned())).unwrap();
        let failure = send(&pools, &backend, request("POST", "/", Sent::Pieces(body))).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::RequestBody(_)), "{:?}", failure.fault);
        assert!(failure.fault.to_string().contains("gone"));
    });
}

#[test]
fn private_connections_begin_with_their_header() {
    worker(async {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        let server = Server::start(move |mut peer| {
            while let Some(head) = peer.head() {
                kept.lock().unwrap().push((peer.number, head.lines().next().unwrap().to_owned()));
                peer.say(HELLO);
            }
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        for client in ["A", "B"] {
            let private = PrivateConnections::new(format!("PROXY {client}\r\n"));
            let about = Affinity { private: Some(&private), ..nobody() };
            for _ in 0..2 {
                text(pools.send(&backend, get("/"), &about).await.unwrap()).await;
            }
        }
        let lines = ["PROXY A", "GET / HTTP/1.1", "PROXY B", "GET / HTTP/1.1"];
        let expected: Vec<_> = [0, 0, 1, 1].into_iter().zip(lines.map(str::to_owned)).collect();
        assert_eq!(*heads.lock().unwrap(), expected);
        assert_eq!(pools.kept(), 0);
    });
}

#[test]
fn private_connections_time_out_while_their_client_stays() {
    worker(async {
        let (closed, told) = tokio::sync::oneshot::channel();
        let closed = Mutex::new(Some(closed));
        let server = Server::start(move |mut peer| {
            peer.answer(HELLO);
            peer.wait_for_close();
            closed.lock().unwrap().take().unwrap().send(()).unwrap();
        });
        let mut backend = backend(&[server.address]);
        backend.limits.idle_timeout = Duration::from_millis(50);
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let private = PrivateConnections::new("");
        let about = Affinity { private: Some(&private), ..nobody() };
        text(pools.send(&backend, get("/"), &about).await.unwrap()).await;
        // The server's read fails by its own timeout, which would be another kind of end.
        tokio::time::timeout(PATIENCE / 2, told).await.unwrap().unwrap();
        drop(private);
    });
}

#[test]
fn a_cookie_ties_a_client_to_its_server() {
    worker(async {
        let servers = [Server::steady(HELLO), Server::steady(HELLO), Server::steady(HELLO)];
        let mut backend = backend(&[0, 1, 2].map(|at: usize| servers[at].address));
        let key = StickyKey::new([7; StickyKey::BYTES], SystemTime::now() + PATIENCE);
        backend.sticky = Some(Sticky { cookie: "srv".into(), key });
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let first = send(&pools, &backend, get("/")).await.unwrap();
        let cookie = first.set_cookie.clone().unwrap();
        let pair = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
        for _ in 0..5 {
            let mut tied = get("/");
            tied.headers_mut().insert("cookie", pair.parse().unwrap());
            let answer = send(&pools, &backend, tied).await.unwrap();
            assert_eq!(answer.server, first.server);
            assert!(answer.set_cookie.is_none());
        }
        // A cookie of an older version counts, too, and is replaced.
        let mut old = get("/");
        let name = &backend.servers[first.server].name;
        let mut hasher = SipHasher13::new_with_keys(0x6f66_6672_616d_7021, 0x7374_6963_6b79_0001);
        hasher.write(name.as_bytes());
        let value = format!("srv={:016x}", hasher.finish());
        old.headers_mut().insert("cookie", value.parse().unwrap());
        let answer = send(&pools, &backend, old).await.unwrap();
        assert_eq!((answer.server, answer.set_cookie), (first.server, Some(cookie)));
        // Its server is drained: another one takes over, and sets a cookie.
        backend.health[first.server].set_duty(offramp_upstream::Duty::Drains);
        let mut tied = get("/");
        tied.headers_mut().insert("cookie", pair.parse().unwrap());
        let answer = send(&pools, &backend, tied).await.unwrap();
        assert_ne!(answer.server, first.server);
        assert!(answer.set_cookie.is_some());
    });
}

#[test]
fn idle_connections_are_closed_in_time() {
    worker(async {
        let closed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&closed);
        let (tell, mut told) = unbounded_channel();
        let server = Server::start(move |mut peer| {
            while peer.answer(HELLO).is_some() {}
            count.fetch_add(1, Ordering::SeqCst);
            let _ = tell.send(());
        });
        let mut backend = backend(&[server.address]);
        backend.limits.idle_timeout = Duration::from_millis(50);
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        text(send(&pools, &backend, get("/")).await.unwrap()).await;
        told.recv().await.unwrap();
        assert_eq!((closed.load(Ordering::SeqCst), pools.kept()), (1, 0));
    });
}

#[test]
fn connections_to_a_removed_server_are_closed() {
    worker(async {
        let (tell, mut told) = unbounded_channel();
        let server = Server::start(move |mut peer| {
            while peer.answer(HELLO).is_some() {}
            let _ = tell.send(());
        });
        let stays = Server::steady(HELLO);
        let pools = Pools::new(0);
        let old = Arc::new(backend(&[server.address, stays.address]));
        for _ in 0..2 {
            text(send(&pools, &old, get("/")).await.unwrap()).await;
        }
        assert_eq!(pools.kept(), 2);
        let mut new = backend(&[stays.address]);
        new.carry_over(&old);
        let new = Arc::new(new);
        let answer = send(&pools, &new, get("/")).await.unwrap();
        assert!(answer.connect.is_none(), "the connection outlives the reload");
        drop((old, text(answer).await));
        told.recv().await.unwrap();
        assert_eq!(pools.kept(), 1);
    });
}
