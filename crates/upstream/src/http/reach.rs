//! A connection for one request: from the pool, shared, or new.

use std::rc::Rc;

use offramp_tls::client::Alpn;

use super::h2::{Http2Connection, Http2Stream};
use super::line::{Http1Connection, RequestBody};
use super::pool::{NewConnection, Pooled, ServerPool};
use super::send::Affinity;
use crate::backend::{Backend, Protocol};
use crate::connect::{Progress, Reached, Reason, Way, reach};

/// The connection to a server that a request is sent on.
pub(super) enum ServerConnection<B: RequestBody> {
    /// One of its own, and the pool that it goes back to.
    Http1(Box<Http1Connection<B>>, Rc<ServerPool<B>>),
    /// A stream of one that is shared.
    Http2(Http2Stream),
}

/// A connection that is there already.
pub(super) fn pooled<B: RequestBody>(
    protocol: Protocol,
    pool: &Rc<ServerPool<B>>,
) -> Option<ServerConnection<B>> {
    let line = || pool.take().map(|line| ServerConnection::Http1(line, Rc::clone(pool)));
    let stream = || pool.stream().map(ServerConnection::Http2);
    match protocol {
        Protocol::Http1 => line(),
        Protocol::Http2 => stream(),
        Protocol::Either => stream().or_else(line),
    }
}

/// A connection to `server` that nobody has used before, or with HTTP/2 one that is just being made.
pub(super) async fn connected<B: RequestBody>(
    backend: &Backend,
    protocol: Protocol,
    server: usize,
    pool: Rc<ServerPool<B>>,
    about: &Affinity<'_, B>,
) -> Result<ServerConnection<B>, Reason> {
    if protocol == Protocol::Http1 {
        let reached = link(backend, server, Alpn::Http1, about).await?;
        return Ok(ServerConnection::Http1(pool.line(reached.into_link()), pool));
    }
    let make = async || {
        let alpn = if protocol == Protocol::Http2 { Alpn::Http2 } else { Alpn::Either };
        let reached = link(backend, server, alpn, about).await?;
        // Without TLS nothing can be agreed on.
        let shared = protocol == Protocol::Http2 || reached.is_http2();
        let link = reached.into_link();
        if shared {
            return Ok(NewConnection::Http2(Http2Connection::open(link, pool.streams_allowed())));
        }
        Ok(NewConnection::Http1(pool.line(link)))
    };
    match pool.stream_or(make).await? {
        Pooled::Http2(stream) => Ok(ServerConnection::Http2(stream)),
        Pooled::Http1(line) => Ok(ServerConnection::Http1(line, pool)),
    }
}

/// A connection to a server, on which what comes before HTTP was sent.
async fn link<B: RequestBody>(
    backend: &Backend,
    server: usize,
    alpn: Alpn,
    about: &Affinity<'_, B>,
) -> Result<Reached, Reason> {
    let prologue = about.private.map(super::pools::PrivateConnections::prologue).unwrap_or_default();
    let attempted = |succeeded| (about.progress)(Progress::Attempted { succeeded });
    reach(backend, server, backend.limits.connect_timeout, Way { prologue, alpn }, attempted).await
}
