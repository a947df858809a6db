//! The application behind the proxies: a TCP or Unix socket server that echoes, or answers each request
//! of a known size with a response of a known size.
//!
//! One thread, no protocol, and TLS only where the proxies are to speak it: it must cost less than any proxy in front of
//! it.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use tokio_rustls::TlsAcceptor;

use crate::error::{Error, Result};
use crate::h2load::framed;
use crate::load::tls;
use crate::protocol::{BackendSpec, Credentials, Event, Found, Place, Service, order, say, words};

/// Runs the helper process until its standard input ends.
///
/// # Errors
/// When it cannot listen.
pub(crate) async fn main() -> Result<()> {
    let spec: BackendSpec = order()?;
    let mut words = words();
    let service = spec.service;
    let blob: Arc<[u8]> = match service {
        Service::Echo => Arc::new([]),
        Service::Exchange { response, .. } => vec![b'x'; response].into(),
        Service::Http { response, .. } => http_response(response).into(),
        Service::Grpc { response } => framed(response).into(),
    };
    match spec.place {
        Place::Tcp => {
            let listener = bind()?;
            let acceptor = spec.tls.as_ref().map(acceptor).transpose()?;
            let address = listener.local_addr().map_err(|e| Error::io("asking for the own address", e))?;
            say(&Event::Listening(Found::Tcp(address)))?;
            tokio::spawn(async move {
                loop {
                    let Ok((stream, _)) = listener.accept().await else {
                        pause().await;
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    let blob = Arc::clone(&blob);
                    let Some(acceptor) = acceptor.clone() else {
                        tokio::spawn(serve(stream, service, blob));
                        continue;
                    };
                    tokio::spawn(async move {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream, service, blob).await;
                        }
                    });
                }
            });
        }
        Place::Unix(_) if spec.tls.is_some() => {
            return Err(Error::Measure("the application speaks TLS on TCP alone".into()));
        }
        Place::Unix(path) => {
            let _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path)
                .and_then(|l| {
                    // Peers that drop their privileges must reach it too.
                    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).map(|()| l)
                })
                .map_err(|e| Error::io(format!("listening on {}", path.display()), e))?;
            say(&Event::Listening(Found::Unix(path)))?;
            tokio::spawn(async move {
                loop {
                    let Ok((stream, _)) = listener.accept().await else {
                        pause().await;
                        continue;
                    };
                    tokio::spawn(serve(stream, service, Arc::clone(&blob)));
                }
            });
        }
    }
    while words.recv().await.is_some() {}
    Ok(())
}

/// TLS 1.3 with AES-128-GCM: the records that the proxies get on the other side, too.
fn acceptor(shown: &Credentials) -> Result<TlsAcceptor> {
    let failed = |e: rustls::Error| Error::Tls(e.to_string());
    let mut provider = default_provider();
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let (chain, key) = tls::read(shown)?;
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(failed)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Listens on a free port with a backlog that a thousand simultaneous connections do not overflow.
fn bind() -> Result<TcpListener> {
    let io = |e| Error::io("listening on 127.0.0.1", e);
    let socket = tokio::net::TcpSocket::new_v4().map_err(io)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(io)?;
    socket.listen(4096).map_err(io)
}

/// Out of descriptors: accepting again at once would spin.
async fn pause() {
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
}

/// One connection, to its end. An error of a peer ends it silently: the load counts what it misses.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, service: Service, blob: Arc<[u8]>) {
    let _ = match service {
        Service::Echo => echo(&mut stream).await,
        Service::Exchange { request, .. } => exchange(&mut stream, request, &blob).await,
        Service::Http { request, .. } => http(&mut stream, request, &blob).await,
        Service::Grpc { .. } => return grpc(stream, &blob).await,
    };
    let _ = stream.shutdown().await;
}

async fn echo(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<()> {
    // Small: an idle connection should not cost the machine memory that the proxies then compete for.
    let mut buffer = vec![0; 4096];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
        stream.flush().await?;
    }
}

async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: usize,
    blob: &[u8],
) -> std::io::Result<()> {
    let mut buffer = vec![0; request.clamp(512, 256 * 1024)];
    let mut missing = request;
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let mut left = count;
        while left >= missing {
            left -= missing;
            missing = request;
            stream.write_all(blob).await?;
            stream.flush().await?;
        }
        missing -= left;
    }
}

fn http_response(body: usize) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: ";
    let mut response = format!("{head}{body}\r\n\r\n").into_bytes();
    response.resize(response.len() + body, b'x');
    response
}

