//! The session of an HTTP connection, made when its TLS is done.

use std::rc::Rc;
use std::sync::Arc;

use offramp_net::Socket;
use offramp_observe::{Cause, Close, ConnectionBrief};
use offramp_tls::{Established, TlsStream};

use super::AcceptedProtocol;
use super::guard::ConnectionGuard;
use super::secure::{FreshConnection, Hello};
use crate::l7::{Session, SessionParts, Terminated, Transport, VerifiedClient};
use crate::proxy_header::{self, About, TlsPart};
use crate::snapshot::http::{Action, Http, HttpTls};
use crate::snapshot::{Listener, SendProxy, Snapshot};

/// A connection without TLS.
pub(super) fn plain(
    guard: &mut ConnectionGuard,
    snapshot: Arc<Snapshot>,
    listener: &Arc<Listener>,
    FreshConnection { socket, buffer: early, .. }: FreshConnection,
) -> Result<AcceptedProtocol, Close> {
    let session = session(guard, snapshot, listener, &socket, Terminated::default(), None)?;
    Ok(AcceptedProtocol::Http { session, transport: Box::new(Transport::plain(socket, early)) })
}

/// TLS that has ended here for HTTP.
pub(super) struct EndedTls<'a> {
    pub(super) http: &'a HttpTls,
    pub(super) hello: &'a Hello,
    pub(super) established: Established,
}

/// A connection after its handshake.
pub(super) fn terminated(
    guard: &mut ConnectionGuard,
    snapshot: Arc<Snapshot>,
    listener: &Arc<Listener>,
    FreshConnection { socket, buffer: early, .. }: FreshConnection,
    EndedTls { http, hello, established }: EndedTls<'_>,
) -> Result<AcceptedProtocol, Close> {
    let certificate = hello.certificate().cloned();
    let part = TlsPart { negotiated: &established.negotiated, certificate: certificate.as_deref() };
    let size = snapshot.record_size;
    let negotiated = &established.negotiated;
    let chain = || negotiated.client_chain.clone();
    let shown = negotiated.client_certificate.clone().map(|leaf| VerifiedClient::new(leaf, chain()));
    let terminated = Terminated { certificate: certificate.clone(), client_auth: http.client_auth, shown };
    let session = session(guard, snapshot, listener, &socket, terminated, Some(&part))?;
    let stream = TlsStream::new(socket, established.session, established.tickets, early, size);
    Ok(AcceptedProtocol::Http { session, transport: Box::new(Transport::Tls(Box::new(stream))) })
}

fn session(
    guard: &mut ConnectionGuard,
    snapshot: Arc<Snapshot>,
    listener: &Arc<Listener>,
    socket: &Socket,
    terminated: Terminated,
    part: Option<&TlsPart<'_>>,
) -> Result<Rc<Session>, Close> {
    let http = listener.http.as_ref().ok_or(Cause::NoRoute)?;
    let mut facts = guard.facts();
    let about = About::connection(&facts, socket);
    let header = |version: SendProxy| (version, proxy_header::build(version, &about, part));
    let headers = versions(http).into_iter().map(header).collect();
    let local = about.local;
    // The route of a request is the request's.
    facts.path.route = None;
    let brief = ConnectionBrief::from(&*facts);
    drop(facts);
    Ok(Session::new(SessionParts {
        worker: Rc::clone(&guard.services.worker),
        http: Rc::clone(&guard.services.http),
        accepted_by: guard.accepted_by,
        live: guard.live,
        snapshot,
        listener: Arc::clone(listener),
        brief,
        terminated,
        local,
        proxy_headers: headers,
    }))
}

/// The PROXY headers that routes ask for.
fn versions(http: &Http) -> Vec<SendProxy> {
    let mut versions = Vec::new();
    for route in http.routes.iter() {
        if let Action::Proxy(proxy) = &route.action
            && let Some(version) = proxy.send_proxy
            && !versions.contains(&version)
        {
            versions.push(version);
        }
    }
    versions
}
