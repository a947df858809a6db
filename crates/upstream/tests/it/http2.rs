//! Servers that speak HTTP/2.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{SendResponse, handshake};
use h2::{Reason as Code, RecvStream};
use http::{HeaderMap, Request, Response};
use offramp_upstream::{Backend, Pools, ServerProtocol, UpstreamFault};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_local};

use crate::world::{BodyExt as _, Sent, backend, get, request, send, text, whole, worker};

struct App {
    address: SocketAddr,
    connections: Rc<Cell<usize>>,
}

impl App {
    fn backend(&self) -> Backend {
        Backend { protocol: ServerProtocol::Http2, ..backend(&[self.address]) }
    }
}

/// A server on the test's own runtime: `serve` gets the connection's number and each request.
async fn app<F>(
    streams: u32,
    serve: impl Fn(usize, Request<RecvStream>, SendResponse<Bytes>) -> F + Clone + 'static,
) -> App
where
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Rc::new(Cell::new(0));
    let count = Rc::clone(&connections);
    spawn_local(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let number = count.replace(count.get() + 1);
            let serve = serve.clone();
            spawn_local(async move {
                let mut builder = h2::server::Builder::new();
                let mut connection =
                    builder.max_concurrent_streams(streams).handshake::<_, Bytes>(socket).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    spawn_local(serve(number, request, respond));
                }
            });
        }
    });
    App { address, connections }
}

async fn echo(_: usize, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let mut body = request.into_body();
    let mut send = respond.send_response(Response::new(()), false).unwrap();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        send.send_data(data, false).unwrap();
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    send.send_trailers(trailers).unwrap();
}

fn to(app: &App, mut request: Request<Sent>) -> Request<Sent> {
    let target = format!("http://{}{}", app.address, request.uri());
    *request.uri_mut() = target.parse().unwrap();
    *request.version_mut() = http::Version::HTTP_2;
    request.headers_mut().remove("host");
    request
}

#[test]
fn one_connection_carries_all_and_trailers_come_through() {
    worker(async {
        let app = app(100, echo).await;
        let (pools, backend) = (Pools::new(0), Arc::new(app.backend()));
        let one = async |body: &'static str| {
            let posted = to(&app, request("POST", "/", whole(body)));
            let answer = send(&pools, &backend, posted).await.unwrap();
            let collected = answer.response.into_body().collect().await.unwrap();
            assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
            collected.to_bytes()
        };
        let (a, b, c) = tokio::join!(one("a"), one("b"), one("c"));
        assert_eq!([a, b, c], ["a", "b", "c"]);
        assert_eq!(one("d").await, "d");
        assert_eq!((app.connections.get(), pools.kept()), (1, 1));
    });
}

#[test]
fn few_streams_per_connection_need_more_connections() {
    worker(async {
        let app = app(2, async |_, request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let mut body = request.into_body();
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            while body.data().await.is_some() {}
            send.send_data(Bytes::from_static(b"done"), true).unwrap();
        })
        .await;
        let (pools, backend) = (Pools::new(0), Arc::new(app.backend()));
        // The first exchange reveals the maximum of streams.
        text(send(&pools, &backend, to(&app, get("/"))).await.unwrap()).await;
        let mut open = Vec::new();
        let mut uploads = Vec::new();
        for _ in 0..5 {
            let (pieces, body) = tokio::sync::mpsc::unbounded_channel();
            uploads.push(pieces);
            let posted = to(&app, request("POST", "/", Sent::Pieces(body)));
            open.push(send(&pools, &backend, posted).await.unwrap());
            // A new connection's maximum is known after its first response.
        }
        assert_eq!(app.connections.get(), 3);
        drop(uploads);
        for answer in open {
            assert_eq!(text(answer).await, "done");
        }
    });
}

/// More concurrent requests than the server permits, which announces its maximum too late.
#[test]
fn a_burst_before_the_settings_loses_no_request() {
    worker(async {
        let app = app(10, async |_, request, mut respond: SendResponse<Bytes>| {
            let body = read(request).await;
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data(body, true).unwrap();
        })
        .await;
        let (pools, backend) = (Pools::new(0), Arc::new(app.backend()));
        for _ in 0..2 {
            let mut all = JoinSet::new();
            for n in 0..100 {
                let posted = to(&app, request("POST", "/", whole(n.to_string())));
                let (pools, backend) = (pools.clone(), Arc::clone(&backend));
                all.spawn_local(async move {
                    let answer = send(&pools, &backend, posted).await.map_err(|failure| failure.fault);
                    assert_eq!(text(answer.unwrap()).await, n.to_string());
                });
            }
            while let Some(done) = all.join_next().await {
                done.unwrap();
            }
        }
    });
}

