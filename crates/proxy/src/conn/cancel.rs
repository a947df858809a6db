//! A CancelRequest of PostgreSQL in clear, as clients before libpq 17 send it: it goes to a server as it came, and the
//! connection ends. No TLS protects it, so no more than its 16 bytes pass, and none to a route that asks for client
//! certificates.

use std::io;
use std::time::Duration;

use offramp_net::Socket;
use offramp_observe::{Cause, Close};
use offramp_wire::postgres::ALPN;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::establish::check_address;
use super::guard::ConnectionGuard;
use super::secure::FreshConnection;
use super::server::{self, ServerSide};
use crate::failure;
use crate::live::ConnectionProtocol;
use crate::snapshot::{Listener, Snapshot, Target};

/// Sends the request to a server of the route without `host`, and waits until the server has closed: it does so
/// once it has signalled the query, which is what the client waits for.
pub(super) async fn forward(
    guard: &mut ConnectionGuard,
    snapshot: &Snapshot,
    listener: &Listener,
    FreshConnection { socket, buffer, .. }: &FreshConnection,
) -> Close {
    match deliver(guard, snapshot, listener, socket, buffer.filled()).await {
        Ok(()) => Cause::PostgresCancel.into(),
        Err(close) => close,
    }
}

async fn deliver(
    guard: &mut ConnectionGuard,
    snapshot: &Snapshot,
    listener: &Listener,
    client: &Socket,
    request: &[u8],
) -> Result<(), Close> {
    let route = listener.routes.find(None, |protocol| protocol == ALPN).ok_or(Cause::NoRoute)?;
    guard.follow(route);
    let address = guard.facts().client.ip();
    check_address(route.addresses.as_deref(), address)?;
    let Target::Relay(relay) = &route.target else { return Err(Cause::TlsRequired.into()) };
    if relay.allow.is_some() {
        return Err(Close::from(Cause::TlsRequired).with_detail("the route has `client_auth`"));
    }
    guard.set_protocol(ConnectionProtocol::Tcp);
    let server = server::connect(guard, snapshot, &relay.to, client, None).await?;
    let limit = relay.to.connect_timeout(snapshot).min(LONGEST);
    let sent = timeout(limit, send(server, request)).await;
    sent.map_err(|_| Close::from(Cause::ServerHung))?.map_err(|error| failure::server(&error))?;
    guard.facts().traffic.from_client = request.len() as u64;
    Ok(())
}

/// Sends the request and waits for the end of the server's side. A server that resets has closed as well.
async fn send(ServerSide { socket, secured }: ServerSide, request: &[u8]) -> io::Result<()> {
    let mut end = [0; 1];
    let closed = match secured {
        None => {
            socket.write_all(request).await?;
            socket.read(&mut end).await
        }
        Some(secured) => {
            let mut stream = secured.into_stream(socket);
            stream.write_all(request).await?;
            stream.flush().await?;
            stream.read(&mut end).await
        }
    };
    match closed {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(()),
    }
}

/// A server that does not close keeps the client no longer than this.
const LONGEST: Duration = Duration::from_secs(10);
