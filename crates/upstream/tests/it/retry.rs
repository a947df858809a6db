//! Retries of requests, and cases without one.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use offramp_net::Address;
use offramp_upstream::{
    self as upstream, Backend, BalancePolicy, Candidate, ConnectEvent, ConnectFault, Ejection, FailedRequest,
    HashSource, Pools, UpstreamFault,
};

use crate::server::{HELLO, Server};
use crate::world::{Sent, backend, get, nobody, request, send, text, whole, worker};

/// A server that responds once per connection, reads the next request and closes without a word.
fn closes_on_second() -> Server {
    Server::start(|mut peer| {
        peer.answer(HELLO);
        peer.head();
    })
}

/// An address without a listener.
fn nowhere() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_stale_connection_is_replaced_where_that_is_safe() {
    worker(async {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "PUT"] {
            let server = closes_on_second();
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            text(send(&pools, &backend, get("/")).await.unwrap()).await;
            let again = send(&pools, &backend, request(method, "/", Sent::Nothing)).await.unwrap();
            assert_eq!((again.tries, server.connections()), (2, 2), "{method}");
            assert!(again.connect.is_some());
        }
    });
}

#[test]
fn possibly_processed_requests_are_not_repeated() {
    worker(async {
        let cases = [("POST", Sent::Nothing), ("PATCH", Sent::Nothing), ("PUT", whole("used"))];
        for (method, body) in cases {
            let server = closes_on_second();
            let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
            text(send(&pools, &backend, get("/")).await.unwrap()).await;
            let failure = send(&pools, &backend, request(method, "/", body)).await.unwrap_err();
            assert!(matches!(failure.fault, UpstreamFault::Aborted(_)), "{method}: {:?}", failure.fault);
            assert_eq!((failure.tries, server.connections()), (1, 1), "{method}");
        }
    });
}

#[test]
fn a_begun_response_prevents_a_retry() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.answer(HELLO);
            peer.answer("HTTP/1.1 2");
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        text(send(&pools, &backend, get("/")).await.unwrap()).await;
        let failure = send(&pools, &backend, get("/")).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::Aborted(_)));
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn there_is_one_retry_only() {
    worker(async {
        let server = Server::start(|mut peer| {
            if peer.number == 0 {
                peer.answer(HELLO);
            }
            peer.head();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        text(send(&pools, &backend, get("/")).await.unwrap()).await;
        let failure = send(&pools, &backend, get("/")).await.unwrap_err();
        assert_eq!((failure.tries, server.connections()), (2, 2));
    });
}

/// A killed server accepts connections a moment longer than it responds on them.
fn dying() -> Server {
    Server::start(|mut peer| {
        if peer.number == 0 {
            peer.answer(HELLO);
        }
        peer.head();
    })
}

#[test]
fn after_an_abort_another_server_is_tried() {
    worker(async {
        let (dying, good) = (dying(), Server::steady(HELLO));
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[dying.address, good.address])));
        for _ in 0..2 {
            text(send(&pools, &backend, get("/")).await.unwrap()).await;
        }
        // Round robin reaches each of them.
        let mut tries = 0;
        for _ in 0..2 {
            let answer = send(&pools, &backend, get("/")).await.unwrap();
            assert_eq!(answer.server, 1);
            tries += answer.tries;
            text(answer).await;
        }
        assert_eq!((tries, dying.connections()), (3, 1));
        // A request that may have been processed is not sent to another server.
        let (dying, good) = (self::dying(), Server::steady(HELLO));
        let (pools, backend) = (Pools::new(0), Arc::new(self::backend(&[dying.address, good.address])));
        for _ in 0..2 {
            text(send(&pools, &backend, get("/")).await.unwrap()).await;
        }
        assert!(send(&pools, &backend, request("POST", "/", Sent::Nothing)).await.is_err());
    });
}

