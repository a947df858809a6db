//! A listener in mode `http`: requests are understood, routed one by one, and answered or passed on.
//!
//! HTTP/1 is spoken over the guard of [`intake`] ([`h1`]), HTTP/2 by [`h2`]. Both lead to the way of a request
//! ([`exchange`], [`forward`]), files ([`files`]), changes of its fields ([`offramp_http::semantics`], [`forwarded_fields`]),
//! bodies ([`inbound`], [`body`]), other protocols ([`tunnel`]), and one event for each request ([`record`]).

mod access;
mod answer;
mod body;
mod client_certificate;
mod compress;
mod content;
mod date;
mod deadlines;
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
mod resources;
mod session;
mod spelling;
mod trace;
mod transport;
mod tunnel;
mod unwanted;
mod upstream_failure;
mod values;
mod websocket;

use std::rc::{Rc, Weak};

use offramp_observe::facts::HttpVersion;
use offramp_observe::{Cause, Close};

use crate::live::ConnectionProtocol;
use crate::live::table::HttpActivity;

pub(crate) use client_certificate::VerifiedClient;
pub(crate) use resources::HttpResources;
pub(crate) use session::{Session, SessionParts, Terminated};
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
    let protocol = if h2 { ConnectionProtocol::H2 } else { ConnectionProtocol::Http1 };
    let activity: Weak<dyn HttpActivity> = Rc::downgrade(&session) as _;
    session.worker.live.serves(session.live, activity, protocol);
    if h2 {
        h2::serve(session, transport, Vec::new(), &limits, idle).await
    } else {
        h1::serve(session, transport, &limits, idle).await
    }
}
