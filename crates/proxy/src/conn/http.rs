//! What the requests of an HTTP connection will have to know of it, gathered when its TLS is done.

use std::rc::Rc;
use std::sync::Arc;

use offramp_net::{Buffer, Socket};
use offramp_observe::{Cause, Close, ConnectionBrief};
use offramp_tls::{Established, Stream};

use super::secure::Hello;
use super::{Life, Ready};
use crate::l7::{ClientCertificate, Session, Terminated, Transport};
use crate::proxy_header::{self, About, TlsPart};
use crate::snapshot::http::{Action, Http, HttpTls};
use crate::snapshot::{Listener, SendProxy, Snapshot};

/// A connection without TLS.
pub(super) fn plain(
    life: &mut Life,
    snapshot: Arc<Snapshot>,
    listener: &Arc<Listener>,
    socket: Socket,
    early: Buffer,
) -> Result<Ready, Close> {
    let session = session(life, snapshot, listener, &socket, Terminated::default(), None)?;
    Ok(Ready::Http { session, transport: Box::new(Transport::plain(socket, early)) })
}

/// A connection whose handshake is done.
pub(super) fn terminated(
    life: &mut Life,
    snapshot: Arc<Snapshot>,
    listener: &Arc<Listener>,
    (socket, early): (Socket, Buffer),
    (http, hello): (&HttpTls, &Hello),
    established: Established,
) -> Result<Ready, Close> {
    let certificate = hello.certificate().cloned();
    let part = TlsPart { negotiated: &established.negotiated, certificate: certificate.as_deref() };
    let size = snapshot.record_size;
    let negotiated = &established.negotiated;
    let chain = || negotiated.client_chain.clone();
    let shown = negotiated.client_certificate.clone().map(|leaf| ClientCertificate::new(leaf, chain()));
    let terminated = Terminated { certificate: certificate.clone(), client_auth: http.client_auth, shown };
    let session = session(life, snapshot, listener, &socket, terminated, Some(&part))?;
    let stream = Stream::new(socket, established.session, established.tickets, early, size);
    Ok(Ready::Http { session, transport: Box::new(Transport::Tls(Box::new(stream))) })
}

fn session(
    life: &mut Life,
    snapshot: Arc<Snapshot>,
    listener: &Arc<Listener>,
    socket: &Socket,
    terminated: Terminated,
    part: Option<&TlsPart<'_>>,
) -> Result<Rc<Session>, Close> {
    let http = listener.http.as_ref().ok_or(Cause::NoRoute)?;
    let mut facts = life.facts();
    let about = About::connection(&facts, socket);
    let header = |version: SendProxy| (version, proxy_header::build(version, &about, part));
    let prologues = versions(http).into_iter().map(header).collect();
    let local = about.local;
    // The route of a request is the request's.
    facts.path.route = None;
    let brief = ConnectionBrief::from(&*facts);
    drop(facts);
    let view = (snapshot, Arc::clone(listener));
    let door = (Rc::clone(&life.worker), life.accepted_by, life.live);
    Ok(Session::new(door, brief, view, terminated, local, prologues))
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