/// A request bound to its server by a hash, and one for which there is only a backup, stay for one more try:
/// most servers that close a connection are healthy. The next try goes elsewhere.
#[test]
fn a_bound_request_is_sent_to_its_server_once_more() {
    worker(async {
        for (policy, backup) in [
            (BalancePolicy::Hash(HashSource::Client), false),
            (BalancePolicy::RoundRobin, true),
            (BalancePolicy::RoundRobin, false),
        ] {
            let bound = backup || policy != BalancePolicy::RoundRobin;
            for restarts in [true, false] {
                let first = if restarts { closes_on_second() } else { dying() };
                let (server, other) = (first.address, Server::steady(HELLO));
                let servers = [(server, false), (other.address, backup)].map(|(address, backup)| {
                    let candidate = Candidate { backup, ..Candidate::default() };
                    (upstream::Server::at(Address::Tcp(address)), candidate)
                });
                let backend = Backend { policy: policy.clone(), ..Backend::new("app", servers) };
                let (pools, backend) = (Pools::new(0), Arc::new(backend));
                // A client whose hash leads to the first server.
                let client = (1..=255).map(|last| IpAddr::from([10, 0, 0, last]));
                let mut used = None;
                for client in client {
                    let about = upstream::Affinity { client: Some(client), ..nobody() };
                    let answer = pools.send(&backend, get("/"), &about).await.unwrap();
                    let of_first = answer.server == 0;
                    text(answer).await;
                    if of_first {
                        used = Some(client);
                        break;
                    }
                }
                let about = upstream::Affinity { client: used, ..nobody() };
                if policy == BalancePolicy::RoundRobin && !backup {
                    text(pools.send(&backend, get("/"), &about).await.unwrap()).await;
                }
                let answer = pools.send(&backend, get("/"), &about).await.unwrap();
                let expected = match (bound, restarts) {
                    (true, true) => (0, 2),
                    (true, false) => (1, 3),
                    (false, _) => (1, 2),
                };
                assert_eq!((answer.server, answer.tries), expected, "{policy:?} {backup} {restarts}");
                text(answer).await;
            }
        }
    });
}

#[test]
fn a_connection_closed_while_idle_is_not_tried() {
    worker(async {
        let (tell, told) = std::sync::mpsc::channel();
        let server = Server::start(move |mut peer| {
            peer.answer(HELLO);
            drop(peer);
            tell.send(()).unwrap();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[server.address])));
        text(send(&pools, &backend, get("/")).await.unwrap()).await;
        told.recv().unwrap();
        // A yield lets the event loop check its sockets.
        tokio::task::yield_now().await;
        let answer = send(&pools, &backend, request("POST", "/", whole("once"))).await.unwrap();
        assert_eq!(answer.tries, 1);
    });
}

#[test]
fn unreachable_servers_are_skipped_for_any_method() {
    worker(async {
        let server = Server::start(|mut peer| {
            while peer.head().is_some() {
                assert_eq!(peer.body(4), b"data");
                peer.say(HELLO);
            }
        });
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[nowhere(), server.address])));
        let attempts = (AtomicUsize::new(0), AtomicUsize::new(0));
        let picked = RefCell::new(Vec::new());
        let progress = |progress: ConnectEvent<'_>| match progress {
            ConnectEvent::Picked(server) => picked.borrow_mut().push(server.to_string()),
            ConnectEvent::Attempted { succeeded } => {
                let side = if succeeded { &attempts.0 } else { &attempts.1 };
                side.fetch_add(1, Ordering::Relaxed);
            }
        };
        let about = offramp_upstream::Affinity { progress: &progress, ..nobody() };
        for tries in [2, 1, 1] {
            let posted = request("POST", "/", whole("data"));
            let answer = pools.send(&backend, posted, &about).await.unwrap();
            assert_eq!(answer.tries, tries);
            assert_eq!(answer.server, 1);
            assert_eq!([0, 1].map(|server| backend.health[server].in_flight()), [0, 1]);
            text(answer).await;
            assert_eq!(backend.health[1].in_flight(), 0);
        }
        let [dead, good] = [0, 1].map(|server| backend.servers[server].name.to_string());
        assert_eq!(picked.into_inner(), [dead, good.clone(), good.clone(), good]);
        assert_eq!((attempts.0.into_inner(), attempts.1.into_inner()), (1, 1));
    });
}

#[test]
fn no_reachable_server_is_an_error() {
    worker(async {
        let (pools, backend) = (Pools::new(0), Arc::new(backend(&[nowhere(), nowhere()])));
        let failure = send(&pools, &backend, get("/")).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::Connect(ConnectFault::Io(_))), "{:?}", failure.fault);
        assert_eq!(failure.tries, 2);
        backend.health.iter().for_each(|health| health.set_duty(offramp_upstream::Duty::Drains));
        let failure = send(&pools, &backend, get("/")).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::Connect(ConnectFault::NoServerAlive)));
        assert!(failure.server.is_none());
    });
}

#[test]
fn repeatedly_failing_servers_are_ejected() {
    worker(async {
        let bad = Server::steady("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n");
        let good = Server::steady(HELLO);
        let ejection = Ejection { failures: 3, ..Ejection::default() };
        let backend = Backend { ejection: Some(ejection), ..backend(&[bad.address, good.address]) };
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let mut statuses = Vec::new();
        for _ in 0..12 {
            let answer: Result<_, FailedRequest> = send(&pools, &backend, get("/")).await;
            let answer = answer.unwrap();
            statuses.push(answer.response.status().as_u16());
            text(answer).await;
        }
        assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 3, "{statuses:?}");
    });
}
