//! Bounds on concurrent requests, on the queue, and on waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use offramp_upstream::{Backend, ConnectFault, Pools, UpstreamFault};

use crate::server::{HELLO, PATIENCE, Server};
use crate::world::{BodyExt as _, backend, get, send, text, worker};

fn limited(server: &Server, most: u32) -> Backend {
    let mut backend = backend(&[server.address]);
    backend.limits.max_connections = Some(most);
    backend
}

#[test]
fn a_slow_server_times_out() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.head();
            peer.wait_for_close();
        });
        let mut backend = backend(&[server.address]);
        backend.limits.response_timeout = Duration::from_millis(150);
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let begun = Instant::now();
        let failure = send(&pools, &backend, get("/")).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::ResponseTimeout), "{:?}", failure.fault);
        assert!(begun.elapsed() >= Duration::from_millis(150));
        assert_eq!(pools.kept(), 0);
    });
}

#[test]
fn a_stalled_body_is_aborted() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.answer("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
            peer.wait_for_close();
        });
        let mut backend = backend(&[server.address]);
        backend.limits.body_timeout = Duration::from_millis(150);
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let answer = send(&pools, &backend, get("/")).await.unwrap();
        let fault = answer.response.into_body().collect().await.unwrap_err();
        assert!(matches!(fault, UpstreamFault::Stalled), "{fault:?}");
    });
}

#[test]
fn the_queue_has_a_bound_and_a_timeout() {
    worker(async {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let server = Server::start(move |mut peer| {
            while peer.head().is_some() {
                released.lock().unwrap().recv().unwrap();
                peer.say(HELLO);
            }
        });
        let mut backend = limited(&server, 1);
        backend.limits.queue = 1;
        backend.limits.queue_timeout = Duration::from_millis(200);
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        let late = async || match send(&pools, &backend, get("/")).await {
            Err(failure) => (failure.fault, failure.queue),
            Ok(_) => panic!("there was no room"),
        };
        let busy = async { text(send(&pools, &backend, get("/")).await.unwrap()).await };
        let others = async {
            let (waited, refused) = tokio::join!(late(), late());
            assert!(matches!(waited.0, UpstreamFault::Connect(ConnectFault::QueueTimeout)), "{:?}", waited.0);
            assert!(waited.1 >= Duration::from_millis(200));
            assert!(matches!(refused.0, UpstreamFault::Connect(ConnectFault::QueueFull)), "{:?}", refused.0);
            release.send(()).unwrap();
        };
        let (body, ()) = tokio::join!(busy, others);
        assert_eq!(body, "hello");
        release.send(()).unwrap();
        assert!(send(&pools, &backend, get("/")).await.is_ok());
        assert_eq!((backend.queue.waiting(), backend.health[0].in_flight()), (0, 0));
    });
}

#[test]
fn the_bound_holds_over_all_workers() {
    const WORKERS: usize = 3;
    const REQUESTS: usize = 40;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, peak) = (Arc::clone(&now), Arc::clone(&most));
    let begun = Instant::now();
    let server = Server::start(move |mut peer| {
        while peer.head().is_some() {
            let at_once = count.fetch_add(1, Ordering::SeqCst) + 1;
            peak.fetch_max(at_once, Ordering::SeqCst);
            // The first request waits for the second; the bound admits no third.
            while begun.elapsed() < PATIENCE && peak.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            count.fetch_sub(1, Ordering::SeqCst);
            peer.say(HELLO);
        }
    });
    let backend = Arc::new(limited(&server, 2));
    let barrier = Barrier::new(WORKERS);
    std::thread::scope(|scope| {
        for index in 0..WORKERS {
            let (backend, barrier) = (&backend, &barrier);
            scope.spawn(move || {
                barrier.wait();
                worker(async {
                    let pools = Pools::new(index);
                    let one = async || text(send(&pools, backend, get("/")).await.unwrap()).await;
                    for _ in 0..REQUESTS {
                        let (a, b, c) = tokio::join!(one(), one(), one());
                        assert_eq!([a, b, c], ["hello"; 3]);
                    }
                });
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!((backend.queue.waiting(), backend.health[0].in_flight()), (0, 0));
}

#[test]
fn an_abandoned_wait_leaves_no_trace() {
    worker(async {
        let server = Server::start(|mut peer| {
            peer.head();
            peer.wait_for_close();
        });
        let (pools, backend) = (Pools::new(0), Arc::new(limited(&server, 1)));
        let held = send(&pools, &backend, get("/"));
        let waits = send(&pools, &backend, get("/"));
        let mut both = Box::pin(async { tokio::join!(held, waits) });
        let polled = std::future::poll_fn(|cx| {
            let pending = both.as_mut().poll(cx).is_pending();
            std::task::Poll::Ready(pending && backend.queue.waiting() == 1)
        });
        assert!(polled.await);
        drop(both);
        assert_eq!((backend.queue.waiting(), backend.health[0].in_flight()), (0, 0));
    });
}
