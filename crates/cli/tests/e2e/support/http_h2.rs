//! An HTTP/2 client for what curl cannot do: extended CONNECT, and requests that a GOAWAY sends back.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::crowd::offering;
use crate::support::instance::PATIENCE;

/// Runs a client to its end, which must come within [`PATIENCE`] twice over.
pub(crate) fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE * 2, client).await.expect("the client is done in time")
    })
}

/// A connection to `localhost` at `address`, over TLS with ALPN; it is served by a task of its own until
/// the server or the last of its requests ends it.
pub(crate) async fn connect(
    config: &Arc<ClientConfig>,
    address: SocketAddr,
) -> std::io::Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let tls = TlsConnector::from(offering(config, &["h2"])).connect(name, stream).await?;
    // So that a body that nobody reads does not stop the others.
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(1 << 24);
    let (sender, connection) = builder.handshake(tls).await.map_err(std::io::Error::other)?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Reads a body to its end.
pub(crate) async fn body(mut stream: h2::RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut whole = Vec::new();
    while let Some(part) = stream.data().await {
        let part = part?;
        // Fails for a stream that is over, which wants no more.
        let _ = stream.flow_control().release_capacity(part.len());
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}
