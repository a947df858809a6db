//! The server of a connection: it is picked, connected, and gets its PROXY header.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use offramp_net::Socket;
use offramp_observe::{Cause, Close};
use offramp_tls::client::Secured;
use offramp_upstream::ConnectEvent;
use tokio::time::timeout;

use super::ConnectionGuard;
use crate::failure;
use crate::proxy_header::{self, About, TlsPart};
use crate::snapshot::{Destination, Snapshot};

/// A connection to a server, and the TLS on it where it speaks TLS.
pub(super) struct ServerSide {
    pub(super) socket: Socket,
    pub(super) secured: Option<Box<Secured>>,
}

/// Connects to a server, which gets the PROXY header of the client before anything else.
pub(super) async fn connect(
    guard: &mut ConnectionGuard,
    snapshot: &Snapshot,
    destination: &Destination,
    client: &Socket,
    tls: Option<&TlsPart<'_>>,
) -> Result<ServerSide, Close> {
    let header = destination.send_proxy.map(|version| {
        let facts = guard.facts();
        proxy_header::build(version, &About::connection(&facts, client), tls)
    });
    let worker = Rc::clone(&guard.services.worker);
    let state = worker.backend_state(snapshot, destination.backend);
    let backend = &snapshot.backends[destination.backend];
    guard.facts().path.backend = Some(Arc::clone(&backend.name));
    let (begun, live) = (Instant::now(), guard.live);
    let on = |progress: ConnectEvent<'_>| match progress {
        ConnectEvent::Picked(server) => worker.live.facts(live).path.server = Some(Arc::clone(server)),
        ConnectEvent::Attempted { .. } => worker.count_attempt(progress),
    };
    let address = guard.facts().client.ip();
    let limit = destination.connect_timeout(snapshot);
    let header = header.unwrap_or_default();
    // It goes before the handshake where there is one.
    let prologue = if backend.tls.is_some() { &header[..] } else { &[] };
    let outcome = offramp_upstream::connect(backend, &state, address, limit, prologue, on).await;
    guard.facts().times.connect = Some(begun.elapsed());
    match outcome {
        Ok(connected) => {
            guard.facts().path.tries = connected.tries;
            guard.permit = Some(connected.permit);
            if connected.secured.is_none() && !header.is_empty() {
                send_header(&connected.socket, &header, limit).await?;
            }
            Ok(ServerSide { socket: connected.socket, secured: connected.secured })
        }
        Err(error) => {
            let mut facts = guard.facts();
            facts.path.server = error.server.map(|server| Arc::clone(&backend.servers[server].name));
            facts.path.tries = error.tries;
            Err(failure::unreachable(&error, backend.servers.len()))
        }
    }
}

/// Sends the PROXY header to the server.
async fn send_header(server: &Socket, header: &[u8], limit: Duration) -> Result<(), Close> {
    match timeout(limit, server.write_all(header)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failure::server(&error)),
        Err(_) => Err(Cause::ServerHung.into()),
    }
}