/// The window of the connection is used up while the client is awaited; after the client has sent more, the
/// server is the one that delays the request.
#[test]
fn a_server_without_a_window_times_out() {
    const WINDOW: usize = 65_535;
    worker(async {
        let (begun, taken) = (Rc::new(Notify::new()), Rc::new(Notify::new()));
        let (has_begun, has_taken) = (Rc::clone(&begun), Rc::clone(&taken));
        let serve = move |_: usize, request: Request<RecvStream>, respond: SendResponse<Bytes>| {
            let (begun, taken) = (Rc::clone(&begun), Rc::clone(&taken));
            async move {
                begun.notify_one();
                let mut body = request.into_body();
                let mut all = 0;
                // Data that is not released opens no window.
                while let Some(Ok(data)) = body.data().await {
                    all += data.len();
                    if all == WINDOW {
                        taken.notify_one();
                    }
                }
                drop(respond);
            }
        };
        let app = app(100, serve).await;
        let mut late = app.backend();
        late.limits.response_timeout = Duration::from_millis(200);
        let (pools, backend) = (Pools::new(0), Arc::new(late));
        let ((slow, body), (other, others)) =
            (tokio::sync::mpsc::unbounded_channel(), tokio::sync::mpsc::unbounded_channel());
        let (first, second) = [body, others]
            .map(|body| to(&app, request("POST", "/", Sent::Pieces(body))))
            .map(|posted| {
                let (pools, backend) = (pools.clone(), Arc::clone(&backend));
                async move { send(&pools, &backend, posted).await.map(drop).map_err(|failure| failure.fault) }
            })
            .into();
        let first = spawn_local(first);
        has_begun.notified().await;
        let second = spawn_local(second);
        other.send(Ok(Bytes::from(vec![b'x'; WINDOW]))).unwrap();
        has_taken.notified().await;
        slow.send(Ok(Bytes::from_static(b"more"))).unwrap();
        let fault = first.await.unwrap().unwrap_err();
        assert!(matches!(fault, UpstreamFault::ResponseTimeout), "{fault:?}");
        assert!(!second.is_finished(), "its client is waited for");
    });
}

#[test]
fn a_connection_after_goaway_is_replaced() {
    worker(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Rc::new(Cell::new(0));
        let count = Rc::clone(&connections);
        spawn_local(async move {
            while let Ok((socket, _)) = listener.accept().await {
                count.set(count.get() + 1);
                let mut connection = handshake(socket).await.unwrap();
                let (_, mut respond) = connection.accept().await.unwrap().unwrap();
                respond.send_response(Response::new(()), true).unwrap();
                connection.graceful_shutdown();
                while connection.accept().await.is_some() {}
            }
        });
        let app = App { address, connections };
        let (pools, backend) = (Pools::new(0), Arc::new(app.backend()));
        for _ in 0..5 {
            let answer = send(&pools, &backend, to(&app, get("/"))).await.unwrap();
            assert!(answer.response.status().is_success());
        }
        assert!(app.connections.get() >= 2);
    });
}

/// Reads a whole body.
async fn read(request: Request<RecvStream>) -> Bytes {
    let mut body = request.into_body();
    let mut all = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    all.into()
}

/// Any method (RFC 9113 §8.7), with a body that was sent before the refusal or is still coming, on a used or
/// new connection.
#[test]
fn an_unprocessed_request_is_sent_again() {
    worker(async {
        for method in ["GET", "POST", "PATCH", "DELETE", "PUT"] {
            for warm in [true, false] {
                for size in [0, 5, 60_000] {
                    let app = app(100, async |number, request, mut respond: SendResponse<Bytes>| {
                        let request: Request<RecvStream> = request;
                        let path = request.uri().path().to_owned();
                        // The first server reads everything, and the other one refuses at once.
                        let body = if path == "/at-once" { Bytes::new() } else { read(request).await };
                        if number == 0 && path != "/warm" {
                            return respond.send_reset(Code::REFUSED_STREAM);
                        }
                        let mut send = respond.send_response(Response::new(()), false).unwrap();
                        send.send_data(body, true).unwrap();
                    })
                    .await;
                    let (pools, backend) = (Pools::new(0), Arc::new(app.backend()));
                    if warm {
                        text(send(&pools, &backend, to(&app, get("/warm"))).await.unwrap()).await;
                    }
                    let sent = "x".repeat(size);
                    let body = if size == 0 { Sent::Nothing } else { whole(sent.clone()) };
                    let answer = send(&pools, &backend, to(&app, request(method, "/", body))).await.unwrap();
                    assert_eq!((answer.tries, app.connections.get()), (2, 2), "{method} {warm} {size}");
                    assert_eq!(text(answer).await, sent, "{method} {warm} {size}");
                }
            }
        }
    });
}

