//! A listener in mode `http`: requests are understood, routed one by one, and answered or passed on.
//!
//! HTTP/1 is spoken over the guard of [`intake`] ([`h1`]), HTTP/2 by [`h2`]. Both lead to the way of a request
//! ([`exchange`], [`forward`]), files ([`files`]), what becomes of its fields ([`offramp_http::semantics`], [`told`]), bodies ([`inbound`], [`body`]), other
//! protocols ([`tunnel`]), and one event for each request ([`record`]).

mod access;
mod answer;
mod body;
mod client_certificate;
mod compress;
mod content;
mod date;
mod early;
mod exchange;
mod files;
mod forward;
mod forwarded_fields;
mod h1;
mod h2;
mod heads;
mod inbound;
mod intake;
mod intercept;
mod interim;
mod line;
mod mirror;
mod paced;
mod record;
mod session;
mod spelling;
mod trace;
mod transport;
mod tunnel;
mod unwanted;
mod values;
mod websocket;

use std::rc::Rc;

use offramp_observe::facts::HttpVersion;
use offramp_observe::{Cause, Close};

use crate::live::Protocol;

pub(crate) use answer::Refusal;
pub(crate) use body::ClientBody;
pub(crate) use client_certificate::ClientCertificate;
pub(crate) use compress::Compressors;
pub(crate) use date::Date;
pub(crate) use files::Roots;
pub(crate) use h2::Runners;
pub(crate) use heads::Heads;
pub(crate) use mirror::Mirrors;
pub(crate) use record::Record;
pub(crate) use session::{Session, Terminated};
pub(crate) use transport::Transport;

/// Serves a client's connection until it ends.
pub(crate) async fn serve(session: Rc<Session>, transport: Transport) -> Close {
    let view = session.view();
    let Some(http) = view.http() else { return Cause::NoRoute.into() };
    let limits = http.limits;
    let idle = view.snapshot.limits.idle_timeout;
    drop(view);
    let h2 = session.brief.tls.as_ref().is_some_and(|tls| tls.alpn.as_deref() == Some(b"h2"));
    let version = if h2 { HttpVersion::Http2 } else { HttpVersion::Http11 };
    session.worker.counters.http_connection(version);
    let protocol = if h2 { Protocol::H2 } else { Protocol::Http1 };
    session.worker.live.serves(session.live, &session, protocol);
    if h2 {
        h2::serve(session, transport, Vec::new(), &limits, idle).await
    } else {
        h1::serve(session, transport, &limits, idle).await
    }
}