/// Answers requests without looking at them; a head is whatever an empty line ends, and `body` bytes follow it.
async fn http(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    body: usize,
    response: &[u8],
) -> std::io::Result<()> {
    const END: &[u8] = b"\r\n\r\n";
    const LONGEST: usize = 64 * 1024;
    let mut waiting = Vec::with_capacity(if body > 0 { 4 * LONGEST } else { 4096 });
    let mut missing = 0;
    while stream.read_buf(&mut waiting).await? > 0 {
        let mut done = 0;
        loop {
            let now = missing.min(waiting.len() - done);
            missing -= now;
            done += now;
            if missing > 0 {
                break;
            }
            if now > 0 {
                stream.write_all(response).await?;
            }
            let Some(end) = waiting[done..].windows(END.len()).position(|w| w == END) else { break };
            done += end + END.len();
            missing = body;
            if body == 0 {
                stream.write_all(response).await?;
            }
        }
        waiting.drain(..done);
        if waiting.len() > LONGEST {
            return Ok(());
        }
    }
    Ok(())
}

/// Answers each request of a connection of HTTP/2 with a message and the trailers of a call that went well.
async fn grpc(stream: impl AsyncRead + AsyncWrite + Unpin, message: &[u8]) {
    let mut server = h2::server::Builder::new();
    server.max_concurrent_streams(1_000);
    let Ok(mut connection) = server.handshake::<_, Bytes>(stream).await else { return };
    let message = Bytes::copy_from_slice(message);
    while let Some(Ok((request, respond))) = connection.accept().await {
        let message = message.clone();
        tokio::spawn(async move {
            // A client that leaves in the middle counts what it misses.
            let _ = call(request.into_body(), respond, message).await;
        });
    }
}

/// One unary call.
async fn call(
    mut body: h2::RecvStream,
    mut respond: SendResponse<Bytes>,
    message: Bytes,
) -> Result<(), h2::Error> {
    while let Some(data) = body.data().await {
        body.flow_control().release_capacity(data?.len())?;
    }
    let mut head = http::Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(message, false)?;
    let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    stream.send_trailers(HeaderMap::from_iter([status]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_head_gets_one_answer_however_it_is_cut() {
        let (mut client, mut server) = tokio::io::duplex(1 << 16);
        let response = http_response(3);
        let serving = tokio::spawn(async move { http(&mut server, 0, &http_response(3)).await });
        for piece in ["GET / HTTP/1.1\r\nHost: a\r\n\r", "\nGET / HTTP/1.1\r\n\r\nGET"] {
            client.write_all(piece.as_bytes()).await.unwrap();
        }
        let mut got = vec![0; 2 * response.len()];
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(got, [response.as_slice(), &response].concat());
        drop(client);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_body_of_the_known_length_is_left_out_however_it_is_cut() {
        let (mut client, mut server) = tokio::io::duplex(1 << 16);
        let response = http_response(3);
        let serving = tokio::spawn(async move { http(&mut server, 6, &http_response(3)).await });
        // What looks like the end of a head within a body is none.
        for piece in ["POST / HTTP/1.1\r\n\r\n\r\n", "\r\n12POST / HTTP/1.1\r\n\r\n123", "456"] {
            client.write_all(piece.as_bytes()).await.unwrap();
        }
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, [response.as_slice(), &response].concat());
        drop(client);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_unary_call_gets_a_message_and_a_status() {
        let (client, server) = tokio::io::duplex(1 << 16);
        let serving = tokio::spawn(async move { grpc(server, &framed(3)).await });
        let (mut client, connection) = h2::client::handshake(client).await.unwrap();
        let driving = tokio::spawn(connection);
        let request = http::Request::post("http://localhost/bench.Echo/Unary").body(()).unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from(framed(2)), true).unwrap();
        let mut answer = response.await.unwrap().into_body();
        assert_eq!(answer.data().await.unwrap().unwrap(), framed(3));
        assert_eq!(answer.trailers().await.unwrap().unwrap()["grpc-status"], "0");
        drop((client, answer, body));
        driving.await.unwrap().unwrap();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn requests_of_a_known_size_are_answered_one_by_one() {
        let (mut client, mut server) = tokio::io::duplex(1 << 16);
        let serving = tokio::spawn(async move { exchange(&mut server, 10, b"yes").await });
        client.write_all(&[0; 25]).await.unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"yesyes");
        serving.await.unwrap().unwrap();
    }
}
