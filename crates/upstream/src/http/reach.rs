//! Connections for a request: pooled, shared, or new.

use std::rc::Rc;

use offramp_tls::client::Alpn;

use super::h2::{Http2Connection, Http2Stream};
use super::line::{Http1Connection, RequestBody};
use super::pool::{NewConnection, PooledConnection, ServerPool};
use super::send::Affinity;
use crate::backend::{Backend, ServerProtocol};
use crate::connect::{ConnectEvent, ConnectParams, Reached, addresses, reach};
use crate::fault::ConnectFault;

/// The connection to a server that a request is sent on.
pub(super) enum ServerConnection<B: RequestBody> {
    /// A connection of its own, and the pool that it returns to.
    Http1(Box<Http1Connection<B>>, Rc<ServerPool<B>>),
    /// A stream of a shared connection.
    Http2(Http2Stream),
}

/// An existing connection of the pool, if any.
pub(super) fn pooled<B: RequestBody>(
    protocol: ServerProtocol,
    pool: &Rc<ServerPool<B>>,
) -> Option<ServerConnection<B>> {
    let line = || pool.take().map(|line| ServerConnection::Http1(line, Rc::clone(pool)));
    let stream = || pool.stream().map(ServerConnection::Http2);
    match protocol {
        ServerProtocol::Http1 => line(),
        ServerProtocol::Http2 => stream(),
        ServerProtocol::Either => stream().or_else(line),
    }
}

/// A new connection to `server` or, with HTTP/2, one that is just being made.
pub(super) async fn connected<B: RequestBody>(
    backend: &Backend,
    protocol: ServerProtocol,
    server: usize,
    pool: Rc<ServerPool<B>>,
    about: &Affinity<'_, B>,
) -> Result<ServerConnection<B>, ConnectFault> {
    if protocol == ServerProtocol::Http1 {
        let reached = link(backend, server, Alpn::Http1, about).await?;
        return Ok(ServerConnection::Http1(pool.line(reached.into_link()), pool));
    }
    let make = async || {
        let alpn = if protocol == ServerProtocol::Http2 { Alpn::Http2 } else { Alpn::Either };
        let reached = link(backend, server, alpn, about).await?;
        // Without TLS there is no negotiation.
        let shared = protocol == ServerProtocol::Http2 || reached.is_http2();
        let link = reached.into_link();
        if shared {
            return Ok(NewConnection::Http2(Http2Connection::open(link, pool.streams_allowed())));
        }
        Ok(NewConnection::Http1(pool.line(link)))
    };
    // The timeout applies to each of its addresses.
    let patience = about.timeouts.connect(&backend.limits) * addresses(backend, server);
    match pool.stream_or(patience, make).await? {
        PooledConnection::Http2(stream) => Ok(ServerConnection::Http2(stream)),
        PooledConnection::Http1(line) => Ok(ServerConnection::Http1(line, pool)),
    }
}

/// Connects to a server, and sends the prologue.
async fn link<B: RequestBody>(
    backend: &Backend,
    server: usize,
    alpn: Alpn,
    about: &Affinity<'_, B>,
) -> Result<Reached, ConnectFault> {
    let prologue = about.private.map(super::pools::PrivateConnections::prologue).unwrap_or_default();
    let attempted = |succeeded| (about.progress)(ConnectEvent::Attempted { succeeded });
    reach(
        backend,
        server,
        about.timeouts.connect(&backend.limits),
        ConnectParams { prologue, alpn },
        attempted,
    )
    .await
}