/// More was sent than is kept, or the server has begun to respond, or it does not say that the request was
/// unprocessed.
#[test]
fn incomplete_or_possibly_processed_requests_are_not_sent_again() {
    worker(async {
        let go = Rc::new(Notify::new());
        let wait = Rc::clone(&go);
        let serve = move |_: usize, request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let wait = Rc::clone(&wait);
            async move {
                let path = request.uri().path().to_owned();
                read(request).await;
                match path.as_str() {
                    "/refused" => respond.send_reset(Code::REFUSED_STREAM),
                    "/cancelled" => respond.send_reset(Code::CANCEL),
                    _ => {
                        let mut send = respond.send_response(Response::new(()), false).unwrap();
                        wait.notified().await;
                        send.send_reset(Code::REFUSED_STREAM);
                    }
                }
            }
        };
        let app = app(100, serve).await;
        let (pools, backend) = (Pools::new(0), Arc::new(app.backend()));
        for (path, size) in [("/refused", 70_000), ("/cancelled", 5)] {
            let posted = to(&app, request("POST", path, whole("x".repeat(size))));
            let failure = send(&pools, &backend, posted).await.unwrap_err();
            assert!(matches!(failure.fault, UpstreamFault::Aborted(_)), "{path}: {:?}", failure.fault);
            assert_eq!(failure.tries, 1, "{path}");
        }
        let posted = to(&app, request("POST", "/begun", whole("x")));
        let answer = send(&pools, &backend, posted).await.unwrap();
        assert_eq!(answer.tries, 1);
        go.notify_one();
        assert!(matches!(answer.response.into_body().collect().await, Err(UpstreamFault::Aborted(_))));
    });
}

/// Encodes a frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Accepts two requests, announces the first one as the last, and responds to it with an empty 200.
async fn stops_after_the_first(mut socket: TcpStream) {
    const SETTINGS: u8 = 4;
    const HEADERS: u8 = 1;
    const GOAWAY: u8 = 7;
    let mut preface = [0; 24];
    socket.read_exact(&mut preface).await.unwrap();
    socket.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let mut requests = 0;
    while requests < 2 {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        socket.read_exact(&mut vec![0; length]).await.unwrap();
        requests += usize::from(head[3] == HEADERS);
    }
    let goodbye = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    // 0x88 is `:status: 200` (RFC 7541 appendix A).
    let answer = frame(HEADERS, 5, 1, &[0x88]);
    socket.write_all(&[goodbye, answer].concat()).await.unwrap();
    while matches!(socket.read(&mut [0; 1024]).await, Ok(1..)) {}
}

/// A stopping server announces the last stream that it serves: a higher one goes to the next server, although
/// its method is POST, and a lower one is served.
#[test]
fn a_server_that_is_restarted_loses_no_request() {
    worker(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn_local(async move {
            let (socket, _) = listener.accept().await.unwrap();
            // New connections are refused from now on.
            drop(listener);
            stops_after_the_first(socket).await;
        });
        let other = app(100, echo).await;
        let mut backend = backend(&[address, other.address]);
        backend.protocol = ServerProtocol::Http2;
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        // Round robin alternates between the servers.
        let one = async |body: &'static str| {
            let posted = to(&other, request("POST", "/", whole(body)));
            text(send(&pools, &backend, posted).await.unwrap()).await
        };
        let (a, b, c, d) = tokio::join!(one("a"), one("b"), one("c"), one("d"));
        let all = [(a, "a"), (b, "b"), (c, "c"), (d, "d")];
        let echoed = all.iter().filter(|(got, sent)| got == sent).count();
        let served = all.iter().filter(|(got, _)| got.is_empty()).count();
        assert_eq!((echoed, served), (3, 1), "{all:?}");
    });
}

#[test]
fn a_reset_blames_the_server_and_affects_one_request() {
    worker(async {
        let go = Rc::new(Notify::new());
        let wait = Rc::clone(&go);
        let serve = move |_: usize, request: Request<RecvStream>, mut respond: SendResponse<Bytes>| {
            let wait = Rc::clone(&wait);
            async move {
                match request.uri().path() {
                    "/reset" => respond.send_reset(Code::INTERNAL_ERROR),
                    "/half" => {
                        let mut send = respond.send_response(Response::new(()), false).unwrap();
                        send.send_data(Bytes::from_static(b"half"), false).unwrap();
                        wait.notified().await;
                        send.send_reset(Code::INTERNAL_ERROR);
                    }
                    "/slow" => std::future::pending().await,
                    _ => drop(respond.send_response(Response::new(()), true).unwrap()),
                }
            }
        };
        let app = app(100, serve).await;
        let mut backend = app.backend();
        backend.limits.response_timeout = Duration::from_secs(4);
        let (pools, backend) = (Pools::new(0), Arc::new(backend));
        text(send(&pools, &backend, to(&app, get("/"))).await.unwrap()).await;
        let failure = send(&pools, &backend, to(&app, get("/reset"))).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::Aborted(_)), "{:?}", failure.fault);
        assert_eq!(failure.tries, 1);
        let mut answer = send(&pools, &backend, to(&app, get("/half"))).await.unwrap();
        assert!(answer.response.body.frame().await.unwrap().is_ok());
        go.notify_one();
        assert!(matches!(answer.response.into_body().collect().await, Err(UpstreamFault::Aborted(_))));
        assert_eq!(app.connections.get(), 1);
        let failure = send(&pools, &backend, to(&app, get("/slow"))).await.unwrap_err();
        assert!(matches!(failure.fault, UpstreamFault::ResponseTimeout), "{:?}", failure.fault);
        // A server that did not respond gets no second request on the same connection.
        text(send(&pools, &backend, to(&app, get("/"))).await.unwrap()).await;
        assert_eq!(app.connections.get(), 2);
    });
}
