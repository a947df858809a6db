//! A connection for one request: from the pool, shared, or new.

use std::rc::Rc;

use offramp_tls::client::Alpn;

use super::h2::{Http2Connection, Http2Stream};
use super::line::{Http1Connection, RequestBody};
use super::send::Affinity;
use super::shelf::{Got, Made, Shelf};
use crate::backend::{Backend, Protocol};
use crate::connect::{Reached, Reason, Way, reach};

/// A connection, or a part of one.
pub(super) enum Carrier<B: RequestBody> {
    Line(Box<Http1Connection<B>>, Rc<Shelf<B>>),
    Stream(Http2Stream),
}

/// A connection that is there already.
pub(super) fn pooled<B: RequestBody>(protocol: Protocol, shelf: &Rc<Shelf<B>>) -> Option<Carrier<B>> {
    let line = || shelf.take().map(|line| Carrier::Line(line, Rc::clone(shelf)));
    let stream = || shelf.stream().map(Carrier::Stream);
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
    shelf: Rc<Shelf<B>>,
    about: &Affinity<'_, B>,
) -> Result<Carrier<B>, Reason> {
    if protocol == Protocol::Http1 {
        let reached = link(backend, server, Alpn::Http1, about).await?;
        return Ok(Carrier::Line(Box::new(Http1Connection::new(reached.into_link())), shelf));
    }
    let make = async || {
        let alpn = if protocol == Protocol::Http2 { Alpn::Http2 } else { Alpn::Either };
        let reached = link(backend, server, alpn, about).await?;
        // Without TLS nothing can be agreed on.
        let shared = protocol == Protocol::Http2 || reached.is_http2();
        let link = reached.into_link();
        if shared {
            return Ok(Made::Shared(Http2Connection::open(link)));
        }
        Ok(Made::Line(Box::new(Http1Connection::new(link))))
    };
    match shelf.stream_or(make).await? {
        Got::Stream(stream) => Ok(Carrier::Stream(stream)),
        Got::Line(line) => Ok(Carrier::Line(line, shelf)),
    }
}

/// A connection to a server that has been told what comes before HTTP.
async fn link<B: RequestBody>(
    backend: &Backend,
    server: usize,
    alpn: Alpn,
    about: &Affinity<'_, B>,
) -> Result<Reached, Reason> {
    let prologue = about.private.map(super::pools::PrivateConnections::prologue).unwrap_or_default();
    reach(backend, server, backend.limits.connect_timeout, Way { prologue, alpn }, about.attempted).await
}
