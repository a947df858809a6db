//! A client may be silent while a response is under way, or in a call of gRPC: neither `min_body_rate` nor
//! `request_body_timeout` ends it, and `idle_timeout` does. An upload that trickles ends by its rate.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{HeaderMap, Method, Request, Response};
use rustls::ClientConfig;

use crate::support::crowd::{connect, trusting};
use crate::support::http_curl::HTTP;
use crate::support::http_h2;
use crate::support::instance::{CERTIFICATE, Home, Instance, PATIENCE, cause, text};

/// Longer than the 10 s after which rates count.
const SILENCE: Duration = Duration::from_secs(12);
/// Time between two bytes of an upload that trickles.
const TRICKLE: Duration = Duration::from_millis(300);
const GRPC: &str = "application/grpc+proto";
const BYTES: &str = "application/octet-stream";

/// Starts a server that answers `/talk` at once and repeats what comes, and `/collect` when all has come.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        // A request that Offramp ends is an error here.
                        tokio::spawn(async { drop(answer(request, respond).await) });
                    }
                });
            }
        });
    });
    address
}

async fn answer(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let talks = request.uri().path() == "/talk";
    let mut body = request.into_body();
    let mut begun = talks.then(|| respond.send_response(Response::new(()), false)).transpose()?;
    let mut all = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        let _ = body.flow_control().release_capacity(part.len());
        match &mut begun {
            Some(stream) => stream.send_data(part, false)?,
            None => all.extend_from_slice(&part),
        }
    }
    let mut stream = match begun {
        Some(stream) => stream,
        None => respond.send_response(Response::new(()), false)?,
    };
    stream.send_data(all.into(), false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    stream.send_trailers(trailers)
}

/// Starts Offramp before that server. A server behind `/http1` speaks HTTP/1, as far as anybody can tell: it says nothing.
fn instance(limits: &str) -> (Instance, Arc<ClientConfig>, TcpListener) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let instance = Home::new().run(&format!(
        "workers = 1\n[limits]\n{limits}{CERTIFICATE}{HTTP}[[route]]\nbackend = \"app\"\n\
         [[route]]\npath = \"/http1\"\nserver = \"{}\"\n\
         [backend.app]\nservers = [\"{}\"]\nprotocol = \"h2\"\n",
        silent.local_addr().unwrap(),
        server()
    ));
    let config = trusting(&instance.home.ca.certificate());
    (instance, config, silent)
}

fn post(path: &str, kind: &str) -> Request<()> {
    let request = Request::builder().method(Method::POST).uri(format!("https://localhost{path}"));
    request.header("content-type", kind).header("te", "trailers").body(()).unwrap()
}

/// Sends a byte, is silent, and sends another; gives status and content of the response.
async fn quiet(
    sender: SendRequest<Bytes>,
    path: &str,
    kind: &str,
    silence: Duration,
) -> Result<(u16, Vec<u8>), h2::Error> {
    let (response, mut up) = sender.ready().await?.send_request(post(path, kind), false)?;
    up.send_data(Bytes::from_static(b"a"), false)?;
    let mut answer = std::pin::pin!(async {
        let response = response.await?;
        Ok((response.status().as_u16(), http_h2::body(response.into_body()).await?))
    });
    if let Ok(early) = tokio::time::timeout(silence, &mut answer).await {
        return early;
    }
    up.send_data(Bytes::from_static(b"b"), true)?;
    answer.await
}

/// Sends a byte now and then, until there is a response; gives its status.
async fn trickle(sender: SendRequest<Bytes>, path: &str, kind: &str) -> u16 {
    let (response, mut up) = sender.ready().await.unwrap().send_request(post(path, kind), false).unwrap();
    let mut response = std::pin::pin!(response);
    loop {
        if let Ok(response) = tokio::time::timeout(TRICKLE, &mut response).await {
            return response.unwrap().status().as_u16();
        }
        // The stream may be over by now.
        let _ = up.send_data(Bytes::from_static(b"x"), false);
    }
}

/// The same over HTTP/1.1; gives the beginning of the response.
fn trickle_by_http1(config: &Arc<ClientConfig>, address: SocketAddr) -> String {
    let mut stream = connect(config, address, "localhost").unwrap();
    let head = "POST /collect HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.sock.set_read_timeout(Some(TRICKLE)).unwrap();
    let mut begin = [0; 12];
    loop {
        match stream.read(&mut begin) {
            Ok(n) => return String::from_utf8_lossy(&begin[..n]).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
        // The response may be under way.
        let _ = stream.write_all(b"1\r\nx\r\n");
    }
}

#[test]
fn silence_is_no_slow_upload() {
    let (instance, config, _silent) = instance("request_body_timeout = \"2s\"\n");
    let address = instance.address();
    let by_http1 = thread::spawn({
        let config = Arc::clone(&config);
        move || trickle_by_http1(&config, address)
    });
    http_h2::run(async {
        let sender = http_h2::connect(&config, address).await.unwrap();
        let call = |path, kind| quiet(sender.clone(), path, kind, SILENCE);
        let (talk, collect, duplex, slow, no_grpc) = tokio::join!(
            call("/talk", GRPC),
            call("/collect", GRPC),
            // Not only gRPC: whoever has a response already may listen.
            call("/talk", BYTES),
            trickle(sender.clone(), "/collect", BYTES),
            // No call of gRPC goes to a server of HTTP/1, whatever the request says of itself.
            trickle(sender.clone(), "/http1", GRPC),
        );
        for (what, got) in [("talk", talk), ("collect", collect), ("duplex", duplex)] {
            assert_eq!(got.map_err(|error| error.to_string()), Ok((200, b"ab".to_vec())), "{what}");
        }
        assert_eq!((slow, no_grpc), (408, 408));
    });
    assert_eq!(by_http1.join().unwrap(), "HTTP/1.1 408");
    let events = instance.stop();
    let mut causes: Vec<_> = events.iter().filter(|event| !event["status"].is_null()).map(cause).collect();
    causes.sort_unstable();
    assert_eq!(
        causes,
        ["completed", "completed", "completed", "request_too_slow", "request_too_slow", "request_too_slow"]
    );
}

/// A client that stays silent is disconnected.
#[test]
fn silence_is_bounded() {
    let (instance, config, _silent) = instance("idle_timeout = \"2s\"\nrequest_body_timeout = \"1s\"\n");
    http_h2::run(async {
        let sender = http_h2::connect(&config, instance.address()).await.unwrap();
        let call = |path, kind| quiet(sender.clone(), path, kind, PATIENCE);
        let (talk, collect) = tokio::join!(call("/talk", GRPC), call("/collect", GRPC));
        assert!(talk.is_err(), "{talk:?}");
        assert_eq!(collect.unwrap().0, 408);
    });
    let events = instance.stop();
    let mut causes: Vec<_> = events
        .iter()
        .filter(|event| !event["status"].is_null())
        .map(|event| (text(event, "path"), cause(event)))
        .collect();
    causes.sort_unstable();
    assert_eq!(causes, [("/collect", "request_body_timeout"), ("/talk", "idle_timeout")]);
}
