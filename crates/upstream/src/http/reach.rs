//! A connection for one request: from the pool, shared, or new.

use std::io;
use std::rc::Rc;

use offramp_net::Socket;
use tokio::time::timeout;

use super::line::{Http1Connection, RequestBody};
use super::mux::{Mux, Stream};
use super::send::Affinity;
use super::shelf::Shelf;
use crate::backend::{Backend, Protocol};
use crate::connect::{Reason, reach};

/// A connection, or a part of one.
pub(super) enum Carrier<B: RequestBody> {
    Line(Box<Http1Connection<B>>, Rc<Shelf<B>>),
    Stream(Stream<B>),
}

/// A connection that is there already.
pub(super) fn pooled<B: RequestBody>(protocol: Protocol, shelf: &Rc<Shelf<B>>) -> Option<Carrier<B>> {
    match protocol {
        Protocol::Http1 => shelf.take().map(|line| Carrier::Line(line, Rc::clone(shelf))),
        Protocol::Http2 => shelf.stream().map(Carrier::Stream),
    }
}

/// A connection to `server` that nobody has used before, or with HTTP/2 one that is just being made.
pub(super) async fn connected<B: RequestBody>(
    backend: &Backend,
    server: usize,
    shelf: Rc<Shelf<B>>,
    about: &Affinity<'_, B>,
) -> Result<Carrier<B>, Reason> {
    match backend.protocol {
        Protocol::Http1 => {
            let socket = socket(backend, server, about).await?;
            Ok(Carrier::Line(Box::new(Http1Connection::new(socket)), shelf))
        }
        Protocol::Http2 => {
            let make = async || Mux::open(socket(backend, server, about).await?).await.map_err(closed);
            shelf.stream_or(make).await.map(Carrier::Stream)
        }
    }
}

/// A socket that is connected, and has been told what comes before HTTP.
async fn socket<B: RequestBody>(
    backend: &Backend,
    server: usize,
    about: &Affinity<'_, B>,
) -> Result<Socket, Reason> {
    let limit = backend.limits.connect_timeout;
    let socket = reach(backend, server, limit, about.attempted).await?;
    if let Some(private) = about.private {
        match timeout(limit, socket.write_all(private.prologue())).await {
            Ok(written) => written.map_err(Reason::Io)?,
            Err(_) => return Err(Reason::Timeout),
        }
    }
    Ok(socket)
}

/// What a handshake of hyper's fails with: nothing that we could say better.
fn closed(error: hyper::Error) -> Reason {
    Reason::Io(io::Error::new(io::ErrorKind::ConnectionAborted, error))
}
